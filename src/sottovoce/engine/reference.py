"""The reference engine: plain NumPy, all nodes in one process. Slow, simple, and the oracle of every other engine."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import Round, Speaks, State
from sottovoce.engine.job import Job, draw, gradients

NOISE_BLOCK = 1 << 18  # normals drawn at a time: the cost of a call is spread over rounds, the block stays in cache


class Step(NamedTuple):
    """One round and the state of all nodes after it."""

    t: int
    nodes: IntArray
    round: Round
    state: State


def rounds(job: Job, state: State, start: int, stop: int) -> Iterator[Step]:
    """Run rounds start … stop, handing out every one of them; `state` is updated in place."""
    schedule, method = job.schedule, job.method
    m = state.z.shape[1]
    for t, nodes, speaks, records, noise in _drawn(job, start, stop, m):
        gradient = gradients(job.problem, job.release, nodes, records)
        done = method.step(state.at(nodes), t, nodes, speaks, gradient, noise, schedule.weights(t).__matmul__)
        state.put(nodes, done.state)
        yield Step(t, nodes, done, state)


def run(job: Job, state: State, start: int, stop: int) -> State:
    """Run rounds start … stop and give the state after them; the given state is left alone."""
    state = state.copy()
    for _ in rounds(job, state, start, stop):
        pass
    return state


def _drawn(
    job: Job, start: int, stop: int, m: int
) -> Iterator[tuple[int, IntArray, Speaks, list[IntArray | None], Array]]:
    """Each round with its active nodes, who of them speaks, their records and noise, for many rounds at a time."""
    starts = job.schedule.starts
    t = start
    while t <= stop:
        last = int(np.searchsorted(starts, starts[t - 1] + max(1, NOISE_BLOCK // m), side="right")) - 1
        last = min(max(last, t), stop)
        block = slice(int(starts[t - 1]), int(starts[last]))
        active = job.schedule.active[block].astype(np.int64)
        ts = np.repeat(np.arange(t, last + 1), np.diff(starts[t - 1 : last + 1]))
        speaks = job.schedule.speaks(t, last)
        records, noise = draw(job.draws, active, ts, speaks, m)
        for r in range(t, last + 1):
            mine = slice(int(starts[r - 1]) - block.start, int(starts[r]) - block.start)
            yield r, active[mine], speaks[mine], records[mine], noise[mine]
        t = last + 1
