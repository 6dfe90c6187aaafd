"""Modules whose libraries are extras are left out where those are not installed, so that their doctests do not fail."""

from importlib.util import find_spec

NEED_FLARE = (
    "src/sottovoce/consortium/controller.py",
    "src/sottovoce/consortium/executor.py",
    "tests/consortium/cells.py",
)
NEED_ONNX = ("src/sottovoce/export/graph.py",)
collect_ignore = ["docs/conf.py"]  # Sphinx's to run
for library, files in {"nvflare": NEED_FLARE, "onnx": NEED_ONNX}.items():
    collect_ignore += [] if find_spec(library) else files
