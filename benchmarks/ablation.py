"""What each choice of the planner is worth: one thing changed at a time, everything else as planned.

    python benchmarks/ablation.py --data a9a mushrooms --epsilon 1 --seeds 10
    python benchmarks/ablation.py --redraw

Keeps its rows in benchmarks/ablation.parquet, and writes its table into docs/utility.md. All runs of a seed share deal
and schedule, so that differences to the plan are paired: that is what the intervals are of.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from sottovoce.estimators.transformers import PublicProjection
from sottovoce.notation import parse
from sottovoce.planner import Facts, choose
from sottovoce.problem.shards import Shards
from utility import HERE, PAGE, Row, interval, keep, key, rows
from utility_data import DATA, Data, load
from utility_methods import _facts, _run

TABLE = HERE / "ablation.parquet"
BEGIN, END = "<!-- made by benchmarks/ablation.py -->", "<!-- end of ablation -->"
NODES = 20


class Variant(NamedTuple):
    """A change of the plan: settings that are fixed, facts, data; `to` names what it is compared with."""

    says: str
    fixed: dict[str, Any] = {}  # noqa: RUF012 - never changed
    facts: Callable[[Facts], dict[str, Any]] = lambda facts: {}
    data: Callable[[Data], Data] = lambda data: data
    to: str = "plan"
    uneven: bool = False


def hashed(data: Data) -> Data:
    projection = PublicProjection(4096).fit(data.X)
    return data._replace(X=projection.transform(data.X), X_test=projection.transform(data.X_test))


def gentle(facts: Facts) -> dict[str, Any]:
    return {"loss": "logistic" if facts.outputs == 1 else "softmax"}


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
    "smooth": Variant("smoothed hinge in place of hinge", facts=lambda f: {"loss": "smoothed_hinge(1.0)"}),
    "logistic": Variant("logistic, clipped at half its bound", facts=gentle),
    "unclipped": Variant("logistic or softmax, not clipped", {"clip": 10.0}, facts=gentle, to="logistic"),
    "l1": Variant("a threshold of one deviation of the noise (l1)", facts=lambda f: {"penalty": "l1"}),
    "none": Variant("no regulariser, γ alone", facts=lambda f: {"penalty": "none"}),
    "stiffer": Variant("μ ten times the planned one"),
    "hashed": Variant("4,096 hashed columns", data=hashed),
    "no intercept": Variant("no intercept", facts=lambda f: {"intercept": 0.0, "features": f.features - 1}),
    "wide intercept": Variant("an intercept of 1 in place of 0.5", facts=lambda f: {"intercept": 1.0}),
    "narrow intercept": Variant("an intercept of 0.25 in place of 0.5", facts=lambda f: {"intercept": 0.25}),
    "fewer": Variant("a third of the rounds"),
    "more": Variant("three times the rounds"),
    "shorter": Variant("a third of the reach τ"),
    "longer": Variant("three times the reach τ"),
}


def run(name: str, data: Data, epsilon: float, seed: int) -> Row:
    """One run of a variant."""
    variant = VARIANTS[name]
    data = variant.data(data)
    shards = data.shards(NODES, seed)
    if variant.uneven:
        shares = np.exp(1.5 * np.random.default_rng(seed).standard_normal(NODES))
        cuts = np.maximum.accumulate(np.round(np.cumsum(shares / shares.sum()) * len(data.y)).astype(int))
        cuts = np.maximum(cuts, 20 * np.arange(1, NODES + 1))
        shards = Shards.of(shards.X, shards.y, np.concatenate([[0], cuts[:-1], [len(data.y)]]))
    facts = _facts(shards, data, epsilon)
    facts = replace(facts, **variant.facts(facts))
    fixed = dict(variant.fixed)
    planned = choose(replace(facts, penalty="l2"))
    rounds = planned.spec.algorithm.rounds
    if name in ("poisson", "fixed", "everyone", "matching", "growing", "l1", "none", "stiffer"):
        fixed["rounds"] = rounds
    if name == "edge":
        fixed["rounds"] = 10 * rounds
    if name in ("fewer", "more"):
        fixed["rounds"] = max(5, rounds // 3) if name == "fewer" else 3 * rounds
    mu, gamma = (parse(text).args[0] for text in (planned.spec.problem.h, planned.spec.algorithm.gamma))
    if name == "stiffer":
        fixed["alpha"] = 10 * mu
    if name in ("shorter", "longer"):
        factor = 3.0 if name == "shorter" else 1 / 3
        fixed |= {"alpha": factor * mu, "gamma": factor * gamma, "rounds": rounds}
    return _run(choose(facts, **fixed).spec, shards, data, seed)


def measure(arguments: argparse.Namespace) -> None:
    """Make what is missing, and keep each row at once."""
    made = rows(TABLE)
    there = {key(row) for row in made}
    for data in arguments.data:
        for epsilon in arguments.epsilon:
            for seed in range(arguments.seeds):
                for name in arguments.variant:
                    row = {"data": data, "method": name, "nodes": NODES, "epsilon": epsilon, "seed": seed}
                    if key(row) in there:
                        continue
                    began = time.perf_counter()
                    made.append(row | run(name, load(data), epsilon, seed))
                    keep(made, TABLE)
                    print(*key(row), f"{made[-1]['accuracy']:.4f}", f"{time.perf_counter() - began:.1f} s", flush=True)


def redraw() -> None:
    """Differences to the plan in points, with 95 % intervals over paired seeds."""
    found = {key(row): row["accuracy"] for row in rows(TABLE)}
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
                mean, half = interval([100 * (runs[s] - base[s]) for s in both])
                cells.append(f"{mean:+.2f} ± {half:.2f}")
        against = "" if variant.to in ("plan", name) else f", against *{VARIANTS[variant.to].says}*"
        lines.append(f"| {variant.says}{against} | " + " | ".join(cells) + " |")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{rest.partition(END)[2]}")


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
