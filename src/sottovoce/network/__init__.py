"""Assumption 2: who is linked with whom, who speaks in a round, and how fast they come to agree."""

from sottovoce.network.activation import ACTIVATIONS, Edges, Everyone, Matching, Nodes, Ticks
from sottovoce.network.graphs import GRAPHS, Graph
from sottovoce.network.mixing import WEIGHTS, beta
from sottovoce.network.schedule import Schedule, draw_schedule

__all__ = [
    "ACTIVATIONS",
    "GRAPHS",
    "WEIGHTS",
    "Edges",
    "Everyone",
    "Graph",
    "Matching",
    "Nodes",
    "Schedule",
    "Ticks",
    "beta",
    "draw_schedule",
]
