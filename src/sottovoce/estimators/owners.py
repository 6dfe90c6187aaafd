"""Whose record is which: from a column of labels, or dealt out by row number. Never by what a record holds."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import IntArray
from sottovoce.errors import DataError, SpecError
from sottovoce.estimators.settings import whole
from sottovoce.problem.partition import by_group


def owners(
    records: int, nodes: Any, n_nodes: int | str, units: NDArray[Any] | None = None
) -> tuple[IntArray, IntArray | None, tuple[str, ...]]:
    """Offsets, order and names of the nodes.

    Without a column the table has one owner, or as many simulated ones as are asked for: row r goes to node r mod n,
    so that a sorted table does not become lopsided nodes. People stay whole: they are dealt as they first appear.

    Examples
    --------
    >>> owners(5, None, 2)
    (array([0, 3, 5]), array([0, 2, 4, 1, 3]), ('0', '1'))
    >>> owners(3, ["b", "a", "b"], "auto")
    (array([0, 1, 3]), array([1, 0, 2]), ('a', 'b'))
    """
    wanted = None if n_nodes == "auto" else whole(n_nodes, "n_nodes")
    if nodes is None:
        n = 1 if wanted is None else wanted
        place = np.arange(records) if units is None else _appearance(units)
        there = int(place.max()) + 1
        if n > there:
            what = "records" if units is None else "people"
            raise DataError(f"{n} nodes cannot share {there} {what} (n_samples = {there}); take at most {there} nodes")
        labels: NDArray[Any] = place % n
    else:
        labels = column(nodes, records, "nodes")
    (offsets, order), names = by_group(labels)
    if wanted is not None and wanted != len(names):
        raise SpecError(f"nodes names {len(names)} owners, but n_nodes is {wanted}; leave n_nodes out")
    return offsets, order, tuple(names)


def _appearance(units: NDArray[Any]) -> IntArray:
    """The place of each record's person among the people, in the order in which they first appear."""
    _, first, which = np.unique(units, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[which.reshape(-1)]


def column(labels: Any, records: int, name: str) -> NDArray[Any]:
    """A column of labels, one a record, none missing."""
    values = np.asarray(labels)
    if values.shape != (records,):
        raise DataError(f"{name} must be one label a record, {records} of them, but its shape is {values.shape}")
    refuse_missing(values, name, "label")
    return values.astype(np.str_) if values.dtype == object else values


def refuse_missing(values: NDArray[Any], name: str, what: str) -> None:
    """Every record has its label: None and what is not equal to itself (NaN, NaT, NA) are none."""
    if values.dtype.kind not in "OfcmM":
        return
    for record, value in enumerate(values.tolist()):
        try:
            missing = value is None or bool(value != value)
        except TypeError:  # pandas' NA refuses to be compared
            missing = True
        if missing:
            raise DataError(f"{name} has no {what} for record {record} (None or NaN); give every record one")
