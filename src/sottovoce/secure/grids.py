"""Public grids, all powers of two, on which float64 arithmetic makes no error.

A float64 sum of whole numbers is exact in any order, on any processor, as long as all of its partial sums stay below
2⁵³. So records are brought to multiples of g_f once, models to multiples of g_x, slopes to multiples of g_s, with

    margins   Σ|c_j x_j| ≤ ‖c‖·‖x‖ ≤ 2⁵²·g_f·g_x
    sums      a block of 2⁵³/⌊L/(g_f g_s)⌋ records, 4096 or more, each of length at most L; blocks are added as int64

and then plain matrix products, dense or sparse, are exact. Every grid is chosen from public numbers alone: how many
records there are, the bound R of a row, the intercept's B, the clip L, and the model, which is public.

Everything is truncated toward zero, which lengthens nothing.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from sottovoce._types import Array, IntArray, Matrix
from sottovoce.errors import DataError, PrivacyError

FEATURE_BITS = 20
"""A row's length is at most this many octaves over the grid of features; float32 has room for 24."""
MODEL_BITS = 32
"""A model's length over its grid: with the features' they make the 52 bits of a margin."""
SUM_BITS = 41
"""The octave of the clip over the grid of sums; of very many records fewer, so that their sum has 62 bits."""
LEAST_BITS = 25
"""The octave of the clip over the grid of sums, at least: the grid is at most L·2⁻²⁴."""
WHOLE_BITS = 62
EXACT = 53
ROUND_DOWN = 1.0 - 2.0**-40
"""A largest slope is computed in double arithmetic, and made smaller by more than its error."""
BLOCK = 1 << 13
"""Numbers that are brought to the grid at a time."""
TINIEST = -500
"""The exponent of a model's grid, at least: a smaller model counts as zero."""

Over = Literal["refuse", "clip"]


MAX_MODEL_WEIGHT = 2.0**800
"""Weight of a model, at most: products and sums of margins stay far within the range of floats."""


@dataclass(frozen=True)
class Grids:
    """The grids of one node's records and sums.

    Attributes
    ----------
    feature : g_f
    slope : g_s
    clip : L
    bound : R, of a row without its intercept
    intercept : B on the grid, 0 for none
    """

    feature: float
    slope: float
    clip: float
    bound: float
    intercept: float = 0.0

    @property
    def sum(self) -> float:
        """g_f·g_s, the grid of sums."""
        return self.feature * self.slope

    @cached_property
    def length(self) -> int:
        """⌊L/(g_f g_s)⌋: no record's part of a sum is longer, in units of it."""
        return math.floor(Fraction(self.clip) / Fraction(self.sum))

    @cached_property
    def squares(self) -> int:
        """⌊(R/g_f)²⌋: no row has a larger sum of squares, in units of g_f²."""
        return math.floor((Fraction(self.bound) / Fraction(self.feature)) ** 2)

    @property
    def rows(self) -> int:
        """So many records can be summed in float64 without an error."""
        return 2**EXACT // self.length

    def model(self, x: Array) -> Array:
        """A model on its own grid, toward zero; of several outputs, (K, m), all on one.

        The grid follows from the largest weight and from m, which needs no sum: ‖x‖ ≤ √m·max|x|.

        Examples
        --------
        >>> choose_grids(1000, clip=1.0, bound=1.0).model(np.array([0.75, -1 / 3])) * 2.0**31
        array([ 1.61061274e+09, -7.15827882e+08])
        """
        if not np.all(np.isfinite(x)):
            raise PrivacyError("the model is not finite, and no gradient at it would be; take shorter steps")
        largest = float(np.max(np.abs(x), initial=0.0))
        if largest > MAX_MODEL_WEIGHT:  # margins would leave the range of floats, where sums depend on their order
            raise PrivacyError(f"the model has a weight of {largest:.2g}, with which nothing can be computed exactly")
        grid = model_grid(largest, x.shape[-1])
        return np.trunc(x / grid) * grid


def choose_grids(records: int, clip: float, bound: float, intercept: float = 0.0) -> Grids:
    """Grids from public numbers.

    Parameters
    ----------
    records : how many units may be in one sum, at most
    clip : L, the bound on one unit's part
    bound : R, the bound on a row
    intercept : B, the constant value of one more column

    Examples
    --------
    >>> grids = choose_grids(20_000, clip=1.0, bound=1.0)
    >>> grids.feature == 2.0**-20, grids.sum == 2.0**-41, grids.rows
    (True, True, 4096)
    """
    for name, value in (("clip", clip), ("bound of a row", bound), ("number of records", records)):
        if not 0 < value < math.inf:
            raise PrivacyError(f"the {name} must be finite and over 0, not {value}; give a public one")
    if not 0 <= intercept < math.inf:
        raise PrivacyError(f"the intercept's value must be finite and not negative, not {intercept}")
    bits = min(SUM_BITS, WHOLE_BITS - (int(records) - 1).bit_length())
    if bits < LEAST_BITS:
        raise PrivacyError(f"{records} records are too many for one sum; share them out among more nodes")
    feature = octave(bound, intercept) * 2.0**-FEATURE_BITS
    if 0 < intercept < feature:
        raise PrivacyError(f"an intercept of {intercept:g} is lost beside rows of length {bound:g}; take a larger one")
    total = octave(clip) * 2.0**-bits
    if not (2.0**-100 < feature < 2.0**100 and 2.0**-300 < total < 2.0**300):  # of float32, and of products
        raise PrivacyError("bound and clip must be numbers of an ordinary size; scale the features to unit length")
    return Grids(feature, total / feature, clip, bound, math.floor(intercept / feature) * feature)


def octave(*parts: float) -> float:
    """The least power of two that a vector of these parts is no longer than."""
    squares = sum(Fraction(part) ** 2 for part in parts)
    octave = 2.0 ** math.frexp(math.hypot(*parts))[1]
    while Fraction(octave) ** 2 < squares:
        octave *= 2.0
    while Fraction(octave / 2.0) ** 2 >= squares:
        octave /= 2.0
    return octave


def model_grid(largest: float, columns: int) -> float:
    """The grid of a model with m columns and a largest weight: its length is at most 2³² of it."""
    half = ((columns - 1).bit_length() + 1) // 2  # √m ≤ 2^half
    return 2.0 ** max(math.frexp(largest)[1] + half - MODEL_BITS, TINIEST)


@dataclass(frozen=True, eq=False)
class GridRows:
    """Records on their grid.

    Attributes
    ----------
    X : the features, multiples of g_f as float32: dense, or CSR with the index arrays that the data came with
    squares : Σ (c_j/g_f)² of every row, intercept and all: whole numbers
    grids : whose
    """

    X: Matrix
    squares: Array
    grids: Grids

    @cached_property
    def caps(self) -> Array:
        """The largest slope of every row, in units of g_s: times the row it is no longer than L."""
        whole = np.floor(self.grids.length * ROUND_DOWN / np.sqrt(np.maximum(self.squares, 1.0)))
        return np.where(self.squares > 0, whole, 0.0)

    @cached_property
    def reach(self) -> Array:
        """The length of every row, in units of g_f."""
        return np.sqrt(self.squares)

    @property
    def m(self) -> int:
        """Features, and one for the intercept."""
        return int(self.X.shape[1]) + (self.grids.intercept != 0.0)

    def cut(self, first: int, last: int) -> tuple[Matrix, Matrix]:
        """Rows first … last − 1 of sparse records, and the same turned: the same memory, cut out once.

        SciPy's own constructors would check and copy the index arrays every time. Its products with a model in float64
        widen the entries themselves.
        """
        if (first, last) not in self._cuts:
            X = self.X
            at = slice(int(X.indptr[first]), int(X.indptr[last]))
            starts = X.indptr[first : last + 1] - X.indptr[first]
            rows = type(X)((last - first, X.shape[1]), dtype=X.dtype)
            columns = rows.T
            for cut in (rows, columns):
                cut.data, cut.indices, cut.indptr = X.data[at], X.indices[at], starts
            self._cuts[first, last] = rows, columns
        return self._cuts[first, last]

    @cached_property
    def _cuts(self) -> dict[tuple[int, int], tuple[Matrix, Matrix]]:
        return {}


def on_grid(X: Matrix, grids: Grids, over: Over = "refuse") -> GridRows:
    """Bring records to their grid, toward zero, and check the bound of every row in whole numbers.

    Parameters
    ----------
    X : dense 2-d array or CSR matrix, float32 or float64; it is left alone
    grids : from `choose_grids`
    over : a row over the bound, or with a number that is none, is refused, or brought to the bound (what is no number
        counts as 0): one by one, whatever the others are

    Examples
    --------
    >>> rows = on_grid(np.array([[0.6, 0.8]]), choose_grids(10, clip=1.0, bound=1.0))
    >>> rows.X * 2**20, rows.squares <= 2**40
    (array([[629145., 838860.]], dtype=float32), array([ True]))
    """
    rows, m = X.shape
    squares = np.empty(rows)
    gridded: Matrix
    if isinstance(X, np.ndarray):
        gridded = np.empty(X.shape, dtype=np.float32)
        step = max(1, BLOCK // max(1, m))
        for first in range(0, rows, step):
            block = X[first : first + step]
            whole, found = _whole(block.astype(np.float64).reshape(-1), m * np.arange(len(block) + 1), grids, over)
            gridded[first : first + step], squares[first : first + step] = whole.reshape(block.shape), found
    else:
        within = np.diff(X.indices) > 0
        within[X.indptr[1:-1][(X.indptr[1:-1] > 0) & (X.indptr[1:-1] < len(X.indices))] - 1] = True  # from row to row
        if not np.all(within):  # twice the same column would be one entry that is longer than either
            raise DataError("sparse records must name a column once a row, in order; call sum_duplicates() first")
        values = np.empty(X.data.shape, dtype=np.float32)
        for first, last in _stretches(X.indptr):
            at = slice(int(X.indptr[first]), int(X.indptr[last]))
            starts = X.indptr[first : last + 1] - X.indptr[first]
            values[at], squares[first:last] = _whole(X.data[at].astype(np.float64), starts, grids, over)
        gridded = type(X)((values, X.indices, X.indptr), shape=X.shape)
    own = grids.intercept / grids.feature
    return GridRows(gridded, squares + own * own, grids)


def _whole(entries: Array, starts: IntArray, grids: Grids, over: Over) -> tuple[Array, Array]:
    """Entries of some rows on the grid, and the sum of squares of each row; row r is starts[r] … starts[r+1] − 1."""
    squares = np.zeros(len(starts) - 1)
    filled = np.flatnonzero(np.diff(starts))  # reduceat has no sum for an empty row
    with np.errstate(over="ignore", invalid="ignore"):
        whole = np.trunc(entries / grids.feature)
        if filled.size:
            squares[filled] = np.add.reduceat(whole * whole, starts[filled])
    # a sum over the limit may be rounded, but not to within the limit, which is far below 2⁵³
    for row in np.flatnonzero(~(squares <= grids.squares)).tolist():
        if over == "refuse":
            raise DataError(
                f"a row is longer than the public bound {grids.bound:g}, or has a value that is no number; scale the "
                "rows, give a larger bound, or have long rows brought to it"
            )
        mine = slice(int(starts[row]), int(starts[row + 1]))
        whole[mine], squares[row] = _shortened(whole[mine], grids.squares)
    return whole * grids.feature, squares


def _shortened(entries: Array, limit: int) -> tuple[Array, int]:
    """A row's whole numbers brought to a sum of squares within the limit, by whole numbers, and that sum."""
    whole = [int(entry) if math.isfinite(entry) else 0 for entry in entries.tolist()]
    squares = sum(entry * entry for entry in whole)
    if squares > limit:
        whole = [math.isqrt(entry * entry * limit // squares) * (1 if entry > 0 else -1) for entry in whole]
    return np.array(whole, dtype=np.float64), sum(entry * entry for entry in whole)


def _stretches(starts: IntArray) -> Iterator[tuple[int, int]]:
    """Rows first … last − 1 of sparse data that hold about BLOCK entries, one stretch after the other."""
    first, rows = 0, len(starts) - 1
    while first < rows:
        end = int(np.searchsorted(starts, starts[first] + starts.dtype.type(BLOCK), side="right")) - 1
        last = min(rows, max(first + 1, end))
        yield first, last
        first = last
