"""Descent methods by gossip: the state is the model itself, which stands still while a node sleeps.

So Σ a_τ x_i^(τ) over the rounds slept is (A_t − A_{t'}) x_i, and a regularizer enters by its proximal map (`Primal`).
These methods came without a non-smooth h; taking prox_{ηh} after mixing is post-processing of what was already noised,
and costs no privacy. Their rounds t, for the rows (nodes) that are active in them:

`Descent`: decentralised stochastic gradient descent, the control, dual averaging's opponent with the same messages
and noise.

    ζ_i = ĝ_i(x_i) + ν_i                              clipped, sampled, noised: the only access to the data
    x_i = prox_{η_t h}( Σ_j w_ij (x_j − η_t c_j ζ_j) )         adapt, then combine
    x_i = prox_{η_t h}( Σ_j w_ij x_j − η_t c_i ζ_i )           combine, then adapt (`combine_first`)

With one node speaking a tick and one neighbor listening (`ticks`), the last is A(DP)²SGD (Xu, Zhang and Wang 2020):
worker and neighbor average their models, then the worker steps with the gradient it took before.

`Stale`: A(DP)²SGD with stale gradients. In its turn a worker averages its model with a neighbor's and then steps along
a gradient taken at the model that it had τ turns earlier, as if the computation had taken that long:

    ζ_i = ĝ_i(x_i of τ turns ago) + ν_i,    x_i = prox_{η_t h}( Σ_j w_ij x_j − η_t c_i ζ_i )

Old models are as public as new ones, so that the accounting does not change. With τ = 0 this is `combine_first`. Their
staleness is bounded and otherwise arbitrary; one that is the same for all is the choice here.

`Mixup`: Xiao and Devadas 2021, decentralised gradient descent with mixup on the updates. A *reconstruction*.

    ζ_i = λ_t ĝ_i(x_i) + ν_i                          the update is mixed with "no update", then perturbed
    x_i = prox_{λ_t η_t h}( Σ_j w_ij x_j − η_t c_i ζ_i )

Of the source ("Towards understanding practical randomness beyond noise: differential privacy and mixup", ePrint
2021/687) and of its forerunner (arXiv 1902.06101) no more than the abstracts could be read: what is mixed, how λ_t is
distributed and which noise is added are inferred. λ_t ~ U[lo, 1] is drawn from a public seed and given to the
adversary, so that it makes a public change of the sensitivity, 2Lλ_t/b, which is accounted exactly; no amplification is
claimed for it. Its h shrinks with λ_t as the update does: else the two would not balance at the optimum.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import PLAIN, Gradient, Mix, Released, Round, Speaks, State, prefix_sums
from sottovoce.errors import SpecError
from sottovoce.problem.regularizers import Regularizer


@dataclass(frozen=True, eq=False)
class Primal:
    """A method that steps the models themselves.

    Attributes
    ----------
    h : the regularizer, taken by its proximal map
    a : a_t, the weights of the running average that is put out
    eta : η_t, the step sizes
    scale : c_i, public factors on each node's noised subgradient, as in dual averaging
    """

    h: Regularizer
    a: Array
    eta: Array
    scale: Array
    synchronous: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Step sizes and weights are positive numbers, one a round."""
        if len(self.a) != len(self.eta) or len(self.a) == 0:
            raise SpecError(f"a_t and η_t need one value a round, but have {len(self.a)} and {len(self.eta)}")
        if not (np.all(self.a > 0) and np.all(self.eta > 0) and np.all(np.isfinite(self.eta))):
            raise SpecError("the weights a_t and the step sizes η_t must be positive and finite")

    @property
    def T(self) -> int:
        """Rounds that the step sizes are for."""
        return len(self.a)

    @property
    def released(self) -> Released:
        """ζ_i = ĝ_i + ν_i, unless a method says otherwise."""
        return PLAIN

    def stride(self, t: int) -> float:
        """η_t."""
        return float(self.eta[t - 1])

    @property
    def width(self) -> int:
        """One vector, the model."""
        return 1

    @property
    def exchanges(self) -> int:
        """One a round."""
        return 1

    @cached_property
    def A(self) -> Array:
        """A_t, with A_0 = 0 in front."""
        return prefix_sums(self.a)

    def start(self, rows: int, m: int) -> State:
        """x_i = 0."""
        return State.zeros(rows, m)

    def prox(self, v: Array, eta: float) -> Array:
        """prox_{ηh}(v) = argmin ηh(x) + ‖x − v‖²/2, row by row."""
        return self.h.step(-v, eta, 1.0)

    def caught_up(self, state: State, t: int) -> Array:
        """Σ_{τ≤t} a_τ x_i^(τ), for models that have not moved since they were last summed."""
        return state.total + (self.A[t] - self.A[np.minimum(state.since - 1, t)])[:, None] * state.z

    def average(self, state: State, t: int) -> Array:
        """A_t⁻¹ Σ_{τ≤t} a_τ x_i^(τ), for a state after round t."""
        return self.caught_up(state, t) / self.A[t]

    def passes(self, state: State) -> float | None:
        """As its rounds and batches say."""
        return None


@dataclass(frozen=True, eq=False)
class Descent(Primal):
    """Gradient descent by gossip.

    Attributes
    ----------
    combine_first : whether a node mixes before it steps
    """

    combine_first: bool = False

    def step(
        self, state: State, t: int, nodes: IntArray, speaks: Speaks, gradient: Gradient, noise: Array, mix: Mix
    ) -> Round:
        """One round for the active rows, which belong to the given nodes."""
        x, eta = state.z, float(self.eta[t - 1])
        total = self.caught_up(state, t)
        zeta = gradient(x) + noise
        push = -eta * self.scale[nodes][:, None] * zeta
        message = x if self.combine_first else x + push
        mixed = mix(message) + (push if self.combine_first else 0.0)
        new = np.where(speaks[:, None], self.prox(mixed, eta), mixed)
        return Round(x, zeta, message, State(new, total, np.full_like(state.since, t + 1), state.memory))


@dataclass(frozen=True, eq=False)
class Stale(Descent):
    """Descent along old gradients; a node remembers its last τ models.

    Attributes
    ----------
    turns : τ
    """

    combine_first: bool = True
    turns: int = 1

    def __post_init__(self) -> None:
        """Nobody reads the future."""
        super().__post_init__()
        if not isinstance(self.turns, int) or self.turns < 1:
            raise SpecError(f"staleness is a whole number of turns, at least 1, not {self.turns}; 0 is combine_first")

    def start(self, rows: int, m: int) -> State:
        """All models that were ever read are 0."""
        return State.zeros(rows, m, self.turns)

    def step(
        self, state: State, t: int, nodes: IntArray, speaks: Speaks, gradient: Gradient, noise: Array, mix: Mix
    ) -> Round:
        """One round for the active rows, which belong to the given nodes."""
        read = state.memory[:, 0]
        done = super().step(state, t, nodes, speaks, lambda _: gradient(read), noise, mix)
        turned = np.concatenate([state.memory[:, 1:], state.z[:, None]], axis=1)
        memory = np.where(speaks[:, None, None], turned, state.memory)
        return Round(read, done.zeta, done.message, done.state._replace(memory=memory))


PUBLIC_SEED = 687  # everybody knows the λ_t; the same ones in every run


def mixing_weights(lo: float, rounds: int) -> Array:
    """λ_1 … λ_T, uniform on [lo, 1] and public.

    Examples
    --------
    >>> mixing_weights(1.0, 3)
    array([1., 1., 1.])
    """
    if not 0 < lo <= 1:
        raise SpecError(f"mixup draws its weights between lo and 1, with lo over 0 and at most 1, not {lo}")
    return np.random.default_rng(PUBLIC_SEED).uniform(lo, 1.0, rounds)


@dataclass(frozen=True, eq=False)
class Mixup(Primal):
    """Gradient descent by gossip whose updates are scaled at random, in public.

    Attributes
    ----------
    lo : the least λ_t
    """

    lo: float = 0.5

    @cached_property
    def weights(self) -> Array:
        """λ_1 … λ_T."""
        return mixing_weights(self.lo, self.T)

    @property
    def released(self) -> Released:
        """ζ_i = λ_t ĝ_i + ν_i."""
        return Released((self.weights, np.ones(self.T)))

    def step(
        self, state: State, t: int, nodes: IntArray, speaks: Speaks, gradient: Gradient, noise: Array, mix: Mix
    ) -> Round:
        """One round for the active rows, which belong to the given nodes."""
        x, eta, weight = state.z, float(self.eta[t - 1]), float(self.weights[t - 1])
        total = self.caught_up(state, t)
        zeta = weight * gradient(x) + noise
        mixed = mix(x) - eta * self.scale[nodes][:, None] * zeta
        new = np.where(speaks[:, None], self.prox(mixed, weight * eta), mixed)
        return Round(x, zeta, x, State(new, total, np.full_like(state.since, t + 1), state.memory))
