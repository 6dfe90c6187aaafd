"""Laws of the public projection: a linear map of each record by itself that never makes a row longer."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from sottovoce.data.synthetic import sparse_text
from sottovoce.errors import DataError, SpecError
from sottovoce.estimators.transformers import PublicProjection
from sottovoce.matrices import row_norms


def test_rows_never_grow_and_each_is_mapped_by_itself():
    X = sparse_text(300, 3000, 40, seed=1).X
    projection = PublicProjection(200, seed=3).fit(X)
    made = projection.transform(X)
    assert made.format == "csr" and made.has_canonical_format and np.all(row_norms(made) <= row_norms(X) * (1 + 1e-12))
    some = np.array([5, 17, 200])
    assert np.allclose(projection.transform(X[some]).toarray(), made[some].toarray())
    assert np.allclose(projection.transform(X.toarray()), made.toarray())


def test_inner_products_are_kept_on_average():
    X = sparse_text(60, 2000, 50, seed=2).X
    truth = (X @ X.T).toarray()
    seen = np.mean([_gram(PublicProjection(500, seed).fit_transform(X)) for seed in range(40)], axis=0)
    apart = ~np.eye(60, dtype=bool)
    assert np.max(np.abs(seen - truth)[apart]) < 5 / np.sqrt(500 * 40) + 0.03


def _gram(X):
    return (X @ X.T).toarray()


def test_the_seed_is_the_map():
    X = sparse.csr_array(np.eye(50))
    one, same, other = (PublicProjection(20, seed).fit_transform(X).toarray() for seed in (1, 1, 2))
    assert np.array_equal(one, same) and not np.array_equal(one, other)
    assert clone(PublicProjection(20, 7)).get_params() == {"columns": 20, "seed": 7}
    with pytest.raises(DataError, match="50 columns"):
        PublicProjection(20).fit(X).transform(X[:, :10])
    with pytest.raises(SpecError, match="over 0"):
        PublicProjection(0).fit(X)
