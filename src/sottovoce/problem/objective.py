"""The objective of eq. (1), F(x) = Σ_i w_i f_i(x) + h(x) with f_i(x) = (1/q_i) Σ_j φ(⟨c_ij, x⟩, y_ij).

Weights: `nodes` is the paper's w_i = 1/n, every node counts the same; `records` is w_i = q_i/N, the pooled problem.
The two agree where all nodes have as many records. `records(κ)` is w_i ∝ q_i²/(q_i + κ): records, but nodes with fewer
than κ of them count less, so that their large noise does not drown the rest. Where units are people, q_i counts people,
and f_i is the mean over them of the mean over each one's rows. A record that has a weight of its own, at most 1, counts
so much of one: the divisor stays q_i.

A model of K outputs is one vector x of K·m' numbers, class by class: x.reshape(K, m')[k] are the weights of class k.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.errors import SpecError
from sottovoce.problem.losses import Joint, Loss, lengths
from sottovoce.problem.people import clipped_units
from sottovoce.problem.regularizers import Regularizer
from sottovoce.problem.shards import Shards
from sottovoce.registry import Choices, write

TOGETHER = 16  # models judged in one reading of the data: the margins of all records are held for each


class Weights(Protocol):
    """How nodes count."""

    def __call__(self, sizes: IntArray) -> Array:
        """w_i, summing to one, from public sizes alone."""


@dataclass(frozen=True)
class ByNode:
    """w_i = 1/n."""

    def __call__(self, sizes: IntArray) -> Array:
        """All the same."""
        return np.full(len(sizes), 1.0 / len(sizes))

    def __str__(self) -> str:
        return "nodes"


@dataclass(frozen=True)
class ByRecords:
    """w_i ∝ q_i²/(q_i + κ).

    Examples
    --------
    >>> sizes = np.array([100, 300])
    >>> ByRecords()(sizes), ByRecords(100)(sizes).round(3)
    (array([0.25, 0.75]), array([0.182, 0.818]))
    """

    kappa: float = 0.0

    def __post_init__(self) -> None:
        """A number of records."""
        if not 0 <= self.kappa < np.inf:
            raise SpecError(f"κ of the weights records(κ) must be finite and not negative, not {self.kappa}")

    def __call__(self, sizes: IntArray) -> Array:
        """In proportion."""
        q = np.asarray(sizes, dtype=np.float64)
        counts = q * q / (q + self.kappa)
        return np.asarray(counts / counts.sum())

    def __str__(self) -> str:
        return write("records", *([self.kappa] if self.kappa else []))


WEIGHTS: Choices[Weights] = Choices("weights of nodes", {"nodes": ByNode, "records": ByRecords})
"""How nodes count, by name."""


@dataclass(frozen=True, eq=False)
class PublicProblem:
    """What is public of a problem: all but the records. Plans are made from it.

    Attributes
    ----------
    loss, h, weights, outputs : as in `Problem`
    sizes : q_i, how many units (records, or people) each node has
    features : columns of a record, without the intercept's
    intercept : B, the constant value of the intercept's column; 0 for no intercept
    people : whether units are people
    """

    loss: Loss
    h: Regularizer
    sizes: IntArray
    features: int
    intercept: float = 0.0
    weights: Weights = ByNode()
    outputs: int = 1
    people: bool = False

    @cached_property
    def joint(self) -> Joint:
        """The loss of all outputs together."""
        return Joint(self.loss, self.outputs)

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.sizes)

    @property
    def m(self) -> int:
        """Dimension of the model: K times features and intercept."""
        return self.outputs * (self.features + (self.intercept != 0.0))

    @cached_property
    def node_weights(self) -> Array:
        """w_i, summing to one."""
        return self.weights(self.sizes)


@dataclass(frozen=True, eq=False)
class Problem:
    """A loss, a regularizer and everybody's data."""

    loss: Loss
    h: Regularizer
    shards: Shards
    weights: Weights = ByNode()
    outputs: int = 1
    """K, the number of classes that have weights of their own; 1 for regression and for two classes as ±1."""

    def __post_init__(self) -> None:
        """Refuse targets that the loss does not understand."""
        self.joint.check(self.shards.y)

    @cached_property
    def public(self) -> PublicProblem:
        """The same without the records."""
        of = self.shards
        features = int(of.X.shape[1])
        return PublicProblem(self.loss, self.h, of.sizes, features, of.intercept, self.weights, self.outputs, of.people)

    @property
    def joint(self) -> Joint:
        """The loss of all outputs together."""
        return self.public.joint

    @property
    def m(self) -> int:
        """Dimension of the model: K times features and intercept."""
        return self.public.m

    @property
    def node_weights(self) -> Array:
        """w_i, summing to one."""
        return self.public.node_weights

    @cached_property
    def record_weights(self) -> Array:
        """w_i/q_i for every row, times its own weight; summing to one where there are none."""
        return self.shards.weighted(self.shards.spread(self.node_weights / self.shards.sizes))

    def value(self, x: Array) -> float:
        """F(x)."""
        return self.risk(x) + self.h.value(x)

    def risk(self, x: Array) -> float:
        """Σ w_i f_i(x), the objective without h."""
        return float(np.dot(self.record_weights, self.joint.value(self.margins(x), self.shards.y)))

    def margins(self, x: Array, rows: IntArray | slice | None = None) -> Array:
        """⟨c, x_k⟩ for the given rows (all rows by default): one a row, or K a row."""
        return self.shards.margins(x if self.outputs == 1 else x.reshape(self.outputs, -1), rows)

    def slopes(self, x: Array) -> Array:
        """The loss's own slopes at x, for every row."""
        return self.joint.slope(self.margins(x), self.shards.y)

    def combined(self, slopes: Array) -> Array:
        """Σ w_r s_r ⊗ c_r, for slopes of every row."""
        weights = self.record_weights if slopes.ndim == 1 else self.record_weights[:, None]
        return self.shards.pull(weights * slopes).ravel()

    def gradient(self, x: Array) -> Array:
        """A subgradient of Σ w_i f_i at x (unclipped: this is the problem, not what a node releases)."""
        return self.combined(self.slopes(x))

    def accuracy(self, x: Array, other: Shards | None = None) -> float:
        """The share of records that are classified right, or R² (regression): of these records, or of others."""
        return float(self.judge(x[None], other)[1][0])

    def judge(self, models: Array, other: Shards | None = None) -> tuple[Array, Array]:
        """(risk, accuracy) of each model, on these records or on others: all of them in one reading of the data."""
        shards = self.shards if other is None else other.with_intercept(self.shards.intercept)
        weights = self.record_weights if other is None else shards.spread(np.ones(shards.n) / shards.sizes.sum())
        mine = slice(None) if shards.order is None else shards.order
        found = []
        for first in range(0, len(models), TOGETHER):
            some = models[first : first + TOGETHER]
            u = shards.margins(some.reshape(len(some) * self.outputs, -1)).reshape(len(shards.y), len(some), -1)
            for k in range(len(some)):
                own = u[:, k] if self.outputs > 1 else u[:, k, 0]
                risk = float(np.dot(weights, self.joint.value(own, shards.y)))
                found.append((risk, _accuracy(self.loss, own[mine], shards.y[mine])))
        risks, accuracies = np.array(found).T
        return risks, accuracies


def _accuracy(loss: Loss, u: Array, y: Array) -> float:
    """Share of right signs, or classes, for a classification loss; coefficient of determination for a regression."""
    if u.ndim > 1:
        return float(np.mean(np.argmax(u, axis=-1) == y))
    if loss.targets == "binary":
        return float(np.mean(np.where(u >= 0, 1.0, -1.0) == y))
    spread = float(np.sum(np.square(y - y.mean())))
    return 1.0 - float(np.sum(np.square(y - u))) / spread if spread > 0 else float("nan")


def clipped_mean(problem: Problem, node: int, x: Array, records: IntArray | None, divisor: float, clip: float) -> Array:
    """(1/divisor) Σ clip(∂l(x, ξ)) over a node's sampled units: what the node then perturbs.

    Each record's subgradient s ⊗ c, times its weight, is scaled to norm at most `clip` before averaging; of a person,
    the mean over their rows. So the sensitivity holds for any data.
    """
    shards = problem.shards
    if records is not None and len(records) == 0:
        return np.zeros(problem.m)
    rows, counts = shards.rows(node, records), shards.counts(node, records)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not a number below counts as nothing
        slopes = shards.weighted(problem.joint.slope(problem.margins(x, rows), shards.y[rows]), rows)
        size = lengths(slopes) * shards.norms[rows]
        if counts is not None:
            listed = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            total = clipped_units(size, slopes, counts, clip, lambda s, some: shards.pull(s, listed[some]))
            return total.ravel() / divisor
        factor = np.minimum(1.0, clip / np.maximum(size, np.finfo(float).tiny))
        slopes = slopes * (factor if slopes.ndim == 1 else factor[:, None])
    return shards.pull(np.where(np.isfinite(slopes), slopes, 0.0), rows).ravel() / divisor
