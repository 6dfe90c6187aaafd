"""Private scaling: moments of the records, released once before the first round for a share of the budget.

Of a unit's row x, in units of the public bound R, so that ‖x‖ ≤ 1, up to three things are released together:

    φ(x) = (√s_l ‖x‖²,  √s_c x/2,  √s_d x²/√2)        x² coordinate by coordinate

Another row moves the first by √s_l at most, the second by √s_c and the third by √s_d (both ends are not negative there,
so that their distance is √2 and not 2): together by √s, s = s_l + s_c + s_d. A part whose share is 0 is not released.
The noise, and what it costs, are those of every one-shot release (`privacy.one_shot`).

What is made of the three moments is post-processing, and found in `run.private_scaling`.
"""

import math
from dataclasses import dataclass

from sottovoce.errors import SpecError
from sottovoce.privacy.one_shot import MAX_SHARE, OneShot
from sottovoce.registry import Choices, write


@dataclass(frozen=True)
class Moments(OneShot):
    """Which moments are released, and for which shares of μ².

    Attributes
    ----------
    length, center, scale : s_l, s_c and s_d; 0 for what is not released
    power : p, columns are scaled by (their mean square)^−p

    Examples
    --------
    >>> str(Moments(0.005, 0.03)), str(Moments())
    ('moments(0.005, 0.03)', 'none')
    """

    length: float = 0.0
    center: float = 0.0
    scale: float = 0.0
    power: float = 0.25

    def __post_init__(self) -> None:
        """Shares that leave something for the rounds."""
        if not all(0 <= share < 1 for share in self.shares) or self.total > MAX_SHARE or not 0 < self.power <= 0.5:
            raise SpecError(
                f"'{write('moments', *self.shares, self.power)}' is malformed; write 'moments(length, center, scale, "
                f"power)' with shares of the budget, {MAX_SHARE:g} together at most, and a power over 0 and at most 0.5"
            )
        if not self.scale:  # then it has no meaning: two spellings of one choice are one value
            object.__setattr__(self, "power", 0.25)

    def __str__(self) -> str:
        """In a spec; trailing zeros are left out."""
        numbers = (*self.shares, self.power) if self.scale else self.shares[: 2 if self.center else 1]
        return write("moments", *numbers) if self.total else "none"

    @property
    def shares(self) -> tuple[float, float, float]:
        """s_l, s_c and s_d."""
        return self.length, self.center, self.scale

    @property
    def total(self) -> float:
        """s."""
        return math.fsum(self.shares)

    @property
    def factors(self) -> tuple[float, float, float]:
        """What ‖x‖², x and x² are multiplied by."""
        return math.sqrt(self.length), math.sqrt(self.center) / 2.0, math.sqrt(self.scale / 2.0)

    def width(self, features: int) -> int:
        """How many numbers are released."""
        return bool(self.length) + features * (bool(self.center) + bool(self.scale))


def _moments(length: float = 0.0, center: float = 0.0, scale: float = 0.0, power: float = 0.25) -> Moments:
    return Moments(float(length), float(center), float(scale), float(power))


MOMENTS: Choices[Moments] = Choices("moments", {"none": Moments, "moments": _moments})
"""'none', or 'moments(length, center, scale, power)'."""
