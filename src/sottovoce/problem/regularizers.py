"""Regularizers h and distances d, with the dual step that both decide: eq. (6) of the paper in closed form.

The step is argmin_x ⟨z, x⟩ + s·h(x) + γ·d(x), with s = ιA_t. For d = ‖x‖²/2 the regularizer knows it. Everything that
acts on each coordinate alone is one four-number family, `Separable`: h(x) = φ‖x‖₁ + (μ/2)‖x‖² + [lo ≤ x ≤ hi], whose
step is a soft threshold, a division and a clip. l2, l1, elastic net, box, non-negative and none are six points of it.
The balls and the simplex are projections of −z/γ. Any other distance-generating function, strongly convex with
modulus 1 and not negative, turns its own step into that one, or, like the entropy, has one of its own.

Conventions: coordinates are the last axis; z may have any number of leading axes; s and γ are scalars or broadcast
against z. Indicators have value 0 inside their set (up to rounding) and +∞ outside.

Adding a regularizer: a small class with `value`, `modulus`, `step`, `conjugate`, and one row of `REGULARIZERS`; a
distance likewise is one row of `DISTANCES`.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array
from sottovoce.errors import SpecError
from sottovoce.registry import Choices, write

FEASIBLE = 1e-9  # an average of feasible points may leave a set by rounding, never by more than this (relative)


class Regularizer(Protocol):
    """What the rest of the package requires of an h."""

    @property
    def modulus(self) -> float:
        """μ, the modulus of strong convexity (0 where h is only convex)."""

    def value(self, x: Array) -> float:
        """h(x)."""

    def step(self, z: Array, s: Any, gamma: Any) -> Array:
        """argmin_x ⟨z, x⟩ + s·h(x) + γ‖x‖²/2; needs s·μ + γ > 0."""

    def conjugate(self, v: Array, reach: float = math.inf) -> float:
        """sup ⟨v, x⟩ − h(x) over ‖x‖₁ ≤ reach; for certifying an optimum that is known to lie within reach."""


@dataclass(frozen=True)
class Separable:
    """h(x) = φ‖x‖₁ + (μ/2)‖x‖² + indicator of [lo, hi] in every coordinate."""

    phi: float = 0.0
    mu: float = 0.0
    lo: float = -math.inf
    hi: float = math.inf

    def __post_init__(self) -> None:
        """Refuse negative weights and empty boxes."""
        if not (0 <= self.phi < math.inf and 0 <= self.mu < math.inf):
            raise SpecError(f"regularization weights must be finite and not negative, not {self.phi} and {self.mu}")
        if not self.lo < self.hi:
            raise SpecError(f"a box needs lo < hi, but got lo={self.lo} and hi={self.hi}")

    def __str__(self) -> str:
        """The simplest of its names."""
        phi, mu, lo, hi = self.phi, self.mu, self.lo, self.hi
        weight = (mu,) * (mu > 0)
        if not self.bounded:
            return write("elastic_net", phi, mu) if phi and mu else write("l1", phi) if phi else _weighed(mu)
        if phi:
            return write("separable", phi, mu, lo, hi)
        return write("non_negative", *weight) if (lo, hi) == (0.0, math.inf) else write("box", lo, hi, *weight)

    @property
    def modulus(self) -> float:
        """μ."""
        return self.mu

    @property
    def bounded(self) -> bool:
        """Whether a coordinate is confined to [lo, hi] on at least one side."""
        return self.lo > -math.inf or self.hi < math.inf

    def value(self, x: Array) -> float:
        """h(x)."""
        slack = FEASIBLE * (1.0 + np.abs(x))
        if np.any(x < self.lo - slack) or np.any(x > self.hi + slack):
            return math.inf
        return self.phi * float(np.sum(np.abs(x))) + 0.5 * self.mu * float(np.dot(x, x))

    def step(self, z: Array, s: Any, gamma: Any) -> Array:
        """Soft threshold at sφ, divide by sμ + γ, clip."""
        x = -z if self.phi == 0 else np.minimum(s * self.phi - z, 0.0) + np.maximum(-s * self.phi - z, 0.0)
        x = x / (s * self.mu + gamma)
        return np.clip(x, self.lo, self.hi) if self.bounded else x

    def conjugate(self, v: Array, reach: float = math.inf) -> float:
        """Coordinatewise where that is finite; else the supremum over the l1 ball of the given reach."""
        if self.mu > 0:
            x = self.step(-v, 1.0, 0.0)
            return float(np.dot(v, x)) - self.value(x)
        up, down = np.maximum(v - self.phi, 0.0), np.maximum(-v - self.phi, 0.0)
        if self.lo <= 0.0 <= self.hi:
            with np.errstate(invalid="ignore"):
                free = np.where(up > 0, up * self.hi, 0.0) + np.where(down > 0, down * -self.lo, 0.0)
            steepest = max(
                float(np.max(up, initial=0.0)) * (self.hi > 0),
                float(np.max(down, initial=0.0)) * (self.lo < 0),
            )
            return min(float(np.sum(free)), reach * steepest if steepest > 0 else 0.0)
        ends = [end * v - self.phi * abs(end) for end in (self.lo, self.hi)]
        return float(np.sum(np.maximum(*ends)))


def project_simplex(v: Array, radius: float = 1.0) -> Array:
    """Project each row of v onto {x ≥ 0, Σx = radius} (Held, Wolfe and Crowder; sort and threshold)."""
    v = v - np.max(v, axis=-1, keepdims=True)  # shifting changes nothing but saves the digits of a large v
    ordered = np.flip(np.sort(v, axis=-1), axis=-1)
    excess = np.cumsum(ordered, axis=-1) - radius
    count = np.sum(ordered * np.arange(1, v.shape[-1] + 1) > excess, axis=-1, keepdims=True)
    theta = np.take_along_axis(excess, count - 1, axis=-1) / count
    return np.maximum(v - theta, 0.0)


@dataclass(frozen=True)
class _Set:
    """Indicator of a bounded convex set of the given radius."""

    radius: float = 1.0

    def __post_init__(self) -> None:
        """Refuse empty and unbounded sets."""
        if not 0 < self.radius < math.inf:
            raise SpecError(f"a radius must be finite and over 0, not {self.radius}")

    @property
    def modulus(self) -> float:
        """Indicators are not strongly convex."""
        return 0.0


@dataclass(frozen=True)
class L2Ball(_Set):
    """Indicator of ‖x‖₂ ≤ radius."""

    def __str__(self) -> str:
        return write("l2_ball", self.radius)

    def value(self, x: Array) -> float:
        """0 or +∞."""
        return 0.0 if np.linalg.norm(x) <= self.radius * (1 + FEASIBLE) else math.inf

    def step(self, z: Array, s: Any, gamma: Any) -> Array:
        """−z / max(γ, ‖z‖/R)."""
        norm = np.linalg.norm(z, axis=-1, keepdims=True)
        return -z / np.maximum(gamma, norm / self.radius)

    def conjugate(self, v: Array, reach: float = math.inf) -> float:
        """R‖v‖₂."""
        return self.radius * float(np.linalg.norm(v))


@dataclass(frozen=True)
class L1Ball(_Set):
    """Indicator of ‖x‖₁ ≤ radius."""

    def __str__(self) -> str:
        return write("l1_ball", self.radius)

    def value(self, x: Array) -> float:
        """0 or +∞."""
        return 0.0 if np.sum(np.abs(x)) <= self.radius * (1 + FEASIBLE) else math.inf

    def step(self, z: Array, s: Any, gamma: Any) -> Array:
        """−z/γ where it is inside, else the signed projection of |z|/γ onto the simplex of the same radius."""
        v = -z / gamma
        inside = np.sum(np.abs(v), axis=-1, keepdims=True) <= self.radius
        return np.where(inside, v, np.sign(v) * project_simplex(np.abs(v), self.radius))

    def conjugate(self, v: Array, reach: float = math.inf) -> float:
        """R‖v‖∞."""
        return self.radius * float(np.max(np.abs(v)))


@dataclass(frozen=True)
class Simplex(_Set):
    """Indicator of x ≥ 0, Σx = radius."""

    def __str__(self) -> str:
        return write("simplex", self.radius)

    def value(self, x: Array) -> float:
        """0 or +∞."""
        slack = FEASIBLE * self.radius
        return 0.0 if np.all(x >= -slack) and abs(np.sum(x) - self.radius) <= slack * len(x) else math.inf

    def step(self, z: Array, s: Any, gamma: Any) -> Array:
        """The projection of −z/γ."""
        return project_simplex(-z / gamma, self.radius)

    def conjugate(self, v: Array, reach: float = math.inf) -> float:
        """R·max(v)."""
        return self.radius * float(np.max(v))


def l2(mu: float) -> Separable:
    """(μ/2)‖x‖²."""
    return Separable(mu=mu)


def l1(phi: float) -> Separable:
    """φ‖x‖₁."""
    return Separable(phi=phi)


def elastic_net(phi: float, mu: float) -> Separable:
    """φ‖x‖₁ + (μ/2)‖x‖²."""
    return Separable(phi=phi, mu=mu)


def box(lo: float, hi: float, mu: float = 0.0) -> Separable:
    """lo ≤ x ≤ hi, and (μ/2)‖x‖²."""
    return Separable(mu=mu, lo=lo, hi=hi)


def non_negative(mu: float = 0.0) -> Separable:
    """x ≥ 0, and (μ/2)‖x‖²."""
    return Separable(mu=mu, lo=0.0)


def none() -> Separable:
    """No regularizer."""
    return Separable()


def _weighed(mu: float) -> str:
    return write("l2", mu) if mu else "none"


REGULARIZERS: Choices[Regularizer] = Choices(
    "regularizer",
    {
        "l2": l2,
        "l1": l1,
        "elastic_net": elastic_net,
        "box": box,
        "non_negative": non_negative,
        "none": none,
        "separable": Separable,
        "l2_ball": L2Ball,
        "l1_ball": L1Ball,
        "simplex": Simplex,
    },
)
"""Every h by name.

Examples
--------
>>> REGULARIZERS.read("l2(5e-4)") == l2(0.0005), str(REGULARIZERS.read("elastic_net(0, 5e-4)"))
(True, 'l2(0.0005)')
>>> l1(1.0).step(np.array([3.0, -0.5]), s=1.0, gamma=2.0)
array([-1.,  0.])
"""


class Distance(Protocol):
    """What the algorithm requires of a d."""

    def value(self, x: Array) -> float:
        """d(x)."""

    def step(self, h: Regularizer, z: Array, s: Any, gamma: Any, stiffness: Any = 0.0) -> Array:
        """argmin ⟨z, x⟩ + s·h(x) + γ·d(x) + stiffness·‖x‖²/2."""

    def check(self, h: Regularizer, m: int) -> None:
        """Refuse an h, or a dimension, that this d cannot serve."""


@dataclass(frozen=True)
class Euclidean:
    """d(x) = ‖x − x₀‖²/2; x₀ is the origin unless a center (a public first guess) is given."""

    center: tuple[float, ...] | None = None

    def __str__(self) -> str:
        return write("euclidean", *(self.center or ()))

    def value(self, x: Array) -> float:
        """d(x)."""
        shift = x if self.center is None else x - np.asarray(self.center)
        return 0.5 * float(np.dot(shift, shift))

    def step(self, h: Regularizer, z: Array, s: Any, gamma: Any, stiffness: Any = 0.0) -> Array:
        """The regularizer's own step, after completing the square."""
        if self.center is not None:
            z = z - gamma * np.asarray(self.center)
        return h.step(z, s, gamma + stiffness)

    def check(self, h: Regularizer, m: int) -> None:
        """A center must have the model's dimension."""
        if self.center is not None and len(self.center) != m:
            raise SpecError(f"the center has {len(self.center)} coordinates, but the model has {m}; give one for each")
        if self.center is not None and not np.all(np.isfinite(self.center)):
            raise SpecError("the center must have finite coordinates")


@dataclass(frozen=True)
class Entropy:
    """d(x) = Σ x_k log x_k + log m on the unit simplex; its step is a softmax."""

    def __str__(self) -> str:
        return "entropy"

    def value(self, x: Array) -> float:
        """d(x); zero at the uniform point."""
        return float(np.sum(scipy.special.xlogy(x, x))) + math.log(len(x))

    def step(self, h: Regularizer, z: Array, s: Any, gamma: Any, stiffness: Any = 0.0) -> Array:
        """softmax(−z/γ)."""
        return np.asarray(scipy.special.softmax(-z / gamma, axis=-1))

    def check(self, h: Regularizer, m: int) -> None:
        """The entropy lives on the unit simplex."""
        if not (isinstance(h, Simplex) and h.radius == 1.0):
            raise SpecError("the entropy is a distance on the unit simplex only; use h = simplex or d = euclidean")


def euclidean(*center: float) -> Euclidean:
    """‖x − center‖²/2; no center is the origin."""
    return Euclidean(tuple(float(c) for c in center) or None)


DISTANCES: Choices[Distance] = Choices("distance", {"euclidean": euclidean, "entropy": Entropy})
"""Every d by name."""
