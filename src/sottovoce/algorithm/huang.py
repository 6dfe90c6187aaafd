"""Huang, Mitra and Vaidya 2015 ("Differentially private distributed optimization", ICDCN), with their geometric steps.

Round t, for all nodes, from z_i = 0:

    y_i = prox_{η_t h}( z_i − η_t ĝ_i(z_i) ) + ν_i,    ν_i of scale σρ^t       the one message
    z_i = Σ_j w_ij y_j                                                   own noisy message included

with η_t = c·r^{t−1} and r < ρ < 1. They take Laplace noise, for pure ε: the run spends Σ_t 2L√m η_t/(q σρ^t), which
stays finite for ever. Gaussian noise of the same shape is the variant for (ε, δ). The last z_i is put out: the noise
dies away.

A *reconstruction*: the text was not at hand; order and sequences were read off two public re-implementations. Both put
the number of agents under the root of the L1 sensitivity where the dimension m belongs; ours has m. Theirs protects an
agent's whole cost function, ours one record, hence the q. They project onto a compact set where we take the prox of h.
Where the objective weighs nodes by c_i, subgradient and noise are both scaled.
"""

from dataclasses import dataclass

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import Gradient, Mix, Round, Speaks, State
from sottovoce.algorithm.primal import Primal
from sottovoce.errors import SpecError


@dataclass(frozen=True, eq=False)
class Huang(Primal):
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
    def shape(self) -> tuple[Array, Array]:
        """The prox does not expand: what is released moves by at most η_t times what ĝ_i does."""
        return self.eta, self.rho ** np.arange(1.0, self.T + 1)

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
