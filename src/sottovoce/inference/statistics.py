r"""Sums over records from which intervals are computed, each with its sensitivity.

A row x includes the constant 1 in its last column. Rows longer than the public length R get the weight
v = min(1, R²/‖x‖²), which depends on x alone, so a score Σ v ψ x has mean 0 at the true model, as without weights.
With u = √v x, no longer than R:

| part | a row's contribution | largest distance between two rows' |
|---|---|---|
| `Gram` | u uᵀ | √2 R² |
| `Gram` with targets | (u, √v κy)(u, √v κy)ᵀ, &#124;y&#124; ≤ 1 | √2 (R² + κ²) |
| `Score` | v ψ x | 2 R ψ_max |
| `Curvature` | min(w, w_max) u uᵀ | √2 R² w_max |
| `Scatter` | (v ψ x)(v ψ x)ᵀ | √2 R² ψ_max² |
| `Inside` | v where &#124;y − xᵀθ&#124; ≤ c, else 0 | 1 |
| `Square` | v ψ²/ψ_max² | 1 |

*Proof.* ‖v x‖ = min(‖x‖, R²/‖x‖) ≤ R bounds a score by R ψ_max, and two of them differ by twice that at most. The
matrices are positive semidefinite of rank 1, with trace T = R², R² + κ², R² w_max or R² ψ_max² at most, and
‖A − A'‖² = ‖A‖² + ‖A'‖² − 2⟨A, A'⟩ ≤ 2T², because ‖A‖ ≤ tr A and ⟨A, A'⟩ ≥ 0. The last two lie in [0, 1]. ∎

*People.* A person contributes the mean over their rows. Means of scores stay in the same ball, means of such matrices
are positive semidefinite with no larger trace, and means of numbers in [0, 1] stay there: the same bounds hold.
`Scatter` of a person is the square of the mean score, so that it holds the correlation of the person's rows.

A symmetric matrix is sent as its upper triangle with the entries off the diagonal times √2: lengths are then those of
the whole matrix. Noise of deviation s becomes s on the diagonal and s/√2 off it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.errors import SpecError
from sottovoce.inference.models import Model
from sottovoce.secure.functions import halved_sum

MAX_NUMBER = 1e100
"""Larger numbers of a row count as this, so that no length overflows."""


class Rows(NamedTuple):
    """Rows with what every part needs of them; each row's numbers depend on that row alone, to the last bit.

    Attributes
    ----------
    x : (rows, p) with the constant in the last column
    y : targets
    root : √v
    u : √v x
    counts : rows of each person, whose rows are adjacent; None where every row is a unit
    offset : what is added to xᵀθ, such as the logarithm of an exposure
    """

    x: Array
    y: Array
    root: Array
    u: Array
    counts: IntArray | None = None
    offset: Array | None = None


def weighted(x: Array, y: Array, longest: float, counts: IntArray | None = None) -> Rows:
    """Rows with their weights for the public length R.

    Examples
    --------
    >>> weighted(np.array([[3.0, 1.0], [0.5, 1.0]]), np.zeros(2), math.sqrt(2.5)).root
    array([0.5, 1. ])
    """
    x = np.clip(np.asarray(x, dtype=np.float64), -MAX_NUMBER, MAX_NUMBER)
    root = np.minimum(1.0, longest / np.sqrt(np.maximum(halved_sum(x * x), np.finfo(float).tiny)))
    return Rows(x, np.asarray(y, dtype=np.float64), root, root[:, None] * x, counts)


def of_units(values: Array, counts: IntArray | None) -> Array:
    """Each person's mean over their rows; the rows themselves where every row is a unit."""
    if counts is None:
        return values
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    shape = (-1,) + (1,) * (values.ndim - 1)
    return np.asarray(np.add.reduceat(values, starts, axis=0) / counts.reshape(shape))


class Part(Protocol):
    """One sum of a release."""

    @property
    def width(self) -> int:
        """How many numbers it has."""

    @property
    def sensitivity(self) -> float:
        """How far apart the contributions of two units can be."""

    def units(self, rows: Rows) -> Array:
        """(units, width) what each unit contributes, bit for bit a function of that unit."""

    def total(self, rows: Rows) -> Array:
        """(width,) the sum of `units`, computed faster, to rounding."""

    def read(self, numbers: Array) -> Array:
        """The released numbers as a vector, a matrix or a number."""


def packed(matrices: Array) -> Array:
    """Upper triangles of symmetric matrices (…, p, p), with the entries off the diagonal times √2."""
    i, j = np.triu_indices(matrices.shape[-1])
    return np.asarray(matrices[..., i, j] * np.where(i == j, 1.0, math.sqrt(2.0)))


def unpacked(numbers: Array) -> Array:
    """The symmetric matrix of packed numbers.

    Examples
    --------
    >>> unpacked(packed(np.array([[2.0, 1.0], [1.0, 3.0]]))).round(12)
    array([[2., 1.],
           [1., 3.]])
    """
    p = round((math.sqrt(8.0 * len(numbers) + 1.0) - 1.0) / 2.0)
    i, j = np.triu_indices(p)
    found = np.zeros((p, p))
    found[i, j] = np.where(i == j, numbers, numbers / math.sqrt(2.0))
    return found + np.triu(found, 1).T


def squares(u: Array) -> Array:
    """Packed u uᵀ of every row."""
    i, j = np.triu_indices(u.shape[1])
    return np.asarray(u[:, i] * u[:, j] * np.where(i == j, 1.0, math.sqrt(2.0)))


@dataclass(frozen=True, eq=False)
class Gram:
    """u uᵀ; with κ > 0 of rows with their targets.

    Attributes
    ----------
    p, longest : columns of a row with the constant, and R
    kappa : κ; 0 for rows alone
    """

    p: int
    longest: float
    kappa: float = 0.0

    @property
    def width(self) -> int:
        """Of the upper triangle."""
        size = self.p + (self.kappa > 0)
        return size * (size + 1) // 2

    @property
    def sensitivity(self) -> float:
        """√2 (R² + κ²)."""
        return math.sqrt(2.0) * (self.longest**2 + self.kappa**2)

    def _vectors(self, rows: Rows) -> Array:
        if not self.kappa:
            return rows.u
        return np.concatenate([rows.u, (rows.root * self.kappa * np.clip(rows.y, -1.0, 1.0))[:, None]], axis=1)

    def units(self, rows: Rows) -> Array:
        """Packed."""
        return of_units(squares(self._vectors(rows)), rows.counts)

    def total(self, rows: Rows) -> Array:
        """One product of matrices."""
        u = self._vectors(rows)
        return packed(u.T @ _shared(u, rows.counts))

    def read(self, numbers: Array) -> Array:
        """The matrix."""
        return unpacked(numbers)


def _shared(values: Array, counts: IntArray | None) -> Array:
    """Rows divided by how many their person has."""
    if counts is None:
        return values
    return np.asarray(values / np.repeat(counts, counts).reshape((-1,) + (1,) * (values.ndim - 1)))


@dataclass(frozen=True, eq=False)
class _At:
    """A part that is computed at a public model θ."""

    model: Model
    theta: Array
    longest: float

    @property
    def p(self) -> int:
        """Columns of a row, with the constant."""
        return len(self.theta)

    def slopes(self, rows: Rows, fast: bool = False) -> Array:
        """ψ of every row."""
        return self.model.slope(self.scores(rows, fast), rows.y)

    def scores(self, rows: Rows, fast: bool = False) -> Array:
        """xᵀθ, summed in an order that does not depend on the other rows; or fast, to rounding."""
        found = rows.x @ self.theta if fast else halved_sum(rows.x * self.theta)
        return found if rows.offset is None else found + rows.offset


class Score(_At):
    """v ψ x."""

    @property
    def width(self) -> int:
        """A number for each column."""
        return self.p

    @property
    def sensitivity(self) -> float:
        """2 R ψ_max."""
        return 2.0 * self.longest * self.model.steepest

    def units(self, rows: Rows) -> Array:
        """As they are."""
        return self._scores(rows, False)

    def _scores(self, rows: Rows, fast: bool) -> Array:
        return of_units((rows.root * self.slopes(rows, fast))[:, None] * rows.u, rows.counts)

    def total(self, rows: Rows) -> Array:
        """One product."""
        return np.asarray(_shared(rows.root * self.slopes(rows, True), rows.counts) @ rows.u)

    def read(self, numbers: Array) -> Array:
        """The vector."""
        return numbers


@dataclass(frozen=True, eq=False)
class Curvature(_At):
    """min(w, w_max) u uᵀ."""

    w_max: float

    @property
    def width(self) -> int:
        """Of the upper triangle."""
        return self.p * (self.p + 1) // 2

    @property
    def sensitivity(self) -> float:
        """√2 R² w_max."""
        return math.sqrt(2.0) * self.longest**2 * self.w_max

    def _weights(self, rows: Rows, fast: bool = False) -> Array:
        return np.minimum(self.model.curvature(self.scores(rows, fast)), self.w_max)

    def units(self, rows: Rows) -> Array:
        """Packed."""
        return of_units(self._weights(rows)[:, None] * squares(rows.u), rows.counts)

    def total(self, rows: Rows) -> Array:
        """One product of matrices."""
        return packed(rows.u.T @ (_shared(self._weights(rows, True), rows.counts)[:, None] * rows.u))

    def read(self, numbers: Array) -> Array:
        """The matrix."""
        return unpacked(numbers)


class Scatter(Score):
    """(v ψ x)(v ψ x)ᵀ, of a person's mean score."""

    @property
    def width(self) -> int:
        """Of the upper triangle."""
        return self.p * (self.p + 1) // 2

    @property
    def sensitivity(self) -> float:
        """√2 R² ψ_max²."""
        return math.sqrt(2.0) * (self.longest * self.model.steepest) ** 2

    def units(self, rows: Rows) -> Array:
        """Packed."""
        return squares(self._scores(rows, False))

    def total(self, rows: Rows) -> Array:
        """One product of matrices."""
        scores = self._scores(rows, True)
        return packed(scores.T @ scores)

    def read(self, numbers: Array) -> Array:
        """The matrix."""
        return unpacked(numbers)


class _Number(_At):
    """A part of one number in [0, 1]."""

    width = 1
    sensitivity = 1.0

    def values(self, rows: Rows) -> Array:
        """Of every row."""
        raise NotImplementedError

    def units(self, rows: Rows) -> Array:
        """One column."""
        return of_units(self.values(rows), rows.counts)[:, None]

    def total(self, rows: Rows) -> Array:
        """Added up."""
        return np.array([np.sum(of_units(self.values(rows), rows.counts))])

    def read(self, numbers: Array) -> Array:
        """The number."""
        return numbers[0]


class Inside(_Number):
    """v where the slope is not clipped."""

    def values(self, rows: Rows) -> Array:
        """Of every row."""
        return np.asarray(rows.root**2 * (np.abs(self.slopes(rows)) < self.model.steepest))


class Square(_Number):
    """v ψ²/ψ_max²."""

    def values(self, rows: Rows) -> Array:
        """Of every row."""
        return np.asarray(np.minimum((rows.root * self.slopes(rows) / self.model.steepest) ** 2, 1.0))


@dataclass(frozen=True, eq=False)
class Stage:
    """Parts that are released together, with their shares of the budget for intervals, which add up to 1 over all."""

    parts: Sequence[Part]
    shares: Sequence[float]

    def __post_init__(self) -> None:
        """A share for each part."""
        if len(self.parts) != len(self.shares) or min(self.shares) <= 0:
            raise SpecError("every part of a release needs a share of the budget over 0")

    @property
    def width(self) -> int:
        """Of all parts together."""
        return sum(part.width for part in self.parts)

    @property
    def share(self) -> float:
        """Of all parts together."""
        return math.fsum(self.shares)

    def factors(self, total: float) -> list[float]:
        """What parts are multiplied by, so that two units are √(total · share) apart at most; see `diameter`."""
        return [
            math.sqrt(total * share) / part.sensitivity for part, share in zip(self.parts, self.shares, strict=True)
        ]

    def diameter(self, total: float) -> float:
        """√(total · share): each part's contributions are √(total · its share) apart at most."""
        return math.sqrt(total * self.share)

    def units(self, rows: Rows, total: float) -> Array:
        """(units, width) of all parts side by side."""
        each = zip(self.parts, self.factors(total), strict=True)
        return np.concatenate([factor * part.units(rows) for part, factor in each], axis=1)

    def total(self, rows: Rows, total: float) -> Array:
        """(width,) their sum."""
        each = zip(self.parts, self.factors(total), strict=True)
        return np.concatenate([factor * part.total(rows) for part, factor in each])

    def read(self, mean: Array, deviation: float, total: float) -> "Noisy":
        """The parts of a noisy mean in their own units, with the deviation of the noise in each."""
        places = np.cumsum([part.width for part in self.parts])[:-1]
        each = zip(self.parts, np.split(mean, places), self.factors(total), strict=True)
        values = [part.read(numbers / factor) for part, numbers, factor in each]
        return Noisy(values, [deviation / factor for factor in self.factors(total)])


class Noisy(NamedTuple):
    """What was released of a stage."""

    values: list[Array]
    deviations: list[float]
