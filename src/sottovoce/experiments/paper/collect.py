"""Runs what a figure needs and keeps it, a file a group: interrupted work goes on where it was."""

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from sottovoce.engine import ENGINES
from sottovoce.errors import SpecError
from sottovoce.experiments.paper.data import Sample
from sottovoce.experiments.paper.experiments import DELTA, REGULARISERS, Group
from sottovoce.privacy.accounting import price
from sottovoce.problem.optimum import optimum
from sottovoce.run.build import Prepared, make_problem, prepare
from sottovoce.run.result import NOT_PRIVATE, environment, write_atomically
from sottovoce.run.solve import observation_rounds, observe

GAPS = {"tiny": 1e-6, "small": 1e-5, "full": 1e-4}
OBSERVATIONS = {"tiny": 16, "small": 20, "full": 12}

Done = Callable[[int, int, str], None]
"""(groups done, of how many, the newest one)."""


def folder_of(out: Path, sample: Sample) -> Path:
    """Where a sample's runs are kept."""
    return out / f"{sample.name}-{sample.size}"


def optima(sample: Sample, kinds: set[str], out: Path) -> dict[str, float]:
    """F* of each regulariser, certified; computed once and kept."""
    path = folder_of(out, sample) / "optima.json"
    known: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
    for h in sorted(kinds - set(known)):
        problem = make_problem(REGULARISERS[h][0](1).problem, sample.train)
        known[h] = optimum(problem, gap=GAPS[sample.size]).value
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(known).encode())
    return known


def collect(
    sample: Sample,
    wanted: list[Group],
    noises: tuple[str, ...],
    out: Path,
    jobs: int | None = None,
    done: Done | None = None,
) -> pa.Table:
    """Run the groups that are not there yet and give the rows of all of them."""
    folder = folder_of(out, sample)
    folder.mkdir(parents=True, exist_ok=True)
    best = optima(sample, {group.h for group in wanted}, out)
    missing = [group for group in wanted if not _has(folder / f"{group.name}.parquet", noises)]
    sample.train.norms  # noqa: B018 - once, before the threads all need them
    cores = os.cpu_count() or 1
    jobs = jobs or cores
    # matrix products that each take all cores would wait for each other
    with threadpool_limits(max(1, cores // jobs), user_api="blas"), ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(_run, sample, group, noises, best[group.h], folder): group for group in missing}
        try:
            for count, future in enumerate(as_completed(futures), 1):
                future.result()
                if done:
                    done(count, len(missing), futures[future].name)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return read(out, sample, wanted)


def read(out: Path, sample: Sample, wanted: list[Group]) -> pa.Table:
    """The rows of these groups, from their files: nothing is run."""
    paths = [folder_of(out, sample) / f"{group.name}.parquet" for group in wanted]
    absent = [path for path in paths if not path.exists()]
    if absent:
        raise SpecError(f"{len(absent)} of {len(paths)} groups of runs are not in '{absent[0].parent}'; run them first")
    return pa.concat_tables([pq.read_table(path) for path in paths])


def _has(path: Path, noises: tuple[str, ...]) -> bool:
    return path.exists() and set(noises) <= set(pq.read_table(path, columns=["noise"])["noise"].unique().to_pylist())


def _run(sample: Sample, group: Group, noises: tuple[str, ...], f_star: float, folder: Path) -> None:
    """All runs of a group, side by side."""
    began = time.perf_counter()
    listed = group.specs(sample.train.sizes, noises)
    prepared = [prepare(spec, sample.train) for _, _, spec in listed]
    jobs = [p.job for p in prepared]
    states, t, rows = [job.start() for job in jobs], 0, []
    heads = [
        {
            "data": sample.name,
            "size": sample.size,
            "h": group.h,
            "scheme": group.scheme,
            "noise": noise,
            "epsilon": epsilon,
            "seed": group.seed,
            "true_epsilon": _true_epsilon(p),
            "delta": DELTA,
            "sigma": max(p.job.release.sigma),
            "iota": p.public["iota"],
        }
        for (noise, epsilon, _), p in zip(listed, prepared, strict=True)
    ]
    for stop in observation_rounds(jobs[0].schedule.T, OBSERVATIONS[sample.size]).tolist():
        states = ENGINES["compiled"].run(jobs, states, t + 1, stop)
        t = stop
        seen = observe(prepared, states, t, sample.test, [f_star] * len(jobs))
        rows += [head | row for head, row in zip(heads, seen, strict=True)]
    about = environment("compiled", time.perf_counter() - began) | {"spec": listed[0][2].to_dict()}
    table = pa.Table.from_pylist(rows)
    table = table.replace_schema_metadata({"privacy": NOT_PRIVATE, "environment": json.dumps(about)})
    beside = folder / f"{group.name}.part"
    pq.write_table(table, beside)
    os.replace(beside, folder / f"{group.name}.parquet")


def _true_epsilon(prepared: Prepared) -> float:
    """ε at δ of the node that spoke most: all have the same noise, and hardly more than one record's difference."""
    job = prepared.job
    most = int(np.argmax(job.schedule.participations()))
    event = job.release.event(most, int(job.problem.shards.sizes[most]), int(job.schedule.participations()[most]))
    return price([event], DELTA, lower=False).epsilon
