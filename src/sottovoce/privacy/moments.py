"""A share of the budget for the shape of the data: what is let out of the records once, before the first round.

Of a unit's row x, in units of the public bound R, so that ‖x‖ ≤ 1, up to three things are let out together:

    φ(x) = (√s_l ‖x‖²,  √s_c x/2,  √s_d x²/√2)        x² coordinate by coordinate

Another row moves the first by √s_l at most, the second by √s_c and the third by √s_d (both ends are not negative there,
so that their distance is √2 and not 2): together by √s, s = s_l + s_c + s_d. Each node lets out the mean of φ over its
units with the noise z₁/q_i in every coordinate, z₁ the multiplier of one Gaussian release that is (ε, δ)-DP. That is a
Gaussian mechanism with the parameter μ√s, μ = 1/z₁: it takes the share s of the budget μ², and the rounds are then
calibrated so that all of it together is (ε, δ). A part whose share is 0 is not let out.

What is made of the three moments is post-processing, and told in `run.shape`.
"""

import math
from dataclasses import dataclass

from sottovoce.errors import PrivacyError, SpecError
from sottovoce.notation import Choices, write
from sottovoce.privacy.calibration import Noise, Private, single

MOST = 0.5
"""Of the budget, at most."""


@dataclass(frozen=True)
class Moments:
    """Which moments are let out, and for which shares of μ².

    Attributes
    ----------
    length, centre, scale : s_l, s_c and s_d; 0 for what is not let out
    power : p, columns are scaled by (their mean square)^−p

    Examples
    --------
    >>> str(Moments(0.005, 0.03)), str(Moments())
    ('moments(0.005, 0.03)', 'none')
    """

    length: float = 0.0
    centre: float = 0.0
    scale: float = 0.0
    power: float = 0.25

    def __post_init__(self) -> None:
        """Shares that leave something for the rounds."""
        if not all(0 <= share < 1 for share in self.shares) or self.total > MOST or not 0 < self.power <= 0.5:
            raise SpecError(
                f"'{write('moments', *self.shares, self.power)}' is malformed; write 'moments(length, centre, scale, "
                f"power)' with shares of the budget, {MOST:g} together at most, and a power over 0 and at most 0.5"
            )
        if not self.scale:  # then it has no meaning: two spellings of one choice are one value
            object.__setattr__(self, "power", 0.25)

    def __str__(self) -> str:
        """In a spec; trailing zeros are left out."""
        numbers = (*self.shares, self.power) if self.scale else self.shares[: 2 if self.centre else 1]
        return write("moments", *numbers) if self.total else "none"

    @property
    def shares(self) -> tuple[float, float, float]:
        """s_l, s_c and s_d."""
        return self.length, self.centre, self.scale

    @property
    def total(self) -> float:
        """s."""
        return math.fsum(self.shares)

    @property
    def factors(self) -> tuple[float, float, float]:
        """What ‖x‖², x and x² are multiplied by."""
        return math.sqrt(self.length), math.sqrt(self.centre) / 2.0, math.sqrt(self.scale / 2.0)

    @property
    def clip(self) -> float:
        """Half of how far φ of one unit can move."""
        return math.sqrt(self.total) / 2.0

    def width(self, features: int) -> int:
        """How many numbers are let out."""
        return bool(self.length) + features * (bool(self.centre) + bool(self.scale))

    def needed(self, noise: Noise, delta: float) -> float:
        """z₁ of a budget: the noise that a node adds to each coordinate of its mean is z₁/q."""
        return one_release(noise, delta, self)


def one_release(noise: Noise, delta: float, asked: object) -> float:
    """z₁ of a budget, of which a share is to be spent on what is asked for."""
    if not isinstance(noise, Private):
        raise PrivacyError(
            f"a share of the budget can be spent on '{asked}' only where there is one: write noise 'private(ε)', not "
            f"'{noise}', or leave '{asked}' out"
        )
    return single(noise.epsilon, delta)


NO_MOMENTS = Moments()


def _moments(length: float = 0.0, centre: float = 0.0, scale: float = 0.0, power: float = 0.25) -> Moments:
    return Moments(float(length), float(centre), float(scale), float(power))


MOMENTS: Choices[Moments] = Choices("moments", {"none": lambda: NO_MOMENTS, "moments": _moments})
"""'none', or 'moments(length, centre, scale, power)'."""
