"""What a site keeps at the end: a saved `Result`, for `sottovoce predict` and `sottovoce account --verify`.

Private evaluation: every site counts the right answers on its held-out records, and releases the count with noise.

One count of q held-out records is the mean of q numbers that are ½ (right) or −½ (wrong), times q, plus a constant: an
event of the same kind as a round of training with a full batch, clip ½ and one round, and accounted in the same
statement. Held-out records are never trained on and trained-on records are never counted (`shares.py`), so a record
costs the larger of the two, not their sum.

The noise is rounded to a whole number, and so is what is released: count and noise are integers, whose sum has no low
bits to attack. It comes from the node's own secret, so that a node that restarts releases the same number again.

A node releases its one noisy count: budgeted, in the ledger before anybody sees it, and never a second one.
"""

import hashlib
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce._types import Array
from sottovoce.consortium.agreement import SCHEMA_FILE, Agreement
from sottovoce.consortium.shares import HELD_OUT
from sottovoce.errors import StoreError
from sottovoce.node import budget, entropy
from sottovoce.node.entropy import own_streams
from sottovoce.node.ledger import Row
from sottovoce.node.store import Store
from sottovoce.node.wire import RUN, Header, check, pack_text, read, unpack_text
from sottovoce.privacy.calibration import sigma
from sottovoce.privacy.events import Event, FullEvent
from sottovoce.privacy.statement import PrivacyStatement, with_held_out
from sottovoce.problem.objective import Problem
from sottovoce.run.result import History, Result, environment

FOLDER = "results"
ENGINE = "nodes over FLARE"


def save_results(kit: Path, state: Path, agreement: Agreement, models: Array, seconds: float) -> Path:
    """Write everybody's final models, the statement and the schema under the node's own folder."""
    plan = agreement.plan
    made = statement(agreement)
    result = Result(
        spec=replace(plan.spec, seed=None),  # the plan's seed is the schedule's alone
        models=models,
        history=History(),
        statement=made,
        public=plan.prepared.public | {"run": plan.digest, "schedule_seed": plan.spec.seed},
        classes=agreement.schema.label.classes,
        features=agreement.schema.features,
        nodes=plan.nodes,
        environment=environment(ENGINE, seconds),
    )
    folder = result.save(state / FOLDER / str(agreement.run["run"]))
    shutil.copyfile(kit / "local" / agreement.schema_file, folder / SCHEMA_FILE)
    (folder / "statement.txt").write_text(made.paragraph() + "\n", encoding="utf-8")
    (folder / "statement.json").write_text(json.dumps(made.to_dict(), ensure_ascii=False, indent=2), encoding="utf-8")
    return folder


ROUND = 1  # the one release of an evaluation
HALF = 0.5  # a right or wrong answer, seen from the middle


def count_event(held_out: int, epsilon: float, delta: float) -> Event:
    """What a noisy count of right answers among q held-out records is accounted as, with the noise that it needs.

    Examples
    --------
    >>> event = count_event(100, 1.0, 1e-5)
    >>> round(noise_of(event), 2)
    3.73
    """
    unit = FullEvent(held_out, held_out, HALF, 1.0, ROUND)
    return replace(unit, sigma=sigma(unit, epsilon, delta))


def noise_of(event: Event) -> float:
    """The standard deviation of the noise on the count."""
    return event.sigma * event.records


def count_events(agreement: Agreement) -> dict[int, Event]:
    """The event of every site that holds records out, by node number."""
    delta = agreement.plan.spec.privacy.delta
    sizes = {i: site.held_out(agreement.held_out) for i, site in enumerate(agreement.sites)}
    return {i: count_event(q, agreement.test_epsilon, delta) for i, q in sizes.items() if q}


def statement(agreement: Agreement) -> PrivacyStatement:
    """What the run guarantees, its test included."""
    events = count_events(agreement)
    return with_held_out(agreement.plan.statement, events) if events else agreement.plan.statement


def count_digest(agreement: Agreement) -> str:
    """The name of the evaluation in ledgers: a run of its own, that follows from the plan."""
    return hashlib.blake2b(b"evaluation" + bytes.fromhex(agreement.plan.digest), digest_size=32).hexdigest()


def right_answers(problem: Problem, x: Array, tolerance: float) -> int:
    """How many records the model is right about: the sign or the class, or the number within the tolerance."""
    u, y = problem.margins(x), problem.shards.y
    if u.ndim > 1:
        right = np.argmax(u, axis=-1) == y
    elif problem.loss.targets == "binary":
        right = np.where(u >= 0, 1.0, -1.0) == y
    else:
        right = np.abs(u - y) <= tolerance
    return int(np.count_nonzero(right))


def noisy_count(count: int, event: Event, secret: bytes, digest: str) -> int:
    """The count, with whole-number noise that is a function of the node's secret and of the run alone.

    Examples
    --------
    >>> event = count_event(100, 1.0, 1e-5)
    >>> noisy_count(80, event, bytes(32), "ab") - 80 == noisy_count(10, event, bytes(32), "ab") - 10
    True
    """
    noise = noise_of(event) * own_streams(secret, digest).normals(np.array([0]), ROUND, 1)[0, 0]
    return count + round(float(noise))


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
        self.plan, self.name, self.problem, self.store = agreement.plan, name, problem, store
        self.me = self.plan.number(name)
        self.dataset, self.whole = dataset + HELD_OUT, dataset
        self.event, self.tolerance = count_events(agreement)[self.me], agreement.tolerance
        self.digest = count_digest(agreement)
        self.fingerprint = entropy.fingerprint(store.secret, problem.shards)

    def refuse_unless_affordable(self) -> None:
        """As for a run, by the budget of the whole data set."""
        rows, adversary = self._rows(), self.plan.spec.privacy.adversary
        budget.refuse_unless_affordable(rows, self.dataset, self.fingerprint, self.event, adversary, self.digest)

    def _rows(self) -> Sequence[Row]:
        rows = self.store.rows()
        limit = budget.budgets(rows).get(self.whole)
        if limit is None or self.dataset in budget.budgets(rows):
            return rows
        return [*rows, Row(len(rows) + 1, "budget", "", 0, "", limit.detail(self.dataset), b"")]

    def count(self, model: Array) -> int:
        """The noisy count of right answers; the same number however often it is asked for."""
        header = Header(bytes.fromhex(self.digest)[:RUN], ROUND, self.me)
        name = f"{self.plan.name} (test)"
        saved = self.store.enter(self.digest, name, self.name, self.plan.nodes, self.fingerprint)
        if ROUND in saved.outbox:
            message = read(saved.outbox[ROUND])
            check(message, header, None, "|u1")
            return int(unpack_text(message)[0]["right"])
        if self.store.ledger.released(self.digest, ROUND) is not None:
            raise StoreError("the count of right answers was released before, but is gone; restore the node's folder")
        self.refuse_unless_affordable()
        right = right_answers(self.problem, model, self.tolerance)
        noisy = noisy_count(right, self.event, self.store.secret, self.digest)
        adversary = self.plan.spec.privacy.adversary
        detail = budget.opening(name, self.name, self.dataset, self.fingerprint, self.event, adversary)
        with self.store.transaction():
            self.store.ledger.append("open", self.digest, detail=detail)
            self.store.keep_message(self.digest, ROUND, pack_text(header, {"right": noisy}), ())
            self.store.ledger.append("close", self.digest)
        return noisy
