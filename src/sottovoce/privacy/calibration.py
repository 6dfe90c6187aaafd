"""How much noise: from a budget back to σ, or to the number of rounds, and from what a spec says to every node's σ_i.

`sigma` answers for an event; `noise_multiplier`, `rounds` and `remaining`, in units of the sensitivity, for parts.
Every answer lies on the private side of the root. Roots are bracketed on a coarse grid, where an evaluation takes
hundredths of a second, and finished on the fine one with which `accounting.epsilon` answers.

What a spec holds is one of `NOISES`. ``private(ε)``: as much as a true (ε, δ) needs. ``gaussian(σ, …)``: one σ for all,
or one for each node. ``theorem1(ε, δ₀)``: the paper's formula, with the claims that it makes. ``none``: no noise, which
protects nobody.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol

import scipy  # not its parts: they load when first used

from sottovoce import limits
from sottovoce._types import IntArray
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.privacy.accounting import FINEST, cached, check_delta, refine
from sottovoce.privacy.composite_events import WholeEvent
from sottovoce.privacy.composition import Part
from sottovoce.privacy.events import AccountedEvent, Event
from sottovoce.privacy.profiles import FixedPair, gaussian_multiplier
from sottovoce.privacy.release import NodeTurns, Release
from sottovoce.privacy.theorem1 import Theorem1, check_claim
from sottovoce.registry import Choices, write

_ROUGH = 2**14
_TOLERANCE = 5e-4
_CLOSE = 1e-6  # how well a root on the coarse grid is known


def sigma(unit: AccountedEvent, epsilon: float, delta: float) -> float:
    """The least σ, to a thousandth, for which an event like this one, stated for σ = 1, is (ε, δ)-DP.

    Examples
    --------
    >>> from sottovoce.privacy.events import FullEvent
    >>> round(sigma(FullEvent(20000, 20000, 1.0, 1.0, 3), 1.0, 1e-5), 6)
    0.000646
    """
    _check(epsilon)
    check_delta(delta)
    if unit.slack:
        if unit.slack >= delta:
            raise PrivacyError(
                f"a graph of secrets that fails with a chance of {unit.slack:g} cannot be part of δ = {delta:g}; give "
                "a larger δ, or a smaller chance ('fails') and more peers"
            )
        delta -= unit.slack
    if isinstance(unit, WholeEvent):
        z = unit.needed_multiplier(epsilon, delta)
    elif unit.part.pair.bounded:  # pure: ε adds up, and δ is not needed
        z = max(unit.count, 1) / epsilon
    else:
        first = getattr(unit, "before", None)  # its noise is fixed: the rounds get what it leaves
        fixed = () if first is None else first.parts
        own = unit.parts[len(fixed) :]
        apart = [part.pair.multiplier / unit.noise_multiplier for part in own]
        z = _least(tuple(map(_with_multiplier, own, apart)), epsilon, delta, fixed)
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
    return _least((_with_multiplier(part, 1.0),), epsilon, delta, ())


def _with_multiplier(part: Part, multiplier: float) -> Part:
    return replace(part, pair=replace(part.pair, multiplier=multiplier), count=max(part.count, 1))


def single(epsilon: float, delta: float) -> float:
    """The least noise multiplier of one Gaussian release that is (ε, δ)-DP.

    Examples
    --------
    >>> round(single(1.0, 1e-5), 2)
    3.73
    """
    return noise_multiplier(Part(FixedPair(1.0), 1), epsilon, delta)


@cached(4096)  # the runs of a sweep repeat the same calls
def _least(units: tuple[Part, ...], epsilon: float, delta: float, fixed: tuple[Part, ...]) -> float:
    """By what all multipliers must be multiplied, beside parts that stay as they are."""
    if all(unit.gaussian for unit in (*units, *fixed)):  # K rounds are one round with z/√K
        squares, spent = (
            math.fsum(unit.count * (unit.pair.apart or 0.0) ** 2 for unit in some) for some in (units, fixed)
        )
        left = gaussian_multiplier(epsilon, delta) ** -2 - spent
        return math.sqrt(squares / left) if left > 0 else _nothing_left(epsilon)
    if fixed and _over(fixed, epsilon, delta, FINEST) >= 0:
        return _nothing_left(epsilon)

    @cache  # the ends of a bracket are evaluated more than once
    def over(log_z: float, finest: int) -> float:
        z = math.exp(log_z)
        trial = [replace(unit, pair=replace(unit.pair, multiplier=z * unit.pair.multiplier)) for unit in units]
        return _over([*trial, *fixed], epsilon, delta, finest)

    unit, many = units[0], math.fsum(part.count * part.activity for part in units)
    apart = 1.0 / (gaussian_multiplier(epsilon, delta) * math.sqrt(many))
    guess = unit.pair.guess(apart) / unit.pair.multiplier
    root = _secant(lambda x: over(x, _ROUGH), math.log(guess)) if 0.0 < guess < math.inf else None
    found = math.inf if root is None else _finish(over, *root)
    if found < math.inf:
        return math.exp(found)
    low = high = math.log(0.5)
    while over(high, _ROUGH) > 0:
        low, high = high, high + 1.0
    while over(low, _ROUGH) <= 0:
        low, high = low - 1.0, low
        if low < -12.0:
            return math.exp(high)  # even no noise to speak of is enough: a record is hardly ever used
    x = float(scipy.optimize.brentq(lambda v: over(v, _ROUGH), low, high, xtol=_CLOSE))
    slope = (over(x + 0.005, _ROUGH) - over(x - 0.005, _ROUGH)) / 0.01
    return math.exp(_finish(over, x, slope, high))


def _nothing_left(epsilon: float) -> float:
    raise PrivacyError(
        f"the release before the first round leaves nothing of ε = {epsilon:g} for the rounds; raise ε, or leave it out"
    )


def _secant(over: Callable[[float], float], x: float) -> tuple[float, float] | None:
    """The root in log z from a guess, and the slope there; None where it is not found in a few steps along chords."""
    value, slope = over(x), -1.0
    for _ in range(8):
        if not (-5.0 < value < 5.0 and -8.0 < slope < -0.2 and -10.0 < x < 10.0):
            return None
        step = max(min(-value / slope, 1.0), -1.0)
        if abs(step) < _CLOSE:
            return x + step, slope
        before, x = value, x + step
        value = over(x)
        if abs(step) > 1e-4:  # a shorter chord is that of the grid
            slope = (value - before) / step
    return None


def _finish(over: Callable[[float, int], float], x: float, slope: float, private: float = math.inf) -> float:
    """From the root on the coarse grid, in log z, to the private side of that on the fine one, or to `private`."""
    slope = min(slope, -0.1)
    for _ in range(12):
        value = over(x, FINEST)
        step = value / slope
        if value <= 0:
            private = min(private, x)
            if step < _TOLERANCE:
                return x
        x -= max(min(step, 1.0), -1.0) - _TOLERANCE / 3
    return private


def _over(parts: Sequence[Part], epsilon: float, delta: float, finest: int) -> float:
    """log of ε over its target: at most 0 on the private side."""
    value = refine(parts, delta, finest)[0]
    return math.log(max(value, 1e-9 * epsilon) / epsilon) if value < math.inf else math.inf


def _check(epsilon: float) -> None:
    if not 0 < epsilon < math.inf:
        raise PrivacyError(f"a budget epsilon is finite and over 0, not {epsilon}")
    limits.check_epsilon(epsilon, PrivacyError)


Scales = tuple[tuple[float, ...], tuple[Theorem1, ...]]
"""σ_i for every node, and the claims of Theorem 1 where that is where they come from."""


@dataclass(frozen=True, eq=False)
class Circumstances:
    """What is known of a run before its noise is.

    Attributes
    ----------
    unit : the release at the unit of σ: 1, or what a law has in its place
    sizes, spoken : q_i, and K_i, in how many rounds node i speaks
    delta : δ
    iota, rounds : ι and T
    turns : in which rounds a node speaks
    apart : whether nodes that speak less often, by a plan fixed in advance, have a σ of their own
    """

    unit: Release
    sizes: IntArray
    spoken: IntArray
    delta: float
    iota: float
    rounds: int
    turns: NodeTurns | None = None
    apart: bool = False


class Noise(Protocol):
    """An amount of noise as a spec holds it."""

    @property
    def words(self) -> str:
        """The same, for who knows no notation."""

    def scales(self, of: Circumstances) -> Scales:
        """σ_i for every node of a run."""


@dataclass(frozen=True)
class NoNoise:
    """Nothing."""

    def __str__(self) -> str:
        """In a spec."""
        return "none"

    @property
    def words(self) -> str:
        """For reading."""
        return "no noise"

    def scales(self, of: Circumstances) -> Scales:
        """Zeros."""
        return (0.0,) * len(of.sizes), ()


@dataclass(frozen=True)
class GivenNoise:
    """One σ for all nodes, or one for each."""

    sigma: tuple[float, ...]

    def __post_init__(self) -> None:
        """Numbers that are scales."""
        if not self.sigma or not all(0 <= s < math.inf for s in self.sigma):
            raise SpecError(
                f"noise '{self}' is malformed; write 'gaussian(σ)' or 'gaussian(σ_0, σ_1, …)' with finite numbers that "
                "are not negative"
            )

    def __str__(self) -> str:
        """In a spec."""
        return write("gaussian", *self.sigma)

    @property
    def words(self) -> str:
        """For reading."""
        return f"σ = {self.sigma[0]:g}" if len(self.sigma) == 1 else str(self)

    def scales(self, of: Circumstances) -> Scales:
        """As given."""
        n = len(of.sizes)
        if len(self.sigma) not in (1, n):
            raise SpecError(f"noise '{self}' has {len(self.sigma)} numbers; give one, or one for each of the {n} nodes")
        return tuple(float(s) for s in self.sigma) * (n // len(self.sigma)), ()


@dataclass(frozen=True)
class Private:
    """As much as (ε, δ) needs; nodes of one size share a σ, the one that the neediest of them needs."""

    epsilon: float

    def __post_init__(self) -> None:
        """A budget."""
        _check(self.epsilon)

    def __str__(self) -> str:
        """In a spec."""
        return write("private", self.epsilon)

    @property
    def words(self) -> str:
        """For reading."""
        return f"ε = {self.epsilon:g}"

    def scales(self, of: Circumstances) -> Scales:
        """Calibrate once for all nodes of the same size, reach and pre-release, with their largest count."""
        groups = list(zip(of.sizes.tolist(), of.spoken.tolist() if of.apart else [0] * len(of.sizes), strict=True))
        by_kind: dict[tuple[tuple[int, int], float, Event | None], list[Event]] = {}
        events = of.unit.events(of.sizes, of.spoken, of.turns)
        for group, event in {
            (group, id(event)): (group, event) for group, event in zip(groups, events, strict=True)
        }.values():
            before = getattr(event, "before", None)  # equal nodes share one event
            by_kind.setdefault((group, event.noise_multiplier, before), []).append(event)
        needed: dict[tuple[int, int], float] = {}
        for (group, _, _), some in by_kind.items():
            neediest = max(some, key=lambda event: event.count).covering(some)
            needed[group] = max(needed.get(group, 0.0), sigma(neediest, self.epsilon, of.delta))
        if of.unit.law.secrets:  # what hides a node is everybody's noise: all have so many times their unit
            most = max(needed.values())
            return tuple(most * unit for unit in of.unit.sigma), ()
        return tuple(needed[group] for group in groups), ()


@dataclass(frozen=True)
class PaperNoise:
    """σ of Theorem 1, for the ε that it claims."""

    epsilon: float
    delta0: float = 0.01

    def __post_init__(self) -> None:
        """A claim that the theorem makes."""
        check_claim(self.epsilon, self.delta0)

    def __str__(self) -> str:
        """In a spec."""
        return write("theorem1", self.epsilon, self.delta0)

    @property
    def words(self) -> str:
        """For reading."""
        return f"Theorem 1 claiming {self.epsilon:g}"

    def scales(self, of: Circumstances) -> Scales:
        """By the formula, with its claims."""
        claims = tuple(Theorem1(self.epsilon, self.delta0, of.iota, of.unit.clip, int(q), of.rounds) for q in of.sizes)
        return tuple(claim.sigma for claim in claims), claims


def _given(*sigma: float) -> GivenNoise:
    return GivenNoise(sigma)


NOISES: Choices[Noise] = Choices(
    "noise", {"none": NoNoise, "gaussian": _given, "private": Private, "theorem1": PaperNoise}
)
