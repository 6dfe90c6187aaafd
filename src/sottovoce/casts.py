"""Casts from floats to the whole numbers of a release: the only ones that private numbers go through.

A plain cast to an integer type is undefined for what it cannot hold: NaN and infinity become −2⁶³ on most machines, so
that one record moves a sum by far more than its sensitivity. Here every number becomes a whole number in a public
range, each by itself.
"""

from typing import Any

import numpy as np

from sottovoce._types import Array, IntArray

EXACT = 2.0**53
"""Up to here all whole numbers are floats."""


def whole_units(values: Any, unit: float = 1.0, low: float = -EXACT, high: float = EXACT) -> IntArray:
    """Values in whole units, toward zero: what is not finite becomes 0, then all are clipped to the public range.

    Parameters
    ----------
    values : floats
    unit : a power of two, so that the division is exact
    low, high : the public range, in units; 0 lies within it

    Examples
    --------
    >>> whole_units([0.3, -0.3, 7.0, np.nan, -np.inf], unit=0.25, low=-8, high=8)
    array([ 1, -1,  8,  0,  0])
    """
    found: Array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(found).all():
        found = np.where(np.isfinite(found), found, 0.0)
    with np.errstate(over="ignore"):  # what overflows here is clipped next
        return np.clip(found / unit, low, high).astype(np.int64)


def class_numbers(values: Any, classes: int) -> IntArray:
    """Class numbers 0 … classes − 1 as whole numbers; −1 for what is none of them, such as a missing label.

    Examples
    --------
    >>> class_numbers([0.0, 2.0, np.nan, 7.0, 0.5], 3)
    array([ 0,  2, -1, -1, -1])
    """
    found: Array = np.asarray(values, dtype=np.float64)
    whole = whole_units(found, high=classes)
    return np.where((whole == found) & (whole >= 0) & (whole < classes), whole, -1)
