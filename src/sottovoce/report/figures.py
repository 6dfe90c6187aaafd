"""Figures on a page: curves and rankings as Bokeh draws them, and what a reader may switch about them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
from bokeh.models import ColumnDataSource, FixedTicker

from sottovoce.figure import Curve, Figure, Panel, Ranking
from sottovoce.report.document import Part, Plot, tag
from sottovoce.report.theme import Scale, add_legend, chart, distinct, plain, style, switchable, tips


def shown(figure: Figure) -> list[Part]:
    """The parts of a page that show a figure: a group of plots for each row, with one choice of axes for all curves."""
    parts: list[Part] = []
    if figure.axes:
        logs = [panel.log for row in figure.rows for panel in row if isinstance(panel, Panel) and panel.log is not None]
        parts.append(controls(figure.name, figure.axes, any(logs) if logs else None, figure.log_x))
    for row in figure.rows:
        parts.append(tuple(_plot(figure, panel) for panel in row))
    return [*parts, tag("p", figure.note, class_="caption")] if figure.note else parts


def _plot(figure: Figure, drawn: Panel | Ranking) -> Plot:
    if isinstance(drawn, Ranking):
        return Plot(drawn.label, ranked(drawn))
    lines = [above_zero(curve) if drawn.log else curve for curve in drawn.curves]
    heading = f"{drawn.label}: {drawn.title}" if drawn.title else drawn.label
    return Plot(heading, panel(drawn.name, lines, figure.axes, figure.name, log=drawn.log, log_x=figure.log_x))


def above_zero(curve: Curve) -> Curve:
    """Its band cut off at a tenth of its least mean: a log axis has no place for 0."""
    if curve.low is None or not np.any(curve.y > 0) or np.any(curve.y < 0):
        return curve
    return replace(curve, low=np.maximum(curve.low, float(curve.y[curve.y > 0].min()) / 10))


def ranked(ranking: Ranking) -> Any:
    """A point and its interval for each thing in each group; a click on a group hides it."""
    places = len(ranking.order)
    scale: Scale = "log" if ranking.log else "linear"
    plot = chart(ranking.name, height=110 + 24 * places, x=scale, y_range=(0.4, places + 0.6))
    drawn, entries = [], {}
    for k, label in enumerate(ranking.groups):
        points = ranking.points(k)
        columns: dict[str, Any] = {name: [getattr(p, name) for p in points] for name in ("mean", "low", "high")}
        columns |= {"who": [plain(p.who) for p in points], "y": [places - p.place for p in points]}
        source = ColumnDataSource(columns)
        color, _ = style(k)
        dots = plot.scatter("mean", "y", source=source, size=8, color=color)
        whiskers = plot.segment("low", "y", "high", "y", source=source, color=color, line_width=1.5)
        drawn.append(dots)
        entries[label] = [dots, whiskers]
    tooltips = [("", "@who"), (ranking.label, "@mean{%.4g}"), ("from", "@low{%.4g}"), ("to", "@high{%.4g}")]
    plot.add_tools(tips(tooltips, drawn))
    plot.yaxis.ticker = FixedTicker(ticks=list(range(1, places + 1)))
    plot.yaxis.major_label_overrides = {places - i: plain(who) for i, who in enumerate(ranking.order)}
    plot.xaxis.axis_label = ranking.label
    add_legend(plot, entries)
    return plot


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
        color, dash = line.style or style(index)
        data = {column: np.asarray(line.x[column]) for column in axes} | {"y": line.y}
        if line.low is not None and line.high is not None:
            data |= {"low": line.low, "high": line.high}
        source = ColumnDataSource(data)
        drawn = []
        if "low" in data:
            band = plot.varea(first, "low", "high", source=source, fill_color=color, fill_alpha=0.18, name=label)
            drawn.append(band)
        drawn.append(plot.line(first, "y", source=source, color=color, line_width=2.2, line_dash=dash, name=label))
        entries[label] = drawn[::-1]
    plot.add_tools(tips([*shown, ("value", "@y{%.5g}")], [drawn[0] for drawn in entries.values()]))
    if len(lines) > 1:
        add_legend(plot, entries)
    switchable(plot, key)
    if not switches:
        plot.tags = [*plot.tags, "linear-y"]
    return plot


def controls(key: str, axes: Mapping[str, str], log: bool | None = True, log_x: bool = False) -> Element:
    """The choice of the horizontal axis and the log switches, for all figures under `key`; None: all stay linear."""
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
        None
        if log is None
        else tag(
            "label",
            tag("input", type="checkbox", data_log_y_of=key, checked=checked[1], autocomplete="off"),
            " log y axis",
        ),
        tag("span", "drag to zoom, click a legend entry to hide its curve", class_="hint"),
        class_="controls",
    )
