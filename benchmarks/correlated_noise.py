"""Noise that is correlated in time, at 20 nodes: a tree and banded factorizations against independent noise.

python benchmarks/correlated_noise.py COMMIT      # benchmarks/results/correlated-noise.csv; some seconds

A node releases C g + N(0, σ²) of its gradients g_1 … g_T, that is gradients with noise C⁺ξ, at the same (ε, δ): σ is
the multiplier of one Gaussian release times Δ·sens(C), which is exact. Two kinds of participation: *every round* (full
batches, Δ = 2L/q, a record is in all T gradients) and *once* (a pass in a fixed order, Δ = 2LT/q, a record is in one
of them). Everybody's mean is exact (complete graph), dual averaging with a_t = 1 and h = l2(0.01), x averaged; γ is the
best of a grid for each, by F without privacy, equally for all.
"""

import csv
import sys
from pathlib import Path

import numpy as np

from sottovoce import __version__
from sottovoce.data.synthetic import two_gaussians
from sottovoce.figure import Interval
from sottovoce.privacy.calibration import single
from sottovoce.problem.losses import LOSSES
from sottovoce.problem.objective import Problem
from sottovoce.problem.optimum import optimum
from sottovoce.problem.regularizers import l2
from sottovoce.problem.shards import Shards, even

N, Q, M, T, MU, EPSILON, DELTA, SEEDS = 20, 512, 20, 64, 0.01, 1.0, 1e-5, 10
GAMMAS = np.geomspace(0.003, 30, 13)
TARGET = Path(__file__).parent / "results" / "correlated-noise.csv"


def tree(rounds: int) -> np.ndarray:
    """A row for each node of the binary tree over the rounds: the sum of its leaves."""
    rows = [np.eye(rounds)]
    while len(rows[-1]) > 1:
        rows.append(rows[-1][::2] + rows[-1][1::2])
    return np.concatenate(rows)


def banded(rounds: int, bands: int) -> np.ndarray:
    """The square root of the prefix sums' matrix, its first bands; coefficients 1, 1/2, 3/8 and so on."""
    coefficients = np.cumprod([1.0, *(1 - 0.5 / k for k in range(1, rounds))])
    lags = np.subtract.outer(np.arange(rounds), np.arange(rounds))
    return np.where((lags >= 0) & (lags < bands), coefficients[np.abs(lags)], 0.0)


FACTORS = {
    "independent": np.eye(T),
    "tree": tree(T),
    "banded, 4": banded(T, 4),
    "banded, 16": banded(T, 16),
    "square root": banded(T, T),
}
PARTICIPATIONS = ("every round", "once")


def sensitivity(C: np.ndarray, participation: str) -> float:
    """Of C g, where a record moves each gradient that it is in by at most 1; exact, since CᵀC is not negative."""
    products = C.T @ C
    assert np.all(products >= -1e-12)
    return float(np.sqrt(products.sum() if participation == "every round" else products.diagonal().max()))


def train(shards: Shards, noise: np.ndarray, gamma: float, participation: str, problem: Problem) -> float:
    """F of the averaged model; noise (T, M) is that of the mean over nodes."""
    z, total = np.zeros(M), np.zeros(M)
    X, y = np.asarray(shards.X).reshape(N, Q, M), shards.y.reshape(N, Q)
    for t in range(T):
        x = -z / (MU * (t + 1) + gamma)
        total += x
        rows = slice(None) if participation == "every round" else slice(t * Q // T, (t + 1) * Q // T)
        slope = problem.loss.slope(X[:, rows] @ x, y[:, rows])
        z = z + np.mean(slope[..., None] * X[:, rows], axis=(0, 1)) + noise[t]
    return problem.value(total / T)


def measure(participation: str, name: str) -> dict[str, str]:
    """A row of the table."""
    C, z1 = FACTORS[name], single(EPSILON, DELTA)
    full = participation == "every round"
    reach = 2.0 / Q if full else 2.0 * T / Q
    decode, needed = np.linalg.pinv(C), sensitivity(C, participation)
    last = float(np.linalg.norm(decode.sum(axis=0)) * needed)
    prefixes = float(np.linalg.norm(np.cumsum(decode, axis=0)) / np.sqrt(T) * needed)
    losses = np.empty((SEEDS, len(GAMMAS)))
    for seed in range(SEEDS):
        table = two_gaussians(N * Q, M, seed=seed)
        shards = Shards.of(table.X, table.y, even(N * Q, N)[0])
        problem = Problem(LOSSES.make("logistic"), l2(MU), shards)
        best = optimum(problem, gap=1e-7).value
        xi = np.random.default_rng(seed).normal(size=(len(C), M)) / np.sqrt(N)
        noise = z1 * reach * needed * (decode @ xi)
        losses[seed] = [train(shards, noise, g, participation, problem) - best for g in GAMMAS]
    chosen = int(np.argmin(losses.mean(axis=0)))
    found = Interval.of(losses[:, chosen])
    return {
        "participation": participation,
        "noise": name,
        "last sum": f"{last / T if full else last:.3f}",
        "prefix sums": f"{prefixes / T if full else prefixes:.3f}",
        "F - F*": f"{found.mean:.4f}",
        "±": f"{found.half:.4f}",
        "gamma": f"{GAMMAS[chosen]:.3g}",
    }


def main(commit: str) -> None:
    """Measure, and write the table."""
    rows = [measure(participation, name) for participation in PARTICIPATIONS for name in FACTORS]
    with TARGET.open("w", newline="") as file:
        file.write(f"# sottovoce {__version__}, commit {commit}; python benchmarks/correlated_noise.py COMMIT\n")
        file.write(
            f"# {N} nodes of {Q} records, m = {M}, T = {T}, eps = {EPSILON:g}, delta = {DELTA:g}, {SEEDS} seeds\n"
        )
        file.write(
            "# last sum, prefix sums: noise x sensitivity (root mean square over prefixes), in units of the least\n"
        )
        file.write(
            "# possible for the last sum (T) under full participation, and of one round's noise where seen once\n"
        )
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1])
