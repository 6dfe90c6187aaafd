"""A figure is data; its two renderings show the same numbers."""

import importlib.util
import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from sottovoce.errors import SpecError
from sottovoce.figure import (
    Curve,
    Figure,
    Interval,
    Panel,
    Ranking,
    check_matplotlib,
    draw,
    draw_as,
    draw_terms,
    read_formats,
)
from sottovoce.report.document import Plot
from sottovoce.report.figures import shown

X = {"epoch": np.array([0.1, 1.0, 3.0]), "round": np.array([1.0, 10.0, 30.0])}
FOUND = [Interval(2.0, 0.5, 3), Interval(1.0, 1.5, 3), Interval(0.5, np.inf, 1)]


def curves(log=True):
    one, two = Curve.of("one", X, FOUND, ("#0072b2", "dashed"), "o"), Curve("two", X, np.array([3.0, 2.0, 1.0]))
    rows = tuple(tuple(Panel(f"{q}-{n}", n, q, (one, two), log) for n in ("left", "right")) for q in ("loss", "score"))
    axes = {"epoch": "passes", "round": "rounds"}
    return Figure("figure", "A title", rows, axes, log_x=True, shared=True, note="of three seeds")


def ranking(log=True):
    groups = {"ε = 1": {"a": (0.5, -0.5, 1.5), "b": (np.nan, np.nan, np.nan)}, "ε = 2": {"a": (0.25, -np.inf, np.inf)}}
    return Ranking("ranks", "'transcript' sees all", "F − F*", ("b", "a"), groups, log=log)


def test_one_run_has_no_interval_and_gets_none():
    curve = curves().rows[0][0].curves[0]
    assert curve.low.tolist() == [1.5, -0.5, 0.5] and curve.high.tolist() == [2.5, 2.5, 0.5]


def test_titles_are_said_once():
    figure = curves()
    assert [[figure.title_at(i, j) for j in (0, 1)] for i in (0, 1)] == [["left", "right"], ["", ""]]
    ranks = Figure("ranks", "", ((ranking(), ranking()), (ranking(),)))
    assert ranks.title_at(0, 0) and not ranks.title_at(0, 1) and not ranks.title_at(1, 0)


def test_a_page_shows_the_numbers_of_the_figure():
    controls, above, below, note = shown(curves())
    assert controls.tag == "div" and note.text == "of three seeds"
    assert [plot.title for plot in (*above, *below)] == ["loss: left", "loss: right", "score: left", "score: right"]
    assert all(isinstance(plot, Plot) for plot in (*above, *below))
    data = {line.name: line.data_source.data for line in above[0].figure.renderers}
    assert data["one"]["y"].tolist() == [2.0, 1.0, 0.5] and data["two"]["y"].tolist() == [3.0, 2.0, 1.0]
    assert data["one"]["epoch"].tolist() == X["epoch"].tolist() and data["one"]["round"].tolist() == X["round"].tolist()
    assert data["one"]["low"].tolist() == [1.5, 0.05, 0.5]  # a log axis has no place for less than 0
    linear = shown(curves(log=None))[1][0].figure.renderers[0].data_source.data
    assert linear["low"].tolist() == [1.5, -0.5, 0.5]


@pytest.mark.parametrize(("log", "low"), [(True, 0.05), (False, -0.5)])
def test_a_ranking_leaves_out_what_is_no_number(log, low):
    (plots,) = shown(Figure("ranks", "", ((ranking(log),),)))
    first, _, second, _ = plots[0].figure.renderers  # points and whiskers of each group
    assert first.data_source.data == {"who": ["a"], "mean": [0.5], "low": [low], "high": [1.5], "y": [1.25]}
    assert second.data_source.data == {"who": ["a"], "mean": [0.25], "low": [0.25], "high": [0.25], "y": [0.75]}


@pytest.mark.parametrize("figure", [curves(), Figure("ranks", "Ranks", ((ranking(), ranking(False)), (ranking(),)))])
def test_paper_shows_the_numbers_of_the_figure(figure, tmp_path, monkeypatch):
    from matplotlib.figure import Figure as Sheet

    sheets = []
    monkeypatch.setattr(Sheet, "savefig", lambda sheet, path, **how: sheets.append(sheet))
    assert draw(figure, tmp_path / "new" / "figure.png").parent.exists()
    (sheet,) = sheets
    assert sheet.get_suptitle().startswith(figure.title)
    axes = sheet.axes[0]
    if isinstance(figure.panels[0], Panel):
        one, two = axes.lines
        assert one.get_ydata().tolist() == [2.0, 1.0, 0.5] and two.get_ydata().tolist() == [3.0, 2.0, 1.0]
        assert (axes.get_xscale(), axes.get_yscale(), axes.get_xlabel()) == ("log", "log", "passes")
        assert sheet.axes[0].get_ylim() == sheet.axes[1].get_ylim()
        assert [text.get_text() for text in sheet.legends[0].get_texts()] == ["one", "two"]
    else:
        assert [text.get_text() for text in axes.get_yticklabels()] == ["b", "a"]
        points = [
            (line.get_xdata().tolist(), line.get_ydata().tolist()) for line in axes.lines if line.get_marker() in "os"
        ]
        assert points == [([0.5], [0.75]), ([0.25], [1.25])]


def test_a_log_axis_is_marked_where_it_was_requested(tmp_path, monkeypatch):
    from matplotlib.figure import Figure as Sheet

    sheets = []
    monkeypatch.setattr(Sheet, "savefig", lambda sheet, path, **how: sheets.append(sheet))
    draw(replace(curves(), ticks=(0.2, 1.0)), tmp_path / "figure.png")
    axis = sheets[0].axes[0].xaxis
    assert [text.get_text() for text in axis.get_ticklabels(which="both")] == ["0.2", "1"]


def test_a_picture_is_drawn(tmp_path):
    for figure in (curves(), Figure("ranks", "Ranks", ((ranking(), ranking(False)), (ranking(),)))):
        assert draw(figure, tmp_path / f"{figure.name}.png").stat().st_size > 10_000


@pytest.mark.parametrize(("kind", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_a_figure_is_a_file_of_any_kind_at_the_width_that_is_given(kind, start, tmp_path):
    paths = [draw_as(curves(), tmp_path / f"{k}.x", (kind,), width=7.0)[0] for k in (1, 2)]
    one, two = (path.read_bytes() for path in paths)
    assert one.startswith(start) and one == two and paths[0].suffix == f".{kind}"  # the same figure, the same file
    if kind == "svg":
        assert b'width="504pt"' in one  # 7 inches of 72 points
    if kind == "pdf":
        assert re.search(rb"/MediaBox \[ ?0 0 504 ", one)
    if kind == "png":
        assert int.from_bytes(one[16:20], "big") == 7 * 140


def test_what_no_figure_can_be(tmp_path):
    with pytest.raises(SpecError, match=r"no 'gif'; write one or several of png, pdf, svg"):
        read_formats("png,gif")
    with pytest.raises(SpecError, match=r"2 to 40 inches wide, not 0\.1"):
        draw(curves(), tmp_path / "a.png", width=0.1)


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "matplotlib", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for attempt in (check_matplotlib, lambda: draw_terms([]), lambda: draw(None, tmp_path / "x.png")):
        with pytest.raises(SpecError, match=r"type pip install 'sottovoce\[figures\]'"):
            attempt()
