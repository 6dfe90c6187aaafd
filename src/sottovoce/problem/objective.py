"""The objective of eq. (1), F(x) = Σ_i w_i f_i(x) + h(x) with f_i(x) = (1/q_i) Σ_j φ(⟨c_ij, x⟩, y_ij).

Weights: `nodes` is the paper's w_i = 1/n, every node counts the same; `records` is w_i = q_i/N, the pooled problem.
The two agree where all nodes have as many records.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.errors import DataError, SpecError
from sottovoce.problem.losses import Loss
from sottovoce.problem.regularisers import Regulariser
from sottovoce.problem.shards import Shards

WEIGHTS = ("nodes", "records")


@dataclass(frozen=True, eq=False)
class Problem:
    """A loss, a regulariser and everybody's data."""

    loss: Loss
    h: Regulariser
    shards: Shards
    weights: str = "nodes"

    def __post_init__(self) -> None:
        """Refuse targets that the loss does not understand."""
        if self.weights not in WEIGHTS:
            raise SpecError(f"weights must be 'nodes' or 'records', not {self.weights!r}")
        if self.loss.targets == "binary":
            wrong = self.shards.y[np.abs(self.shards.y) != 1.0]
            if wrong.size:
                raise DataError(
                    f"loss '{self.loss.name}' needs labels −1 and +1, but there is a label {wrong[0]:g}; "
                    "map your two classes to −1 and +1, or take a regression loss"
                )

    @cached_property
    def node_weights(self) -> Array:
        """w_i, summing to one."""
        q = self.shards.sizes
        return np.full(len(q), 1.0 / len(q)) if self.weights == "nodes" else q / q.sum()

    @cached_property
    def record_weights(self) -> Array:
        """w_i/q_i for every row, summing to one."""
        return self.shards.spread(self.node_weights / self.shards.sizes)

    def value(self, x: Array) -> float:
        """F(x)."""
        return self.risk(x) + self.h.value(x)

    def risk(self, x: Array) -> float:
        """Σ w_i f_i(x), the objective without h."""
        return float(np.dot(self.record_weights, self.loss.value(self.shards.margins(x), self.shards.y)))

    def gradient(self, x: Array) -> Array:
        """A subgradient of Σ w_i f_i at x (unclipped: this is the problem, not what a node releases)."""
        slopes = self.loss.slope(self.shards.margins(x), self.shards.y)
        return self.shards.pull(self.record_weights * slopes)

    def kkt_residual(self, x: Array, slopes: Array | None = None) -> float:
        """‖x − prox_h(x − g)‖, zero exactly where 0 ∈ g + ∂h(x).

        g is built from the given dual slopes (one a row, as `optimum` returns them), or else from the loss's own
        slope at x: enough for a smooth loss, but at the kinks of a hinge only the dual knows the right element.
        """
        if slopes is None:
            slopes = self.loss.slope(self.shards.margins(x), self.shards.y)
        g = self.shards.pull(self.record_weights * slopes)
        prox = self.h.step(g - x, 1.0, 1.0)  # argmin h + ‖· − (x − g)‖²/2
        return float(np.linalg.norm(x - prox))

    def accuracy(self, x: Array) -> float:
        """The share of records on the right side (classification), or R² (regression)."""
        return accuracy(self.loss, self.shards, x)


def accuracy(loss: Loss, shards: Shards, x: Array) -> float:
    """Share of right signs for a classification loss, coefficient of determination for a regression loss."""
    mine = slice(None) if shards.order is None else shards.order
    u, y = shards.margins(x)[mine], shards.y[mine]
    if loss.targets == "binary":
        return float(np.mean(np.where(u >= 0, 1.0, -1.0) == y))
    spread = float(np.sum(np.square(y - y.mean())))
    return 1.0 - float(np.sum(np.square(y - u))) / spread if spread > 0 else float("nan")


def clipped_mean(problem: Problem, node: int, x: Array, records: IntArray | None, divisor: float, clip: float) -> Array:
    """(1/divisor) Σ clip(∂l(x, ξ)) over a node's sampled records: what the node then perturbs.

    Each record's subgradient slope·c is scaled to norm at most `clip` *before* averaging, whatever the data holds,
    so that the sensitivity is a fact of this line and not a hope about the data.
    """
    shards = problem.shards
    if records is not None and len(records) == 0:
        return np.zeros(shards.m)
    rows = shards.rows(node, records)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not a number below counts as nothing
        slopes = problem.loss.slope(shards.margins(x, rows), shards.y[rows])
        size = np.abs(slopes) * shards.norms[rows]
        slopes = slopes * np.minimum(1.0, clip / np.maximum(size, np.finfo(float).tiny))
    return shards.pull(np.where(np.isfinite(slopes), slopes, 0.0), rows) / divisor
