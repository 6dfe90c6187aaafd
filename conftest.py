"""Modules whose libraries are extras are left out where those are not installed, so that their doctests do not fail."""

from importlib.util import find_spec

NEED_FLARE = (
    "src/sottovoce/consortium/controller.py",
    "src/sottovoce/consortium/executor.py",
    "tests/consortium/cells.py",
)
collect_ignore = ["docs/conf.py", *(() if find_spec("nvflare") else NEED_FLARE)]  # conf.py is Sphinx's to run
