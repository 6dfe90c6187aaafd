"""Decentralised stochastic gradient descent, the control: dual averaging's opponent with the same messages and noise.

Round t, for the rows (nodes) that are active in it:

    ζ_i = ĝ_i(x_i) + ν_i                              clipped, sampled, noised: the only look at the data
    x_i = prox_{η_t h}( Σ_j w_ij (x_j − η_t c_j ζ_j) )         adapt, then combine
    x_i = prox_{η_t h}( Σ_j w_ij x_j − η_t c_i ζ_i )           combine, then adapt (`combine_first`)

With one node speaking a tick and one neighbour listening (`ticks`), the second is A(DP)²SGD (Xu, Zhang and Wang 2020):
worker and neighbour average their models, then the worker steps with the gradient it took before.
"""

from dataclasses import dataclass

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import Gradient, Mix, Round, Speaks, State
from sottovoce.algorithm.primal import Primal


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
