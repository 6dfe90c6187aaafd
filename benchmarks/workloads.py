"""The jobs that are timed: the paper's one edge of K20 a round, hinge loss, noise on, and what it is compared with."""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from measure import Work
from sottovoce.data.synthetic import sparse_text, two_gaussians
from sottovoce.engine import compiled
from sottovoce.engine.job import Job
from sottovoce.problem.shards import Shards, even
from sottovoce.run.build import prepare
from sottovoce.run.presets import paper_l2
from sottovoce.run.spec import Spec

NODES, SIGMA, RECORDS, WORDS = 20, 0.06, 4000, 73
DENSE, SPARSE = 2000, 47_236
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


@lru_cache(maxsize=1)  # one data set at a time
def dense(m: int = DENSE, records: int = RECORDS, nodes: int = NODES) -> Shards:
    """Two clouds, in float32."""
    table = two_gaussians(records, m, seed=0)
    return Shards.of(table.X.astype(np.float32), table.y, even(records, nodes)[0])


@lru_cache(maxsize=1)
def text(nnz: int = WORDS) -> Shards:
    """Documents of at most nnz different words, CSR, in float32."""
    table = sparse_text(RECORDS, SPARSE, nnz, seed=0)
    return Shards.of(table.X.astype(np.float32), table.y, even(RECORDS, NODES)[0])


def noisy(spec: Spec) -> Spec:
    """With noise of a fixed size, which needs no accounting beforehand."""
    return spec.replace(privacy__noise=f"gaussian({SIGMA})", seed=0)


def job(shards: Shards, rounds: int, **changes: str) -> Job:
    """The paper's l2 run, with some fields of its spec changed."""
    return prepare(noisy(paper_l2(rounds).replace(**changes)), shards).job


def sweep(job: Job) -> list[Job]:
    """The job with its noise times each factor."""
    found = []
    for factor in FACTORS:
        release = replace(job.release, sigma=tuple(factor * s for s in job.release.sigma))
        found.append(replace(job, release=release, draws=replace(job.draws, release=release)))
    return found


def in_one_batch(jobs: list[Job], rounds: int) -> Work:
    """So many rounds of the compiled engine, once it is compiled."""
    states = [one.start() for one in jobs]
    compiled.run_many(jobs, states, 1, 1)
    return Work(lambda: compiled.run_many(jobs, states, 1, rounds), rounds)


def alone(job: Job, rounds: int) -> Work:
    """As `in_one_batch`, for one job."""
    return in_one_batch([job], rounds)
