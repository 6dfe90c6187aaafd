"""A round of the default `fit` on data that people have, beside reading its records once in C; and without a seed.

Plans are the estimator's own for twenty owners. Needs the folder with the real data sets (SOTTOVOCE_DATA); one set is
in memory at a time.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from baselines import batches, build_floor
from measure import Line, Target, Work, in_turn
from sottovoce import PrivateClassifier
from sottovoce.data.fetch import load_real
from sottovoce.data.synthetic import sparse_text, two_gaussians
from sottovoce.data.tables import Table
from sottovoce.engine import reference
from sottovoce.run.build import prepare
from workloads import alone

FLOOR, TWICE = Target(high=1.5), Target(high=2)
OWNERS, ENOUGH = 20, 20_000_000


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
        yield from _rounds(each, table, lib, min(repeats, 5))
        del table


def _rounds(each: Set, table: Table, lib: object, repeats: int) -> Iterator[Line]:
    classes = tuple(np.unique(table.y).tolist())
    model = PrivateClassifier(row_norm=each.row_norm, classes=classes, n_nodes=OWNERS, random_state=0)
    run = model._prepare(table.X, table.y, None, None)
    job, secure = (prepare(run.spec.but(seed=seed), run.shards).job for seed in (0, None))
    nodes = np.arange(OWNERS)
    drawn = job.draws.records(nodes, np.full(OWNERS, 1))
    rows = None
    if drawn[0] is not None:
        rows = np.concatenate([o + some for o, some in zip(run.shards.offsets[:-1], drawn, strict=True)])
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
    what = f"{each.name}, {run.spec.privacy.sampling}"
    yield Line(what, "a round of fit / its records read once in C", times["seeded"], times["floor"], "µs", FLOOR)
    yield Line(what, "a round without a seed / with one", times["secure"], times["seeded"], "µs", TWICE)
