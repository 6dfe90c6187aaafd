"""Sums of the products of records' numbers: XᵀX, Xᵀy and yᵀy as one symmetric matrix, packed into a vector.

A record is c = (x, B, κy), see `privacy.statistics`; a node's statistics are Σ c cᵀ over its records, over people the
sum of their means. Packed, a matrix is its upper triangle, row by row, entries off the diagonal times `OFF`: close to
√2, so that the vector is as long as the matrix, and a hair below it, so that it is never longer.
"""

import numpy as np

from sottovoce._types import Array, IntArray, Matrix
from sottovoce.problem.shards import Shards

OFF = 181.0 / 128.0
"""What entries off the diagonal are multiplied by: less than √2 by 4 in 100,000, and a whole number of 128ths."""
BLOCK = 1 << 20
"""Numbers of a dense block of rows."""


def packed_size(m: int) -> int:
    """Numbers in the packed statistics of a model of m coordinates: those of a symmetric matrix of m + 1 rows.

    Examples
    --------
    >>> packed_size(2)
    6
    """
    return (m + 1) * (m + 2) // 2


def pack(matrix: Array) -> Array:
    """The upper triangle of a symmetric matrix as a vector.

    Examples
    --------
    >>> pack(np.array([[1.0, 2.0], [2.0, 3.0]])) * 64
    array([ 64., 181., 192.])
    """
    rows, columns = np.triu_indices(len(matrix))
    return np.asarray(matrix[rows, columns] * np.where(rows == columns, 1.0, OFF))


def unpack(vector: Array, m: int) -> Array:
    """The symmetric matrix of m + 1 rows that a vector is packed from.

    Examples
    --------
    >>> unpack(pack(np.array([[1.0, 2.0], [2.0, 3.0]])), 1)
    array([[1., 2.],
           [2., 3.]])
    """
    rows, columns = np.triu_indices(m + 1)
    matrix = np.zeros((m + 1, m + 1))
    matrix[rows, columns] = vector / np.where(rows == columns, 1.0, OFF)
    return matrix + np.triu(matrix, 1).T


def packed_moments(shards: Shards, node: int, weight: float, row_norm: float, columns: bool = True) -> Array:
    """Σ c cᵀ over a node's records, or the sum over its people of the mean over each one's rows; packed.

    Rows over the bound are scaled down to it and targets brought into [−1, 1], each by itself: what a record can be is
    a fact of these lines, and no hope about the data. Without `columns` a record is (B, κy).
    """
    rows, counts = shards.rows(node), shards.counts(node)
    listed = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
    share = np.ones(len(listed)) if counts is None else 1.0 / np.repeat(counts, counts)
    width = shards.m + 1 if columns else 1 + (shards.intercept != 0.0)
    total = np.zeros((width, width))
    step = max(1, BLOCK // width)
    for first in range(0, len(listed), step):
        some = slice(first, first + step)
        c = _records(shards, listed[some], weight, row_norm, columns)
        total += c.T @ (c * share[some, None])
    return pack(total)


def _records(shards: Shards, rows: IntArray, weight: float, row_norm: float, columns: bool) -> Array:
    """(x, B, κy) of some records, within their bounds."""
    x = dense(shards.X, rows) if columns else np.zeros((len(rows), 0))
    lengths = np.linalg.norm(x, axis=1)
    over = lengths > row_norm
    x[over] *= (row_norm / lengths[over])[:, None]
    constant = np.full((len(x), int(shards.intercept != 0.0)), shards.intercept)
    return np.concatenate([x, constant, weight * np.clip(shards.y[rows], -1.0, 1.0)[:, None]], axis=1)


def dense(X: Matrix, rows: IntArray) -> Array:
    """Some rows as a dense array of their own."""
    some = X[rows]
    return np.array(some, dtype=np.float64) if isinstance(some, np.ndarray) else some.toarray().astype(np.float64)
