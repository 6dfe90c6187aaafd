"""Records on their grid: toward zero, within the bound in whole numbers, and no bit lost on the way to float32."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from sottovoce._native import put_on_grid
from sottovoce.errors import DataError, PrivacyError
from sottovoce.secure import grids as module
from sottovoce.secure.grids import choose_grids, on_grid

positive = st.floats(1e-6, 1e6)


def unit_rows(n, m, seed=0, dtype=np.float64):
    X = np.random.default_rng(seed).normal(size=(n, m))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(dtype)


@given(st.integers(1, 2**37), positive, positive, st.one_of(st.just(0.0), st.floats(1.0, 1e6)))
def test_the_grids_leave_room_for_every_margin_and_sum(records, clip, bound, ratio):
    B = ratio * bound if ratio < 1e5 else 0.0
    grids = choose_grids(records, clip, bound, B)
    for grid in (grids.feature, grids.slope, grids.sum):
        assert math.frexp(grid)[0] == 0.5
    reach = (Fraction(bound) ** 2 + Fraction(B) ** 2) / Fraction(grids.feature) ** 2
    assert 2**38 < reach <= 2**40  # whole rows, 2²⁰ long at most; with a model of 2³² a margin has 52 bits
    assert Fraction(clip) - Fraction(grids.sum) < grids.length * Fraction(grids.sum) <= Fraction(clip)
    assert grids.rows * grids.length <= 2**53 and grids.rows >= 2**12
    assert records * grids.length <= 2**62
    assert grids.sum <= clip * 2.0**-24
    assert 0 <= Fraction(B) - Fraction(grids.intercept) < Fraction(grids.feature)


def test_models_are_brought_to_a_grid_of_their_own():
    grids = choose_grids(1000, 1.0, 1.0)
    rng = np.random.default_rng(0)
    for scale in (1e-100, 1e-9, 1.0, 1e9):
        for x in (rng.normal(size=50) * scale, rng.normal(size=(3, 50)) * scale, np.ones(4) * scale):
            found = grids.model(x)
            assert np.all(np.abs(found) <= np.abs(x)) and np.all(found * x >= 0)
            longest = np.max(np.linalg.norm(np.atleast_2d(x), axis=1))
            assert np.max(np.abs(found - x)) <= longest * 2.0**-26
            unit = Fraction(module.model_grid(float(np.max(np.abs(x))), x.shape[-1]))
            for row in np.atleast_2d(found):
                whole = [Fraction(v) / unit for v in row.tolist()]
                assert all(w.denominator == 1 for w in whole) and sum(w**2 for w in whole) <= 2**64
    worst = np.full(2**12, np.nextafter(1.0, 0.0))
    assert sum((Fraction(v) / Fraction(module.model_grid(worst[0], 2**12))) ** 2 for v in grids.model(worst)) <= 2**64
    for columns, half in ((1, 0), (2, 1), (4, 1), (5, 2), (16, 2), (17, 3)):
        assert module.model_grid(0.75, columns) == 2.0 ** (half - 32)
    assert not np.any(grids.model(np.zeros(3))) and not np.any(grids.model(np.full(3, 1e-300)))
    with pytest.raises(PrivacyError, match="finite"):
        grids.model(np.array([1.0, np.inf]))


@given(st.integers(1, 300), st.integers(1, 4), st.integers(-400, 300), st.integers(0, 10**6))
def test_compiled_models_have_the_same_bits(m, outputs, octave, seed):
    x = np.random.default_rng(seed).normal(size=(outputs, m)) * 2.0**octave
    out = np.empty(outputs * m)
    assert put_on_grid(x.ravel(), m, out) == np.abs(x).max()
    assert np.array_equal(out.reshape(outputs, m), choose_grids(10, 1.0, 1.0).model(x))
    for wrong in (np.nan, np.inf, -np.inf):
        x[0, 0] = wrong
        assert put_on_grid(x.ravel(), m, out) == np.inf


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("intercept", [0.0, 0.7])
def test_rows_are_truncated_toward_zero(dtype, intercept):
    X = unit_rows(300, 40, dtype=dtype) * np.linspace(0.01, 0.9999999, 300, dtype=dtype)[:, None]
    grids = choose_grids(300, 1.0, 1.0, intercept)
    rows = on_grid(X, grids)
    assert rows.X.dtype == np.float32 and rows.m == 40 + (intercept > 0)
    whole = rows.X.astype(np.float64) / grids.feature
    assert np.array_equal(whole, np.trunc(X.astype(np.float64) / grids.feature))
    own = Fraction(grids.intercept) / Fraction(grids.feature)
    for row in range(300):
        squares = sum(int(v) ** 2 for v in whole[row]) + own**2
        assert squares == rows.squares[row]
        cap = int(rows.caps[row])
        assert cap**2 * squares <= grids.length**2 < (cap + 2) ** 2 * squares * Fraction(1 + 2.0**-38)


def test_dense_and_sparse_are_the_same_and_share_what_they_can(monkeypatch):
    rng = np.random.default_rng(1)
    X = scipy.sparse.random_array((500, 60), density=0.1, rng=rng, format="csr")
    X.data = rng.normal(size=X.nnz) * 0.35
    grids = choose_grids(500, 1.0, 1.0)
    dense = X.toarray()
    long = np.linalg.norm(dense, axis=1) > 1.0
    sparse, full = on_grid(X, grids, "clip"), on_grid(dense, grids, "clip")
    assert 0 < long.sum() < 500 and np.any(np.diff(X.indptr) == 0)
    assert np.array_equal(sparse.X.toarray(), full.X) and np.array_equal(sparse.squares, full.squares)
    assert np.shares_memory(sparse.X.indices, X.indices) and np.shares_memory(sparse.X.indptr, X.indptr)
    assert sparse.X.data.dtype == np.float32
    monkeypatch.setattr(module, "BLOCK", 7)
    for again in (
        on_grid(X, grids, "clip"),
        on_grid(dense, grids, "clip"),
        on_grid(np.asfortranarray(dense), grids, "clip"),
    ):
        values = again.X if isinstance(again.X, np.ndarray) else again.X.toarray()
        assert np.array_equal(values, full.X) and np.array_equal(again.squares, full.squares)


@given(st.integers(0, 10**6), st.floats(1e-3, 1e3), st.integers(1, 30))
def test_rows_over_the_bound_are_brought_to_it_in_whole_numbers(seed, bound, m):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(6, m)) * bound * 10.0 ** rng.integers(-3, 280, (6, 1))
    X[0] = unit_rows(1, m, seed)[0] * bound * (1 + 1e-9)  # longer by less than the grid sees
    grids = choose_grids(6, 1.0, bound)
    rows = on_grid(X, grids, "clip")
    limit = Fraction(bound) ** 2 / Fraction(grids.feature) ** 2
    for before, after, squares in zip(X, rows.X.astype(np.float64) / grids.feature, rows.squares, strict=True):
        exact = sum(int(v) ** 2 for v in after)
        assert exact == squares <= limit
        if math.hypot(*(before / bound)) > 1.001:
            cosine = before / math.hypot(*before) @ after / math.sqrt(exact)
            assert math.sqrt(exact / limit) > 1 - 1e-4 * math.sqrt(m) and cosine > 1 - 1e-5
    alone = on_grid(X[3:4], grids, "clip")
    assert np.array_equal(alone.X[0], rows.X[3])


def test_what_is_no_number_counts_as_nothing_or_is_refused():
    grids = choose_grids(5, 1.0, 1.0)
    X = np.array([[0.5, 0.5], [np.nan, 0.25], [np.inf, 0.25], [0.0, 1e300], [0.5, -0.5]])
    rows = on_grid(X, grids, "clip")
    assert rows.X.tolist() == [[0.5, 0.5], [0.0, 0.25], [0.0, 0.25], [0.0, 1.0], [0.5, -0.5]]
    for bad in range(1, 4):
        with pytest.raises(DataError, match="public bound"):
            on_grid(X[bad : bad + 1], grids)
        with pytest.raises(DataError, match="public bound"):
            on_grid(scipy.sparse.csr_array(X[: bad + 1]), grids)
    assert on_grid(X[[0, 4]], grids).X.tolist() == X[[0, 4]].tolist()


def test_a_zero_row_has_no_slope():
    rows = on_grid(np.zeros((2, 3)), choose_grids(2, 1.0, 1.0))
    assert rows.caps.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("records", "clip", "bound", "intercept", "said"),
    [
        (0, 1.0, 1.0, 0.0, "records"),
        (10, 0.0, 1.0, 0.0, "clip"),
        (10, math.inf, 1.0, 0.0, "clip"),
        (10, 1.0, math.nan, 0.0, "bound"),
        (10, 1.0, 1.0, -1.0, "intercept"),
        (10, 1.0, 1.0, 1e-9, "lost"),
        (2**37 + 1, 1.0, 1.0, 0.0, "too many"),
        (10, 1.0, 1e60, 0.0, "ordinary"),
    ],
)
def test_numbers_that_make_no_grid_are_refused(records, clip, bound, intercept, said):
    with pytest.raises(PrivacyError, match=said):
        choose_grids(records, clip, bound, intercept)


def test_sparse_rows_share_their_memory_with_the_data_and_with_their_cuts():
    """Once on the grid, in float32: nothing of the data's size is made again."""
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((500, 40), density=0.2, rng=rng, format="csr") * 0.1
    rows = on_grid(X, choose_grids(500, 1.0, 2.0), "clip")
    assert rows.X.data.dtype == np.float32
    assert np.shares_memory(rows.X.indices, X.indices) and np.shares_memory(rows.X.indptr, X.indptr)
    for first, last in ((0, 500), (100, 120), (7, 7)):
        cut, turned = rows.cut(first, last)
        assert rows.cut(first, last)[0] is cut and cut.shape == (last - first, 40) and turned.shape == cut.shape[::-1]
        assert np.array_equal(cut.toarray(), rows.X.toarray()[first:last])
        assert np.array_equal(turned.toarray(), cut.toarray().T)
        if last > first:
            assert all(np.shares_memory(each.data, rows.X.data) for each in (cut, turned))
            assert all(np.shares_memory(each.indices, X.indices) for each in (cut, turned))
