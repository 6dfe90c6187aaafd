"""Functions of one record's numbers that give the same bits in every lane, block and place.

A library's exponential may be one function in the vectorized body of a loop and another in its remainder; a sum may go
one way in a row that stands alone and another in a table. Here everything is made of additions, multiplications,
divisions, square roots and comparisons of single elements, which IEEE 754 rounds in one way only, in an order that is
written down. Thereby a record's slope is a function of that record and of public numbers alone, and the same on every
machine. The accuracy of a slope is nobody's secret: what matters is that it does not depend on who else is there.
"""

import math

import numpy as np

from sottovoce._types import Array

LOG2_E = 1.0 / math.log(2.0)
LN2_HIGH = 6.93147180369123816490e-01  # its last 32 bits are zero: times a small whole number it is exact
LN2_LOW = 1.90821492927058770002e-10
EXP = tuple(1.0 / math.factorial(k) for k in range(13, -1, -1))
EXP_LIMIT = 700.0
"""Arguments are brought to within this."""


def exp(v: Array) -> Array:
    """e^v to 2⁻⁵¹, of |v| ≤ 700: larger ones count as 700.

    Examples
    --------
    >>> exp(np.array([0.0, -1.0]))
    array([1.        , 0.36787944])
    """
    v = np.minimum(np.maximum(v, -EXP_LIMIT), EXP_LIMIT)
    octaves = np.floor(v * LOG2_E + 0.5)
    rest = (v - octaves * LN2_HIGH) - octaves * LN2_LOW
    power = np.full_like(rest, EXP[0])
    for coefficient in EXP[1:]:
        power = power * rest + coefficient
    return power * ((octaves.astype(np.int64) + 1023) << 52).view(np.float64)


def halved_sum(values: Array) -> Array:
    """The sum over the last axis: the second half is added to the first until one number is left.

    Examples
    --------
    >>> halved_sum(np.arange(7.0))
    array(21.)
    """
    while values.shape[-1] > 1:
        half = (values.shape[-1] + 1) // 2
        first = values[..., :half].copy()
        first[..., : values.shape[-1] - half] += values[..., half:]
        values = first
    return values[..., 0] if values.shape[-1] else np.zeros(values.shape[:-1])


def lengths(values: Array) -> Array:
    """Euclidean lengths over the last axis, to (log₂ n + 4)·2⁻⁵³, also where squares would overflow."""
    largest = np.max(np.abs(values), axis=-1, initial=0.0)
    scale = np.where(largest > 0, largest, 1.0)
    squares = values / scale[..., None]
    squares *= squares
    while squares.shape[-1] > 1:  # as `halved_sum`, in place
        half = (squares.shape[-1] + 1) // 2
        squares[..., : squares.shape[-1] - half] += squares[..., half:]
        squares = squares[..., :half]
    return scale * np.sqrt(squares[..., 0] if squares.shape[-1] else np.zeros_like(scale))


def logistic_slope(u: Array, y: Array) -> Array:
    """The slope of ln(1 + e^{−yu}) in u, for y = ±1: −y/(1 + e^{yu}).

    Examples
    --------
    >>> logistic_slope(np.array([0.0, 1000.0]), np.array([1.0, 1.0])).tolist()
    [-0.5, -9.8...e-305]
    """
    return np.asarray(-y / (1.0 + exp(y * u)))


def softmax_slope(u: Array, y: Array) -> Array:
    """The slopes of ln Σ_k e^{u_k} − u_y: softmax(u) − e_y, for class numbers y; classes are the last axis."""
    powers = exp(u - np.max(u, axis=-1, keepdims=True))
    shares = powers / halved_sum(powers)[..., None]
    return np.asarray(shares - (np.asarray(y)[..., None] == np.arange(u.shape[-1])))
