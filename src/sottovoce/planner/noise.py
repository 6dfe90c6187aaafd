"""How much noise a plan ends up with, in closed form: fit to compare hundreds of plans in a blink.

What counts is c, the deviation of the noise in each coordinate of the mean gradient over the whole run. With σ_i
calibrated to K releases, σ_i ∝ √K, the mean of K releases has the same noise for every K: in the limit of large
batches σ_i = 2L√K z₁/q_i, z₁ the noise multiplier of a single Gaussian release. Small batches need more. How much is
taken from the central limit theorem for subsampled Gaussians, whose parameter per round is 2p√sinh(1/z²) under Poisson
sampling (a record in or out, replaced by one on the other side) and p√(exp(1/z²) − 1) for batches of fixed size.
"""

import math

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.privacy.calibration import noise_multiplier


def single(epsilon: float, delta: float) -> float:
    """z₁: noise over sensitivity of one Gaussian release that is (ε, δ)-DP."""
    return noise_multiplier("full", 1.0, 1, epsilon, delta)


def excess(kind: str, rate: float, releases: float, z1: float) -> float:
    """By what factor sampling at this rate needs more noise than using every record, at the same (ε, δ).

    Examples
    --------
    >>> excess("full", 1.0, 100, 3.73)
    1.0
    >>> round(excess("poisson", 0.04, 100, 3.73), 3), round(excess("poisson", 0.001, 100, 3.73), 1)
    (1.001, 7.5)
    """
    if kind == "full":
        return 1.0
    halves = 2.0 if kind == "poisson" else 1.0
    budget = 1.0 / (halves * rate * z1) ** 2 / releases
    z = 1.0 / math.sqrt(math.asinh(budget) if kind == "poisson" else math.log1p(budget))
    z *= 1.0 + 0.6 * max(0.0, 1.0 - z)  # the limit theorem is optimistic for z below 1: fitted to the accountant
    return max(1.0, z / (halves * rate * math.sqrt(releases) * z1))


def enough(releases: float, z1: float, share: float = 1.02) -> float:
    """The smallest sampling rate at which Poisson sampling costs at most 2 % more noise than using every record."""
    for rate in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5):
        if excess("poisson", rate, releases, z1) <= share:
            return rate
    return 1.0


def level(weights: Array, sizes: IntArray, lipschitz: float, z1: float) -> float:
    """c, for nodes that use every record in every round, with weights that sum to one."""
    return float(2 * lipschitz * z1 * np.linalg.norm(weights / sizes))


def typical_size(z1: float) -> float:
    """κ of the weights `records(κ)`: a node with fewer records says less about them than its noise hides.

    The mean of q gradients strays by L/√q because q is finite, and gets noise 2Lz₁/q: the same for q = 4z₁².
    """
    return 4 * z1**2
