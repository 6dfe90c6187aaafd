r"""A loss of K outputs: margins u = (⟨c, x_1⟩, …, ⟨c, x_K⟩) of one record and its target, to one number.

With K = 1 it is the loss itself. With K ≥ 2 targets are class numbers 0 … K − 1, and the loss is either the softmax one
or the sum over k of a binary loss that tells class k from the rest. A subgradient in x is s ⊗ c, s the vector of the K
slopes, of norm ‖s‖₂·‖c‖: that is what a bound, and a clip, is on.

Conventions: u and s have the classes as their last axis, and no such axis for K = 1.
"""

import math
from dataclasses import dataclass

import numpy as np

from sottovoce._types import Array
from sottovoce.errors import DataError, SpecError
from sottovoce.problem.losses import Loss, is_class


@dataclass(frozen=True)
class Joint:
    """A loss and its number of outputs K.

    Examples
    --------
    >>> from sottovoce.problem.losses import make_loss
    >>> joint = Joint(make_loss("hinge"), 3)
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
