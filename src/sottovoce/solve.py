"""solve(spec, shards) -> Result: the one way in. Estimators, command line and reports all go through it."""

import hashlib
import io
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from sottovoce._types import FLOAT_BYTES, IntArray
from sottovoce.algorithm.dual_averaging import State
from sottovoce.build import Prepared, prepare
from sottovoce.engine import nodes, reference
from sottovoce.engine.job import Engine, Job, Together
from sottovoce.errors import DataError, SpecError
from sottovoce.problem.shards import Shards
from sottovoce.result import History, Result, environment, write_atomically
from sottovoce.spec import Execution, Spec


def _compiled(job: Job, state: State, start: int, stop: int) -> State:
    from sottovoce.engine import compiled  # Numba takes long to load: only when used

    return compiled.run(job, state, start, stop)


def _compiled_together(jobs: Sequence[Job], states: Sequence[State], start: int, stop: int) -> list[State]:
    from sottovoce.engine import compiled

    return compiled.run_many(jobs, states, start, stop)


def _one_by_one(engine: Engine) -> Together:
    def run(jobs: Sequence[Job], states: Sequence[State], start: int, stop: int) -> list[State]:
        return [engine(job, state, start, stop) for job, state in zip(jobs, states, strict=True)]

    return run


ENGINES: dict[str, Engine] = {"reference": reference.run, "nodes": nodes.run, "compiled": _compiled}

TOGETHER: dict[str, Together] = {
    "reference": _one_by_one(reference.run),
    "nodes": _one_by_one(nodes.run),
    "compiled": _compiled_together,
}
"""Engines for several jobs that share their draws: (jobs, states, start, stop) -> states."""

WORTH_COMPILING = 2e8  # coordinates of released subgradients: some ten seconds of the reference engine

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
    >>> from sottovoce.problem.partition import even
    >>> from sottovoce.spec import AlgorithmSpec
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
    engine = choose_engine(execution.engine, job)
    run = ENGINES[engine]
    for stop in observation_rounds(T, execution.observations):
        if stop <= t:
            continue
        state = run(job, state, t + 1, int(stop))
        t = int(stop)
        history.rows.append(observe(prepared, state, t, test, f_star))
        if keeper:
            keeper.write(t, state, history)
        if progress:
            progress(t, T, history.last)
    return Result(
        spec=spec,
        models=job.method.average(state, T),
        history=history,
        statement=prepared.statement,
        public=prepared.public,
        environment=environment(engine, time.perf_counter() - began),
        **names,
    )


def check_engine(name: str) -> None:
    """Refuse an engine that is not there."""
    if name != "auto" and name not in ENGINES:
        raise SpecError(f"there is no engine '{name}'; choose one of auto, {', '.join(ENGINES)}")


def choose_engine(name: str, job: Job) -> str:
    """What 'auto' stands for: compiled where a run has enough to do to make up for loading it."""
    if name != "auto":
        return name
    return "compiled" if len(job.schedule.active) * job.problem.m > WORTH_COMPILING else "reference"


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


def observe(prepared: Prepared, state: State, t: int, test: Shards | None, f_star: float) -> dict[str, float]:
    """One row of the history, from the outside of the mechanism: not private."""
    job = prepared.job
    models = job.method.average(state, t)
    mean = models.mean(axis=0)
    used = job.schedule.starts[t]  # activations so far, of all nodes together
    active = np.bincount(job.schedule.active[:used], minlength=job.schedule.n)
    batches = np.array([job.release.sampling.batch(int(q)) for q in job.problem.shards.sizes])
    objective = job.problem.value(mean)
    messages = int(job.schedule.up_to(t)[-1])
    return {
        "round": t,
        "epoch": float(active @ batches / job.problem.shards.sizes.sum()),
        "objective": objective,
        "suboptimality": objective - f_star,
        "train_accuracy": job.problem.accuracy(mean),
        "test_accuracy": float("nan") if test is None else job.problem.accuracy(mean, test),
        "consensus_error": float(np.mean(np.linalg.norm(models - mean, axis=1))),
        "messages": messages,
        "bytes": messages * job.problem.m * FLOAT_BYTES,
    }


class _Keeper:
    """Checkpoints: the state, the history so far, and which run and data they belong to."""

    def __init__(self, folder: Path, spec: Spec, shards: Shards) -> None:
        if spec.seed is None:
            raise SpecError("a run without a seed keeps its noise key nowhere and cannot be resumed; give a seed")
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "checkpoint.npz"
        digest = hashlib.blake2b(spec.to_json().encode(), digest_size=32)  # reads gigabytes in seconds
        X = shards.X
        data = (X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,)
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
                state = State(saved["z"], saved["total"], saved["since"])
        except (OSError, ValueError, KeyError) as error:
            raise DataError(f"'{self.path}' is no readable checkpoint ({type(error).__name__}); delete it") from None
        if head["digest"] != self.digest:
            raise SpecError(f"'{self.path}' belongs to another run or other data; give another folder, or delete it")
        return head["t"], state, History(head["history"])

    def write(self, t: int, state: State, history: History) -> None:
        """Replace the checkpoint, whole."""
        buffer = io.BytesIO()
        head = json.dumps({"digest": self.digest, "t": t, "history": history.rows})
        np.savez(buffer, head=np.array(head), z=state.z, total=state.total, since=state.since)
        write_atomically(self.path, buffer.getvalue())
