"""Very many nodes: which jobs these are, and how the native loops get their state.

A large network is a run in whose rounds the same nodes speak, too many for a matrix (`network.wide`). Its noise is made
from counters; what pairs of nodes share only where it is gone from the mean of all.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sottovoce import _native
from sottovoce._types import Array
from sottovoce.algorithm.method import State
from sottovoce.engine.job import Job
from sottovoce.engine.native import Links, Model, Noise
from sottovoce.errors import SpecError
from sottovoce.extension import read_only
from sottovoce.network.mixing import Gossip, Weights, linked
from sottovoce.network.schedule import Compact
from sottovoce.network.wide import Wide

LINE = 8
"""Numbers in a line of memory."""


def run(
    jobs: Sequence[Job],
    states: Sequence[State],
    rounds: _native.Run,
    noise: Noise,
    model: Model,
    start: int,
    stop: int,
) -> list[State]:
    """Rounds start … stop of jobs that share their draws."""
    schedule, first = jobs[0].schedule, states[0]
    before = int(first.since[0]) - 1
    R, (n, m) = len(states), first.z.shape
    since = np.full(n, stop + 1, dtype=np.int64)
    weights = schedule.patterns if isinstance(schedule.averaging, Gossip) else schedule.mixtures
    means = all(isinstance(W, Wide) and W.flat for W in weights)
    gone = not noise.pairs or noise.level
    if means and gone and not model.after and all(_same(state.z) and _same(state.total) for state in states):
        held, summed = np.stack([state.z[0] for state in states]), np.stack([state.total[0] for state in states])
        rounds.equal(held, summed, before, start, stop)
        z, total = ([np.tile(row, (n, 1)) for row in rows] for rows in (held, summed))
    elif noise.pairs:
        raise SpecError("noise that pairs share is made for very many nodes only where each round ends with their mean")
    else:
        links = _links(weights, schedule.pattern, schedule.averaging.k if isinstance(schedule.averaging, Gossip) else 1)
        one, other, sums = _rows((R, n, m)), _rows((R, n, m)), np.stack([state.total for state in states])
        for rows, state in zip(one, states, strict=True):
            rows[:, :m] = state.z
        there = rounds.apart(links, one, other, sums, before, start, stop)
        z, total = [rows[:, :m].copy() for rows in (one if there else other)], list(sums)
    return [State(z[r], total[r], since.copy(), state.memory.copy()) for r, state in enumerate(states)]


def _rows(shape: tuple[int, int, int]) -> NDArray[np.float64]:
    """Zeros for (R, n, m) numbers, in rows that begin and end where lines of memory do."""
    R, n, m = shape
    width = -(-m // LINE) * LINE
    whole = np.zeros(R * n * width + LINE)
    first = -whole.ctypes.data // whole.itemsize % LINE
    return whole[first : first + R * n * width].reshape(R, n, width)


def _same(rows: Array) -> bool:
    """Whether all nodes hold the same."""
    return bool(np.all(rows == rows[0]))


def _links(patterns: Sequence[Weights], pattern: Compact, times: int) -> Links:
    """W of the rounds that mix, and which ones do: between them nodes may step alone."""
    loud = np.array([bool(linked(W).any()) for W in patterns])
    W = patterns[int(np.argmax(loud))]
    assert isinstance(W, Wide)
    starts, places = read_only(W.starts, np.int64), read_only(W.places, np.int64)
    return Links(starts, places, read_only(W.values, np.float64), float(W.level), read_only(loud[pattern]), times)
