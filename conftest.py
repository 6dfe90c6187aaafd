"""For tests, doctests and plug-ins: what is collected, and draws that are the same each time.

Modules whose libraries are extras are left out where those are not installed, so that their doctests do not fail.

What the package draws from the operating system comes from a counter that every test starts anew, so that a run without
a seed has the same noise each time. Processes that a test starts draw their own.
"""

import hashlib
import os
import random
import sys
from importlib.util import find_spec
from itertools import count

import pytest

NEED_FLARE = (
    "src/sottovoce/consortium/controller.py",
    "src/sottovoce/consortium/executor.py",
    "tests/consortium/cells.py",
)
NEED_ONNX = ("src/sottovoce/export/graph.py",)
collect_ignore = ["docs/conf.py"]  # Sphinx's to run
for library, files in {"nvflare": NEED_FLARE, "onnx": NEED_ONNX}.items():
    collect_ignore += [] if find_spec(library) else files

_system_random, _draws = os.urandom, count()


def _seeded_random(size):
    """Bytes for the package from the counter; for others, such as names of temporary folders, the system's.

    So too for envelopes, since what tests share must not see a nonce twice. The noise that comes from their keys is
    compared with a simulation's, never with a threshold.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in ("random", "secrets"):
        frame = frame.f_back
    name = frame.f_globals.get("__name__", "")
    if not name.startswith("sottovoce.") or name == "sottovoce.node.envelope":
        return _system_random(size)
    return hashlib.shake_256(next(_draws).to_bytes(8, "big")).digest(size)


os.urandom = random._urandom = _seeded_random


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Start the draws of a test, and those of fixtures that it is the first to use, from the beginning."""
    global _draws
    _draws = count()
