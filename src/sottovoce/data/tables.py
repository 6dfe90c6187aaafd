"""The table that every source of records gives, and the one scaling of its rows that leaks nothing."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Matrix
from sottovoce.errors import DataError, SpecError
from sottovoce.rows import is_sparse, row_norms


@dataclass(frozen=True, eq=False)
class Table:
    """Records as they were read, before anything is learnt from them.

    Attributes
    ----------
    X : dense 2-d array (float64 or float32) or CSR matrix, one record a row
    y : float64 targets; text where the classes have names (see `as_signs`); None in a file without labels
    groups : the owner of every record, as text, or None
    features : the columns' names, or None where the format has none (svmlight)
    name : where the records come from, for messages and reports

    Examples
    --------
    >>> table = Table(np.eye(3), np.array([1.0, -1.0, 1.0]), None, ("a", "b", "c"), "eye")
    >>> table.n_records, table.m
    (3, 3)
    """

    X: Matrix
    y: NDArray[Any] | None
    groups: NDArray[np.str_] | None
    features: tuple[str, ...] | None
    name: str

    @property
    def n_records(self) -> int:
        """Number of records."""
        return int(self.X.shape[0])

    @property
    def m(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])


def unit_rows(X: Matrix, bound: float = 1.0) -> Matrix:
    """Scale every row whose norm is over the bound down to the bound, and leave the others as they are, bit for bit.

    Each record is scaled by itself alone, so this leaks nothing; dividing by the largest norm of the data, or by a
    column's standard deviation, would tell of everybody's records. Rows end a rounding error below the bound, so
    that their norm does not pass it in whatever order it is summed up.

    Parameters
    ----------
    X : dense 2-d array or CSR matrix
    bound : the public bound on a record's norm

    Returns
    -------
    A new matrix of the same kind and precision (integers become float64); sparse data is never made dense

    Examples
    --------
    >>> unit_rows(np.array([[3.0, 4.0], [0.1, 0.2]])).round(6)
    array([[0.6, 0.8], [0.1, 0.2]])
    """
    if not 1e-150 <= bound <= 1e150:  # beyond, its square is no float
        raise SpecError(f"the bound on the norm of a row must be a number over 0, not {bound}")
    out = _fresh(X)
    norms = row_norms(out)
    over = norms > bound
    for row in np.flatnonzero(np.isinf(norms)):  # the squares overflowed: bring the row's largest entry to 1 first
        values = out.data[out.indptr[row] : out.indptr[row + 1]] if is_sparse(out) else out[row]
        values /= np.max(np.abs(values))
        norms[row] = np.linalg.norm(values)
    slack = 2 * np.finfo(out.dtype).eps + out.shape[1] * np.finfo(np.float64).eps
    factor = np.ones(len(norms))
    np.divide(bound * (1 - slack), norms, out=factor, where=over)
    if is_sparse(out):
        out.data *= np.repeat(factor, np.diff(out.indptr))
    else:
        out *= factor[:, None]
    return out


def _fresh(X: Matrix) -> Matrix:
    """A copy that may be scaled in place: float32 or float64, finite, each entry of a sparse row stored once."""
    if is_sparse(X):
        if X.format != "csr":
            raise DataError(f"sparse data must be in CSR form, not {X.format.upper()}; convert it with .tocsr()")
        out = X.copy() if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
        if not out.has_canonical_format:
            out.sum_duplicates()  # entries of one place add up: their squares do not
        values = out.data
    else:
        X = np.asarray(X)
        if X.ndim != 2:
            raise DataError(f"data must be a table of records by features, not an array of {X.ndim} dimensions")
        out = values = np.array(X, dtype=X.dtype if X.dtype in (np.float32, np.float64) else np.float64, order="C")
    if not np.all(np.isfinite(values)):
        raise DataError("the data holds NaN or infinite values; fill them in or drop those records first")
    return out
