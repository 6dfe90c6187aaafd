"""What a secure release costs, and the long versions of its tests: laws over 10⁸ draws, 10⁶ roundings against balls.

    python benchmarks/secure.py                     (--quick: a tenth of everything)

`lines` are the rows for the table of all benchmarks.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import scipy
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "secure"))

from exact_reference import releases  # the tests' own: the benchmark is their long version
from laws import cells_of, counted, expected, p_value

from measure import HEADS, NOISE, TWICE, Line, Work, in_turn, row, without_a_seed
from sottovoce import PrivateClassifier
from sottovoce.data.fetch import load_real
from sottovoce.data.synthetic import sparse_text, two_gaussians
from sottovoce.data.tables import Table
from sottovoce.engine import reference
from sottovoce.extension import shared
from sottovoce.run.build import prepare
from sottovoce.secure import balls, noise
from sottovoce.secure.functions import logistic_slope
from sottovoce.secure.generator import Generator, Purpose, fresh
from sottovoce.secure.grids import choose_grids, on_grid
from sottovoce.secure.noise import Layer, Noise, NoiseKind, release_grid
from sottovoce.secure.sampling import poisson
from sottovoce.secure.sums import clipped_sum
from workloads import alone

SUM_GRID = 2.0**-41


def lines(quick: bool, repeats: int) -> Iterator[Line]:
    """A release, an exact sum, a batch, rounds and whole fits, each beside the plain one."""
    for m in (124, 2000, 47_237):
        yield from _release(m, 4 if quick else 1, repeats)
    for name, dense in (("dense, 4,000 × 500", True), ("CSR, 20,000 × 124 with 14", False)):
        yield _sum(name, dense, repeats)
    yield _batch(repeats)
    with shared(os.cpu_count() or 1):  # on one thread
        yield from _rounds(quick, min(repeats, 5))
        yield from _fits(quick, repeats)


def _layer(generator: Generator, rows: int, scale: float, first: int = 0) -> Layer:
    index = np.arange(rows)
    return Layer(generator, index, np.full(rows, 1), first + index, np.full(rows, scale))


def _release(m: int, smaller: int, repeats: int) -> Iterator[Line]:
    """Words, noise, rounding; sums of 50 bits; and the noise alone of two others."""
    generator, scale = fresh()[Purpose.NOISE], 3.0
    rows = max(1, 200_000 // m // smaller)
    grids = np.full(rows, release_grid(scale, SUM_GRID))
    sums = np.random.default_rng(0).integers(-(2**50), 2**50, (rows, m))

    def secure(compiled: bool) -> Callable[[], object]:
        return lambda: Noise(m, grids, [_layer(generator, rows, scale)], compiled=compiled).added_to(sums, SUM_GRID)

    secure(True)()
    rng, few = np.random.default_rng(0), 2000
    thousands = 1e-3 * rows * m  # of coordinates: microseconds a thousand are nanoseconds each
    times = in_turn(
        {
            "compiled": Work(secure(True), thousands),
            "NumPy": Work(secure(False), thousands),
            "normals": Work(lambda: rng.normal(size=(rows, m)), thousands),
            "OpenDP": Work(_opendp(few), 1e-3 * few),
        },
        repeats,
    )
    what, ours = f"secure release, m = {m:,}", times["compiled"]
    yield Line(what, "OpenDP's exact Gaussian / ours, a coordinate", times["OpenDP"], ours, "ns", NOISE, ours)
    yield Line(what, "ours in plain NumPy / compiled", times["NumPy"], ours, "ns")
    yield Line(what, "ours / NumPy's normals", ours, times["normals"], "ns")


def _opendp(count: int) -> Callable[[], object]:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int), size=count), dp.l2_distance(T=float)
    mechanism, zeros = dp.m.make_gaussian(*space, 2.0**20), [0] * count
    return lambda: mechanism(zeros)


def _sum(name: str, dense: bool, repeats: int) -> Line:
    """A full batch: exact, and in plain floating point."""
    rng = np.random.default_rng(0)
    if dense:
        X = rng.normal(size=(4000, 500)) / 30
    else:
        X = scipy.sparse.random_array((20_000, 124), density=14 / 124, rng=rng, format="csr") * 0.2
    n, m = X.shape
    y, x = np.where(rng.random(n) < 0.5, 1.0, -1.0), rng.normal(size=m)
    data = on_grid(X, choose_grids(n, 1.0, 2.0), "clip")
    norms = np.sqrt((X * X).sum(axis=1))

    def plain() -> object:
        slopes = -y / (1.0 + np.exp(y * (X @ x)))
        return X.T @ (slopes * np.minimum(1.0, 1.0 / np.maximum(np.abs(slopes) * norms, 1e-300)))

    works = {"exact": Work(lambda: clipped_sum(data, x, y, logistic_slope), n), "plain": Work(plain, n)}
    times = in_turn(works, repeats)
    return Line(
        name, "exact sum of a full batch / in floats, a record", 1e3 * times["exact"], 1e3 * times["plain"], "ns"
    )


def _batch(repeats: int) -> Line:
    generator, pairs = fresh()[Purpose.RECORDS], np.arange(200)
    sizes, batches = np.full(200, 32_561), np.full(200, 256)
    rng = np.random.default_rng(0)

    def plain() -> None:
        for _ in range(200):
            np.cumsum(np.floor(np.log(rng.random(330)) / np.log1p(-256 / 32_561)) + 1)

    poisson(generator, pairs, pairs, sizes, batches)
    works = {"exact": Work(lambda: poisson(generator, pairs, pairs, sizes, batches), 200), "plain": Work(plain, 200)}
    times = in_turn(works, repeats)
    return Line("Poisson batch of 256 of 32,561", "exact / by floats, a batch", times["exact"], times["plain"], "µs")


def _sets(quick: bool) -> Iterator[tuple[str, Callable[[], Table], float]]:
    """Records that dominate a round, and text on which noise does; with the public bound of a row."""
    yield "a9a", partial(load_real, "a9a"), 4.0
    yield "CSR, 37,000 × 300", partial(sparse_text, 37_000, 300, 14, seed=0), 1.0
    yield "dense, 37,000 × 300", partial(two_gaussians, 37_000, 300, seed=0), 1.0
    rows = 5000 if quick else 20_000
    yield f"dense, {rows:,} × 2,000", partial(two_gaussians, rows, 2000, seed=0), 1.0
    yield "CSR, 20,000 × 47,236", partial(sparse_text, 20_000, 47_236, 73, seed=0), 1.0


def _rounds(quick: bool, repeats: int) -> Iterator[Line]:
    """Rounds of what the estimator plans for one owner and for twenty, without a seed and with one."""
    for name, load, row_norm in _sets(quick):
        table = load()
        X = table.X.astype(np.float32)
        for owners in (1, 20):
            model = PrivateClassifier(row_norm=row_norm, classes=(-1, 1), n_nodes=owners, random_state=0)
            run = model._prepare(X, table.y, None, None)
            job, secure = (prepare(run.spec.replace(seed=seed), run.shards).job for seed in (0, None))
            sums = replace(secure.draws.sums, compiled=True)
            secure = replace(secure, draws=replace(secure.draws, sums=sums, compiled=True))
            state, rounds = secure.start(), min(run.spec.algorithm.rounds, 8)
            reference.run(secure, state, 1, 1)
            works = {
                "secure": Work(partial(reference.run, secure, state, 1, rounds), rounds),
                "seeded": alone(job, rounds),
            }
            times = in_turn(works, repeats)
            what = f"{name}, {owners} owner{'s' * (owners > 1)}"
            yield without_a_seed(what, times["secure"], times["seeded"], owners * job.problem.m)


def _fits(quick: bool, repeats: int) -> Iterator[Line]:
    """A whole default fit, without a seed and with one: plan, rows, rounds and statement."""
    table = load_real("a9a")
    for owners in (1, 20):
        fixed = {"row_norm": 4.0, "classes": (-1, 1), "n_nodes": owners}
        models = {"secure": PrivateClassifier(**fixed), "seeded": PrivateClassifier(**fixed, random_state=0)}
        works = {name: Work(partial(model.fit, table.X, table.y), 1) for name, model in models.items()}
        times = in_turn(works, min(repeats, 3) if quick else repeats)
        secure, seeded = (1e-6 * times[name] for name in ("secure", "seeded"))
        assert models["secure"].privacy_.secure
        what = f"fit on a9a, {owners} owner{'s' * (owners > 1)}"
        yield Line(what, "without a seed / with one", secure, seeded, "s", TWICE)


class Counted:
    """Roundings that went to ball arithmetic."""

    def __init__(self) -> None:
        self.count, self._whole = 0, balls.whole

    def __enter__(self) -> "Counted":
        balls.whole = self._counting
        return self

    def _counting(self, value: Callable[[], balls.Ball]) -> int:
        self.count += 1
        return self._whole(value)

    def __exit__(self, *_: object) -> None:
        balls.whole = self._whole


def check_roundings(draws: int, law: NoiseKind, share: float | None = None) -> None:
    """Draws against the reference, with sums of 50 bits; with the bound widened to the given share of doubts."""
    m, scale, generator = 1000, 3.7, fresh()[Purpose.NOISE]
    grid, usual = release_grid(scale, SUM_GRID), noise.ERROR
    began, wrong, done = time.perf_counter(), 0, 0
    rng = np.random.default_rng(0)
    with Counted() as doubts:
        if share is not None:
            noise.ERROR = 0.5 * share * grid / scale
        while done < draws:
            made = Noise(m, np.full(50, grid), [_layer(generator, 50, scale, done)], law, compiled=True)
            sums = rng.integers(-(2**50), 2**50, (50, m))
            wrong += int(np.sum(made.added_to(sums, SUM_GRID) != releases(made, sums, SUM_GRID)))
            done += 50 * m
        noise.ERROR = usual
    print(
        f"{law.name.lower():9} {done:>11,} roundings against balls: {wrong} wrong, {doubts.count} computed again "
        f"({doubts.count / done:.2g}; {time.perf_counter() - began:.0f} s)",
        flush=True,
    )


def check_law(draws: int, law: NoiseKind) -> None:
    """χ² of the rounded noise, also with a scale that is wrong by a thousandth or two."""
    m, rows, scale, generator = 2000, 50, 1.37 * 2.0**20, fresh()[Purpose.NOISE]
    name = law.name.lower()
    cells = cells_of(scale, draws, name)
    counts, zeros = np.zeros(len(cells) + 1, dtype=np.int64), np.zeros((rows, m), dtype=np.int64)
    began = time.perf_counter()
    with Counted() as doubts:
        for first in range(0, draws // m, rows):
            made = Noise(m, np.ones(rows), [_layer(generator, rows, scale, first)], law, compiled=True)
            counts += counted(made.added_to(zeros, SUM_GRID), cells)
    done, far = int(counts.sum()), (cells[-1] + 0.5) / scale
    right, wrong = (p_value(counts, cells, factor * scale, name) for factor in (1.0, 1.002))
    tails = 2 * expected(cells, scale, name)[-1] * done
    print(
        f"{name:9} {done:>11,} draws: p = {right:.3f} of χ² over {len(counts)} cells (a scale wrong by 1/500: "
        f"{wrong:.1g}); beyond ±{far:.2f} scales {counts[0] + counts[-1]} for {tails:.1f}; {doubts.count} computed "
        f"again, once in {done / max(1, doubts.count) / 2**19:.2f}·2¹⁹ ({time.perf_counter() - began:.0f} s)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    quick = parser.parse_args().quick
    print(row(HEADS))
    with threadpool_limits(1):
        for line in lines(quick, 3 if quick else 7):
            print(line, flush=True)
        print()
        for law in NoiseKind:
            check_roundings(10**5 if quick else 10**6, law)
            check_roundings(10**4 if quick else 10**5, law, share=0.1)
            check_law(10**7 if quick else 10**8, law)


if __name__ == "__main__":
    main()
