"""Public transforms of numbers, which a schema may declare: skewed columns are easier to learn on another scale.

Each is strictly increasing on the bounds that it allows, so that bounds map to bounds and a value can be read back.
"""

import math
from collections.abc import Callable
from datetime import date
from typing import NamedTuple

import numpy as np

from sottovoce._types import Array


class Transform(NamedTuple):
    """A strictly increasing function, its inverse, and where it is defined.

    Attributes
    ----------
    forward, inverse : of arrays
    least : values below this have no image
    included : whether that value itself has one
    """

    forward: Callable[[Array], Array]
    inverse: Callable[[Array], Array]
    least: float = -math.inf
    included: bool = True

    def allows(self, low: float) -> bool:
        """Whether all values from this bound on have an image."""
        return low > self.least or (low == self.least and self.included)


TRANSFORMS: dict[str, Transform] = {
    "": Transform(np.asarray, np.asarray),
    "log": Transform(np.log, np.exp, 0.0, included=False),
    "sqrt": Transform(np.sqrt, np.square, 0.0),
    "signed_log": Transform(lambda v: np.sign(v) * np.log1p(np.abs(v)), lambda v: np.sign(v) * np.expm1(np.abs(v))),
}
"""By the names that a schema uses; the empty one leaves a number as it is."""


def unit_interval(values: Array, low: float, high: float, transform: str = "") -> Array:
    """Numbers within the bounds, brought to [−1, 1] after the transform.

    Examples
    --------
    >>> unit_interval(np.array([1.0, 10.0, 1000.0]), 1.0, 100.0, "log")
    array([-1.,  0.,  1.])
    """
    forward = TRANSFORMS[transform].forward
    start, end = (float(forward(np.array(bound))) for bound in (low, high))
    middle, half = 0.5 * start + 0.5 * end, 0.5 * end - 0.5 * start
    return np.clip((forward(np.clip(values, low, high)) - middle) / half, -1.0, 1.0)


def raw_dates(t: Array, low: float, high: float) -> Array:
    """The dates that t in [−1, 1] stands for, of bounds in days since the year 1.

    Examples
    --------
    >>> raw_dates(np.array([-1.0, 1.0]), 719163.0, 719529.0)
    array(['1970-01-01', '1971-01-02'], dtype='datetime64[D]')
    """
    days = 0.5 * (low + high) + 0.5 * (high - low) * t - date(1970, 1, 1).toordinal()
    return np.asarray(np.round(days).astype("datetime64[D]"))


def raw_values(t: Array, low: float, high: float, transform: str = "") -> Array:
    """The numbers that t in [−1, 1] stands for.

    Examples
    --------
    >>> raw_values(np.array([-1.0, 0.0, 1.0]), 1.0, 100.0, "log").round(9)
    array([  1.,  10., 100.])
    """
    forward, inverse = TRANSFORMS[transform][:2]
    start, end = (float(forward(np.array(bound))) for bound in (low, high))
    return np.clip(inverse(0.5 * (start + end) + 0.5 * (end - start) * t), low, high)
