"""Norms of records, dense or sparse, without ever holding a second copy of the data."""

import numpy as np
from scipy import sparse

from sottovoce._types import Array, Matrix

BLOCK = 1 << 21  # numbers of a dense block that is worked on in float64 at a time: 16 MB


def row_norms(X: Matrix) -> Array:
    """Euclidean norm of every row, summed in float64; infinite where the squares overflow.

    Examples
    --------
    >>> row_norms(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([5., 0.])
    """
    with np.errstate(over="ignore"):
        if sparse.issparse(X):
            squares = np.zeros(X.shape[0])
            filled = np.flatnonzero(np.diff(X.indptr))  # reduceat has no sum for an empty row
            if filled.size:
                squares[filled] = np.add.reduceat(np.square(X.data, dtype=np.float64), X.indptr[filled])
            return np.sqrt(squares)
        squares = np.empty(X.shape[0])
        step = max(1, BLOCK // max(1, X.shape[1]))
        for start in range(0, X.shape[0], step):
            block = np.asarray(X[start : start + step], dtype=np.float64)
            squares[start : start + step] = np.einsum("ij,ij->i", block, block)
        return np.sqrt(squares)
