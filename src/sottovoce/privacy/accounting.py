"""The accountant: a node's whole participation in, a true (ε, δ) out.

Every answer of `epsilon` and `delta` is an upper bound and every one of `epsilon_lower` a lower one, numerical slack
included; grids are refined until the answer no longer moves by more than a few thousandths.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce.errors import PrivacyError
from sottovoce.privacy import profiles
from sottovoce.privacy.composition import compose, moments
from sottovoce.privacy.events import Mechanism, gaussian, joint, merge, parts, pure

__all__ = [
    "Account",
    "Mechanism",
    "account",
    "delta",
    "epsilon",
    "epsilon_lower",
    "epsilon_rdp",
    "refine",
    "tradeoff",
]

FINEST = 2**20
FAINTEST = 1e-5  # a noise multiplier below this (ε over 10⁹) counts as no noise at all
_COARSEST = 2**14
_STILL = 2e-3  # grids are quadrupled until ε moves by less than this share of itself
_UNLUCKY = 0.01  # the probability of speaking less often than a lower bound counts on


@dataclass(frozen=True)
class Account:
    """What a participation costs at δ."""

    epsilon: float
    """The guarantee."""
    epsilon_lower: float
    """No smaller ε can be promised: an instance of the mechanism really reaches it."""
    epsilon_rdp: float
    """The same guarantee by Rényi moments: a looser upper bound from another calculation."""
    delta: float
    error: float
    """By how much the grid may have raised `epsilon`, as a share of it."""


def epsilon(mechanisms: Sequence[Mechanism], delta: float) -> float:
    """The least ε at which all the rounds together are certainly (ε, δ)-DP.

    Examples
    --------
    >>> round(epsilon([Mechanism("fixed", 1 / 20000, 0.45, 60000)], 1e-5), 2)
    2.22
    >>> round(epsilon([Mechanism("full", 1, 10.0, 100)], 1e-5), 3)
    4.377
    """
    return refine(mechanisms, delta)[0]


def refine(mechanisms: Sequence[Mechanism], delta: float, finest: int = FINEST) -> tuple[float, float]:
    """ε on grids of up to `finest` points, and the share of it by which the last refinement moved it."""
    _check(delta)
    merged = merge(mechanisms)
    if not merged:
        return 0.0, 0.0
    if any(m.multiplier < FAINTEST for m in merged):
        return math.inf, 0.0
    if gaussian(merged):
        return profiles.gaussian_epsilon(delta, joint(merged)), 0.0
    whole = parts(merged)
    found = moments(whole, math.log(delta))
    level = min(found.bound(delta), pure(merged))
    value, moved, size = math.inf, math.inf, min(_COARSEST, finest)
    while size <= finest and moved > _STILL:
        before, about = value, min(level, value, found.level(math.log(delta))[0])
        value = compose(whole, found, (max(about, 0.0), math.log(delta)), size).epsilon(delta)
        moved, size = _moved(before, value), 4 * size
        if value < 0.5 * about:
            found = moments(whole, math.log(delta), value)  # rare large losses had misled Chernoff's bound
            level = min(level, found.bound(delta))
    return min(level, value), min(moved, _moved(level, value))


def _moved(before: float, value: float) -> float:
    """By what share of itself a number has moved."""
    if value == math.inf:
        return math.inf
    return abs(before - value) / value if value > 0 else 0.0 if before == 0 else math.inf


def delta(mechanisms: Sequence[Mechanism], epsilon: float) -> float:
    """The least δ at which all the rounds together are certainly (ε, δ)-DP.

    Examples
    --------
    >>> round(delta([Mechanism("fixed", 1 / 20000, 0.45, 60000)], 2.2194), 7)
    1e-05
    """
    if not 0 <= epsilon < math.inf:
        raise PrivacyError(f"an epsilon is finite and not negative, not {epsilon}")
    merged = merge(mechanisms)
    if not merged:
        return 0.0
    if any(m.multiplier < FAINTEST for m in merged):
        return 1.0
    if gaussian(merged):
        return profiles.gaussian_delta(epsilon, joint(merged))
    if epsilon >= pure(merged):
        return 0.0
    whole = parts(merged)
    # how small a probability matters is known once δ is, so that each look begins with what the last one found
    found = moments(whole, -60.0, epsilon)
    best = min(math.exp(max(found.order(epsilon)[1], -300.0)) + found.lost, 1.0)
    moved, size = math.inf, _COARSEST
    while size <= FINEST and moved > _STILL and best > 0:
        log_delta = max(math.log(best), -600.0)
        value = compose(whole, moments(whole, log_delta, epsilon), (epsilon, log_delta), size).delta(epsilon)
        moved, best, size = _moved(best, value), min(best, value), 4 * size
    return best


def epsilon_lower(mechanisms: Sequence[Mechanism], delta: float, above: float | None = None) -> float:
    """An ε below which these rounds are certainly not (ε, δ)-DP for the worst data: a lower bound, slack included.

    `above` is what `epsilon` says, where that is known; it saves time, and no answer's validity depends on it.

    Examples
    --------
    >>> round(epsilon_lower([Mechanism("fixed", 0.01, 1.0, 1000)], 1e-5), 2)
    1.83
    """
    _check(delta)
    merged = merge(mechanisms)
    if not merged:
        return 0.0
    if any(m.multiplier < FAINTEST for m in merged):
        return math.inf if any(m.multiplier == 0 for m in merged) else 0.0
    certain = []
    for m in merged:
        rounds = m.rounds
        if m.activity < 1:
            # δ = E δ_K over how often the node speaks, and δ_K grows with K: so δ ≥ P(K ≥ k) δ_k
            quantile = float(
                scipy.special.bdtrik(_UNLUCKY, m.rounds, m.activity)
            )  # not a number where even 0 is likelier
            rounds = math.floor(quantile) + 1 if quantile > 0 else 0
            delta /= 1.0 - _UNLUCKY
        certain.append(Mechanism(m.kind, m.rate, m.multiplier, rounds))
    certain = merge(certain)
    if not certain or delta >= 1.0:
        return 0.0
    if gaussian(certain):
        return profiles.gaussian_epsilon(delta, joint(certain))
    if above is None or certain != merged:
        above = refine(certain, delta, 4 * _COARSEST)[0]
    found = moments(parts(certain), math.log(delta), above)
    target = max(found.level(math.log(delta))[0], 0.0), math.log(delta)
    real = parts(certain, realised=True)
    best, moved, size = 0.0, math.inf, _COARSEST
    while size <= FINEST and moved > _STILL:
        value = compose(real, found, target, size, lower=True).epsilon_lower(delta)
        moved, best, size = _moved(best, value) if value else math.inf, max(best, value), 4 * size
    if best == 0.0 and len(certain) > 1:
        return max(epsilon_lower([m], delta) for m in certain)  # the whole tells at least as much as each part
    return best


def epsilon_rdp(mechanisms: Sequence[Mechanism], delta: float) -> float:
    """The ε that the Rényi moments of the same pairs give: always valid, and looser, without any convolution.

    Examples
    --------
    >>> round(epsilon_rdp([Mechanism("full", 1, 1.0, 1)], 1e-5), 2)
    4.73
    """
    _check(delta)
    merged = merge(mechanisms)
    if not merged:
        return 0.0
    if any(m.multiplier < FAINTEST for m in merged):
        return math.inf
    whole = parts(merged)
    found = moments(whole, math.log(delta))
    order = found.level(math.log(delta))[1]
    cells = [part.cells(found.top, 8000) for part in whole]

    def bound(log_order: float) -> float:
        at = np.array([math.exp(log_order)])
        values = [part.log_moments(at, found.top, its) for part, its in zip(whole, cells, strict=True)]
        moment = math.fsum(float(v[0][0]) for v in values)
        left = delta - math.fsum(v[1] for v in values)  # a loss over top goes to δ
        if left <= 0 or not math.isfinite(moment):
            return 1e300
        a = at[0] + 1.0
        # Canonne, Kamath and Steinke 2020, Proposition 12
        return moment / at[0] + math.log1p(-1.0 / a) - math.log(left * a) / at[0]

    best = scipy.optimize.minimize_scalar(
        bound, bounds=(math.log(order) - 1.5, math.log(order) + 1.5), method="bounded"
    )
    return max(min(float(best.fun), pure(merged)), 0.0)


def account(mechanisms: Sequence[Mechanism], delta: float, lower: bool = True) -> Account:
    """All that is known about a participation at δ; without `lower`, nothing from below, in half of the time.

    Examples
    --------
    >>> account([Mechanism("poisson", 0.01, 1.0, 100)], 1e-5).epsilon < 1.0
    True
    """
    value, error = refine(mechanisms, delta)
    renyi = epsilon_rdp(mechanisms, delta)
    # two upper bounds; beyond ε of a million, where the grid is too coarse, the second can be the smaller by a hair
    below = epsilon_lower(mechanisms, delta, value) if lower else 0.0
    return Account(min(value, renyi), below, renyi, delta, error)


def tradeoff(mechanisms: Sequence[Mechanism], fpr: float) -> float:
    """The largest true-positive rate that any attacker can have at this false-positive rate.

    Every point of the curve bounds it: TPR ≤ e^ε FPR + δ(ε), and 1 − FPR ≤ e^ε (1 − TPR) + δ(ε).

    Examples
    --------
    >>> round(tradeoff([Mechanism("full", 1, 1.0, 1)], 0.01), 2)
    0.09
    """
    if not 0 <= fpr <= 1:
        raise PrivacyError(f"a false-positive rate is a probability, not {fpr}")
    merged = merge(mechanisms)
    if not merged:
        return float(fpr)
    if any(m.multiplier < FAINTEST for m in merged):
        return 1.0
    if gaussian(merged):
        # the trade-off of two Gaussians (Dong, Roth and Su 2022)
        return float(scipy.special.ndtr(1.0 / joint(merged) + scipy.special.ndtri(fpr)))
    best = 1.0
    whole = parts(merged)
    for log_delta in np.log(np.geomspace(max(min(fpr, 0.5), 1e-9) / 30.0, 0.9, 5)).tolist():
        found = moments(whole, log_delta)
        curve = compose(whole, found, (max(found.level(log_delta)[0], 0.0), log_delta), FINEST // 8)
        keep = (curve.losses >= 0) & (curve.losses < 700)
        e, d = curve.losses[keep], curve.deltas()[keep]
        if len(e):
            bounds = np.minimum(np.exp(e) * fpr + d, 1.0 - np.exp(-e) * (1.0 - fpr - d))
            best = min(best, float(bounds.min()))
    return max(best, float(fpr))


def _check(delta: float) -> None:
    if not 0 < delta < 1:
        raise PrivacyError(f"a delta lies strictly between 0 and 1, not {delta}")
