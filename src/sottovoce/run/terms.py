"""What each column of a model adds to a score: curves, bars and heat maps, from public and released numbers alone.

A score is a constant and one term for every column (and pair of columns). A term is centered: its mean over the
column's values is part of the constant, under the distribution that the run released or, without one, even over the
bounds. The importance of a term is its root mean square under the same weights; no record is read.

The band is for the noise of the rounds alone, in first order and at 95 %, with the released distribution as given: a
weight is −τ times a mean gradient, the noise in a coordinate of that mean is c, and curvature only makes it smaller.
So the deviation at a value v is about τ c ‖φ_j(v)‖ at most, in the units of the run. It leaves out the noise of that
distribution, which moves the functions and the mean that a curve is centered at: two runs on the same records can
differ by more than both bands. It also says nothing of how far a term would move with other records.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sottovoce._types import Array
from sottovoce.errors import DataError
from sottovoce.features import CENTERS, EDGES, PAIR_ORDER, PAIR_WEIGHT, Additive, legendre
from sottovoce.privacy.statement import PERSON
from sottovoce.run.result import Result
from sottovoce.run.verify import again

POINTS = 201
"""Values at which a curve is drawn."""
GRID = 41
"""Values of each column at which a heat map is drawn."""
COVERED = 1.96
"""Deviations on either side of a band that covers 95 %."""
BAND = "noise of the rounds only, about 95 %"
"""What a band is, wherever one is drawn or printed."""
NOT_IN_BAND = "not the noise in counts of columns, which moves whole curves, nor how other records would differ"
"""What it leaves out."""
TWO = 2
"""Classes that one score tells apart."""
MOST_TEXT = 9
"""Values of a curve that are written out."""
Axis = tuple[float, float] | tuple[str, ...] | Callable[[Array], Array]
"""What a numeric column's own units are: its two ends, a name for each of its evenly spaced values, or the values (or
dates) that places in [−1, 1] stand for."""


@dataclass(frozen=True, eq=False)
class Term:
    """What a column, or a pair of columns, adds to a score.

    Attributes
    ----------
    name : of the column or of the pair
    kind : 'curve' over numbers, 'bars' of categories, 'line' for a column without known bounds, or 'map' of a pair
    x : values of the column, or categories; of a map those of both columns
    values : (outputs, points) what is added; of a map (outputs, points of the second, points of the first)
    band : (points,) half-width of the band; None where the noise is not known
    importance : root mean square of the values
    columns : places of the columns
    """

    name: str
    kind: str
    x: Any
    values: Array
    band: Array | None
    importance: float
    columns: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Terms:
    """All terms of a model, the most important first.

    Attributes
    ----------
    terms : sorted by importance
    constant : (outputs,) what is added to every score
    outputs : names of the outputs: classes, or one empty name
    higher : of two classes, the one that a higher score means
    """

    terms: tuple[Term, ...]
    constant: Array
    outputs: tuple[str, ...]
    higher: str | None = None

    def __iter__(self) -> Any:
        """Term by term."""
        return iter(self.terms)

    def text(self, most: int = 20) -> str:
        """The picture in words: for every term its importance, and its values at a few places."""
        means = "" if self.higher is None else f" (higher: {self.higher!r})"
        lines = [f"constant {_numbers(self.constant)}{means}"]
        for term in self.terms[:most]:
            lines.append(f"{term.name}: importance {term.importance:.3g}")
            if term.kind == "map":
                low, high = float(term.values.min()), float(term.values.max())
                lines.append(f"  from {low:+.3g} to {high:+.3g}")
                continue
            places = np.unique(np.linspace(0, len(term.x) - 1, min(len(term.x), MOST_TEXT)).round().astype(int))
            if term.kind == "bars":
                places = np.arange(len(term.x))
            for place in places.tolist():
                at = f"{term.x[place]:g}" if isinstance(term.x[place], float) else str(term.x[place])
                noise = "" if term.band is None else f" ± {term.band[place]:.2g}"
                lines.append(f"  {at}: {_numbers(term.values[:, place])}{noise}")
        if len(self.terms) > most:
            lines.append(f"and {len(self.terms) - most} terms of less importance")
        lines.append(f"± is {BAND}: {NOT_IN_BAND}")
        return "\n".join(lines)


def _numbers(values: Array) -> str:
    return ", ".join(f"{value:+.3g}" for value in values)


def weight_noise(result: Result) -> float | None:
    """τ c: the deviation of the noise in a weight, at most, in units of the run; None where it is not known."""
    algorithm, problem = result.spec.algorithm, result.spec.problem
    if algorithm.method.name != "dual_averaging" or not result.statement.private:
        return 0.0 if math.isinf(result.statement.epsilon) else None
    plan = again(result.spec, result.public, result.statement.unit == PERSON.name)
    T = algorithm.rounds
    a, gamma = algorithm.a(T), float(algorithm.gamma(T)[-1])
    noise = float(np.linalg.norm(plan.problem.node_weights * np.array(plan.release.sigma)))
    iota = float(result.public["iota"])
    held = problem.h.modulus * iota * float(np.sum(a)) + gamma
    return noise * math.sqrt(iota * float(np.sum(np.square(a)))) / max(held, 1e-300)


def terms_of(result: Result, names: Sequence[str] | None = None, axes: Mapping[str, Axis] | None = None) -> Terms:
    """The terms of a result.

    Parameters
    ----------
    result : a linear or an additive model
    names : of the columns; by default those of the result
    axes : a numeric column's own units, where the model has it in [−1, 1]
    """
    weights = np.atleast_2d(result.coef)
    if not np.all(np.isfinite(weights)):
        raise DataError("the model holds numbers that are not finite: its run diverged; train it anew")
    names = result.features if names is None else tuple(names)
    named = [f"column {j + 1}" for j in range(result.columns)] if names is None else [str(name) for name in names]
    noise = weight_noise(result)
    row_scale = np.ones(weights.shape[1]) * result.public.get("row_scale", 1.0)
    deviation = None if noise is None else COVERED * noise * result.scale.half / result.scale.unit * row_scale
    of = result.spec.problem.features
    found: list[Term] = []
    constant = np.array(np.atleast_1d(result.intercept), dtype=np.float64)
    others = [*range(result.columns)]
    if isinstance(of, Additive):
        others = of.others
        for term, mean in _functions(of, result.public.get("distribution"), weights, named, deviation, axes or {}):
            found.append(term)
            constant = constant + mean
    for group, places in _grouped(named, others).items():
        at = [of.feature_of(place) for place in places] if isinstance(of, Additive) else places
        found.append(_bars(group, named, places, weights[:, at], None if deviation is None else deviation[at]))
    classes = () if result.classes is None or len(weights) == 1 else tuple(map(str, result.classes))
    found.sort(key=lambda term: -term.importance)
    higher = str(result.classes[1]) if result.classes is not None and len(result.classes) == TWO else None
    return Terms(tuple(found), constant, classes or ("",), higher)


def shares_of(F: Sequence[float]) -> Array:
    """Shares of the records in the cells of a column, from F at their centers.

    Examples
    --------
    >>> shares = np.diff(EDGES)
    >>> bool(np.allclose(shares_of((np.cumsum(shares) - shares / 2).tolist()), shares))
    True
    """
    found, before = np.empty(len(F)), 0.0
    for k, middle in enumerate(F):
        found[k] = max(0.0, 2.0 * (middle - before))
        before += found[k]
    return found / max(found.sum(), 1e-300)


def _functions(
    of: Additive,
    distributions: Any,
    weights: Array,
    named: Sequence[str],
    deviation: Array | None,
    axes: Mapping[str, Axis],
) -> Any:
    """(term, what it adds to the constant) of every numeric column and pair."""
    counted = [np.diff(EDGES) if distributions is None else shares_of(distributions[j]) for j in range(of.d)]
    at_cells, at_points = (_expanded(of, u, distributions) for u in (CENTERS, np.linspace(0.0, 1.0, POINTS)))
    for j, (place, low, high) in enumerate(of.numeric):
        own, points = of.features_of(j), at_points
        kind, x = _axis(axes.get(named[place], (low, high)), POINTS)
        if kind == "bars":
            points = _expanded(of, np.linspace(0.0, 1.0, len(x)), distributions)
        center = counted[j] @ at_cells[:, own]
        mean = weights[:, own] @ center
        values = weights[:, own] @ (points[:, own] - center).T
        size = np.sqrt(np.mean(np.square(weights[:, own] @ (at_cells[:, own] - center).T) @ counted[j]))
        band = None if deviation is None else np.linalg.norm(deviation[own] * (points[:, own] - center), axis=1)
        yield Term(named[place], kind, x, values, band, float(size), (place,)), mean
    for p in range(len(of.pairs)):
        yield _map(of, p, weights, counted, named, axes)


def _map(
    of: Additive,
    p: int,
    weights: Array,
    counted: Sequence[Array],
    named: Sequence[str],
    axes: Mapping[str, Axis],
) -> tuple[Term, Array]:
    """The term of a pair."""
    i, j = of.pairs[p]
    own = weights[:, of.features_of_pair(p)].reshape(len(weights), PAIR_ORDER, PAIR_ORDER)

    def surface(first: Array, second: Array) -> Array:
        orders = np.arange(1, PAIR_ORDER + 1)
        left, right = (legendre(2.0 * u - 1.0, range(1, PAIR_ORDER + 1)) / orders for u in (first, second))
        return np.asarray(np.einsum("xa,kab,yb->kyx", left, own, right) * PAIR_WEIGHT)

    cells = surface(CENTERS, CENTERS)
    mean = np.einsum("y,kyx,x->k", counted[j], cells, counted[i])
    squares = np.einsum("y,kyx,x->k", counted[j], np.square(cells - mean[:, None, None]), counted[i])
    places = of.numeric[i][0], of.numeric[j][0]
    ends = [axes.get(named[place], of.numeric[k][1:]) for place, k in zip(places, (i, j), strict=True)]
    grids = [np.linspace(0.0, 1.0, len(end) if _named(end) else GRID) for end in ends]  # type: ignore[arg-type]
    x = tuple(_axis(end, GRID)[1] for end in ends)
    name = f"{named[places[0]]} × {named[places[1]]}"
    values = surface(*grids) - mean[:, None, None]
    return Term(name, "map", x, values, None, float(np.sqrt(np.mean(squares))), places), mean


def _axis(axis: Axis, points: int) -> tuple[str, Any]:
    """How a column is drawn, and at which of its own values.

    Examples
    --------
    >>> _axis((0.0, 10.0), 3), _axis(("low", "high"), 3)
    (('curve', array([ 0.,  5., 10.])), ('bars', ['low', 'high']))
    """
    if callable(axis):
        return "curve", axis(np.linspace(-1.0, 1.0, points))
    if _named(axis):
        return "bars", [*axis]
    low, high = axis
    return "curve", np.linspace(float(low), float(high), points)


def _named(axis: Axis) -> bool:
    """Whether a column's values have names."""
    return not callable(axis) and isinstance(axis[0], str)


def _expanded(of: Additive, u: Array, distributions: Any) -> Array:
    """Features where every numeric column has the same place u between its bounds."""
    t = np.repeat(2.0 * u[:, None] - 1.0, of.d, axis=1)
    out = np.zeros((len(u), of.width))
    out[:, : of.d] = t
    of.fill(out, t, distributions)
    return out


def _grouped(named: Sequence[str], places: Sequence[int]) -> dict[str, list[int]]:
    """Columns that are indicators of one column's categories, by the name before '='; all others alone."""
    found: dict[str, list[int]] = {}
    for place in places:
        name = named[place]
        found.setdefault(name.partition("=")[0] if "=" in name else name, []).append(place)
    return found


def _bars(group: str, named: Sequence[str], places: Sequence[int], weights: Array, deviation: Array | None) -> Term:
    """The weights of indicators, or of one column: what each adds where it is 1."""
    several = "=" in named[places[0]]
    labels = [named[place].partition("=")[2] for place in places] if several else ["0", "1"]
    values = weights if several else np.concatenate([np.zeros_like(weights), weights], axis=1)
    band = deviation if several or deviation is None else np.concatenate([[0.0], deviation])
    size = float(np.sqrt(np.mean(np.square(weights - weights.mean(axis=1, keepdims=True)))))
    if len(places) == 1:
        size = float(np.sqrt(np.mean(np.square(weights)))) / 2.0
    return Term(group, "bars" if several else "line", labels, values, band, size, tuple(places))


def explained(result: Result, row: Array, names: Sequence[str] | None = None) -> dict[str, Array]:
    """What each column adds to the score of one row, and the constant: they sum to the score.

    Parameters
    ----------
    result : a linear or an additive model
    row : (columns,) one record
    names : of the columns

    Returns
    -------
    (outputs,) by name of the column or pair, and 'constant'
    """
    rows = np.asarray(row, dtype=np.float64).reshape(1, -1)
    if rows.shape[1] != result.columns:
        raise DataError(f"the model has {result.columns} columns, but this record has {rows.shape[1]}")
    weights, terms = np.atleast_2d(result.coef), terms_of(result, names)
    expanded = np.asarray(result.rows(rows))[0]
    of, found = result.spec.problem.features, {}
    constant = np.array(np.atleast_1d(result.intercept), dtype=np.float64)
    places = {term.name: _features_of(of, term) for term in terms}
    means = _means(of, result.public.get("distribution"), weights) if isinstance(of, Additive) else {}
    for term in terms:
        at = places[term.name]
        mean = means.get(term.columns if term.kind in ("curve", "map") else None, 0.0)
        found[term.name] = weights[:, at] @ expanded[at] - mean
        constant = constant + mean
    return found | {"constant": constant}


def _features_of(of: Any, term: Term) -> list[int]:
    """Which features a term is made of."""
    if not isinstance(of, Additive):
        return list(term.columns)
    numeric = [place for place, _, _ in of.numeric]
    if term.kind == "curve":
        return of.features_of(numeric.index(term.columns[0]))
    if term.kind == "map":
        pair = numeric.index(term.columns[0]), numeric.index(term.columns[1])
        return of.features_of_pair(of.pairs.index(pair))
    return [of.feature_of(place) for place in term.columns]


def _means(of: Additive, distributions: Any, weights: Array) -> dict[Any, Array]:
    """What the terms of numeric columns and pairs add to the constant, by their columns."""
    named = [str(place) for place in range(of.columns)]
    return {term.columns: mean for term, mean in _functions(of, distributions, weights, named, None, {})}
