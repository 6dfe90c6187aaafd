"""Output and objective perturbation: not iterations, but a minimizer and noise, in one round of one node.

They go through the same release, calibration and statement as every method: what is released is the minimizer of F with
noise on it, or the minimizer of F with noise on its linear term (Chaudhuri, Monteleoni and Sarwate 2011). Neither clips
anything on the way, so that a clip, which would make the noise smaller, is refused.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import Gradient, Mix, Released, Round, Speaks, State
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.matrices import is_sparse
from sottovoce.problem.losses import is_built_in
from sottovoce.problem.objective import Problem, PublicProblem
from sottovoce.problem.optimum import GapError, Optimum, optimum
from sottovoce.problem.regularizers import Separable

GAP = 1e-11  # to which the minimizer of output perturbation is certified; in the sensitivity
STILL = 1e-11  # the gradient at which a perturbed objective counts as minimized; in the noise on the minimizer
NARROW = 1 << 10  # coordinates up to which a Hessian is made
FASTER = 0.5  # of the gradient a step with a Hessian of somewhere else must leave no more, or there is a new one
HALVES = 12  # a step that is still too long is left to Nesterov's method
APART = 1e-4  # margins whose slopes are distinguished, for the curvature between them


@dataclass(frozen=True, eq=False)
class OneShot:
    """A model in an inspection of all records of one node.

    Attributes
    ----------
    problem : of one node
    rounds : must be one
    row : √(R² + B²), the bound of a row
    data : the problem with its records, which a run has and a plan has not
    """

    problem: PublicProblem
    rounds: int
    row: float
    data: Problem | None = None
    synchronous: ClassVar[bool] = True
    width: ClassVar[int] = 1
    exchanges: ClassVar[int] = 1
    T: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """A problem that has one minimizer, in one place."""
        if self.problem.n != 1 or self.rounds != 1:
            raise SpecError(
                f"a one-shot method is one round of one trusted place with all records, not {self.rounds} rounds of "
                f"{self.problem.n} nodes; merge the nodes' records and ask for one round"
            )
        if not is_built_in(self.problem.loss):  # nothing is clipped here: its formulas are part of the mechanism
            raise PrivacyError(
                f"a one-shot method needs a built-in loss: its guarantee rests on the convexity and the bounds of the "
                f"loss, and nothing checks those of '{self.problem.loss.name}'; take a method with rounds"
            )
        if not isinstance(self.problem.h, Separable) or self.problem.h.mu == 0:
            raise PrivacyError("a one-shot method needs a strongly convex h with a certified optimum, such as l2")

    @property
    def whole(self) -> Problem:
        """The problem with its records."""
        if self.data is None:
            raise SpecError("a one-shot method minimizes over records, and its plan has none; make a job of it")
        return self.data

    @property
    def mu(self) -> float:
        """μ."""
        return self.problem.h.modulus

    @property
    def records(self) -> int:
        """N."""
        return int(self.problem.sizes[0])

    def start(self, rows: int, m: int) -> State:
        """Nothing yet; the memory counts passes over the data."""
        return State.zeros(rows, m, 1)

    def _done(self, x: Array, noise: Array, passes: int) -> Round:
        memory = np.zeros((1, 1, len(x)))
        memory[0, 0, 0] = passes
        return Round(x[None], noise, x[None], State(x[None], x[None], np.array([2]), memory))

    def stride(self, t: int) -> float:
        """It is released as it is."""
        return 1.0

    def average(self, state: State, t: int) -> Array:
        """The one model."""
        return state.z

    def passes(self, state: State) -> float | None:
        """Of the minimizer."""
        return float(state.memory[0, 0, 0])


class OutputPerturbation(OneShot):
    """argmin F + ν."""

    @property
    def released(self) -> Released:
        """Two minimizers of data that differ in one record are within 2L/(μN), each known to √(2·gap/μ)."""
        slack = self.records * math.sqrt(2.0 * GAP / self.mu)
        return Released(iterates=False, reach=lambda L: L / self.mu + slack)

    def step(
        self, state: State, t: int, nodes: IntArray, speaks: Speaks, gradient: Gradient, noise: Array, mix: Mix
    ) -> Round:
        """Minimize, then perturb."""
        return self._done(self.best.x + noise[0], noise, self.best.passes)

    @cached_property
    def best(self) -> Optimum:
        """argmin F, found once for all runs that differ in their noise."""
        return optimum(self.whole, gap=GAP)


class ObjectivePerturbation(OneShot):
    """argmin F(x) + ⟨ν, x⟩, and a second vector of noise that covers how well it is known."""

    def __post_init__(self) -> None:
        """What its proof covers."""
        super().__post_init__()
        h = self.problem.h
        if not isinstance(h, Separable) or h.phi > 0 or h.bounded or self.problem.people or self.problem.outputs > 1:
            raise PrivacyError("a perturbed objective is accounted for h = l2, one output, and records as units")

    @property
    def curvature(self) -> float:
        """βR², the largest curvature that one record has."""
        return self.problem.loss.smoothness * self.row**2

    @property
    def released(self) -> Released:
        """The noise as on a mean of all gradients; what the minimizer gives away besides is an extra ε."""
        return Released(iterates=False, curvature=(self.curvature, self.records * self.mu))

    def step(
        self, state: State, t: int, nodes: IntArray, speaks: Speaks, gradient: Gradient, noise: Array, mix: Mix
    ) -> Round:
        """Perturb, then minimize; the second vector of noise is in units of how far off the minimizer may be."""
        b, noise_rtol = np.split(noise[0], 2)
        x, passes = self._minimize(b)
        return self._done(x + STILL / self.mu * noise_rtol, noise, passes)

    def _minimize(self, b: Array) -> tuple[Array, int]:
        """argmin F(x) + ⟨b, x⟩ to a gradient of norm `STILL`, by Nesterov's method for a μ-strongly convex function.

        It begins where Newton's method has come to, which is mostly there already.
        """
        root = math.sqrt(self.mu / (self.curvature + self.mu))
        momentum = (1.0 - root) / (1.0 + root)
        x, passes = self._near(b)
        before, most = x, math.ceil(100.0 / root)
        for made in range(1, most + 1):
            y = x + momentum * (x - before)
            g = self._gradient(y, b)
            if np.linalg.norm(g) <= STILL:
                return y, passes + made
            before, x = x, y - g / (self.curvature + self.mu)
        raise GapError(f"the perturbed objective's gradient is still {np.linalg.norm(g):.1e} after {most} steps")

    def _near(self, b: Array) -> tuple[Array, int]:
        """A point near the minimizer, and passes over the data; 0 where a Hessian would be too large."""
        if len(b) > NARROW or is_sparse(self.whole.shards.X):
            return np.zeros_like(b), 0
        x, hessian, before = self._silent
        x, passes = self._newton(b, x, hessian)
        return x, before + passes

    @cached_property
    def _silent(self) -> tuple[Array, Any, int]:
        """What minimizes F itself, the Hessian there, and passes: once for all runs that differ in their noise."""
        nothing = np.zeros(self.problem.m)
        x, passes = self._newton(nothing, nothing, None)
        return x, self._hessian(x), passes + 1

    def _newton(self, b: Array, x: Array, hessian: Any) -> tuple[Array, int]:
        """Steps from x, as long as they leave less of the gradient; (point, passes).

        The Hessian may be that of another place. Along a step with x's own the gradient shrinks at first, so that one
        which is too long is halved.
        """
        g, passes = self._gradient(x, b), 1
        while np.linalg.norm(g) > STILL:
            own = hessian is None
            if own:
                hessian, passes = self._hessian(x), passes + 1
            step, left = scipy.linalg.cho_solve(hessian, g), math.inf
            for share in 0.5 ** np.arange(HALVES if own else 1):
                ahead, passes = x - share * step, passes + 1
                further = self._gradient(ahead, b)
                left = float(np.linalg.norm(further) / np.linalg.norm(g))
                if left < 1.0:
                    x, g = ahead, further
                    break
            if own and left >= 1.0:
                break
            hessian = hessian if left <= FASTER else None
        return x, passes

    def _gradient(self, x: Array, b: Array) -> Array:
        return self.whole.gradient(x) + self.mu * x + b

    def _hessian(self, x: Array) -> Any:
        """Its Cholesky factor at x; how the loss is curved is the difference of two slopes."""
        problem, shards = self.whole, self.whole.shards
        u = problem.margins(x)
        curved = np.subtract(*(problem.loss.slope(u + side, shards.y) for side in (APART, -APART))) / (2.0 * APART)
        rows = shards.margins(np.eye(shards.m))  # with their intercept
        H = shards.pull((problem.record_weights * curved)[:, None] * rows)
        return scipy.linalg.cho_factor(H + self.mu * np.eye(shards.m))
