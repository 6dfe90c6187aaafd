"""The law of the noise: how it is drawn, and what its draws come to for the accountant, in one object.

What a spec holds is a choice (`LAWS`): ``gaussian``, ``laplace``, ``pairs(ratio, node, …)`` or ``tree``. Once graph,
method, sampling and sizes are known it makes the law that runs:

`Gaussian`: fresh and independent at every node in every round, with one σ_i: the paper's, and the default.
`Shaped`: Gaussian whose scale, and whose share of the subgradient in what is released, change from round to round.
`Laplace`: the same with Laplace noise, for pure ε.
`Pairs`: Gaussian with a part that neighbours cancel between them (Allouah et al. 2024), for who lacks their seeds.
`Tree`: Gaussian prefix-sum noise along a binary tree (Kairouz et al. 2021), for records used in a fixed order.
`Objective`: Gaussian noise on the linear term of an objective that is then minimised (see `objective`).

σ_i scales every law linearly: calibration relies on it.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.notation import Choices, write
from sottovoce.privacy.events import (
    SHAPED,
    CyclicEvent,
    Event,
    FullEvent,
    GaussianEvent,
    LaplaceEvent,
    ObjectiveEvent,
    TreeEvent,
    cancelled,
)
from sottovoce.privacy.objective import BLUR
from sottovoce.privacy.sampling import Sampling
from sottovoce.streams import Streams


class Law(Protocol):
    """A way to make noise."""

    secrets: ClassVar[bool]
    """Whether pairs of nodes share seeds: what two of them cancel has one scale, no worth once they are out."""

    def draw(self, streams: Streams, nodes: IntArray, t: IntArray, m: int, sigma: tuple[float, ...]) -> Array:
        """A row of noise for each pair (node, round)."""

    def event(self, node: int, plain: GaussianEvent) -> Event:
        """What a node must account for, given what it would be for independent Gaussian noise of its σ_i."""


@dataclass(frozen=True)
class Gaussian:
    """N(0, σ_i² I), independent."""

    secrets: ClassVar[bool] = False

    def draw(self, streams: Streams, nodes: IntArray, t: IntArray, m: int, sigma: tuple[float, ...]) -> Array:
        """Fresh normals."""
        scales = np.take(sigma, nodes)
        if not np.any(scales):
            return np.zeros((len(nodes), m))
        return scales[:, None] * streams.normals(nodes, t, m)

    def event(self, node: int, plain: GaussianEvent) -> Event:
        """As it is."""
        return plain


@dataclass(frozen=True, eq=False)
class Shaped:
    """gain_t ĝ_i + N(0, (spread_t σ_i)² I) in round t; both sequences are public and fixed before the run."""

    gain: Array
    spread: Array
    secrets: ClassVar[bool] = False

    def draw(self, streams: Streams, nodes: IntArray, t: IntArray, m: int, sigma: tuple[float, ...]) -> Array:
        """Normals times the round's spread."""
        return self.spread[np.asarray(t) - 1][:, None] * Gaussian().draw(streams, nodes, t, m, sigma)

    def event(self, node: int, plain: GaussianEvent) -> Event:
        """K equal rounds that come to the same: Gaussian mechanisms compose by Σ 1/z² (Dong, Roth and Su 2022)."""
        weights = (self.gain / self.spread) ** 2
        if np.ptp(weights) == 0:
            return replace(plain, sigma=plain.sigma / math.sqrt(weights[0]), note=SHAPED)
        self._check(plain)
        return replace(plain, sigma=plain.sigma * math.sqrt(len(weights) / math.fsum(weights)), note=SHAPED)

    def _check(self, plain: GaussianEvent) -> None:
        if not isinstance(plain, FullEvent) or plain.rounds not in (0, len(self.gain)):
            raise PrivacyError(
                "noise that changes from round to round can be priced where every node takes all of its records in "
                "every round only; use sampling 'full' and activation 'everyone'"
            )


@dataclass(frozen=True, eq=False)
class Laplace(Shaped):
    """As `Shaped`, each coordinate Laplace with scale spread_t σ_i: pure ε, in the L1 norm."""

    dimension: int

    def draw(self, streams: Streams, nodes: IntArray, t: IntArray, m: int, sigma: tuple[float, ...]) -> Array:
        """The difference of two exponentials, each half of a χ² with two degrees of freedom."""
        squares = np.square(streams.normals(nodes, t, 4 * m)).reshape(len(nodes), 4, m)
        scales = np.take(sigma, nodes) * self.spread[np.asarray(t) - 1]
        return 0.5 * scales[:, None] * (squares[:, 0] + squares[:, 1] - squares[:, 2] - squares[:, 3])

    def event(self, node: int, plain: GaussianEvent) -> Event:
        """One mechanism with the sum of all rounds' ε; ‖·‖₁ ≤ √m ‖·‖₂ gives its sensitivity."""
        self._check(plain)
        total = math.fsum(self.gain / self.spread)
        clip = math.sqrt(self.dimension) * plain.clip
        return LaplaceEvent(plain.records, plain.batch, clip, plain.sigma / total, plain.rounds)


@dataclass(frozen=True, eq=False)
class Pairs:
    """σ(ν_i + ratio·Σ_j ν_ij) with ν_ij = −ν_ji a secret of the two: in the sum over all nodes only the ν_i are left.

    Attributes
    ----------
    n : number of nodes
    pairs : (E, 2) who shares a seed with whom
    ratio : σ_pair/σ
    coalition : nodes that give all they know to the adversary
    """

    n: int
    pairs: IntArray
    ratio: float
    coalition: tuple[int, ...] = ()
    secrets: ClassVar[bool] = True

    def covariance(self) -> Array:
        """Σ/σ² = I + ratio² Laplacian, between the nodes of the same coordinate; the coalition's seeds taken out."""
        L = np.zeros((self.n, self.n))
        for i, j in self.pairs.tolist():
            if i not in self.coalition and j not in self.coalition:
                L[[i, j, i, j], [i, j, j, i]] += (1.0, 1.0, -1.0, -1.0)
        return np.eye(self.n) + self.ratio**2 * L

    def draw(self, streams: Streams, nodes: IntArray, t: IntArray, m: int, sigma: tuple[float, ...]) -> Array:
        """Own normals, and one row a pair, with opposite signs at its two ends."""
        own, t = streams.normals(nodes, t, m), np.asarray(t)
        for e, ends in enumerate(self.pairs.tolist()):
            rows = [np.flatnonzero(nodes == end) for end in ends]
            rounds = np.union1d(t[rows[0]], t[rows[1]])
            if rounds.size:
                shared = self.ratio * streams.normals(np.full(rounds.size, self.n + e), rounds, m)
                own[rows[0]] += shared[np.searchsorted(rounds, t[rows[0]])]
                own[rows[1]] -= shared[np.searchsorted(rounds, t[rows[1]])]
        return np.take(sigma, nodes)[:, None] * own

    def event(self, node: int, plain: GaussianEvent) -> Event:
        """What everybody's messages together leave of node i's noise: the variance 1/[Σ⁻¹]_ii."""
        left = 1.0 / np.linalg.inv(self.covariance())[node, node]
        return replace(plain, sigma=plain.sigma * math.sqrt(left), note=cancelled(self.coalition))


@dataclass(frozen=True)
class Tree:
    """Noise on the prefix sums ĝ_1 + … + ĝ_s of each pass over the batches: the sum of the tree nodes that make up s.

    Attributes
    ----------
    batches : rounds in one pass; a tree a pass
    """

    batches: int
    secrets: ClassVar[bool] = False

    def draw(self, streams: Streams, nodes: IntArray, t: IntArray, m: int, sigma: tuple[float, ...]) -> Array:
        """How much the prefix sum's noise changes in round t."""
        rows = [self._prefix(streams, int(r), m) - self._prefix(streams, int(r) - 1, m, int(r)) for r in t]
        return np.take(sigma, nodes)[:, None] * np.reshape(rows, (len(nodes), m))

    def _prefix(self, streams: Streams, t: int, m: int, seen: int | None = None) -> Array:
        """The noise on the prefix that ends with round t, in the pass of round `seen`."""
        first = ((t if seen is None else seen) - 1) // self.batches * self.batches
        level = 0
        total, s = np.zeros(m), t - first
        while s > 0:
            if s & 1:
                total += streams.normals(np.array([level]), np.array([first + (s << level)]), m)[0]
            s, level = s >> 1, level + 1
        return total

    def event(self, node: int, plain: GaussianEvent) -> Event:
        """A record is in one leaf a pass, and in every node above it."""
        if not isinstance(plain, CyclicEvent) or plain.batches != self.batches or node != 0:
            raise PrivacyError("tree noise is for one node that takes its records in a fixed order; use 'cyclic(b)'")
        return TreeEvent(plain.records, plain.batch, plain.clip, plain.sigma, plain.rounds, uses=plain.uses)


@dataclass(frozen=True)
class Objective(Gaussian):
    """N(0, σ² I) for the linear term of F; what the minimiser gives away besides that noise is `extra`."""

    extra: float

    def draw(self, streams: Streams, nodes: IntArray, t: IntArray, m: int, sigma: tuple[float, ...]) -> Array:
        """The noise, and behind it what blurs the minimiser, in units of how far that may be from the true one."""
        blur = BLUR * streams.normals(nodes, np.asarray(t) + 1, m) * (np.take(sigma, nodes) > 0)[:, None]
        return np.concatenate([super().draw(streams, nodes, t, m, sigma), blur], axis=1)

    def event(self, node: int, plain: GaussianEvent) -> Event:
        """The noise as on a mean of all gradients, and the extra ε."""
        return ObjectiveEvent(plain.records, plain.batch, plain.clip, plain.sigma, plain.rounds, extra=self.extra)


class Graph(Protocol):
    """Of a network, what a law may want to know."""

    @property
    def n(self) -> int:
        """How many nodes."""

    @property
    def edges(self) -> IntArray:
        """(E, 2) who is linked with whom."""


Shape = tuple[Array, Array]
"""Gain and spread of a method with a schedule of its own for noise."""


class LawChoice(Protocol):
    """A law as a spec holds it."""

    def on(self, graph: Graph, shape: Shape | None, sampling: Sampling, sizes: IntArray, m: int) -> Law:
        """The law that runs."""


@dataclass(frozen=True)
class GaussianLaw:
    """Independent Gaussian noise, in the method's own shape where it has one."""

    def __str__(self) -> str:
        """In a spec."""
        return "gaussian"

    def on(self, graph: Graph, shape: Shape | None, sampling: Sampling, sizes: IntArray, m: int) -> Law:
        """Plain or shaped."""
        return Gaussian() if shape is None else Shaped(*shape)


@dataclass(frozen=True)
class LaplaceLaw:
    """Laplace noise in the shape of a method that has one."""

    def __str__(self) -> str:
        """In a spec."""
        return "laplace"

    def on(self, graph: Graph, shape: Shape | None, sampling: Sampling, sizes: IntArray, m: int) -> Law:
        """Over m coordinates."""
        if shape is None:
            raise SpecError(
                f"noise law '{self}' goes with a method that has a schedule of its own for noise, as 'huang'"
            )
        return Laplace(*shape, m)


@dataclass(frozen=True)
class PairsLaw:
    """Noise that neighbours cancel between them; the coalition is who gives all it knows to the adversary."""

    ratio: float
    coalition: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Each colluding node once, in order: two spellings of one choice are one value."""
        if not 0 < self.ratio < math.inf or not all(isinstance(i, int) and i >= 0 for i in self.coalition):
            raise SpecError(
                f"noise law '{self}' is malformed; write 'pairs(ratio, node, …)' with a ratio over 0, then the numbers "
                "of the colluding nodes"
            )
        object.__setattr__(self, "coalition", tuple(sorted(set(self.coalition))))

    def __str__(self) -> str:
        """In a spec."""
        return write("pairs", self.ratio, *self.coalition)

    def on(self, graph: Graph, shape: Shape | None, sampling: Sampling, sizes: IntArray, m: int) -> Law:
        """Along the links."""
        if shape is not None:
            raise SpecError(f"noise law '{self}' does not fit a method that has a schedule of its own for noise")
        if max(self.coalition, default=0) >= graph.n:
            raise SpecError(f"noise law '{self}' names a node that there is not: nodes are 0 to {graph.n - 1}")
        return Pairs(graph.n, graph.edges, float(self.ratio), self.coalition)


@dataclass(frozen=True)
class TreeLaw:
    """Noise along a binary tree over the batches of a pass."""

    def __str__(self) -> str:
        """In a spec."""
        return "tree"

    def on(self, graph: Graph, shape: Shape | None, sampling: Sampling, sizes: IntArray, m: int) -> Law:
        """Over the batches of the one node."""
        if shape is not None:
            raise SpecError(f"noise law '{self}' does not fit a method that has a schedule of its own for noise")
        q = int(sizes[0])
        return Tree(-(-q // sampling.batch(q)))


def _pairs(ratio: float, *nodes: int) -> PairsLaw:
    return PairsLaw(ratio, nodes)


LAWS: Choices[LawChoice] = Choices(
    "noise law", {"gaussian": GaussianLaw, "laplace": LaplaceLaw, "pairs": _pairs, "tree": TreeLaw}
)
