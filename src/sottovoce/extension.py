"""The native extension `sottovoce._native`: whether it is here, records as its loops read them, and threads."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Matrix

AVAILABLE = find_spec("sottovoce._native") is not None
"""Whether this installation has the extension."""
MISSING = (
    "this installation has no native extension, because there was no C++ compiler when it was built; install a wheel, "
    "or install again with a compiler"
)


class Records(NamedTuple):
    """Everybody's records, flat; empty arrays stand for what is not there."""

    sparse: bool
    values: NDArray[Any]
    """(rows, features), or the stored values of CSR rows."""
    indices: NDArray[Any]
    indptr: NDArray[np.int64]
    features: int
    intercept: float
    y: NDArray[np.float64]
    norms: NDArray[np.float64]
    weights: NDArray[np.float64]
    """Of rows; empty where all count the same."""
    offsets: NDArray[np.int64]
    order: NDArray[np.int64]
    """Empty where places are rows."""
    starts: NDArray[np.int64]
    """Empty where units are places."""


def read_only(values: Any, dtype: Any = None) -> NDArray[Any]:
    """The same memory, contiguous and not to be written; nothing is an empty array."""
    view = np.ascontiguousarray(np.empty(0) if values is None else values, dtype=dtype).view()
    view.flags.writeable = False
    return view


def records(X: Matrix, intercept: float, y: Any, norms: Any, shards: Any) -> Records:
    """Rows with their targets and norms, and weights and places as the shards have them.

    Parameters
    ----------
    X : dense, or CSR
    intercept, y, norms : of all rows
    shards : an object with weights, offsets, order and starts
    """
    dense = isinstance(X, np.ndarray)
    return Records(
        sparse=not dense,
        values=read_only(X if dense else X.data),
        indices=read_only(None if dense else X.indices, np.int32),
        indptr=read_only(None if dense else X.indptr, np.int64),
        features=int(X.shape[1]),
        intercept=float(intercept),
        y=read_only(y, np.float64),
        norms=read_only(norms, np.float64),
        weights=read_only(shards.weights, np.float64),
        offsets=read_only(shards.offsets, np.int64),
        order=read_only(shards.order, np.int64),
        starts=read_only(shards.starts, np.int64),
    )


_others = [1]  # among how many runs processors are shared, innermost last


def available() -> int:
    """Processors for one run: all of this process, unless OMP_NUM_THREADS or `shared` says otherwise.

    Examples
    --------
    >>> with shared(1_000_000):
    ...     available()
    1
    """
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if limit.isdecimal() and int(limit) > 0:
        own = min(own, int(limit))
    return max(1, own // _others[-1])


@contextmanager
def shared(runs: int) -> Iterator[None]:
    """Share the processors among so many runs that are made side by side in this process."""
    _others.append(max(1, runs) * _others[-1])
    try:
        yield
    finally:
        _others.pop()
