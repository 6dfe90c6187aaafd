"""What an activation scheme is: a uniform distribution over a finite set of outcomes.

An outcome is a row of numbers: the links chosen (rows of `Graph.edges`) or the nodes chosen. So a million rounds are
one small integer array, and exact probabilities are counts. No scheme ever looks at data: the privacy accounting
relies on it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array, IntArray
from sottovoce.errors import NetworkError
from sottovoce.network.graphs import Graph

BLOCK = 1 << 20  # entries of stacked matrices worked on at a time: 8 MB of weights
ROUNDS = 1 << 16  # rounds drawn at a time

Outcome = tuple[IntArray, NDArray[np.bool_]]
"""Of many rounds: active nodes (R, K), −1 where fewer than K are active, and the links among them (R, K, K)."""


class Activation(ABC):
    """A scheme, as data: what it is called, how likely each node is, and how to draw it."""

    by_links: ClassVar[bool] = False
    """Whether the numbers of an outcome are links (rows of `Graph.edges`) or nodes."""
    speakers: ClassVar[int] = 0
    """How many of the active nodes, the first ones, take a gradient; 0 for all."""

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
        links = None if self.by_links else graph.adjacency()
        size = max(1, BLOCK // K**2)
        for at in range(0, len(choice), size):
            rows = choice[at : at + size]
            yield _ends(graph, rows, K) if links is None else (rows, links[rows[:, :, None], rows[:, None, :]])


def _ends(graph: Graph, choice: IntArray, K: int) -> Outcome:
    """The nodes that the chosen links join, each once, in the order in which the links name them."""
    rounds, k = choice.shape
    ends = graph.edges[choice].reshape(rounds, 2 * k)
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
        """Refuse an idle round."""
        if self.k < 1:
            raise NetworkError(f"'{self}' leaves every node idle; choose at least 1")

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()}({self.k})"
