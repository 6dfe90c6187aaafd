"""DP-SCAFFOLD, Noble, Bellet and Dieuleveut 2022: local steps corrected by what the other nodes' gradients were.

Round t, for all nodes, with messages in every K-th round only:

    ζ_i = ĝ_i(y_i) + ν_i
    y_i = prox_{η_t h}( y_i − η_t (c_i ζ_i − k_i + k) )                         K times, alone; then
    k_i = mean of the node's last K perturbed c_i ζ_i,   k = Σ_j w_ij k_j,   y_i = Σ_j w_ij y_j

Their repository and README were read (Karimireddy's option II, of which k_i as a mean of perturbed gradients is another
way of writing). Theirs has a server that averages a sample of users; here all take part in every exchange and W = 11ᵀ/n
(the complete graph) is that server. Controls are post-processing. With a warm start the first exchanges only build the
controls, from all gradients so far, and the model stays. The prox is taken after each local step; h is our addition.
"""

from dataclasses import dataclass

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import Gradient, Mix, Round, Speaks, State
from sottovoce.algorithm.primal import Primal
from sottovoce.errors import SpecError


@dataclass(frozen=True, eq=False)
class Scaffold(Primal):
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
