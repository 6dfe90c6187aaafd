"""Scores of a linear model, each a function of its own row, the model and public numbers: the same bits in every table.

A matrix product adds up in an order that depends on how many rows there are, where a row stands and how many threads
there are. What is counted for a release may not: one more row of one person would move others' scores across a
threshold. Here a row's sums go over its columns in their order, one product and one addition at a time, each rounded
once as IEEE 754 says. Columns that hold 0 change nothing, so that dense and sparse rows give the same bits.
"""

import math
from collections.abc import Iterator

import numpy as np

from sottovoce._types import Array, IntArray, Matrix
from sottovoce.errors import DataError
from sottovoce.matrices import BLOCK, csr_stretches, is_sparse


def row_scores(X: Matrix, weights: Array, constant: Array | float = 0.0, bound: float = math.inf) -> Array:
    """⟨w, x⟩ + constant of every row, brought to the bound first where it is longer: (rows,), or (rows, K).

    Parameters
    ----------
    X : dense 2-d array or CSR matrix; a number that is not finite counts as 0
    weights, constant : of the model, (m,) and a number, or (K, m) and (K,)
    bound : the public bound on a row's length

    Examples
    --------
    >>> row_scores(np.array([[3.0, 4.0], [np.nan, 0.5]]), np.array([1.0, 0.0]), 1.0, bound=1.0)
    array([1.6, 1. ])
    """
    w = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    if X.shape[1] != w.shape[1]:
        raise DataError(f"the model has {w.shape[1]} features, but these records have {X.shape[1]}")
    found = np.empty((X.shape[0], len(w)))
    for first, last, sums in _sums(X, w):
        found[first:last] = _scaled(sums, bound)
    found += constant
    return found if np.ndim(weights) == 2 else found[:, 0]


def _scaled(sums: tuple[Array, Array, IntArray], bound: float) -> Array:
    """Scores of rows within the bound, from those of rows whose largest entry was brought near 1."""
    products, squares, octaves = sums
    norms = np.sqrt(squares)
    with np.errstate(over="ignore"):
        over = np.ldexp(norms, octaves) > bound
        factor = np.where(over, bound / np.where(norms > 0, norms, 1.0), np.ldexp(1.0, octaves))
    return products * factor[:, None]


def _sums(X: Matrix, w: Array) -> Iterator[tuple[int, int, tuple[Array, Array, IntArray]]]:
    """(first, last, (Σ x w, Σ x², octaves)) of stretches of rows, where x is a row over 2^octaves."""
    if is_sparse(X):
        for first, last in csr_stretches(X, BLOCK):
            yield first, last, _sparse_sums(X, first, last, w)
        return
    step = max(1, BLOCK // max(1, X.shape[1]))
    for first in range(0, X.shape[0], step):
        last = min(first + step, X.shape[0])
        yield first, last, _dense_sums(X[first:last], w)


def _finite(values: Array) -> Array:
    return values if np.isfinite(values).all() else np.where(np.isfinite(values), values, 0.0)


def _dense_sums(rows: Array, w: Array) -> tuple[Array, Array, IntArray]:
    columns = _finite(np.array(rows.T, dtype=np.float64, order="C"))
    octaves = np.frexp(np.max(np.abs(columns), axis=0, initial=0.0))[1]
    columns = np.ldexp(columns, -octaves)
    products, squares = np.zeros((len(w), len(rows))), np.zeros(len(rows))
    for column, weight in zip(columns, w.T, strict=True):
        squares += column * column
        for total, each in zip(products, weight.tolist(), strict=True):
            total += column * each
    return products.T, squares, octaves


def _sparse_sums(X: Matrix, first: int, last: int, w: Array) -> tuple[Array, Array, IntArray]:
    start, stop, count = int(X.indptr[first]), int(X.indptr[last]), last - first
    row = np.repeat(np.arange(count), np.diff(X.indptr[first : last + 1]))
    values, column = _finite(np.asarray(X.data[start:stop], dtype=np.float64)), X.indices[start:stop]
    largest = np.zeros(count)
    np.maximum.at(largest, row, np.abs(values))
    octaves = np.frexp(largest)[1]
    values = np.ldexp(values, -octaves[row])
    squares = _added(row, values * values, count)
    return np.stack([_added(row, values * each[column], count) for each in w], axis=1), squares, octaves


def _added(row: IntArray, values: Array, count: int) -> Array:
    """Sums of each row's values, which `bincount` adds in their order."""
    return np.asarray(np.bincount(row, values, minlength=count), dtype=np.float64)
