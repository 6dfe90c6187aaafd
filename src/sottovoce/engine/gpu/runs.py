"""What the engine runs, in which of its two ways, and what it does not know."""

from collections.abc import Sequence

import numpy as np

from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.algorithm.method import State
from sottovoce.engine.compiled import counted
from sottovoce.engine.gpu.machine import Machine, device
from sottovoce.engine.gpu.rounds import run_rounds
from sottovoce.engine.gpu.source import RUNGS
from sottovoce.engine.job import Job
from sottovoce.errors import SpecError
from sottovoce.problem.regularisers import Euclidean


def unknown(job: Job) -> str | None:
    """What of a job is not known here, beyond what the engine's record says; in words that follow 'the'."""
    method, problem, loss = job.method, job.problem, job.problem.loss
    if isinstance(method, DualAveraging):
        if method.curvature:
            return "curvature of f"
        if isinstance(method.d, Euclidean) and method.d.centre is not None:
            return "centre of the distance"
    if problem.outputs > 1:
        return f"{problem.outputs} outputs of a model"
    if problem.shards.people:
        return "units of several rows"
    known = RUNGS.get(loss.name)
    if known is None or known.slope_formula is not loss.slope_formula:
        return f"loss '{loss.name}' (it knows those that it can write in C)"
    if not counted(job):
        return f"randomness {type(job.draws).__name__}"
    return None


def lacking() -> str | None:
    """Why there is no device."""
    found = device()
    return found if isinstance(found, str) else None


def run_together(jobs: Sequence[Job], states: Sequence[State], start: int, stop: int) -> list[State]:
    """On the device."""
    found = device()
    if isinstance(found, str):
        raise SpecError(f"the gpu engine cannot run: {found}")
    return run_on(found, jobs, states, start, stop)


def run_on(machine: Machine, jobs: Sequence[Job], states: Sequence[State], start: int, stop: int) -> list[State]:
    """On a machine: jobs over the same data that are the same but for numbers and seeds."""
    jobs, states = list(jobs), list(states)
    for job, state in zip(jobs, states, strict=True):
        if np.any(state.since < 1) or np.any(state.since > max(start, 1)):
            raise SpecError(f"the state is not one from before round {start}; go on from the round after it was left")
        if not 1 <= start <= stop <= min(job.method.T, job.schedule.T):
            raise SpecError(f"rounds {start} to {stop} are not within the schedule's {job.schedule.T} rounds")
    return run_rounds(machine, jobs, states, start, stop)
