"""Records, dense or sparse: which of the two, and their norms, without ever holding a second copy of the data."""

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array, Matrix

TINY = 1e-140  # below it, squares may have underflowed
BLOCK = 1 << 17  # numbers of a dense block that is worked on in float64 at a time: 1 MB, which a core's cache holds


def is_sparse(X: Matrix) -> bool:
    """Whether the data is sparse; SciPy's sparse part, slow to load, is not asked about an ndarray."""
    return not isinstance(X, np.ndarray) and bool(scipy.sparse.issparse(X))


def row_norms(X: Matrix) -> Array:
    """Euclidean norm of every row, summed in float64, also where its squares would leave the range of floats.

    Examples
    --------
    >>> row_norms(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([5., 0.])
    """
    with np.errstate(over="ignore"):
        if is_sparse(X):
            squares = np.zeros(X.shape[0])
            filled = np.flatnonzero(np.diff(X.indptr))  # reduceat has no sum for an empty row
            if filled.size:
                squares[filled] = np.add.reduceat(np.square(X.data, dtype=np.float64), X.indptr[filled])
            return _mended(X, np.sqrt(squares))
        squares = np.empty(X.shape[0])
        step = max(1, BLOCK // max(1, X.shape[1]))
        for start in range(0, X.shape[0], step):
            block = np.asarray(X[start : start + step], dtype=np.float64)
            squares[start : start + step] = np.einsum("ij,ij->i", block, block)
        return _mended(X, np.sqrt(squares))


def _mended(X: Matrix, norms: Array) -> Array:
    """Norms whose squares left the range of floats, again from rows scaled by their largest entry.

    A norm that is too small by underflow would let a record past its clip.
    """
    for row in np.flatnonzero((norms < TINY) | ~np.isfinite(norms)):
        entries = X.data[X.indptr[row] : X.indptr[row + 1]] if is_sparse(X) else X[row]
        entries = np.asarray(entries, dtype=np.float64)
        largest = np.max(np.abs(entries), initial=0.0)
        if 0 < largest < np.inf:
            norms[row] = largest * np.linalg.norm(entries / largest)
    return norms
