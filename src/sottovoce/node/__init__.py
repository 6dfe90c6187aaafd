"""Real nodes: one process an owner, its own data, secret entropy, durable state, a ledger, and a network between."""

from sottovoce.node.budget import Budget, budgets
from sottovoce.node.node import DurableNode, Outcome
from sottovoce.node.runfile import Run, make_run, read_run
from sottovoce.node.site import Site, own_problem
from sottovoce.node.store import Store
from sottovoce.node.transport import NodeTransport

__all__ = [
    "Budget",
    "DurableNode",
    "NodeTransport",
    "Outcome",
    "Run",
    "Site",
    "Store",
    "budgets",
    "make_run",
    "own_problem",
    "read_run",
]
