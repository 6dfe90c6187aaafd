"""What the engine is measured against: a loop written in an afternoon, and the same arithmetic in plain C."""

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.engine.job import Job
from sottovoce.problem.regularizers import Separable
from sottovoce.problem.shards import Shards

BLOCK = 1024
"""Counters whose normals the engine makes at a time."""
FLAGS = ("-Ofast", "-march=native", "-shared", "-fPIC")


def naive(job: Job, rounds: int) -> None:
    """One edge of the complete graph a round: every node's x and running sum in every round, NumPy's own generator."""
    shards, method = job.problem.shards, job.method
    assert isinstance(method, DualAveraging) and isinstance(method.h, Separable)
    h, iota, a, gamma = method.h, method.iota, method.steps.a, method.steps.gamma
    rng, n, m, sigma = np.random.default_rng(0), shards.n, shards.m, job.release.sigma[0]
    z, total, A = np.zeros((n, m)), np.zeros((n, m)), 0.0
    for t in range(rounds):
        A += a[t]
        scale = iota * A * h.mu + gamma[t]
        x = -z / scale if h.phi == 0 else -np.sign(z) * np.maximum(np.abs(z) - iota * A * h.phi, 0.0) / scale
        total += a[t] * x
        pair = rng.choice(n, 2, replace=False)
        messages = []
        for i in pair:
            row = int(shards.offsets[i]) + rng.integers(shards.sizes[i])
            c = shards.X[[row]]
            c = c.toarray()[0] if hasattr(c, "toarray") else c[0]
            y = shards.y[row]
            g = -y * c if y * (c @ x[i]) < 1 else np.zeros(m)
            messages.append(z[i] + a[t] * (g + rng.normal(0, sigma, m)))
        z[pair] = (messages[0] + messages[1]) / 2


def build_floor() -> ctypes.CDLL:
    """Compile floor.c where it can be thrown away."""
    source = Path(__file__).parent / "floor.c"
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "floor.so"
        subprocess.run(["gcc", *FLAGS, f"-DBLOCK={BLOCK}", str(source), "-o", str(target), "-lm"], check=True)
        return ctypes.CDLL(str(target))


def pointer(array: np.ndarray | None) -> ctypes.c_void_p | None:
    """Where an array lies."""
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)


def floor(lib: ctypes.CDLL, job: Job, rounds: int) -> Callable[[], object]:
    """The same schedule as the job's, on the same data, in C; the job is one of the paper's l2 preset."""
    shards, method = job.problem.shards, job.method
    assert isinstance(method, DualAveraging) and isinstance(method.h, Separable)
    X, n, m = shards.X, shards.n, shards.m
    csr = hasattr(X, "indptr")
    values = np.ascontiguousarray(X.data if csr else X, np.float32)
    index = [np.ascontiguousarray(v, np.int32) for v in (X.indices, X.indptr)] if csr else [None, None]
    pairs = np.ascontiguousarray(job.schedule.active, np.int32)
    picks = np.random.default_rng(0).random(len(pairs))
    rows = (shards.offsets[pairs] + (picks * shards.sizes[pairs]).astype(np.int64)).astype(np.int64)
    P = np.concatenate([[0.0], np.cumsum(method.steps.a / method.modulus)])
    z, total, since = np.zeros((n, m)), np.zeros((n, m)), np.ones(n, np.int64)
    numbers = (method.h.mu, float(method.steps.gamma[0]), method.iota, job.release.sigma[0])

    def work() -> None:
        z[:], total[:], since[:] = 0.0, 0.0, 1
        arrays = [pointer(v) for v in (pairs, rows, values, *index, shards.y)]
        state = [pointer(v) for v in (P, z, total, since)]
        scalars = [ctypes.c_double(v) for v in numbers]
        lib.rounds(ctypes.c_long(rounds), ctypes.c_long(m), *arrays, *scalars, *state)

    return work


def batches(lib: ctypes.CDLL, shards: Shards, rows: np.ndarray | None = None, outputs: int = 1) -> Callable[[], object]:
    """A round in which all records, or the given ones, are read once, in C: dense float32 rows, or CSR in float64."""
    X, N, m = shards.X, len(shards.y) if rows is None else len(rows), shards.X.shape[1]
    x, g, u = np.random.default_rng(0).normal(size=outputs * m) / m, np.empty(outputs * m), np.empty(N)
    if hasattr(X, "indptr"):
        kept = (X.data.astype(np.float64), rows, X.indices.astype(np.int32), X.indptr.astype(np.int32), x, u, g)
        return lambda: lib.products(ctypes.c_long(N), ctypes.c_long(m), *map(pointer, kept))
    sizes, kept = (N, m) if outputs == 1 else (N, m, outputs), (X.astype(np.float32, copy=False), rows, shards.y, x, g)
    work = lib.batch if outputs == 1 else lib.several
    return lambda: work(*map(ctypes.c_long, sizes), *map(pointer, kept))
