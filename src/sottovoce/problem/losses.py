r"""Losses of linear models, l(x, ξ) = φ(⟨c, x⟩, y) for a record ξ = (c, y).

Conventions: u = ⟨c, x⟩ is the margin; `value` is φ(u, y), `slope` one element of its subdifferential in u, so that
slope · c is a subgradient of l in x. Classification losses take y ∈ {−1, +1} and depend on y·u only. Formulas are
written with ufuncs alone: they work on scalars, arrays and any array type that speaks the ufunc protocol.

Adding a loss is one row of `LOSSES`: two one-line formulas and the bound of the slope. The bound is the only fact
about the loss that privacy needs; a loss without one (`math.inf`) runs only with per-record clipping.

A third formula, the convex conjugate φ*(s) = sup_u s·u − φ(u), is needed only to certify an optimum by a duality
gap. For every loss here but the logistic one it is s·y + κs²/2 on an interval (`Conjugate`).

`SOFTMAX` stands apart: it is a loss of K margins at once, u of shape (…, K), with y a class number. `outputs` makes a
loss of K margins out of any binary one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array
from sottovoce.errors import SpecError

Formula = Callable[[Any, Any, float], Any]  # (u, y, parameter) -> same shape as u


class Conjugate(NamedTuple):
    """φ*(s) = s·y + κ s²/2 for s in the interval [lo, hi] that depends on y, and +∞ outside."""

    curvature: Callable[[float], float]
    """Parameter of the loss -> κ."""
    interval: Callable[[Any, float], tuple[Any, Any]]
    """(y, parameter) -> (lo, hi)."""


@dataclass(frozen=True)
class Loss:
    """One row of the table: φ, its slope, and what bounds it."""

    name: str
    code: int
    targets: str
    """'binary' (y is −1 or +1), 'real' or 'classes' (y is a class number, u has an axis of classes)."""
    value_formula: Formula
    slope_formula: Formula
    bound_formula: Callable[[float], float]
    conjugate_formula: Conjugate | None
    """None: the entropy, of two classes or of K."""
    parameter: float = math.nan
    parameter_name: str = ""

    def value(self, u: Any, y: Any) -> Any:
        """φ(u, y)."""
        return self.value_formula(u, y, self.parameter)

    def slope(self, u: Any, y: Any) -> Any:
        """An element of ∂φ(·, y) at u."""
        return self.slope_formula(u, y, self.parameter)

    @property
    def slope_bound(self) -> float:
        """The least upper bound of |slope|; infinite where per-record clipping is needed."""
        return self.bound_formula(self.parameter)

    def interval(self, y: Array) -> tuple[Array, Array]:
        """The domain [lo, hi] of φ*(·, y), for each record."""
        if self.conjugate_formula is None:
            return _margin_interval(y, self.parameter)
        lo, hi = self.conjugate_formula.interval(y, self.parameter)
        return np.broadcast_to(lo, y.shape), np.broadcast_to(hi, y.shape)

    def conjugate(self, s: Array, y: Array) -> Array:
        """φ*(s, y), for s inside the interval (softmax: s + e_y on the simplex)."""
        if self.targets == "classes":
            p = np.maximum(s + is_class(y, s.shape[-1]), 0.0)  # rounding may leave the simplex
            return np.asarray(np.sum(scipy.special.xlogy(p, p), axis=-1))
        if self.conjugate_formula is None:  # −α log-odds form with α = −s·y in [0, 1]
            alpha = np.clip(-s * y, 0.0, 1.0)
            with np.errstate(divide="ignore", invalid="ignore"):
                entropy = alpha * np.log(alpha) + (1 - alpha) * np.log1p(-alpha)
            return np.where((alpha > 0) & (alpha < 1), entropy, 0.0)
        return s * y + 0.5 * self.conjugate_formula.curvature(self.parameter) * s * s

    def with_parameter(self, parameter: float) -> "Loss":
        """The same loss with another width, threshold or quantile."""
        if not self.parameter_name:
            raise SpecError(f"loss '{self.name}' takes no parameter, but {parameter!r} was given; leave it out")
        low, high = (0.0, 1.0) if self.name == "quantile" else (0.0, math.inf)
        if not low < parameter < high:
            raise SpecError(
                f"{self.parameter_name} of loss '{self.name}' must lie strictly between {low:g} and {high:g}, "
                f"not {parameter!r}"
            )
        return replace(self, parameter=float(parameter))


def _one(_: float) -> float:
    return 1.0


def _unbounded(_: float) -> float:
    return math.inf


def _margin_interval(y: Any, _: float) -> tuple[Any, Any]:
    return np.minimum(-y, 0.0), np.maximum(-y, 0.0)


def _margin_ray(y: Any, _: float) -> tuple[Any, Any]:
    return np.where(y > 0, -np.inf, 0.0), np.where(y > 0, 0.0, np.inf)


_ROWS = (
    Loss(
        "hinge",
        0,
        "binary",
        lambda u, y, k: np.maximum(0.0, 1.0 - y * u),
        lambda u, y, k: -y * (y * u < 1.0),
        _one,
        Conjugate(lambda k: 0.0, _margin_interval),
    ),
    Loss(  # (1−yu)²/2k within the last k before the margin, linear below it
        "smoothed_hinge",
        1,
        "binary",
        lambda u, y, k: (
            np.maximum(0.0, 1.0 - y * u - 0.5 * k) * (1.0 - y * u >= k)
            + 0.5 / k * np.square(np.maximum(0.0, 1.0 - y * u)) * (1.0 - y * u < k)
        ),
        lambda u, y, k: -y * np.minimum(1.0, np.maximum(0.0, 1.0 - y * u) / k),
        _one,
        Conjugate(lambda k: k, _margin_interval),
        parameter=0.5,
        parameter_name="width",
    ),
    Loss(
        "logistic",
        2,
        "binary",
        lambda u, y, k: np.logaddexp(0.0, -y * u),
        lambda u, y, k: -y * np.exp(-np.logaddexp(0.0, y * u)),
        _one,
        None,
    ),
    Loss(
        "squared_hinge",
        3,
        "binary",
        lambda u, y, k: 0.5 * np.square(np.maximum(0.0, 1.0 - y * u)),
        lambda u, y, k: -y * np.maximum(0.0, 1.0 - y * u),
        _unbounded,
        Conjugate(lambda k: 1.0, _margin_ray),
    ),
    Loss(
        "squared",
        4,
        "real",
        lambda u, y, k: 0.5 * np.square(u - y),
        lambda u, y, k: u - y,
        _unbounded,
        Conjugate(lambda k: 1.0, lambda y, k: (-np.inf, np.inf)),
    ),
    Loss(
        "huber",
        5,
        "real",
        lambda u, y, k: np.minimum(np.abs(u - y), k) * (np.abs(u - y) - 0.5 * np.minimum(np.abs(u - y), k)),
        lambda u, y, k: np.minimum(k, np.maximum(-k, u - y)),
        lambda k: k,
        Conjugate(lambda k: 1.0, lambda y, k: (-k, k)),
        parameter=1.0,
        parameter_name="threshold",
    ),
    Loss(
        "absolute",
        6,
        "real",
        lambda u, y, k: np.abs(u - y),
        lambda u, y, k: np.sign(u - y),
        _one,
        Conjugate(lambda k: 0.0, lambda y, k: (-1.0, 1.0)),
    ),
    Loss(
        "quantile",
        7,
        "real",
        lambda u, y, k: np.maximum(k * (y - u), (k - 1.0) * (y - u)),
        lambda u, y, k: (1.0 - k) * (u > y) - k * (u < y),
        lambda k: max(k, 1.0 - k),
        Conjugate(lambda k: 0.0, lambda y, k: (-k, 1.0 - k)),
        parameter=0.5,
        parameter_name="level",
    ),
)

LOSSES: dict[str, Loss] = {row.name: row for row in _ROWS}


def is_class(y: Any, outputs: int) -> Any:
    """e_y: whether each of the classes 0 … K − 1, along a new last axis, is the record's own."""
    return np.asarray(y)[..., None] == np.arange(outputs)


SOFTMAX = Loss(  # multinomial log-loss; p − e_y sums to 0, and is longest, √2, where all of p is on one wrong class
    "softmax",
    8,
    "classes",
    lambda u, y, k: scipy.special.logsumexp(u, axis=-1) - np.sum(np.where(is_class(y, u.shape[-1]), u, 0.0), axis=-1),
    lambda u, y, k: scipy.special.softmax(u, axis=-1) - is_class(y, u.shape[-1]),
    lambda k: math.sqrt(2.0),
    None,
)


def make_loss(name: str, parameter: float | None = None) -> Loss:
    """Look a loss up by name, with its parameter where it has one.

    Examples
    --------
    >>> make_loss("huber", 2.0).slope_bound
    2.0
    >>> float(make_loss("hinge").value(0.25, 1.0))
    0.75
    """
    loss = SOFTMAX if name == SOFTMAX.name else LOSSES.get(name)
    if loss is None:
        raise SpecError(f"there is no loss '{name}'; choose one of {', '.join([*LOSSES, SOFTMAX.name])}")
    return loss if parameter is None else loss.with_parameter(parameter)
