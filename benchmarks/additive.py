"""Additive models beside linear ones, InterpretML's DP-EBM and models without privacy, on public tables.

    python benchmarks/additive.py --tables adult,credit --epsilons 1 --seeds 3     # rows are added to additive.csv
    python benchmarks/additive.py --page                                           # additive.md from additive.csv

Figures are AUC (R² of a regression) on a quarter of the records, split by ``default_rng(0).permutation``; covtype has
100,000 training rows. Bounds are written here, from the codebooks. A row that is in the file is not computed again.
DP-EBM needs ``interpret-core==0.7.8`` on the path (``pip install --target DIR``, ``PYTHONPATH=DIR``). Raw tables lie in
the folder that SOTTOVOCE_DATA names.
"""

import argparse
import csv
import io
import lzma
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import r2_score, roc_auc_score

from sottovoce import PrivateClassifier, PrivateRegressor
from sottovoce.data.schema import Schema, schema_of
from sottovoce.data.values import from_lists
from sottovoce.errors import DataError

RESULTS = Path(__file__).parent / "results"
FIELDS = ("table", "model", "epsilon", "owners", "trust", "seed", "figure", "accuracy", "seconds")
OWNERS = {"one": (1, "nobody"), "majority": (20, "majority"), "nobody": (20, "nobody")}
NONE = "none"
"""In place of ε and owners of a model without privacy."""
MONEY = {"low": 0, "high": 1_000_000}
ADULT = {
    "age": (17, 90), "fnlwgt": (0, 1_500_000), "education-num": (1, 16), "capital-gain": (0, 100_000),
    "capital-loss": (0, 5000), "hours-per-week": (1, 99),
}  # fmt: skip
CREDIT = (
    {"LIMIT_BAL": (0, 1_000_000), "AGE": (18, 80)}
    | {f"PAY_{k}": (-2, 9) for k in (0, 2, 3, 4, 5, 6)}
    | {f"BILL_AMT{k}": (-200_000, 1_000_000) for k in range(1, 7)}
    | {f"PAY_AMT{k}": (0, 1_000_000) for k in range(1, 7)}
)
FLCHAIN = {
    "age": (50, 101), "sample.yr": (1995, 2003), "kappa": (0, 20), "lambda": (0, 25), "flc.grp": (1, 10),
    "creatinine": (0, 10),
}  # fmt: skip
COVTYPE = [
    (1800, 3900), (0, 360), (0, 70), (0, 1400), (-200, 610), (0, 7200), (0, 255), (0, 255), (0, 255), (0, 7200)
]  # fmt: skip
DIABETES = [(18, 90), (1, 2), (15, 50), (60, 140), (80, 320), (40, 250), (20, 100), (2, 10), (3, 7), (50, 130)]
BREAST = [
    (0, 30), (0, 50), (0, 200), (0, 3000), (0, 0.2), (0, 0.4), (0, 0.5), (0, 0.25), (0, 0.4), (0, 0.1), (0, 3), (0, 5),
    (0, 25), (0, 600), (0, 0.04), (0, 0.15), (0, 0.4), (0, 0.06), (0, 0.1), (0, 0.03), (0, 40), (0, 60), (0, 300),
    (0, 5000), (0, 0.3), (0, 1.2), (0, 1.5), (0, 0.3), (0, 0.8), (0, 0.25),
]  # fmt: skip


class Task(NamedTuple):
    """A table, encoded and split: rows with numeric columns in [−1, 1], their bounds, targets, and the raw columns."""

    X: Any
    y: Any
    bounds: list[tuple[float, float] | None]
    row_norm: float
    train: Any
    test: Any
    targets: tuple[float, float] | None = None


def split(X: Any, y: Any, bounds: Any, row_norm: float, rows: int | None = None, targets: Any = None) -> Task:
    """A quarter of the records is for the test, or all beyond so many training rows."""
    order = np.random.default_rng(0).permutation(len(y))
    count = rows or int(0.75 * len(y))
    return Task(X, y, bounds, row_norm, order[:count], order[count:], targets)


def raw(name: str) -> list[dict[str, str]]:
    """The records of a raw table."""
    with lzma.open(Path(os.environ["SOTTOVOCE_DATA"], f"{name}.csv.xz"), "rt") as file:
        return list(csv.DictReader(file))


def by_schema(records: list[dict[str, str]], numbers: dict[str, Any], names: list[str], y: Any) -> Task:
    """Encoded by a schema: numbers between bounds, missing ones in the middle, categories by the values that occur."""
    columns: dict[str, Any] = {
        name: {"low": low, "high": high, "missing": (low + high) / 2} for name, (low, high) in numbers.items()
    }
    for name in names:
        values = sorted({record[name] for record in records})
        columns[name] = {"type": "category", "categories": values, "missing": "none"}
    schema: Schema = schema_of({"label": {"column": "y", "classes": [0, 1]}, "columns": columns})
    table = {name: [record[name] for record in records] for name in columns}
    X = np.asarray(schema.encode_features(from_lists(table, "table", [*numbers], names)))
    numeric = set(schema.numeric_features)
    bounds = [(-1.0, 1.0) if place in numeric else None for place in range(schema.m)]
    return split(X, np.array(y), bounds, float(schema.row_norm))


def scaled(X: Any, bounds: list[tuple[float, float]]) -> Any:
    """Numeric columns brought to [−1, 1] by their bounds."""
    low, high = np.array(bounds, dtype=np.float64).T
    return np.clip(2 * (X - low) / (high - low) - 1, -1, 1)


def adult() -> Task:
    """Income over 50,000."""
    names = ["workclass", "education", "marital-status", "occupation", "relationship", "race", "sex", "native-country"]
    records = raw("adult")
    return by_schema(records, ADULT, names, [int(">" in r["income-per-year"]) for r in records])


def credit() -> Task:
    """Default of a credit card client."""
    records = raw("credit_card")
    for record in records:
        for kind in ("EDUCATION", "MARRIAGE"):
            record[kind] = next((k for k in "0123456" if record.get(f"{kind}_{k}") == "1"), "none")
    y = [int(record["default-payment-next-month"]) for record in records]
    return by_schema(records, CREDIT, ["SEX", "EDUCATION", "MARRIAGE"], y)


def flchain() -> Task:
    """Death, without what is known of it (chapter, futime)."""
    records = raw("flchain")
    return by_schema(records, FLCHAIN, ["sex", "mgus"], [int(record["death"]) for record in records])


def svmlight(name: str, features: int) -> tuple[Any, Any]:
    """A table in svmlight, dense."""
    from sklearn.datasets import load_svmlight_file

    with lzma.open(Path(os.environ["SOTTOVOCE_DATA"], f"{name}.svm.xz")) as file:
        X, y = load_svmlight_file(io.BytesIO(file.read()), n_features=features)
    return X.toarray(), (y > 0).astype(int)


def covtype() -> Task:
    """Cover type 2, from 100,000 training rows."""
    X, y = svmlight("covtype.binary", 54)
    X[:, :10] = scaled(X[:, :10], COVTYPE)
    return split(X, y, [(-1.0, 1.0)] * 10 + [None] * 44, float(np.sqrt(12)), rows=100_000)


def a9a() -> Task:
    """Adult, binned: no numeric column, so that the model is linear."""
    X, y = svmlight("a9a", 123)
    return split(X, y, [None] * 123, float(np.sqrt(14)))


def breast_cancer() -> Task:
    """Benign or not."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    return split(scaled(X, BREAST), y, [(-1.0, 1.0)] * 30, float(np.sqrt(30)))


def diabetes() -> Task:
    """Progression of a disease: a regression."""
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True, scaled=False)
    return split(scaled(X, DIABETES), y, [(-1.0, 1.0)] * 10, float(np.sqrt(10)), targets=(0.0, 400.0))


TABLES: dict[str, Callable[[], Task]] = {
    each.__name__: each for each in (adult, credit, flchain, covtype, a9a, breast_cancer, diabetes)
}


@cache
def task(name: str) -> Task:
    """A table, read once."""
    return TABLES[name]()


def ours(features: str) -> Callable[..., Any]:
    """Our estimators with this map of columns."""

    def fit(of: Task, epsilon: float, owners: str, seed: int) -> Any:
        nodes, trust = OWNERS[owners]
        public = {"row_norm": of.row_norm, "bounds": of.bounds, "features": features, "n_nodes": nodes, "trust": trust}
        if of.targets is not None:
            model: Any = PrivateRegressor(epsilon, target_bounds=of.targets, random_state=seed, **public)
        else:
            model = PrivateClassifier(epsilon, classes=[0, 1], random_state=seed, **public)
        return model.fit(of.X[of.train], of.y[of.train])

    return fit


def dp_ebm(of: Task, epsilon: float, owners: str, seed: int) -> Any:
    """DP-EBM with given bounds, at a trusted center; its adjacency (add or remove) is weaker than ours."""
    from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor

    kinds = ["continuous" if pair else "nominal" for pair in of.bounds]
    privacy_bounds = {k: pair or (0.0, 1.0) for k, pair in enumerate(of.bounds)}
    common = {"epsilon": epsilon, "delta": 1e-5, "feature_types": kinds, "random_state": seed, "n_jobs": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if of.targets is not None:
            low, high = of.targets
            model: Any = DPExplainableBoostingRegressor(
                privacy_bounds=privacy_bounds, privacy_target_min=low, privacy_target_max=high, **common
            )
        else:
            model = DPExplainableBoostingClassifier(privacy_bounds=privacy_bounds, **common)
        return model.fit(of.X[of.train], of.y[of.train])


def open_linear(of: Task, *_: Any) -> Any:
    """Logistic regression or least squares without privacy."""
    from sklearn.linear_model import LogisticRegression, Ridge

    model: Any = LogisticRegression(max_iter=2000) if of.targets is None else Ridge()
    return model.fit(of.X[of.train], of.y[of.train])


def open_boosted(of: Task, *_: Any) -> Any:
    """Gradient boosting without privacy."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    model: Any = (HistGradientBoostingClassifier if of.targets is None else HistGradientBoostingRegressor)()
    return model.fit(of.X[of.train], of.y[of.train])


MODELS: dict[str, Callable[..., Any]] = {
    "auto": ours("auto"), "linear": ours("linear"), "dp_ebm": dp_ebm,
    "open linear": open_linear, "open boosted": open_boosted,
}  # fmt: skip


def measured(name: str, model: str, epsilon: float, owners: str, seed: int) -> dict[str, Any]:
    """One row."""
    of, began = task(name), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = MODELS[model](of, epsilon, owners, seed)
    seconds = time.perf_counter() - began
    X, y = of.X[of.test], of.y[of.test]
    if of.targets is not None:
        figure, accuracy = r2_score(y, fitted.predict(X)), float("nan")
    else:
        scores = fitted.decision_function(X) if hasattr(fitted, "decision_function") else fitted.predict_proba(X)[:, 1]
        figure, accuracy = roc_auc_score(y, scores), float(np.mean(fitted.predict(X) == y))
    return dict(zip(FIELDS[6:], (round(figure, 5), round(accuracy, 5), round(seconds, 2)), strict=True))


def cells(args: argparse.Namespace) -> list[tuple[str, ...]]:
    """What there is to measure, by the fields before the figure."""
    found = []
    for name in args.tables.split(","):
        for model in args.models.split(","):
            if model.startswith("open"):
                found.append((name, model, NONE, NONE, NONE, "0"))
                continue
            wanted = ["one"] if model == "dp_ebm" else args.owners.split(",")
            for seed in range(args.seeds):
                for epsilon in args.epsilons.split(","):
                    found += [(name, model, epsilon, owners, OWNERS[owners][1], str(seed)) for owners in wanted]
    return found


def page(path: Path) -> str:
    """The table of means in Markdown, from the rows."""
    rows = list(csv.DictReader(path.open()))
    means: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        means[row["table"], row["epsilon"], row["owners"], row["model"]].append(float(row["figure"]))
    models = [model for model in MODELS if any(row["model"] == model for row in rows)]
    lines = ["# Additive models", "", "AUC on held-out records (R² of diabetes); mean of the seeds, with their number.",
             "DP-EBM has a trusted center and the weaker adjacency (add or remove). Made by `benchmarks/additive.py`.",
             "", f"| table | ε | owners | {' | '.join(models)} |", f"|---|---|---|{'---|' * len(models)}"]  # fmt: skip
    for name, epsilon, owners in sorted({key[:3] for key in means}, key=lambda key: (key[0], key[2] == NONE, key[1:])):
        shown = [means.get((name, epsilon, owners, model), []) for model in models]
        figures = " | ".join(f"{np.mean(each):.4f} ({len(each)})" if each else "" for each in shown)
        lines.append(f"| {name} | {epsilon} | {owners} | {figures} |")
    gains = [
        np.mean(means[(*key, "auto")]) - np.mean(means[(*key, "linear")])
        for key in {key[:3] for key in means}
        if (*key, "auto") in means and (*key, "linear") in means and key[0] != "diabetes"
    ]
    lines += [
        "",
        f"auto − linear over {len(gains)} cells of classification: {100 * np.mean(gains):+.2f} points of AUC.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure what is missing, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--epsilons", default="0.2,1,4")
    parser.add_argument("--owners", default=",".join(OWNERS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rows", type=Path, default=RESULTS / "additive.csv")
    parser.add_argument("--page", action="store_true", help="only write the page")
    args = parser.parse_args()
    if not args.page:
        there = set()
        if args.rows.exists():
            there = {tuple(row[field] for field in FIELDS[:6]) for row in csv.DictReader(args.rows.open())}
        for key in cells(args):
            if key in there:
                continue
            epsilon = 1.0 if key[2] == NONE else float(key[2])
            try:
                found = measured(key[0], key[1], epsilon, key[3], int(key[5]))
            except DataError as error:  # nodes that are too small for this ε
                print(*key, error, flush=True)
                continue
            row = dict(zip(FIELDS, key, strict=False)) | found
            new = not args.rows.exists()
            with args.rows.open("a", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                if new:
                    writer.writeheader()
                writer.writerow(row)
            print(*row.values(), flush=True)
    args.rows.with_suffix(".md").write_text(page(args.rows))


if __name__ == "__main__":
    main()
