"""What the planner may know, and what it answers."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from sottovoce.errors import SpecError
from sottovoce.privacy.accounting import check_delta
from sottovoce.privacy.adversaries import make_adversary, refuse_unless_runnable
from sottovoce.run.spec import Spec

PENALTIES = ("l2", "l1", "elastic_net", "none")
MAX_ROUNDS = 1000
"""More rounds than this hardly raise the accuracy of anything tried, and each costs a round trip."""


@dataclass(frozen=True)
class Facts:
    """What may be known of a problem before anybody looks at a record.

    Attributes
    ----------
    sizes : q_i, the records (or persons, where they are the unit of privacy) of each node
    features : the columns of a record, the intercept's included
    outputs : the classes that have weights of their own; 1 for two classes and for regression
    row_norm, intercept : R and B, the public bounds of a row
    penalty : 'l2', 'l1', 'elastic_net' or 'none'
    max_rounds, max_bytes : what may be spent on the network; None for the default of 1000 rounds, and any bytes
    """

    sizes: tuple[int, ...]
    features: int
    loss: str
    epsilon: float
    delta: float
    outputs: int = 1
    adversary: str = "transcript"
    graph: str = "complete"
    row_norm: float = 1.0
    intercept: float = 0.0
    penalty: str = "l2"
    max_rounds: int | None = None
    max_bytes: float | None = None

    def __post_init__(self) -> None:
        """Facts that no problem has are errors."""
        if not self.sizes or min(self.sizes) < 1:
            raise SpecError("a plan needs nodes, each with at least one record; give the numbers of their records")
        if not 0 < self.epsilon < math.inf:
            raise SpecError(f"a plan needs an ε that is finite and over 0, not {self.epsilon}")
        check_delta(self.delta)
        refuse_unless_runnable(make_adversary(self.adversary))
        for name, value in (
            ("features", self.features),
            ("outputs", self.outputs),
            ("row_norm", self.row_norm),
            ("max_rounds", self.rounds),
            ("max_bytes", math.inf if self.max_bytes is None else self.max_bytes),
        ):
            if not value > 0:
                raise SpecError(f"{name} must be over 0, not {value}")
        if self.penalty not in PENALTIES:
            raise SpecError(f"there is no penalty '{self.penalty}'; choose one of {', '.join(PENALTIES)}")

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.sizes)

    @property
    def m(self) -> int:
        """Dimension of the model."""
        return self.features * self.outputs

    @property
    def rounds(self) -> int:
        """The most rounds there may be."""
        return MAX_ROUNDS if self.max_rounds is None else self.max_rounds


class Plan(NamedTuple):
    """One way to run, and what is foreseen of it."""

    activation: str
    sampling: str
    rounds: int
    reach: float
    """τ: the model is −τ times the weighted mean of the gradients that were released."""
    noise: float
    """c, the deviation that the noise leaves in each coordinate of that mean."""
    loss: float
    """Predicted loss of accuracy."""
    bytes: float


@dataclass(frozen=True)
class Choice:
    """A plan, why it was chosen, and what else there was."""

    spec: Spec
    """All of a run but its seed."""
    reasons: list[str]
    predicted: float
    """Share of records that the model will get wrong beyond the best linear model's, foreseen roughly."""
    alternatives: list[dict[str, Any]]
    """The chosen plan and the best of the others: activation, sampling, rounds, noise, predicted loss, bytes."""
