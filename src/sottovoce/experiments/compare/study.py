"""What is compared, and how one run of it becomes one row of the table."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from sottovoce.errors import SpecError
from sottovoce.experiments.baselines import make_baseline
from sottovoce.experiments.compare.data import Dataset
from sottovoce.experiments.facts import Facts
from sottovoce.experiments.oneshot import ONESHOT, perturb
from sottovoce.privacy.events import LaplaceEvent
from sottovoce.problem.optimum import optimum
from sottovoce.problem.shards import Shards
from sottovoce.run.build import make_problem
from sottovoce.run.result import Result
from sottovoce.run.solve import solve
from sottovoce.run.spec import Execution, Spec

GAP = 1e-7  # of F*
FACTORS = (1 / 9, 1 / 3, 1.0, 3.0, 9.0)
RUNS = 10  # and more: the compiled engine is loaded once for all of them
TUNING_SEED = 2**31 - 1  # of the runs that a tuned step size is chosen by

Row = dict[str, Any]
KEY = (
    "data",
    "nodes",
    "delta",
    "epochs",
    "batch",
    "loss",
    "h",
    "graph",
    "radius",
    "algorithm",
    "epsilon",
    "tuned",
    "seed",
)
"""What makes two rows the same run."""


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
    def of(cls, dataset: Dataset, algorithms: Iterable[str], settings: dict[str, Any], **what: Any) -> "Study":
        """A study with the data's own sizes; `settings` are fields of `Facts`."""
        shards = dataset.shards
        m = shards.m + (settings.get("intercept", 0.0) != 0)
        return cls(dataset, Facts(tuple(shards.sizes.tolist()), m, 1.0, **settings), tuple(algorithms), **what)

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
            "loss": f.loss,
            "h": f.h,
            "graph": f.graph,
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
        """Whether a row is of this very run, and not of one that an older version made of the same words."""
        return _rounded(row["spec"]) == _rounded(self.spec(cell._replace(factor=row["factor"])).to_json())

    def f_star(self) -> float:
        """F*, certified; not a number where there is no certificate for this h."""
        try:
            return optimum(make_problem(self.facts.spec("descent", 1).problem, self.dataset.shards), gap=GAP).value
        except SpecError:
            return math.nan


@lru_cache(maxsize=1024)  # all seeds have the same
def _spec(algorithm: str, facts: Facts) -> Spec:
    return make_baseline(algorithm).spec(facts)


def _rounded(text: str) -> str:
    """Six digits of every number: another machine's roots differ in the last ones."""
    return re.sub(r"\d+\.\d+(e-?\d+)?", lambda found: f"{float(found[0]):.6g}", text)


def merged(shards: Shards) -> Shards:
    """All records in one place, where they are."""
    one = replace(shards, offsets=shards.offsets[[0, -1]])
    one.__dict__["norms"] = shards.norms
    return one


def run_cell(study: Study, cell: Cell, f_star: float) -> Row:
    """Run it, and tell what happened."""
    spec, central = study.spec(cell), make_baseline(cell.algorithm).central
    shards = merged(study.dataset.shards) if central else study.dataset.shards
    if spec.algorithm.method in ONESHOT:
        result = perturb(spec, shards, test=study.dataset.test, f_star=f_star)
    else:
        look = Execution(observations=1, runs=RUNS)
        result = solve(spec, shards, test=study.dataset.test, f_star=f_star, execution=look)
    return study.head(cell) | _row(result, cell)


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
    }
