"""The event: everything about a node's participation that an accountant may look at.

What an accountant is told: so many rounds of a kind of release, and which pairs of laws they come to.

Adjacency: one record of one node is replaced. The noise multiplier z is that of `Event.noise_multiplier`, the
sampling rate γ = b/q.

Nodes with the same guarantee: events that differ in little are accounted for together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from sottovoce.errors import PrivacyError
from sottovoce.privacy import profiles
from sottovoce.privacy.composition import Part

ADJACENCY = "replace one record of one node"
SAMPLINGS = ("fixed", "poisson", "full", "cyclic")
LAWS = ("gaussian", "shaped", "laplace", "pairs", "tree", "objective")


@dataclass(frozen=True)
class Event:
    """Everything about node i's participation that an accountant may look at."""

    sampling: str
    records: int
    """q_i."""
    batch: int
    """b, the divisor."""
    clip: float
    """L, the bound on one record's subgradient."""
    sigma: float
    """σ_i, the standard deviation of the noise on ζ_i in each coordinate."""
    rounds: int
    """K_i, in how many rounds the node spoke."""
    law: str = "gaussian"
    """Of the noise; where it is not plain Gaussian, σ and K are those of the plain mechanism that it comes to."""
    extra: float = 0.0
    """ε that no noise covers: of the law 'objective' only."""

    def __post_init__(self) -> None:
        """An event that no release can have is an error, not a number."""
        counts = all(isinstance(v, int) for v in (self.records, self.batch, self.rounds))
        if self.sampling not in SAMPLINGS or self.law not in LAWS or not counts:
            raise PrivacyError(f"{self} is no event of a release: sampling, law and whole numbers are expected")
        if not (1 <= self.batch <= self.records and self.rounds >= 0):
            raise PrivacyError(f"{self} is no event of a release: a batch is part of the records")
        if self.sampling == "full" and self.batch != self.records:
            raise PrivacyError(f"{self} is no event of a release: a full batch holds all records")
        if not (0 < self.clip < math.inf and 0 <= self.sigma < math.inf):
            raise PrivacyError(f"{self} is no event of a release: the clip must be over 0, σ not negative, both finite")
        if not 0 <= self.extra < math.inf or (self.extra > 0) != (self.law == "objective"):
            raise PrivacyError(
                f"{self} is no event of a release: an extra ε goes with the law 'objective', and with it only"
            )

    @property
    def rate(self) -> float:
        """γ = b/q, the chance that a given record is used in a round."""
        return 1.0 if self.sampling in ("full", "cyclic") else self.batch / self.records

    @property
    def noise_multiplier(self) -> float:
        """The noise in units of how far one record can move the mean, the only place where this is computed.

        Replacing a record moves it by at most 2L/b where the batch size is fixed. Under Poisson sampling the pair to
        compare is a record against another one, each in or out on its own: L/b from the mean without it.
        """
        reach = (1.0 if self.sampling == "poisson" else 2.0) * self.clip / self.batch
        return self.sigma / reach


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


LEVELS = 4  # nodes that differ only in how often they spoke are accounted at this many counts, each rounded up

Grouped = Sequence[tuple[Event, tuple[int, ...]]]
"""Events, and the nodes that each belongs to."""


@dataclass(frozen=True)
class Group:
    """Nodes with the same guarantee: their event, with the largest count among them, and its ε."""

    nodes: tuple[int, ...]
    event: Event
    epsilon: float


def grouped_by_event(events: list[Event]) -> list[tuple[Event, tuple[int, ...]]]:
    """Nodes whose events differ in their count alone, at a few counts each rounded up: more is never less private."""
    kinds: dict[Event, list[int]] = {}
    for i, event in enumerate(events):
        kinds.setdefault(replace(event, rounds=0), []).append(i)
    result: list[tuple[Event, tuple[int, ...]]] = []
    for nodes in kinds.values():
        counts = sorted({events[i].rounds for i in nodes})
        levels = counts[len(counts) - 1 :: -max(1, math.ceil(len(counts) / LEVELS))][::-1]
        for low, high in zip([-1, *levels], levels, strict=False):
            mine = tuple(i for i in nodes if low < events[i].rounds <= high)
            result.append((replace(events[mine[0]], rounds=high), mine))
    return result
