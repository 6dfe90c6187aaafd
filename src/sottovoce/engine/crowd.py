"""Very many nodes, compiled: which jobs these are, and how their state is handed to the kernel's `crowd`.

A crowd is a run in whose rounds the same nodes speak, too many for a matrix (`network.wide`). Its noise is made from
counters; what pairs of nodes share only where it is gone from the mean of all.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array
from sottovoce.algorithm.method import State
from sottovoce.engine.job import Job
from sottovoce.engine.kernel import MATRIX
from sottovoce.engine.kernel.arguments import BLOCK, Data, Model, Noise, Plan, Steps, make_scratch
from sottovoce.engine.kernel.crowd import make_lanes, make_picked, make_rows, run_alike, run_apart
from sottovoce.errors import SpecError
from sottovoce.network.mixing import Gossip, Weights, linked
from sottovoce.network.schedule import Compact
from sottovoce.network.wide import Wide

_NONE = np.zeros(0)
ALONE = Plan(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE, np.ones(1, np.bool_), 1, 1, MATRIX, 0.0)
"""The working memory of one node at a time is all that is needed."""


def run(
    jobs: Sequence[Job],
    states: Sequence[State],
    packed: tuple[Data, Model, Steps, Noise],
    start: int,
    stop: int,
) -> list[State]:
    """Rounds start … stop of jobs that share their draws."""
    data, model, steps, noise = packed
    schedule, first = jobs[0].schedule, states[0]
    before = int(first.since[0]) - 1
    R, (n, m) = len(states), first.z.shape
    scratch = make_scratch(data, ALONE, model, noise, (R, 1, m))._replace(glances=False, ahead=False)
    lanes, since = make_lanes(), np.full(n, stop + 1, dtype=np.int64)
    weights = schedule.patterns if isinstance(schedule.averaging, Gossip) else schedule.mixtures
    means = all(isinstance(W, Wide) and W.flat for W in weights)
    gone = not noise.pairs or noise.level
    if means and gone and not model.after and all(_same(state.z) and _same(state.total) for state in states):
        held, summed = np.stack([state.z[0] for state in states]), np.stack([state.total[0] for state in states])
        xs, gs = np.zeros((R, m)), np.zeros((R, m))
        loud, picked = np.zeros((R, BLOCK)), make_picked(R)
        run_alike(data, model, steps, noise, scratch, lanes, loud, picked, xs, gs, held, summed, before, start, stop)
        z, total = ([np.tile(row, (n, 1)) for row in rows] for rows in (held, summed))
    elif noise.pairs:
        raise SpecError("noise that pairs share is made for very many nodes only where each round ends with their mean")
    else:
        W, mixes = _weights(weights, schedule.pattern)
        times = schedule.averaging.k if isinstance(schedule.averaging, Gossip) else 1
        links = W.starts.astype(np.int64), W.places.astype(np.int64), W.values.astype(np.float64), float(W.level)
        one, other, sums = make_rows((R, n, m)), make_rows((R, n, m)), np.stack([state.total for state in states])
        for rows, state in zip(one, states, strict=True):
            rows[:, :m] = state.z
        x, level = np.zeros(m), np.zeros(one[:, 0].shape)
        given = data, links, mixes, times, model, steps, noise, scratch, lanes
        there = run_apart(*given, x, level, one, other, sums, before, start, stop)
        z, total = [rows[:, :m].copy() for rows in (one if there else other)], list(sums)
    return [State(z[r], total[r], since.copy(), state.memory.copy()) for r, state in enumerate(states)]


def _same(rows: Array) -> bool:
    """Whether all nodes hold the same."""
    return bool(np.all(rows == rows[0]))


def _weights(patterns: Sequence[Weights], pattern: Compact) -> tuple[Wide, NDArray[np.bool_]]:
    """W of the rounds that mix, and which ones do: between them nodes may step alone."""
    loud = np.array([bool(linked(W).any()) for W in patterns])
    W = patterns[int(np.argmax(loud))]
    assert isinstance(W, Wide)
    return W, loud[pattern]
