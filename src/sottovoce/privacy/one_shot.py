"""What one-shot releases share: a part of the budget that is spent once on all records, outside the rounds.

A node releases the mean of φ over its units, once, with the noise z₁/q_i in every number; z₁ is the multiplier of one
Gaussian release that is (ε, δ)-DP. Two units' φ are at most √s apart, so that this is a Gaussian mechanism with the
parameter μ√s, μ = 1/z₁: it takes the share s of the budget μ². Mechanisms of shares s₁ and s₂ have the same noise and
are together one of the share s₁ + s₂, in whatever order they come and whatever each makes of those before it
(Gaussian mechanisms compose by Σ 1/z²). The rounds are calibrated for what is left.
"""

import math
from typing import ClassVar

from sottovoce.errors import PrivacyError
from sottovoce.privacy.calibration import Noise, Private, single

MAX_SHARE = 0.5
"""Of the budget, all one-shot releases of a run together."""


class OneShot:
    """A one-shot release as a spec holds it: a frozen value, false where its share is 0 and nothing is released."""

    after_rounds: ClassVar[bool] = False
    """Whether it comes after the last round, and not before the first."""
    targets: ClassVar[str | None] = None
    """The kind of targets that it is for: 'real' or 'binary'; None for any."""

    @property
    def total(self) -> float:
        """s."""
        raise NotImplementedError

    def width(self, features: int) -> int:
        """How many numbers are released, of records with so many columns."""
        raise NotImplementedError

    @property
    def clip(self) -> float:
        """Half of how far φ of one unit can move."""
        return math.sqrt(self.total) / 2.0

    def __bool__(self) -> bool:
        """Whether anything is released."""
        return self.total > 0


def multiplier(noise: Noise, delta: float, wanted: OneShot) -> float:
    """Return z₁ of a budget, a share of which pays for the wanted release."""
    if not isinstance(noise, Private):
        raise PrivacyError(
            f"'{wanted}' spends a share of the budget, and noise '{noise}' has no budget: write noise 'private(ε)', or "
            f"leave '{wanted}' out"
        )
    return single(noise.epsilon, delta)
