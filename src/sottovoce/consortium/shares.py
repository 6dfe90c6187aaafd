"""Which records a site trains on, and which it holds out to test the model on: a secret choice, stable for good.

Every record has a secret score, a keyed hash of its contents (of its unit, where the schema names one), with the
node's own secret as the key. Records are ordered by their scores. So the order of a file or of a query's answer does
not matter, a restarted node finds the same shares again, and to anybody without the key the held-out records are a
uniformly random subset of the public size.

That is what makes the accounting of two disjoint uses right. Replace a record by another one, and give the new one the
old one's score: the scores have the same law as before, and for every outcome of them the two data sets differ in one
share only. Mixing over the scores keeps both guarantees (they are jointly convex), so a record costs what the one use
of it costs. It also needs the choice to stay the same from run to run: `refuse_moved` sees to that.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy  # not its parts: they load when first used
from numpy.typing import NDArray

from sottovoce._types import IntArray
from sottovoce.consortium.schema import Encoded
from sottovoce.errors import DataError, PrivacyError
from sottovoce.node.budget import Spending
from sottovoce.problem.shards import Shards

HELD_OUT = " (held out)"
"""The held-out share is a data set of its own in the ledger, under the data set's name with this behind it."""


class Shares(NamedTuple):
    """A site's records, dealt out for good."""

    train: Shards
    test: Shards | None


def deal(encoded: Encoded, records: int, held_out: int, secret: bytes, dataset: str) -> Shares:
    """The public number of records, in secret order; the first `held_out` of them are only tested on.

    Examples
    --------
    >>> X, y = np.eye(4), np.ones(4)
    >>> there = deal(Encoded(X, y, None), 4, 1, bytes(32), "patients")
    >>> back = deal(Encoded(X[::-1], y, None), 4, 1, bytes(32), "patients")
    >>> bool((there.train.X == back.train.X).all()), there.train.sizes.tolist(), there.test.sizes.tolist()
    (True, [3], [1])
    """
    scores = _scores(encoded, secret, dataset)
    order = np.array(sorted(range(len(scores)), key=scores.__getitem__), dtype=np.int64)
    if encoded.units is not None:
        order = _one_each(encoded.units, order, secret, dataset)
    if len(order) < records:
        whose = "records" if encoded.units is None else "units, of which one record each is used"
        raise DataError(
            f"there are {len(order)} {whose}, but {records} were agreed on; correct the agreement, or bring more"
        )
    return Shares(_shard(encoded, order[held_out:records]), _shard(encoded, order[:held_out]) if held_out else None)


def refuse_moved(spendings: Sequence[Spending], dataset: str, train: str, test: str | None) -> None:
    """Refuse a run after which a record may have been in both shares: then it would have paid for one use only.

    Parameters
    ----------
    spendings : the runs in the node's ledger
    dataset : the data set's name
    train, test : fingerprints of the two shares now
    """
    used = {s.fingerprint for s in spendings if s.released and s.dataset == dataset}
    tested = {s.fingerprint for s in spendings if s.released and s.dataset == dataset + HELD_OUT}
    if (test is not None and used - {train}) or (tested and (tested - {test} or used - {train})):
        raise PrivacyError(
            f"the records of data set '{dataset}', or the held-out share, are not those of an earlier run: a record "
            "may have moved between training and testing, which no budget covers; use the same records and the "
            "same held_out, or another data set with records of its own"
        )


def _scores(encoded: Encoded, secret: bytes, dataset: str) -> list[bytes]:
    X, y = encoded.X, encoded.y
    if scipy.sparse.issparse(X):
        X = scipy.sparse.csr_array(X)
        X.sort_indices()
    scores = []
    for row in range(len(y)):
        score = hashlib.blake2b(key=secret, person=b"shares", digest_size=32)
        score.update(dataset.encode() + b"\0")
        if scipy.sparse.issparse(X):
            at = slice(int(X.indptr[row]), int(X.indptr[row + 1]))
            stored = X.data[at] != 0
            score.update(X.indices[at][stored].astype("<i8").tobytes())
            score.update(np.asarray(X.data[at][stored], dtype="<f8").tobytes())
        else:
            score.update((np.asarray(X[row], dtype="<f8") + 0.0).tobytes())  # −0 and 0 are one value
        score.update(np.asarray(y[row], dtype="<f8").tobytes())
        scores.append(score.digest())
    return scores


def _one_each(units: NDArray[np.object_], order: IntArray, secret: bytes, dataset: str) -> IntArray:
    """One record of every unit, the one with its least score; units in the order of scores of their own."""
    first: dict[str, int] = {}
    for row in order.tolist():
        first.setdefault(str(units[row]), row)

    def score(unit: str) -> bytes:
        return hashlib.blake2b(f"{dataset}\0{unit}".encode(), key=secret, person=b"units", digest_size=32).digest()

    return np.array([first[unit] for unit in sorted(first, key=score)], dtype=np.int64)


def _shard(encoded: Encoded, rows: IntArray) -> Shards:
    return Shards.of(encoded.X[rows], encoded.y[rows], np.array([0, len(rows)]))
