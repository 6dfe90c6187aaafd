"""A figure as data: panels of curves or of ranked points, made once from a table of runs, however it is drawn.

`draw` makes a PNG of it with Matplotlib, and is the only place that knows Matplotlib; `sottovoce.report.figures.shown`
makes the interactive parts of a page. Neither computes anything: means and intervals are in the figure.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array

LEVEL = 0.95
DOTS = 140  # an inch of a PNG
SPREAD = 0.5  # of a line's height in a ranking, for the points of several groups
MARKS = "osD^vP"


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval over seeds (Student's t)."""

    mean: float
    half: float
    seeds: int

    @property
    def low(self) -> float:
        """Lower end."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end."""
        return self.mean + self.half

    @classmethod
    def of(cls, values: Sequence[float] | Array) -> "Interval":
        """From one value a seed.

        Examples
        --------
        >>> Interval.of(np.array([1.0, 2.0, 3.0])).mean
        2.0
        """
        n = len(values)
        spread = float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.inf
        return cls(float(np.mean(values)), float(scipy.special.stdtrit(max(n - 1, 1), 0.5 + LEVEL / 2)) * spread, n)

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.half:.2g}"


@dataclass(frozen=True)
class Curve:
    """A named line: its values against every horizontal axis that a reader may choose, with a band where known."""

    label: str
    x: Mapping[str, Array]
    y: Array
    low: Array | None = None
    high: Array | None = None
    style: tuple[str, str] | None = None
    """Colour and dash (solid, dashed, dotted, dashdot); by default those of its place in the panel."""
    mark: str = ""
    """At each point, on paper: one of Matplotlib's, or none."""

    @classmethod
    def of(
        cls,
        label: str,
        x: Mapping[str, Array],
        found: Sequence[Interval],
        style: tuple[str, str] | None = None,
        mark: str = "",
    ) -> "Curve":
        """Of a mean with its interval at each place; one run has no interval, and gets none."""
        mean, low, high = (np.array([getattr(i, end) for i in found]) for end in ("mean", "low", "high"))
        known = np.isfinite(high)
        return cls(label, x, mean, np.where(known, low, mean), np.where(known, high, mean), style, mark)


@dataclass(frozen=True)
class Panel:
    """Curves on one pair of axes.

    Attributes
    ----------
    name : what a page knows it by
    title : above it; said once where neighbours share it
    label : of the vertical axis
    curves : what is drawn
    log : whether the vertical axis is logarithmic at first; None for one that always stays linear
    whiskers : whether intervals are drawn at the points, and not as a band
    """

    name: str
    title: str
    label: str
    curves: tuple[Curve, ...]
    log: bool | None = None
    whiskers: bool = False


class Point(NamedTuple):
    """What a ranking draws of a thing, with whiskers that fit its axis; places count from 0 at the top."""

    who: str
    mean: float
    low: float
    high: float
    place: float


@dataclass(frozen=True)
class Ranking:
    """Named things with a point and an interval each, one below the other.

    Attributes
    ----------
    name, title : as of a `Panel`
    label : of the horizontal axis
    order : the things, from top to bottom
    groups : by the legend's label, what each thing has: (mean, low, high); what is not a number is left out
    colour : on paper, where groups are told apart by shade and mark; a page has a colour for each group
    log : whether the horizontal axis is logarithmic
    """

    name: str
    title: str
    label: str
    order: tuple[str, ...]
    groups: Mapping[str, Mapping[str, tuple[float, float, float]]]
    colour: str = "#0072b2"
    log: bool = False

    def points(self, group: int) -> list[Point]:
        """The numbers that there are in a group."""
        found = list(self.groups.values())[group]
        shift = 0.0 if len(self.groups) == 1 else SPREAD * (group / (len(self.groups) - 1) - 0.5)
        points = []
        for place, who in enumerate(self.order):
            mean, low, high = found.get(who, (math.nan,) * 3)
            if math.isfinite(mean):
                low, high = (end if math.isfinite(end) else mean for end in (low, high))  # one run has no interval
                low = max(low, 0.1 * mean) if self.log else low  # a logarithm has no room for less than nothing
                points.append(Point(who, mean, low, high, place + shift))
        return points


@dataclass(frozen=True)
class Figure:
    """Panels in rows, all of curves or all rankings.

    Attributes
    ----------
    name : what a page knows it by
    title, note : what it is, and of what
    rows : the panels
    axes : horizontal axes of curves, by the key of `Curve.x`; the first is drawn, a page lets its reader choose
    log_x : whether the horizontal axis of curves is logarithmic at first
    ticks : where a printed horizontal axis is marked; by default where Matplotlib likes
    shared : whether the panels of a row have the same vertical range
    size : of one panel of curves on paper, in inches
    """

    name: str
    title: str
    rows: tuple[tuple[Panel | Ranking, ...], ...]
    axes: Mapping[str, str] = field(default_factory=dict)
    log_x: bool = False
    ticks: tuple[float, ...] = ()
    shared: bool = False
    note: str = ""
    size: tuple[float, float] = (4.6, 3.1)

    @property
    def panels(self) -> list[Panel | Ranking]:
        """All of them, row by row."""
        return [panel for row in self.rows for panel in row]

    def title_at(self, row: int, column: int) -> str:
        """A panel's title, unless the panel above or on the left has said it."""
        title = self.rows[row][column].title
        said = [self.rows[row][column - 1]] if column else []
        said += [self.rows[row - 1][column]] if row and column < len(self.rows[row - 1]) else []
        return "" if title in [panel.title for panel in said] else title


def draw(figure: Figure, path: Path) -> Path:
    """Draw a figure into a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # here: it takes long to load
    from matplotlib.figure import Figure as Sheet

    columns = max(map(len, figure.rows))
    heights = [len(row[0].order) + 1.2 for row in figure.rows if isinstance(row[0], Ranking)]
    if heights:
        sheet = Sheet(figsize=(10, 1.6 + 0.27 * sum(heights)), layout="constrained")
        grid: dict[str, Any] = {"sharex": "col", "gridspec_kw": {"height_ratios": heights}}
    else:
        width, height = figure.size
        sheet = Sheet(figsize=(width * columns, height * len(figure.rows)), layout="constrained")
        grid = {}
    FigureCanvasAgg(sheet)
    axes = sheet.subplots(len(figure.rows), columns, squeeze=False, **grid)
    for i, row in enumerate(figure.rows):
        for j, panel in enumerate(row):
            title = figure.title_at(i, j)
            if isinstance(panel, Ranking):
                _draw_ranking(axes[i, j], panel, title, first=j == 0, last=i == len(figure.rows) - 1)
            else:
                _draw_panel(axes[i, j], figure, panel, title)
        for spare in axes[i, len(row) :]:
            spare.set_axis_off()
        if figure.shared:
            _share(axes[i])
    _legend(sheet, axes, figure)
    sheet.suptitle("\n".join(filter(None, (figure.title, figure.note))), fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.savefig(path, dpi=DOTS)
    return path


def _draw_panel(axis: Any, figure: Figure, panel: Panel, title: str) -> None:
    from matplotlib.ticker import NullLocator

    first, label = next(iter(figure.axes.items()))
    for place, curve in enumerate(panel.curves):
        colour, dash = curve.style or (f"C{place}", "solid")
        x, look = np.asarray(curve.x[first]), {"color": colour, "label": curve.label, "lw": 1.4}
        if panel.whiskers and curve.low is not None and curve.high is not None:
            ends = np.array([curve.y - curve.low, curve.high - curve.y])
            axis.errorbar(x, curve.y, ends, ls=dash, marker=curve.mark, ms=3, capsize=2, **look)
            continue
        axis.plot(x, curve.y, ls=dash, marker=curve.mark, ms=4, **look)
        if curve.low is not None and curve.high is not None:
            axis.fill_between(x, curve.low, curve.high, color=colour, alpha=0.2, lw=0)
    axis.set_title(title, fontsize=9)
    axis.grid(alpha=0.25, which="major")
    axis.tick_params(labelsize=8)
    axis.set_xlabel(label, fontsize=8)
    axis.set_ylabel(panel.label, fontsize=8)
    if panel.log:
        axis.set_yscale("log")
    if figure.log_x:
        axis.set_xscale("log")
    if figure.ticks:
        axis.set_xticks(figure.ticks, [f"{tick:g}" for tick in figure.ticks])
        axis.xaxis.set_minor_locator(NullLocator())


def _share(row: Any) -> None:
    """The same range for the same quantity, so that panels beside each other can be compared by eye."""
    lows, highs = zip(*(axis.get_ylim() for axis in row), strict=True)
    room = 1.25 if row[0].get_yscale() == "log" else 1.0  # so that no mark lies on the frame
    for axis in row:
        axis.set_ylim(min(lows) / room, max(highs) * room)


def _draw_ranking(axis: Any, panel: Ranking, title: str, first: bool, last: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    many = len(panel.groups)
    for k, label in enumerate(panel.groups):
        look = {"color": panel.colour, "alpha": 1.0 if many == 1 else 0.4 + 0.6 * k / (many - 1), "ms": 4, "capsize": 2}
        for number, p in enumerate(panel.points(k)):
            ends, named = [[p.mean - p.low], [p.high - p.mean]], None if number else label
            axis.errorbar(p.mean, p.place, xerr=ends, fmt=MARKS[k % len(MARKS)], label=named, **look)
    axis.set_yticks(range(len(panel.order)), panel.order if first else [])
    axis.set_ylim(len(panel.order) - 0.5, -0.5)
    axis.set_title(title, loc="left", fontsize=8)
    axis.grid(alpha=0.3)
    axis.tick_params(labelsize=8)
    if last:
        axis.set_xlabel(panel.label, fontsize=9)
    if panel.log:
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.xaxis.set_minor_formatter(NullFormatter())


def _legend(sheet: Any, axes: Any, figure: Figure) -> None:
    """One for all panels: below them, or in a ranking's last column, where several groups need one."""
    entries: dict[str, Any] = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if isinstance(figure.panels[0], Ranking):
        if len(entries) > 1:
            axes[0, -1].legend(entries.values(), entries.keys(), fontsize=8)
    elif len(entries) > 1:
        columns = max(1, int(sheet.get_figwidth() // 4))
        look = {"fontsize": 8, "frameon": False}
        sheet.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns, **look)
