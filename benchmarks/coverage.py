"""How often confidence intervals cover the truth, over simulated studies.

    python benchmarks/coverage.py --jobs 16 --seconds 500 --out coverage.csv    # a row for each study and budget
    python benchmarks/coverage.py --noise                                       # noise.json, from the plans of runs
    python benchmarks/coverage.py --page --out coverage.csv fresh.csv           # results/coverage.md from them

A study draws records, and for each ε and number of owners drives the procedure of `sottovoce.inference` on their sums
with Gaussian noise of the deviation that a run's plan has (noise.json; tests hold both to the estimators). Columns lie
in [−1, 1], with a Gaussian copula of correlations 0.5^|i−j|; of "pair" the first two have a correlation of 0.9, and of
"binary" every second column is 0 or 1. A fit before the intervals is a model that is shrunk by half.
"""

import argparse
import csv
import json
import math
import os
import time
from collections.abc import Iterator
from functools import cache
from multiprocessing import Pool
from multiprocessing import TimeoutError as TimeIsUp
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import scipy

from sottovoce.inference.estimate import (
    LONGEST_STEP,
    SHARE,
    WEAKEST,
    Estimate,
    Procedure,
    Settings,
    linear,
    logistic,
    poisson,
)
from sottovoce.inference.hazard import LINKS, hazard, length_of_rows
from sottovoce.inference.requirements import expected_strength
from sottovoce.inference.statistics import Noisy, Rows, Stage, weighted
from sottovoce.run.inference import driven

HERE = Path(__file__).parent
NOISE = HERE / "coverage-noise.json"
PAGE = HERE / "results" / "coverage.md"
EPSILONS, SIZES, OWNERS = (0.5, 1.0, 4.0), (2000, 20_000, 50_000), {"one": 1, "majority": 20}
MODELS = ("linear", "skewed", "logistic50", "logistic10")
CAP, INTERVALS = 4.0, 5
Z = 1.959963984540054
FIELDS = (
    "model", "columns", "m", "N", "epsilon", "owners", "study", "refused", "strength", "step", "covered", "length",
    "predictions",
)  # fmt: skip
BLOCK, FRESH = 5, 100_000


class Cell(NamedTuple):
    """What studies are drawn from."""

    model: str
    columns: str
    m: int
    N: int

    @property
    def studies(self) -> int:
        """As many as the table needs."""
        return 500 if self.N >= 50_000 else 2000


CELLS = [
    Cell(model, columns, m, N)
    for N in SIZES
    for m, columns in ((5, "pair"), (5, "binary"), (20, "pair"), (20, "binary"))
    for model in MODELS
]
CELLS += [
    Cell(model, columns, m, N)
    for model in ("poisson", "hazard")
    for N in SIZES
    for m, columns in ((5, "pair"), (5, "binary"), (20, "pair"), (20, "binary"))
]


class Truth(NamedTuple):
    """A cell's model, in columns with the constant last."""

    theta: Any
    root: Any


@cache
def truth(cell: Cell) -> Truth:
    """Slopes by which xᵀθ has a standard deviation of 1 (0.15 of a regression), and the constant."""
    m = cell.m
    correlations = 0.5 ** np.abs(np.subtract.outer(np.arange(m), np.arange(m)))
    if cell.columns == "pair":
        correlations[0, 1] = correlations[1, 0] = 0.9
        values, vectors = np.linalg.eigh(correlations)
        correlations = (vectors * np.maximum(values, 0.02)) @ vectors.T
    root = np.linalg.cholesky(correlations)
    slopes = np.tile([1.0, -0.5, 0.5, 0.0, 0.25], 4)[:m]
    X = columns_of(cell, root, np.random.default_rng(0), 200_000)
    slopes *= {"linear": 0.15, "skewed": 0.15, "poisson": 0.5, "hazard": 0.7}.get(cell.model, 1.0) / np.std(X @ slopes)
    constant = 0.1
    if cell.model == "poisson":  # half a count on average
        constant = math.log(0.5 / float(np.mean(np.exp(X @ slopes))))
    if cell.model.startswith("logistic"):
        rate, u = int(cell.model[8:]) / 100.0, X @ slopes
        constant = float(scipy.optimize.brentq(lambda a: np.mean(scipy.special.expit(u + a)) - rate, -10, 10))
    if cell.model == "hazard":  # about a third have the event
        return Truth(np.append(slopes, np.full(INTERVALS, math.log(0.1))), root)
    return Truth(np.append(slopes, constant), root)


def columns_of(cell: Cell, root: Any, rng: np.random.Generator, N: int) -> Any:
    """Columns within [−1, 1]."""
    X = 2.0 * scipy.special.ndtr(rng.standard_normal((N, cell.m)) @ root.T) - 1.0
    if cell.columns == "binary":
        X[:, ::2] = X[:, ::2] > 0.2
    return X


def targets(cell: Cell, u: Any, rng: np.random.Generator) -> Any:
    """Of xᵀθ and, of counts, the logarithm of the exposure."""
    if cell.model == "poisson":
        return rng.poisson(np.exp(u)).astype(float)
    if cell.model.startswith("logistic"):
        return np.where(rng.random(len(u)) < scipy.special.expit(u), 1.0, -1.0)
    errors = rng.standard_normal(len(u)) if cell.model == "linear" else rng.standard_exponential(len(u)) - 1.0
    return np.clip(u + (0.15 if cell.model == "linear" else 0.09) * errors, -1.0, 1.0)


@cache
def noises() -> dict[str, float]:
    """Deviation times number of records, by ε and owners."""
    return json.loads(NOISE.read_text())


def exits(u: Any, rng: np.random.Generator) -> Any:
    """The cell of exit, of xᵀβ + α: a constant rate in intervals of length 1, censored at any time up to 12."""
    event, censored = rng.exponential(np.exp(-u)), rng.uniform(0.0, 12.0, len(u))
    interval = np.floor(np.minimum(event, censored))
    return np.where(interval >= INTERVALS, 2 * INTERVALS, interval + np.where(event <= censored, 0, INTERVALS))


def drive(steps: Procedure, rows: Rows, deviation: float, rng: np.random.Generator, share: float = SHARE) -> Estimate:
    """Send a procedure noisy sums of these rows."""

    def noisy(stage: Stage) -> Noisy:
        mean = stage.total(rows, share) / len(rows.y)
        return stage.read(mean + deviation * rng.standard_normal(len(mean)), deviation, share)

    return driven(steps, noisy)


def study(cell: Cell, number: int) -> Iterator[tuple[Any, ...]]:
    """All budgets of one study."""
    theta, root = truth(cell)
    rng = np.random.default_rng([CELLS.index(cell), number])
    X = columns_of(cell, root, rng, cell.N)
    if cell.model == "hazard":
        x, longest = np.concatenate([X, np.ones((cell.N, 2))], axis=1), length_of_rows(cell.m)
        y = exits(X @ theta[: cell.m] + theta[-1], rng)
        rows, settings = weighted(x, y, longest), Settings(cell.m + 2, longest, cell.N)
        first = np.eye(INTERVALS)[np.zeros(20, dtype=int)]
        new = np.concatenate([columns_of(cell, root, rng, 20), first], axis=1)
        yield from budgets_of(cell, number, rows, settings, persons_without_privacy(cell, X, y, theta), new, rng)
        return
    x = np.concatenate([X, np.ones((cell.N, 1))], axis=1)
    offset = rng.uniform(-0.35, 0.35, cell.N) if cell.model == "poisson" else np.zeros(1)
    y, longest = targets(cell, x @ theta + offset, rng), math.sqrt(1.0 + cell.m / 2.0)
    rows, settings = weighted(x, y, longest)._replace(offset=offset), Settings(cell.m + 1, longest, cell.N)
    alone = without_privacy(cell, x, theta, offset)
    new = np.concatenate([columns_of(cell, root, rng, 20), np.ones((20, 1))], axis=1)
    yield from budgets_of(cell, number, rows, settings, alone, new, rng)


def budgets_of(
    cell: Cell, number: int, rows: Rows, settings: Settings, alone: Any, new: Any, rng: np.random.Generator
) -> Iterator[tuple[Any, ...]]:
    """All budgets of a study, beside standard errors without privacy, with predictions for new rows."""
    theta, _ = truth(cell)
    for epsilon in EPSILONS:
        for owners in OWNERS:
            scale = noises()[f"{epsilon:g} {owners}"]
            if number % FRESH >= 40 and hopeless(cell, scale):
                continue
            found = drive(procedure(cell, settings, theta), rows, scale / cell.N, rng, share_of(cell))
            errors = np.sqrt(np.diag(found.covariance))
            covered = np.abs(found.theta - theta) <= Z * errors
            length = float(np.mean(errors / alone))
            margin = Z * np.sqrt(np.sum((new @ found.covariance) * new, axis=1))
            predictions = float(np.mean(np.abs(new @ (found.theta - theta)) <= margin))
            yield (
                *cell, epsilon, owners, number, int(bool(found.refusal)), f"{found.strength:.3f}", f"{found.step:.3f}",
                "".join(str(int(one)) for one in covered), f"{length:.4f}", f"{predictions:.2f}",
            )  # fmt: skip


def procedure(cell: Cell, settings: Settings, theta: Any) -> Procedure:
    """Of the model."""
    if cell.model == "poisson":
        return poisson(settings, CAP, np.zeros(len(theta)))
    if cell.model == "hazard":
        return hazard(settings, LINKS["hazard"], INTERVALS, 1.0)
    return logistic(settings, theta / 2.0) if cell.model.startswith("logistic") else linear(settings)


def share_of(cell: Cell) -> float:
    """Of the budget, for intervals."""
    return 1.0 if cell.model in ("poisson", "hazard") else SHARE


def without_privacy(cell: Cell, x: Any, theta: Any, offset: Any) -> Any:
    """Standard errors of maximum likelihood or least squares."""
    if cell.model == "poisson":
        information = (x.T * np.exp(x @ theta + offset)) @ x
    elif cell.model.startswith("logistic"):
        p = scipy.special.expit(x @ theta)
        information = (x.T * (p * (1.0 - p))) @ x
    else:
        information = x.T @ x / (0.15 if cell.model == "linear" else 0.09) ** 2
    return np.sqrt(np.diag(np.linalg.inv(information)))


def persons_without_privacy(cell: Cell, X: Any, y: Any, theta: Any) -> Any:
    """Standard errors of maximum likelihood in grouped time."""
    information = np.zeros((len(theta),) * 2)
    interval = np.where(y < INTERVALS, y, y - INTERVALS)
    g = np.exp(X @ theta[: cell.m] + theta[-1])
    for k in range(INTERVALS):
        weight = np.where(interval == k, np.where(y < INTERVALS, 1.0, 0.5), interval > k) * g**2 / np.expm1(g)
        z = np.concatenate([X, np.zeros((len(X), INTERVALS))], axis=1)
        z[:, cell.m + k] = 1.0
        information += (z.T * weight) @ z
    return np.sqrt(np.diag(np.linalg.inv(information)))


def hopeless(cell: Cell, scale: float) -> bool:
    """Whether public numbers refuse the cell before anything is spent: a few studies are enough to show it."""
    losses = {"linear": "squared", "skewed": "squared", "poisson": "poisson", "hazard": "hazard"}
    features = cell.m + (INTERVALS - 1 if cell.model == "hazard" else 0)
    return expected_strength(losses.get(cell.model, "logistic"), cell.N, features, scale) < 0.8


def block(task: tuple[Cell, int]) -> list[tuple[Any, ...]]:
    """Some studies."""
    cell, first = task
    return [row for number in range(first, first + BLOCK) for row in study(cell, number)]


def tasks(start: int) -> list[tuple[Cell, int]]:
    """All blocks from a first study, in an order in which every cell has its share at any time."""
    found = [(cell, first) for cell in CELLS for first in range(0, cell.studies, BLOCK)]
    ordered = sorted(found, key=lambda task: (task[1] / task[0].studies, task[0]))
    return [(cell, start + first) for cell, first in ordered]


def run(jobs: int, seconds: float, out: Path, cells: str, first: int) -> None:
    """Write rows until all are there or time is up."""
    ends = time.monotonic() + seconds
    wanted = [task for task in tasks(first) if cells in "-".join(map(str, task[0]))]
    with out.open("w", newline="") as file, Pool(jobs) as pool:
        writer = csv.writer(file)
        writer.writerow(FIELDS)
        found = pool.imap_unordered(block, wanted)
        for _ in wanted:
            try:
                writer.writerows(found.next(timeout=max(0.1, ends - time.monotonic())))
            except TimeIsUp as error:  # what there is, is written
                print(f"stopped: {type(error).__name__}")
                break
            file.flush()
            if time.monotonic() > ends:
                break
        pool.terminate()


def write_noise() -> None:
    """Deviations of the plans of runs, times numbers of records."""
    from sottovoce.planner.trust import read_trust
    from sottovoce.run.plan import Request, plan_public
    from sottovoce.run.spec import AlgorithmSpec, Spec

    found = {}
    for epsilon in EPSILONS:
        for owners, n in OWNERS.items():
            spec = Spec(AlgorithmSpec(1), seed=0).replace(
                problem__loss="logistic", problem__intercept=0.25, privacy__noise=f"private({epsilon})",
                privacy__sampling="full", privacy__inference=f"inference({SHARE})", network__activation="everyone",
            )  # fmt: skip
            if n > 1:
                adversary = read_trust("majority").adversary(n)
                spec = spec.replace(privacy__adversary=adversary, privacy__law="pairs(30)")
            sizes = np.full(n, 50_000 // n)
            before = plan_public(Request(spec, sizes, 5)).release.before
            assert before is not None
            found[f"{epsilon:g} {owners}"] = float(np.linalg.norm(sizes * np.array(before.sigma)))
    NOISE.write_text(json.dumps(found, indent=1) + "\n")
    print(found)


Key = tuple[str, ...]


def read(files: list[Path]) -> dict[Key, list[dict[str, str]]]:
    """Rows by cell and budget."""
    found: dict[Key, list[dict[str, str]]] = {}
    for path in files:
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                key = tuple(row[name] for name in ("model", "columns", "m", "N", "epsilon", "owners"))
                found.setdefault(key, []).append(row)
    return found


def write_page(files: list[Path], again: Path | None) -> None:
    """The table of CSV files, by the present rules of refusal, whatever they were when these were made."""
    found = read(files)
    budgets = [(f"{epsilon}", owners) for epsilon in EPSILONS for owners in OWNERS]
    lines = [
        "# Coverage of confidence intervals", "",
        "Made by `python benchmarks/coverage.py --jobs 16 --seconds 295 --out coverage.csv`, until the time was up, by",
        f"`--first {FRESH} --out fresh.csv`, stopped by hand, and by `--page --out coverage.csv fresh.csv`. Cells",
        "that are not in the table were not drawn.", "",
        "Share of 95 % intervals that cover, in per cent; × their length over that of maximum likelihood or least",
        "squares without privacy; [share of studies that are answered, where not all are]; r where fewer than one in a",
        "hundred is. Columns as in `benchmarks/coverage.py`, which made this; a study of N records has all budgets.",
        "The last column is the worst single coefficient of cells of which half is answered.", "",
        "The limit of strength at which intervals are refused was set on some dozen of the studies before; fresh ones",
        "were drawn after it. Poisson and hazard models have fresh studies alone; the limit is that of the others.", "",
        "| model | columns | m | N | studies | fresh | "
        + " | ".join(f"{e} {who}" for e, who in budgets) + " | worst |",
        "|" + "---|" * (len(budgets) + 7),
    ]  # fmt: skip
    for cell in CELLS:
        every = [found.get((*map(str, cell), *budget), []) for budget in budgets]
        made = [summary(rows) for rows in every]
        worst = [min(one.each) for one in made if one is not None and one.answered >= 0.5]
        texts = ["r" if one is None else str(one) for one in made]
        count = max(map(len, every))
        if not count:
            continue
        fresh = max(sum(is_fresh(row) for row in rows) for rows in every)
        lines.append(
            f"| {cell.model} | {cell.columns} | {cell.m} | {cell.N:,} | {count:,} | {fresh:,} | "
            + " | ".join(texts) + f" | {f'{100 * min(worst):.1f}' if worst else ''} |"
        )  # fmt: skip
    lines += ["", *verdict("All studies", found)]
    only = {key: [row for row in rows if is_fresh(row)] for key, rows in found.items()}
    lines += ["", *verdict("Fresh studies alone", only)]
    if again is not None:
        lines += ["", *studied_again(found, read([again]))]
    lines += [
        "", "Where few studies are answered, those that are have noise that made the curvature larger than it is, and",
        "cover more rarely.",
    ]  # fmt: skip
    PAGE.write_text("\n".join(lines) + "\n")


def is_fresh(row: dict[str, str]) -> bool:
    """Whether a study was drawn after the limit was set."""
    return int(row["study"]) >= FRESH


def verdict(name: str, found: dict[Key, list[dict[str, str]]]) -> list[str]:
    """What the rows say of the hypotheses."""
    cells = [one for rows in found.values() if rows and (one := summary(rows)) is not None]
    strong = [one.covered for one in cells if one.strength >= 3]
    lowest = min(cells, key=lambda one: one.score)
    limit = scipy.special.ndtri(1e-3 / len(cells))
    single = [(share, one.count) for one in cells if one.answered >= 0.5 for share in one.each]
    scores = [(share - 0.95) / math.sqrt(0.95 * 0.05 / count) for share, count in single]
    chance = scipy.special.ndtri(1.0 - 0.5 ** (1.0 / len(single)))
    return [
        f"**{name}.** {len(cells)} cells are answered. At a mean strength of 3 or more ({len(strong)} cells) the mean "
        f"is {100 * np.mean(strong):.2f} %, the least {100 * min(strong):.1f} %, the most {100 * max(strong):.1f} %.",
        f'"At least 94 % are covered" is rejected by {sum(one.score < limit for one in cells)} cells at a family-wise '
        f"level of 0.001 (z < {limit:.1f}); the lowest has z = {lowest.score:.1f} ({lowest}).",
        f"Of {len(single):,} single coefficients in cells of which half is answered, "
        f"{sum(share < 0.92 for share, _ in single)} cover in less than 92 % of studies; the lowest z against 95 % is "
        f"{min(scores):.2f}, where the least of so many is expected at {chance:.2f}.",
    ]


def studied_again(before: dict[Key, list[dict[str, str]]], after: dict[Key, list[dict[str, str]]]) -> list[str]:
    """The worst coefficient of cells that were drawn again, before and after."""
    lines = ["Drawn again because a single coefficient covered rarely:"]
    for key, rows in after.items():
        old, new = summary([row for row in before[key] if not is_fresh(row)]), summary(rows)
        if old is not None and new is not None:
            j = int(np.argmin(old.each))
            lines.append(
                f"{' '.join(key)}: number {j + 1} covered in {100 * old.each[j]:.1f} % of {old.count} answered "
                f"studies, and in {100 * new.each[j]:.1f} % of {new.count} others."
            )
    return lines


class Summary(NamedTuple):
    """Of the answered studies of a cell; `score` is the z of the hypothesis of 94 %, `each` are coefficients."""

    covered: float
    each: list[float]
    count: int
    length: float
    answered: float
    strength: float
    score: float

    def __str__(self) -> str:
        share = "" if self.answered > 0.995 else f" [{100 * self.answered:.0f}]"
        return f"{100 * self.covered:.1f} ×{self.length:.2f}{share}"


def summary(rows: list[dict[str, str]]) -> Summary | None:
    """None where fewer than one in a hundred is answered."""
    kept = [row for row in rows if float(row["strength"]) >= WEAKEST and float(row["step"]) <= LONGEST_STEP]
    if len(kept) < max(1, 0.01 * len(rows)):
        return None
    covered = np.array([[int(one) for one in row["covered"]] for row in kept], dtype=float)
    each = covered.mean(axis=1)  # intervals of one study are not independent
    error = max(float(np.std(each)), 0.05) / math.sqrt(len(kept))
    return Summary(
        float(each.mean()), covered.mean(axis=0).tolist(), len(kept),
        float(np.mean([float(row["length"]) for row in kept])),
        len(kept) / len(rows), float(np.mean([float(row["strength"]) for row in rows])),
        (float(each.mean()) - 0.94) / error,
    )  # fmt: skip


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--out", type=Path, nargs="+", default=[Path("coverage.csv")])
    parser.add_argument("--again", type=Path, help="studies of cells that were drawn again, for the page")
    parser.add_argument("--cells", default="", help="only cells whose name, such as linear-pair-5-2000, holds this")
    parser.add_argument("--first", type=int, default=0, help=f"the first study; fresh ones begin at {FRESH}")
    parser.add_argument("--noise", action="store_true")
    parser.add_argument("--page", action="store_true")
    args = parser.parse_args()
    if args.noise or args.page:
        write_noise() if args.noise else write_page(args.out, args.again)
    else:
        run(args.jobs, args.seconds, args.out[0], args.cells, args.first)


if __name__ == "__main__":
    main()
