"""A share of the budget for the distribution of columns: how many records have values where, released once.

The values of a numeric column lie between public bounds, in one of 32 public cells (`features.EDGES`). Of a unit two
things are released together, before the first round:

    φ(x) = (√(s/(2d)) e(x_1), …, √(s/(2d)) e(x_d),  √s_c x'/(2R'))

e(x_j): 1 at the cell of the value in column j, 0 at the other 31; x': all columns that are not numeric, of norm at most
R', which is public.

*Claim.* Another record moves φ by √(s + s_c) at most.
*Proof.* In each of d columns at most two entries change, by √(s/(2d)): √s together. x'/(2R') moves by 1 at most. The
two parts are orthogonal. ∎  A person counts with the mean over their rows: of each column a vector of shares that add
up to 1, of which two are √2 apart at most, and a mean of x', which is no longer than R'.

The noise, and what it costs, are those of every one-shot release (`privacy.one_shot`). What is made of the counts is
post-processing, and found in `run.distribution`.
"""

import math
from dataclasses import dataclass

from sottovoce.errors import SpecError
from sottovoce.features import CELLS
from sottovoce.privacy.one_shot import MAX_SHARE, OneShot
from sottovoce.registry import Choices, write


@dataclass(frozen=True)
class Distribution(OneShot):
    """Counts of the values of numeric columns, and the mean of the others, for shares of μ².

    Attributes
    ----------
    share : s; 0 where nothing is released
    columns : d, how many numeric columns there are
    mean, others : s_c, and how many other columns there are; s_c is 0 where their mean is not released

    Examples
    --------
    >>> str(Distribution(0.05, 6)), str(Distribution()), Distribution(0.05, 6, 0.03, 10).width()
    ('distribution(0.05, 6)', 'none', 202)
    """

    share: float = 0.0
    columns: int = 0
    mean: float = 0.0
    others: int = 0

    def __post_init__(self) -> None:
        """Shares that leave something for the rounds, of columns that are there."""
        wrong = not (0 <= self.share and 0 <= self.mean and self.total <= MAX_SHARE)
        if wrong or (self.share > 0) != (self.columns > 0) or (self.mean > 0) != (self.others > 0):
            raise SpecError(
                f"'{write('distribution', self.share, self.columns, self.mean, self.others)}' is malformed; write "
                f"'distribution(share, columns, mean, others)' with shares of the budget, {MAX_SHARE:g} together at "
                "most, each with how many columns it is for"
            )

    def __str__(self) -> str:
        """In a spec."""
        if not self.total:
            return "none"
        more = (self.mean, self.others) if self.mean else ()
        return write("distribution", self.share, self.columns, *more)

    @property
    def total(self) -> float:
        """s + s_c."""
        return self.share + self.mean

    @property
    def factor(self) -> float:
        """What entries of φ that count are, where they are not 0."""
        return math.sqrt(self.share / (2.0 * max(1, self.columns)))

    @property
    def mean_factor(self) -> float:
        """What x'/R' is multiplied by."""
        return math.sqrt(self.mean) / 2.0

    def width(self, features: int = 0) -> int:
        """How many numbers are released, whatever the records have."""
        return CELLS * self.columns + self.others


def _distribution(share: float = 0.0, columns: float = 0, mean: float = 0.0, others: float = 0) -> Distribution:
    return Distribution(float(share), int(columns), float(mean), int(others))


DISTRIBUTIONS: Choices[Distribution] = Choices("distribution", {"none": Distribution, "distribution": _distribution})
"""'none', or 'distribution(share, columns, mean, others)'."""
