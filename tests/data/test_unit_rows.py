"""Laws of the per-record scaling: inside the bound, untouched where already inside, same kind, never dense."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from sottovoce.errors import DataError, SpecError
from sottovoce.matrices import row_norms, unit_rows

bounds = st.floats(1e-3, 1e3)
shapes = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=8)
matrices = st.sampled_from([np.float32, np.float64]).flatmap(
    lambda dtype: hnp.arrays(dtype, shapes, elements=st.floats(-1e4, 1e4, width=32))
)


def as_kind(X, kind):
    return X if kind is np.ndarray else kind(X)


@pytest.mark.parametrize("kind", [np.ndarray, sparse.csr_array, sparse.csr_matrix])
@settings(deadline=None)
@given(X=matrices, bound=bounds)
def test_norms_within_the_bound_and_the_rest_untouched(kind, X, bound):
    given_ = as_kind(X.copy(), kind)
    out = unit_rows(given_, bound)
    assert type(out) is type(given_) and out.dtype == X.dtype and out.shape == X.shape
    dense, kept = (out.toarray(), given_.toarray()) if sparse.issparse(out) else (out, given_)
    np.testing.assert_array_equal(kept, X)  # the argument is left alone
    wide = dense.astype(np.float64)
    assert np.all(np.linalg.norm(wide, axis=1) <= bound)
    assert np.all(np.sqrt(np.array([np.cumsum(row**2)[-1] for row in wide[:, ::-1]])) <= bound)  # in another order
    inside = row_norms(X) <= bound
    assert dense[inside].tobytes() == kept[inside].tobytes()
    scaled = X.astype(np.float64)[~inside]
    scaled *= bound / np.linalg.norm(scaled, axis=1, keepdims=True)
    np.testing.assert_allclose(wide[~inside], scaled, rtol=1e-6, atol=1e-6 * bound)


@settings(deadline=None)
@given(X=matrices, bound=bounds)
def test_twice_is_once(X, bound):
    once = unit_rows(X, bound)
    np.testing.assert_array_equal(unit_rows(once, bound), once)


@settings(deadline=None)
@given(X=matrices)
def test_a_row_depends_on_itself_alone(X):
    whole = unit_rows(X)
    for row in range(len(X)):
        np.testing.assert_array_equal(unit_rows(X[row : row + 1])[0], whole[row])


def test_csr_is_never_made_dense():
    shape = (1000, 50_000_000)  # 400 GB if it were dense
    rng = np.random.default_rng(0)
    X = sparse.csr_array(
        (rng.standard_normal(4000), rng.integers(0, shape[1], 4000), np.arange(0, 4001, 4)), shape=shape
    )
    out = unit_rows(X)
    assert isinstance(out, sparse.csr_array) and out.nnz == X.nnz and np.all(row_norms(out) <= 1)
    np.testing.assert_allclose(row_norms(out), np.minimum(row_norms(X), 1), rtol=1e-6)


def test_entries_of_one_place_add_up():
    X = sparse.csr_array((np.array([0.8, 0.8]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    assert unit_rows(X).toarray()[0] == pytest.approx([0, 1, 0])
    assert X.nnz == 2


@pytest.mark.parametrize("kind", [np.ndarray, sparse.csr_array])
def test_rows_whose_squares_overflow(kind):
    X = np.array([[3e300, 4e300], [0.3, 0.4], [1e308, 1e308]])
    out = unit_rows(as_kind(X, kind), 2.0)
    out = out.toarray() if sparse.issparse(out) else out
    np.testing.assert_allclose(out, [[1.2, 1.6], [0.3, 0.4], [2**0.5, 2**0.5]])
    assert np.all(np.linalg.norm(out, axis=1) <= 2)


def test_integers_become_float64():
    assert unit_rows(np.array([[3, 4]])).dtype == np.float64
    assert unit_rows(sparse.csr_array(np.array([[3, 4]]))).dtype == np.float64


def test_norms_of_blocks_and_of_empty_rows(monkeypatch):
    X = np.random.default_rng(0).standard_normal((11, 3)).astype(np.float32)
    X[[0, 4, 10]] = 0
    expected = np.linalg.norm(X.astype(np.float64), axis=1)
    np.testing.assert_allclose(row_norms(sparse.csr_array(X)), expected)
    monkeypatch.setattr("sottovoce.matrices.BLOCK", 6)
    np.testing.assert_allclose(row_norms(X), expected)
    np.testing.assert_array_equal(row_norms(sparse.csr_array((3, 2))), np.zeros(3))


@pytest.mark.parametrize("bound", [0, -1, np.nan, np.inf])
def test_bounds_without_meaning(bound):
    with pytest.raises(SpecError, match="must be a number over 0"):
        unit_rows(np.eye(2), bound)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.array([[np.nan]]), "NaN or infinite"),
        (sparse.csr_array(np.array([[np.inf]])), "NaN or infinite"),
        (np.ones(3), "not an array of 1 dimensions"),
        (sparse.csc_array(np.eye(2)), r"not CSC; convert it with \.tocsr"),
    ],
)
def test_data_refused(X, message):
    with pytest.raises(DataError, match=message):
        unit_rows(X)
