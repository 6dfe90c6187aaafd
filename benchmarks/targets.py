"""PrivateRegressor where the public bounds of its targets are too wide, with `target_scale` "public" and "private".

    python benchmarks/targets.py [--quick] [--seeds 10] [--minutes 60]

The sets are those of `regression.py`, whose targets are within [−1, 1]. Bounds w times too wide are (−1, 2w − 1), right
below and too large above, as bounds of money and of counts are. Every cell is written to benchmarks/targets.csv when it
is done, so that a run that was stopped goes on where it was; the table in results/utility.md is made of what is there.
δ = 1e-5; R² is of held-out records, unclipped; ± is a 95 % interval over seeds, which are other draws of data, noise
and split, the same for both scales.
"""

import argparse
import csv
import time
import warnings
from pathlib import Path

import numpy as np

from regression import FOUR, SIX, cell, r2
from sottovoce import PrivateRegressor

HERE = Path(__file__).parent
FILE, PAGE = HERE / "targets.csv", HERE / "results" / "utility.md"
MARK, END = "<!-- made by benchmarks/targets.py -->", "<!-- end of targets -->"
SETS = ("diabetes, 331 records", "isotropic, 10,000 × 20", "heavy tails", "10 % outliers")
EPSILONS, NODES, WIDTHS, SCALES = (0.1, 1.0, 4.0), (1, 20), (1, 3, 10, 100), ("public", "private")
FIELDS = ("set", "nodes", "epsilon", "width", "scale", "seed", "r2", "by", "share", "half")
Key = tuple[str, int, float, int, str, int]


def cells(quick: bool, seeds: int) -> list[Key]:
    """What is to be measured, seed by seed."""
    sets, nodes = (SETS[:1], (1,)) if quick else (SETS, NODES)
    return [
        (name, n, epsilon, width, scale, seed)
        for seed in range(seeds)
        for n in nodes
        for name in sets
        for epsilon in EPSILONS
        for width in WIDTHS
        for scale in SCALES
    ]


def measure(
    name: str, nodes: int, epsilon: float, width: int, scale: str, seed: int
) -> tuple[float, str, float, float]:
    """R², the method, the share that was spent on the range, and half of the range that was found."""
    X, y, held, truth = (SIX | FOUR)[name](np.random.default_rng(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that there is nothing to be learned is what is measured
        model = PrivateRegressor(
            epsilon, 1e-5, row_norm=1.0, target_bounds=(-1, 2 * width - 1), target_scale=scale, n_nodes=nodes,
            random_state=seed,
        ).fit(X, y)  # fmt: skip
    low, high = model.target_range_
    return r2(truth, model.predict(held)), model.method_, model.spec_.privacy.quantiles.share, (high - low) / 2


def known() -> dict[Key, dict[str, str]]:
    if not FILE.exists():
        return {}
    with FILE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        (r["set"], int(r["nodes"]), float(r["epsilon"]), int(r["width"]), r["scale"], int(r["seed"])): r for r in rows
    }


def written(values: list[float]) -> str:
    """As `cell` writes it; what is far below 0 in whole numbers."""
    if len(values) < 2 or np.mean(values) > -10:
        return cell(values)
    return f"{np.mean(values):,.0f} ({len(values)})"


def page() -> str:
    """The table, as text."""
    rows = known()
    heads = [f"{w} × too wide" if w > 1 else "bounds right" for w in WIDTHS]
    lines = [f"| set, nodes, ε | target_scale | {' | '.join(heads)} |", "|---|---|" + "---|" * len(WIDTHS)]
    for name in SETS:
        for n in NODES:
            for epsilon in EPSILONS:
                public, private = (
                    [
                        [float(r["r2"]) for key, r in rows.items() if key[:5] == (name, n, epsilon, width, scale)]
                        for width in WIDTHS
                    ]
                    for scale in SCALES
                )
                spent = {
                    float(r["share"]) for key, r in rows.items() if (*key[:3], key[4]) == (name, n, epsilon, "private")
                }
                title = f"{name}, {n}, {epsilon:g}"
                if spent == {0.0} and public == private:  # not even searched for
                    lines.append(f"| {title} | both, nothing spent | {' | '.join(map(written, public))} |")
                    continue
                share = "/".join(f"{100 * each:.2g}" for each in sorted(spent))
                lines.append(f"| {title} | public | {' | '.join(map(written, public))} |")
                lines.append(f"| | private, {share} % | {' | '.join(map(written, private))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one set, one node, two seeds")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=60.0)
    options = parser.parse_args()
    done, end = set(known()), time.monotonic() + 60 * options.minutes
    if not FILE.exists():
        with FILE.open("w", newline="") as file:
            csv.writer(file).writerow(FIELDS)
    for key in cells(options.quick, 2 if options.quick else options.seeds):
        if key in done or time.monotonic() > end:
            continue
        found = measure(*key)
        with FILE.open("a", newline="") as file:
            csv.writer(file).writerow([*key, f"{found[0]:.5f}", found[1], f"{found[2]:.4g}", f"{found[3]:.5g}"])
    text = PAGE.read_text()
    if MARK in text:
        before, rest = text.split(MARK)
        PAGE.write_text(f"{before}{MARK}\n\n{page()}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
