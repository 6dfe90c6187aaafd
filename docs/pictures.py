"""Draws the pictures of these pages from runs and accounts made here: `make pictures`."""

import shutil
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from sottovoce import AlgorithmSpec, Execution, Shards, Spec, solve
from sottovoce.data.embedded import embedded
from sottovoce.privacy.adversaries import ADVERSARIES
from sottovoce.privacy.theorem1 import Theorem1, compare
from sottovoce.problem.optimum import optimum
from sottovoce.problem.shards import even
from sottovoce.report import write
from sottovoce.run.build import make_problem, rounds_for_epochs
from sottovoce.run.presets import paper_l2

IMAGES = Path(__file__).parent / "images"
SEEDS = range(5)
BATCHES = {"privacy__sampling": "poisson(64)", "network__activation": "everyone", "algorithm__gamma": "constant(1)"}
RUNS = {
    "no noise": ("none", {}, "tab:gray"),
    "paper's noise: claims ε = 0.8, true ε = {}": ("theorem1(0.8, 0.01)", {}, "tab:red"),
    "honest noise, true ε = {}": ("private(0.8)", {}, "tab:blue"),
    "honest noise with batches, true ε = {}": ("private(0.8)", BATCHES, "tab:green"),
}


def with_epochs(spec: Spec, shards: Shards, epochs: float) -> Spec:
    return spec.but(algorithm__rounds=rounds_for_epochs(spec, shards.sizes, epochs))


def draw_run() -> None:
    """Suboptimality and accuracy against passes over the data, five seeds each."""
    table = embedded("synthetic")
    shards = Shards.of(table.X, table.y, *even(len(table.y), 20, np.random.default_rng(1)))
    base = paper_l2(1).but(problem__h="l2(0.01)")
    f_star = optimum(make_problem(base.problem, shards), gap=1e-7).value
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    for label, (noise, changes, colour) in RUNS.items():
        spec = with_epochs(base.but(privacy__noise=noise, **changes), shards, 3.0)
        runs = [
            solve(spec.but(seed=seed), shards, f_star=f_star, execution=Execution(observations=60)) for seed in SEEDS
        ]
        label = label.format(f"{runs[0].statement.epsilon:.3g}")
        epochs = runs[0].history["epoch"]
        for axis, column in ((left, "suboptimality"), (right, "train_accuracy")):
            curves = np.array([run.history[column] for run in runs])
            axis.plot(epochs, curves.mean(axis=0), color=colour, label=label)
            axis.fill_between(epochs, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.2, lw=0)
    left.set(xscale="log", yscale="log", xlabel="passes over the data", ylabel="F(mean model) − F*")
    right.set(xscale="log", xlabel="passes over the data", ylabel="accuracy")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    figure.suptitle("Twenty nodes train an SVM by gossip (δ = 1e-5, all messages seen)", fontsize=10)
    figure.savefig(IMAGES / "run.png", dpi=130)


def draw_theorem1() -> None:
    """Claimed against true ε of Theorem 1's noise in the paper's epsilon experiment."""
    q, delta, claimed = 20_000, 1e-5, np.array([0.2, 0.4, 0.6, 0.8, 1.0])
    figure, axis = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
    styles = {"transcript": "o-", "hidden_participation": "x:"}
    for iota, colour in ((0.1, "tab:red"), (0.2, "tab:orange"), (1.0, "tab:purple")):
        for adversary, style in styles.items():
            if adversary == "hidden_participation" and iota == 1.0:
                continue  # everybody speaks: there is nothing to hide
            T = round(3 * q / iota)
            true = [
                compare(Theorem1(e, 0.01, iota, 1.0, q, T), ADVERSARIES.read(adversary), delta).epsilon for e in claimed
            ]
            note = "" if adversary == "transcript" else " (what if: hidden participation)"
            axis.plot(claimed, true, style, color=colour, label=f"true, ι = {iota:g}{note}")
    axis.plot(claimed, claimed, "k--", label="claimed")
    axis.set(yscale="log", xlabel="ε claimed by Theorem 1", ylabel=f"ε at δ = {delta:g}", xticks=claimed)
    axis.grid(alpha=0.3, which="both")
    axis.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(IMAGES / "theorem1.png", dpi=130)


def draw_report() -> None:
    """The top of a report, as a browser shows it; left as it is where there is no Chromium."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        print("report.png is left as it is: there is no Chromium to open the report in")
        return
    table = embedded("breast_cancer")
    shards = Shards.of(table.X, table.y, np.array([0, 60, 160, 300, 420, 569]))
    spec = Spec(AlgorithmSpec(rounds=200, gamma="constant(1)"), seed=7).but(
        problem__loss="logistic",
        problem__h="l2(0.01)",
        network__graph="ring",
        network__activation="matching(1)",
        privacy__sampling="poisson(16)",
        privacy__noise="private(2.0)",
    )
    f_star = optimum(make_problem(spec.problem, shards), gap=1e-7).value
    hospitals = ("North", "South", "East", "West", "St Mary's")
    result = solve(
        spec, shards, f_star=f_star, features=table.features, nodes=hospitals, classes=("malignant", "benign")
    )
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as api:
        path = write(result, Path(folder) / "report.html", "Breast cancer: five hospitals, one model")
        browser = api.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1100, "height": 900}, device_scale_factor=0.8)
        page.goto(path.as_uri())
        page.wait_for_timeout(3000)
        page.screenshot(
            path=IMAGES / "report.png", full_page=True, clip={"x": 0, "y": 0, "width": 1100, "height": 2020}
        )
        browser.close()


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    draw_run()
    draw_theorem1()
    draw_report()
