"""What one round gives away: the worst pair (P, Q) of output laws of each mechanism, as tails of its privacy loss.

A record is replaced; P and Q are the laws of one round's output with the one and with the other, ℓ = log dP/dQ is
the loss. Everything an accountant needs is P(ℓ > t) and Q(ℓ > t): the profile is δ(ε) = P(ℓ > ε) − e^ε Q(ℓ > ε), and
moving probability onto a grid needs only their differences. The second one is handed out as e^t Q(ℓ > t), which is
at most P(ℓ > t) and neither under- nor overflows. A symmetric pair has Q(ℓ > t) = P(ℓ < −t), so t ≥ 0 says it all.

A pair is a value: two rounds with equal pairs are rounds of one mechanism.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import scipy  # not its parts: they load when first used
from numpy.typing import NDArray

from sottovoce._types import Array
from sottovoce.errors import PrivacyError

EPS = float(np.finfo(np.float64).eps)


class Tails(NamedTuple):
    """The tails of a loss at the points t."""

    p: Array
    """P(ℓ > t)."""
    q: Array
    """e^t Q(ℓ > t)."""
    slip: Array
    """A bound on the relative rounding error of both."""


@dataclass(frozen=True)
class Pair(ABC):
    """The two output distributions of one round of a mechanism, given by the tails of their privacy loss."""

    multiplier: float
    """z, the noise over the sensitivity; 0 is no noise, for which ε is infinite and there are no tails."""
    symmetric: ClassVar[bool] = True
    """Whether exchanging P and Q mirrors the loss; if so only t ≥ 0 is ever evaluated."""
    bounded: ClassVar[bool] = False
    """Whether no loss is over 1/z: pure DP, which adds up."""

    def __post_init__(self) -> None:
        """What has no known cost is an error."""
        if not 0 <= self.multiplier < math.inf:
            raise PrivacyError(f"a noise multiplier is finite and not negative, not {self.multiplier}")

    @abstractmethod
    def tails(self, t: Array) -> Tails:
        """P(ℓ > t) and e^t Q(ℓ > t)."""

    @property
    def realized(self) -> "Pair":
        """A pair that one round of the mechanism really produces: nothing below its profile can be promised."""
        return self

    @property
    def apart(self) -> float | None:
        """How far apart the means are where P and Q are nothing but two normal laws, for which there are formulas."""
        return None

    def guess(self, apart: float) -> float:
        """Estimate the multiplier of a round that reveals as much as two normal laws this far apart."""
        return 1.0 / apart

    @property
    def least(self) -> float:
        """Where a pair that isn't symmetric has its smallest loss."""
        return 0.0

    @property
    def atom(self) -> float:
        """A loss that has a probability of its own, which a grid should hit; 0 for none."""
        return 0.0

    def delta(self, epsilon: Array | float) -> Array:
        """The profile δ(ε); below 0 by symmetry, δ(ε) = 1 − e^ε + e^ε δ(−ε) (Dong, Roth and Su 2022)."""
        at = np.atleast_1d(np.asarray(epsilon, dtype=np.float64))
        points = np.abs(at) if self.symmetric else np.maximum(at, self.least)
        p, q, _ = self.tails(points)
        above = np.maximum(p - q, 0.0)
        if self.symmetric:
            return np.where(at >= 0, above, -np.expm1(np.minimum(at, 0.0)) + np.exp(np.minimum(at, 0.0)) * above)
        return np.where(at > self.least, above, -np.expm1(np.minimum(at, self.least)))


@dataclass(frozen=True)
class _Sampled(Pair):
    rate: float = 1.0
    """γ, the chance that a given record is used."""

    def __post_init__(self) -> None:
        """A rate is a probability."""
        super().__post_init__()
        if not 0 < self.rate <= 1:
            raise PrivacyError(f"a sampling rate is over 0 and at most 1, not {self.rate}")


@dataclass(frozen=True)
class FixedPair(_Sampled):
    """Fixed-size sampling without replacement, replace-one: the symmetrised pair, valid under composition.

    For e^ε ≥ 1 its profile is γ δ_Gauss(ε'), e^ε' = 1 + (e^ε − 1)/γ, which every instance obeys: by advanced joint
    convexity H_α(P‖P') = γ H_α'(N(g) ‖ a mixture of Gaussians with centers within 2L/b of g), and H is convex in its
    second argument. Below 1 the profile of the pair exchanged is the same, whence the mirror image (the operator C_γ
    of Dong, Roth and Su 2022). A profile that bounds every instance from above is that of a dominating pair, and
    dominating pairs compose (Zhu, Dong and Wang 2022, Theorem 10). At rate 1 it is the Gaussian mechanism itself.

    Examples
    --------
    >>> FixedPair(1.0, rate=0.01).delta([0.0, 0.5]).round(6)
    array([0.003829, 0.      ])
    """

    def tails(self, t: Array) -> Tails:
        """Those of a record that is removed."""
        return _removed(self.rate, self.multiplier, t)

    @property
    def realized(self) -> Pair:
        """Linear losses do that; at rate 1, N(1/2) against N(−1/2), which is symmetric."""
        return RealizedPair(self.multiplier, self.rate) if self.rate < 1.0 else PoissonPair(2.0 * self.multiplier)

    def guess(self, apart: float) -> float:
        """The loss is about γ(e^{x/z − 1/2z²} − 1), x normal: its variance is γ²(e^{1/z²} − 1)."""
        ratio = apart / self.rate
        return _inverse_root(math.log1p(ratio * ratio))

    @property
    def apart(self) -> float | None:
        """Replacing a record moves the mean once."""
        return 1.0 / self.multiplier if self.rate == 1.0 else None


@dataclass(frozen=True)
class RealizedPair(_Sampled):
    """A pair that fixed-size sampling really produces: the target at +L e against −L e, all other records at −L e."""

    symmetric: ClassVar[bool] = False

    def tails(self, t: Array) -> Tails:
        """As in `FixedPair`, but for all t."""
        return _removed(self.rate, self.multiplier, t)

    @property
    def least(self) -> float:
        """A record that is not used says log(1 − γ)."""
        return _log1m(self.rate)


@dataclass(frozen=True)
class PoissonPair(_Sampled):
    """Poisson sampling, replace-one: (1−γ)N(0,z²) + γN(+1,z²) against (1−γ)N(0,z²) + γN(−1,z²).

    A record that is left out adds 0, so the pair is (1−γ)N(0) + γN(u) against (1−γ)N(0) + γN(v), |u|, |v| ≤ 1. Under
    N(0) the profile is the cost of a spread option, E[((1−γ)(1−α) + γe^s − αγe^w)₊], s = ⟨u,x⟩ − |u|²/2 and w the
    same of v; by Gaussian interpolation it grows with |u| and |v| and falls with ⟨u,v⟩, so u = −v of length 1 is the
    worst at every α at once.

    Examples
    --------
    >>> PoissonPair(1.0, rate=0.01).delta([0.0, 0.05]).round(6)
    array([0.006827, 0.000441])
    """

    def tails(self, t: Array) -> Tails:
        """ℓ(x) = t is quadratic in e^{μx}, and log of its root is t/2 + asinh((1−γ)/γ e^{μ²/2} sinh(t/2))."""
        rate, mu = self.rate, 1.0 / self.multiplier
        odds = _log1m(rate) - math.log(rate) + mu**2 / 2
        with np.errstate(divide="ignore"):
            a = odds + t / 2 + np.log(-np.expm1(-t)) - math.log(2.0)
        angle = np.where(a < 20.0, np.arcsinh(np.exp(np.minimum(a, 20.0))), a + math.log(2.0))
        x = (t / 2 + angle) / mu
        below, near = scipy.special.ndtr(-x), t < 1.0
        p = (1.0 - rate) * below + rate * scipy.special.ndtr(mu - x)
        q = _scaled(1.0 - rate, t, x, below, near) + _scaled(rate, t, x + mu, scipy.special.ndtr(-x - mu), near)
        return Tails(p, q, EPS * (8.0 + 4.0 * x**2 + t))

    def guess(self, apart: float) -> float:
        """As with a fixed size, in both directions: a variance of 4γ² sinh(1/z²)."""
        ratio = apart / (2.0 * self.rate)
        return _inverse_root(math.asinh(ratio * ratio))

    @property
    def apart(self) -> float | None:
        """From +1 to −1."""
        return 2.0 / self.multiplier if self.rate == 1.0 else None


@dataclass(frozen=True)
class ResponsePair(Pair):
    """Randomised response at ε = 1/z, which dominates everything that is ε-DP (Kairouz, Oh and Viswanath 2015).

    For Laplace noise on a vector this needs no argument about how the L1 sensitivity is spread over coordinates; z is
    the scale of the noise over that sensitivity.
    """

    bounded: ClassVar[bool] = True

    def tails(self, t: Array) -> Tails:
        """Two losses, ±1/z."""
        loss = self.atom
        share = 1.0 / (1.0 + math.exp(-loss))
        return Tails(
            np.where(t < loss, share, 0.0),
            np.where(t < loss, share * np.exp(np.minimum(t - loss, 0.0)), 0.0),
            np.full_like(t, 8.0 * EPS),
        )

    @property
    def realized(self) -> Pair:
        """On one number."""
        return LaplacePair(self.multiplier)

    @property
    def atom(self) -> float:
        """The loss itself."""
        return 1.0 / self.multiplier


@dataclass(frozen=True)
class LaplacePair(Pair):
    """Laplace noise on one number, scale z for sensitivity 1: realized, so a lower bound.

    Examples
    --------
    >>> LaplacePair(2.0).delta([0.0, 0.5]).round(4)
    array([0.2212, 0.    ])
    """

    bounded: ClassVar[bool] = True

    def tails(self, t: Array) -> Tails:
        """Between two atoms at ±1/z."""
        loss = self.atom
        short = np.minimum(t - loss, 0.0) / 2
        inside = t <= loss * (1.0 + 1e-13)  # a grid point that is meant to be the atom has it on its right
        return Tails(
            np.where(inside, 1.0 - 0.5 * np.exp(short), 0.0),
            np.where(inside, 0.5 * np.exp(short), 0.0),
            np.full_like(t, 8.0 * EPS),
        )

    @property
    def atom(self) -> float:
        """Outside of the two centers the loss is the same everywhere."""
        return 1.0 / self.multiplier


def _removed(rate: float, multiplier: float, t: Array) -> Tails:
    """Tails of (1−γ)N(0,1) + γN(μ,1) against N(0,1), μ = 1/z: the loss log(1 − γ + γ e^{μx − μ²/2}) grows with x.

    So ℓ > t is x > (s + μ²/2)/μ with e^s = 1 + (e^t − 1)/γ: the e^ε' of advanced joint convexity (Balle, Barthe and
    Gaboardi 2018, Theorem 2).
    """
    mu = 1.0 / multiplier
    near = t < 1.0

    def close(small: Array) -> Array:  # t of the size of γ and below
        return np.asarray(np.log1p(np.maximum(np.expm1(small) / rate, -1.0)))

    def far(large: Array) -> Array:
        return np.asarray(large - math.log(rate) + np.log1p((rate - 1.0) * np.exp(-large)))

    with np.errstate(divide="ignore", invalid="ignore"):
        x = _by_size(t, near, close, far) / mu + mu / 2
    below = scipy.special.ndtr(-x)
    p = (1.0 - rate) * below + rate * scipy.special.ndtr(mu - x)
    reach = np.where(np.isfinite(x), x, 0.0)
    return Tails(p, _scaled(1.0, t, x, below, near), EPS * (8.0 + 4.0 * reach**2 + np.abs(t)))


def _scaled(weight: float, t: Array, x: Array, below: Array, near: NDArray[np.bool_]) -> Array:
    """w e^t Φ(−x), in logarithms where e^t is large, from Φ(−x) where it is not."""
    if weight == 0.0:
        return np.zeros_like(t)
    if near.all():
        return np.asarray(weight * np.exp(t) * below)
    out, far = np.empty_like(t), ~near
    out[near] = weight * np.exp(t[near]) * below[near]
    out[far] = np.exp(t[far] + scipy.special.log_ndtr(-x[far]) + math.log(weight))
    return out


Formula = Callable[[Array], Array]


def _by_size(t: Array, near: NDArray[np.bool_], small: Formula, large: Formula) -> Array:
    """One formula where t is near 0 and another where it is far, neither computed in vain."""
    if near.all():
        return small(t)
    out = np.empty_like(t)
    out[near], out[~near] = small(t[near]), large(t[~near])
    return out


def gaussian_delta(epsilon: float, multiplier: float) -> float:
    """The exact δ(ε) of the Gaussian mechanism (Balle and Wang 2018, Theorem 8).

    Examples
    --------
    >>> round(gaussian_delta(1.0, 1.0), 6)
    0.126937
    """
    mu = 1.0 / multiplier
    top = float(scipy.special.log_ndtr(mu / 2 - epsilon / mu))
    return math.exp(top) * -math.expm1(min(epsilon + float(scipy.special.log_ndtr(-mu / 2 - epsilon / mu)) - top, 0.0))


def gaussian_epsilon(delta: float, multiplier: float) -> float:
    """The least ε ≥ 0 at which the Gaussian mechanism is (ε, δ)-DP, from the private side.

    Examples
    --------
    >>> round(gaussian_epsilon(1e-5, 1.0), 3)
    4.377
    """
    if gaussian_delta(0.0, multiplier) <= delta:
        return 0.0
    mu = 1.0 / multiplier
    high = mu * mu / 2 + mu
    while gaussian_delta(high, multiplier) > delta:
        high *= 2.0
    root = float(
        scipy.optimize.brentq(lambda e: gaussian_delta(e, multiplier) - delta, 0.0, high, xtol=1e-12 * high, rtol=1e-12)
    )
    while gaussian_delta(root, multiplier) > delta:
        root += 1e-12 * high
    return root


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """The least multiplier with which one Gaussian mechanism is (ε, δ)-DP (Balle and Wang 2018), from the private side.

    Examples
    --------
    >>> round(gaussian_multiplier(1.0, 1e-5), 2)
    3.73
    """

    def over(log_z: float) -> float:
        return math.log(max(gaussian_delta(epsilon, math.exp(log_z)), 1e-300) / delta)

    root = math.exp(float(scipy.optimize.brentq(over, math.log(1e-8), math.log(1e8), xtol=1e-13)))
    while gaussian_epsilon(delta, root) > epsilon:
        root *= 1.0 + 1e-9
    return root * (1.0 + 1e-9)  # √K and σ round it, and ε is computed anew: by none of that may it pass its target


def _log1m(rate: float) -> float:
    return math.log1p(-rate) if rate < 1.0 else -math.inf


def _inverse_root(x: float) -> float:
    """Of a number that may be too small for one, or too large."""
    return x**-0.5 if x > 0.0 else math.inf
