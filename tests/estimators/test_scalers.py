"""Public scalers: what they do to a record depends on that record and on public bounds alone."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from sottovoce import PublicScaler, RowNormalizer
from sottovoce.errors import SpecError

numbers = st.floats(-1e6, 1e6, allow_subnormal=False)


@given(arrays(np.float64, (5, 3), elements=numbers), st.integers(0, 4))
def test_a_record_is_scaled_by_itself(X, row):
    for scaler in (PublicScaler(bounds=[(-10, 10), (0, 1e5), (5, 6)]), RowNormalizer(2.0)):
        fitted = scaler.fit(X)
        alone = type(scaler)(**scaler.get_params()).fit(X[row : row + 1]).transform(X[row : row + 1])
        assert np.array_equal(fitted.transform(X)[row], alone[0])


@given(arrays(np.float64, (4, 3), elements=numbers))
def test_what_comes_out_is_within_public_bounds(X):
    scaler = PublicScaler(bounds=(-3, 7)).fit(X)
    out = scaler.transform(X)
    assert np.all(np.abs(out) <= 1) and np.all(np.linalg.norm(out, axis=1) <= scaler.row_norm_ * (1 + 1e-12))
    assert np.all(np.linalg.norm(RowNormalizer(0.5).fit_transform(X), axis=1) <= 0.5)
    back = scaler.inverse_transform(out)
    assert np.allclose(back, np.clip(X, -3, 7), atol=1e-9)


def test_the_ends_go_to_the_ends():
    X = np.array([[0.0, 100.0], [10.0, 200.0], [5.0, 150.0]])
    scaler = PublicScaler(bounds=[(0, 10), (100, 200)], feature_range=(0, 1)).fit(X)
    assert np.allclose(scaler.transform(X), [[0, 0], [1, 1], [0.5, 0.5]]) and scaler.row_norm_ == pytest.approx(2**0.5)


def test_columns_by_name_in_any_order():
    frame = pd.DataFrame({"b": [1.0, 3.0], "a": [10.0, 20.0]})
    by_name = PublicScaler(bounds={"a": (0, 20), "b": (0, 4)}).fit(frame).transform(frame)
    by_place = PublicScaler(bounds=[(0, 4), (0, 20)]).fit(frame.to_numpy()).transform(frame.to_numpy())
    assert np.array_equal(by_name, by_place)
    with pytest.raises(SpecError, match="column 'a' has no bounds"):
        PublicScaler(bounds={"b": (0, 4)}).fit(frame)
    with pytest.raises(SpecError, match="named columns"):
        PublicScaler(bounds={"b": (0, 4)}).fit(frame.to_numpy())


def test_sparse_stays_sparse_where_zero_stays_zero():
    X = sparse.random_array((20, 5), density=0.3, rng=np.random.default_rng(0), format="csr") * 8
    scaler = PublicScaler(bounds=(-4, 4)).fit(X)
    assert np.allclose(scaler.transform(X).toarray(), scaler.transform(X.toarray()))
    assert np.allclose(RowNormalizer().fit_transform(X).toarray(), RowNormalizer().fit_transform(X.toarray()))
    with pytest.raises(SpecError, match="sparse data stays sparse only where 0"):
        PublicScaler(bounds=(0, 4)).fit(X).transform(X)


@pytest.mark.parametrize("bounds", [3, (1, 0), (0, np.inf), [(0, 1)] * 2, "wide", [(0, 1), (1, 1), (0, 1)]])
def test_bounds_that_are_none_are_refused(bounds):
    with pytest.raises(SpecError, match="bounds must be"):
        PublicScaler(bounds=bounds).fit(np.zeros((2, 3)))
    with pytest.raises(SpecError, match="bound must be a public number"):
        RowNormalizer(bound=-1).fit(np.zeros((2, 3)))


def test_a_scaler_without_bounds_is_refused_whatever_the_records_are():
    """Without them every column once became a constant, silently."""
    said = set()
    for X in (np.zeros((3, 2)), np.array([[20.0, 300.0], [65.0, 9000.0]]), np.full((4, 2), 0.5)):
        with pytest.raises(SpecError, match=r"has no bounds.*give public ones") as refused:
            PublicScaler().fit(X)
        said.add(str(refused.value))
    assert len(said) == 1  # the message reveals nothing about the records
