"""Time the certified optimum on a large dense problem: passes, gap, wall time and peak memory.

    python benchmarks/optimum.py --loss hinge --h l1

The rows are two overlapping classes on the unit sphere, made a block at a time from a seed: nothing is downloaded,
and the data is the only large array.
"""

import argparse
import resource
import time

import numpy as np

from sottovoce.problem.losses import LOSSES
from sottovoce.problem.objective import Problem
from sottovoce.problem.optimum import optimum
from sottovoce.problem.regularisers import REGULARISERS
from sottovoce.problem.shards import Shards

BLOCK = 10_000
CHOICES = {"l2": {"mu": 5e-4}, "l1": {"phi": 5e-4}, "elastic_net": {"phi": 5e-4, "mu": 5e-4}}


def two_classes(rows: int, features: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit rows of two Gaussian classes whose means are 2 apart along a sparse direction; a tenth are mislabelled."""
    rng = np.random.default_rng(seed)
    direction = rng.standard_normal(features) * (rng.random(features) < 0.1)
    direction = (direction / max(np.linalg.norm(direction), 1e-12)).astype(np.float32)
    X = np.empty((rows, features), dtype=np.float32)
    y = np.empty(rows)
    for start in range(0, rows, BLOCK):
        block = X[start : start + BLOCK]
        labels = np.where(rng.random(len(block)) < 0.5, 1.0, -1.0)
        rng.standard_normal(dtype=np.float32, out=block)
        block += np.outer(labels, direction).astype(np.float32)
        block /= np.linalg.norm(block, axis=1, keepdims=True)
        y[start : start + BLOCK] = np.where(rng.random(len(block)) < 0.1, -labels, labels)
    return X, y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--features", type=int, default=2_000)
    parser.add_argument("--loss", default="hinge")
    parser.add_argument("--h", default="l2", choices=sorted(CHOICES))
    parser.add_argument("--gap", type=float, default=1e-4)
    parser.add_argument("--max-passes", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    X, y = two_classes(options.rows, options.features, options.seed)
    shards = Shards.of(X, y, np.array([0, options.rows]))
    h = REGULARISERS.make(options.h, **CHOICES[options.h])
    problem = Problem(LOSSES.make(options.loss), h, shards, weights="records")
    start = time.perf_counter()

    def progress(passes: int, gap: float) -> None:
        print(f"  {time.perf_counter() - start:7.1f} s  {passes:5d} passes  gap {gap:.3e}", flush=True)

    best = optimum(problem, gap=options.gap, max_passes=options.max_passes, seed=options.seed, progress=progress)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{options.loss} + {options.h}, {options.rows} x {options.features} {X.dtype}: F* in [{best.lower:.8f}, "
        f"{best.value:.8f}], gap {best.gap:.2e}, {best.passes} passes, {np.count_nonzero(best.x)} of {best.x.size} "
        f"coordinates, {seconds:.1f} s, peak RSS {peak:.2f} GiB (data {X.nbytes / 2**30:.2f} GiB)"
    )


if __name__ == "__main__":
    main()
