"""The reference engine: plain NumPy, all nodes in one process. Slow, simple, and the oracle of every other engine."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from sottovoce._types import IntArray
from sottovoce.algorithm.method import Round, State
from sottovoce.engine.job import Job, once, stretches

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
    for stretch in stretches(job, start, stop, NOISE_BLOCK):
        before = int(schedule.starts[stretch.first - 1])
        for t in range(stretch.first, stretch.last + 1):
            mine = slice(int(schedule.starts[t - 1]) - before, int(schedule.starts[t]) - before)
            nodes, speaks, drawn = stretch.nodes[mine], stretch.speaks[mine], stretch.drawn.at(mine)
            gradient = once(drawn.gradient(job.problem, job.release, nodes))
            mix = partial(schedule.mix, t, unit=method.stride(t))
            done = method.step(state.at(nodes), t, nodes, speaks, gradient, drawn.noise, mix)
            state.put(nodes, done.state)
            yield Step(t, nodes, done, state)


def run(job: Job, state: State, start: int, stop: int) -> State:
    """Run rounds start … stop and give the state after them; the given state is left alone."""
    state = state.copy()
    for _ in rounds(job, state, start, stop):
        pass
    return state
