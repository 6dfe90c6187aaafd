"""The engine on the host and, where there is one, on a GPU; its cases and problems are those of the core's contract.

On the host the kernels run in blocks of one thread and of three.
"""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

import sottovoce_gpu
from sottovoce import plugins
from sottovoce_gpu.machine import Cuda, Host, device

CORE = Path(__file__).parents[3] / "tests"
sys.path.insert(0, str(CORE / "engine"))  # `contract` is a module beside the core's tests, not a package
_spec = importlib.util.spec_from_file_location("core_fixtures", CORE / "conftest.py")
_core = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_core)
make_shards = _core.make_shards

HOSTS = ["host", "host with 3 threads"]


@pytest.fixture(autouse=True)
def registered():
    """The plug-in, as if it were installed."""
    plugins.load()  # now, so that a later load does not replace an engine that a test sets
    known = ("engine", "gpu") in plugins.REGISTERED
    sottovoce_gpu.register()
    yield
    if not known:
        plugins.unregister("engine", "gpu")


@pytest.fixture(scope="module", params=[*HOSTS, pytest.param("device", marks=pytest.mark.gpu)])
def machine(request):
    """Where kernels run."""
    if request.param == "device":
        found = device()
        return pytest.skip(found) if isinstance(found, str) else Cuda(special=False)
    if shutil.which("g++") is None:
        return pytest.skip("no C++ compiler")
    return Host(3 if request.param == HOSTS[1] else 1)


@pytest.fixture
def overhear(monkeypatch):
    """(module, name) -> a list of what that function returns from now on, call by call."""

    def listen(where, name):
        found, plain = [], getattr(where, name)

        def heard(*given):
            found.append(plain(*given))
            return found[-1]

        monkeypatch.setattr(where, name, heard)
        return found

    return listen
