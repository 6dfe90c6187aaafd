"""The same task elsewhere and here: the programs that the page shows, run where what they need is installed."""

import importlib.util
import re
import runpy
import warnings

import pytest
from commands import PAGES, ROOT

FOLDER = ROOT / "examples" / "coming_from"
NEEDS = {"here.py": "sottovoce", "scikit_learn.py": "sklearn", "diffprivlib_.py": "diffprivlib", "opacus_.py": "opacus"}
"""Flower's starts a cluster of processes, which is not for a test: the page says with which version it was run."""


def test_the_page_shows_every_program():
    shown = set(re.findall(r"literalinclude} \.\./examples/coming_from/(\w+\.py)", PAGES["coming-from"].read_text()))
    assert shown == {*NEEDS, "flower.py"} == {path.name for path in FOLDER.glob("*.py")} - {"task.py"}


@pytest.mark.parametrize("name", NEEDS)
def test_a_program_learns(name, monkeypatch, capsys):
    if importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed, and no dependency of ours")
    monkeypatch.syspath_prepend(str(FOLDER))
    with warnings.catch_warnings():
        if name not in ("here.py", "scikit_learn.py"):
            warnings.simplefilter("ignore")  # theirs to fix
        runpy.run_path(str(FOLDER / name), run_name="__main__")
    said = capsys.readouterr().out
    accuracy = float(re.match(r"accuracy (0\.\d+)", said)[1])
    assert accuracy > (0.9 if name in ("here.py", "scikit_learn.py") else 0.8)
    assert "δ" in said or "not private" in said  # no ε without it
