"""Algorithm 1, private distributed dual averaging. The iteration is written once, here.

Round t, for the rows (nodes) that are active in it:

    x_i = argmin ⟨z_i, x⟩ + ιA_t h(x) + γ_t d(x)      eq. (6), on waking
    ζ_i = ĝ_i + ν_i                                   lines 2-3: clipped, sampled, noised; the only look at the data
    s_i = z_i + a_t c_i ζ_i                           line 4: the one message (c_i = 1 in the paper)
    z_i = Σ_j w_ij s_j                                eq. (5), own message included

`step` is a pure function of the active rows' state, the draws and a `mix`: the reference engine calls it on several
rows with a matrix product for `mix`, a real node on its one row with an exchange over the network. Rows that sleep
are not touched: what their x did meanwhile is made up for by `LazySum` when they wake or are looked at.

`recompute` takes x with the current A_t and γ_t, as the paper's analysis does; `as_written` keeps the x that line 7
computed at the end of the node's last active round t', with A_{t'+1} and γ_{t'+1}, as line 8 says. Since z_i has not
moved since, both are the same map evaluated at different rounds, and neither needs x to be stored.

Where the f_i are μ_f-strongly convex and h is not (the remark after Corollary 1), their curvature is moved over to h:
f_i − (μ_f/2)‖x‖² is linearised and h + (μ_f/2)‖x‖² kept exact. The node adds −μ_f x_i to its noised ζ_i, which only
uses public state.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.averages import LazySum
from sottovoce.algorithm.method import PLAIN, Gradient, Mix, Released, Round, Speaks, State
from sottovoce.algorithm.stepsizes import StepSizes
from sottovoce.errors import SpecError
from sottovoce.problem.regularisers import Distance, Euclidean, Regulariser

PRIMALS = ("recompute", "as_written")


@dataclass(frozen=True, eq=False)
class DualAveraging:
    """Everything about the iteration that does not change from round to round.

    Attributes
    ----------
    h, d : the regulariser and the distance-generating function
    steps : a_t and γ_t
    iota : ι, the probability that a node is active
    scale : c_i, public factors on each node's noised subgradient: n·w_i for the weights of the objective, times
        ῑ/ι_i where activation is uneven; all ones in the paper
    primal : 'recompute' or 'as_written'
    curvature : μ_f, the modulus of strong convexity of every f_i that is to be made use of
    """

    h: Regulariser
    steps: StepSizes
    iota: float
    scale: Array
    d: Distance = Euclidean()  # noqa: RUF009 - immutable
    primal: str = "recompute"
    curvature: float = 0.0
    synchronous: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse what has no minimiser in eq. (6), and what the analysis does not know."""
        if self.primal not in PRIMALS:
            raise SpecError(f"x of a sleeping node is '{PRIMALS[0]}' or '{PRIMALS[1]}', not {self.primal!r}")
        if not 0 < self.iota <= 1:
            raise SpecError(f"the activation probability ι must lie in (0, 1], not {self.iota}")
        if not 0 <= self.curvature < math.inf or (self.curvature > 0 and not isinstance(self.d, Euclidean)):
            raise SpecError("the curvature of f must be finite and not negative, and needs the Euclidean distance")
        if self.curvature > 0 and self.primal == "as_written":
            raise SpecError("the curvature of f can only be used with primal='recompute'")
        if np.any(self.s * self.h.modulus + self.steps.gamma + self.stiffness <= 0):
            raise SpecError(
                "γ_t = 0 needs a strongly convex h: take γ over 0, such as gamma=constant(20) with l2 or "
                "gamma=sqrt(0.01) without"
            )

    @property
    def T(self) -> int:
        """Rounds that the step sizes are for."""
        return self.steps.T

    @property
    def released(self) -> Released:
        """ζ_i = ĝ_i + ν_i."""
        return PLAIN

    @property
    def width(self) -> int:
        """One vector, s_i."""
        return 1

    @property
    def exchanges(self) -> int:
        """One a round."""
        return 1

    @cached_property
    def s(self) -> Array:
        """ιA_t of rounds 1 … T, the weight of h in eq. (6)."""
        return self.iota * self.steps.A[1:]

    @cached_property
    def stiffness(self) -> Array:
        """ιA_t μ_f: the strong convexity taken over from the f_i."""
        return self.s * self.curvature

    @cached_property
    def modulus(self) -> Array:
        """μιA_t + γ_t, the strong convexity of eq. (6) in rounds 1 … T."""
        return self.s * self.h.modulus + self.steps.gamma + self.stiffness

    @cached_property
    def _lazy(self) -> LazySum:
        return LazySum(self.h, self.d, self.steps.a, self.s, self.steps.gamma, self.stiffness)

    def start(self, rows: int, m: int) -> State:
        """Line 1: z_i^(1) = 0."""
        self.d.check(self.h, m)
        return State.zeros(rows, m)

    def x(self, z: Array, t: int | IntArray) -> Array:
        """eq. (6): the primal point of each row of z, in round t (one for all rows, or one for each)."""
        at = np.asarray(t) - 1
        s, gamma, stiffness = (
            v[at] if at.ndim == 0 else v[at, None] for v in (self.s, self.steps.gamma, self.stiffness)
        )
        return self.d.step(self.h, z, s, gamma, stiffness)

    def step(
        self, state: State, t: int, nodes: IntArray, speaks: Speaks, gradient: Gradient, noise: Array, mix: Mix
    ) -> Round:
        """One round for the active rows, which belong to the given nodes."""
        x = self.x(state.z, t if self.primal == "recompute" else state.since)
        total = state.total + self.slept(state, t)
        zeta = gradient(x) + noise
        direction = zeta - self.curvature * np.where(speaks[:, None], x, 0.0) if self.curvature else zeta
        message = state.z + self.steps.a[t - 1] * self.scale[nodes][:, None] * direction
        return Round(x, zeta, message, State(mix(message), total, np.full_like(state.since, t + 1), state.memory))

    def slept(self, state: State, t: int) -> Array:
        """Σ a_τ x_i^(τ) over the rounds since … t, in which z_i stood still."""
        if self.primal == "recompute":
            return self._lazy(state.z, state.since, t)
        frozen = np.minimum(state.since, self.steps.T)
        weight = self.steps.A[t] - self.steps.A[np.minimum(state.since - 1, t)]
        return weight[:, None] * self.x(state.z, frozen)

    def average(self, state: State, t: int) -> Array:
        """x̃_i^(t) = A_t⁻¹ Σ_{τ≤t} a_τ x_i^(τ), the output of Algorithm 1, for a state after round t."""
        return (state.total + self.slept(state, t)) / self.steps.A[t]

    def passes(self, state: State) -> float | None:
        """As its rounds and batches say."""
        return None
