"""One-shot releases: a part of the budget that is spent once on all records, before or after the rounds.

A node releases the mean of φ over its units, once, with the noise z₁/q_i in every number; z₁ is the multiplier of one
Gaussian release that is (ε, δ)-DP. Two units' φ are at most √s apart, so that this is a Gaussian mechanism with the
parameter μ√s, μ = 1/z₁: it takes the share s of the budget μ². Mechanisms of shares s₁ and s₂ have the same noise and
are together one of the share s₁ + s₂ (Gaussian mechanisms compose by Σ 1/z²). That holds in any order, and where one
depends on the results of those before it. The rounds are calibrated for what is left.

A person counts with the mean of φ over their rows. Where φ counts cells, that is a vector p of shares that add up to 1,
and ‖p − p'‖² = ‖p‖² + ‖p'‖² − 2⟨p, p'⟩ ≤ 2 for two such vectors: the bound of single rows, without any clipping.

Here is what a spec holds, with the proof of each sensitivity. What is made of the released numbers is post-processing:
`run.private_scaling` (moments), `run.target_range` (quantiles) and `run.private_threshold` (balance).
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from sottovoce.errors import PrivacyError, SpecError
from sottovoce.privacy.calibration import Noise, Private, single
from sottovoce.registry import Choices, write

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


@dataclass(frozen=True)
class Moments(OneShot):
    """Private scaling: moments of the records, released before the first round.

    Of a unit's row x, in units of the public bound R, so that ‖x‖ ≤ 1, up to three things are released together:

        φ(x) = (√s_l ‖x‖²,  √s_c x/2,  √s_d x²/√2)        x² coordinate by coordinate

    Another row moves the first by √s_l at most, the second by √s_c and the third by √s_d (both ends are not negative
    there, so that their distance is √2 and not 2): together by √s, s = s_l + s_c + s_d. A part whose share is 0 is not
    released.

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


BRANCHES, LEVELS = 4, 5
"""Cells that each cell is cut into, and how often."""
NESTED_CELLS = tuple(BRANCHES**level for level in range(1, LEVELS + 1))


@dataclass(frozen=True)
class Quantiles(OneShot):
    """Counts of a regression's targets in public cells, released before the first round.

    Public bounds of targets are often far too wide, and noise is in proportion to them. So [−1, 1], which stands for
    the public range, is cut into 4 equal cells, each of these into 4 again, five times: 1,024 cells in the end. Coarse
    cells show where targets are at all; fine ones where their range ends. Of a unit's target y five things are released
    together, in which of the 4, 16, …, 1,024 cells it is:

        φ(y) = √(s/10) (e_4(y), e_16(y), …, e_1024(y))        e_k(y): 1 at the cell of y, 0 at the other k − 1

    *Claim.* Another target moves φ by √s at most, and some target moves it so far.
    *Proof.* Of each of the five parts at most two entries change, by √(s/10): together by √(5 · 2 · s/10) = √s, which
    is what targets in two of the four largest cells do. ∎

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
        return sum(NESTED_CELLS)


def _quantiles(share: float = 0.0) -> Quantiles:
    return Quantiles(float(share))


QUANTILES: Choices[Quantiles] = Choices("quantiles", {"none": Quantiles, "quantiles": _quantiles})
"""'none', or 'quantiles(share)'."""


RANGE_SHARE, RANGE_SHARE_WITHOUT_PRIOR = 0.25, 0.5
"""The part of the share for the range of the scores: all records show it, but only few show the rare class. Without a
prior it is of few records, whose range is as hard to see."""
SCORE_EDGES = (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0)
"""Edges between the cells of either class, in deviations of the scores from their median."""
SCORE_CELLS = 2 * (len(SCORE_EDGES) + 1)
"""Cells of both classes."""


@dataclass(frozen=True)
class Balance(OneShot):
    """Private threshold: counts of either class's scores in public cells, released after the rounds.

    It is for two ends. Where no prior is known and noise hides the middle of the columns, the constant term is lost in
    the rounds, however well the scores order records: then the counts say where most answers are right. And weights
    that balance a rare class against the rest leave the others as little to say as the rare ones have: so these go
    half of the way in the rounds, and a threshold on the scores does the rest. Of every unit's score under the model,
    which is public by then, two things are released, in this order:

        in which of 4, 16, …, 1,024 nested public cells it is, as of a regression's targets (`Quantiles`);
        then its class and in which of 10 cells it is, whose edges were made from the first: √(s₂/2) e(class, cell)

    Without a prior the class alone is counted beside that, √(s₂/4) (e(class), e(class, cell)): the sum of ten noisy
    counts would say little of how many there are.

    *Claim.* Another record moves the first by √s₁ at most and the second by √s₂, whatever the first was.
    *Proof.* The first is that of `Quantiles`. Of the second two entries of each of its k parts change at most, each by
    √(s₂/(2k)). ∎

    Attributes
    ----------
    share : s; 0 where nothing is released
    prior : how likely the second class is, public; 0 where it is not known, and all records count the same
    weight : which part of all weight it is to have; ½ where classes are balanced; of no meaning without a prior

    Examples
    --------
    >>> str(Balance(0.04, 0.03)), str(Balance(0.1)), str(Balance()), Balance(0.04, 0.03).width()
    ('balance(0.04, 0.03, 0.5)', 'balance(0.1)', 'none', 1384)
    """

    share: float = 0.0
    prior: float = 0.0
    weight: float = 0.5
    after_rounds: ClassVar[bool] = True
    targets: ClassVar[str] = "binary"

    def __post_init__(self) -> None:
        """A share that leaves something for the rounds, and classes that both exist."""
        if not 0 <= self.share <= MAX_SHARE or not 0 <= self.prior < 1 or not 0 < self.weight < 1:
            raise SpecError(
                f"'{write('balance', self.share, self.prior, self.weight)}' is malformed; write 'balance(share, prior, "
                f"weight)' with a share of the budget that is not negative, {MAX_SHARE:g} at most, and with how likely "
                "the second class is and what part of all weight it is to have, both between 0 and 1"
            )
        if not self.share:  # then the others have no meaning: two spellings of one choice are one value
            object.__setattr__(self, "prior", 0.0)
        if not self.prior:
            object.__setattr__(self, "weight", 0.5)

    def __str__(self) -> str:
        """In a spec."""
        numbers = (self.prior, self.weight) if self.prior else ()
        return write("balance", self.share, *numbers) if self.share else "none"

    @property
    def total(self) -> float:
        """s."""
        return self.share

    @property
    def weights(self) -> tuple[float, float]:
        """What records of either class count in the rounds: the square roots of weights that would do all of it."""
        if not self.prior:
            return 1.0, 1.0
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
        return Quantiles(self.range_share * self.share)

    @property
    def range_share(self) -> float:
        """The part of the share that the range of the scores has."""
        return RANGE_SHARE if self.prior else RANGE_SHARE_WITHOUT_PRIOR

    @property
    def factor(self) -> float:
        """What entries of the second part are, where they are not 0."""
        return math.sqrt((1.0 - self.range_share) * self.share / (2.0 * len(self.class_kinds)))

    @property
    def class_kinds(self) -> tuple[int, ...]:
        """How many cells each kind of the second part has."""
        return (SCORE_CELLS,) if self.prior else (2, SCORE_CELLS)

    def width(self, features: int = 0) -> int:
        """Return how many numbers are released; it does not depend on the records."""
        return self.where.width() + sum(self.class_kinds)


def _balance(share: float = 0.0, prior: float = 0.0, weight: float = 0.5) -> Balance:
    return Balance(float(share), float(prior), float(weight))


BALANCES: Choices[Balance] = Choices("balance", {"none": Balance, "balance": _balance})
"""'none', 'balance(share, prior, weight)' or, without a prior, 'balance(share)'."""
