"""The two sequences of Algorithm 1, a_t and γ_t, as arrays of length T: data, not callbacks.

a_t = t with constant γ is for a strongly convex h (Corollaries 1 and 3; the experiments take γ = 20), a_t = 1 with
γ_t = γ√t for a merely convex one (Corollaries 2 and 4; γ = 0.01).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import TypeAlias

import numpy as np

from sottovoce._types import Array
from sottovoce.errors import SpecError
from sottovoce.notation import Choices, Chosen


@dataclass(frozen=True, eq=False)
class StepSizes:
    """a_t > 0 and γ_t ≥ 0, both non-decreasing; element t − 1 belongs to round t."""

    a: Array
    gamma: Array

    def __post_init__(self) -> None:
        """The conditions under which Lemma 5 and everything after it hold."""
        if len(self.a) != len(self.gamma) or len(self.a) == 0:
            raise SpecError(f"a_t and γ_t need one value a round, but have {len(self.a)} and {len(self.gamma)}")
        if not (np.all(self.a > 0) and np.all(np.diff(self.a) >= 0)):
            raise SpecError("the weights a_t must be positive and must not decrease")
        if not (np.all(self.gamma >= 0) and np.all(np.diff(self.gamma) >= 0)):
            raise SpecError("the parameters γ_t must not be negative and must not decrease")

    @property
    def T(self) -> int:
        """Number of rounds."""
        return len(self.a)

    @cached_property
    def A(self) -> Array:
        """A_t = Σ_{τ≤t} a_τ, with A_0 = 0 in front: element t belongs to round t."""
        return prefix_sums(self.a)


def prefix_sums(values: Array) -> Array:
    """0, v_1, v_1 + v_2, …, summed in extended precision where the machine has it: a million terms lose no digit."""
    return np.concatenate([[0.0], np.cumsum(values, dtype=np.longdouble).astype(np.float64)])


def _sequence(formula: Callable[..., Array]) -> Callable[..., Array]:
    """The formula over rounds 1 … T."""

    @wraps(formula)
    def over(rounds: int, **numbers: float) -> Array:
        if not isinstance(rounds, int) or rounds < 1:
            raise SpecError(f"a run needs a whole number of rounds, at least one round, not {rounds}")
        return formula(np.arange(1, rounds + 1, dtype=np.float64), **numbers)

    return over


_FORMULAS: dict[str, Callable[..., Array]] = {
    "constant": lambda t, c=1.0: np.full_like(t, c),
    "linear": lambda t, c=1.0: c * t,
    "sqrt": lambda t, c=1.0: c * np.sqrt(t),
    "inverse_sqrt": lambda t, c=1.0: c / np.sqrt(t),
    "inverse": lambda t, c=1.0, t0=0.0: c / (t + t0),
    "geometric": lambda t, c=1.0, r=0.99: c * r ** (t - 1),
}

Sequence: TypeAlias = Chosen[int, Array]
"""From the number of rounds T to one value for each."""

SEQUENCES = Choices.of_functions("sequence", {name: _sequence(formula) for name, formula in _FORMULAS.items()})
"""Sequences over rounds 1 … T: constant(c); linear(c) = c·t; sqrt(c) = c√t; inverse_sqrt(c) = c/√t;
inverse(c, t₀) = c/(t + t₀); geometric(c, r) = c·rᵗ⁻¹.

Examples
--------
>>> SEQUENCES.read("linear(1)")(4)
array([1., 2., 3., 4.])
>>> SEQUENCES.read("inverse(6, 1)")(3)
array([3. , 2. , 1.5])
"""


def constant(c: float) -> Sequence:
    """c in every round."""
    return SEQUENCES.make("constant", c)


def linear(c: float) -> Sequence:
    """c·t in round t."""
    return SEQUENCES.make("linear", c)


def inverse_sqrt(c: float) -> Sequence:
    """c/√t in round t."""
    return SEQUENCES.make("inverse_sqrt", c)
