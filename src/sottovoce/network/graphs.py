"""Named graphs of nodes 0 … n − 1: the links that may ever be used, and where to draw the nodes.

Links have no direction: each is named once, or every one in both directions. A list that names some in both and others
in one, a directed graph of NetworkX and a link "0 -> 1" are directed graphs, and refused: mixing needs doubly
stochastic weights, which directed graphs do not have in general, and a link that was added silently would be another
network.

A graph is connected, or it is refused: nodes of different pieces could never agree. One node without links is a graph
too, the centralised case. Adding a graph is one row of `_LINKS`: a function of n and of named parameters that
returns pairs of nodes. Only this file knows NetworkX.

The complete graph is a formula (`Complete`): a hundred thousand nodes have five thousand million links, which nobody
needs to list.
"""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, wraps
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sottovoce import limits
from sottovoce._renamed import old_attributes
from sottovoce._types import Array, IntArray
from sottovoce.errors import NetworkError
from sottovoce.registry import Choices, Chosen

WIDE = 1024
"""Up to so many nodes, links and weights are written as matrices; beyond, nothing has n² entries."""
LISTED = 10**7  # links of a complete graph that are listed on request
ATTEMPTS = 50  # random graphs drawn, each from a seed of its own, before we say that no connected one was found


@old_attributes
@dataclass(frozen=True, eq=False)
class Graph:
    """A connected graph; the links are checked, put in order and made read-only on the way in.

    Attributes
    ----------
    name : what it was made from, for messages and reports
    n : number of nodes
    edges : (E, 2) links with i < j, sorted, each once
    """

    name: str
    n: int
    edges: IntArray

    def __post_init__(self) -> None:
        """Refuse what is no connected graph."""
        object.__setattr__(self, "n", _whole("the number of nodes", self.n, 1, limits.NODES))
        edges = _in_order(self.n, self.edges)
        pieces = _pieces(self.n, edges)
        if pieces.max() > 0:
            raise NetworkError(
                f"graph '{self.name}' falls into {pieces.max() + 1} pieces (node {int(np.argmax(pieces != pieces[0]))} "
                "cannot be reached from node 0), but nodes can agree only on a connected graph; "
                "add links between the pieces"
            )
        edges.setflags(write=False)
        object.__setattr__(self, "edges", edges)

    @property
    def links(self) -> int:
        """E, how many links there are."""
        return len(self.edges)

    def ends(self, which: IntArray) -> IntArray:
        """(…, 2) the nodes that the links of these numbers join."""
        return self.edges[which]

    @cached_property
    def degrees(self) -> IntArray:
        """d_i, the number of links of each node."""
        return np.bincount(self.edges.ravel(), minlength=self.n)

    @property
    def is_complete(self) -> bool:
        """Whether every two nodes are linked."""
        return self.links == self.n * (self.n - 1) // 2

    @property
    def shift_invariant(self) -> bool:
        """Whether no node is special, because all are the same from each other in some rectangle (`columns`)."""
        return self.columns is not None

    @cached_property
    def columns(self) -> int | None:
        """Of a rectangle in which the nodes, laid out row by row, are the same after every shift; None for no such.

        There is for complete graphs, rings, tori and circulants as they are numbered here; it proves that no node is
        special (vertex-transitivity). None proves nothing.
        """
        if np.any(self.degrees != self.degrees[0]):
            return None
        places, codes = np.arange(self.n), self._codes
        for cols in range(1, self.n + 1):
            if self.n % cols == 0:
                row, col = places // cols, places % cols
                shifts = ((places + cols) % self.n, row * cols + (col + 1) % cols)
                if all(np.array_equal(codes, np.sort(_codes(self.n, shift[self.edges]))) for shift in shifts):
                    return cols
        return None

    @cached_property
    def _codes(self) -> IntArray:
        """A number for each link, in order."""
        return _codes(self.n, self.edges)

    def linked(self, i: IntArray, j: IntArray) -> NDArray[np.bool_]:
        """Whether these pairs of nodes are linked; either may be −1, which is nobody."""
        i, j = np.broadcast_arrays(i, j)
        wanted = _codes(self.n, np.stack([i, j], axis=-1))
        if not len(self._codes):
            return np.zeros(wanted.shape, dtype=np.bool_)
        found = self._codes[np.minimum(np.searchsorted(self._codes, wanted), len(self._codes) - 1)]
        return (found == wanted) & (i != j) & (np.minimum(i, j) >= 0)

    def numbers(self, pairs: IntArray) -> IntArray:
        """The numbers of links (…, 2), which there must be: the inverse of `ends`."""
        return np.searchsorted(self._codes, _codes(self.n, np.asarray(pairs)))

    def adjacency(self) -> NDArray[np.bool_]:
        """(n, n) True where two nodes are linked; the diagonal is False."""
        links = np.zeros((self.n, self.n), dtype=np.bool_)
        links[self.edges[:, 0], self.edges[:, 1]] = True
        return links | links.T

    def neighbors(self, i: int) -> IntArray:
        """The nodes linked to node i, in order.

        Examples
        --------
        >>> GRAPHS.read("ring")(5).neighbors(0)
        array([1, 4])
        """
        here = self.edges == i
        return np.sort(self.edges[here[:, ::-1]])


class Complete(Graph):
    """Every two of n nodes are linked: all that is required of it is a formula of n.

    Examples
    --------
    >>> graph = Complete(100_000)
    >>> graph.links, graph.ends(np.array([0, graph.links - 1])).tolist(), len(graph.neighbors(7))
    (4999950000, [[0, 1], [99998, 99999]], 99999)
    """

    def __init__(self, n: int) -> None:
        object.__setattr__(self, "name", "complete")
        object.__setattr__(self, "n", _whole("the number of nodes", n, 1, limits.NODES))

    @cached_property
    def edges(self) -> IntArray:
        """All of them, for who must see them one by one."""
        if self.links > LISTED:
            raise NetworkError(
                f"the {self.links:,} links of a complete graph of {self.n:,} nodes are not listed; ask for "
                "its `links`, `ends` or `neighbors`, or take a graph with fewer links"
            )
        edges = np.stack(np.triu_indices(self.n, 1), axis=1)
        edges.setflags(write=False)
        return edges

    @property
    def links(self) -> int:
        """E = n(n − 1)/2."""
        return self.n * (self.n - 1) // 2

    def ends(self, which: IntArray) -> IntArray:
        """The inverse of counting: link e is one of node i's if i(2n − i − 1)/2 is the last such number up to e."""
        e = np.asarray(which, dtype=np.int64)
        before = np.arange(self.n, dtype=np.int64)
        before = before * (2 * self.n - before - 1) // 2
        i = np.searchsorted(before[: max(self.n - 1, 1)], e, side="right") - 1
        return np.stack([i, e - before[i] + i + 1], axis=-1)

    def numbers(self, pairs: IntArray) -> IntArray:
        """By counting."""
        i, j = np.min(pairs, axis=-1), np.max(pairs, axis=-1)
        return np.asarray(i * self.n - i * (i + 1) // 2 + j - i - 1)

    @cached_property
    def degrees(self) -> IntArray:
        """n − 1."""
        return np.full(self.n, self.n - 1)

    @cached_property
    def columns(self) -> int:
        """Any."""
        return 1

    def linked(self, i: IntArray, j: IntArray) -> NDArray[np.bool_]:
        """Any two."""
        return (i != j) & (np.minimum(i, j) >= 0)

    def adjacency(self) -> NDArray[np.bool_]:
        """All but the diagonal."""
        return ~np.eye(self.n, dtype=np.bool_)

    def neighbors(self, i: int) -> IntArray:
        """All others."""
        return np.delete(np.arange(self.n), i)


def _codes(n: int, pairs: IntArray) -> IntArray:
    """i·n + j of pairs (…, 2), the smaller number first."""
    return np.min(pairs, axis=-1) * n + np.max(pairs, axis=-1)


DIRECTED = (
    "has links in one direction only; directed graphs are not supported (their weights are not doubly stochastic): "
    "name every link once, or every link in both directions"
)


def _in_order(n: int, pairs: Any) -> IntArray:
    if callable(getattr(pairs, "is_directed", None)):  # a graph of NetworkX
        if pairs.is_directed():
            raise NetworkError(f"this graph {DIRECTED}, as with .to_undirected()")
        pairs = list(pairs.edges)
    edges = np.asarray(pairs)
    if edges.size == 0:
        return np.empty((0, 2), dtype=np.int64)
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise NetworkError(
            f"links must be pairs of whole numbers, not an array of {edges.dtype} with shape {edges.shape}; "
            "give two node ids a link"
        )
    outside = edges[(edges < 0) | (edges >= n)]
    if outside.size:
        raise NetworkError(f"a link names node {outside[0]}, but nodes are numbered 0 to {n - 1}; fix that link")
    loops = edges[edges[:, 0] == edges[:, 1]]
    if loops.size:
        raise NetworkError(
            f"node {loops[0, 0]} is linked to itself, but a node needs no link to its own state; leave that link out"
        )
    named = np.unique(edges.astype(np.int64), axis=0)
    links, times = np.unique(np.sort(named, axis=1), axis=0, return_counts=True)
    if len(set(times.tolist())) > 1:
        raise NetworkError(f"this graph {DIRECTED} (link {links[np.argmin(times)].tolist()} is named in one)")
    return links


def undirected(n: int, pairs: Any) -> IntArray:
    """Links as they are given, or as a graph of NetworkX has them; directed ones are refused, as in a `Graph`."""
    ordered = _in_order(n, pairs)
    return ordered if callable(getattr(pairs, "is_directed", None)) else np.asarray(pairs).reshape(-1, 2)


def _pieces(n: int, edges: IntArray) -> IntArray:
    """The number of the connected piece of each node: nodes take over the smallest id that they can see."""
    root = np.arange(n)
    while np.any((ends := root[edges])[:, 0] != ends[:, 1]):
        np.minimum.at(root, ends, ends.min(axis=1, keepdims=True))
        root = root[root]
    return np.unique(root, return_inverse=True)[1]


def _whole(what: str, value: Any, low: int, high: float = math.inf) -> int:
    try:
        whole = operator.index(value)
    except TypeError:
        raise NetworkError(f"{what} must be a whole number, not {value!r}") from None
    if not low <= whole <= high:
        bounds = f"at least {low}" if high == math.inf else f"between {low} and {high}"
        raise NetworkError(f"{what} must be {bounds}, not {whole}")
    return whole


def _path(n: int) -> IntArray:
    return np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)


def _star(n: int) -> IntArray:
    return np.stack([np.zeros(n - 1, dtype=np.int64), np.arange(1, n)], axis=1)


def _lattice(n: int, rows: int | None, wrap: bool) -> IntArray:
    """Nodes row by row in a rectangle; the most square one where rows are not given."""
    if rows is None:
        rows = max(r for r in range(1, math.isqrt(n) + 1) if n % r == 0)
    rows = _whole("the number of rows", rows, 1, n)
    if n % rows:
        raise NetworkError(f"{n} nodes do not fill {rows} rows evenly; choose a number of rows that divides {n}")
    place = np.arange(n).reshape(rows, n // rows)
    pairs = []
    for axis in (0, 1):
        onward = np.roll(place, -1, axis=axis)
        inside = place if wrap else np.delete(place, -1, axis=axis)
        onward = onward if wrap else np.delete(onward, -1, axis=axis)
        pairs.append(np.stack([inside.ravel(), onward.ravel()], axis=1))
    joined = np.sort(np.concatenate(pairs), axis=1)  # two rows wrap in both directions
    return joined[joined[:, 0] != joined[:, 1]]  # a single row wraps onto itself


def _grid(n: int, rows: int | None = None) -> IntArray:
    return _lattice(n, rows, wrap=False)


def _torus(n: int, rows: int | None = None) -> IntArray:
    return _lattice(n, rows, wrap=True)


def _ring(n: int) -> IntArray:
    return _lattice(n, 1, wrap=True)


def _first_connected(what: str, n: int, seed: int, draw: Callable[[int], Any]) -> IntArray:
    """The first connected graph of a fixed sequence of draws; the sequence depends on nothing but the seed."""
    seed = _whole("seed", seed, 0)
    for attempt in range(ATTEMPTS):
        edges = _in_order(n, list(draw(int(np.random.SeedSequence([seed, attempt]).generate_state(1)[0])).edges))
        if _pieces(n, edges).max() == 0:
            return edges
    raise NetworkError(
        f"none of {ATTEMPTS} draws of {what} on {n} nodes was connected; ask for more links, or for another seed"
    )


def _erdos_renyi(n: int, p: float | None = None, seed: int = 0) -> IntArray:
    import networkx as nx  # only here: it takes as long to load as all the rest

    # log n / n is where such graphs begin to be connected; half as much again and a few draws are enough
    p = min(1.0, 1.5 * math.log(n) / n) if p is None else _probability(p)
    draw = nx.gnp_random_graph if n <= WIDE else nx.fast_gnp_random_graph  # the latter does not try every pair
    return _first_connected(f"erdos_renyi with p = {p:g}", n, seed, lambda s: draw(n, p, seed=s))


def _random_regular(n: int, degree: int, seed: int = 0) -> IntArray:
    import networkx as nx  # only here: it takes as long to load as all the rest

    degree = _whole("degree", degree, 0, n - 1)
    if n * degree % 2:
        raise NetworkError(f"{n} nodes cannot have {degree} links each, since {n} × {degree} is odd; make one even")
    return _first_connected(
        f"random_regular with degree {degree}", n, seed, lambda s: nx.random_regular_graph(degree, n, seed=s)
    )


def _small_world(n: int, k: int = 4, p: float = 0.1, seed: int = 0) -> IntArray:
    import networkx as nx  # only here: it takes as long to load as all the rest

    _whole("the number of nodes of a small world", n, 3)
    k, p = _whole("k", k, 2, n - 1), _probability(p)
    if k % 2:
        raise NetworkError(f"k must be even (k/2 neighbors on each side), not {k}; take {k - 1} or {k + 1}")
    return _first_connected(
        f"small_world with k = {k}, p = {p:g}", n, seed, lambda s: nx.watts_strogatz_graph(n, k, p, seed=s)
    )


def _probability(p: Any) -> float:
    if not isinstance(p, int | float | np.floating) or not 0 <= p <= 1:
        raise NetworkError(f"p must be a probability between 0 and 1, not {p!r}")
    return float(p)


def _edge_list(n: int, path: str | Path) -> IntArray:
    """Two node ids a line; what follows a '#' is a comment."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise NetworkError(f"cannot read the links in '{path}' ({error}); give a text file, one link a line") from None
    pairs = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if any(arrow in line for arrow in ("->", "→", "<-")):
            raise NetworkError(f"line {number} of '{path}' is '{line.strip()}': this graph {DIRECTED}")
        if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
            raise NetworkError(
                f"line {number} of '{path}' is '{line.strip()}', but a link is two node ids such as '0 1'; fix it"
            )
        i, j = map(int, words)
        if max(i, j) >= n or i == j:
            wrong = f"names node {max(i, j)}" if max(i, j) >= n else f"links node {i} to itself"
            raise NetworkError(
                f"line {number} of '{path}' {wrong}, but links join two different nodes of 0 to {n - 1}; fix it"
            )
        pairs.append((i, j))
    return _in_order(n, pairs)


def _graph(name: str, links: Callable[..., IntArray]) -> Callable[..., Graph]:
    """The function from n and the parameters of `links` to the graph."""

    @wraps(links)
    def graph(n: int, **parameters: Any) -> Graph:
        n = _whole("the number of nodes", n, 1, limits.NODES)
        if "seed" in parameters and n > WIDE:  # a plan requests it again and again
            return _drawn_once(name, n, tuple(sorted(parameters.items())))
        return Graph(name, n, links(n, **parameters))

    return graph


@lru_cache(maxsize=4)
def _drawn_once(name: str, n: int, parameters: tuple[tuple[str, Any], ...]) -> Graph:
    """A random graph of very many nodes, which takes long to draw."""
    return Graph(name, n, _LINKS[name](n, **dict(parameters)))


_LINKS: dict[str, Callable[..., IntArray]] = {
    "ring": _ring,
    "path": _path,
    "star": _star,
    "grid": _grid,
    "torus": _torus,
    "erdos_renyi": _erdos_renyi,
    "random_regular": _random_regular,
    "small_world": _small_world,
    "edge_list": _edge_list,
}


def add_graph(name: str, links: Callable[..., IntArray]) -> None:
    """One more kind of graph, from a function of n and of named parameters that gives pairs of nodes."""
    GRAPHS.add(name, _graph(name, links))


Family: TypeAlias = Chosen[int, Graph]
"""A kind of graph with its parameters, which becomes a graph once the number of nodes is known."""


def _complete(n: int) -> Graph:
    return Complete(n)


class _Graphs(Choices[Chosen[int, Graph]]):
    """The table, which refuses a graph of NetworkX by name: it takes families of graphs, for any number of nodes."""

    def read(self, text: str) -> Chosen[int, Graph]:
        """The family of a text."""
        directed = getattr(text, "is_directed", None)
        if callable(directed):
            if directed():
                raise NetworkError(f"this graph {DIRECTED}")
            raise NetworkError(
                "a graph of NetworkX has a fixed number of nodes; write its links to a file and give "
                "'edge_list(FILE)', or register a function of the number of nodes that gives it"
            )
        return super().read(text)


GRAPHS = _Graphs.of_functions(
    "graph", {"complete": _complete} | {name: _graph(name, links) for name, links in _LINKS.items()}, NetworkError
)
"""Every kind of graph by name. The parameters: grid, torus: rows; erdos_renyi: p, seed; random_regular: degree, seed;
small_world: k (neighbors before rewiring), p, seed; edge_list: path of a file with two node ids a line.

Examples
--------
>>> GRAPHS.read("grid")(6).edges.tolist()
[[0, 1], [0, 3], [1, 2], [1, 4], [2, 5], [3, 4], [4, 5]]
>>> GRAPHS.read("complete")(20).is_complete, GRAPHS.read("star")(4).degrees.tolist()
(True, [3, 1, 1, 1])
"""


_FEW = 80  # nodes for which distances between all pairs are laid out; above, springs are faster


def positions(n: int, edges: IntArray) -> Array:
    """(n, 2) places in [−1, 1]²: a circle where most pairs are linked or the graph is a ring, else by distances.

    Examples
    --------
    >>> places = positions(4, np.array([[0, 1], [1, 2], [2, 3], [0, 3]]))
    >>> np.hypot(*places.T).round(3).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    degrees = np.bincount(np.ravel(edges), minlength=n)
    ring = len(edges) == n and bool(np.all((np.diff(edges) == 1) | (np.diff(edges) == n - 1)))
    if n < 4 or ring or degrees.mean() > n / 3:
        angles = 2 * math.pi * np.arange(n) / n
        return np.column_stack([np.sin(angles), np.cos(angles)])
    import networkx as nx  # takes long to load: only when used

    graph = nx.empty_graph(n)
    graph.add_edges_from(edges.tolist())
    place = nx.kamada_kawai_layout(graph) if n <= _FEW else nx.spring_layout(graph, seed=0, iterations=100)
    found = np.array([place[i] for i in range(n)])
    found -= (found.max(axis=0) + found.min(axis=0)) / 2
    return found / np.abs(found).max()
