"""The worst records: what an attacker who chooses all of them would choose, for the spec's own loss and bounds.

The record in question is a row of full norm whose label is one of two: its two subgradients point opposite ways, as far
apart as the loss lets them be. Where a row over the bound is brought back to it, the row is far over it.

*Quiet*: every other record is a row of zeros, so that nothing but noise is in the record's direction. That is the worst
where other records stay as they are whichever is drawn: all of them, each on its own, or in a fixed order.

*Loud*: every other record is the record's own first choice. That is the worst where a record that is drawn takes
another one's place (batches of a fixed size): at −L all of them, and one of them perhaps at +L.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array, IntArray
from sottovoce.privacy.release import NoiseMechanism
from sottovoce.privacy.sampling import Cyclic, Fixed, Poisson, Sampling
from sottovoce.problem.losses import Joint, lengths
from sottovoce.problem.shards import Shards
from sottovoce.run.spec import ProblemSpec

QUIET, FIRST, SECOND = 0, 1, 2
"""Rows of the data: nobody's, and the two candidates for the record in question."""
FAR = 1e6
"""A number to be predicted that no model comes near."""
OVER = 16.0
"""By what a row is over its bound, where that is allowed."""
WIDTH = 4
"""Features that are enough: noise is drawn for each coordinate on its own, and one record moves one direction."""
ROWS = 3
"""Rows of the person in question, where people are units."""


@dataclass(frozen=True, eq=False)
class WorstCase:
    """Three rows, of which all records are made.

    Attributes
    ----------
    problem : loss, bounds and intercept
    features : columns, without the intercept's
    loud : whether all other records are the record's first choice, and not zeros
    spread : whether the row has all its coordinates equally, which is the longest in the L1 norm
    people : whether units are people
    clip : L
    bounded : whether rows are brought to their bound before anything else, as a secure release does
    """

    problem: ProblemSpec
    features: int
    loud: bool = False
    spread: bool = False
    people: bool = False
    clip: float = math.inf
    bounded: bool = False

    @cached_property
    def row(self) -> Array:
        """c of the record in question."""
        norm = self.problem.row_norm * (OVER if self.problem.on_violation == "clip" else 1.0)
        if self.spread:
            return np.full(self.features, norm / math.sqrt(self.features))
        return norm * np.eye(1, self.features)[0]

    @property
    def y(self) -> Array:
        """Targets of the three rows."""
        if self.problem.outputs > 1:
            return np.array([0.0, 0.0, 1.0])
        size = FAR if self.problem.loss.targets == "real" else 1.0
        return np.array([size, -size, size])

    @property
    def X(self) -> Array:
        """The three rows."""
        return np.stack([np.zeros(self.features), self.row, self.row])

    def shards(self, sizes: IntArray, chosen: dict[int, int]) -> Shards:
        """Nodes with so many units; for those of `chosen`, which row their first unit has."""
        counts, rows = [], []
        for i, q in enumerate(sizes.tolist()):
            mine = chosen.get(i)
            rest = FIRST if self.loud and mine is not None else QUIET
            first = ROWS if self.people and mine is not None else 1
            counts.append(np.concatenate([[first], np.ones(q - 1, dtype=np.int64)]))
            rows.append(np.concatenate([np.full(first, rest if mine is None else mine), np.full(q - 1, rest)]))
        starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))]) if self.people else None
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return Shards(self.X, self.y, offsets, np.concatenate(rows), 0.0, starts, self.people)

    @cached_property
    def joint(self) -> Joint:
        """The loss."""
        return Joint(self.problem.loss, self.problem.outputs)

    def gradient(self, x: Array, row: int) -> Array:
        """The clipped subgradient of a unit that is made of this row, at each model x: (models, m) -> (models, m)."""
        c = self.X[row]
        norm = float(np.linalg.norm(c))
        if self.bounded and norm > self.problem.row_norm:
            c = c * (self.problem.row_norm / norm)
        if self.problem.intercept:
            c = np.append(c, self.problem.intercept)
        u = x.reshape(len(x), self.problem.outputs, -1) @ c
        slopes = self.joint.slope(u if self.problem.outputs > 1 else u[:, 0], np.full(len(x), self.y[row]))
        size = lengths(slopes) * float(np.linalg.norm(c))
        factor = np.minimum(1.0, self.clip / np.maximum(size, np.finfo(float).tiny))
        scaled = slopes * (factor if slopes.ndim == 1 else factor[:, None])
        return (scaled[..., None] * c).reshape(len(x), -1)


@dataclass(frozen=True)
class Means:
    """What a node releases but for its noise: the mean of a batch, where the record in question is its first unit.

    Attributes
    ----------
    worst : the records
    sampling : how batches are picked
    q : units of the node
    """

    worst: WorstCase
    sampling: Sampling
    q: int

    @property
    def b(self) -> int:
        """The divisor."""
        return self.sampling.batch(self.q)

    @property
    def rate(self) -> float:
        """The chance that the record is in a batch, where that is a matter of chance; else 1."""
        return self.b / self.q if isinstance(self.sampling, Poisson | Fixed) else 1.0

    def uses(self, t: int) -> bool:
        """Whether the record may be in round t's batch."""
        return not isinstance(self.sampling, Cyclic) or 0 in self.sampling.draw(_nothing, self.q, t)

    def __call__(self, x: Array, t: int, row: int | None) -> Array:
        """At each model x, with the record in the batch as this row; with None, without it.

        Of quiet records in a Poisson batch it is not known how many there are: they are left out, and `silent` says in
        which coordinates they are silent. Loud ones are counted as if there were b of them, as where sizes are fixed.
        """
        b, rest = self.b, FIRST if self.worst.loud else QUIET
        others = b - 1 if row is not None else b
        if isinstance(self.sampling, Poisson) and not self.worst.loud:
            others = 0
        elif isinstance(self.sampling, Cyclic):
            others = len(self.sampling.draw(_nothing, self.q, t)) - (row is not None)
        total = others * self.worst.gradient(x, rest)
        if row is not None:
            total = total + self.worst.gradient(x, row)
        return total / b

    def silent(self, m: int) -> NDArray[np.bool_]:
        """Coordinates in which nothing is but what is known: all, but for the intercepts' of quiet Poisson batches."""
        keep = np.ones((self.worst.problem.outputs, m // self.worst.problem.outputs), dtype=np.bool_)
        if isinstance(self.sampling, Poisson) and self.worst.problem.intercept and not self.worst.loud:
            keep[:, -1] = False
        return keep.ravel()


def _nothing(first: int, count: int) -> Array:
    raise AssertionError("records in a fixed order are not drawn")


def loudly(sampling: Sampling) -> tuple[bool, ...]:
    """Which of the two choices to try, the worst one first."""
    if isinstance(sampling, Fixed):
        return (True,)
    return (False, True) if isinstance(sampling, Poisson) else (False,)


def spreads(law: NoiseMechanism) -> bool:
    """Whether the law counts in the L1 norm."""
    return law.unit == "laplace"
