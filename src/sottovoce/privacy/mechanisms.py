"""What an accountant is told: so many rounds of a kind of release, and which pairs of laws they come to.

Adjacency: one record of one node is replaced. The noise multiplier z is that of `Event.noise_multiplier`, the
sampling rate γ = b/q.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from sottovoce.errors import PrivacyError
from sottovoce.privacy import profiles
from sottovoce.privacy.composition import Part
from sottovoce.privacy.event import Event

KINDS = ("fixed", "poisson", "full", "laplace")


@dataclass(frozen=True)
class Mechanism:
    """So many rounds of one kind of release.

    Attributes
    ----------
    kind : 'fixed' or 'poisson' sampling with Gaussian noise, 'full' batch with Gaussian noise, or 'laplace' noise
    rate : γ, the chance that a given record is used in a round; not looked at for 'full' and 'laplace'
    multiplier : z; for 'laplace' the scale of the noise over the L1 sensitivity. 0 is no noise: ε is infinite
    rounds : how often
    activity : the chance that a round happens at all, independently of the data and seen by everybody; only for
        planning, since after a run the number of rounds is known (were participation hidden, the rate would be
        activity·γ instead: a what-if, since whoever sees the messages sees who sent them)

    Examples
    --------
    >>> Mechanism("fixed", 1 / 20000, 0.45, 60000)
    Mechanism(kind='fixed', rate=5e-05, multiplier=0.45, rounds=60000, activity=1.0)
    """

    kind: str
    rate: float
    multiplier: float
    rounds: int
    activity: float = 1.0

    def __post_init__(self) -> None:
        """What has no known price is an error."""
        if self.kind not in KINDS:
            raise PrivacyError(f"there is no way to account for '{self.kind}'; choose one of {', '.join(KINDS)}")
        if not 0 < self.rate <= 1:
            raise PrivacyError(f"a sampling rate is over 0 and at most 1, not {self.rate}")
        if not 0 <= self.multiplier < math.inf:
            raise PrivacyError(f"a noise multiplier is finite and not negative, not {self.multiplier}")
        if not 0 < self.activity <= 1:
            raise PrivacyError(f"an activity is a probability over 0, not {self.activity}")
        if int(self.rounds) != self.rounds or self.rounds < 0:
            raise PrivacyError(f"rounds are counted in whole numbers from 0, not {self.rounds}")

    @classmethod
    def of(cls, event: Event) -> Self:
        """What a node must account for after a run."""
        if event.law == "objective":
            raise PrivacyError("a perturbed objective is priced as a whole and composes with nothing; see `pricing`")
        kind = "laplace" if event.law == "laplace" else "full" if event.sampling == "cyclic" else event.sampling
        return cls(kind, event.rate, event.noise_multiplier, event.rounds)

    @property
    def gaussian(self) -> bool:
        """Whether there is nothing but Gaussian noise, for which there are formulas."""
        return self.kind != "laplace" and self.rate == 1.0 and self.activity == 1.0

    def _pair(self) -> profiles.Pair:
        """The dominating pair of one round."""
        if self.kind == "laplace":
            return profiles.response(self.multiplier)
        if self.kind == "poisson":
            return profiles.poisson(self.rate, self.multiplier)
        return profiles.fixed(1.0 if self.kind == "full" else self.rate, self.multiplier)

    def _realised(self) -> profiles.Pair:
        """A pair that one round can really produce."""
        if self.kind == "laplace":
            return profiles.laplace(self.multiplier)
        if self.kind == "fixed" and self.rate < 1.0:
            return profiles.realised(self.rate, self.multiplier)
        if self.kind == "poisson":
            return profiles.poisson(self.rate, self.multiplier)
        return profiles.poisson(1.0, 2.0 * self.multiplier)  # N(1/2) against N(−1/2), which is symmetric


def merge(mechanisms: Sequence[Mechanism]) -> list[Mechanism]:
    """Equal mechanisms in one, in an order of their own: the answer can't depend on how a list was written."""
    rounds: dict[tuple[str, float, float, float], int] = {}
    for m in mechanisms:
        key = (m.kind, 1.0 if m.kind in ("full", "laplace") else m.rate, m.multiplier, m.activity)
        rounds[key] = rounds.get(key, 0) + m.rounds
    return [Mechanism(k, r, z, count, a) for (k, r, z, a), count in sorted(rounds.items()) if count]


def gaussian(merged: Sequence[Mechanism]) -> bool:
    """Whether the whole is one Gaussian mechanism, for which there is a formula."""
    return all(m.gaussian for m in merged)


def pure(merged: Sequence[Mechanism]) -> float:
    """The ε at which δ is 0, infinite where there is none: pure DP adds up."""
    return math.fsum(m.rounds / m.multiplier if m.kind == "laplace" else math.inf for m in merged)


def joint(merged: Sequence[Mechanism]) -> float:
    """The multiplier of the one Gaussian mechanism that several compose to (Dong, Roth and Su 2022, Corollary 3.3)."""
    # under Poisson sampling at rate 1 the two means are 2 apart, not 1
    apart = ((2.0 if m.kind == "poisson" else 1.0) / m.multiplier for m in merged)
    return math.fsum(m.rounds * a * a for m, a in zip(merged, apart, strict=True)) ** -0.5


def parts(merged: Sequence[Mechanism], realised: bool = False) -> list[Part]:
    """What to compose; what is Gaussian is one part, exactly."""
    plain = [m for m in merged if m.gaussian]
    rest = [m for m in merged if not m.gaussian]
    if plain:
        rest.append(Mechanism("full", 1.0, joint(plain), 1))
    return [Part(m._realised() if realised else m._pair(), m.rounds, m.activity) for m in rest]
