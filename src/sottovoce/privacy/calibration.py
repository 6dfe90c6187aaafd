"""From a budget back to the noise, or to the number of rounds. Every answer lies on the private side of the root.

`sigma` says it of an event; the others, in units of the sensitivity, of parts. Roots are bracketed on a coarse grid,
where a look takes hundredths of a second, and finished on the fine one with which `accounting.epsilon` answers.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import scipy  # not its parts: they load when first used

from sottovoce.errors import PrivacyError
from sottovoce.privacy.accounting import FINEST, check_delta, refine
from sottovoce.privacy.composition import Part
from sottovoce.privacy.events import Priced, WholeEvent
from sottovoce.privacy.profiles import FixedPair, Pair, gaussian_multiplier

_ROUGH = 2**14
_TOLERANCE = 5e-4


def sigma(unit: Priced, epsilon: float, delta: float) -> float:
    """The least σ, to a thousandth, for which an event like this one, stated for σ = 1, is (ε, δ)-DP.

    Examples
    --------
    >>> from sottovoce.privacy.events import FullEvent
    >>> round(sigma(FullEvent(20000, 20000, 1.0, 1.0, 3), 1.0, 1e-5), 6)
    0.000646
    """
    _check(epsilon)
    check_delta(delta)
    if isinstance(unit, WholeEvent):
        z = unit.needed_multiplier(epsilon, delta)
    elif unit.part.pair.bounded:  # pure: ε adds up, and δ is not needed
        z = max(unit.count, 1) / epsilon
    else:
        z = noise_multiplier(unit.part, epsilon, delta)
    return z / unit.noise_multiplier


def noise_multiplier(part: Part, epsilon: float, delta: float) -> float:
    """The least noise multiplier, to a thousandth, with which so many rounds are (ε, δ)-DP, whatever it is in the part.

    A node that never speaks gets the noise of one round.

    Examples
    --------
    >>> from sottovoce.privacy.profiles import FixedPair
    >>> round(2 * noise_multiplier(Part(FixedPair(1.0, rate=1 / 20000), 60000), 1.0, 1e-5), 2)
    1.01
    """
    _check(epsilon)
    return _least(replace(part, pair=replace(part.pair, multiplier=1.0), count=max(part.count, 1)), epsilon, delta)


def single(epsilon: float, delta: float) -> float:
    """The least noise multiplier of one Gaussian release that is (ε, δ)-DP.

    Examples
    --------
    >>> round(single(1.0, 1e-5), 2)
    3.73
    """
    return noise_multiplier(Part(FixedPair(1.0), 1), epsilon, delta)


@lru_cache(maxsize=4096)  # the runs of a sweep ask the same over and over
def _least(unit: Part, epsilon: float, delta: float) -> float:
    if unit.gaussian and unit.pair.apart is not None:  # K rounds are one round with z/√K
        return gaussian_multiplier(epsilon, delta) * math.sqrt(unit.count) * unit.pair.apart

    def over(log_z: float, finest: int) -> float:
        trial = replace(unit, pair=replace(unit.pair, multiplier=math.exp(log_z)))
        return _over([trial], epsilon, delta, finest)

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


def rounds(pair: Pair, epsilon: float, delta: float) -> int:
    """The largest number of rounds, to one in ten thousand, that is (ε, δ)-DP.

    Examples
    --------
    >>> from sottovoce.privacy.profiles import FixedPair
    >>> rounds(FixedPair(10.0), 4.38, 1e-5)
    100
    """
    return remaining([], pair, epsilon, delta)


def remaining(spent: Sequence[Part], pair: Pair, epsilon: float, delta: float) -> int:
    """How many further rounds fit into a budget of which `spent` is gone; 0 where nothing is left.

    Examples
    --------
    >>> from sottovoce.privacy.profiles import FixedPair
    >>> remaining([Part(FixedPair(10.0), 60)], FixedPair(10.0), 4.38, 1e-5)
    40
    """
    _check(epsilon)

    def fits(count: int, finest: int) -> bool:
        return _over([*spent, Part(pair, count)], epsilon, delta, finest) <= 0

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


def _over(parts: Sequence[Part], epsilon: float, delta: float, finest: int) -> float:
    """log of ε over its target: at most 0 on the private side."""
    value = refine(parts, delta, finest)[0]
    return math.log(max(value, 1e-9 * epsilon) / epsilon) if value < math.inf else math.inf


def _check(epsilon: float) -> None:
    if not 0 < epsilon < math.inf:
        raise PrivacyError(f"a budget epsilon is finite and over 0, not {epsilon}")
