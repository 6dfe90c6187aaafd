"""From a public plan and records to a job: what is released first, the map that follows, and everybody's draws."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sottovoce._renamed import old_arguments, old_attributes
from sottovoce._types import Array
from sottovoce.algorithm.descent import Descent
from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.algorithm.method import Method, State
from sottovoce.algorithm.oneshot import OneShot
from sottovoce.algorithm.statistics import Statistics
from sottovoce.engine.job import Job, Mapped, Randomness
from sottovoce.engine.secure import SecureDraws, exact_sums, refusal
from sottovoce.errors import DataError, PrivacyError, SpecError
from sottovoce.extension import AVAILABLE
from sottovoce.network.schedule import Schedule
from sottovoce.privacy.release import Draws
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.privacy.theorem1 import Theorem1
from sottovoce.problem.objective import Problem
from sottovoce.problem.regularizers import Euclidean
from sottovoce.problem.shards import Shards
from sottovoce.run.plan import Plan, Public, Request, plan_public, with_noise
from sottovoce.run.spec import ProblemSpec, Spec
from sottovoce.secure.generator import fresh
from sottovoce.streams import Streams

if TYPE_CHECKING:
    from sottovoce.run.one_shot import Keys, OneShotRelease

ROW_SLACK = 1e-5
"""By how much a row may be over its bound, relatively, for the rounding of files and of float32: every subgradient is
clipped to L in any case."""


class Map(Protocol):
    """A public map of records, which follows from a release before the first round, and of models back."""

    @property
    def of_rows(self) -> bool:
        """Whether it maps rows, which may then be longer than their bound, and not targets."""

    @property
    def reach(self) -> float:
        """Within which all mapped rows are."""

    @property
    def for_engine(self) -> Mapped | None:
        """The same for an engine that maps rows as it reads them."""

    def shards(self, shards: Shards) -> Shards:
        """The same records, mapped; each by itself."""

    def inverse_transform(self, models: Array) -> Array:
        """Models of mapped records as models of the records."""

    def transform(self, models: Array) -> Array:
        """The other way round."""

    def longest(self, bound: float) -> float:
        """How long a model can be once it is taken back, where it was no longer than the bound."""

    def public(self) -> Public:
        """Return what a result says about it."""


@old_attributes
@dataclass(frozen=True, eq=False)
class Prepared:
    """A job ready to run.

    Attributes
    ----------
    plan : its public plan
    job : for an engine
    public : the plan's public numbers, and those that were released on the way
    row_map : the public map of the run's records or targets, if the spec has one
    records : the problem with the records as they came, where they were mapped
    moved : what is added to every score after the last round, if counts of scores were released
    """

    plan: Plan
    job: Job
    public: Public
    row_map: Map | None = None
    records: Problem | None = None
    moved: float = 0.0

    @property
    def spec(self) -> Spec:
        """What is run."""
        return self.plan.spec

    @property
    def seeded(self) -> bool:
        """Whether it is a simulation."""
        return self.spec.seed is not None

    @property
    def claims(self) -> tuple[Theorem1, ...]:
        """What the paper claims for its noise."""
        return self.plan.claims

    @property
    def original(self) -> Problem:
        """The problem with the records as they came."""
        return self.job.problem if self.records is None else self.records

    def models(self, state: State, t: int) -> Array:
        """What every node puts out after round t, as models of the records as they came."""
        found = self.job.method.average(state, t)
        found = found if self.row_map is None else self.row_map.inverse_transform(found)
        lost = self.plan.lost(t)
        if lost.any():  # they may have the model of the others, who all have the same
            found = np.where(lost[:, None], found[np.argmin(lost)], found)
        if self.moved and t == self.spec.algorithm.rounds:
            found = np.array(found)
            found[..., -1] += self.moved / self.spec.problem.intercept
        return found

    @property
    def statement(self) -> PrivacyStatement:
        """Return what the run guarantees, accounted on first use from the plan's release and schedule."""
        # no cached_property: until Python 3.12 it has one lock for all objects, and runs side by side wait for it
        if "stated" not in self.__dict__:
            self.__dict__["stated"] = self.plan.statement(self.seeded, self.job.secure)
        found: PrivacyStatement = self.__dict__["stated"]
        return found


@old_arguments
def prepare(
    spec: Spec,
    shards: Shards,
    schedule: Schedule | None = None,
    secure: bool = True,
    unmapped: bool = False,
    reusable: Prepared | None = None,
    schedule_seed: int | None = None,
) -> Prepared:
    """Plan a run, make the release before its first round, if it has one, and build its job.

    Parameters
    ----------
    spec, shards : what to run, and on what
    schedule : who is active when, if that is drawn already
    secure : whether the releases of a run with noise and without a seed are to be secure ones. A seed makes a run a
        simulation, whose noise is floating point from a fast generator.
    unmapped : whether to leave records of a simulation as they are, and their map to the engine (`Job.mapped`)
    reusable : a run on the same shards; one that is the same but for noise and seed shares its problem and its method
    schedule_seed : as in `Request`
    """
    request = Request(spec, shards.sizes, int(shards.X.shape[1]), shards.people, schedule_seed)
    shared = reusable if reusable is not None and _same_but_noise(reusable, request, shards) else None
    plan = plan_public(request, schedule, None if shared is None else shared.plan)
    keys = fresh() if secure and spec.seed is None else None
    found = pre_release(plan, shards, keys, unmapped)
    return make_job(plan, shards, keys, found, unmapped, shared)


def pre_release(plan: Plan, shards: Shards, keys: "Keys | None", unmapped: bool = False) -> Map | None:
    """Release what the plan has before the first round; the public map that follows from it.

    Parameters
    ----------
    plan, shards : what is released, and of whose records
    keys : secret generators of a secure release; None for a simulation
    unmapped : as in `prepare`: then the mean is that of all records, to rounding, read once for many runs
    """
    first = one_shot_of(plan)
    if first is None:
        return None
    from sottovoce.run.private_scaling import RowMoments

    query, streams = first.query, Streams(plan.spec.seed)
    if not isinstance(query, RowMoments):
        return first.finish(first.released(shards, streams, keys))
    check_rows(plan.spec.problem, shards.with_intercept(plan.spec.problem.intercept))
    if not unmapped:
        return first.finish(first.released(shards, streams, keys))
    if plan.spec.seed is None or shards.people or (shards.order is not None and len(shards.order) < len(shards.y)):
        raise SpecError("only all records of a simulation, each a unit by itself, can be left to be mapped")
    nodes = np.arange(shards.n)
    noise = first.release.noise(streams, nodes, np.full(shards.n, first.when), query.width)
    return query.finish(first.noisy(query.mean_of_all(shards) + first.weights @ noise))


def one_shot_of(plan: Plan) -> "OneShotRelease[Map] | None":
    """What is released before the first round, with its noise."""
    problem, choice = plan.spec.problem, plan.spec.privacy.pre_release
    if choice is None or plan.release.before is None:
        return None
    from sottovoce.features import Additive
    from sottovoce.privacy.distribution import Distribution
    from sottovoce.privacy.one_shot import Moments, Quantiles
    from sottovoce.run.distribution import ColumnCounts
    from sottovoce.run.one_shot import OneShotRelease, Query
    from sottovoce.run.private_scaling import RowMoments
    from sottovoce.run.target_range import TargetCounts

    query: Query[Map]
    if isinstance(choice, Moments):
        query = RowMoments(choice, plan.problem.features, problem.row_norm, problem.intercept, problem.outputs)
    elif isinstance(choice, Distribution):
        assert isinstance(problem.features, Additive)
        bounds = problem.row_norm, problem.intercept
        centered = problem.loss.targets != "real"
        query = ColumnCounts(choice, problem.features, *bounds, problem.outputs, centered)
    elif isinstance(choice, Quantiles):
        query = TargetCounts(choice, problem.row_norm, problem.intercept)
    else:
        raise NotImplementedError(f"no query exists for '{choice}'; add a branch for {type(choice).__name__} here")
    return OneShotRelease(query, plan.release.before, plan.problem.sizes)


def make_job(
    plan: Plan,
    shards: Shards,
    keys: "Keys | None" = None,
    found: Map | None = None,
    unmapped: bool = False,
    reusable: Prepared | None = None,
) -> Prepared:
    """The job of a plan on these records.

    Parameters
    ----------
    plan, shards : what to run, and on what
    keys : secret generators of a run whose releases are to be secure; None for floating-point noise
    found : the map that followed from the release before the first round
    unmapped, reusable : as in `prepare`
    """
    spec, released = plan.spec, plan.method.released
    original = problem = make_problem(spec.problem, shards) if reusable is None else reusable.job.problem
    mapped = found.for_engine if found is not None and unmapped else None
    if found is not None and mapped is None:
        problem = make_problem(spec.problem, found.shards(shards))
    if found is None or not found.of_rows:  # mapped rows may be longer: their subgradients are clipped
        check_rows(spec.problem, problem.shards, refuse=not released.iterates and released.weight is None)
    public: Public = plan.public if found is None else {**plan.public, **found.public()}
    method = _on_records(plan.method, problem, found) if reusable is None else reusable.job.method
    draws = _draws(plan, problem, method, keys, spec.problem.row_norm if found is None else found.reach)
    job = Job(problem, method, plan.schedule, plan.release, draws, mapped)
    return Prepared(plan, job, public, found, None if found is None else original)


def _on_records(method: Method, problem: Problem, found: Map | None) -> Method:
    """Return the method with its records, if it minimizes over them, and with its start after the map."""
    if isinstance(method, OneShot):
        return replace(method, data=problem)
    if isinstance(method, Statistics) and problem.shards.weights is not None:
        raise SpecError("statistics count all records the same; leave their weights out, or take gradients")
    start = getattr(method, "d", None)
    if found is None or not isinstance(start, Euclidean) or start.center is None:
        return method
    assert isinstance(method, DualAveraging)
    return replace(method, d=Euclidean(tuple(found.transform(np.array(start.center)).tolist())))


def _draws(plan: Plan, problem: Problem, method: Method, keys: "Keys | None", longest: float) -> Randomness:
    """Where the run's randomness comes from; `longest` is the public bound of a row as the run has it."""
    release, sizes, numbers, spec = plan.release, plan.problem.sizes, plan.numbers, plan.spec
    if keys is None or not any(release.sigma):
        return Draws(release, Streams(spec.seed), sizes, numbers)
    reason = refusal(plan.problem, method, release)
    if reason is not None:
        raise PrivacyError(reason)
    sums = exact_sums(problem, release, longest, spec.problem.intercept, int(sizes.max()))
    return SecureDraws(release, sums, keys, sizes, numbers, compiled=AVAILABLE)


def _same_but_noise(known: Prepared, request: Request, shards: Shards) -> bool:
    """Whether a run is like a prepared one in all but noise and seed, so that it may share problem and method."""
    stateless = known.row_map is None and isinstance(known.job.method, DualAveraging | Descent | OneShot)
    same = stateless and known.plan.request.is_reusable_for(request)
    return same and known.job.problem.shards is shards.with_intercept(request.spec.problem.intercept)


def reuse_with_noise(known: Prepared, spec: Spec) -> Prepared | None:
    """A prepared simulation with another noise, which shares all else; None where more than the noise is different."""
    draws = known.job.draws
    plan = with_noise(known.plan, spec) if known.seeded and isinstance(draws, Draws) else None
    if plan is None or not isinstance(draws, Draws):
        return None
    job = replace(known.job, release=plan.release, draws=replace(draws, release=plan.release))
    return replace(known, plan=plan, job=job, public=plan.public)


def make_problem(spec: ProblemSpec, shards: Shards) -> Problem:
    """eq. (1) over these shards, with the intercept's column if the spec has one."""
    return Problem(spec.loss, spec.h, shards.with_intercept(spec.intercept), spec.weights, spec.outputs)


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
