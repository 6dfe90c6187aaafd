"""Whose record is which: from a column of labels, or dealt out by row number. Never by what a record holds."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import IntArray
from sottovoce.errors import DataError, SpecError
from sottovoce.problem.partition import by_group


def owners(records: int, nodes: Any, n_nodes: int | str) -> tuple[IntArray, IntArray | None, tuple[str, ...]]:
    """Offsets, order and names of the nodes.

    Without a column the table has one owner, or as many simulated ones as are asked for: row r goes to node r mod n,
    so that a sorted table does not become lopsided nodes.

    Examples
    --------
    >>> owners(5, None, 2)
    (array([0, 3, 5]), array([0, 2, 4, 1, 3]), ('0', '1'))
    >>> owners(3, ["b", "a", "b"], "auto")
    (array([0, 1, 3]), array([1, 0, 2]), ('a', 'b'))
    """
    wanted = None if n_nodes == "auto" else _count(n_nodes)
    if nodes is None:
        n = 1 if wanted is None else wanted
        if n > records:
            raise DataError(f"{n} nodes cannot share {records} records; take at most {records} nodes")
        labels: NDArray[Any] = np.arange(records) % n
    else:
        labels = column(nodes, records, "nodes")
    (offsets, order), names = by_group(labels)
    if wanted is not None and wanted != len(names):
        raise SpecError(f"nodes names {len(names)} owners, but n_nodes is {wanted}; leave n_nodes out")
    return offsets, order, tuple(names)


def column(labels: Any, records: int, name: str) -> NDArray[Any]:
    """A column of labels, one a record, none missing."""
    values = np.asarray(labels)
    if values.shape != (records,):
        raise DataError(f"{name} must be one label a record, {records} of them, but its shape is {values.shape}")
    missing = [value is None or value != value for value in values.tolist()]
    if any(missing):
        raise DataError(f"{name} has no label for record {missing.index(True)}; say whose every record is")
    return values.astype(np.str_) if values.dtype == object else values


def _count(n_nodes: Any) -> int:
    if not isinstance(n_nodes, int | np.integer) or isinstance(n_nodes, bool) or n_nodes < 1:
        raise SpecError(f"n_nodes must be 'auto' or a whole number over 0, not {n_nodes!r}")
    return int(n_nodes)
