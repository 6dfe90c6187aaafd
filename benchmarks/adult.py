"""The table of the README: Adult at ε = 1, six owners by `relationship`, beside DP-EBM and models without privacy.

    python benchmarks/adult.py --seeds 5        # prints the table, and writes benchmarks/results/adult.md

A quarter of the records, drawn by ``default_rng(0).permutation``, is for the test. The schema is
examples/adult/schema.toml. DP-EBM (``interpret-core==0.7.8``, if it is installed) gets the same bounds, or finds its
own; the better of both is shown. The table lies in the folder that SOTTOVOCE_DATA names.
"""

import argparse
import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline

from sottovoce import PrivateClassifier, PublicEncoder, __version__

HERE = Path(__file__).parent
SCHEMA = HERE.parent / "examples" / "adult" / "schema.toml"
RESULT = HERE / "results" / "adult.md"
CLASSES = ["<=50K", ">50K"]


def adult() -> pd.DataFrame:
    """The census table, with the label as OpenML names it."""
    path = Path(os.environ["SOTTOVOCE_DATA"], "adult.csv.xz")
    return pd.read_csv(path).rename(columns={"income-per-year": "class"})


def split(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Three quarters for training, the others for the test."""
    order = np.random.default_rng(0).permutation(len(table))
    count = int(0.75 * len(table))
    return table.iloc[order[:count]], table.iloc[order[count:]]


def ours(train: pd.DataFrame, test: pd.DataFrame, seed: int, owners: bool, trust: str) -> float:
    """AUC of our estimator."""
    encoder = PublicEncoder(SCHEMA).fit()
    model = make_pipeline(encoder, PrivateClassifier(1.0, trust=trust, random_state=seed, **encoder.public_))
    nodes = {"privateclassifier__nodes": train["relationship"]} if owners else {}
    model.fit(train, train["class"], **nodes)
    return float(roc_auc_score(test["class"], model.decision_function(test)))


def dp_ebm(train: pd.DataFrame, test: pd.DataFrame, seed: int, given: bool) -> float:
    """AUC of DP-EBM at a trusted center, with the schema's bounds or with its own."""
    from interpret.privacy import DPExplainableBoostingClassifier

    columns = [column for column in PublicEncoder(SCHEMA).fit().schema_.columns]
    names = [column.name for column in columns]
    kinds = ["continuous" if column.kind == "number" else "nominal" for column in columns]
    bounds = {k: (column.low, column.high) for k, column in enumerate(columns) if column.kind == "number"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {"privacy_bounds": bounds} if given else {}
        model = DPExplainableBoostingClassifier(
            epsilon=1.0, delta=1e-5, feature_types=kinds, random_state=seed, n_jobs=1, **settings
        )
        model.fit(train[names], train["class"])
    return float(roc_auc_score(test["class"], model.predict_proba(test[names])[:, 1]))


def without_privacy(train: pd.DataFrame, test: pd.DataFrame) -> float:
    """AUC of logistic regression on the same encoded columns."""
    encoder = PublicEncoder(SCHEMA).fit()
    model = make_pipeline(encoder, LogisticRegression(max_iter=2000)).fit(train, train["class"])
    return float(roc_auc_score(test["class"], model.decision_function(test)))


def shown(values: list[float]) -> str:
    """Mean and half of the 95 % interval of Student's t over seeds."""
    if len(values) < 2:
        return f"{np.mean(values):.4f}"
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.4f} ± {half:.4f}"


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    train, test = split(adult())
    rows = {
        "sottovoce, six owners who trust nobody": [ours(train, test, s, True, "nobody") for s in seeds],
        "sottovoce, six owners, an honest majority": [ours(train, test, s, True, "majority") for s in seeds],
        "sottovoce, one owner": [ours(train, test, s, False, "nobody") for s in seeds],
        "logistic regression without privacy": [without_privacy(train, test)],
    }
    try:
        tried = [[dp_ebm(train, test, s, given) for s in seeds] for given in (True, False)]
        rows["DP-EBM, one trusted center, add or remove one record"] = max(tried, key=np.mean)
    except ImportError:
        print("interpret-core is not installed: no row of DP-EBM")
    lines = [
        f"# Adult at ε = 1, δ = 1e-5 (sottovoce {__version__})",
        "",
        "Held-out AUC over seeds, with 95 % intervals. Made by `python benchmarks/adult.py`.",
        "",
        "| model | AUC |",
        "|---|---|",
    ]
    text = "\n".join([*lines, *(f"| {name} | {shown(values)} |" for name, values in rows.items())]) + "\n"
    RESULT.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
