"""Many runs at once: an ε grid × seeds × regularization, with as much shared as may be.

Runs that differ only in numbers (noise, clip, weights of h, step sizes) and have the same seed share the schedule, the
records drawn and one stream of noise term: the compiled engine runs them side by side and makes the noise once, and
their differences are not blurred by different draws (common random numbers). Groups with different seeds or networks
go out to the cores, or to a cluster through joblib's Dask backend; a device takes all seeds together. Where a run lands
changes none of its numbers.

For simulations only: runs that share their noise give each other away, since the difference of two models cancels it.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sottovoce.engine import Engine, engine_named
from sottovoce.errors import SpecError
from sottovoce.extension import shared
from sottovoce.problem.shards import Shards
from sottovoce.run.build import prepare
from sottovoce.run.result import Result
from sottovoce.run.solve import RunOptions, batch_key, run_batch
from sottovoce.run.spec import Execution, Spec


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
    >>> grid = [paper_l2(50).replace(privacy__noise=f"private({e})", seed=s) for e in (1.0, 2.0) for s in (0, 1)]
    >>> [round(r.statement.epsilon, 1) for r in sweep(grid, shards)]
    [1.0, 1.0, 2.0, 2.0]
    """
    from joblib import Parallel, delayed  # here: it takes as long to load as NumPy
    from threadpoolctl import threadpool_limits

    execution = execution or Execution()
    execution = replace(execution, observations=execution.observations or 1)  # a sweep's result is its history
    if any(spec.seed is None for spec in specs):
        raise SpecError("the runs of a sweep share their draws, so each needs a seed")
    alikes: dict[str, list[int]] = {}
    engine = None if execution.engine == "auto" else engine_named(execution.engine)
    for place, spec in enumerate(specs):
        alikes.setdefault(batch_key(spec, engine is not None and engine.device is not None), []).append(place)
    groups: list[list[int]] = []
    for places in alikes.values():  # a run that maps its records shares them with none, unless the engine maps them
        first = specs[places[0]]
        apart = first.privacy.pre_release is not None and not _mapped_by(engine, first, shards)
        groups += [[place] for place in places] if apart else [places]
    for turn, places in enumerate(groups):  # who requests for the same noise side by side begins with another run
        begin = turn % max(1, jobs) * len(places) // max(1, jobs)
        places[:] = places[begin:] + places[:begin]
    optima = f_star if f_star is not None else [float("nan")] * len(specs)
    shards.norms  # noqa: B018 - once, before the groups all need them
    work = [
        delayed(_results)(
            [specs[i] for i in places], shards, RunOptions(execution, test, [optima[i] for i in places]), names
        )
        for places in groups
    ]
    # groups side by side share the cores: matrix products that each take them all would wait for each other
    share = max(1, (os.cpu_count() or 1) // max(1, jobs))
    with _where(cluster), shared(1 if cluster else jobs), threadpool_limits(share, user_api="blas"):
        done = Parallel(n_jobs=-1 if cluster else jobs, prefer=None if cluster else "threads")(work)
    results: dict[int, Result] = {}
    for places, found in zip(groups, done, strict=True):
        results |= dict(zip(places, found, strict=True))
    return [results[i] for i in range(len(specs))]


def _results(specs: Sequence[Spec], shards: Shards, options: RunOptions, names: dict[str, Any]) -> list[Result]:
    """Of runs side by side."""
    return [run.result(**names) for run in run_batch(specs, shards, options)]


def _mapped_by(engine: Engine | None, spec: Spec, shards: Shards) -> bool:
    """Whether the engine puts the records of such runs through their maps, as it reads them."""
    if engine is None or engine.device is None or engine.lacks() is not None or shards.people:
        return False
    return engine.refusal(prepare(spec, shards, unmapped=True).job) is None


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
