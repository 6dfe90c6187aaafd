"""The total cost of adaptively chosen runs: each may depend on the results of the runs before.

`accounting.compute_epsilon` composes mechanisms that were fixed before the first release. If someone studies a model
and then decides whether to train another, and with how much noise, nothing is fixed in advance: for such runs composing
privacy-loss distributions proves no (ε, δ). A *privacy filter* does (Rogers, Roth, Ullman and Vadhan 2016): a rule,
fixed before anything was seen, that admits or refuses each further run. `sequential_epsilon` is the least ε at
which the rule below admits all runs. A single run was fixed in advance and keeps its cost.

**The rule** is fixed by the first run and δ. Four judges share δ, most of it to the one of the first two that likes
the first run better; runs pass at ε if one of the four lets them.

*Gauss*: run r is dominated by Gaussian noise of multiplier 1/μ_r but for a probability c_r (none if it is Gaussian).
Runs pass if noise of multiplier 1/√(Σ μ_r²) is (ε, δ_G − Σ c_r)-DP: μ² adds up, also along the way (Smith and Thakurta
2022; Koskela, Tobaben and Honkela 2023).

*Rényi*: for orders λ_j, best for so many runs like the first, with shares δ_j. v_r(λ) = log E[e^{λL}; L finite] of the
dominating pair's loss L, infinite with probability c_r. Runs pass if for some j (Feldman and Zrnic 2021 for one order)

    Σ_r v_r(λ_j) ≤ λ_j ε + log(δ_j − Σ c_r) + log(1 + λ_j) + λ_j log(1 + 1/λ_j).

*Sum*: a pure run counts with its ε, and up to four others with theirs at a quarter of this judge's δ (Rogers et al.).

*Whole*: the only judge of runs among which one is accounted as a whole, as searches are: the k-th counts with its ε at
6/(πk)² of this judge's δ.

**Theorem.** Let every run, given all that was released before, be dominated by its pair. For every ε and every set S of
ends at which `sequential_epsilon` is ε or less, P(S) ≤ e^ε P'(S) + δ. So where runs that would pass a budget are
refused, everything together is (ε, δ)-DP, however runs were chosen. docs/privacy.md has the proof.

A sum of ε holds against one adversary only if each of its terms does. `transcript` is the strongest: it sees every
message and may have the help of all other nodes. `secret_pairs(k)` is stronger the larger k is. `central`, who sees the
final model only, is the weakest.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array
from sottovoce.errors import PrivacyError
from sottovoce.privacy import profiles
from sottovoce.privacy.accounting import FAINTEST, SMALLEST, check_delta, compute_epsilon, known
from sottovoce.privacy.composite_events import WholeEvent
from sottovoce.privacy.composition import Part, compose, moments
from sottovoce.privacy.events import AccountedEvent, Event
from sottovoce.privacy.release import Adversary, Central, Release, SecretPairs, Transcript

FAVOURITE, OTHER, SUM, WHOLE = 0.9, 0.05, 0.04, 0.01
"""What of δ the judge has who likes the first run better, the other one, the one who sums, and the one for searches."""
SUMMED = 4
"""Runs that are not pure, of those that are summed."""
USUAL = 8
"""How many runs like the first are examined for that."""
COPIES = {2: 1 / 2, 8: 1 / 4, 32: 1 / 8, 128: 1 / 16, 512: 1 / 16}
"""For how many runs like the first an order is the best, and its share of Rényi's δ."""
ORDERS = np.geomspace(1e-3, 1e6, 361)
CUT = {"gauss": 1e-3, "renyi": 1e-9}
"""c_r, as a share of δ."""
SIZE, CURVES, POINTS = 2**15, 4, 4000
MAX_CHOICES = 64
"""Ways to choose one event of each run that are examined one by one."""


class Judges(NamedTuple):
    """The rule, as the first run fixes it."""

    gauss: float
    """Its δ."""
    orders: tuple[float, ...]
    shares: tuple[float, ...]
    """Their δ."""


def sequential_epsilon(runs: Iterable[AccountedEvent], delta: float) -> float:
    """ε of runs on the same records, in their order, where each may have been chosen after seeing the ones before.

    Examples
    --------
    >>> from sottovoce.privacy.events import PoissonEvent
    >>> run = PoissonEvent(1000, 50, 1.0, 0.1, 100)
    >>> sequential_epsilon([run], 1e-5) == compute_epsilon([run], 1e-5).epsilon
    True
    >>> round(compute_epsilon([run] * 5, 1e-5).epsilon, 2), round(sequential_epsilon([run] * 5, 1e-5), 2)
    (1.76, 1.78)
    """
    check_delta(delta)
    spoken = tuple(run for run in known(runs) if not run.silent)
    if len(spoken) < 2:
        return compute_epsilon(spoken, delta, lower=False).epsilon
    apart = any(isinstance(run, WholeEvent) or run.slack for run in spoken)  # each has a share of δ of its own
    return _summed(spoken, delta) if apart else _passing(spoken, delta)


def any_of_each(runs: Sequence[Iterable[AccountedEvent]], delta: float) -> float:
    """The same for runs in each of which a record had one of several events, and it is unknown which.

    The worst choice counts. With too many choices to try, only the fourth rule is used, which sums: for a sum the worst
    event of each run is the worst choice.

    Examples
    --------
    >>> from sottovoce.privacy.events import PoissonEvent
    >>> one, other = PoissonEvent(1000, 50, 1.0, 0.1, 100), PoissonEvent(1000, 50, 1.0, 0.2, 100)
    >>> any_of_each([[one, other], [one]], 1e-5) == sequential_epsilon([one, one], 1e-5)
    True
    """
    choices = [tuple(dict.fromkeys(known(run))) for run in runs]
    if len(choices) < 2 or math.prod(len(some) for some in choices) <= MAX_CHOICES:
        return max((sequential_epsilon(chosen, delta) for chosen in itertools.product(*choices)), default=0.0)
    shares = _shares(len(choices), delta)
    worst = (
        max(compute_epsilon([event], share, lower=False).epsilon for event in some)
        for some, share in zip(choices, shares, strict=True)
    )
    return math.inf if shares[-1] < SMALLEST else math.fsum(worst)


def _shares(runs: int, delta: float) -> list[float]:
    """The fourth judge's δ of each run."""
    return [6.0 * WHOLE * delta / (math.pi * k) ** 2 for k in range(1, runs + 1)]


def _summed(runs: tuple[AccountedEvent, ...], delta: float) -> float:
    """The least ε at which the fourth judge lets these runs through."""
    shares = _shares(len(runs), delta)
    if shares[-1] < SMALLEST:
        return math.inf
    return math.fsum(
        compute_epsilon([run], share, lower=False).epsilon for run, share in zip(runs, shares, strict=True)
    )


@lru_cache(maxsize=1024)
def _passing(runs: tuple[AccountedEvent, ...], delta: float) -> float:
    """The least ε at which the rule lets these runs through."""
    if any(run.noise_multiplier < FAINTEST for run in runs):
        return math.inf
    parts = [part for run in runs for part in run.parts]
    judges, all_of_them = _judges(parts[0], delta), Counter(parts)
    found = [_gauss(all_of_them, judges.gauss, delta)]
    found += [
        _renyi(all_of_them, order, share, delta) for order, share in zip(judges.orders, judges.shares, strict=True)
    ]
    return min(*found, _sum(runs, delta))


def _sum(runs: tuple[AccountedEvent, ...], delta: float) -> float:
    """The least ε at which the third judge lets these runs through."""
    pure = [run for run in runs if all(part.pair.bounded for part in run.parts)]
    others = [run for run in runs if run not in pure]
    if len(others) > SUMMED:
        return math.inf
    costs = [part.count / part.pair.multiplier for run in pure for part in run.parts]  # of all parts of a joint event
    return math.fsum([*costs, *(compute_epsilon([run], SUM * delta / SUMMED, lower=False).epsilon for run in others)])


@lru_cache(maxsize=256)
def _judges(first: Part, delta: float) -> Judges:
    """Nothing has been seen when the first run is chosen: whatever follows from it alone may be part of the rule."""
    orders = tuple(_best_order(first, copies, FAVOURITE * share * delta, delta) for copies, share in COPIES.items())
    usual = Counter({first: USUAL})
    gauss = _gauss(usual, FAVOURITE * delta, delta)
    renyi = min(
        _renyi(usual, order, FAVOURITE * share * delta, delta)
        for order, share in zip(orders, COPIES.values(), strict=True)
    )
    mine, his = (FAVOURITE, OTHER) if gauss <= renyi else (OTHER, FAVOURITE)
    return Judges(mine * delta, orders, tuple(his * share * delta for share in COPIES.values()))


def _gauss(parts: Counter[Part], left: float, delta: float) -> float:
    """The least ε at which the first judge lets these runs through with his δ."""
    found = [(times, *_normal(part, CUT["gauss"] * delta)) for part, times in parts.items()]
    distance = math.fsum(times * mu * mu for times, mu, _ in found) ** 0.5
    left -= math.fsum(times * cut for times, _, cut in found)
    return profiles.gaussian_epsilon(left, 1.0 / distance) if left > 0 and distance < 1.0 / FAINTEST else math.inf


@lru_cache(maxsize=1024)
def _normal(part: Part, cut: float) -> tuple[float, float]:
    """μ and c, such that a run is dominated by two normal laws μ apart but for a probability c; infinite if by none.

    That is δ_r(ε) ≤ c + (1 − c)δ_μ(ε) for all ε ≥ 0, the profile of a pair that with probability c gives all away and
    else shows a normal law: both pairs are symmetric, so that this is all of a profile. It is checked between every two
    points of a grid, with the run's profile from the left and the normal one from the right.
    """
    if part.gaussian:
        return (part.pair.apart or 0.0) * math.sqrt(part.count), 0.0
    curves = []
    for log_delta in np.log(np.geomspace(cut, 0.5, CURVES)).tolist():
        found = moments([part], log_delta)
        curve = compose([part], found, (max(found.level(log_delta)[0], 0.0), log_delta), SIZE)
        curves.append((curve.losses, np.minimum(curve.deltas(), 1.0)))
    ends = [losses[deltas <= cut] for losses, deltas in curves]
    end = min((float(some[0]) for some in ends if len(some) and some[0] > 0), default=math.inf)
    if math.isinf(end):
        return math.inf, 0.0
    epsilon = np.concatenate([[0.0], end * np.geomspace(1e-4, 1.0, POINTS)])
    profile = np.ones(len(epsilon))
    for losses, deltas in curves:
        at = np.searchsorted(losses, epsilon, side="right") - 1
        profile = np.minimum(profile, np.where(at >= 0, deltas[np.maximum(at, 0)], 1.0))
    wanted, at_least = (profile[:-1] - cut) / (1.0 - cut), epsilon[1:]
    wanted, at_least = wanted[wanted > 0], at_least[wanted > 0]
    low, high = np.full(len(wanted), 1e-9), np.full(len(wanted), 1.0 / FAINTEST)
    for _ in range(60):
        middle = np.sqrt(low * high)
        enough = _gaussian_deltas(at_least, middle) >= wanted
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return float(high.max(initial=1e-9)) * (1.0 + 1e-9), cut


def _gaussian_deltas(epsilon: Array, mu: Array) -> Array:
    """`profiles.gaussian_delta` of many."""
    top = scipy.special.log_ndtr(mu / 2 - epsilon / mu)
    rest = np.minimum(epsilon + scipy.special.log_ndtr(-mu / 2 - epsilon / mu) - top, 0.0)
    return np.asarray(np.exp(top) * -np.expm1(rest))


def _renyi(parts: Counter[Part], order: float, share: float, delta: float) -> float:
    """The least ε at which the second judge lets these runs through at one of his orders."""
    total, left = 0.0, share
    for part, times in parts.items():
        values, cut = _log_moments(part, (order,), CUT["renyi"] * delta)
        total, left = total + times * max(float(values[0]), 0.0), left - times * cut
    return max(float(_converted(np.array(total), np.array(order), left)), 0.0) if left > 0 else math.inf


def _best_order(first: Part, copies: int, share: float, delta: float) -> float:
    """The order at which so many runs cost least."""
    values, _ = _log_moments(first, tuple(ORDERS.tolist()), CUT["renyi"] * delta)
    return float(ORDERS[np.argmin(_converted(copies * values, ORDERS, share))])


def _converted(values: Array, orders: Array, delta: float) -> Array:
    """ε from log E[e^{λL}] (Canonne, Kamath and Steinke 2020, Proposition 12)."""
    return np.asarray((values - math.log(delta) - np.log1p(orders)) / orders + np.log(orders) - np.log1p(orders))


@lru_cache(maxsize=1024)
def _log_moments(part: Part, orders: tuple[float, ...], cut: float) -> tuple[Array, float]:
    """v(λ) of a whole run, from above, and the probability of a loss that counts as infinite."""
    at = np.array(orders)
    if part.gaussian:
        return part.count * at * (at + 1.0) * (part.pair.apart or 0.0) ** 2 / 2.0, 0.0
    if part.pair.bounded:
        top = part.pair.atom
    else:
        t = np.geomspace(1e-12, 1e13, 4000)
        rare = part.count * part.activity * part.pair.tails(t).p <= cut
        top = float(t[np.argmax(rare)])
    values, _, lost = part.log_moments(at, top, part.cells(top, 8000))
    return values, lost


class Observer(NamedTuple):
    """An adversary, and the nodes that help it where a run named them."""

    adversary: Adversary
    coalition: tuple[int, ...] | None = None

    def __str__(self) -> str:
        """Its name."""
        return str(self.adversary)


def observer(adversary: Adversary, events: Iterable[Event]) -> Observer:
    """The adversary that these events of one run are accounted against."""
    notes = [event.note for event in events]
    if isinstance(adversary, SecretPairs) and notes:
        counts = {note.collusion for note in notes}
        if None not in counts:
            return Observer(SecretPairs(max(min(count for count in counts if count is not None), 1)))
        return Observer(adversary, next((note.coalition for note in notes if note.coalition is not None), None))
    return Observer(adversary)


def covers(one: Observer, other: Observer) -> bool:
    """Return whether a guarantee against `one` is a guarantee against `other`.

    Examples
    --------
    >>> one, two, all_of_them = Observer(SecretPairs(1)), Observer(SecretPairs(2)), Observer(Transcript())
    >>> covers(two, one), covers(one, two), covers(all_of_them, two), covers(one, all_of_them)
    (True, False, True, False)
    """
    mine, its = one.adversary, other.adversary
    if one == other or isinstance(mine, Transcript) or isinstance(its, Central):
        return True
    if isinstance(mine, SecretPairs) and isinstance(its, SecretPairs):
        return isinstance(mine.k, int) and isinstance(its.k, int) and mine.k >= its.k
    return False


def strongest(observers: Sequence[Observer]) -> Observer | None:
    """The one that is at least as strong as all others; None where they cannot be compared."""
    return next((one for one in observers if all(covers(one, other) for other in observers)), None)


def weakest(observers: Sequence[Observer]) -> Observer | None:
    """The one against which all guarantees hold; None where they cannot be compared."""
    return next((one for one in observers if all(covers(other, one) for other in observers)), None)


def release_against(release: Release, target: Observer) -> Release:
    """The same release, accounted against another adversary; against `transcript` all other nodes collude.

    Noise that is independent at every node is the same against everybody.
    """
    from sottovoce.privacy.pairs import Pairs  # only loaded by those who need it

    before = None if release.before is None else release_against(release.before, target)
    if not isinstance(release.law, Pairs):
        return replace(release, before=before)
    others, adversary = release.law.n - 1, target.adversary
    k = getattr(adversary, "k", None)
    if isinstance(adversary, Transcript):
        k = others
    if not isinstance(k, int):
        raise PrivacyError(f"noise that nodes share is not accounted against '{target}'; use 'transcript'")
    return replace(release, law=release.law.against(min(k, others)), before=before)
