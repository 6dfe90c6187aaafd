"""The problem of eq. (1): min F(x) = Σ w_i f_i(x) + h(x), with the data of each node in its own shard."""

from typing import Any

from sottovoce._renamed import module_attribute
from sottovoce.problem.losses import LOSSES, Conjugate, Loss
from sottovoce.problem.objective import ByNode, ByRecords, Problem
from sottovoce.problem.regularizers import DISTANCES, REGULARIZERS, box, elastic_net, l1, l2, non_negative
from sottovoce.problem.shards import Shards, by_group, dirichlet, even

__all__ = [
    "DISTANCES",
    "LOSSES",
    "REGULARIZERS",
    "ByNode",
    "ByRecords",
    "Conjugate",
    "Loss",
    "Problem",
    "Shards",
    "box",
    "by_group",
    "dirichlet",
    "elastic_net",
    "even",
    "l1",
    "l2",
    "non_negative",
]


def __getattr__(name: str) -> Any:
    """Return what a name of version 0.2 stands for now."""
    return module_attribute(__name__, name)
