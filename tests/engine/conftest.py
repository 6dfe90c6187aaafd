"""`contract` is a module beside the tests, not a package; and one compilation of the kernel serves them all."""

import sys
from pathlib import Path

import pytest

from sottovoce.engine import compiled
from sottovoce.engine.kernel.arguments import Kind

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def complete(monkeypatch):
    """The kernel with everything in it, whatever a run needs of it: each kind of a run would be compiled by itself.

    `test_kinds` holds the kinds to it.
    """
    kind_of = compiled.kind_of

    def everything(*given):
        return Kind(True, kind_of(*given).tiles, True, True, True, True)

    monkeypatch.setattr(compiled, "kind_of", everything)
    return kind_of
