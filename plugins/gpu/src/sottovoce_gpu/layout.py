"""Jobs that differ in numbers only, as the flat arrays that the kernels read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array
from sottovoce.algorithm.descent import Descent
from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.algorithm.method import prefix_sums
from sottovoce.engine.job import Job
from sottovoce.errors import SpecError
from sottovoce.network.mixing import listed
from sottovoce.network.schedule import Schedule
from sottovoce.privacy.pairs import Pairs
from sottovoce.privacy.release import Draws, Gaussian
from sottovoce.privacy.sampling import Cyclic, Fixed, Full, Poisson
from sottovoce.problem.regularizers import Separable
from sottovoce.streams import Purpose, Streams

Known: TypeAlias = DualAveraging | Descent
"""The methods that the kernels know."""
FIXED, POISSON, FULL, CYCLIC = range(4)
SAMPLERS: dict[type, int] = {Fixed: FIXED, Poisson: POISSON, Full: FULL, Cyclic: CYCLIC}
"""The number by which the kernels know each sampler."""
FLAT = 1e-13
"""Largest difference between weights that are equal up to rounding."""
LEVEL = 1e-14
"""Largest relative difference between the sizes of pairwise noise that are equal up to rounding."""


class Plan(NamedTuple):
    """The schedule; weights[corners[p]:] is pattern p, row by row, group after group."""

    starts: Any
    active: Any
    pattern: Any
    weights: Any
    corners: Any
    groups: Any
    """Number of equal groups of a pattern's active nodes that do not exchange messages with one another."""
    flat: Any
    """Whether all weights of a pattern are equal, so that each node gets the mean."""
    speakers: int
    """Number of a round's active nodes, the first ones, that take a gradient."""


class Model(NamedTuple):
    """The regularizer and the loss; arrays have one number per run."""

    phi: Any
    mu: Any
    lo: Any
    hi: Any
    frozen: bool
    """Whether x stays the same while a node is inactive: primal='as_written', and descent."""
    descent: bool
    """Whether x = z, and h enters by its proximal map after mixing."""
    after: bool
    """Whether the gradient is added after mixing."""
    parameter: float
    clip: Any


class Steps(NamedTuple):
    """a_t, γ_t, s_t = ιA_t of rounds 1 … T, and the prefix sums of `LazySum`; axis 0: distinct sequences."""

    push: Any
    """The factor on c_i ζ_i in a message: a_t, or −η_t in descent."""
    a: Any
    gamma: Any
    s: Any
    A: Any
    P: Any
    Q: Any
    which: Any
    """(R,) the sequences of each run."""


class Noise(NamedTuple):
    """The counters that the draws come from, and how large they are."""

    sampler: int
    batch: Any
    gap_scale: Any
    noise_key: Any
    records_key: Any
    sigma: Any
    """(R, n) σ_i."""
    scale: Any
    """(R, n) c_i."""


@dataclass(frozen=True)
class Layout:
    """R runs, flat, without their records."""

    plan: Plan
    model: Model
    steps: Steps
    noise: Noise

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> "Layout":
        """Lay out jobs that share schedule and draws."""
        apart = type(jobs[0].release.law) is Gaussian
        return cls(_plan(jobs[0].schedule, apart), _model(jobs), _steps(jobs), _noise(jobs))


def counted(job: Job) -> bool:
    """Whether the kernels can make the job's draws from its counters."""
    draws = job.draws
    if type(draws) is not Draws or type(draws.streams) is not Streams:
        return False
    law = draws.release.law
    return type(law) is Gaussian or (type(law) is Pairs and law.whole)


def _plan(schedule: Schedule, apart: bool) -> Plan:
    """Lay out the schedule; `apart`: disjoint edges may be separate groups."""
    apart = apart and schedule.averaging.linear
    widest = max(len(W) for W in schedule.patterns)
    mixtures = [listed(W) for W in schedule.mixtures]
    groups = [_groups(W) if apart else [slice(0, len(W))] for W in mixtures]
    blocks = [np.concatenate([W[at, at].ravel() for at in split]) for W, split in zip(mixtures, groups, strict=True)]
    sizes = np.array([len(block) for block in blocks])
    return Plan(
        starts=np.asarray(schedule.starts, np.int64),
        active=np.asarray(schedule.active, np.int32),
        pattern=np.asarray(schedule.pattern, np.int32),
        weights=np.concatenate(blocks),
        corners=np.cumsum(sizes) - sizes,
        groups=np.array([len(split) for split in groups]),
        flat=np.array([bool(np.ptp(W) <= FLAT) for W in mixtures]),
        speakers=schedule.speakers or widest,
    )


def _groups(W: Array) -> list[slice]:
    """The active nodes of a round in pairs if no two pairs exchange messages; else all together."""
    pairs = [slice(at, at + 2) for at in range(0, len(W), 2)]
    apart = W.copy()
    for pair in pairs:
        apart[pair, pair] = 0.0
    return pairs if len(W) > 2 and len(W) % 2 == 0 and not apart.any() else [slice(0, len(W))]


def _model(jobs: Sequence[Job]) -> Model:
    method = _method(jobs[0])
    descent = isinstance(method, Descent)
    return Model(
        **{name: _numbers(jobs, name) for name in ("phi", "mu", "lo", "hi")},
        frozen=not isinstance(method, DualAveraging) or method.primal == "as_written",
        descent=descent,
        after=isinstance(method, Descent) and method.combine_first,
        parameter=float(jobs[0].problem.loss.parameter),
        clip=np.array([job.release.clip for job in jobs], np.float64),
    )


def _numbers(jobs: Sequence[Job], name: str) -> NDArray[Any]:
    """One number of h for each run; 0 where its kind does not have it."""
    return np.array([getattr(_method(job).h, name, 0.0) for job in jobs], np.float64)


def _steps(jobs: Sequence[Job]) -> Steps:
    """The sequences, each distinct one once; a single one is not copied."""
    distinct: list[Known] = []
    which = []
    for job in jobs:
        method = _method(job)
        same = [k for k, other in enumerate(distinct) if _same_steps(other, method)]
        which.append(same[0] if same else len(distinct))
        if not same:
            distinct.append(method)
    tables = zip(*map(_sequences, distinct), strict=True)
    rows = [np.asarray(table[0])[None] if len(table) == 1 else np.stack(table) for table in tables]
    return Steps._make([*(np.asarray(row, np.float64) for row in rows), np.array(which, np.int64)])


_sequenced: WeakKeyDictionary[Known, tuple[Array, ...]] = WeakKeyDictionary()


def _sequences(method: Known) -> tuple[Array, ...]:
    """push, a, γ, s, A, P and Q, made once: runs of many seeds share their method."""
    if method not in _sequenced:
        _sequenced[method] = _summed(method)
    return _sequenced[method]


def _summed(method: Known) -> tuple[Array, ...]:
    """The sequences; one that the method does not use is replaced by another of the right length."""
    if isinstance(method, Descent):
        return -method.eta, method.a, method.a, method.a, method.A, method.A, method.A
    steps, den = method.steps, method.modulus
    P = prefix_sums(steps.w / den)
    Q = prefix_sums(steps.w * method.s / den) if _soft(method) else P  # otherwise Q is multiplied by φ = 0
    return steps.a, steps.w, steps.gamma, method.s, steps.W, P, Q


def _noise(jobs: Sequence[Job]) -> Noise:
    first, sizes = jobs[0], jobs[0].problem.shards.sizes
    draws = first.draws
    assert isinstance(draws, Draws)
    if draws.m != first.problem.m or not np.array_equal(draws.sizes, sizes):
        raise SpecError("the draws are made for other data; give them these shards' sizes and dimension")
    batch = np.array([first.release.sampling.batch(int(q)) for q in sizes])
    with np.errstate(divide="ignore"):  # b = q: every record, nothing to skip
        gap_scale = 1.0 / np.log1p(-batch / sizes)
    return Noise(
        sampler=SAMPLERS[type(draws.release.sampling)],
        batch=batch.astype(np.int64),
        gap_scale=gap_scale,
        noise_key=np.concatenate(draws.streams.key(Purpose.NOISE)).astype(np.uint32),
        records_key=np.concatenate(draws.streams.key(Purpose.RECORDS)).astype(np.uint32),
        sigma=np.array([job.draws.release.sigma for job in jobs if isinstance(job.draws, Draws)]),
        scale=np.stack([_method(job).scale for job in jobs]),
    )


def _method(job: Job) -> Known:
    """The job's method, which is one that the kernels know."""
    assert isinstance(job.method, DualAveraging | Descent)
    return job.method


def _soft(method: DualAveraging) -> bool:
    return isinstance(method.h, Separable) and method.h.phi > 0


def _same_steps(one: Known, other: Known) -> bool:
    if isinstance(one, DualAveraging) and isinstance(other, DualAveraging):
        numbers = [(m.iota, m.h.modulus, m.curvature, _soft(m)) for m in (one, other)]
        pairs = [(one.steps.a, other.steps.a), (one.steps.gamma, other.steps.gamma), (one.steps.w, other.steps.w)]
        return numbers[0] == numbers[1] and _equal(pairs)
    return isinstance(one, Descent) and isinstance(other, Descent) and _equal([(one.a, other.a), (one.eta, other.eta)])


def _equal(pairs: list[tuple[Array, Array]]) -> bool:
    return all(mine is theirs or np.array_equal(mine, theirs) for mine, theirs in pairs)
