"""Algorithm 1, private distributed dual averaging. The iteration is written once, here.

Round t, for the rows (nodes) that are active in it:

    x_i = argmin ⟨z_i, x⟩ + ιA_t h(x) + γ_t d(x)      eq. (6), on waking
    ζ_i = ĝ_i + ν_i                                   lines 2-3: clipped, sampled, noised; the only access to the data
    s_i = z_i + a_t c_i ζ_i                           line 4: the one message (c_i = 1 in the paper)
    z_i = Σ_j w_ij s_j                                eq. (5), own message included

`step` is a pure function of the active rows' state, the draws and a `mix`: the reference engine calls it on several
rows with a matrix product for `mix`, a real node on its one row with an exchange over the network. Rows that sleep
are not touched: what their x did meanwhile is made up for by `LazySum` when they wake or are examined.

`recompute` takes x with the current A_t and γ_t, as the paper's analysis does; `as_written` keeps the x that line 7
computed at the end of the node's last active round t', with A_{t'+1} and γ_{t'+1}, as line 8 says. Since z_i has not
moved since, both are the same map evaluated at different rounds, and neither needs x to be stored.

Where the f_i are μ_f-strongly convex and h is not (the remark after Corollary 1), their curvature is moved over to h:
f_i − (μ_f/2)‖x‖² is linearised and h + (μ_f/2)‖x‖² kept exact. The node adds −μ_f x_i to its noised ζ_i, which only
uses public state.

*Lazy running averages*, Σ_{τ=t0}^{t1} a_τ x(z, τ) for a z that did not move, without visiting the rounds: while a node
sleeps its z_i stands still, but its x_i^(τ) = argmin ⟨z_i, x⟩ + s_τ h + γ_τ d drifts with s_τ = ιA_τ and γ_τ. For the
separable family and the l2 ball the sum over a stretch of rounds has a closed form in prefix sums of a/den, a·s/den and
a, with den_τ = s_τ μ + γ_τ: in each coordinate |x| shrinks monotonically, so the rounds at which it leaves its bound,
and at which it reaches zero, are found by bisection. Other sets are evaluated round by round.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import PLAIN, Gradient, Mix, Released, Round, Speaks, State, StepSizes, prefix_sums
from sottovoce.errors import SpecError
from sottovoce.problem.regularizers import Distance, Euclidean, L2Ball, Regularizer, Separable

CHUNK = 256  # rounds evaluated at a time where there is no closed form


class LazySum:
    """The weighted sum of x(z, τ) over a stretch of rounds, for fixed (h, d, a, s, γ).

    Parameters
    ----------
    h, d : regularizer and distance
    a, s, gamma : a_t (or w_t, where not all rounds count as much), ιA_t and γ_t of rounds 1 … T
    stiffness : extra modulus in each round (ιA_t μ_f where the f_i are strongly convex), zero otherwise
    """

    def __init__(self, h: Regularizer, d: Distance, a: Array, s: Array, gamma: Array, stiffness: Array) -> None:
        self.h, self.d, self.a, self.s, self.gamma, self.stiffness = h, d, a, s, gamma, stiffness
        self.den = s * h.modulus + gamma + stiffness
        self.A, self.P, self.Q = (prefix_sums(v) for v in (a, a / self.den, a * s / self.den))
        center = d.center if isinstance(d, Euclidean) else None
        still = bool(np.all(gamma == gamma[0]))  # then a center only shifts z, once and for all
        self._shift = gamma[0] * np.asarray(center) if center is not None and still else 0.0
        closed = isinstance(d, Euclidean) and (center is None or still)
        self._sum = self._by_rounds
        if closed and isinstance(h, Separable):
            self._sum = self._separable
        elif closed and isinstance(h, L2Ball):
            self._sum = self._ball

    def __call__(self, z: Array, t0: IntArray, t1: int) -> Array:
        """Σ_{τ=t0}^{t1} a_τ x(z, τ); one z and one t0 a row; zero where t0 > t1."""
        return self._sum(z, np.asarray(t0), t1)

    def _separable(self, z: Array, t0: IntArray, t1: int) -> Array:
        h, z = self.h, z - self._shift
        assert isinstance(h, Separable)
        before = np.minimum(t0 - 1, t1)[:, None]
        if h.phi == 0 and not h.bounded:  # l2: x is −z/den throughout
            return -z * (self.P[t1] - self.P[before])
        size = np.abs(z)
        # last round in which the threshold has not yet swallowed |z|
        alive = np.searchsorted(self.s, size / h.phi) if h.phi > 0 else np.full(z.shape, t1)
        alive = np.clip(alive, before, t1)
        down = np.where(z > 0, -1.0, 1.0)  # the direction of x
        if not h.bounded:
            return down * self._interior(size, before, alive)
        total = np.zeros_like(z)
        for sign, top, bottom in ((1.0, h.hi, h.lo), (-1.0, -h.lo, -h.hi)):
            held = self._rounds_held(size, top, before, t1)  # |x| still at its bound `top`
            freed = np.maximum(self._rounds_above(size, bottom, before, t1), held)  # |x| already at `bottom` > 0
            end = np.clip(alive, held, freed)
            part = self._interior(size, held, end)
            part += _times(top, self.A[held] - self.A[before])
            if bottom > 0:
                part += bottom * (self.A[t1] - self.A[freed])
            total = np.where(down == sign, sign * part, total)
        return total

    def _interior(self, size: Array, start: IntArray, end: IntArray) -> Array:
        """Σ a (|z| − sφ)/den over rounds start + 1 … end."""
        phi = self.h.phi if isinstance(self.h, Separable) else 0.0
        return size * (self.P[end] - self.P[start]) - phi * (self.Q[end] - self.Q[start])

    def _rounds_held(self, size: Array, top: float, before: IntArray, t1: int) -> IntArray:
        """Last round in which (|z| − sφ)₊/den ≥ top, within the stretch."""
        if top <= 0:
            return np.full(size.shape, t1)
        if np.isinf(top):
            return np.broadcast_to(before, size.shape)
        return np.clip(np.searchsorted(self._level(top), size, side="right"), before, t1)

    def _rounds_above(self, size: Array, bottom: float, before: IntArray, t1: int) -> IntArray:
        """Last round in which (|z| − sφ)₊/den > bottom, within the stretch; all of it where bottom ≤ 0."""
        if bottom <= 0:
            return np.full(size.shape, t1)
        return np.clip(np.searchsorted(self._level(bottom), size, side="left"), before, t1)

    def _level(self, bound: float) -> Array:
        """s_τ φ + bound·den_τ, the |z| at which x sits at the bound in round τ; non-decreasing in τ."""
        assert isinstance(self.h, Separable)
        return self.s * self.h.phi + bound * self.den

    def _ball(self, z: Array, t0: IntArray, t1: int) -> Array:
        assert isinstance(self.h, L2Ball)
        z = z - self._shift
        need = np.linalg.norm(z, axis=-1) / self.h.radius
        before = np.minimum(t0 - 1, t1)
        held = np.clip(np.searchsorted(self.den, need), before, t1)  # on the sphere while den < ‖z‖/R
        with np.errstate(divide="ignore", invalid="ignore"):
            sphere = np.where(held > before, (self.A[held] - self.A[before]) / need, 0.0)
        return -z * (sphere + self.P[t1] - self.P[held])[:, None]

    def _by_rounds(self, z: Array, t0: IntArray, t1: int) -> Array:
        total = np.zeros_like(z)
        for row, first in enumerate(t0):
            for start in range(int(first) - 1, t1, CHUNK):
                at = slice(start, min(start + CHUNK, t1))
                x = self.d.step(
                    self.h, z[row][None, :], self.s[at, None], self.gamma[at, None], self.stiffness[at, None]
                )
                total[row] += self.a[at] @ x
        return total


def _times(bound: float, weight: Array) -> Array:
    """bound · weight, with 0 for ∞·0 (a bound that is never reached)."""
    return np.where(weight > 0, bound, 0.0) * weight


PRIMALS = ("recompute", "as_written")


@dataclass(frozen=True, eq=False)
class DualAveraging:
    """Everything about the iteration that does not change from round to round.

    Attributes
    ----------
    h, d : the regularizer and the distance-generating function
    steps : a_t and γ_t
    iota : ι, the probability that a node is active
    scale : c_i, public factors on each node's noised subgradient: n·w_i for the weights of the objective, times
        ῑ/ι_i where activation is uneven; all ones in the paper
    primal : 'recompute' or 'as_written'
    curvature : μ_f, the modulus of strong convexity of every f_i that is to be made use of
    """

    h: Regularizer
    steps: StepSizes
    iota: float
    scale: Array
    d: Distance = Euclidean()  # noqa: RUF009 - immutable
    primal: str = "recompute"
    curvature: float = 0.0
    synchronous: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse what has no minimizer in eq. (6), and what the analysis does not know."""
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

    def stride(self, t: int) -> float:
        """a_t."""
        return float(self.steps.a[t - 1])

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
        return LazySum(self.h, self.d, self.steps.w, self.s, self.steps.gamma, self.stiffness)

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
        total = state.total + self._counted(state, t, x)
        zeta = gradient(x) + noise
        direction = zeta - self.curvature * np.where(speaks[:, None], x, 0.0) if self.curvature else zeta
        message = state.z + self.steps.a[t - 1] * self.scale[nodes][:, None] * direction
        return Round(x, zeta, message, State(mix(message), total, np.full_like(state.since, t + 1), state.memory))

    def _counted(self, state: State, t: int, x: Array) -> Array:
        """What rounds since … t add to the running sums: of rows that were awake in the round before, this x alone."""
        awake = state.since == t
        if self.primal != "recompute" or not awake.any():
            return self.slept(state, t)
        now = self.steps.w[t - 1] * x
        return now if awake.all() else np.where(awake[:, None], now, self.slept(state, t))

    def slept(self, state: State, t: int) -> Array:
        """Σ w_τ x_i^(τ) over the rounds since … t, in which z_i stood still."""
        if self.primal == "recompute":
            return self._lazy(state.z, state.since, t)
        frozen = np.minimum(state.since, self.steps.T)
        weight = self.steps.W[t] - self.steps.W[np.minimum(state.since - 1, t)]
        return weight[:, None] * self.x(state.z, frozen)

    def average(self, state: State, t: int) -> Array:
        """x̃_i^(t) = W_t⁻¹ Σ_{τ≤t} w_τ x_i^(τ), the output of Algorithm 1 (where w is a), for a state after round t.

        Before the first round that counts it is x_i^(t) itself.
        """
        if self.steps.W[t] == 0:
            return self.x(state.z, t)
        if np.all(state.since > t):  # everybody was awake to the last
            return state.total / self.steps.W[t]
        return (state.total + self.slept(state, t)) / self.steps.W[t]

    def passes(self, state: State) -> float | None:
        """As its rounds and batches say."""
        return None
