"""How much noise: from what a spec says to a σ_i for every node.

``private(ε)``: as much as a true (ε, δ) needs. ``gaussian(σ, …)``: one σ for all, or one for each node.
``theorem1(ε, δ₀)``: the paper's formula, with the claims that it makes. ``none``: no noise, which protects nobody.
"""

import math
from dataclasses import dataclass
from typing import Protocol

from sottovoce._types import IntArray
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.notation import Choices, write
from sottovoce.privacy import calibration
from sottovoce.privacy.events import Event
from sottovoce.privacy.release import NodeTurns, Release
from sottovoce.privacy.theorem1 import Theorem1

Scales = tuple[tuple[float, ...], tuple[Theorem1, ...]]
"""σ_i for every node, and the claims of Theorem 1 where that is where they come from."""


@dataclass(frozen=True, eq=False)
class Circumstances:
    """What is known of a run before its noise is.

    Attributes
    ----------
    unit : the release at σ = 1
    sizes, spoken : q_i, and K_i, in how many rounds node i speaks
    delta : δ
    iota, rounds : ι and T
    turns : in which rounds a node speaks
    """

    unit: Release
    sizes: IntArray
    spoken: IntArray
    delta: float
    iota: float
    rounds: int
    turns: NodeTurns | None = None


class Noise(Protocol):
    """An amount of noise as a spec holds it."""

    def scales(self, of: Circumstances) -> Scales:
        """σ_i for every node of a run."""


@dataclass(frozen=True)
class NoNoise:
    """Nothing."""

    def __str__(self) -> str:
        """In a spec."""
        return "none"

    def scales(self, of: Circumstances) -> Scales:
        """Zeros."""
        return (0.0,) * len(of.sizes), ()


@dataclass(frozen=True)
class GivenNoise:
    """One σ for all nodes, or one for each."""

    sigma: tuple[float, ...]

    def __post_init__(self) -> None:
        """Numbers that are scales."""
        if not self.sigma or not all(0 <= s < math.inf for s in self.sigma):
            raise SpecError(
                f"noise '{self}' is malformed; write 'gaussian(σ)' or 'gaussian(σ_0, σ_1, …)' with finite numbers that "
                "are not negative"
            )

    def __str__(self) -> str:
        """In a spec."""
        return write("gaussian", *self.sigma)

    def scales(self, of: Circumstances) -> Scales:
        """As given."""
        n = len(of.sizes)
        if len(self.sigma) not in (1, n):
            raise SpecError(f"noise '{self}' has {len(self.sigma)} numbers for {n} nodes; give one, or one for each")
        return tuple(float(s) for s in self.sigma) * (n // len(self.sigma)), ()


@dataclass(frozen=True)
class Private:
    """As much as (ε, δ) needs; nodes of one size share a σ, the one that the neediest of them needs."""

    epsilon: float

    def __post_init__(self) -> None:
        """A budget."""
        if not 0 < self.epsilon < math.inf:
            raise PrivacyError(f"a budget epsilon is finite and over 0, not {self.epsilon}")

    def __str__(self) -> str:
        """In a spec."""
        return write("private", self.epsilon)

    def scales(self, of: Circumstances) -> Scales:
        """By calibration, once for all nodes of a size and of a reach, with the largest count among them."""
        neediest: dict[tuple[int, float], Event] = {}
        for event in of.unit.events(of.sizes, of.spoken, of.turns):
            key = event.records, event.noise_multiplier
            if key not in neediest or neediest[key].count < event.count:
                neediest[key] = event
        needed: dict[int, float] = {}
        for (q, _), event in neediest.items():
            needed[q] = max(needed.get(q, 0.0), calibration.sigma(event, self.epsilon, of.delta))
        if of.unit.law.secrets:  # what two nodes cancel must have one scale
            return (max(needed.values()),) * len(of.sizes), ()
        return tuple(needed[q] for q in of.sizes.tolist()), ()


@dataclass(frozen=True)
class PaperNoise:
    """σ of Theorem 1, for the ε that it claims."""

    epsilon: float
    delta0: float = 0.01

    def __str__(self) -> str:
        """In a spec."""
        return write("theorem1", self.epsilon, self.delta0)

    def scales(self, of: Circumstances) -> Scales:
        """By the formula, with its claims."""
        claims = tuple(Theorem1(self.epsilon, self.delta0, of.iota, of.unit.clip, int(q), of.rounds) for q in of.sizes)
        return tuple(claim.sigma for claim in claims), claims


def _given(*sigma: float) -> GivenNoise:
    return GivenNoise(sigma)


NOISES: Choices[Noise] = Choices(
    "noise", {"none": NoNoise, "gaussian": _given, "private": Private, "theorem1": PaperNoise}
)
