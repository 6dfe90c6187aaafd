"""The compiled kernel beside a C floor and a naive NumPy loop, measured in turn in the same run, single thread.

    python benchmarks/kernel.py            (--repeats 5; needs gcc for the floor)

One edge of K20 a round, hinge loss, noise on. The floor (floor.c) does the l2 arithmetic and nothing else. Times are
the best of several, taken in turn, because the machine may be shared: the ratios hold, the microseconds may not.
"""

import argparse
import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from run import GAMMA, MU, NODES, SIGMA, naive
from sottovoce.build import prepare
from sottovoce.data.synthetic import sparse_text, two_gaussians
from sottovoce.engine import compiled, noise
from sottovoce.engine.job import Job
from sottovoce.presets import paper_l1, paper_l2
from sottovoce.problem.partition import even
from sottovoce.problem.shards import Shards

HERE = Path(__file__).parent
FLAGS = ["-Ofast", "-march=native", "-shared", "-fPIC"]
SWEEP = (0.25, 0.5, 1.0, 2.0, 4.0)


def build_floor() -> ctypes.CDLL:
    """Compile floor.c where it can be thrown away."""
    target = Path(tempfile.mkdtemp()) / "floor.so"
    subprocess.run(
        ["gcc", *FLAGS, f"-DBLOCK={noise.BLOCK}", str(HERE / "floor.c"), "-o", str(target), "-lm"], check=True
    )
    return ctypes.CDLL(str(target))


def pointer(array: np.ndarray | None) -> ctypes.c_void_p | None:
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)


def floor_run(lib: ctypes.CDLL, shards: Shards, job: Job, rounds: int) -> Callable[[], object]:
    """The same schedule as the job's, on the same data, in C."""
    X, n, m = shards.X, shards.n, shards.m
    is_sparse = hasattr(X, "indptr")
    values = np.ascontiguousarray(X.data if is_sparse else X, np.float32)
    index = [np.ascontiguousarray(v, np.int32) for v in (X.indices, X.indptr)] if is_sparse else [None, None]
    pairs = np.ascontiguousarray(job.schedule.active, np.int32)
    picks = np.random.default_rng(0).random(len(pairs))
    rows = (shards.offsets[pairs] + (picks * shards.sizes[pairs]).astype(np.int64)).astype(np.int64)
    P = np.concatenate([[0.0], np.cumsum(job.method.steps.a / job.method.modulus)])
    y = shards.y
    z, total, since = np.zeros((n, m)), np.zeros((n, m)), np.ones(n, np.int64)
    numbers = [ctypes.c_double(v) for v in (MU, GAMMA, job.method.iota, SIGMA)]

    def work() -> None:
        z[:], total[:], since[:] = 0.0, 0.0, 1
        arrays = [pointer(v) for v in (pairs, rows, values, *index, y)]
        state = [pointer(v) for v in (P, z, total, since)]
        lib.rounds(ctypes.c_long(rounds), ctypes.c_long(m), *arrays, *numbers, *state)

    return work


def sweep(job: Job, factors: tuple[float, ...]) -> list[Job]:
    """The job with its noise times each factor."""
    found = []
    for factor in factors:
        release = replace(job.release, sigma=tuple(factor * s for s in job.release.sigma))
        found.append(replace(job, release=release, draws=replace(job.draws, release=release)))
    return found


def in_turn(works: dict[str, tuple[Callable[[], object], int]], repeats: int) -> dict[str, float]:
    """The best time of each, in microseconds a round, all of them taken in turn."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(repeats):
        for name, (work, rounds) in works.items():
            began = time.perf_counter()
            work()
            best[name] = min(best[name], (time.perf_counter() - began) / rounds * 1e6)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=4000)
    arguments = parser.parse_args()
    lib = build_floor()
    key, rows, out = np.array([1, 2], np.uint32), np.arange(500), np.empty(2 * noise.BLOCK, np.float32)
    noise.normal_rows(key, rows[:1], rows[:1], 2000)
    million = in_turn(
        {
            "C": (lambda: lib.many_normals(ctypes.c_long(1_000_000), pointer(out)), 1000),
            "kernel": (lambda: noise.normal_rows(key, rows, rows, 2000), 1000),
        },
        10 * arguments.repeats,
    )
    print("ns a normal, Threefry-2x32-13 + Box–Muller: " + ", ".join(f"{k} {v:.2f}" for k, v in million.items()))
    dense, text = two_gaussians(4000, 2000, seed=0), sparse_text(4000, 47_236, 73, seed=0)
    heads = ("floor", "R=1", "R=5", "naive", "R1/floor", "R5/R1", "naive/R1")
    print(f"{'µs a round':<30}" + "".join(f"{head:>10}" for head in heads))
    for name, X, y, share in (
        ("dense, m = 2000", dense.X.astype(np.float32), dense.y, 1),
        ("CSR, m = 47,236", text.X.astype(np.float32), text.y, 20),
    ):
        shards = Shards.of(X, y, even(len(y), NODES)[0])
        rounds = arguments.rounds // share
        slow = max(20, rounds // 20)
        for preset in (paper_l2, paper_l1):
            job = prepare(preset(rounds).but(privacy__noise=f"gaussian({SIGMA})", seed=0), shards).job
            jobs, start = sweep(job, SWEEP), job.start()
            compiled.run(job, start, 1, 1)  # compile
            times = in_turn(
                {
                    "floor": (floor_run(lib, shards, job, rounds), rounds),
                    "R1": (lambda j=job, s=start, r=rounds: compiled.run(j, s, 1, r), rounds),
                    "R5": (lambda j=jobs, s=start, r=rounds: compiled.run_many(j, [s] * len(j), 1, r), rounds),
                    "naive": (lambda s=shards, r=slow: naive(s, r), slow),
                },
                arguments.repeats,
            )
            floor, one, five, plain = times.values()
            print(
                f"{name:<18}{preset.__name__[6:]:<12}{floor:>10.2f}{one:>10.2f}{five:>10.2f}{plain:>10.1f}"
                f"{one / floor:>10.2f}{five / one:>10.2f}{plain / one:>10.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
