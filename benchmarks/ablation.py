"""What each choice of the planner is worth: one thing changed at a time, everything else as planned.

    python benchmarks/ablation.py --data a9a mushrooms --epsilon 1 --seeds 10
    python benchmarks/ablation.py --redraw

Keeps its rows in benchmarks/ablation.parquet, and writes its table into results/utility.md. All runs of a seed share
partition and schedule, so that differences to the plan are paired: that is what the intervals are of.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from sottovoce.estimators.transformers import PublicProjection
from sottovoce.experiments.data import Dataset
from sottovoce.experiments.table import Row, Runs
from sottovoce.figure import Interval
from sottovoce.planner import PublicInputs, choose
from sottovoce.problem.shards import Shards
from utility import HERE, KEY, report_progress, rewrite
from utility_methods import DATA, inputs_of, load
from utility_methods import run as run_spec

TABLE = HERE / "ablation.parquet"
BEGIN, END = "<!-- made by benchmarks/ablation.py -->", "<!-- end of ablation -->"
NODES = 20


class Variant(NamedTuple):
    """A change of the plan: settings that are fixed, facts, data; `to` names what it is compared with."""

    says: str
    fixed: dict[str, Any] = {}  # noqa: RUF012 - never changed
    inputs: Callable[[PublicInputs], dict[str, Any]] = lambda inputs: {}
    data: Callable[[Dataset], Dataset] = lambda data: data
    to: str = "plan"
    uneven: bool = False


def hashed(data: Dataset) -> Dataset:
    projection = PublicProjection(4096).fit(data.records.X)
    tables = [replace(table, X=projection.transform(table.X)) for table in (data.records, data.held_out)]
    return replace(data, records=tables[0], held_out=tables[1])


def gentle(inputs: PublicInputs) -> dict[str, Any]:
    return {"loss": "logistic" if inputs.outputs == 1 else "softmax"}


VARIANTS: dict[str, Variant] = {
    "plan": Variant("the plan"),
    "poisson": Variant("Poisson batches of 64, same rounds", {"sampling": "poisson(64)"}),
    "fixed": Variant("fixed batches of 64, same rounds", {"sampling": "fixed(64)"}),
    "everyone": Variant("everyone in every round", {"activation": "everyone"}),
    "matching": Variant("random pairs in every round", {"activation": "matching(10)"}),
    "edge": Variant("one edge a round, ten times the rounds", {"activation": "edges(1)"}),
    "growing": Variant("a_t = t in place of 1", {"a": "linear(1)"}),
    "nodes": Variant("uneven nodes, each counts the same", {"weights": "nodes"}, to="uneven", uneven=True),
    "records": Variant("uneven nodes, each record counts the same", {"weights": "records"}, to="uneven", uneven=True),
    "uneven": Variant("uneven nodes, small ones count less", uneven=True, to="uneven"),
    "smooth": Variant("smoothed hinge in place of hinge", inputs=lambda f: {"loss": "smoothed_hinge(1.0)"}),
    "logistic": Variant("logistic, clipped at half its bound", inputs=gentle),
    "unclipped": Variant("logistic or softmax, not clipped", {"clip": 10.0}, inputs=gentle, to="logistic"),
    "l1": Variant("a threshold of one deviation of the noise (l1)", inputs=lambda f: {"penalty": "l1"}),
    "none": Variant("no regularizer, γ alone", inputs=lambda f: {"penalty": "none"}),
    "stiffer": Variant("μ ten times the planned one"),
    "hashed": Variant("4,096 hashed columns", data=hashed),
    "no intercept": Variant("no intercept", inputs=lambda f: {"intercept": 0.0, "features": f.features - 1}),
    "wide intercept": Variant("an intercept of 1 in place of 0.5", inputs=lambda f: {"intercept": 1.0}),
    "narrow intercept": Variant("an intercept of 0.25 in place of 0.5", inputs=lambda f: {"intercept": 0.25}),
    "fewer": Variant("a third of the rounds"),
    "more": Variant("three times the rounds"),
    "shorter": Variant("a third of the reach τ"),
    "longer": Variant("three times the reach τ"),
}


def run(head: Row) -> list[Row]:
    """One run of a variant."""
    name, epsilon, seed = head["method"], head["epsilon"], head["seed"]
    variant = VARIANTS[name]
    data = variant.data(load(head["data"]))
    shards = data.partition(NODES, seed)
    if variant.uneven:
        shares = np.exp(1.5 * np.random.default_rng(seed).standard_normal(NODES))
        cuts = np.maximum.accumulate(np.round(np.cumsum(shares / shares.sum()) * len(data.y)).astype(int))
        cuts = np.maximum(cuts, 20 * np.arange(1, NODES + 1))
        shards = Shards.of(shards.X, shards.y, np.concatenate([[0], cuts[:-1], [len(data.y)]]), shards.order)
    inputs = inputs_of(tuple(shards.sizes.tolist()), data, epsilon)
    inputs = replace(inputs, **variant.inputs(inputs))
    fixed = dict(variant.fixed)
    planned = choose(replace(inputs, penalty="l2"))
    rounds = planned.spec.algorithm.rounds
    if name in ("poisson", "fixed", "everyone", "matching", "growing", "l1", "none", "stiffer"):
        fixed["rounds"] = rounds
    if name == "edge":
        fixed["rounds"] = 10 * rounds
    if name in ("fewer", "more"):
        fixed["rounds"] = max(5, rounds // 3) if name == "fewer" else 3 * rounds
    mu, gamma = planned.spec.problem.h.modulus, float(planned.spec.algorithm.gamma(1)[0])
    if name == "stiffer":
        fixed["alpha"] = 10 * mu
    if name in ("shorter", "longer"):
        factor = 3.0 if name == "shorter" else 1 / 3
        fixed |= {"alpha": factor * mu, "gamma": factor * gamma, "rounds": rounds}
    return [head | run_spec(choose(inputs, **fixed).spec, shards, data, seed)]


def measure(arguments: argparse.Namespace) -> None:
    """Make what is missing, and keep each row at once."""
    runs = Runs(KEY, TABLE)
    wanted = [
        {"data": data, "method": name, "nodes": NODES, "epsilon": epsilon, "seed": seed}
        for data in arguments.data
        for epsilon in arguments.epsilon
        for seed in range(arguments.seeds)
        for name in arguments.variant
    ]
    runs.fill([head for head in wanted if not runs.find(**head)], run, done=report_progress)


def redraw() -> None:
    """Differences to the plan in points, with 95 % intervals over paired seeds."""
    found = {tuple(row[name] for name in KEY): row["accuracy"] for row in Runs(KEY, TABLE).rows}
    columns = sorted(
        {(data, epsilon) for data, _, _, epsilon, _ in found}, key=lambda c: (list(DATA).index(c[0]), c[1])
    )
    lines = ["| change | " + " | ".join(f"{data}, ε = {epsilon:g}" for data, epsilon in columns) + " |"]
    lines += ["|---|" + "---|" * len(columns)]
    for name, variant in VARIANTS.items():
        cells = []
        for data, epsilon in columns:
            runs = {seed: a for (d, v, _, e, seed), a in found.items() if (d, v, e) == (data, name, epsilon)}
            base = {seed: a for (d, v, _, e, seed), a in found.items() if (d, v, e) == (data, variant.to, epsilon)}
            both = sorted(set(runs) & set(base))
            if not both:
                cells.append("–")
            elif name == variant.to:
                cells.append(f"{np.mean([runs[s] for s in both]):.3f} ({len(both)})")
            else:
                apart = Interval.of([100 * (runs[s] - base[s]) for s in both])
                cells.append(f"{apart.mean:+.2f} ± {apart.half:.2f}")
        against = "" if variant.to in ("plan", name) else f", against *{VARIANTS[variant.to].says}*"
        lines.append(f"| {variant.says}{against} | " + " | ".join(cells) + " |")
    rewrite(BEGIN, END, "\n".join(["", *lines]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["a9a", "mushrooms"], choices=list(DATA))
    parser.add_argument("--variant", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--redraw", action="store_true", help="only write the table")
    arguments = parser.parse_args()
    if not arguments.redraw:
        measure(arguments)
    redraw()


if __name__ == "__main__":
    main()
