"""Private evaluation: every site counts the right answers on its held-out records, and releases the count with noise.

One count of q held-out records is the mean of q numbers that are ½ (right) or −½ (wrong), times q, plus a constant: an
event of the same kind as a round of training with a full batch, clip ½ and one round, and accounted in the same
statement. Held-out records are never trained on and trained-on records are never counted (`shares.py`), so a record
costs the larger of the two, not their sum.

The noise is rounded to a whole number, and so is what is released: count and noise are integers, whose sum has no low
bits to attack. It comes from the node's own secret, so that a node that restarts releases the same number again.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sottovoce._types import Array
from sottovoce.consortium.agreement import Agreement
from sottovoce.node.entropy import own_streams
from sottovoce.privacy.calibration import sigma
from sottovoce.privacy.event import Event
from sottovoce.privacy.statement import PrivacyStatement, with_held_out
from sottovoce.problem.objective import Problem

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
    least = sigma("full", held_out, held_out, HALF, ROUND, epsilon, delta)
    return Event("full", held_out, held_out, HALF, least, ROUND)


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
