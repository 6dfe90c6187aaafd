"""The accountant: compute a true (ε, δ) from a node's whole participation.

Statements, ledgers, budgets and reports call `compute_epsilon`: it maps events to an `Account`, and caches the results.
The functions below it do the same for parts, each a number of rounds of one mechanism (`composition.Part`).

`epsilon` and `delta` return upper bounds, `epsilon_lower` a lower bound, numerical slack included. Grids are refined
until the result changes by no more than a few thousandths.
"""

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import _CacheInfo, lru_cache
from typing import Generic, TypeVar, TypeVarTuple

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array
from sottovoce.errors import PrivacyError
from sottovoce.privacy import profiles
from sottovoce.privacy.composite_events import WholeEvent
from sottovoce.privacy.composition import Part, compose, moments
from sottovoce.privacy.events import AccountedEvent
from sottovoce.privacy.profiles import FixedPair, Pair

FINEST = 2**20
FAINTEST = 1e-5  # a noise multiplier below this (ε over 10⁹) counts as no noise at all
SMALLEST = 1e-15
"""No δ below this is promised: a normal that is drawn never exceeds 9.49 σ, so that the far tail is not a normal's."""
_COARSEST = 2**14
_STILL = 2e-3  # grids are quadrupled until ε moves by less than this share of itself
_UNLUCKY = 0.01  # the probability of speaking less often than a lower bound counts on


Question = TypeVarTuple("Question")
Answer = TypeVar("Answer")


class Cached(Generic[*Question, Answer]):
    """A function of values, so many of whose answers are kept.

    Runs side by side ask the same at the same time: one thread computes what the others wait for.
    """

    def __init__(self, answer: Callable[[*Question], Answer], size: int) -> None:
        self._kept = lru_cache(maxsize=size)(answer)
        self._lock = threading.Lock()
        self._under_way: dict[tuple[*Question], threading.Event] = {}

    def __call__(self, *question: *Question) -> Answer:
        """Return the answer; the first caller computes it."""
        mine = threading.Event()
        while (first := self._claim(question, mine)) is not mine:
            first.wait()
        try:
            return self._kept(*question)
        finally:
            with self._lock:
                del self._under_way[question]
            mine.set()

    def _claim(self, question: tuple[*Question], mine: threading.Event) -> threading.Event:
        with self._lock:
            return self._under_way.setdefault(question, mine)

    def cache_info(self) -> _CacheInfo:
        """How often an answer was there already."""
        return self._kept.cache_info()


def cached(size: int) -> Callable[[Callable[[*Question], Answer]], Cached[*Question, Answer]]:
    """Cache this many results of a function of values.

    Examples
    --------
    >>> @cached(8)
    ... def square(x: int) -> int:
    ...     print("computing")
    ...     return x * x
    >>> square(3) + square(3)
    computing
    18
    """
    return lambda answer: Cached(answer, size)


@dataclass(frozen=True)
class Account:
    """What a participation costs at δ."""

    epsilon: float
    """The guarantee."""
    epsilon_lower: float
    """No smaller ε can be promised: an instance of the mechanism really reaches it. 0 where nothing is known."""
    epsilon_rdp: float
    """The same guarantee by Rényi moments: a looser upper bound from another calculation; infinite if not computed."""
    delta: float
    error: float
    """By how much the grid may have raised `epsilon`, as a share of it."""


def compute_epsilon(events: Iterable[AccountedEvent], delta: float, lower: bool = True) -> Account:
    """Return the total cost at δ of one or several participations of the same records.

    A node without releases costs nothing; a release without noise costs ε = ∞. Without `lower` only ε is computed, in a
    third of the time. If not all events are realized, there is no lower bound.

    Examples
    --------
    >>> from sottovoce.privacy.events import FixedEvent, FullEvent
    >>> round(compute_epsilon([FixedEvent(20000, 1, 1.0, 0.9, 60000)], 1e-5).epsilon, 2)
    2.22
    >>> run = FullEvent(100, 100, 1.0, 0.2, 50)
    >>> compute_epsilon([run, run], 1e-5).epsilon == compute_epsilon([FullEvent(100, 100, 1.0, 0.2, 100)], 1e-5).epsilon
    True
    """
    check_delta(delta)
    return _compute_epsilon(known(events), delta, lower)


@cached(4096)  # the runs of a sweep repeat the same calls
def _compute_epsilon(events: tuple[AccountedEvent, ...], delta: float, lower: bool) -> Account:
    spoken = [event for event in events if not event.silent]
    if any(event.noise_multiplier == 0 for event in spoken):
        return Account(math.inf, math.inf, math.inf, delta, 0.0)
    if len(spoken) == 1 and isinstance(spoken[0], WholeEvent):
        value, check = spoken[0].bounds(delta)
        return Account(value, 0.0, check, delta, 0.0)
    delta_left = delta - math.fsum(event.slack for event in spoken)
    if delta_left <= 0:
        return Account(math.inf, 0.0, math.inf, delta, 0.0)
    parts = [part for event in spoken for part in event.parts]
    found = account(parts, delta_left, lower and all(event.realized for event in spoken), lower)
    return replace(found, delta=delta)


def risk(events: Iterable[AccountedEvent], fpr: float) -> float:
    """The largest share of true alarms that an attacker can have at a share of false ones.

    Examples
    --------
    >>> from sottovoce.privacy.events import FullEvent
    >>> round(risk([FullEvent(2, 2, 1.0, 1.0, 1)], 0.01), 2)
    0.09
    """
    return _risk(known(events), fpr)


@cached(256)
def _risk(events: tuple[AccountedEvent, ...], fpr: float) -> float:
    spoken = [event for event in events if not event.silent]
    if any(event.noise_multiplier == 0 for event in spoken):
        return 1.0
    if len(spoken) == 1 and isinstance(spoken[0], WholeEvent):
        return spoken[0].risk(fpr)
    lost = min(1.0, math.fsum(event.slack for event in spoken))  # then everything may be known
    if lost == 1.0:
        return 1.0
    found = tradeoff([part for event in spoken for part in event.parts], min(1.0, fpr / (1.0 - lost)))
    return min(1.0, found + lost)


def known(events: Iterable[AccountedEvent]) -> tuple[AccountedEvent, ...]:
    """What the accountant has never heard of is an error, never a guess."""
    listed = tuple(events)
    for event in listed:
        if not isinstance(event, AccountedEvent):
            raise PrivacyError(f"there is no way to account for {event!r}; give an event of `privacy.events`")
    return listed


def check_delta(delta: float) -> None:
    """A δ of 0 needs pure noise, a δ of 1 promises nothing, and one below `SMALLEST` is more than the noise keeps."""
    _check(delta)
    if delta < SMALLEST:
        raise PrivacyError(
            f"δ (delta) must be at least {SMALLEST:g}, not {delta:g}: noise as it is drawn ends at 9.49 σ, so that "
            "nothing smaller could be promised"
        )


def _check(delta: float) -> None:
    if not 0 < delta < 1:
        raise PrivacyError(f"δ (delta) must lie strictly between 0 and 1, not {delta}")


def merge(parts: Sequence[Part]) -> list[Part]:
    """Equal mechanisms in one, in an order of their own: the answer can't depend on how a list was written."""
    rounds: dict[tuple[Pair, float], int] = {}
    for part in parts:
        key = part.pair, part.activity
        rounds[key] = rounds.get(key, 0) + part.count
    merged = [Part(pair, count, activity) for (pair, activity), count in rounds.items() if count]
    return sorted(merged, key=lambda part: (type(part.pair).__name__, *astuple(part.pair), part.activity))


def whole(merged: Sequence[Part]) -> list[Part]:
    """What to compose; what is Gaussian is one part, exactly."""
    plain = [part for part in merged if part.gaussian]
    rest = [part for part in merged if not part.gaussian]
    return [*rest, Part(FixedPair(_joint(plain)), 1)] if plain else rest


def _joint(merged: Sequence[Part]) -> float:
    """The multiplier of the one Gaussian mechanism that several compose to (Dong, Roth and Su 2022, Corollary 3.3)."""
    apart = [part.pair.apart or 0.0 for part in merged]
    return math.fsum(part.count * a * a for part, a in zip(merged, apart, strict=True)) ** -0.5


def _gaussian(merged: Sequence[Part]) -> bool:
    """Whether the whole is one Gaussian mechanism, for which there is a formula."""
    return all(part.gaussian for part in merged)


def _faint(merged: Sequence[Part]) -> bool:
    return any(part.pair.multiplier < FAINTEST for part in merged)


def _pure(merged: Sequence[Part]) -> float:
    """The ε at which δ is 0, infinite where there is none: pure DP adds up."""
    return math.fsum(part.count / part.pair.multiplier if part.pair.bounded else math.inf for part in merged)


def epsilon(parts: Sequence[Part], delta: float) -> float:
    """The least ε at which all the rounds together are certainly (ε, δ)-DP.

    Examples
    --------
    >>> round(epsilon([Part(FixedPair(0.45, rate=1 / 20000), 60000)], 1e-5), 2)
    2.22
    >>> round(epsilon([Part(FixedPair(10.0), 100)], 1e-5), 3)
    4.377
    """
    return refine(parts, delta)[0]


def refine(parts: Sequence[Part], delta: float, finest: int = FINEST) -> tuple[float, float]:
    """ε on grids of up to `finest` points, and the share of it by which the last refinement moved it."""
    _check(delta)
    return _refined(tuple(merge(parts)), delta, finest)


@cached(1024)  # calibrated noise is accounted again for the statement and its lower bound
def _refined(merged: tuple[Part, ...], delta: float, finest: int) -> tuple[float, float]:
    if not merged:
        return 0.0, 0.0
    if _faint(merged):
        return math.inf, 0.0
    if _gaussian(merged):
        return profiles.gaussian_epsilon(delta, _joint(merged)), 0.0
    composed = whole(merged)
    found = moments(composed, math.log(delta))
    if found.lost_all:
        return _pure(merged), 0.0
    level = min(found.bound(delta), _pure(merged))
    value, moved, size = math.inf, math.inf, min(_COARSEST, finest)
    while size <= finest and moved > _STILL:
        before, about = value, min(level, value, found.level(math.log(delta))[0])
        value = compose(composed, found, (max(about, 0.0), math.log(delta)), size).epsilon(delta)
        moved, size = _moved(before, value), 4 * size
        if value < 0.5 * about:
            found = moments(composed, math.log(delta), value)  # rare large losses had misled Chernoff's bound
            level = min(level, found.bound(delta))
    return min(level, value), min(moved, _moved(level, value))


def _moved(before: float, value: float) -> float:
    """By what share of itself a number has moved."""
    if value == math.inf:
        return math.inf
    return abs(before - value) / value if value > 0 else 0.0 if before == 0 else math.inf


def delta(parts: Sequence[Part], epsilon: float) -> float:
    """The least δ at which all the rounds together are certainly (ε, δ)-DP.

    Examples
    --------
    >>> round(delta([Part(FixedPair(0.45, rate=1 / 20000), 60000)], 2.2194), 7)
    1e-05
    """
    if not 0 <= epsilon < math.inf:
        raise PrivacyError(f"an epsilon is finite and not negative, not {epsilon}")
    merged = merge(parts)
    if not merged:
        return 0.0
    if _faint(merged):
        return 1.0
    if _gaussian(merged):
        return profiles.gaussian_delta(epsilon, _joint(merged))
    if epsilon >= _pure(merged):
        return 0.0
    composed = whole(merged)
    # δ decides how small a probability matters, so each evaluation starts from the δ that the last one found
    found = moments(composed, -60.0, epsilon)
    if found.lost_all:
        return 1.0
    best = min(math.exp(max(found.order(epsilon)[1], -300.0)) + found.lost, 1.0)
    moved, size = math.inf, _COARSEST
    while size <= FINEST and moved > _STILL and best > 0:
        log_delta = max(math.log(best), -600.0)
        value = compose(composed, moments(composed, log_delta, epsilon), (epsilon, log_delta), size).delta(epsilon)
        moved, best, size = _moved(best, value), min(best, value), 4 * size
    return best


def epsilon_lower(parts: Sequence[Part], delta: float, above: float | None = None) -> float:
    """An ε below which these rounds are certainly not (ε, δ)-DP for the worst data: a lower bound, slack included.

    `above` is what `epsilon` says, where that is known; it saves time, and no answer's validity depends on it.

    Examples
    --------
    >>> round(epsilon_lower([Part(FixedPair(1.0, rate=0.01), 1000)], 1e-5), 2)
    1.83
    """
    _check(delta)
    merged = merge(parts)
    if not merged:
        return 0.0
    if _faint(merged):
        return math.inf if any(part.pair.multiplier == 0 for part in merged) else 0.0
    certain = []
    for part in merged:
        rounds = part.count
        if part.activity < 1:
            # δ = E δ_K over how often the node speaks, and δ_K grows with K: so δ ≥ P(K ≥ k) δ_k
            quantile = float(
                scipy.special.bdtrik(_UNLUCKY, part.count, part.activity)
            )  # not a number where even 0 is likelier
            rounds = math.floor(quantile) + 1 if quantile > 0 else 0
            delta /= 1.0 - _UNLUCKY
        certain.append(Part(part.pair, rounds))
    certain = merge(certain)
    if not certain or delta >= 1.0:
        return 0.0
    if _gaussian(certain):
        return profiles.gaussian_epsilon(delta, _joint(certain))
    if above is None or certain != merged:
        above = refine(certain, delta, 4 * _COARSEST)[0]
    composed = whole(certain)
    found = moments(composed, math.log(delta), above)
    if found.lost_all:
        return 0.0
    target = max(found.level(math.log(delta))[0], 0.0), math.log(delta)
    real = [Part(part.pair.realized, part.count) for part in composed]
    best, moved, size = 0.0, math.inf, _COARSEST
    while size <= FINEST and moved > _STILL:
        value = compose(real, found, target, size, lower=True).epsilon_lower(delta)
        moved, best, size = _moved(best, value) if value else math.inf, max(best, value), 4 * size
    if best == 0.0 and len(certain) > 1:
        return max(epsilon_lower([part], delta) for part in certain)  # the whole reveals at least as much as each part
    return best


def epsilon_rdp(parts: Sequence[Part], delta: float) -> float:
    """The ε that the Rényi moments of the same pairs give: always valid, and looser, without any convolution.

    Examples
    --------
    >>> round(epsilon_rdp([Part(FixedPair(1.0), 1)], 1e-5), 2)
    4.73
    """
    _check(delta)
    return _renyi(tuple(merge(parts)), delta)


@cached(1024)
def _renyi(merged: tuple[Part, ...], delta: float) -> float:
    if not merged:
        return 0.0
    if _faint(merged):
        return math.inf
    composed = whole(merged)
    found = moments(composed, math.log(delta))
    order = found.level(math.log(delta))[1]
    cells = [part.cells(found.top, 8000) for part in composed]

    def bounds(log_orders: Array) -> Array:
        at = np.exp(log_orders)
        values = [part.log_moments(at, found.top, its) for part, its in zip(composed, cells, strict=True)]
        left = delta - math.fsum(lost for _, _, lost in values)  # a loss over top goes to δ
        if left <= 0:
            return np.full(len(at), math.inf)
        moment = np.sum([above for above, _, _ in values], axis=0)
        # Canonne, Kamath and Steinke 2020, Proposition 12
        return np.asarray(moment / at + np.log1p(-1.0 / (at + 1.0)) - np.log(left * (at + 1.0)) / at)

    center, width = math.log(order), 1.5
    for _ in range(5):  # each is a valid bound: search for the best on ever finer grids
        orders = np.linspace(center - width, center + width, 13)
        values = bounds(orders)
        best = int(np.argmin(values))
        center, width = float(orders[best]), width / 6.0
    return max(min(float(values[best]), _pure(merged)), 0.0)


def account(parts: Sequence[Part], delta: float, lower: bool = True, check: bool = True) -> Account:
    """All that is known about some rounds at δ; without `lower` nothing from below, without `check` no Rényi bound.

    Examples
    --------
    >>> from sottovoce.privacy.profiles import PoissonPair
    >>> account([Part(PoissonPair(1.0, rate=0.01), 100)], 1e-5).epsilon < 1.0
    True
    """
    value, error = refine(parts, delta)
    # two upper bounds; beyond ε of a million, where the grid is too coarse, the second can be the smaller by a hair
    renyi = epsilon_rdp(parts, delta) if check or _near(parts, delta, value) else math.inf
    below = epsilon_lower(parts, delta, value) if lower else 0.0
    return Account(min(value, renyi), below, renyi, delta, error)


def _near(parts: Sequence[Part], delta: float, value: float) -> bool:
    """Return whether the Rényi bound may be at most this ε, by a coarse estimate; never for Gaussian noise."""
    merged = merge(parts)
    if not merged or _faint(merged) or _gaussian(merged):
        return False
    return value > 0.8 * min(moments(whole(merged), math.log(delta)).bound(delta), _pure(merged))


def tradeoff(parts: Sequence[Part], fpr: float) -> float:
    """The largest true-positive rate that any attacker can have at this false-positive rate.

    Every point of the curve bounds it: TPR ≤ e^ε FPR + δ(ε), and 1 − FPR ≤ e^ε (1 − TPR) + δ(ε).

    Examples
    --------
    >>> round(tradeoff([Part(FixedPair(1.0), 1)], 0.01), 2)
    0.09
    """
    if not 0 <= fpr <= 1:
        raise PrivacyError(f"a false-positive rate is a probability, not {fpr}")
    merged = merge(parts)
    if not merged:
        return float(fpr)
    if _faint(merged):
        return 1.0
    if _gaussian(merged):
        # the trade-off of two Gaussians (Dong, Roth and Su 2022)
        return float(scipy.special.ndtr(1.0 / _joint(merged) + scipy.special.ndtri(fpr)))
    best = 1.0
    composed = whole(merged)
    for log_delta in np.log(np.geomspace(max(min(fpr, 0.5), 1e-9) / 30.0, 0.9, 5)).tolist():
        found = moments(composed, log_delta)
        curve = compose(composed, found, (max(found.level(log_delta)[0], 0.0), log_delta), FINEST // 8)
        keep = (curve.losses >= 0) & (curve.losses < 700)
        e, d = curve.losses[keep], curve.deltas()[keep]
        if len(e):
            bounds = np.minimum(np.exp(e) * fpr + d, 1.0 - np.exp(-e) * (1.0 - fpr - d))
            best = min(best, float(bounds.min()))
    return max(best, float(fpr))
