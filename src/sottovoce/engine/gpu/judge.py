"""Risk and accuracy of many models in one reading of the records, on a machine: `Problem.judge`, in its own words.

Margins are products in float32, of dense rows or of CSR rows; the losses' own formulas, made of ufuncs, are evaluated
on them in float64. Models of several outputs are judged on the host.
"""

from typing import Any

import numpy as np

from sottovoce._types import Array
from sottovoce.engine.gpu.machine import Machine, device
from sottovoce.engine.gpu.rounds import records_of
from sottovoce.problem.objective import Problem
from sottovoce.problem.shards import Shards

MARGINS = 1 << 27
"""Margins that are held at a time."""


def judge(problem: Problem, models: Array, other: Shards | None = None) -> tuple[Array, Array]:
    """(risk, accuracy) of each model, on the problem's records or on others."""
    found = device()
    if isinstance(found, str) or problem.outputs > 1:
        return problem.judge(models, other)
    return judge_on(found, problem, models, other)


def judge_on(machine: Machine, problem: Problem, models: Array, other: Shards | None = None) -> tuple[Array, Array]:
    """On a machine, for models of one output."""
    shards = problem.shards if other is None else other.with_intercept(problem.shards.intercept)
    weights = problem.record_weights if other is None else shards.spread(np.ones(shards.n) / shards.sizes.sum())
    counted = np.zeros(len(shards.y), bool)
    counted[slice(None) if shards.order is None else shards.order] = True
    xp = machine.xp
    with machine.working():
        records = records_of(machine, shards)
        W = machine.put(models.T, np.float32)
        y, weight, mine = (machine.put(v) for v in (shards.y.astype(np.float64), weights, counted))
        risks, hits = xp.zeros(len(models)), xp.zeros(len(models))
        step = max(1, MARGINS // len(models))
        for first in range(0, len(shards.y), step):
            some = slice(first, min(first + step, len(shards.y)))
            u = _margins(machine, records, W, some).astype(np.float64)
            if shards.intercept:
                u += shards.intercept * W[-1].astype(np.float64)
            target = y[some, None]
            risks += weight[some] @ problem.loss.value(u, target)
            if problem.loss.targets == "binary":
                right = xp.where(u >= 0, 1.0, -1.0) == target
            else:
                right = xp.square(target - u)
            hits += mine[some].astype(np.float64) @ right.astype(np.float64)
        found = machine.get(risks), machine.get(hits)
    if problem.loss.targets == "binary":
        return found[0], found[1] / counted.sum()
    spread = float(np.sum(np.square(shards.y[counted] - shards.y[counted].mean())))
    return found[0], 1.0 - found[1] / spread if spread > 0 else np.full(len(models), np.nan)


def _margins(machine: Machine, records: Any, W: Any, some: slice) -> Any:
    """Of some rows, without the intercept; (rows, models)."""
    features = W[: records.features]
    if not records.sparse:
        return records.X[some] @ features
    if machine.xp is np:
        from scipy import sparse
    else:
        from cupyx.scipy import sparse
    first, last = int(records.indptr[some.start]), int(records.indptr[some.stop])
    indptr = (records.indptr[some.start : some.stop + 1] - first).astype(np.int32)
    shape = (some.stop - some.start, records.features)
    return sparse.csr_matrix((records.values[first:last], records.indices[first:last], indptr), shape=shape) @ features
