"""Private scaling: rows are centered, scaled and brought to a common length before the first round.

`RowMoments` is the one-shot release (`privacy.moments`): noisy means of ‖x‖², of x and of x², each node's own, averaged
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

Conditions on noisy numbers: the center is used only where it is long (a quarter of the rows' mean square), else it
would be noise; columns with less than two deviations of their noise count as having so much; rows are made longer only
where they are surely shorter than the bound.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from weakref import ref

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array, IntArray
from sottovoce.engine.job import Mapped
from sottovoce.errors import SpecError
from sottovoce.matrices import csr_stretches, is_sparse, row_norms
from sottovoce.privacy.one_shot import Moments
from sottovoce.problem.shards import Reading, Shards
from sottovoce.run.one_shot import Noisy, Query
from sottovoce.run.plan import Public
from sottovoce.secure.functions import halved_sum, lengths

LONG = 0.25
"""The center is used where its square is this share of the rows' mean square, or more."""
SHORT = 0.7
"""Rows whose mean square is surely below this share of the bound's are made longer."""
LEAST = 0.1
"""A column's mean square counts as this share of an even one's (1/m), at the least."""
LONGEST = 2.0
"""Mapped rows over this multiple of the bound are brought to it: their subgradients are clipped at the bound's."""
SHORTEST = 1e-4
"""Of mapped rows, the mean square counts as this much at the least, so that nothing is blown up."""
FAR = 1e150
"""Numbers of a row count as no larger, in units of the bound: all lengths are finite."""
MANY_ROWS = 1 << 12
"""Rows of one person that are added up in any order: 2¹² · 2⁻⁵³ is below 2⁻⁴⁰."""
ROWS = 1 << 20
"""Numbers that are worked on at a time: sparse rows are spread out so few at a time, and never all."""


@dataclass(frozen=True, eq=False)
class PrivateScaling:
    """A public map of rows, x ↦ s ∘ (x − c), and of models back.

    Attributes
    ----------
    scale : s, one number a column
    center : c, in the units of the records; None if nothing is subtracted, so that sparse rows stay sparse
    bound, intercept, outputs : R, B and K of the problem
    """

    scale: Array
    center: Array | None
    bound: float
    intercept: float
    outputs: int = 1
    of_rows: ClassVar[bool] = True

    @property
    def reach(self) -> float:
        """Within which all mapped rows are."""
        return LONGEST * self.bound

    @property
    def for_engine(self) -> Mapped:
        """The same for an engine that maps rows as it reads them."""
        return Mapped(self.scale, self.center, self.reach)

    def longest(self, bound: float) -> float:
        """The triangle inequality over ⟨s ∘ w, x⟩ and ⟨s ∘ w, c⟩/B."""
        largest = max(1.0 if self.intercept else 0.0, float(np.max(self.scale)))
        taken = 0.0 if self.center is None else float(np.linalg.norm(self.scale * self.center)) / self.intercept
        return bound * (largest + taken)

    def public(self) -> Public:
        """Nothing: models are taken back to the records."""
        return Public()

    def shards(self, shards: Shards) -> Shards:
        """The same records, mapped; each by itself."""
        with np.errstate(over="ignore", invalid="ignore"):  # for rows far over the bound; a warning would reveal them
            return self._mapped(shards)

    def _mapped(self, shards: Shards) -> Shards:
        X = shards.X
        if is_sparse(X) and (self.center is None or not X.nnz):  # empty records stand for public numbers
            data = X.data * self.scale.astype(X.dtype)[X.indices]
            entries = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
            squares = np.bincount(entries, np.square(data, dtype=np.float64), minlength=X.shape[0])
            data *= shorter(np.sqrt(squares), self.reach, X.dtype)[entries]
            mapped: Any = scipy.sparse.csr_array((data, X.indices, X.indptr), X.shape)
        else:
            if is_sparse(X):
                raise SpecError(
                    "sparse records do not stay sparse when their mean is subtracted; use moments without a center, "
                    "or dense records"
                )
            mapped = np.array(X)
            step = max(1, ROWS // mapped.shape[1])
            for first in range(0, len(mapped), step):
                some = mapped[first : first + step]
                some -= 0.0 if self.center is None else self.center.astype(mapped.dtype)
                some *= self.scale.astype(mapped.dtype)
                some *= shorter(lengths(some.astype(np.float64)), self.reach, mapped.dtype)[:, None]
        return replace(shards, X=mapped)

    def inverse_transform(self, models: Array) -> Array:
        """Models of mapped rows (…, K·m') as models of the records."""
        w, b = self._split(models)
        w = w * self.scale
        return self._joined(models, w, b if self.center is None else b - w @ self.center / self.intercept)

    def transform(self, models: Array) -> Array:
        """The other way round."""
        w, b = self._split(models)
        if self.center is not None:
            b = b + w @ self.center / self.intercept
        return self._joined(models, w / self.scale, b)

    def _split(self, models: Array) -> tuple[Array, Any]:
        by_output = models.reshape(*models.shape[:-1], self.outputs, -1)
        return (by_output[..., :-1], by_output[..., -1]) if self.intercept else (by_output, 0.0)

    def _joined(self, models: Array, w: Array, b: Any) -> Array:
        whole = np.concatenate([w, b[..., None]], axis=-1) if self.intercept else w
        return np.asarray(whole.reshape(models.shape))


def shorter(norms: Array, bound: float, kind: Any) -> Array:
    """What rows of these lengths are multiplied by, so that none is over the bound, in their own precision."""
    near = bound * (1.0 - 4.0 * float(np.finfo(kind).eps))
    return np.asarray(np.where(norms > near, near / np.maximum(norms, near), 1.0).astype(kind))


def person_means(rows: Array, counts: IntArray) -> Array:
    """The mean of each person's rows, a function of these alone, with an error far below that of `SHRINK`.

    In any order the sum of k numbers has an error of at most k·2⁻⁵³ of the sum of their sizes. Where that could be
    much, they are added up as a tree.
    """
    starts = np.cumsum(counts) - counts
    found = np.add.reduceat(rows, starts, axis=0)
    for person in np.flatnonzero(counts > MANY_ROWS).tolist():
        mine = rows[starts[person] : starts[person] + counts[person]]
        found[person] = [halved_sum(column) for column in mine.T]
    return np.asarray(found / counts[:, None])


_means: dict["RowMoments", tuple["ref[Reading]", Array]] = {}


@dataclass(frozen=True)
class RowMoments(Query[PrivateScaling]):
    """The moments of rows: what a unit contributes, and the map that follows.

    Attributes
    ----------
    moments : which moments
    features : columns of a row
    bound, intercept, outputs : R, B and K of the problem
    """

    moments: Moments
    features: int
    bound: float
    intercept: float = 0.0
    outputs: int = 1

    @property
    def width(self) -> int:
        """Numbers that a node releases."""
        return self.moments.width(self.features)

    @property
    def diameter(self) -> float:
        """√s."""
        return 2.0 * self.moments.clip

    def phi(self, X: Any) -> Array:
        """φ of some rows, each brought to the bound where it is longer; dense."""
        if is_sparse(X) and self._lengths_alone:
            entries = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
            with np.errstate(over="ignore"):  # what overflows is longer than the bound
                squares = np.square(X.data, dtype=np.float64) / self.bound**2
                squares = np.bincount(entries, squares, minlength=X.shape[0])
            return np.minimum(squares, 1.0)[:, None] * self.moments.factors[0]
        x = np.array(X.toarray() if is_sparse(X) else X, dtype=np.float64, order="C")  # sums go along rows
        with np.errstate(over="ignore"):  # what overflows here is clipped next
            x = np.clip(x / self.bound, -FAR, FAR)
        x[np.isnan(x)] = 0.0
        x /= np.maximum(lengths(x), 1.0)[:, None]
        squares, (length, center, scale) = np.square(x), self.moments.factors
        parts = [squares.sum(axis=1, keepdims=True) * length] if length else []
        parts += [x * center] if center else []
        parts += [squares * scale] if scale else []
        return np.concatenate(parts, axis=1)

    @property
    def _lengths_alone(self) -> bool:
        """Then sparse rows need not be spread out."""
        return bool(self.moments.length) and not self.moments.center and not self.moments.scale

    def units(self, shards: Shards, node: int) -> Iterator[Array]:
        """φ of a node's units, some at a time: of a person, the mean over their rows."""
        rows, counts = shards.rows(node), shards.counts(node)
        listed = np.arange(len(shards.y))[rows]
        ends = np.arange(1, len(listed) + 1) if counts is None else np.cumsum(counts)
        spread = 1 if is_sparse(shards.X) and self._lengths_alone else max(self.features, self.width)
        step = max(1, ROWS // spread)
        for first in range(0, len(ends), step):
            some = ends[first : first + step]
            begin = int(ends[first - 1]) if first else 0
            found = self.phi(shards.X[listed[begin : int(some[-1])]])
            if counts is not None:
                found = person_means(found, counts[first : first + step])
            yield found

    def means(self, shards: Shards) -> Array:
        """(n, width) every node's mean of φ; sparse rows are not spread out for it."""
        if not is_sparse(shards.X):
            return super().means(shards)
        return np.stack([self._sparse_total(shards, i) for i in range(shards.n)]) / shards.sizes[:, None]

    def _sparse_total(self, shards: Shards, node: int) -> Array:
        """The sum of φ over a node's units, from the entries of its rows alone; to rounding, so not for exact sums."""
        X, counts = shards.X[shards.rows(node)], shards.counts(node)
        whole, features = X.shape
        shares = np.ones(whole) if counts is None else np.repeat(1.0 / counts, counts)
        shorter = 1.0 / np.maximum(row_norms(X), self.bound)
        sums = np.zeros((2, features))
        for first, last in csr_stretches(X, ROWS):
            some = slice(int(X.indptr[first]), int(X.indptr[last]))
            entries = np.repeat(np.arange(first, last), np.diff(X.indptr[first : last + 1]))
            x = X.data[some] * shorter[entries]
            for total in sums:  # of x, of x²
                total += np.bincount(X.indices[some], shares[entries] * x, minlength=features)
                x *= x
        length, center, scale = self.moments.factors
        parts = [[sums[1].sum() * length]] if length else []
        parts += [sums[0] * center] if center else []
        parts += [sums[1] * scale] if scale else []
        return np.concatenate(parts)

    def mean_of_all(self, shards: Shards) -> Array:
        """The mean of φ over all rows, whosever they are; that of the same rows is kept, for many runs on them."""
        kept = _means.get(self)
        if kept is None or kept[0]() is not shards.reading:
            whole = replace(shards, offsets=np.array([0, len(shards.y)]), order=None)
            kept = ref(shards.reading, lambda _: _means.pop(self, None)), self.means(whole)[0]
            _means[self] = kept
        return kept[1]

    def finish(self, noisy: Noisy) -> PrivateScaling:
        """The map that follows from the noisy mean."""
        length, center, squares = self._parts(noisy.mean)
        deviations = [noisy.deviation / factor if factor else 0.0 for factor in self.moments.factors]
        square = 1.0
        if length is not None:
            square = min(1.0, max(float(length[0]), deviations[0]))
        elif squares is not None:
            square = min(1.0, max(float(squares.sum()), 2.0 * deviations[2]))
        center = self._center(center, deviations[1], square)
        taken = 0.0 if center is None else float(center @ center)
        if squares is not None:
            spread = squares - (0.0 if center is None else np.square(center))
            scale = np.maximum(spread, max(2.0 * deviations[2], LEAST / self.features)) ** -self.moments.power
            left = float(np.sum(np.square(scale) * np.maximum(spread, 0.0)))
        else:
            scale, left = np.ones(self.features), square - taken
            if center is None and square + 2.0 * deviations[0] >= SHORT:
                left = 1.0  # rows are about as long as their bound
        left = max(left, float(np.min(scale)) ** 2 * SHORTEST)
        offset = None if center is None else self.bound * center
        return PrivateScaling(scale / math.sqrt(left), offset, self.bound, self.intercept, self.outputs)

    def _parts(self, mean: Array) -> list[Array | None]:
        """Means of ‖x‖², x and x²; None for what was not released."""
        found, place = [], 0
        for factor, width in zip(self.moments.factors, (1, self.features, self.features), strict=True):
            found.append(mean[place : place + width] / factor if factor else None)
            place += width if factor else 0
        return found

    def _center(self, center: Array | None, deviation: float, square: float) -> Array | None:
        """The mean, shrunk by what of it is noise on average, where it is long."""
        if center is None or not self.intercept:
            return None
        energy = float(center @ center)
        long = energy - len(center) * deviation**2
        return center * (long / energy) if long >= LONG * square else None
