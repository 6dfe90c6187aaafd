"""Units of privacy that hold several rows, such as all the visits of one patient: which rows are whose, and the clip.

A unit takes part as a whole: it is drawn with all of its rows at that node, its subgradient is the mean over them, and
that mean is clipped as one. So replacing a person, by one with any number of any rows, moves a sum over units by at
most 2L, as replacing a record does; and where every row is within its bound, so is their mean, and nothing is clipped.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array, IntArray
from sottovoce.errors import DataError
from sottovoce.matrices import TINY


def group_rows(
    user_ids: Any, offsets: IntArray, order: IntArray | None
) -> tuple[IntArray, IntArray | None, IntArray | None]:
    """From the owner of every row to units that lie together: (offsets in units, order of rows, starts of units).

    Units are numbered within a node as they first appear. One id at two nodes makes two units. Where every unit has
    one row, there are no starts and nothing is moved.

    Parameters
    ----------
    user_ids : one id a row of the data, of any type that can be compared for equality
    offsets, order : node i has the places offsets[i] … offsets[i+1] − 1; the row at each place, or None

    Examples
    --------
    >>> group_rows(["ann", "bob", "ann", "ann"], np.array([0, 3, 4]), None)
    (array([0, 2, 3]), array([0, 2, 1, 3]), array([0, 2, 3, 4]))
    """
    codes = _numbered(user_ids)
    rows = np.arange(len(codes)) if order is None else order
    node = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    key = node * (int(codes.max(initial=0)) + 1) + codes[rows]
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    appearance = np.empty(len(first), dtype=np.int64)
    appearance[np.argsort(first)] = np.arange(len(first))  # places go node by node, and so do units
    unit = appearance[which.reshape(-1)]
    counts = np.bincount(unit)
    held = np.bincount(node[first], minlength=len(offsets) - 1)
    new_offsets = np.concatenate([[0], np.cumsum(held)]).astype(np.int64)
    if np.all(counts == 1):
        return new_offsets, order, None
    places = np.argsort(unit, kind="stable")
    still = order is None and bool(np.all(np.diff(unit) >= 0))  # rows of a unit lie together already
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return new_offsets, None if still else np.asarray(rows[places], dtype=np.int64), starts


def first_rows(owner: IntArray, user_ids: Any) -> IntArray:
    """The first row of every person at every node, in the order of the table.

    Examples
    --------
    >>> first_rows(np.array([0, 0, 1]), ["ann", "ann", "ann"])
    array([0, 2])
    """
    codes = _numbered(user_ids)
    key = owner * (int(codes.max(initial=0)) + 1) + codes
    return np.sort(np.unique(key, return_index=True)[1])


def clipped_units(
    size: Array, slopes: Array, counts: IntArray, clip: float, pull: Callable[[Array, slice], Array]
) -> Array:
    """Σ over units of the mean over a unit's rows of slopes ⊗ c, each mean scaled to norm at most `clip`.

    A mean is no longer than the mean length of its terms; only where that is over the clip is the vector itself
    measured. It is made at a scale at which nothing overflows, and it is this very vector that is added, since the
    same sum at another scale would be rounded to another one. What cancels to nothing, or is not a number, counts as
    nothing.

    Parameters
    ----------
    size : ‖slopes of the row‖·‖c‖ of every row
    slopes : of every row, (rows,) or (rows, K)
    counts : rows of each unit, in the order of the rows
    clip : L
    pull : (slopes, which of the rows) -> Σ slopes ⊗ c over them
    """
    ends = np.cumsum(counts)
    starts = ends - counts
    longest = np.add.reduceat(size, starts) / counts
    share = np.repeat(np.where(longest <= clip, 1.0 / counts, 0.0), counts)
    within = slopes * (share if slopes.ndim == 1 else share[:, None])
    total = pull(np.where(np.isfinite(within), within, 0.0), slice(None))
    for u in np.flatnonzero((longest > clip) & (longest < np.inf)):
        mine = slice(int(starts[u]), int(ends[u]))
        vector = pull(slopes[mine] / longest[u] / counts[u], mine)
        norm = float(np.linalg.norm(vector))
        if TINY < norm < np.inf:
            total += vector * min(longest[u], clip / norm)
    return total


def _numbered(user_ids: Any) -> IntArray:
    """One whole number for each distinct id."""
    ids = user_ids if isinstance(user_ids, np.ndarray) else np.asarray(user_ids)
    if ids.ndim != 1:
        raise DataError(f"units must be one id a record, not an array of {ids.ndim} dimensions")
    if ids.dtype.kind in "OV":
        return _numbered_objects(ids)
    if ids.dtype.kind in "fcmM" and np.any(ids != ids):
        raise DataError(MISSING)
    return np.unique(ids, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _numbered_objects(ids: NDArray[Any]) -> IntArray:
    known: dict[Any, int] = {}
    try:
        if any(one is None or bool(one != one) for one in ids.tolist()):
            raise DataError(MISSING)
        return np.array([known.setdefault(one, len(known)) for one in ids.tolist()], dtype=np.int64)
    except (TypeError, ValueError):  # an id without a hash, or a missing value that refuses to be compared
        raise DataError(MISSING) from None


MISSING = "some records have no usable unit id; give every record the id of its person: a number or a text"
