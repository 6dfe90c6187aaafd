"""Transformers that learn nothing from the data, to replace StandardScaler and MinMaxScaler, which leak.

A mean, a deviation, a minimum are statistics of everybody's records: a pipeline step that learns them has published
them outside the mechanism. `PublicScaler` and `RowNormalizer` use public bounds, and each value or row by itself.

`PublicProjection` makes fewer columns of sparse, high-dimensional records: each column is added, with a random sign, to
one of k new ones (feature hashing). Which, and the sign, follow from a public seed, so that all owners apply the same
map, each record by itself. Inner products are kept on average, up to about 1/√k; a row is never longer afterwards than
it was before, so that a public bound on rows still holds. It does not make a private model more accurate: the noise in
a score ⟨c, x⟩ depends on the norm of a row, not on the number of its columns (docs/utility.md). It makes messages
smaller by m/k.
"""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from sottovoce._types import Array, Matrix
from sottovoce.errors import DataError, SpecError
from sottovoce.estimators.settings import over_zero
from sottovoce.estimators.unusable import number_cells, unusable_rows, without_rows
from sottovoce.matrices import row_norms, unit_rows

FLOATS = (np.float64, np.float32)


class PublicScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Bring every column from its public bounds to [−1, 1] (or another range); what lies beyond is clipped.

    Parameters
    ----------
    bounds : (low, high) for all columns, one such pair for each column, or a dictionary from column names to pairs.
        They must be public: from the meaning of a column, never from the records. There is no default: a range that
        does not fit clips every value to the same number, and no warning may say so, because it would come from
        records
    feature_range : (low, high) of what comes out
    missing : what a missing value (NaN) counts as, in the units of the column: a public number, or one for each column
        as in `bounds`; None leaves it NaN, which an estimator with a guarantee counts as 0 and others refuse

    Attributes
    ----------
    row_norm_ : the length that no row can exceed after scaling, √m for [−1, 1]: a public bound to give as `row_norm`.
        Where most values are near 0 a smaller one serves better: a row over it is scaled down
    bounds_ : the public bounds of every column after scaling, to give as `bounds`

    Examples
    --------
    >>> import numpy as np
    >>> ages_and_doses = np.array([[20.0, 0.0], [65.0, 300.0], [120.0, 9000.0]])
    >>> scaler = PublicScaler(bounds=[(0, 120), (0, 400)]).fit(ages_and_doses)
    >>> scaler.transform(ages_and_doses).round(2)
    array([[-0.67, -1.  ], [ 0.08,  0.5 ], [ 1.  ,  1.  ]])
    >>> round(scaler.row_norm_, 3)
    1.414
    >>> PublicScaler(bounds=(0, 120), missing=60).fit_transform([[np.nan], [90.0]])
    array([[0. ], [0.5]])
    """

    def __init__(
        self, bounds: Any = None, feature_range: tuple[float, float] = (-1.0, 1.0), missing: Any = None
    ) -> None:
        self.bounds = bounds
        self.feature_range = feature_range
        self.missing = missing

    def fit(self, X: Any, y: Any = None) -> Self:
        """Note the columns, and nothing of the records."""
        if self.bounds is None:
            raise SpecError(
                "PublicScaler has no bounds, and none can be read off the records: that would publish their extremes; "
                "give public ones, such as PublicScaler(bounds=(0, 120)) for all columns or "
                "PublicScaler(bounds={'age': (0, 120), 'dose': (0, 400)})"
            )
        X = self._checked(X, reset=True)
        low, high = _pairs(self._listed(self.bounds, "bounds"), X.shape[1], "bounds").T
        bottom, top = _pairs(self.feature_range, 1, "feature_range")[0]
        self.factor_ = (top - bottom) / (high - low)
        self.offset_ = bottom - low * self.factor_
        self.row_norm_ = float(max(abs(bottom), abs(top)) * np.sqrt(X.shape[1]))
        self.bounds_ = [(float(bottom), float(top))] * X.shape[1]
        self.fill_ = None if self.missing is None else self._fill(X.shape[1])
        return self

    def _fill(self, columns: int) -> Array:
        """What a missing value of each column counts as."""
        try:
            fill = np.asarray(self._listed(self.missing, "missing"), dtype=np.float64)
            fill = np.broadcast_to(fill, (columns,))
        except (TypeError, ValueError):
            fill = np.full(columns, np.nan)
        if not np.all(np.isfinite(fill)):
            raise SpecError(
                f"missing must be a finite number, or one for each of {columns} columns, not {self.missing!r}"
            )
        return fill

    def transform(self, X: Any) -> Matrix:
        """Scale and clip, each value by itself."""
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        bottom, top = (float(end) for end in self.feature_range)
        if sparse.issparse(X):
            if np.any(self.offset_ != 0):
                raise SpecError(
                    "sparse data stays sparse only where 0 is scaled to 0; give bounds and a feature_range with the "
                    "same middle, such as (-5, 5) for (-1, 1), or dense data"
                )
            out = X.copy()
            if self.fill_ is not None:
                out.data = np.where(np.isnan(out.data), self.fill_[out.indices], out.data)
            with np.errstate(over="ignore"):  # overflows are clipped; a warning would reveal them
                out.data = np.clip(out.data * self.factor_[out.indices], bottom, top).astype(X.dtype)
            return out
        whole = X if self.fill_ is None else np.where(np.isnan(X), self.fill_, X)
        with np.errstate(over="ignore"):
            return np.clip(whole * self.factor_ + self.offset_, bottom, top).astype(X.dtype)

    def inverse_transform(self, X: Any) -> Array:
        """Back to the original units; what was clipped stays at its bound."""
        check_is_fitted(self)
        X = np.asarray(X, dtype=np.float64)
        return (X - self.offset_) / self.factor_

    def _checked(self, X: Any, reset: bool) -> Any:
        return _numbers_of(self, X, reset)

    def _listed(self, given: Any, what: str) -> Any:
        """Bounds, or what is missing, in the order of the columns."""
        if not isinstance(given, Mapping):
            return given
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            raise SpecError(f"{what} by name need a data frame with named columns; give a list in their order instead")
        missing = [name for name in names if name not in given]
        if missing:
            raise SpecError(f"column '{missing[0]}' has no {what}; give public numbers for every column")
        return [given[name] for name in names]

    def __sklearn_tags__(self) -> Any:
        """Sparse records are welcome, float32 stays float32."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class RowNormalizer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scale every row that is longer than a public bound down to it, and leave the others as they are.

    Parameters
    ----------
    bound : the length that no row exceeds afterwards; give the same as `row_norm`

    Examples
    --------
    >>> import numpy as np
    >>> RowNormalizer().fit_transform(np.array([[3.0, 4.0], [0.1, 0.2]])).round(6)
    array([[0.6, 0.8], [0.1, 0.2]])
    """

    def __init__(self, bound: float = 1.0) -> None:
        self.bound = bound

    def fit(self, X: Any, y: Any = None) -> Self:
        """Note the columns, and nothing of the records."""
        over_zero(self.bound, "bound")
        _numbers_of(self, X, reset=True)
        return self

    def transform(self, X: Any) -> Matrix:
        """Scale long rows down, each by itself; a row with NaN or infinity becomes NaN throughout."""
        X = _numbers_of(self, X, reset=False)
        unusable = unusable_rows(X)
        out = unit_rows(without_rows(X, unusable), over_zero(self.bound, "bound"))
        if sparse.issparse(out):
            out.data[np.repeat(unusable, np.diff(out.indptr))] = np.nan
        else:
            out[unusable] = np.nan
        return out

    def __sklearn_tags__(self) -> Any:
        """Nothing is learnt, so nothing need be fitted; sparse records are welcome, float32 stays float32."""
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _numbers_of(step: BaseEstimator, X: Any, reset: bool) -> Any:
    """The records as numbers; none is refused: the next step may train with a guarantee, and a refusal reveals one."""
    X = number_cells(X, texts=True)  # a file with one odd cell has a column of text
    return validate_data(step, X, accept_sparse="csr", dtype=FLOATS, reset=reset, ensure_all_finite=False)


def _pairs(bounds: Any, columns: int, name: str) -> Array:
    """(low, high) of every column."""
    try:
        pairs = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        pairs = np.empty(0)
    if pairs.shape == (2,):
        pairs = np.tile(pairs, (columns, 1))
    if pairs.shape != (columns, 2):
        raise SpecError(f"{name} must be one pair (low, high), or one for each of {columns} columns, not {bounds!r}")
    if not np.all(np.isfinite(pairs)) or not np.all(pairs[:, 0] < pairs[:, 1]):
        raise SpecError(f"{name} must be finite, each low below its high, not {bounds!r}")
    return pairs


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
        """Draw the map; of the data it uses only the number of columns."""
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
