"""The best of a random number of runs: what private tuning costs (Papernot and Steinke 2022).

A run Q trains one of several plans, picked by chance, and gives it a score; a search makes K runs and releases the best
one, with its score, and nothing else: not the others, and not K. Published are neither how many there were nor how long
it took. K has a truncated negative binomial law with parameters η > −1 and 0 < γ < 1, settled before:

    η = 1 geometric, η = 0 logarithmic;  E[K] = η(1 − γ)/(γ(1 − γ^η)), or (1/γ − 1)/log(1/γ) for η = 0.

**Theorem.** Let every run be (ε, D(ε))-DP for every ε ≥ 0, and let ε₁ be such that D(ε₁) ≤ (e^ε₁ − 1)γ/(1 − γ). Then
the search is ((1 + η)ε₁ + ε, E[K]·D(ε))-DP for every ε ≥ 0.

*Proof.* Let scores decide without ties (chance decides between equals). f(x) = E[x^K] has the derivative
f'(x) = f'(1)·(γ/(1 − (1 − γ)x))^(1+η), which grows up to f'(1) = E[K]. The best run has the density
a(y) = q(y) f'(Q(≤ y)), where Q(≤ y) is the chance that a run is no better than y; q', Q' and a' with neighboring data.
Since 1 − (1 − γ)Q(≤ y) = γ + (1 − γ)Q(> y) and Q'(> y) ≤ e^ε₁ Q(> y) + D(ε₁),

    γ + (1 − γ)Q'(> y) ≤ e^ε₁ (γ + (1 − γ)Q(> y)) − (e^ε₁ − 1)γ + (1 − γ)D(ε₁) ≤ e^ε₁ (γ + (1 − γ)Q(> y)),

so that f'(Q'(≤ y)) ≥ e^−(1+η)ε₁ f'(Q(≤ y)). Hence a − e^(ε + (1+η)ε₁) a' ≤ f'(Q(≤ y)) (q − e^ε q'), whose positive part
is at most E[K] times that of q − e^ε q', and integrates to at most E[K]·D(ε). ∎

Where plans differ, D is the largest of theirs: which one a run took is part of what it releases, and picked without the
data. The bound is in the privacy profile, which is known exactly here; Papernot and Steinke's Theorem 2 says the same
kind of thing of Rényi divergences, and is computed as a cross-check where runs are Gaussian: some 40 % more noise.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce.errors import PrivacyError
from sottovoce.privacy import accounting, profiles
from sottovoce.privacy.composition import Part

Runs = tuple[tuple[Part, ...], ...]
"""Of every plan the parts that one run of it is composed of."""


def mean_runs(eta: float, gamma: float) -> float:
    """E[K].

    Examples
    --------
    >>> round(mean_runs(1.0, 0.1), 9), round(mean_runs(0.0, 0.1), 3)
    (10.0, 3.909)
    """
    if eta == 0.0:
        return (1.0 / gamma - 1.0) / -math.log(gamma)
    return eta * (1.0 - gamma) / (gamma * -math.expm1(eta * math.log(gamma)))


def gamma_for(eta: float, runs: float) -> float:
    """γ with which so many runs are made on average.

    Examples
    --------
    >>> round(gamma_for(1.0, 10.0), 9)
    0.1
    """
    if not eta > -1 or not 1 < runs < 1e6:
        raise PrivacyError(f"a search makes more than 1 run on average, and η is over −1, not {runs} and {eta}")
    low, high = -60.0, -1e-9
    return math.exp(scipy.optimize.brentq(lambda log: mean_runs(eta, math.exp(log)) - runs, low, high, xtol=1e-14))


def draw(eta: float, gamma: float, uniform: float) -> int:
    """K, from one uniform number.

    Examples
    --------
    >>> [draw(1.0, 0.5, u) for u in (0.3, 0.6, 0.99)]
    [1, 2, 7]
    """
    k, term = 1, (1.0 - gamma) / -math.log(gamma) if eta == 0.0 else eta * (1.0 - gamma) / (gamma**-eta - 1.0)
    left = uniform - term
    while left > 0 and term > 0:
        term *= (1.0 - gamma) * (k + eta) / (k + 1)
        k += 1
        left -= term
    return k


@lru_cache(maxsize=256)
def bounds(runs: Runs, eta: float, gamma: float, delta: float) -> tuple[float, float]:
    """ε of the search at δ, and the same by Rényi divergences; the first where the second is not known."""
    inside = delta / mean_runs(eta, gamma)
    worst = max(accounting.epsilon(parts, inside) for parts in runs)
    value = worst + (1.0 + eta) * pointwise(runs, gamma)
    z = [_gaussian(parts) for parts in runs]
    check = _renyi(min(z), eta, gamma, delta) if all(z) else value
    return min(value, check), max(value, check)


@lru_cache(maxsize=256)
def pointwise(runs: Runs, gamma: float) -> float:
    """ε₁, from the private side."""

    def over(epsilon: float) -> float:
        allowed = math.expm1(epsilon) * gamma / (1.0 - gamma)
        return max(accounting.delta(parts, epsilon) for parts in runs) - allowed

    low, high = 0.0, 1.0
    while over(high) > 0:
        low, high = high, 2.0 * high
        if high > 1e6:
            return math.inf
    while high - low > 1e-9 + 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if over(middle) > 0 else (low, middle)
    return high


def risk(runs: Runs, eta: float, gamma: float, fpr: float) -> float:
    """The largest share of true alarms at a share of false ones: TPR ≤ e^ε FPR + δ(ε), of every point of the curve."""
    best, extra, many = 1.0, (1.0 + eta) * pointwise(runs, gamma), mean_runs(eta, gamma)
    for inside in np.geomspace(1e-9, 0.2, 12).tolist():
        epsilon = extra + max(accounting.epsilon(parts, inside) for parts in runs)
        delta, power = many * inside, math.exp(min(epsilon, 700.0))
        best = min(best, power * fpr + delta, 1.0 - (1.0 - fpr - delta) / power)
    return max(best, fpr)


def run_multiplier(epsilon: float, delta: float, eta: float, gamma: float) -> float:
    """The least multiplier of one Gaussian mechanism a run with which the search is (ε, δ)-DP, from the private side.

    Examples
    --------
    >>> z = run_multiplier(1.0, 1e-5, 1.0, 0.1)
    >>> round(z / profiles.gaussian_multiplier(1.0, 1e-5), 2)
    1.59
    """

    def over(log_z: float) -> float:
        return bounds(((Part(profiles.FixedPair(math.exp(log_z)), 1),),), eta, gamma, delta)[0] - epsilon

    low = math.log(profiles.gaussian_multiplier(epsilon, delta))
    high = low + 1.0
    while over(high) > 0:
        low, high = high, high + 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if over(middle) > 0 else (low, middle)
    return math.exp(high)


def _gaussian(parts: Sequence[Part]) -> float:
    """The multiplier of the one Gaussian mechanism that a run is; 0 where it is none."""
    if not parts or not all(part.gaussian for part in parts):
        return 0.0
    return math.fsum(part.count * (part.pair.apart or 0.0) ** 2 for part in parts) ** -0.5


def _renyi(z: float, eta: float, gamma: float, delta: float) -> float:
    """Papernot and Steinke's Theorem 2 for Gaussian runs, converted (Canonne, Kamath and Steinke 2020, Prop. 12)."""
    orders, other = np.geomspace(1.01, 1e5, 2000), max(1.0, math.sqrt(2.0 * z * z * -math.log(gamma)))
    extra = (1.0 + eta) * ((1.0 - 1.0 / other) * other / (2.0 * z * z) - math.log(gamma) / other)
    renyi = orders / (2.0 * z * z) + extra + math.log(mean_runs(eta, gamma)) / (orders - 1.0)
    return float(np.min(renyi + np.log1p(-1.0 / orders) - np.log(delta * orders) / (orders - 1.0)))
