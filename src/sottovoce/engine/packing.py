"""From jobs to the flat arrays of the kernel. Data is handed over where it lies; nothing of its size is copied."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.algorithm.stepsizes import prefix_sums
from sottovoce.engine import kernel_draws, kernel_steps
from sottovoce.engine.job import Job
from sottovoce.engine.kernel_arguments import Data, Model, Noise, Plan, Steps
from sottovoce.errors import SpecError
from sottovoce.network.schedule import Schedule
from sottovoce.privacy.release import Draws
from sottovoce.privacy.sampling import Fixed, Full, Poisson
from sottovoce.problem.distances import Entropy, Euclidean
from sottovoce.problem.losses import LOSSES, SOFTMAX, Loss
from sottovoce.problem.regularisers import L1Ball, L2Ball, Regulariser, Separable, Simplex
from sottovoce.problem.shards import Shards
from sottovoce.streams import Purpose, Streams

KINDS: dict[type, int] = {
    Separable: kernel_steps.SEPARABLE,
    L2Ball: kernel_steps.L2_BALL,
    L1Ball: kernel_steps.L1_BALL,
    Simplex: kernel_steps.SIMPLEX,
}
SAMPLERS: dict[type, int] = {
    Fixed: kernel_draws.FIXED,
    Poisson: kernel_draws.POISSON,
    Full: kernel_draws.FULL,
}
ELSEWHERE = "use engine='reference', which runs everything"


@dataclass(frozen=True, eq=False)
class Packed:
    """R runs, flat."""

    data: Data
    plan: Plan
    model: Model
    steps: Steps
    noise: Noise


def pack(jobs: Sequence[Job]) -> Packed:
    """Lay out the runs, which must share data, loss, schedule, streams and everything else but numbers."""
    first = jobs[0]
    for job in jobs[1:]:
        _check_alike(first, job)
    if len(jobs) > 1 and not counted(first):
        raise SpecError("runs can only be stacked where their noise comes from counters; run them one by one")
    return Packed(_data(first.problem.shards), _plan(first.schedule), _model(jobs), _steps(jobs), _noise(jobs))


def counted(job: Job) -> bool:
    """Whether the kernel can make the job's draws itself."""
    return type(job.draws) is Draws and type(job.draws.streams) is Streams


def _data(shards: Shards) -> Data:
    X = shards.X
    is_sparse = bool(sparse.issparse(X))
    stored = X.data if is_sparse else X
    if stored.dtype not in (np.float32, np.float64):
        raise SpecError(f"the compiled engine reads float32 or float64 data, not {stored.dtype}; convert it first")
    if not is_sparse and not X.flags.c_contiguous:
        raise SpecError("the compiled engine reads data row by row; lay it out with numpy.ascontiguousarray first")
    none = np.empty(0, stored.dtype)
    return Data(
        sparse=is_sparse,
        X=_read_only(none.reshape(0, 0) if is_sparse else X),
        values=_read_only(X.data if is_sparse else none),
        indices=_read_only(X.indices if is_sparse else np.empty(0, np.int32)),
        indptr=_read_only(X.indptr if is_sparse else np.empty(0, np.int32)),
        intercept=float(shards.intercept),
        y=_read_only(shards.y, np.float64),
        norms=_read_only(shards.norms, np.float64),
        offsets=_read_only(shards.offsets, np.int64),
        order=_read_only(np.empty(0) if shards.order is None else shards.order, np.int64),
        starts=_read_only(np.empty(0) if shards.starts is None else shards.starts, np.int64),
    )


def _plan(schedule: Schedule) -> Plan:
    sizes = np.array([len(W) for W in schedule.patterns])
    return Plan(
        starts=_read_only(schedule.starts, np.int64),
        active=_read_only(schedule.active, np.int32),
        pattern=_read_only(schedule.pattern, np.int32),
        weights=_read_only(np.concatenate([W.ravel() for W in schedule.patterns]), np.float64),
        corners=_read_only(np.cumsum(sizes**2) - sizes**2, np.int64),
        widest=int(sizes.max()),
    )


def _model(jobs: Sequence[Job]) -> Model:
    method, loss = jobs[0].method, jobs[0].problem.loss
    _check_loss(loss)
    centre = method.d.centre if isinstance(method.d, Euclidean) else None
    kind = _kind(method)
    closed = kind in (kernel_steps.SEPARABLE, kernel_steps.L2_BALL)
    if centre is not None:  # a centre only shifts z, once and for all, where γ stands still in every run
        closed = closed and all(bool(np.all(j.method.steps.gamma == j.method.steps.gamma[0])) for j in jobs)
    return Model(
        kind=kind,
        **{name: _numbers(jobs, name) for name in ("phi", "mu", "lo", "hi", "radius")},
        curvature=float(method.curvature),
        centre=_read_only(np.empty(0) if centre is None else np.asarray(centre), np.float64),
        closed=closed,
        frozen=method.primal == "as_written",
        loss=int(loss.code),
        parameter=float(loss.parameter),
        clip=_read_only(np.array([job.release.clip for job in jobs]), np.float64),
        outputs=jobs[0].problem.outputs,
    )


def _numbers(jobs: Sequence[Job], name: str) -> NDArray[Any]:
    """One number of h for each run; 0 where its kind does not have it."""
    return _read_only(np.array([getattr(job.method.h, name, 0.0) for job in jobs]), np.float64)


def _steps(jobs: Sequence[Job]) -> Steps:
    """The sequences, each distinct one once; a single one is not copied."""
    distinct: list[DualAveraging] = []
    which = []
    for job in jobs:
        same = [k for k, known in enumerate(distinct) if _same_steps(known, job.method)]
        which.append(same[0] if same else len(distinct))
        if not same:
            distinct.append(job.method)
    rows = []
    for method in distinct:
        a, den = method.steps.a, method.modulus
        P = prefix_sums(a / den)
        Q = prefix_sums(a * method.s / den) if _soft(method.h) else P  # P stands in: it is multiplied by φ = 0
        rows.append((a, method.steps.gamma, method.s, method.steps.A, P, Q))
    tables = (np.asarray(row[0])[None] if len(row) == 1 else np.stack(row) for row in zip(*rows, strict=True))
    a, gamma, s, A, P, Q = (_read_only(table, np.float64) for table in tables)
    return Steps(a, gamma, s, A, P, Q, _read_only(np.array(which), np.int64))


def _noise(jobs: Sequence[Job]) -> Noise:
    first = jobs[0]
    shards = first.problem.shards
    sizes = shards.sizes
    batch = np.array([first.release.sampling.batch(int(q)) for q in sizes])
    keys = {purpose: np.zeros(2, np.uint32) for purpose in Purpose}
    sampler, sigma = kernel_draws.INJECTED, np.zeros((1, len(sizes)))
    if counted(first):
        draws = first.draws
        assert isinstance(draws, Draws)
        sampling = draws.release.sampling
        if type(sampling) not in SAMPLERS:
            raise SpecError(f"the compiled engine has no sampler '{sampling.text}'; {ELSEWHERE}")
        if draws.m != first.problem.m or not np.array_equal(draws.sizes, sizes):
            raise SpecError("the draws are made for other data; give them these shards' sizes and dimension")
        sampler = SAMPLERS[type(sampling)]
        keys = {purpose: np.concatenate(draws.streams.key(purpose)) for purpose in Purpose}
        sigma = np.array([job.draws.release.sigma for job in jobs if isinstance(job.draws, Draws)])
    with np.errstate(divide="ignore"):  # b = q: every record, nothing to skip
        gap_scale = 1.0 / np.log1p(-batch / sizes)
    return Noise(
        sampler=sampler,
        batch=_read_only(batch, np.int64),
        gap_scale=_read_only(gap_scale, np.float64),
        noise_key=_read_only(keys[Purpose.NOISE], np.uint32),
        records_key=_read_only(keys[Purpose.RECORDS], np.uint32),
        sigma=_read_only(sigma, np.float64),
        noisy=_read_only(np.any(sigma > 0, axis=0), np.bool_),
        scale=_read_only(np.stack([job.method.scale for job in jobs]), np.float64),
        injected=_read_only(np.empty((0, first.problem.m)), np.float64),
        records=_read_only(np.empty(0), np.int64),
        starts=_read_only(np.empty(0), np.int64),
        every=_read_only(np.empty(0), np.bool_),
    )


def _read_only(values: NDArray[Any], dtype: Any = None) -> NDArray[Any]:
    """The same memory, not to be written: the data is safe, and the kernel is compiled for one kind of array only."""
    view = np.ascontiguousarray(values, dtype=dtype).view()
    view.flags.writeable = False
    return view


def _soft(h: Regulariser) -> bool:
    return isinstance(h, Separable) and h.phi > 0


def _kind(method: DualAveraging) -> int:
    if type(method.h) not in KINDS or type(method.d) not in (Euclidean, Entropy):
        raise SpecError(
            f"the compiled engine has no step for h = {type(method.h).__name__} under d = {type(method.d).__name__}; "
            f"{ELSEWHERE}"
        )
    return kernel_steps.ENTROPY if isinstance(method.d, Entropy) else KINDS[type(method.h)]


def _check_loss(loss: Loss) -> None:
    known = LOSSES.get(loss.name, SOFTMAX)
    if known is None or known.code != loss.code or known.slope_formula is not loss.slope_formula:
        raise SpecError(f"the compiled engine does not know loss '{loss.name}'; {ELSEWHERE}")


def _same_steps(one: DualAveraging, other: DualAveraging) -> bool:
    numbers = (one.iota, one.h.modulus, one.curvature, _soft(one.h)) == (
        other.iota,
        other.h.modulus,
        other.curvature,
        _soft(other.h),
    )
    return numbers and all(
        mine is theirs or np.array_equal(mine, theirs)
        for mine, theirs in ((one.steps.a, other.steps.a), (one.steps.gamma, other.steps.gamma))
    )


def _check_alike(one: Job, other: Job) -> None:
    """Refuse to stack runs that differ in more than numbers."""
    mine, theirs = one.problem.shards, other.problem.shards
    method, its = one.method, other.method
    draws, its_draws = one.draws, other.draws
    same = {
        "data": mine is theirs
        or (
            mine.X is theirs.X
            and np.array_equal(mine.y, theirs.y)
            and np.array_equal(mine.offsets, theirs.offsets)
            and (mine.order is theirs.order or np.array_equal(mine.order, theirs.order))  # type: ignore[arg-type]
            and (mine.starts is theirs.starts or np.array_equal(mine.starts, theirs.starts))  # type: ignore[arg-type]
            and mine.intercept == theirs.intercept
        ),
        "loss": one.problem.joint == other.problem.joint,
        "schedule": _same_schedule(one.schedule, other.schedule),
        "kind of regulariser": type(method.h) is type(its.h),
        "distance": method.d == its.d,
        "primal": method.primal == its.primal,
        "curvature": method.curvature == its.curvature,
        "sampling": one.release.sampling == other.release.sampling,
        "randomness": draws is its_draws
        or (
            isinstance(draws, Draws)
            and isinstance(its_draws, Draws)
            and counted(one) == counted(other)
            and draws.release.sampling == its_draws.release.sampling
            and all(np.array_equal(draws.streams.key(p), its_draws.streams.key(p)) for p in Purpose)
        ),
    }
    wrong = [name for name, alike in same.items() if not alike]
    if wrong:
        raise SpecError(f"runs that differ in their {', '.join(wrong)} cannot be stacked; run them one by one")


def _same_schedule(one: Schedule, other: Schedule) -> bool:
    if one is other:
        return True
    mine: list[NDArray[Any]] = [one.starts, one.active, one.pattern, *one.patterns]
    theirs: list[NDArray[Any]] = [other.starts, other.active, other.pattern, *other.patterns]
    return (
        one.n == other.n
        and len(one.patterns) == len(other.patterns)
        and all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))
    )
