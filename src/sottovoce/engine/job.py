"""What every engine is given, and what it gives back.

An engine is one function, run(job, state, start, stop) -> State: the state after round `stop`, having run the rounds
start … stop. Observation, progress and checkpoints happen between such calls, outside the engine.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.dual_averaging import DualAveraging, State
from sottovoce.network.schedule import Schedule
from sottovoce.privacy.release import Release
from sottovoce.problem.objective import Problem, clipped_mean


class Randomness(Protocol):
    """Where an engine gets its draws from: counters in a run, anything at all in a test."""

    def records(self, node: int, t: int) -> IntArray | None:
        """Which records node i uses in round t; None for all."""

    def noise(self, nodes: IntArray, t: int | IntArray) -> Array:
        """A row of noise for each pair (node, round)."""


@dataclass(frozen=True, eq=False)
class Job:
    """A problem, an algorithm, a fixed public schedule, a release and its draws."""

    problem: Problem
    method: DualAveraging
    schedule: Schedule
    release: Release
    draws: Randomness

    def start(self) -> State:
        """The state before round 1."""
        return self.method.start(self.problem.shards.n, self.problem.shards.m)

    def gradients(self, nodes: IntArray, t: int) -> Callable[[Array], Array]:
        """x of the active nodes -> their clipped mean subgradients over the records of round t."""

        def gradient(x: Array) -> Array:
            return np.stack([self.gradient(int(node), t, row) for node, row in zip(nodes, x, strict=True)])

        return gradient

    def gradient(self, node: int, t: int, x: Array) -> Array:
        """ĝ_i of one node in round t."""
        q = int(self.problem.shards.sizes[node])
        divisor = self.release.sampling.batch(q)
        return clipped_mean(self.problem, node, x, self.draws.records(node, t), divisor, self.release.clip)


Engine = Callable[[Job, State, int, int], State]
