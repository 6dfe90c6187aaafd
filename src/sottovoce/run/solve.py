"""simulate(specs, shards) -> results, and solve(spec, shards) -> result, which is one of it: the only way in.

The loop prepare → rounds → observe → result stands here and nowhere else. Estimators, command line, sweeps, comparisons
and the paper's experiments go through it.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sottovoce._types import FLOAT_BYTES, Array, IntArray
from sottovoce.algorithm.method import State
from sottovoce.engine import ENGINES, Engine, choose
from sottovoce.errors import SpecError
from sottovoce.network.schedule import Schedule
from sottovoce.privacy.balance import NO_BALANCE
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.problem.objective import Problem
from sottovoce.problem.shards import Shards
from sottovoce.run.build import Prepared, prepare, renoised
from sottovoce.run.checkpoint import Checkpoint
from sottovoce.run.result import History, Observation, Result, environment
from sottovoce.run.spec import Execution, Spec

Allow = Callable[[PrivacyStatement], None]
"""Told what a run would guarantee, before anything is computed from records; may refuse it by an error."""
Progress = Callable[[int, int, Observation], None]
"""(round, of how many, the newest observation)."""


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
    allow: Allow | None = None,
    **names: Any,
) -> Result:
    """Train by Algorithm 1, or whatever method the spec names, and tell what happened.

    Parameters
    ----------
    spec : what to run
    shards : everybody's data (a simulation: real nodes hold only their own)
    test : held-out records, for the history's test accuracy
    f_star : the optimal value, where it is known, for the history's suboptimality
    execution : engine and how often to look
    progress : called after every observation
    checkpoint : a folder in which every observation leaves a checkpoint; if it holds one of this very run, the run
        goes on from there and ends as if it had never stopped. Needs a seed.
    secure : whether a run without a seed lets out exact sums with exact noise, rounded once, so that its guarantee
        holds of the bits (docs/secure.md). Without, its statement says what is not hardened
    allow : told what the run would guarantee before it is made, as a budget is
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
    keeper = None if checkpoint is None else Checkpoint(checkpoint, spec, shards)
    return simulate([spec], shards, test, [f_star], execution, progress, keeper, secure, allow, **names)[0]


def simulate(
    specs: Sequence[Spec],
    shards: Shards,
    test: Shards | None = None,
    f_star: Sequence[float] | None = None,
    execution: Execution | None = None,
    progress: Progress | None = None,
    keeper: Checkpoint | None = None,
    secure: bool = True,
    allow: Allow | None = None,
    **names: Any,
) -> list[Result]:
    """Run specs that share their draws side by side: the same but for numbers (see `alike`), and with the same seed.

    An engine may take runs of several seeds together.

    Parameters
    ----------
    specs : what to run; one schedule is drawn for all that have the same seed
    f_star : the optimal value for each, where it is known
    keeper : where a single run leaves its checkpoints
    shards, test, execution, progress, secure, allow, names : as in `solve`
    """
    began = time.perf_counter()
    runs = together(specs, shards, test, f_star, execution, progress, keeper, secure, allow)
    about = environment(runs[0].engine, time.perf_counter() - began, len(runs), specs[0])
    names |= {"environment": about}
    return [
        Result(p.spec, run.models, run.history, p.statement, p.public, statistics=run.statistics, **names)
        for run, p in ((run, run.prepared) for run in runs)
    ]


@dataclass(frozen=True, eq=False)
class Run:
    """A run that was made; what it guarantees is accounted when first asked for (`Prepared.statement`)."""

    prepared: Prepared
    state: State
    """At the end."""
    history: History
    engine: str

    @cached_property
    def models(self) -> Array:
        """x̃_i at the end."""
        return self.prepared.models(self.state, self.prepared.spec.algorithm.rounds)

    @property
    def statistics(self) -> Array | None:
        """The mean of what all nodes released, where those were statistics."""
        return self.state.z.mean(axis=0) if self.prepared.job.method.released.numbers else None


def together(
    specs: Sequence[Spec],
    shards: Shards | Sequence[Shards],
    test: Shards | None = None,
    f_star: Sequence[float] | None = None,
    execution: Execution | None = None,
    progress: Progress | None = None,
    keeper: Checkpoint | None = None,
    secure: bool = True,
    allow: Allow | None = None,
) -> list[Run]:
    """`simulate` for those who ask many runs how they ended, and few what they guarantee: accounting takes longer."""
    return asked(specs, shards, test, f_star, execution, progress, keeper, secure, allow)()


def asked(
    specs: Sequence[Spec],
    shards: Shards | Sequence[Shards],
    test: Shards | None = None,
    f_star: Sequence[float] | None = None,
    execution: Execution | None = None,
    progress: Progress | None = None,
    keeper: Checkpoint | None = None,
    secure: bool = True,
    allow: Allow | None = None,
    schedules: Mapping[int | None, Schedule] | None = None,
) -> Callable[[], list[Run]]:
    """Prepare runs side by side and have an engine run them; what is given back waits for them, and tells how they end.

    An engine that goes on by itself is still at it then, and others may be asked for.

    The same records may be dealt out anew for every seed; then there are as many shards as specs.

    `schedules` are those of these very specs by their seeds, where they are drawn already.
    """
    execution = execution or Execution()
    others = (spec for spec in specs[1:] if not specs[0].same_but_noise(spec))
    if any(alike(spec, seeds=True) != alike(specs[0], seeds=True) for spec in others):
        raise SpecError("runs side by side differ in numbers only: step sizes, noise, clip, δ, those of h; run a sweep")
    if keeper is not None and len(specs) > 1:
        raise SpecError("runs side by side keep no checkpoint; run them one by one")
    dealt = [shards] * len(specs) if isinstance(shards, Shards) else list(shards)
    if any(one.X is not dealt[0].X or not np.array_equal(one.offsets, dealt[0].offsets) for one in dealt[1:]):
        raise SpecError("runs side by side are on the same records, in nodes of the same sizes; run them one by one")
    unmapped = bool(len(specs) > 1 and specs[0].privacy.moments.total)
    maps = unmapped and execution.engine in ENGINES and ENGINES[execution.engine].maps
    if len(specs) > 1 and specs[0].privacy.once is not None and not maps:
        raise SpecError(
            "runs that let out moments, or quantiles, map their records, and share them with none; run them one by one"
        )
    drawn = {} if schedules is None else dict(schedules)
    first = prepare(specs[0], dealt[0], drawn.get(specs[0].seed), secure, unmapped)
    firsts = {(specs[0].seed, id(dealt[0])): first}
    prepared = [first]
    for spec, mine in zip(specs[1:], dealt[1:], strict=True):
        like = firsts.get((spec.seed, id(mine)))
        other = None if like is None else renoised(like, spec)
        if other is None:
            schedule = drawn.get(spec.seed) if like is None else like.job.schedule
            other = prepare(spec, mine, schedule, secure, unmapped, first)
        prepared.append(other)
        firsts.setdefault((spec.seed, id(mine)), other)
    if "schedule_seed" in first.public:  # one schedule for all of them
        for each in prepared[1:]:
            each.public["schedule_seed"] = first.public["schedule_seed"]
    if allow is not None:
        for each in prepared:
            allow(each.statement)
    optima = [float("nan")] * len(specs) if f_star is None else f_star
    jobs, T, looks = [p.job for p in prepared], specs[0].algorithm.rounds, execution.observations
    engine = choose(execution.engine, jobs[0], execution.runs)
    if len(firsts) > 1 and not engine.seeds:
        raise SpecError(f"the {engine.name} engine runs side by side what has the same seed; run a sweep")
    histories = [History() for _ in specs]
    starts = {id(job.method): job.start() for job in {id(job.method): job for job in jobs}.values()}
    t, states = 0, [starts[id(job.method)] for job in jobs]  # which no engine writes to
    if keeper is not None:
        t, kept, histories[0] = keeper.read()
        states = states if kept is None else [kept]
        prepared = _settled(prepared, states, t, secure)
    seen: list[Seen] = []

    def tell() -> None:
        for one in seen:
            for history, row in zip(histories, observations(prepared, one, optima), strict=True):
                history.rows.append(row)
        seen.clear()

    for stop in [T] if looks is None else observation_rounds(T, looks).tolist():
        if stop <= t:
            continue
        states, t = engine.run(jobs, states, t + 1, stop), stop
        prepared = _settled(prepared, states, t, secure)
        if looks is not None:
            seen.append(look(prepared, states, t, test, engine))
        if keeper is not None or progress is not None or engine.look is None:
            tell()  # else the engine goes on, and is asked at the end what it saw
        if keeper is not None:
            keeper.write(t, states[0], histories[0])
        if progress and len(histories[0]):
            progress(t, T, histories[0].last)

    def ended() -> list[Run]:
        tell()
        made = zip(prepared, states, histories, strict=True)
        return [Run(p, state, history, engine.name) for p, state, history in made]

    return ended


def _settled(prepared: list[Prepared], states: Sequence[State], t: int, secure: bool) -> list[Prepared]:
    """Once the last round is over, with the constant that balances two classes, where runs let out counts for it."""
    spec = prepared[0].spec
    if t < spec.algorithm.rounds or spec.privacy.balance == NO_BALANCE:
        return prepared
    from sottovoce.run.balance import balanced  # a chapter of its own, for those who need it

    return [balanced(p, state, secure) for p, state in zip(prepared, states, strict=True)]


NUMBERS = {"algorithm": ("a", "gamma", "eta"), "privacy": ("noise", "clip", "delta")}


def alike(spec: Spec, seeds: bool = False) -> str:
    """What runs side by side have in common: all but step sizes, noise, clip, δ and the numbers of h; and `seeds`.

    Examples
    --------
    >>> from sottovoce.run.presets import paper_l2
    >>> spec = paper_l2(50)
    >>> alike(spec) == alike(spec.but(problem__h="l2(0.1)", privacy__noise="private(1)")) != alike(spec.but(seed=3))
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
    """Where to look: half of the rounds evenly spaced, half of them in proportion, always the last.

    Examples
    --------
    >>> observation_rounds(1000, 8).tolist()
    [1, 10, 100, 250, 500, 750, 1000]
    """
    if count < 1:
        raise SpecError(f"a run must be looked at at least once, not {count} times")
    half = max(1, count // 2)
    early = np.geomspace(1, T, half)[: count - half]
    return np.unique(np.round(np.concatenate([early, np.linspace(T / half, T, half)])).astype(np.int64).clip(1, T))


class Seen(NamedTuple):
    """What a look at runs has seen of them; an engine may still be at it until the numbers are asked for."""

    t: int
    models: Array
    """Those that were judged: one of each run, or all nodes'."""
    apart: Array
    train: tuple[Array, Array]
    """(risk, accuracy) of each model, on the problem's records."""
    test: tuple[Array, Array] | None
    passes: list[float | None]


def look(
    prepared: Sequence[Prepared],
    states: Sequence[State],
    t: int,
    test: Shards | None,
    engine: Engine | None = None,
) -> Seen:
    """What there is to see of runs after round t; they share their data, and all are judged in one reading of it."""
    judge = Problem.judge if engine is None or engine.judge is None else engine.judge
    problem, schedule = prepared[0].original, prepared[0].job.schedule
    alone = schedule.n > 1 and not schedule.mixes  # then nobody has the mean, and the mean is over the nodes
    seen = None
    plain = not alone and all(p.shape is None and not p.moved for p in prepared)
    if engine is not None and engine.look is not None and plain:
        seen = engine.look([p.job for p in prepared], states, t)
    if seen is None:
        models = [p.models(state, t) for p, state in zip(prepared, states, strict=True)]
        apart = np.array([np.mean(np.linalg.norm(x - x.mean(axis=0), axis=1)) for x in models])
        seen = np.concatenate([x if alone else x.mean(axis=0)[None] for x in models]), apart
    judged = seen[0]
    tested = None if test is None else judge(problem, judged, test)
    passes = [p.job.method.passes(state) for p, state in zip(prepared, states, strict=True)]
    return Seen(t, judged, seen[1], judge(problem, judged, None), tested, passes)


def observations(prepared: Sequence[Prepared], seen: Seen, f_star: Sequence[float]) -> list[Observation]:
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
                bytes=messages * p.job.method.width * problem.m * FLOAT_BYTES,
            )
        )
    return rows


def _by_run(values: Array, count: int) -> Array:
    """The mean over a run's models."""
    return np.asarray(np.asarray(values).reshape(count, -1).mean(axis=1))
