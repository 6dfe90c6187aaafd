"""Risk and accuracy of many models in one reading of the records, on a machine: `Problem.judge`, in its own words.

Margins are products in float32, of dense rows or of CSR rows; the losses' own formulas, made of ufuncs, are evaluated
on them in float64. Nothing is waited for: what comes back is examined when it is needed.
"""

from typing import Any
from typing import cast as typed

import numpy as np

from sottovoce._types import Array
from sottovoce.problem.objective import Problem
from sottovoce.problem.shards import Shards
from sottovoce_gpu.machine import Machine
from sottovoce_gpu.rounds import Held, Stack, records_of, shared

MARGINS = 1 << 27
"""Margins that are held at a time."""


def judge_on(machine: Machine, problem: Problem, models: Array, other: Shards | None = None) -> tuple[Array, Array]:
    """(risk, accuracy) of each model, on the problem's records or on others; does not wait for the machine."""
    shards = problem.shards if other is None else other.with_intercept(problem.shards.intercept)
    xp, classes = machine.xp, problem.outputs > 1
    with machine.beside():
        records = records_of(machine, shards)
        y, mine, counted, spread = shared(machine, shards, "judged", lambda: _targets(machine, shards))
        whose = problem if other is None else shards
        weight = shared(machine, whose, "weights", lambda: _weights(machine, problem, other))
        W = _brought(machine, models).reshape(len(models) * problem.outputs, -1).T.astype(np.float32)
        risks, hits = xp.zeros(len(models)), xp.zeros(len(models))
        step = max(1, MARGINS // W.shape[1])
        for first in range(0, len(shards.y), step):
            some = slice(first, min(first + step, len(shards.y)))
            u = _margins(machine, records, W, some).astype(np.float64)
            if shards.intercept:
                u += shards.intercept * W[-1].astype(np.float64)
            target = y[some, None]
            if classes:
                u = u.reshape(len(u), len(models), problem.outputs)
                risks += weight[some] @ _joint(machine, problem, u, target)
                right = u.argmax(axis=2) == target
            else:
                risks += weight[some] @ problem.loss.value(u, target)
                binary = problem.loss.targets == "binary"
                right = xp.where(u >= 0, 1.0, -1.0) == target if binary else xp.square(target - u)
            hits += mine[some] @ right.astype(np.float64)
        if classes or problem.loss.targets == "binary":
            right = hits / counted
        else:
            right = 1.0 - hits / spread if spread > 0 else xp.full(len(models), np.nan)
        return typed("Array", Held(Stack(machine, risks))), typed("Array", Held(Stack(machine, right)))


def _brought(machine: Machine, models: Any) -> Any:
    if isinstance(models, Held) and models.stack.machine is machine:
        machine.after(models.stack.made)
        return models.stack.values[models.at]
    return machine.put(np.asarray(models), np.float32)


def _targets(machine: Machine, shards: Shards) -> tuple[Any, Any, int, float]:
    """Targets, which rows are someone's, how many they are, and the squares of their targets about the mean."""
    mine = np.zeros(len(shards.y))
    mine[slice(None) if shards.order is None else shards.order] = 1.0
    y = shards.y[mine > 0]
    return machine.put(shards.y, np.float64), machine.put(mine), len(y), float(np.sum(np.square(y - y.mean())))


def _weights(machine: Machine, problem: Problem, other: Shards | None) -> Any:
    """What each record's loss counts."""
    if other is None:
        return machine.put(problem.record_weights)
    return machine.put(other.spread(np.ones(other.n) / other.sizes.sum()))


def _joint(machine: Machine, problem: Problem, u: Any, target: Any) -> Any:
    """The loss of all outputs together, as `Joint` has it; (rows, models)."""
    xp = machine.xp
    own = xp.arange(problem.outputs) == target[..., None]
    if problem.joint.one_vs_rest:
        return problem.loss.value(u, xp.where(own, 1.0, -1.0)).sum(axis=2)
    top = u.max(axis=2)
    return top + xp.log(xp.exp(u - top[..., None]).sum(axis=2)) - xp.where(own, u, 0.0).sum(axis=2)


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
