"""What every engine is given, and what it gives back.

An engine is one function, run(job, state, start, stop) -> State: the state after round `stop`, having run the rounds
start … stop. Observation, progress and checkpoints happen between such calls, outside the engine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.dual_averaging import DualAveraging, Gradient, State
from sottovoce.network.schedule import Schedule
from sottovoce.privacy.release import Release
from sottovoce.problem.objective import Problem, clipped_mean


class Randomness(Protocol):
    """Where an engine gets its draws from: counters in a run, anything at all in a test."""

    def records(self, nodes: IntArray, t: IntArray) -> list[IntArray | None]:
        """Which records are used, for each pair (node, round); None for all of the node's."""

    def noise(self, nodes: IntArray, t: IntArray) -> Array:
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
        return self.method.start(self.problem.shards.n, self.problem.m)


def gradients(problem: Problem, release: Release, nodes: IntArray, records: list[IntArray | None]) -> Gradient:
    """x of some nodes -> ĝ_i, their clipped mean subgradients over the given records, (nodes, m)."""

    def gradient(x: Array) -> Array:
        rows = zip(nodes.tolist(), x, records, strict=True)
        return np.stack([clipped_mean(problem, i, x_i, drawn, batches[i], release.clip) for i, x_i, drawn in rows])

    batches = {i: release.sampling.batch(int(problem.shards.sizes[i])) for i in nodes.tolist()}
    return gradient


Engine = Callable[[Job, State, int, int], State]
Together = Callable[[Sequence[Job], Sequence[State], int, int], list[State]]
