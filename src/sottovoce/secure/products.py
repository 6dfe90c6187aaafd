"""Sums of the products of records' numbers that are exact: the statistics of a least-squares problem in whole numbers.

Records are brought to a public grid, rows to their bound, targets to [−1, 1], all toward zero; then c is whole in units
of the grid, c cᵀ whole in units of its square, and a block of rows that is small enough is summed without an error by
one matrix product. So a record's part of the sum is a function of that record and of public numbers alone, and as long
as `privacy.statistics` says.

A person's rows count 1/k each: they are divided by √k, again toward zero, so that the trace of their sum is no larger
than one record's, in whole numbers.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sottovoce._types import Array, IntArray, Matrix
from sottovoce.casts import whole_units
from sottovoce.errors import PrivacyError
from sottovoce.secure.grids import EXACT, FEATURE_BITS, WHOLE_BITS, GridRows, Grids, octave, on_grid
from sottovoce.secure.sums import SHORTER

OFF, DIAGONAL = 181, 128
"""Entries off the diagonal and on it, in units of the sums' grid over the square of the records' one: 181/128 < √2."""
LEAST_BITS = 12
"""A record's length over its grid, at least."""


def product_grids(records: int, row_norm: float, intercept: float, weight: float) -> Grids:
    """The grid of records whose products are summed, from public numbers; that of the sums is its square over 128.

    Examples
    --------
    >>> grids = product_grids(10_000, 1.0, 0.5, 0.5)
    >>> grids.feature == 2.0**-19, grids.sum == 2.0**-45
    (True, True)
    """
    largest = octave(row_norm, intercept, weight)
    bits = min(FEATURE_BITS, (WHOLE_BITS - 8 - (int(records) - 1).bit_length()) // 2)
    if bits < LEAST_BITS:
        raise PrivacyError(f"{records} records are too many for one sum; share them out among more nodes")
    feature = largest * 2.0**-bits
    constant = np.floor(intercept / feature) * feature
    return Grids(feature, feature / DIAGONAL, row_norm**2 + intercept**2 + weight**2, row_norm, float(constant))


@dataclass(frozen=True, eq=False)
class ProductSums:
    """Σ c cᵀ over the records of one table.

    Attributes
    ----------
    X, y : records and targets
    grids : from `product_grids`
    weight : κ
    """

    X: Matrix
    y: Array
    grids: Grids
    weight: float

    @cached_property
    def rows(self) -> GridRows:
        """The records on their grid, within the bound."""
        return on_grid(self.X, self.grids, over="clip")

    def total(self, rows: IntArray, counts: IntArray | None = None) -> IntArray:
        """The packed sum over these rows, in whole units of the sums' grid; `counts` are those of each person.

        Examples
        --------
        >>> sums = ProductSums(np.array([[0.5]]), np.array([1.0]), product_grids(1, 1.0, 0.0, 1.0), 1.0)
        >>> sums.total(np.array([0])) * sums.grids.sum * 128
        array([ 32. ,  90.5, 128. ])
        """
        each = np.ones(len(rows)) if counts is None else np.repeat(counts, counts).astype(np.float64)
        step = 2 ** (EXACT - 2 * self._bits)
        width = int(self.X.shape[1]) + (self.grids.intercept != 0.0) + 1
        total = np.zeros((width, width), dtype=np.int64)
        for first in range(0, len(rows), step):
            c = self._whole(rows[first : first + step], each[first : first + step])
            total += whole_units(c.T @ c)
        above, across = np.triu_indices(width)
        return np.asarray(total[above, across] * np.where(above == across, DIAGONAL, OFF))

    @property
    def _bits(self) -> int:
        """A record's numbers are at most this many octaves over their grid."""
        return math.frexp(octave(self.grids.bound, self.grids.intercept, self.weight) / self.grids.feature)[1]

    def _whole(self, rows: IntArray, each: Array) -> Array:
        """c of some rows in whole units of the grid."""
        feature = self.grids.feature
        some = self.rows.X[rows]
        x = np.array(some, dtype=np.float64) if isinstance(some, np.ndarray) else some.toarray().astype(np.float64)
        y = np.trunc(self.weight * np.clip(self.y[rows], -1.0, 1.0) / feature)
        parts = [x / feature, y[:, None]]
        if self.grids.intercept:
            parts.insert(1, np.full((len(x), 1), self.grids.intercept / feature))
        c = np.concatenate(parts, axis=1)
        several = each > 1
        c[several] = np.trunc(c[several] * (SHORTER / np.sqrt(each[several]))[:, None])
        return c
