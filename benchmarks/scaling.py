"""What a round costs as the problem grows: linear in active nodes × m, and nothing for more nodes or records.

And many nodes: the same 200,000 records at 20 to 20,000 nodes, beside reading them once and drawing and adding n·m
normals, both in C; whole fits of a thousand owners and more, without a seed and with one; a hundred thousand nodes, in
seconds and bytes.

    python benchmarks/scaling.py NODES FEATURES ROUNDS GRAPH      (one run in a process of its own: seconds and bytes)
"""

import ctypes
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from baselines import batches, build_floor, pointer
from measure import Line, Target, Work, in_turn
from sottovoce import PrivateClassifier
from sottovoce.data.synthetic import two_gaussians
from sottovoce.engine import compiled
from sottovoce.engine.job import Job
from sottovoce.problem.shards import Shards, even
from sottovoce.run.build import prepare
from sottovoce.run.spec import AlgorithmSpec, Spec
from workloads import DENSE, NODES, RECORDS, WORDS, alone, dense, job, text

LINEAR = Target(1.5, 2.5)  # twice the cost, within a quarter
NO_MORE = Target(high=1.25)
FLOORS, WITHIN, TWICE = Target(high=1.5), Target(high=1.0), Target(high=2.0)
MANY = Spec(AlgorithmSpec(1000, a="constant(1)", gamma="constant(20)"), seed=0).replace(
    network__activation="everyone",
    network__averaging="exact",
    privacy__sampling="full",
    privacy__noise="private(1)",
    problem__h="l2(1e-4)",
)
SECONDS, BYTES = 120.0, 2e9


def lines(quick: bool, repeats: int) -> Iterator[Line]:
    """Everything twice as large, one thing at a time; more active nodes; very many nodes."""
    rounds = 1000 if quick else 3000
    compared = "twice as many / as many"
    for what, small, large, target in (
        ("dense, m: 4000, 2000", dense(), dense(m=2 * DENSE), LINEAR),
        ("dense, nodes n: 200, 100", dense(nodes=5 * NODES), dense(nodes=10 * NODES), NO_MORE),
        ("dense, records N: 16,000, 8000", dense(records=2 * RECORDS), dense(records=4 * RECORDS), NO_MORE),
    ):
        times = _pair(small, large, rounds, repeats)
        yield Line(f"a round of {what}", compared, times["large"], times["small"], "µs", target)
    times = _pair(text(), text(2 * WORDS), rounds // 10, repeats)
    yield Line("a round of CSR, words of a row: 146, 73", compared, times["large"], times["small"], "µs", NO_MORE)
    yield from _active(rounds // 4, repeats)
    yield from _many(repeats)
    yield from _fits((1000,) if quick else (1000, 5000))
    yield from _hundred_thousand(100 if quick else 1000)


def _pair(small: Shards, large: Shards, rounds: int, repeats: int) -> dict[str, float]:
    works = {"small": alone(job(small, rounds), rounds), "large": alone(job(large, rounds), rounds)}
    return in_turn(works, repeats)


def _active(rounds: int, repeats: int) -> Iterator[Line]:
    """Each scheme beside the one before it; in K20 everybody hears everybody, and messages, not nodes, are the cost."""
    shards = dense()
    schemes = {
        "edges(1)": ("edges(1)", "complete", None),
        "edges(2)": ("edges(2)", "complete", NO_MORE),
        "edges(4)": ("edges(4)", "complete", NO_MORE),
        "everyone, ring": ("everyone", "ring", NO_MORE),
        "everyone, K20": ("everyone", "complete", None),
    }
    jobs = {
        name: job(shards, rounds, network__activation=activation, network__graph=graph)
        for name, (activation, graph, _) in schemes.items()
    }
    times = in_turn({name: _by_active(one, rounds) for name, one in jobs.items()}, repeats)
    for before, name in pairwise(schemes):
        compared = f"{name} / {before}, an active node"
        yield Line("active nodes, dense, m = 2000", compared, times[name], times[before], "µs", schemes[name][2])


def _by_active(one: Job, rounds: int) -> Work:
    return Work(alone(one, rounds).do, len(one.schedule.active))


# --- many nodes


def _records(n: int, records: int, features: int) -> Shards:
    table = two_gaussians(records, features, seed=0)
    return Shards.of(table.X.astype(np.float32), table.y, even(records, n)[0])


def _many(repeats: int) -> Iterator[Line]:
    """The whole of a run, statement and all, and its rounds, beside the sum of both floors."""
    lib, features, rounds = build_floor(), 50, 20
    for n in (20, 1000, 5000, 20_000):
        shards = _records(n, 200_000, features)
        one = prepare(MANY, shards).job
        floors = Work(lambda s=shards, n=n: (batches(lib, s)(), _normals(lib, n, features)()), 1)
        times = in_turn({"engine": alone(one, rounds), "floors": floors}, repeats)
        compared = "round / records read once and n·m normals added, in C"
        yield Line(f"200,000 × {features}, n = {n:,}", compared, *times.values(), "µs", FLOORS)


def _fits(owners: tuple[int, ...]) -> Iterator[Line]:
    """The whole of a fit of very many owners: plan, account, rounds and statement, exact and as a simulation."""
    table = two_gaussians(200_000, 50, seed=0)
    X = table.X.astype(np.float32)

    def fit(n: int, seed: int | None) -> object:
        return PrivateClassifier(row_norm=1.0, classes=(-1, 1), n_nodes=n, random_state=seed).fit(X, table.y)

    for n in owners:
        works = {"secure": Work(lambda n=n: fit(n, None), 1), "seeded": Work(lambda n=n: fit(n, 0), 1)}
        times = in_turn(works, 2, time.process_time)  # the second time nothing has to be compiled
        seconds = [value / 1e6 for value in times.values()]
        yield Line(f"fit, 200,000 × 50, n = {n:,}", "without a seed / with one", *seconds, "s", TWICE)


def _normals(lib: ctypes.CDLL, n: int, m: int) -> Callable[[], object]:
    """n·m normals, drawn and added."""
    count = -(-n * m // 2048) * 2048
    drawn, total = np.empty(2048, np.float32), np.zeros(2048)

    def work() -> None:
        lib.add_normals(ctypes.c_long(count), pointer(drawn), pointer(total))

    return work


def _hundred_thousand(rounds: int) -> Iterator[Line]:
    for graph in ("complete", "random_regular(degree=6)"):
        said = subprocess.run(
            [sys.executable, __file__, "100000", "50", str(rounds), graph], capture_output=True, text=True, check=True
        )
        seconds, peak = map(float, said.stdout.split()[-2:])
        what = f"n = 100,000, m = 50, {rounds:,} rounds, {graph.split('(')[0]}"
        yield Line(what, "processor time of all of it / two minutes", seconds, SECONDS * rounds / 1000, "s", WITHIN)
        yield Line(what, "memory at most / 2 GB", peak / 1e9, BYTES / 1e9, "GB", WITHIN)


def main() -> None:
    """Prepare, run and account for one run of many nodes with two records each; print its seconds and its bytes.

    The engine is compiled before the clock runs, and the clock is the processor's.
    """
    n, features, rounds = map(int, sys.argv[1:4])
    spec = MANY.replace(network__graph=sys.argv[4], algorithm__rounds=rounds)
    spec = spec if sys.argv[4] == "complete" else spec.replace(network__averaging="gossip")
    shards = _records(n, 2 * n, features)
    small = prepare(spec.replace(algorithm__rounds=1), _records(2000, 4000, features)).job
    compiled.run(small, small.start(), 1, 1)
    began = time.process_time()
    made = prepare(spec, shards)
    state = compiled.run(made.job, made.job.start(), 1, rounds)
    made.models(state, rounds)
    made.statement.verdict()
    print(time.process_time() - began, _peak())


def _peak() -> float:
    """The most bytes that this process had in memory; `getrusage` counts those of anyone who started it, too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * float(next(line for line in lines if line.startswith("VmHWM")).split()[1])


if __name__ == "__main__":
    main()
