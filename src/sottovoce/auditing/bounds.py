"""From counts of right and wrong guesses to lower bounds on ε, each with its confidence.

*Many paired runs.* A test says "it is the second record" wherever its score is over a threshold. In N runs with the
first record it is wrong a times, in N runs with the second one it is silent b times; Clopper and Pearson bound both
error rates from above, FPR ≤ α and FNR ≤ β together with the confidence requested. A mechanism whose trade-off curve
lies over the point (α, β) is thereby refuted. `Family` holds the curves of the very mechanism that is stated, with its
noise multiplied by s: those with s over some s* are refuted, so that ε is at least that of s*. The curves are the
accountant's own, no Gaussian approximation of them. The plain bound beside it knows no mechanism at all: (ε, δ) itself
says that 1 − β ≤ e^ε α + δ, and the same with α and β exchanged.

*One run with many canaries.* Each of m records is one of two by a coin of its own; r of the random bits are guessed and
v guesses are right. `one_run_epsilon` is Steinke, Nasr and Jagielski 2023, for any (ε, δ); `one_run_scale` the
recursion of Mahloujifar, Melis and Chaudhuri 2024, for the family.

Thresholds, scores and guesses must have been chosen without looking at the runs that are counted.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array, IntArray
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.privacy.accounting import compute_epsilon, merge, whole
from sottovoce.privacy.composite_events import JointEvent, SearchEvent, WholeEvent
from sottovoce.privacy.composition import compose, moments
from sottovoce.privacy.events import AccountedEvent, Event, GaussianEvent, Hidden, RandomParticipation

CONFIDENCE = 0.95
FINE = 1.0 + 1e-7
"""The same where it has one."""
POINTS = 1 << 16
"""Of the grid on which a curve that has no formula is composed."""
KEPT = 800
"""Points of it that are kept, of each of several grids."""
MAX_LOG_SCALE = 8.0
"""Multiples of the stated noise that a test refutes are searched for up to e to this, and down to 1 over that."""
STEP = 1.01
"""How closely, where a curve has no formula: to a hundredth of the noise, on the refuted side."""


def most_likely(count: int | Array | IntArray, total: int, confidence: float) -> Array:
    """The largest rate at which so few of `total` are not yet too unlikely (Clopper and Pearson 1934), one-sided.

    Examples
    --------
    >>> round(float(most_likely(0, 100, 0.975)), 4), float(most_likely(100, 100, 0.975))
    (0.0362, 1.0)
    """
    k = np.asarray(count, dtype=np.float64)
    return np.where(k < total, scipy.special.betaincinv(k + 1.0, np.maximum(total - k, 1e-300), confidence), 1.0)


class Rates(NamedTuple):
    """Error rates of a test that are certainly not exceeded, with the confidence requested both together."""

    fpr: float
    fnr: float


def rates(false_alarms: int, misses: int, runs: tuple[int, int], confidence: float = CONFIDENCE) -> Rates:
    """From counts in so many runs with the first record and with the second: half of the doubt goes to each rate."""
    check_confidence(confidence)
    each = 0.5 + confidence / 2
    return Rates(
        float(most_likely(false_alarms, runs[0], each)),
        float(most_likely(misses, runs[1], each)),
    )


def check_confidence(confidence: float) -> None:
    """A probability that is worth stating."""
    if not 0.5 <= confidence < 1:
        raise SpecError(f"a confidence is at least 0.5 and below 1, not {confidence}")


def plain_epsilon(found: Rates, delta: float) -> float:
    """The ε below which no mechanism with these error rates is (ε, δ)-DP, whatever it is.

    Examples
    --------
    >>> round(plain_epsilon(Rates(0.01, 0.5), 1e-5), 3)
    3.912
    """
    best = 0.0
    for alarm, miss in (found, found[::-1]):
        left = 1.0 - miss - delta
        if left > alarm:
            best = max(best, math.log(left / alarm))
    return best


@dataclass(frozen=True, eq=False)
class Curve:
    """The largest share of true alarms at each share of false ones, for all of them at once.

    Attributes
    ----------
    apart : μ of a Gaussian mechanism, for which there is a formula
    points : ε and δ(ε) of any other, at many places, every one of which bounds every test
    slow : one answer at a time, of a mechanism that is accounted as a whole
    """

    apart: float | None = None
    points: tuple[Array, ...] = ()
    slow: Callable[[float], float] | None = None

    def __call__(self, fpr: Array | float) -> Array:
        """1 − the trade-off function."""
        at = np.asarray(fpr, dtype=np.float64)
        if self.apart is not None:
            return np.asarray(scipy.special.ndtr(self.apart + scipy.special.ndtri(at)))
        if self.slow is not None:
            return np.array([self.slow(float(each)) for each in at.ravel()]).reshape(at.shape)
        losses, deltas = self.points
        rise = np.exp(losses)
        found = np.empty(at.size)
        for k, each in enumerate(at.ravel().tolist()):
            found[k] = np.minimum(rise * each + deltas, 1.0 - (1.0 - each - deltas) / rise).min(initial=1.0)
        return np.maximum(found.reshape(at.shape), at)


@lru_cache(maxsize=1024)  # audits of the same statement ask for the same ones
def curve(event: AccountedEvent) -> Curve:
    """Of one participation; the same that `privacy.accounting.risk` says, at many shares of false alarms.

    Examples
    --------
    >>> from sottovoce.privacy.events import FullEvent
    >>> curve(FullEvent(2, 2, 1.0, 1.0, 1))([0.01, 0.5]).round(3)
    array([0.092, 0.841])
    """
    if event.silent:
        return Curve(apart=0.0)
    if event.noise_multiplier == 0:
        return Curve(points=(np.array([0.0]), np.array([1.0])))
    if isinstance(event, WholeEvent):
        return Curve(slow=event.risk)
    parts = whole(merge(event.parts))
    if len(parts) == 1 and parts[0].gaussian:
        return Curve(apart=(parts[0].pair.apart or 0.0) * math.sqrt(parts[0].count))
    losses, deltas = [], []
    for log_delta in np.log(np.geomspace(1e-8, 0.9, 6)).tolist():
        found = moments(parts, log_delta)
        made = compose(parts, found, (max(found.level(log_delta)[0], 0.0), log_delta), POINTS)
        keep = np.flatnonzero((made.losses >= 0) & (made.losses < 700))
        keep = keep[:: max(1, len(keep) // KEPT)]
        losses.append(made.losses[keep])
        deltas.append(made.deltas()[keep])
    return Curve(points=(np.concatenate(losses), np.concatenate(deltas)))


def noisier(event: AccountedEvent, s: float) -> AccountedEvent:
    """The event with s times its noise, in all that it is made of."""
    if isinstance(event, RandomParticipation | Hidden):
        return replace(event, event=_noisier(event.event, s))
    if isinstance(event, Event):
        return _noisier(event, s)
    raise PrivacyError(f"there is no family of mechanisms around {event!r}; give an event of a release")


def _noisier(event: Event, s: float) -> Event:
    if isinstance(event, JointEvent):
        return JointEvent.of([_noisier(each, s) for each in event.releases])
    if isinstance(event, SearchEvent):
        return replace(event, sigma=s * event.sigma, runs=tuple(_noisier(each, s) for each in event.runs))
    if isinstance(event, GaussianEvent):
        before = None if event.before is None else replace(event.before, sigma=s * event.before.sigma)
        levels = tuple((s * sigma, count) for sigma, count in event.levels)
        return replace(event, sigma=s * event.sigma, levels=levels, before=before)
    return replace(event, sigma=s * event.sigma)


class Family:
    """A stated mechanism, with its noise multiplied by s: s = 1 is what is stated.

    Parameters
    ----------
    event : what is stated of the record's node, or anything else that has a cost
    delta : δ of the statement

    Examples
    --------
    >>> from sottovoce.privacy.events import FullEvent
    >>> family = Family(FullEvent(10, 10, 1.0, 0.746, 1), 1e-5)
    >>> round(family.epsilon(), 2), round(family.epsilon(family.scale(Rates(0.44, 0.44))), 2)
    (1.0, 1.14)
    """

    def __init__(self, event: AccountedEvent, delta: float) -> None:
        self.event, self.delta = event, delta

    def at(self, s: float) -> AccountedEvent:
        """The event with s times its noise."""
        return self.event if s == 1.0 else noisier(self.event, s)

    def epsilon(self, s: float = 1.0) -> float:
        """What the accountant says of it; 0 where s is infinite."""
        if math.isinf(s):
            return 0.0
        return compute_epsilon([self.at(s)], self.delta, lower=False).epsilon if s > 0 else math.inf

    def curve(self, s: float = 1.0) -> Curve:
        """The trade-off curve."""
        return curve(self.at(s))

    def scale(self, found: Rates) -> float:
        """The least s that these error rates refute: with so much noise, or more, no test could be so good.

        Infinite where nothing is refuted. The answer lies on the refuted side of the root, and 1 means what it says.
        """
        alarms, hits = found.fpr, 1.0 - found.fnr
        if hits <= alarms:
            return math.inf
        stated = self.curve().apart
        if stated is not None:
            apart = float(scipy.special.ndtri(hits) - scipy.special.ndtri(alarms))
            return stated / apart if apart < math.inf else 0.0

        return _first_refuted(lambda s: float(self.curve(s)(alarms)) < hits)

    @cached_property
    def _ladder(self) -> tuple[Array, list[Curve]]:
        """Curves around the stated one, for choosing among many tests at once."""
        scales = np.geomspace(1 / 4.0, 4.0, 9)
        return scales, [self.curve(float(s)) for s in scales]

    def about(self, fpr: Array, fnr: Array) -> Array:
        """`scale` of many tests at once, as well as choosing one of them needs it."""
        hits = 1.0 - np.asarray(fnr)
        middle = self.curve()
        if middle.apart is not None and middle.apart > 0:
            with np.errstate(divide="ignore", invalid="ignore"):
                apart = scipy.special.ndtri(hits) - scipy.special.ndtri(fpr)
                return np.where(hits > fpr, middle.apart / np.maximum(apart, 1e-300), np.inf)
        scales, curves = self._ladder
        powers = np.stack([each(fpr) for each in curves])  # falling with the scale
        found = np.full(len(hits), np.inf)
        for k, hit in enumerate(hits.tolist()):
            if hit > fpr[k]:
                falling = np.maximum.accumulate(powers[::-1, k])
                found[k] = math.exp(float(np.interp(hit, falling, np.log(scales[::-1]))))
        return found


def _first_refuted(refuted: Callable[[float], bool], finest: float = STEP) -> float:
    """The least multiple of the noise that is refuted, on a grid through 1; infinite where none is, 0 where all are."""
    end = math.ceil(MAX_LOG_SCALE / math.log(finest))
    low, high = -end - 1, end + 1  # low is not refuted, high is, as far as is known
    for candidate in (0, -end, end):
        if low < candidate < high:
            low, high = (low, candidate) if refuted(finest**candidate) else (candidate, high)
    while high - low > 1 and -end <= high and low <= end:
        middle = (low + high) // 2
        low, high = (low, middle) if refuted(finest**middle) else (middle, high)
    return math.inf if high > end else 0.0 if high == -end else finest**high


# -- one run, many canaries --


def one_run_doubt(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """How likely a mechanism that is (ε, δ)-DP lets at least so many guesses be right (Steinke et al. 2023, Thm 5.2).

    Examples
    --------
    >>> round(one_run_doubt(100, 100, 75, 0.5, 0.0), 6)
    0.004805
    """
    _check_guesses(canaries, guesses, right)
    share = 1.0 / (1.0 + math.exp(-epsilon))
    logs = _log_binomials(guesses, share)
    tail = float(np.exp(logs[right:]).sum())
    if right == 0 or delta == 0:
        return min(tail, 1.0)
    below = np.cumsum(np.exp(logs[:right][::-1]))  # P(v − i ≤ W < v) for i = 1, 2, …
    worst = float(np.max(below / np.arange(1, right + 1)))
    return min(tail + 2.0 * canaries * delta * worst, 1.0)


def _log_binomials(n: int, share: float) -> Array:
    k = np.arange(n + 1)
    with np.errstate(divide="ignore"):
        choose = scipy.special.gammaln(n + 1) - scipy.special.gammaln(k + 1) - scipy.special.gammaln(n - k + 1)
        return np.asarray(choose + scipy.special.xlogy(k, share) + scipy.special.xlog1py(n - k, -share))


def one_run_epsilon(canaries: int, guesses: int, right: int, delta: float, confidence: float = CONFIDENCE) -> float:
    """The largest ε at which so many right guesses would be too unlikely (Steinke, Nasr and Jagielski 2023).

    Examples
    --------
    >>> round(one_run_epsilon(1000, 100, 95, 1e-5), 3)
    2.165
    """
    check_confidence(confidence)
    doubt = 1.0 - confidence

    def unlikely(epsilon: float) -> bool:
        return one_run_doubt(canaries, guesses, right, epsilon, delta) <= doubt

    if not unlikely(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while unlikely(high):
        low, high = high, 2.0 * high
        if high > 1e3:
            return low
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if unlikely(middle) else (low, middle)
    return low


def too_many_right(curve: Curve, canaries: int, guesses: int, right: int, doubt: float) -> bool:
    """Whether a mechanism with this curve would let so many guesses be right with a probability below `doubt`.

    The recursion of Mahloujifar, Melis and Chaudhuri 2024 (Algorithm 3): from the probabilities of exactly `right`
    right guesses downwards, each step as slowly as the curve allows; if even then they add up to more than there is,
    the outcome was less likely than assumed.
    """
    _check_guesses(canaries, guesses, right)
    r, h = doubt * right / canaries, doubt * (guesses - right) / canaries
    for i in range(right - 1, -1, -1):
        # what has probability r under one coin has at least this much under the other
        least = max(h, 1.0 - float(_at(curve, 1.0 - r)))
        r, h = r + i / (guesses - i) * (least - h), least
        if r + h > guesses / canaries:
            return True
    return False


def _at(curve: Curve, fpr: float) -> float:
    if curve.apart is not None:
        return float(scipy.special.ndtr(curve.apart + scipy.special.ndtri(fpr)))
    return float(curve(np.array([fpr]))[0])


def one_run_scale(family: Family, canaries: int, guesses: int, right: int, confidence: float = CONFIDENCE) -> float:
    """The least multiple of the stated noise that so many right guesses refute; infinite where none is."""
    check_confidence(confidence)
    if 2 * right <= guesses:
        return math.inf
    doubt = 1.0 - confidence
    stated = family.curve()

    def refuted(s: float) -> bool:
        known = Curve(apart=stated.apart / s) if stated.apart is not None else family.curve(s)
        return too_many_right(known, canaries, guesses, right, doubt)

    return _first_refuted(refuted, FINE if stated.apart is not None else STEP)


def _check_guesses(canaries: int, guesses: int, right: int) -> None:
    if not 0 <= right <= guesses <= canaries or canaries < 1:
        raise SpecError(f"of {canaries} canaries {guesses} cannot be guessed with {right} right guesses")
