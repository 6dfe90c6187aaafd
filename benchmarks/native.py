"""The native loops: beside C floors, people beside rows, secure rounds beside seeded ones, and what starting costs.

    python benchmarks/native.py [--repeats 15] [--only floors people start]

Prints the tables of results/native.md. Everything of a table is taken in turn, by processor time, and the best counts.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

import speed
from baselines import batches, build_floor
from measure import HEADS, Line, Target, Work, in_turn, row
from sottovoce import _native
from sottovoce.data.synthetic import sparse_text, two_gaussians
from sottovoce.engine import reference
from sottovoce.engine.job import Job
from sottovoce.extension import shared
from sottovoce.problem.shards import Shards
from sottovoce.run.build import prepare
from sottovoce.run.spec import AlgorithmSpec, Spec
from workloads import alone

FLOOR, SECURE, PEOPLE = Target(high=1.3), Target(high=1.5), Target(high=2)
IMPORT, FIRST = Target(high=0.15, unit=" s"), Target(high=0.1, unit=" s")
ALONE = Spec(AlgorithmSpec(1000, a="constant(1)", gamma="constant(20)")).replace(
    privacy__noise="gaussian(0.1)", privacy__sampling="full", problem__h="l2(1e-4)", network__activation="everyone"
)
ROUNDS = 25
"""In a call: a secure run draws noise for hundreds of rounds at once, and what that costs is shared by them."""
FIT = """
import time
import numpy as np
from sottovoce import PrivateClassifier
rng = np.random.default_rng(0)
X = rng.normal(size=(20_000, 50)).astype(np.float32) / 10
y = rng.integers(0, 2, 20_000)
for _ in range(2):
    began = time.process_time()
    PrivateClassifier(row_norm=1.0, classes=(0, 1), random_state=0).fit(X, y)
    print(time.process_time() - began)
"""
IMPORTS = {
    "bare": "import sklearn.base",
    "estimators": "import sklearn.base\nfrom sottovoce import PrivateClassifier, PrivateRegressor, PrivateSearchCV",
}


def floors(repeats: int) -> Iterator[Line]:
    """The paper's job, and a round of one owner that reads all records, beside C."""
    yield from speed.lines(False, repeats)
    lib = build_floor()
    text = sparse_text(32_561, 123, 14, seed=0)
    for what, X, y, loss, outputs in (
        ("CSR, 32,561 × 123, logistic", text.X.astype(np.float32), text.y, "logistic", 1),
        ("dense, 20,000 × 50, logistic", *_dense(20_000, 50), "logistic", 1),
        ("dense, 4,000 × 2,000, logistic", *_dense(4_000, 2_000), "logistic", 1),
        ("dense, 6,000 × 784, softmax of 10", *_dense(6_000, 784, 10), "softmax", 10),
    ):
        shards = Shards.of(X, y, np.array([0, len(y)]))
        job = _job(shards, loss, outputs, 0)
        works = {"native": alone(job, 5), "floor": Work(batches(lib, shards, None, outputs), 1)}
        yield Line(what, "a round / its records read once in C", *in_turn(works, repeats).values(), "µs", FLOOR)


def people(repeats: int) -> Iterator[Line]:
    """20,000 people with two rows each beside the same 40,000 rows, seeded and secure; and secure beside seeded."""
    text = sparse_text(40_000, 123, 14, seed=0)
    for what, X, y, loss, outputs in (
        ("CSR, 14 of 123", text.X.astype(np.float32), text.y, "logistic", 1),
        ("dense, 50 columns", *_dense(40_000, 50), "logistic", 1),
        ("dense, softmax of 3", *_dense(40_000, 50, 3), "softmax", 3),
    ):
        ids, offsets = np.arange(40_000) // 2, np.array([0, 40_000])
        data = {"rows": Shards.of(X, y, offsets), "people": Shards.of(X, y, offsets, user_ids=ids)}
        works = {}
        for name, shards in data.items():
            works[f"seeded {name}"] = alone(_job(shards, loss, outputs, 0), ROUNDS)
            works[f"secure {name}"] = _secure(_job(shards, loss, outputs, None), ROUNDS)
        times = in_turn(works, repeats)
        for how in ("seeded", "secure"):
            yield Line(f"{what}, {how}", "people / rows", times[f"{how} people"], times[f"{how} rows"], "µs", PEOPLE)
        yield Line(what, "a secure round / a seeded one", times["secure rows"], times["seeded rows"], "µs", SECURE)


def start(repeats: int) -> Iterator[Line]:
    """Importing the estimators, and the first fit of a fresh process, with byte code in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        there = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {
            "PYTHONPYCACHEPREFIX": folder
        }

        def run(code: str) -> list[float]:
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=there)
            return [float(number) for number in done.stdout.split()]

        clock = "\nimport time\nprint(time.process_time())"
        found: dict[str, list[float]] = {name: [] for name in (*IMPORTS, "first", "second")}
        for _ in range(repeats + 1):
            for name, code in IMPORTS.items():
                found[name] += run(code + clock)
            first, second = run(FIT)
            found["first"].append(first)
            found["second"].append(second)
    taken = {name: statistics.median(times[1:]) for name, times in found.items()}  # the first run writes byte code
    bare, all_of_them, first, second = taken.values()
    yield Line("import the estimators", "with them / sklearn.base", all_of_them, bare, "s", IMPORT, all_of_them - bare)
    yield Line("fit of 20,000 × 50", "first of a process / second", first, second, "s", FIRST, first - 1.2 * second)


TABLES: dict[str, Callable[[int], Iterator[Line]]] = {"floors": floors, "people": people, "start": start}


def _dense(records: int, features: int, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    table = two_gaussians(records, features, seed=0)
    X = table.X.toarray() if sparse.issparse(table.X) else table.X
    y = table.y if classes == 2 else np.arange(records) % classes
    return X.astype(np.float32), y.astype(np.float64)


def _job(shards: Shards, loss: str, outputs: int, seed: int | None) -> Job:
    several = {"problem__outputs": outputs} if outputs > 1 else {}
    return prepare(ALONE.replace(problem__loss=loss, seed=seed, **several), shards).job


def _secure(job: Job, rounds: int) -> Work:
    state = job.start()
    return Work(lambda: reference.run(job, state, 1, rounds), rounds)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--only", choices=TABLES, nargs="+", default=list(TABLES))
    arguments = parser.parse_args()
    print(f"{_native.instruction_set()}, load {os.getloadavg()[0]:.1f}\n\n{row(HEADS)}")
    with threadpool_limits(1), shared(os.cpu_count() or 1):  # on one thread, as the floors
        for name in arguments.only:
            for line in TABLES[name](arguments.repeats):
                print(line, flush=True)


if __name__ == "__main__":
    main()
