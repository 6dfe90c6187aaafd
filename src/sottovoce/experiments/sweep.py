"""Many runs at once: an ε grid × seeds × regularisation, with as much shared as may be.

Runs that differ only in numbers (noise, clip, weights of h, step sizes) and have the same seed share the schedule, the
records drawn and one stream of unit noise: the compiled engine runs them side by side and makes the noise once, and
their differences are not blurred by different draws (common random numbers). Groups with different seeds or networks
go out to the cores, or to a cluster through joblib's Dask backend. Where a run lands changes none of its numbers.

For simulations only: runs that share their noise give each other away, since the difference of two models cancels it.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from sottovoce._types import Array
from sottovoce.errors import SpecError
from sottovoce.problem.shards import Shards
from sottovoce.run.build import Prepared, prepare
from sottovoce.run.result import History, Result, environment
from sottovoce.run.solve import TOGETHER, check_engine, choose_engine, observation_rounds, observe
from sottovoce.run.spec import Execution, Spec

NUMBERS: dict[str, Any] = {
    "problem__h": "none",
    "algorithm__a": "constant(1)",
    "algorithm__gamma": "constant(1)",
    "algorithm__eta": "constant(1)",
    "privacy__noise": "none",
    "privacy__clip": None,
    "privacy__delta": 0.5,
}
"""What may differ between runs that share their draws, each in the form in which it makes no difference."""


def sweep(
    specs: Sequence[Spec],
    shards: Shards,
    *,
    test: Shards | None = None,
    f_star: Sequence[float] | None = None,
    execution: Execution | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    **names: Any,
) -> list[Result]:
    """Run every spec and give the results in the order of the specs.

    Parameters
    ----------
    specs : what to run; each needs a seed, so that runs can share draws and land anywhere
    shards, test : the data
    f_star : the optimal value for each spec, where it is known
    jobs : how many groups to run at a time on this machine
    cluster : address of a Dask scheduler to send the groups to instead
    names : classes, features and nodes of the results

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.run.presets import paper_l2
    >>> shards = Shards.of(np.eye(4), np.array([1.0, -1.0, 1.0, -1.0]), np.array([0, 2, 4]))
    >>> grid = [paper_l2(50).but(privacy__noise=f"private({e})", seed=s) for e in (1.0, 2.0) for s in (0, 1)]
    >>> [round(r.statement.epsilon, 1) for r in sweep(grid, shards)]
    [1.0, 1.0, 2.0, 2.0]
    """
    from joblib import Parallel, delayed  # here: it takes as long to load as NumPy
    from threadpoolctl import threadpool_limits

    execution = execution or Execution()
    check_engine(execution.engine)
    if execution.observations is None:  # a sweep's result is its history
        execution = replace(execution, observations=1)
    if any(spec.seed is None for spec in specs):
        raise SpecError("the runs of a sweep share their draws, so each needs a seed")
    groups: dict[Spec, list[int]] = {}
    for place, spec in enumerate(specs):
        groups.setdefault(spec.but(**NUMBERS), []).append(place)
    optima = f_star if f_star is not None else [float("nan")] * len(specs)
    shards.norms  # noqa: B018 - once, before the groups all need them
    work = [
        delayed(_results)([specs[i] for i in places], shards, test, [optima[i] for i in places], execution, names)
        for places in groups.values()
    ]
    # groups side by side share the cores: matrix products that each take them all would wait for each other
    with _where(cluster), threadpool_limits(max(1, (os.cpu_count() or 1) // max(1, jobs)), user_api="blas"):
        done = Parallel(n_jobs=-1 if cluster else jobs, prefer=None if cluster else "threads")(work)
    results: dict[int, Result] = {}
    for places, found in zip(groups.values(), done, strict=True):
        results |= dict(zip(places, found, strict=True))
    return [results[i] for i in range(len(specs))]


class Run(NamedTuple):
    """A run that was made: what it was, the nodes' models at its end, and its history."""

    prepared: Prepared
    models: Array
    history: History
    engine: str


def together(
    specs: Sequence[Spec],
    shards: Shards,
    *,
    test: Shards | None = None,
    f_star: Sequence[float] | None = None,
    execution: Execution | None = None,
) -> list[Run]:
    """Run specs that have the same draws, side by side; without looks where `execution` has none.

    What a run guarantees is accounted when first asked for (`Run.prepared.statement`): many ask only how it ended.
    """
    execution = execution or Execution()
    prepared = [prepare(specs[0], shards)]
    prepared += [prepare(spec, shards, prepared[0].job.schedule) for spec in specs[1:]]
    jobs = [p.job for p in prepared]
    states = [job.start() for job in jobs]
    histories = [History() for _ in specs]
    T, t = specs[0].algorithm.rounds, 0
    engine, looks = choose_engine(execution.engine, jobs[0]), execution.observations
    best = f_star if f_star is not None else [float("nan")] * len(specs)
    for stop in [T] if looks is None else observation_rounds(T, looks).tolist():
        states = TOGETHER[engine](jobs, states, t + 1, stop)
        t = stop
        if looks is not None:
            for history, row in zip(histories, observe(prepared, states, t, test, best), strict=True):
                history.rows.append(row)
    models = [job.method.average(state, T) for job, state in zip(jobs, states, strict=True)]
    return [Run(*made, engine) for made in zip(prepared, models, histories, strict=True)]


def _results(
    specs: list[Spec],
    shards: Shards,
    test: Shards | None,
    f_star: list[float],
    execution: Execution,
    names: dict[str, Any],
) -> list[Result]:
    """The results of one group."""
    began = time.perf_counter()
    runs = together(specs, shards, test=test, f_star=f_star, execution=execution)
    about = environment(runs[0].engine, time.perf_counter() - began)
    return [
        Result(spec, run.models, run.history, run.prepared.statement, run.prepared.public, environment=about, **names)
        for spec, run in zip(specs, runs, strict=True)
    ]


@contextmanager
def _where(cluster: str | None) -> Iterator[None]:
    """The backend: threads of one machine, or a Dask cluster."""
    if cluster is None:
        yield
        return
    try:
        from distributed import Client
        from joblib import parallel_config
    except ImportError:
        raise SpecError("a cluster needs the extra 'sottovoce[cluster]' (Dask); install it, or leave it out") from None
    try:
        client = Client(cluster, timeout=10)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise SpecError(
            f"there is no Dask scheduler at '{cluster}' ({type(error).__name__}); start one first"
        ) from None
    with client, parallel_config(backend="dask", client=client):
        yield
