"""solve(spec, shards) -> result of one run, and run_batch(specs, shards) -> several runs.

The loop prepare → rounds → observe → result is implemented here only. Estimators, command line, sweeps, comparisons and
the paper's experiments use it.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sottovoce._renamed import old_arguments, old_attributes
from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import State
from sottovoce.engine import ENGINES, Engine, choose
from sottovoce.errors import SpecError
from sottovoce.network.schedule import Schedule
from sottovoce.privacy.one_shot import Moments
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.problem.objective import Problem
from sottovoce.problem.shards import Shards
from sottovoce.run.build import Prepared, prepare, reuse_with_noise
from sottovoce.run.checkpoint import Checkpoint
from sottovoce.run.result import History, Observation, Result, environment
from sottovoce.run.spec import Execution, Spec

BudgetCheck = Callable[[PrivacyStatement], None]
"""Called with what a run would guarantee, before anything is computed from records; may refuse it by an error."""
Progress = Callable[[int, int, Observation | None], None]
"""Called with rounds done, all rounds and the last observation; None where nothing is observed."""
REPORTS = 20
"""Reports of progress of a run that is not observed."""


@dataclass(frozen=True)
class RunOptions:
    """How runs are made and watched: the same for all runs of a batch.

    Attributes
    ----------
    execution : the engine, and how often to observe
    test : held-out records, for the history's test accuracy
    f_star : the optimal value of each run, where it is known, for the history's suboptimality
    progress : called with rounds done, all rounds and the first run's last observation, if there is one
    checkpoint : where a single run leaves its checkpoints
    secure : whether runs without a seed release exact sums with exact noise, rounded once
    budget_check : called with what each run would guarantee, before anything is computed from records
    schedules : schedules of these very specs by their seeds, where they are drawn already
    """

    execution: Execution = Execution()  # noqa: RUF009 - immutable
    test: Shards | None = None
    f_star: Sequence[float] | None = None
    progress: Progress | None = None
    checkpoint: Checkpoint | None = None
    secure: bool = True
    budget_check: BudgetCheck | None = None
    schedules: Mapping[int | None, Schedule] = field(default_factory=dict)


@old_arguments
def solve(
    spec: Spec,
    shards: Shards,
    *,
    test: Shards | None = None,
    f_star: float = float("nan"),
    execution: Execution | None = None,
    progress: Progress | None = None,
    checkpoint: str | Path | None = None,
    secure: bool = True,
    budget_check: BudgetCheck | None = None,
    **names: Any,
) -> Result:
    """Train by Algorithm 1, or whatever method the spec names, and return the result with its statement.

    Parameters
    ----------
    spec : what to run
    shards : everybody's data (a simulation: real nodes hold only their own)
    test : held-out records, for the history's test accuracy
    f_star : the optimal value, where it is known, for the history's suboptimality
    execution : engine and how often to observe
    progress : called with rounds done, all rounds and the last observation, if there is one
    checkpoint : a folder in which every observation leaves a checkpoint; if it holds one of this very run, the run
        goes on from there and ends as if it had never stopped. Needs a seed.
    secure : whether a run without a seed releases exact sums with exact noise, rounded once, so that its guarantee
        holds of the bits (docs/secure.md). Without, its statement says what is not hardened
    budget_check : called with the statement of the run before it starts; it may refuse the run by an error
    names : classes, features, nodes and scale of the result

    Examples
    --------
    >>> from sottovoce import AlgorithmSpec, embedded, even
    >>> table = embedded("breast_cancer")
    >>> shards = Shards.of(table.X, table.y, even(len(table.y), 5)[0])
    >>> result = solve(Spec(AlgorithmSpec(rounds=500), seed=1), shards)
    >>> result.models.shape, result.statement.verdict()
    ((5, 30), 'SIMULATION, and NOT PRIVATE: no noise was added.')
    """
    kept = None if checkpoint is None else Checkpoint(checkpoint, spec, shards)
    options = RunOptions(execution or Execution(), test, [f_star], progress, kept, secure, budget_check)
    return run_batch([spec], shards, options)[0].result(**names)


@old_attributes
@dataclass(frozen=True, eq=False)
class Run:
    """A finished run; its statement is accounted on first use (`Prepared.statement`).

    Attributes
    ----------
    prepared, state : the prepared run and its final state
    history : evaluations, not private
    engine : the engine that ran it
    seconds, batch_size : duration of its batch, and the number of runs in it
    """

    prepared: Prepared
    state: State
    history: History
    engine: str
    seconds: float = 0.0
    batch_size: int = 1

    @cached_property
    def models(self) -> Array:
        """x̃_i at the end."""
        return self.prepared.models(self.state, self.prepared.spec.algorithm.rounds)

    @property
    def statistics(self) -> Array | None:
        """The mean of what all nodes released, where those were statistics."""
        return self.state.z.mean(axis=0) if self.prepared.job.method.released.numbers else None

    def result(self, **names: Any) -> Result:
        """The run with its statement, to be kept; `names` are classes, features, nodes and scale."""
        of = self.prepared
        about = environment(self.engine, self.seconds, self.batch_size, of.spec)
        return Result(
            of.spec, self.models, self.history, of.statement, of.public, statistics=self.statistics, environment=about,
            **names,
        )  # fmt: skip


def run_batch(specs: Sequence[Spec], shards: Shards | Sequence[Shards], options: RunOptions | None = None) -> list[Run]:
    """Run specs in one batch; they differ only in numbers (see `batch_key`) and have the same seed.

    Some engines accept several seeds in a batch. Then the records may be partitioned differently for every seed, and
    there are as many shards as specs.

    Examples
    --------
    >>> from sottovoce.run.presets import paper_l2
    >>> shards = Shards.of(np.eye(4), np.array([1.0, -1.0, 1.0, -1.0]), np.array([0, 2, 4]))
    >>> specs = [paper_l2(20).replace(seed=1, privacy__noise=noise) for noise in ("none", "gaussian(0.1)")]
    >>> [run.result().statement.private for run in run_batch(specs, shards)]
    [False, True]
    """
    return submit(specs, shards, options)()


def submit(
    specs: Sequence[Spec], shards: Shards | Sequence[Shards], options: RunOptions | None = None
) -> Callable[[], list[Run]]:
    """Start runs as `run_batch` does, and return a function that waits for them and returns them.

    An engine that works by itself is still at it then, and further runs may be submitted.
    """
    began, options = time.perf_counter(), options or RunOptions()
    partitioned = [shards] * len(specs) if isinstance(shards, Shards) else list(shards)
    _check_batch(specs, partitioned, options)
    prepared = _prepared(specs, partitioned, options)
    if options.budget_check is not None:
        for each in prepared:
            options.budget_check(each.statement)
    engine = choose(options.execution.engine, prepared[0].job, options.execution.runs)
    if (
        len({(spec.seed, id(mine)) for spec, mine in zip(specs, partitioned, strict=True)}) > 1
        and engine.device is None
    ):
        raise SpecError(f"the {engine.name} engine runs side by side what has the same seed; run a sweep")
    batch = _Batch(prepared, engine, options)
    batch.run()

    def ended() -> list[Run]:
        batch.observe()
        seconds, made = time.perf_counter() - began, zip(batch.prepared, batch.states, batch.histories, strict=True)
        return [Run(p, state, history, engine.name, seconds, len(specs)) for p, state, history in made]

    return ended


def _check_batch(specs: Sequence[Spec], partitioned: Sequence[Shards], options: RunOptions) -> None:
    """Refuse runs that cannot be made side by side."""
    first, name = specs[0], options.execution.engine
    others = (spec for spec in specs[1:] if not first.same_but_noise(spec))
    if any(batch_key(spec, seeds=True) != batch_key(first, seeds=True) for spec in others):
        raise SpecError("runs side by side differ in numbers only: step sizes, noise, clip, δ, those of h; run a sweep")
    if options.checkpoint is not None and len(specs) > 1:
        raise SpecError("runs side by side keep no checkpoint; run them one by one")
    if any(
        one.X is not partitioned[0].X or not np.array_equal(one.offsets, partitioned[0].offsets)
        for one in partitioned[1:]
    ):
        raise SpecError("runs side by side are on the same records, in nodes of the same sizes; run them one by one")
    maps = name in ENGINES and ENGINES[name].device is not None and isinstance(first.privacy.pre_release, Moments)
    if len(specs) > 1 and first.privacy.pre_release is not None and not maps:
        raise SpecError(
            "runs that release moments or quantiles map their own records and cannot share them; run them one by one"
        )


def _prepared(specs: Sequence[Spec], partitioned: Sequence[Shards], options: RunOptions) -> list[Prepared]:
    """The runs, which share what they can: one schedule is drawn for all that have the same seed and records."""
    unmapped = len(specs) > 1 and isinstance(specs[0].privacy.pre_release, Moments)
    found: list[Prepared] = []
    firsts: dict[tuple[int | None, int], Prepared] = {}
    for spec, mine in zip(specs, partitioned, strict=True):
        reusable = firsts.get((spec.seed, id(mine)))
        other = None if reusable is None else reuse_with_noise(reusable, spec)
        if other is None:
            schedule = options.schedules.get(spec.seed) if reusable is None else reusable.job.schedule
            seed = None if reusable is None else reusable.public.get("schedule_seed")
            first = found[0] if found else None
            other = prepare(spec, mine, schedule, options.secure, unmapped, first, seed)
        found.append(other)
        firsts.setdefault((spec.seed, id(mine)), other)
    return found


@dataclass(eq=False)
class _Batch:
    """Runs on their way: their states, and what was seen of them but not yet written down."""

    prepared: list[Prepared]
    engine: Engine
    options: RunOptions

    def __post_init__(self) -> None:
        jobs = [p.job for p in self.prepared]
        starts = {id(job.method): job.start() for job in {id(job.method): job for job in jobs}.values()}
        self.states: list[State] = [starts[id(job.method)] for job in jobs]  # which no engine writes to
        self.histories, self.seen = [History() for _ in jobs], list[Snapshot]()
        self.t = 0

    @property
    def T(self) -> int:
        """Number of rounds."""
        return self.prepared[0].spec.algorithm.rounds

    def run(self) -> None:
        """All rounds, from where a checkpoint stands, observed and kept on the way."""
        options, often = self.options, self.options.execution.observations
        if options.checkpoint is not None:
            self.t, kept, self.histories[0] = options.checkpoint.read()
            self.states = self.states if kept is None else [kept]
            self._settle()
        for stop in self._stops():
            if stop <= self.t:
                continue
            self.states = self.engine.run([p.job for p in self.prepared], self.states, self.t + 1, stop)
            self.t = stop
            self._settle()
            if often is not None:
                self.seen.append(take_snapshot(self.prepared, self.states, stop, options.test, self.engine))
            if options.checkpoint is not None or options.progress is not None or self.engine.device is None:
                self.observe()  # else the engine continues and returns its metrics at the end
            if options.checkpoint is not None:
                options.checkpoint.write(stop, self.states[0], self.histories[0])
            if options.progress is not None:
                options.progress(stop, self.T, self.histories[0].last if len(self.histories[0]) else None)

    def _stops(self) -> list[int]:
        """The rounds after which something is evaluated or reported."""
        often = self.options.execution.observations
        if often is not None:
            return observation_rounds(self.T, often).tolist()
        parts = min(self.T, REPORTS) if self.options.progress is not None else 1
        return [self.T * part // parts for part in range(1, parts + 1)]

    def observe(self) -> None:
        """Write down what was seen."""
        optima = [float("nan")] * len(self.prepared) if self.options.f_star is None else self.options.f_star
        for one in self.seen:
            for history, row in zip(self.histories, observations(self.prepared, one, optima), strict=True):
                history.rows.append(row)
        self.seen.clear()

    def _settle(self) -> None:
        """After the last round, make the release that comes then: for a threshold or for intervals."""
        privacy = self.prepared[0].spec.privacy
        if self.t < self.T or privacy.post_release is None:
            return
        if privacy.inference:  # loaded only if needed
            from sottovoce.run.inference import released as finished
        else:
            from sottovoce.run.private_threshold import balanced as finished

        secure = self.options.secure
        self.prepared = [finished(p, s, secure) for p, s in zip(self.prepared, self.states, strict=True)]


NUMBERS = {"algorithm": ("a", "gamma", "eta"), "privacy": ("noise", "clip", "delta")}


def batch_key(spec: Spec, seeds: bool = False) -> str:
    """Return what runs of a batch have in common: all but step sizes, noise, clip, δ and the numbers of h; and `seeds`.

    Examples
    --------
    >>> from sottovoce.run.presets import paper_l2
    >>> spec = paper_l2(50)
    >>> other = spec.replace(problem__h="l2(0.1)", privacy__noise="private(1)")
    >>> batch_key(spec) == batch_key(other) != batch_key(spec.replace(seed=3))
    True
    """
    parts = spec.to_dict()
    for part, names in NUMBERS.items():
        for name in names:
            del parts[part][name]
    parts["problem"]["h"] = type(spec.problem.h).__name__
    if seeds:
        del parts["seed"]
    return json.dumps(parts, sort_keys=True)


def observation_rounds(T: int, count: int) -> IntArray:
    """Return the rounds to evaluate: half of them evenly spaced, half in geometric progression, and always the last.

    Examples
    --------
    >>> observation_rounds(1000, 8).tolist()
    [1, 10, 100, 250, 500, 750, 1000]
    """
    if count < 1:
        raise SpecError(f"a run needs at least one evaluation, not {count}")
    half = max(1, count // 2)
    early = np.geomspace(1, T, half)[: count - half]
    return np.unique(np.round(np.concatenate([early, np.linspace(T / half, T, half)])).astype(np.int64).clip(1, T))


class Snapshot(NamedTuple):
    """Metrics of a batch of runs; the engine may still compute them until the numbers are read."""

    t: int
    models: Array
    """Those that were judged: one of each run, or all nodes'."""
    apart: Array
    train: tuple[Array, Array]
    """(risk, accuracy) of each model, on the problem's records."""
    test: tuple[Array, Array] | None
    passes: list[float | None]


def take_snapshot(
    prepared: Sequence[Prepared],
    states: Sequence[State],
    t: int,
    test: Shards | None,
    engine: Engine | None = None,
) -> Snapshot:
    """What there is to see of runs after round t; they share their data, and all are judged in one reading of it."""
    device = None if engine is None else engine.device
    judge = Problem.judge if device is None else device.judge
    problem, schedule = prepared[0].original, prepared[0].job.schedule
    alone = schedule.n > 1 and not schedule.mixes  # then nobody has the mean, and the mean is over the nodes
    seen, plain = None, not alone and all(p.row_map is None and not p.moved for p in prepared)
    if device is not None and plain:
        seen = device.evaluate_states([p.job for p in prepared], states, t)
    judged, apart = _models(prepared, states, t, alone) if seen is None else seen
    tested = None if test is None else judge(problem, judged, test)
    passes = [p.job.method.passes(state) for p, state in zip(prepared, states, strict=True)]
    return Snapshot(t, judged, apart, judge(problem, judged, None), tested, passes)


def _models(prepared: Sequence[Prepared], states: Sequence[State], t: int, alone: bool) -> tuple[Array, Array]:
    """The mean model of each run (all nodes' where these never mix), and how far nodes are from it on average."""
    models = [p.models(state, t) for p, state in zip(prepared, states, strict=True)]
    apart = np.array([np.mean(np.linalg.norm(x - x.mean(axis=0), axis=1)) for x in models])
    return np.concatenate([x if alone else x.mean(axis=0)[None] for x in models]), apart


def observations(prepared: Sequence[Prepared], seen: Snapshot, f_star: Sequence[float]) -> list[Observation]:
    """A row of the history of each run, from the outside of the mechanism: not private."""
    problem, t, count = prepared[0].original, seen.t, len(prepared)
    models = np.asarray(seen.models).reshape(count, -1, problem.m)
    apart, risks, train = (_by_run(values, count) for values in (seen.apart, *seen.train))
    tests = np.full(count, np.nan) if seen.test is None else _by_run(seen.test[1], count)
    batches = np.array([prepared[0].job.release.sampling.batch(int(q)) for q in problem.shards.sizes])
    costs = {}
    for one in {id(p.job.schedule): p.job.schedule for p in prepared}.values():
        used = float(one.participations(t) @ batches / problem.shards.sizes.sum())
        costs[id(one)] = used, one.sent(t)
    rows = []
    for r, p in enumerate(prepared):
        penalty = np.mean([p.job.problem.h.value(x) for x in models[r]])
        objective = float(risks[r] + penalty)
        used, messages = costs[id(p.job.schedule)]
        passes = seen.passes[r]
        rows.append(
            Observation(
                round=t,
                epoch=used if passes is None else passes,
                objective=objective,
                suboptimality=objective - f_star[r],
                train_accuracy=float(train[r]),
                test_accuracy=float(tests[r]),
                consensus_error=float(apart[r]),
                messages=messages,
                bytes=messages * p.job.schedule.averaging.message_bytes(p.job.method.width * problem.m),
            )
        )
    return rows


def _by_run(values: Array, count: int) -> Array:
    """The mean over a run's models."""
    return np.asarray(np.asarray(values).reshape(count, -1).mean(axis=1))
