"""Descent methods in which all nodes take part in every round, each with its round t.

Where a method came without a non-smooth h, the proximal map is our addition, as in `descent`.

`Tracking`: gradient tracking on noisy gradients; each node follows the mean gradient of all, and steps along that.

    ζ_i = ĝ_i(x_i) + ν_i
    y_i = Σ_j w_ij y_j + c_i (ζ_i − ζ_i of the round before)          the mean of the y_i is that of the c_i ζ_i
    x_i = prox_{η_t h}( Σ_j w_ij x_j − η_t y_i )                      x_i and y_i are sent, in one message

The variant of Ding, Zhu, He, Chen and Guan 2022 that can be accounted: they keep a noise-free y_i and mask the messages
only, and their adjacency (costs whose gradients differ by a constant) does not cover a replaced record. Here gradients
are perturbed before anything else is done with them, so that tracking is post-processing.

`Scaffold`: DP-SCAFFOLD, Noble, Bellet and Dieuleveut 2022; local steps corrected by what the other nodes' gradients
were, with messages in every K-th round only.

    ζ_i = ĝ_i(y_i) + ν_i
    y_i = prox_{η_t h}( y_i − η_t (c_i ζ_i − k_i + k) )                         K times, alone; then
    k_i = mean of the node's last K perturbed c_i ζ_i,   k = Σ_j w_ij k_j,   y_i = Σ_j w_ij y_j

Their repository and README were read (Karimireddy's option II, of which k_i as a mean of perturbed gradients is another
way of writing). Theirs has a server that averages a sample of users; here all take part in every exchange and W = 11ᵀ/n
(the complete graph) is that server. Controls are post-processing. With a warm start the first exchanges only build the
controls, from all gradients so far, and the model stays. The prox is taken after each local step.

`Muffliato`: Cyffers, Even, Bellet and Massoulié 2022; a noisy local step, then several rounds of accelerated gossip.

    ζ_i = ĝ_i(x_i) + ν_i
    y⁰ = x − η_t c ζ,   y¹ = W y⁰,   y^{k+1} = ω W y^k + (1 − ω) y^{k−1}       K messages a node
    x = prox_{η_t h}( y^K )

Their repository (totilas/muffliato) and abstract were read. Its vector code starts the recursion from a zero y⁻¹, which
multiplies the mean by ω; here y¹ = W y⁰, so that the mean stays. ω comes from λ, the second smallest eigenvalue of
I − W: `acceleration`. Against an observer of all messages gossip is post-processing, and a round costs what a round of
descent does; their own guarantee, against a single curious node, is not claimed here.

`Huang`: Huang, Mitra and Vaidya 2015 ("Differentially private distributed optimization", ICDCN), with their geometric
steps, from z_i = 0.

    y_i = prox_{η_t h}( z_i − η_t ĝ_i(z_i) ) + ν_i,    ν_i of scale σρ^t       the one message
    z_i = Σ_j w_ij y_j                                                   own noisy message included

with η_t = c·r^{t−1} and r < ρ < 1. They take Laplace noise, for pure ε: the run spends Σ_t 2L√m η_t/(q σρ^t), which
stays finite for ever. Gaussian noise of the same shape is the variant for (ε, δ). The last z_i is put out: the noise
dies away.

A *reconstruction*: the text was not at hand; order and sequences were read off two public re-implementations. Both put
the number of agents under the root of the L1 sensitivity where the dimension m belongs; ours has m. Theirs protects an
agent's whole cost function, ours one record, hence the q. They project onto a compact set where we take the prox of h.
Where the objective weighs nodes by c_i, subgradient and noise are both scaled.

`Admm`: Xiao and Devadas 2021, linearised decentralised ADMM with mixup on the updates, κ = 1/η_t + 2c. A
*reconstruction*.

    v_i = prox_{h/κ}( x_i − [ĝ_i(x_i) + α_i + c(x_i − Σ_j w_ij x_j)] / κ )     the linearised primal minimizer
    x_i = λ_t v_i + (1 − λ_t) x_i + ν_i                                     mixed, perturbed, and sent to all neighbors
    α_i = α_i + c(x_i − Σ_j w_ij x_j)                                       the multipliers, with the new x

The penalty of the link (i, j) is c·w_ij; what a node would have to itself, c·w_ii, only adds to the proximal term.
Since a node steps from its own perturbed x_i, nothing that it keeps is private but its records. The prox and the mean
with x_i do not expand, so that one record moves x_i by at most 2Lλ_t/(κq): this is output perturbation.

Of the source only the abstract could be read (see `Mixup`): the linearisation, the place of the noise and the law of
λ_t are inferred. Where the objective weighs nodes by c_i, subgradient and noise are both scaled.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.descent import Primal, mixing_weights
from sottovoce.algorithm.method import Gradient, Mix, Released, Round, Speaks, State
from sottovoce.errors import SpecError


class Synchronous(Primal):
    """A descent method in which all nodes take part in every round."""

    synchronous: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class Tracking(Synchronous):
    """Gradient tracking; a node remembers Σ_j w_ij y_j and its last ζ_i."""

    @property
    def width(self) -> int:
        """Two vectors, x_i and y_i."""
        return 2

    def start(self, rows: int, m: int) -> State:
        """x_i = y_i = 0."""
        return State.zeros(rows, m, 2)

    def step(
        self, state: State, t: int, nodes: IntArray, speaks: Speaks, gradient: Gradient, noise: Array, mix: Mix
    ) -> Round:
        """One round for all nodes."""
        x, eta, m = state.z, float(self.eta[t - 1]), state.z.shape[1]
        total = self.caught_up(state, t)
        zeta = gradient(x) + noise
        direction = self.scale[nodes][:, None] * zeta
        y = state.memory[:, 0] + direction - state.memory[:, 1]
        message = np.concatenate([x, y], axis=1)
        mixed = mix(message)
        new = self.prox(mixed[:, :m] - eta * y, eta)
        memory = np.stack([mixed[:, m:], direction], axis=1)
        return Round(x, zeta, message, State(new, total, np.full_like(state.since, t + 1), memory))


@dataclass(frozen=True, eq=False)
class Scaffold(Synchronous):
    """Local steps with controls; a node remembers k_i, k and the sum of its c_i ζ_i since the last exchange.

    Attributes
    ----------
    every : K, after how many rounds there are messages
    warm : exchanges that only build the controls
    """

    every: int = 1
    warm: int = 0

    def __post_init__(self) -> None:
        """Exchanges are counted."""
        super().__post_init__()
        if not (isinstance(self.warm, int) and 0 <= self.warm * self.every < self.T):
            raise SpecError(f"a warm start takes some, not all, of the exchanges, a whole number of them: {self.warm}")

    @property
    def width(self) -> int:
        """Two vectors, y_i and k_i."""
        return 2

    def start(self, rows: int, m: int) -> State:
        """y_i = k_i = k = 0."""
        return State.zeros(rows, m, 3)

    def step(
        self, state: State, t: int, nodes: IntArray, speaks: Speaks, gradient: Gradient, noise: Array, mix: Mix
    ) -> Round:
        """One round for all nodes."""
        y, eta, m = state.z, float(self.eta[t - 1]), state.z.shape[1]
        own, everybody, gathered = np.moveaxis(state.memory, 1, 0)
        total = self.caught_up(state, t)
        zeta = gradient(y) + noise
        direction = self.scale[nodes][:, None] * zeta
        warming = t <= self.warm * self.every
        new = y if warming else self.prox(y - eta * (direction - own + everybody), eta)
        gathered = gathered + direction
        message = np.concatenate([new, gathered / (t if warming else self.every)], axis=1)
        if t % self.every == 0:
            mixed = mix(message)
            new, own, everybody = mixed[:, :m], message[:, m:], mixed[:, m:]
            gathered = gathered if t < self.warm * self.every else np.zeros_like(gathered)
        memory = np.stack([own, everybody, gathered], axis=1)
        return Round(y, zeta, message, State(new, total, np.full_like(state.since, t + 1), memory))


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
class Muffliato(Synchronous):
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
        """K vectors, sequentially."""
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


@dataclass(frozen=True, eq=False)
class Huang(Synchronous):
    """Gradient descent whose models are perturbed, with noise that dies away.

    Attributes
    ----------
    rho : ρ, by which the noise shrinks from round to round
    """

    rho: float = 0.9

    def __post_init__(self) -> None:
        """Noise that grows is not theirs."""
        super().__post_init__()
        if not 0 < self.rho <= 1:
            raise SpecError(f"the ratio ρ of the noise must be over 0 and at most 1, not {self.rho}")

    @property
    def released(self) -> Released:
        """The prox does not expand: what is released moves by at most η_t times what ĝ_i does."""
        return Released((self.eta, self.rho ** np.arange(1.0, self.T + 1)), at_once=False)

    def step(
        self, state: State, t: int, nodes: IntArray, speaks: Speaks, gradient: Gradient, noise: Array, mix: Mix
    ) -> Round:
        """One round for all nodes."""
        z, eta, scale = state.z, float(self.eta[t - 1]), self.scale[nodes][:, None]
        y = self.prox(z - eta * scale * gradient(z), eta) + scale * noise
        return Round(z, y, y, State(mix(y), state.total, np.full_like(state.since, t + 1), state.memory))

    def average(self, state: State, t: int) -> Array:
        """z_i, the last one."""
        return state.z


@dataclass(frozen=True, eq=False)
class Admm(Synchronous):
    """Linearised consensus ADMM; a node remembers α_i and the mean Σ_j w_ij x_j that it heard last.

    Attributes
    ----------
    penalty : c, the cost of disagreement
    lo : the least λ_t; 1 for no mixup
    """

    penalty: float = 1.0
    lo: float = 0.5

    def __post_init__(self) -> None:
        """A penalty is a cost."""
        super().__post_init__()
        if not self.penalty > 0:
            raise SpecError(f"the penalty of ADMM must be over 0, not {self.penalty}")

    @cached_property
    def weights(self) -> Array:
        """λ_1 … λ_T."""
        return mixing_weights(self.lo, self.T)

    @cached_property
    def kappa(self) -> Array:
        """1/η_t + 2c."""
        return 1.0 / self.eta + 2.0 * self.penalty

    @property
    def released(self) -> Released:
        """What is released moves with ĝ_i by at most λ_t/κ_t of it."""
        return Released((self.weights / self.kappa, np.ones(self.T)), at_once=False)

    def start(self, rows: int, m: int) -> State:
        """x_i = α_i = 0."""
        return State.zeros(rows, m, 2)

    def step(
        self, state: State, t: int, nodes: IntArray, speaks: Speaks, gradient: Gradient, noise: Array, mix: Mix
    ) -> Round:
        """One round for all nodes."""
        x, (alpha, heard) = state.z, np.moveaxis(state.memory, 1, 0)
        scale, kappa, weight = self.scale[nodes][:, None], self.kappa[t - 1], self.weights[t - 1]
        total = self.caught_up(state, t)
        pull = scale * gradient(x) + alpha + self.penalty * (x - heard)
        v = self.prox(x - pull / kappa, 1.0 / kappa)
        sent = weight * v + (1.0 - weight) * x + scale * noise
        heard = mix(sent)
        memory = np.stack([alpha + self.penalty * (sent - heard), heard], axis=1)
        return Round(x, sent, sent, State(sent, total, np.full_like(state.since, t + 1), memory))
