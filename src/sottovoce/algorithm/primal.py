"""What descent methods share: a state that is the model itself, which stands still while a node sleeps.

So Σ a_τ x_i^(τ) over the rounds slept is (A_t − A_{t'}) x_i, and a regulariser enters by its proximal map. These
methods came without a non-smooth h; taking prox_{ηh} after mixing is post-processing of what was already noised, and
costs no privacy.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sottovoce._types import Array
from sottovoce.algorithm.method import State
from sottovoce.algorithm.stepsizes import prefix_sums
from sottovoce.errors import SpecError
from sottovoce.problem.regularisers import Regulariser


@dataclass(frozen=True, eq=False)
class Primal:
    """A method that steps the models themselves.

    Attributes
    ----------
    h : the regulariser, taken by its proximal map
    a : a_t, the weights of the running average that is put out
    eta : η_t, the step sizes
    scale : c_i, public factors on each node's noised subgradient, as in dual averaging
    """

    h: Regulariser
    a: Array
    eta: Array
    scale: Array

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
    def shape(self) -> tuple[Array, Array] | None:
        """ζ_i = ĝ_i + ν_i, unless a method says otherwise."""
        return None

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
