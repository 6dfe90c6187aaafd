"""Measured over predicted loss of accuracy, over the cells of docs/utility.md: what `predict.SPREAD` is read off.

    python benchmarks/foresight.py

The loss is against the model without noise of the same data. Cells without one, and rare classes, are left out.
"""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from sottovoce.planner import Facts, choose
from sottovoce.planner.predict import SPREAD
from sottovoce.planner.terms import SMALL_INTERCEPT

SIZES = {  # records to train on, columns with the intercept's, classes with weights of their own
    "a9a": (32_561, 124, 1),
    "covtype": (464_810, 55, 1),
    "epsilon-like": (20_000, 501, 1),
    "mnist": (60_000, 785, 10),
    "mushrooms": (6_500, 113, 1),
    "rcv1": (18_982, 47_237, 1),
}
WATCHED = {
    "planned": "transcript",
    "pairs": "secret_pairs(1)",
    "majority": "secret_pairs(majority)",
    "centre": "central",
}


def predicted(name: str, method: str, nodes: int, epsilon: float) -> float:
    records, features, outputs = SIZES[name]
    n = 1 if method == "centre" else nodes
    facts = Facts(
        (records // n,) * n, features, epsilon, 1e-5, "hinge" if outputs == 1 else "softmax", outputs, WATCHED[method],
        intercept=SMALL_INTERCEPT, shape=True, sparse=name == "rcv1", free=("loss", "penalty") if outputs == 1 else (),
    )  # fmt: skip
    return choose(facts).predicted


def main() -> None:
    rows = pq.read_table(Path(__file__).parent / "utility.parquet").to_pylist()
    open_ones = {row["data"]: row["accuracy"] for row in rows if row["method"] == "none"}
    cells: dict[tuple[str, str, int, float], list[float]] = {}
    for row in rows:
        if row["method"] in WATCHED and row["data"] in SIZES and row["data"] in open_ones:
            key = row["data"], row["method"], row["nodes"], row["epsilon"]
            cells.setdefault(key, []).append(row["accuracy"])
    ratios = np.array([(open_ones[key[0]] - np.mean(found)) / predicted(*key) for key, found in cells.items()])
    within = np.mean((ratios >= SPREAD[0]) & (ratios <= SPREAD[1]))
    low, half, high = np.quantile(ratios, (0.1, 0.5, 0.9))
    print(f"{len(ratios)} cells; measured over predicted: a tenth below {low:.2f}, half below {half:.2f}, a tenth over")
    print(f"{high:.2f}; {100 * within:.0f} % within {SPREAD}")


if __name__ == "__main__":
    main()
