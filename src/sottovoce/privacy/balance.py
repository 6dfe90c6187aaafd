"""A share of the budget for the threshold between two classes: how many of either have scores where, after the rounds.

Weights that balance a rare class against the rest leave the others as little to say as the rare ones have, and that
exceeds the signal if these are few. So weights go half of the way in the rounds, and a threshold on the scores does
the rest. No public number gives this threshold. So of every unit's score under the model, which is public by then, two
things are released, in this order:

    in which of 4, 16, …, 1,024 nested public cells it is, as of a regression's targets (`privacy.quantiles`);
    then its class and in which of 10 cells it is, whose edges were made from the first: √(s₂/2) e(class, cell)

*Claim.* Another record moves the first by √s₁ at most and the second by √s₂, whatever the first said.
*Proof.* The first is that of `privacy.quantiles`. Of the second two entries change at most, each by √(s₂/2). A person
counts with the mean over their rows, of shares that add up to 1, and two such vectors are √2 apart at most. ∎

Both are one-shot releases (`privacy.one_shot`) of the shares s₁ and s₂ of the budget, the second chosen after the first
was seen, both after the rounds: they are accounted with the moments, as one release of the share s₁ + s₂ more.
What is made of the counts is post-processing, and found in `run.private_threshold`.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from sottovoce.errors import SpecError
from sottovoce.privacy.one_shot import MAX_SHARE, OneShot
from sottovoce.privacy.quantiles import Quantiles
from sottovoce.registry import Choices, write

WHERE = 0.25
"""The part of the share for the range of the scores: all records show it, but only few show the rare class."""
STEPS = (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0)
"""Edges between the cells of either class, in deviations of the scores from their median."""
WIDTH = 2 * (len(STEPS) + 1)


@dataclass(frozen=True)
class Balance(OneShot):
    """Counts of either class's scores in public cells, for a share of μ², and what they are for.

    Attributes
    ----------
    share : s; 0 where nothing is released
    prior : how likely the second class is, public
    weight : which part of all weight it is to have; ½ where classes are balanced

    Examples
    --------
    >>> str(Balance(0.04, 0.03)), str(Balance()), Balance(0.04, 0.03).width()
    ('balance(0.04, 0.03, 0.5)', 'none', 1384)
    """

    share: float = 0.0
    prior: float = 0.5
    weight: float = 0.5
    after_rounds: ClassVar[bool] = True
    targets: ClassVar[str] = "binary"

    def __post_init__(self) -> None:
        """A share that leaves something for the rounds, and classes that both exist."""
        if not 0 <= self.share <= MAX_SHARE or not 0 < self.prior < 1 or not 0 < self.weight < 1:
            raise SpecError(
                f"'{write('balance', self.share, self.prior, self.weight)}' is malformed; write 'balance(share, prior, "
                f"weight)' with a share of the budget that is not negative, {MAX_SHARE:g} at most, and with how likely "
                "the second class is and what part of all weight it is to have, both between 0 and 1"
            )
        if not self.share:  # then the others have no meaning: two spellings of one choice are one value
            object.__setattr__(self, "prior", 0.5)
            object.__setattr__(self, "weight", 0.5)

    def __str__(self) -> str:
        """In a spec."""
        return write("balance", self.share, self.prior, self.weight) if self.share else "none"

    @property
    def total(self) -> float:
        """s."""
        return self.share

    @property
    def weights(self) -> tuple[float, float]:
        """What records of either class count in the rounds: the square roots of weights that would do all of it."""
        odds = self.prior / (1.0 - self.prior), self.weight / (1.0 - self.weight)
        second = math.sqrt(odds[1] / odds[0])
        return 1.0 / max(second, 1.0), second / max(second, 1.0)

    @property
    def mean_weight(self) -> float:
        """The same on average, by the prior."""
        first, second = self.weights
        return (1.0 - self.prior) * first + self.prior * second

    @property
    def where(self) -> Quantiles:
        """The first part, of all scores."""
        return Quantiles(WHERE * self.share)

    @property
    def factor(self) -> float:
        """What entries of the second part are, where they are not 0."""
        return math.sqrt((1.0 - WHERE) * self.share / 2.0)

    def width(self, features: int = 0) -> int:
        """Return how many numbers are released; it does not depend on the records."""
        return self.where.width() + WIDTH


def _balance(share: float = 0.0, prior: float = 0.5, weight: float = 0.5) -> Balance:
    return Balance(float(share), float(prior), float(weight))


BALANCES: Choices[Balance] = Choices("balance", {"none": Balance, "balance": _balance})
"""'none', or 'balance(share, prior, weight)'."""
