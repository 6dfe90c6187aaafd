"""PrivateRegressor at its defaults: R² against ε, beside least squares without noise and AdaSSP at a trusted center.

    python benchmarks/regression.py [--quick] [--seeds 10] [--minutes 60]

Every cell is written to benchmarks/regression.csv when it is done, seed by seed, so that a run that was stopped goes on
where it was; the table in results/utility.md is made of what is there. δ = 1e-5; R² is of held-out records; ± is a 95 %
interval over seeds, which are other draws of data, noise and split.
"""

import argparse
import csv
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes

from sottovoce import PrivateRegressor

HERE = Path(__file__).parent
FILE, PAGE = HERE / "regression.csv", HERE / "results" / "utility.md"
MARK = "<!-- made by benchmarks/regression.py -->"
END = "<!-- end of regression -->"
EPSILONS = (0.1, 0.3, 1.0, 4.0, 10.0, 100.0, 1000.0)
SOME_EPSILONS = (0.2, 1.0, 4.0)
TRUSTS: dict[str, Any] = {"sottovoce": "nobody", "one curious": 1, "majority": "majority", "centre": "centre"}
"""The `trust` of what the file calls a method."""
FIELDS = ("set", "nodes", "method", "epsilon", "seed", "r2", "by", "predicted")

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Rows within length 1 and targets in units of half their range, to train on and to test on."""


def halves(X: np.ndarray, y: np.ndarray, records: int, rng: np.random.Generator) -> Split:
    """So many records to train on, in a random order, and the rest to test on."""
    order = rng.permutation(len(y))
    mine, other = order[:records], order[records:]
    return X[mine], y[mine], X[other], y[other]


def bounded(X: np.ndarray, bound: float) -> np.ndarray:
    """Rows in units of a public bound, longer ones brought to it."""
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), bound)


def linear(X: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Targets of deviation a third, of which a linear model explains a share."""
    signal = X @ rng.normal(size=X.shape[1])
    signal = (signal - signal.mean()) / signal.std()
    return (math.sqrt(share) * signal + math.sqrt(1 - share) * rng.normal(size=len(X))) / 3


def isotropic(records: int, columns: int, share: float) -> Callable[[np.random.Generator], Split]:
    """Directions that are all the same."""

    def draw(rng: np.random.Generator) -> Split:
        X = rng.normal(size=(records * 4 // 3, columns))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        return halves(X, linear(X, share, rng), records, rng)

    return draw


def decaying(rng: np.random.Generator) -> Split:
    """Columns of deviation 1/j about a mean that is not 0."""
    X = rng.normal(size=(13_333, 50)) / np.arange(1, 51) + rng.normal(size=50) / math.sqrt(200)
    return halves(bounded(X, 1.5), linear(X, 0.8, rng), 10_000, rng)


def low_rank(rng: np.random.Generator) -> Split:
    """Fifty columns of rank 5, and a little noise in each."""
    X = rng.normal(size=(13_333, 5)) @ rng.normal(size=(5, 50)) / 5 + 0.02 * rng.normal(size=(13_333, 50))
    X = bounded(X, float(np.sqrt(50)) * 0.6)
    return halves(X, linear(X, 0.8, rng), 10_000, rng)


DIABETES = ((18, 80), (1, 2), (15, 45), (60, 140), (90, 310), (40, 250), (20, 100), (2, 10), (3, 6.2), (55, 125))
"""Age, sex, body mass index, blood pressure and six sera: ranges as a physician would give them."""


def diabetes(rng: np.random.Generator) -> Split:
    """331 patients, and 111 to test on; disease progression between 25 and 346."""
    table = load_diabetes(scaled=False)
    low, high = np.array(DIABETES).T
    X = np.clip(2 * (table.data - low) / (high - low) - 1, -1, 1)
    return halves(bounded(X, 1.6), (table.target - 185.5) / 160.5, 331, rng)


def houses(rng: np.random.Generator) -> Split:
    """A stand-in for the Californian houses: skewed columns, places, a cost that is not linear and ends at a cap."""
    n = 16_000
    income, age = rng.gamma(3.2, 1.2, n), rng.uniform(1, 52, n)
    rooms, crowd = rng.lognormal(1.65, 0.3, n), rng.lognormal(1.0, 0.35, n)
    people = rng.lognormal(7, 0.7, n)
    town = rng.integers(0, 3, n)
    north = np.array([34.0, 37.8, 36.5])[town] + rng.normal(0, 0.6, n)
    west = np.array([-118.2, -122.2, -119.5])[town] + rng.normal(0, 0.6, n)
    price = 0.42 * income + 0.01 * age + 0.08 * rooms - 0.25 * crowd + np.array([0.7, 1.0, -0.3])[town]
    price = np.minimum(np.maximum(price * rng.lognormal(0, 0.25, n), 0.15), 5.0)
    beds = rooms / 5 * rng.lognormal(0, 0.1, n)
    raw = np.stack([income, age, rooms, beds, np.log(people), crowd, north, west], axis=1)
    low, high = np.array([(0, 12), (0, 52), (0, 12), (0, 3), (3, 10), (0, 8), (32, 42), (-125, -114)]).T
    X = np.clip(2 * (raw - low) / (high - low) - 1, -1, 1)
    return halves(bounded(X, 2.0), (price - 2.5) / 2.5, 12_000, rng)


def heavy(rng: np.random.Generator) -> Split:
    """Errors with Student's law of two degrees of freedom, which has no variance, cut to the targets' range."""
    X = bounded(rng.standard_t(3, size=(13_333, 10)), 4.0)
    y = linear(X, 1.0, rng) + 0.08 * rng.standard_t(2, size=len(X))
    return halves(X, np.clip(y, -1, 1), 10_000, rng)


def outliers(rng: np.random.Generator) -> Split:
    """One target in ten is anywhere in the range, at random; those of the test are too."""
    X = bounded(rng.normal(size=(13_333, 10)), 4.0)
    y = np.where(rng.random(len(X)) < 0.1, rng.uniform(-1, 1, len(X)), linear(X, 0.9, rng))
    return halves(X, np.clip(y, -1, 1), 10_000, rng)


SIX: dict[str, Callable[[np.random.Generator], Split]] = {
    "diabetes, 331 records": diabetes,
    "houses, a stand-in": houses,
    "rank 5, 50 columns": low_rank,
    "rank 500": isotropic(8000, 500, 0.8),
    "heavy tails": heavy,
    "10 % outliers": outliers,
}
FOUR: dict[str, Callable[[np.random.Generator], Split]] = {
    "isotropic, 10,000 × 20": isotropic(10_000, 20, 0.8),
    "isotropic, 1,500 × 10": isotropic(1500, 10, 0.78),
    "decaying, with a mean, 10,000 × 50": decaying,
    "diabetes, 331 records": diabetes,
}
HINDSIGHT = {
    "isotropic, 10,000 × 20": (0.80, 0.80, 0.80),
    "isotropic, 1,500 × 10": (0.63, 0.78, 0.78),
    "decaying, with a mean, 10,000 × 50": (0.67, 0.76, 0.76),
    "diabetes, 331 records": (0.10, 0.32, 0.38),
}
"""Noisy descent tuned on the test set, measured elsewhere on sets of these kinds."""


def r2(y: np.ndarray, found: np.ndarray) -> float:
    return 1.0 - float(np.sum((y - found) ** 2) / np.sum((y - y.mean()) ** 2))


def with_constant(X: np.ndarray) -> np.ndarray:
    return np.concatenate([X, np.full((len(X), 1), 0.5)], axis=1)


def ols(split: Split) -> float:
    """Least squares without noise, on the same bounded records."""
    X, y, held, truth = split
    return r2(truth, with_constant(held) @ np.linalg.lstsq(with_constant(X), np.clip(y, -1, 1), rcond=None)[0])


def adassp(split: Split, epsilon: float, rng: np.random.Generator, delta: float = 1e-5) -> float:
    """AdaSSP (Wang 2018) at a trusted center, by the best of six constants of its ridge, chosen on the test set.

    Its three releases have a third of the budget each, here by exact Gaussian composition, and replace one record.
    """
    from sottovoce.privacy.calibration import single

    X, y, held, truth = split
    X, held, y = with_constant(X), with_constant(held), np.clip(y, -1, 1)
    m, R2, z = X.shape[1], 1.25, single(epsilon, delta) * math.sqrt(3.0)
    noise = np.triu(rng.normal(size=(m, m)))
    gram = X.T @ X + z * math.sqrt(2) * R2 * (noise + np.triu(noise, 1).T)
    cross = X.T @ y + z * 2 * math.sqrt(R2) * rng.normal(size=m)
    least = np.linalg.eigvalsh(X.T @ X)[0] + z * R2 * rng.normal()
    found = []
    for constant in (10.0, 3.0, 1.0, 0.3, 0.1, 0.03):
        ridge = constant * z * R2 * math.sqrt(m * math.log(2 * m**2 / 0.05))
        A = gram + max(0.0, ridge - max(0.0, least)) * np.eye(m)
        found.append(r2(truth, held @ np.linalg.solve(A, cross)))
    return max(found)


def cells(quick: bool, seeds: int) -> list[tuple[str, int, str, float | None, int]]:
    """What is to be measured, seed by seed."""
    six = {name: SIX[name] for name in list(SIX)[: 1 if quick else None]}
    wanted: list[tuple[str, int, str, float | None, int]] = []
    for seed in range(seeds):
        for name in dict.fromkeys([*FOUR, *six]):
            wanted.append((name, 1, "no noise", None, seed))
        for name in FOUR:
            for epsilon in SOME_EPSILONS:
                wanted += [(name, 1, method, epsilon, seed) for method in ("sottovoce", "AdaSSP")]
        for name in six:
            for nodes in (1, 20):
                for epsilon in EPSILONS:
                    wanted.append((name, nodes, "sottovoce", epsilon, seed))
            wanted += [(name, 1 if trust == "centre" else 20, trust, EPSILONS[-1], seed) for trust in TRUSTS]
    return list(dict.fromkeys(wanted))


def measure(name: str, nodes: int, method: str, epsilon: float | None, seed: int) -> tuple[float, str, float]:
    """R², by which method, and what was foreseen to be lost."""
    rng = np.random.default_rng(seed)
    split = (SIX | FOUR)[name](rng)
    if method == "no noise":
        return ols(split), "least squares", 0.0
    assert epsilon is not None
    if method == "AdaSSP":
        return adassp(split, epsilon, rng), method, math.nan
    X, y, held, truth = split
    settings: dict[str, Any] = {"row_norm": 1.0, "target_bounds": (-1, 1), "n_nodes": nodes, "random_state": seed}
    settings["trust"] = TRUSTS[method]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that there is nothing to be learned is what is measured
        model = PrivateRegressor(epsilon, delta=1e-5, **settings).fit(X, y)
    return r2(truth, model.predict(held)), model.method_, model.plan_.predicted


def known() -> dict[tuple[str, int, str, str, int], dict[str, str]]:
    if not FILE.exists():
        return {}
    with FILE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {(r["set"], int(r["nodes"]), r["method"], r["epsilon"], int(r["seed"])): r for r in rows}


def cell(values: list[float]) -> str:
    """Mean, 95 % interval and number of seeds."""
    if len(values) < 2:
        return f"{values[0]:.3f} (1)" if values else "–"
    half = 1.96 * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return f"{np.mean(values):.3f} ± {half:.3f} ({len(values)})"


def page() -> str:
    """The tables, as text."""
    rows = known().values()

    def by_seed(name: str, nodes: int, method: str, epsilon: float | None) -> dict[int, float]:
        wanted = (name, nodes, method, str(epsilon))
        return {
            int(r["seed"]): float(r["r2"])
            for r in rows
            if (r["set"], int(r["nodes"]), r["method"], r["epsilon"]) == wanted
        }

    def values(name: str, nodes: int, method: str, epsilon: float | None) -> list[float]:
        return list(by_seed(name, nodes, method, epsilon).values())

    lines = [
        f"| one node | no noise | {' | '.join(f'ε = {e:g}' for e in SOME_EPSILONS)} |",
        "|---|---|" + "---|" * len(SOME_EPSILONS),
    ]
    for name in FOUR:
        lines.append(f"| **{name}** | {cell(values(name, 1, 'no noise', None))} |" + " |" * len(SOME_EPSILONS))
        for method in ("sottovoce", "AdaSSP"):
            label = "sottovoce, defaults" if method == "sottovoce" else "AdaSSP, best constant in hindsight"
            lines.append(f"| {label} | | {' | '.join(cell(values(name, 1, method, e)) for e in SOME_EPSILONS)} |")
        lines.append(f"| noisy descent, tuned in hindsight | | {' | '.join(f'{v:.2f}' for v in HINDSIGHT[name])} |")
    lines += ["", f"| set, nodes | no noise | {' | '.join(f'ε = {e:g}' for e in EPSILONS)} |"]
    lines.append("|---|---|" + "---|" * len(EPSILONS))
    for name in SIX:
        for nodes in (1, 20):
            found = [cell(values(name, nodes, "sottovoce", e)) for e in EPSILONS]
            lines.append(f"| {name}, {nodes} | {cell(values(name, 1, 'no noise', None))} | {' | '.join(found)} |")
    most = EPSILONS[-1]
    lines += [
        "",
        f"| ε = {most:g}, 20 nodes or a center, less no noise | nobody trusted | {' | '.join(list(TRUSTS)[1:])} |",
    ]
    lines.append("|---|" + "---|" * len(TRUSTS))
    for name in SIX:
        bare = by_seed(name, 1, "no noise", None)
        less = [
            [value - bare[seed] for seed, value in by_seed(name, 1 if t == "centre" else 20, t, most).items()]
            for t in TRUSTS
        ]
        lines.append(f"| {name} | {' | '.join(cell(found) for found in less)} |")
    return "\n".join(lines)


def publish() -> None:
    """Put the tables between their marks in the page."""
    text = PAGE.read_text()
    before, rest = text.split(MARK)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{MARK}\n\n{page()}\n\n{END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the four small sets and diabetes alone")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing new after so many")
    parser.add_argument("--only", nargs="*", default=[], help="no other sets than these")
    parser.add_argument("--publish", action="store_true", help="only make the page of what is there")
    given = parser.parse_args()
    began, done = time.monotonic(), known()
    for name, nodes, method, epsilon, seed in [] if given.publish else cells(given.quick, given.seeds):
        if (name, nodes, method, str(epsilon), seed) in done or (given.only and name not in given.only):
            continue
        if time.monotonic() - began > 60 * given.minutes:
            break
        value, by, predicted = measure(name, nodes, method, epsilon, seed)
        fresh = not FILE.exists()
        with FILE.open("a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if fresh:
                writer.writerow(FIELDS)
            writer.writerow([name, nodes, method, str(epsilon), seed, f"{value:.6g}", by, f"{predicted:.4g}"])
        print(name, nodes, method, epsilon, seed, f"{value:.3f}", by, f"{predicted:.3f}", flush=True)
    publish()


if __name__ == "__main__":
    main()
