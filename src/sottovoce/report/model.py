"""The largest weights of a model, or of several models side by side."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource, FixedTicker, LinearColorMapper
from bokeh.models.annotations import ColorBar

from sottovoce._types import Array, IntArray
from sottovoce.report.document import Plot, Section, download, tag
from sottovoce.report.settings import RunGroup
from sottovoce.report.theme import COLOURS, INK, Scale, add_legend, chart, distinct, plain, style, tips
from sottovoce.run.terms import BAND, NOT_IN_BAND, Axis, Term, terms_of

MAX_WEIGHTS_SHOWN = 20  # weights shown
SHOWN = (("", "@name"), ("weight", "@weight{%.5g}"))
MOST_CELLS = 5_000  # in the table to download, which lies in the page


def weights(settings: Sequence[RunGroup], title: str = "Model") -> Section | None:
    """The features that weigh most: bars for one setting, dots for several; None where the models do not compare."""
    found = [np.mean([np.asarray(run.coef) for run in s.runs], axis=0) for s in settings]
    names = [s.first.feature_names for s in settings]
    if len({values.shape for values in found}) > 1 or len(set(names)) > 1:
        return None
    features = _names(names[0], found[0].shape[-1])
    several_outputs = found[0].ndim == 2
    sizes = [np.linalg.norm(values, axis=0) if several_outputs else values for values in found]
    if not all(np.all(np.isfinite(values)) for values in sizes):
        return Section(title, (tag("p", "Some weights are not finite: the run diverged. Try a larger γ."),))
    ranked = np.argsort(-np.mean(np.abs(sizes), axis=0), kind="stable")
    order = ranked[:MAX_WEIGHTS_SHOWN]
    listed = ranked[: max(MAX_WEIGHTS_SHOWN, MOST_CELLS // sum(np.atleast_2d(values).shape[0] for values in found))]
    rows = [{"feature": features[j]} | _numbers(settings, found, int(j)) for j in listed]
    label = "All weights as CSV" if len(listed) == len(features) else f"{len(listed):,} largest weights as CSV"
    get = download(label, "weights.csv", rows)
    plot = _bars(sizes[0], features, order) if len(settings) == 1 else _dots(sizes, features, order, settings)
    what = "norms over the outputs of the " if several_outputs else ""
    heading = f"The {len(order)} largest weights" if len(features) > len(order) else "All weights"
    note = f"Of the mean model over nodes{' and seeds' if any(len(s.runs) > 1 for s in settings) else ''}."
    return Section(title, (tag("p", _words(settings, sizes, what)), tag("p", get), (Plot(heading, plot, note),)))


TERMS = 12  # that are drawn


def terms(
    setting: RunGroup, title: str = "What each column adds", axes: Mapping[str, Axis] | None = None
) -> Section | None:
    """Curves, bars and maps of an additive model, the most important first; None of a linear one or of several runs."""
    result = setting.first
    if not result.spec.problem.features or len(setting.runs) > 1:
        return None
    found = terms_of(result, axes=axes)
    parts: list[Plot] = []
    for term in found.terms[:TERMS]:
        name = f"{plain(term.name, 60)}, importance {term.importance:.2g}"
        parts.append(Plot(name, {"curve": _curve, "map": _map}.get(term.kind, _steps)(term), ""))
    note = (
        f"A score is the constant and one term for every column. The most important {len(parts)} of {len(found.terms)} "
        "terms are drawn; importance is their root mean square under public or released weights. The band is "
        f"{BAND}, from public numbers: {NOT_IN_BAND}."
    )
    if axes is None:
        note += (
            " Columns that a schema encoded are shown from −1 at the lower to 1 at the upper bound, since no schema is "
            "stored beside the run."
        )
    text = tag("details", tag("summary", "The same in words"), tag("pre", found.text(TERMS)))
    return Section(title, (tag("p", note), tuple(parts), text))


def _curve(term: Term) -> Any:
    """A curve with its band; of several outputs all curves, without."""
    plot = chart("term", height=220, x=_scale(term.x))
    if term.band is not None and len(term.values) == 1:
        low, high = term.values[0] - term.band, term.values[0] + term.band
        plot.varea(term.x, low, high, fill_color=COLOURS[0], fill_alpha=0.2)
    for k, values in enumerate(term.values):
        plot.line(term.x, values, line_color=style(k)[0], line_width=2)
    plot.xaxis.axis_label, plot.yaxis.axis_label = plain(term.name, 60), "added to the score"
    return plot


def _scale(values: Array | list[str]) -> Scale:
    """Of an axis of these values."""
    return "datetime" if np.issubdtype(np.asarray(values).dtype, np.datetime64) else "linear"


def _cells(values: Array | list[str]) -> tuple[Array, Array]:
    """Where the cells about these values begin and end, which a transform spaces unevenly; dates in milliseconds.

    Examples
    --------
    >>> _cells(np.array([0.0, 1.0, 10.0]))
    (array([0. , 0.5, 5.5]), array([ 0.5,  5.5, 10. ]))
    """
    if isinstance(values, list):
        middles = np.arange(len(values), dtype=np.float64)
        return middles - 0.5, middles + 0.5
    dates = np.issubdtype(values.dtype, np.datetime64)
    numbers = values.astype("datetime64[ms]").astype(np.float64) if dates else values
    edges = np.concatenate([numbers[:1], (numbers[1:] + numbers[:-1]) / 2.0, numbers[-1:]])
    return edges[:-1], edges[1:]


def _map(term: Term) -> Any:
    """A heat map of a pair, of the first output."""
    plot, values = chart("map", height=260, x=_scale(term.x[0]), y=_scale(term.x[1])), term.values[0]
    (left, right), (bottom, top) = (_cells(each) for each in term.x)
    most = max(float(np.max(np.abs(values))), 1e-300)
    colours = LinearColorMapper(palette="RdBu11", low=-most, high=most)
    found = {
        "left": np.tile(left, len(bottom)), "right": np.tile(right, len(bottom)),
        "bottom": np.repeat(bottom, len(left)), "top": np.repeat(top, len(left)), "added": values.ravel(),
    }  # fmt: skip
    fill = {"field": "added", "transform": colours}
    plot.quad("left", "right", "bottom", "top", source=ColumnDataSource(found), fill_color=fill, line_color=None)
    plot.add_layout(ColorBar(color_mapper=colours, title="added"), "right")
    for axis, each, name in zip((plot.xaxis, plot.yaxis), term.x, term.name.split(" × ", 1), strict=True):
        axis.axis_label = plain(name, 40)
        if isinstance(each, list):
            axis.ticker = FixedTicker(ticks=[*range(len(each))])
            axis.major_label_overrides = {k: plain(str(label), 16) for k, label in enumerate(each)}
    return plot


def _steps(term: Term) -> Any:
    """Bars of categories, of the first output."""
    places = np.arange(len(term.x))
    plot = chart("bars", height=220)
    plot.vbar(places, width=0.7, top=term.values[0], color=COLOURS[0])
    if term.band is not None:
        plot.segment(places, term.values[0] - term.band, places, term.values[0] + term.band, line_color=INK)
    plot.xaxis.ticker = FixedTicker(ticks=places.tolist())
    plot.xaxis.major_label_overrides = {int(k): plain(str(label), 16) for k, label in zip(places, term.x, strict=True)}
    plot.xaxis.major_label_orientation = 1.0
    plot.yaxis.axis_label = "added to the score"
    return plot


def _numbers(settings: Sequence[RunGroup], found: Sequence[Array], feature: int) -> dict[str, float]:
    """Every setting's weight of a feature, one for each output of the model."""
    named: dict[str, float] = {}
    for setting, values in zip(settings, found, strict=True):
        prefix = "weight" if len(settings) == 1 else f"weight, {setting.label}"
        outputs = np.atleast_2d(values)[:, feature].tolist()
        named |= {prefix if len(outputs) == 1 else f"{prefix}, output {k}": w for k, w in enumerate(outputs, 1)}
    return named


def _names(features: Sequence[str] | None, count: int) -> list[str]:
    return [f"column {j + 1}" for j in range(count)] if features is None else [str(name) for name in features]


def _words(settings: Sequence[RunGroup], sizes: Sequence[Array], what: str) -> str:
    m = len(sizes[0])
    counts = [int(np.count_nonzero(values)) for values in sizes]
    used = f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,}"
    text = f"{m:,} features, of which {used} have a weight other than 0. The figure shows the {what}largest weights. "
    text += _answers(settings[0]) if len({s.first.classes for s in settings}) == 1 else ""
    if all(s.statement.private for s in settings):
        text += "A model is made of noisy releases alone, so that publishing it is covered by the privacy statement. "
    return text


def _answers(setting: RunGroup) -> str:
    """Which class a score stands for."""
    classes, scale = setting.first.classes, setting.first.scale
    if classes is None:
        return ""
    if len(classes) == 2:
        threshold = f"{round(scale.threshold, 12):g}"  # next to 0 where 0 was meant: see `Result.with_classes`
        return (
            f"A score of {threshold} or more answers '{classes[1]}', the positive class, towards which a positive "
            f"weight points; a lower one '{classes[0]}'. "
        )
    return f"The largest of {len(classes)} scores answers: {', '.join(map(str, classes))}. "


def _base(name: str, features: Sequence[str], order: IntArray) -> tuple[Any, IntArray]:
    places = np.arange(len(order))[::-1]
    plot = chart(name, height=70 + 22 * len(order), y_range=(-0.7, len(order) - 0.3))
    plot.yaxis.ticker = FixedTicker(ticks=sorted(places.tolist()))
    plot.yaxis.major_label_overrides = {
        int(place): plain(features[j], 24) for place, j in zip(places, order, strict=True)
    }
    plot.ygrid.visible = False
    plot.xaxis.axis_label = "weight"
    return plot, places


def _bars(values: Array, features: Sequence[str], order: IntArray) -> Any:
    plot, places = _base("weights", features, order)
    chosen = values[order]
    source = ColumnDataSource(
        {
            "row": places,
            "weight": chosen,
            "name": [plain(features[j], 200) for j in order],
            "colour": [COLOURS[0] if v >= 0 else COLOURS[1] for v in chosen],
        }
    )
    bars = plot.hbar("row", right="weight", height=0.7, source=source, color="colour")
    plot.segment([0], [-0.7], [0], [len(order) - 0.3], line_color=INK)
    plot.add_tools(tips(SHOWN, [bars]))
    return plot


def _dots(sizes: Sequence[Array], features: Sequence[str], order: IntArray, settings: Sequence[RunGroup]) -> Any:
    plot, places = _base("weights", features, order)
    plot.segment([0], [-0.7], [0], [len(order) - 0.3], line_color=INK)
    entries: dict[str, list[Any]] = {}
    markers = ("circle", "square", "triangle", "diamond", "inverted_triangle", "hex", "plus")
    for index, (values, label) in enumerate(zip(sizes, distinct([s.label for s in settings]), strict=True)):
        names = [f"{plain(features[j], 200)}, {label}" for j in order]
        source = ColumnDataSource({"row": places, "weight": values[order], "name": names})
        dots = plot.scatter(
            "weight", "row", source=source, size=9, marker=markers[index % 7], color=style(index)[0], fill_alpha=0.8,
            name=label,
        )  # fmt: skip
        entries[label] = [dots]
    plot.add_tools(tips(SHOWN, [drawn[0] for drawn in entries.values()]))
    add_legend(plot, entries)
    return plot
