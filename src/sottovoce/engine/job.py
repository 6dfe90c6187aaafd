"""What every engine is given, and what it gives back.

An engine is one function, run(job, state, start, stop) -> State: the state after round `stop`, having run the rounds
start … stop. Observation, progress and checkpoints happen between such calls, outside the engine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.descent import Descent
from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.algorithm.method import Gradient, Method, Speaks, State
from sottovoce.network.schedule import Schedule
from sottovoce.privacy.release import Release
from sottovoce.privacy.sampling import Cyclic
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
    method: Method
    schedule: Schedule
    release: Release
    draws: Randomness

    def start(self) -> State:
        """The state before round 1."""
        return self.method.start(self.problem.shards.n, self.problem.m)


def compilable(job: Job) -> bool:
    """Whether the compiled engine has this method and sampler; asked without loading Numba."""
    return type(job.method) in (DualAveraging, Descent) and not isinstance(job.release.sampling, Cyclic)


def gradients(problem: Problem, release: Release, nodes: IntArray, records: list[IntArray | None]) -> Gradient:
    """x of some nodes -> ĝ_i, their clipped mean subgradients over the given records, (nodes, m)."""

    def gradient(x: Array) -> Array:
        rows = zip(nodes.tolist(), x, records, strict=True)
        return np.stack([clipped_mean(problem, i, x_i, drawn, batches[i], release.clip) for i, x_i, drawn in rows])

    batches = {i: release.sampling.batch(int(problem.shards.sizes[i])) for i in nodes.tolist()}
    return gradient


def draw(
    draws: Randomness, nodes: IntArray, t: IntArray, speaks: Speaks, m: int
) -> tuple[list[IntArray | None], Array]:
    """Records and noise of these pairs (node, round); a node that only listens has neither."""
    if np.all(speaks):
        return draws.records(nodes, t), draws.noise(nodes, t)
    records: list[IntArray | None] = [np.empty(0, dtype=np.int64)] * len(nodes)
    noise = np.zeros((len(nodes), m))
    loud = np.flatnonzero(speaks)
    for place, drawn in zip(loud.tolist(), draws.records(nodes[loud], t[loud]), strict=True):
        records[place] = drawn
    noise[loud] = draws.noise(nodes[loud], t[loud])
    return records, noise


Engine = Callable[[Job, State, int, int], State]
Together = Callable[[Sequence[Job], Sequence[State], int, int], list[State]]
