"""Least squares in one round: every node releases its statistics once, their mean is taken, and all else is arithmetic.

What a node releases is the mean of its records' products (`problem.moments`), with noise (`privacy.statistics`). The
nodes' messages are averaged, exactly, in one exchange of everybody with everybody; from the one noisy matrix that
everybody then has, each solves for the model by itself (`problem.least_squares`). There is no descent, no step and no
clip; the loss is the squared one, whatever the spec's regularizer is. Targets are brought into [−1, 1].

`mean` is the same without the columns: three numbers, and a model that is a constant.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import Gradient, Mix, Released, Round, Speaks, State
from sottovoce.errors import SpecError
from sottovoce.problem.least_squares import Fit, NoisyLeastSquares
from sottovoce.problem.moments import packed_size
from sottovoce.problem.objective import PublicProblem

WIDEST = 1000
"""Coordinates of a model, at most: a release has half a square of them."""
SAME = 1e-9
"""Nodes whose means differ by less, relatively, have one model: they added the same numbers in another order."""


@dataclass(frozen=True, eq=False)
class Statistics:
    """A least-squares model from noisy sufficient statistics.

    Attributes
    ----------
    problem : the objective, with the squared loss
    rounds : must be one
    scale : c_i = n·w_i, public factors on each node's release
    weight : κ, how much targets count beside rows
    columns : whether rows are in the statistics at all, or only the constant and the target
    noise : s, the deviation that the noise leaves in each number of the mean; 0 until it is known
    """

    problem: PublicProblem
    rounds: int
    scale: Array
    weight: float = 1.0
    columns: bool = True
    noise: float = 0.0
    synchronous: ClassVar[bool] = True
    exchanges: ClassVar[int] = 1
    T: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """What it is for."""
        if self.rounds != 1:
            raise SpecError(f"statistics are released once, in one round, not in {self.rounds}; ask for one round")
        if self.problem.loss.name != "squared" or self.problem.outputs != 1:
            raise SpecError(
                f"statistics are for regression with the squared loss, not for '{self.problem.loss}'; take loss "
                "'squared', or a method that takes gradients"
            )
        if not self.columns and not self.problem.intercept:
            raise SpecError("the mean of the targets is a model of its intercept alone; give an intercept")
        if self.columns and self.problem.m > WIDEST:
            raise SpecError(
                f"statistics of {self.problem.m} coordinates are {packed_size(self.problem.m):,} numbers; from "
                f"{WIDEST} on take a method that takes gradients"
            )

    @property
    def m(self) -> int:
        """Coordinates that are solved for."""
        return self.problem.m if self.columns else 1

    @property
    def numbers(self) -> int:
        """In a release."""
        return packed_size(self.m)

    @property
    def width(self) -> int:
        """Vectors of the model's length that a message is as long as."""
        return -(-self.numbers // self.problem.m)

    @cached_property
    def released(self) -> Released:
        """Products, and not subgradients."""
        return Released(iterates=False, weight=self.weight, columns=self.columns, numbers=self.numbers)

    def stride(self, t: int) -> float:
        """It is released as it is."""
        return 1.0

    def start(self, rows: int, m: int) -> State:
        """Nothing yet."""
        return State.zeros(rows, self.numbers)

    def step(
        self, state: State, t: int, nodes: IntArray, speaks: Speaks, gradient: Gradient, noise: Array, mix: Mix
    ) -> Round:
        """Release, and take the mean."""
        zeta = gradient(state.z) + noise
        message = self.scale[nodes][:, None] * zeta
        mean = mix(message)
        return Round(state.z, zeta, message, State(mean, mean, np.full_like(state.since, t + 1), state.memory))

    def known(self, statistics: Array) -> NoisyLeastSquares:
        """What one row of the state comes to."""
        return NoisyLeastSquares.of(statistics, self.m, self.noise, self.weight, self.problem.intercept)

    def fit(self, statistics: Array) -> Fit:
        """The model of one row of the state; the columns' coordinates are 0 where they are not in it."""
        fit = self.known(statistics).solve(self.problem.h)
        return fit if self.columns else fit._replace(x=np.append(np.zeros(self.problem.m - 1), fit.x))

    def average(self, state: State, t: int) -> Array:
        """Every row's model; rows with the same statistics have the same one."""
        first = self.fit(state.z[0]).x
        size = SAME * float(np.max(np.abs(state.z[0]), initial=0.0))
        rows = [first if np.allclose(z, state.z[0], rtol=0.0, atol=size) else self.fit(z).x for z in state.z]
        return np.stack(rows)

    def longest_model(self, statistics: float) -> float:
        """How long a model can be that is solved from statistics no longer than this; infinite without noise."""
        return self.known(np.zeros(self.numbers)).longest(statistics, self.problem.h)

    def passes(self, state: State) -> float | None:
        """One."""
        return 1.0
