"""The schedule of a run: for every round who is active and with which weights, as flat arrays.

Drawn once, before the run, without looking at data; every engine and every node reads the same one, and the privacy
accounting counts K_i in it. An engine needs no callback: the active nodes of all rounds lie end to end, and each
round points at one of a few small matrices over its active nodes. To have few, the nodes of a round are listed by
the shape of its links and not by their ids: all one-link rounds share [[½, ½], [½, ½]]. Where the same nodes are
active in every round, they are listed once (`Steady`); and where a round has very many, its weights are no matrix
(`wide`): a schedule of n nodes takes memory for n numbers and the links, not for n² or T·n.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array, IntArray
from sottovoce.errors import NetworkError
from sottovoce.network.activation import Activation
from sottovoce.network.graphs import WIDE, Graph
from sottovoce.network.mixing import (
    GOSSIP,
    Averaging,
    Exchange,
    Rule,
    Weights,
    check_doubly_stochastic,
    listed,
    wide,
)
from sottovoce.network.wide import Wide

MEMORY = 1 << 30  # bytes of distinct weight matrices beyond which a schedule is refused

Compact: TypeAlias = NDArray[np.int32]
"""Node ids and pattern numbers: millions of them, and never large."""

_ODD = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9], dtype=np.uint64)  # multipliers of a mixing hash
_LISTED = np.uint64(np.iinfo(np.uint64).max)


@dataclass(frozen=True, eq=False)
class Schedule:
    """T rounds on n nodes; rounds count from 1.

    Attributes
    ----------
    n : number of nodes
    starts : (T + 1,) round t has the places starts[t − 1] … starts[t] − 1 of `active`
    active : ids of the active nodes, round after round
    pattern : (T,) which of the patterns a round uses
    patterns : distinct doubly stochastic matrices over the active nodes of a round, in the order listed
    speakers : how many of the active nodes of a round, the first ones, take a gradient; the others only listen and
        pass on. 0 stands for all of them.
    averaging : what is done with the messages of a round, over the links of its pattern
    """

    n: int
    starts: IntArray
    active: Compact
    pattern: Compact
    patterns: tuple[Weights, ...]
    speakers: int = 0
    averaging: Averaging = GOSSIP

    @property
    def T(self) -> int:
        """Number of rounds."""
        return len(self.pattern)

    @property
    def large_n(self) -> bool:
        """Whether a round has more nodes than a matrix is made for."""
        return any(isinstance(W, Wide) for W in self.patterns)

    @cached_property
    def mixes(self) -> bool:
        """Whether anybody ever hears of anybody else."""
        return bool(np.any(self._traffic[np.unique(self.pattern)]))

    def spaced(self, every: int) -> "Schedule":
        """The same rounds, with messages in every so many-th only: in between, the active nodes step alone."""
        if not isinstance(every, int) or every < 1:
            raise NetworkError(f"nodes mix in every k-th round, k a whole number over 0, not {every!r}")
        if every == 1:
            return self
        sizes = np.array([len(W) for W in self.patterns])
        distinct, size = np.unique(sizes, return_inverse=True)
        quiet = np.arange(1, self.T + 1) % every != 0
        pattern = np.where(quiet, len(sizes) + size[self.pattern], self.pattern).astype(np.int32)
        return self._with(pattern, (*self.patterns, *map(_identity, distinct.tolist())))

    def _with(self, pattern: Compact, patterns: tuple[Weights, ...]) -> "Schedule":
        """The same active nodes, other weights."""
        return replace(self, pattern=pattern, patterns=patterns)

    def _place(self, t: int) -> int:
        if not 1 <= t <= self.T:
            raise NetworkError(f"there is no round {t}; rounds count from 1 to {self.T}")
        return t - 1

    def nodes(self, t: int) -> Compact:
        """The active nodes of round t, in the order of its weights."""
        at = self._place(t)
        return self.active[self.starts[at] : self.starts[at + 1]]

    def listed(self, first: int, last: int) -> Compact:
        """The active nodes of rounds first … last, end to end."""
        return self.active[self.starts[first - 1] : self.starts[last]]

    def weights(self, t: int) -> Weights:
        """W of one exchange over the active nodes of round t."""
        return self.patterns[self.pattern[self._place(t)]]

    @cached_property
    def mixtures(self) -> tuple[Weights, ...]:
        """Of each pattern, the matrix that all exchanges of a round come to (where nothing is cut)."""
        return tuple(map(self.averaging.weights, self.patterns))

    def mix(self, t: int, messages: Array, unit: float = 1.0) -> Array:
        """What the active nodes of round t make of their messages; `unit` is how much one ζ weighs in them."""
        return self.averaging.mix(self.weights(t), messages, unit)

    def exchanges(self, t: int, i: int) -> tuple[Exchange, ...]:
        """What node i does in round t, one exchange after the other; nothing where it hears of nobody.

        Examples
        --------
        >>> from sottovoce.network.averaging import Exact
        >>> run = Schedule(3, np.array([0, 3]), np.arange(3), np.zeros(1, int), (np.full((3, 3), 1 / 3),), 0, Exact())
        >>> [(e.to, e.heard) for e in run.exchanges(1, 0)]  # is handed the third's, averages, hands the mean back
        [((), (2,)), ((1,), (1,)), ((2,), ())]
        """
        nodes = self.nodes(t).tolist()
        if i not in nodes:
            return ()
        at = int(self.pattern[t - 1]), nodes.index(i)
        if at not in self._plans:
            self._plans[at] = self.averaging.exchanges(self.patterns[at[0]], at[1])
        return tuple(exchange.named(nodes) for exchange in self._plans[at])

    @cached_property
    def _plans(self) -> dict[tuple[int, int], tuple[Exchange, ...]]:
        """Of each place in each pattern, once it was requested."""
        return {}

    def peers(self, t: int, i: int) -> tuple[IntArray, Array]:
        """Whose messages node i needs in round t, its own among them, and w_ij of each; an idle node keeps its own."""
        if not 0 <= i < self.n:
            raise NetworkError(f"there is no node {i}; nodes are numbered 0 to {self.n - 1}")
        nodes = self.nodes(t)
        row = np.flatnonzero(nodes == i)
        if not len(row):
            return np.array([i]), np.ones(1)
        W = self.weights(t)
        if isinstance(W, Wide):
            places, w = W.row(int(row[0]))
            return nodes[places].astype(np.int64), w
        w = W[row[0]]
        return nodes[w > 0].astype(np.int64), w[w > 0]

    def matrix(self, t: int) -> Array:
        """What round t comes to over all nodes: the identity outside the active set."""
        nodes, W = self.nodes(t), np.eye(self.n)
        W[np.ix_(nodes, nodes)] = listed(self.mixtures[self.pattern[self._place(t)]])
        return W

    def speaks(self, first: int, last: int) -> NDArray[np.bool_]:
        """Which of the active nodes of rounds first … last, listed end to end, take a gradient."""
        starts = self.starts[first - 1 : last + 1]
        if not self.speakers:
            return np.ones(int(starts[-1] - starts[0]), dtype=np.bool_)
        place = np.arange(starts[0], starts[-1]) - np.repeat(starts[:-1], np.diff(starts))
        return place < self.speakers

    def speaks_in(self, t: int, i: int) -> bool:
        """Whether node i takes a gradient in round t."""
        nodes = self.nodes(t)
        return i in nodes[: self.speakers or len(nodes)].tolist()

    def participations(self, t: int | None = None) -> IntArray:
        """(n,) K_i, in how many rounds each node took a gradient, up to round t; of all rounds by default."""
        return self._spoken.copy() if t is None else self._spoken_by(self._place(t) + 1)

    @cached_property
    def _spoken(self) -> IntArray:
        return self._spoken_by(self.T)

    def _spoken_by(self, stop: int) -> IntArray:
        active = self.active[: self.starts[stop]]
        return np.bincount(active[self.speaks(1, stop)] if self.speakers else active, minlength=self.n)

    def turns(self, i: int) -> IntArray:
        """The rounds in which node i takes a gradient."""
        places = np.flatnonzero(self.active == i)
        if self.speakers:
            places = places[self.speaks(1, self.T)[places]]
        return np.searchsorted(self.starts, places, side="right")

    @cached_property
    def _traffic(self) -> IntArray:
        """Messages of each pattern."""
        return np.array([self.averaging.messages(W) for W in self.patterns], dtype=np.int64)

    def messages(self, t: int) -> int:
        """How many messages cross a link in round t; in gossip, i ≠ j with w_ij > 0, for each exchange."""
        return int(self._traffic[self.pattern[self._place(t)]])

    def depth(self, t: int | None = None) -> int:
        """How many exchanges were waited for, sequentially, by the end of round t; of all rounds by default."""
        stop = self.T if t is None else self._place(t) + 1
        deep = np.array([self.averaging.depth(W) for W in self.patterns], dtype=np.int64)
        return int(np.bincount(self.pattern[:stop], minlength=len(deep)) @ deep)

    def sent(self, t: int | None = None) -> int:
        """Messages sent by the end of round t; of all rounds by default."""
        stop = self.T if t is None else self._place(t) + 1
        return int(np.bincount(self.pattern[:stop], minlength=len(self.patterns)) @ self._traffic)

    def up_to(self, t: int | None = None) -> IntArray:
        """(t,) messages sent by the end of rounds 1, 2, …, t; of all rounds by default."""
        stop = self.T if t is None else self._place(t) + 1
        return np.cumsum(self._traffic[self.pattern[:stop]])

    def check(self) -> None:
        """Refuse a schedule that no run could follow."""
        for W in self.patterns:
            _check(W)
            self.averaging.refuse(W)
        counts, sizes = np.diff(self.starts), np.array([len(W) for W in self.patterns])
        if len(counts) != self.T or self.T == 0 or self.starts[0] != 0 or self.starts[-1] != len(self.active):
            raise NetworkError("the schedule's starts do not fit its rounds and active nodes; draw it anew")
        if np.any((self.pattern < 0) | (self.pattern >= len(sizes))) or np.any(sizes[self.pattern] != counts):
            raise NetworkError("a round's weights do not fit its number of active nodes; draw the schedule anew")
        if np.any((self.active < 0) | (self.active >= self.n)):
            raise NetworkError(f"the schedule names nodes outside 0 to {self.n - 1}; draw it anew for these nodes")
        if len(np.unique(np.repeat(np.arange(self.T) * self.n, counts) + self.active)) != len(self.active):
            raise NetworkError("a round of the schedule names a node twice; draw the schedule anew")


class Steady(Schedule):
    """A schedule with the same nodes in every round, stored once.

    Attributes
    ----------
    members : who is active in every round, in the order of its weights

    Examples
    --------
    >>> run = Steady(3, np.arange(3, dtype=np.int32), np.zeros(4, np.int32), (np.full((3, 3), 1 / 3),))
    >>> run.T, run.active.tolist(), run.participations(2).tolist(), run.turns(1).tolist()
    (4, [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2], [2, 2, 2], [1, 2, 3, 4])
    """

    def __init__(
        self,
        n: int,
        members: Compact,
        pattern: Compact,
        patterns: tuple[Weights, ...],
        averaging: Averaging = GOSSIP,
    ) -> None:
        self.members: Compact
        made = {"n": n, "members": members, "pattern": pattern, "patterns": patterns, "averaging": averaging}
        for name, value in made.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "starts", np.arange(len(pattern) + 1) * len(members))
        object.__setattr__(self, "speakers", 0)

    @cached_property
    def active(self) -> Compact:
        """End to end, round after round."""
        return np.tile(self.members, self.T)

    def _with(self, pattern: Compact, patterns: tuple[Weights, ...]) -> Schedule:
        return Steady(self.n, self.members, pattern, patterns, self.averaging)

    def nodes(self, t: int) -> Compact:
        """The same in every round."""
        self._place(t)
        return self.members

    def listed(self, first: int, last: int) -> Compact:
        """As often as there are rounds."""
        return np.tile(self.members, last - first + 1)

    def participations(self, t: int | None = None) -> IntArray:
        """All of them."""
        stop = self.T if t is None else self._place(t) + 1
        return np.bincount(self.members, minlength=self.n) * stop

    def turns(self, i: int) -> IntArray:
        """All of them."""
        return np.arange(1, self.T + 1) if np.any(self.members == i) else np.empty(0, dtype=np.int64)


def _identity(k: int) -> Weights:
    return np.eye(k) if k <= WIDE else Wide(k, np.arange(k + 1), np.arange(k), np.ones(k))


def _check(W: Weights) -> None:
    if isinstance(W, Wide):
        W.check()
    else:
        check_doubly_stochastic(W)


def draw_schedule(
    graph: Graph,
    activation: Activation,
    rule: Rule,
    rounds: int,
    rng: np.random.Generator,
    averaging: Averaging = GOSSIP,
) -> Schedule:
    """Draw who is active in each round, and put the weights of that round's links on them.

    Every distinct pattern is checked to be doubly stochastic. From the same generator a longer schedule begins with
    the rounds of a shorter one.

    Examples
    --------
    >>> from sottovoce.network.activation import Edges
    >>> from sottovoce.network.graphs import GRAPHS
    >>> from sottovoce.network.mixing import METROPOLIS
    >>> run = draw_schedule(GRAPHS.read("complete")(20), Edges(1), METROPOLIS, 1000, np.random.default_rng(1))
    >>> run.T, len(run.patterns), int(run.participations().sum()), int(run.up_to()[-1])
    (1000, 1, 2000, 2000)
    >>> run.weights(1)
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    averaging.check(graph, rule.name)
    choice = activation.draw(graph, rounds, rng)
    if activation.count(graph) == 1:  # the same round for ever: keep the nodes' own order
        always, W = _only(graph, activation, rule, choice[:1])
        averaging.refuse(W)
        same = np.zeros(rounds, dtype=np.int32)
        if not activation.speakers:
            return Steady(graph.n, always, same, (W,), averaging)
        starts = np.arange(rounds + 1) * len(always)
        return Schedule(graph.n, starts, np.tile(always, rounds), same, (W,), activation.speakers, averaging)
    if activation.width(graph) > WIDE:
        return _draw_wide(graph, activation, rule, choice, averaging)
    known: dict[bytes, int] = {}
    patterns: list[Array] = []
    active, numbers = [], []
    sizes: list[IntArray] = []
    room, last = MEMORY, np.empty(0, dtype=np.bool_)
    which: Compact = np.empty(0, dtype=np.int32)  # of a block's rounds: their patterns, and orders of their nodes
    order: IntArray = np.empty((0, 0), dtype=np.int64)
    for nodes, links in activation.spread(graph, choice):
        counts = np.count_nonzero(nodes >= 0, axis=1)
        if not (np.array_equal(links, last) and np.array_equal(counts, sizes[-1])):  # matchings are all the same
            first, shape = _distinct(links, counts)
            order = _listing(links[first], counts[first])
            if activation.speakers:  # who speaks is determined by the order
                order = np.broadcast_to(np.arange(links.shape[1]), order.shape)
            number = np.empty(len(first), dtype=np.int32)
            for at, (row, place) in enumerate(zip(first.tolist(), order, strict=True)):
                k = int(counts[row])
                drawn = links[row][np.ix_(place[:k], place[:k])]
                key = k.to_bytes(4, "little") + np.packbits(drawn).tobytes()
                if key not in known:
                    known[key] = len(patterns)
                    patterns.append(rule(drawn))
                    check_doubly_stochastic(patterns[-1])
                    averaging.refuse(patterns[-1])
                    room -= patterns[-1].nbytes
                    if room < 0:
                        raise _too_many(graph, activation, len(patterns))
                number[at] = known[key]
            last, which, order = links, number[shape], order[shape]
        listed = np.take_along_axis(nodes, order, axis=1)
        active.append(listed[listed >= 0].astype(np.int32))
        sizes.append(counts)
        numbers.append(which)
    starts = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    flat = np.concatenate(active), np.concatenate(numbers)
    return Schedule(graph.n, starts, *flat, tuple(patterns), activation.speakers, averaging)


def _only(graph: Graph, activation: Activation, rule: Rule, choice: IntArray) -> tuple[Compact, Weights]:
    """Who is active in every round, and with which weights."""
    if activation.width(graph) > WIDE:
        who, ends = activation.spelled(graph, choice[0])
        return who.astype(np.int32), wide(rule, len(who), ends)
    nodes, links = next(iter(activation.spread(graph, choice)))
    width = int(np.count_nonzero(nodes >= 0))
    W = rule(links[0, :width, :width])
    check_doubly_stochastic(W)
    return nodes[0, :width].astype(np.int32), W


def _draw_wide(graph: Graph, activation: Activation, rule: Rule, choice: IntArray, averaging: Averaging) -> Schedule:
    """Rounds of very many nodes, one by one; those whose places are linked in the same way share their weights."""
    known: dict[tuple[int, bytes], int] = {}
    patterns: list[Weights] = []
    active: list[Compact] = []
    numbers, room = [], MEMORY
    for row in choice:
        nodes, ends = activation.spelled(graph, row)
        key = len(nodes), b"" if ends is None else ends.tobytes()
        if key not in known:
            known[key] = len(patterns)
            W = wide(rule, len(nodes), ends)
            averaging.refuse(W)
            patterns.append(W)
            room -= W.nbytes + len(key[1])
            if room < 0:
                raise _too_many(graph, activation, len(patterns))
        active.append(nodes.astype(np.int32))
        numbers.append(known[key])
    starts = np.concatenate([[0], np.cumsum([len(nodes) for nodes in active])])
    pattern = np.array(numbers, dtype=np.int32)
    return Schedule(graph.n, starts, np.concatenate(active), pattern, tuple(patterns), activation.speakers, averaging)


def _too_many(graph: Graph, activation: Activation, found: int) -> NetworkError:
    return NetworkError(
        f"'{activation}' gives over {found:,} different weight matrices on graph '{graph.name}', more than fit in "
        f"{MEMORY >> 30} GB; choose fewer active nodes or rounds"
    )


def _distinct(links: NDArray[np.bool_], counts: IntArray) -> tuple[IntArray, IntArray]:
    """Distinct link matrices of a block: where each occurs first, and which of them each round has."""
    K = links.shape[1]
    upper = links[(slice(None), *np.triu_indices(K, 1))]
    bits = np.concatenate([counts.astype("<u4")[:, None].view(np.uint8), np.packbits(upper, axis=1)], axis=1)
    bits = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8)))
    words = np.ascontiguousarray(bits).view(np.uint64)
    rows = words[:, 0] if words.shape[1] == 1 else words.view([("", np.uint64)] * words.shape[1])[:, 0]
    _, first, shape = np.unique(rows, return_index=True, return_inverse=True)
    return first, shape


def _listing(links: NDArray[np.bool_], counts: IntArray) -> IntArray:
    """An order of the nodes of each round (R, K) that depends on the shape of its links, hardly on their ids.

    Breadth first, from a node of the fewest links; among the candidates, by a color that has seen three links far.
    Whatever ties remain cost a second copy of a pattern, never a wrong one.
    """
    rounds, K, _ = links.shape
    A = links.astype(np.uint64)
    degree = np.sum(A, axis=2)
    color = degree.copy()
    for _ in range(3):  # color refinement; the arithmetic wraps on purpose
        spread = (color * _ODD[0]) ^ (color >> np.uint64(29))
        color = spread * _ODD[1] + np.matmul(A, (spread * spread + _ODD[0])[:, :, None])[:, :, 0]
    late = np.uint64(K) << np.uint64(48)  # nobody linked to this node has been listed yet
    rank = late + ((degree << np.uint64(32)) | (color >> np.uint64(32)))
    rank[np.arange(K) >= counts[:, None]] = _LISTED - np.uint64(1)  # empty places come last
    row, order = np.arange(rounds), np.empty((rounds, K), dtype=np.int64)
    for place in range(K):
        chosen = np.argmin(rank, axis=1)
        order[:, place] = chosen
        rank[row, chosen] = _LISTED
        met = links[row, chosen] & (rank >= late) & (rank < _LISTED)
        rank[met] -= late - (np.uint64(place) << np.uint64(48))
    return order
