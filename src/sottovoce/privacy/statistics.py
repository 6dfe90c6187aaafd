r"""Sufficient statistics of a least-squares problem, released once, and their sensitivity.

A record is the vector c = (x, B, κy): its row, the intercept's constant, its target κ-fold. With ‖x‖ ≤ R and |y| ≤ 1 it
is no longer than ρ = √(R² + B² + κ²). What a node releases is the mean over its records of c cᵀ with Gaussian noise: in
one symmetric matrix all of XᵀX, Xᵀy and yᵀy, under one sensitivity, κ deciding how the parts share it. Of the matrix
the upper triangle is sent, entries off the diagonal times √2, so that lengths are those of the whole matrix.

*Claim.* Replacing one record moves the sum by at most √2 ρ², and some replacement moves it so far.
*Proof.* ‖a aᵀ − b bᵀ‖² = ‖a‖⁴ + ‖b‖⁴ − 2⟨a, b⟩² ≤ 2ρ⁴, with equality for a and b of length ρ at right angles (which
there are: opposite targets, and rows of length R with ⟨x, x'⟩ = κ² − B², as long as |κ² − B²| ≤ R²). ∎

*People.* A person counts with the mean over their rows of c cᵀ, a positive semidefinite matrix A of trace at most ρ².
‖A‖ ≤ tr A, and ⟨A, A'⟩ ≥ 0 for two such matrices, so that ‖A − A'‖² ≤ ‖A‖² + ‖A'‖² ≤ 2ρ⁴: the same bound, without any
clipping.

*The mean.* Without columns c = (B, κy), and at κ = B one record moves the sum by 2√2 B², from y = −1 to y = 1: then the
mean of the targets, off the diagonal, has the noise that it would have alone, and their mean square comes for nothing.

*In whole numbers.* √2 is on no grid. Entries off the diagonal are sent times 181/128, a hair less: the length that is
measured so is no larger than the matrix's, and what is proved of that holds of this.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from sottovoce._types import Array
from sottovoce.errors import SpecError
from sottovoce.privacy.events import ProductsEvent
from sottovoce.privacy.sampling import Full, Turns


@dataclass(frozen=True)
class Products(Full):
    """All records, each as the products of its numbers.

    Attributes
    ----------
    weight : κ
    row_norm, intercept : R and B
    columns : whether rows are in it at all; without them R is 0

    Examples
    --------
    >>> Products(weight=0.5, row_norm=1.0, intercept=0.5).bound
    1.5
    """

    weight: float
    row_norm: float
    intercept: float
    columns: bool = True
    kind: ClassVar[str] = "products"

    def __post_init__(self) -> None:
        """Bounds that are bounds."""
        if not 0 < self.weight < math.inf:
            raise SpecError(f"the weight of the targets must be finite and over 0, not {self.weight}")

    @property
    def bound(self) -> float:
        """ρ², the largest length of a record's c cᵀ; rounded up."""
        exact = sum(Fraction(part) ** 2 for part in (self.row_norm * self.columns, self.intercept, self.weight))
        nearest = float(exact)
        return nearest if nearest >= exact else math.nextafter(nearest, math.inf)

    def event(self, records: int, clip: float, sigma: float, rounds: int, turns: Turns | None = None) -> ProductsEvent:
        """All of them."""
        return ProductsEvent(records, records, clip, sigma, rounds)


def left_in_mean(sigma: tuple[float, ...], weights: Array) -> float:
    """The deviation that noise leaves in each number of Σ w_i ζ_i, in a round in which everybody speaks.

    That is of what every node adds alone; what pairs of nodes share is gone from this very sum.

    Examples
    --------
    >>> left_in_mean((3.0, 4.0), np.array([0.5, 0.5]))
    2.5
    """
    return math.sqrt(math.fsum((np.asarray(weights) * np.asarray(sigma)) ** 2))
