"""Private evaluation in a consortium: held-out records, the count of right answers on them, and its noise.

*Which records are held out* is a secret choice, stable for good (`evaluation.holdout`): the key is the node's own
secret, so that the order of a file or of a query's answer does not matter, and a restarted node finds the same shares
again. It needs the choice to stay the same from run to run, too: `check_not_moved` sees to that.

*One count* of q held-out records is a tally of one question (`evaluation.tally`), accounted in the same statement as
the training. The noise comes from the node's own secret and its ledger's nonce, so that a node that restarts releases
the same number again. A node releases its one noisy count: budgeted, in the ledger before anybody sees it, and never a
second one.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sottovoce._types import Array
from sottovoce.consortium.agreement import Agreement
from sottovoce.data.schema import Encoded
from sottovoce.errors import DataError, PrivacyError, StoreError
from sottovoce.evaluation.holdout import secret_order
from sottovoce.evaluation.tally import RIGHT, Keys, Tally
from sottovoce.node import budget
from sottovoce.node import keys as node_keys
from sottovoce.node.budget import HELD_OUT, Spending
from sottovoce.node.ledger import Row
from sottovoce.node.message import RUN, Header, check, pack_text, read, unpack_text
from sottovoce.node.store import Store
from sottovoce.privacy.events import Event
from sottovoce.privacy.release import Release, Transcript
from sottovoce.privacy.sampling import Full
from sottovoce.privacy.statement import PrivacyStatement, with_held_out
from sottovoce.problem.objective import Problem
from sottovoce.problem.scores import row_scores
from sottovoce.problem.shards import Shards

# -- which records are held out --


class Shares(NamedTuple):
    """A site's records for training and for evaluation, split once for all runs."""

    train: Shards
    test: Shards | None


def split_held_out(
    encoded: Encoded, records: int, held_out: int, secret: bytes, dataset: str, weighted: bool = True
) -> Shares:
    """The public number of records, or of people, in secret order; the first `held_out` of them are only tested on.

    A record that cannot be used has weight 0; a regression is not `weighted`, and trains on its row of zeros.

    Examples
    --------
    >>> X, y = np.eye(4), np.ones(4)
    >>> there = split_held_out(Encoded(X, y, None), 4, 1, bytes(32), "patients")
    >>> back = split_held_out(Encoded(X[::-1], y, None), 4, 1, bytes(32), "patients")
    >>> bool((there.train.X == back.train.X).all()), there.train.sizes.tolist(), there.test.sizes.tolist()
    (True, [3], [1])
    """
    y = encoded.y if encoded.usable is None else np.where(encoded.usable, encoded.y, np.nan)
    each = secret_order(encoded.X, y, encoded.user_ids, secret, dataset)
    if len(each) < records:
        raise DataError(
            f"there are {len(each)} {'records' if encoded.user_ids is None else 'people'}, but the agreement names "
            f"{records}; correct the agreement, or add records"
        )
    rows = np.array([row for unit in each[held_out:records] for row in unit], dtype=np.int64)
    user_ids = None if encoded.user_ids is None else encoded.user_ids[rows]
    weights = None if encoded.usable is None else encoded.usable.astype(np.float64)
    own = None if weights is None or not weighted else weights[rows]
    train = Shards.of(encoded.X[rows], encoded.y[rows], np.array([0, len(rows)]), user_ids=user_ids, weights=own)
    if not held_out:
        return Shares(train, None)
    first = np.array([unit[0] for unit in each[:held_out]], dtype=np.int64)
    own = None if weights is None else weights[first]
    return Shares(train, Shards.of(encoded.X[first], encoded.y[first], np.array([0, held_out]), weights=own))


def check_not_moved(spendings: Sequence[Spending], dataset: str, train: str, test: str | None) -> None:
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


# -- the count, and what it costs --

ROUND = RIGHT.round  # the one release of an evaluation


def count_event(held_out: int, epsilon: float, delta: float) -> Event:
    """What a noisy count of right answers among q held-out records is accounted as, with the noise that it needs.

    Examples
    --------
    >>> event = count_event(100, 1.0, 1e-5)
    >>> round(noise_of(event), 2)
    3.73
    """
    return Tally.of(np.array([held_out]), epsilon, delta).events[0]


def noise_of(event: Event) -> float:
    """The standard deviation of the noise on the count."""
    return event.sigma * event.records


def count_events(agreement: Agreement) -> dict[int, Event]:
    """The event of every site that holds records out, by node number."""
    delta = agreement.run.spec.privacy.delta
    sizes = {i: site.held_out(agreement.held_out) for i, site in enumerate(agreement.sites)}
    return {i: count_event(q, agreement.test_epsilon, delta) for i, q in sizes.items() if q}


def statement(agreement: Agreement) -> PrivacyStatement:
    """What the run guarantees, its test included."""
    events = count_events(agreement)
    return with_held_out(agreement.run.statement, events) if events else agreement.run.statement


def count_digest(agreement: Agreement) -> str:
    """The name of the evaluation in ledgers: a run of its own, that follows from the run."""
    return hashlib.blake2b(b"evaluation" + bytes.fromhex(agreement.run.digest), digest_size=32).hexdigest()


def right_answers(problem: Problem, x: Array, tolerance: float) -> int:
    """How many records the model is right about: the sign or the class, or the number within the tolerance."""
    shards, w = problem.shards, x if problem.outputs == 1 else x.reshape(problem.outputs, -1)
    constant = np.zeros(w.shape[:-1])
    if shards.intercept:
        w, constant = w[..., :-1], shards.intercept * w[..., -1]
    u, y = row_scores(shards.X, w, constant), shards.y
    if u.ndim > 1:
        right = np.argmax(u, axis=-1) == y
    elif problem.loss.targets == "binary":
        right = np.where(u >= 0, 1.0, -1.0) == y
    else:
        right = np.abs(u - y) <= tolerance
    usable = True if problem.shards.weights is None else problem.shards.weights > 0
    return int(np.count_nonzero(right & usable))


def noisy_count(count: int, event: Event, keys: Keys) -> int:
    """The count with noise, rounded once: a function of the node's own keys for the evaluation of this run.

    Examples
    --------
    >>> event, keys = count_event(100, 1.0, 1e-5), node_keys.own_keys(bytes(32), "ab", bytes(32))
    >>> noisy_count(80, event, keys) - 80 == noisy_count(10, event, keys) - 10
    True
    """
    tally = Tally(Release(Full(), event.clip, (event.sigma,), Transcript()), np.array([event.records]))
    return int(tally.answers(RIGHT, np.array([[count]]), keys)[0, 0])


@dataclass(frozen=True)
class Evaluation:
    """What the consortium learns about its model.

    Attributes
    ----------
    counts : the noisy count of right answers of each site, by its name
    records : how many records each held out
    noise : the standard deviation of the noise on each count
    """

    counts: Mapping[str, int]
    records: Mapping[str, int]
    noise: Mapping[str, float]

    @property
    def accuracy(self) -> float:
        """The share of right answers over all sites, as well as the noise lets it be known."""
        return min(max(sum(self.counts.values()) / sum(self.records.values()), 0.0), 1.0)

    @property
    def error(self) -> float:
        """One standard error of `accuracy`: the noise, and that the held-out records are a sample."""
        total = sum(self.records.values())
        noise = math.fsum(s * s for s in self.noise.values()) / total**2
        return math.sqrt(noise + self.accuracy * (1 - self.accuracy) / total)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "accuracy": self.accuracy,
            "standard_error": self.error,
            "sites": {
                name: {"right": count, "records": self.records[name], "noise": self.noise[name]}
                for name, count in self.counts.items()
            },
        }


def evaluation(agreement: Agreement, counts: Mapping[str, int]) -> Evaluation:
    """The counts that came in, with what is public about them."""
    events = {agreement.sites[i].name: event for i, event in count_events(agreement).items()}
    heard = {name: counts[name] for name in events if name in counts}
    return Evaluation(
        heard,
        {name: events[name].records for name in heard},
        {name: noise_of(events[name]) for name in heard},
    )


class Examiner:
    """The test of one node's final model on its own held-out records.

    In the ledger the held-out share is a data set of its own, with the budget that the owner set for the whole: a
    record is in one share only, so each may cost as much.
    """

    def __init__(self, agreement: Agreement, name: str, problem: Problem, store: Store, dataset: str) -> None:
        self.run, self.name, self.problem, self.store = agreement.run, name, problem, store
        self.number = self.run.number(name)
        self.dataset, self.whole = dataset + HELD_OUT, dataset
        self.event, self.tolerance = count_events(agreement)[self.number], agreement.tolerance / self.run.scale.half
        self.digest = count_digest(agreement)
        self.fingerprint, self.sequence = node_keys.fingerprints(store.secret, problem.shards)

    def check_affordable(self) -> None:
        """As for a run, by the budget of the whole data set."""
        adversary, adjacency = self.run.spec.privacy.adversary, self.run.statement.adjacency
        records = self.dataset, self.fingerprint
        new = budget.Spending.planned(self.digest, *records, self.event, adversary, adjacency)
        budget.check_affordable(self._rows(), new)

    def _rows(self) -> Sequence[Row]:
        rows = self.store.rows()
        limit = budget.budgets(rows).get(self.whole)
        if limit is None or self.dataset in budget.budgets(rows):
            return rows
        return [*rows, Row(len(rows) + 1, "budget", "", 0, "", limit.detail(self.dataset), b"")]

    def count(self, model: Array, scored: Callable[[Problem], Problem] = lambda problem: problem) -> int:
        """Return the noisy count of correct predictions; every call returns the same number.

        Parameters
        ----------
        model : of records as they came
        scored : these records as that model meets them
        """
        header = Header(bytes.fromhex(self.digest)[:RUN], ROUND, self.number)
        name = f"{self.run.name} (test)"
        saved = self.store.enter(self.digest, name, self.name, self.run.nodes, (self.sequence, self.fingerprint))
        if ROUND in saved.outbox:
            message = read(saved.outbox[ROUND])
            check(message, header, None, "|u1")
            return int(unpack_text(message)[0]["right"])
        if self.store.ledger.released(self.digest, ROUND) is not None:
            raise StoreError("the count of right answers was released before, but is gone; restore the node's folder")
        right = right_answers(scored(self.problem), model, self.tolerance)
        keys = node_keys.own_keys(self.store.secret, self.digest, self.store.nonce(), self.fingerprint)
        noisy = noisy_count(right, self.event, keys)
        adversary, adjacency = self.run.spec.privacy.adversary, self.run.statement.adjacency
        detail = budget.opening(name, self.name, self.dataset, self.fingerprint, self.event, adversary, adjacency)
        with self.store.transaction():
            self.check_affordable()  # others may have opened runs on these records since
            self.store.ledger.append("open", self.digest, detail=detail | {"secure": True, "sequence": self.sequence})
            self.store.keep_message(self.digest, ROUND, pack_text(header, {"right": noisy}), ())
            self.store.ledger.append("close", self.digest)
        return noisy
