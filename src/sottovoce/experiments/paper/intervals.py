"""A mean over seeds and how well it is known."""

import math
from dataclasses import dataclass

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval over seeds (Student's t)."""

    mean: float
    half: float
    seeds: int

    @property
    def low(self) -> float:
        """Lower end."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end."""
        return self.mean + self.half

    @classmethod
    def of(cls, values: Array) -> "Interval":
        """From one value a seed.

        Examples
        --------
        >>> Interval.of(np.array([1.0, 2.0, 3.0])).mean
        2.0
        """
        n = len(values)
        spread = float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.inf
        return cls(float(np.mean(values)), float(scipy.special.stdtrit(max(n - 1, 1), 0.5 + LEVEL / 2)) * spread, n)

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.half:.2g}"
