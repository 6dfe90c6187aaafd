"""`contract` is a module beside the tests, not a package; and one compilation of the kernel serves them all.

The device's kernels run on the host, in blocks of one thread and of three, and where there is a device on it.
"""

import shutil
import sys
from pathlib import Path

import pytest

from sottovoce.engine import compiled
from sottovoce.engine.gpu.machine import Cuda, Host, device
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


@pytest.fixture
def overhear(monkeypatch):
    """(module, name) -> a list of what that function gives from now on, call by call."""

    def listen(where, name):
        found, plain = [], getattr(where, name)

        def heard(*given):
            found.append(plain(*given))
            return found[-1]

        monkeypatch.setattr(where, name, heard)
        return found

    return listen


HOSTS = ["host", "host with 3 threads"]


@pytest.fixture(scope="module", params=[*HOSTS, pytest.param("device", marks=pytest.mark.gpu)])
def machine(request):
    """Where kernels run."""
    if request.param == "device":
        found = device()
        return pytest.skip(found) if isinstance(found, str) else Cuda(special=False)
    if shutil.which("g++") is None:
        return pytest.skip("no C++ compiler")
    return Host(3 if request.param == HOSTS[1] else 1)
