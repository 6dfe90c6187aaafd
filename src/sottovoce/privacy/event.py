"""The event: everything about a node's participation that an accountant may look at."""

import math
from dataclasses import dataclass

from sottovoce.errors import PrivacyError

ADJACENCY = "replace one record of one node"
SAMPLINGS = ("fixed", "poisson", "full", "cyclic")
LAWS = ("gaussian", "shaped", "laplace", "pairs", "tree", "objective")


@dataclass(frozen=True)
class Event:
    """Everything about node i's participation that an accountant may look at."""

    sampling: str
    records: int
    """q_i."""
    batch: int
    """b, the divisor."""
    clip: float
    """L, the bound on one record's subgradient."""
    sigma: float
    """σ_i, the standard deviation of the noise on ζ_i in each coordinate."""
    rounds: int
    """K_i, in how many rounds the node spoke."""
    law: str = "gaussian"
    """Of the noise; where it is not plain Gaussian, σ and K are those of the plain mechanism that it comes to."""
    extra: float = 0.0
    """ε that no noise covers: of the law 'objective' only."""

    def __post_init__(self) -> None:
        """An event that no release can have is an error, not a number."""
        counts = all(isinstance(v, int) for v in (self.records, self.batch, self.rounds))
        if self.sampling not in SAMPLINGS or self.law not in LAWS or not counts:
            raise PrivacyError(f"{self} is no event of a release: sampling, law and whole numbers are expected")
        if not (1 <= self.batch <= self.records and self.rounds >= 0):
            raise PrivacyError(f"{self} is no event of a release: a batch is part of the records")
        if self.sampling == "full" and self.batch != self.records:
            raise PrivacyError(f"{self} is no event of a release: a full batch holds all records")
        if not (0 < self.clip < math.inf and 0 <= self.sigma < math.inf):
            raise PrivacyError(f"{self} is no event of a release: the clip must be over 0, σ not negative, both finite")
        if not 0 <= self.extra < math.inf or (self.extra > 0) != (self.law == "objective"):
            raise PrivacyError(
                f"{self} is no event of a release: an extra ε goes with the law 'objective', and with it only"
            )

    @property
    def rate(self) -> float:
        """γ = b/q, the chance that a given record is used in a round."""
        return 1.0 if self.sampling in ("full", "cyclic") else self.batch / self.records

    @property
    def noise_multiplier(self) -> float:
        """The noise in units of how far one record can move the mean, the only place where this is computed.

        Replacing a record moves it by at most 2L/b where the batch size is fixed. Under Poisson sampling the pair to
        compare is a record against another one, each in or out on its own: L/b from the mean without it.
        """
        reach = (1.0 if self.sampling == "poisson" else 2.0) * self.clip / self.batch
        return self.sigma / reach
