"""From a budget back to the noise, or to the number of rounds. Every answer lies on the private side of the root.

Roots are bracketed on a coarse grid, where a look takes hundredths of a second, and finished on the fine one with
which `accounting.epsilon` answers.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import scipy  # not its parts: they load when first used

from sottovoce.errors import PrivacyError
from sottovoce.privacy import objective, profiles
from sottovoce.privacy.accounting import FINEST, Mechanism, refine
from sottovoce.privacy.events import Event

_ROUGH = 2**14
_TOLERANCE = 5e-4


def noise_multiplier(kind: str, rate: float, rounds: int, epsilon: float, delta: float, activity: float = 1.0) -> float:
    """The least noise multiplier, to a thousandth, with which so many rounds are (ε, δ)-DP.

    A node that never speaks gets the noise of one round.

    Examples
    --------
    >>> round(2 * noise_multiplier("fixed", 1 / 20000, 60000, 1.0, 1e-5), 2)
    1.01
    """
    _check(epsilon)
    return _least(kind, rate, max(rounds, 1), epsilon, delta, activity)


@lru_cache(maxsize=4096)  # the runs of a sweep ask the same over and over
def _least(kind: str, rate: float, count: int, epsilon: float, delta: float, activity: float) -> float:
    trial = Mechanism(kind, rate, 1.0, count, activity)
    if trial.gaussian:
        # K rounds are one round with z/√K, and Poisson sampling at rate 1 has its means 2 apart
        return _gaussian(epsilon, delta) * math.sqrt(count) * (2.0 if kind == "poisson" else 1.0)

    def over(log_z: float, finest: int) -> float:
        return _over([Mechanism(kind, rate, math.exp(log_z), count, activity)], epsilon, delta, finest)

    low = high = math.log(0.5)
    while over(high, _ROUGH) > 0:
        low, high = high, high + 1.0
    while over(low, _ROUGH) <= 0:
        low, high = low - 1.0, low
        if low < -12.0:
            return math.exp(high)  # even no noise to speak of is enough: a record is hardly ever used
    return math.exp(_finish(over, low, high))


def _finish(over: Callable[[float, int], float], low: float, high: float) -> float:
    """The private end of a bracket in log z: the root on the coarse grid, then a few steps along its slope."""
    x = float(scipy.optimize.brentq(lambda v: over(v, _ROUGH), low, high, xtol=1e-6))
    slope = min((over(x + 0.005, _ROUGH) - over(x - 0.005, _ROUGH)) / 0.01, -0.1)
    private = high
    for _ in range(12):
        value = over(x, FINEST)
        step = value / slope
        if value <= 0:
            private = min(private, x)
            if step < _TOLERANCE:
                return x
        x -= max(min(step, 1.0), -1.0) - _TOLERANCE / 3
    return private


def sigma(
    kind: str,
    records: int,
    batch: int,
    lipschitz: float,
    rounds: int,
    epsilon: float,
    delta: float,
    activity: float = 1.0,
) -> float:
    """The least σ, to a thousandth, for a node with q records that releases means of b of them, each within L.

    Examples
    --------
    >>> round(sigma("full", 20000, 20000, 1.0, 3, 1.0, 1e-5), 6)
    0.000646
    """
    unit = Event(kind, records, batch, lipschitz, 1.0, rounds)  # the one place where σ becomes a multiplier
    return noise_multiplier(kind, unit.rate, rounds, epsilon, delta, activity) / unit.noise_multiplier


def sigma_for(unit: Event, epsilon: float, delta: float) -> float:
    """The least σ, to a thousandth, for which an event like this one, stated for σ = 1, is (ε, δ)-DP."""
    if unit.law == "objective":
        return _gaussian(*objective.gaussian_target(unit.extra, epsilon, delta)) / unit.noise_multiplier
    needed = Mechanism.of(unit)
    if needed.kind == "laplace":  # pure: ε adds up, and δ is not needed
        _check(epsilon)
        return max(needed.rounds, 1) / epsilon / unit.noise_multiplier
    z = noise_multiplier(needed.kind, needed.rate, needed.rounds, epsilon, delta)
    return z / unit.noise_multiplier


def rounds(kind: str, rate: float, multiplier: float, epsilon: float, delta: float) -> int:
    """The largest number of rounds, to one in ten thousand, that is (ε, δ)-DP.

    Examples
    --------
    >>> rounds("full", 1.0, 10.0, 4.38, 1e-5)
    100
    """
    return remaining([], kind, rate, multiplier, epsilon, delta)


def remaining(
    spent: Sequence[Mechanism], kind: str, rate: float, multiplier: float, epsilon: float, delta: float
) -> int:
    """How many further rounds fit into a budget of which `spent` is gone; 0 where nothing is left.

    Examples
    --------
    >>> remaining([Mechanism("full", 1.0, 10.0, 60)], "full", 1.0, 10.0, 4.38, 1e-5)
    40
    """
    _check(epsilon)

    def fits(count: int, finest: int) -> bool:
        return _over([*spent, Mechanism(kind, rate, multiplier, count)], epsilon, delta, finest) <= 0

    if not fits(1, FINEST):
        return 0
    low, high = _bracket(lambda k: fits(k, _ROUGH), 1, 2, 1e-3)
    stride = max(high - low, 1)
    while low > 1 and not fits(low, FINEST):
        low, high = max(low - stride, 1), low
        stride *= 2
    high = max(high, low + 1)
    low, high = _bracket(lambda k: fits(k, FINEST), low, high, 1e-4)
    return low


def _bracket(fits: Callable[[int], bool], low: int, high: int, share: float) -> tuple[int, int]:
    """A count that fits and one that doesn't, as close as asked; `low` is known to fit."""
    while fits(high):
        low, high = high, high + 2 * (high - low) if high < 2**60 else _endless()
    while high - low > max(1.0, share * low):
        middle = (low + high) // 2 if high < 4 * low else math.isqrt(low * high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low, high


def _endless() -> int:
    raise PrivacyError("any number of rounds would fit this budget; ask for a smaller epsilon or delta")


def _over(mechanisms: Sequence[Mechanism], epsilon: float, delta: float, finest: int) -> float:
    """log of ε over its target: at most 0 on the private side."""
    value = refine(mechanisms, delta, finest)[0]
    return math.log(max(value, 1e-9 * epsilon) / epsilon) if value < math.inf else math.inf


def _gaussian(epsilon: float, delta: float) -> float:
    """The multiplier of one Gaussian mechanism (Balle and Wang 2018), from the private side."""

    def over(log_z: float) -> float:
        return math.log(max(profiles.gaussian_delta(epsilon, math.exp(log_z)), 1e-300) / delta)

    root = math.exp(float(scipy.optimize.brentq(over, math.log(1e-8), math.log(1e8), xtol=1e-13)))
    while profiles.gaussian_epsilon(delta, root) > epsilon:
        root *= 1.0 + 1e-9
    return root * (1.0 + 1e-9)  # √K and σ round it, and ε is computed anew: by none of that may it pass its target


def _check(epsilon: float) -> None:
    if not 0 < epsilon < math.inf:
        raise PrivacyError(f"a budget epsilon is finite and over 0, not {epsilon}")
