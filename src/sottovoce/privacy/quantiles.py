"""A share of the budget for the range of a regression's targets: how many of them are where, released once.

Public bounds of targets are often far too wide, and noise is in proportion to them. So [−1, 1], which stands for the
public range, is cut into 4 equal cells, each of these into 4 again, five times: 1,024 cells in the end, fixed before
anyone reads the data. Of a unit's target y five things are released together, in which of the 4, 16, …, 1,024 cells it
is:

    φ(y) = √(s/10) (e_4(y), e_16(y), …, e_1024(y))        e_k(y): 1 at the cell of y, 0 at the other k − 1

*Claim.* Another target moves φ by √s at most, and some target moves it so far.
*Proof.* Of each of the five parts at most two entries change, by √(s/10): together by √(5 · 2 · s/10) = √s, which is
what targets in two of the four largest cells do. ∎  To add or to remove a record would move the sum by √(s/2), one
entry of each part; numbers of records are public here, and what is accounted is another record in its place.

*People.* A person counts with the mean over their rows, of each part a vector p of shares that add up to 1, and
‖p − p'‖² = ‖p‖² + ‖p'‖² − 2⟨p, p'⟩ ≤ 2 for two such vectors: the same bound, without any clipping.

The noise, and what it costs, are those of every one-shot release (`privacy.one_shot`). Coarse cells show where targets
are at all, whatever the bounds; fine ones where their range ends. What is made of the counts is post-processing, and
found in `run.target_range`.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from sottovoce.errors import SpecError
from sottovoce.privacy.one_shot import MAX_SHARE, OneShot
from sottovoce.registry import Choices, write

BRANCHES, LEVELS = 4, 5
"""Cells that each cell is cut into, and how often."""
CELLS = tuple(BRANCHES**level for level in range(1, LEVELS + 1))


@dataclass(frozen=True)
class Quantiles(OneShot):
    """Counts of targets in public cells, for a share of μ².

    Attributes
    ----------
    share : s; 0 where nothing is released

    Examples
    --------
    >>> str(Quantiles(0.05)), str(Quantiles()), Quantiles(0.05).width()
    ('quantiles(0.05)', 'none', 1364)
    """

    share: float = 0.0
    targets: ClassVar[str] = "real"

    def __post_init__(self) -> None:
        """A share that leaves something for the rounds."""
        if not 0 <= self.share <= MAX_SHARE:
            raise SpecError(
                f"'{write('quantiles', self.share)}' is malformed; write 'quantiles(share)' with a share of the budget "
                f"that is not negative, {MAX_SHARE:g} at most"
            )

    def __str__(self) -> str:
        """In a spec."""
        return write("quantiles", self.share) if self.share else "none"

    @property
    def total(self) -> float:
        """s."""
        return self.share

    @property
    def factor(self) -> float:
        """What entries of φ are, where they are not 0."""
        return math.sqrt(self.share / (2.0 * LEVELS))

    def width(self, features: int = 0) -> int:
        """Return how many numbers are released; it does not depend on the records."""
        return sum(CELLS)


def _quantiles(share: float = 0.0) -> Quantiles:
    return Quantiles(float(share))


QUANTILES: Choices[Quantiles] = Choices("quantiles", {"none": Quantiles, "quantiles": _quantiles})
"""'none', or 'quantiles(share)'."""
