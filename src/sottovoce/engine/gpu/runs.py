"""What the engine runs, in which of its two ways, and what it does not know."""

from collections.abc import Sequence

import numpy as np

from sottovoce._types import Array
from sottovoce.algorithm.descent import Descent
from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.algorithm.method import State
from sottovoce.engine.compiled import LEVEL, counted
from sottovoce.engine.gpu.machine import Machine, device
from sottovoce.engine.gpu.products import alike, fits, run_products
from sottovoce.engine.gpu.rounds import averages, run_rounds
from sottovoce.engine.gpu.source import RUNGS
from sottovoce.engine.job import Job
from sottovoce.errors import SpecError
from sottovoce.privacy.pairs import Pairs
from sottovoce.problem.losses import SOFTMAX
from sottovoce.problem.regularisers import Euclidean


def unknown(job: Job) -> str | None:
    """What of a job is not known here, beyond what the engine's record says; in words that follow 'the'."""
    method, problem, loss = job.method, job.problem, job.problem.loss
    if isinstance(method, DualAveraging):
        if method.curvature:
            return "curvature of f"
        if isinstance(method.d, Euclidean) and method.d.centre is not None:
            return "centre of the distance"
    if problem.shards.people:
        return "units of several rows"
    known = RUNGS.get(loss.name, SOFTMAX)
    if known.name != loss.name or known.slope_formula is not loss.slope_formula:
        return f"loss '{loss.name}' (it knows those that it can write in C)"
    if not counted(job):
        return f"randomness {type(job.draws).__name__}"
    if job.mapped is not None and not fits(job):
        return "map of records that are not mapped yet, unless all nodes average all messages in every round"
    if problem.outputs > 1 and not fits(job):
        return f"{problem.outputs} outputs of a model, unless all nodes average all messages in every round"
    law, release = job.release.law, job.release
    if isinstance(law, Pairs):
        shared = method.scale * law.parts(release.sigma) if isinstance(method, DualAveraging | Descent) else np.zeros(1)
        if not fits(job) or np.ptp(shared) > LEVEL * np.max(shared):
            return "noise of pairs, unless it is gone from the mean of all messages in every round"
    return None


def about() -> str:
    """The device's name."""
    found = device()
    return found if isinstance(found, str) else found.name


def run_together(jobs: Sequence[Job], states: Sequence[State], start: int, stop: int) -> list[State]:
    """On the device."""
    found = device()
    if isinstance(found, str):
        raise SpecError(f"the gpu engine cannot run: {found}")
    return run_on(found, jobs, states, start, stop)


def look(jobs: Sequence[Job], states: Sequence[State], t: int) -> tuple[Array, Array] | None:
    """(mean model over the nodes, their mean distance from it) of each run; None where the states are not there."""
    found = device()
    return None if isinstance(found, str) else averages(found, jobs, states, t)


def run_on(machine: Machine, jobs: Sequence[Job], states: Sequence[State], start: int, stop: int) -> list[State]:
    """On a machine: jobs over the same data that are the same but for numbers and seeds."""
    jobs, states = list(jobs), list(states)
    for job, state in zip(jobs, states, strict=True):
        if np.any(state.since < 1) or np.any(state.since > max(start, 1)):
            raise SpecError(f"the state is not one from before round {start}; go on from the round after it was left")
        if not 1 <= start <= stop <= min(job.method.T, job.schedule.T):
            raise SpecError(f"rounds {start} to {stop} are not within the schedule's {job.schedule.T} rounds")
    if all(map(fits, jobs)) and alike(states):
        return run_products(machine, jobs, states, start, stop)
    return run_rounds(machine, jobs, states, start, stop)
