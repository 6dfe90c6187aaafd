"""A(DP)²SGD with stale gradients (Xu, Zhang and Wang 2020): what a worker read some of its own turns ago.

In its turn a worker averages its model with a neighbour's and then steps along a gradient taken at the model that it
had τ turns earlier, as if the computation had taken that long:

    ζ_i = ĝ_i(x_i of τ turns ago) + ν_i,    x_i = prox_{η_t h}( Σ_j w_ij x_j − η_t c_i ζ_i )

Old models are as public as new ones, so that the accounting does not change. With τ = 0 this is `combine_first`. Their
staleness is bounded and otherwise arbitrary; one that is the same for all is the choice here.
"""

from dataclasses import dataclass

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.descent import Descent
from sottovoce.algorithm.method import Gradient, Mix, Round, Speaks, State
from sottovoce.errors import SpecError


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
