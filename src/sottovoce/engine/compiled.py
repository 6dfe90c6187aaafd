"""The compiled engine: the reference's trajectories by native loops, and many runs at once.

Jobs are laid out as flat arrays once, and live as long as the jobs do: a run is cut into many calls. Data is read where
it lies, unless it was partitioned at random and is read many times: then rows are copied once, node after node, because
a row that memory has to be requested takes five times as long.

Where the job's draws are the run's own `Draws`, with Gaussian noise, the loops make records and noise from the counters
themselves (noise in float32, 3e-7 relative from the reference's); any other `Randomness` draws a block of rounds at a
time, and then trajectories agree to rounding.

Noise that all nodes share with all is made from its counters too, two normals a coordinate, at the addresses and with
the joint law that the reference has. Where a round ends with the mean of all messages, it is not made at all: it is
gone from that mean, so that the trajectory is the same to rounding, and a simulation keeps nothing else of a message.

All processors share rounds of large batches; no number that comes out depends on how many there are.

Runs that share data, schedule and streams and differ in numbers only (σ, the weights of h, step sizes, clip) can be
stacked: `run_many` draws records and noise term once for all of them, which is cheaper, and compares like with like.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary, ref

import numpy as np
from numpy.typing import NDArray

from sottovoce import _native, matrices
from sottovoce._types import Array, IntArray
from sottovoce.algorithm.descent import Descent
from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.algorithm.method import State, prefix_sums
from sottovoce.engine.job import ENGINES, Job, Stretch, stretches
from sottovoce.engine.native import (
    AVERAGINGS,
    ENTROPY,
    INJECTED,
    KINDS,
    L2_BALL,
    SAMPLERS,
    SEPARABLE,
    Injected,
    Model,
    Noise,
    Plan,
    Steps,
    code_of,
)
from sottovoce.errors import SpecError
from sottovoce.extension import Records, available, read_only, records
from sottovoce.network.averaging import Clipped, Trimmed
from sottovoce.network.mixing import Weights, listed
from sottovoce.network.schedule import Schedule, Steady
from sottovoce.network.wide import Wide
from sottovoce.privacy.pairs import Pairs
from sottovoce.privacy.release import Draws, Gaussian
from sottovoce.problem.regularizers import Entropy, Euclidean, Regularizer, Separable
from sottovoce.problem.shards import Reading, Shards
from sottovoce.streams import Purpose, Streams

Known: TypeAlias = DualAveraging | Descent
INJECTED_BLOCK = 1 << 20  # numbers of injected noise held at a time
FLAT = 1e-13  # what rounding makes of equal weights, one of which is 1 less all others
LEVEL = 1e-14  # the parts of a pair's noise are of one size to rounding, or they are not


# --- running


def run(job: Job, state: State, start: int, stop: int) -> State:
    """Run rounds start … stop and give the state after them; the given state is left alone."""
    return run_many([job], [state], start, stop)[0]


def run_stacked(jobs: Sequence[Job], states: Sequence[State], start: int, stop: int) -> list[State]:
    """Run rounds start … stop of several jobs: stacked where their draws are made from counters, else one by one."""
    if all(map(has_noise_terms_counted, jobs)):
        return run_many(jobs, states, start, stop)
    return [run(job, state, start, stop) for job, state in zip(jobs, states, strict=True)]


def run_many(jobs: Sequence[Job], states: Sequence[State], start: int, stop: int) -> list[State]:
    """Run rounds start … stop of several jobs at once; each ends as it would alone, to the last bit.

    Parameters
    ----------
    jobs : runs over the same data, loss, schedule and streams; σ, clip, step sizes and the numbers of h may differ
    states : where each of them stands; left alone
    start, stop : the first and the last round
    """
    jobs, states = list(jobs), list(states)
    _check(jobs, states, start, stop)
    packed = _pack(jobs)
    if jobs[0].schedule.large_n:
        from sottovoce.engine import large_n  # it is seldom one

        return large_n.run(jobs, states, packed.run, packed.noise, packed.model, start, stop)
    z = np.stack([state.z for state in states])
    total = np.stack([state.total for state in states])
    since = states[0].since.astype(np.int64)  # a copy
    for first, last, injected in _draws(jobs[0], start, stop):
        packed.run.rounds(z, total, since, first, last, available(), injected)
    return [State(z[r], total[r], since.copy(), state.memory.copy()) for r, state in enumerate(states)]


def has_noise_terms_counted(job: Job) -> bool:
    """Whether the native loops can make the job's draws."""
    draws = job.draws
    if type(draws) is not Draws or type(draws.streams) is not Streams:
        return False
    law = draws.release.law
    return type(law) is Gaussian or (type(law) is Pairs and (law.whole or job.schedule.large_n))


def _draws(job: Job, start: int, stop: int) -> Iterator[tuple[int, int, Injected | None]]:
    """Stretches of rounds with their draws: all at once from counters, or injected a block at a time."""
    if has_noise_terms_counted(job):
        yield start, stop, None
        return
    for stretch in stretches(job, start, stop, INJECTED_BLOCK):
        yield stretch.first, stretch.last, _inject(job, stretch)


def _inject(job: Job, stretch: Stretch) -> Injected:
    """Records and noise of these rounds, as the job's own randomness has them."""
    drawn, records = np.ascontiguousarray(stretch.drawn.noise, np.float64), stretch.drawn.records
    if drawn.shape != (len(stretch.nodes), job.problem.m) or len(records) != len(stretch.nodes):
        raise SpecError("the randomness must give one list of records and one row of noise for each (node, round)")
    picks = [np.empty(0, np.int64) if some is None else np.asarray(some, np.int64) for some in records]
    counts = np.array([len(some) for some in picks], dtype=np.int64)
    flat = np.concatenate(picks) if picks else np.empty(0, np.int64)
    sizes = job.problem.shards.sizes[stretch.nodes]
    if np.any(counts > sizes) or np.any((flat < 0) | (flat >= np.repeat(sizes, counts))):
        raise SpecError("the randomness names records that a node does not have")
    return Injected(
        noise=read_only(drawn),
        records=read_only(flat),
        starts=read_only(np.concatenate([[0], np.cumsum(counts)]), np.int64),
        every=read_only(np.array([some is None for some in records]), np.bool_),
    )


def _check(jobs: list[Job], states: list[State], start: int, stop: int) -> None:
    """Refuse states and rounds that do not fit the runs."""
    if not jobs or len(jobs) != len(states):
        raise SpecError(f"give one state for each run, and at least one run; there are {len(states)} and {len(jobs)}")
    shards, m = jobs[0].problem.shards, jobs[0].problem.m
    if jobs[0].schedule.n != shards.n or jobs[0].method.T < stop or jobs[0].schedule.T < stop or start < 1:
        raise SpecError(
            f"rounds {start} to {stop} are not within the schedule's {jobs[0].schedule.T} rounds on "
            f"{jobs[0].schedule.n} nodes"
        )
    for job, state in zip(jobs, states, strict=True):
        if state.z.shape != (shards.n, m) or state.total.shape != state.z.shape or len(state.since) != shards.n:
            raise SpecError(f"the state of a run over {shards.n} nodes must have {shards.n} rows of {m} numbers")
        if np.any(state.since < 1) or np.any(state.since > max(start, 1)):
            raise SpecError(f"the state is not one from before round {start}; go on from the round after it was left")
        if not np.array_equal(state.since, states[0].since):
            raise SpecError("runs can only be stacked from states left after the same round")
        if job.method.T < stop:
            raise SpecError(f"the step sizes end before round {stop}")


# --- laying out


@dataclass(frozen=True, eq=False)
class Packed:
    """R runs, flat."""

    data: Records
    plan: Plan
    model: Model
    steps: Steps
    noise: Noise
    run: _native.Run


_packed: WeakKeyDictionary[Job, tuple[tuple["ref[Job]", ...], Packed]] = WeakKeyDictionary()


def _pack(jobs: list[Job]) -> Packed:
    """The flat arrays of these jobs, from the last time if they are the same."""
    known = _packed.get(jobs[0])
    if known is not None and len(known[0]) == len(jobs) and all(r() is j for r, j in zip(known[0], jobs, strict=True)):
        return known[1]
    ENGINES["compiled"].refuse(jobs)
    check_stackable(jobs)
    packed = pack(jobs)
    _packed[jobs[0]] = tuple(ref(job) for job in jobs), packed
    return packed


def pack(jobs: Sequence[Job]) -> Packed:
    """Lay out the runs, which must share data, loss, schedule, streams and everything else but numbers."""
    data = records_of(_laid_out(jobs[0]))
    plan, model, steps, noise = _plan(jobs[0].schedule), _model(jobs), _steps(jobs), _noise(jobs)
    run = _native.Run(_native.Records(data), plan, model, steps, noise, jobs[0].problem.m)
    return Packed(data, plan, model, steps, noise, run)


GATHERED = 8
"""So often each row is read, on average, from where it lies; oftener, and a copy is worth its reading."""
COPIED = 1 << 31
"""Bytes that are copied at the most."""

_copied: dict[str, tuple["ref[Reading]", IntArray, Any]] = {}


def _laid_out(job: Job) -> Shards:
    """The data, node after node in memory if rows that were partitioned are read again and again."""
    shards = job.problem.shards
    X, order = shards.X, shards.order
    size = X.data.nbytes + X.indices.nbytes if matrices.is_sparse(X) else X.nbytes
    if order is None or size > COPIED:
        return shards
    batches = np.array([job.release.sampling.batch(int(q)) for q in shards.sizes])
    if float(job.schedule.participations() @ batches) <= GATHERED * len(order):
        return shards
    last = _copied.get("last")  # runs on the same data come sequentially
    if last is None or last[0]() is not shards.reading or not np.array_equal(last[1], order):
        last = _copied["last"] = ref(shards.reading, lambda _: _copied.clear()), order, X[order]
    weights = None if shards.weights is None else shards.weights[order]
    other = replace(shards, X=last[2], y=shards.y[order], order=None, weights=weights)
    other.__dict__["norms"] = shards.norms[order]
    return other


def records_of(shards: Shards) -> Records:
    """Shards as the native loops read them."""
    X = shards.X
    is_sparse = matrices.is_sparse(X)
    stored = X.data if is_sparse else X
    if stored.dtype not in (np.float32, np.float64):
        raise SpecError(f"the compiled engine reads float32 or float64 data, not {stored.dtype}; convert it first")
    if not is_sparse and not X.flags.c_contiguous:
        raise SpecError("the compiled engine reads data row by row; lay it out with numpy.ascontiguousarray first")
    return records(X, shards.intercept, shards.y, shards.norms, shards)


def _plan(schedule: Schedule) -> Plan:
    averaging, bound = schedule.averaging, 0.0
    if isinstance(averaging, Clipped):
        bound = averaging.radius
    elif isinstance(averaging, Trimmed):
        bound = float(averaging.f)
    if schedule.large_n:  # `large_n` has no plan: what stands here is that of a node alone
        schedule = Schedule(1, np.array([0, 1]), np.zeros(1, np.int32), np.zeros(1, np.int32), (np.eye(1),))
    mixtures = [listed(W) for W in schedule.mixtures]
    sizes = np.array([W.size for W in mixtures])
    widest = max(len(W) for W in schedule.patterns)
    return Plan(
        starts=read_only(schedule.starts, np.int64),
        active=read_only(schedule.active, np.int32),
        pattern=read_only(schedule.pattern, np.int32),
        weights=read_only(np.concatenate([W.ravel() for W in mixtures]), np.float64),
        corners=read_only(np.cumsum(sizes) - sizes, np.int64),
        flat=read_only(np.array([bool(np.ptp(W) <= FLAT) for W in mixtures]), np.bool_),
        widest=widest,
        speakers=schedule.speakers or widest,
        averaging=AVERAGINGS[type(averaging)],
        bound=bound,
    )


def _model(jobs: Sequence[Job]) -> Model:
    method, loss = _method(jobs[0]), jobs[0].problem.loss
    kind, center, curvature, closed, frozen = KINDS[type(method.h)], None, 0.0, True, True
    if isinstance(method, DualAveraging):
        kind = ENTROPY if isinstance(method.d, Entropy) else kind
        center = method.d.center if isinstance(method.d, Euclidean) else None
        curvature, frozen = float(method.curvature), method.primal == "as_written"
        closed = kind in (SEPARABLE, L2_BALL)
        if center is not None:  # a center only shifts z, once and for all, where γ stands still in every run
            gammas = [job.method.steps.gamma for job in jobs if isinstance(job.method, DualAveraging)]
            closed = closed and all(bool(np.all(gamma == gamma[0])) for gamma in gammas)
    return Model(
        kind=kind,
        **{name: _numbers(jobs, name) for name in ("phi", "mu", "lo", "hi", "radius")},
        curvature=curvature,
        center=read_only(np.empty(0) if center is None else np.asarray(center), np.float64),
        closed=closed,
        frozen=frozen,
        descent=isinstance(method, Descent),
        after=isinstance(method, Descent) and method.combine_first,
        loss=code_of(loss),
        parameter=float(loss.parameter),
        clip=read_only(np.array([job.release.clip for job in jobs]), np.float64),
        outputs=jobs[0].problem.outputs,
    )


def _numbers(jobs: Sequence[Job], name: str) -> NDArray[Any]:
    """One number of h for each run; 0 where its kind does not have it."""
    return read_only(np.array([getattr(_method(job).h, name, 0.0) for job in jobs]), np.float64)


def _steps(jobs: Sequence[Job]) -> Steps:
    """The sequences, each distinct one once; a single one is not copied."""
    distinct: list[Known] = []
    which = []
    for job in jobs:
        method = _method(job)
        same = [k for k, other in enumerate(distinct) if _equal((_sequences(other), _sequences(method)))]
        which.append(same[0] if same else len(distinct))
        if not same:
            distinct.append(method)
    tables = zip(*map(_sequences, distinct), strict=True)
    rows = [np.asarray(table[0])[None] if len(table) == 1 else np.stack(table) for table in tables]
    push, a, gamma, s, A, P, Q = (read_only(row, np.float64) for row in rows)
    return Steps(len(distinct), push, a, gamma, s, A, P, Q, read_only(np.array(which), np.int64))


_sequenced: WeakKeyDictionary[Known, tuple[Array, ...]] = WeakKeyDictionary()


def _sequences(method: Known) -> tuple[Array, ...]:
    """push, a, γ, s, A, P and Q, made once: runs of many seeds share their method."""
    if method not in _sequenced:
        _sequenced[method] = _summed(method)
    return _sequenced[method]


def _summed(method: Known) -> tuple[Array, ...]:
    """What a method has no use for is stood in for by something of the right length."""
    if isinstance(method, Descent):
        return -method.eta, method.a, method.a, method.a, method.A, method.A, method.A
    steps, den = method.steps, method.modulus
    P = prefix_sums(steps.w / den)
    Q = prefix_sums(steps.w * method.s / den) if _soft(method.h) else P  # P stands in: it is multiplied by φ = 0
    return steps.a, steps.w, steps.gamma, method.s, steps.W, P, Q


def _noise(jobs: Sequence[Job]) -> Noise:
    first = jobs[0]
    shards = first.problem.shards
    sizes = shards.sizes
    batch = np.array([first.release.sampling.batch(int(q)) for q in sizes])
    keys = {purpose: np.zeros(2, np.uint32) for purpose in Purpose}
    sampler, sigma, shared = INJECTED, np.zeros((len(jobs), len(sizes))), np.empty((0, 0))
    scale = np.stack([_method(job).scale for job in jobs])
    if has_noise_terms_counted(first):
        draws = first.draws
        assert isinstance(draws, Draws)
        if draws.m != first.problem.m or not np.array_equal(draws.sizes, sizes):
            raise SpecError("the draws are made for other data; give them these shards' sizes and dimension")
        sampler = SAMPLERS[type(draws.release.sampling)]
        keys = {purpose: np.concatenate(draws.streams.key(purpose)) for purpose in Purpose}
        releases = [job.draws.release for job in jobs if isinstance(job.draws, Draws)]
        sigma = np.array([release.sigma for release in releases])
        if isinstance(draws.release.law, Pairs):
            shared = np.stack([r.law.parts(r.sigma) for r in releases if isinstance(r.law, Pairs)])
    with np.errstate(divide="ignore"):  # b = q: every record, nothing to skip
        gap_scale = 1.0 / np.log1p(-batch / sizes)
    return Noise(
        sampler=sampler,
        batch=read_only(batch, np.int64),
        gap_scale=read_only(gap_scale, np.float64),
        noise_key=read_only(keys[Purpose.NOISE], np.uint32),
        records_key=read_only(keys[Purpose.RECORDS], np.uint32),
        sigma=read_only(sigma, np.float64),
        noisy=read_only(np.any(sigma > 0, axis=0), np.bool_),
        scale=read_only(scale, np.float64),
        pairs=shared.size > 0,
        shared=read_only(shared, np.float64),
        level=bool(np.all(np.ptp(scale * shared, axis=1) <= LEVEL * np.max(scale * shared, axis=1)))
        if shared.size
        else False,
    )


def _soft(h: Regularizer) -> bool:
    return isinstance(h, Separable) and h.phi > 0


def _method(job: Job) -> Known:
    """The job's method, which is one that the native loops know."""
    assert isinstance(job.method, DualAveraging | Descent)
    return job.method


# --- stacking


def check_stackable(jobs: Sequence[Job]) -> None:
    """Refuse to stack runs that differ in more than numbers."""
    for job in jobs[1:]:
        _check_same_but_numbers(jobs[0], job)
    if len(jobs) > 1 and not has_noise_terms_counted(jobs[0]):
        raise SpecError("runs can only be stacked where their noise comes from counters; run them one by one")


def _check_same_but_numbers(one: Job, other: Job) -> None:
    mine, theirs = one.problem.shards, other.problem.shards
    method, its = _method(one), _method(other)
    draws, its_draws = one.draws, other.draws
    same = {
        "data": mine is theirs
        or (mine.X is theirs.X and mine.intercept == theirs.intercept and _equal(map(_but_features, (mine, theirs)))),
        "loss": one.problem.joint == other.problem.joint,
        "schedule": _same_schedule(one.schedule, other.schedule),
        "kind of regularizer": type(method.h) is type(its.h),
        "method": _variant(method) == _variant(its),
        "noise mechanism": type(one.release.law) is type(other.release.law),
        "sampling": one.release.sampling == other.release.sampling,
        "randomness": draws is its_draws
        or (
            isinstance(draws, Draws)
            and isinstance(its_draws, Draws)
            and has_noise_terms_counted(one) == has_noise_terms_counted(other)
            and draws.release.sampling == its_draws.release.sampling
            and all(np.array_equal(draws.streams.key(p), its_draws.streams.key(p)) for p in Purpose)
        ),
    }
    wrong = [name for name, equal in same.items() if not equal]
    if wrong:
        raise SpecError(f"runs that differ in their {', '.join(wrong)} cannot be stacked; run them one by one")


def _variant(method: Known) -> tuple[Any, ...]:
    """What the loops branch on."""
    if isinstance(method, Descent):
        return Descent, method.combine_first
    return DualAveraging, method.d, method.primal, method.curvature


def _same_schedule(one: Schedule, other: Schedule) -> bool:
    if one is other:
        return True
    return (
        one.n == other.n
        and type(one) is type(other)
        and one.speakers == other.speakers
        and one.averaging == other.averaging
        and len(one.patterns) == len(other.patterns)
        and _equal((_placed(one), _placed(other)))
        and all(map(_same_weights, one.patterns, other.patterns))
    )


def _placed(schedule: Schedule) -> list[NDArray[Any]]:
    """Who is active when."""
    active = schedule.nodes(1) if isinstance(schedule, Steady) else schedule.active
    return [schedule.starts, schedule.pattern, active]


def _same_weights(one: Weights, other: Weights) -> bool:
    if isinstance(one, Wide) or isinstance(other, Wide):
        return isinstance(one, Wide) and isinstance(other, Wide) and one.same(other)
    return np.array_equal(one, other)


def _but_features(shards: Shards) -> tuple[Any, ...]:
    return shards.y, shards.offsets, shards.order, shards.starts, shards.weights


def _equal(several: Iterable[Iterable[Any]]) -> bool:
    """Whether both have the same arrays, or none in the same places."""
    return all(mine is theirs or np.array_equal(mine, theirs) for mine, theirs in zip(*several, strict=True))
