"""The shape of the data: rows are centred, scaled and brought to a common length before the first round.

What is known of it is what `privacy.moments` lets out: noisy means of ‖x‖², of x and of x², each node's own, averaged
by numbers of records. From them follows one public map of rows,

    x ↦ s ∘ (x − c),   s_j ∝ (mean square of column j)^−p

and the run is made on what comes out. All of it is post-processing of a release, or done to a row by itself. Rows may
come out longer than the bound R, up to twice as long: then the subgradient is clipped, as every record's is, and not
the row, whose margin stays what it will be when the model is used. (Brought to R, rows cost 0.1 points on a9a.) A model
is taken back to the original coordinates, where it is linear again: ⟨w, s ∘ (x − c)⟩ = ⟨s ∘ w, x⟩ − ⟨s ∘ w, c⟩, the
second part going to the intercept.

Why it helps: noise is the same in all directions, and what a direction of the data can say grows with its variance. A
mean off the origin is one direction that shortens all others; columns of small variance drown. With p = ½ all columns
that are not noise are as long; p = ¼ goes half of the way.

Gates that look at noisy numbers: the centre is used only where it is long (a quarter of the rows' mean square), else it
would be noise; columns with less than two deviations of their noise count as having so much; rows are made longer only
where they are surely shorter than the bound.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar
from weakref import ref

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array, IntArray
from sottovoce.engine.secure import LAWS, ExactSums, SecureDraws
from sottovoce.errors import NetworkError, SpecError
from sottovoce.network.graphs import Graph
from sottovoce.privacy.moments import Moments
from sottovoce.privacy.release import Release, Setting
from sottovoce.privacy.sampling import Full
from sottovoce.problem.objective import ByRecords, Problem
from sottovoce.problem.shards import Reading, Shards
from sottovoce.rows import csr_stretches, is_sparse, row_norms
from sottovoce.run.spec import Spec
from sottovoce.secure.functions import lengths
from sottovoce.secure.generator import Generator, Purpose
from sottovoce.secure.noise import Noise, release_grid
from sottovoce.streams import Streams

Keys = Mapping[Purpose, Generator]
BEFORE = 0
"""The round in whose place the noise of the look is addressed: before the first."""

LONG = 0.25
"""The centre is used where its square is this share of the rows' mean square, or more."""
SHORT = 0.7
"""Rows whose mean square is surely below this share of the bound's are made longer."""
LEAST = 0.1
"""A column's mean square counts as this share of an even one's (1/m), at the least."""
LONGEST = 2.0
"""Mapped rows over this multiple of the bound are brought to it: their subgradients are clipped at the bound's."""
SHORTEST = 1e-4
"""Of mapped rows, the mean square counts as this much at the least, so that nothing is blown up."""
LESS = 1.0 - 2.0**-40
"""Each unit's part of a secure sum is made smaller by more than the error of computing it."""
ROWS = 1 << 20
"""Numbers that are worked on at a time: sparse rows are spread out so few at a time, and never all."""


@dataclass(frozen=True, eq=False)
class Shape:
    """One public map of rows, x ↦ s ∘ (x − c), and of models back.

    Attributes
    ----------
    scale : s, one number a column
    centre : c, in the units of the records; None where nothing is taken off, and sparse rows stay sparse
    bound, intercept, outputs : R, B and K of the problem
    """

    scale: Array
    centre: Array | None
    bound: float
    intercept: float
    outputs: int = 1
    of_rows: ClassVar[bool] = True

    @property
    def reach(self) -> float:
        """Within which all mapped rows are."""
        return LONGEST * self.bound

    def shards(self, shards: Shards) -> Shards:
        """The same records, mapped; each by itself."""
        X = shards.X
        if is_sparse(X) and (self.centre is None or not X.nnz):  # records that hold nothing stand for public numbers
            data = X.data * self.scale.astype(X.dtype)[X.indices]
            entries = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
            squares = np.bincount(entries, np.square(data, dtype=np.float64), minlength=X.shape[0])
            data *= _shorter(np.sqrt(squares), self.reach, X.dtype)[entries]
            mapped: Any = scipy.sparse.csr_array((data, X.indices, X.indptr), X.shape)
        else:
            if is_sparse(X):
                raise SpecError(
                    "the mean of sparse records cannot be taken off and leave them sparse; take moments without a "
                    "centre, or dense records"
                )
            mapped = np.array(X)
            step = max(1, ROWS // mapped.shape[1])
            for first in range(0, len(mapped), step):
                some = mapped[first : first + step]
                some -= 0.0 if self.centre is None else self.centre.astype(mapped.dtype)
                some *= self.scale.astype(mapped.dtype)
                some *= _shorter(lengths(some.astype(np.float64)), self.reach, mapped.dtype)[:, None]
        return replace(shards, X=mapped)

    def back(self, models: Array) -> Array:
        """Models of mapped rows (…, K·m') as models of the records."""
        w, b = self._split(models)
        w = w * self.scale
        return self._joined(models, w, b if self.centre is None else b - w @ self.centre / self.intercept)

    def forth(self, models: Array) -> Array:
        """The other way round."""
        w, b = self._split(models)
        if self.centre is not None:
            b = b + w @ self.centre / self.intercept
        return self._joined(models, w / self.scale, b)

    def _split(self, models: Array) -> tuple[Array, Any]:
        by_output = models.reshape(*models.shape[:-1], self.outputs, -1)
        return (by_output[..., :-1], by_output[..., -1]) if self.intercept else (by_output, 0.0)

    def _joined(self, models: Array, w: Array, b: Any) -> Array:
        whole = np.concatenate([w, b[..., None]], axis=-1) if self.intercept else w
        return np.asarray(whole.reshape(models.shape))


def _shorter(norms: Array, bound: float, kind: Any) -> Array:
    """What rows of these lengths are multiplied by, so that none is over the bound, in their own precision."""
    near = bound * (1.0 - 4.0 * float(np.finfo(kind).eps))
    return np.asarray(np.where(norms > near, near / np.maximum(norms, near), 1.0).astype(kind))


def _lengths_alone(moments: Moments) -> bool:
    """Then sparse rows need not be spread out."""
    return bool(moments.length) and not moments.centre and not moments.scale


def statistic(moments: Moments, X: Any, bound: float) -> Array:
    """φ of some rows, each brought to the bound where it is longer; dense."""
    if is_sparse(X) and _lengths_alone(moments):
        entries = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        squares = np.bincount(entries, np.square(X.data, dtype=np.float64) / bound**2, minlength=X.shape[0])
        return np.minimum(squares, 1.0)[:, None] * moments.factors[0]
    x = np.asarray(X.toarray() if is_sparse(X) else X, dtype=np.float64) / bound
    x /= np.maximum(lengths(x), 1.0)[:, None]
    squares, (length, centre, scale) = np.square(x), moments.factors
    parts = [squares.sum(axis=1, keepdims=True) * length] if length else []
    parts += [x * centre] if centre else []
    parts += [squares * scale] if scale else []
    return np.concatenate(parts, axis=1)


def _units(moments: Moments, shards: Shards, node: int, bound: float) -> Any:
    """φ of a node's units, some at a time: of a person, the mean over their rows."""
    rows, counts = shards.rows(node), shards.counts(node)
    listed = np.arange(len(shards.y))[rows]
    ends = np.arange(1, len(listed) + 1) if counts is None else np.cumsum(counts)
    features = int(shards.X.shape[1])
    spread = 1 if is_sparse(shards.X) and _lengths_alone(moments) else max(features, moments.width(features))
    step = max(1, ROWS // spread)
    for first in range(0, len(ends), step):
        some = ends[first : first + step]
        begin = int(ends[first - 1]) if first else 0
        found = statistic(moments, shards.X[listed[begin : int(some[-1])]], bound)
        if counts is not None:
            mine = counts[first : first + step]
            found = np.add.reduceat(found, np.cumsum(mine) - mine, axis=0) / mine[:, None]
        yield found


def means(moments: Moments, shards: Shards, bound: float) -> Array:
    """(n, width) every node's mean of φ."""
    if is_sparse(shards.X):
        totals = [_sparse_total(moments, shards, i, bound) for i in range(shards.n)]
    else:
        totals = [sum(part.sum(axis=0) for part in _units(moments, shards, i, bound)) for i in range(shards.n)]
    return np.stack(totals) / shards.sizes[:, None]


_means: dict[tuple[Moments, float], tuple["ref[Reading]", Array]] = {}


def _mean_of_all(moments: Moments, shards: Shards, bound: float) -> Array:
    """The mean of φ over all rows, whosever they are; that of the same rows is kept."""
    kept = _means.get((moments, bound))
    if kept is None or kept[0]() is not shards.reading:
        whole = replace(shards, offsets=np.array([0, len(shards.y)]), order=None)
        kept = ref(shards.reading, lambda _: _means.pop((moments, bound), None)), means(moments, whole, bound)[0]
        _means[moments, bound] = kept
    return kept[1]


def _sparse_total(moments: Moments, shards: Shards, node: int, bound: float) -> Array:
    """The sum of φ over a node's units, from the entries of its rows alone; to rounding, so not for exact sums."""
    X, counts = shards.X[shards.rows(node)], shards.counts(node)
    whole, features = X.shape
    shares = np.ones(whole) if counts is None else np.repeat(1.0 / counts, counts)
    shorter = 1.0 / np.maximum(row_norms(X), bound)
    sums = np.zeros((2, features))
    for first, last in csr_stretches(X, ROWS):
        some = slice(int(X.indptr[first]), int(X.indptr[last]))
        entries = np.repeat(np.arange(first, last), np.diff(X.indptr[first : last + 1]))
        x = X.data[some] * shorter[entries]
        for total in sums:  # of x, of x²
            total += np.bincount(X.indices[some], shares[entries] * x, minlength=features)
            x *= x
    length, centre, scale = moments.factors
    parts = [[sums[1].sum() * length]] if length else []
    parts += [sums[0] * centre] if centre else []
    parts += [sums[1] * scale] if scale else []
    return np.concatenate(parts)


def exact_sums(moments: Moments, shards: Shards, bound: float, grid: float) -> IntArray:
    """(n, width) every node's sum of φ in whole units of the grid: each unit's part is truncated toward zero, alone."""
    totals = np.zeros((shards.n, moments.width(int(shards.X.shape[1]))), dtype=np.int64)
    for node in range(shards.n):
        for part in _units(moments, shards, node, bound):
            totals[node] += np.trunc(part * (LESS / grid)).astype(np.int64).sum(axis=0)
    return totals


def sums_grid(largest: int) -> float:
    """A grid on which so many units are summed without an error in 62 bits."""
    return 2.0 ** (largest.bit_length() - 60)


@dataclass(frozen=True, eq=False)
class Look:
    """The one look at the shape of the data: what every node lets out of it, and what is made of that.

    Attributes
    ----------
    moments : which moments
    release : with which noise; its events are the ones that are accounted
    sizes : q_i
    features : columns of a row
    bound, intercept, outputs : R, B and K of the problem
    """

    moments: Moments
    release: Release
    sizes: IntArray
    features: int
    bound: float
    intercept: float
    outputs: int

    @property
    def width(self) -> int:
        """Numbers that a node lets out."""
        return self.moments.width(self.features)

    def released(self, problem: Problem, streams: Streams, keys: Keys | None) -> Array:
        """(n, width) every node's noisy mean."""
        of = self.moments, problem.shards, self.bound
        return let_out(self.release, problem, self.width, partial(means, *of), partial(exact_sums, *of), streams, keys)

    def mean(self, problem: Problem, streams: Streams) -> Array:
        """The mean of `released` by numbers of records, to rounding: all records' mean, read once for many runs."""
        noise = self.release.noise(streams, np.arange(problem.shards.n), np.full(problem.shards.n, BEFORE), self.width)
        return _mean_of_all(self.moments, problem.shards, self.bound) + self.weights @ noise

    @property
    def weights(self) -> Array:
        """By numbers of records."""
        return np.asarray(self.sizes / self.sizes.sum())

    def shape(self, mean: Array) -> Shape:
        """The map that follows from what was let out, of which this is the mean by numbers of records."""
        noise = float(np.linalg.norm(self.weights * np.array(self.release.sigma)))  # what pairs share is gone from it
        length, centre, squares = self._parts(mean)
        deviations = [noise / factor if factor else 0.0 for factor in self.moments.factors]
        square = 1.0
        if length is not None:
            square = min(1.0, max(float(length[0]), deviations[0]))
        elif squares is not None:
            square = min(1.0, max(float(squares.sum()), 2.0 * deviations[2]))
        centre = self._centre(centre, deviations[1], square)
        taken = 0.0 if centre is None else float(centre @ centre)
        if squares is not None:
            spread = squares - (0.0 if centre is None else np.square(centre))
            scale = np.maximum(spread, max(2.0 * deviations[2], LEAST / self.features)) ** -self.moments.power
            left = float(np.sum(np.square(scale) * np.maximum(spread, 0.0)))
        else:
            scale, left = np.ones(self.features), square - taken
            if centre is None and square + 2.0 * deviations[0] >= SHORT:
                left = 1.0  # rows are about as long as their bound
        left = max(left, float(np.min(scale)) ** 2 * SHORTEST)
        offset = None if centre is None else self.bound * centre
        return Shape(scale / math.sqrt(left), offset, self.bound, self.intercept, self.outputs)

    def _parts(self, mean: Array) -> list[Array | None]:
        """Means of ‖x‖², x and x²; None for what was not let out."""
        found, place = [], 0
        for factor, width in zip(self.moments.factors, (1, self.features, self.features), strict=True):
            found.append(mean[place : place + width] / factor if factor else None)
            place += width if factor else 0
        return found

    def _centre(self, centre: Array | None, deviation: float, square: float) -> Array | None:
        """The mean, shrunk by what of it is noise on average, where it is long."""
        if centre is None or not self.intercept:
            return None
        energy = float(centre @ centre)
        long = energy - len(centre) * deviation**2
        return centre * (long / energy) if long >= LONG * square else None


def look(spec: Spec, shards: Shards, graph: Graph) -> Look:
    """The look that a spec asks for, with its noise; of the data only sizes are looked at here."""
    features, problem = int(shards.X.shape[1]), spec.problem
    release = look_release(spec, shards.sizes, features, graph)
    bounds = problem.row_norm, problem.intercept, problem.outputs
    return Look(spec.privacy.moments, release, shards.sizes, features, *bounds)


def look_release(spec: Spec, sizes: IntArray, features: int, graph: Graph) -> Release:
    """What nodes of these sizes let out of all records once, and with which noise: of rows, targets or scores.

    Every node's release is as well hidden as one with z₁/√s times its reach: the share s of the budget. Where there are
    several, before the first round and after the last, they have the same noise, z₁/q, and are together one of the sum
    of their shares (`privacy.balance`). Everybody sends what it lets out to everybody, or by an exact average: so there
    must be links between any two.
    """
    privacy, n, looks = spec.privacy, len(sizes), spec.privacy.looks
    if not looks:
        raise SpecError("this run lets nothing out but in its rounds; ask for moments, quantiles or a balance")
    asked = "' and '".join(map(str, looks))
    if n > 1 and not graph.is_complete:
        raise NetworkError(
            f"'{asked}' is averaged over links between any two nodes, so that graph '{graph.name}' has no say in it; "
            f"leave the graph out (complete), or '{asked}'"
        )
    adversary = privacy.adversary.among(n)
    weights = n * ByRecords()(sizes)
    width = max(look.width(features) for look in looks)
    law = privacy.law.on(Setting(graph, Full(), sizes, width, adversary=adversary, scale=weights))
    wanted = looks[0].needed(privacy.noise, privacy.delta) / math.sqrt(privacy.shares)
    unit = Release(Full(), math.sqrt(privacy.shares) / 2.0, law.units(n), adversary, law)
    needed = [wanted / event.noise_multiplier for event in unit.events(sizes, np.ones(n, dtype=np.int64))]
    factors = [max(needed)] * n if law.secrets else needed  # what hides a node are all nodes' noises together
    return replace(unit, sigma=tuple(factor * scale for factor, scale in zip(factors, unit.sigma, strict=True)))


def let_out(
    release: Release,
    problem: Problem,
    width: int,
    means: Callable[[], Array],
    sums: Callable[[float], IntArray],
    streams: Streams,
    keys: Keys | None,
    when: int = BEFORE,
) -> Array:
    """(n, width) noisy means of all nodes: floating point from the streams or, with keys, exact and rounded once.

    Parameters
    ----------
    release, problem : what is let out, and of whose records
    width : numbers that a node lets out
    means, sums : every node's mean; every node's sum in whole units of a grid
    streams, keys : of a simulation; of a secure release
    when : the round by which the noise is addressed, of no other release
    """
    shards = problem.shards
    if keys is None:
        return means() + release.noise(streams, np.arange(shards.n), np.full(shards.n, when), width)
    largest = int(shards.sizes.max())
    grid = sums_grid(largest)
    nothing = ExactSums(problem, release.clip, 1.0, 0.0, largest)
    return finished(release, SecureDraws(release, nothing, keys, shards.sizes, width), sums(grid), grid, when)


def finished(release: Release, draws: SecureDraws, sums: IntArray, grid: float, when: int = BEFORE) -> Array:
    """Secure releases of sums: exact sum and all noises, rounded once, over the number of units."""
    nodes, rounds = np.arange(len(sums)), np.full(len(sums), when)
    scales = draws.scales(nodes, rounds)
    grids = np.array([release_grid(scale, grid) for scale in scales.tolist()])
    layers = [draws.layer(source, scales) for source in draws.sources(nodes, rounds)]
    whole = Noise(sums.shape[1], grids, layers, LAWS[release.law.unit]).added_to(sums, grid)
    return np.asarray(whole * grids[:, None] / draws.sizes[:, None])
