"""Which records are held out: a secret choice that looks at no record but through a keyed hash of it.

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

from sottovoce._types import Array, Matrix

Units = NDArray[Any] | None
"""One id a record; None where every record is a unit of its own."""


def secret_order(X: Matrix, y: Array, units: Units, secret: bytes, dataset: str) -> list[list[int]]:
    """The rows of every unit, in the order of its rows' scores; units in a secret order of their own.

    Examples
    --------
    >>> X, y = np.eye(4), np.ones(4)
    >>> there, back = (secret_order(rows, y, None, bytes(32), "patients") for rows in (X, X[::-1]))
    >>> [3 - unit[0] for unit in back] == [unit[0] for unit in there]
    True
    """
    scores = _scores(X, y, units, secret, dataset)
    order = sorted(range(len(scores)), key=scores.__getitem__)
    return [[row] for row in order] if units is None else _people(units, order, secret, dataset)


def _scores(X: Matrix, y: Array, units: Units, secret: bytes, dataset: str) -> list[bytes]:
    """Of every row; equal rows (of one person, where there are people) are told apart by their number."""
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
        whose = "" if units is None else str(units[row])
        scores.append(_score(secret, dataset, content, before[whose, content]))
        before[whose, content] += 1
    return scores


def _score(secret: bytes, dataset: str, content: bytes, before: int) -> bytes:
    """Of a record with so many equal ones before it; the first is scored as version 0.1 scored all of them."""
    score = hashlib.blake2b(dataset.encode() + b"\0" + content, key=secret, person=b"shares", digest_size=32).digest()
    if not before:
        return score
    again = score + before.to_bytes(8, "little")
    return hashlib.blake2b(again, key=secret, person=b"shares again", digest_size=32).digest()


def _people(units: NDArray[Any], order: Sequence[int], secret: bytes, dataset: str) -> list[list[int]]:
    """The rows of every person, in the order of their scores; people in the order of scores of their own."""
    whose: dict[str, list[int]] = {}
    for row in order:
        whose.setdefault(str(units[row]), []).append(row)

    def score(unit: str) -> bytes:
        return hashlib.blake2b(f"{dataset}\0{unit}".encode(), key=secret, person=b"units", digest_size=32).digest()

    return [whose[unit] for unit in sorted(whose, key=score)]
