"""From one round to many: losses on a grid, from above and from below, composed by FFT with every slack accounted for.

One round. From above, probability is moved onto the grid so that the profile can only grow ("connecting the dots",
Doroshenko et al. 2022); from below, so that it can only shrink. In terms of the pair (P, Q): a mean-preserving spread
of dQ/dP dominates it, a contraction is dominated by it (Blackwell), and both survive composition.

Many rounds. Characteristic functions are multiplied after exponential tilting, which makes the rounding error of the
FFT relative to δ, not to 1; δ(ε) and ε(δ) are read off. From above, what is cut off, wraps around or is lost to
rounding is added to δ; from below it is taken off. The window and the tilt come from the moments of the losses
(Chernoff), and decide accuracy, never validity.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import scipy  # not its parts: they load when first used
from numpy.typing import NDArray

from sottovoce._types import Array
from sottovoce.errors import PrivacyError
from sottovoce.privacy.profiles import EPS, Pair

# glibc gives memory back, and takes it again page by page, while more is free than twice the largest array that was
# ever given back: without this one, which nobody touches, that is two fifths of the time of an account
np.empty(2**21)


@dataclass(frozen=True)
class Loss:
    """The loss of one round on the points shift + i·step, i = low, low + 1, …; the rest of the mass is at i = 0."""

    step: float
    low: int
    masses: Array
    infinity: float = 0.0
    shift: float = 0.0

    def thinned(self, activity: float) -> "Loss":
        """The mixture with the identity: a round happens with this probability, and is seen; only where shift is 0."""
        if activity == 1.0:
            return self
        return Loss(self.step, self.low, activity * self.masses, activity * self.infinity, self.shift)

    def tilted(self, theta: float) -> Array:
        """The masses times e^{θ i step}; at 0 what makes their sum E[e^{θ i step}; finite] − 1, so small is exact."""
        i = np.arange(self.low, self.low + len(self.masses))
        out = self.masses * np.exp(theta * self.step * i)
        out[-self.low] = -self.infinity - self.masses[: -self.low].sum() - self.masses[1 - self.low :].sum()
        return out


def connect(pair: Pair, edges: Array) -> tuple[Array, float]:
    """Move a symmetric pair's positive losses to the edges 0 = t₀ < t₁ < …, so that the profile can only grow.

    Both the P- and the Q-mass of a cell are kept while it goes to the cell's two ends: the profile becomes its own
    chord in e^ε. Returned are the masses at t₁, t₂, … and at infinity; the mirror image has e^{−t} times as much.
    """
    p, q, slip = pair.tails(edges)
    keep = np.exp(edges[:-1] - edges[1:])
    mass = np.maximum(p[:-1] - p[1:], 0.0)
    share = -np.expm1(edges[:-1] - edges[1:])
    up = (mass - (q[:-1] - keep * q[1:])) / share
    # a difference of tails is wrong by up to slip times the tail: that much more goes up, never less
    up = np.clip(up + 2.0 * slip[:-1] * p[:-1] / share, 0.0, mass)
    masses = up.copy()
    masses[:-1] += (mass - up)[1:]
    return masses, float(p[-1])


def pessimistic(pair: Pair, step: float, count: int) -> Loss:
    """A symmetric pair on the grid up to count·step, from above."""
    edges: Array = step * np.arange(count + 1, dtype=np.float64)
    up, infinity = connect(pair, edges)
    masses = np.concatenate([(up * np.exp(-edges[1:]))[::-1], [0.0], up])
    return Loss(step, -count, masses, infinity)


def optimistic(pair: Pair, step: float, count: int) -> Loss:
    """A pair on the grid from below: every kink of the profile's polygon is a grid point, and it lies under the curve.

    The chord of a cell lies over the profile by at most g, its height over the meeting point of the tangents at the
    cell's ends. Lowering each node by the larger g of its two cells puts the polygon under the curve; where g changes
    fast, the tangent at one end takes the place of the chord. Where that leaves the polygon not convex, single nodes
    are lowered further until it is.
    """
    if step > 500.0:
        return Loss(step, 0, np.zeros(2))
    first, skip = (0.0, 0) if pair.symmetric else _bottom(pair, step)
    edges: Array = first + step * np.arange(count + 1, dtype=np.float64)
    p, q, _ = pair.tails(edges)
    mass, up, gap = _cells(p, q, step)
    after, before = np.append(gap[1:], 0.0), np.append(gap[0], gap[:-1])
    by_right, by_left = -math.expm1(-step) * up, math.expm1(step) * (mass - up)
    right = gap > 2.0 * after
    left = ~right & (gap > 2.0 * before) & (2.0 * by_left < p[1:] - q[1:])
    at_left = np.where(right, by_right, np.where(left, 0.0, gap))
    at_right = np.where(right, 0.0, np.where(left, by_left, gap))
    # what is left at infinity is dropped, which lowers every node by as much; the last one must not fall under 0
    rest = np.maximum(p[1:] - q[1:], 0.0) - at_right
    last = int(np.flatnonzero(np.append(0.0, rest) >= 0.0)[-1])
    if last == 0:
        return Loss(step, 0, np.zeros(2))  # gives up on a lower bound rather than give a wrong one
    lower = np.maximum(np.append(at_left, 0.0), np.append(0.0, at_right))[: last + 1] + rest[last - 1]
    lower[last] = at_right[last - 1] + rest[last - 1]
    masses = np.append(mass[:last] - up[:last], q[last])
    masses[1:] += up[:last]
    rise = np.diff(lower)
    masses[1:] += rise / -math.expm1(-step)
    masses[:-1] -= rise / math.expm1(step)
    if not pair.symmetric:
        # all that is under `first` is one atom: left of it the polygon is 1 − e^ε, right of it the tangent at `first`
        masses[0] += lower[0] / -math.expm1(-skip * step)
        masses = _convex(masses, step)
        if not 0 < masses.sum() <= 1.0:
            return Loss(step, 0, np.zeros(2))
        return Loss(step, 0, np.concatenate([np.zeros(skip), masses]), 0.0, first - skip * step)
    masses = _convex(masses[1:], step)
    mirror = masses * np.exp(-edges[1 : last + 1])
    masses, mirror = (side / max(1.0, masses.sum() + mirror.sum()) for side in (masses, mirror))
    return Loss(step, -last, np.concatenate([mirror[::-1], [0.0], masses]))


def _cells(p: Array, q: Array, step: float) -> tuple[Array, Array, Array]:
    """Of each cell between grid points: its P-mass, what of it goes up, and how far the chord lies over the curve."""
    fall = -math.expm1(-step)
    mass = np.maximum(p[:-1] - p[1:], 0.0)
    weight = np.maximum(q[:-1] - (1.0 - fall) * q[1:], 0.0)
    up = np.clip((mass - weight) / fall, 0.0, mass)
    return mass, up, up * (mass - up) * fall / np.maximum(weight, np.finfo(float).tiny)


def _convex(masses: Array, step: float) -> Array:
    """Lower nodes until no mass is negative: each such step gathers mass of both neighbors, their mean kept."""
    inner = 1.0 / (1.0 + math.exp(step))
    for _ in range(300):
        missing = np.maximum(-masses, 0.0)
        if not missing.any():
            return masses
        if missing[-1] > 0:
            break  # the last node lies on 0 already
        masses = masses + missing
        masses[:-1] -= inner * missing[1:]
        masses[1:] -= (1.0 - inner) * missing[:-1]
    return np.zeros_like(masses)


def _bottom(pair: Pair, step: float) -> tuple[float, int]:
    """A loss, and by how many whole steps the loss of the event 'below it' lies under it."""

    def depth(t: Array) -> Array:
        p, q, _ = pair.tails(t)
        over = np.exp(-t) * q
        return np.asarray(t - np.log1p((over - p) / (1.0 - over)))

    start = _start(pair)
    skip = max(math.ceil(float(depth(np.array([start]))[0]) / step), 1)
    return _crossing(start, start + (skip + 1) * step + 1.0, lambda t: depth(t) < skip * step)[0], skip


@lru_cache(maxsize=64)  # one for grids of all sizes
def _start(pair: Pair) -> float:
    """Where losses begin to be worth a grid: all but the lowest hundred-thousandth of them."""
    return _crossing(pair.least, 1.0, lambda t: pair.tails(t).p > 1.0 - 1e-5)[1]


def _crossing(low: float, high: float, holds: Callable[[Array], NDArray[np.bool_]]) -> tuple[float, float]:
    """Find two neighboring numbers; the condition still holds at the first. Tests a thousand candidates a time."""
    while True:
        points = np.linspace(low, high, 1026)
        last = int(np.argmin(np.append(holds(points[1:-1]), False)))
        if points[last] == low and points[last + 1] == high:
            return low, high
        low, high = float(points[last]), float(points[last + 1])


_TAIL_LOSSES = np.geomspace(1e-12, 1e13, 4000)  # losses among which a tail is cut off
_ORDERS = np.geomspace(1e-10, 1e7, 341)
_BOTH = np.concatenate([-_ORDERS[::-1], _ORDERS])
_CUT = 1e-7  # the share of δ that cutting tails off may add
_AT_ONCE = 32  # orders whose powers are taken at a time: few enough for the cache
_SMALL = 0.02  # orders times losses for which so many powers are exact: 0.02⁹/9! is under 10⁻²¹
_POWERS = np.arange(1.0, 9.0)
_ODD = np.where(_POWERS % 2, 1.0, -1.0)
_STRETCH = 512  # points whose sums are taken in one go
_SPILL = 25.0  # −log of the tilted probability that may lie outside the window on either side


@dataclass(frozen=True)
class Moments:
    """log E[e^{λL}; L finite] of a whole composition L, from above, on orders λ of both signs."""

    orders: Array
    values: Array
    top: float
    """The loss over which a single round's counts as infinite."""
    lost: float
    """The probability of that, in all rounds together."""

    @property
    def lost_all(self) -> bool:
        """Whether no moment of an order over 0 is finite: losses are larger than any that a grid could hold."""
        return not bool(np.any(np.isfinite(self.values[self.orders > 0])))

    def bound(self, delta: float) -> float:
        """An ε at which the composition is certainly (ε, δ)-DP, from the moments alone."""
        if delta <= self.lost:
            return math.inf
        good = self.orders > 0
        orders, log_left = self.orders[good], math.log(delta - self.lost)
        # Canonne, Kamath and Steinke 2020, Proposition 12
        bounds = (self.values[good] - log_left - np.log1p(orders)) / orders + np.log(orders) - np.log1p(orders)
        return max(float(bounds.min()), 0.0)

    def level(self, log_delta: float) -> tuple[float, float]:
        """Chernoff: the least x at which the bound on P(L > x) is δ, and its order."""
        good = self.orders > 0
        x = (self.values[good] - log_delta) / self.orders[good]
        best = int(np.argmin(x))
        return float(x[best]), float(self.orders[good][best])

    def order(self, epsilon: float) -> tuple[float, float]:
        """Chernoff at ε: the order, and the logarithm of the bound on P(L > ε)."""
        good = self.orders > 0
        logs = self.values[good] - self.orders[good] * epsilon
        best = int(np.argmin(logs))
        return float(self.orders[good][best]), float(min(logs[best], 0.0))

    def tilt(self, most: float, level: float) -> tuple[float, float, float]:
        """A tilt θ, and two losses between which all but e^−_SPILL of the law tilted by it lies.

        Chernoff's own θ would be best, but where rare large losses decide, it would bring all of them in.
        """
        first = int(np.searchsorted(self.orders, 0.0))
        for k in range(int(np.argmin(np.abs(self.orders - most))), first - 1, -1):
            theta = float(self.orders[k])
            above = (self.values[k + 1 :] - self.values[k] + _SPILL) / (self.orders[k + 1 :] - theta)
            top = float(above.min(initial=math.inf))
            if top <= 1.5 * level or k == first:
                break
        below = (self.values[k] - self.values[:k] - _SPILL) / (theta - self.orders[:k])
        return theta, float(below.max()), max(level, top)

    def checks(self, theta: float, bottom: float, top: float) -> list[float]:
        """Orders below and above θ that should bound E[e^{θL}; L < bottom] and E[e^{θL}; L > top] well."""
        gap = self.orders - theta
        logs = self.values - gap * np.where(gap > 0, top, bottom)
        best = (np.argmin(np.where(gap < 0, logs, math.inf)), np.argmin(np.where(gap > 0, logs, math.inf)))
        return [theta + share * float(gap[k]) for k in best for share in (1.0, 0.4, 0.1)]


class Cells(NamedTuple):
    """The positive losses of one round, from above; the mirror image has e^{−loss} times as much."""

    losses: Array
    masses: Array
    infinity: float


@dataclass(frozen=True)
class Part:
    """A number of independent rounds of one mechanism: the accountant's input.

    Attributes
    ----------
    pair : what one round gives away
    count : how often
    activity : the chance that a round happens at all, independently of the data and seen by everybody; only for
        planning, since after a run the number of rounds is known

    Examples
    --------
    >>> from sottovoce.privacy.profiles import FixedPair
    >>> Part(FixedPair(0.45, rate=1 / 20000), 60000)
    Part(pair=FixedPair(multiplier=0.45, rate=5e-05), count=60000, activity=1.0)
    """

    pair: Pair
    count: int
    activity: float = 1.0

    def __post_init__(self) -> None:
        """What has no known cost is an error."""
        if not 0 < self.activity <= 1:
            raise PrivacyError(f"an activity is a probability over 0, not {self.activity}")
        if int(self.count) != self.count or self.count < 0:
            raise PrivacyError(f"rounds are counted in whole numbers from 0, not {self.count}")

    @property
    def gaussian(self) -> bool:
        """Whether there is nothing but Gaussian noise, for which there are formulas."""
        return self.activity == 1.0 and self.pair.apart is not None

    def cells(self, top: float, points: int) -> Cells:
        """One round, its losses moved up to one of so many points up to top."""
        losses = top * _spread(points)
        masses, infinity = connect(self.pair, np.concatenate([[0.0], losses]))
        return Cells(losses[masses > 0], self.activity * masses[masses > 0], self.activity * infinity)

    def log_moments(self, orders: Array, top: float, cells: Cells) -> tuple[Array, Array, float]:
        """log E[e^{λL}; no loss over top] of the rounds for these orders and for −λ, and P(a loss over top).

        From above; orders are over 0, the smallest first.
        """
        values = np.full((2, len(orders)), math.inf)
        good = int(np.searchsorted(orders * top, 700.0))
        values[:, :good] = _rises(orders[:good], cells) - cells.infinity
        values[values < 1e-6 - 1.0] = math.inf  # too close to canceling: no order to rely on
        above, below = self.count * np.log1p(values)
        return above, below, self.count * cells.infinity


@cache
def _spread(points: int) -> Array:
    return np.geomspace(1e-9, 1.0, points)


def _rises(orders: Array, cells: Cells) -> Array:
    """E[e^{λL} − 1; L finite] of one round for ascending orders λ, and for −λ."""
    losses, masses, _ = cells
    both = np.stack([masses, masses * np.exp(-losses)], axis=1)  # and the mirror image
    found = np.empty((2, len(orders)))
    few = int(np.searchsorted(orders, _SMALL / losses[-1])) if len(losses) else 0
    if few:  # so small that a few moments of the losses say it all
        powers = np.cumprod(np.multiply.outer(1.0 / _POWERS, orders[:few]), axis=0)  # λᵏ/k!
        plain, mirror = np.dot(np.cumprod(np.broadcast_to(losses, (len(_POWERS), len(losses))), axis=0), both).T
        found[0, :few] = (plain - _ODD * mirror) @ powers
        found[1, :few] = (mirror - _ODD * plain) @ powers
    for first in range(few, len(orders), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        up = np.multiply.outer(orders[some], losses)
        np.expm1(up, out=up)
        rises = np.dot(up, both)  # and not @, which holds Python's lock while it makes less than 500 numbers
        np.divide(up, -1.0 - up, out=up)  # expm1 of the negative
        falls = np.dot(up, both)
        found[:, some] = rises.T + falls.T[::-1]
    return found


def moments(parts: Sequence[Part], log_delta: float, about: float = math.inf) -> Moments:
    """The moments of a composition, cut off where that costs next to nothing for this δ and an ε of about this size.

    A single loss t counts as infinite where its probability is nothing beside δ, or where it is so far over ε that
    it counts all but wholly anyway: calling it infinite adds at most e^{ε−t} of its probability, were it alone; other
    losses may be as low as −ε, hence 2ε.
    """
    return _moments(tuple(parts), log_delta, about)


@lru_cache(maxsize=64)  # every number of an account begins with the same ones
def _moments(parts: tuple[Part, ...], log_delta: float, about: float) -> Moments:
    tail = np.sum([part.count * part.activity * part.pair.tails(_TAIL_LOSSES).p for part in parts], axis=0)

    def cut(near: float) -> float:
        far = tail * np.exp(-np.maximum(_TAIL_LOSSES - 2.0 * max(near, 0.0), 0.0)) > _CUT * math.exp(log_delta)
        last = len(far) - int(np.argmax(far[::-1])) if far.any() else 0
        return float(_TAIL_LOSSES[min(last, len(far) - 1)])

    top = cut(about)
    while True:
        each = [part.log_moments(_ORDERS, top, part.cells(top, 1200)) for part in parts]
        values = np.sum([np.concatenate([below[::-1], above]) for above, below, _ in each], axis=0)
        found = Moments(_BOTH, values, top, math.fsum(lost for _, _, lost in each))
        lower = cut(min(about, found.level(log_delta)[0]))
        if lower > 0.5 * top:
            return found
        top = lower


@dataclass(frozen=True)
class Composed:
    """The law of the total loss on a window of the grid, tilted, with what lies outside it bounded."""

    losses: Array
    masses: Array
    """Probabilities of `losses`; only those that matter for δ near its target are accurate."""
    outside: float
    """Probability to be added to every δ: losses over the window, and infinite ones."""
    spill: float
    """log of how much the masses over any ε may be too large, times e^{θε}."""
    theta: float

    def deltas(self, sign: float = 1.0) -> Array:
        """δ at each loss of the window, rounded up (or down), in one sweep from above without large exponentials."""
        fall = math.exp(self.losses[0] - self.losses[1])
        above = np.append(np.cumsum(self.masses[:0:-1])[::-1], 0.0)
        scaled = np.append(_decaying(fall, self.masses[:0:-1])[::-1], 0.0)
        slack = sign * 4.0 * EPS * len(above) ** 0.5 * above
        return np.maximum(above - scaled + slack, 0.0) + self.outside

    def epsilon(self, delta: float) -> float:
        """The least ε ≥ 0 of the window with δ(ε) ≤ δ; infinity if there is none."""
        deltas = self.deltas()
        if not deltas[-1] <= delta:
            return math.inf
        i = int(np.argmax(deltas <= delta))
        if i == 0:
            return max(float(self.losses[0]), 0.0)
        # between two nodes δ is linear in e^ε
        step = float(self.losses[1] - self.losses[0])
        share = (deltas[i - 1] - delta) / (deltas[i - 1] - deltas[i])
        return max(float(self.losses[i]) + math.log1p((min(share, 1.0) - 1.0) * -math.expm1(-step)), 0.0)

    def delta(self, epsilon: float) -> float:
        """δ at an ε of the window, by the chord; left of the window 1."""
        deltas = self.deltas()
        i = int(np.searchsorted(self.losses, epsilon, side="right")) - 1
        if i < 0 or i + 1 >= len(deltas):
            return 1.0 if i < 0 else self.outside
        right = self.losses[i + 1] - epsilon
        share = 1.0 - math.expm1(-right) / math.expm1(self.losses[i] - self.losses[i + 1])
        return float(min(deltas[i] + share * (deltas[i + 1] - deltas[i]), 1.0))

    def epsilon_lower(self, delta: float) -> float:
        """The largest ε ≥ 0 of the window that is certainly not enough for δ, for a composition from below."""
        spill = self.spill - self.theta * self.losses
        worst = np.where(spill < 0, self.deltas(-1.0) - np.exp(np.minimum(spill, 0.0)), 0.0)
        short = np.flatnonzero(worst > delta)
        return max(float(self.losses[short[-1]]), 0.0) if len(short) else 0.0


def _decaying(fall: float, masses: Array) -> Array:
    """Running sums that fall as they go, y_k = fall·(y_{k−1} + mass_k), in NumPy's loops, which hold no lock.

    In stretches in which powers of `fall` stay within e^30: plain running sums within each, and then what each has at
    its end, which are such sums again. (`scipy.signal.lfilter` comes with `scipy.stats`, which takes longer to load
    than most accounts take to compute, and BLAS's bidiagonal systems hold Python's lock.)
    """
    rate = -math.log(fall) if fall > 0 else math.inf
    width = int(min(_STRETCH, 30.0 / rate if rate > 0 else _STRETCH))
    if width < 2:  # a few steps back nothing is left
        sums, power, back = fall * masses, fall, 1
        while power > 0 and back < len(sums):
            sums[back:] += power * sums[:-back]
            power, back = power * power, 2 * back
        return sums
    rows = -(-len(masses) // width)
    grid = np.zeros((rows, width))
    grid.reshape(-1)[: len(masses)] = masses
    powers = np.exp(-rate * np.arange(width))
    grid /= powers
    np.cumsum(grid, axis=1, out=grid)
    grid *= fall * powers
    if rows > 1:
        least = float(powers[-1])
        grid[1:] += np.multiply.outer(_decaying(fall * least, grid[:-1, -1]) / least, powers)
    return grid.reshape(-1)[: len(masses)]


def _log_size(wave: NDArray[np.complex128]) -> Array:
    """log |1 + w|, exact where w is small: in real numbers, with which NumPy is ten times as fast."""
    x, y = np.clip(wave.real, -0.5, 0.5), np.clip(wave.imag, -0.5, 0.5)
    near = 0.5 * np.log1p(x * (2.0 + x) + y * y)
    with np.errstate(divide="ignore"):
        far = np.log(np.abs(1.0 + wave))
    return np.where((x == wave.real) & (y == wave.imag), near, far)


def compose(
    parts: Sequence[Part], found: Moments, target: tuple[float, float], size: int, lower: bool = False
) -> Composed:
    """Compose on a grid of `size` points for ε near target[0] and log δ near target[1]."""
    epsilon, log_delta = target
    level, high = found.level(log_delta + math.log(_CUT))
    theta, bottom, ceiling = found.tilt(found.order(epsilon)[0], level)
    bottom = min(bottom, epsilon)
    step = 1.02 * max(ceiling - bottom, found.top) / size
    atom = max(part.pair.atom for part in parts)
    step = atom / math.floor(atom / step) if atom > step else step
    checks = found.checks(theta, bottom, bottom + step * size) if lower else [high]
    logs, finite, shift = np.zeros(len(checks)), 0.0, 0.0
    sizes, noise, waves = np.zeros(size // 2 + 1), np.zeros(size // 2 + 1), []
    for part in parts:
        count = math.ceil(found.top / step)
        loss = (optimistic if lower else pessimistic)(part.pair, step, count).thinned(part.activity)
        tilted = loss.tilted(theta)
        circle = np.zeros(size)
        circle[: len(tilted) + loss.low] = tilted[-loss.low :]
        if loss.low:
            circle[loss.low :] += tilted[: -loss.low]
        wave = scipy.fft.rfft(circle, overwrite_x=True)
        log = np.maximum(_log_size(wave), -600.0)
        sizes += part.count * log
        noise += part.count * float(np.abs(tilted).sum()) * np.exp(-log)
        waves.append(wave)
        with np.errstate(over="ignore", invalid="ignore"):
            sums = [loss.tilted(order).sum() for order in checks]
        logs += [part.count * (np.log1p(v) if v > -1 else math.inf) for v in sums]
        logs += part.count * loss.shift * np.array(checks)
        finite += part.count * math.log1p(-loss.infinity)
        shift += part.count * loss.shift
    base = float(sizes[0])
    live = np.flatnonzero(sizes > base - 745.0)  # where rounds are many, nearly all others are nothing
    sizes = np.exp(sizes[live] - base)
    turned = [part.count * np.angle(1.0 + wave[live]) for part, wave in zip(parts, waves, strict=True)]
    angles = np.sum(turned, axis=0)
    spectrum = np.zeros(size // 2 + 1, dtype=np.complex128)
    spectrum[live] = sizes * np.cos(angles) + 1j * (sizes * np.sin(angles))
    # a relative error of EPS·log₂ size in each transform, carried through the power and back
    error = 4.0 * EPS * math.log2(size) * float(np.sum(sizes * (1.0 + noise[live]))) / len(spectrum)
    first = math.floor((bottom - shift) / step)
    index = first + np.arange(size, dtype=np.float64)
    masses = np.maximum(np.roll(scipy.fft.irfft(spectrum, size), -first % size) + (-error if lower else error), 0.0)
    masses *= np.exp(np.minimum(base - theta * step * index, 650.0))
    losses: Array = shift + step * index
    end = float(losses[-1]) + step
    if lower:
        # what wraps around adds to the masses, so it must be taken off again
        outside = logs + [(theta - order) * (losses[0] if order < theta else end) for order in checks]
        half = len(checks) // 2
        return Composed(losses, masses, 0.0, float(np.logaddexp(outside[:half].min(), outside[half:].min())), theta)
    # here it may stay; what lies over the window is added once more, by Chernoff
    return Composed(losses, masses, math.exp(min(logs[0] - high * end, 0.0)) - math.expm1(finite), -math.inf, theta)
