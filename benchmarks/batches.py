"""The job that people run, planned: everyone in every round, large batches. Beside reading the records once in C.

And what noise that pairs of nodes share costs there: with an exact mean, and where it has to be drawn (lazy gossip).
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from baselines import batches, build_floor
from measure import Line, Target, Work, in_turn
from sottovoce.data.synthetic import sparse_text, two_gaussians
from sottovoce.engine.job import Job
from sottovoce.problem.shards import Shards, even
from sottovoce.run.build import prepare
from sottovoce.run.spec import AlgorithmSpec, Spec
from workloads import alone

FLOOR, PAIRS = Target(high=1.5), Target(high=1.5)
FEATURES, SHARE = 2000, 0.2
PLANNED = Spec(AlgorithmSpec(1000, a="constant(1)", gamma="constant(20)"), seed=0).replace(
    network__activation="everyone", privacy__noise="gaussian(0.1)", problem__h="l2(1e-4)"
)
SECRETS = {"privacy__law": "pairs(10)", "privacy__adversary": "secret_pairs(majority)"}


def lines(quick: bool, repeats: int) -> Iterator[Line]:
    """CSR and dense against their floors; then with pairs."""
    lib = build_floor()
    text = sparse_text(37_000, 300, 14, seed=0)
    csr = Shards.of(text.X, text.y, even(37_000, 20)[0])
    yield from _floors(f"CSR, 37,000 × 300, {text.X.nnz // 37_000} a row", csr, lib, "full", repeats)
    table = two_gaussians(10_000 if quick else 100_000, FEATURES, seed=0)
    X, y = table.X.astype(np.float32), table.y
    title = f"dense, {len(y):,} × {FEATURES:,}"
    dense = Shards.of(X, y, even(len(y), 20)[0])
    yield from _floors(title, dense, lib, "full", repeats)
    yield from _floors(title, dense, lib, f"poisson({SHARE})", repeats)
    for n in (20, 100):
        yield from _pairs(f"{title}, n = {n}", Shards.of(X, y, even(len(y), n)[0]), repeats)


def _job(shards: Shards, **changes: str) -> Job:
    return prepare(PLANNED.replace(**changes), shards).job


def _floors(title: str, shards: Shards, lib: object, sampling: str, repeats: int) -> Iterator[Line]:
    rows = None
    if sampling != "full":
        rows = np.flatnonzero(np.random.default_rng(0).random(len(shards.y)) < SHARE)
    rounds = 40 if hasattr(shards.X, "indptr") else 4
    job = _job(shards, privacy__sampling=sampling)
    works = {"engine": alone(job, rounds), "floor": Work(batches(lib, shards, rows), 1)}
    times = in_turn(works, repeats)
    yield Line(f"{title}, {sampling}", "planned round / records read once in C", *times.values(), "µs", FLOOR)


def _pairs(title: str, shards: Shards, repeats: int) -> Iterator[Line]:
    jobs = partial(_job, shards, privacy__sampling=f"poisson({SHARE})")
    for name, how in (
        ("exact mean", {"network__averaging": "exact"}),
        ("lazy gossip", {"network__weights": "lazy"}),
    ):
        times = in_turn({"with": alone(jobs(**how, **SECRETS), 4), "without": alone(jobs(**how), 4)}, repeats)
        yield Line(title, f"pairs / independent noise, {name}", *times.values(), "µs", PAIRS)
