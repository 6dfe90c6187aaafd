"""Simulated and deployed: held-out AUC of real nodes beside the estimator's, planned from the same public numbers.

    python benchmarks/deployed.py --seeds 5        # prints the table, and writes benchmarks/results/deployed.md

Adult by `relationship` (six owners), credit cards over five owners of very uneven sizes, flchain by `sample.yr` (nine
owners; neither `chapter` nor `futime` is a feature). A quarter of the records is for the test. The nodes follow a
planned agreement, each with its folder and ledger, over an in-process network; their noise comes from their own
secrets. The estimator simulates the same plan on the same records with a seed. ε = 1, δ = 1e-5, trust in nobody.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "node"))

from net import Net, play

from additive_tables import CREDIT, FLCHAIN
from sottovoce import PlanOptions, PrivateClassifier, PublicEncoder, __version__
from sottovoce.consortium.agreement import PublicSite
from sottovoce.consortium.planning import Proposal, plan_agreement
from sottovoce.data.schema import read_schema
from sottovoce.data.values import from_lists
from sottovoce.node.budget import Budget
from sottovoce.node.node import DurableNode
from sottovoce.node.site import problem_of
from sottovoce.node.store import Store
from sottovoce.problem.shards import Shards
from sottovoce.run.result import History, Result

HERE = Path(__file__).parent
ADULT = HERE.parent / "examples" / "adult" / "schema.toml"
SHARES = (0.02, 0.05, 0.13, 0.3, 0.5)
"""Of five owners of credit cards."""


def raw(name: str) -> pd.DataFrame:
    """A table of the folder that SOTTOVOCE_DATA names."""
    return pd.read_csv(Path(os.environ["SOTTOVOCE_DATA"], f"{name}.csv.xz"))


def schema_text(label: str, numbers: dict[str, tuple[float, float]], ignored: list[str]) -> str:
    """Numbers between public bounds; one that is missing counts as the middle."""
    lines = [f"ignored = {ignored}", "", "[label]", f'column = "{label}"', 'classes = ["0", "1"]']
    for name, (low, high) in numbers.items():
        lines += ["", f'[columns."{name}"]', f"low = {low}", f"high = {high}", f"missing = {(low + high) / 2}"]
    return "\n".join(lines) + "\n"


def adult(folder: Path) -> tuple[pd.DataFrame, str]:
    """By relationship."""
    (folder / "schema.toml").write_text(ADULT.read_text())
    table = raw("adult").rename(columns={"income-per-year": "class"})
    return table.assign(owner=table["relationship"]), "class"


def credit(folder: Path) -> tuple[pd.DataFrame, str]:
    """By chance, over five owners."""
    table, label = raw("credit_card"), "default-payment-next-month"
    names = [f"owner{k}" for k in range(1, 1 + len(SHARES))]
    owner = np.random.default_rng(0).choice(names, len(table), p=SHARES)
    ignored = sorted({*table.columns} - {*CREDIT, label})
    (folder / "schema.toml").write_text(schema_text(label, CREDIT, ignored))
    return table.assign(**{label: table[label].astype(str)}, owner=owner), label


def flchain(folder: Path) -> tuple[pd.DataFrame, str]:
    """By the year of the sample."""
    table = raw("flchain")
    numbers = {name: ends for name, ends in FLCHAIN.items() if name != "sample.yr"} | {"mgus": (0, 1), "male": (0, 1)}
    table = table.assign(male=(table["sex"] == "M").astype(int), death=table["death"].astype(str))
    (folder / "schema.toml").write_text(schema_text("death", numbers, sorted({*table.columns} - {*numbers, "death"})))
    return table.assign(owner="y" + table["sample.yr"].astype(str)), "death"


TABLES = {"Adult by relationship": adult, "credit, five owners": credit, "flchain by year": flchain}


def encoded(schema, table: pd.DataFrame):
    """As a site reads its records."""
    wanted = [*schema.numbers, *schema.texts]
    columns = {name: ["" if pd.isna(v) else v for v in table[name].tolist()] for name in wanted}
    return schema.encode(from_lists(columns, "here", schema.numbers, schema.texts, schema.missing_values))


def deployed(planned, schema, train: pd.DataFrame, test: pd.DataFrame, label: str) -> float:
    """AUC of the model that the nodes end with."""
    run, nodes = planned.agreement.run, {}
    with tempfile.TemporaryDirectory() as root:
        for name in run.nodes:
            found = encoded(schema, train[train["owner"] == name])
            store = Store(Path(root) / name)
            store.set_budget(Budget(10.0, 1e-4).detail("records"))
            shards = Shards.of(found.X, found.y, np.array([0, len(found.y)]), weights=found.usable.astype(float))
            nodes[name] = DurableNode(run, name, problem_of(run, shards), store)
        public = {}
        finish = nodes[run.nodes[0]].finish

        def finished():
            finish()
            public.update(nodes[run.nodes[0]].public)

        nodes[run.nodes[0]].finish = finished
        ends = play(Net(), nodes)
        for end in ends.values():
            if isinstance(end, Exception):
                raise end
    models = np.stack([ends[name].model for name in run.nodes])
    result = Result(run.spec.replace(seed=None), models, History(), run.statement, public, scale=run.scale)
    return float(roc_auc_score(test[label] == schema.label.classes[1], result.decide(encoded(schema, test).X)))


def simulated(schema_file: Path, network, train: pd.DataFrame, test: pd.DataFrame, label: str, seed: int) -> float:
    """AUC of the estimator."""
    encoder = PublicEncoder(schema_file).fit()
    options = PlanOptions(network=network)
    own = PrivateClassifier(1.0, delta=1e-5, random_state=seed, plan=options, **encoder.public_)
    model = make_pipeline(encoder, own)
    model.fit(train, train[label], privateclassifier__nodes=train["owner"])
    return float(roc_auc_score(test[label] == model.classes_[1], model.decision_function(test)))


def interval(values: list[float]) -> tuple[float, float]:
    """Mean and half of the 95 % interval of Student's t."""
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values)), float(half)


def row(name: str, seeds: int) -> str:
    """A table's line."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        table, label = TABLES[name](folder)
        order, count = np.random.default_rng(0).permutation(len(table)), int(0.75 * len(table))
        train, test = table.iloc[order[:count]], table.iloc[order[count:]]
        sizes = train["owner"].value_counts().sort_index()
        sites = tuple(PublicSite(str(owner), str(owner), int(q)) for owner, q in sizes.items())
        proposal = Proposal("bench", "first", folder / "schema.toml", sites, delta=1e-5)
        planned, schema = plan_agreement(proposal), read_schema(folder / "schema.toml")
        ours = [deployed(planned, schema, train, test, label) for _ in range(seeds)]
        theirs = [simulated(folder / "schema.toml", proposal.network, train, test, label, s) for s in range(seeds)]
        spec = planned.agreement.run.spec
    (a, da), (b, db) = interval(ours), interval(theirs)
    difference = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    found = (
        f"| {name} | {len(sites)}, {sizes.min():,} to {sizes.max():,} | {spec.algorithm.rounds} | {a:.4f} ± {da:.4f} | "
        f"{b:.4f} ± {db:.4f} | {a - b:+.4f} [{difference.low:+.4f}, {difference.high:+.4f}] |"
    )
    print(found, flush=True)
    return found


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    names = [name for name in TABLES if given.only in name]
    lines = [
        f"# Simulated and deployed (sottovoce {__version__})",
        "",
        f"Held-out AUC at ε = 1, δ = 1e-5, trust in nobody; {given.seeds} runs each, with 95 % intervals. Made by",
        f"`python benchmarks/deployed.py --seeds {given.seeds}`.",
        "",
        "| table | owners and their training records | rounds | deployed nodes | estimator | difference |",
        "|---|---|---|---|---|---|",
        *(row(name, given.seeds) for name in names),
    ]
    if names == list(TABLES):
        (HERE / "results" / "deployed.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
