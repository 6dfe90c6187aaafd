r"""Least squares from noisy statistics whose noise is known: the best ridge, what it will err by, and a whole path.

Given is Ŝ = S + E, where S = (1/N) Σ c cᵀ with c = (x, B, κy), and E is symmetric Gaussian noise of deviation s on the
diagonal and s/√2 off it. Written out, Ŝ holds Ĝ (of the rows), κb̂ (of rows and targets) and κ²ŷ². For a model θ let
u = (θ, −1/κ): its mean squared error over the records is uᵀSu. What stands here is a function of Ŝ and public numbers.

*How much ridge.* θ = (Ĝ + λ)⁻¹ b̂ is chosen by an estimate of its own error. uᵀŜu alone flatters: θ was fitted to the
noise too. By Stein's identity E uᵀEu = s² E Σ_k ⟨D_k, ∂(uuᵀ)/∂D_k⟩ over an orthonormal basis D_k of the symmetric
matrices; with dθ = −A⁻¹ P dS u, A = Ĝ + λ, and Σ_k D_k Q D_k = (Q + tr(Q) I)/2 that is −s²(θᵀA⁻¹θ + tr(A⁻¹)‖u‖²). Hence

    r̂(λ) = uᵀŜu + s² (θᵀA⁻¹θ + tr(A⁻¹) ‖u‖²)

has the mean of the true error, for every λ at which A stays positive definite. (The intercept's own entry B² is public
and has no noise; its term is left out.) Its deviation is about s‖u‖².

*Nothing learned.* Beside the ridges stand the mean of the targets alone, shrunk or not, and the constant 0, the middle
of the targets' range. A model is preferred to that constant only if r̂ says so by a deviation of the difference,
s‖uuᵀ − u₀u₀ᵀ‖: so noise that is larger than all there is to learn ends in the constant, not in a wild model.

*How far new targets scatter.* r̂ is the error over the records themselves, to which θ was fitted: Σ λ/(λ + ridge) of
their N degrees of freedom were used up, and what is left reveals the scatter. Where less than one is left (more
columns than records, and no noise that requests a ridge) they show nothing; the spread of the targets stands for it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from sottovoce._types import Array
from sottovoce.problem.moments import unpack
from sottovoce.problem.regularizers import Regularizer, Separable

RIDGES = 160
"""Ridges that are tried."""
EDGE = 0.05
"""The smallest eigenvalue that a ridge leaves, over the edge s√(2m) of the noise's own spectrum."""
SOLID = 1e-11
"""The same over the largest eigenvalue, where there is no noise."""
CAUTION = 1.0
"""By how many deviations of the difference a model must seem better than the constant."""
SHRUNK = np.linspace(0.1, 1.0, 10)
"""Shares of the mean of the targets that are tried, of the most that its noise allows."""
USUAL_MEAN = 0.2
"""How far the mean of targets is from the middle of their range, in units of half of it, before anything is known."""
STEPS = 20_000
STILL = 1e-12


class Fit(NamedTuple):
    """A model, and what is known of it."""

    x: Array
    """θ, the intercept's coordinate last."""
    ridge: float
    """λ; infinite where nothing was learned but a constant."""
    risk: float
    """r̂, an estimate of its mean squared error."""


@dataclass(frozen=True, eq=False)
class NoisyLeastSquares:
    """min ½θᵀGθ − bᵀθ + h(θ), of which G, b and the targets' mean square are known up to noise.

    Attributes
    ----------
    gram : Ĝ, of the rows with their intercept
    cross : b̂
    square : ŷ², the mean square of the targets
    noise : s
    weight : κ
    intercept : B; 0 for none
    """

    gram: Array
    cross: Array
    square: float
    noise: float
    weight: float
    intercept: float = 0.0

    @classmethod
    def of(cls, packed: Array, m: int, noise: float, weight: float, intercept: float) -> "NoisyLeastSquares":
        """From packed statistics of a model of m coordinates, as they were released."""
        S = unpack(packed, m)
        gram = S[:m, :m]
        if intercept:
            gram[-1, -1] = intercept**2  # public
        return cls(gram, S[:m, m] / weight, float(S[m, m]) / weight**2, noise, weight, intercept)

    @property
    def m(self) -> int:
        """Coordinates of a model."""
        return len(self.cross)

    @cached_property
    def _spectrum(self) -> tuple[Array, Array]:
        return np.linalg.eigh(self.gram)

    @property
    def _constant(self) -> Array:
        """The targets' mean as a model; 0 without an intercept, about which R² is counted then."""
        x = np.zeros(self.m)
        if self.intercept:
            x[-1] = self.cross[-1] / self.intercept**2
        return x

    @property
    def spread(self) -> float:
        """The targets' variance as far as it is known; at least what noise would hide."""
        return max(self.error(self._constant), self.noise / self.weight**2, 0.0)

    def r2(self, fit: Fit) -> float | None:
        """1 − r̂ over the targets' variance; None where that is not known by more than the deviation of its noise.

        Examples
        --------
        >>> exact = NoisyLeastSquares(np.eye(2), np.array([1.0, 0.5]), 2.0, 0.0, 1.0)
        >>> exact.r2(exact.solve())
        0.625
        >>> flat = NoisyLeastSquares(np.eye(1), np.array([0.3]), 0.09, 0.01, 1.0, 1.0)  # all targets are 0.3
        >>> flat.r2(flat.solve()) is None
        True
        """
        constant = self._constant
        spread = self.error(constant)
        # a variance of 0 comes out as a rounding error of the square that it is the rest of
        known = spread > self.deviation(constant) + 1e-12 * abs(self.square)
        return 1.0 - max(fit.risk, 0.0) / spread if known else None

    def error(self, x: Array) -> float:
        """uᵀŜu: what a model that did not see this noise errs by."""
        return float(x @ self.gram @ x - 2.0 * self.cross @ x + self.square)

    def deviation(self, x: Array) -> float:
        """s‖u‖², that of the noise in a model's error."""
        return self.noise * (float(x @ x) + self.weight**-2)

    def solve(self, h: Regularizer | None = None) -> Fit:
        """The model with the least estimated error, under a regularizer of the user's own.

        Examples
        --------
        >>> exact = NoisyLeastSquares(np.eye(2), np.array([1.0, 0.5]), 2.0, 0.0, 1.0)
        >>> exact.solve().x.round(9), round(exact.solve().risk, 9)
        (array([1. , 0.5]), 0.75)
        """
        fit = self._ridge(0.0 if h is None else h.modulus)
        if h is None or (isinstance(h, Separable) and h.phi == 0 and not h.bounded):
            return fit
        if math.isinf(fit.ridge):
            x = h.step(-fit.x, 1.0, 1.0)
        else:
            x = minimize(self.gram + (fit.ridge - h.modulus) * np.eye(self.m), self.cross, h, fit.x)
        return fit._replace(x=x, risk=self.error(x) + fit.risk - self.error(fit.x))

    def longest(self, statistics: float, h: Regularizer | None = None) -> float:
        """How long the model of any statistics with this noise can be that are no longer than this.

        A ridge leaves no eigenvalue below `EDGE` of the noise's edge, the mean of targets is brought into their range,
        and h with its least value at 0 makes no model longer.

        Examples
        --------
        >>> known = NoisyLeastSquares(np.eye(2), np.array([30.0, -40.0]), 2.0, 0.1, 1.0)
        >>> float(np.linalg.norm(known.solve().x)) <= known.longest(50.0)
        True
        """
        if self.noise == 0 or (h is not None and np.any(h.step(np.zeros(self.m), 1.0, 1.0))):
            return math.inf  # neither noise nor h keeps a model short
        own = statistics / self.weight / (EDGE * self.noise * math.sqrt(2.0 * self.m))
        return max(own, 1.0 / self.intercept if self.intercept else 0.0)

    def path(self, hs: Sequence[Regularizer]) -> list[Fit]:
        """A model for each regularizer: all of them of one release."""
        return [self.solve(h) for h in hs]

    def _ridge(self, least: float) -> Fit:
        """The best of ridges from `least` on, of the targets' mean and of the constant."""
        values, vectors = self._spectrum
        b, s = vectors.T @ self.cross, self.noise
        solid = max(EDGE * s * math.sqrt(2.0 * self.m), SOLID * max(float(values[-1]), 1e-300))
        low = max(least, solid - float(values[0]))
        if s == 0:
            ridge = least if least + float(values[0]) >= solid else low
            x = vectors @ (b / (values + ridge))
            return Fit(x, ridge, max(self.error(x), 0.0))
        fits = [Fit(np.zeros(self.m), math.inf, self.square)]
        fits += [self._mean()] if self.intercept else []
        fits += [self._best_ridge(low)] if self.m > bool(self.intercept) else []  # a constant has no columns to weigh
        return min(fits, key=lambda fit: fit.risk + CAUTION * self._doubt(fit.x))

    def _best_ridge(self, low: float) -> Fit:
        """The one with the least estimated error, of those from `low` on."""
        values, vectors = self._spectrum
        b, s, k = vectors.T @ self.cross, self.noise, self.weight**-2
        ridges = low + np.concatenate([[0.0], np.geomspace(1e-3 * s, 1e2, RIDGES)])
        a = values + ridges[:, None]
        theta = b / a
        lengths = np.sum(theta**2, axis=1)
        last = vectors[-1] if self.intercept else np.zeros(self.m)
        public = 2.0 * np.sum(theta * last, axis=1) ** 2 * np.sum(last**2 / a, axis=1)
        fitted = np.sum(theta**2 / a, axis=1) + np.sum(1.0 / a, axis=1) * (lengths + k) - public
        risks = np.sum(values * theta**2, axis=1) - 2.0 * theta @ b + self.square + s**2 * fitted
        best = int(np.argmin(risks))
        return Fit(vectors @ theta[best], float(ridges[best]), float(risks[best]))

    def _mean(self) -> Fit:
        """The best share of the targets' mean, and no more than what is usual lets one believe beside this noise."""
        B, found = self.intercept, []
        mean = min(max(float(self.cross[-1]) / B, -1.0), 1.0)  # as targets are
        noise = self.noise**2 / (2.0 * self.weight**2 * B**2)  # its variance
        for share in (SHRUNK * USUAL_MEAN**2 / (USUAL_MEAN**2 + noise)).tolist():
            x = np.zeros(self.m)
            x[-1] = share * mean / B
            found.append(Fit(x, math.inf, self.error(x) + 2.0 * noise * share))
        return min(found, key=lambda fit: fit.risk)

    def _doubt(self, x: Array) -> float:
        """s‖uuᵀ − u₀u₀ᵀ‖, u₀ being the constant's."""
        length = float(x @ x)
        return self.noise * math.sqrt(length**2 + 2.0 * self.weight**-2 * length)

    def scatter(self, fit: Fit, records: int) -> tuple[float, float]:
        """The variance of targets about the best model, and the degrees of freedom from which it is known.

        Those are infinite where the spread of the targets stands for it.
        """
        left = records - float(np.sum(np.maximum(self._spectrum[0], 0.0) * self._shares(fit)))
        if left < 1.0:
            return self.spread, math.inf
        own = fit.risk - float(np.sum(self.gram * self.moved(fit)))  # less what noise did to the model
        return max(own, 0.0) * records / left, left

    def moved(self, fit: Fit) -> Array:
        """The covariance of θ about the model that these records would give without noise.

        θ moves by A⁻¹(e − Eθ), of deviation √(s²/2 (κ⁻² + ‖θ‖²)) in each coordinate before A⁻¹.
        """
        inverse = self._inverse(fit)
        return self.noise**2 / 2.0 * (self.weight**-2 + float(fit.x @ fit.x)) * (inverse @ inverse)

    def chance(self, fit: Fit, records: int) -> Array:
        """The covariance of that model about the truth: A⁻¹ times the mean of N residuals times rows."""
        inverse, (values, vectors) = self._inverse(fit), self._spectrum
        rows = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return self.scatter(fit, records)[0] / records * (inverse @ rows @ inverse)

    def _shares(self, fit: Fit) -> Array:
        """The eigenvalues of A⁻¹ in the directions of Ĝ; of a constant, which has one direction, summed up to that."""
        values, vectors = self._spectrum
        if not math.isinf(fit.ridge):
            return 1.0 / (values + fit.ridge)
        return vectors[-1] ** 2 / self.intercept**2 if self.intercept else np.zeros(self.m)

    def _inverse(self, fit: Fit) -> Array:
        """A⁻¹; of a constant, in the one direction that it has."""
        if not math.isinf(fit.ridge):
            vectors = self._spectrum[1]
            return (vectors * self._shares(fit)) @ vectors.T
        inverse = np.zeros((self.m, self.m))
        if self.intercept:
            inverse[-1, -1] = self.intercept**-2
        return inverse


def minimize(H: Array, b: Array, h: Regularizer, start: Array) -> Array:
    """argmin ½xᵀHx − bᵀx + h(x) for a positive definite H: proximal steps with restarted momentum.

    Examples
    --------
    >>> from sottovoce.problem.regularizers import l1
    >>> minimize(np.diag([1.0, 2.0]), np.array([1.0, 0.05]), l1(0.1), np.zeros(2)).round(9)
    array([0.9, 0. ])
    """
    L = float(np.linalg.eigvalsh(H)[-1])
    x = y = h.step(-L * start, 1.0, L)
    t = 1.0
    for _ in range(STEPS):
        new = h.step(H @ y - b - L * y, 1.0, L)
        if float((y - new) @ (new - x)) > 0:  # uphill: begin again
            t = 1.0
        after = (1.0 + math.sqrt(1.0 + 4.0 * t * t)) / 2.0
        moved = new - x
        y, t = new + (t - 1.0) / after * moved, after
        x = new
        if float(np.max(np.abs(moved), initial=0.0)) <= STILL * (1.0 + float(np.max(np.abs(x), initial=0.0))):
            break
    return x
