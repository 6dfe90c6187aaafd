"""Assumption 2: who is linked with whom, who speaks in a round, and how fast they come to agree."""

from sottovoce.network.activation import ACTIVATIONS, Activation, Edges, Everyone, Matching, Nodes, Periodic, Ticks
from sottovoce.network.averaging import AVERAGINGS, Clipped, Exact, Quantized, Trimmed
from sottovoce.network.graphs import GRAPHS, Graph
from sottovoce.network.mixing import WEIGHTS, Averaging, Exchange, Gossip, beta
from sottovoce.network.schedule import Schedule, draw_schedule

__all__ = [
    "ACTIVATIONS",
    "AVERAGINGS",
    "GRAPHS",
    "WEIGHTS",
    "Activation",
    "Averaging",
    "Clipped",
    "Edges",
    "Everyone",
    "Exact",
    "Exchange",
    "Gossip",
    "Graph",
    "Matching",
    "Nodes",
    "Periodic",
    "Quantized",
    "Schedule",
    "Ticks",
    "Trimmed",
    "beta",
    "draw_schedule",
]
