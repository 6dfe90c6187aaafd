"""Sums of clipped subgradients that are exact: no bit depends on order, blocks or places.

Each record's part of a sum is a function of that record and of public numbers alone: its margin is exact, its slope is
an elementwise function of margin and target (`functions`), truncated toward zero to a multiple of g_s and to at most
the largest that keeps slope ⊗ row within L. Parts are summed without an error. So replacing a record moves the sum by
at most 2L, and adding one by at most L: statements about whole numbers.

A person's rows are clipped as one: their mean is formed exactly, brought to length L, and only then truncated.
Truncating first and clipping never would not do: what cancels in real numbers does not cancel after truncation.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from sottovoce._types import Array, IntArray, Matrix
from sottovoce.casts import whole_units
from sottovoce.errors import PrivacyError
from sottovoce.secure.functions import lengths
from sottovoce.secure.grids import EXACT, GridRows, Grids

Slope = Callable[[Array, Array], Array]
"""(margins, targets) -> slopes, each from its own margin(s) and target, by IEEE operations on single elements."""
Rows = IntArray | slice | None

BLOCK = 1 << 17
"""Numbers of a dense block that is widened to float64 at a time: 1 MB, which a core's cache holds."""
SHORTER = 1.0 - 2.0**-30
"""A length that is measured in double arithmetic is brought to L by this factor: far more than its error."""
LESS = 1.0 - 2.0**-28
"""A person's slopes are made smaller by this factor, so that rows of full length pass the test in whole numbers."""
HUGE = 2.0**1000
"""Slopes count as no larger, in units of their grid: their lengths stay finite."""
_PERSON_BITS = 50


def clipped_sum(
    data: GridRows,
    x: Array,
    y: Array,
    slope: Slope,
    rows: Rows = None,
    counts: IntArray | None = None,
    weights: Array | None = None,
) -> IntArray:
    """Σ clip_L(∂l) over units, in whole units of the sums' grid; of the shape of x.

    Parameters
    ----------
    data : the node's records on their grid
    x : the model, (m,) or (K, m) for K outputs; the intercept's weight is the last
    y : targets of all rows
    slope : of the loss
    rows : the rows that are summed; all by default
    counts : rows of each unit, in the order of `rows`, where units are people: the mean over each is clipped
    weights : of all rows, what their slopes are multiplied by before they are clipped

    Examples
    --------
    >>> from sottovoce.secure.grids import choose_grids, on_grid
    >>> data = on_grid(np.eye(2), choose_grids(2, clip=1.0, bound=1.0))
    >>> clipped_sum(data, np.zeros(2), np.array([1.0, -1.0]), lambda u, y: -0.5 * y) * data.grids.sum
    array([-0.5,  0.5])
    """
    x = data.grids.model(np.asarray(x, dtype=np.float64))
    if counts is not None:
        return _sum_of_people(data, x, y, slope, rows, np.asarray(counts, dtype=np.int64), weights)
    total = np.zeros(x.shape, dtype=np.int64)
    for _, some, block in _blocks(data, rows):
        slopes = _weighted(slope(_margins(block, x, data.grids), y[some]), weights, some)
        total += _pulled(block, truncated(slopes, data.caps[some], data.grids), data.grids)
    return total


def _weighted(slopes: Array, weights: Array | None, rows: IntArray | slice) -> Array:
    """One product a slope, which IEEE 754 rounds in one way only."""
    if weights is None:
        return slopes
    return slopes * (weights[rows] if slopes.ndim == 1 else weights[rows][:, None])


def truncated(slopes: Array, caps: Array, grids: Grids) -> Array:
    """Slopes in whole units of g_s, toward zero, each (of K outputs, the vector of each) at most its row's cap.

    What is not a number counts as nothing.
    """
    if slopes.ndim == 1:
        with np.errstate(over="ignore"):
            whole = np.copysign(np.floor(np.minimum(np.abs(slopes) / grids.slope, caps)), slopes)
        return whole if np.isfinite(slopes).all() else np.where(np.isfinite(slopes), whole, 0.0)
    with np.errstate(over="ignore"):
        size = np.minimum(np.where(np.isfinite(slopes), np.abs(slopes), 0.0) / grids.slope, HUGE)
    length = lengths(size)
    factor = np.where(length > caps, caps / np.maximum(length, 1.0) * SHORTER, 1.0)
    return np.copysign(np.floor(size * factor[:, None]), slopes)


def _sum_of_people(
    data: GridRows, x: Array, y: Array, slope: Slope, rows: Rows, counts: IntArray, weights: Array | None
) -> IntArray:
    """Of the people whose rows cannot exceed L together, by matrix products; of the others, one by one."""
    grids, listed = data.grids, np.arange(data.X.shape[0])[slice(None) if rows is None else rows]
    if int(counts.sum()) != len(listed) or np.any(counts < 1):
        raise PrivacyError("the rows of the people do not add up to the rows of the sum; count each one's rows")
    total = np.zeros(x.shape, dtype=np.int64)
    if not counts.size:
        return total
    slopes = np.concatenate([slope(_margins(block, x, grids), y[some]) for _, some, block in _blocks(data, listed)])
    slopes = _weighted(slopes, weights, listed)
    slopes = np.where(np.isfinite(slopes), slopes, 0.0)
    reach = data.reach[listed]
    column = (-1,) + (1,) * (slopes.ndim - 1)
    each = np.repeat(counts, counts).reshape(column)
    with np.errstate(over="ignore"):
        whole = np.copysign(np.floor(np.minimum(np.abs(slopes) * LESS / each / grids.slope, 2.0**EXACT)), slopes)
    # a mean is no longer than the mean length of its terms; in whole numbers, from above, so that their sum is exact
    size = np.minimum(np.ceil(_sizes(whole) * reach * (1.0 + 2.0**-40)), 2.0**EXACT)
    starts = np.cumsum(counts) - counts
    plain = np.add.reduceat(size, starts) <= grids.length
    kept = np.where(np.repeat(plain, counts).reshape(column), whole, 0.0)
    for at, _, block in _blocks(data, listed):
        total += _pulled(block, kept[at], grids)
    for person in np.flatnonzero(~plain).tolist():
        mine = slice(int(starts[person]), int(starts[person] + counts[person]))
        total += _clipped_mean(data, slopes[mine], reach[mine], listed[mine])
    return total


def _clipped_mean(data: GridRows, slopes: Array, reach: Array, rows: IntArray) -> IntArray:
    """One person's mean, in units of the sums' grid: exactly summed at a scale of its own, brought to L, truncated."""
    grids, count = data.grids, len(rows)
    octaves = math.frexp(float(np.max(np.abs(slopes))))[1]
    near_one = np.ldexp(slopes, -octaves)
    longest = math.frexp(float(np.max(_sizes(near_one) * reach)))[1]
    scale = 2.0 ** (_PERSON_BITS - 1 - (count - 1).bit_length() - longest)
    whole = np.trunc(near_one * scale)  # so that the vector's entries stay below 2⁵⁰
    vector = np.zeros((*slopes.shape[1:], data.m))
    for at, _, block in _blocks(data, rows):
        vector += _pulled(block, whole[at], grids)
    length = float(lengths(vector.ravel()))
    if length == 0.0:
        return np.zeros(vector.shape, dtype=np.int64)
    with np.errstate(over="ignore"):
        mean = float(np.ldexp(1.0 / (count * scale * grids.slope), octaves))
    factor = min(mean, grids.length * SHORTER / length)
    return whole_units(vector * factor)


def _sizes(slopes: Array) -> Array:
    return np.abs(slopes) if slopes.ndim == 1 else lengths(slopes)


class Block(NamedTuple):
    """Some rows as one matrix, and the same turned: all products with them are exact in float64."""

    rows: Matrix
    columns: Matrix


def _blocks(data: GridRows, rows: Rows) -> Iterator[tuple[slice, IntArray | slice, Block]]:
    """(places, rows, those rows), no more at a time than can be summed without an error."""
    X = data.X
    dense = isinstance(X, np.ndarray)
    if rows is None or isinstance(rows, slice):
        start, stop, _ = (rows or slice(None)).indices(X.shape[0])
        index = None
    else:
        start, stop, index = 0, len(rows), rows
    numbers = X.shape[1] if dense else X.nnz // max(1, X.shape[0])
    step = min(data.grids.rows, max(1, BLOCK // max(1, numbers)))
    for first in range(start, stop, step):
        last = min(first + step, stop)
        some = slice(first, last) if index is None else index[first:last]
        if isinstance(some, slice) and not dense:
            block = Block(*data.cut(first, last))
        else:
            wide = np.asarray(X[some], dtype=np.float64) if dense else X[some].astype(np.float64)
            block = Block(wide, wide.T)
        yield slice(first - start, last - start), some, block


def _margins(block: Block, x: Array, grids: Grids) -> Array:
    """⟨c, x⟩ of every row, without an error."""
    if not grids.intercept:
        return block.rows @ x.T
    return block.rows @ x[..., :-1].T + grids.intercept * x[..., -1]


def _pulled(block: Block, slopes: Array, grids: Grids) -> IntArray:
    """Σ slope ⊗ c over the rows, in units of the sums' grid, without an error; slopes are whole."""
    pulled: Any = (block.columns @ slopes).T
    if grids.intercept:
        pulled = np.concatenate([pulled, grids.intercept * np.sum(slopes, axis=0)[..., None]], axis=-1)
    return whole_units(pulled, grids.feature)
