"""Choosing and listing subsets and matchings, many at a time: the counting behind the activation schemes."""

import math
from functools import lru_cache
from itertools import combinations

import numpy as np

from sottovoce._types import IntArray
from sottovoce.network.graphs import Graph

LIMIT = 200_000  # outcomes that are worth listing one by one
STEPS = 10 * LIMIT  # of the search for matchings, before it is given up: a few seconds
SLOWEST = 1e-3  # acceptance rate below which rejection sampling is given up


def subsets(size: int, k: int, rounds: int, rng: np.random.Generator) -> IntArray:
    """Uniform k-subsets of 0 … size − 1, one a row (Floyd's algorithm on all rows at once: no draw is wasted)."""
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

    A search from node to node: the next free node takes a later free neighbour, or stays single while there are
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
