"""Named things with a mean and an interval each, one below the other: rankings."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bokeh.models import ColumnDataSource, FixedTicker

from sottovoce.report.theme import add_legend, chart, plain, style, tips

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
