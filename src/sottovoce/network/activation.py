"""Who is active in a round: k random links, k disjoint links, k random nodes, everyone, or one at a tick.

ι_i = P(node i is active) is exact, always; where it cannot be had, that is an error. It is 2k/n for k random links
only when k = 1: two links may share a node.

Adding a scheme: a small class like those below, and one row of `ACTIVATIONS`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.errors import NetworkError
from sottovoce.network.graphs import Graph
from sottovoce.network.listing import LIMIT, SLOWEST, all_subsets, draw_matchings, matchings, pair_index, subsets
from sottovoce.network.scheme import BLOCK, Activation, Outcome, Sized
from sottovoce.notation import parse


class Edges(Sized):
    """k distinct links, uniformly; their ends are active. The paper's scheme."""

    by_links = True

    def width(self, graph: Graph) -> int:
        """2k, or all nodes."""
        if self.k > len(graph.edges):
            raise NetworkError(
                f"'{self}' needs {self.k} links, but graph '{graph.name}' has {len(graph.edges)}; choose fewer links"
            )
        return min(2 * self.k, graph.n)

    def iota(self, graph: Graph) -> Array:
        """1 − C(E − d_i, k)/C(E, k)."""
        self.width(graph)
        E, degrees = len(graph.edges), graph.degrees
        by_degree = {d: 1.0 - math.comb(E - d, self.k) / math.comb(E, self.k) for d in set(degrees.tolist())}
        return np.array([by_degree[d] for d in degrees.tolist()])

    def count(self, graph: Graph) -> int:
        """C(E, k)."""
        return math.comb(len(graph.edges), self.k)

    def outcomes(self, graph: Graph) -> IntArray:
        """All k-subsets of the links."""
        return all_subsets(len(graph.edges), self.k)

    def typical(self, graph: Graph) -> IntArray | None:
        """Those with link 0: renumbering takes any link to any other, so it may be taken as one of the k."""
        E = len(graph.edges)
        if math.comb(E - 1, self.k - 1) > LIMIT:
            return None
        return np.insert(1 + all_subsets(E - 1, self.k - 1), 0, 0, axis=1)

    def _draw(self, graph: Graph, rounds: int, rng: np.random.Generator) -> IntArray:
        return subsets(len(graph.edges), self.k, rounds, rng)


class Matching(Sized):
    """k links without a common node, uniform over all such choices; 2k nodes are active in every round."""

    by_links = True

    def width(self, graph: Graph) -> int:
        """2k."""
        if 2 * self.k > graph.n or self.count(graph) == 0:
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
        """n!/((n − 2k)! k! 2^k) on a complete graph; elsewhere they are listed."""
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

    On a regular graph that is a uniform node and a uniform neighbour of it, as in asynchronous SGD.
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
            ends = graph.edges[rows // 2]
            nodes = np.where((rows % 2 == 1)[:, None], ends[:, ::-1], ends)
            yield nodes, np.broadcast_to(~np.eye(2, dtype=np.bool_), (len(rows), 2, 2))

    def count(self, graph: Graph) -> int:
        """2E."""
        return 2 * len(graph.edges)

    def outcomes(self, graph: Graph) -> IntArray:
        """Both ways of every link."""
        return np.arange(2 * len(graph.edges))[:, None]

    def typical(self, graph: Graph) -> IntArray:
        """Any one of them."""
        return np.zeros((1, 1), dtype=np.int64)

    def _draw(self, graph: Graph, rounds: int, rng: np.random.Generator) -> IntArray:
        return rng.integers(2 * len(graph.edges), size=(rounds, 1))


ACTIVATIONS: dict[str, type[Activation]] = {
    "edges": Edges,
    "matching": Matching,
    "nodes": Nodes,
    "everyone": Everyone,
    "ticks": Ticks,
}


def make_activation(text: str) -> Activation:
    """Read a scheme such as "edges(2)" or "everyone".

    Examples
    --------
    >>> from sottovoce.network.graphs import make_graph
    >>> two = make_activation("edges(2)")
    >>> two.iota(make_graph("complete", 20))[0].item() == 4 / 21  # not 0.2: the two links may share a node
    True
    >>> two.draw(make_graph("complete", 4), 3, np.random.default_rng(1)).shape
    (3, 2)
    """
    name, numbers, named = parse(text)
    scheme = ACTIVATIONS.get(name)
    fits = all(isinstance(k, int) for k in numbers) and not named
    if scheme is None or not fits or len(numbers) != issubclass(scheme, Sized):
        usage = ", ".join(f"{row}(k)" if issubclass(made, Sized) else row for row, made in ACTIVATIONS.items())
        raise NetworkError(f"'{text}' is no activation scheme; write one of {usage}, k a whole number")
    return scheme(*numbers)
