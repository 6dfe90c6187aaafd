"""The range of targets: a narrower one than the public bounds, from noisy counts, before a regression's first round.

`privacy.one_shot.Quantiles` is the release: of each node the noisy shares of its targets in
public cells, 4 of them, 16, 64, 256 and 1,024, averaged by numbers of records. From them follows one public range
[l, u] within [−1, 1], and the run is made on targets that are clipped to it and brought to [−1, 1] again, each alone,

    y ↦ (2 min(max(y, l), u) − l − u)/(u − l)

A model of these is taken back to the units that targets came in, where it is linear again: its weights times (u − l)/2,
and (l + u)/2 more of the constant term. (Without an intercept nothing can be added, and the range lies about 0.)

*Where a range ends.* From either end of [−1, 1] shares of the largest cells are added up, to the first cell with which
the sum is surely over the tail, a hundredth of the targets or less: by `TAIL_DEVIATIONS` deviations of its noise, but
by no more than `MAX_TAIL_WITH_NOISE`. This cell's own cells are walked over in the same way, going on from the sum
before them, and so on to the smallest; where no cell of the next size takes the sum so far, the walk ends at the outer
end of the larger one. So empty cells are passed by, be they nine tenths of the public range or 99 %, and what is
clipped is about the tail where noise is small. Where it is not, more of them may lie beyond: the end is then moved
outwards from the middle, as much as quantiles of a normal law are apart. No data has that law, and yet it is right
about how far: too wide costs noise, too narrow what the clipped targets would have said. Where `TAIL_DEVIATIONS`
deviations are over `MAX_TAIL_WITH_NOISE` nothing is sure, and the range stays what it was.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array, IntArray
from sottovoce.casts import whole_units
from sottovoce.privacy.one_shot import BRANCHES, NESTED_CELLS, Quantiles
from sottovoce.problem.shards import Shards
from sottovoce.run.one_shot import CellShares, Noisy
from sottovoce.run.plan import Public

MIN_TAIL, MAX_TAIL = 0.001, 0.01
"""Of the targets, beyond each end of the range: as much as there is noise in a share of them, within these limits. What
is clipped is lost for good, so that where there is hardly any noise hardly anything is."""
TAIL_DEVIATIONS = 3.0
"""Deviations of noise by which a sum of shares is surely over it."""
MAX_TAIL_WITH_NOISE = 0.2
"""Of the targets, beyond an end at most before it is moved outwards."""


@dataclass(frozen=True, eq=False)
class TargetRange:
    """A public range of targets within [−1, 1], which takes the place of that, and models of such targets.

    Attributes
    ----------
    low, high : its ends
    bound, intercept : R and B of the problem

    Examples
    --------
    >>> narrowed = TargetRange(0.0, 0.5, bound=1.0, intercept=0.5)
    >>> narrowed.targets(np.array([-0.3, 0.0, 0.25, 0.5, 0.9]))
    array([-1., -1.,  0.,  1.,  1.])
    >>> narrowed.inverse_transform(np.array([4.0, 0.0]))  # a weight, and the intercept's
    array([1. , 0.5])
    """

    low: float
    high: float
    bound: float
    intercept: float
    of_rows: ClassVar[bool] = False
    for_engine: ClassVar[None] = None

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

    def longest(self, bound: float) -> float:
        """How long a model can be once it is taken back, where it was no longer than the bound."""
        return bound * self.half + (abs(self.middle) / self.intercept if self.intercept else 0.0)

    def public(self) -> Public:
        """The range."""
        return Public(targets=[self.low, self.high])

    def targets(self, y: Array) -> Array:
        """Clipped to the range, and in units of half of it."""
        return np.asarray(np.clip((y - self.middle) / self.half, -1.0, 1.0))

    def shards(self, shards: Shards) -> Shards:
        """The same records with such targets."""
        return replace(shards, y=self.targets(shards.y))

    def inverse_transform(self, models: Array) -> Array:
        """Models (…, m') of narrowed targets as models of targets as they came."""
        found = models * self.half
        if self.intercept:
            found[..., -1] += self.middle / self.intercept
        return np.asarray(found)

    def transform(self, models: Array) -> Array:
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
    fine = whole_units((np.clip(y, -1.0, 1.0) + 1.0) * (NESTED_CELLS[-1] / 2.0), high=NESTED_CELLS[-1] - 1)
    return [fine // (NESTED_CELLS[-1] // count) for count in NESTED_CELLS]


# -- what is made of it --


class End(NamedTuple):
    """Where a walk from 0 ended, in units of the public range: at which cell, beyond which share of the targets."""

    outer: float
    inner: float
    beyond: float


def walk(
    levels: list[Array], deviation: float, tail: float, most: float = MAX_TAIL_WITH_NOISE, sure: float = TAIL_DEVIATIONS
) -> End:
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
    >>> shares = [np.bincount(places, minlength=count) / 4000 for places, count in zip(cells(y), NESTED_CELLS)]
    >>> [round(2 * end - 1, 3) for end in ends(shares, 0.001)]
    [0.271, 0.331]
    """
    if TAIL_DEVIATIONS * deviation > MAX_TAIL_WITH_NOISE:
        return 0.0, 1.0
    turned, tail = [shares[::-1] for shares in levels], min(max(deviation, MIN_TAIL), MAX_TAIL)
    left, right = (walk(each, deviation, tail) for each in (levels, turned))
    half = [walk(each, deviation, 0.5, 0.5) for each in (levels, turned)]
    middle = (half[0].outer + half[0].inner + 2.0 - half[1].outer - half[1].inner) / 4.0
    low, high, least = left.outer, 1.0 - right.outer, 1.0 / NESTED_CELLS[-1]
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


@dataclass(frozen=True)
class TargetCounts(CellShares[TargetRange]):
    """The counts of targets: what a unit contributes, and the range that follows.

    Attributes
    ----------
    quantiles : for which share of the budget
    bound, intercept : R and B of the problem
    """

    quantiles: Quantiles
    bound: float = 1.0
    intercept: float = 0.0
    kinds: ClassVar[Sequence[int]] = NESTED_CELLS

    @property
    def factor(self) -> float:
        """What entries of φ are, where they are not 0."""
        return self.quantiles.factor

    def cells(self, shards: Shards) -> list[IntArray]:
        """Of every target."""
        return cells(shards.y)

    def finish(self, noisy: Noisy) -> TargetRange:
        """The range that follows from the noisy mean."""
        mean = noisy.mean / self.factor
        levels = np.split(mean, np.cumsum(NESTED_CELLS)[:-1])
        low, high = (2.0 * end - 1.0 for end in ends(levels, noisy.deviation / self.factor))
        if not self.intercept:
            high = max(-low, high)
            low = -high
        return TargetRange(low, high, self.bound, self.intercept)
