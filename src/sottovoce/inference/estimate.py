"""From noisy sums to estimates with a covariance that counts sampling and privacy noise.

A procedure is a generator: it yields a `Stage` and is sent what was released of it, so that each stage may depend on
those before. Simulations, runs and real nodes drive the same generator. It reads nothing but released numbers.

The estimate is one corrected step from a released point θ_A. With the noisy score g̃ and curvature Ĥ there,

    d = −Ĥ⁻¹ g̃,   θ₁ = θ_A + d,   C = Ĥ⁻¹ (s_g² I + M̂/N + s_H²/2 (tr D I + D)) Ĥ⁻¹

where s are deviations of privacy noise, M̂/N is the variance of the mean score and D = [ddᵀ − C₀]₊ with
C₀ = Ĥ⁻¹ (s_g² I + M̂/N) Ĥ⁻¹ is how far the step truly goes: a symmetric noise matrix e has
E (e d)(e d)ᵀ = s²/2 (‖d‖² I + ddᵀ), and another one where entries are known (`MatrixNoise`). Regularization, early
stopping and noise before θ_A enter through d alone.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from sottovoce._types import Array
from sottovoce.inference.models import Clipped, Logistic, Model, Poisson
from sottovoce.inference.statistics import Curvature, Gram, Inside, Noisy, Part, Scatter, Score, Square, Stage

LOGISTIC_SHARES = {"gram": 0.055, "step": 0.067, "score": 0.5, "curvature": 0.267, "scatter": 0.044}
"""Of the budget for intervals; two steps are taken, so that they add up to 1."""
LINEAR_SHARES = {"gram": 0.4, "step": 0.14, "score": 0.42, "numbers": 0.04}
"""The same of a regression, which takes one step. `numbers` is of both scalars, or of the scatter of people."""
SHARE = 0.9
"""Of the whole budget, for intervals: a rough fit is enough to start from."""
STEPS = (1.0, 0.6)
"""Lengths of the steps before the score that counts, at least: where a score is over its noise they are longer."""
CLIP_DEVIATIONS = 2.5
"""Residuals are clipped at this many deviations."""
PSEUDO_ROWS = 4000
"""Normal rows by which the curvature's change along the step is computed."""
NEWTON_STEPS, LONGEST_MOVE = 20, 2.0
"""Of the solution for normal rows, and how far scores move in each at most, as a root mean square."""
CLOSE = 1e-6
"""The solution for normal rows is found where scores move less than this: Newton's next step is within its square."""
WEAKEST = 1.5
"""λ_min(Ĥ) in units of its noise, at least: below it some direction is hardly known, and intervals cover too rarely."""
LONGEST_STEP = 1.0
"""√(dᵀĜd) at most, in units of the model's scale: a longer step leaves the region in which Ĥ is right."""

Procedure = Generator[Stage, Noisy, "Estimate"]


@dataclass(frozen=True, eq=False)
class Settings:
    """What is public of the rows and of the budget.

    Attributes
    ----------
    p : columns of a row, with the constant in the last one
    longest : R, above which rows are downweighted
    units : N, the number of records or people
    people : whether people are the units
    """

    p: int
    longest: float
    units: int
    people: bool = False


class Estimate(NamedTuple):
    """What follows from the releases.

    Attributes
    ----------
    theta, covariance : θ₁ and C
    sampling : the part of C that there would be without noise, Ĥ⁻¹ M̂ Ĥ⁻¹/N
    strength : λ_min(Ĥ) in units of its noise
    step : √(dᵀĜd) in units of the model's scale
    gram : Ĝ
    """

    theta: Array
    covariance: Array
    sampling: Array
    strength: float
    step: float
    gram: Array

    @property
    def refusal(self) -> str:
        """Why there are no intervals; empty where there are."""
        if self.strength < WEAKEST:
            found = f"strength {self.strength:.2g}; {WEAKEST:g} is needed"
            return f"the released curvature is too weak beside its noise ({found})"
        if self.step > LONGEST_STEP:
            found = f"step {self.step:.2g}; {LONGEST_STEP:g} is the most"
            return f"the corrected estimate is far from the point of the release ({found})"
        return ""


def logistic(settings: Settings, start: Array) -> Procedure:
    """Of two classes, from the public model of a fit."""
    model, theta, shares = Logistic(), np.asarray(start, dtype=np.float64), LOGISTIC_SHARES
    at = settings.longest
    released = yield Stage([Gram(settings.p, at)], [shares["gram"]])
    gram, noise = released.values[0], released.deviations[0]
    for least in STEPS:
        found = yield Stage([Score(model, theta, at)], [shares["step"]])
        theta = moved(model, gram, noise, theta, found, least)
    w_max = min(0.25, 2.0 * mean_weight(model, gram, theta))
    parts: list[Part] = [Score(model, theta, at), Curvature(model, theta, at, w_max), Scatter(model, theta, at)]
    last = yield Stage(parts, [shares["score"], shares["curvature"], shares["scatter"]])
    (score, curvature, scatter), (s_g, s_H, _) = last
    at_last = At(score, s_g, curvature, MatrixNoise.whole(s_H, settings.p), positive(scatter), settings.units)
    return corrected(theta, at_last, gram, model, rescaled(model, gram, theta, curvature))


def poisson(settings: Settings, cap: float, start: Array) -> Procedure:
    """Of counts with a public cap, from a public model; rows may have offsets, about 0 on average.

    The scatter is that of Poisson counts times a released factor, which allows for over- and underdispersion.
    """
    model, theta, shares = Poisson(cap), np.asarray(start, dtype=np.float64), LOGISTIC_SHARES
    at = settings.longest
    released = yield Stage([Gram(settings.p, at)], [shares["gram"]])
    gram, noise = released.values[0], released.deviations[0]
    for least in STEPS:
        found = yield Stage([Score(model, theta, at)], [shares["step"]])
        theta = moved(model, gram, noise, theta, found, least)
    w_max = min(cap, max(3.0 * mean_weight(model, gram, theta), 0.01))
    parts: list[Part] = [Score(model, theta, at), Curvature(model, theta, at, w_max), Square(model, theta, at)]
    last = yield Stage(parts, [shares["score"], shares["curvature"], shares["scatter"]])
    (score, curvature, square), (s_g, s_H, _) = last
    dispersion = max(float(square) * model.steepest**2 / max(float(curvature[-1, -1]), 1e-6), 0.5)
    at_last = At(
        score, s_g, curvature, MatrixNoise.whole(s_H, settings.p), dispersion * positive(curvature), settings.units
    )
    return corrected(theta, at_last, gram, model, rescaled(model, gram, theta, curvature))


def linear(settings: Settings) -> Procedure:
    """Of targets in [−1, 1]."""
    p, at, shares, N = settings.p, settings.longest, LINEAR_SHARES, settings.units
    released = yield Stage([Gram(p, at, kappa=at)], [shares["gram"]])
    whole, noise = released.values[0], released.deviations[0]
    gram, cross, square = whole[:p, :p], whole[:p, p] / at, float(whole[p, p]) / at**2
    theta = inverse(gram, noise, 1.0) @ cross
    least = (noise / at**2) / mean_row_weight(gram)
    clip = CLIP_DEVIATIONS * math.sqrt(_residual_square(gram, cross, square, theta, least))
    model = Clipped(clip)
    found = yield Stage([Score(model, theta, at)], [shares["step"]])
    theta = theta - inverse(gram, noise, 1.0) @ found.values[0]
    parts: list[Part] = [Score(model, theta, at), Inside(model, theta, at)]
    parts.append((Scatter if settings.people else Square)(model, theta, at))
    last = yield Stage(parts, [shares["score"], shares["numbers"] / 2, shares["numbers"] / 2])
    score, inside, spread = last.values
    share = min(max(float(inside) / mean_row_weight(gram), 0.5), 1.0)
    if settings.people:
        scatter = positive(spread)
    else:
        scatter = max(float(spread) / mean_row_weight(gram), 1e-3) * clip**2 * gram
    at_last = At(score, last.deviations[0], share * gram, MatrixNoise.whole(share * noise, p), scatter, N)
    made = corrected(theta, at_last, gram, model, Pseudo(np.zeros((0, p)), np.zeros(0)))  # nothing bends
    made = made._replace(step=made.step / clip)
    least = float(scatter[-1, -1]) / mean_row_weight(gram)
    square = _residual_square(gram, cross, square, made.theta, least)
    return with_intercept(made, gram, cross, noise, at, square, N)


def _residual_square(gram: Array, cross: Array, square: float, theta: Array, least: float) -> float:
    """The mean square of y − xᵀθ from released statistics, at least so much."""
    found = (square - 2.0 * float(cross @ theta) + float(theta @ gram @ theta)) / mean_row_weight(gram)
    return min(max(found, least, 1e-6), 4.0)


def with_intercept(
    made: Estimate, gram: Array, cross: Array, noise: float, kappa: float, square: float, N: int
) -> Estimate:
    """The same with a constant term by which residuals have mean 0, clipped or not.

    With skewed errors clipped residuals have another mean than residuals, and the constant term would be off by the
    difference. a₀ = (b̂₀ − Ĝ₀ₛθₛ)/Ĝ₀₀ is not; its variance is noise² / 2 (κ⁻² + ‖θ‖² + θ₀²)/Ĝ₀₀² + JCJᵀ +
    square/(N Ĝ₀₀), where J = −Ĝ₀ₛ/Ĝ₀₀.
    """
    slopes, C, g = made.theta[:-1], made.covariance[:-1, :-1], mean_row_weight(gram)
    J = -gram[-1, :-1] / g
    constant = cross[-1] / g + J @ slopes
    theta = np.append(slopes, constant)
    own = square / (N * g)
    private = noise**2 / 2.0 * (kappa**-2 + theta @ theta + constant**2) / g**2
    whole, sampling = (np.zeros((len(theta),) * 2) for _ in range(2))
    for into, of, more in ((whole, C, own + private), (sampling, made.sampling[:-1, :-1], own)):
        into[:-1, :-1], into[:-1, -1], into[-1, :-1] = of, of @ J, of @ J
        into[-1, -1] = J @ of @ J + more
    return made._replace(theta=theta, covariance=whole, sampling=sampling)


@dataclass(frozen=True, eq=False)
class MatrixNoise:
    """The noise BᵀeB in Ĥ.

    Attributes
    ----------
    deviation : s_H, of the diagonal of e
    profile : variances of the entries of e in units of s_H²; 0 where entries are known
    basis : B
    """

    deviation: float
    profile: Array
    basis: Array

    @classmethod
    def whole(cls, deviation: float, p: int) -> "MatrixNoise":
        """Of a symmetric matrix that was sent whole: 1 on the diagonal, ½ off it."""
        return cls(deviation, (np.ones((p, p)) + np.eye(p)) / 2.0, np.eye(p))

    @property
    def level(self) -> float:
        """About how large noise makes eigenvalues: s √(2p) where the matrix was sent whole."""
        return 2.0 * self.deviation * math.sqrt(max(float(np.linalg.eigvalsh(self.profile)[-1]) - 0.5, 0.0))

    def of(self, D: Array) -> Array:
        """E (BᵀeB d)(BᵀeB d)ᵀ for D = ddᵀ: s²/2 (‖d‖² I + ddᵀ) where the matrix was sent whole."""
        D = self.basis @ D @ self.basis.T
        found = self.profile * D
        np.fill_diagonal(found, self.profile @ np.diag(D))
        return np.asarray(self.deviation**2 * self.basis.T @ found @ self.basis)


class At(NamedTuple):
    """What was released at θ_A: g̃ and its noise, Ĥ and its noise, M̂, and N."""

    score: Array
    s_g: float
    curvature: Array
    noise: MatrixNoise
    scatter: Array
    units: int


def corrected(theta: Array, at: At, gram: Array, model: Model, rows: "Pseudo") -> Estimate:
    """θ₁ and C from what was released at θ_A; see the module. The curvature bends as it does on `rows`."""
    score, s_g, curvature, noise, scatter, N = at
    p, level = len(theta), noise.level
    values, vectors = np.linalg.eigh(curvature)
    strength = float(values[0]) / level if level > 0 else math.inf
    usable = np.maximum(values, max(level, 1e-12) if strength < WEAKEST else -math.inf)
    inv = (vectors / usable) @ vectors.T
    d = -inv @ score
    error = s_g**2 * np.eye(p) + scatter / N
    C0 = inv @ error @ inv
    d = d - limited(inv @ bending(model, theta, d, C0, rows), d)
    D = positive(np.outer(d, d) - C0)
    C = inv @ (error + noise.of(D)) @ inv
    step = math.sqrt(max(float(d @ gram @ d), 0.0))
    return Estimate(theta + d, C, inv @ scatter @ inv / N, strength, step, gram)


class Pseudo(NamedTuple):
    """Rows that stand for the records: a mean over records is Σ weight (…) over these."""

    x: Array
    weight: Array


def bending(model: Model, theta: Array, d: Array, C0: Array, rows: Pseudo) -> Array:
    """ρ = ½ Σ weight w′(u) ((xᵀd)² − xᵀC₀x) x: what a straight step misses."""
    x, weight = rows
    excess = np.square(x @ d) - np.sum((x @ C0) * x, axis=1)
    return np.asarray(0.5 * (weight * model.bend(x @ theta) * excess) @ x)


def rescaled(model: Model, gram: Array, theta: Array, curvature: Array) -> Pseudo:
    """Normal rows with Ĝ's moments and equal weights, by which the mean of w is what was released of it."""
    x = pseudo_rows(gram)
    mean = max(float(np.mean(model.curvature(x @ theta))), 1e-12)
    return Pseudo(x, np.full(len(x), curvature[-1, -1] / mean / len(x)))


def limited(change: Array, d: Array) -> Array:
    """The change, no longer than half of d."""
    length, most = float(np.linalg.norm(change)), float(np.linalg.norm(d)) / 2.0
    return change if length <= most else np.asarray(change * (most / length))


def mean_row_weight(gram: Array) -> float:
    """The mean of v, which is Ĝ's entry of the constant; rows count at least 0.05 on average."""
    return max(float(gram[-1, -1]), 0.05)


def moments(gram: Array) -> tuple[Array, Array]:
    """Mean and covariance of a row without its constant, from Ĝ."""
    g = mean_row_weight(gram)
    mean = gram[-1, :-1] / g
    return mean, positive(gram[:-1, :-1] / g - np.outer(mean, mean))


def pseudo_rows(gram: Array, count: int = PSEUDO_ROWS) -> Array:
    """Normal rows with Ĝ's moments, the same on every machine up to rounding."""
    mean, covariance = moments(gram)
    values, vectors = np.linalg.eigh(covariance)
    rows = mean + (_normal(len(mean), count) * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return np.concatenate([rows, np.ones((len(rows), 1))], axis=1)


@cache
def _normal(columns: int, count: int) -> Array:
    """Standard normal numbers in pairs of opposite sign."""
    drawn = np.random.default_rng(0).standard_normal((count // 2, columns))
    return np.concatenate([drawn, -drawn])


def length_of(found: Noisy, inv: Array, least: float) -> float:
    """The share of g̃ᵀP g̃ that is not noise, at least `least`: so far goes a step."""
    score, noise = found.values[0], found.deviations[0]
    length = max(float(score @ inv @ score), 1e-300)
    return max(1.0 - noise**2 * float(np.trace(inv)) / length, least)


def moved(model: Model, gram: Array, noise: float, theta: Array, found: Noisy, least: float) -> Array:
    """θ after a step by a noisy score."""
    weight = max(mean_weight(model, gram, theta), 1e-3)
    x = pseudo_rows(gram)
    rows = Pseudo(x, np.full(len(x), mean_row_weight(gram) / len(x)))
    ridge = weight * noise * math.sqrt(2.0 * len(theta)) / 4.0
    change = solved(model, rows, ridge, theta, found.values[0])
    return theta + length_of(found, inverse(gram, noise, weight), least) * change


def solved(model: Model, rows: Pseudo, ridge: float, theta: Array, score: Array) -> Array:
    """The change of θ that takes the score to 0 on these rows, by Newton's method.

    A straight step would fall short where curvature fades on the way, as for a rare class.
    """
    x, weight = rows
    p, zero = len(theta), np.zeros(len(x))
    before, change, whole = x @ theta, np.zeros(p), max(float(weight.sum()), 1e-300)
    first = model.slope(before, zero)

    def gradient(at: Array) -> Array:
        return np.asarray((weight * (model.slope(before + x @ at, zero) - first)) @ x + score + ridge * at)

    here = gradient(change)
    for _ in range(NEWTON_STEPS):
        curvature = (x.T * (weight * model.curvature(before + x @ change))) @ x + ridge * np.eye(p)
        move = np.linalg.solve(curvature + 1e-9 * np.eye(p), here)
        far = math.sqrt(float(weight @ np.square(x @ move)) / whole)
        length = min(1.0, LONGEST_MOVE / max(far, 1e-300))
        while -(there := gradient(change - length * move)) @ move > here @ move and length > 1e-3:
            length /= 2.0  # too far: beyond the solution the slope is steeper than here
        change, here = change - length * move, there
        if far < CLOSE:
            break
    return change


def mean_weight(model: Model, gram: Array, theta: Array) -> float:
    """w₀: the mean of w where u is normal with Ĝ's moments."""
    mean, covariance = moments(gram)
    slopes = theta[:-1]
    deviation = math.sqrt(max(float(slopes @ covariance @ slopes), 0.0))
    places, weights = _hermite()
    u = float(mean @ slopes + theta[-1]) + deviation * places
    return float(weights @ model.curvature(u) / weights.sum())


@cache
def _hermite() -> tuple[Array, Array]:
    return np.polynomial.hermite_e.hermegauss(32)


def inverse(gram: Array, noise: float, weight: float) -> Array:
    """(w₀ max(Ĝ, e/4) + w₀ e/4)⁻¹ on eigenvalues, where e = s √(2p) is how large noise makes them."""
    values, vectors = np.linalg.eigh(gram)
    e = noise * math.sqrt(2.0 * len(gram))
    return np.asarray((vectors / (weight * (np.maximum(values, e / 4.0) + e / 4.0))) @ vectors.T)


def positive(matrix: Array) -> Array:
    """The nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)
