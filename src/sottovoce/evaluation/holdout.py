"""Which records are held out: a secret choice that examines no record but through a keyed hash of it.

Every record has a secret score, a keyed hash of its contents and of how many equal ones came before it, and every
person one of their id, where units are people. Records, or people with all of their rows, are ordered by their scores.
So the order of a file or of a query's answer does not matter, and to anybody without the key the first so many are a
uniformly random subset of a public size. A held-out person is tested on one record, the one with the least score.

That is what makes the accounting of two disjoint uses right. Replace a record by another one: of the pairs (contents,
how many equal ones came before) one goes and one comes. Give the new one the old one's score: the scores have the same
law as before, and for every outcome of them the two data sets differ in one share only. (Scores of contents alone would
not do: equal records would move in a block, and one record could change both shares.) Mixing over the scores keeps both
guarantees (they are jointly convex), so a record costs what the one use of it costs: the larger of the two, not their
sum.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy  # not its parts: they load when first used
from numpy.typing import NDArray

from sottovoce._types import Array, IntArray, Matrix
from sottovoce.errors import DataError, SpecError

UserIds = NDArray[Any] | None
"""One id a record; None where every record is a unit of its own."""


def secret_order(X: Matrix, y: Array, user_ids: UserIds, secret: bytes, dataset: str) -> list[list[int]]:
    """The rows of every unit, in the order of its rows' scores; units in a secret order of their own.

    Examples
    --------
    >>> X, y = np.eye(4), np.ones(4)
    >>> there, back = (secret_order(rows, y, None, bytes(32), "patients") for rows in (X, X[::-1]))
    >>> [3 - unit[0] for unit in back] == [unit[0] for unit in there]
    True
    """
    scores = _scores(X, y, user_ids, secret, dataset)
    order = sorted(range(len(scores)), key=scores.__getitem__)
    return [[row] for row in order] if user_ids is None else _people(user_ids, order, secret, dataset)


def held_out_share(sizes: IntArray, share: float, secret: bytes) -> list[IntArray]:
    """The numbers of the units (records or people) of each node that are held out of training, in order.

    A keyed choice of a public number of units by their numbers within the node; no record is examined, and to anybody
    without the key all sets of that size are as likely. Replace a unit by another one and give it the old one's number:
    then the two data sets differ in one of the two shares only, so that a unit costs what its one use costs.

    Parameters
    ----------
    sizes : units of each node
    share : the part that is held out, over 0 and below 1
    secret : the key

    Examples
    --------
    >>> first, second = held_out_share(np.array([10, 5]), 0.2, bytes(32))
    >>> len(first), len(second), len(set(first.tolist()) | set(range(10)))
    (2, 1, 10)
    """
    if not 0 < share < 1:
        raise SpecError(f"the held-out share must be over 0 and below 1, as in 0.2, not {share:g}")
    found = []
    for node, size in enumerate(sizes.tolist()):
        count = max(1, round(share * size))
        if count >= size:
            raise DataError(f"node '{node}' has too few records to hold {share:g} of them out (n_samples = {size})")
        scores = [
            hashlib.blake2b(b"%d %d" % (node, unit), key=secret, person=b"held out", digest_size=16).digest()
            for unit in range(size)
        ]
        found.append(np.sort(sorted(range(size), key=scores.__getitem__)[:count]))
    return found


def _scores(X: Matrix, y: Array, user_ids: UserIds, secret: bytes, dataset: str) -> list[bytes]:
    """Of every row; equal rows (of one person, where there are people) are distinguished by their number."""
    if scipy.sparse.issparse(X):
        X = scipy.sparse.csr_array(X)
        X.sort_indices()
    scores, before = [], Counter[tuple[str, bytes]]()
    for row in range(len(y)):
        if scipy.sparse.issparse(X):
            at = slice(int(X.indptr[row]), int(X.indptr[row + 1]))
            stored = X.data[at] != 0
            content = X.indices[at][stored].astype("<i8").tobytes()
            content += np.asarray(X.data[at][stored], dtype="<f8").tobytes()
        else:
            content = (np.asarray(X[row], dtype="<f8") + 0.0).tobytes()  # −0 and 0 are one value
        content += np.asarray(y[row], dtype="<f8").tobytes()
        whose = "" if user_ids is None else str(user_ids[row])
        scores.append(_score(secret, dataset, content, before[whose, content]))
        before[whose, content] += 1
    return scores


def _score(secret: bytes, dataset: str, content: bytes, before: int) -> bytes:
    """Of a record with so many equal ones before it."""
    score = hashlib.blake2b(dataset.encode() + b"\0" + content, key=secret, person=b"shares", digest_size=32).digest()
    if not before:
        return score
    again = score + before.to_bytes(8, "little")
    return hashlib.blake2b(again, key=secret, person=b"shares again", digest_size=32).digest()


def _people(user_ids: NDArray[Any], order: Sequence[int], secret: bytes, dataset: str) -> list[list[int]]:
    """The rows of every person, in the order of their scores; people in the order of scores of their own."""
    whose: dict[str, list[int]] = {}
    for row in order:
        whose.setdefault(str(user_ids[row]), []).append(row)

    def score(unit: str) -> bytes:
        return hashlib.blake2b(f"{dataset}\0{unit}".encode(), key=secret, person=b"units", digest_size=32).digest()

    return [whose[unit] for unit in sorted(whose, key=score)]
