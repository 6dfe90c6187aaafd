"""One round of a mechanism on a grid of losses, from above and from below.

From above, probability is moved so that the profile can only grow ("connecting the dots", Doroshenko et al. 2022);
from below, so that it can only shrink. In terms of the pair (P, Q): a mean-preserving spread of dQ/dP dominates it, a
contraction is dominated by it (Blackwell), and both survive composition.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array
from sottovoce.privacy.profiles import Pair


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
    """Lower nodes until no mass is negative: each such step gathers mass of both neighbours, their mean kept."""
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

    # the lowest hundred-thousandth is not worth a grid
    _, start = _crossing(pair.least, 1.0, lambda t: pair.tails(t).p > 1.0 - 1e-5)
    skip = max(math.ceil(float(depth(np.array([start]))[0]) / step), 1)
    return _crossing(start, start + (skip + 1) * step + 1.0, lambda t: depth(t) < skip * step)[0], skip


def _crossing(low: float, high: float, holds: Callable[[Array], NDArray[np.bool_]]) -> tuple[float, float]:
    """Two neighbouring numbers, at the first of which a condition still holds: by thirty-two looks at a time."""
    while True:
        looks = np.linspace(low, high, 34)
        last = int(np.argmin(np.append(holds(looks[1:-1]), False)))
        if looks[last] == low and looks[last + 1] == high:
            return low, high
        low, high = float(looks[last]), float(looks[last + 1])
