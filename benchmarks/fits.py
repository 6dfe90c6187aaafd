"""The default `fit` on data that people have, whole, beside reading its records once a round in C.

`fit` is `PrivateClassifier(row_norm, classes).fit(X, y)`: one owner, ε = 1; plan, account, shape of the data, rounds
and statement, all of it; with a seed (a simulation) and without (secure: exact sums, cryptographic noise). Every fit
has an ε of its own, so that no account is known from the one before, and is the first on its records. The floor is as
many rounds of the same records. Below it a round of twenty owners' plan, which has more noise, with nothing around it.

Then fits on two threads, by the wall clock, beside the floor on two threads, each of which reads half of the records.
They are judged where the machine has a second core to give at that moment, and left out where OMP_NUM_THREADS is 1.

Needs the folder with the real data sets (SOTTOVOCE_DATA); one set is in memory at a time.
"""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import NamedTuple

import numpy as np

from baselines import batches, build_floor
from measure import TWICE, Line, Target, Work, in_turn, without_a_seed
from sottovoce import PrivateClassifier
from sottovoce.data.fetch import load_real
from sottovoce.data.synthetic import sparse_text, two_gaussians
from sottovoce.data.tables import Table
from sottovoce.engine import compiled, reference
from sottovoce.engine.job import Job
from sottovoce.errors import DataError
from sottovoce.estimators import composition
from sottovoce.extension import available, shared
from sottovoce.run.build import prepare
from workloads import alone

FLOOR = Target(high=1.5)
OWNERS, ENOUGH = 20, 20_000_000
SECOND = 1.7
"""By how much two threads must be faster than one in C, or there is no second core, and nothing to judge."""
EPSILONS = (1.0 + 1e-4 * k for k in count())


class Set(NamedTuple):
    """A name, where it comes from, the public bound of a row, and what is measured of it."""

    name: str
    load: Callable[[], Table]
    row_norm: float
    once: bool = False
    """Whether a whole fit is timed only once, and only with a seed."""
    owners: bool = True
    """Whether rounds of twenty owners are timed, too."""
    threads: bool = False
    """Whether it is fitted on two threads, too."""


def _real(name: str) -> Callable[[], Table]:
    return lambda: load_real(name)


def _wide(records: int) -> Callable[[], Table]:
    def load() -> Table:
        table = two_gaussians(records, 2000, seed=0)
        return replace(table, X=table.X.astype(np.float32))

    return load


def _sets(quick: bool) -> Iterator[Set]:
    yield Set("a9a", _real("a9a"), 4.0, threads=True)
    yield Set("CSR, 37,000 × 300", lambda: sparse_text(37_000, 300, 14, seed=0), 1.0, threads=True)
    yield Set("mushrooms", _real("mushrooms"), 5.0)
    yield Set("rcv1", _real("rcv1"), 1.0, threads=True)
    yield Set("MNIST, softmax", _real("mnist"), 10.0, threads=True)
    yield Set("dense, 10,000 × 2,000", _wide(10_000), 1.0, threads=True)
    yield Set("covtype", _real("covtype"), 8000.0, once=quick, threads=not quick)
    yield Set("dense, 100,000 × 2,000", _wide(100_000), 1.0, once=True, owners=False)


def lines(quick: bool, repeats: int) -> Iterator[Line]:
    """Every set in turn."""
    lib = build_floor()
    for each in _sets(quick):
        try:
            table = each.load()
        except DataError as missing:
            print(f"{each.name} is left out: {missing}")
            continue
        with shared(os.cpu_count() or 1):  # on one thread, as the floor
            yield from _whole(each, table, lib, min(repeats, 3))
            yield from _rounds(each, table, lib, min(repeats, 5)) if each.owners else ()
        if each.threads and available() > 1:
            yield _on_two_threads(each, table, lib, min(repeats, 3))
        del table


class Fits:
    """Fits of a set, its plan, and as many rounds in C as the plan has."""

    def __init__(self, each: Set, table: Table) -> None:
        self.row_norm, self.table, self.classes = each.row_norm, table, tuple(np.unique(table.y).tolist())
        run = self._model(0)._prepare(table.X, table.y, None, None)
        self.shards, self.job = run.shards, prepare(run.spec, run.shards).job
        self.rounds, self.sampling = run.spec.algorithm.rounds, run.spec.privacy.sampling

    def _model(self, seed: int | None) -> PrivateClassifier:
        return PrivateClassifier(next(EPSILONS), row_norm=self.row_norm, classes=self.classes, random_state=seed)

    def fit(self, seed: int | None) -> Work:
        """A whole fit, the first one on these records."""

        def work() -> None:
            composition.KNOWN.clear()
            self._model(seed).fit(self.table.X, self.table.y)

        return Work(work, self.rounds)

    def floor(self, lib: object) -> Work:
        """A few of as many rounds."""
        some = max(2, self.rounds // 50)
        read = batches(lib, self.shards, _drawn(self.job), self.job.problem.outputs)
        return Work(lambda: [read() for _ in range(some)], some)


def _whole(each: Set, table: Table, lib: object, repeats: int) -> Iterator[Line]:
    made = Fits(each, table)
    what = f"{each.name}, {made.rounds} rounds, {made.sampling}"
    works = {"floor": made.floor(lib), "seeded": made.fit(0)}
    if each.once:
        compiled.run(made.job, made.job.start(), 1, 1)  # compiles what is needed
        times = in_turn(works, 1)
    else:
        works["secure"] = made.fit(None)
        works["seeded"].do()
        works["secure"].do()
        times = in_turn(works, repeats)
    yield Line(what, "fit with a seed / records read in C", times["seeded"], times["floor"], "µs", FLOOR)
    if not each.once:
        yield Line(what, "fit without a seed / with one", times["secure"], times["seeded"], "µs", TWICE)


def _on_two_threads(each: Set, table: Table, lib: object, repeats: int) -> Line:
    """By the wall clock: a fit, and the floor's records in two halves, side by side and sequentially."""
    made = Fits(each, table)
    drawn = _drawn(made.job)
    rows = np.arange(len(made.shards.y)) if drawn is None else drawn
    halves = [batches(lib, made.shards, half, made.job.problem.outputs) for half in np.array_split(rows, 2)]
    some = max(2, made.rounds // 20)

    def many(read: Callable[[], object]) -> None:
        for _ in range(some):
            read()

    with ThreadPoolExecutor(2) as pool:
        works = {
            "sequentially": Work(lambda: list(map(many, halves)), some),
            "side by side": Work(lambda: list(pool.map(many, halves)), some),
            "fit": made.fit(0),
        }
        times = in_turn(works, repeats, time.perf_counter)
    busy = times["sequentially"] / times["side by side"] < SECOND
    what = f"{each.name}, two threads{', not judged' if busy else ''}"
    compared = "fit / records read in C, by the wall clock"
    return Line(what, compared, times["fit"], times["side by side"], "µs", None if busy else FLOOR)


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
    job, secure = (prepare(run.spec.replace(seed=seed), run.shards).job for seed in (0, None))
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
    yield without_a_seed(what, times["secure"], times["seeded"], OWNERS * job.problem.m)
