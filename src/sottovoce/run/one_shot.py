"""One-shot releases: a sum over all records that is released once, outside the rounds, and what is made of it.

A `Query` says what a unit contributes, whose distance from any other unit's contribution is bounded by the `diameter`,
and what follows from the noisy mean. Noise, exact sums, events and accounting are made here, for all queries. A query
reads records in `means` and `exact_sums` alone, each node's on their own: so a real node can make its own part.
docs/extending.md lists the places that a new one needs.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.casts import whole_units
from sottovoce.engine.secure import SecureDraws
from sottovoce.errors import NetworkError, SpecError
from sottovoce.network.graphs import Graph
from sottovoce.privacy.events import Event
from sottovoce.privacy.one_shot import multiplier
from sottovoce.privacy.release import MechanismContext, Release
from sottovoce.privacy.sampling import Full
from sottovoce.problem.objective import ByRecords
from sottovoce.problem.shards import Shards
from sottovoce.run.spec import Spec
from sottovoce.secure.generator import Generator, Purpose
from sottovoce.secure.grids import Grids
from sottovoce.streams import Streams

Keys = Mapping[Purpose, Generator]
Found = TypeVar("Found", covariant=True)

BEFORE = 0
"""The round by which the noise of a release before the first round is addressed."""
SHRINK = 1.0 - 2.0**-40
"""Each unit's part of a secure sum is multiplied by this: it is smaller by more than the error of computing it."""


class Noisy(NamedTuple):
    """The released means of all nodes as one, by numbers of units.

    Attributes
    ----------
    mean : (width,) of all units' φ, with noise
    deviation : of the noise in each number of it
    sum_deviation : of the noise in each number of the sum over all units
    units : how many units there are
    """

    mean: Array
    deviation: float
    sum_deviation: float
    units: float


class Query(ABC, Generic[Found]):
    """What is summed over all units, and what is made of the noisy mean."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many numbers φ has; public."""

    @property
    @abstractmethod
    def diameter(self) -> float:
        """How far apart φ of two units can be, at most: the sensitivity of a node's sum."""

    @property
    def longest(self) -> float:
        """How long φ of a unit can be, and so any mean of them: its numbers are within [−1, 1]."""
        return math.sqrt(self.width)

    @abstractmethod
    def units(self, shards: Shards, node: int) -> Iterator[Array]:
        """φ of a node's units, some at a time: (units, width), numbers within [−1, 1].

        A person's is the mean over their rows. What a unit contributes is a function of that unit alone, to the bit.
        """

    @abstractmethod
    def finish(self, noisy: Noisy) -> Found:
        """Return what follows from the release; it reads nothing else."""

    def means(self, shards: Shards) -> Array:
        """(n, width) every node's mean of φ, in floating point."""
        totals = [sum(part.sum(axis=0) for part in self.units(shards, i)) for i in range(shards.n)]
        return np.stack(totals) / shards.sizes[:, None]

    def exact_sums(self, shards: Shards, grid: float) -> IntArray:
        """(n, width) every node's sum of φ in whole units of the grid: each unit's is truncated toward zero, alone."""
        totals = np.zeros((shards.n, self.width), dtype=np.int64)
        for node in range(shards.n):
            for part in self.units(shards, node):
                totals[node] += whole_units(part * SHRINK, grid, -1.0 / grid, 1.0 / grid).sum(axis=0)
        return totals


class CellShares(Query[Found]):
    """A query that counts rows in public cells of one or several kinds: of a person, shares of their rows.

    φ is `factor` in the cell of a row, one cell of each kind, and 0 elsewhere. Two units' shares of one kind are
    vectors that sum up to 1, and so at most √2 apart.
    """

    @property
    @abstractmethod
    def kinds(self) -> Sequence[int]:
        """How many cells there are of each kind."""

    @property
    @abstractmethod
    def factor(self) -> float:
        """What entries of φ are, where they are not 0."""

    @abstractmethod
    def cells(self, shards: Shards) -> Sequence[IntArray]:
        """In which cell each row is, of every kind."""

    @property
    def width(self) -> int:
        """A number for each cell."""
        return sum(self.kinds)

    @property
    def diameter(self) -> float:
        """√2 times the factor for each kind."""
        return self.factor * math.sqrt(2.0 * len(self.kinds))

    def units(self, shards: Shards, node: int) -> Iterator[Array]:
        """Spread out; sums are made of the entries alone."""
        unit, where, shares = self._entries(self.cells(shards), shards, node)
        found = np.zeros((int(shards.sizes[node]), self.width))
        found[unit, where] = shares * self.factor
        yield found

    def means(self, shards: Shards) -> Array:
        """Counted."""
        cells, found = self.cells(shards), []
        for node in range(shards.n):
            _, where, shares = self._entries(cells, shards, node)
            found.append(np.bincount(where, shares, minlength=self.width))
        return np.asarray(np.stack(found) * self.factor / shards.sizes[:, None])

    def exact_sums(self, shards: Shards, grid: float) -> IntArray:
        """Counted, each unit's shares truncated toward zero."""
        cells, totals = self.cells(shards), np.zeros((shards.n, self.width), dtype=np.int64)
        for node in range(shards.n):
            _, where, shares = self._entries(cells, shards, node)
            np.add.at(totals[node], where, whole_units(shares * (self.factor * SHRINK), grid, 0.0, 1.0 / grid))
        return totals

    def _entries(self, cells: Sequence[IntArray], shards: Shards, node: int) -> tuple[IntArray, IntArray, Array]:
        """The shares of a node's units that are not 0: whose, in which cell of all, and how much."""
        counts = shards.counts(node)
        cells = [each[shards.rows(node)] for each in cells]
        rows = len(cells[0])
        unit = np.arange(rows) if counts is None else np.repeat(np.arange(len(counts)), counts)
        own = np.ones(rows) if counts is None else counts
        whose, where, shares, begin = [], [], [], 0
        for each, width in zip(cells, self.kinds, strict=True):
            pairs, often = np.unique(unit * width + each, return_counts=True)
            whose.append(pairs // width)
            where.append(begin + pairs % width)
            shares.append(often / own[pairs // width])
            begin += width
        return np.concatenate(whose), np.concatenate(where), np.concatenate(shares)


def sums_grid(largest: int) -> float:
    """A grid on which φ of so many units is summed without an error in 62 bits.

    Examples
    --------
    >>> sums_grid(1000) == 2.0**-50
    True
    """
    return 2.0 ** (largest.bit_length() - 60)


@dataclass(frozen=True, eq=False)
class QuerySums:
    """The sums of a query as secure draws ask for them, over the records of nodes 0 … n − 1."""

    query: Query[object]
    shards: Shards
    grid: float
    compiled: ClassVar[bool] = False

    @property
    def grids(self) -> Grids:
        """The one grid."""
        return Grids(self.grid, 1.0, self.query.diameter / 2.0, 1.0)

    @cached_property
    def exact(self) -> IntArray:
        """All nodes' sums, made once."""
        return self.query.exact_sums(self.shards, self.grid)

    def total(self, node: int, x: Array, records: IntArray | None) -> IntArray:
        """A node's sum over all of its units; there is no x in it."""
        return self.exact[node]

    def totals(self, nodes: IntArray, x: Array, records: Sequence[IntArray | None]) -> IntArray:
        """Of several nodes."""
        return self.exact[nodes]


@dataclass(frozen=True, eq=False)
class OneShotRelease(Generic[Found]):
    """A query with its noise: what every node releases of its records, once, and what is made of that.

    Attributes
    ----------
    query : what is summed
    release : with which noise; its events are the ones that are accounted
    sizes : q_i of all nodes of the run
    when : the round by which the noise is addressed, and no other release's
    """

    query: Query[Found]
    release: Release
    sizes: IntArray
    when: int = BEFORE

    @property
    def weights(self) -> Array:
        """Of nodes in the mean: by numbers of units."""
        return np.asarray(self.sizes / self.sizes.sum())

    def events(self) -> list[Event]:
        """What every node must account for."""
        return self.release.events(self.sizes, np.ones(len(self.sizes), dtype=np.int64))

    def released(self, shards: Shards, streams: Streams, keys: Keys | None) -> Array:
        """(n, width) all nodes' noisy means: floating point from the streams or, with keys, exact and rounded once."""
        if keys is None:
            nodes = np.arange(shards.n)
            noise = self.release.noise(streams, nodes, np.full(shards.n, self.when), self.query.width)
            return self.query.means(shards) + noise
        draws = SecureDraws(self.release, self.sums(shards), keys, self.sizes, self.query.width)
        return self.secured(draws, np.arange(shards.n))

    def sums(self, shards: Shards) -> QuerySums:
        """The exact sums over these records, on the grid of the run: for `SecureDraws`, or those of a real node."""
        return QuerySums(self.query, shards, sums_grid(int(self.sizes.max())))

    def secured(self, draws: SecureDraws, nodes: IntArray) -> Array:
        """(nodes, width) the secure releases of these nodes: exact sums with all noises, rounded once, over q_i."""
        when, everybody = np.full(len(nodes), self.when), np.ones(len(nodes), dtype=np.bool_)
        release = SecureDraws.drawn(draws, nodes, when, everybody)
        return release.released(np.zeros((len(nodes), self.query.width)))

    def finish(self, released: Array) -> Found:
        """What follows from all nodes' releases."""
        return self.query.finish(self.noisy(self.weights @ released))

    def noisy(self, mean: Array) -> Noisy:
        """A mean by numbers of units, with what is known of its noise: what pairs of nodes share is gone from it."""
        sigma = np.array(self.release.sigma)
        of_mean, of_sum = (float(np.linalg.norm(factors * sigma)) for factors in (self.weights, self.sizes))
        return Noisy(mean, of_mean, of_sum, float(self.sizes.sum()))


def one_shot_release(spec: Spec, sizes: IntArray, features: int, graph: Graph) -> Release:
    """What nodes of these sizes release of all records once, and with which noise: from public numbers.

    Every node's release is as well hidden as one with z₁/√s times its reach: the share s of the budget. Where there are
    several, before the first round and after the last, they have the same noise, z₁/q, and are together one of the sum
    of their shares. Everybody sends what it releases to everybody, or by an exact average: so there must be links
    between any two.
    """
    privacy, n, choices = spec.privacy, len(sizes), spec.privacy.one_shot
    if not choices:
        raise SpecError("this run has no one-shot release; set moments, quantiles, a distribution or a balance")
    if n > 1 and not graph.is_complete:
        names = "' and '".join(map(str, choices))
        raise NetworkError(
            f"'{names}' is averaged over links between any two nodes, so that graph '{graph.name}' has no say in it; "
            f"leave the graph out (complete), or '{names}'"
        )
    adversary = privacy.adversary.among(n)
    width = max(one.width(features) for one in choices)
    law = privacy.law.on(
        MechanismContext(graph, Full(), sizes, width, adversary=adversary, scale=n * ByRecords()(sizes))
    )
    wanted = multiplier(privacy.noise, privacy.delta, choices[0]) / math.sqrt(privacy.shares)
    unit = Release(Full(), math.sqrt(privacy.shares) / 2.0, law.units(n), adversary, law)
    needed = [wanted / event.noise_multiplier for event in unit.events(sizes, np.ones(n, dtype=np.int64))]
    factors = [max(needed)] * n if law.secrets else needed  # what hides a node are all nodes' noises together
    sigma = tuple(factor * scale for factor, scale in zip(factors, unit.sigma, strict=True))
    return Release(Full(), unit.clip, sigma, adversary, law)
