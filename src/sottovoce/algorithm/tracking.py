"""Gradient tracking on noisy gradients: each node follows the mean gradient of all, and steps along that.

Round t, for all nodes:

    ζ_i = ĝ_i(x_i) + ν_i
    y_i = Σ_j w_ij y_j + c_i (ζ_i − ζ_i of the round before)          the mean of the y_i is that of the c_i ζ_i
    x_i = prox_{η_t h}( Σ_j w_ij x_j − η_t y_i )                      x_i and y_i are sent, in one message

The variant of Ding, Zhu, He, Chen and Guan 2022 that can be priced: they keep a noise-free y_i and mask the messages
only, and their adjacency (costs whose gradients differ by a constant) does not cover a replaced record. Here gradients
are perturbed before anything else is done with them, so that tracking is post-processing. h is our addition.
"""

from dataclasses import dataclass

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import Gradient, Mix, Round, Speaks, State
from sottovoce.algorithm.primal import Primal


@dataclass(frozen=True, eq=False)
class Tracking(Primal):
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
