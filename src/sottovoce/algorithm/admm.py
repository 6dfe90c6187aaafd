"""Xiao and Devadas 2021, linearised decentralised ADMM with mixup on the updates. A *reconstruction*.

Round t, for all nodes, with κ = 1/η_t + 2c:

    v_i = prox_{h/κ}( x_i − [ĝ_i(x_i) + α_i + c(x_i − Σ_j w_ij x_j)] / κ )     the linearised primal minimiser
    x_i = λ_t v_i + (1 − λ_t) x_i + ν_i                                     mixed, perturbed, and sent to all neighbours
    α_i = α_i + c(x_i − Σ_j w_ij x_j)                                       the multipliers, with the new x

The penalty of the link (i, j) is c·w_ij; what a node would have to itself, c·w_ii, only adds to the proximal term.
Since a node steps from its own perturbed x_i, nothing that it keeps is private but its records. The prox and the mean
with x_i do not expand, so that one record moves x_i by at most 2Lλ_t/(κq): this is output perturbation.

Of the source only the abstract could be read (see `mixup`): the linearisation, the place of the noise and the law of
λ_t are inferred. h is our addition. Where the objective weighs nodes by c_i, subgradient and noise are both scaled.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import Gradient, Mix, Round, Speaks, State
from sottovoce.algorithm.mixup import mixing_weights
from sottovoce.algorithm.primal import Primal
from sottovoce.errors import SpecError


@dataclass(frozen=True, eq=False)
class Admm(Primal):
    """Linearised consensus ADMM; a node remembers α_i and the mean Σ_j w_ij x_j that it heard last.

    Attributes
    ----------
    penalty : c, the price of disagreement
    lo : the least λ_t; 1 for no mixup
    """

    penalty: float = 1.0
    lo: float = 0.5

    def __post_init__(self) -> None:
        """A penalty is a price."""
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
    def shape(self) -> tuple[Array, Array]:
        """What is released moves with ĝ_i by at most λ_t/κ_t of it."""
        return self.weights / self.kappa, np.ones(self.T)

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
