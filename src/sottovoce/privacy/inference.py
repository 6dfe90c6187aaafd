"""A share of the budget for confidence intervals: noisy sums of scores and curvatures at released models.

After the last round several stages are released sequentially, each of sums that depend on the stages before it
(`inference.estimate`): the rows' second moments, a score or two by which the model is brought close to the optimum, and
at last score, curvature and scatter. A part of the share σ_k is multiplied by √(s σ_k)/Δ_k, where Δ_k bounds how far
apart two units' contributions are (`inference.statistics`, with proofs), so that these are √(s σ_k) apart.

*Claim.* All stages together are one release of the share s = Σ s σ_k of the budget, whatever each makes of those
before.
*Proof.* The parts of a stage lie side by side: together they move by √(s Σ σ_k). Each stage is a Gaussian release with
the same noise as all one-shot releases (`privacy.one_shot`), and Gaussian releases that are chosen adaptively compose
by Σ 1/z², as one with z₁/√s. ∎
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from sottovoce.errors import SpecError
from sottovoce.privacy.one_shot import OneShot
from sottovoce.registry import Choices, write

MAX_SHARE_WITH_INFERENCE = 0.95
"""Of the budget, all one-shot releases of a run with intervals: a rough fit is enough to start from."""


@dataclass(frozen=True)
class Inference(OneShot):
    """Sums for confidence intervals, for a share of μ².

    Attributes
    ----------
    share : s; 0 where nothing is released
    scale : by what rows are multiplied, beside the constant 1
    longest : R, the length above which rows with the constant are downweighted

    Examples
    --------
    >>> str(Inference(0.9, 2.0, 1.9)), str(Inference()), Inference(0.9).width(2)
    ('inference(0.9, 2, 1.9)', 'none', 28)
    """

    share: float = 0.0
    scale: float = 1.0
    longest: float = math.sqrt(2.0)
    after_rounds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """A share that leaves something for the rounds, and a length that holds the constant."""
        usable = 0 <= self.share <= MAX_SHARE_WITH_INFERENCE and 0 < self.scale < math.inf
        if not usable or not 1 < self.longest < math.inf:
            raise SpecError(
                f"'{write('inference', self.share, self.scale, self.longest)}' is malformed; write 'inference(share, "
                f"scale, longest)' with a share of the budget from 0 to {MAX_SHARE_WITH_INFERENCE:g}, a scale over 0 "
                "and a length over 1"
            )
        if not self.share:  # then the others have no meaning: two spellings of one choice are one value
            object.__setattr__(self, "scale", 1.0)
            object.__setattr__(self, "longest", math.sqrt(2.0))

    def __str__(self) -> str:
        """In a spec."""
        return write("inference", self.share, self.scale, self.longest) if self.share else "none"

    @property
    def total(self) -> float:
        """s."""
        return self.share

    def width(self, features: int) -> int:
        """How many numbers the widest set of stages has."""
        p = features + 1
        return 3 * p * (p + 1) // 2 + 3 * p + 1


def _inference(share: float = 0.0, scale: float = 1.0, longest: float = math.sqrt(2.0)) -> Inference:
    return Inference(float(share), float(scale), float(longest))


INFERENCES: Choices[Inference] = Choices("inference", {"none": Inference, "inference": _inference})
"""'none', or 'inference(share, scale, longest)'."""
