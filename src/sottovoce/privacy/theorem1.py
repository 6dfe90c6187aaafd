"""The paper's Theorem 1, exactly as printed: its claim, what becomes of its conditions in a run, and the truth.

    σ² ≥ 32 ι² L² T log(2/δ₀) / (q² ε²)   and   T ≥ 5 q² ε² / (4 ι²)
    ⇒ "(ε, δ)-DP for some constant δ in (0, 1]".

This is shipped to reproduce the paper, and is never called private: the second condition fails in all of the
paper's own experiments, the proof gives a δ close to one, and it counts on hiding who was active, which no
observer of the messages has trouble seeing. `compare` puts what the paper says of its noise beside what that noise
gives.
"""

import math
from dataclasses import dataclass
from typing import Any

import scipy  # not its parts: they load when first used

from sottovoce import limits
from sottovoce.errors import PrivacyError
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.accounting import delta as delta_of
from sottovoce.privacy.events import ADJACENCY, FixedEvent
from sottovoce.privacy.release import Adversary


def check_claim(epsilon: float, delta0: float) -> None:
    """The ranges of the theorem's hypotheses."""
    if not 0 < epsilon <= 1:
        raise PrivacyError(f"Theorem 1 is stated for a claimed epsilon in (0, 1], not {epsilon}")
    if not 0 < delta0 <= 1:
        raise PrivacyError(f"Theorem 1 is stated for delta0 in (0, 1], not {delta0}")
    limits.check_epsilon(epsilon, PrivacyError)


@dataclass(frozen=True)
class Theorem1:
    """The printed noise for a claimed ε, with the conditions under which the claim is made."""

    epsilon: float
    delta0: float
    iota: float
    lipschitz: float
    records: int
    rounds: int

    def __post_init__(self) -> None:
        """The ranges of the theorem's hypotheses."""
        check_claim(self.epsilon, self.delta0)

    @property
    def sigma(self) -> float:
        """The least σ that meets the first condition."""
        return (
            math.sqrt(32.0 * self.rounds * math.log(2.0 / self.delta0))
            * self.iota
            * self.lipschitz
            / (self.records * self.epsilon)
        )

    @property
    def rounds_needed(self) -> float:
        """T_min of the second condition."""
        return 5.0 * (self.records * self.epsilon) ** 2 / (4.0 * self.iota**2)

    def noise_condition(self, sigma: float) -> bool:
        """Whether a noise that was really used meets the first condition."""
        return sigma >= self.sigma

    def rounds_condition(self) -> bool:
        """Whether T ≥ 5q²ε²/(4ι²)."""
        return self.rounds >= self.rounds_needed

    def proof_as_printed(self) -> tuple[float, float]:
        """The (ε, δ) at which the paper's proof arrives: √(3/5)ε + ε²/5 ≤ ε, and 1 − (1 − δ')(1 − ιδ₀)^T with δ' = ε.

        It takes Σε'² for ε²/5 in the last display, though it has just shown that the sum is ε².
        """
        delta = _composed(self.epsilon, self.iota * self.delta0, self.rounds)
        return math.sqrt(0.6) * self.epsilon + 0.2 * self.epsilon**2, delta

    def proof_corrected(self, constant: float = 32.0) -> tuple[float, float]:
        """The same proof without slips, for σ² = constant · ι²L²T log(2/δ₀)/(q²ε²): 32 as printed, 160 as needed.

        Σε'² = 32ε²/constant; Lemma 3 with δ' = √Σε'² gives √(2Σ log(e + 1)) + Σ, and Lemma 2 gives ιδ₀/q a round.
        """
        total = 32.0 / constant * self.epsilon**2
        epsilon = math.sqrt(2.0 * total * math.log(math.e + 1.0)) + total
        return epsilon, _composed(math.sqrt(total), self.iota * self.delta0 / self.records, self.rounds)

    def spent(self, t: int) -> float:
        """Remark i): the ε̂ that the paper prints for the first t of T rounds, eq. (7)."""
        share = t / self.rounds
        return math.sqrt(0.6 * share) * self.epsilon + 0.2 * share * self.epsilon**2

    def elementary_epsilon(self, nodes: int, delta: float, adds: int = 1) -> float:
        """ε at δ that the printed σ does not give, by a bound that needs no accountant; −∞ where it says nothing.

        Losses are linear: every record's subgradient is −Le but the target's, +Le in one of two neighboring data sets.
        The event is that some release passes 0 along e. With the target it has at least the probability that the
        target is drawn at all and that its release passes 0, P = (1 − (1 − ι/q)^T) Φ(L/σ); without it at most
        P' = nιT Φ(−L/σ), no matter who sent what. (ε, δ)-DP requires P ≤ e^ε P' + δ.

        Parameters
        ----------
        nodes : n; who sent a release need not be known
        delta : δ
        adds : how many releases are added up in what is seen, as 2 at an edge whose ends see each other's states only

        Examples
        --------
        >>> claim = Theorem1(1.0, 0.01, 0.1, 1.0, 20_000, 600_000)
        >>> round(claim.elementary_epsilon(20, 1e-5)), round(claim.elementary_epsilon(20, 1e-5, adds=2))
        (186, 88)
        """
        drawn = -math.expm1(self.rounds * math.log1p(-self.iota / self.records))
        log_miss = float(scipy.special.log_ndtr(-self.lipschitz / (self.sigma * math.sqrt(adds))))
        seen = drawn * -math.expm1(log_miss)
        if seen <= delta:
            return -math.inf
        return math.log(seen - delta) - math.log(nodes * self.iota * self.rounds) - log_miss

    def report(self, sigma: float) -> dict[str, Any]:
        """The claim and its two conditions under the noise that was used, for a result and for the screen."""
        return {
            "claimed_epsilon": self.epsilon,
            "delta0": self.delta0,
            "sigma_printed": self.sigma,
            "noise_condition_holds": self.noise_condition(sigma),
            "rounds_condition_holds": self.rounds_condition(),
            "rounds": self.rounds,
            "rounds_needed": self.rounds_needed,
            "proof": {
                "as_printed": self.proof_as_printed(),
                "without_slips": self.proof_corrected(32),
                "without_slips_and_with_160": self.proof_corrected(160),
            },
        }


def _composed(slack: float, delta: float, rounds: int) -> float:
    """1 − (1 − δ')(1 − δ)^T, the δ̃ of Lemma 3."""
    return 1.0 - (1.0 - min(slack, 1.0)) * math.exp(rounds * math.log1p(-min(delta, 1.0 - 1e-16)))


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
            "adversary": str(self.adversary),
            "adjacency": ADJACENCY,
            "verdict": "claim holds at this delta" if self.holds else "not private as claimed",
        }


def compare(claim: Theorem1, adversary: Adversary, delta: float) -> Comparison:
    """Account the printed σ for what the algorithm does: one record of q in each active round.

    Examples
    --------
    >>> from sottovoce.privacy.release import Transcript
    >>> found = compare(Theorem1(0.2, 0.01, 1.0, 1.0, 20000, 60000), Transcript(), 1e-5)
    >>> found.holds, round(found.epsilon, 1)
    (False, 4.2)
    """
    seen = adversary.seen(FixedEvent(claim.records, 1, claim.lipschitz, claim.sigma, claim.rounds), claim.iota)
    found, at_claim = compute_epsilon([seen], delta), delta_of([seen.part], claim.epsilon)
    return Comparison(claim, adversary, delta, found.epsilon, found.epsilon_lower, at_claim)
