"""Runs what a figure needs and keeps it, a file a group: interrupted work goes on where it was."""

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sottovoce.build import make_problem
from sottovoce.errors import SpecError
from sottovoce.paper.data import Sample
from sottovoce.paper.experiments import DELTA, REGULARISERS, Group
from sottovoce.problem.optimum import optimum
from sottovoce.result import NOT_PRIVATE, environment, write_atomically
from sottovoce.spec import Execution
from sottovoce.sweep import sweep

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
    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
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
    began = time.perf_counter()
    listed = group.specs(sample.train.sizes, noises)
    execution = Execution("compiled", OBSERVATIONS[sample.size])
    specs = [spec for _, _, spec in listed]
    results = sweep(specs, sample.train, test=sample.test, f_star=[f_star] * len(specs), execution=execution)
    rows: list[dict[str, Any]] = []
    for (noise, epsilon, _), result in zip(listed, results, strict=True):
        head = {
            "data": sample.name,
            "size": sample.size,
            "h": group.h,
            "scheme": group.scheme,
            "noise": noise,
            "epsilon": epsilon,
            "seed": group.seed,
            "true_epsilon": result.statement.epsilon,
            "delta": DELTA,
            "sigma": max(g.event.sigma for g in result.statement.groups),
            "iota": result.public["iota"],
        }
        rows += [head | row for row in result.history.rows]
    table = pa.Table.from_pylist(rows)
    about = environment("compiled", time.perf_counter() - began) | {"spec": specs[0].to_dict()}
    table = table.replace_schema_metadata({"privacy": NOT_PRIVATE, "environment": json.dumps(about)})
    beside = folder / f"{group.name}.part"
    pq.write_table(table, beside)
    os.replace(beside, folder / f"{group.name}.parquet")
