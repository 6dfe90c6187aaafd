"""Rounds of many runs on a machine, each in a thread block of its own: edges, matchings, and whatever else is active.

Before the rounds, what they draw is looked up, one thread a place (a node in a round): which records, which keys of
noise, which numbers of eq. (6). Then one block a run goes through all of its turns, with z on the chip where it fits.
A turn is those of a round's nodes that hear each other. Runs of different seeds go together in one launch; those that
share their draws share what was looked up.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from typing import cast as typed
from weakref import WeakKeyDictionary, ref

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from sottovoce import rows
from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import State
from sottovoce.engine.compiled import parts
from sottovoce.engine.gpu.machine import Machine
from sottovoce.engine.gpu.source import code_of, filled, struct
from sottovoce.engine.gpu.spans import Crew, crews_of, run_spans, suits
from sottovoce.engine.job import Job
from sottovoce.engine.kernel import FULL, POISSON
from sottovoce.engine.kernel.arguments import Model, Noise, Plan, Steps
from sottovoce.privacy.release import Draws
from sottovoce.problem.shards import Shards
from sottovoce.streams import Purpose

LOOKING = 256
"""Threads of a block that looks things up."""
PLACES, PICKS = 1 << 23, 1 << 27
"""Places and records that are looked up at a time."""
CROWD = 32
"""Nodes of a turn that the kernel has on its stage."""
FEW, BYGONE = 4, 128
"""Nodes of a turn whose noise a thread draws together, and rounds of the tables that wait on the chip."""
AHEAD = 4
"""Turns by which the kernel asks ahead of time."""
TABLES = ("push", "gamma", "s", "A", "P", "Q")


class Records(NamedTuple):
    """Rows on a machine, in float32; the arrays of the other storage are empty."""

    sparse: bool
    features: int
    X: Any
    values: Any
    indices: Any
    indptr: Any


class Held(NDArrayOperatorsMixin):
    """An array of numbers that stays on its machine until somebody looks at it: to NumPy it is what it holds."""

    def __init__(self, machine: Machine, values: Any) -> None:
        self.machine, self.values = machine, values
        self.shape, self.ndim, self.size = values.shape, values.ndim, values.size

    @cached_property
    def _here(self) -> Array:
        with self.machine.working():
            return self.machine.get(self.values).astype(np.float64)

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
    if all(isinstance(a, Held) and a.machine is machine for a in arrays):
        return machine.xp.stack([a.values for a in arrays])
    return machine.put(np.stack([np.asarray(a) for a in arrays]), np.float32)


_records: dict[tuple[int, int], tuple[Any, Records]] = {}
_bringing = threading.Lock()


def records_of(machine: Machine, shards: Shards) -> Records:
    """The rows of these shards, brought to the machine once and left there as long as they live here."""
    X = shards.X
    place = id(machine), id(X)
    with _bringing:
        if place not in _records or _records[place][0]() is not X:
            _records[place] = ref(X, lambda _: _records.pop(place, None)), _brought(machine, X)
        return _records[place][1]


def _brought(machine: Machine, X: Any) -> Records:
    none = machine.put(np.empty(0, np.float32))
    if not rows.is_sparse(X):
        return Records(False, X.shape[1], machine.put(X, np.float32), none, none, none)
    kinds = ((X.data, np.float32), (X.indices, np.int32), (X.indptr, np.int64))
    return Records(True, X.shape[1], none, *(machine.put(values, kind) for values, kind in kinds))


@dataclass(eq=False)
class Cast:
    """Jobs that share schedule and draws, as the compiled engine lays them out; and what of it lies on the machine."""

    jobs: list[Job]
    plan: Plan
    model: Model
    steps: Steps
    noise: Noise
    kept: dict[str, Any]


_casts: "WeakKeyDictionary[Job, tuple[int, tuple[Any, ...], Cast]]" = WeakKeyDictionary()


def cast_of(machine: Machine, jobs: Sequence[Job]) -> Cast:
    """Laid out, or from the last time: a run is cut into many calls."""
    known = _casts.get(jobs[0])
    if known is not None and known[0] == id(machine) and [r() for r in known[1]] == list(jobs):
        return known[2]
    plan, model, steps, noise = parts(jobs)
    shards, put = jobs[0].problem.shards, machine.put
    about = filled("About", len(shards.y))
    about["y"], about["norm"] = shards.y, shards.norms
    about["weight"] = 1.0 if shards.weights is None else shards.weights
    kept = {
        "about": put(about.view(np.float32)),
        "weights": put(plan.weights, np.float32),
        "offsets": put(shards.offsets, np.int64),
        "batch": put(noise.batch, np.int64),
        "gap_scale": put(noise.gap_scale, np.float64),
        "loud": put(noise.scale * noise.sigma, np.float32),
        "share": put(noise.scale / noise.batch, np.float32),
        **{name: put(getattr(steps, name), np.float64) for name in TABLES},
    }
    if shards.order is not None:
        kept["order"] = put(shards.order, np.int64)
    if _some_take_all(noise, shards.sizes):
        kept["rows"] = put(np.arange(len(shards.y)) if shards.order is None else shards.order, np.int32)
    found = Cast(list(jobs), plan, model, steps, noise, kept)
    _casts[jobs[0]] = id(machine), tuple(ref(job) for job in jobs), found
    return found


def _some_take_all(noise: Noise, sizes: IntArray) -> bool:
    return noise.sampler == FULL or (noise.sampler == POISSON and bool(np.any(noise.batch == sizes)))


def groups_of(jobs: Sequence[Job]) -> list[list[int]]:
    """Places of jobs that share their draws, together."""
    found: dict[Any, list[int]] = {}
    for place, job in enumerate(jobs):
        assert isinstance(job.draws, Draws)
        keys = [int(word[0]) for purpose in Purpose for word in job.draws.streams.key(purpose)]
        found.setdefault((id(job.schedule), *keys), []).append(place)
    return list(found.values())


def run_rounds(machine: Machine, jobs: Sequence[Job], states: Sequence[State], start: int, stop: int) -> list[State]:
    """Rounds start … stop of jobs on the same data that are the same but for numbers and seeds."""
    groups = groups_of(jobs)
    order = [place for group in groups for place in group]
    since = [states[group[0]].since.astype(np.int64) for group in groups]
    with machine.working():
        records = records_of(machine, jobs[0].problem.shards)
        casts = [cast_of(machine, [jobs[place] for place in group]) for group in groups]
        z = stacked(machine, [states[place].z for place in order])
        total = stacked(machine, [states[place].total for place in order])
        for first, last in _stretches(casts, start, stop):
            _go(machine, records, casts, since, z, total, first, last)
    whose = [k for k, group in enumerate(groups) for _ in group]
    found = {
        place: State(
            typed("Array", Held(machine, z[r])),
            typed("Array", Held(machine, total[r])),
            since[whose[r]].copy(),
            states[place].memory.copy(),
        )
        for r, place in enumerate(order)
    }
    return [found[place] for place in range(len(jobs))]


def averages(machine: Machine, jobs: Sequence[Job], states: Sequence[State], t: int) -> tuple[Array, Array] | None:
    """(mean model over the nodes, their mean distance from it) of each run, from states after round t.

    None where the states do not lie on the machine, or a method has nothing to average yet.
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
        options = _options(records, casts, 1, LOOKING)
        runs, alive, at = filled("Run", len(order)), [], 0
        none = machine.xp.zeros(1, np.float32)
        for cast, group in zip(casts, groups, strict=True):
            since = states[group[0]].since
            places = filled("Place", len(since))
            places["node"], places["t"], places["before"] = np.arange(len(since)), t, np.minimum(since - 1, t)
            looked = Looked(len(since), machine.put(places.view(np.uint8)), none, none, 0, 1, False)
            alive.append((looked, _each_numbers(machine, runs, at, records, cast, looked, z, total, options)))
            at += len(group)
        out = machine.xp.empty(z.shape, np.float32)
        given = _with_self(machine, runs)
        asked = filled("Averages")
        asked["runs"], asked["t"] = len(runs), t
        asked["all"], asked["out"] = machine.address(given), machine.address(out)
        blocks = len(runs) * max(1, min(64, z[0].size // LOOKING))
        machine.launch("averages", blocks, LOOKING, 0, machine.put(asked.view(np.uint8)), options)
        means = out.mean(axis=1, dtype=np.float64)
        apart = machine.xp.sqrt(machine.xp.square(out - means[:, None]).sum(axis=2)).mean(axis=1)
        found = machine.get(means), machine.get(apart)
    back = np.argsort(order)
    return found[0][back], found[1][back]


def _stretches(casts: Sequence[Cast], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """So many rounds at a time that there is room for what is looked up."""
    active = max(1.0, *(float(np.diff(cast.plan.starts[start - 1 : stop + 1]).mean()) for cast in casts))
    batch = 0 if casts[0].noise.sampler == FULL else int(casts[0].noise.batch.max())
    rounds = max(1, int(min(PLACES / active, PICKS / (active * max(1, batch)))))
    for first in range(start, stop + 1, rounds):
        yield first, min(first + rounds - 1, stop)


def _go(
    machine: Machine,
    records: Records,
    casts: Sequence[Cast],
    since: Sequence[IntArray],
    z: Any,
    total: Any,
    first: int,
    last: int,
) -> None:
    """Rounds first … last of all casts in one launch; z, total and since are updated in place."""
    _, n, m = z.shape
    threads = _threads(machine, m)
    per = -(-((m + 1) // 2) // threads)
    paired = records.sparse or per <= machine.per  # else turns of few records are gone through as any other
    options = _options(records, casts, per if paired and not records.sparse else 2, threads)
    fetched = paired and not records.sparse
    room = _beside(n, m, -(-threads // machine.lanes), fetched)
    options["ON_CHIP"] = int(room + 4 * n * m <= machine.room)
    room += 4 * n * m * options["ON_CHIP"]
    runs = filled("Run", len(z))
    alive: list[Any] = []  # what the kernels need, until they have run
    crews: list[Crew] = []
    at, most, mixed = 0, 1, False
    for cast, mine in zip(casts, since, strict=True):
        looked = _look(machine, cast, mine, first, last, paired, options)
        alive.append((looked, _each_numbers(machine, runs, at, records, cast, looked, z, total, options)))
        most, mixed = max(most, looked.most), mixed or looked.mixed
        crews += crews_of(runs[at : at + len(cast.jobs)], looked.turns, looked.places)
        at += len(cast.jobs)
    if suits(options, crews) and run_spans(machine, crews, records.indptr, options):
        return
    runs["fetched"] = fetched
    pulls = machine.xp.empty((len(z), most), np.float32)
    said = machine.xp.empty((len(z), max(cast.plan.widest for cast in casts) if mixed else 0, m), np.float32)
    for r in range(len(z)):
        runs[r]["pulls"], runs[r]["said"] = machine.address(pulls[r]), machine.address(said[r])
    machine.launch("rounds", len(runs), threads, room, _with_self(machine, runs), options)
    machine.wait()


def _options(records: Records, casts: Sequence[Cast], per: int, threads: int) -> dict[str, int]:
    """What the kernels are compiled for."""
    model = casts[0].model
    return {
        "SPARSE": int(records.sparse),
        "LINEAR": int(all(_linear(cast.model) for cast in casts)),
        "BOXED": int(any(_boxed(cast.model) for cast in casts)),
        "FROZEN": int(model.frozen),
        "DESCENT": int(model.descent),
        "AFTER": int(model.after),
        "LOSS": code_of(casts[0].jobs[0].problem.loss.name),
        "ON_CHIP": 0,
        "PER": per,
        "MOST": threads,
    }


def _with_self(machine: Machine, runs: Any) -> Any:
    """The structs on the machine; each knows where it lies."""
    given = machine.xp.empty(runs.nbytes, np.uint8)
    runs["self"] = machine.address(given) + np.arange(len(runs), dtype=np.uint64) * np.uint64(runs.itemsize)
    given[...] = machine.put(runs.view(np.uint8))
    return given


def _each_numbers(
    machine: Machine,
    runs: Any,
    at: int,
    records: Records,
    cast: Cast,
    looked: "Looked",
    z: Any,
    total: Any,
    options: Mapping[str, int],
) -> Any:
    """Fill the structs of a cast's runs, and make the numbers of its places, once for all runs that share them."""
    variants: dict[tuple[Any, ...], Any] = {}
    for r in range(len(cast.jobs)):
        variant = int(cast.steps.which[r]), *(float(v[r]) for v in (cast.model.phi, cast.model.mu))
        if variant not in variants:
            variants[variant] = _numbers(machine, cast, looked, variant, options)
        _fill(machine, runs[at + r], records, cast, looked, variants[variant], r, options)
        runs[at + r]["z"], runs[at + r]["total"] = machine.address(z[at + r]), machine.address(total[at + r])
    return variants


def _threads(machine: Machine, m: int) -> int:
    """As many as there are counters, in whole warps."""
    return max(1, min(machine.threads, -(-((m + 1) // 2) // 32) * 32))


def _beside(n: int, m: int, warps: int, fetched: bool) -> int:
    """Bytes on the chip beside z: the rings, the stage, partial sums of margins, two numbers a node, rows."""
    place, numbers, slept, about, turn = (struct(s).itemsize for s in ("Place", "Numbers", "Slept", "About", "Turn"))
    rings = struct("Run").itemsize + 8 * (turn + about + FEW * (place + numbers + slept + 4 * FEW)) + BYGONE * 24 + 8
    theatre = max(CROWD * (place + numbers + slept + about), 3 * (CROWD * (place + about) + numbers + slept))
    rows = 6 * _up(m, 4) if fetched else 0
    return rings + theatre + 4 * (CROWD * warps + _up(2 * n, 4) + rows)


def _up(size: int, to: int) -> int:
    return -(-size // to) * to


def _linear(model: Model) -> bool:
    """Whether x(z) is a multiple of z in all runs."""
    return model.descent or not (np.any(model.phi > 0) or _boxed(model))


def _boxed(model: Model) -> bool:
    return bool(np.any(np.isfinite(model.lo)) or np.any(np.isfinite(model.hi)))


class Looked(NamedTuple):
    """What the rounds of a cast draw, on the machine."""

    looked_up: int
    """Places."""
    places: Any
    picks: Any
    turns: Any
    turned: int
    """Turns."""
    most: int
    """Records of a turn, at the most."""
    mixed: bool
    """Whether there are turns whose messages must be written down before they are mixed."""


def _look(
    machine: Machine, cast: Cast, since: IntArray, first: int, last: int, paired: bool, options: Mapping[str, int]
) -> Looked:
    """Records, keys and turns of rounds first … last; `since` is brought up to date."""
    plan, noise, kept, put, xp = cast.plan, cast.noise, cast.kept, machine.put, machine.xp
    after = bool(options["AFTER"])
    begin, end = int(plan.starts[first - 1]), int(plan.starts[last])
    nodes, k = plan.active[begin:end], np.diff(plan.starts[first - 1 : last + 1])
    t = np.repeat(np.arange(first, last + 1, dtype=np.int32), k)
    index = np.arange(end - begin) - np.repeat(plan.starts[first - 1 : last] - begin, k)
    speaks = (index < plan.speakers).astype(np.int32)
    before = _before(nodes, t, since)
    since[nodes] = t + 1  # of a node's rounds the last one stays
    places = xp.zeros(max(1, len(nodes)) * struct("Place").itemsize, np.uint8)
    arrays = {"nodes": put(nodes, np.int32), "rounds": put(t), "before": put(before, np.int32), "speaks": put(speaks)}
    arrays |= {name: kept[name] for name in ("offsets", "batch", "gap_scale")}
    arrays |= {"order": kept["order"]} if "order" in kept else {}
    look = filled("Look")
    look["places"], look["sampler"] = len(nodes), noise.sampler
    look["noise0"], look["noise1"] = noise.noise_key
    look["records0"], look["records1"] = noise.records_key
    look["out"] = machine.address(places)
    for name, values in arrays.items():
        look[name] = machine.address(values)
    blocks = max(1, min(4096, -(-len(nodes) // LOOKING)))
    machine.launch("look", blocks, LOOKING, 0, machine.put(look.view(np.uint8)), options)
    counts = places.view(np.int32).reshape(-1, struct("Place").itemsize // 4)[: len(nodes), 3]
    taken = counts.astype(np.int64)
    base = 0
    if "rows" in kept:  # nodes that take all have their rows in front
        base = len(kept["rows"])
        sizes = put(np.diff(cast.jobs[0].problem.shards.offsets) == noise.batch)[arrays["nodes"]]
        taken = xp.where(sizes, 0, taken) if noise.sampler == POISSON else xp.zeros_like(taken)
    firsts = base + xp.cumsum(taken) - taken
    drawn = int(taken.sum())
    picks = xp.empty(max(1, base + drawn), np.int32)
    if base:
        picks[:base] = kept["rows"]
    look["filling"], look["firsts"], look["picks"] = 1, machine.address(firsts), machine.address(picks)
    machine.launch("look", blocks, LOOKING, 0, machine.put(look.view(np.uint8)), options)

    groups = plan.groups[plan.pattern[first - 1 : last]]
    size = k // groups
    which = np.repeat(np.arange(last - first + 1), groups)
    number = np.arange(len(which)) - np.repeat(np.cumsum(groups) - groups, groups)
    turns = filled("Turn", len(which) + AHEAD)
    own, pattern = turns[: len(which)], plan.pattern[first - 1 : last][which]
    own["size"] = size[which]
    own["first"] = (plan.starts[first - 1 : last] - begin)[which] + number * own["size"]
    own["speakers"] = np.minimum(own["size"], np.maximum(0, plan.speakers - number * own["size"]))
    own["flat"] = plan.flat[pattern]
    own["corner"] = plan.corners[pattern] + number * own["size"].astype(np.int64) ** 2
    on_machine = put(turns.view(np.int32).reshape(len(turns), -1))
    heads = put(own["first"].astype(np.int64))
    tails = heads + put(own["size"].astype(np.int64))
    records, many = (_ends(xp, v)[tails] - _ends(xp, v)[heads] for v in (counts, (counts > 1).astype(np.int64)))
    size = put(own["size"])
    several = xp.where(size <= CROWD, 2, 0)
    way = xp.where(many == 0, xp.where(size == 2, 1, several) if paired else several, 0)
    on_machine[: len(own), 6] = way
    mixed = bool(((way != 1) & ((on_machine[: len(own), 3] == 0) | after)).any())
    most = int(records.max()) if len(own) else 1
    machine.wait()
    return Looked(len(nodes), places, picks, on_machine, len(own), max(1, most), mixed)


def _ends(xp: Any, counts: Any) -> Any:
    """0 and all partial sums."""
    found = xp.zeros(len(counts) + 1, np.int64)
    found[1:] = xp.cumsum(counts)
    return found


def _before(nodes: Any, t: Any, since: IntArray) -> IntArray:
    """The round before which a node last stood up, for each place: the last one that its running sum has in it."""
    order = np.argsort(nodes, kind="stable")
    sorted_nodes, sorted_t = nodes[order], t[order]
    found = np.empty(len(nodes), np.int64)
    earlier = np.empty(len(nodes), np.int64)
    earlier[1:] = sorted_t[:-1]
    fresh = np.ones(len(nodes), bool)
    fresh[1:] = sorted_nodes[1:] != sorted_nodes[:-1]
    found[order] = np.where(fresh, since[sorted_nodes] - 1, earlier)
    return found


def _numbers(machine: Machine, cast: Cast, looked: Looked, variant: tuple[Any, ...], options: Mapping[str, int]) -> Any:
    """Numbers of eq. (6) at every place, for one set of step sizes and weights of h."""
    q, phi, mu = variant
    steps = filled("Steps")
    numbers = machine.xp.empty((max(1, looked.looked_up), 4), np.float32)
    lazily = not options["LINEAR"] and not options["FROZEN"]
    slept = machine.xp.empty((max(1, looked.looked_up) if lazily else 1, struct("Slept").itemsize // 8), np.float64)
    steps["places"], steps["phi"], steps["mu"] = looked.looked_up, phi, mu
    for name in ("descent", "frozen", "linear"):
        steps[name] = options[name.upper()]
    for name in TABLES:
        steps[name] = machine.address(cast.kept[name][q])
    steps["place"] = machine.address(looked.places)
    steps["numbers"], steps["slept"] = machine.address(numbers), machine.address(slept)
    given = machine.put(steps.view(np.uint8))
    machine.launch("numbers", max(1, min(4096, -(-looked.looked_up // LOOKING))), LOOKING, 0, given, options)
    return numbers, slept, given


def _fill(
    machine: Machine,
    run: Any,
    records: Records,
    cast: Cast,
    looked: Looked,
    numbers: Any,
    r: int,
    options: Mapping[str, int],
) -> None:
    """A run's struct, but for its own arrays."""
    job, model, kept = cast.jobs[r], cast.model, cast.kept
    run["n"], run["m"], run["features"] = job.problem.shards.n, job.problem.m, records.features
    run["turns_first"], run["turns_last"] = 0, looked.turned
    for name in ("sparse", "on_chip", "linear", "boxed", "frozen", "descent", "after", "loss"):
        run[name] = options[name.upper()]
    for name in ("phi", "mu", "lo", "hi", "clip"):
        run[name] = getattr(model, name)[r]
    run["parameter"], run["intercept"] = model.parameter, job.problem.shards.intercept
    arrays = {"turns": looked.turns, "places": looked.places, "picks": looked.picks}
    arrays |= {"numbers": numbers[0], "slept": numbers[1], "weights": kept["weights"], "about": kept["about"]}
    arrays |= {name: getattr(records, name) for name in ("X", "values", "indices", "indptr")}
    arrays |= {name: kept[name][r] for name in ("loud", "share")}
    arrays |= {name: kept[name][int(cast.steps.which[r])] for name in ("A", "P", "Q", "s", "gamma")}
    for name, values in arrays.items():
        run[name] = machine.address(values)
