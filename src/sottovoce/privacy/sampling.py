"""How a node picks its records in an active round. The sampler that draws says itself what it is accounted as.

`fixed(b)`: b distinct records, uniformly, without replacement; `one` is fixed(1), the paper's choice.
`poisson(b)`: every record independently with probability b/q; the batch size varies, the divisor stays the public b.
`poisson(0.05)`, a number below 1: b is that share of each node's own records.
`full`: all of them.
Draws are independent from round to round: a shuffled pass over the data is a different mechanism, and not offered.
`cyclic(b)`: b after b in the order of the file, pass after pass: no chance in it, hence nothing gained from sampling.
Round t has the batch that is t-th in that order, whether or not the node spoke in the rounds before: how often a record
is used depends on which rounds the node speaks in, and is counted in them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.errors import SpecError
from sottovoce.privacy.events import CyclicEvent, FixedEvent, FullEvent, GaussianEvent, PoissonEvent
from sottovoce.registry import Choices, write

Uniforms = Callable[[int, int], Array]
"""(first, count) -> that stretch of one node's stream of uniforms in one round."""
Turns = Callable[[], IntArray]
"""A function that returns the active rounds of a node."""


def always(rounds: int) -> Turns:
    """Who speaks in every round from the first to the last."""
    return lambda: np.arange(1, rounds + 1)


class Sampling(Protocol):
    """A way to pick records; ``str()`` is how the choice is written in a spec."""

    kind: ClassVar[str]
    """Its name."""

    def batch(self, q: int) -> int:
        """b, the public (expected) batch size and divisor at a node with q records."""

    def event(self, records: int, clip: float, sigma: float, rounds: int, turns: Turns | None = None) -> GaussianEvent:
        """Return the event of Gaussian noise on the means of such batches, for a node active in this many rounds.

        If it matters in which rounds, `turns` gives them; without it, every round may have used the same records.
        """

    @property
    def stretch(self) -> int:
        """How many uniforms a draw nearly always gets by with; they are made for many rounds at once."""

    def draw(self, uniforms: Uniforms, q: int, t: int = 1) -> IntArray | None:
        """The records of round t, numbered within the node; None for all of them."""


@dataclass(frozen=True)
class _Batch:
    size: float = 1
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        """A batch has at least one record."""
        if not isinstance(self.size, int) or self.size < 1:
            raise SpecError(f"a batch is a whole number of records, at least 1, not {self.size!r}")

    def batch(self, q: int) -> int:
        """The batch size, where the node has that many records."""
        if self.size > q:
            raise SpecError(
                f"a batch of {self.size} records needs nodes with at least as many, but one has {q}; "
                f"take a batch of at most {q}, or 'full'"
            )
        return int(self.size)

    def __str__(self) -> str:
        """The choice in a spec."""
        return write(self.kind, self.size)


@dataclass(frozen=True)
class Fixed(_Batch):
    """b distinct records, every set of b equally likely."""

    kind: ClassVar[str] = "fixed"

    def event(self, records: int, clip: float, sigma: float, rounds: int, turns: Turns | None = None) -> FixedEvent:
        """b of q."""
        return FixedEvent(records, self.batch(records), clip, sigma, rounds)

    @property
    def stretch(self) -> int:
        """One uniform a record."""
        return int(self.size)

    def draw(self, uniforms: Uniforms, q: int, t: int = 1) -> IntArray:
        """Floyd's algorithm (Bentley and Floyd 1987): b uniforms, no shuffling of q."""
        b = self.batch(q)
        picks = (uniforms(0, b) * (q - b + 1 + np.arange(b))).astype(np.int64)
        if b == 1:
            return picks
        chosen: dict[int, None] = {}
        for j, pick in zip(range(q - b, q), picks.tolist(), strict=True):
            chosen[j if pick in chosen else pick] = None
        return np.fromiter(chosen, np.int64, b)


@dataclass(frozen=True)
class Poisson(_Batch):
    """Each record independently with probability b/q; possibly none. A size below 1 is a share of the records."""

    size: float = 1
    kind: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        """A batch has at least one record, a share is below 1."""
        if not (isinstance(self.size, float) and 0 < self.size < 1):
            super().__post_init__()

    def batch(self, q: int) -> int:
        """The batch size, where the node has that many records; or the share of them, one record at least."""
        return max(1, round(self.size * q)) if self.size < 1 else super().batch(q)

    def event(self, records: int, clip: float, sigma: float, rounds: int, turns: Turns | None = None) -> PoissonEvent:
        """Each with probability b/q."""
        return PoissonEvent(records, self.batch(records), clip, sigma, rounds)

    @property
    def stretch(self) -> int:
        """One uniform a record and one to pass the end, for all but the largest batches; of a share, not known."""
        return 0 if self.size < 1 else _enough(int(self.size))

    def draw(self, uniforms: Uniforms, q: int, t: int = 1) -> IntArray:
        """Skip from one chosen record to the next by geometric gaps: O(b), not O(q)."""
        b = self.batch(q)
        if b == q:
            return np.arange(q)
        stretch = _enough(b)
        scale = 1.0 / np.log1p(-b / q)
        found: list[IntArray] = []
        at, first = -1.0, 0
        while at < q:
            gaps = np.floor(np.log(uniforms(first, stretch)) * scale) + 1.0
            places = at + np.cumsum(gaps)
            found.append(places[places < q].astype(np.int64))
            at, first = float(places[-1]), first + stretch
        return np.concatenate(found)


def _enough(b: int) -> int:
    return int(b + 4 * np.sqrt(b)) + 4


@dataclass(frozen=True)
class Full:
    """Every record, every time."""

    kind: ClassVar[str] = "full"
    stretch: ClassVar[int] = 0

    def __str__(self) -> str:
        """The choice in a spec."""
        return self.kind

    def batch(self, q: int) -> int:
        """All q."""
        return q

    def event(self, records: int, clip: float, sigma: float, rounds: int, turns: Turns | None = None) -> FullEvent:
        """All of them."""
        return FullEvent(records, records, clip, sigma, rounds)

    def draw(self, uniforms: Uniforms, q: int, t: int = 1) -> None:
        """Nothing to draw."""
        return None


@dataclass(frozen=True)
class Cyclic(_Batch):
    """The batches of a fixed order, one a round; the last of a pass may be smaller."""

    kind: ClassVar[str] = "cyclic"
    stretch: ClassVar[int] = 0

    def event(self, records: int, clip: float, sigma: float, rounds: int, turns: Turns | None = None) -> CyclicEvent:
        """As many uses as the busiest batch had."""
        b, uses = self.batch(records), rounds
        if turns is not None and rounds:
            uses = int(np.bincount((turns() - 1) % -(-records // b)).max())
        return CyclicEvent(records, b, clip, sigma, rounds, uses=uses)

    def draw(self, uniforms: Uniforms, q: int, t: int = 1) -> IntArray:
        """Nothing is drawn: round t has the next batch."""
        b = self.batch(q)
        first = (t - 1) % -(-q // b) * b
        return np.arange(first, min(first + b, q))


def one() -> Fixed:
    """The paper's choice."""
    return Fixed(1)


SAMPLINGS: Choices[Sampling] = Choices(
    "sampling", {"one": one, "fixed": Fixed, "poisson": Poisson, "full": Full, "cyclic": Cyclic}
)
