"""The range of targets: a narrower one than the public bounds, from noisy counts, before a regression's first round.

What is known of the targets is what `privacy.quantiles` lets out: of each node the noisy shares of its targets in
public cells, 4 of them, 16, 64, 256 and 1,024, averaged by numbers of records. From them follows one public range
[l, u] within [−1, 1], and the run is made on targets that are clipped to it and brought to [−1, 1] again, each alone,

    y ↦ (2 min(max(y, l), u) − l − u)/(u − l)

A model of these is taken back to the units that targets came in, where it is linear again: its weights times (u − l)/2,
and (l + u)/2 more of the constant term. (Without an intercept nothing can be added, and the range lies about 0.)

*Where a range ends.* From either end of [−1, 1] one walks over the largest cells, adding up their shares, into the
first with which the sum is surely over the tail, a hundredth of the targets or less: by `SURE` deviations of its noise,
but no more than `MOST` is asked for. This cell's own cells are walked over in the same way, going on from the sum
before them, and so on to the smallest; where no cell of the next size takes the sum so far, the walk ends at the outer
end of the larger one. So empty cells are passed by, be they nine tenths of the public range or 99 %, and what is
clipped is about the tail where noise is small. Where it is not, more of them may lie beyond: the end is then moved
outwards from the middle, as much as quantiles of a normal law are apart. No data has that law, and yet it is right
about how far: too wide costs noise, too narrow what the clipped targets would have said. Where `SURE` deviations are
over `MOST` nothing is sure, and the range stays what it was.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array, IntArray
from sottovoce.network.graphs import Graph
from sottovoce.privacy.quantiles import BRANCHES, CELLS, Quantiles
from sottovoce.privacy.release import Release
from sottovoce.problem.objective import Problem
from sottovoce.problem.shards import Shards
from sottovoce.run.shape import LESS, Keys, let_out, look_release
from sottovoce.run.spec import Spec
from sottovoce.streams import Streams

LEAST, LARGEST = 0.001, 0.01
"""Of the targets, beyond each end of the range: as much as there is noise in a share of them, within these limits. What
is clipped is lost for good, so that where there is hardly any noise hardly anything is."""
SURE = 3.0
"""Deviations of noise by which a sum of shares is surely over it."""
MOST = 0.2
"""Of the targets, beyond an end at most before it is moved outwards."""


@dataclass(frozen=True, eq=False)
class Narrowed:
    """A public range of targets within [−1, 1], which takes the place of that, and models of such targets.

    Attributes
    ----------
    low, high : its ends
    bound, intercept : R and B of the problem

    Examples
    --------
    >>> narrowed = Narrowed(0.0, 0.5, bound=1.0, intercept=0.5)
    >>> narrowed.targets(np.array([-0.3, 0.0, 0.25, 0.5, 0.9]))
    array([-1., -1.,  0.,  1.,  1.])
    >>> narrowed.back(np.array([4.0, 0.0]))  # a weight, and the intercept's
    array([1. , 0.5])
    """

    low: float
    high: float
    bound: float
    intercept: float
    of_rows: ClassVar[bool] = False

    @property
    def half(self) -> float:
        """Of its width."""
        return (self.high - self.low) / 2.0

    @property
    def middle(self) -> float:
        """Between its ends."""
        return (self.high + self.low) / 2.0

    @property
    def reach(self) -> float:
        """Within which all rows are: as before."""
        return self.bound

    def targets(self, y: Array) -> Array:
        """Clipped to the range, and in units of half of it."""
        return np.asarray(np.clip((y - self.middle) / self.half, -1.0, 1.0))

    def shards(self, shards: Shards) -> Shards:
        """The same records with such targets."""
        return replace(shards, y=self.targets(shards.y))

    def back(self, models: Array) -> Array:
        """Models (…, m') of narrowed targets as models of targets as they came."""
        found = models * self.half
        if self.intercept:
            found[..., -1] += self.middle / self.intercept
        return np.asarray(found)

    def forth(self, models: Array) -> Array:
        """The other way round."""
        found = np.array(models)
        if self.intercept:
            found[..., -1] -= self.middle / self.intercept
        return np.asarray(found / self.half)


# -- what is counted --


def cells(y: Array) -> list[IntArray]:
    """In which of the cells of each size each target is; those beyond [−1, 1] are in the last ones.

    Examples
    --------
    >>> [places.tolist() for places in cells(np.array([-1.0, 0.0, 7.0]))][:2]
    [[0, 2, 3], [0, 8, 15]]
    """
    fine = np.floor((np.clip(y, -1.0, 1.0) + 1.0) * (CELLS[-1] / 2.0)).astype(np.int64)
    fine = np.minimum(fine, CELLS[-1] - 1)
    return [fine // (CELLS[-1] // count) for count in CELLS]


Places = Sequence[IntArray]
"""In which cell each row is, of every kind of cells that are counted."""


def _entries(shards: Shards, node: int, places: Places, widths: Sequence[int]) -> tuple[IntArray, Array]:
    """Of a node's units, numbers of φ that are not 0: where, and which share of a unit's rows is there."""
    counts = shards.counts(node)
    places = [each[shards.rows(node)] for each in places]
    rows = len(places[0])
    unit = np.arange(rows) if counts is None else np.repeat(np.arange(len(counts)), counts)
    own = np.ones(rows) if counts is None else counts
    where, shares, begin = [], [], 0
    for each, width in zip(places, widths, strict=True):
        pairs, often = np.unique(unit * width + each, return_counts=True)
        where.append(begin + pairs % width)
        shares.append(often / own[pairs // width])
        begin += width
    return np.concatenate(where), np.concatenate(shares)


def mean_shares(factor: float, shards: Shards, places: Places, widths: Sequence[int]) -> Array:
    """(n, Σ widths) every node's mean over units of their shares in each cell, times a factor."""
    found = [np.bincount(*_entries(shards, i, places, widths), minlength=sum(widths)) for i in range(shards.n)]
    return np.asarray(np.stack(found) * factor / shards.sizes[:, None])


def exact_shares(factor: float, shards: Shards, places: Places, widths: Sequence[int], grid: float) -> IntArray:
    """The same sums in whole units of the grid: each unit's part is truncated toward zero, alone."""
    totals = np.zeros((shards.n, sum(widths)), dtype=np.int64)
    for node in range(shards.n):
        where, shares = _entries(shards, node, places, widths)
        np.add.at(totals[node], where, np.trunc(shares * (factor * LESS / grid)).astype(np.int64))
    return totals


def means(quantiles: Quantiles, shards: Shards) -> Array:
    """(n, width) every node's mean of φ."""
    return mean_shares(quantiles.factor, shards, cells(shards.y), CELLS)


def exact_sums(quantiles: Quantiles, shards: Shards, grid: float) -> IntArray:
    """(n, width) every node's sum of φ in whole units of the grid."""
    return exact_shares(quantiles.factor, shards, cells(shards.y), CELLS, grid)


# -- what is made of it --


class End(NamedTuple):
    """Where a walk from 0 ended, in units of the public range: at which cell, beyond which share of the targets."""

    outer: float
    inner: float
    beyond: float


def walk(levels: list[Array], deviation: float, tail: float, most: float = MOST, sure: float = SURE) -> End:
    """The cell in which a sum of noisy shares from the left is surely over the tail.

    Parameters
    ----------
    levels : noisy shares of the targets in cells of each size
    deviation : of the noise in each
    tail, most, sure : as in the constants of this file

    Examples
    --------
    >>> shares = [np.array([0.0, 0.5, 0.5, 0.0]), np.eye(16)[6] / 2 + np.eye(16)[9] / 2]
    >>> walk(shares, 0.0, 0.02)
    End(outer=0.375, inner=0.4375, beyond=0.02)
    """
    cell, passed, before, found, width = 0, 0, 0.0, tail, 1.0
    for shares in levels:
        total = before
        for place in range(cell * BRANCHES, (cell + 1) * BRANCHES):
            wanted = max(tail, min(tail + sure * deviation * math.sqrt(passed + 1), most))
            if total + shares[place] >= wanted:
                break
            total, passed = total + float(shares[place]), passed + 1
        else:
            break
        cell, before, found, width = place, total, wanted, width / BRANCHES
    return End(cell * width, (cell + 1) * width, found)


def ends(levels: list[Array], deviation: float) -> tuple[float, float]:
    """The range of the targets, in units of the public one, from noisy shares in cells of each size.

    Examples
    --------
    >>> y = np.random.default_rng(0).normal(0.3, 0.01, 4000)
    >>> shares = [np.bincount(places, minlength=count) / 4000 for places, count in zip(cells(y), CELLS)]
    >>> [round(2 * end - 1, 3) for end in ends(shares, 0.001)]
    [0.271, 0.331]
    """
    if SURE * deviation > MOST:
        return 0.0, 1.0
    turned, tail = [shares[::-1] for shares in levels], min(max(deviation, LEAST), LARGEST)
    left, right = (walk(each, deviation, tail) for each in (levels, turned))
    half = [walk(each, deviation, 0.5, 0.5) for each in (levels, turned)]
    middle = (half[0].outer + half[0].inner + 2.0 - half[1].outer - half[1].inner) / 4.0
    low, high, least = left.outer, 1.0 - right.outer, 1.0 / CELLS[-1]
    if high - low < least:  # noise let the walks pass each other, or all is in one place
        low, high = (low + high - least) / 2.0, (low + high + least) / 2.0
    quarter = (high - low) / 4.0
    middle = min(max(middle, low + quarter), high - quarter)
    out = [_quantile(tail) / _quantile(end.beyond) for end in (left, right)]
    low = min(low, middle - (middle - low - (left.inner - left.outer) / 2.0) * out[0])
    high = max(high, middle + (high - middle - (right.inner - right.outer) / 2.0) * out[1])
    return max(low, 0.0), min(high, 1.0)


def _quantile(beyond: float) -> float:
    """How far out such a share of a normal law lies."""
    return float(scipy.special.ndtri(1.0 - beyond))


@dataclass(frozen=True, eq=False)
class Count:
    """The one count of targets: what every node lets out of it, and what is made of that.

    Attributes
    ----------
    quantiles : for which share of the budget
    release : with which noise; its events are the ones that are accounted
    sizes : q_i
    bound, intercept : R and B of the problem
    """

    quantiles: Quantiles
    release: Release
    sizes: IntArray
    bound: float
    intercept: float

    def released(self, problem: Problem, streams: Streams, keys: Keys | None) -> Array:
        """(n, width) every node's noisy mean of φ."""
        of = self.quantiles, problem.shards
        width = self.quantiles.width()
        return let_out(self.release, problem, width, partial(means, *of), partial(exact_sums, *of), streams, keys)

    def narrowed(self, released: Array) -> Narrowed:
        """The range that follows from what was let out."""
        weights = self.sizes / self.sizes.sum()
        noise = float(np.linalg.norm(weights * np.array(self.release.sigma)))  # what pairs share is gone from the mean
        mean = weights @ released / self.quantiles.factor
        levels = np.split(mean, np.cumsum(CELLS)[:-1])
        low, high = (2.0 * end - 1.0 for end in ends(levels, noise / self.quantiles.factor))
        if not self.intercept:
            high = max(-low, high)
            low = -high
        return Narrowed(low, high, self.bound, self.intercept)


def count(spec: Spec, shards: Shards, graph: Graph) -> Count:
    """The count that a spec asks for, with its noise; of the data only sizes are looked at here."""
    release = look_release(spec, shards.sizes, int(shards.X.shape[1]), graph)
    return Count(spec.privacy.quantiles, release, shards.sizes, spec.problem.row_norm, spec.problem.intercept)
