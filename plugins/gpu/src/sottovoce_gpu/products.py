"""Everybody with batches, where each round ends with the mean of all messages: matrix products over all runs.

Then all nodes have the same z, and a round of all runs is two products with the records, X x and Xᵀs, and two kernels
between them: slopes with clips and masks, and the mean message with everybody's noise. Runs of different seeds go
together; only their marks, their noise and whose each record is are their own. Noise that pairs share is gone from the
mean. Runs on what public maps make of the same records, x ↦ s ∘ (x − c), share the products too: a map goes into the
model before the first and into the pull after the second.
"""

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np

from sottovoce import matrices
from sottovoce._types import Array
from sottovoce.algorithm.descent import Descent
from sottovoce.algorithm.method import State
from sottovoce.engine.job import Job
from sottovoce.problem.losses import SOFTMAX
from sottovoce.problem.shards import Shards
from sottovoce.streams import Purpose
from sottovoce_gpu.layout import FLAT, FULL, Layout
from sottovoce_gpu.machine import SHORT, Machine
from sottovoce_gpu.rounds import Cast, groups_of, records_of
from sottovoce_gpu.source import code_of, filled

SHARE = 32
"""Of so many rows one must be used in a round: products take all of them."""
DENSE = 1 << 32
"""Bytes of CSR rows that are laid out in full."""
MARKED = 1 << 32, 1 / 16
"""Bytes of marks that are made at a time, and the share of what is free: a thread marks all that a node draws for a
round, sequentially, so that many rounds take no longer than few."""
WIDE = 256


_fitting: "WeakKeyDictionary[Job, bool]" = WeakKeyDictionary()


def fits(job: Job) -> bool:
    """Whether all rounds end with the mean of all, in a job that uses enough of its records."""
    if job not in _fitting:  # a run is cut into many calls
        _fitting[job] = _fits(job)
    return _fitting[job]


def _fits(job: Job) -> bool:
    shards, schedule = job.problem.shards, job.schedule
    used = sum(job.release.sampling.batch(int(q)) for q in shards.sizes)
    everybody = len(schedule.active) == shards.n * schedule.T and schedule.speakers in (0, shards.n)
    return (
        everybody
        and not shards.people
        and used * SHARE >= len(shards.y)
        and (not matrices.is_sparse(shards.X) or 4 * shards.X.shape[0] * shards.X.shape[1] <= DENSE)
        and not (isinstance(job.method, Descent) and job.method.combine_first)
        and all(np.ptp(schedule.mixtures[p]) <= FLAT for p in np.unique(schedule.pattern).tolist())
    )


def same_state(states: Sequence[State]) -> bool:
    """Whether the nodes of each run stand where all the others do."""
    return all(bool(np.all(v == v[0])) for state in states for v in (state.z, state.total, state.since))


_wide: dict[str, tuple[Any, float, Any]] = {}


def _laid_out(machine: Machine, shards: Shards) -> Any:
    """(rows, features and intercept) in float32, of CSR rows too."""
    records = records_of(machine, shards)
    kept = _wide.get("last")
    if kept is not None and kept[0] is records and kept[1] == shards.intercept:
        return kept[2]
    X, xp = records.X, machine.xp
    if records.sparse:
        X = xp.zeros((len(shards.y), records.features), np.float32)
        at = machine.put(np.repeat(np.arange(len(shards.y)), np.diff(shards.X.indptr)))
        X[at, records.indices] = records.values
    if shards.m > records.features:
        X = xp.concatenate([X, xp.full((len(X), 1), shards.intercept, np.float32)], axis=1)
    _wide["last"] = records, shards.intercept, X
    return X


def run_products(machine: Machine, jobs: Sequence[Job], states: Sequence[State], start: int, stop: int) -> list[State]:
    """Rounds start … stop of jobs that fit, from states that are the same."""
    groups = groups_of(jobs)
    order = [place for group in groups for place in group]
    with machine.working():
        casts = [_cast(machine, [jobs[place] for place in group]) for group in groups]
        begin = [np.stack([values[0] for values in some], axis=1) for some in _each(states, order)]
        ends = _go(machine, casts, begin[0], begin[1], start, stop)
    found = {}
    for r, place in enumerate(order):
        state = states[place]
        z, total = (np.broadcast_to(values[r], state.z.shape) for values in ends)
        found[place] = State(z, total, np.full_like(state.since, stop + 1), state.memory.copy())
    return [found[place] for place in range(len(jobs))]


_casts: "WeakKeyDictionary[Job, tuple[int, tuple[Any, ...], Cast]]" = WeakKeyDictionary()


def _cast(machine: Machine, jobs: Sequence[Job]) -> Cast:
    """As `rounds.cast_of`, with nothing on the machine: records are the same for all casts."""
    known = _casts.get(jobs[0])
    if known is not None and known[0] == id(machine) and [r() for r in known[1]] == list(jobs):
        return known[2]
    flat = Layout.of(jobs)
    noise = flat.noise
    kept = {"loud": noise.scale * noise.sigma, "share": noise.scale / noise.batch}
    found = Cast.of(jobs, flat, kept)
    _casts[jobs[0]] = id(machine), tuple(ref(job) for job in jobs), found
    return found


def _each(states: Sequence[State], order: Sequence[int]) -> tuple[list[Array], list[Array]]:
    return [states[place].z for place in order], [states[place].total for place in order]


def _arrays(
    machine: Machine, casts: Sequence[Cast], states: tuple[Array, Array], rounds: tuple[int, int], owner: Any
) -> dict[str, Any]:
    """Everything that the kernels of a round read and write, on the machine."""
    (z, total), (start, stop), xp, put = states, rounds, machine.xp, machine.put
    shards, outputs = casts[0].problem.shards, casts[0].problem.outputs
    (m, R), N = z.shape, len(shards.y)
    about = filled("About", N)
    about["y"], about["norm"] = shards.y, shards.norms
    about["weight"] = 1.0 if shards.weights is None else shards.weights
    return {
        "numbers": put(_numbers(casts, start, stop)),
        "h": put(_columns(casts, ("phi", "mu", "lo", "hi")), np.float32),
        "clip": put(_columns(casts, ("clip",)), np.float32),
        "loud": put(np.concatenate([cast.kept["loud"] for cast in casts]), np.float32),
        "share": put(np.concatenate([cast.kept["share"] for cast in casts]), np.float32),
        "cast": put(np.repeat(np.arange(len(casts)), [cast.count for cast in casts]), np.int32),
        "owner": owner,
        "keys": put(_keys(casts, Purpose.NOISE)),
        "about": put(about.view(np.float32)),
        "z": put(z, np.float32),
        "x": xp.empty((m, R), np.float32),
        "sum": put(total, np.float32),
        "u": xp.empty((outputs, N, R), np.float32),
        "g": xp.empty((m, R), np.float32),
    }


def _go(machine: Machine, casts: Sequence[Cast], z: Array, total: Array, start: int, stop: int) -> tuple[Array, Array]:
    """Everybody's z and running sum after round `stop`, from those before `start`; (m, runs) each."""
    xp, put, address = machine.xp, machine.put, machine.address
    first, R = casts[0], z.shape[1]
    problem, model, noise = first.problem, first.model, first.noise
    shards, outputs = problem.shards, problem.outputs
    X = _laid_out(machine, shards)
    m, N = len(z), len(X)
    owner = _owners(machine, casts, N)
    marked = noise.sampler != FULL
    most = min(MARKED[0], int(MARKED[1] * machine.room_left()))
    at_once = max(1, min(stop - start + 1, most // (len(casts) * N))) if marked else stop - start + 1
    arrays = _arrays(machine, casts, (z, total), (start, stop), owner)
    order = put(_orders(casts), np.int64) if marked else None
    if marked:
        arrays["marks"] = xp.zeros((at_once, len(casts), N), np.uint8)
    given = filled("Means", stop - start + 1)
    given["dealings"] = owner.shape[1]
    ones = None
    if first.mapped[0] is not None:
        arrays |= _maps(machine, casts, shards)
        given["mapped"], given["reach"] = 1, first.mapped[0].reach
        if shards.intercept and float(arrays["lengths"].max()) > first.mapped[0].reach:
            ones = xp.ones((1, N), np.float32)
            arrays |= {"rest": xp.zeros_like(arrays["u"]), "kept": xp.zeros((outputs, 1, R), np.float32)}
    given["features"], given["intercept"] = shards.X.shape[1], shards.intercept
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
    blocks = put(given.view(np.uint8).reshape(len(given), -1))
    options = SHORT
    blocks_m, blocks_u = (max(1, min(1 << 16, -(-size // WIDE))) for size in (m * R, N * R))
    machine.launch("mean_start", blocks_m, WIDE, 0, blocks[0], options)
    x, u, g = arrays["x"].reshape(outputs, -1, R), arrays["u"], arrays["g"].reshape(outputs, -1, R)
    off = xp.empty((outputs, *arrays["centre"].shape), np.float32) if "centre" in arrays else None
    for k in range(stop - start + 1):
        if marked and k % at_once == 0:
            arrays["marks"][...] = 0
            _mark(machine, casts, arrays["marks"], order, start + k, min(at_once, stop - start + 1 - k), options)
        for o in range(outputs):
            xp.matmul(X, x[o], out=u[o])
        if "centre" in arrays:
            xp.multiply(arrays["centre"], x[:, : len(arrays["centre"])], out=off)
            xp.sum(off, axis=1, out=arrays["offset"])
        machine.launch("mean_slopes", blocks_u, WIDE, 0, blocks[k], options)
        for o in range(outputs):
            xp.matmul(X.T, u[o], out=g[o])
            if ones is not None:
                xp.matmul(ones, arrays["rest"][o], out=arrays["kept"][o])
        machine.launch("mean_speak", blocks_m, WIDE, 0, blocks[k], options)
    machine.wait()
    z, total = (machine.get(xp.ascontiguousarray(arrays[name].T)).astype(np.float64) for name in ("z", "sum"))
    return z, total


_owner_cache: dict[str, tuple[int, list[Any], Any]] = {}


def _owners(machine: Machine, casts: Sequence[Cast], N: int) -> Any:
    """Whose each row is, -1 for nobody's: (rows, 1), or (rows, casts) where they were partitioned differently."""
    partitions = [cast.problem.shards for cast in casts]
    places = [(shards.order, shards.offsets) for shards in partitions]
    kept = _owner_cache.get("last")  # runs on the same data come sequentially
    if kept is not None and kept[0] == id(machine) and len(kept[1]) == len(places):
        if all(a is c and np.array_equal(b, d) for (a, b), (c, d) in zip(kept[1], places, strict=True)):
            return kept[2]
    found: dict[int, Any] = {}
    for shards in partitions:
        if id(shards.order) not in found:
            mine = found[id(shards.order)] = np.full(N, -1, np.int32)
            mine[slice(None) if shards.order is None else shards.order] = np.repeat(np.arange(shards.n), shards.sizes)
    each = list(found.values())
    if all(np.array_equal(one, each[0]) for one in each[1:]):
        owner = each[0][:, None]
    else:
        owner = np.stack([found[id(shards.order)] for shards in partitions], axis=1)
    _owner_cache["last"] = id(machine), places, machine.put(owner)
    return _owner_cache["last"][2]


ENTRIES = 1 << 26
"""Numbers of rows that are squared at a time."""


def _maps(machine: Machine, casts: Sequence[Cast], shards: Shards) -> dict[str, Any]:
    """The maps of all runs, and how long they make each row: ‖s ∘ (x − c)‖² = Σ s²x² − 2 Σ s²cx + Σ s²c²."""
    xp = machine.xp
    maps = [each for cast in casts for each in cast.mapped if each is not None]
    centered = any(each.center is not None for each in maps)
    scale = np.stack([each.scale for each in maps], axis=1)
    center = np.stack([np.zeros(len(scale)) if each.center is None else each.center for each in maps], axis=1)
    X, squares = _laid_out(machine, shards), machine.put(np.square(scale), np.float64)
    crossed = machine.put(2.0 * np.square(scale) * center, np.float64)
    always = machine.put(np.sum(np.square(scale * center), axis=0), np.float64)
    lengths = xp.empty((len(X), len(maps)), np.float32)
    step = max(1, ENTRIES // len(scale))
    for first in range(0, len(X), step):
        some = X[first : first + step, : len(scale)].astype(np.float64)
        found = xp.square(some) @ squares
        if centered:
            found += always - some @ crossed
        lengths[first : first + step] = xp.sqrt(xp.maximum(found, 0.0))
    arrays = {"scale": machine.put(scale, np.float32), "lengths": lengths}
    if centered:
        arrays["centre"] = machine.put(center, np.float32)
        arrays["offset"] = xp.zeros((casts[0].problem.outputs, len(maps)), np.float32)
    return arrays


def _orders(casts: Sequence[Cast]) -> Any:
    """The row at each place, (1, places), or (casts, places) where they were partitioned differently."""
    each = [(cast.problem.shards.order, len(cast.problem.shards.y)) for cast in casts]
    one = all(order is each[0][0] for order, _ in each)
    return np.stack([np.arange(N) if order is None else order for order, N in (each[:1] if one else each)])


def _mark(
    machine: Machine, casts: Sequence[Cast], marks: Any, order: Any, first: int, rounds: int, options: Any
) -> None:
    """The rows that these rounds use."""
    cast, shards = casts[0], casts[0].problem.shards
    given = filled("Marks")
    given["rounds"], given["first"], given["casts"] = rounds, first, len(casts)
    given["nodes"], given["rows"], given["sampler"] = shards.n, marks.shape[2], cast.noise.sampler
    given["order_width"] = order.shape[1] if len(order) > 1 else 0
    arrays = {
        "keys": machine.put(_keys(casts, Purpose.RECORDS)),
        "marks": marks,
        "offsets": machine.put(shards.offsets, np.int64),
        "batch": machine.put(cast.noise.batch, np.int64),
        "gap_scale": machine.put(cast.noise.gap_scale, np.float64),
        "order": order,
    }
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
