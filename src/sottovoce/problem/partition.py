"""Who owns which record: evenly, by a group column, or with skewed labels. Each returns (offsets, order).

A random partition needs a generator of its own: how records are dealt out in a simulation is no part of a release.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array, IntArray
from sottovoce.errors import DataError

Partition = tuple[IntArray, IntArray | None]


def even(n_records: int, n: int, rng: np.random.Generator | None = None) -> Partition:
    """Deal the records out evenly (sizes differ by one at the most): in file order, or shuffled.

    Examples
    --------
    >>> even(7, 3)[0]
    array([0, 3, 5, 7])
    """
    _enough(n_records, n)
    sizes = np.full(n, n_records // n)
    sizes[: n_records % n] += 1
    return _offsets(sizes), None if rng is None else rng.permutation(n_records)


def by_group(groups: NDArray[Any]) -> tuple[Partition, list[str]]:
    """One node for every distinct value of a group column; also the nodes' names, in the nodes' order.

    Examples
    --------
    >>> (offsets, order), names = by_group(np.array(["b", "a", "b"]))
    >>> offsets, order, names
    (array([0, 1, 3]), array([1, 0, 2]), ['a', 'b'])
    """
    names, owner = np.unique(np.asarray(groups), return_inverse=True)
    order = np.argsort(owner, kind="stable")
    identity = np.array_equal(order, np.arange(len(order)))
    offsets = _offsets(np.bincount(owner, minlength=len(names)))
    return (offsets, None if identity else order), [str(name) for name in names]


def dirichlet(y: Array, n: int, concentration: float, rng: np.random.Generator) -> Partition:
    """Label-skewed nodes: each label is shared out by Dirichlet(concentration) proportions; no node stays empty.

    A small concentration gives nodes that hold almost one label only, a large one the even mixture.
    """
    _enough(len(y), n)
    if not concentration > 0:
        raise DataError(f"the Dirichlet concentration must be over 0, not {concentration}")
    owner = np.empty(len(y), dtype=np.int64)
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        shares = rng.dirichlet(np.full(n, concentration))
        cuts = np.round(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
        for node, part in enumerate(np.split(rows, cuts)):
            owner[part] = node
    sizes = np.bincount(owner, minlength=n)
    for empty in np.flatnonzero(sizes == 0):  # the largest node gives one record to each empty one
        giver = int(np.argmax(sizes))
        owner[np.flatnonzero(owner == giver)[0]] = empty
        sizes[giver] -= 1
        sizes[empty] += 1
    return _offsets(sizes), np.argsort(owner, kind="stable")


def _offsets(sizes: IntArray) -> IntArray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _enough(n_records: int, n: int) -> None:
    if n < 1:
        raise DataError(f"there must be at least one node, not {n}")
    if n > n_records:
        raise DataError(f"{n} nodes cannot share {n_records} records; take at most {n_records} nodes")
