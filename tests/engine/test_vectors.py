"""Products and sums of rows are NumPy's, at every length, and touch nothing beyond their ends."""

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.engine.kernel.arguments import COLUMNS, DRAWN, EDGE, NUMBERS
from sottovoce.engine.kernel.vectors import (
    AT_ONCE,
    PANEL,
    TOGETHER,
    WIDTH,
    add_rows,
    add_times,
    average,
    carry,
    dot,
    dots,
    sparse_dot,
)

BEYOND = 1e300  # what stands beyond an end: whoever read it would be found out


@numba.njit
def _dot(c, x):
    return dot(c, x)


@numba.njit
def _add_times(g, weight, c):
    add_times(g, weight, c)


@numba.njit
def _add_rows(g, weights, rows, X):
    add_rows(g, weights, rows, X)


def row(rng, length, dtype=np.float64):
    """A row in the middle of others."""
    whole = np.full(length + 2 * WIDTH, BEYOND if dtype == np.float64 else 1e30, dtype)
    whole[WIDTH : WIDTH + length] = rng.normal(size=length)
    return whole, whole[WIDTH : WIDTH + length]


def untouched(whole):
    return np.all(whole[:WIDTH] == whole[0]) and np.all(whole[-WIDTH:] == whole[0]) and whole[0] == BEYOND


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(length=st.integers(0, 3 * PANEL * WIDTH), count=st.integers(0, 9), seed=st.integers(0, 99))
def test_sums_are_those_of_numpy(dtype, length, count, seed):
    rng = np.random.default_rng(seed)
    (_, c), (_, x), (whole, g) = row(rng, length, dtype), row(rng, length), row(rng, length)
    size = np.abs(c.astype(np.float64)) @ np.abs(x)
    assert abs(_dot(c, x) - c.astype(np.float64) @ x) <= 1e-14 * size
    expected = g + 0.7 * c.astype(np.float64)
    _add_times(g, 0.7, c)
    assert np.allclose(g, expected, rtol=1e-14, atol=1e-14) and untouched(whole)

    X, rows, weights = rng.normal(size=(5, length)).astype(dtype), rng.integers(0, 5, count), rng.normal(size=count)
    expected = g + weights @ X[rows].astype(np.float64)
    _add_rows(g, weights, rows, X)
    assert np.allclose(g, expected, rtol=1e-13, atol=1e-13) and untouched(whole)


def test_a_row_may_be_shorter_than_what_it_is_added_to():
    g, x = np.zeros(11), np.arange(11.0)
    _add_times(g, 2.0, np.ones(10, np.float32))
    _add_rows(g, np.ones(1), np.zeros(1, np.int64), np.ones((1, 10)))
    assert np.array_equal(g, [3.0] * 10 + [0.0]) and _dot(np.ones(10, np.float32), x) == 45.0


@numba.njit
def _dots(X, rows, first, x, found):
    dots(X, rows, first, x, found)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(length=st.integers(0, 3 * PANEL * WIDTH), first=st.integers(0, 5), seed=st.integers(0, 99))
def test_products_of_several_rows_are_those_of_each(dtype, length, first, seed):
    rng = np.random.default_rng(seed)
    X, rows, (_, x) = rng.normal(size=(5, length)).astype(dtype), rng.integers(0, 5, first + 9), row(rng, length)
    found = np.full(len(rows), BEYOND)
    _dots(X, rows, first, x, found)
    these, wide = slice(first, first + TOGETHER), X[rows].astype(np.float64)
    assert np.all(np.abs(found - wide @ x)[these] <= 1e-14 * (np.abs(wide) @ np.abs(x))[these])
    assert np.all(np.delete(found, these) == BEYOND)


@numba.njit
def _sparse_dot(values, columns, x, first, last):
    return sparse_dot(values, columns, x, first, last)


@pytest.mark.parametrize("kind", [np.uint16, np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(first=st.integers(0, 9), length=st.integers(0, 3 * AT_ONCE), seed=st.integers(0, 99))
def test_entries_of_other_rows_are_left_out(dtype, kind, first, length, seed):
    """Whatever they are, and whatever stands where they point to."""
    rng, last = np.random.default_rng(seed), first + length
    values = np.full(last + AT_ONCE, np.inf, dtype)
    columns, x = np.full(len(values), 40, kind), np.append(rng.normal(size=40), np.nan)
    values[first:last], columns[first:last] = rng.normal(size=length), rng.integers(0, 40, length)
    c, its = values[first:last].astype(np.float64), x[columns[first:last]]
    assert abs(_sparse_dot(values, columns, x, first, last) - c @ its) <= 1e-14 * (np.abs(c) @ np.abs(its))


def test_arrays_with_gaps_are_refused():
    with pytest.raises(numba.TypingError):
        _dot(np.ones(20)[::2], np.ones(10))


@numba.njit
def _carry(target, source):
    carry(target, source)


@numba.njit
def _average(z, total, normals, edges, numbers, e, drawn):
    average(z, total, normals, edges, numbers, e, drawn)


def test_what_is_carried_is_a_row():
    rng = np.random.default_rng(0)
    (whole, target), (_, source) = row(rng, COLUMNS), row(rng, COLUMNS)
    _carry(target, source)
    assert np.array_equal(target, source) and untouched(whole)


@given(places=st.permutations(range(4)), nodes=st.permutations(range(3)), e=st.integers(0, 2), seed=st.integers(0, 99))
@pytest.mark.parametrize("drawn", [0, COLUMNS, DRAWN, 2 * DRAWN - COLUMNS])
def test_an_edge_is_an_average_and_two_sums(drawn, places, nodes, e, seed):
    rng = np.random.default_rng(seed)
    z, total, numbers = rng.normal(size=(4, COLUMNS)), rng.normal(size=(3, COLUMNS)), rng.normal(size=(3, NUMBERS))
    normals = rng.normal(size=(6, 2 * DRAWN)).astype(np.float32)
    edges = rng.integers(0, 3, (3, EDGE))
    edges[e] = *nodes[:2], *places[:3]
    (i, j), (a, b, to), (w0, w1, n0, n1, s0, s1) = nodes[:2], places[:3], numbers[e]
    v, u = normals[2 * e : 2 * e + 2, drawn : drawn + COLUMNS].astype(np.float64)
    new_z, new_total = z.copy(), total.copy()
    new_z[to] = w0 * z[a] + w1 * z[b] + n0 * v + n1 * u
    new_total[i] += s0 * z[a]
    new_total[j] += s1 * z[b]
    _average(z, total, normals.reshape(6, 2, DRAWN), edges, numbers, e, drawn)
    assert np.allclose(z, new_z, rtol=1e-13, atol=1e-14) and np.allclose(total, new_total, rtol=1e-13, atol=1e-14)
    others = np.arange(4) != to
    assert np.array_equal(z[others], new_z[others])
