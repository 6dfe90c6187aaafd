"""Losses of linear models, l(x, ξ) = φ(⟨c, x⟩, y) for a record ξ = (c, y), of one output or of K.

Conventions: u = ⟨c, x⟩ is the margin; `value` is φ(u, y), `slope` one element of its subdifferential in u, so that
slope · c is a subgradient of l in x. Classification losses take y ∈ {−1, +1} and depend on y·u only. Formulas are
written with ufuncs alone: they work on scalars, arrays and any array type that speaks the ufunc protocol.

Adding a loss is one row of `LOSSES`: two one-line formulas and the bound of the slope. The bound is the only fact
about the loss that the privacy of methods with rounds needs; a loss without one (`math.inf`) runs only with per-record
clipping. The compiled engine has native slopes of the losses in `engine.native.LOSSES` (`src/native/losses.hpp`), which
a test compares on a grid; any other loss runs on NumPy's.

A third formula, the convex conjugate φ*(s) = sup_u s·u − φ(u), is needed only to certify an optimum by a duality
gap. For every loss here but the log-losses it is s·y + κs²/2 on an interval (`Conjugate`); theirs is an entropy
(`ENTROPY`). None stands for a conjugate that nobody has written down.

A model of K outputs has K margins of one record, u = (⟨c, x_1⟩, …, ⟨c, x_K⟩), and a class number 0 … K − 1 for its
target. `Joint` is its loss: the softmax one, which stands apart in the table because it is of all margins at once, or
the sum over k of a binary loss that shows class k from the rest. A subgradient in x is s ⊗ c, s the vector of the K
slopes, of norm ‖s‖₂·‖c‖: that is what a bound, and a clip, is on. u and s have the classes as their last axis, and no
such axis for K = 1, where the joint loss is the loss itself.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array
from sottovoce.errors import DataError, SpecError
from sottovoce.registry import Choices, write

Formula = Callable[[Any, Any, float], Any]  # (u, y, parameter) -> same shape as u


class Conjugate(NamedTuple):
    """φ*(s) = s·y + κ s²/2 for s in the interval [lo, hi] that depends on y, and +∞ outside."""

    curvature: Callable[[float], float]
    """Parameter of the loss -> κ."""
    interval: Callable[[Any, float], tuple[Any, Any]]
    """(y, parameter) -> (lo, hi)."""


class Entropy(NamedTuple):
    """The conjugate of the log-losses: the entropy, of two classes or of K."""

    curvature: float = 4.0
    """The least that it is curved by, of two classes."""


ENTROPY = Entropy()


@dataclass(frozen=True)
class Loss:
    """One row of the table: φ, its slope, and what bounds it."""

    name: str
    targets: str
    """'binary' (y is −1 or +1), 'real' or 'classes' (y is a class number, u has an axis of classes)."""
    value_formula: Formula
    slope_formula: Formula
    bound_formula: Callable[[float], float]
    conjugate_formula: Conjugate | Entropy | None = None
    """None: it is not known, and nothing is derived from it."""
    parameter: float = math.nan
    parameter_name: str = ""

    def __str__(self) -> str:
        return write(self.name, *([self.parameter] if self.parameter_name else []))

    def __call__(self, *parameter: float, **named: float) -> "Loss":
        """The same loss, with another width, threshold or quantile if one is given."""
        return self.with_parameter(*parameter, *named.values()) if parameter or named else self

    @property
    def __signature__(self) -> Signature:
        """How it is called, and written."""
        kind = Parameter.POSITIONAL_OR_KEYWORD
        name = self.parameter_name
        return Signature([Parameter(name, kind, default=self.parameter)] if name else [])

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent to another process, it is found in that process's own table."""
        return _found, (self.name, *([self.parameter] if self.parameter_name else []))

    def value(self, u: Any, y: Any) -> Any:
        """φ(u, y)."""
        return self.value_formula(u, y, self.parameter)

    def slope(self, u: Any, y: Any) -> Any:
        """An element of ∂φ(·, y) at u."""
        return self.slope_formula(u, y, self.parameter)

    @property
    def slope_bound(self) -> float:
        """The least upper bound of the absolute slope; infinite where per-record clipping is needed."""
        return self.bound_formula(self.parameter)

    @property
    def smoothness(self) -> float:
        """sup φ'': the reciprocal of what its conjugate is at least curved by.

        Infinite for a loss with kinks, and for one whose conjugate is not known.

        Examples
        --------
        >>> LOSSES.read("logistic").smoothness, LOSSES.read("hinge").smoothness
        (0.25, inf)
        """
        kappa = self.curvature
        return 1.0 / kappa if kappa > 0 else math.inf

    @property
    def curvature(self) -> float:
        """What the conjugate is at least curved by, κ; 0 where the conjugate is not known."""
        if isinstance(self.conjugate_formula, Entropy):
            return self.conjugate_formula.curvature
        return 0.0 if self.conjugate_formula is None else self.conjugate_formula.curvature(self.parameter)

    def interval(self, y: Array) -> tuple[Array, Array]:
        """The domain [lo, hi] of φ*(·, y), for each record."""
        if isinstance(self.conjugate_formula, Entropy):
            return _margin_interval(y, self.parameter)
        self._check_conjugate()
        assert isinstance(self.conjugate_formula, Conjugate)
        lo, hi = self.conjugate_formula.interval(y, self.parameter)
        return np.broadcast_to(lo, y.shape), np.broadcast_to(hi, y.shape)

    def conjugate(self, s: Array, y: Array) -> Array:
        """φ*(s, y), for s inside the interval (softmax: s + e_y on the simplex)."""
        self._check_conjugate()
        if self.targets == "classes":
            p = np.maximum(s + is_class(y, s.shape[-1]), 0.0)  # rounding may leave the simplex
            return np.asarray(np.sum(scipy.special.xlogy(p, p), axis=-1))
        if isinstance(self.conjugate_formula, Entropy):  # −α log-odds form with α = −s·y in [0, 1]
            alpha = np.clip(-s * y, 0.0, 1.0)
            with np.errstate(divide="ignore", invalid="ignore"):
                entropy = alpha * np.log(alpha) + (1 - alpha) * np.log1p(-alpha)
            return np.where((alpha > 0) & (alpha < 1), entropy, 0.0)
        return s * y + 0.5 * self.curvature * s * s

    def _check_conjugate(self) -> None:
        if self.conjugate_formula is None:
            raise SpecError(
                f"loss '{self.name}' has no conjugate (conjugate_formula=None), and this needs one; give the loss a "
                "Conjugate"
            )

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
        "binary",
        lambda u, y, k: np.maximum(0.0, 1.0 - y * u),
        lambda u, y, k: -y * (y * u < 1.0),
        _one,
        Conjugate(lambda k: 0.0, _margin_interval),
    ),
    Loss(  # (1−yu)²/2k within the last k before the margin, linear below it
        "smoothed_hinge",
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
        "binary",
        lambda u, y, k: np.logaddexp(0.0, -y * u),
        lambda u, y, k: -y / (1.0 + np.exp(np.minimum(y * u, 700.0))),  # the cap keeps exp finite
        _one,
        ENTROPY,
    ),
    Loss(
        "squared_hinge",
        "binary",
        lambda u, y, k: 0.5 * np.square(np.maximum(0.0, 1.0 - y * u)),
        lambda u, y, k: -y * np.maximum(0.0, 1.0 - y * u),
        _unbounded,
        Conjugate(lambda k: 1.0, _margin_ray),
    ),
    Loss(
        "squared",
        "real",
        lambda u, y, k: 0.5 * np.square(u - y),
        lambda u, y, k: u - y,
        _unbounded,
        Conjugate(lambda k: 1.0, lambda y, k: (-np.inf, np.inf)),
    ),
    Loss(
        "huber",
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
        "real",
        lambda u, y, k: np.abs(u - y),
        lambda u, y, k: np.sign(u - y),
        _one,
        Conjugate(lambda k: 0.0, lambda y, k: (-1.0, 1.0)),
    ),
    Loss(
        "quantile",
        "real",
        lambda u, y, k: np.maximum(k * (y - u), (k - 1.0) * (y - u)),
        lambda u, y, k: (1.0 - k) * (u > y) - k * (u < y),
        lambda k: max(k, 1.0 - k),
        Conjugate(lambda k: 0.0, lambda y, k: (-k, 1.0 - k)),
        parameter=0.5,
        parameter_name="level",
    ),
)


def is_class(y: Any, outputs: int) -> Any:
    """e_y: whether each of the classes 0 … K − 1, along a new last axis, is the record's own."""
    return np.asarray(y)[..., None] == np.arange(outputs)


SOFTMAX = Loss(  # multinomial log-loss; p − e_y sums to 0, and is longest, √2, where all of p is on one wrong class
    "softmax",
    "classes",
    lambda u, y, k: scipy.special.logsumexp(u, axis=-1) - np.sum(np.where(is_class(y, u.shape[-1]), u, 0.0), axis=-1),
    lambda u, y, k: scipy.special.softmax(u, axis=-1) - is_class(y, u.shape[-1]),
    lambda k: math.sqrt(2.0),
    ENTROPY,
)


LOGISTIC = next(row for row in _ROWS if row.name == "logistic")

_IEEE = ("hinge", "smoothed_hinge", "squared_hinge", "squared", "huber", "absolute", "quantile")
IEEE_SLOPES = frozenset(row.slope_formula for row in _ROWS if row.name in _IEEE)
"""Slopes made of sums, products, quotients and comparisons of single elements: IEEE 754 rounds them in one way only.

A loss that is not listed has no secure release. List a new one only if its slope has no exponential, root or other
function of a library, whose bits may depend on the place of a record in its batch.
"""

BUILT_IN: Mapping[str, Loss] = MappingProxyType({row.name: row for row in (*_ROWS, SOFTMAX)})
"""The losses of this module by name: what compiled engines know, whatever is registered besides."""


def is_built_in(loss: Loss) -> bool:
    """Whether all formulas of a loss are those of a row of this module.

    Examples
    --------
    >>> is_built_in(LOSSES.read("huber(2)")), is_built_in(replace(LOSSES.read("hinge"), bound_formula=lambda k: 0.5))
    (True, False)
    """
    row = BUILT_IN.get(loss.name)
    return row is not None and replace(loss, parameter=row.parameter) == replace(row, parameter=row.parameter)


LOSSES = Choices[Loss]("loss", dict(BUILT_IN))
"""Every loss by name; a row, called with its parameter, is that loss with another one.

Examples
--------
>>> LOSSES.read("huber(2)").slope_bound, str(LOSSES.read("huber"))
(2.0, 'huber(1)')
>>> float(LOSSES.read("hinge").value(0.25, 1.0))
0.75
"""


def _found(name: str, *parameter: float) -> Loss:
    return LOSSES.make(name, *parameter)


@dataclass(frozen=True)
class Joint:
    """A loss and its number of outputs K.

    Examples
    --------
    >>> joint = Joint(LOSSES.read("hinge"), 3)
    >>> joint.slope(np.zeros((1, 3)), np.array([1.0])), round(joint.slope_bound, 6)
    (array([[ 1., -1.,  1.]]), 1.732051)
    """

    loss: Loss
    outputs: int = 1

    def __post_init__(self) -> None:
        """Refuse a number of outputs that the loss cannot have."""
        if not isinstance(self.outputs, int) or self.outputs < 1:
            raise SpecError(f"the number of outputs must be a whole number, at least 1, not {self.outputs!r}")
        if self.outputs > 1 and self.loss.targets == "real":
            raise SpecError(
                f"loss '{self.loss.name}' is for regression and has one output, not {self.outputs}; take 'softmax' or "
                "a binary loss for several classes"
            )
        if self.outputs == 1 and self.loss.targets == "classes":
            raise SpecError(f"loss '{self.loss.name}' needs an output for each class, at least 2; give outputs")

    @property
    def one_vs_rest(self) -> bool:
        """Whether this is a sum over the classes of a binary loss."""
        return self.outputs > 1 and self.loss.targets == "binary"

    @property
    def slope_bound(self) -> float:
        """The least upper bound of ‖s‖₂.

        One against the rest it is √K times the binary bound, and no less, for the logistic loss either: the weights of
        different classes are free of one another, so all K slopes can be near their bound at the same record.
        """
        return self.loss.slope_bound * (math.sqrt(self.outputs) if self.one_vs_rest else 1.0)

    def value(self, u: Array, y: Array) -> Array:
        """The loss of every record."""
        if self.one_vs_rest:
            return np.sum(self.loss.value(u, self.signs(y)), axis=-1)
        return np.asarray(self.loss.value(u, y))

    def slope(self, u: Array, y: Array) -> Array:
        """An element of the subdifferential in u, of u's shape."""
        return np.asarray(self.loss.slope(u, self.signs(y) if self.one_vs_rest else y))

    def conjugate(self, s: Array, y: Array) -> Array:
        """sup_u ⟨s, u⟩ − loss(u, y) of every record, for s in its domain."""
        if self.one_vs_rest:
            return np.sum(self.loss.conjugate(s, self.signs(y)), axis=-1)
        return self.loss.conjugate(s, y)

    def signs(self, y: Array) -> Array:
        """+1 for a record's own class and −1 for the others, along a new last axis."""
        return np.where(is_class(y, self.outputs), 1.0, -1.0)

    def check(self, y: Array) -> None:
        """Refuse targets that the loss does not understand."""
        if self.outputs > 1:
            wrong = y[(y < 0) | (y >= self.outputs) | (y != np.floor(y))]
            wanted, advice = f"class numbers 0 to {self.outputs - 1}", "number your classes so, or give more outputs"
        elif self.loss.targets == "binary":
            wrong = y[np.abs(y) != 1.0]
            wanted, advice = "labels −1 and +1", "map your two classes to −1 and +1, or take a regression loss"
        else:
            return
        if wrong.size:
            raise DataError(f"loss '{self.loss.name}' needs {wanted}, but there is a label {wrong[0]:g}; {advice}")


def lengths(slopes: Array) -> Array:
    """‖s‖₂ of every record, also where its squares would leave the range of floats."""
    if slopes.ndim == 1:
        return np.abs(slopes)
    largest = np.max(np.abs(slopes), axis=-1)
    return largest * np.linalg.norm(slopes / np.where(largest > 0, largest, 1.0)[:, None], axis=-1)
