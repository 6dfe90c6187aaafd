"""A public random projection of sparse, high-dimensional records: fewer columns, hence fewer bytes in every message.

Each column is added, with a random sign, to one of k new ones (feature hashing). Which, and the sign, follow from a
public seed, so that all owners apply the same map, each record by itself: nothing is learnt, nothing leaks. Inner
products are kept on average, up to about 1/√k; a row is never longer afterwards than it was before, so that a public
bound on rows still holds.

It does not make a private model more accurate: the noise in a score ⟨c, x⟩ depends on the norm of a row, not on the
number of its columns (docs/utility.md). It makes messages smaller by m/k.
"""

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin

from sottovoce._types import Array, Matrix
from sottovoce.errors import DataError, SpecError
from sottovoce.rows import row_norms


class PublicProjection(TransformerMixin, BaseEstimator):
    """Hash the columns of records into fewer, by a map that everybody may know; for a scikit-learn pipeline.

    Parameters
    ----------
    columns : k, the number of new columns
    seed : public; every owner must use the same

    Examples
    --------
    >>> X = sparse.csr_array(np.eye(1000)[:5])
    >>> PublicProjection(columns=64, seed=1).fit_transform(X).shape
    (5, 64)
    """

    def __init__(self, columns: int = 4096, seed: int = 0) -> None:
        self.columns = columns
        self.seed = seed

    def fit(self, X: Matrix, y: Array | None = None) -> "PublicProjection":
        """Draw the map: of the data only its number of columns is looked at."""
        if not isinstance(self.columns, int) or self.columns < 1:
            raise SpecError(f"columns must be a whole number over 0, not {self.columns!r}")
        rng, m = np.random.default_rng(self.seed), int(X.shape[1])
        entries = (rng.choice([-1.0, 1.0], m), (np.arange(m), rng.integers(self.columns, size=m)))
        self.map_ = sparse.csr_array(entries, shape=(m, self.columns))
        self.n_features_in_ = m
        return self

    def transform(self, X: Matrix) -> Matrix:
        """Project every record by itself; sparse records stay sparse."""
        if X.shape[1] != self.n_features_in_:
            raise DataError(f"the projection is of {self.n_features_in_} columns, but these records have {X.shape[1]}")
        made = X @ self.map_
        if sparse.issparse(made):
            made = sparse.csr_array(made)
            made.sum_duplicates()
        before, after = row_norms(X), row_norms(made)
        shrink = np.minimum(1.0, np.divide(before, after, out=np.ones_like(after), where=after > 0))
        if not sparse.issparse(made):
            return np.asarray(made * shrink[:, None])
        made.data *= np.repeat(shrink, np.diff(made.indptr))
        return made
