"""A round of the engine beside a naive loop and the C floor; five runs beside one; other methods beside the paper's."""

import ctypes
from collections.abc import Iterator

import numpy as np

from baselines import BLOCK, build_floor, floor, naive, pointer
from measure import Line, Target, Work, in_turn
from sottovoce import _native
from sottovoce.run.presets import paper_l1
from workloads import alone, dense, in_one_batch, job, noisy, prepare, sweep, text

NAIVE = {"dense": Target(low=25), "CSR": Target(low=20)}
FLOOR, SWEEP, METHODS = Target(high=2), Target(high=2.5), Target(low=0.5)


def lines(quick: bool, repeats: int) -> Iterator[Line]:
    """Dense and CSR, each with everything taken in turn."""
    lib = build_floor()
    yield _normals(lib, repeats)
    for kind, title, shards, rounds, slow in (
        ("dense", "dense, m = 2000", dense, 2000 if quick else 4000, 100),
        ("CSR", "CSR, m = 47,236", text, 1000 if quick else 2000, 10 if quick else 20),
    ):
        data = shards()
        l2, l1 = job(data, rounds), prepare(noisy(paper_l1(rounds)), data).job
        descent = job(data, rounds, algorithm__method="descent")
        ticks = job(data, rounds, algorithm__method="combine_first", network__activation="ticks")
        times = in_turn(
            {
                "floor": Work(floor(lib, l2, rounds), rounds),
                "l2": alone(l2, rounds),
                "l1": alone(l1, rounds),
                "five": in_one_batch(sweep(l2), rounds),
                "descent": alone(descent, rounds),
                "ticks": alone(ticks, rounds),
                "naive l2": Work(lambda one=l2, r=slow: naive(one, r), slow),
                "naive l1": Work(lambda one=l1, r=slow: naive(one, r), slow),
            },
            repeats,
        )
        for h in ("l2", "l1"):
            what = f"{title}, {h}"
            yield Line(what, "naive NumPy loop / engine", times[f"naive {h}"], times[h], "µs", NAIVE[kind])
            if h == "l2":
                yield Line(what, "engine / C floor", times[h], times["floor"], "µs", FLOOR)
            else:  # more arithmetic than the floor has: no target
                yield Line(what, "engine / C floor of l2", times[h], times["floor"], "µs")
        yield Line(title, "five σ at once / one run", times["five"], times["l2"], "µs", SWEEP)
        for name, called in (("descent", "decentralised SGD"), ("ticks", "A(DP)²SGD")):
            yield Line(title, f"dual averaging / {called}", times["l2"], times[name], "µs", METHODS)


def _normals(lib: ctypes.CDLL, repeats: int) -> Line:
    key, rows, out = np.array([1, 2], np.uint32), np.arange(500), np.empty(2 * BLOCK, np.float32)
    made = np.empty((500, 2000), np.float32)
    times = in_turn(
        {
            "C": Work(lambda: lib.many_normals(ctypes.c_long(1_000_000), pointer(out)), 1000),
            "native": Work(lambda: _native.normal_rows(key, rows, rows, made), 1000),
        },
        10 * repeats,
    )
    return Line("a normal, Threefry and Box–Muller", "native / C", times["native"], times["C"], "ns")
