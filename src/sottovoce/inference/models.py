"""Models with intervals: the slope ψ of a record's loss and its expected curvature w, as functions of u = xᵀθ.

Slopes are made of operations that IEEE 754 rounds in one way (`secure.functions`): a record's contribution to a release
is the same bits wherever it stands.
"""

from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array
from sottovoce.secure.functions import exp

LOWEST_LOG_RATE = -12.0
"""Of the tables of a Poisson model; rates below are as good as this one."""


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


@dataclass(frozen=True)
class Poisson:
    """Counts with mean μ = min(e^u, c), whose errors are clipped: ψ = a(μ) − clip(y − μ, ±c).

    a(μ) is the mean of clip(Y − μ, ±c) for Poisson counts Y, so that clipping biases nothing; w is the mean of
    clip(Y − μ, ±c)(Y − μ), by which the mean of ψ changes with u. Both are read off a table by straight lines.

    Attributes
    ----------
    cap : c, public
    """

    cap: float

    @property
    def _table(self) -> tuple[Array, Array, Array]:
        return _clipped_counts(self.cap)

    @property
    def steepest(self) -> float:
        """c and the largest |a|."""
        return self.cap + float(np.abs(self._table[1]).max())

    def mean(self, u: Array) -> Array:
        """μ."""
        return np.minimum(exp(u), self.cap)

    def slope(self, u: Array, y: Array) -> Array:
        """a(μ) − clip(y − μ, ±c)."""
        mu = self.mean(u)
        return np.asarray(np.interp(u, *self._table[:2]) - np.clip(y - mu, -self.cap, self.cap))

    def curvature(self, u: Array) -> Array:
        """w; 0 where the mean is capped."""
        at, _, w = self._table
        return np.where(u >= at[-1], 0.0, np.interp(u, at, w))

    def bend(self, u: Array) -> Array:
        """w′, by differences."""
        return np.asarray((self.curvature(u + 1e-3) - self.curvature(u - 1e-3)) / 2e-3)


@cache
def _clipped_counts(cap: float) -> tuple[Array, Array, Array]:
    """u, and of Poisson counts Y of mean e^u the means a of clip(Y − μ, ±c) and w of clip(Y − μ, ±c)(Y − μ)."""
    u = np.linspace(LOWEST_LOG_RATE, float(np.log(cap)), 4001)
    mu = np.exp(u)
    counts = np.arange(int(cap + 12.0 * np.sqrt(cap) + 20.0) + 1.0)
    chances = np.exp(counts * u[:, None] - mu[:, None] - scipy.special.gammaln(counts + 1.0))
    errors = counts - mu[:, None]
    clipped = np.clip(errors, -cap, cap)
    return u, np.sum(chances * clipped, axis=1), np.sum(chances * clipped * errors, axis=1)
