"""How long a message can be: what no honest node's passes, from public numbers.

A node releases ζ_i = ĝ_i + ν_i. A clipped mean over a batch is at most L q_i/b_i long, since a Poisson batch may hold
all q_i records. N(0, σ²I) in m dimensions is longer than σ(√m + √(2 ln 1/p)) with probability at most p, since Gaussian
norms concentrate. So in round t c_i ζ_i is at most r_t long, at all nodes and in all rounds but for a chance of 2⁻⁴⁰.

Messages are sums of those. Mixing with weights that are not negative and sum to 1 never makes the longest longer, so

    dual averaging    B_t = B_{t−1} + a_t r_t                  and a_t c μ_f ‖x‖ where curvature is taken out of f
    descent           B_t = B_{t−1} + η_t r_t + ‖prox(0)‖      since a prox does not expand

and likewise for others. This is the triangle inequality, and looser than what chance really does (noises add up like
√t). But it is closed: an honest node that mixed whatever is within B_t sends something within B_{t+1}, so that a
dishonest node cannot make an honest one seem dishonest. This bounds what a dishonest node can do; nothing else does.

Where a round has several exchanges, what is passed on in the later ones are sums of its messages with weights that are
not negative. Let ω_i be what the same plan makes of ones: then what node i holds is at most ω_i B_t long. That is
closed, too, exchange by exchange: if all that i hears is within ω_j B_t, then what it holds next, Σ w_j s_j, is within
Σ w_j ω_j B_t, and that is its next ω_i B_t. The bound is each node's own: with the largest of all for everybody, a liar
could lengthen an honest node's sum beyond what the next exchange lets in. At the end of a round every ω is 1.

Final models are bounded by the same token: a mean of x's, each within ‖x(0)‖ + B_t/modulus for dual averaging, and
within B_t where the model itself is what is sent.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.descent import Descent, Mixup, Stale
from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.algorithm.method import Method
from sottovoce.algorithm.statistics import Statistics
from sottovoce.algorithm.synchronous import Muffliato, Scaffold, Tracking
from sottovoce.errors import SpecError
from sottovoce.network.mixing import Averaging
from sottovoce.privacy.pairs import Pairs
from sottovoce.privacy.release import Release, Tree
from sottovoce.run.one_shot import OneShotRelease

CHANCE = 2.0**-40
"""That any honest message of a run passes its bound."""
ROUNDING = 1.0 + 1e-4
"""Scales and grids are rounded upwards by much less."""
SUMMED = 1e-12
"""What an exchange can add by rounding, over the share."""


def longest_messages(method: Method, release: Release, sizes: IntArray, m: int) -> Array:
    """B_t of rounds 1 … T, of releases of m numbers."""
    grows = _GROWTH.get(type(method))
    if grows is None or method.exchanges > 1:
        raise SpecError(
            "real nodes take nothing in that is longer than honest messages can be, and no such bound is known for "
            f"'{type(method).__name__}'; simulate it"
        )
    found = np.asarray(grows(method, ROUNDING * longest_releases(method, release, sizes, m), m), dtype=np.float64)
    if not np.all(np.isfinite(found)):
        raise SpecError("messages of this run can grow beyond all numbers; take shorter steps")
    return found


def longest_model(method: Method, messages: Array, m: int) -> float:
    """What no honest node's final model passes, whatever is mixed that is within the bounds of messages."""
    if isinstance(method, Statistics):
        return method.longest_model(float(messages[-1]))
    if not isinstance(method, DualAveraging):
        return float(messages[-1])
    still = [float(np.linalg.norm(method.x(np.zeros((1, m)), t))) for t in range(1, method.T + 1)]
    return float(np.max(np.array(still) + messages / method.modulus))  # argmin moves by at most |Δz| over the modulus


def longest_one_shot(once: OneShotRelease[Any]) -> float:
    """No node's release of this query is longer, but for a chance of 2⁻⁴⁰."""
    release, n, width = once.release, len(once.sizes), once.query.width
    noises = np.asarray(release.sigma) * units(release, n, 1) * tail(release.law.unit, width, CHANCE / n)
    return ROUNDING * (once.query.longest + float(noises.max()))


def longest_releases(method: Method, release: Release, sizes: IntArray, m: int) -> Array:
    """r_t: no c_i ζ_i of round t is longer."""
    T, n = method.T, len(sizes)
    scale = np.abs(np.broadcast_to(np.asarray(getattr(method, "scale", 1.0), dtype=np.float64), (n,)))
    shape = method.released.shape
    gain, spread = (np.ones(T), np.ones(T)) if shape is None else shape
    means = np.array([release.clip * q / release.sampling.batch(q) for q in sizes.tolist()])
    noises = np.asarray(release.sigma) * units(release, n, T) * tail(release.law.unit, m, CHANCE / (n * T))
    return np.asarray((scale * (gain[:, None] * means + spread[:, None] * noises)).max(axis=1))


def partial_shares(averaging: Averaging, W: Array) -> Array:
    """(parts, k) ω: what the plan of a round makes of ones, before each of its exchanges, at each place of W.

    Examples
    --------
    >>> from sottovoce.network.averaging import Exact
    >>> partial_shares(Exact(), np.full((3, 3), 1 / 3)).round(3)  # the third hands over, and is handed the mean
    array([[1.   , 1.   , 1.   ],
           [1.333, 0.667, 1.   ],
           [1.   , 1.   , 1.   ]])
    """
    plans = [averaging.exchanges(W, place) for place in range(len(W))]
    held, found = np.ones(len(W)), []
    for part in range(averaging.depth(W)):
        found.append(held * (1.0 + part * SUMMED))
        rows = [plan[part].row if plan else {place: 1.0} for place, plan in enumerate(plans)]
        held = np.array([sum(weight * held[place] for place, weight in row.items()) for row in rows])
    return np.array(found)


def tail(unit: str, m: int, chance: float) -> float:
    """Return a bound on the norm of m noise terms that fails with a small probability."""
    if unit == "laplace":
        return math.sqrt(m) * math.log(m / chance)
    return math.sqrt(m) + math.sqrt(2.0 * math.log(1.0 / chance))


def units(release: Release, n: int, T: int) -> Array:
    """Return a bound on each node's noise terms: √Σf², or Σ|f| if they are not normal."""
    law = release.law
    if isinstance(law, Pairs):
        return np.array([_shared(law, release, i) for i in range(n)])
    nodes, t = (np.zeros(T, dtype=np.int64), np.arange(1, T + 1)) if isinstance(law, Tree) else _first(n)
    power = 1.0 if law.unit == "laplace" else 2.0
    total = np.zeros(len(nodes))
    for source in law.noise_terms(nodes, t, release.sigma):
        np.add.at(total, source.rows, np.abs(source.factors) ** power)
    return np.full(n, total.max() ** (1 / power)) if isinstance(law, Tree) else total ** (1 / power)


def _shared(law: Pairs, release: Release, i: int) -> float:
    """The same of node i in the round in which it shares with most."""
    if not any(release.sigma):
        return 0.0
    if law.attendance is None:
        t = np.array([1])
    else:
        starts, nodes = law.attendance
        t = np.repeat(np.arange(1, len(starts)), np.diff(starts))[nodes == i]
    total = np.zeros(len(t))
    for source in law.with_peers(i, t, release.sigma):
        np.add.at(total, source.rows, source.factors**2)
    raised = 1.0 if law.epochs is None else float(law.epochs.raised.max())
    return raised * math.sqrt(float(total.max(initial=0.0)))


def _first(n: int) -> tuple[IntArray, IntArray]:
    return np.arange(n), np.ones(n, dtype=np.int64)


def _dual_averaging(method: DualAveraging, r: Array, m: int) -> Array:
    a = method.steps.a
    if not method.curvature:
        return np.cumsum(a * r)
    largest, found, longest = float(np.abs(method.scale).max()), [], 0.0
    for t in range(1, method.T + 1):
        still = float(np.linalg.norm(method.x(np.zeros((1, m)), t)))
        x = still + longest / float(method.modulus[t - 1])  # argmin moves by at most |Δz| over the modulus
        longest += float(a[t - 1]) * (float(r[t - 1]) + largest * method.curvature * x)
        found.append(longest)
    return np.array(found)


def _descent(method: Any, r: Array, m: int) -> Array:
    return np.cumsum(method.eta * r + _at_zero(method, m))


def _statistics(method: Statistics, r: Array, m: int) -> Array:
    return r


def _at_zero(method: Any, m: int) -> float:
    """‖prox_{ηh}(0)‖: zero but where h keeps away from zero, and then the same for every η."""
    return max(float(np.linalg.norm(method.prox(np.zeros((1, m)), float(eta)))) for eta in method.eta[[0, -1]])


def _tracking(method: Tracking, r: Array, m: int) -> Array:
    y = np.cumsum(r + np.concatenate([[0.0], r[:-1]]))
    return np.cumsum(method.eta * y + _at_zero(method, m)) + y


def _scaffold(method: Scaffold, r: Array, m: int) -> Array:
    control = np.maximum.accumulate(r)  # means of earlier releases, mixed
    return np.cumsum(method.eta * (r + 2.0 * control) + _at_zero(method, m)) + control


_GROWTH: dict[type, Callable[..., Array]] = {
    DualAveraging: _dual_averaging,
    Descent: _descent,
    Stale: _descent,
    Mixup: _descent,
    Muffliato: _descent,
    Tracking: _tracking,
    Scaffold: _scaffold,
    Statistics: _statistics,
}
