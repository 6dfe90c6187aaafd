r"""Regression of the hazard in discrete time: its sums over people with their sensitivities, and the procedure.

Time has K public intervals. A person has columns x, is at risk in the first intervals and leaves in one of them, by an
event or censored; with the link's inverse h the chance of an event in interval k is h(u_k), u_k = xᵀβ + α_k. A person
is the unit, with one score and one curvature over all intervals. With f(u) = 1 for odds and e^u/h(u) for the
complementary log-log link, what an interval brings to the score is f(u) h(u) as long as there is no event (half of that
where one is censored in it) and −f(u)(1 − h(u)) at one.

*Followed to a public c.* The hazards that the released model expects add up along the intervals, Σ ω_k f h; a person's
weight ω_k is 1 until the sum reaches c, the part of an interval that brings it to c, and 0 afterward. It is known
before the interval begins, so every Σ ω_k (…) keeps the mean 0 at the true model: nothing is biased, as a clip would
bias it.

Rows are first made round by the released moments of all rows, A (x, 1) with mean 0, equal variances and the constant 1
again, so that noise hides no direction more than another; α_k is the sum of a common constant and a deviation. With
x = A (x, 1) from here on, (x, 1) downweighted to the length R (`statistics`) and z_k = (x, e_k):

| part | a person's contribution | largest distance between two people's |
|---|---|---|
| `Exits` | 1 in the cell of exit | √2 |
| `PersonScore` | v Σ_k r_k z_k | 2 c R |
| `PersonCurvature` | v Σ_k a_k z_k z_kᵀ, Σ_k a_k brought to w_max | √2 R² w_max |
| `PersonScatter` | the square of the score | √2 (c R)² |

*Proof*, for c ≥ 1 and R² ≥ 2. Let p_k = ω_k f h ≥ 0, Σ p_k ≤ c, and b = ω f (1 − h) at an event, else 0. Then b ≤ 1:
1 − h ≤ 1 for odds, and e^u/(e^{e^u} − 1) ≤ 1. With ρ = Σ r_k = Σ p_k − b and q = Σ p_k the score's squared length is
at most v² (‖x‖² (q − b)² + q² + b²), because the event's interval has no p_k. It is convex in (q, b), so largest
in a corner of [0, c] × [0, 1]: at (c, 0) it is c² v² (‖x‖² + 1) ≤ c² R², at (0, 1) no more. At (c, 1) it is
v² ((c − 1)² (‖x‖² + 1) + 2c) ≤ (c − 1)² R² + c R² ≤ c² R². So all scores lie in a ball of radius c R. The curvature
is positive semidefinite with trace at most R² w_max, the scatter of rank 1 with trace at most (c R)²; two such matrices
of trace T are √2 T apart at most. ∎
"""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from sottovoce._types import Array
from sottovoce.inference.estimate import (
    PSEUDO_ROWS,
    STEPS,
    At,
    MatrixNoise,
    Procedure,
    Pseudo,
    Settings,
    corrected,
    length_of,
    mean_row_weight,
    moments,
    positive,
    pseudo_rows,
    solved,
)
from sottovoce.inference.models import Logistic, Model
from sottovoce.inference.statistics import MAX_NUMBER, Gram, Part, Rows, Stage, packed, squares, unpacked, weighted
from sottovoce.secure.functions import exp, halved_sum

SHARES = {"gram": 0.04, "counts": 0.02, "step": 0.055, "score": 0.46, "curvature": 0.33, "scatter": 0.04}
"""Of the budget; two steps are taken, so that they add up to 1."""
W_MEANS = 2.5
"""w_max in units of the mean Σ a_k: fewer would make the curvature too small, and intervals too long."""
FEWEST_AT_RISK = 0.01
"""In the start: at least this share of people is taken to be at risk in an interval."""
SMALLEST = 1e-300


class Link(Model, Protocol):
    """A model whose slope is h(u) − y, with the factor f."""

    def at(self, u: Array) -> tuple[Array, Array, Array]:
        """h, f and h′."""

    def score(self, h: float) -> float:
        """u of h(u)."""

    def log_survival_slope(self, u: Array) -> Array:
        """−d log(1 − h)/du."""


class Odds(Logistic):
    """h = 1/(1 + e^−u): e^β are odds ratios of the hazard."""

    def at(self, u: Array) -> tuple[Array, Array, Array]:
        """h, 1 and h(1 − h)."""
        h = np.asarray(1.0 / (1.0 + exp(-u)))
        return h, np.ones_like(u), h * (1.0 - h)

    def score(self, h: float) -> float:
        """log h/(1 − h)."""
        return math.log(h / (1.0 - h))

    def log_survival_slope(self, u: Array) -> Array:
        """h."""
        return np.asarray(1.0 / (1.0 + exp(-u)))


@dataclass(frozen=True)
class LogLog:
    """h = 1 − exp(−e^u): e^β are hazard ratios of proportional hazards, however wide intervals are.

    Examples
    --------
    >>> LogLog().slope(np.array([0.0, -30.0]), np.zeros(2))
    array([6.32120559e-01, 9.35762297e-14])
    """

    steepest: float = 1.0

    def slope(self, u: Array, y: Array) -> Array:
        """H − [y > 0]."""
        return np.asarray(self.at(u)[0] - (y > 0))

    def curvature(self, u: Array) -> Array:
        """h′ = e^u (1 − h)."""
        return self.at(u)[2]

    def bend(self, u: Array) -> Array:
        """h″ = h′ (1 − e^u)."""
        g = _rate(u)
        return np.asarray(g * exp(-g) * (1.0 - g))

    def at(self, u: Array) -> tuple[Array, Array, Array]:
        """h, e^u/h and e^u (1 − h)."""
        g = _rate(u)
        without = exp(-g)
        h = np.where(g < 1e-5, g - g * g / 2.0, 1.0 - without)
        return h, g / h, g * without

    def score(self, h: float) -> float:
        """log(−log(1 − h))."""
        return math.log(-math.log1p(-h))

    def log_survival_slope(self, u: Array) -> Array:
        """e^u."""
        return _rate(u)


def _rate(u: Array) -> Array:
    return exp(np.minimum(np.maximum(u, -300.0), 5.0))


LINKS: dict[str, Link] = {"hazard": LogLog(), "odds": Odds()}


class Path(NamedTuple):
    """Rows as they count, and (rows, K) r_k and a_k of every person."""

    rows: Rows
    residuals: Array
    curvatures: Array


@dataclass(frozen=True, eq=False)
class Followed:
    """People at a public model, followed until their expected hazards add up to c.

    Attributes
    ----------
    link, theta : the model: slopes of all columns with the constant, then the deviation of every interval
    round : A
    longest : R
    most : c
    intervals : K
    """

    link: Link
    theta: Array
    round: Array
    longest: float
    most: float
    intervals: int
    _last: list[Any] = field(default_factory=list, repr=False)

    def rows(self, rows: Rows, fast: bool) -> Rows:
        """A (x, 1) and 1, downweighted; people without a usable exit weigh nothing."""
        x = rows.x[:, :-1]
        made = x @ self.round.T if fast else np.stack([halved_sum(x * line) for line in self.round], axis=1)
        made = np.clip(made, -MAX_NUMBER, MAX_NUMBER)
        found = weighted(np.concatenate([made, np.ones((len(x), 1))], axis=1), rows.y, self.longest)
        root = found.root * (rows.y <= 2 * self.intervals)
        return found._replace(root=root, u=root[:, None] * found.x)

    def path(self, given: Rows, fast: bool) -> Path:
        """What every interval brings; y is the cell of exit, as `Exits` counts them.

        The parts of a stage are of the same rows, so that the last answer is kept.
        """
        if self._last and self._last[0] is given and self._last[1] == fast:
            return self._last[2]
        self._last[:] = [given, fast, self._path(self.rows(given, fast), fast)]
        found: Path = self._last[2]
        return found

    def _path(self, rows: Rows, fast: bool) -> Path:
        K, m = self.intervals, rows.x.shape[1] - 1
        x, slopes = rows.x[:, :m], self.theta[:m]
        u0 = x @ slopes if fast else halved_sum(x * slopes)
        ended = rows.y < K
        interval = np.where(ended, rows.y, rows.y - K)
        left, found = np.full(len(u0), self.most), []
        for k in range(K):
            u = u0 + self.theta[m + k]
            h, factor, bent = self.link.at(u)
            weight = np.minimum(1.0, left / np.maximum(factor * h, SMALLEST))
            left = np.maximum(left - weight * (factor * h), 0.0)
            here = interval == k
            event = here & ended
            at_risk = np.where(here, 0.5, interval > k) + 0.5 * event
            calm = np.where(event, 0.0, at_risk)
            residual = weight * factor * (h * calm - (1.0 - h) * event)
            found.append((residual, weight * factor * bent * at_risk))
        return Path(rows, *(np.stack(each, axis=1) for each in zip(*found, strict=True)))


@dataclass(frozen=True, eq=False)
class Exits:
    """1 in the cell in which a person left: events by interval, censored by interval, those still there at the end."""

    intervals: int
    sensitivity = math.sqrt(2.0)

    @property
    def width(self) -> int:
        """2K + 1."""
        return 2 * self.intervals + 1

    def units(self, rows: Rows) -> Array:
        """One line a person; who cannot be used is in no cell."""
        return np.asarray(rows.y[:, None] == np.arange(self.width), dtype=np.float64)

    def total(self, rows: Rows) -> Array:
        """Counted."""
        return np.asarray(self.units(rows).sum(axis=0))

    def read(self, numbers: Array) -> Array:
        """Shares of people."""
        return numbers


class _OfPeople:
    """A part that is computed along the path of every person."""

    def __init__(self, people: Followed) -> None:
        self.people = people

    @property
    def p(self) -> int:
        """Columns and intervals."""
        return len(self.people.theta)

    @property
    def width(self) -> int:
        """Of the upper triangle."""
        return self.p * (self.p + 1) // 2

    def read(self, numbers: Array) -> Array:
        """The matrix."""
        return unpacked(numbers)

    def scores(self, rows: Rows, fast: bool) -> Array:
        """v Σ r_k z_k."""
        rows, residuals, _ = self.people.path(rows, fast)
        whole = rows.root * halved_sum(residuals)
        m = rows.x.shape[1] - 1
        return np.concatenate([whole[:, None] * rows.u[:, :m], (rows.root * rows.u[:, m])[:, None] * residuals], axis=1)


class PersonScore(_OfPeople):
    """v Σ r_k z_k."""

    @property
    def width(self) -> int:
        """A number for each column and interval."""
        return self.p

    @property
    def sensitivity(self) -> float:
        """2 c R."""
        return 2.0 * self.people.most * self.people.longest

    def units(self, rows: Rows) -> Array:
        """As they are."""
        return self.scores(rows, fast=False)

    def total(self, rows: Rows) -> Array:
        """Added up."""
        return np.asarray(self.scores(rows, fast=True).sum(axis=0))

    def read(self, numbers: Array) -> Array:
        """The vector."""
        return numbers


class PersonCurvature(_OfPeople):
    """v Σ a_k z_k z_kᵀ, with Σ a_k at most w_max."""

    def __init__(self, people: Followed, w_max: float) -> None:
        super().__init__(people)
        self.w_max = w_max

    @property
    def sensitivity(self) -> float:
        """√2 R² w_max."""
        return math.sqrt(2.0) * self.people.longest**2 * self.w_max

    def _weights(self, rows: Rows, fast: bool) -> tuple[Rows, Array, Array]:
        """Rows as they count, Σ a_k, and a_k."""
        rows, _, each = self.people.path(rows, fast)
        whole = halved_sum(each)
        factor = np.minimum(1.0, self.w_max / np.maximum(whole, SMALLEST))
        return rows, whole * factor, each * factor[:, None]

    def units(self, rows: Rows) -> Array:
        """Packed."""
        rows, whole, each = self._weights(rows, fast=False)
        K, m = each.shape[1], rows.x.shape[1] - 1
        u = np.concatenate([rows.u[:, :m], np.repeat(rows.u[:, m:], K, axis=1)], axis=1)
        by_column = np.concatenate([np.repeat(whole[:, None], m, axis=1), each], axis=1)
        i, j = np.triu_indices(m + K)
        factors = np.where(i == j, 1.0, np.where(i < m, math.sqrt(2.0), 0.0))  # a person has one interval at a time
        return np.asarray(factors * by_column[:, j] * u[:, i] * u[:, j])

    def total(self, rows: Rows) -> Array:
        """Two products of matrices."""
        rows, whole, each = self._weights(rows, fast=True)
        m = rows.x.shape[1] - 1
        x, constant = rows.u[:, :m], rows.u[:, m:]
        cross = x.T @ (each * constant)
        return packed(np.block([[(x.T * whole) @ x, cross], [cross.T, np.diag(np.sum(each * constant**2, axis=0))]]))


class PersonScatter(_OfPeople):
    """The squares of people's scores."""

    @property
    def sensitivity(self) -> float:
        """√2 (c R)²."""
        return math.sqrt(2.0) * (self.people.most * self.people.longest) ** 2

    def units(self, rows: Rows) -> Array:
        """Packed."""
        return squares(self.scores(rows, fast=False))

    def total(self, rows: Rows) -> Array:
        """One product of matrices."""
        scores = self.scores(rows, fast=True)
        return packed(scores.T @ scores)


def length_of_rows(columns: int) -> float:
    """R: columns in [−1, 1] have a mean square of a third; with the constant 1 and the 1 of an interval."""
    return math.sqrt(2.0 + columns / 2.0)


def basis(A: Array, intervals: int) -> tuple[Array, Array]:
    """B, orthonormal and at right angles to what changes no u_k, and what makes β and α_k of rows before A.

    A common constant that is 1 higher and deviations that are 1 lower are the same model.
    """
    m = len(A) - 1
    size = m + 1 + intervals
    same = np.concatenate([np.zeros(m), [1.0], -np.ones(intervals)])[:, None]
    B = np.linalg.qr(np.concatenate([same, np.eye(size)], axis=1))[0][:, 1:size]
    to_time = np.zeros((m + intervals, size))
    to_time[:m, : m + 1], to_time[m:, : m + 1], to_time[m:, m + 1 :] = A.T[:m], A.T[m], np.eye(intervals)
    return B, to_time @ B


def rounding(gram: Array, noise: float) -> Array:
    """A, by which rows with Ĝ's moments have mean 0 and the variance of a uniform column in every direction.

    Directions with less variance than the noise in Ĝ are stretched by no more than that allows.
    """
    mean, covariance = moments(gram)
    values, vectors = np.linalg.eigh(covariance)
    root = (vectors / np.sqrt(3.0 * (np.maximum(values, 0.0) + noise * math.sqrt(2.0 * len(gram)) + 1e-6))) @ vectors.T
    found = np.eye(len(gram))
    found[:-1, :-1], found[:-1, -1] = root, -root @ mean
    return found


def hazard(settings: Settings, link: Link, intervals: int, most: float) -> Procedure:
    """Of people's exits: β and α_k.

    Parameters
    ----------
    settings : p is the number of columns and 2; rows have the constant 1 in the last two, and R is `longest`
    link : of the hazard
    intervals, most : K and c
    """
    at, N, m = settings.longest, settings.units, settings.p - 2
    first: list[Part] = [Gram(settings.p, at), Exits(intervals)]
    released = yield Stage(first, [SHARES["gram"], SHARES["counts"]])
    once = np.concatenate([np.eye(m + 1), np.eye(m + 1)[m:]])
    once[m:, m] = 0.5  # the constant stands there twice: the mean of both
    gram, counts = once.T @ released.values[0] @ once, released.values[1]
    A = rounding(gram, released.deviations[0])
    gram = A @ gram @ A.T
    B, to_time = basis(A, intervals)
    start, at_risk = baseline(link, counts, released.deviations[1], intervals)
    theta = B.T @ np.concatenate([np.zeros(m), [np.mean(start)], start - np.mean(start)])
    for least in STEPS:
        people = Followed(link, B @ theta, A, at, most, intervals)
        found = yield Stage([PersonScore(people)], [SHARES["step"]])
        found = found._replace(values=[B.T @ found.values[0]])
        rows = pseudo_people(people, gram, at_risk, B)
        H = curvature_of(link, theta, rows)
        ridge = float(np.trace(H)) / at**2 * released.deviations[0] * math.sqrt(2.0 * len(theta)) / 4.0
        P = np.asarray(np.linalg.inv(H + (ridge + 1e-9) * np.eye(len(H))), dtype=np.float64)
        theta = theta + length_of(found, P, least) * solved(link, rows, ridge, theta, found.values[0])
    people = Followed(link, B @ theta, A, at, most, intervals)
    rows = pseudo_people(people, gram, at_risk, B)
    w_max = min(most, W_MEANS * float(rows.weight @ link.curvature(rows.x @ theta)) / mean_row_weight(gram))
    parts: list[Part] = [PersonScore(people), PersonCurvature(people, w_max), PersonScatter(people)]
    last = yield Stage(parts, [SHARES["score"], SHARES["curvature"], SHARES["scatter"]])
    (score, curvature, scatter), (s_g, s_H, _) = last
    profile = MatrixNoise.whole(s_H, len(B)).profile
    profile[m + 1 :, m + 1 :] = np.eye(intervals)  # a person is in one interval at a time: other entries are 0
    curvature = np.where(profile > 0, curvature, 0.0)
    rows = rescaled(link, theta, rows, np.diag(curvature)[-intervals:])
    weights = rows.weight * link.curvature(rows.x @ theta)
    of_scores = (rows.x.T * (weights / weights.sum())) @ rows.x
    noise = MatrixNoise(s_H, profile, B)
    at_last = At(B.T @ score, s_g, B.T @ curvature @ B, noise, positive(B.T @ scatter @ B), N)
    made = corrected(theta, at_last, of_scores, link, rows)
    covariance, sampling = (to_time @ each @ to_time.T for each in (made.covariance, made.sampling))
    return made._replace(theta=to_time @ made.theta, covariance=covariance, sampling=sampling)


def baseline(link: Link, counts: Array, noise: float, intervals: int) -> tuple[Array, Array]:
    """α_k without columns, and the share of people at risk in every interval, from noisy shares of exits."""
    K = intervals
    events, censored = counts[:K], counts[K : 2 * K]
    later = np.cumsum((events + censored)[::-1])[::-1] + counts[-1]
    at_risk = np.maximum(later - censored / 2.0, FEWEST_AT_RISK)
    h = np.clip(np.maximum(events, noise) / at_risk, 1e-6, 0.9)
    return np.array([link.score(float(each)) for each in h]), np.minimum(at_risk, 1.0)


def pseudo_people(people: Followed, gram: Array, at_risk: Array, B: Array) -> Pseudo:
    """Rows Bᵀz_k of normal people with Ĝ's moments in all intervals, one interval after the other.

    Weights are chances to be at risk, times v ω f.
    """
    K, link = people.intervals, people.link
    x = pseudo_rows(gram, max(400, PSEUDO_ROWS // K))
    v = np.minimum(1.0, people.longest**2 / (np.sum(x * x, axis=1) + 1.0))
    survival, left = np.ones(len(x)), np.full(len(x), people.most)
    rows, weights = [], []
    for k in range(K):
        rows.append(x @ B[: x.shape[1]] + B[x.shape[1] + k])
        u = x @ people.theta[: x.shape[1]] + people.theta[x.shape[1] + k]
        h, factor, _ = link.at(u)
        weight = np.minimum(1.0, left / np.maximum(factor * h, SMALLEST))
        left = np.maximum(left - weight * factor * h, 0.0)
        weights.append(at_risk[k] * survival / max(float(survival.sum()), SMALLEST) * weight * factor * v)
        survival = survival * (1.0 - h)
    return Pseudo(np.concatenate(rows), np.concatenate(weights))


def curvature_of(link: Link, theta: Array, rows: Pseudo) -> Array:
    """Σ weight h′ z zᵀ."""
    return np.asarray((rows.x.T * (rows.weight * link.curvature(rows.x @ theta))) @ rows.x)


def rescaled(link: Link, theta: Array, rows: Pseudo, released: Array) -> Pseudo:
    """Weights by which Σ a_k of every interval is what was released of it."""
    expected = (rows.weight * link.curvature(rows.x @ theta)).reshape(len(released), -1).sum(axis=1)
    factors = np.clip(released / np.maximum(expected, SMALLEST), 0.25, 4.0)
    return rows._replace(weight=rows.weight * np.repeat(factors, len(rows.weight) // len(released)))
