"""The distribution of columns: F of numeric columns, and a common center and length of rows, from one release.

`ColumnCounts` is the one-shot release (`privacy.distribution`): noisy shares of the records in 32 cells of every
numeric column, and the noisy mean of the other columns, averaged over nodes by numbers of records. From them follows
one public map of expanded rows (`features.Additive`),

    φ(x) ↦ s ∘ (φ_F(x) − c)

*F.* A cell counts where it surely holds records, by `SURE_DEVIATIONS` deviations of its noise. What is left is spread
over the others in proportion to their widths, so that F is the identity where noise hides everything. F of a value is
the share of the records in lower cells and half of its own, between centers of cells on a straight line.
*c* is the mean of every function under these shares: skewed columns have most values at a bound, where all polynomials
are far from 0, and such a common offset is one direction that shortens all others.
*s* is in proportion to v^(−1/4), v the variance of a feature, so that noise does not hide features of small variance.
It brings the mean square of rows to that of the bound, as far as it follows from the shares.

All of it is post-processing of the release, or done to a row by itself. As in `run.private_scaling`, rows may come out
up to twice as long as their bound; then the subgradient is clipped. A model is taken back by s and c, where it is
linear in φ_F. Rows of a regression are neither centered nor made longer.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.casts import whole_units
from sottovoce.features import CELLS, CENTERS, EDGES, PAIR_ORDER, PAIR_WEIGHT, Additive, legendre
from sottovoce.privacy.distribution import Distribution
from sottovoce.problem.shards import Shards
from sottovoce.run.one_shot import SHRINK, Noisy, Query
from sottovoce.run.plan import Public
from sottovoce.run.private_scaling import PrivateScaling, person_means, shorter
from sottovoce.secure.functions import lengths

SURE_DEVIATIONS = 3.0
"""Deviations of noise by which a cell surely holds records."""
SHORTEST = 1e-2
"""Of mapped rows, the mean square counts as this share of the bound's at the least."""
POWER = 0.25
"""Features are scaled by (their variance)^−p."""
LEAST = 0.1
"""A feature's variance counts as this share of an even one's, at the least."""
ROWS = 1 << 20
"""Numbers that are worked on at a time."""


@dataclass(frozen=True, eq=False)
class Expanded:
    """One public map of expanded rows, and of models back.

    Attributes
    ----------
    features : which functions they have
    unit : what expanded rows were divided by
    distributions : F of every numeric column at the centers of its cells
    shape : the center and the length that follow
    centered : whether rows are moved and made longer; a regression's stay within their bound by construction
    """

    features: Additive
    unit: float
    distributions: tuple[tuple[float, ...], ...]
    shape: PrivateScaling
    centered: bool = True
    of_rows: ClassVar[bool] = True
    for_engine: ClassVar[None] = None

    @property
    def reach(self) -> float:
        """Within which all mapped rows are."""
        return self.shape.reach if self.centered else self.shape.bound

    def longest(self, bound: float) -> float:
        """How long a model can be once it is taken back."""
        return self.shape.longest(bound)

    def public(self) -> Public:
        """The distribution functions, which new records need, and by what rows were made longer."""
        found = Public(distribution=[list(F) for F in self.distributions])
        if self.centered:
            found["row_scale"] = self.shape.scale.tolist()
        return found

    def shards(self, shards: Shards) -> Shards:
        """The same records, with F in place of the identity, centered and scaled; each by itself."""
        mapped = self.scored(shards)
        if not self.centered:
            X = mapped.X
            X *= shorter(lengths(X), self.shape.bound, X.dtype)[:, None]
            return mapped
        return self.shape.shards(mapped)

    def scored(self, shards: Shards) -> Shards:
        """The same records as models meet them that were taken back: with F in place of the identity, and no more."""
        X = np.array(shards.X, dtype=np.float64)
        step = max(1, ROWS // X.shape[1])
        for begin in range(0, len(X), step):
            some = X[begin : begin + step]
            self.features.fill(some, _lines(some, self.features, self.unit), self.distributions)
            some[:, self.features.columns :] /= self.unit
        return replace(shards, X=X)

    def inverse_transform(self, models: Array) -> Array:
        """Models of mapped rows as models of φ_F."""
        return self.shape.inverse_transform(models)

    def transform(self, models: Array) -> Array:
        """The other way round."""
        return self.shape.transform(models)


def _lines(X: Array, features: Additive, unit: float) -> Array:
    """t of every numeric column, from expanded rows."""
    return np.clip(np.nan_to_num(X[:, : features.d] * unit, nan=0.0), -1.0, 1.0)


@dataclass(frozen=True)
class ColumnCounts(Query[Expanded]):
    """The counts of columns: what a unit contributes, and the map that follows.

    Attributes
    ----------
    distribution : for which shares of the budget
    features : the map of columns
    bound, intercept, outputs : R, B and K of the problem
    """

    distribution: Distribution
    features: Additive
    bound: float
    intercept: float = 0.0
    outputs: int = 1
    centered: bool = True

    @property
    def unit(self) -> float:
        """What expanded rows were divided by."""
        return self.features.norm / self.bound

    @property
    def width(self) -> int:
        """Numbers that a node releases."""
        return self.distribution.width()

    @property
    def diameter(self) -> float:
        """√(s + s_c)."""
        return 2.0 * self.distribution.clip

    def places(self, X: Array) -> IntArray:
        """(rows, d) in which cell of all each value is."""
        t = _lines(X, self.features, self.unit)
        cell = np.searchsorted(EDGES[1:-1], (1.0 + t) / 2.0, side="right")
        return np.asarray(cell + CELLS * np.arange(self.features.d), dtype=np.int64)

    def means_of(self, X: Array) -> Array:
        """The part of φ that is for the mean of the other columns, each row brought to its bound."""
        others = X[:, self.features.d : self.features.columns] * (self.unit / max(self.features.rest, 1e-300))
        others = np.clip(np.nan_to_num(others, nan=0.0), -1.0, 1.0)
        others /= np.maximum(lengths(np.ascontiguousarray(others)), 1.0)[:, None]
        return np.asarray(others * self.distribution.mean_factor)

    def phi(self, X: Array) -> Array:
        """φ of some rows."""
        out = np.zeros((len(X), self.width))
        out[np.arange(len(X))[:, None], self.places(X)] = self.distribution.factor
        if self.distribution.mean:
            out[:, CELLS * self.features.d :] = self.means_of(X)
        return out

    def units(self, shards: Shards, node: int) -> Iterator[Array]:
        """φ of a node's units, some at a time: of a person, the mean over their rows."""
        rows, counts = shards.rows(node), shards.counts(node)
        listed = np.arange(len(shards.y))[rows]
        ends = np.arange(1, len(listed) + 1) if counts is None else np.cumsum(counts)
        step = max(1, ROWS // self.width)
        for first in range(0, len(ends), step):
            some = ends[first : first + step]
            begin = int(ends[first - 1]) if first else 0
            found = self.phi(np.asarray(shards.X[listed[begin : int(some[-1])]], dtype=np.float64))
            yield found if counts is None else person_means(found, counts[first : first + step])

    def means(self, shards: Shards) -> Array:
        """(n, width) every node's mean of φ; records that are units of their own are counted."""
        if shards.people:
            return super().means(shards)
        factor, found = self.distribution.factor, np.zeros((shards.n, self.width))
        for node, X in self._blocks(shards):
            found[node] += np.bincount(self.places(X).ravel(), minlength=self.width) * factor
            if self.distribution.mean:
                found[node, CELLS * self.features.d :] += self.means_of(X).sum(axis=0)
        return np.asarray(found / shards.sizes[:, None])

    def exact_sums(self, shards: Shards, grid: float) -> IntArray:
        """(n, width) every node's sum of φ in whole units of the grid; records are counted."""
        if shards.people:
            return super().exact_sums(shards, grid)
        one = int(whole_units(np.array([self.distribution.factor * SHRINK]), grid, -1.0 / grid, 1.0 / grid)[0])
        totals = np.zeros((shards.n, self.width), dtype=np.int64)
        for node, X in self._blocks(shards):
            totals[node] += np.bincount(self.places(X).ravel(), minlength=self.width) * one
            if self.distribution.mean:
                means = whole_units(self.means_of(X) * SHRINK, grid, -1.0 / grid, 1.0 / grid)
                totals[node, CELLS * self.features.d :] += means.sum(axis=0)
        return totals

    def _blocks(self, shards: Shards) -> Iterator[tuple[int, Array]]:
        """Rows of every node, some at a time."""
        step = max(1, ROWS // max(self.features.width, 1))
        for node in range(shards.n):
            listed = np.arange(len(shards.y))[shards.rows(node)]
            for begin in range(0, len(listed), step):
                yield node, np.asarray(shards.X[listed[begin : begin + step]], dtype=np.float64)

    def finish(self, noisy: Noisy) -> Expanded:
        """The map that follows from the noisy mean."""
        features, count = self.features, CELLS * self.features.d
        shares = noisy.mean[:count].reshape(features.d, CELLS) / self.distribution.factor
        shares = np.stack([believed(each, noisy.deviation / self.distribution.factor) for each in shares])
        below = np.cumsum(shares, axis=1) - shares / 2.0
        distributions = tuple(tuple(F.tolist()) for F in np.clip(below, 0.0, 1.0))
        if not self.centered or not self.intercept:
            same = PrivateScaling(np.ones(features.width), None, self.bound, self.intercept, self.outputs)
            return Expanded(features, self.unit, distributions, same, centered=False)
        center, variance = self._moments(shares, distributions)
        taken, others = self._mean(noisy), slice(features.d, features.columns)
        center[others] = taken
        variance[others] = self._spread(taken)
        variance /= features.norm**2
        scale = np.maximum(variance, LEAST / features.width) ** -POWER
        square = max(float(np.sum(np.square(scale) * variance)), SHORTEST * float(np.min(scale)) ** 2)
        shape = PrivateScaling(scale / math.sqrt(square), center / self.unit, self.bound, self.intercept, self.outputs)
        return Expanded(features, self.unit, distributions, shape)

    def _moments(self, shares: Array, distributions: tuple[tuple[float, ...], ...]) -> tuple[Array, Array]:
        """Means and variances of all features that are functions of t."""
        features = self.features
        center, variance = np.zeros(features.width), np.zeros(features.width)
        values = np.zeros((CELLS, features.width))
        features.fill(values, np.tile(2.0 * CENTERS[:, None] - 1.0, features.d), distributions)
        values[:, : features.d] = 2.0 * CENTERS[:, None] - 1.0
        for j in range(features.d):
            own = features.features_of(j)
            mean = shares[j] @ values[:, own]
            center[own] = mean
            variance[own] = shares[j] @ np.square(values[:, own]) - np.square(mean)
        orders = np.arange(1, PAIR_ORDER + 1)
        each = legendre(2.0 * CENTERS - 1.0, range(1, PAIR_ORDER + 1)) / orders
        for p, (i, j) in enumerate(features.pairs):  # as if columns were independent
            left, right = (shares[k] @ each for k in (i, j))
            own = features.features_of_pair(p)
            center[own] = mean = PAIR_WEIGHT * np.outer(left, right).ravel()
            squares = [shares[k] @ np.square(each) for k in (i, j)]
            variance[own] = PAIR_WEIGHT**2 * np.outer(*squares).ravel() - np.square(mean)
        return center, variance

    def _spread(self, mean: Array) -> Array:
        """Variances of the other columns, as far as their means show: as if each was 0 or 1, within their bound."""
        if not self.distribution.mean:
            return np.full(len(mean), self.features.rest**2 / max(1, len(mean)))
        found = np.clip(np.abs(mean), 0.0, 1.0)
        found = found * (1.0 - found)
        most = self.features.rest**2 - float(mean @ mean)
        return np.asarray(found * min(1.0, max(most, 0.0) / max(float(found.sum()), 1e-300)))

    def _mean(self, noisy: Noisy) -> Array:
        """The mean of the other columns, shrunk by what of it is noise on average."""
        features, factor = self.features, self.distribution.mean_factor
        if not self.distribution.mean:
            return np.zeros(len(features.others))
        mean = noisy.mean[CELLS * features.d :] / factor
        energy = float(mean @ mean)
        long = energy - len(mean) * (noisy.deviation / factor) ** 2
        return np.asarray(mean * (max(long, 0.0) / max(energy, 1e-300) * features.rest))


def believed(shares: Array, deviation: float) -> Array:
    """Shares of the records in the cells of one column, from noisy ones: at least 0, and 1 together.

    Examples
    --------
    >>> shares = np.zeros(CELLS)
    >>> shares[0] = 0.9
    >>> believed(shares, 0.01)[:2].round(3)
    array([0.9  , 0.001])
    >>> bool(np.allclose(believed(shares, 1.0), np.diff(EDGES)))
    True
    """
    sure = shares > SURE_DEVIATIONS * deviation
    known = float(shares[sure].sum())
    left, widths = max(0.0, 1.0 - known), np.where(sure, 0.0, np.diff(EDGES))
    found = np.where(sure, shares, 0.0)
    if widths.sum() > 0:
        found = found + left * widths / widths.sum()
    return np.asarray(found / found.sum())
