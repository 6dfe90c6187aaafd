"""Time per round of every engine, as a ratio to a naive NumPy loop measured in the same run.

    make bench        (or: python benchmarks/run.py --rounds 2000)

Absolute times of a shared machine do not hold; the ratios do. The naive loop is what one would write in an afternoon:
one edge a round, every node's x and running sum touched in every round, NumPy's own generator.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np

from sottovoce.build import prepare
from sottovoce.data.synthetic import sparse_text, two_gaussians
from sottovoce.presets import paper_l2
from sottovoce.problem.partition import even
from sottovoce.problem.shards import Shards
from sottovoce.solve import ENGINES

NODES, SIGMA, MU, GAMMA = 20, 0.06, 5e-4, 20.0


def naive(shards: Shards, rounds: int) -> None:
    """One edge of the complete graph a round, l2-regularised hinge, a_t = t, nothing lazy."""
    rng, m, q = np.random.default_rng(0), shards.m, int(shards.sizes[0])
    z, total, A = np.zeros((NODES, m)), np.zeros((NODES, m)), 0.0
    for t in range(1, rounds + 1):
        A += t
        x = -z / (2 / NODES * A * MU + GAMMA)
        total += t * x
        pair = rng.choice(NODES, 2, replace=False)
        messages = []
        for i in pair:
            row = int(shards.offsets[i]) + rng.integers(q)
            c = shards.X[[row]]
            c = c.toarray()[0] if hasattr(c, "toarray") else c[0]
            y = shards.y[row]
            g = -y * c if y * (c @ x[i]) < 1 else np.zeros(m)
            messages.append(z[i] + t * (g + rng.normal(0, SIGMA, m)))
        z[pair] = (messages[0] + messages[1]) / 2


def per_round(work: Callable[[], object], rounds: int, repeats: int) -> float:
    """The best of several runs, in microseconds a round."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times) / rounds * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    dense, text = two_gaussians(4000, 2000, seed=0), sparse_text(4000, 47_236, 73, seed=0)
    print(f"{'data':<22}{'engine':<12}{'µs/round':>10}{'naive/engine':>14}")
    for name, table in (("dense, m = 2000", dense), ("CSR, m = 47,236", text)):
        shards = Shards.of(table.X, table.y, even(len(table.y), NODES)[0])
        rounds = arguments.rounds if name.startswith("dense") else max(50, arguments.rounds // 10)
        base = per_round(lambda s=shards, r=rounds: naive(s, r), rounds, arguments.repeats)
        print(f"{name:<22}{'naive':<12}{base:>10.1f}{1.0:>14.2f}")
        job = prepare(paper_l2(rounds).but(privacy__noise=f"gaussian({SIGMA})", seed=0), shards).job
        for engine, run in ENGINES.items():
            mine = per_round(lambda run=run, job=job, r=rounds: run(job, job.start(), 1, r), rounds, arguments.repeats)
            print(f"{name:<22}{engine:<12}{mine:>10.1f}{base / mine:>14.2f}", flush=True)


if __name__ == "__main__":
    main()
