"""Distance-generating functions d ≥ 0, strongly convex with modulus 1, and the dual step under each.

eq. (6): x = argmin ⟨z, x⟩ + ιA_t h(x) + γ_t d(x). The regulariser knows the step for d = ‖x‖²/2; a distance turns
its own step into that one, or, like the entropy, has one of its own.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array
from sottovoce.errors import SpecError
from sottovoce.problem.regularisers import Regulariser, Simplex


class Distance(Protocol):
    """What the algorithm asks of a d."""

    def value(self, x: Array) -> float:
        """d(x)."""

    def step(self, h: Regulariser, z: Array, s: Any, gamma: Any, stiffness: Any = 0.0) -> Array:
        """argmin ⟨z, x⟩ + s·h(x) + γ·d(x) + stiffness·‖x‖²/2."""

    def check(self, h: Regulariser, m: int) -> None:
        """Refuse an h, or a dimension, that this d cannot serve."""


@dataclass(frozen=True)
class Euclidean:
    """d(x) = ‖x − x₀‖²/2; x₀ is the origin unless a centre (a public first guess) is given."""

    centre: tuple[float, ...] | None = None

    def value(self, x: Array) -> float:
        """d(x)."""
        shift = x if self.centre is None else x - np.asarray(self.centre)
        return 0.5 * float(np.dot(shift, shift))

    def step(self, h: Regulariser, z: Array, s: Any, gamma: Any, stiffness: Any = 0.0) -> Array:
        """The regulariser's own step, after completing the square."""
        if self.centre is not None:
            z = z - gamma * np.asarray(self.centre)
        return h.step(z, s, gamma + stiffness)

    def check(self, h: Regulariser, m: int) -> None:
        """A centre must have the model's dimension."""
        if self.centre is not None and len(self.centre) != m:
            raise SpecError(f"the centre has {len(self.centre)} coordinates, but the model has {m}; give one for each")
        if self.centre is not None and not np.all(np.isfinite(self.centre)):
            raise SpecError("the centre must have finite coordinates")


@dataclass(frozen=True)
class Entropy:
    """d(x) = Σ x_k log x_k + log m on the unit simplex; its step is a softmax."""

    def value(self, x: Array) -> float:
        """d(x); zero at the uniform point."""
        return float(np.sum(scipy.special.xlogy(x, x))) + math.log(len(x))

    def step(self, h: Regulariser, z: Array, s: Any, gamma: Any, stiffness: Any = 0.0) -> Array:
        """softmax(−z/γ)."""
        return np.asarray(scipy.special.softmax(-z / gamma, axis=-1))

    def check(self, h: Regulariser, m: int) -> None:
        """The entropy lives on the unit simplex."""
        if not (isinstance(h, Simplex) and h.radius == 1.0):
            raise SpecError("the entropy is a distance on the unit simplex only; use h = simplex or d = euclidean")


DISTANCES = {"euclidean": Euclidean, "entropy": Entropy}
