"""Rounds of many runs on a machine, each in a thread block of its own: edges, matchings, and whatever else is active.

Before the rounds, what they draw is fetched, one thread a place (a node in a round): which records, which keys of
noise, which numbers of eq. (6). Then one block a run goes through all of its turns, with z on the chip where it fits.
A turn is those of a round's nodes that hear each other. Runs of different seeds go together in one launch; those that
share their draws share what was fetched.
"""

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from typing import cast as typed
from weakref import WeakKeyDictionary, ref

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from sottovoce import matrices
from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import Method, State
from sottovoce.engine.job import Job
from sottovoce.privacy.release import Draws
from sottovoce.problem.objective import Problem
from sottovoce.problem.shards import Shards
from sottovoce.streams import Purpose
from sottovoce_gpu.all_nodes import STAGE_NODES, run_all_nodes
from sottovoce_gpu.blocked_csr import run_spans, suits, teams_of
from sottovoce_gpu.clusters import MIXED, run_clusters, with_self
from sottovoce_gpu.layout import CYCLIC, FIXED, FULL, POISSON, Layout, Model, Noise, Plan, Steps
from sottovoce_gpu.machine import SHORT, Machine
from sottovoce_gpu.source import code_of, filled, joined, struct

DRAW_THREADS = 256
"""Threads of a block that examines things up."""
ROOM = 32
"""So much of the room that is left, one part of as many, may be taken by what is fetched at a time."""
PLACES = 1 << 16
"""Places of a launch, at the most, where runs are on the chip: about a tenth of a second."""
AHEAD = 4
"""Turns by which the kernel requests ahead of time."""
TAIL = 8
"""So many times as many places as there are nodes are examined first, to see when each last was active."""
TABLES = ("push", "gamma", "s", "A", "P", "Q")


class Records(NamedTuple):
    """Rows on a machine, in float32; the arrays of the other storage are empty."""

    sparse: bool
    features: int
    X: Any
    values: Any
    indices: Any
    indptr: Any


class Stack:
    """Arrays of many runs in one, on their machine; brought here when someone examines one of them.

    What they are made of in another stream of the thread must live until then: its room would be given to others.
    """

    def __init__(self, machine: Machine, values: Any, made_of: Any = None, identical: bool = False) -> None:
        self.machine, self.values, self.made, self._made_of = machine, values, machine.mark(), made_of
        self.identical = identical
        """Whether all nodes of each run are known to have the same."""

    @cached_property
    def here(self) -> Any:
        """A copy in memory of the host."""
        with self.machine.reading():
            self.machine.until(self.made)
            found = self.machine.get(self.values)
        self._made_of = None
        return found


class Held(NDArrayOperatorsMixin):
    """An array of numbers that stays on its machine until someone examines it: to NumPy it is what it holds."""

    def __init__(self, stack: Stack, at: Any = ...) -> None:
        self.stack, self.at = stack, at
        self.shape: tuple[int, ...] = stack.values.shape[0 if at is ... else 1 :]
        self.ndim, self.size = len(self.shape), math.prod(self.shape)

    @cached_property
    def _here(self) -> Array:
        return np.asarray(self.stack.here[self.at], np.float64)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """In float64, as all engines give their states."""
        return self._here.astype(dtype or np.float64, copy=bool(copy))

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **named: Any) -> Any:
        """Of what it holds."""
        return getattr(ufunc, method)(*(g._here if isinstance(g, Held) else g for g in given), **named)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, at: Any) -> Any:
        return self._here[at]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._here, name)


def stacked(machine: Machine, arrays: Sequence[Any]) -> Any:
    """A copy of all of them in float32, on the machine."""
    if all(isinstance(a, Held) and a.stack.machine is machine for a in arrays):
        for made in {id(a.stack): a.stack.made for a in arrays}.values():
            machine.after(made)
        whole = arrays[0].stack
        if len(whole.values) == len(arrays) and all(a.stack is whole and a.at == r for r, a in enumerate(arrays)):
            return whole.values.copy()
        return machine.xp.stack([a.stack.values[a.at] for a in arrays])
    found = machine.xp.zeros((len(arrays), *arrays[0].shape), np.float32)
    for values in {id(a): a for a in arrays}.values():
        if np.asarray(values).any():  # most runs begin with nothing, and large states take long to bring
            found[[a is values for a in arrays]] = machine.put(values, np.float32)
    return found


def _are_identical(arrays: Sequence[Any]) -> bool:
    """Whether all nodes of each run are known to have the same; what lies on a machine is not examined."""
    return all(
        a.stack.identical if isinstance(a, Held) else bool((a == a[:1]).all())
        for a in {id(a): a for a in arrays}.values()
    )


_records: dict[tuple[int, int], tuple[Any, Records]] = {}
_bringing = threading.Lock()


def records_of(machine: Machine, shards: Shards) -> Records:
    """The rows of these shards, brought to the machine once and left there as long as they live here."""
    place = id(machine), id(shards.reading)
    with _bringing:
        if place not in _records or _records[place][0]() is not shards.reading:
            with machine.reading():
                _records[place] = ref(shards.reading, lambda _: _records.pop(place, None)), _brought(machine, shards.X)
        return _records[place][1]


def _brought(machine: Machine, X: Any) -> Records:
    none = machine.put(np.empty(0, np.float32))
    if matrices.is_sparse(X):
        kinds = ((X.data, np.float32), (X.indices, np.int32), (X.indptr, np.int64))
        found = Records(True, X.shape[1], none, *(machine.put(values, kind) for values, kind in kinds))
    else:
        found = Records(False, X.shape[1], machine.put(X, np.float32), none, none, none)
    machine.wait()  # other threads will use them
    return found


_known: "WeakKeyDictionary[Any, dict[tuple[int, str], Any]]" = WeakKeyDictionary()


def shared(machine: Machine, of: Any, what: str, make: Callable[[], Any]) -> Any:
    """What is made of an object and put on the machine: once, for all who ask, as long as the object lives."""
    with _bringing:
        mine = _known.setdefault(of, {})
        if (id(machine), what) not in mine:
            with machine.reading():  # which waits for no round that the thread has requested
                mine[id(machine), what] = make()
                machine.wait()
        return mine[id(machine), what]


@dataclass(eq=False)
class Cast:
    """Jobs that share schedule and draws, laid out; and what of it lies on the machine."""

    count: int
    problem: Problem
    method: Method
    """Of the first job."""
    mapped: list[Any]
    """The map of each job's records, where they are to be mapped."""
    plan: Plan
    model: Model
    steps: Steps
    noise: Noise
    kept: dict[str, Any]
    draws: "FetchedDraws | None" = None
    """What the rounds draw, as far as it was fetched last."""

    @cached_property
    def boxed(self) -> bool:
        """Whether x is kept within bounds in any run."""
        return bool(np.any(np.isfinite(self.model.lo)) or np.any(np.isfinite(self.model.hi)))

    @cached_property
    def linear(self) -> bool:
        """Whether x(z) is a multiple of z in all runs."""
        return self.model.descent or not (np.any(self.model.phi > 0) or self.boxed)

    @classmethod
    def of(cls, jobs: Sequence[Job], flat: Layout, kept: dict[str, Any]) -> "Cast":
        """Of these jobs, which it does not hold: what is known of them goes when they do."""
        mapped = [job.mapped for job in jobs]
        return cls(
            len(jobs), jobs[0].problem, jobs[0].method, mapped, flat.plan, flat.model, flat.steps, flat.noise, kept
        )


_casts: "WeakKeyDictionary[Job, tuple[int, tuple[Any, ...], Cast]]" = WeakKeyDictionary()


def cast_of(machine: Machine, jobs: Sequence[Job]) -> Cast:
    """Laid out, or from the last time: a run is cut into many calls."""
    known = _casts.get(jobs[0])
    if known is not None and known[0] == id(machine) and [r() for r in known[1]] == list(jobs):
        return known[2]
    flat = Layout.of(jobs)
    plan, steps, noise = flat.plan, flat.steps, flat.noise
    shards, put = jobs[0].problem.shards, machine.put
    kept = {
        "about": shared(machine, shards, "about", lambda: put(_about(shards).view(np.float32))),
        "weights": put(plan.weights, np.float32),
        "offsets": put(shards.offsets, np.int64),
        "batch": put(noise.batch, np.int64),
        "gap_scale": put(noise.gap_scale, np.float64),
        "loud": put(noise.scale * noise.sigma, np.float32),
        "share": put(noise.scale / noise.batch, np.float32),
    }
    for q, r in enumerate(np.unique(steps.which, return_index=True)[1].tolist()):
        for name in TABLES:
            kept.setdefault(name, []).append(_table(machine, jobs[r].method, name, getattr(steps, name)[q]))
    if shards.order is not None:
        kept["order"] = shared(machine, shards, "order", lambda: put(shards.order, np.int64))
    if _some_take_all(noise, shards.sizes):
        rows_of_all = np.arange(len(shards.y)) if shards.order is None else shards.order
        kept["rows"] = shared(machine, shards, "rows", lambda: put(rows_of_all, np.int32))
    found = Cast.of(jobs, flat, kept)
    _casts[jobs[0]] = id(machine), tuple(ref(job) for job in jobs), found
    return found


def _table(machine: Machine, method: Method, name: str, values: Array) -> Any:
    """A sequence of a method, which runs of many seeds share; and one number more, brought to the chip and not used."""
    return shared(machine, method, name, lambda: machine.put(np.append(values, values[-1]), np.float64))


def _about(shards: Shards) -> Any:
    """Target, length and weight of every row."""
    about = filled("About", len(shards.y))
    about["y"], about["norm"] = shards.y, shards.norms
    about["weight"] = 1.0 if shards.weights is None else shards.weights
    return about


def _some_take_all(noise: Noise, sizes: IntArray) -> bool:
    return noise.sampler == FULL or (noise.sampler == POISSON and bool(np.any(noise.batch == sizes)))


def groups_of(jobs: Sequence[Job]) -> list[list[int]]:
    """Places of jobs that share their draws, together."""
    found: dict[Any, list[int]] = {}
    keys: dict[int, list[int]] = {}
    for place, job in enumerate(jobs):
        assert isinstance(job.draws, Draws)
        streams = job.draws.streams
        if id(streams) not in keys:
            keys[id(streams)] = [int(word[0]) for purpose in Purpose for word in streams.key(purpose)]
        found.setdefault((id(job.schedule), *keys[id(streams)]), []).append(place)
    return list(found.values())


def run_rounds(machine: Machine, jobs: Sequence[Job], states: Sequence[State], start: int, stop: int) -> list[State]:
    """Rounds start … stop of jobs on the same data that are the same but for numbers and seeds.

    Nothing is waited for: the states lie on the machine, and will be what they are to be.
    """
    groups = groups_of(jobs)
    order = [place for group in groups for place in group]
    since = [states[group[0]].since.astype(np.int64) for group in groups]
    with machine.working():
        records = records_of(machine, jobs[0].problem.shards)
        casts = [cast_of(machine, [jobs[place] for place in group]) for group in groups]
        z = stacked(machine, [states[place].z for place in order])
        total = stacked(machine, [states[place].total for place in order])
        all_nodes = _all_with_all(records, casts, since) and _are_identical([a for s in states for a in (s.z, s.total)])
        first = start
        while first <= stop:
            last = _fetch_draws(machine, records, casts, since, first, stop)
            if not records.sparse:  # short launches: others wait for a place on the device
                last = min(last, first - 1 + max(1, int(PLACES / _active(casts))))
            all_nodes = _go(machine, records, casts, z, total, first, last, all_nodes)
            since = [left(cast.plan, each, first, last) for cast, each in zip(casts, since, strict=True)]
            first = last + 1
        ends = Stack(machine, z, identical=all_nodes), Stack(machine, total, identical=all_nodes)
    whose = [k for k, group in enumerate(groups) for _ in group]
    found = {
        place: State(
            typed("Array", Held(ends[0], r)),
            typed("Array", Held(ends[1], r)),
            since[whose[r]].copy(),
            states[place].memory.copy(),
        )
        for r, place in enumerate(order)
    }
    return [found[place] for place in range(len(jobs))]


def averages(machine: Machine, jobs: Sequence[Job], states: Sequence[State], t: int) -> tuple[Array, Array] | None:
    """(mean model over the nodes, their mean distance from it) of each run, from states after round t.

    Nothing is waited for. None where the states do not lie on the machine, or a method has nothing to average yet.
    """
    if not all(isinstance(state.z, Held) for state in states):
        return None
    groups = groups_of(jobs)
    order = [place for group in groups for place in group]
    with machine.working():
        casts = [cast_of(machine, [jobs[place] for place in group]) for group in groups]
        if any(cast.steps.A[q, t] == 0 for cast in casts for q in cast.steps.which):
            return None
        z = stacked(machine, [states[place].z for place in order])
        total = stacked(machine, [states[place].total for place in order])
        records = records_of(machine, jobs[0].problem.shards)
        linear = all(cast.linear for cast in casts)
        runs = filled("Run", len(order))
        since = np.concatenate([states[group[0]].since for group in groups])
        places = filled("Place", len(since))
        places["node"], places["t"] = np.tile(np.arange(z.shape[1]), len(casts)), t
        places["before"] = np.minimum(since - 1, t)
        there = machine.put(places.view(np.uint8))
        variants: dict[tuple[Any, ...], Any] = {}
        ends = np.cumsum([cast.count for cast in casts])
        for k, (cast, end) in enumerate(zip(casts, ends.tolist(), strict=True)):
            mine, at = runs[end - cast.count : end], k * z.shape[1]
            _numbered(machine, mine, records, cast, there, len(places), linear, variants, at)
        runs["z"], runs["total"] = _each(machine, z), _each(machine, total)
        for name, value in _options(records, casts, 1, DRAW_THREADS).items():
            if name.lower() in (runs.dtype.names or ()):
                runs[name.lower()] = value
        out = machine.xp.empty(z.shape, np.float32)
        given, _ = with_self(machine, runs)
        averages_ = filled("Averages")
        averages_["runs"], averages_["t"] = len(runs), t
        averages_["all"], averages_["out"] = machine.address(given), machine.address(out)
        blocks = len(runs) * max(1, min(64, z[0].size // DRAW_THREADS))
        machine.launch("averages", blocks, DRAW_THREADS, 0, machine.put(averages_.view(np.uint8)), SHORT)
        models = Stack(machine, out)
    with machine.beside():  # the next rounds need not wait
        machine.after(models.made)
        means = out.mean(axis=1, dtype=np.float64)
        apart = machine.xp.sqrt(machine.xp.square(out - means[:, None]).sum(axis=2)).mean(axis=1)
        if order != list(range(len(order))):
            back = machine.put(np.argsort(order))
            means, apart = means[back], apart[back]
        found = (Held(Stack(machine, values, models)) for values in (means, apart))
        return typed("tuple[Array, Array]", tuple(found))


def _each(machine: Machine, values: Any) -> Any:
    """The addresses of its rows."""
    at = np.arange(len(values), dtype=np.uint64) * np.uint64(values[0].nbytes)
    return np.uint64(machine.address(values)) + at


def left(plan: Plan, since: IntArray, first: int, last: int) -> IntArray:
    """`since` after rounds first … last: of nodes that were active, the round after the last one in which they were."""
    begin, end = int(plan.starts[first - 1]), int(plan.starts[last])
    found, size = since.copy(), TAIL * len(since)
    while True:
        at = max(begin, end - size)
        now = np.zeros(len(since), np.int64)
        now[plan.active[at:end]] = 1 + np.searchsorted(plan.starts, np.arange(at, end), side="right")
        if at == begin or now.all():
            return np.where(now > 0, now, found)
        size *= TAIL


def _fetch_draws(
    machine: Machine,
    records: Records,
    casts: Sequence[Cast],
    since: Sequence[IntArray],
    first: int,
    stop: int,
) -> int:
    """See to it that what rounds first … draw is fetched, of all casts; gives the last round to go to."""
    linear = all(cast.linear for cast in casts)
    for cast, mine in zip(casts, since, strict=True):
        known = cast.draws
        if known is None or known.linear != linear or not _continues(cast.plan, known, mine, first):
            last = min(min(c.plan.starts.size - 1, c.steps.push.shape[1]) for c in casts)
            last = min(last, first - 1 + _rounds_at_once(machine, casts))
            for each, own in zip(casts, since, strict=True):
                each.draws = None  # its room first
                each.draws = _draw(machine, records, each, own, first, last, linear)
            break
    return min(stop, *(cast.draws.last for cast in casts if cast.draws is not None))


def _continues(plan: Plan, known: "FetchedDraws", since: IntArray, first: int) -> bool:
    """Whether nodes stand where what was fetched has them before this round."""
    if not known.first <= first <= known.last:
        return False
    before = known.since if first == known.first else left(plan, known.since, known.first, first - 1)
    return bool(np.array_equal(before, since))


def _active(casts: Sequence[Cast]) -> float:
    """Nodes of a round, on average, in the cast that has most."""
    return max(1.0, *(float(cast.plan.starts[-1] / max(1, len(cast.plan.starts) - 1)) for cast in casts))


def _rounds_at_once(machine: Machine, casts: Sequence[Cast]) -> int:
    """So many that there is room for what is fetched."""
    bytes_of_round = 0.0
    for cast in casts:
        width = 0 if cast.noise.sampler == FULL else int(cast.noise.batch.max())
        variants = len({*zip(cast.steps.which.tolist(), cast.model.phi.tolist(), cast.model.mu.tolist(), strict=True)})
        bytes_of_round += _active([cast]) * (80 + 4 * width + 48 * variants)
    return max(1, int(machine.room_left() / ROOM / bytes_of_round))


def _go(
    machine: Machine,
    records: Records,
    casts: Sequence[Cast],
    z: Any,
    total: Any,
    first: int,
    last: int,
    all_nodes: bool,
) -> bool:
    """Rounds first … last of all casts in one launch; z and total are updated in place.

    `all_nodes` is whether all nodes are at the same point, and will: it gives whether they still do.
    """
    _, n, m = z.shape
    fetched = _fetched(machine, records, m)
    threads, per = _shape(machine, m) if fetched else (max(1, min(machine.threads, _up((m + 1) // 2, 32))), 2)
    wide = 2 * per * threads if fetched else m  # of a row on the chip
    options = _options(records, casts, per, threads)
    room = _beside(n, -(-threads // machine.lanes))
    options["FETCHED"], options["ON_CHIP"] = int(fetched), int(room + 4 * n * wide <= machine.room)
    if fetched:
        options |= {"COORDINATES": m, "FEATURES": records.features}
    room += 4 * n * wide * options["ON_CHIP"]
    all_draws = [cast.draws for cast in casts if cast.draws is not None]
    runs = joined([draws.runs for draws in all_draws])
    ends = [[draws.turns_before(t) for t in (first, last + 1)] for draws in all_draws]
    whose = np.repeat(np.arange(len(casts)), [cast.count for cast in casts])
    runs["turns_first"], runs["turns_last"] = np.array(ends)[whose].T
    for name, value in options.items():
        if name.lower() in (runs.dtype.names or ()):
            runs[name.lower()] = value
    pulls = machine.xp.empty((len(z), max(draws.most for draws in all_draws)), np.float32)
    said = machine.xp.empty((len(z), max(draws.widest for draws in all_draws), m), np.float32)
    for name, values in {"z": z, "total": total, "pulls": pulls, "said": said}.items():
        runs[name] = _each(machine, values) if values.size else 0
    mine = [runs[whose == k] for k in range(len(casts))]
    teams = [c for r, draws in zip(mine, all_draws, strict=True) for c in teams_of(r, draws.turns, draws.places)]
    if all_nodes and fetched and run_all_nodes(machine, teams, options):
        return True
    widest = max(float(_sizes(cast).max()) for cast in casts)
    if not records.sparse and _one_each(casts) and widest <= MIXED:
        sizes = {"UPTO": 2 if widest <= 2 else MIXED, "COORDINATES": m, "FEATURES": records.features}
        if all(np.all(cast.plan.flat) for cast in casts):
            sizes["FLAT"] = 1
        if run_clusters(machine, teams, options | sizes):
            return False
    sparse = records.sparse and not options["ON_CHIP"]
    if sparse and suits(options, teams) and run_spans(machine, teams, z, total, records.indptr, options):
        return False
    machine.launch("rounds", len(runs), threads, room, with_self(machine, runs)[0], options, long=True)
    return False


def _options(records: Records, casts: Sequence[Cast], per: int, threads: int) -> dict[str, int]:
    """What the kernel of the rounds is compiled for."""
    model = casts[0].model
    return {
        "SPARSE": int(records.sparse),
        "LINEAR": int(all(cast.linear for cast in casts)),
        "BOXED": int(any(cast.boxed for cast in casts)),
        "FROZEN": int(model.frozen),
        "DESCENT": int(model.descent),
        "AFTER": int(model.after),
        "LOSS": code_of(casts[0].problem.loss.name),
        "ON_CHIP": 0,
        "PER": per,
        "MAX_THREADS": threads,
    }


def _fetched(machine: Machine, records: Records, m: int) -> bool:
    """Whether a thread has registers for its coordinates of a dense row."""
    return not records.sparse and -(-((m + 1) // 2) // machine.threads) <= machine.per


def _numbered(
    machine: Machine,
    runs: Any,
    records: Records,
    cast: Cast,
    places: Any,
    count: int,
    linear: bool,
    variants: dict[tuple[Any, ...], Any],
    at: int = 0,
) -> None:
    """Fill the structs of a cast's runs, and make the numbers of all places, once for all runs that share them.

    What is a run's own, its arrays and turns, and what the kernel is compiled for is left to be filled. The cast's own
    places begin at `at`.
    """
    problem, model, kept, steps = cast.problem, cast.model, cast.kept, cast.steps
    place, slept = struct("Place").itemsize, 0 if linear or model.frozen else struct("Slept").itemsize
    runs["n"], runs["m"], runs["features"] = problem.shards.n, problem.m, records.features
    for name in ("phi", "mu", "lo", "hi", "clip"):
        runs[name] = getattr(model, name)
    runs["parameter"], runs["intercept"] = model.parameter, problem.shards.intercept
    arrays = {"weights": kept["weights"], "about": kept["about"]}
    arrays |= {name: getattr(records, name) for name in ("X", "values", "indices", "indptr")}
    for name, values in arrays.items():
        runs[name] = machine.address(values)
    for name in ("loud", "share"):
        runs[name] = _each(machine, kept[name])
    sets = list(zip(steps.which.tolist(), model.phi.tolist(), model.mu.tolist(), strict=True))
    for q, phi, mu in dict.fromkeys(sets):
        variant = *(id(kept[name][q]) for name in TABLES), phi, mu
        if variant not in variants:
            variants[variant] = _numbers(machine, cast, places, count, (q, phi, mu), linear)
        mine = [one == (q, phi, mu) for one in sets]
        made = {name: kept[name][q] for name in ("A", "P", "Q", "s", "gamma")}
        for name, values in (made | dict(zip(("numbers", "slept"), variants[variant], strict=False))).items():
            runs[name][mine] = machine.address(values)
    runs["places"] = machine.address(places) + at * place
    runs["numbers"] += np.uint64(at * struct("Numbers").itemsize)
    runs["slept"] += np.uint64(at * slept)


def _shape(machine: Machine, m: int) -> tuple[int, int]:
    """(threads, counters of each), so that few threads have fewer than the others."""
    half = (m + 1) // 2
    threads = min(machine.threads, _up(-(-half // -(-half // machine.threads)), 32))
    return threads, max(machine.least, -(-half // threads))


def _one_each(casts: Sequence[Cast]) -> bool:
    """Whether a node has one record, or none, in every round."""
    return all(cast.noise.sampler in (FIXED, CYCLIC) and np.all(cast.noise.batch == 1) for cast in casts)


def _all_with_all(records: Records, casts: Sequence[Cast], since: Sequence[IntArray]) -> bool:
    """Whether every round has everybody with a dense row each, slept as long, and all go where their mean is."""
    if records.sparse or not _one_each(casts) or any(cast.model.after for cast in casts):
        return False
    n = casts[0].problem.shards.n
    plans = [cast.plan for cast in casts]
    whole = all(np.all(plan.flat) and np.all(plan.groups == 1) and plan.speakers >= n for plan in plans)
    return n <= STAGE_NODES and whole and all(np.all(_sizes(c) == n) for c in casts) and not any(map(np.ptp, since))


def _sizes(cast: Cast) -> Any:
    """Of the turns of each pattern: how many nodes."""
    plan = cast.plan
    return np.sqrt(np.diff(np.append(plan.corners, len(plan.weights))) / plan.groups)


def _beside(n: int, warps: int) -> int:
    """Bytes on the chip beside z: the rings, the stage, partial sums of margins, two numbers a node."""
    place, numbers, slept, about, turn = (struct(s).itemsize for s in ("Place", "Numbers", "Slept", "About", "Turn"))
    rings = 8 * (turn + 2 * (place + numbers + slept) + 16)
    stage = STAGE_NODES * (place + numbers + slept + about)
    return _up(struct("Run").itemsize + rings, 16) + _up(stage, 16) + 4 * (STAGE_NODES * warps + _up(2 * n, 4))


def _up(size: int, to: int) -> int:
    return -(-size // to) * to


@dataclass(frozen=True, eq=False)
class FetchedDraws:
    """What rounds first … last of a cast draw, on the machine."""

    first: int
    last: int
    since: IntArray
    """Of the nodes, before the first of them."""
    linear: bool
    """Whether x(z) is a multiple of z in all runs that go together."""
    runs: Any
    """The structs of the cast's runs, but for their own arrays and for which turns."""
    most: int
    """Records of a turn, at the most."""
    widest: int
    """Nodes of a turn whose messages must be written down before they are mixed; 0 where there are none."""
    together: int
    """Turns of a round, where all have as many, else 0."""
    heads: IntArray | None
    """Turns before each round, where they have not."""
    places: Any
    turns: Any
    """Those of all rounds, and some empty ones after the last."""
    alive: Any
    """What else the structs point at."""

    def turns_before(self, t: int) -> int:
        """Of those that were fetched, the ones before round t."""
        return (t - self.first) * self.together if self.heads is None else int(self.heads[t - self.first])


def _draw(
    machine: Machine, records: Records, cast: Cast, since: IntArray, first: int, last: int, linear: bool
) -> FetchedDraws:
    """Records, keys and turns of rounds first … last; of samples of a fixed size without waiting for anything."""
    plan, noise, kept, put = cast.plan, cast.noise, cast.kept, machine.put
    begin, end = int(plan.starts[first - 1]), int(plan.starts[last])
    rounds, count = last - first + 1, end - begin
    sizes = np.diff(plan.starts[first - 1 : last + 1]) if len(plan.groups) > 1 else np.array([count // rounds])
    each = int(sizes[0]) if np.all(sizes == sizes[0]) else 0
    groups = plan.groups[plan.pattern[first - 1 : last]] if np.ptp(plan.groups) else plan.groups[:1]
    together = int(groups[0]) if np.all(groups == groups[0]) else 0
    heads = None if together else np.concatenate([[0], np.cumsum(groups)])
    turns = rounds * together if heads is None else int(heads[-1])

    base = len(kept["rows"]) if "rows" in kept else 0  # nodes that take all have their rows in front
    places = machine.xp.zeros((max(1, count), struct("Place").itemsize), np.uint8)
    arrays = {"active": put(plan.active[begin:end], np.int32), "since": put(since, np.int64)}
    if not each:
        arrays["starts"] = put(plan.starts[first - 1 : last + 1] - begin, np.int32)
    arrays |= {name: kept[name] for name in ("offsets", "batch", "gap_scale")}
    arrays |= {"order": kept["order"]} if "order" in kept else {}
    draw = filled("Draw")
    draw["places"], draw["rounds"], draw["nodes"], draw["each"] = count, rounds, cast.problem.shards.n, each
    draw["first_round"], draw["speakers"], draw["sampler"] = first, plan.speakers, noise.sampler
    draw["noise0"], draw["noise1"] = noise.noise_key
    draw["records0"], draw["records1"] = noise.records_key
    draw["base"], draw["width"] = base, 0 if noise.sampler == FULL else int(noise.batch.max())
    draw["out"] = machine.address(places)
    for name, values in arrays.items():
        draw[name] = machine.address(values)
    picks, largest = _draw_records(machine, cast, draw, arrays, places[:count])

    given = {"places": places} | ({} if each else {"starts": arrays["starts"]})
    given |= {} if heads is None else {"heads": put(heads, np.int32)}
    on_machine, own = _write_turns(machine, records.sparse, plan, (first, last, each, together, turns), given)

    runs = filled("Run", cast.count)
    numbers: dict[tuple[Any, ...], Any] = {}
    _numbered(machine, runs, records, cast, places, count, linear, numbers)
    runs["turns"], runs["picks"] = machine.address(on_machine), machine.address(picks)
    wide = _sizes(cast)
    most = min(int(wide.max()) * max(1, largest), base + max(1, picks.size))
    mixed = cast.model.after or not (np.all(plan.flat) or (records.sparse and largest <= 1 and np.all(wide == 2)))
    widest = int(wide.max()) if mixed else 0
    alive = arrays, own, picks, numbers
    return FetchedDraws(
        first, last, since.copy(), linear, runs, most, widest, together, heads, places, on_machine, alive
    )


def _draw_records(machine: Machine, cast: Cast, draw: Any, arrays: dict[str, Any], places: Any) -> tuple[Any, int]:
    """The records that all places draw, and how many a place has at the most; `arrays` gets where each begins."""
    noise, kept, put, xp, count = cast.noise, cast.kept, machine.put, machine.xp, len(places)
    poisson, sizes = noise.sampler == POISSON, cast.problem.shards.sizes
    base, width = int(draw["base"][0]), int(draw["width"][0])
    draw["counting"], draw["filling"] = 1, not poisson
    blocks = max(1, min(4096, -(-count // DRAW_THREADS)))
    largest, taken = int(sizes.max()) if base else width, width * count
    if poisson:  # how many each place has is drawn first
        machine.launch("draw_turns", blocks, DRAW_THREADS, 0, put(draw.view(np.uint8)), SHORT)
        drawn = places.view(np.int32)[:, 3]
        largest = int(drawn.max()) if count else 1
        counts = drawn.astype(np.int64)
        if base:
            counts = xp.where((put(sizes == noise.batch))[arrays["active"]], 0, counts)
        ends = xp.cumsum(counts)
        taken, arrays["firsts"] = int(ends[-1]) if count else 0, base + ends - counts
        draw["firsts"], draw["counting"], draw["filling"] = machine.address(arrays["firsts"]), 0, 1
    picks = xp.empty(max(1, base + taken), np.int32)
    if base:
        picks[:base] = kept["rows"]
    draw["picks"] = machine.address(picks)
    machine.launch("draw_turns", blocks, DRAW_THREADS, 0, put(draw.view(np.uint8)), SHORT)
    return picks, largest


def _write_turns(
    machine: Machine, sparse: bool, plan: Plan, rounds: tuple[int, int, int, int, int], given: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """The turns of rounds first … last on the machine, and the arrays that must live until they are written."""
    (first, last, each, together, turns), put = rounds, machine.put
    on_machine = machine.xp.zeros((turns + AHEAD, struct("Turn").itemsize), np.uint8)
    turning = filled("Turning")
    turning["rounds"], turning["each"], turning["together"] = last - first + 1, each, together
    turning["paired"], turning["speakers"], turning["stage_nodes"] = sparse, plan.speakers, STAGE_NODES
    own = {"pattern": put(plan.pattern[first - 1 : last], np.int32), "flat": put(plan.flat, np.int32)}
    own |= {"groups": put(plan.groups, np.int64), "corners": put(plan.corners, np.int64)}
    own |= given | {"turns": on_machine}
    for name, values in own.items():
        turning[name] = machine.address(values)
    blocks = max(1, min(4096, -(-(last - first + 1) // DRAW_THREADS)))
    machine.launch("turn", blocks, DRAW_THREADS, 0, put(turning.view(np.uint8)), SHORT)
    return on_machine, own


def _numbers(machine: Machine, cast: Cast, places: Any, count: int, variant: tuple[Any, ...], linear: bool) -> Any:
    """Numbers of eq. (6) at every place, for one set of step sizes and weights of h."""
    q, phi, mu = variant
    steps = filled("Steps")
    numbers = machine.xp.empty((max(1, count), 4), np.float32)
    lazily = not linear and not cast.model.frozen
    slept = machine.xp.empty((max(1, count) if lazily else 1, struct("Slept").itemsize // 8), np.float64)
    steps["places"], steps["phi"], steps["mu"] = count, phi, mu
    steps["descent"], steps["frozen"], steps["linear"] = cast.model.descent, cast.model.frozen, linear
    for name in TABLES:
        steps[name] = machine.address(cast.kept[name][q])
    steps["place"] = machine.address(places)
    steps["numbers"], steps["slept"] = machine.address(numbers), machine.address(slept)
    given = machine.put(steps.view(np.uint8))
    machine.launch("numbers", max(1, min(4096, -(-count // DRAW_THREADS))), DRAW_THREADS, 0, given, SHORT)
    return numbers, slept, given
