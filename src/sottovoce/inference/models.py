"""Models with intervals: the slope ψ of a record's loss and its expected curvature w, as functions of u = xᵀθ.

Slopes are made of operations that IEEE 754 rounds in one way (`secure.functions`): a record's contribution to a release
is the same bits wherever it stands.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sottovoce._types import Array
from sottovoce.secure.functions import exp


class Model(Protocol):
    """What the procedure needs of a model."""

    @property
    def steepest(self) -> float:
        """ψ_max, the bound on |ψ|."""

    def slope(self, u: Array, y: Array) -> Array:
        """ψ."""

    def curvature(self, u: Array) -> Array:
        """w, the derivative of ψ's mean in u at the true model."""

    def bend(self, u: Array) -> Array:
        """w′."""


@dataclass(frozen=True)
class Logistic:
    """Two classes: ψ = p − [y > 0], w = p(1 − p).

    Examples
    --------
    >>> Logistic().slope(np.zeros(2), np.array([-1.0, 1.0])), Logistic().curvature(np.zeros(1))
    (array([ 0.5, -0.5]), array([0.25]))
    """

    steepest: float = 1.0

    def slope(self, u: Array, y: Array) -> Array:
        """p − [y > 0]."""
        return np.asarray(1.0 / (1.0 + exp(-u)) - (y > 0))

    def curvature(self, u: Array) -> Array:
        """p(1 − p)."""
        p = 1.0 / (1.0 + exp(-u))
        return np.asarray(p * (1.0 - p))

    def bend(self, u: Array) -> Array:
        """w(1 − 2p)."""
        p = 1.0 / (1.0 + exp(-u))
        return np.asarray(p * (1.0 - p) * (1.0 - 2.0 * p))


@dataclass(frozen=True)
class Clipped:
    """A regression with residuals clipped at c: ψ = −clip(y − u, ±c), which is linear in u where it is not clipped."""

    steepest: float

    def slope(self, u: Array, y: Array) -> Array:
        """−clip(y − u, ±c)."""
        return np.asarray(np.clip(u - y, -self.steepest, self.steepest))

    def curvature(self, u: Array) -> Array:
        """1 where nothing is clipped; how many are not is released."""
        return np.ones_like(u)

    def bend(self, u: Array) -> Array:
        """None."""
        return np.zeros_like(u)
