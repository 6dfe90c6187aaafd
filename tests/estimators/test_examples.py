"""The gallery runs, every script of it, and says what it promises."""

import runpy
from pathlib import Path

import pytest

GALLERY = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("script", GALLERY, ids=lambda path: path.stem)
def test_an_example_runs(script, capsys):
    runpy.run_path(str(script), run_name="__main__")
    said = capsys.readouterr().out
    assert len(said.splitlines()) >= 2
    assert "ε" not in said or "δ" in said  # never one without the other
    assert runpy.run_path(str(script))["__doc__"]


def test_there_is_a_gallery():
    assert len(GALLERY) >= 5
