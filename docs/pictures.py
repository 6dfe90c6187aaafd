"""Draws the README's picture from a run of the demo's problem: `make pictures`."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from sottovoce import Execution, Shards, solve
from sottovoce.build import make_problem, rounds_for_epochs
from sottovoce.data.embedded import embedded
from sottovoce.presets import paper_l2
from sottovoce.problem.optimum import optimum
from sottovoce.problem.partition import even

IMAGES = Path(__file__).parent / "images"
SEEDS = range(5)
RUNS = {
    "no noise (not private)": ("none", "tab:gray"),
    "paper's noise, claimed ε = 0.8 (not private)": ("theorem1(0.8, 0.01)", "tab:red"),
}


def main() -> None:
    """Suboptimality and accuracy against passes over the data, five seeds each."""
    table = embedded("synthetic")
    shards = Shards.of(table.X, table.y, even(len(table.y), 20, np.random.default_rng(1))[0])
    spec = paper_l2(1).but(problem__h="l2(0.01)")
    spec = spec.but(algorithm__rounds=rounds_for_epochs(spec, shards.sizes, 3.0))
    f_star = optimum(make_problem(spec.problem, shards), gap=1e-7).value
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for label, (noise, colour) in RUNS.items():
        runs = [
            solve(spec.but(privacy__noise=noise, seed=s), shards, f_star=f_star, execution=Execution(observations=60))
            for s in SEEDS
        ]
        epochs = runs[0].history["epoch"]
        for axis, column in ((left, "suboptimality"), (right, "train_accuracy")):
            curves = np.array([run.history[column] for run in runs])
            axis.plot(epochs, curves.mean(axis=0), color=colour, label=label)
            axis.fill_between(epochs, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.2, lw=0)
    left.set(xscale="log", yscale="log", xlabel="passes over the data", ylabel="F(mean model) − F*")
    right.set(xscale="log", xlabel="passes over the data", ylabel="accuracy")
    left.legend(fontsize=8, frameon=False)
    figure.suptitle("Twenty nodes, one random pair a round, one record each", fontsize=10)
    IMAGES.mkdir(exist_ok=True)
    figure.savefig(IMAGES / "run.png", dpi=130)


if __name__ == "__main__":
    main()
