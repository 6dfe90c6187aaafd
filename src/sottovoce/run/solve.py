"""solve(spec, shards) -> Result: the one way in. Estimators, command line and reports all go through it."""

import hashlib
import io
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce._types import FLOAT_BYTES, IntArray
from sottovoce.algorithm.method import State
from sottovoce.engine import check_engine, choose
from sottovoce.errors import DataError, SpecError
from sottovoce.problem.shards import Shards
from sottovoce.rows import is_sparse
from sottovoce.run.build import Prepared, prepare
from sottovoce.run.result import History, Result, environment, write_atomically
from sottovoce.run.spec import Execution, Spec

Progress = Callable[[int, int, dict[str, float]], None]
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
    **names: Any,
) -> Result:
    """Train by Algorithm 1 and tell what happened.

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
    names : classes, features and nodes of the result

    Examples
    --------
    >>> from sottovoce.data.embedded import embedded
    >>> from sottovoce.problem.shards import even
    >>> from sottovoce.run.spec import AlgorithmSpec
    >>> table = embedded("breast_cancer")
    >>> shards = Shards.of(table.X, table.y, even(len(table.y), 5)[0])
    >>> result = solve(Spec(AlgorithmSpec(rounds=500), seed=1), shards)
    >>> result.models.shape, result.statement.verdict()
    ((5, 30), 'NOT PRIVATE: no noise was added.')
    """
    execution = execution or Execution()
    check_engine(execution.engine)
    began = time.perf_counter()
    prepared = prepare(spec, shards)
    job, T = prepared.job, spec.algorithm.rounds
    keeper = _Keeper(Path(checkpoint), spec, shards) if checkpoint is not None else None
    t, state, history = keeper.read() if keeper else (0, None, History())
    state = job.start() if state is None else state
    engine = choose(execution.engine, job, execution.runs)
    looks = execution.observations
    for stop in [T] if looks is None else observation_rounds(T, looks).tolist():
        if stop <= t:
            continue
        (state,) = engine.run([job], [state], t + 1, stop)
        t = stop
        if looks is not None:
            history.rows += observe([prepared], [state], t, test, [f_star])
        if keeper:
            keeper.write(t, state, history)
        if progress and len(history):
            progress(t, T, history.last)
    return Result(
        spec=spec,
        models=job.method.average(state, T),
        history=history,
        statement=prepared.statement,
        public=prepared.public,
        environment=environment(engine.name, time.perf_counter() - began),
        **names,
    )


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


def observe(
    prepared: Sequence[Prepared], states: Sequence[State], t: int, test: Shards | None, f_star: Sequence[float]
) -> list[dict[str, float]]:
    """A row of the history of each run, from the outside of the mechanism: not private.

    The runs share their data and schedule, and all their models are judged in one reading of it.
    """
    job = prepared[0].job
    problem, schedule = job.problem, job.schedule
    models = [p.job.method.average(state, t) for p, state in zip(prepared, states, strict=True)]
    alone = schedule.n > 1 and not schedule.mixes  # then nobody has the mean, and the mean is over the nodes
    judged = np.concatenate([x if alone else x.mean(axis=0)[None] for x in models])
    risks, train = (np.reshape(v, (len(models), -1)).mean(axis=1) for v in problem.judge(judged))
    tests = np.full(len(models), np.nan)
    if test is not None:
        tests = np.reshape(problem.judge(judged, test)[1], (len(models), -1)).mean(axis=1)
    active = schedule.participations(t)
    batches = np.array([job.release.sampling.batch(int(q)) for q in problem.shards.sizes])
    messages = int(schedule.up_to(t)[-1])
    rows = []
    for r, (p, x) in enumerate(zip(prepared, models, strict=True)):
        penalty = np.mean([p.job.problem.h.value(each) for each in (x if alone else [x.mean(axis=0)])])
        objective = float(risks[r] + penalty)
        rows.append(
            {
                "round": t,
                "epoch": float(active @ batches / problem.shards.sizes.sum()),
                "objective": objective,
                "suboptimality": objective - f_star[r],
                "train_accuracy": float(train[r]),
                "test_accuracy": float(tests[r]),
                "consensus_error": float(np.mean(np.linalg.norm(x - x.mean(axis=0), axis=1))),
                "messages": messages,
                "bytes": messages * p.job.method.width * problem.m * FLOAT_BYTES,
            }
        )
    return rows


class _Keeper:
    """Checkpoints: the state, the history so far, and which run and data they belong to."""

    def __init__(self, folder: Path, spec: Spec, shards: Shards) -> None:
        if spec.seed is None:
            raise SpecError("a run without a seed keeps its noise key nowhere and cannot be resumed; give a seed")
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "checkpoint.npz"
        digest = hashlib.blake2b(spec.to_json().encode(), digest_size=32)  # reads gigabytes in seconds
        X = shards.X
        data = (X.data, X.indices, X.indptr) if is_sparse(X) else (X,)
        for part in (shards.y, shards.offsets, shards.order, shards.starts, np.array(X.shape), *data):
            digest.update(b"none" if part is None else np.ascontiguousarray(part).view(np.uint8).data)
        self.digest = digest.hexdigest()

    def read(self) -> tuple[int, State | None, History]:
        """Where the run stands: its beginning, if there is no checkpoint."""
        if not self.path.exists():
            return 0, None, History()
        try:
            with np.load(self.path) as saved:
                head = json.loads(str(saved["head"]))
                state = State(*(saved[name] for name in State._fields))
        except (OSError, ValueError, KeyError) as error:
            raise DataError(f"'{self.path}' is no readable checkpoint ({type(error).__name__}); delete it") from None
        if head["digest"] != self.digest:
            raise SpecError(f"'{self.path}' belongs to another run or other data; give another folder, or delete it")
        return head["t"], state, History(head["history"])

    def write(self, t: int, state: State, history: History) -> None:
        """Replace the checkpoint, whole."""
        buffer = io.BytesIO()
        head = json.dumps({"digest": self.digest, "t": t, "history": history.rows})
        np.savez(buffer, head=np.array(head), **state._asdict())
        write_atomically(self.path, buffer.getvalue())
