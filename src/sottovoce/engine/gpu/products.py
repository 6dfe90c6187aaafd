"""Everybody with batches, where each round ends with the mean of all messages: matrix products over all runs.

Then all nodes have the same z, and a round of all runs is two products with the records, X x and Xᵀs, and two kernels
between them: slopes with clips and masks, and the mean message with everybody's noise. Runs of different seeds go
together; only their marks and their noise are their own. Noise that pairs share is gone from the mean.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sottovoce import rows
from sottovoce._types import Array
from sottovoce.algorithm.descent import Descent
from sottovoce.algorithm.method import State
from sottovoce.engine.compiled import FLAT
from sottovoce.engine.gpu.machine import Machine
from sottovoce.engine.gpu.rounds import Cast, cast_of, groups_of, records_of
from sottovoce.engine.gpu.source import code_of, filled
from sottovoce.engine.job import Job
from sottovoce.engine.kernel import FULL
from sottovoce.problem.losses import SOFTMAX
from sottovoce.problem.shards import Shards
from sottovoce.streams import Purpose

SHARE = 32
"""Of so many rows one must be used in a round: products take all of them."""
DENSE = 1 << 32
"""Bytes of CSR rows that are laid out in full."""
MARKED = 1 << 28
"""Bytes of marks that are made at a time."""
WIDE = 256


def fits(job: Job) -> bool:
    """Whether all rounds end with the mean of all, in a job that uses enough of its records."""
    shards, schedule = job.problem.shards, job.schedule
    used = sum(job.release.sampling.batch(int(q)) for q in shards.sizes)
    everybody = len(schedule.active) == shards.n * schedule.T and schedule.speakers in (0, shards.n)
    return (
        everybody
        and not shards.people
        and used * SHARE >= len(shards.y)
        and (not rows.is_sparse(shards.X) or 4 * shards.X.shape[0] * shards.X.shape[1] <= DENSE)
        and not (isinstance(job.method, Descent) and job.method.combine_first)
        and all(np.ptp(schedule.mixtures[p]) <= FLAT for p in np.unique(schedule.pattern).tolist())
    )


def alike(states: Sequence[State]) -> bool:
    """Whether the nodes of each run stand where all the others do."""
    return all(bool(np.all(v == v[0])) for state in states for v in (state.z, state.total, state.since))


_wide: dict[str, tuple[Any, Any]] = {}


def _laid_out(machine: Machine, shards: Shards) -> Any:
    """(rows, features and intercept) in float32, of CSR rows too."""
    records = records_of(machine, shards)
    kept = _wide.get("last")
    if kept is not None and kept[0] is records and kept[1].shape[1] == shards.m:
        return kept[1]
    X, xp = records.X, machine.xp
    if records.sparse:
        X = xp.zeros((len(shards.y), records.features), np.float32)
        at = machine.put(np.repeat(np.arange(len(shards.y)), np.diff(shards.X.indptr)))
        X[at, records.indices] = records.values
    if shards.m > records.features:
        X = xp.concatenate([X, xp.full((len(X), 1), shards.intercept, np.float32)], axis=1)
    _wide["last"] = records, X
    return X


def run_products(machine: Machine, jobs: Sequence[Job], states: Sequence[State], start: int, stop: int) -> list[State]:
    """Rounds start … stop of jobs that fit, from states that are alike."""
    groups = groups_of(jobs)
    order = [place for group in groups for place in group]
    with machine.working():
        casts = [cast_of(machine, [jobs[place] for place in group]) for group in groups]
        begin = [np.stack([values[0] for values in some], axis=1) for some in _each(states, order)]
        ends = _go(machine, casts, begin[0], begin[1], start, stop)
    found = {}
    for r, place in enumerate(order):
        state = states[place]
        z, total = (np.repeat(values[None, :, r], len(state.z), axis=0) for values in ends)
        found[place] = State(z, total, np.full_like(state.since, stop + 1), state.memory.copy())
    return [found[place] for place in range(len(jobs))]


def _each(states: Sequence[State], order: Sequence[int]) -> tuple[list[Array], list[Array]]:
    return [states[place].z for place in order], [states[place].total for place in order]


def _go(machine: Machine, casts: Sequence[Cast], z: Array, total: Array, start: int, stop: int) -> tuple[Array, Array]:
    """Everybody's z and running sum after round `stop`, from those before `start`; (m, runs) each."""
    xp, put, address = machine.xp, machine.put, machine.address
    first, R = casts[0], z.shape[1]
    problem, model, noise = first.problem, first.model, first.noise
    shards, outputs = problem.shards, problem.outputs
    X = _laid_out(machine, shards)
    m, N = len(z), len(X)
    owner = np.full(N, -1, np.int32)
    owner[np.arange(N) if shards.order is None else shards.order] = np.repeat(np.arange(shards.n), shards.sizes)
    marked = noise.sampler != FULL
    at_once = max(1, min(stop - start + 1, MARKED // (len(casts) * N))) if marked else stop - start + 1
    arrays = {
        "numbers": put(_numbers(casts, start, stop)),
        "h": put(_columns(casts, ("phi", "mu", "lo", "hi")), np.float32),
        "clip": put(_columns(casts, ("clip",)), np.float32),
        "loud": xp.concatenate([cast.kept["loud"] for cast in casts]),
        "share": xp.concatenate([cast.kept["share"] for cast in casts]),
        "cast": put(np.repeat(np.arange(len(casts)), [cast.count for cast in casts]), np.int32),
        "owner": put(owner),
        "keys": put(_keys(casts, Purpose.NOISE)),
        "about": first.kept["about"],
        "z": put(z, np.float32),
        "x": xp.empty((m, R), np.float32),
        "sum": put(total, np.float32),
        "u": xp.empty((outputs, N, R), np.float32),
        "g": xp.empty((m, R), np.float32),
    }
    if marked:
        arrays["marks"] = xp.zeros((at_once, len(casts), N), np.uint8)
    given = filled("Means", stop - start + 1)
    given["n"], given["m"], given["outputs"] = shards.n, m, outputs
    given["rows"], given["runs"], given["casts"] = N, R, len(casts)
    given["t"], given["at"] = np.arange(start, stop + 1), np.arange(stop - start + 1)
    given["last"][-1] = 1
    boxed = any(np.any(np.isfinite(cast.model.lo)) or np.any(np.isfinite(cast.model.hi)) for cast in casts)
    soft = any(np.any(cast.model.phi > 0) for cast in casts)
    given["linear"], given["boxed"], given["descent"] = model.descent or not (boxed or soft), boxed, model.descent
    given["softmax"] = problem.loss.name == SOFTMAX.name
    given["loss"] = -1 if given["softmax"][0] else code_of(problem.loss.name)
    given["marked"], given["parameter"] = marked, model.parameter
    for name, values in arrays.items():
        given[name] = address(values)
    if marked:
        given["marks"] += (given["at"] % at_once * len(casts) * N).astype(np.uint64)
    told = put(given.view(np.uint8).reshape(len(given), -1))
    options = {"PER": 1, "MOST": 512}
    blocks_m, blocks_u = (max(1, min(1 << 16, -(-size // WIDE))) for size in (m * R, N * R))
    machine.launch("mean_start", blocks_m, WIDE, 0, told[0], options)
    x, u, g = arrays["x"].reshape(outputs, -1, R), arrays["u"], arrays["g"].reshape(outputs, -1, R)
    for k in range(stop - start + 1):
        if marked and k % at_once == 0:
            arrays["marks"][...] = 0
            _mark(machine, casts, arrays["marks"], start + k, min(at_once, stop - start + 1 - k), options)
        for o in range(outputs):
            xp.matmul(X, x[o], out=u[o])
        machine.launch("mean_slopes", blocks_u, WIDE, 0, told[k], options)
        for o in range(outputs):
            xp.matmul(X.T, u[o], out=g[o])
        machine.launch("mean_speak", blocks_m, WIDE, 0, told[k], options)
    machine.wait()
    return machine.get(arrays["z"]).astype(np.float64), machine.get(arrays["sum"]).astype(np.float64)


def _mark(machine: Machine, casts: Sequence[Cast], marks: Any, first: int, rounds: int, options: Any) -> None:
    """The rows that these rounds use."""
    cast, shards = casts[0], casts[0].problem.shards
    given = filled("Marks")
    given["rounds"], given["first"], given["casts"] = rounds, first, len(casts)
    given["nodes"], given["rows"], given["sampler"] = shards.n, marks.shape[2], cast.noise.sampler
    keys = machine.put(_keys(casts, Purpose.RECORDS))
    arrays = {"keys": keys, "marks": marks, **{n: cast.kept[n] for n in ("offsets", "batch", "gap_scale")}}
    if "order" in cast.kept:
        arrays["order"] = cast.kept["order"]
    for name, values in arrays.items():
        given[name] = machine.address(values)
    blocks = max(1, min(1 << 16, -(-rounds * len(casts) * shards.n // 64)))
    machine.launch("mark", blocks, 64, 0, machine.put(given.view(np.uint8)), options)


def _keys(casts: Sequence[Cast], purpose: Purpose) -> Any:
    words = {Purpose.NOISE: "noise_key", Purpose.RECORDS: "records_key"}[purpose]
    return np.concatenate([getattr(cast.noise, words) for cast in casts]).astype(np.uint64)


def _columns(casts: Sequence[Cast], names: Sequence[str]) -> Array:
    """Numbers of every run, a row each."""
    return np.stack([np.concatenate([getattr(cast.model, name) for cast in casts]) for name in names], axis=1)


def _numbers(casts: Sequence[Cast], start: int, stop: int) -> Any:
    """Those of eq. (6) in every round, for every run."""
    found = filled("Numbers", (stop - start + 1) * sum(cast.count for cast in casts)).reshape(stop - start + 1, -1)
    at, column = slice(start - 1, stop), 0
    for cast in casts:
        steps, model = cast.steps, cast.model
        descent = isinstance(cast.method, Descent)
        for r in range(cast.count):
            q, mine = int(steps.which[r]), found[:, column]
            s, gamma = steps.s[q, at], steps.gamma[q, at]
            mine["scale"] = -1.0 if descent else 1.0 / (s * model.mu[r] + gamma)
            mine["threshold"] = 0.0 if descent else s * model.phi[r]
            mine["weight"] = np.diff(steps.A[q, start - 1 : stop + 1])
            mine["push"] = steps.push[q, at]
            column += 1
    return found.view(np.float32)
