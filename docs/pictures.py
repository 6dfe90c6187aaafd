"""Draws the pictures of these pages from runs and accounts made here: `make pictures`."""

import os
import shutil
import tempfile
import threading
from functools import partial
from pathlib import Path

import numpy as np

from sottovoce import AlgorithmSpec, Execution, PrivateClassifier, PublicEncoder, Shards, Spec, embedded, even, solve
from sottovoce.consortium.agreement import read_agreement
from sottovoce.consortium.submit import Status
from sottovoce.figure import Curve, Figure, Panel, draw
from sottovoce.pages import watch
from sottovoce.pages.server import Served
from sottovoce.privacy.release import ADVERSARIES
from sottovoce.privacy.theorem1 import Theorem1, compare
from sottovoce.problem.optimum import optimum
from sottovoce.report import write
from sottovoce.run.build import make_problem
from sottovoce.run.plan import rounds_for_epochs
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
    return spec.replace(algorithm__rounds=rounds_for_epochs(spec, shards.sizes, epochs))


def draw_run() -> None:
    """Suboptimality and accuracy against passes over the data, five seeds each."""
    table = embedded("synthetic")
    shards = Shards.of(table.X, table.y, *even(len(table.y), 20, np.random.default_rng(1)))
    base = paper_l2(1).replace(problem__h="l2(0.01)")
    f_star = optimum(make_problem(base.problem, shards), gap=1e-7).value
    found: dict[str, list[Curve]] = {"suboptimality": [], "train_accuracy": []}
    for label, (noise, changes, color) in RUNS.items():
        spec = with_epochs(base.replace(privacy__noise=noise, **changes), shards, 3.0)
        runs = [
            solve(spec.replace(seed=seed), shards, f_star=f_star, execution=Execution(observations=60))
            for seed in SEEDS
        ]
        label = label.format(f"{runs[0].statement.epsilon:.3g}")
        epochs = {"epoch": runs[0].history["epoch"]}
        for column, curves in found.items():
            values = np.array([run.history[column] for run in runs])
            ends = values.min(axis=0), values.max(axis=0)
            curves.append(Curve(label, epochs, values.mean(axis=0), *ends, style=(color, "solid")))
    panels = (
        Panel("suboptimality", "", "F(mean model) − F*", tuple(found["suboptimality"]), log=True),
        Panel("accuracy", "", "accuracy", tuple(found["train_accuracy"])),
    )
    title = "Twenty nodes train an SVM by gossip (δ = 1e-5, all messages seen)"
    axes = {"epoch": "passes over the data"}
    draw(Figure("run", title, (panels,), axes, log_x=True, size=(4.6, 3.8)), IMAGES / "run.png")


def draw_adult() -> None:
    """What the most important columns of Adult add to a score, for the README; left as it is without the table."""
    if "SOTTOVOCE_DATA" not in os.environ:
        print("adult.png is left as it is: SOTTOVOCE_DATA names no folder with adult.csv.xz")
        return
    import pandas as pd

    root = Path(__file__).parents[1]
    table = pd.read_csv(Path(os.environ["SOTTOVOCE_DATA"], "adult.csv.xz"))
    encoder = PublicEncoder(root / "examples" / "adult" / "schema.toml").fit()
    model = PrivateClassifier(epsilon=1.0, random_state=0, **encoder.public_)
    model.fit(encoder.transform(table), table["income-per-year"], nodes=table["relationship"])
    columns = encoder.schema_.columns
    axes = {column.name: (column.low, column.high) for column in columns if column.kind == "number"}
    names = encoder.get_feature_names_out().tolist()
    model.plot(most=4, axes=axes, names=names).savefig(IMAGES / "adult.png", dpi=110)


def draw_theorem1() -> None:
    """Claimed against true ε of Theorem 1's noise in the paper's epsilon experiment."""
    q, delta, claimed = 20_000, 1e-5, np.array([0.2, 0.4, 0.6, 0.8, 1.0])
    marks, curves = {"transcript": ("solid", "o"), "hidden_participation": ("dotted", "x")}, []
    for iota, color in ((0.1, "tab:red"), (0.2, "tab:orange"), (1.0, "tab:purple")):
        for adversary, (dash, mark) in marks.items():
            if adversary == "hidden_participation" and iota == 1.0:
                continue  # everybody speaks: there is nothing to hide
            T = round(3 * q / iota)
            true = [
                compare(Theorem1(e, 0.01, iota, 1.0, q, T), ADVERSARIES.read(adversary), delta).epsilon for e in claimed
            ]
            note = "" if adversary == "transcript" else " (what if: hidden participation)"
            label = f"true, ι = {iota:g}{note}"
            curves.append(Curve(label, {"claimed": claimed}, np.array(true), style=(color, dash), mark=mark))
    curves.append(Curve("claimed", {"claimed": claimed}, claimed, style=("black", "dashed")))
    panel = Panel("theorem1", "", f"ε at δ = {delta:g}", tuple(curves), log=True)
    axes = {"claimed": "ε claimed by Theorem 1"}
    draw(
        Figure("theorem1", "", ((panel,),), axes, ticks=tuple(claimed.tolist()), size=(8.0, 4.6)),
        IMAGES / "theorem1.png",
    )


def draw_report() -> None:
    """The top of a report, as a browser shows it; left as it is where there is no Chromium."""
    table = embedded("breast_cancer")
    shards = Shards.of(table.X, table.y, np.array([0, 60, 160, 300, 420, 569]))
    spec = Spec(AlgorithmSpec(rounds=200, gamma="constant(1)"), seed=7).replace(
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
    with tempfile.TemporaryDirectory() as folder:
        path = write(result, Path(folder) / "report.html", "Breast cancer: five hospitals, one model")
        photograph(path.as_uri(), "report", 2020)


def draw_watch() -> None:
    """The watch page of three hospitals in the middle of a run."""
    agreement = read_agreement(Path(__file__).parents[1] / "examples" / "consortium" / "consortium.toml")
    done = dict(zip(agreement.run.nodes, (0.43, 0.42, 0.42), strict=False))
    rows = {
        name: {"round": int(share * agreement.run.T), "rounds": agreement.run.T, "waits": None}
        for name, share in done.items()
    }
    first, second, *_ = agreement.run.nodes
    rows[first]["waits"] = {"round": rows[first]["round"] + 1, "for": second, "seconds": 7.0}
    status = Status("2f1b", "RUNNING", rows)
    view = watch.page(partial(watch.of_run, agreement, status, []), agreement)
    with Served(view) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        photograph(served.address, "watch", 620)
        served.shutdown()


def photograph(address: str, name: str, height: int) -> None:
    """A page from its top; a picture stays as it is where there is no Chromium."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        print(f"{name} is left as it is: there is no Chromium to open the page in")
        return
    with sync_playwright() as api:
        browser = api.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900}, device_scale_factor=0.8)
        page.goto(address)
        page.wait_for_timeout(5000)
        page.screenshot(
            path=IMAGES / f"{name}.png", full_page=True, clip={"x": 0, "y": 0, "width": 1280, "height": height}
        )
        browser.close()


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    draw_adult()
    draw_run()
    draw_theorem1()
    draw_report()
    draw_watch()
