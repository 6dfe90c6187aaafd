"""Intervals of linear models beside the parametric bootstrap of noisy sufficient statistics.

    python benchmarks/bootstrap.py --studies 200        # writes results/bootstrap.md

The peer is Algorithm 3 of Ferrando, Wang and Sheldon, "Parametric Bootstrap for Differentially Private Confidence
Intervals" (AISTATS 2022): least squares on noisy XᵀX, Xᵀy and yᵀy, and a bootstrap of sampling and privacy noise at
what was released. It has the whole budget and the same Gaussian noise, adjacency, bounds and weights as our releases.
Studies are those of `coverage.py`; intervals are percentiles of 300 draws.
"""

import argparse
import math
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from coverage import FRESH, Cell, columns_of, drive, noises, targets, truth
from sottovoce.inference.estimate import Settings, linear
from sottovoce.inference.statistics import Gram, weighted

PAGE = Path(__file__).parent / "results" / "bootstrap.md"
DRAWS = 300
CELLS = [
    Cell(model, columns, m, N)
    for model in ("linear", "skewed")
    for columns, m, N in (("binary", 5, 20_000), ("pair", 5, 20_000), ("pair", 5, 50_000), ("binary", 20, 50_000))
]


def bootstrap(rows, longest, deviation, rng):
    """Low and high ends, or None where the noisy matrix is not positive."""
    N, p = rows.x.shape
    part = Gram(p, longest, kappa=longest)
    s = deviation * part.sensitivity

    def noise():
        return part.read(s * rng.standard_normal(part.width))

    whole = part.read(part.total(rows) / N) + noise()
    gram, cross, square = whole[:p, :p], whole[:p, p] / longest, whole[p, p] / longest**2
    values, vectors = np.linalg.eigh(gram)
    if values[0] <= 0:
        return None
    theta = np.linalg.solve(gram, cross)
    residual = max(float(square - cross @ theta) / max(float(gram[-1, -1]), 0.05), 1e-6)
    root = (vectors * np.sqrt(values)) @ vectors.T
    found = []
    for _ in range(DRAWS):
        e = noise()
        drawn = gram @ theta + math.sqrt(residual / N) * root @ rng.standard_normal(p) + e[:p, p] / longest
        found.append(np.linalg.lstsq(gram + e[:p, :p], drawn, rcond=None)[0])
    return np.quantile(found, [0.025, 0.975], axis=0)


def study(cell: Cell, number: int, epsilon: float):
    """Covered and lengths of both, over slopes; None where one has no intervals."""
    theta, root = truth(cell)
    rng = np.random.default_rng([len(CELLS), CELLS.index(cell), number])
    x = np.concatenate([columns_of(cell, root, rng, cell.N), np.ones((cell.N, 1))], axis=1)
    longest = math.sqrt(1.0 + cell.m / 2.0)
    rows = weighted(x, targets(cell, x @ theta, rng), longest)
    deviation = noises()[f"{epsilon:g} one"] / cell.N
    ours = drive(linear(Settings(cell.m + 1, longest, cell.N)), rows, deviation, rng)
    peer = bootstrap(rows, longest, deviation, rng)
    half = 1.96 * np.sqrt(np.diag(ours.covariance))
    mine = None if ours.refusal else (np.abs(ours.theta - theta) <= half, 2.0 * half)
    theirs = None if peer is None else ((peer[0] <= theta) & (theta <= peer[1]), peer[1] - peer[0])
    return [None if one is None else (np.mean(one[0][:-1]), np.mean(one[1][:-1])) for one in (mine, theirs)]


def main() -> None:
    """All cells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=200)
    studies = parser.parse_args().studies
    lines = [
        "# Intervals beside a parametric bootstrap", "",
        f"Made by `python benchmarks/bootstrap.py --studies {studies}`: slopes of linear models, one owner, the same",
        "studies and the same noise for both. Covered in per cent, mean length, [answered] where not all are.",
        "So few studies know a share of 95 % to some points only; `coverage.md` has many, of our intervals alone.", "",
        "| model | columns | m | N | ε | ours | Ferrando, Wang and Sheldon (2022) | their length over ours |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for cell in CELLS:
        for epsilon in (1.0, 4.0):
            found = [study(cell, FRESH + k, epsilon) for k in range(studies)]
            cells, both = [], [pair for pair in found if None not in pair]
            for which in range(2):
                made = np.array([pair[which] for pair in found if pair[which] is not None])
                share = "" if len(made) == studies else f" [{100 * len(made) / studies:.0f}]"
                cells.append(f"{100 * made[:, 0].mean():.1f}, {made[:, 1].mean():.4f}{share}" if len(made) else "r")
            ratio = np.median([theirs[1] / ours[1] for ours, theirs in both]) if both else math.nan
            lines.append(
                f"| {cell.model} | {cell.columns} | {cell.m} | {cell.N:,} | {epsilon:g} | {cells[0]} | {cells[1]} | "
                f"×{ratio:.2f} |"
            )
            print(lines[-1], flush=True)
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
