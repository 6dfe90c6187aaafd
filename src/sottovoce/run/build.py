"""From a spec and the data to a job: the one place where values meet and everything is checked together."""

import math
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from sottovoce import within
from sottovoce._types import Array, IntArray
from sottovoce.algorithm.descent import Descent
from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.algorithm.method import Released, State
from sottovoce.algorithm.methods import Ingredients, make_method
from sottovoce.algorithm.oneshot import OneShot
from sottovoce.algorithm.statistics import Statistics
from sottovoce.engine.job import Job, Mapped, Randomness
from sottovoce.engine.secure import WORTH, SecureDraws, exact_sums, refusal
from sottovoce.errors import DataError, PrivacyError, SpecError
from sottovoce.network.activation import Activation, Everyone
from sottovoce.network.averaging import Trimmed
from sottovoce.network.mixing import activation_rate, beta
from sottovoce.network.schedule import Schedule, draw_schedule
from sottovoce.privacy.balance import NO_BALANCE
from sottovoce.privacy.calibration import Circumstances
from sottovoce.privacy.moments import NO_MOMENTS
from sottovoce.privacy.objective import extra_epsilon
from sottovoce.privacy.quantiles import NO_QUANTILES
from sottovoce.privacy.release import Attendance, Draws, Law, Objective, Release, Setting, refuse_unless_runnable
from sottovoce.privacy.sampling import Cyclic, Full, Sampling
from sottovoce.privacy.statement import PERSON, RECORD, PrivacyStatement, make_statement
from sottovoce.privacy.statistics import Products, left_in_mean
from sottovoce.privacy.theorem1 import Theorem1
from sottovoce.problem.losses import Joint
from sottovoce.problem.objective import Problem
from sottovoce.problem.regularisers import Euclidean
from sottovoce.problem.shards import Shards
from sottovoce.run.spec import ProblemSpec, Spec
from sottovoce.secure.generator import fresh
from sottovoce.streams import Streams

if TYPE_CHECKING:
    from sottovoce.run.shape import Shape
    from sottovoce.run.targets import Narrowed

ROW_SLACK = 1e-5  # rounding of files and of float32; harmless, since every subgradient is clipped to L in any case

LINKS = 500_000
"""Links of a graph that a result lists; a larger one is known by its name."""

EXACT_MEAN = 1e-9  # β of a mixing that leaves every node with the mean, up to rounding


class Public(TypedDict, total=False):
    """Numbers that follow from a spec and public sizes alone."""

    n: int
    m: int
    records: list[int]
    edges: list[list[int]]
    """Who is linked with whom, where that is no more than `LINKS`."""
    iota: float
    beta: float
    beta_error: float
    lipschitz: float
    """L."""
    participations: list[int]
    """K_i."""
    depth: int
    """How many exchanges of the run wait for the one before, the first included."""
    theorem1: list[dict[str, Any]]
    """What the paper claims for its noise, node by node, where that is the noise."""
    run: str
    """The run's digest, where real nodes ran it."""
    noise: float
    """s, the deviation that noise leaves in each number of the mean of all statistics, where those were released."""
    schedule_seed: int | None
    """Of the schedule, where it is not the run's own seed: who speaks when can be drawn again by anybody."""
    targets: list[float]
    """The range of targets that was found from their noisy counts, within [−1, 1], where those were let out."""
    moved: float
    """What was added to scores after the last round, from noisy counts of them, where those were let out."""
    skips: int
    """How many edges of a real node were left out of a round, by agreement of both ends."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A job ready to run, with the public numbers that were derived on the way."""

    spec: Spec
    job: Job
    public: Public
    claims: tuple[Theorem1, ...]
    seeded: bool
    shape: "Shape | Narrowed | None" = None
    """The public map that the run's records, or their targets, went through, where the spec asks for one."""
    records: Problem | None = None
    """The problem with the records as they came, where they were mapped."""
    moved: float = 0.0
    """What is added to every score after the last round, where counts of scores were let out for that."""

    @property
    def original(self) -> Problem:
        """The problem with the records as they came."""
        return self.job.problem if self.records is None else self.records

    def models(self, state: State, t: int) -> Array:
        """What every node puts out after round t, as models of the records as they came."""
        found = self.job.method.average(state, t)
        found = found if self.shape is None else self.shape.back(found)
        if self.moved and t == self.spec.algorithm.rounds:
            found = np.array(found)
            found[..., -1] += self.moved / self.spec.problem.intercept
        return found

    @property
    def statement(self) -> PrivacyStatement:
        """What the run guarantees: accounted when first asked for, from the job's own release and schedule."""
        # no cached_property: until Python 3.12 it has one lock for all objects, and runs side by side wait for it
        if "stated" not in self.__dict__:
            self.__dict__["stated"] = self._state()
        found: PrivacyStatement = self.__dict__["stated"]
        return found

    def _state(self) -> PrivacyStatement:
        job = self.job
        spoken = job.schedule.participations()
        shards, unit = job.problem.shards, PERSON if job.problem.shards.people else RECORD
        delta, turns = self.spec.privacy.delta, job.schedule.turns
        return make_statement(
            job.release, shards.sizes, spoken, delta, self.claims, self.seeded, unit, turns, secure=job.secure
        )


def prepare(
    spec: Spec,
    shards: Shards,
    schedule: Schedule | None = None,
    secure: bool = True,
    unmapped: bool = False,
    like: Prepared | None = None,
) -> Prepared:
    """Check a spec against the data and draw the public schedule, unless this very spec's is at hand already.

    Nothing of the data but public sizes and the row bound is looked at here; where the spec asks for moments, or for
    counts of targets, they are let out here, with their noise, and the run is one on mapped records (`run.shape`,
    `run.targets`).

    Parameters
    ----------
    spec, shards : what to run, and on what
    schedule : who is active when, if that is drawn already
    secure : whether the releases of a run with noise and without a seed are to be secure ones. A seed makes a run a
        simulation, whose noise is floating point from a fast generator.
    unmapped : whether to leave records of a simulation as they are, and their map to the engine (`Job.mapped`)
    like : a run on the same shards; one that is the same but for noise and seed shares its problem and its method
    """
    kin = like if like is not None and _kin(like, spec, shards) else None
    problem = make_problem(spec.problem, shards) if kin is None else kin.job.problem
    streams = Streams(spec.seed)
    network, algorithm, privacy, n = spec.network, spec.algorithm, spec.privacy, shards.n
    graph, activation, T = network.graph(n), scheme_of(spec, n), algorithm.rounds
    privacy.sampling.batch(int(shards.sizes.min()))  # refuses what the smallest node cannot fill
    if shards.people and isinstance(privacy.sampling, Cyclic):
        raise PrivacyError(
            f"'{privacy.sampling}' takes people in the order of their rows, in which one person moves all others; draw "
            "people at random, as with 'poisson(64)', or take records as units"
        )
    adversary, origin = privacy.adversary.among(n), problem
    shape: Shape | Narrowed | None = None
    narrowed: Narrowed | None = None
    keys = fresh() if secure and not streams.seeded else None
    before, distance, mapped = None, algorithm.distance, None
    if privacy.moments != NO_MOMENTS:
        from sottovoce.run.shape import look  # a chapter of its own, for those who need it

        check_rows(spec.problem, problem.shards)
        seen = look(spec, shards, graph)
        before = seen.release
        if unmapped:
            if not streams.seeded or shards.people or (shards.order is not None and len(shards.order) < len(shards.y)):
                raise SpecError("only all records of a simulation, each a unit by itself, can be left to be mapped")
            shape = of_rows = seen.shape(seen.mean(problem, streams))
            mapped = Mapped(of_rows.scale, of_rows.centre, of_rows.reach)
        else:
            shape = seen.shape(seen.weights @ seen.released(problem, streams, keys))
    elif privacy.quantiles != NO_QUANTILES:
        from sottovoce.run.targets import count  # another

        if problem.loss.targets != "real":
            raise SpecError(
                f"'{privacy.quantiles}' is of a regression's targets, and loss '{problem.loss}' has classes"
            )
        counted = count(spec, shards, graph)
        before = counted.release
        shape = narrowed = counted.narrowed(counted.released(problem, streams, keys))
    if privacy.balance != NO_BALANCE:
        if problem.loss.targets != "binary" or problem.outputs > 1 or not spec.problem.intercept:
            raise SpecError(
                f"'{privacy.balance}' moves the constant term between two classes, and this run has no such term; "
                "leave it out, or give two classes and an intercept"
            )
        if before is None:
            from sottovoce.run.shape import look_release

            before = look_release(spec, shards.sizes, int(shards.X.shape[1]), graph)
    if shape is not None:
        if mapped is None:
            problem = make_problem(spec.problem, shape.shards(shards))
        if isinstance(distance, Euclidean) and distance.centre is not None:
            distance = Euclidean(tuple(shape.forth(np.array(distance.centre)).tolist()))
    iota, correction = activation_rate(graph, activation, network.correct)
    mixing = beta(graph, activation, network.weights, averaging=network.averaging)
    drawn_from = secrets.randbits(63) if spec.seed is None else spec.seed  # public, and never the seed of a secret
    kept = Public() if schedule is not None or streams.seeded else Public(schedule_seed=drawn_from)
    if narrowed is not None:
        kept["targets"] = [narrowed.low, narrowed.high]
    if schedule is None:
        rng = Streams(drawn_from).schedule()
        schedule = draw_schedule(graph, activation, network.weights, T, rng, network.averaging).spaced(network.every)
    spoken = schedule.participations()
    scale = n * problem.node_weights * correction
    method = (
        kin.job.method
        if kin is not None
        else make_method(
            algorithm.method,
            Ingredients(
                problem,
                algorithm.a(T),
                algorithm.gamma(T),
                algorithm.eta(T),
                iota,
                scale,
                distance,
                algorithm.primal,
                algorithm.curvature,
                network.every,
                spec.problem.row_bound,
                algorithm.counted,
            ),
        )
    )
    if not network.averaging.linear and not isinstance(method, DualAveraging | Descent):
        raise SpecError(
            f"'{network.averaging}' averaging is for dual averaging and descent, whose nodes send one vector a round; "
            f"average by gossip in '{algorithm.method}'"
        )
    released = method.released
    if not released.iterates and privacy.clip is not None:
        raise PrivacyError(
            f"'{algorithm.method}' minimises and clips nothing, so that a clip would bound nothing; leave it out"
        )
    if shape is not None and not released.iterates and (shape.of_rows or released.weight is None):
        raise SpecError(
            f"'{algorithm.method}' is no descent that a map of its records would help; leave '{privacy.once}' out"
        )
    if (
        shape is None or not shape.of_rows
    ):  # mapped rows may be longer: what bounds a record is the clip of its subgradient
        check_rows(spec.problem, problem.shards, refuse=not released.iterates and released.weight is None)
    sampling: Sampling = privacy.sampling
    if released.weight is None:
        lipschitz = make_lipschitz(spec)
    else:
        sampling = _products(spec, released, released.weight, mixing.beta)
        lipschitz = sampling.bound
    numbers = problem.m if released.numbers is None else released.numbers
    law: Law
    if released.curvature is not None:
        law = Objective(extra_epsilon(*released.curvature))
    else:
        law = privacy.law.on(
            Setting(
                graph,
                sampling,
                shards.sizes,
                numbers,
                released.shape,
                privacy.adversary,
                scale,
                attendance(schedule),
            )
        )
    if law.secrets and isinstance(network.averaging, Trimmed):
        raise SpecError(
            f"noise that pairs of nodes share is gone from the mean of all only, and '{network.averaging}' takes "
            "another; average by gossip, exact or clipped(radius), or use independent noise"
        )
    refuse_unless_runnable(adversary, law.secrets, n)
    unit = Release(sampling, released.reach(lipschitz), law.units(n), adversary, law, before)
    known = Circumstances(unit, shards.sizes, spoken, privacy.delta, iota, T, schedule.turns)
    sigma, claims = privacy.noise.scales(known)
    release = replace(unit, sigma=sigma)
    if isinstance(method, Statistics):  # which solves with what it knows of the noise
        method = replace(method, noise=left_in_mean(sigma, method.scale / n))
        kept["noise"] = method.noise
    public = Public(
        n=n,
        m=problem.m,
        records=shards.sizes.tolist(),
        iota=iota,
        beta=mixing.beta,
        beta_error=mixing.error,
        lipschitz=lipschitz,
        participations=spoken.tolist(),
        depth=schedule.depth() * method.exchanges,
        theorem1=[claim.report(scale) for claim, scale in zip(claims, sigma, strict=False)],
        **kept,
    )
    if graph.links <= LINKS:
        public["edges"] = graph.edges.tolist()
    draws: Randomness = Draws(release, streams, shards.sizes, numbers)
    if keys is not None and any(sigma):
        reason = refusal(problem, method, release)
        if reason is not None:
            raise PrivacyError(reason)
        longest = spec.problem.row_norm if shape is None else shape.reach
        batches = np.array([sampling.batch(int(q)) for q in shards.sizes])
        bounds = longest, spec.problem.intercept, int(shards.sizes.max())
        sums = exact_sums(problem, release, *bounds, reads=float(spoken @ batches))
        drawn = int(schedule.starts[-1]) * numbers
        draws = SecureDraws(release, sums, keys, shards.sizes, numbers, compiled=drawn >= WORTH or sums.compiled)
    job = Job(problem, method, schedule, release, draws, mapped)
    origins = (shape, origin) if shape is not None else ()
    return Prepared(spec, job, public, tuple(claims), streams.seeded, *origins)


def _kin(known: Prepared, spec: Spec, shards: Shards) -> bool:
    """Whether a run is like a prepared one in all but noise and seed, so that it may share problem and method."""
    same = known.spec.same_but_noise(spec)
    stateless = known.shape is None and isinstance(known.job.method, DualAveraging | Descent | OneShot)
    return same and stateless and known.job.problem.shards is shards.with_intercept(spec.problem.intercept)


def renoised(known: Prepared, spec: Spec, secure: bool = True) -> Prepared | None:
    """A prepared run with another noise: problem, schedule and method, which are most of the work, are shared.

    None where more than the noise is different, or the noise is in more than the release.
    """
    job, draws = known.job, known.job.draws
    alone = known.shape is None and job.release.before is None
    shared = known.spec.same_but_noise(spec) and known.spec.seed == spec.seed and alone
    if not shared or not isinstance(draws, Draws) or not known.seeded or isinstance(job.method, Statistics):
        return None
    n, sizes, schedule = job.problem.shards.n, job.problem.shards.sizes, job.schedule
    unit = replace(job.release, sigma=job.release.law.units(n))
    of = Circumstances(
        unit,
        sizes,
        schedule.participations(),
        spec.privacy.delta,
        known.public["iota"],
        spec.algorithm.rounds,
        schedule.turns,
    )
    sigma, claims = spec.privacy.noise.scales(of)
    release = replace(unit, sigma=sigma)
    public = known.public.copy()
    public["theorem1"] = [claim.report(scale) for claim, scale in zip(claims, sigma, strict=False)]
    return replace(
        known,
        spec=spec,
        job=replace(job, release=release, draws=replace(draws, release=release)),
        public=public,
        claims=tuple(claims),
    )


def attendance(schedule: Schedule) -> Attendance | None:
    """Who speaks in each round; None where everybody does in all of them."""
    if schedule.starts[-1] == schedule.T * schedule.n and not schedule.speakers:
        return None
    if not schedule.speakers:
        return Attendance(schedule.starts, schedule.active.astype(np.int64))
    loud = schedule.speaks(1, schedule.T)
    starts = np.concatenate([[0], np.cumsum(loud)])[schedule.starts]
    return Attendance(starts, schedule.active[loud].astype(np.int64))


def _products(spec: Spec, released: Released, weight: float, beta: float) -> Products:
    """What a run of statistics lets out, once it is seen that everybody will have the mean of all."""
    if not isinstance(spec.privacy.sampling, Full):
        raise SpecError(f"statistics are of all records, not of a sample by '{spec.privacy.sampling}'; take 'full'")
    if beta > EXACT_MEAN:
        raise SpecError(
            "statistics are averaged in one exchange, after which every node must have the mean of all; take graph "
            "'complete' and activation 'everyone'"
        )
    return Products(weight, spec.problem.row_norm, spec.problem.intercept, released.columns)


def make_problem(spec: ProblemSpec, shards: Shards) -> Problem:
    """eq. (1) over these shards, with the intercept's column if the spec has one."""
    return Problem(spec.loss, spec.h, shards.with_intercept(spec.intercept), spec.weights, spec.outputs)


def make_lipschitz(spec: Spec) -> float:
    """L: the clip that was asked for, else the bound of all outputs' slopes together times √(R² + B²)."""
    problem, clip = spec.problem, spec.privacy.clip
    bound = Joint(problem.loss, problem.outputs).slope_bound * problem.row_bound
    if clip is not None:
        return min(bound, clip)
    if math.isinf(bound):
        raise PrivacyError(
            f"the slope of loss '{problem.loss}' has no bound; give a clip for each record's subgradient"
        )
    return bound


def check_rows(spec: ProblemSpec, shards: Shards, refuse: bool = False) -> None:
    """Refuse rows over the public bound, unless their subgradients are to be clipped, and can be."""
    over = np.flatnonzero(shards.norms > spec.row_bound * (1 + ROW_SLACK))
    if over.size and (refuse or spec.on_violation == "raise"):
        worst = math.sqrt(max(0.0, float(shards.norms[over[0]]) ** 2 - spec.intercept**2))
        raise DataError(
            f"{over.size} of {len(shards.y)} rows are over the public bound {spec.row_norm:g} (row {over[0]} has norm "
            f"{worst:.4g}); bring columns to a common scale by public bounds, give a larger bound (row_norm), or have "
            "their subgradients clipped (on_violation='clip')"
        )


def scheme_of(spec: Spec, n: int) -> Activation:
    """Who wakes up; a single node has nobody to wait for."""
    return Everyone() if n == 1 else spec.network.activation


def activation_of(spec: Spec, n: int) -> float:
    """ι of a spec's scheme on n nodes."""
    return activation_rate(spec.network.graph(n), scheme_of(spec, n), spec.network.correct)[0]


def rounds_for_epochs(spec: Spec, sizes: IntArray, epochs: float) -> int:
    """T such that T·nι·b = epochs·N: as many rounds as make the given number of passes over the data."""
    sampling = spec.privacy.sampling
    sampling.batch(int(np.min(sizes)))
    used = activation_of(spec, len(sizes)) * sum(sampling.batch(int(q)) for q in sizes)
    if not 0 < epochs < math.inf:
        raise SpecError(f"the number of epochs must be finite and over 0, not {epochs}")
    rounds = epochs * float(np.sum(sizes)) / used * (1 - 1e-12)  # ι is known up to rounding only
    whole = max(1, math.ceil(rounds)) if rounds < math.inf else rounds
    return within.check_count("the number of rounds, which follows from that of epochs,", whole, within.ROUNDS)
