"""The gallery runs, every script of it, says what it promises, and draws a picture."""

import ast
import os
import runpy
from pathlib import Path

import matplotlib
import pytest

from sottovoce import plugins

GALLERY = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("script", GALLERY, ids=lambda path: path.stem)
def test_an_example_runs(script, capsys, monkeypatch):
    import matplotlib.pyplot as plt

    if "SOTTOVOCE_DATA" in script.read_text(encoding="utf-8") and "SOTTOVOCE_DATA" not in os.environ:
        pytest.skip("without SOTTOVOCE_DATA this example has no table to draw")
    monkeypatch.setattr(plt, "show", lambda: None)
    known = set(plugins.REGISTERED)
    before = matplotlib.get_backend()
    plt.switch_backend("template")
    try:
        runpy.run_path(str(script), run_name="__main__")
        drawn = [plt.figure(number).axes for number in plt.get_fignums()]
    finally:
        for kind, name in set(plugins.REGISTERED) - known:  # what an example registers is not for other tests
            plugins.unregister(kind, name)
        plt.close("all")
        plt.switch_backend(before)
    said = capsys.readouterr().out
    assert len(said.splitlines()) >= 2
    assert "ε" not in said or "δ" in said  # never one without the other
    assert drawn and all(drawn), "an example of the gallery ends in a picture"
    title, rule, *_ = ast.get_docstring(ast.parse(script.read_text())).splitlines()
    assert rule == "=" * len(title)


def test_there_is_a_gallery():
    assert len(GALLERY) >= 5
