"""Records, dense or sparse: which of the two, their norms, and rows scaled down to a public bound."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import scipy  # not its parts: they load when first used
from numpy.typing import NDArray

from sottovoce._types import Array, Matrix
from sottovoce.errors import DataError, SpecError

MANY = 1 << 24  # numbers that are worth a thread
TINY = 1e-140  # below it, squares may have underflowed
BLOCK = 1 << 17  # numbers of a dense block that is worked on in float64 at a time: 1 MB, which a core's cache holds


def is_sparse(X: Matrix) -> bool:
    """Whether the data is sparse; SciPy's sparse package, slow to load, is not needed for an ndarray."""
    return not isinstance(X, np.ndarray) and bool(scipy.sparse.issparse(X))


def canonical(X: Matrix) -> Matrix:
    """The same rows with each entry stored once; a copy where that changes anything.

    Entries of one place add up. That comes before all that is done to single values: two finite numbers may add up to
    none, and two numbers within their bounds to one beyond them.

    Examples
    --------
    >>> twice = scipy.sparse.csr_array((np.array([1.0, 2.0]), np.array([0, 0]), np.array([0, 2])), shape=(1, 2))
    >>> canonical(twice).toarray()
    array([[3., 0.]])
    """
    if is_sparse(X) and not X.has_canonical_format:
        X = X.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            X.sum_duplicates()
    return X


def row_norms(X: Matrix) -> Array:
    """Euclidean norm of every row, summed in float64, also where its squares would leave the range of floats.

    Examples
    --------
    >>> row_norms(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([5., 0.])
    """
    with np.errstate(over="ignore"):
        if is_sparse(X):
            return _repaired(X, np.sqrt(_sparse_squares(X)))
        return _repaired(X, np.sqrt(np.concatenate(in_parts(X, _dense_squares))))


def _dense_squares(X: NDArray[Any]) -> Array:
    squares, step = np.empty(X.shape[0]), max(1, BLOCK // max(1, X.shape[1]))
    for start in range(0, X.shape[0], step):
        block = np.asarray(X[start : start + step], dtype=np.float64)
        squares[start : start + step] = np.einsum("ij,ij->i", block, block)
    return squares


Found = TypeVar("Found")


def in_parts(values: NDArray[Any], work: Callable[[NDArray[Any]], Found]) -> list[Found]:
    """Yield the results of `work` on parts of an array, in order; NumPy lets threads sum in parallel."""
    parts = max(1, min(os.cpu_count() or 1, values.size // MANY))
    cuts = [len(values) * k // parts for k in range(parts + 1)]
    if parts == 1:
        return [work(values)]
    with ThreadPoolExecutor(parts) as pool:
        return list(pool.map(work, [values[a:b] for a, b in pairwise(cuts)]))


def csr_stretches(X: Matrix, size: int) -> Iterator[tuple[int, int]]:
    """Rows first … last − 1 of CSR data, so many that they hold about `size` entries, one stretch after the other."""
    first, whole = 0, X.shape[0]
    while first < whole:
        end = X.indptr.dtype.type(min(int(X.indptr[first]) + size, int(X.indptr[-1])))  # else all starts are converted
        last = max(first + 1, int(np.searchsorted(X.indptr, end, side="right")) - 1)
        yield first, last
        first = last


def _sparse_squares(X: Matrix) -> Array:
    squares = np.zeros(X.shape[0])
    for first, last in csr_stretches(X, BLOCK):
        start, stop = X.indptr[first], X.indptr[last]
        filled = first + np.flatnonzero(np.diff(X.indptr[first : last + 1]))  # reduceat has no sum for an empty row
        if filled.size:
            entries = np.square(X.data[start:stop], dtype=np.float64)
            squares[filled] = np.add.reduceat(entries, X.indptr[filled] - start)
    return squares


def _repaired(X: Matrix, norms: Array) -> Array:
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


def unit_rows(X: Matrix, bound: float = 1.0, own: bool = False) -> Matrix:
    """Scale every row whose norm is over the bound down to the bound, and leave the others as they are, bit for bit.

    Each record is scaled by itself alone, so this leaks nothing; dividing by the largest norm of the data, or by a
    column's standard deviation, would reveal everybody's records. Rows end a rounding error below the bound, so
    that their norm does not pass it in whatever order it is summed up.

    Parameters
    ----------
    X : dense 2-d array or CSR matrix
    bound : the public bound on a record's norm
    own : whether X is the caller's to change: its rows are scaled where they lie, and not in a copy

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
    out = _fresh(X, own)
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
        np.multiply(out, factor[:, None], out=out, where=over[:, None])
    return out


def _fresh(X: Matrix, own: bool = False) -> Matrix:
    """What may be scaled in place, a copy unless it is the caller's own: floats, finite, each sparse entry once."""
    if is_sparse(X):
        if X.format != "csr":
            raise DataError(f"sparse data must be in CSR form, not {X.format.upper()}; convert it with .tocsr()")
        floats = X.dtype in (np.float32, np.float64)
        out = (X if own else X.copy()) if floats else X.astype(np.float64)
        if not out.has_canonical_format:
            out.sum_duplicates()  # entries of one place add up: their squares do not
        values = out.data
    else:
        X = np.asarray(X)
        if X.ndim != 2:
            raise DataError(f"data must be a table of records by features, not an array of {X.ndim} dimensions")
        kind = X.dtype if X.dtype in (np.float32, np.float64) else np.float64
        out = values = np.array(X, dtype=kind, order="C", copy=None if own else True)
    # a sum is not finite if any term is not: no temporary of the data's size unless something is wrong
    with np.errstate(over="ignore", invalid="ignore"):
        sound = bool(np.isfinite(np.sum(values, dtype=np.float64)))
    if not sound and not np.all(np.isfinite(values)):
        raise DataError("the data holds NaN or infinite values; fill them in or drop those records first")
    return out
