"""What every engine is given, a job and what is drawn in its rounds; and what an engine is.

An engine is one `Engine`: what it can run, declared, and how. Adding one is one entry of `ENGINES`; the contract of
tests/engine then holds it to the reference, and runs, sweeps and the command know it by its name.
"""

import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from sottovoce import extension, plugins
from sottovoce._renamed import old_arguments, old_attributes
from sottovoce._types import Array, IntArray
from sottovoce.algorithm.descent import Descent
from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.algorithm.method import Gradient, Method, Speaks, State
from sottovoce.engine import native
from sottovoce.engine.secure import SecureDraws
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.matrices import is_sparse
from sottovoce.network.averaging import Exact
from sottovoce.network.mixing import Gossip
from sottovoce.network.schedule import Schedule, Steady
from sottovoce.network.wide import Wide
from sottovoce.privacy.release import Draws, Gaussian, Release
from sottovoce.privacy.sampling import Full
from sottovoce.privacy.statistics import Products
from sottovoce.problem.losses import Loss
from sottovoce.problem.moments import packed_moments
from sottovoce.problem.objective import Problem, clipped_mean
from sottovoce.problem.regularizers import Entropy, Euclidean
from sottovoce.problem.shards import Shards


class Randomness(Protocol):
    """Where an engine gets its draws from: counters in a run, anything at all in a test."""

    def records(self, nodes: IntArray, t: IntArray) -> list[IntArray | None]:
        """Which records are used, for each pair (node, round); None for all of the node's."""

    def noise(self, nodes: IntArray, t: IntArray) -> Array:
        """A row of noise for each pair (node, round)."""


class Mapped(NamedTuple):
    """A public map of rows, x ↦ s ∘ (x − c), each then brought within the reach; for engines that make it themselves.

    Runs whose records are the same but for such maps can then share one reading of them.
    """

    scale: Array
    """s."""
    center: Array | None
    """c; None where nothing is taken off."""
    reach: float


@dataclass(frozen=True, eq=False)
class Job:
    """A problem, an algorithm, a fixed public schedule, a release and its draws.

    Where `mapped` is given, the problem's records are as they came, and the run is one on what that map makes of them.
    """

    problem: Problem
    method: Method
    schedule: Schedule
    release: Release
    draws: Randomness
    mapped: Mapped | None = None

    @property
    def secure(self) -> bool:
        """Whether what it releases is hardened: exact sums, exact noise, rounded once."""
        return isinstance(self.draws, SecureDraws)

    def start(self) -> State:
        """The state before round 1."""
        return self.method.start(self.problem.shards.n, self.problem.m)


def gradients(problem: Problem, release: Release, nodes: IntArray, records: list[IntArray | None]) -> Gradient:
    """x of some nodes -> ĝ_i, their clipped mean subgradients over the given records, (nodes, m).

    Where not subgradients are released but the products of all records' numbers: the mean of those, whatever x is.
    """
    how = release.sampling
    if isinstance(how, Products):
        shards = problem.shards
        return lambda x: np.stack(
            [packed_moments(shards, i, how.weight, how.row_norm, how.columns) / shards.sizes[i] for i in nodes.tolist()]
        )

    def gradient(x: Array) -> Array:
        rows = zip(nodes.tolist(), x, records, strict=True)
        return np.stack([clipped_mean(problem, i, x_i, drawn, batches[i], release.clip) for i, x_i, drawn in rows])

    batches = {i: release.sampling.batch(int(problem.shards.sizes[i])) for i in nodes.tolist()}
    return gradient


def once(gradient: Gradient) -> Gradient:
    """The same function, for one call: a second one would release the same noise on another gradient."""
    calls = iter((gradient,))

    def at(x: Array) -> Array:
        first = next(calls, None)
        if first is None:
            raise PrivacyError(
                "a method requests the gradient once a step: a second one would carry the same noise, which their "
                "difference does not; keep what the first call gave, or take another round"
            )
        return first(x)

    return at


class Drawn(Protocol):
    """What was drawn for some pairs (node, round): which records, and what is added to their subgradients."""

    @property
    def records(self) -> list[IntArray | None]:
        """Which records each pair uses; None for all of the node's, none for a node that only listens."""

    @property
    def noise(self) -> Array:
        """A row for each pair, of what is left to be added to what `gradient` gives."""

    def at(self, places: slice) -> "Drawn":
        """Of some of the pairs."""

    def gradient(self, problem: Problem, release: Release, nodes: IntArray) -> Gradient:
        """x of the pairs -> ĝ_i over the drawn records, or, of secure draws, ζ_i; `nodes` as the problem counts."""


class PlainDrawn(NamedTuple):
    """Records and noise, apart: the noise is added in floating point, which is what a simulation does."""

    records: list[IntArray | None]
    noise: Array

    def at(self, places: slice) -> "PlainDrawn":
        """Of some of the pairs."""
        return PlainDrawn(self.records[places], self.noise[places])

    def gradient(self, problem: Problem, release: Release, nodes: IntArray) -> Gradient:
        """x of the pairs -> ĝ_i."""
        return gradients(problem, release, nodes, self.records)


def draw(draws: Randomness, nodes: IntArray, t: IntArray, speaks: Speaks, m: int) -> Drawn:
    """Records and noise of these pairs (node, round); a node that only listens has neither."""
    if isinstance(draws, SecureDraws):
        return draws.drawn(nodes, t, speaks)
    if np.all(speaks):
        return PlainDrawn(draws.records(nodes, t), draws.noise(nodes, t))
    records: list[IntArray | None] = [np.empty(0, dtype=np.int64)] * len(nodes)
    noise = np.zeros((len(nodes), m))
    loud = np.flatnonzero(speaks)
    for place, drawn in zip(loud.tolist(), draws.records(nodes[loud], t[loud]), strict=True):
        records[place] = drawn
    noise[loud] = draws.noise(nodes[loud], t[loud])
    return PlainDrawn(records, noise)


class Stretch(NamedTuple):
    """Rounds first … last: for each pair (active node, round), in order, whether it speaks, and what it draws."""

    first: int
    last: int
    nodes: IntArray
    t: IntArray
    speaks: Speaks
    drawn: Drawn


def stretches(job: Job, start: int, stop: int, numbers: int) -> Iterator[Stretch]:
    """Rounds start … stop, so many at a time that their noise has about that many numbers, and one at the least."""
    starts, m = job.schedule.starts, job.problem.m
    first = start
    while first <= stop:
        last = int(np.searchsorted(starts, starts[first - 1] + max(1, numbers // m), side="right")) - 1
        last = min(max(last, first), stop)
        nodes = job.schedule.listed(first, last).astype(np.int64)
        t = np.repeat(np.arange(first, last + 1), np.diff(starts[first - 1 : last + 1]))
        speaks = job.schedule.speaks(first, last)
        yield Stretch(first, last, nodes, t, speaks, draw(job.draws, nodes, t, speaks, m))
        first = last + 1


BatchRunner = Callable[[Sequence[Job], Sequence[State], int, int], list[State]]
"""(jobs, states, start, stop) -> states: rounds start … stop of jobs that share their draws; states are left alone."""


class Device(Protocol):
    """What an engine adds that keeps records and states on a device, such as a GPU.

    Such an engine also runs jobs together whose seeds, schedules and partitions of the records differ, and puts records
    through a job's public map itself.
    """

    def name(self) -> str:
        """What results call the device."""

    def judge(self, problem: Problem, models: Array, other: Shards | None) -> tuple[Array, Array]:
        """`Problem.judge`, where the records are."""

    def evaluate_states(self, jobs: Sequence[Job], states: Sequence[State], t: int) -> tuple[Array, Array] | None:
        """(mean model over the nodes, their mean distance from it) of each run; None leaves it to the method."""

    def minimize(self, problem: Problem, gap: float) -> tuple[Array, Array] | None:
        """Points (x, slopes) near the optimum for `problem.optimum` to certify, or None."""


@old_arguments
@old_attributes
@dataclass(frozen=True)
class Engine:
    """What an engine can run, and how. Where a set is None, it can run everything.

    Attributes
    ----------
    name : its name in options
    run_jobs : runs the rounds, of jobs that it does not refuse
    methods, samplers, regularizers, distances, averagings : the types that it knows
    losses : the losses that it knows, by name
    large_n_averagings : the averagings that it knows where a round has more nodes than a matrix is made for
    secure : whether it runs jobs whose draws are secure ones
    auto_threshold : work (see `work`) from which on 'auto' takes it; never, unless this is said
    noise_rtol : how far, relatively, the noise that it makes itself is from the reference's
    rounding : how far, relatively, its trajectories may be from the reference's where all draws are the same
    hidden : whether its rounds are not made by the method's own `step`, so that nobody can watch them but by the states
    unknown : what it does not know of a job besides, in words that follow 'the'
    unavailable : what it needs and this machine has not; None where there is nothing
    device : what it evaluates where its records are, if that is not in this process's memory
    """

    name: str
    run_jobs: BatchRunner
    methods: Collection[type] | None = None
    samplers: Collection[type] | None = None
    regularizers: Collection[type] | None = None
    distances: Collection[type] | None = None
    averagings: Collection[type] | None = None
    losses: Mapping[str, Loss] | None = None
    large_n_averagings: Collection[type] | None = None
    secure: bool = True
    auto_threshold: float = math.inf
    noise_rtol: float = 0.0
    rounding: float = 1e-12
    hidden: bool = False
    unknown: Callable[[Job], str | None] | None = None
    unavailable: Callable[[], str | None] | None = None
    device: Device | None = None

    def refusal(self, job: Job) -> str | None:
        """Why it cannot run a job, in one line; None where it can.

        Examples
        --------
        >>> import numpy as np
        >>> from sottovoce import AlgorithmSpec, Shards, Spec
        >>> from sottovoce.run.build import prepare
        >>> shards = Shards.of(np.eye(4), np.array([1.0, -1.0, 1.0, -1.0]), np.array([0, 2, 4]))
        >>> ENGINES["compiled"].refusal(prepare(Spec(AlgorithmSpec(3)), shards).job)
        >>> ENGINES["compiled"].refusal(prepare(Spec(AlgorithmSpec(3, method="stale")), shards).job)
        "the compiled engine does not know the method Stale; use engine='reference', which runs everything"
        """
        lacks = self.lacks()
        if lacks is not None:
            return f"the {self.name} engine cannot run: {lacks}"
        unknown = next(self._unknown(job), None)
        if unknown is None:
            return None
        return f"the {self.name} engine does not know the {unknown}; use engine='reference', which runs everything"

    def lacks(self) -> str | None:
        """What it needs and this machine has not."""
        return None if self.unavailable is None else self.unavailable()

    def _unknown(self, job: Job) -> Iterator[str]:
        parts = {
            "method": (job.method, self.methods),
            "sampler": (job.release.sampling, self.samplers),
            "regularizer": (getattr(job.method, "h", job.problem.h), self.regularizers),
            "distance": (getattr(job.method, "d", Euclidean()), self.distances),
            "averaging": (job.schedule.averaging, self.averagings),
        }
        for noun, (value, known) in parts.items():
            if known is not None and type(value) not in known:
                yield f"{noun} {type(value).__name__}"
        loss = job.problem.loss
        row = loss if self.losses is None else self.losses.get(loss.name)
        if row is None or row.slope_formula is not loss.slope_formula:
            yield f"loss '{loss.name}' (it knows the built-in losses)"
        if self.large_n_averagings is not None and job.schedule.large_n:
            yield from self._too_many(job)
        if not self.secure and job.secure:
            yield "secure release (of a run without a seed; secure=False or --no-secure would do without)"
        if self.hidden and getattr(job.release.law, "epochs", None) is not None:
            yield "loss of nodes that share noise"
        if self.device is None and job.mapped is not None:
            yield "map of records that are not mapped yet"
        other = None if self.unknown is None else self.unknown(job)
        if other is not None:
            yield other

    def _too_many(self, job: Job) -> Iterator[str]:
        """Of a run with more nodes in a round than a matrix is made for."""
        averaging, law = job.schedule.averaging, job.release.law
        if not isinstance(job.schedule, Steady):
            yield "schedule: rounds of so many nodes, and not always the same ones"
        if self.large_n_averagings is not None and type(averaging) not in self.large_n_averagings:
            yield f"averaging '{averaging}' of so many nodes"
        means = all(isinstance(W, Wide) and W.flat for W in job.schedule.patterns) or isinstance(averaging, Exact)
        if type(job.draws) is not Draws or not (type(law) is Gaussian or (law.secrets and means)):
            yield f"noise mechanism {type(law).__name__} of so many nodes, unless every round ends with the mean of all"

    def refuse(self, jobs: Sequence[Job]) -> None:
        """Raise what `refusal` says, if it says anything."""
        for job in jobs:
            reason = self.refusal(job)
            if reason is not None:
                raise SpecError(reason)

    def run(self, jobs: Sequence[Job], states: Sequence[State], start: int, stop: int) -> list[State]:
        """The states after round `stop` of jobs that share their draws; the given ones, from before `start`, are left.

        Observation, progress and checkpoints happen between such calls, outside the engine.
        """
        self.refuse(jobs)
        return self.run_jobs(jobs, states, start, stop)


def one_by_one(run: Callable[[Job, State, int, int], State]) -> BatchRunner:
    """An engine for several jobs, made of one for a single job."""

    def run_jobs(jobs: Sequence[Job], states: Sequence[State], start: int, stop: int) -> list[State]:
        return [run(job, state, start, stop) for job, state in zip(jobs, states, strict=True)]

    return run_jobs


def _reference(job: Job, state: State, start: int, stop: int) -> State:
    from sottovoce.engine import reference  # it is made of what stands here

    return reference.run(job, state, start, stop)


def _nodes(job: Job, state: State, start: int, stop: int) -> State:
    from sottovoce.engine import nodes  # only when used, as are threads and queues

    return nodes.run(job, state, start, stop)


def _compiled(jobs: Sequence[Job], states: Sequence[State], start: int, stop: int) -> list[State]:
    from sottovoce.engine import compiled  # an installation may be without the extension

    return compiled.run_stacked(jobs, states, start, stop)


ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine("reference", one_by_one(_reference)),
        Engine("nodes", one_by_one(_nodes)),
        Engine(
            "compiled",
            _compiled,
            methods=(DualAveraging, Descent),
            samplers=native.SAMPLERS,
            regularizers=native.KINDS,
            distances=(Euclidean, Entropy),
            averagings=native.AVERAGINGS,
            losses=native.LOSSES,
            large_n_averagings=(Gossip, Exact),
            secure=False,
            hidden=True,
            auto_threshold=2e7,  # half a second of the reference engine
            noise_rtol=3e-7,  # float32
            unavailable=None if extension.AVAILABLE else lambda: extension.MISSING,
        ),
    )
}

OVERHEAD = 5000  # what a release costs the reference engine besides, in coordinates
GATHER = 5.0  # what a record costs it that is drawn
IN_ORDER = 1.0  # or comes in its turn
ENTRIES = 100  # what a sparse row is counted with where its own number must not be examined
READ = 0.02  # what a number of a record costs it, to copy; half as much for every output


def work(job: Job) -> int:
    """What the reference engine has to do, in coordinates of noise: those released, and what reading records costs."""
    shards, how = job.problem.shards, job.release.sampling
    sizes, which = np.unique(shards.sizes, return_inverse=True)
    batches = np.array([how.batch(q) for q in sizes.tolist()], dtype=np.float64)[which]
    records = float(job.schedule.participations() @ batches)
    numbers = shards.X.size / max(1, shards.X.shape[0])  # of CSR rows those that are stored
    if is_sparse(shards.X) and not (isinstance(job.draws, Draws) and job.draws.streams.seeded):
        numbers = min(ENTRIES, shards.X.shape[1])  # how many are stored is secret, and a result names its engine
    each = (IN_ORDER if isinstance(how, Full) else GATHER) + READ * numbers * (1.0 + job.problem.outputs / 2)
    return int(int(job.schedule.starts[-1]) * (job.problem.m + OVERHEAD) + records * each)


LARGE = 1e9
"""Work from which 'auto' also considers the engines of installed plug-ins: finding those takes a tenth of a second."""
ELSEWHERE = {
    "gpu": "a plug-in that is not installed; on a machine with an NVIDIA GPU and its driver, install it with "
    "pip install './plugins/gpu[cuda12]' from the source code of sottovoce"
}
"""Engines of plug-ins of this project, and how to get them."""


def engine_named(name: str) -> Engine:
    """The engine of this name, ours or a plug-in's; an error with what there is, if there is none."""
    if name in ENGINES or plugins.found("engine", name, ENGINES):
        return ENGINES[name]
    wrong = plugins.hint("engine")
    if name in ELSEWHERE and not wrong:
        raise SpecError(f"engine '{name}' is {ELSEWHERE[name]}")
    raise SpecError(f"there is no engine '{name}'; choose one of auto, {', '.join(ENGINES)}{wrong}")


def check_engine(name: str) -> None:
    """Refuse an engine that is not there."""
    if name != "auto":
        engine_named(name)


def choose(name: str, job: Job, runs: int = 1) -> Engine:
    """The engine of this name; for 'auto' the one that is worth loading, or else the reference.

    Parameters
    ----------
    name : a name in `ENGINES`, or 'auto'
    job : what is to be run
    runs : of about how many such runs it is one: they share the time that an engine takes to load
    """
    if name != "auto":
        return engine_named(name)
    size = work(job) * runs
    if size > LARGE:
        plugins.load()
    if not extension.AVAILABLE and size > ENGINES["compiled"].auto_threshold:
        warnings.warn(f"this run is slow: {extension.MISSING}", UserWarning, stacklevel=2)
    worthy = [each for each in ENGINES.values() if size > each.auto_threshold and each.refusal(job) is None]
    return max(worthy, key=lambda each: each.auto_threshold, default=ENGINES["reference"])
