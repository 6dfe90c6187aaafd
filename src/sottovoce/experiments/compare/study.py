"""What is compared, how one run of it becomes a row, and the table of all of them, which goes on where it was."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sottovoce.engine import ENGINES, check_engine
from sottovoce.errors import SpecError
from sottovoce.evaluation.curves import figures
from sottovoce.experiments.baselines import make_baseline
from sottovoce.experiments.data import NODES, Dataset
from sottovoce.experiments.facts import Facts
from sottovoce.experiments.table import Done, Row, Runs, each
from sottovoce.privacy.events import LaplaceEvent
from sottovoce.problem.optimum import optimum
from sottovoce.problem.shards import Shards, by_group, even
from sottovoce.run.build import make_problem, prepare
from sottovoce.run.result import Result
from sottovoce.run.solve import simulate
from sottovoce.run.spec import Execution, Spec

GAP = 1e-7  # of F*
FACTORS = (1 / 9, 1 / 3, 1.0, 3.0, 9.0)
RUNS = 10  # and more: the compiled engine is loaded once for all of them
TUNING_SEED = 2**31 - 1  # of the runs that a tuned step size is chosen by
DIGITS = 1e-6  # by which numbers of one spec may differ: another machine's roots differ in the last digits

STUDY = ("data", "nodes", "delta", "epochs", "batch", "loss", "h", "graph", "radius")
KEY = (*STUDY, "algorithm", "epsilon", "tuned", "seed")
"""What makes two rows the same run: those of its study, and those of the run in it."""


class Cell(NamedTuple):
    """One run."""

    algorithm: str
    epsilon: float
    tuned: bool
    seed: int
    factor: float = 1.0


@dataclass(frozen=True)
class Study:
    """Algorithms × ε × seeds on one data set, at equal δ, adjacency and epochs.

    Attributes
    ----------
    dataset : the records
    facts : everything public but ε
    algorithms : names of baselines
    epsilons : budgets
    seeds : how many runs of each
    tuned : whether to add runs whose step size was chosen by looking at the private data
    """

    dataset: Dataset
    facts: Facts
    algorithms: tuple[str, ...]
    epsilons: tuple[float, ...] = (1.0,)
    seeds: int = 10
    tuned: bool = False
    refused: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        """Know what cannot be run, and why, before anything is."""
        if self.seeds < 1 or not self.epsilons:
            raise SpecError("a comparison needs at least one seed and at least one ε")
        reasons = {name: make_baseline(name).refusal(self.facts) for name in self.algorithms}
        object.__setattr__(self, "refused", {name: reason for name, reason in reasons.items() if reason})

    @classmethod
    def of(
        cls, dataset: Dataset, algorithms: Iterable[str], settings: dict[str, Any], nodes: int = NODES, **what: Any
    ) -> "Study":
        """A study with the data's own sizes, with its owners or so many nodes; `settings` are fields of `Facts`."""
        groups = dataset.records.groups
        offsets = even(dataset.records.n_records, nodes)[0] if groups is None else by_group(groups)[0][0]
        sizes = np.diff(offsets)
        m = dataset.records.m + (settings.get("intercept", 0.0) != 0)
        return cls(dataset, Facts(tuple(sizes.tolist()), m, 1.0, **settings), tuple(algorithms), **what)

    @cached_property
    def shards(self) -> Shards:
        """Everybody's records."""
        return self.dataset.deal(self.facts.n)

    def cells(self) -> list[Cell]:
        """All runs, seed after seed: a table that is not yet complete has every algorithm in it."""
        return [
            Cell(name, epsilon, tuned, seed)
            for tuned in ((False, True) if self.tuned else (False,))
            for seed in range(self.seeds)
            for epsilon in self.epsilons
            for name in self.algorithms
            if name not in self.refused
        ]

    def head(self, cell: Cell) -> Row:
        """What a row is known by."""
        f = self.facts
        return {
            "data": self.dataset.name,
            "nodes": f.n,
            "delta": f.delta,
            "epochs": f.epochs,
            "batch": f.batch,
            "loss": str(f.loss),
            "h": str(f.h),
            "graph": str(f.graph),
            "radius": f.D,
            "algorithm": cell.algorithm,
            "epsilon": cell.epsilon,
            "tuned": cell.tuned,
            "seed": cell.seed,
        }

    def spec(self, cell: Cell) -> Spec:
        """What is run."""
        facts = replace(self.facts, epsilon=cell.epsilon, boost=cell.factor)
        return _spec(cell.algorithm, facts).but(seed=cell.seed)

    def holds(self, cell: Cell, row: Row) -> bool:
        """Whether a row is of this very run, and not of one that another version made of the same words."""
        try:
            known = Spec.from_json(row["spec"])
        except SpecError:  # of a version that had other fields
            return False
        return alike(known, self.spec(cell._replace(factor=row["factor"])))

    def f_star(self) -> float:
        """F*, certified; not a number where there is no certificate for this h."""
        try:
            return optimum(make_problem(self.facts.spec("descent", 1).problem, self.shards), gap=GAP).value
        except SpecError:
            return math.nan


@lru_cache(maxsize=1024)  # all seeds have the same
def _spec(algorithm: str, facts: Facts) -> Spec:
    return make_baseline(algorithm).spec(facts)


def alike(one: Any, other: Any) -> bool:
    """Whether two specs, or parts of them, mean the same run: equal, real numbers up to six digits.

    Examples
    --------
    >>> from sottovoce.problem.regularisers import l2
    >>> alike(l2(0.12345678), l2(0.12345679)), alike(l2(0.1), l2(0.2)), alike(1_000_000, 1_000_001)
    (True, False, False)
    """
    if one is other or one == other:
        return True
    if is_dataclass(one) and type(one) is type(other):
        return all(alike(getattr(one, f.name), getattr(other, f.name)) for f in fields(one) if f.compare)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    counted = isinstance(one, int) and isinstance(other, int)
    numbers = isinstance(one, float | int) and isinstance(other, float | int)
    return numbers and not counted and math.isclose(one, other, rel_tol=DIGITS)


def compare(
    study: Study, out: Path | None = None, jobs: int = 1, done: Done | None = None, engine: str = "auto"
) -> list[Row]:
    """All rows of a study, those that `out` holds already included; other studies' rows in `out` are kept.

    Parameters
    ----------
    study : what is compared
    out : a Parquet file to read earlier runs from and to write all of them to
    jobs : how many runs at a time, each in a process of its own
    done : called after every run, or after every algorithm's at one ε where an engine takes its seeds together
    engine : what runs; where an engine that takes several seeds together does not know an algorithm, 'auto' does

    Examples
    --------
    >>> from sottovoce.experiments.data import load
    >>> from sottovoce.problem.losses import LOSSES
    >>> data = load("breast_cancer", loss=LOSSES.make("logistic"))
    >>> settings = {"h": "l2(0.05)", "batch": 16, "epochs": 2.0}
    >>> rows = compare(Study.of(data, ["dsgd", "dpsgd"], settings, nodes=5, seeds=2))
    >>> [(row["algorithm"], row["adversary"], round(row["true_epsilon"], 2)) for row in rows[:2]]
    [('dsgd', 'transcript', 1.0), ('dpsgd', 'central', 1.0)]
    """
    table, cells = Runs(KEY, out), study.cells()
    found = {cell: table.find(**study.head(cell)) for cell in cells}
    missing = [cell for cell, rows in found.items() if not rows or not study.holds(cell, rows[0])]
    if missing:
        check_engine(engine)
        study.shards.norms  # noqa: B018 - once, before the processes all need them
        do = partial(run_cells, study, f_star=study.f_star(), engine=engine)
        wanted = _tuned(study, missing, table, lambda cell: do([cell]), jobs)
        if engine != "auto" and ENGINES[engine].seeds:
            alike = (c._replace(seed=0) for c in wanted)
            works = [[c for c in wanted if c._replace(seed=0) == one] for one in dict.fromkeys(alike)]
            table.fill(works, do, done=done)  # one process: they share the device
        else:
            table.fill([[cell] for cell in wanted], do, jobs=jobs, done=done)
    return [table.find(**study.head(cell))[0] for cell in cells]


def _tuned(study: Study, cells: list[Cell], table: Runs, do: Any, jobs: int) -> list[Cell]:
    """Give the tuned ones the factor with the least objective on a run of its own, or the one of earlier runs."""
    ours = study.head(Cell("", 0.0, True, 0))
    known = table.like(**{name: ours[name] for name in (*STUDY, "tuned")})
    best = {(row["algorithm"], row["epsilon"]): (0.0, 0.0, row["factor"]) for row in known}
    wanted = {(c.algorithm, c.epsilon) for c in cells if c.tuned} - set(best)
    trials = [Cell(*pair, True, TUNING_SEED, factor) for pair in sorted(wanted) for factor in FACTORS]
    for (row,) in each(trials, do, jobs):
        pair = row["algorithm"], row["epsilon"]
        tried = row["objective"], abs(math.log(row["factor"])), row["factor"]  # of equals, the nearest to 1
        best[pair] = min(best.get(pair, (math.inf, 0.0, 1.0)), tried)
    return [c._replace(factor=best[c.algorithm, c.epsilon][2]) if c.tuned else c for c in cells]


def run_cells(study: Study, cells: Sequence[Cell], f_star: float, engine: str = "auto") -> list[Row]:
    """Run cells that differ in their seeds, and tell what happened."""
    specs, shards = [study.spec(cell) for cell in cells], make_baseline(cells[0].algorithm).place(study.shards)
    how = Execution(engine, observations=1, runs=RUNS)
    if engine != "auto" and ENGINES[engine].seeds and ENGINES[engine].refusal(prepare(specs[0], shards).job):
        how = replace(how, engine="auto")  # the row says by what it was run
    side_by_side = how.engine != "auto" and ENGINES[how.engine].seeds
    groups = [specs] if side_by_side else [[spec] for spec in specs]
    test = study.dataset.test
    results = [r for some in groups for r in simulate(some, shards, test, [f_star] * len(some), how)]
    return [
        study.head(cell) | _row(result, cell) | _ranks(result, test)
        for cell, result in zip(cells, results, strict=True)
    ]


def _ranks(result: Result, test: Shards) -> Row:
    """What a model of two classes is worth on held-out records besides its accuracy; not private."""
    if result.spec.problem.loss.targets != "binary" or result.spec.problem.outputs > 1:
        return {}
    found = figures(result.decide(test.X), test.y > 0)
    return {f"test_{name}": found[name] for name in ("auc", "balanced_accuracy", "average_precision")}


def _row(result: Result, cell: Cell) -> Row:
    statement, last, spec = result.statement, result.history.last, result.spec
    return {
        "adversary": statement.adversary,
        "adjacency": statement.adjacency,
        # a step size that was chosen by looking at the data has a price that nobody computed
        "true_epsilon": math.nan if cell.tuned else statement.epsilon,
        "pure": isinstance(statement.worst.event, LaplaceEvent),
        "sigma": float(np.max([group.event.sigma for group in statement.groups])),
        "rounds": spec.algorithm.rounds,
        "passes": last["epoch"],
        "factor": cell.factor,
        "objective": last["objective"],
        "suboptimality": last["suboptimality"],
        "train_accuracy": last["train_accuracy"],
        "test_accuracy": last["test_accuracy"],
        "consensus_error": last["consensus_error"],
        "messages": int(last["messages"]),
        "bytes": int(last["bytes"]),
        "spec": spec.to_json(),
        **result.environment,
        "seconds": result.environment["seconds"] / result.environment.get("runs", 1),
    }
