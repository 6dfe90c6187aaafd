"""Named things with a mean and an interval each, one below the other: rankings.

Objective, suboptimality, accuracy and disagreement against rounds, epochs or what was sent.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
from bokeh.models import ColumnDataSource, DataRange1d, FixedTicker

from sottovoce._types import Array
from sottovoce.report.document import Part, Plot, Section, tag
from sottovoce.report.settings import FEWEST_OF_ONE, MOST_OF_ONE, MOST_POINTS, Band, Setting
from sottovoce.report.theme import add_legend, chart, distinct, plain, style, switchable, tips

SPREAD = 0.5  # of a line's height, for the points of several groups


def ranked(
    name: str,
    order: Sequence[str],
    groups: Mapping[str, Mapping[str, tuple[float, float, float]]],
    title: str,
    log: bool = False,
) -> Any:
    """A point and its interval for each thing in each group; the first of `order` is on top.

    Parameters
    ----------
    name : of the figure
    order : the things, from top to bottom
    groups : by the legend's label, what each thing has: (mean, low, high); what is not a number is left out
    title : of the horizontal axis
    log : whether that axis is logarithmic
    """
    places = len(order)
    plot = chart(name, height=110 + 24 * places, x="log" if log else "linear", y_range=(0.4, places + 0.6))
    drawn, entries = [], {}
    for k, (label, found) in enumerate(groups.items()):
        shift = 0.0 if len(groups) == 1 else SPREAD * (k / (len(groups) - 1) - 0.5)
        points = [(who, *found[who]) for who in order if who in found and math.isfinite(found[who][0])]
        lows = [low if math.isfinite(low) else mean for _, mean, low, _ in points]  # one run has no interval
        source = ColumnDataSource(
            {
                "who": [plain(who) for who, *_ in points],
                "mean": [mean for _, mean, _, _ in points],
                # a logarithm has no room for less than nothing
                "low": [max(low, 0.1 * p[1]) if log else low for low, p in zip(lows, points, strict=True)],
                "high": [high if math.isfinite(high) else mean for _, mean, _, high in points],
                "y": [places - order.index(who) - shift for who, *_ in points],
            }
        )
        colour, _ = style(k)
        dots = plot.scatter("mean", "y", source=source, size=8, color=colour)
        whiskers = plot.segment("low", "y", "high", "y", source=source, color=colour, line_width=1.5)
        drawn.append(dots)
        entries[label] = [dots, whiskers]
    shown = [("", "@who"), (title, "@mean{%.4g}"), ("from", "@low{%.4g}"), ("to", "@high{%.4g}")]
    plot.add_tools(tips(shown, drawn))
    plot.yaxis.ticker = FixedTicker(ticks=list(range(1, places + 1)))
    plot.yaxis.major_label_overrides = {places - i: plain(who) for i, who in enumerate(order)}
    plot.xaxis.axis_label = title
    add_legend(plot, entries)
    return plot


SIMULATION = "not private: a simulation's view"


@dataclass(frozen=True)
class Quantity:
    """A column of the history, and how it is shown."""

    column: str
    title: str
    log: bool | None
    note: str = ""


QUANTITIES = (
    Quantity("objective", "Objective F", True, "F of the mean model over all nodes' records."),
    Quantity("suboptimality", "Suboptimality F − F*", True, "Distance of F from its certified optimum."),
    Quantity("train_accuracy", "Training {score}", None, "Of the mean model, on all nodes' records."),
    Quantity("test_accuracy", "Test {score}", None, "Of the mean model, on held-out records."),
    Quantity("consensus_error", "Disagreement of nodes", True, "Mean distance of a node's model from the mean model."),
)
ROUNDING = 1e-12  # nodes whose models are closer agree


@dataclass(frozen=True)
class Curve:
    """A named line: its values against every horizontal axis that the reader may choose, with a band where known."""

    label: str
    x: Mapping[str, Array]
    y: Array
    low: Array | None = None
    high: Array | None = None
    style: tuple[str, str] | None = None
    """Colour and dash; by default those of its place in the panel."""


def curves(
    settings: Sequence[Setting], columns: Sequence[str] | None = None, title: str = "Training"
) -> Section | None:
    """The history of every setting, a panel for each quantity, with one choice of axes for all panels.

    Several runs of a setting are drawn as their mean, with a band from the smallest to the largest. A setting keeps
    its colour in all panels, and a click on its legend entry hides it in all of them. None where nothing was observed,
    as on real nodes.
    """
    shown = [q for q in QUANTITIES if columns is None or q.column in columns]
    shown = [q for q in shown if any(s.knows(q.column) for s in settings)]
    if not shown:
        return None
    if agree(settings):
        shown = [q for q in shown if q.column != "consensus_error"]
    unit, divisor = _unit(max(float(s.last("bytes").max()) for s in settings if s.knows("bytes")))
    axes = {"round": "rounds", "epoch": "passes over the data", "bytes": f"{unit} sent, all nodes together"}
    if len({s.first.spec.algorithm.rounds for s in settings}) > 1:  # what a round is differs, so that passes say more
        axes = {column: axes[column] for column in ("epoch", "round", "bytes")}
    key = f"{title}: {', '.join(q.column for q in shown)}"  # figures of one page may share their quantities
    score = settings[0].score
    if len(settings) == 1:
        panels = _panels_of_one(settings[0], shown, axes, key, divisor)
    else:
        panels = [
            Plot(
                q.title.format(score=score),
                panel(q.column, _compared(settings, q.column, divisor), axes, key, log=q.log),
                q.note,
            )
            for q in shown
        ]
    linked = DataRange1d(range_padding=0.02)
    for plot in panels:
        plot.figure.x_range = linked
    parts: list[Part] = [_words(settings), controls(key, axes), tuple(panels)]
    return Section(title, tuple(parts), SIMULATION)


def panel(
    name: str,
    lines: Sequence[Curve],
    axes: Mapping[str, str],
    key: str,
    *,
    log: bool | None = True,
    log_x: bool = False,
    height: int = 290,
) -> Any:
    """One figure of several curves, drawn against the first of the axes, under the controls called `key`.

    `log` is whether the vertical axis begins logarithmic; None for one that always stays linear.
    """
    switches = log is not None and any(np.any(line.y > 0) for line in lines)
    first = next(iter(axes))
    shown = [("", "$name"), *((text, f"@{column}{{0,0.[000]}}") for column, text in axes.items())]
    plot = chart(name, height=height, x="log" if log_x else "linear", y="log" if log and switches else "linear")
    plot.xaxis.axis_label = axes[first]
    entries: dict[str, list[Any]] = {}
    for index, (line, label) in enumerate(zip(lines, distinct([line.label for line in lines]), strict=True)):
        colour, dash = line.style or style(index)
        data = {column: np.asarray(line.x[column]) for column in axes} | {"y": line.y}
        if line.low is not None and line.high is not None:
            data |= {"low": line.low, "high": line.high}
        source = ColumnDataSource(data)
        drawn = []
        if "low" in data:
            band = plot.varea(first, "low", "high", source=source, fill_color=colour, fill_alpha=0.18, name=label)
            drawn.append(band)
        drawn.append(plot.line(first, "y", source=source, color=colour, line_width=2.2, line_dash=dash, name=label))
        entries[label] = drawn[::-1]
    plot.add_tools(tips([*shown, ("value", "@y{%.5g}")], [drawn[0] for drawn in entries.values()]))
    if len(lines) > 1:
        add_legend(plot, entries)
    switchable(plot, key)
    if not switches:
        plot.tags = [*plot.tags, "linear-y"]
    return plot


def controls(key: str, axes: Mapping[str, str], log: bool = True, log_x: bool = False) -> Element:
    """The choice of the horizontal axis and the two log switches, for all figures under `key`."""
    checked = ["" if wanted else None for wanted in (log_x, log)]
    options = [tag("option", text, value=column, data_label=text) for column, text in axes.items()]
    choice = tag("label", "against ", tag("select", *options, data_x_of=key, autocomplete="off"))
    return tag(
        "div",
        choice if len(axes) > 1 else None,
        tag(
            "label",
            tag("input", type="checkbox", data_log_x_of=key, checked=checked[0], autocomplete="off"),
            " log x axis",
        ),
        tag(
            "label",
            tag("input", type="checkbox", data_log_y_of=key, checked=checked[1], autocomplete="off"),
            " log y axis",
        ),
        tag("span", "drag to zoom, click a legend entry to hide its curve", class_="hint"),
        class_="controls",
    )


def _words(settings: Sequence[Setting]) -> Element:
    seeds = max(len(s.runs) for s in settings)
    text = "Computed from the data outside the mechanism, as only a simulation can. Publishing these figures would "
    text += "spend privacy that the statement does not count."
    if agree(settings):
        text += " The nodes agree up to rounding: everyone hears everyone."
    if seeds > 1:
        text += f" Lines are means over up to {seeds} seeds, bands reach from the smallest to the largest."
    return tag("p", text)


def _compared(settings: Sequence[Setting], column: str, divisor: float) -> list[Curve]:
    points = int(np.clip(MOST_POINTS // len(settings), FEWEST_OF_ONE, MOST_OF_ONE))
    return [
        _curve(s, column, divisor, s.label, style(index), points) for index, s in enumerate(settings) if s.knows(column)
    ]


def _panels_of_one(
    setting: Setting, shown: Sequence[Quantity], axes: Mapping[str, str], key: str, divisor: float
) -> list[Plot]:
    """The panels of a single setting: training and test share one, and F is drawn beside F*."""
    found = {q.column: _curve(setting, q.column, divisor, "mean model", style(0)) for q in shown}
    scores = [q for q in shown if q.column.endswith("_accuracy")]
    panels = []
    for q in shown:
        lines, heading, note = [found[q.column]], q.title.format(score=setting.score), q.note
        if q.column == "objective" and "suboptimality" in found:
            best = found["objective"].y[-1] - found["suboptimality"].y[-1]
            line = found["objective"]
            lines.append(Curve("optimum F*", line.x, np.full(len(line.y), best), style=(style(6)[0], "dashed")))
        if q in scores:
            if q != scores[0]:
                continue
            if len(scores) > 1:
                lines = [
                    _curve(setting, s.column, divisor, s.column.split("_")[0], style(i)) for i, s in enumerate(scores)
                ]
                heading, note = setting.score.capitalize(), "Of the mean model, in training and on held-out records."
        panels.append(Plot(heading, panel(q.column, lines, axes, key, log=q.log), note))
    return panels


def _curve(
    setting: Setting, column: str, divisor: float, label: str, look: tuple[str, str], points: int = MOST_OF_ONE
) -> Curve:
    band = setting.band(column, points)
    x = band.x | {"bytes": band.x["bytes"] / divisor}
    several = len(setting.runs) > 1
    if column == "consensus_error":
        keep = np.where(band.mean > ROUNDING, 1.0, np.nan)
        band = Band(band.x, band.mean * keep, band.low * keep, band.high * keep)
    return Curve(label, x, band.mean, band.low if several else None, band.high if several else None, look)


def agree(settings: Sequence[Setting]) -> bool:
    """Whether no two nodes of any run ever differ by more than rounding."""
    return all(row["consensus_error"] <= ROUNDING for s in settings for run in s.runs for row in run.history.rows)


def _unit(largest: float) -> tuple[str, float]:
    """The unit in which this many bytes are a small number."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if largest >= size:
            return unit, size
    return "bytes", 1.0
