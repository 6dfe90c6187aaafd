"""What every engine is given: a job, and what is drawn in its rounds."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import Gradient, Method, Speaks, State
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
    method: Method
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


class Stretch(NamedTuple):
    """Rounds first … last: for each pair (active node, round), in order, whether it speaks, its records and noise."""

    first: int
    last: int
    nodes: IntArray
    t: IntArray
    speaks: Speaks
    records: list[IntArray | None]
    noise: Array


def stretches(job: Job, start: int, stop: int, numbers: int) -> Iterator[Stretch]:
    """Rounds start … stop, so many at a time that their noise has about that many numbers, and one at the least."""
    starts, m = job.schedule.starts, job.problem.m
    first = start
    while first <= stop:
        last = int(np.searchsorted(starts, starts[first - 1] + max(1, numbers // m), side="right")) - 1
        last = min(max(last, first), stop)
        nodes = job.schedule.active[starts[first - 1] : starts[last]].astype(np.int64)
        t = np.repeat(np.arange(first, last + 1), np.diff(starts[first - 1 : last + 1]))
        speaks = job.schedule.speaks(first, last)
        yield Stretch(first, last, nodes, t, speaks, *draw(job.draws, nodes, t, speaks, m))
        first = last + 1
