"""Many rounds: compose losses on a grid by FFT and read off δ(ε) and ε(δ), with every slack on the safe side.

Characteristic functions are multiplied after exponential tilting, which makes the rounding error of the FFT relative
to δ, not to 1. From above, what is cut off, wraps around or is lost to rounding is added to δ; from below it is taken
off. The window and the tilt come from the moments of the losses (Chernoff), and decide accuracy, never validity.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.fft import irfft, rfft

from sottovoce._types import Array
from sottovoce.privacy.pld import connect, optimistic, pessimistic
from sottovoce.privacy.profiles import EPS, Pair

_ORDERS = np.geomspace(1e-10, 1e7, 341)
_CUT = 1e-7  # the share of δ that cutting tails off may add
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


@dataclass(frozen=True)
class Part:
    """So many independent rounds of a mechanism, each of which happens with probability `activity`."""

    pair: Pair
    count: int
    activity: float = 1.0

    def log_moments(self, orders: Array, top: float, points: int) -> tuple[Array, float]:
        """log E[e^{λL}; no loss over top] of the rounds, from above, and the probability of a loss over top."""
        losses = top * np.geomspace(1e-9, 1.0, points)
        masses, infinity = connect(self.pair, np.concatenate([[0.0], losses]))
        losses, masses = losses[masses > 0], self.activity * masses[masses > 0]
        infinity *= self.activity
        mirror = masses * np.exp(-losses)
        values = np.full(len(orders), math.inf)
        for k in np.flatnonzero(np.abs(orders) * top < 700.0):
            powers = orders[k] * losses
            values[k] = masses @ np.expm1(powers) + mirror @ np.expm1(-powers) - infinity
        values[values < 1e-6 - 1.0] = math.inf  # too close to cancelling: no order to rely on
        return self.count * np.log1p(values), self.count * infinity


def moments(parts: Sequence[Part], log_delta: float, about: float = math.inf) -> Moments:
    """The moments of a composition, cut off where that costs next to nothing for this δ and an ε of about this size.

    A single loss t counts as infinite where its probability is nothing beside δ, or where it is so far over ε that
    it counts all but wholly anyway: calling it infinite adds at most e^{ε−t} of its probability, were it alone; other
    losses may be as low as −ε, hence 2ε.
    """
    t = np.geomspace(1e-12, 1e13, 4000)
    tail = np.sum([part.count * part.activity * part.pair.tails(t).p for part in parts], axis=0)

    def cut(near: float) -> float:
        far = np.flatnonzero(tail * np.exp(-np.maximum(t - 2.0 * max(near, 0.0), 0.0)) > _CUT * math.exp(log_delta))
        return float(t[min(far[-1] + 1, len(t) - 1)]) if len(far) else float(t[0])

    orders = np.concatenate([-_ORDERS[::-1], _ORDERS])
    top = cut(about)
    while True:
        each = [part.log_moments(orders, top, 1200) for part in parts]
        found = Moments(orders, np.sum([v for v, _ in each], axis=0), top, math.fsum(lost for _, lost in each))
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
        from scipy.signal import lfilter  # here: a second to import, a third of what any command takes to start

        fall = math.exp(self.losses[0] - self.losses[1])
        above = np.append(np.cumsum(self.masses[:0:-1])[::-1], 0.0)
        scaled = np.append(lfilter([fall], [1.0, -fall], self.masses[:0:-1])[::-1], 0.0)
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
    total: Array = np.zeros(size // 2 + 1, dtype=np.complex128)
    noise = np.zeros(size // 2 + 1)
    logs, finite, shift = np.zeros(len(checks)), 0.0, 0.0
    for part in parts:
        count = math.ceil(found.top / step)
        loss = (optimistic if lower else pessimistic)(part.pair, step, count).thinned(part.activity)
        tilted = loss.tilted(theta)
        circle = np.zeros(size)
        circle[: len(tilted) + loss.low] = tilted[-loss.low :]
        if loss.low:
            circle[loss.low :] += tilted[: -loss.low]
        with np.errstate(divide="ignore"):
            log = np.log1p(rfft(circle))
        log.real = np.maximum(log.real, -600.0)
        total += part.count * log
        noise += part.count * float(np.abs(tilted).sum()) * np.exp(-log.real)
        with np.errstate(over="ignore", invalid="ignore"):
            sums = [loss.tilted(order).sum() for order in checks]
        logs += [part.count * (np.log1p(v) if v > -1 else math.inf) for v in sums]
        logs += part.count * loss.shift * np.array(checks)
        finite += part.count * math.log1p(-loss.infinity)
        shift += part.count * loss.shift
    base = float(total[0].real)
    spectrum = np.exp(total - base)
    # a relative error of EPS·log₂ size in each transform, carried through the power and back
    error = 4.0 * EPS * math.log2(size) * float(np.mean(np.abs(spectrum) * (1.0 + noise)))
    first = math.floor((bottom - shift) / step)
    index = first + np.arange(size, dtype=np.float64)
    masses = np.maximum(np.roll(irfft(spectrum, size), -first % size) + (-error if lower else error), 0.0)
    masses *= np.exp(np.minimum(base - theta * step * index, 700.0))
    losses: Array = shift + step * index
    end = float(losses[-1]) + step
    if lower:
        # what wraps around adds to the masses, so it must be taken off again
        outside = logs + [(theta - order) * (losses[0] if order < theta else end) for order in checks]
        half = len(checks) // 2
        return Composed(losses, masses, 0.0, float(np.logaddexp(outside[:half].min(), outside[half:].min())), theta)
    # here it may stay; what lies over the window is added once more, by Chernoff
    return Composed(losses, masses, math.exp(min(logs[0] - high * end, 0.0)) - math.expm1(finite), -math.inf, theta)
