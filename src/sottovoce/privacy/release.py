"""The release: the one object that both draws what a node adds and says what must be accounted for, and against whom.

In every round in which node i is active it releases ζ_i = (1/b) Σ clip_L(∂l) + N(0, σ_i² I) (Algorithm 1, lines
2-3); everything else it sends, stores or publishes is a function of such ζ and of public numbers. So the privacy of
a record depends on its own node's (q_i, b, L, σ_i) and on the number K_i of rounds in which that node spoke, and on
nothing else (where records come in a fixed order: on which rounds those were). An `Event` says all of that. The
sampler, the clip and the noise of the event are the fields from which the draws are made: they cannot drift apart.

*The adversary*: who is watching. A guarantee means nothing without this name beside it. It says what it sees, on what a
guarantee against it rests, which runs can claim to be safe from it and no more, and how it sees a node of which it is
only known how likely it is to speak.

*The law of the noise*: how it is drawn, and what its draws come to for the accountant, in one object. What a spec holds
is a choice (`LAWS`): ``gaussian``, ``laplace``, ``pairs(ratio, node, …)`` or ``tree``. Once graph, method, sampling and
sizes are known it makes the law that runs:

`Gaussian`: fresh and independent at every node in every round, with one σ_i: the paper's, and the default.
`Shaped`: Gaussian whose scale, and whose share of the subgradient in what is released, change from round to round.
`Laplace`: the same with Laplace noise, for pure ε.
`Pairs`: Gaussian with a part that neighbours cancel between them (Allouah et al. 2024), for who lacks their seeds.
`Tree`: Gaussian prefix-sum noise along a binary tree (Kairouz et al. 2021), for records used in a fixed order.
`Objective`: Gaussian noise on the linear term of an objective that is then minimised (see `objective`).

σ_i scales every law linearly: calibration relies on it. A law draws in two ways: `draw` gives floating-point noise, for
simulations; `sources` says of which unit noises a release is made, and a secure run adds exactly those to an exact sum.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, NamedTuple, Protocol

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
    Hidden,
    LaplaceEvent,
    ObjectiveEvent,
    Priced,
    Seldom,
    TreeEvent,
    cancelled,
)
from sottovoce.privacy.objective import BLUR
from sottovoce.privacy.sampling import Sampling, Turns
from sottovoce.streams import Streams


@dataclass(frozen=True)
class Adversary:
    """An observer; ``str()`` is its name."""

    name: ClassVar[str]
    sees: ClassVar[str]
    refusal: ClassVar[str] = ""
    """Why an ordinary run cannot claim it; empty where it can."""

    def __str__(self) -> str:
        """In a spec."""
        return self.name

    def fits(self, secrets: bool, nodes: int) -> bool:
        """Whether a run really faces it: its messages carry noise whose seeds pairs of nodes share or not."""
        return not self.refusal

    def assumptions(self, coalition: tuple[int, ...] | None) -> tuple[str, ...]:
        """On what a guarantee against it rests besides; `coalition` is whose secrets count as known."""
        return ()

    def helped(self, coalition: tuple[int, ...] | None) -> str:
        """Its name, and who helps it where that matters."""
        return f"'{self.name}'"

    def seen(self, event: Event, activity: float = 1.0) -> Priced:
        """What it sees of a node that speaks in each of `event.rounds` rounds with a probability."""
        raise PrivacyError(f"'{self}' cannot be accounted for this algorithm: {self.refusal}; use 'transcript'")


@dataclass(frozen=True)
class Transcript(Adversary):
    """Everything that is ever sent."""

    name: ClassVar[str] = "transcript"
    sees: ClassVar[str] = "every message of every node, and who was active in every round"

    def seen(self, event: Event, activity: float = 1.0) -> Priced:
        """Who spoke is seen: a sleeping round releases nothing, an active one is a release."""
        return Seldom(event, activity)


@dataclass(frozen=True)
class HiddenParticipation(Adversary):
    """A what-if: the adversary that the paper's theorem counts on."""

    name: ClassVar[str] = "hidden_participation"
    sees: ClassVar[str] = "messages that cannot be linked to the node that sent them"
    refusal: ClassVar[str] = (
        "a message carries z_i, which changes only when node i is active, so participation can always be linked"
    )

    def seen(self, event: Event, activity: float = 1.0) -> Priced:
        """Every round is a release, at a smaller rate."""
        return Hidden(event, activity)


@dataclass(frozen=True)
class SecretPairs(Adversary):
    """Everything that is sent, but not what pairs of nodes have agreed on before."""

    name: ClassVar[str] = "secret_pairs"
    sees: ClassVar[str] = "every message, but not the seeds that pairs of nodes share"
    refusal: ClassVar[str] = "dual averaging adds independent noise, so there are no pairwise secrets to rely on"

    def fits(self, secrets: bool, nodes: int) -> bool:
        """Where there are secrets."""
        return secrets

    def assumptions(self, coalition: tuple[int, ...] | None) -> tuple[str, ...]:
        """Every node is an observer too, and knows its own seeds."""
        if coalition is None:  # in this way version 0.1 left it open
            return ("the seeds that pairs of nodes share stay secret, but for those of the declared coalition",)
        if not coalition:
            return ("there is no coalition: no node is curious, and each seed is known to the two that share it alone",)
        return (
            f"the coalition of {_nodes(coalition)} tells the observer all it knows; no other node is curious, and the "
            "seeds that two others share are known to those two alone",
        )

    def helped(self, coalition: tuple[int, ...] | None) -> str:
        """An ε without the coalition would be a different promise."""
        if coalition is None:
            return super().helped(coalition)
        return f"'{self.name}' with {f'the help of {_nodes(coalition)}' if coalition else 'no help from any node'}"


def _nodes(coalition: tuple[int, ...]) -> str:
    return f"node{'s' * (len(coalition) > 1)} {', '.join(map(str, coalition))}"


@dataclass(frozen=True)
class Central(Adversary):
    """Who gets the model of a trusted place."""

    name: ClassVar[str] = "central"
    sees: ClassVar[str] = "the final model only"
    refusal: ClassVar[str] = (
        "nodes send their messages to one another in clear, so a neighbour sees more than the final model"
    )

    def fits(self, secrets: bool, nodes: int) -> bool:
        """One node sends no messages; the accounting of every round covers the final model."""
        return nodes == 1

    def assumptions(self, coalition: tuple[int, ...] | None) -> tuple[str, ...]:
        """Trust."""
        return ("there is one trusted place that holds all records and publishes nothing but the final model",)


ADVERSARIES: Choices[Adversary] = Choices(
    "adversary", {kind.name: kind for kind in (Transcript, HiddenParticipation, SecretPairs, Central)}, PrivacyError
)


def refuse_unless_runnable(adversary: Adversary, secrets: bool = False, nodes: int = 2) -> None:
    """A run may only be made under an adversary that its messages really face.

    Noise that pairs of nodes cancel is worth what it is only where their seeds are secret.
    """
    if secrets and not isinstance(adversary, SecretPairs):
        raise PrivacyError("noise that pairs of nodes share protects against 'secret_pairs' only; name that adversary")
    if not adversary.fits(secrets, nodes):
        raise PrivacyError(
            f"a run cannot be protected against '{adversary}' only: {adversary.refusal}; use 'transcript'"
        )


class Source(NamedTuple):
    """One unit noise in each of some releases.

    Attributes
    ----------
    rows : which of the releases, none of them twice
    owners, rounds : the address of each one's noise: equal addresses are one and the same number
    factors : what it is multiplied by, besides the release's own scale; of either sign, and of 26 bits at most, so that
        the product is exact
    shared : whether it is a secret of two nodes
    """

    rows: IntArray
    owners: IntArray
    rounds: IntArray
    factors: Array
    shared: bool = False


SHORT = 26
"""Bits of a factor, and of a scale: their product has no more than a float has."""


def rounded_up(values: Array) -> Array:
    """Positive numbers brought to 26 bits, upwards by more than a few roundings: never below what was meant.

    Examples
    --------
    >>> float(rounded_up(np.array([0.1]))[0]) - 0.1 < 2.0**-28, rounded_up(np.array([0.0, 3.0])) - [0, 3] < 2.0**-23
    (True, array([ True,  True]))
    """
    part, octave = np.frexp(np.asarray(values, dtype=np.float64) * (1.0 + 2.0**-40))
    return np.ldexp(np.ceil(part * 2.0**SHORT), octave - SHORT)


class Law(Protocol):
    """A way to make noise."""

    secrets: ClassVar[bool]
    """Whether pairs of nodes share seeds: what two of them cancel has one scale, no worth once they are out."""
    unit: ClassVar[str]
    """The law of one unit noise: 'gaussian', with variance 1, or 'laplace', with scale 1."""

    def draw(self, streams: Streams, nodes: IntArray, t: IntArray, m: int, sigma: tuple[float, ...]) -> Array:
        """A row of noise for each pair (node, round)."""

    def share(self, t: IntArray) -> Array:
        """How much noise, in units of σ, goes with ĝ itself: the spread over the gain, for each round."""

    def sources(self, nodes: IntArray, t: IntArray) -> list[Source]:
        """The unit noises of which the noise of each pair (node, round) is made, in units of its scale."""

    def event(self, node: int, plain: GaussianEvent) -> Event:
        """What a node must account for, given what it would be for independent Gaussian noise of its σ_i."""


@dataclass(frozen=True)
class Gaussian:
    """N(0, σ_i² I), independent."""

    secrets: ClassVar[bool] = False
    unit: ClassVar[str] = "gaussian"

    def draw(self, streams: Streams, nodes: IntArray, t: IntArray, m: int, sigma: tuple[float, ...]) -> Array:
        """Fresh normals."""
        scales = np.take(sigma, nodes)
        if not np.any(scales):
            return np.zeros((len(nodes), m))
        return scales[:, None] * streams.normals(nodes, t, m)

    def share(self, t: IntArray) -> Array:
        """σ, always."""
        return np.ones(len(t))

    def sources(self, nodes: IntArray, t: IntArray) -> list[Source]:
        """One, a node's own."""
        return [_own(nodes, t)]

    def event(self, node: int, plain: GaussianEvent) -> Event:
        """As it is."""
        return plain


def _own(nodes: IntArray, t: IntArray) -> Source:
    """A unit noise of its own for each pair (node, round)."""
    return Source(np.arange(len(nodes)), nodes, t, np.ones(len(nodes)))


@dataclass(frozen=True, eq=False)
class Shaped:
    """gain_t ĝ_i + N(0, (spread_t σ_i)² I) in round t; both sequences are public and fixed before the run."""

    gain: Array
    spread: Array
    secrets: ClassVar[bool] = False
    unit: ClassVar[str] = "gaussian"

    def draw(self, streams: Streams, nodes: IntArray, t: IntArray, m: int, sigma: tuple[float, ...]) -> Array:
        """Normals times the round's spread."""
        return self.spread[np.asarray(t) - 1][:, None] * Gaussian().draw(streams, nodes, t, m, sigma)

    def share(self, t: IntArray) -> Array:
        """Of gain·(ĝ + share·ν): the gain is public, and may be taken afterwards."""
        return np.asarray((self.spread / self.gain)[np.asarray(t) - 1])

    def sources(self, nodes: IntArray, t: IntArray) -> list[Source]:
        """One, a node's own."""
        return [_own(nodes, t)]

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
    unit: ClassVar[str] = "laplace"

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
    unit: ClassVar[str] = "gaussian"

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

    def share(self, t: IntArray) -> Array:
        """σ, always."""
        return np.ones(len(t))

    def sources(self, nodes: IntArray, t: IntArray) -> list[Source]:
        """A node's own, and one for each link, which is of the other sign at its other end.

        All nodes take one ratio, brought to 26 bits upwards: more of what cancels hides no less.
        """
        ratio = float(rounded_up(np.array([self.ratio]))[0])
        mine: list[list[tuple[int, float]]] = [[] for _ in range(self.n)]
        for e, (i, j) in enumerate(self.pairs.tolist()):
            mine[i].append((e, ratio))
            mine[j].append((e, -ratio))
        found = [_own(nodes, t)]
        degrees = np.array([len(links) for links in mine])[nodes]
        for k in range(int(degrees.max(initial=0))):
            rows = np.flatnonzero(degrees > k)
            links, factors = zip(*(mine[i][k] for i in nodes[rows].tolist()), strict=True)
            found.append(Source(rows, np.array(links), np.asarray(t)[rows], np.array(factors), shared=True))
        return found

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
    unit: ClassVar[str] = "gaussian"

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

    def share(self, t: IntArray) -> Array:
        """σ, always."""
        return np.ones(len(t))

    def sources(self, nodes: IntArray, t: IntArray) -> list[Source]:
        """The tree nodes in which the prefix of round t differs from the one before.

        Of s = …1000 that is the node of its last 1, added, and those of the ones of s − 1 = …0111 below it, taken away.
        """
        t = np.asarray(t)
        first = (t - 1) // self.batches * self.batches
        s = t - first
        last = np.bitwise_count((s & -s) - 1).astype(np.int64)  # how many zeros s ends with
        found = []
        for level in range(int(last.max(initial=-1)) + 1):
            rows = np.flatnonzero(last >= level)
            new = last[rows] == level
            ends = np.where(new, s[rows], (s[rows] - 1) >> level << level)
            factors = np.where(new, 1.0, -1.0)
            found.append(Source(rows, np.full(len(rows), level), first[rows] + ends, factors))
        return found

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


NodeTurns = Callable[[int], IntArray]
"""Node i -> the rounds in which it spoke: `Schedule.turns`."""


@dataclass(frozen=True)
class Release:
    """What every node lets out, and against whom.

    Attributes
    ----------
    sampling : how the records of a round are picked
    clip : L, the norm to which every record's subgradient is clipped
    sigma : σ_i, one for each node; zeros for no noise, which protects nobody
    adversary : who is watching
    law : how the noise is made from σ
    """

    sampling: Sampling
    clip: float
    sigma: tuple[float, ...]
    adversary: Adversary
    law: Law = field(default_factory=Gaussian)

    def __post_init__(self) -> None:
        """A bound that is no bound, and a negative noise, are errors."""
        if not 0 < self.clip < math.inf:
            raise PrivacyError(
                f"the bound on one record's subgradient must be finite and over 0, not {self.clip}; "
                "give a clip, or take a loss with a bounded slope"
            )
        if not all(0 <= s < math.inf for s in self.sigma):
            raise PrivacyError(f"noise scales must be finite and not negative, not {min(self.sigma)}")

    def records(self, streams: Streams, nodes: IntArray, t: IntArray, sizes: IntArray) -> list[IntArray | None]:
        """The records that each node uses in its round, for each pair (node, round)."""
        stretch = self.sampling.stretch
        ready = streams.uniforms(nodes, t, 0, stretch) if stretch else None

        def uniforms(pair: int, first: int, count: int) -> Array:
            if ready is not None and first + count <= stretch:
                return ready[pair, first : first + count]
            return streams.uniforms(nodes[pair : pair + 1], t[pair : pair + 1], first, count)[0]

        return [self.sampling.draw(partial(uniforms, p), int(sizes[i]), int(t[p])) for p, i in enumerate(nodes)]

    def noise(self, streams: Streams, nodes: IntArray, t: IntArray, m: int) -> Array:
        """ν, a row for each pair (node, round)."""
        return self.law.draw(streams, nodes, t, m, self.sigma)

    def event(self, node: int, records: int, rounds: int, turns: Turns | None = None) -> Event:
        """What node i must account for after `rounds` rounds of speaking: those of `turns`, where that is known."""
        return self.law.event(node, self.sampling.event(records, self.clip, self.sigma[node], rounds, turns))

    def events(self, sizes: IntArray, spoken: IntArray, turns: NodeTurns | None = None) -> list[Event]:
        """The same of every node, of which `spoken` says how often and `turns` when."""
        return [
            self.event(i, int(q), int(spoken[i]), None if turns is None else partial(turns, i))
            for i, q in enumerate(sizes)
        ]


@dataclass(frozen=True)
class Draws:
    """The randomness of a run, as an engine asks for it; a test may put its own in its place."""

    release: Release
    streams: Streams
    sizes: IntArray
    m: int

    def records(self, nodes: IntArray, t: IntArray) -> list[IntArray | None]:
        """Which records."""
        return self.release.records(self.streams, nodes, t, self.sizes)

    def noise(self, nodes: IntArray, t: IntArray) -> Array:
        """Which noise."""
        return self.release.noise(self.streams, nodes, t, self.m)
