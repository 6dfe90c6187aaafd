"""One run with many canaries: for what cannot be run ten thousand times, such as real nodes over MPI or FLARE.

An owner adds canaries to its own records, for a test and in place of as many others: each is a row of full norm in a
column of its own, and a coin decides its label. After the one run anyone who sees the transcript, or the model alone,
has to guess the random bits of the canaries that it is surest of. What is right too often bounds ε from below:
`one_run_scale` for the family of the stated mechanism, `one_run_epsilon` for any mechanism whatever (`bounds`).

A run with canaries is a test run: its model is of no use, and it costs the other records what any run costs.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sottovoce._types import Array
from sottovoce.auditing.bounds import CONFIDENCE, Family, one_run_epsilon, one_run_scale
from sottovoce.errors import SpecError
from sottovoce.privacy.events import AccountedEvent
from sottovoce.privacy.statement import number

GUESSED = 0.3
"""The share of the random bits that are guessed, unless another is chosen: before the run, as everything that is."""


@dataclass(frozen=True, eq=False)
class Canaries:
    """Records for a test.

    Attributes
    ----------
    signs : (count,) −1 or +1
    row_norm : R, the length of each row

    Examples
    --------
    >>> canaries = Canaries.tossed(3, np.random.default_rng(1))
    >>> canaries.X.tolist(), canaries.y.tolist()
    ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [-1.0, 1.0, 1.0])
    """

    signs: Array
    row_norm: float = 1.0

    @classmethod
    def tossed(cls, count: int, rng: np.random.Generator, row_norm: float = 1.0) -> "Canaries":
        """So many, with fair random bits."""
        if count < 1:
            raise SpecError(f"there is at least one canary, not {count}")
        return cls(rng.choice([-1.0, 1.0], count), row_norm)

    @property
    def X(self) -> Array:
        """A column for each: the run must have as many features."""
        return self.row_norm * np.eye(len(self.signs))

    @property
    def y(self) -> Array:
        """Labels, for a loss of two classes."""
        return self.signs

    def guessed(
        self,
        scores: Array,
        event: AccountedEvent,
        delta: float,
        guesses: int | None = None,
        confidence: float = CONFIDENCE,
    ) -> "OneRun":
        """Guess the random bits by their scores, the surest first.

        Parameters
        ----------
        scores : one a canary, the larger the more like +1: its coordinate of the final model, or of −Σ ζ
        event : what is stated of the owner's records
        delta : δ of the statement
        guesses : how many, chosen before the run; a share of 0.3 of them by default
        confidence : of the bounds
        """
        found = np.asarray(scores, dtype=np.float64)
        if found.shape != self.signs.shape:
            raise SpecError(f"give one score for each of the {len(self.signs)} canaries, not {found.shape}")
        count = guesses if guesses is not None else max(1, round(GUESSED * len(self.signs)))
        surest = np.argsort(-np.abs(found), kind="stable")[:count]
        right = int(np.sum(np.sign(found[surest]) == self.signs[surest]))
        family = Family(event, delta)
        scale = one_run_scale(family, len(self.signs), count, right, confidence)
        plain = one_run_epsilon(len(self.signs), count, right, delta, confidence)
        at_least = family.epsilon(scale)
        return OneRun(family.epsilon(), delta, at_least, plain, scale, confidence, len(self.signs), count, right)


@dataclass(frozen=True)
class OneRun:
    """What guessing random bits found; the fields that `Audit` has too mean the same.

    Attributes
    ----------
    canaries, guesses, right : how many there were, how many were guessed, and rightly
    """

    stated: float
    delta: float
    at_least: float
    plain: float
    scale: float
    confidence: float
    canaries: int
    guesses: int
    right: int

    @property
    def broken(self) -> str:
        """As of `Audit`."""
        if self.plain > self.stated:
            return "guarantee"
        return "curve" if self.scale <= 1.0 else ""

    def verdict(self) -> str:
        """In one line."""
        return (
            f"stated ≤ {number(self.stated)}, at least {number(self.at_least)} ({100 * self.confidence:g} %) from one "
            f"run: {self.right} of {self.guesses} random bits of {self.canaries} canaries; any mechanism: at least "
            f"{number(self.plain)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        numbers = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return numbers | {"broken": self.broken, "verdict": self.verdict()}
