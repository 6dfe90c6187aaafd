"""Tallies: sums over a node's held-out records, with noise, as one release.

A record brings one vector, a function of it, of a public model and of public numbers. No two such vectors are further
apart than the tally's *diameter*: 1 for the answer to one question (right or wrong), √2 for one of several cells that a
record falls into (it leaves one and enters another). Sums are exact, of whole numbers, and rounded once with their
noise, as in a secure release (docs/secure.md).

An evaluation requests in one or more *parts*, the later ones perhaps after the answers to the earlier ones were seen;
each has its share s of the budget: with z the multiplier of the whole, its noise is d z/√s, d its diameter. Gaussian
mechanisms compose by Σ 1/z², also where each is chosen after seeing the one before, so that all parts together are one
Gaussian mechanism of multiplier z. That is the event: a full batch of records, L = ½, one round, σ = z/q.

The noise is every node's own or, where the run's law is such, has parts that cancel between pairs of nodes: then a
node's own answer says nothing, and the sum over all nodes has little noise.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.errors import PrivacyError
from sottovoce.privacy.calibration import Circumstances, Private
from sottovoce.privacy.events import Event
from sottovoce.privacy.release import Adversary, Gaussian, NoiseMechanism, NoiseTerm, Release, Transcript, rounded_up
from sottovoce.privacy.sampling import Full
from sottovoce.secure.generator import Generator, Purpose, fresh, generators
from sottovoce.secure.noise import Layer, Noise, Same, release_grid

HALF = 0.5
"""L of an answer that is 0 or 1, seen from the middle: what one record can move is 2L."""

NO_CELL = -1
"""The cell of a record that has no target."""

Keys = Mapping[Purpose, Generator]


class Part(NamedTuple):
    """One question to every held-out record.

    Attributes
    ----------
    round : by which its noise is addressed: each part has one of its own, from 1
    diameter : how far apart the vectors of two records can be
    share : of the budget, in 1/z²
    unit : the numbers of a vector are whole multiples of this, a power of two
    """

    round: int
    diameter: float
    share: float = 1.0
    unit: float = 1.0


RIGHT = Part(1, 1.0)
"""How many answers are right: the least that one can ask."""


@dataclass(frozen=True, eq=False)
class Tally:
    """What the nodes release of their held-out records.

    Attributes
    ----------
    release : all records once, L = ½, with the noise of the whole
    sizes : how many records each node has held out

    Examples
    --------
    >>> tally = Tally.of(np.array([100, 400]), epsilon=1.0, delta=1e-5)
    >>> tally.noise(RIGHT).round(2), round(tally.noise_of_sum(RIGHT), 2)
    (array([3.73, 3.73]), 5.28)
    >>> answers = tally.answers(RIGHT, np.array([[80], [300]]), seeded(7))
    >>> bool(np.all(abs(answers - [[80], [300]]) < 20))
    True
    """

    release: Release
    sizes: IntArray

    @classmethod
    def of(
        cls,
        sizes: IntArray,
        epsilon: float,
        delta: float,
        adversary: Adversary | None = None,
        law: NoiseMechanism | None = None,
    ) -> "Tally":
        """With as much noise as (ε, δ) needs."""
        n = len(sizes)
        law = law or Gaussian()
        unit = Release(Full(), HALF, law.units(n), adversary or Transcript(), law)
        known = Circumstances(unit, np.asarray(sizes), np.ones(n, dtype=np.int64), delta, 1.0, 1)
        return cls(replace(unit, sigma=Private(epsilon).scales(known)[0]), np.asarray(sizes))

    @property
    def events(self) -> list[Event]:
        """What every node must account for, all parts together."""
        return self.release.events(self.sizes, np.ones(len(self.sizes), dtype=np.int64))

    def noise(self, part: Part) -> Array:
        """The standard deviation of the noise that stays in the sum over all nodes, of each node's number."""
        return np.asarray(self.release.sigma) * self.sizes * part.diameter / np.sqrt(part.share)

    def noise_of_sum(self, part: Part) -> float:
        """The same of the sum over all nodes."""
        return float(np.linalg.norm(self.noise(part)))

    def answers(self, part: Part, sums: IntArray, keys: Keys, nodes: IntArray | None = None) -> Array:
        """Sums of whole units, a row a node, plus noise.

        Parameters
        ----------
        part : which question; each is answered once with the same keys
        sums : (nodes, numbers) exact
        keys : secret generators
        nodes : whose sums these are; everybody's by default
        """
        who = np.arange(len(self.sizes)) if nodes is None else np.asarray(nodes)
        if sums.dtype.kind not in "iu":
            raise PrivacyError("the sums of a tally are whole numbers; bring each record's part to units first")
        sums = np.ascontiguousarray(sums, dtype=np.int64)
        scales = rounded_up(self.noise(part)[who])
        if len(sums) != len(who) or not np.all(scales > 0):
            raise PrivacyError("a tally has a row of sums for each node, and noise for each row")
        noise_terms = self.release.law.noise_terms(who, np.full(len(who), part.round), self.release.sigma)
        layers = [_layer(source, scales[source.rows], keys) for source in noise_terms]
        # a count stays a count: its grid is 1, however small the noise
        grids = [part.unit if part.unit == 1.0 else release_grid(scale, part.unit) for scale in scales.tolist()]
        made = Noise(sums.shape[1], np.array(grids), layers)
        return made.added_to(sums, part.unit) * np.array(grids)[:, None]


def _layer(source: NoiseTerm, scales: Array, keys: Keys) -> Layer:
    """A source of noise term, times every node's scale."""
    key, sums = keys[Purpose.PAIRS if source.shared else Purpose.COUNTS], source.shared_terms
    same = None if sums is None else Same(sums.owners, sums.rounds, sums.starts, sums.which, sums.factors * scales)
    return Layer(key, source.rows, source.owners, source.rounds, source.factors * scales, same)


def seeded(seed: int | None, *salt: int) -> Keys:
    """Secret generators that nobody can repeat; of a seed, those of a simulation."""
    if seed is None:
        return fresh(b"evaluation")
    known = hashlib.blake2b(repr((seed, *salt)).encode(), person=b"simulation", digest_size=32).digest()
    return generators(known, b"evaluation", bytes(32))


def cells(owner: IntArray, nodes: int, cell: IntArray, count: int) -> IntArray:
    """How many records of each node fall into each cell; a record of `NO_CELL` falls into none.

    Examples
    --------
    >>> cells(np.array([0, 1, 1, 1]), 2, np.array([2, 0, 0, NO_CELL]), 3)
    array([[0, 0, 1], [2, 0, 0]])
    """
    there = cell != NO_CELL
    if not there.all():
        owner, cell = owner[there], cell[there]
    return np.bincount(owner * count + cell, minlength=nodes * count).reshape(nodes, count)


def by_node(owner: IntArray, nodes: int, vectors: Sequence[IntArray]) -> IntArray:
    """Sums of whole numbers over the records of each node, a column for each vector."""
    sums = np.zeros((nodes, len(vectors)), dtype=np.int64)
    for column, values in enumerate(vectors):
        np.add.at(sums[:, column], owner, values)
    return sums
