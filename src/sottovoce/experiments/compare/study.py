"""What is compared, how one run of it becomes a row, and the table of all of them, which goes on where it was."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sottovoce.engine import Engine, engine_named
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.experiments.baselines import make_baseline
from sottovoce.experiments.compare.metrics import measured
from sottovoce.experiments.data import EVEN, NODES, Dataset, Partitioning, split
from sottovoce.experiments.inputs import BaselineInputs
from sottovoce.experiments.table import Done, Row, Runs, each
from sottovoce.privacy.events import LaplaceEvent
from sottovoce.privacy.search import bounds, gamma_for
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.problem.objective import Problem
from sottovoce.problem.optimum import optimum
from sottovoce.problem.regularizers import Regularizer, Separable
from sottovoce.problem.shards import Shards
from sottovoce.run.build import make_problem, prepare
from sottovoce.run.result import Result
from sottovoce.run.solve import RunOptions, run_batch
from sottovoce.run.spec import Execution, Spec

GAP = 1e-7  # of F*
RUNS = 10  # and more: the compiled engine is loaded once for all of them
TUNING_SEED = 2**31 - 1  # of the runs by which settings are tuned, and of the records that judge them
DIGITS = 1e-6  # by which numbers of one spec may differ: another machine's roots differ in the last digits

STUDY = ("data", "partition", "nodes", "delta", "epochs", "batch", "loss", "h", "graph", "radius")
KEY = (*STUDY, "algorithm", "epsilon", "tuned", "seed")
"""What makes two rows the same run: those of its study, and those of the run in it."""


class Point(NamedTuple):
    """Settings of a method: factors on its step sizes and on the weights of h; 1 and 1 are the rule's and the study's.

    A smaller h makes another objective, with which a method may be more accurate; F is that of the study's h always.
    """

    factor: float = 1.0
    shrink: float = 1.0


RULE = Point()
STEPS, SHRINKS = (1 / 9, 1 / 3, 1.0, 3.0, 9.0), (1.0, 0.1, 0.01)
GRID = tuple(Point(*pair) for pair in itertools.product(STEPS, SHRINKS))
"""What every method is tuned over, ours included."""


class Cell(NamedTuple):
    """One run."""

    algorithm: str
    epsilon: float
    tuned: bool
    seed: int
    point: Point = RULE


@dataclass(frozen=True)
class Study:
    """Algorithms × ε × seeds on one data set, at equal δ, adjacency and epochs.

    Attributes
    ----------
    dataset : the records
    inputs : everything public but ε
    algorithms : names of baselines
    epsilons : budgets
    seeds : how many runs of each
    tuned : whether to add runs of every method tuned by one protocol: see `protocol`
    partition : how records without owners are partitioned over the nodes
    grid : what every method is tuned over
    """

    dataset: Dataset
    inputs: BaselineInputs
    algorithms: tuple[str, ...]
    epsilons: tuple[float, ...] = (1.0,)
    seeds: int = 10
    tuned: bool = False
    partition: Partitioning = EVEN
    grid: tuple[Point, ...] = GRID
    refused: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        """Know what cannot be run, and why, before anything is."""
        if self.seeds < 1 or not self.epsilons:
            raise SpecError("a comparison needs at least one seed and at least one ε")
        reasons = {name: make_baseline(name).refusal(self.inputs) for name in self.algorithms}
        object.__setattr__(self, "refused", {name: reason for name, reason in reasons.items() if reason})

    @classmethod
    def of(
        cls, dataset: Dataset, algorithms: Iterable[str], settings: dict[str, Any], nodes: int = NODES, **what: Any
    ) -> "Study":
        """Return a study of a data set; `settings` are fields of `BaselineInputs`."""
        sizes = np.diff(dataset.parts(nodes, partition=what.get("partition", EVEN))[0])
        m = dataset.records.m + (settings.get("intercept", 0.0) != 0)
        return cls(dataset, BaselineInputs(tuple(sizes.tolist()), m, 1.0, **settings), tuple(algorithms), **what)

    @cached_property
    def shards(self) -> Shards:
        """Everybody's records."""
        return self.dataset.partition(self.inputs.n, partition=self.partition)

    @property
    def protocol(self) -> str:
        """How methods are tuned."""
        steps, shrinks = (sorted({getattr(p, name) for p in self.grid}) for name in Point._fields)
        return (
            f"one run of each of {len(self.grid)} settings (steps × {_listed(steps)}, h × {_listed(shrinks)}) on four "
            "fifths of the training records; the one that is most accurate on the other fifth"
        )

    @cached_property
    def trials(self) -> "Study":
        """The study on which settings are judged: it trains on four fifths, and tests on the fifth of them."""
        own = self.dataset.records.groups is not None
        parts = split(self.dataset.records, TUNING_SEED, self.dataset.name, self.dataset.size, owned=own)
        sizes = np.diff(parts.parts(self.inputs.n, partition=self.partition)[0])
        return replace(self, dataset=parts, inputs=replace(self.inputs, sizes=tuple(sizes.tolist())))

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
        f = self.inputs
        return {
            "data": self.dataset.name,
            "partition": str(self.partition) if self.dataset.records.groups is None else "owners",
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
        inputs = replace(self.inputs, epsilon=cell.epsilon, boost=cell.point.factor)
        if cell.point.shrink != 1:
            inputs = replace(inputs, h=_shrunk(inputs.h, cell.point.shrink))
        return _spec(cell.algorithm, inputs).replace(seed=cell.seed)

    def holds(self, cell: Cell, row: Row) -> bool:
        """Whether a row is of this very run, and not of one that another version made of the same words."""
        try:
            known = Spec.from_json(row["spec"])
        except SpecError:  # of a version that had other fields
            return False
        if cell.tuned and row.get("protocol") != self.protocol:
            return False
        return nearly_equal(known, self.spec(cell._replace(point=Point(row["factor"], row.get("shrink") or 1.0))))

    @cached_property
    def problem(self) -> Problem:
        """The objective that all are judged by."""
        return make_problem(self.inputs.spec("descent", 1).problem, self.shards)

    def f_star(self) -> float:
        """F*, certified; not a number where there is no certificate for this h."""
        try:
            return optimum(self.problem, gap=GAP).value
        except SpecError:
            return math.nan


def _shrunk(h: Regularizer, by: float) -> Regularizer:
    """The same with smaller weights; what has none stays as it is."""
    return replace(h, mu=h.mu * by, phi=h.phi * by) if isinstance(h, Separable) else h


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:.3g}" for number in numbers)


@lru_cache(maxsize=1024)  # all seeds have the same
def _spec(algorithm: str, inputs: BaselineInputs) -> Spec:
    return make_baseline(algorithm).spec(inputs)


def nearly_equal(one: Any, other: Any) -> bool:
    """Whether two specs, or parts of them, mean the same run: equal, real numbers up to six digits.

    Examples
    --------
    >>> from sottovoce.problem.regularizers import l2
    >>> nearly_equal(l2(0.12345678), l2(0.12345679)), nearly_equal(l2(0.1), l2(0.2)), nearly_equal(1_000_000, 1_000_001)
    (True, False, False)
    """
    if one is other or one == other:
        return True
    if is_dataclass(one) and type(one) is type(other):
        return all(nearly_equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(one) if f.compare)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(nearly_equal, one, other))
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
    table, cells = Runs(KEY, out, {"partition": str(EVEN)}), study.cells()
    found = {cell: table.find(**study.head(cell)) for cell in cells}
    missing = [cell for cell, rows in found.items() if not rows or not study.holds(cell, rows[0])]
    if missing:
        device = on_device(engine) is not None
        study.shards.norms  # noqa: B018 - once, before the processes all need them
        do = partial(run_cells, study, f_star=study.f_star(), engine=engine)
        wanted = _tuned(study, missing, table, jobs, engine)
        if device:
            nearly_equal = (c._replace(seed=0) for c in wanted)
            works = [[c for c in wanted if c._replace(seed=0) == one] for one in dict.fromkeys(nearly_equal)]
            table.fill(works, do, done=done)  # one process: they share the device
        else:
            table.fill([[cell] for cell in wanted], do, jobs=jobs, done=done)
    return [table.find(**study.head(cell))[0] for cell in cells]


def _tuned(study: Study, cells: list[Cell], table: Runs, jobs: int, engine: str) -> list[Cell]:
    """Give the tuned ones their settings: by the protocol, or as in rows that were tuned by it."""
    ours = study.head(Cell("", 0.0, True, 0))
    known = table.like(**{name: ours[name] for name in (*STUDY, "tuned")})
    best = {
        (row["algorithm"], row["epsilon"]): Point(row["factor"], row["shrink"])
        for row in known
        if row.get("protocol") == study.protocol
    }
    wanted = {(c.algorithm, c.epsilon) for c in cells if c.tuned} - set(best)
    trials = [Cell(*pair, True, TUNING_SEED, point) for pair in sorted(wanted) for point in study.grid]
    tried: dict[tuple[str, float], tuple[float, float, Point]] = {}
    if trials:
        study.trials.shards.norms  # noqa: B018 - once, before the processes all need them
    do = partial(run_cells, study.trials, f_star=math.nan, engine=engine)
    for (row,) in each([[trial] for trial in trials], do, jobs):
        pair, point = (row["algorithm"], row["epsilon"]), Point(row["factor"], row["shrink"])
        good = -row["objective"] if math.isnan(row["test_accuracy"]) else row["test_accuracy"]
        score = good, -abs(math.log(point.factor)) - abs(math.log(point.shrink)), point  # of equals, the rule's
        tried[pair] = max(tried.get(pair, score), score)
    best |= {pair: point for pair, (_, _, point) in tried.items()}
    return [c._replace(point=best[c.algorithm, c.epsilon]) if c.tuned else c for c in cells]


def on_device(engine: str) -> Engine | None:
    """The engine if it keeps records on a device, and so runs all seeds of an algorithm together; else None."""
    found = None if engine == "auto" else engine_named(engine)
    return None if found is None or found.device is None else found


def run_cells(study: Study, cells: Sequence[Cell], f_star: float, engine: str = "auto") -> list[Row]:
    """Run cells that differ in their seeds, and show what happened."""
    specs, shards = [study.spec(cell) for cell in cells], make_baseline(cells[0].algorithm).place(study.shards)
    how = Execution(engine, observations=1, runs=RUNS)
    device = on_device(engine)
    if device is not None and device.refusal(prepare(specs[0], shards).job):
        device, how = None, replace(how, engine="auto")  # the row says by what it was run
    groups = [specs] if device is not None else [[spec] for spec in specs]
    test = study.dataset.test
    runs = [run for some in groups for run in run_batch(some, shards, RunOptions(how, test, [f_star] * len(some)))]
    results = [run.result() for run in runs]
    return [
        study.head(cell) | _row(result, cell) | _ranks(result, test) | _tuning_facts(study, result, cell, f_star)
        for cell, result in zip(cells, results, strict=True)
    ]


def _tuning_facts(study: Study, result: Result, cell: Cell, f_star: float) -> Row:
    """Of a tuned run: by which protocol, at which cost, and its F of the h that all are judged by."""
    if not cell.tuned:
        return {"protocol": "", "search_epsilon": None}
    value = study.problem.value(result.model)
    judged = {"objective": value, "suboptimality": value - f_star}
    return judged | {"protocol": study.protocol, "search_epsilon": _search_epsilon(result.statement, len(study.grid))}


def _search_epsilon(statement: PrivacyStatement, settings: int) -> float | None:
    """ε that a private search would cost: a random number of runs, so many on average (`privacy.search`).

    The runs' scores are not counted, which would have to be noisy: it costs more than that.
    """
    event, many = statement.worst.event, float(max(settings, 2))
    try:
        return None if event.slack else bounds((event.parts,), 1.0, gamma_for(1.0, many), statement.delta)[0]
    except PrivacyError:  # of a mechanism that is accounted as a whole
        return None


def _ranks(result: Result, test: Shards) -> Row:
    """What a model with one output is worth on held-out records besides its accuracy; not private."""
    if result.spec.problem.outputs > 1:
        return {}
    return measured(result.decide(test.X), test.y, result.spec.problem.loss.targets == "binary")


def _row(result: Result, cell: Cell) -> Row:
    statement, last, spec = result.statement, result.history.last, result.spec
    return {
        "adversary": statement.adversary,
        "adjacency": statement.adjacency,
        # settings that were chosen by looking at the data have a cost that is not in it: see `search_epsilon`
        "true_epsilon": math.nan if cell.tuned else statement.epsilon,
        "pure": isinstance(statement.worst.event, LaplaceEvent),
        "sigma": float(np.max([group.event.sigma for group in statement.groups])),
        "rounds": spec.algorithm.rounds,
        "passes": last["epoch"],
        "factor": cell.point.factor,
        "shrink": cell.point.shrink,
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
