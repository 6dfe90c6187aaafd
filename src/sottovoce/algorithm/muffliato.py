"""Muffliato, Cyffers, Even, Bellet and Massoulié 2022: a noisy local step, then several rounds of accelerated gossip.

Round t, for all nodes:

    ζ_i = ĝ_i(x_i) + ν_i
    y⁰ = x − η_t c ζ,   y¹ = W y⁰,   y^{k+1} = ω W y^k + (1 − ω) y^{k−1}       K messages a node
    x = prox_{η_t h}( y^K )

Their repository (totilas/muffliato) and abstract were read. Its vector code starts the recursion from a zero y⁻¹, which
multiplies the mean by ω; here y¹ = W y⁰, so that the mean stays. ω comes from λ, the second smallest eigenvalue of
I − W: `acceleration`. h is our addition. Against an observer of all messages gossip is post-processing, and a round
costs what a round of descent does; their own guarantee, against a single curious node, is not claimed here.
"""

import math
from dataclasses import dataclass

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import Gradient, Mix, Round, Speaks, State
from sottovoce.algorithm.primal import Primal
from sottovoce.errors import SpecError


def acceleration(W: Array) -> tuple[int, float]:
    """K and ω for a gossip matrix: K = ⌈log n/√λ⌉, ω = 2(1 − √(λ(1 − λ/4)))/(1 − λ/2)².

    K is theirs where the models differ by no more than the noise.

    Examples
    --------
    >>> K, omega = acceleration(np.full((20, 20), 0.05))
    >>> K, round(omega, 6)
    (3, 1.071797)
    """
    n = len(W)
    if n == 1:
        return 1, 1.0
    gap = 1.0 - float(np.linalg.eigvalsh(W)[-2])
    if not gap > 0:
        raise SpecError("accelerated gossip needs a connected network; choose another graph or other weights")
    omega = 2.0 * (1.0 - math.sqrt(gap * (1.0 - gap / 4.0))) / (1.0 - gap / 2.0) ** 2
    return math.ceil(math.log(n) / math.sqrt(gap)), omega


@dataclass(frozen=True, eq=False)
class Muffliato(Primal):
    """Descent with K steps of accelerated gossip in every round.

    Attributes
    ----------
    gossip : K
    omega : ω; 1 for plain gossip
    """

    gossip: int = 1
    omega: float = 1.0

    def __post_init__(self) -> None:
        """The recursion contracts for ω in [1, 2)."""
        super().__post_init__()
        if not isinstance(self.gossip, int) or self.gossip < 1 or not 1 <= self.omega < 2:
            raise SpecError(f"gossip takes K ≥ 1 steps with ω in [1, 2), not K = {self.gossip} and ω = {self.omega}")

    @property
    def width(self) -> int:
        """K vectors, one after the other."""
        return self.gossip

    @property
    def exchanges(self) -> int:
        """K: each waits for the answers to the one before."""
        return self.gossip

    def step(
        self, state: State, t: int, nodes: IntArray, speaks: Speaks, gradient: Gradient, noise: Array, mix: Mix
    ) -> Round:
        """One round for all nodes."""
        x, eta = state.z, float(self.eta[t - 1])
        total = self.caught_up(state, t)
        zeta = gradient(x) + noise
        before = message = x - eta * self.scale[nodes][:, None] * zeta
        now = mix(before)
        for _ in range(1, self.gossip):
            before, now = now, self.omega * mix(now) + (1.0 - self.omega) * before
        new = self.prox(now, eta)
        return Round(x, zeta, message, State(new, total, np.full_like(state.since, t + 1), state.memory))
