"""The style of figures: one Bokeh theme, colors for color-blind readers, and a figure to start from."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from bokeh.models import (
    BoxZoomTool,
    Grid,
    HoverTool,
    LinearAxis,
    LogAxis,
    NoOverlap,
    PanTool,
    Plot,
    ResetTool,
    SaveTool,
    WheelZoomTool,
)
from bokeh.models.annotations import Legend, LegendItem
from bokeh.plotting import figure
from bokeh.themes import Theme

# Okabe and Ito's colors, without the yellow, which is too light on white
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
DASHES = ("solid", "dashed", "dashdot", "dotted")
INK, MUTED, RULE = "#1d2733", "#55606e", "#e3e7eb"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

_TEXT = {"text_font": FONT, "text_color": MUTED, "text_font_size": "12px", "text_font_style": "normal"}


def _text(part: str) -> dict[str, Any]:
    return {f"{part}_{name}": value for name, value in _TEXT.items()}


THEME = Theme(
    json={
        "attrs": {
            "Plot": {"background_fill_color": None, "border_fill_color": None, "outline_line_color": None},
            "Axis": _text("axis_label")
            | _text("major_label")
            | {
                "axis_line_color": MUTED,
                "major_tick_line_color": MUTED,
                "major_tick_in": 0,
                "minor_tick_line_color": None,
                "axis_label_standoff": 8,
            },
            "Grid": {"grid_line_color": RULE},
            "Legend": _text("label")
            | {
                "border_line_color": None,
                "background_fill_alpha": 0.85,
                "glyph_width": 26,
                "padding": 0,
                "margin": 4,
                "spacing": 8,
            },
            "ColorBar": _text("major_label") | _text("title") | {"background_fill_color": None},
            "BasicTickFormatter": {"power_limit_high": 7},
        }
    }
)


Scale = Literal["linear", "log", "datetime"]


def tips(shown: Sequence[tuple[str, str]], renderers: Sequence[Any] = ()) -> HoverTool:
    """What a figure shows on hover; fields in braces that begin with % are formatted as in C."""
    fields = [name for _, text in shown for name in re.findall(r"(@\w+)\{%", text)]
    formatters: dict[str, Any] = dict.fromkeys(fields, "printf")
    return HoverTool(
        tooltips=list(shown), formatters=formatters, renderers=list(renderers) or "auto", line_policy="nearest"
    )


def chart(
    name: str,
    *,
    height: int = 300,
    x: Scale = "linear",
    y: Scale = "linear",
    **options: Any,
) -> Any:
    """An empty figure as wide as its place, with the tools of every figure; `x` and `y` are the axes' scales."""
    zoom = BoxZoomTool()
    tools = [zoom, PanTool(), WheelZoomTool(), ResetTool(), SaveTool(filename=name)]
    plot = figure(
        name=name,
        height=height,
        sizing_mode="stretch_width",
        x_axis_type=x,
        y_axis_type=y,
        tools=tools,
        active_drag=zoom,
        active_scroll=None,  # the wheel scrolls the page
        toolbar_location="above",
        toolbar_inner=True,
        **options,
    )
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    plot.yaxis.major_label_policy = NoOverlap(min_distance=3)
    return plot


def style(index: int) -> tuple[str, str]:
    """Color and dash of the curve with this number; dashes change when the colors are used up.

    Examples
    --------
    >>> style(0), style(7)
    (('#0072B2', 'solid'), ('#0072B2', 'dashed'))
    """
    return COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)]


def plain(text: str, longest: int = 60) -> str:
    """A name for a figure, cut to a readable length, with nothing in it that Bokeh would hand to MathJax.

    Examples
    --------
    >>> plain("a very long name of a feature", 12)
    'a very long…'
    """
    text = re.sub(
        r"\$(?=\$)|\\(?=[\[(])", "\\g<0>\u200b", text
    )  # a space of no width between the delimiter's two signs
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def distinct(labels: Sequence[str]) -> list[str]:
    """Names for the entries of a legend: `plain`, and numbered where cutting made them equally.

    Examples
    --------
    >>> distinct(["a", "b", "a"])
    ['a', 'b', 'a (3)']
    """
    names: list[str] = []
    for number, label in enumerate(map(plain, labels), 1):
        names.append(label if label not in names else f"{label} ({number})")
    return names


def add_legend(plot: Plot, entries: Mapping[str, Sequence[Any]]) -> None:
    """A legend below the figure, in as many columns as a narrow screen takes; a click hides or shows."""
    columns = max(1, min(len(entries), int(390 / (6.4 * max(map(len, entries)) + 42))))
    items = [LegendItem(label=label, renderers=list(renderers)) for label, renderers in entries.items()]
    legend = Legend(items=items, click_policy="hide", ncols=columns, orientation="horizontal", location="bottom_left")
    plot.add_layout(legend, "below")
    plot.height = (plot.height or 0) + 24 * -(-len(entries) // columns)


def switchable(plot: Plot, section: str) -> None:
    """Give a figure both kinds of axis on either side, so that the page's log switches can change between them."""
    sides: tuple[tuple[Literal["below", "left"], Literal[0, 1]], ...] = (("below", 0), ("left", 1))
    for side, dimension in sides:
        shown = getattr(plot, side)[0]
        other = LinearAxis if isinstance(shown, LogAxis) else LogAxis
        hidden = other(visible=False, axis_label=shown.axis_label, major_label_policy=shown.major_label_policy)
        plot.add_layout(hidden, side)
        plot.add_layout(Grid(dimension=dimension, axis=hidden, visible=False))
    plot.tags = [section]
