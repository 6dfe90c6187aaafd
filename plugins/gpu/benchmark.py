"""What the gpu engine takes on the device at hand, beside what the device allows.

python plugins/gpu/benchmark.py figures epsilon-like     # Figures 1 to 4 at full size, ten seeds, five ε, both noises
python plugins/gpu/benchmark.py figures rcv1-like
python plugins/gpu/benchmark.py figures covtype
python plugins/gpu/benchmark.py default                  # 1,000 runs of the planner's choice on a9a
python plugins/gpu/benchmark.py alone                    # one run, against the compiled engine with all processors

The limit of a sweep is the more of two times: its normals at 8.8e11 a second, the bytes that it must move at 4.3e12.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.engine import engine_named
from sottovoce.experiments.data import load
from sottovoce.experiments.paper import runs as paper
from sottovoce.experiments.table import Runs
from sottovoce.planner.choose import PublicInputs, choose
from sottovoce.problem.losses import LOSSES
from sottovoce.problem.shards import Shards
from sottovoce.run.build import prepare
from sottovoce.run.presets import paper_l2
from sottovoce_gpu.machine import device
from sottovoce_gpu.rounds import records_of

NORMALS, BYTES = 8.8e11, 4.3e12


def timed(what: str, do: Callable[[], Any]) -> Any:
    """Do it, and say how long it took."""
    began = time.perf_counter()
    found = do()
    print(f"{what}: {time.perf_counter() - began:.2f} s", flush=True)
    return found


def figures(name: str, size: str, seeds: int, certify: bool, jobs: int, kept_in: Path | None) -> None:
    """Figures 1 to 4, part by part; what `reproduce` does beside the device's work is distinguished."""
    whole = time.perf_counter()
    machine = device()
    assert not isinstance(machine, str), machine
    dataset = timed(f"{name} ({size}) made", lambda: load(name, size))
    shards = timed("partitioned", dataset.partition)
    timed("lengths of rows", lambda: shards.norms)
    timed("brought to the device", lambda: [_brought(machine, some) for some in (shards, dataset.test)])
    wanted = paper.groups(list(paper.FIGURES), seeds)
    runs = len(wanted) * 2 * len(paper.EPSILONS)
    began: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        out = kept_in or Path(folder)
        if not certify:
            paper.folder_of(out, dataset).mkdir(parents=True)
            kept = Runs(("h",), paper.folder_of(out, dataset) / "optima.parquet")
            kept.add([{"h": h, "f_star": 0.0} for h in paper.REGULARIZERS])
        optima, accounted, run_batch = paper.optima, paper.accounted, paper.run_batch
        paper.optima = lambda *given: timed("  F*, beside the rest", lambda: optima(*given))
        paper.accounted = lambda *given: timed("  calibrated and accounted", lambda: accounted(*given))

        def run(*given: Any, **named: Any) -> Any:
            began.append(time.perf_counter())
            found, first = run_batch(*given, **named), given[0][0]
            last.append(time.perf_counter() - min(began))
            print(f"  {first.problem.h} {first.network.activation}: {len(found)} runs, {last[-1]:.1f} s", flush=True)
            return found

        last: list[float] = []
        paper.run_batch = run
        rows = paper.collect(dataset, wanted, tuple(paper.NOISES), out, jobs, None, "gpu")
    seconds = max(last)
    print(f"all of it: {time.perf_counter() - whole:.1f} s")
    m, n = shards.m, shards.n
    spoken = 3.0 * len(shards.y)  # three passes, a record a time
    normals = runs * spoken * m
    moved = runs * spoken * m * 16 if n * m * 4 > 200_000 else len(wanted) * spoken * m * 4
    limit = max(normals / NORMALS, moved / BYTES)
    print(
        f"figures 1 to 4, {name} ({size}): {runs} runs in {seconds:.2f} s on {rows[0]['device']}, "
        f"{1e3 * seconds / runs:.2f} ms a run, {runs / seconds:.0f} runs a second; limits: normals "
        f"{normals / NORMALS:.2f} s, bytes {moved / BYTES:.2f} s; {seconds / limit:.1f} times the limit"
    )
    ends = [r for r in rows if r["h"] == "l2" and r["epsilon"] == 0.8 and r["noise"] == "paper"]
    for scheme in paper.SCHEMES:
        mine = [r for r in ends if r["scheme"] == scheme]
        final = [r for r in mine if r["round"] == max(q["round"] for q in mine)]
        mean, what = np.mean([r["suboptimality"] for r in final]), "F − F*" if certify else "F"
        print(f"  l2, ε = 0.8, paper's noise, {scheme}: {what} = {mean:.5f} over {len(final)} seeds")


def _brought(machine: Any, shards: Shards) -> None:
    with machine.working():
        records_of(machine, shards)


def default(seeds: int) -> None:
    dataset = load("a9a", loss=LOSSES.make("logistic"))
    shards = dataset.partition(20)
    jobs = []
    for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0):
        inputs = PublicInputs(tuple(shards.sizes.tolist()), shards.X.shape[1], epsilon, 1e-5, LOSSES.make("logistic"))
        spec = choose(inputs).spec
        if epsilon == 1.0:
            print(spec.algorithm.rounds, "rounds;", spec.privacy.sampling, spec.network.activation, spec.problem.h)
        for seed in range(seeds):
            for clip in (1.0, 0.5):
                jobs.append(prepare(spec.replace(seed=seed, privacy__clip=clip, algorithm__rounds=700), shards).job)
    engine = engine_named("gpu")
    for _ in range(3):
        began = time.perf_counter()
        states = engine.run(jobs, [job.start() for job in jobs], 1, 700)
        ran = time.perf_counter() - began
        models = np.stack([job.method.average(state, 700)[0] for job, state in zip(jobs, states, strict=True)])
        again = time.perf_counter()
        assert engine.device is not None
        _, right = engine.device.judge(jobs[0].problem, models, dataset.test)
        judged = time.perf_counter() - again
        print(f"{len(jobs)} runs of 700 rounds on a9a: {ran:.3f} s, judged in {judged:.3f} s; right {right.mean():.4f}")
    flops = len(jobs) * 700 * 4.0 * shards.X.shape[0] * shards.m
    normals = len(jobs) * 700 * 20.0 * shards.m
    print(f"limits: {flops / 6.7e13:.3f} s of float32 products, {normals / NORMALS:.3f} s of normals")


ALONE = {2_000: 60_000, 20_000: 12_000}
"""Rounds of a run alone, by its coordinates."""


def alone() -> None:
    """Each engine in a process of its own, with all processors and nothing beside it."""
    for m, rounds in ALONE.items():
        ends = []
        with tempfile.TemporaryDirectory() as folder:
            for name in ("gpu", "compiled"):
                kept = Path(folder) / f"{name}.npy"
                subprocess.run([sys.executable, __file__, "one", name, "--m", str(m), "--out", str(kept)], check=True)
                ends.append(np.load(kept))
        off = np.max(np.abs(ends[0] - ends[1])) / np.max(np.abs(ends[1]))
        print(f"  z of the two differ by {off:.1e} of the largest after {rounds:,} rounds", flush=True)


def one(name: str, m: int, out: Path | None) -> None:
    """One run, three times; the best of them is informed, without what is compiled or brought over the first time."""
    rng, rounds = np.random.default_rng(0), ALONE[m]
    N = 40_000_000 // m
    X = rng.standard_normal((2 * N, m), dtype=np.float32)
    X /= 1.0001 * np.linalg.norm(X, axis=1, keepdims=True)
    shards = Shards.of(X, np.where(X[:, 0] > 0, 1.0, -1.0), np.arange(0, 2 * N + 1, N // 10))
    job = prepare(paper_l2(rounds).replace(privacy__noise="gaussian(0.1)", seed=1), shards).job
    z, took = np.empty(0), []
    for _ in range(4):
        began = time.perf_counter()
        (state,) = engine_named(name).run([job], [job.start()], 1, rounds)
        z = np.asarray(state.z)
        took.append(time.perf_counter() - began)
    cores = f" on {os.cpu_count()} processors" if name == "compiled" else ""
    print(
        f"one run alone, {rounds:,} rounds of an edge, m = {m:,}, {name}{cores}: {min(took[1:]):.3f} s, "
        f"{1e6 * min(took[1:]) / rounds:.2f} µs a round (first time {took[0]:.2f} s)",
        flush=True,
    )
    if out is not None:
        np.save(out, z)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("figures", "default", "alone", "one"))
    parser.add_argument("data", nargs="?", default="epsilon-like")
    parser.add_argument("--size", default="full")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=7)
    parser.add_argument("--certify", action="store_true")
    parser.add_argument("--m", type=int, default=2_000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.what == "figures":
        figures(given.data, given.size, given.seeds, given.certify, given.jobs, given.out)
    elif given.what == "default":
        default(100 if given.seeds == 10 else given.seeds)
    elif given.what == "one":
        one(given.data, given.m, given.out)
    else:
        alone()


if __name__ == "__main__":
    main()
