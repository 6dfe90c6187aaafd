"""Where to draw the nodes of a graph."""

import math

import numpy as np

from sottovoce._types import Array, IntArray

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
