"""Whether runs can be stacked: they must share everything but numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.algorithm.descent import Descent
from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.engine.job import Job
from sottovoce.engine.packing import Known, counted, known
from sottovoce.errors import SpecError
from sottovoce.network.schedule import Schedule
from sottovoce.privacy.release import Draws
from sottovoce.streams import Purpose


def check_stackable(jobs: Sequence[Job]) -> None:
    """Refuse to stack runs that differ in more than numbers."""
    for job in jobs[1:]:
        _check_alike(jobs[0], job)
    if len(jobs) > 1 and not counted(jobs[0]):
        raise SpecError("runs can only be stacked where their noise comes from counters; run them one by one")


def _check_alike(one: Job, other: Job) -> None:
    mine, theirs = one.problem.shards, other.problem.shards
    method, its = known(one), known(other)
    draws, its_draws = one.draws, other.draws
    same = {
        "data": mine is theirs
        or (
            mine.X is theirs.X
            and np.array_equal(mine.y, theirs.y)
            and np.array_equal(mine.offsets, theirs.offsets)
            and (mine.order is theirs.order or np.array_equal(mine.order, theirs.order))  # type: ignore[arg-type]
            and (mine.starts is theirs.starts or np.array_equal(mine.starts, theirs.starts))  # type: ignore[arg-type]
            and mine.intercept == theirs.intercept
        ),
        "loss": one.problem.joint == other.problem.joint,
        "schedule": _same_schedule(one.schedule, other.schedule),
        "kind of regulariser": type(method.h) is type(its.h),
        "method": _variant(method) == _variant(its),
        "sampling": one.release.sampling == other.release.sampling,
        "randomness": draws is its_draws
        or (
            isinstance(draws, Draws)
            and isinstance(its_draws, Draws)
            and counted(one) == counted(other)
            and draws.release.sampling == its_draws.release.sampling
            and all(np.array_equal(draws.streams.key(p), its_draws.streams.key(p)) for p in Purpose)
        ),
    }
    wrong = [name for name, alike in same.items() if not alike]
    if wrong:
        raise SpecError(f"runs that differ in their {', '.join(wrong)} cannot be stacked; run them one by one")


def _variant(method: Known) -> tuple[Any, ...]:
    """What kernels branch on."""
    if isinstance(method, Descent):
        return Descent, method.combine_first
    return DualAveraging, method.d, method.primal, method.curvature


def _same_schedule(one: Schedule, other: Schedule) -> bool:
    if one is other:
        return True
    mine: list[NDArray[Any]] = [one.starts, one.active, one.pattern, *one.patterns]
    theirs: list[NDArray[Any]] = [other.starts, other.active, other.pattern, *other.patterns]
    return (
        one.n == other.n
        and one.speakers == other.speakers
        and len(one.patterns) == len(other.patterns)
        and all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))
    )
