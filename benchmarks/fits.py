"""The default `fit` on data that people have, whole, beside reading its records once a round in C.

`fit` is `PrivateClassifier(row_norm, classes).fit(X, y)`: one owner, ε = 1; plan, account, shape of the data, rounds
and statement, all of it; with a seed (a simulation) and without (secure: exact sums, cryptographic noise). Every fit
has an ε of its own, so that no account is known from the one before. The floor is as many rounds of the same records.
Below it a round of twenty owners' plan, which has more noise, with nothing around it.

Needs the folder with the real data sets (SOTTOVOCE_DATA); one set is in memory at a time.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import NamedTuple

import numpy as np

from baselines import batches, build_floor
from measure import Line, Target, Work, in_turn
from sottovoce import PrivateClassifier
from sottovoce.data.fetch import load_real
from sottovoce.data.synthetic import sparse_text, two_gaussians
from sottovoce.data.tables import Table
from sottovoce.engine import reference
from sottovoce.engine.cores import shared
from sottovoce.engine.job import Job
from sottovoce.run.build import prepare
from workloads import alone

FLOOR, TWICE = Target(high=1.5), Target(high=2)
OWNERS, ENOUGH = 20, 20_000_000
EPSILONS = (1.0 + 1e-4 * k for k in count())


class Set(NamedTuple):
    """A name, where it comes from, and the public bound of a row."""

    name: str
    load: Callable[[], Table]
    row_norm: float


def _real(name: str) -> Callable[[], Table]:
    return lambda: load_real(name)


def _wide(records: int) -> Callable[[], Table]:
    def load() -> Table:
        table = two_gaussians(records, 2000, seed=0)
        return replace(table, X=table.X.astype(np.float32))

    return load


def _sets(quick: bool) -> Iterator[Set]:
    yield Set("a9a", _real("a9a"), 4.0)
    yield Set("CSR, 37,000 × 300", lambda: sparse_text(37_000, 300, 14, seed=0), 1.0)
    yield Set("mushrooms", _real("mushrooms"), 5.0)
    yield Set("rcv1", _real("rcv1"), 1.0)
    yield Set("MNIST, softmax", _real("mnist"), 10.0)
    yield Set(f"dense, {10_000 if quick else 100_000:,} × 2,000", _wide(10_000 if quick else 100_000), 1.0)
    if not quick:
        yield Set("covtype", _real("covtype"), 8000.0)


def lines(quick: bool, repeats: int) -> Iterator[Line]:
    """Every set in turn."""
    lib = build_floor()
    for each in _sets(quick):
        table = each.load()
        with shared(os.cpu_count() or 1):  # on one thread, as the floor
            yield from _whole(each, table, lib, min(repeats, 3))
            yield from _rounds(each, table, lib, min(repeats, 5))
        del table


def _whole(each: Set, table: Table, lib: object, repeats: int) -> Iterator[Line]:
    classes = tuple(np.unique(table.y).tolist())

    def fit(seed: int | None) -> PrivateClassifier:
        model = PrivateClassifier(next(EPSILONS), row_norm=each.row_norm, classes=classes, random_state=seed)
        return model.fit(table.X, table.y)

    model = fit(0)  # compiles what is needed
    fit(None)
    run = model._prepare(table.X, table.y, None, None)
    job = prepare(run.spec, run.shards).job
    rounds = run.spec.algorithm.rounds
    read = batches(lib, run.shards, _drawn(job), job.problem.outputs)
    some = max(2, rounds // 50)
    times = in_turn(
        {
            "floor": Work(lambda: [read() for _ in range(some)], some),
            "seeded": Work(lambda: fit(0), rounds),
            "secure": Work(lambda: fit(None), rounds),
        },
        repeats,
    )
    what = f"{each.name}, {rounds} rounds, {run.spec.privacy.sampling}"
    yield Line(what, "fit with a seed / records read in C", times["seeded"], times["floor"], "µs", FLOOR)
    yield Line(what, "fit without a seed / with one", times["secure"], times["seeded"], "µs", TWICE)


def _drawn(job: Job) -> np.ndarray | None:
    """The rows of round 1; None for all."""
    shards = job.problem.shards
    drawn = job.draws.records(np.arange(shards.n), np.full(shards.n, 1))
    if drawn[0] is None:
        return None
    return np.concatenate([first + some for first, some in zip(shards.offsets[:-1], drawn, strict=True)])


def _rounds(each: Set, table: Table, lib: object, repeats: int) -> Iterator[Line]:
    classes = tuple(np.unique(table.y).tolist())
    model = PrivateClassifier(row_norm=each.row_norm, classes=classes, n_nodes=OWNERS, random_state=0)
    run = model._prepare(table.X, table.y, None, None)
    job, secure = (prepare(run.spec.but(seed=seed), run.shards).job for seed in (0, None))
    rows = _drawn(job)
    read = run.shards.X.size if rows is None else len(rows) * run.shards.X.size // len(table.y)
    rounds = max(2, min(20, run.spec.algorithm.rounds, ENOUGH // (read * job.problem.outputs)))
    state = secure.start()
    times = in_turn(
        {
            "floor": Work(batches(lib, run.shards, rows, job.problem.outputs), 1),
            "seeded": alone(job, rounds),
            "secure": Work(lambda: reference.run(secure, state, 1, rounds), rounds),
        },
        repeats,
    )
    what = f"{each.name}, {OWNERS} owners, {run.spec.privacy.sampling}"
    yield Line(what, "a round of fit / its records read once in C", times["seeded"], times["floor"], "µs", FLOOR)
    yield Line(what, "a round without a seed / with one", times["secure"], times["seeded"], "µs", TWICE)
