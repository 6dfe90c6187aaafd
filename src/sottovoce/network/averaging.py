"""What becomes of the messages of a round: gossip, the exact mean, a mean that bounds what liars can do, fewer bits.

What an averaging is to everybody else, and plain gossip, stand in `mixing`; here are the others, and the table. All of
it is post-processing of what was released, by a public plan.

- `Gossip(k)`: z_i = Σ_j w_ij s_j, k times for every gradient: W^k. One exchange is the paper's.
- `Exact`: the mean of all that are active, as an all-reduce. With 2^d ≤ n < 2^(d+1), the n − 2^d others hand their
  value to a partner (fold). The 2^d average along one bit of their number after another (recursive doubling), and the
  partners hand the mean back (unfold). The depth is d, or d + 2 with fold and unfold; a node sends or receives at most
  d + 2 messages; every node ends with the same bits, and β = 0. What is seen on the way are means of releases. It takes
  links between any two nodes: a graph has no say in it.
- `Clipped(radius)`: z_i = s_i + Σ_j w_ij clip(s_j − s_i), each difference cut to a public length (He, Karimireddy and
  Jaggi 2022). The length is in units of a release: `radius` times what one ζ weighs in a message of the round, a_t or
  η_t. *What it bounds*: with everything else the same, liars move node i in a round by at most 2·radius·Σ w_ij over
  the liars, whatever they say, and by half of that from where it would be had they kept silent. While W is symmetric
  the mean stays what it was, and where nothing is longer than the radius it is gossip.
- `Trimmed(f)`: of the values heard, its own among them, a node drops the f largest and the f smallest in each
  coordinate and takes the mean of the rest (Yin, Chen, Ramchandran and Bartlett 2018). *What it bounds*: with at most f
  liars among them, each coordinate stays between the least and the largest that honest nodes have sent. The mean of all
  is not kept: the rest is biased wherever values are skewed, and a node heard less often than others counts less.

- `Quantized(bits)`: z_i = s_i + Σ_j w_ij (Q(s_j) − Q(s_i)), where Q rounds a message to so many bits a coordinate: to
  the nearest of 2^bits − 1 equally spaced values between ± its largest coordinate, which is sent along. Each node
  knows its own s_i whole. While W is symmetric the sum of all states is kept, whatever Q does; each coordinate of Q(s)
  is off by at most max|s|/(2^bits − 2). Nothing is remembered from round to round, and Q draws no random numbers.

The last three are no doubly stochastic matrices; β and all that stands on it are then those of W, of a run in which
nothing is cut or rounded. A lie that is no longer than honest noise cannot be distinguished from it: see
docs/algorithms.md.

Adding one: a class like those below, and a row of `AVERAGINGS`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sottovoce._types import FLOAT_BYTES, Array
from sottovoce.errors import NetworkError
from sottovoce.network.graphs import Graph
from sottovoce.network.mixing import Averaging, Exchange, Gossip, Weights, linked, listed, whole, with_all
from sottovoce.network.wide import Wide
from sottovoce.registry import Choices, write

MOST_BITS = 32
"""Of a coordinate of a rounded message."""


@dataclass(frozen=True)
class Exact(Averaging):
    """The mean of all active nodes, by fold, recursive doubling and unfold.

    Examples
    --------
    >>> Exact().weights(np.array([[0.75, 0.25], [0.25, 0.75]])).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    >>> ring = np.eye(5) / 3 + (np.eye(5, k=1) + np.eye(5, k=-1) + np.eye(5, k=4) + np.eye(5, k=-4)) / 3
    >>> Exact().mix(ring, np.arange(5.0)[:, None]).ravel().tolist()
    [2.0, 2.0, 2.0, 2.0, 2.0]
    >>> [(e.to, e.heard) for e in Exact().exchanges(ring, 4)]  # hands over, waits for two exchanges, is handed the mean
    [((0,), ()), ((), ()), ((), ()), ((), (0,))]
    """

    bears_gaps: ClassVar[bool] = False

    def __str__(self) -> str:
        return "exact"

    def check(self, graph: Graph, rule: str) -> None:
        """It has links and weights of its own."""
        if not graph.is_complete and graph.n > 1:
            raise NetworkError(
                f"an exact mean is made over links between any two nodes, so that graph '{graph.name}' has no say "
                "in it; leave the graph out (complete), or take several exchanges over its links, as with 'gossip(5)'"
            )
        if rule == "alone":
            raise NetworkError("with weights 'alone' nobody hears of anybody: there is no exact mean; leave them out")

    def weights(self, W: Weights) -> Weights:
        """The same share of everybody's who is linked."""
        if isinstance(W, Wide):
            return _means(W)
        on = linked(W).astype(np.float64)
        count = np.maximum(np.sum(on, axis=-1), 1.0)[..., None, None]
        return on[..., :, None] * on[..., None, :] / count + np.eye(W.shape[-1]) * (1.0 - on[..., None])

    def mix(self, W: Weights, messages: Array, unit: float = 1.0) -> Array:
        """The mean of those who are linked, as a real network sums it: all get the same bits."""
        who = np.flatnonzero(linked(W))
        if len(who) == len(messages):
            return all_reduced(messages)
        mixed = messages.copy()
        if len(who):
            mixed[who] = all_reduced(messages[who])
        return mixed

    def exchanges(self, W: Weights, place: int) -> tuple[Exchange, ...]:
        """Fold, double, unfold; where a node has nothing to do, it waits."""
        who = np.flatnonzero(linked(W))
        at = np.flatnonzero(who == place)
        return tuple(e.named(who.tolist()) for e in all_reduce(len(who), int(at[0]))) if len(at) else ()

    def messages(self, W: Weights) -> int:
        """One on each link of the fold, of each doubling in both directions, of the unfold."""
        n = int(np.count_nonzero(linked(W)))
        d, core = _doublings(n)
        return d * core + 2 * (n - core)

    def pace(self, second: float) -> float:
        """At once."""
        return 0.0

    def depth(self, W: Weights) -> int:
        """d, and two more unless the nodes are a power of two."""
        n = int(np.count_nonzero(linked(W)))
        d, core = _doublings(n)
        return d + 2 * (n > core)


def _means(W: Wide) -> Wide:
    """The mean of very many nodes; where some are linked to nobody, the room for a matrix of it is not there."""
    if not np.any(W.linked):
        return W
    if not np.all(W.linked):
        raise NetworkError(
            f"an exact mean of some of {W.n:,} nodes, with others linked to nobody, is not made; let everyone speak"
        )
    return Wide(W.n, np.zeros(W.n + 1, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0), 1.0 / W.n)


def _doublings(n: int) -> tuple[int, int]:
    """d and 2^d ≤ n < 2^(d+1); none for nobody."""
    return (n.bit_length() - 1, 1 << (n.bit_length() - 1)) if n else (0, 0)


def all_reduce(n: int, i: int) -> tuple[Exchange, ...]:
    """What node i of n does for the mean of all: hands over, averages along one bit after another, is handed the mean.

    Values are scaled in the fold, by 2^d/n, so that nothing on the way is much longer than a message.
    """
    d, core = _doublings(n)
    extra, share = n - core, core / n
    steps = [Exchange((), (), {i: 1.0})] * (d + 2 * (extra > 0))
    first = 1 if extra else 0
    if i >= core:
        steps[0] = Exchange((i - core,), (), {i: 1.0})
        steps[-1] = Exchange((), (i - core,), {i - core: 1.0})
        return tuple(steps)
    if extra:
        steps[0] = Exchange((), (i + core,), {i: share, i + core: share}) if i < extra else Exchange((), (), {i: share})
        steps[-1] = Exchange((i + core,) if i < extra else (), (), {i: 1.0})
    for bit in range(d):
        other = i ^ (1 << bit)
        steps[first + bit] = Exchange((other,), (other,), {i: 0.5, other: 0.5})
    return tuple(steps)


def all_reduced(values: Array) -> Array:
    """The mean of the rows, in every row, rounded as nodes that follow `all_reduce` round it.

    After a doubling the two have the same bits, since ½a + ½b = ½b + ½a; so one of them goes on for both.

    Examples
    --------
    >>> all_reduced(np.array([[1.0], [2.0], [6.0]])).ravel().tolist()
    [3.0, 3.0, 3.0]
    """
    n = len(values)
    d, core = _doublings(n)
    share = core / n
    held = share * values[:core] if n > core else values.astype(np.float64)
    held[: n - core] += share * values[core:]
    for _ in range(d):
        held = 0.5 * held[::2] + 0.5 * held[1::2]
    return np.repeat(held, n, axis=0)


@dataclass(frozen=True)
class Clipped(Averaging):
    """Gossip in which nobody pulls harder than a public length.

    Examples
    --------
    >>> Clipped(1.0).mix(np.full((2, 2), 0.5), np.array([[0.0], [100.0]])).ravel().tolist()
    [0.5, 99.5]
    """

    radius: float
    linear: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """A length."""
        if not 0 < self.radius < math.inf:
            raise NetworkError(f"differences are clipped to a finite length over 0, not {self.radius!r}")

    def __str__(self) -> str:
        return write("clipped", self.radius)

    def mix(self, W: Weights, messages: Array, unit: float = 1.0) -> Array:
        """Each row and what it makes of the others."""
        if isinstance(W, Wide):
            rows = [W.row(p) for p in range(len(messages))]
            return np.stack([self._pulled(w, messages[at], messages[p], unit) for p, (at, w) in enumerate(rows)])
        return np.stack([self._pulled(W[p], messages, own, unit) for p, own in enumerate(messages)])

    def _pulled(self, weights: Array, messages: Array, own: Array, unit: float) -> Array:
        apart = messages - own
        factors = weights * self._shares(apart, unit)
        return own + np.tensordot(factors, np.where(factors[:, None] > 0, apart, 0.0), axes=1)

    def _shares(self, apart: Array, unit: float) -> Array:
        """The factor on each difference; what is not finite counts as nothing."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            lengths = np.sqrt(np.sum(apart * apart, axis=tuple(range(1, apart.ndim))))
            shares = np.minimum(1.0, self.radius * unit / lengths)
        return np.where(np.isfinite(lengths), shares, 0.0)

    def exchanges(self, W: Weights, place: int) -> tuple[Exchange, ...]:
        """With all neighbors, once."""
        return (with_all(W, place),) if linked(W)[place] else ()

    def combine(self, me: int, exchange: Exchange, mine: Array, heard: Mapping[int, Array], unit: float = 1.0) -> Array:
        """One's own, and the clipped differences of those heard."""
        there = sorted(heard)
        weights = np.array([exchange.row[peer] for peer in there])
        values = np.stack([heard[peer][0] for peer in there]) if there else mine[:0]
        return self._pulled(weights, values, mine[0], unit)[None]


@dataclass(frozen=True)
class Trimmed(Averaging):
    """The mean of what is left when the f largest and the f smallest values of each coordinate are dropped.

    Examples
    --------
    >>> Trimmed(1).mix(np.full((4, 4), 0.25), np.array([[1.0], [2.0], [3.0], [1e9]])).ravel().tolist()
    [2.5, 2.5, 2.5, 2.5]
    """

    f: int = 1
    linear: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Liars are counted."""
        whole(self.f, 1, "how many values are trimmed at each end")

    def __str__(self) -> str:
        return write("trimmed", self.f)

    def refuse(self, W: Weights) -> None:
        """Something must be left: more than twice f values."""
        if isinstance(W, Wide):
            raise NetworkError(f"'{self}' of {W.n:,} nodes in one round is not made; choose clipped(radius), or gossip")
        heard = np.count_nonzero(W > 0, axis=-1) + (np.diagonal(W, axis1=-2, axis2=-1) == 0)
        few = linked(W) & (heard <= 2 * self.f)
        if np.any(few):
            raise NetworkError(
                f"'{self}' drops {2 * self.f} of a round's values, but a node has only {int(heard[few].min())} of "
                "them, its own among them; choose a smaller number, more links, or clipped(radius)"
            )

    def mix(self, W: Weights, messages: Array, unit: float = 1.0) -> Array:
        """Each row and what it makes of the others; those who hear the same make the same of it."""
        known: dict[bytes, Array] = {}
        mixed, W = [], listed(W)
        for p in range(len(messages)):
            hears = W[p] > 0
            hears[p] = True
            key = hears.tobytes()
            if key not in known:
                known[key] = self._middle(messages[hears])
            mixed.append(known[key])
        return np.stack(mixed)

    def _middle(self, values: Array) -> Array:
        """What is not a number counts as large."""
        f = self.f if len(values) > 2 * self.f else 0  # alone in this round, or left out by all: its own
        return np.mean(np.sort(values, axis=0)[f : len(values) - f], axis=0) if f else values[0]

    def exchanges(self, W: Weights, place: int) -> tuple[Exchange, ...]:
        """With all neighbors, once."""
        return (with_all(W, place),) if linked(W)[place] else ()

    def combine(self, me: int, exchange: Exchange, mine: Array, heard: Mapping[int, Array], unit: float = 1.0) -> Array:
        """The middle of all of them; one's own where too few were heard."""
        values = [mine[0], *(heard[peer][0] for peer in sorted(heard))]
        return self._middle(np.stack(values))[None]


@dataclass(frozen=True)
class Quantized(Averaging):
    """Gossip of messages that are rounded to some bits a coordinate.

    Examples
    --------
    >>> Quantized(2).mix(np.full((2, 2), 0.5), np.array([[1.0, 0.25], [-1.0, 0.75]])).tolist()
    [[0.0, 0.75], [0.0, 0.25]]
    >>> Quantized(4).message_bytes(100), Gossip().message_bytes(100)
    (58, 800)
    """

    bits: int = 8
    linear: ClassVar[bool] = False
    on_the_wire: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Three values at least, and fewer bits than a number has."""
        if not isinstance(self.bits, int) or not 2 <= self.bits <= MOST_BITS:
            raise NetworkError(f"a coordinate is rounded to 2 to {MOST_BITS} bits, not {self.bits!r}")

    def __str__(self) -> str:
        return write("quantized", self.bits)

    def rounded(self, messages: Array) -> Array:
        """Q of each row."""
        apart = messages.reshape(len(messages), -1)
        step = np.max(np.abs(apart), axis=1, initial=0.0, keepdims=True) / (2 ** (self.bits - 1) - 1)
        levels = np.rint(np.divide(apart, step, out=np.zeros_like(apart), where=step > 0))
        return np.asarray((levels * step).reshape(messages.shape))

    def mix(self, W: Weights, messages: Array, unit: float = 1.0) -> Array:
        """Each row, and by how much the others' rounded ones differ from its own."""
        known = self.rounded(messages)
        return messages + (W @ known - known)

    def exchanges(self, W: Weights, place: int) -> tuple[Exchange, ...]:
        """With all neighbors, once."""
        return (with_all(W, place),) if linked(W)[place] else ()

    def combine(self, me: int, exchange: Exchange, mine: Array, heard: Mapping[int, Array], unit: float = 1.0) -> Array:
        """One's own, and the rounded differences of those heard."""
        own, total = self.rounded(mine), mine.copy()
        for peer in sorted(heard):
            total += exchange.row[peer] * (self.rounded(heard[peer]) - own)
        return total

    def message_bytes(self, numbers: int) -> int:
        """The bits of all coordinates, and the largest one."""
        return -(-self.bits * numbers // 8) + FLOAT_BYTES


AVERAGINGS: Choices[Averaging] = Choices(
    "averaging",
    {"gossip": Gossip, "exact": Exact, "clipped": Clipped, "trimmed": Trimmed, "quantized": Quantized},
    NetworkError,
)
"""Every averaging by name.

Examples
--------
>>> AVERAGINGS.read("gossip") == AVERAGINGS.read("gossip(1)"), str(AVERAGINGS.read("clipped:0.5"))
(True, 'clipped(0.5)')
>>> AVERAGINGS.read("trimmed(0)")
Traceback (most recent call last):
sottovoce.errors.NetworkError: how many values are trimmed at each end is a whole number, at least 1, not 0
"""
