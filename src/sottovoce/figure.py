"""A figure as data: panels of curves or of ranked points, made once from a table of runs, however it is drawn.

`draw` makes a PNG, PDF or SVG of it with Matplotlib, and only this file knows Matplotlib; a page has its interactive
parts from `sottovoce.report.figures.shown`. Neither computes anything: means and intervals are in the figure.
"""

import importlib.util
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array
from sottovoce.errors import SpecError

LEVEL = 0.95
DOTS = 140  # an inch of a PNG
FORMATS: Mapping[str, Mapping[str, None]] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
"""Kinds of files, and what of their metadata is left out: the same figure gives the same file."""
WIDTHS = (2.0, 40.0)
"""Of a figure, in inches."""
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
    """Color and dash (solid, dashed, dotted, dashdot); by default those of its place in the panel."""
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
    name : its id in a page
    title : above it; shown once if neighbors share it
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
    groups : for each label of the legend the (mean, low, high) of each thing; NaN is left out
    color : on paper, where shade and marker distinguish the groups; a page has a color for each group
    log : whether the horizontal axis is logarithmic
    """

    name: str
    title: str
    label: str
    order: tuple[str, ...]
    groups: Mapping[str, Mapping[str, tuple[float, float, float]]]
    color: str = "#0072b2"
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
    name : its id in a page
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


def check_matplotlib() -> None:
    """Refuse to draw where Matplotlib, which is an extra, is not installed."""
    if "matplotlib" not in sys.modules and importlib.util.find_spec("matplotlib") is None:
        raise SpecError(
            "figures are drawn with Matplotlib, which is not installed; type pip install 'sottovoce[figures]'"
        )


def read_formats(text: str) -> tuple[str, ...]:
    """Kinds of files, with commas between them.

    Examples
    --------
    >>> read_formats("pdf, svg")
    ('pdf', 'svg')
    """
    found = tuple(name.strip() for name in text.split(","))
    for name in found:
        if name not in FORMATS:
            raise SpecError(f"figures are no {name!r}; write one or several of {', '.join(FORMATS)}")
    return found


def check_width(width: float | None) -> None:
    """A figure is neither narrower than its letters nor wider than any page."""
    if width is not None and not WIDTHS[0] <= width <= WIDTHS[1]:
        raise SpecError(f"a figure is {WIDTHS[0]:g} to {WIDTHS[1]:g} inches wide, not {width}")


def draw_as(figure: Figure, path: Path, formats: Sequence[str] = ("png",), width: float | None = None) -> list[Path]:
    """Draw a figure into a file of each kind; `path` says where, whatever its ending is."""
    return [draw(figure, path.with_name(f"{path.stem}.{kind}"), width) for kind in formats]


def draw(figure: Figure, path: Path | str, width: float | None = None) -> Path:
    """Draw a figure into a PNG, PDF or SVG file, by the ending of its path.

    Parameters
    ----------
    figure : what is drawn
    path : where
    width : of the whole figure in inches, at which its letters are as large as in any other; heights go with it
    """
    check_matplotlib()
    import matplotlib as mpl  # here: it takes long to load
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Sheet

    check_width(width)
    path = Path(path)
    (kind,) = read_formats(path.suffix.removeprefix("."))
    columns = max(map(len, figure.rows))
    heights = [len(row[0].order) + 1.2 for row in figure.rows if isinstance(row[0], Ranking)]
    if heights:
        size = (10.0 if width is None else width, 1.6 + 0.27 * sum(heights))
        grid: dict[str, Any] = {"sharex": "col", "gridspec_kw": {"height_ratios": heights}}
    else:
        wide = figure.size[0] * columns if width is None else width
        size = (wide, wide * figure.size[1] / (figure.size[0] * columns) * len(figure.rows))
        grid = {}
    sheet = Sheet(figsize=size, layout="constrained")
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
    with mpl.rc_context({"svg.hashsalt": figure.name, "pdf.fonttype": 42}):  # letters stay letters, ids the same
        sheet.savefig(path, dpi=DOTS, metadata=dict(FORMATS[kind]))
    return path


def _draw_panel(axis: Any, figure: Figure, panel: Panel, title: str) -> None:
    from matplotlib.ticker import NullLocator

    first, label = next(iter(figure.axes.items()))
    for place, curve in enumerate(panel.curves):
        color, dash = curve.style or (f"C{place}", "solid")
        x, style = np.asarray(curve.x[first]), {"color": color, "label": curve.label, "lw": 1.4}
        if panel.whiskers and curve.low is not None and curve.high is not None:
            ends = np.array([curve.y - curve.low, curve.high - curve.y])
            axis.errorbar(x, curve.y, ends, ls=dash, marker=curve.mark, ms=3, capsize=2, **style)
            continue
        axis.plot(x, curve.y, ls=dash, marker=curve.mark, ms=4, **style)
        if curve.low is not None and curve.high is not None:
            axis.fill_between(x, curve.low, curve.high, color=color, alpha=0.2, lw=0)
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
        style = {"color": panel.color, "alpha": 1.0 if many == 1 else 0.4 + 0.6 * k / (many - 1), "ms": 4, "capsize": 2}
        for number, p in enumerate(panel.points(k)):
            ends, named = [[p.mean - p.low], [p.high - p.mean]], None if number else label
            axis.errorbar(p.mean, p.place, xerr=ends, fmt=MARKS[k % len(MARKS)], label=named, **style)
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
        style = {"fontsize": 8, "frameon": False}
        sheet.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns, **style)


def draw_terms(
    terms: Sequence[Any],
    outputs: Sequence[str] = ("",),
    most: int = 12,
    across: int = 4,
    canvas: Any = None,
    higher: str | None = None,
) -> Any:
    """A Matplotlib figure of what each column adds to a score: curves, bars and heat maps, the first ones of `terms`.

    Parameters
    ----------
    terms : with name, kind, x, values, band and importance, as `run.terms.Terms` has them
    outputs : names of the outputs, for the legend where there are several
    most : terms that are drawn
    across : panels of a row
    canvas : the empty figure to draw on; a new one by default
    higher : of two classes, the one that a higher score means
    """
    check_matplotlib()
    from matplotlib.figure import Figure as Canvas  # slow to load, and an extra

    shown = list(terms)[:most]
    across = max(1, min(across, len(shown)))
    down = max(1, -(-len(shown) // across))
    canvas = Canvas() if canvas is None else canvas
    canvas.set_size_inches(3.2 * across, 2.6 * down)
    canvas.set_layout_engine("constrained")
    axes = canvas.subplots(down, across, squeeze=False).ravel()
    curves = [term for term in shown if term.kind != "map"]
    low = min((float(np.min(_edge(term, -1.0))) for term in curves), default=0.0)
    high = max((float(np.max(_edge(term, 1.0))) for term in curves), default=0.0)
    for axis, term in zip(axes, shown, strict=False):
        axis.set_title(f"{term.name}\nimportance {term.importance:.2g}", fontsize=9)
        axis.tick_params(labelsize=7)
        if term.kind == "map":
            _heat(canvas, axis, term)
            continue
        _panel(axis, term, outputs)
        axis.axhline(0.0, color="0.6", linewidth=0.6)
        axis.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    for axis in axes[len(shown) :]:
        axis.set_visible(False)
    if len(outputs) > 1 and curves:
        canvas.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=min(6, len(outputs)))
    noise = "; band: noise of the rounds only, about 95 %" if any(term.band is not None for term in curves) else ""
    means = "" if higher is None else f" (higher: {higher!r})"
    canvas.suptitle(f"What each column adds to the score{means}{noise}", fontsize=10)
    return canvas


def _edge(term: Any, side: float) -> Array:
    """The lower or upper end of a term with its band."""
    return np.asarray(term.values + side * (0.0 if term.band is None else term.band))


def _panel(axis: Any, term: Any, outputs: Sequence[str]) -> None:
    """Curves over numbers, or bars of categories, one for each output."""
    several = len(outputs) > 1
    for k, (values, name) in enumerate(zip(term.values, outputs, strict=True)):
        if term.kind == "curve":
            axis.plot(term.x, values, label=name, linewidth=1.2)
            if term.band is not None and not several:
                axis.fill_between(term.x, values - term.band, values + term.band, alpha=0.25, linewidth=0)
            continue
        width = 0.8 / len(outputs)
        places = np.arange(len(values)) + (k - (len(outputs) - 1) / 2) * width
        error = None if several else term.band
        axis.bar(places, values, width, label=name, yerr=error, error_kw={"linewidth": 0.8})
    if term.kind != "curve":
        labels = [str(name)[:14] for name in term.x]
        axis.set_xticks(range(len(labels)), labels, rotation=90 if len(labels) > 4 else 0, fontsize=6)


def _heat(canvas: Any, axis: Any, term: Any) -> None:
    """The heat map of a pair, of its first output."""
    values, largest = term.values[0], max(float(np.max(np.abs(term.values[0]))), 1e-12)
    x, y = (np.arange(len(each)) if isinstance(each, list) else each for each in term.x)
    mesh = axis.pcolormesh(x, y, values, cmap="RdBu_r", vmin=-largest, vmax=largest, shading="nearest")
    for ticks, each in zip((axis.set_xticks, axis.set_yticks), term.x, strict=True):
        if isinstance(each, list):
            ticks(range(len(each)), [str(name)[:14] for name in each])
    canvas.colorbar(mesh, ax=axis)
