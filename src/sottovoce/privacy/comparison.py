"""Theorem 1's claim beside the truth: what the paper says of its noise, and what that noise gives."""

from dataclasses import dataclass
from typing import Any

from sottovoce.privacy.accounting import account
from sottovoce.privacy.accounting import delta as delta_of
from sottovoce.privacy.adversaries import Adversary
from sottovoce.privacy.event import ADJACENCY, Event
from sottovoce.privacy.theorem1 import Theorem1
from sottovoce.privacy.threats import mechanism


@dataclass(frozen=True)
class Comparison:
    """One claim of Theorem 1, judged."""

    claim: Theorem1
    adversary: Adversary
    delta: float
    epsilon: float
    """The true ε at δ: an upper bound that is proven …"""
    epsilon_lower: float
    """… and what an attacker reaches on the worst data."""
    delta_at_claim: float
    """The true δ at the ε that is claimed."""

    @property
    def holds(self) -> bool:
        """Whether the claim is true at this δ."""
        return self.epsilon <= self.claim.epsilon

    def to_dict(self) -> dict[str, Any]:
        """For programs: the claim, its conditions, the paper's proof in three versions, and the truth."""
        return self.claim.report(self.claim.sigma) | {
            "records": self.claim.records,
            "iota": self.claim.iota,
            "epsilon": self.epsilon,
            "epsilon_lower": self.epsilon_lower,
            "delta": self.delta,
            "delta_at_claimed_epsilon": self.delta_at_claim,
            "adversary": self.adversary.name,
            "adjacency": ADJACENCY,
            "verdict": "claim holds at this delta" if self.holds else "not private as claimed",
        }


def compare(claim: Theorem1, adversary: Adversary, delta: float) -> Comparison:
    """Account the printed σ for what the algorithm does: one record of q in each active round.

    Examples
    --------
    >>> from sottovoce.privacy.adversaries import make_adversary
    >>> found = compare(Theorem1(0.2, 0.01, 1.0, 1.0, 20000, 60000), make_adversary("transcript"), 1e-5)
    >>> found.holds, round(found.epsilon, 1)
    (False, 4.2)
    """
    event = Event("fixed", claim.records, 1, claim.lipschitz, claim.sigma, claim.rounds)
    seen = [mechanism(adversary, event, claim.iota)]
    found = account(seen, delta)
    return Comparison(claim, adversary, delta, found.epsilon, found.epsilon_lower, delta_of(seen, claim.epsilon))
