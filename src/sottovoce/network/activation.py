"""Who is active in a round: k random links, k disjoint links, k random nodes, everyone, or one at a tick.

An activation scheme is a uniform distribution over a finite set of outcomes, and an outcome a row of numbers: the links
chosen (rows of `Graph.edges`) or the nodes chosen. So a million rounds are one small integer array, and exact
probabilities are counts; the choosing and listing of subsets and matchings, many at a time, is at the end. No scheme
ever examines data: the privacy accounting relies on it.

ι_i = P(node i is active) is exact, always; where it cannot be had, that is an error. It is 2k/n for k random links
only when k = 1: two links may share a node.

A time-varying sequence of graphs that is fixed in advance is a scheme too (`Periodic`): nothing is drawn, and ι_i is
the share of its rounds. One of one's own is a class with `pairs`; one from a file is ``cycle(path)``.

Adding a scheme: a small class like those below, and one row of `ACTIVATIONS`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array, IntArray
from sottovoce.errors import NetworkError
from sottovoce.network.graphs import DIRECTED, WIDE, Graph, undirected
from sottovoce.registry import Choices, write

BLOCK = 1 << 20  # entries of stacked matrices worked on at a time: 8 MB of weights
ROUNDS = 1 << 16  # rounds drawn at a time
LONGEST = 1000
"""Rounds after which the same nodes speak again, at most."""
MOST = 1_000_000
"""Links of all rounds of a period, at most."""

Outcome = tuple[IntArray, NDArray[np.bool_]]
"""Of many rounds: active nodes (R, K), −1 where fewer than K are active, and the links among them (R, K, K)."""


class Activation(ABC):
    """A scheme, as data: what it is called, how likely each node is, and how to draw it."""

    by_links: ClassVar[bool] = False
    """Whether the numbers of an outcome are links (rows of `Graph.edges`) or nodes."""
    speakers: ClassVar[int] = 0
    """How many of the active nodes, the first ones, take a gradient; 0 for all."""
    tempered: ClassVar[bool] = False
    """Whether nodes that speak seldom count by √(1/ι_i), which costs no noise, where 1/ι_i is not requested."""

    @abstractmethod
    def width(self, graph: Graph) -> int:
        """K, the most nodes that can be active in one round; refuses a graph on which the scheme has no outcome."""

    @abstractmethod
    def iota(self, graph: Graph) -> Array:
        """(n,) the exact probability that each node is active in a round and takes a gradient."""

    @abstractmethod
    def count(self, graph: Graph) -> int | None:
        """How many equally likely outcomes there are; None where counting them is out of reach."""

    @abstractmethod
    def outcomes(self, graph: Graph) -> IntArray:
        """All outcomes, one a row; ask only where `count` is at most `LIMIT`."""

    @abstractmethod
    def typical(self, graph: Graph) -> IntArray | None:
        """On a complete graph: outcomes that stand for all up to renumbering; None if they are over `LIMIT`."""

    @abstractmethod
    def _draw(self, graph: Graph, rounds: int, rng: np.random.Generator) -> IntArray: ...

    def draw(self, graph: Graph, rounds: int, rng: np.random.Generator) -> IntArray:
        """Outcomes of independent rounds, one a row.

        Whole blocks are drawn and the last one is cut: a longer run begins with the rounds of a shorter one.
        """
        if rounds < 1:
            raise NetworkError(f"a run needs at least one round, not {rounds}; ask for more")
        size = min(ROUNDS, max(1, BLOCK // max(self.width(graph) ** 2, graph.n)))
        if self.count(graph) == 1:  # the same in every round: a view takes no memory
            return np.broadcast_to(only := self.outcomes(graph), (rounds, only.shape[1]))
        return np.concatenate([self._draw(graph, size, rng)[: rounds - at] for at in range(0, rounds, size)])

    def spread(self, graph: Graph, choice: IntArray) -> Iterator[Outcome]:
        """Spell outcomes out, a block of rounds at a time: who is active, and the links among them."""
        K = self.width(graph)
        size = max(1, BLOCK // K**2)
        for at in range(0, len(choice), size):
            rows = choice[at : at + size]
            yield _ends(graph, rows, K) if self.by_links else (rows, graph.linked(rows[:, :, None], rows[:, None, :]))

    def spelled(self, graph: Graph, outcome: IntArray) -> tuple[IntArray, IntArray | None]:
        """Of a round of very many nodes: who is active, and (E, 2) which of their places are linked; None for all."""
        if self.by_links:
            ends = graph.ends(outcome)
            nodes, first, place = np.unique(ends.ravel(), return_index=True, return_inverse=True)
            order = np.argsort(first)  # as the links name them
            rank = np.empty_like(order)
            rank[order] = np.arange(len(order))
            return nodes[order], rank[place].reshape(ends.shape)
        if graph.is_complete:
            return outcome, None
        place = np.full(graph.n, -1)
        place[outcome] = np.arange(len(outcome))
        ends = place[graph.edges]
        return outcome, ends[np.min(ends, axis=1) >= 0]


def _ends(graph: Graph, choice: IntArray, K: int) -> Outcome:
    """The nodes that the chosen links join, each once, in the order in which the links name them."""
    rounds, k = choice.shape
    ends = graph.ends(choice).reshape(rounds, 2 * k)
    first = np.argmax(ends[:, :, None] == ends[:, None, :], axis=2)  # where this node was named first
    new = first == np.arange(2 * k)
    label = np.take_along_axis(np.cumsum(new, axis=1) - 1, first, axis=1)
    row = np.arange(rounds)[:, None]
    nodes = np.full((rounds, K), -1, dtype=np.int64)
    nodes[row, label] = ends
    links = np.zeros((rounds, K, K), dtype=np.bool_)
    links[row, label[:, 0::2], label[:, 1::2]] = True
    return nodes, links | links.transpose(0, 2, 1)


@dataclass(frozen=True)
class Sized(Activation):
    """A scheme with a number: k links or k nodes."""

    k: int

    def __post_init__(self) -> None:
        """Refuse an idle round, and half a link."""
        if not isinstance(self.k, int):
            raise NetworkError(f"'{self}' needs a whole number of links or nodes, not {self.k!r}")
        if self.k < 1:
            raise NetworkError(f"'{self}' leaves every node idle; choose at least 1")

    def __str__(self) -> str:
        return write(type(self).__name__.lower(), self.k)


class Edges(Sized):
    """k distinct links, uniformly; their ends are active. The paper's scheme."""

    by_links = True

    def width(self, graph: Graph) -> int:
        """2k, or all nodes."""
        if self.k > graph.links:
            raise NetworkError(
                f"'{self}' needs {self.k} links, but graph '{graph.name}' has {graph.links}; choose fewer links"
            )
        return min(2 * self.k, graph.n)

    def iota(self, graph: Graph) -> Array:
        """1 − C(E − d_i, k)/C(E, k)."""
        self.width(graph)
        E, degrees = graph.links, graph.degrees
        by_degree = {d: 1.0 - math.comb(E - d, self.k) / math.comb(E, self.k) for d in set(degrees.tolist())}
        return np.array([by_degree[d] for d in degrees.tolist()])

    def count(self, graph: Graph) -> int:
        """C(E, k)."""
        return math.comb(graph.links, self.k)

    def outcomes(self, graph: Graph) -> IntArray:
        """All k-subsets of the links."""
        return all_subsets(graph.links, self.k)

    def typical(self, graph: Graph) -> IntArray | None:
        """Those with link 0: renumbering takes any link to any other, so it may be taken as one of the k."""
        E = graph.links
        if math.comb(E - 1, self.k - 1) > LIMIT:
            return None
        return np.insert(1 + all_subsets(E - 1, self.k - 1), 0, 0, axis=1)

    def _draw(self, graph: Graph, rounds: int, rng: np.random.Generator) -> IntArray:
        return subsets(graph.links, self.k, rounds, rng)


class Matching(Sized):
    """k links without a common node, uniform over all such choices; 2k nodes are active in every round."""

    by_links = True

    def width(self, graph: Graph) -> int:
        """2k."""
        if 2 * self.k > graph.n or (not graph.is_complete and self.count(graph) == 0):
            raise NetworkError(
                f"'{self}' needs {self.k} links without a common node, but graph '{graph.name}' with {graph.n} nodes "
                "does not have them; choose fewer links"
            )
        return 2 * self.k

    def iota(self, graph: Graph) -> Array:
        """2k/n where no node is special; else the share of the listed matchings that a node is in."""
        self.width(graph)
        if self.k == 1:
            return Edges(1).iota(graph)
        if graph.shift_invariant:
            return np.full(graph.n, 2 * self.k / graph.n)
        listed = None if graph.is_complete else matchings(graph, self.k)
        if listed is None:
            raise NetworkError(
                f"'{self}' has over {LIMIT:,} matchings on graph '{graph.name}', so that the nodes' exact activation "
                "probabilities are out of reach; choose fewer links, edges(k), or a complete graph, ring or torus"
            )
        return np.bincount(graph.edges[listed].ravel(), minlength=graph.n) / len(listed)

    def count(self, graph: Graph) -> int | None:
        """n!/((n − 2k)! k! 2^k) on a complete graph, if that is a number; elsewhere they are listed."""
        if graph.is_complete and graph.n > WIDE:
            return None
        if graph.is_complete:
            return math.perm(graph.n, 2 * self.k) // (math.factorial(self.k) * 2**self.k)
        listed = matchings(graph, self.k)
        return None if listed is None else len(listed)

    def outcomes(self, graph: Graph) -> IntArray:
        """All k-matchings."""
        listed = matchings(graph, self.k)
        assert listed is not None
        return listed

    def typical(self, graph: Graph) -> IntArray:
        """Any one of them."""
        return pair_index(graph.n, np.arange(2 * self.k).reshape(1, self.k, 2))

    def _draw(self, graph: Graph, rounds: int, rng: np.random.Generator) -> IntArray:
        choice = draw_matchings(graph, self.k, rounds, rng)
        if choice is None:
            raise NetworkError(
                f"'{self}' has too many matchings on graph '{graph.name}' to list, and fewer than {SLOWEST:g} of "
                "random choices of links are one; choose fewer links, or a complete graph"
            )
        return choice


class Nodes(Sized):
    """k distinct nodes, uniformly, and the graph's links among them; one without a link still steps, alone."""

    def width(self, graph: Graph) -> int:
        """k."""
        if self.k > graph.n:
            raise NetworkError(f"'{self}' needs {self.k} nodes, but there are {graph.n}; choose fewer nodes")
        return self.k

    def iota(self, graph: Graph) -> Array:
        """k/n."""
        return np.full(graph.n, self.width(graph) / graph.n)

    def count(self, graph: Graph) -> int:
        """C(n, k)."""
        return math.comb(graph.n, self.k)

    def outcomes(self, graph: Graph) -> IntArray:
        """All k-subsets of the nodes."""
        return all_subsets(graph.n, self.k)

    def typical(self, graph: Graph) -> IntArray:
        """Any one of them."""
        return np.arange(self.k)[None]

    def _draw(self, graph: Graph, rounds: int, rng: np.random.Generator) -> IntArray:
        return subsets(graph.n, self.k, rounds, rng)


@dataclass(frozen=True)
class Everyone(Activation):
    """All nodes, over all links, in every round: a fixed W."""

    def __str__(self) -> str:
        return "everyone"

    def width(self, graph: Graph) -> int:
        """n."""
        return graph.n

    def iota(self, graph: Graph) -> Array:
        """1."""
        return np.ones(graph.n)

    def count(self, graph: Graph) -> int:
        """One."""
        return 1

    def outcomes(self, graph: Graph) -> IntArray:
        """The one outcome."""
        return np.arange(graph.n)[None]

    def typical(self, graph: Graph) -> IntArray:
        """The one outcome."""
        return self.outcomes(graph)

    def _draw(self, graph: Graph, rounds: int, rng: np.random.Generator) -> IntArray:
        return np.broadcast_to(np.arange(graph.n), (rounds, graph.n))


@dataclass(frozen=True)
class Ticks(Activation):
    """One link and one of its ends, uniformly: that end takes a gradient, the other only averages with it.

    On a regular graph that is a uniform node and a uniform neighbor of it, as in asynchronous SGD.
    """

    speakers = 1

    def __str__(self) -> str:
        return "ticks"

    def width(self, graph: Graph) -> int:
        """Two."""
        return Edges(1).width(graph)

    def iota(self, graph: Graph) -> Array:
        """d_i/2E."""
        return Edges(1).iota(graph) / 2

    def spread(self, graph: Graph, choice: IntArray) -> Iterator[Outcome]:
        """Outcomes 2e and 2e + 1 are the two ways of link e."""
        for at in range(0, len(choice), BLOCK):
            rows = choice[at : at + BLOCK, 0]
            ends = graph.ends(rows // 2)
            nodes = np.where((rows % 2 == 1)[:, None], ends[:, ::-1], ends)
            yield nodes, np.broadcast_to(~np.eye(2, dtype=np.bool_), (len(rows), 2, 2))

    def count(self, graph: Graph) -> int:
        """2E."""
        return 2 * graph.links

    def outcomes(self, graph: Graph) -> IntArray:
        """Both ways of every link."""
        return np.arange(2 * graph.links)[:, None]

    def typical(self, graph: Graph) -> IntArray:
        """Any one of them."""
        return np.zeros((1, 1), dtype=np.int64)

    def _draw(self, graph: Graph, rounds: int, rng: np.random.Generator) -> IntArray:
        return rng.integers(2 * graph.links, size=(rounds, 1))


class Periodic(Activation):
    """A time-varying sequence of graphs, over and over: a plan that is public and the same in every run.

    A scheme of one's own says which links each round of a period has (`pairs`); nodes at their ends are active. Round
    t has those of number (t − 1) mod p. ι_i is the share of the p rounds in which node i is active, and β the rate of a
    whole period, ‖W_p ⋯ W_1 − 11ᵀ/n‖^(1/p): after fewer rounds nodes may agree less than β^t says.
    """

    by_links = True

    @abstractmethod
    def pairs(self, graph: Graph) -> list[IntArray]:
        """(E_t, 2) the links of each round of a period."""

    def width(self, graph: Graph) -> int:
        """The most nodes that a round's links join."""
        return max(len(np.unique(graph.ends(row))) for row in self.outcomes(graph))

    def iota(self, graph: Graph) -> Array:
        """Of the rounds of a period."""
        rows = self.outcomes(graph)
        active = np.zeros((len(rows), graph.n))
        for t, row in enumerate(rows):
            active[t, np.unique(graph.ends(row))] = 1.0
        return np.asarray(active.mean(axis=0))

    def count(self, graph: Graph) -> int:
        """p."""
        return len(self.outcomes(graph))

    def outcomes(self, graph: Graph) -> IntArray:
        """A row a round: its links' numbers, the last of them again where others have more."""
        rounds = [undirected(graph.n, pairs) for pairs in self.pairs(graph)]
        if not rounds or not all(len(pairs) for pairs in rounds):
            raise NetworkError(f"'{self}' has a round without links; give every round of a period at least one")
        for t, pairs in enumerate(rounds, 1):
            strange = np.flatnonzero(~graph.linked(pairs[:, 0], pairs[:, 1]))
            if strange.size:
                link = pairs[strange[0]].tolist()
                raise NetworkError(f"round {t} of '{self}' has the link {link}, which graph '{graph.name}' has not")
        numbers = [graph.numbers(pairs) for pairs in rounds]
        K = max(map(len, numbers))
        return np.stack([np.concatenate([row, np.repeat(row[-1:], K - len(row))]) for row in numbers])

    def typical(self, graph: Graph) -> IntArray:
        """All of them."""
        return self.outcomes(graph)

    def spelled(self, graph: Graph, outcome: IntArray) -> tuple[IntArray, IntArray | None]:
        """Each link once."""
        return super().spelled(graph, np.unique(outcome))

    def draw(self, graph: Graph, rounds: int, rng: np.random.Generator) -> IntArray:
        """Nothing is drawn."""
        return self._draw(graph, rounds, rng)

    def _draw(self, graph: Graph, rounds: int, rng: np.random.Generator) -> IntArray:
        rows = self.outcomes(graph)
        return rows[np.arange(rounds) % len(rows)]


@dataclass(frozen=True)
class Hypercube(Periodic):
    """Round t pairs node i with node i xor 2^((t − 1) mod d), of 2^d nodes: everybody's mean after d rounds.

    Examples
    --------
    >>> from sottovoce.network.graphs import GRAPHS
    >>> [pairs.tolist() for pairs in Hypercube().pairs(GRAPHS.read("complete")(4))]
    [[[0, 1], [2, 3]], [[0, 2], [1, 3]]]
    """

    def __str__(self) -> str:
        return "hypercube"

    def pairs(self, graph: Graph) -> list[IntArray]:
        """One for each bit of a node's number."""
        d, i = graph.n.bit_length() - 1, np.arange(graph.n)
        if graph.n < 2 or graph.n != 1 << d:
            raise NetworkError(f"'{self}' needs 2, 4, 8, … nodes, not {graph.n}; take another number or scheme")
        return [np.stack([i, i ^ (1 << bit)], axis=1)[(i >> bit) % 2 == 0] for bit in range(d)]


@dataclass(frozen=True)
class Cycle(Periodic):
    """The rounds of a file: a link a line, as "t i j", t from 1 to p; what follows a '#' is a comment."""

    path: str

    def __str__(self) -> str:
        return f"cycle({self.path})"

    def pairs(self, graph: Graph) -> list[IntArray]:
        """As they stand there."""
        try:
            lines = Path(self.path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise NetworkError(f"cannot read the rounds in '{self.path}' ({error}); give a text file") from None
        rounds: dict[int, list[tuple[int, int]]] = {}
        for number, line in enumerate(lines, 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            numbers = [int(word) for word in words if word.isascii() and word.isdigit()]
            if "->" in line:
                raise NetworkError(f"this sequence of graphs {DIRECTED} (line {number} of '{self.path}')")
            if len(words) != 3 or len(numbers) != 3 or numbers[0] < 1 or max(numbers[1:]) >= graph.n:
                raise NetworkError(
                    f"line {number} of '{self.path}' is '{line.strip()}', but a line is a round from 1 on and two "
                    f"nodes of 0 to {graph.n - 1}, such as '1 0 3'; correct it"
                )
            rounds.setdefault(numbers[0], []).append((numbers[1], numbers[2]))
        return [
            np.array(rounds.get(t, []), dtype=np.int64).reshape(-1, 2) for t in range(1, max(rounds, default=0) + 1)
        ]


@dataclass(frozen=True)
class Cadence(Periodic):
    """Everyone speaks in every round, but a slow node in every s-th only; `places` are node, s, node, s and so on.

    A slow node computes while the others go on; nobody waits for it in the rounds between. Its model is the one of
    the last round in which it spoke. It has 1/s of the releases, so that its noise for the same ε is √s smaller; it
    counts by √s times its weight, and its term of the sum has the same noise as the others'.

    Examples
    --------
    >>> from sottovoce.network.graphs import GRAPHS
    >>> [len(pairs) for pairs in Cadence((2, 3)).pairs(GRAPHS.read("complete")(3))]
    [1, 1, 3]
    """

    places: tuple[int, ...]
    tempered = True

    def __post_init__(self) -> None:
        """Each node once, and rounds that come again soon."""
        nodes, paces = self.places[::2], self.places[1::2]
        whole = all(isinstance(value, int) and value >= 0 for value in self.places)
        if not self.places or len(nodes) != len(paces) or len(set(nodes)) < len(nodes) or not whole or 0 in paces:
            raise NetworkError("slow nodes are written as 'cadence(node, s, node, s)': each once, in every s-th round")
        if self.period > LONGEST:
            raise NetworkError(
                f"'{self}' comes again after {self.period:,} rounds, and {LONGEST} are the most; take paces that "
                "divide one another, such as 5 and 10"
            )

    def __str__(self) -> str:
        return write("cadence", *self.places)

    @property
    def period(self) -> int:
        """The least common multiple of all paces."""
        return math.lcm(*self.places[1::2])

    def pairs(self, graph: Graph) -> list[IntArray]:
        """All links of the graph between nodes that speak."""
        paces = np.ones(graph.n, dtype=np.int64)
        slow = np.array(self.places[::2])
        if slow.max() >= graph.n or self.period * graph.links > MOST:
            raise NetworkError(
                f"'{self}' does not fit {graph.n} nodes with {graph.links:,} links: nodes count from 0, and a period "
                f"has at most {MOST:,} links; take fewer nodes or a shorter period"
            )
        paces[slow] = self.places[1::2]
        here = [t % paces == 0 for t in range(1, self.period + 1)]
        return [graph.edges[on[graph.edges].all(axis=1)] for on in here]


def _cadence(*places: int) -> Cadence:
    return Cadence(places)


def cadence_for(seconds: Sequence[float]) -> Activation:
    """Who speaks when, so that nobody waits for slow nodes, from the seconds that a round takes each of them.

    Half of the nodes speak in every round, two at the least; a pace is 1, 2 or 5 times a power of ten.

    Examples
    --------
    >>> str(cadence_for([1.0, 1.1, 0.9, 9.0, 1.0])), str(cadence_for([1.0, 1.1, 1.0]))
    ('cadence(3, 10)', 'everyone')
    """
    if len(seconds) < 2 or not all(0 < each < math.inf for each in seconds):
        raise NetworkError("give the seconds that a round takes, over 0, of each node, and of two nodes at least")
    usual = max(float(np.median(seconds)), sorted(seconds)[1])
    paces = {node: _pace(each / usual) for node, each in enumerate(seconds)}
    slow = [number for node, pace in paces.items() if pace > 1 for number in (node, pace)]
    return Cadence(tuple(slow)) if slow else Everyone()


def _pace(slower: float) -> int:
    """The least pace that leaves so slow a node enough time; a tenth too little is enough."""
    return next((pace for pace in (1, 2, 5, 10, 20, 50, 100, 200, 500) if pace * 1.1 >= slower), LONGEST)


ACTIVATIONS: Choices[Activation] = Choices(
    "activation scheme",
    {
        "edges": Edges,
        "matching": Matching,
        "nodes": Nodes,
        "everyone": Everyone,
        "ticks": Ticks,
        "hypercube": Hypercube,
        "cycle": Cycle,
        "cadence": _cadence,
    },
    NetworkError,
)
"""Every scheme by name.

Examples
--------
>>> from sottovoce.network.graphs import GRAPHS
>>> two = ACTIVATIONS.read("edges(2)")
>>> two.iota(GRAPHS.read("complete")(20))[0].item() == 4 / 21  # not 0.2: the two links may share a node
True
>>> two.draw(GRAPHS.read("complete")(4), 3, np.random.default_rng(1)).shape
(3, 2)
"""


LIMIT = 200_000  # outcomes that are worth listing one by one
STEPS = 10 * LIMIT  # of the search for matchings, before it is given up: a few seconds
SLOWEST = 1e-3  # acceptance rate below which rejection sampling is given up


def subsets(size: int, k: int, rounds: int, rng: np.random.Generator) -> IntArray:
    """Uniform k-subsets of 0 … size − 1, one a row (Floyd's algorithm on all rows at once: no draw is wasted)."""
    if k > WIDE:  # the same row by row, which remembers what is taken by a table
        return np.stack([rng.choice(size, k, replace=False, shuffle=False) for _ in range(rounds)])
    chosen = np.empty((rounds, k), dtype=np.int64)
    for at, last in enumerate(range(size - k, size)):
        draw = rng.integers(0, last + 1, size=rounds)
        taken = np.any(chosen[:, :at] == draw[:, None], axis=1)
        chosen[:, at] = np.where(taken, last, draw)
    return chosen


def all_subsets(size: int, k: int) -> IntArray:
    """All k-subsets of 0 … size − 1, one a row."""
    return np.array(list(combinations(range(size), k)), dtype=np.int64).reshape(math.comb(size, k), k)


def pair_index(n: int, pairs: IntArray) -> IntArray:
    """The rows of a complete graph's `edges` that hold the given pairs (…, 2)."""
    i, j = np.min(pairs, axis=-1), np.max(pairs, axis=-1)
    return i * n - i * (i + 1) // 2 + j - i - 1


@lru_cache(maxsize=16)
def matchings(graph: Graph, k: int) -> IntArray | None:
    """All k-matchings, as rows of link numbers; None where they are over `LIMIT` or too hard to find.

    A search from node to node: the next free node takes a later free neighbor, or stays single while there are
    still enough nodes for the links that are missing.
    """
    later: list[list[tuple[int, int]]] = [[] for _ in range(graph.n)]
    for e, (i, j) in enumerate(graph.edges.tolist()):
        later[i].append((j, e))
    openers = np.cumsum([bool(row) for row in later][::-1])[::-1].tolist()  # nodes from here on that open a link
    found: list[tuple[int, ...]] = []
    todo: list[tuple[int, int, tuple[int, ...]]] = [(0, (1 << graph.n) - 1, ())]  # next node, free nodes, links
    for _ in range(STEPS):
        if not todo:
            return np.array(found, dtype=np.int64).reshape(-1, k)
        v, free, links = todo.pop()
        missing = k - len(links)
        if missing == 0:
            found.append(links)
            if len(found) > LIMIT:
                return None
        elif v < graph.n and openers[v] >= missing and (free >> v).bit_count() >= 2 * missing:
            todo.append((v + 1, free, links))
            if free >> v & 1:
                todo += [(v + 1, free ^ 1 << u, (*links, e)) for u, e in later[v] if free >> u & 1]
    return None


def draw_matchings(graph: Graph, k: int, rounds: int, rng: np.random.Generator) -> IntArray | None:
    """Uniform k-matchings, one a row: from a shuffled deck of nodes, from the list, or by rejection.

    None where there are too many to list and too few among random choices of k links.
    """
    if graph.is_complete:
        deck = np.tile(np.arange(graph.n, dtype=np.int32), (rounds, 1))
        rng.permuted(deck, axis=1, out=deck)
        return pair_index(graph.n, deck[:, : 2 * k].reshape(rounds, k, 2).astype(np.int64))
    listed = matchings(graph, k)
    if listed is not None:
        return listed[rng.integers(len(listed), size=rounds)]
    kept: list[IntArray] = []
    have = tried = 0
    while have < rounds:  # k links, again and again until no two share a node: uniform over the matchings
        choice = subsets(len(graph.edges), k, max(rounds, 10_000), rng)
        ends = np.sort(graph.edges[choice].reshape(len(choice), -1), axis=1)
        kept.append(choice[np.all(ends[:, 1:] != ends[:, :-1], axis=1)])
        have, tried = have + len(kept[-1]), tried + len(choice)
        if have < SLOWEST * tried:
            return None
    return np.concatenate(kept)[:rounds]
