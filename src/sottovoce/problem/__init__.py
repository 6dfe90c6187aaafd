"""The problem of eq. (1): min F(x) = Σ w_i f_i(x) + h(x), with the data of each node in its own shard."""

from sottovoce.problem.losses import LOSSES, Conjugate, Loss
from sottovoce.problem.objective import ByNode, ByRecords, Problem
from sottovoce.problem.regularisers import DISTANCES, REGULARISERS, box, elastic_net, l1, l2, non_negative
from sottovoce.problem.shards import Shards, by_group, dirichlet, even

__all__ = [
    "DISTANCES",
    "LOSSES",
    "REGULARISERS",
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
