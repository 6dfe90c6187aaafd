"""Output and objective perturbation: not iterations, but a minimiser and noise, in one round of one node.

They go through the same release, calibration and statement as every method: what is released is the minimiser of F with
noise on it, or the minimiser of F with noise on its linear term (Chaudhuri, Monteleoni and Sarwate 2011). Neither clips
anything on the way, so that a clip, which would make the noise smaller, is refused.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import Gradient, Mix, Released, Round, Speaks, State
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.problem.objective import Problem
from sottovoce.problem.optimum import GapError, optimum
from sottovoce.problem.regularisers import Separable

GAP = 1e-11  # to which the minimiser of output perturbation is certified; in the sensitivity
STILL = 1e-11  # the gradient at which a perturbed objective counts as minimised; in the noise on the minimiser


@dataclass(frozen=True, eq=False)
class OneShot:
    """A model in one look at all records of one node.

    Attributes
    ----------
    problem : of one node
    rounds : must be one
    row : √(R² + B²), the bound of a row
    """

    problem: Problem
    rounds: int
    row: float
    synchronous: ClassVar[bool] = True
    width: ClassVar[int] = 1
    exchanges: ClassVar[int] = 1
    T: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """A problem that has one minimiser, in one place."""
        if self.problem.shards.n != 1 or self.rounds != 1:
            raise SpecError(
                f"a one-shot method is one round of one trusted place with all records, not {self.rounds} rounds of "
                f"{self.problem.shards.n} nodes; merge the nodes' records and ask for one round"
            )
        if not isinstance(self.problem.h, Separable) or self.problem.h.mu == 0:
            raise PrivacyError("a one-shot method needs a strongly convex h with a certified optimum, such as l2")

    @property
    def mu(self) -> float:
        """μ."""
        return self.problem.h.modulus

    @property
    def records(self) -> int:
        """N."""
        return int(self.problem.shards.sizes[0])

    def start(self, rows: int, m: int) -> State:
        """Nothing yet; the memory counts passes over the data."""
        return State.zeros(rows, m, 1)

    def _done(self, x: Array, noise: Array, passes: int) -> Round:
        memory = np.zeros((1, 1, len(x)))
        memory[0, 0, 0] = passes
        return Round(x[None], noise, x[None], State(x[None], x[None], np.array([2]), memory))

    def stride(self, t: int) -> float:
        """It is let out as it is."""
        return 1.0

    def average(self, state: State, t: int) -> Array:
        """The one model."""
        return state.z

    def passes(self, state: State) -> float | None:
        """Of the minimiser."""
        return float(state.memory[0, 0, 0])


class OutputPerturbation(OneShot):
    """argmin F + ν."""

    @property
    def released(self) -> Released:
        """Two minimisers of data that differ in one record are within 2L/(μN), each known to √(2·gap/μ)."""
        slack = self.records * math.sqrt(2.0 * GAP / self.mu)
        return Released(iterates=False, reach=lambda L: L / self.mu + slack)

    def step(
        self, state: State, t: int, nodes: IntArray, speaks: Speaks, gradient: Gradient, noise: Array, mix: Mix
    ) -> Round:
        """Minimise, then perturb."""
        best = optimum(self.problem, gap=GAP)
        return self._done(best.x + noise[0], noise, best.passes)


class ObjectivePerturbation(OneShot):
    """argmin F(x) + ⟨ν, x⟩, and a second vector of noise that covers how well it is known."""

    def __post_init__(self) -> None:
        """What its proof covers."""
        super().__post_init__()
        h, shards = self.problem.h, self.problem.shards
        if not isinstance(h, Separable) or h.phi > 0 or h.bounded or shards.people or self.problem.outputs > 1:
            raise PrivacyError("a perturbed objective is priced for h = l2, one output, and records as units")

    @property
    def curvature(self) -> float:
        """βR², the largest curvature that one record has."""
        return self.problem.loss.smoothness * self.row**2

    @property
    def released(self) -> Released:
        """The noise as on a mean of all gradients; what the minimiser gives away besides is an extra ε."""
        return Released(iterates=False, curvature=(self.curvature, self.records * self.mu))

    def step(
        self, state: State, t: int, nodes: IntArray, speaks: Speaks, gradient: Gradient, noise: Array, mix: Mix
    ) -> Round:
        """Perturb, then minimise; the second vector of noise is in units of how far off the minimiser may be."""
        b, blur = np.split(noise[0], 2)
        x, passes = self._minimise(b)
        return self._done(x + STILL / self.mu * blur, noise, passes)

    def _minimise(self, b: Array) -> tuple[Array, int]:
        """argmin F(x) + ⟨b, x⟩ to a gradient of norm `STILL`, by Nesterov's method for a μ-strongly convex function."""
        root = math.sqrt(self.mu / (self.curvature + self.mu))
        momentum = (1.0 - root) / (1.0 + root)
        x = before = np.zeros_like(b)
        most = math.ceil(100.0 / root)
        for made in range(1, most + 1):
            y = x + momentum * (x - before)
            g = self.problem.gradient(y) + self.mu * y + b
            if np.linalg.norm(g) <= STILL:
                return y, made
            before, x = x, y - g / (self.curvature + self.mu)
        raise GapError(f"the perturbed objective's gradient is still {np.linalg.norm(g):.1e} after {most} steps")
