"""The public plan of a run: all that follows from a spec and public sizes, before anyone reads a record.

`plan_public` takes a `Request`, which has no place for a record, and returns the schedule, the method, the release with
its noise, and the public numbers. Simulations, real nodes, `verify` and the audit all start from it. What comes next
with records is in `run.build`.
"""

import math
import secrets
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from sottovoce import limits
from sottovoce._types import Array, IntArray
from sottovoce.algorithm.descent import Descent
from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.algorithm.method import Method, Released
from sottovoce.algorithm.methods import MethodContext, make_method
from sottovoce.algorithm.statistics import Statistics
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.features import Additive
from sottovoce.network.activation import Activation, Everyone
from sottovoce.network.averaging import Exact, Trimmed
from sottovoce.network.dropouts import NO_DROPOUTS, going_on
from sottovoce.network.graphs import Graph
from sottovoce.network.mixing import activation_rate, beta
from sottovoce.network.schedule import Schedule, draw_schedule
from sottovoce.privacy.calibration import Circumstances
from sottovoce.privacy.distribution import Distribution
from sottovoce.privacy.events import Event
from sottovoce.privacy.objective import extra_epsilon
from sottovoce.privacy.release import (
    Attendance,
    Epochs,
    MechanismContext,
    NoiseMechanism,
    Objective,
    Release,
    check_runnable,
)
from sottovoce.privacy.sampling import Cyclic, Full, Sampling
from sottovoce.privacy.statement import PERSON, RECORD, PrivacyStatement, make_statement, with_features
from sottovoce.privacy.statistics import Products, left_in_mean
from sottovoce.privacy.theorem1 import Theorem1
from sottovoce.problem.losses import Joint
from sottovoce.problem.objective import PublicProblem
from sottovoce.run.spec import Spec
from sottovoce.streams import Streams

if TYPE_CHECKING:
    from sottovoce.run.inference import Published

MAX_EDGES = 500_000
"""Edges of a graph that a result lists; a larger graph is known by its name."""
EXACT_MEAN = 1e-9
"""β of a mixing that leaves every node with the mean, up to rounding."""


class Public(TypedDict, total=False):
    """Numbers that follow from a spec and public sizes alone."""

    n: int
    m: int
    records: list[int]
    edges: list[list[int]]
    """Who is linked with whom, where that is no more than `MAX_EDGES`."""
    iota: float
    beta: float
    beta_error: float
    lipschitz: float
    """L."""
    participations: list[int]
    """K_i."""
    depth: int
    """How many exchanges of the run wait for the one before, the first included."""
    lost: list[list[int]]
    """(node, round) of every node that a simulation lost, and the round in which that happened."""
    theorem1: list[dict[str, Any]]
    """What the paper claims for its noise, node by node, where that is the noise."""
    run: str
    """The run's digest, where real nodes ran it."""
    noise: float
    """s, the deviation that noise leaves in each number of the mean of all statistics, where those were released."""
    schedule_seed: int | None
    """Of the schedule, where it is not the run's own seed: who speaks when can be drawn again by anybody."""
    targets: list[float]
    """The range of targets that was found from their noisy counts, within [−1, 1], where those were released."""
    distribution: list[list[float]]
    """F of the numeric columns at the centers of their cells, where those were released."""
    row_scale: list[float]
    """By what features were multiplied after they were centered by such a release."""
    moved: float
    """What was added to scores after the last round, from noisy counts of them, where those were released."""
    inference: "Published"
    """The released sums from which confidence intervals follow, where those were released."""
    skips: int
    """How many edges of a real node were left out of a round, by agreement of both ends."""


@dataclass(frozen=True, eq=False)
class Request:
    """What a plan is made from. All of it is public, and nothing in it can hold a record.

    Attributes
    ----------
    spec : what to run
    sizes : q_i, how many records (or people) each node has
    features : columns of a record, without the intercept's
    people : whether people are the units, and not records
    schedule_seed : of the schedule; by default the spec's own or, without one, a number that is drawn and published
    """

    spec: Spec
    sizes: IntArray
    features: int
    people: bool = False
    schedule_seed: int | None = None

    @property
    def problem(self) -> PublicProblem:
        """What is public of the problem."""
        of = self.spec.problem
        sizes = np.asarray(self.sizes, dtype=np.int64)
        return PublicProblem(of.loss, of.h, sizes, self.features, of.intercept, of.weights, of.outputs, self.people)

    def is_reusable_for(self, other: "Request") -> bool:
        """Whether all is the same but for noise and seeds, at the most."""
        sizes = np.array_equal(self.sizes, other.sizes) and self.features == other.features
        return sizes and self.people == other.people and self.spec.same_but_noise(other.spec)


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything public of a run; made by `plan_public`.

    Attributes
    ----------
    request : what it was made from
    problem : what is public of the problem
    method : the algorithm, whose minimizers have no records yet
    schedule : which nodes are active when
    release : what every node releases in a round, with its noise, and before the first one
    claims : what the paper claims for its noise
    public : the public numbers
    """

    request: Request
    problem: PublicProblem
    method: Method
    schedule: Schedule
    release: Release
    claims: tuple[Theorem1, ...]
    public: Public

    @property
    def spec(self) -> Spec:
        """What is run."""
        return self.request.spec

    @property
    def numbers(self) -> int:
        """How many numbers a release of a round has."""
        found = self.method.released.numbers
        return self.problem.m if found is None else found

    @cached_property
    def spoken(self) -> IntArray:
        """K_i, how often each node speaks; where nodes may be lost, how often at most."""
        return _spoken(self.spec, self.schedule)

    def lost(self, t: int) -> NDArray[np.bool_]:
        """Which nodes were lost by round t of a simulation."""
        gone = np.zeros(self.problem.n, dtype=np.bool_)
        if self.spec.network.dropouts != NO_DROPOUTS:
            gone[:] = True
            gone[self.schedule.nodes(t)] = False
        return gone

    def events(self) -> list[Event]:
        """What every node must account for."""
        return self.release.events(self.problem.sizes, self.spoken, self.schedule.turns)

    def event(self, node: int) -> Event:
        """What one node must account for."""
        size, spoken = int(self.problem.sizes[node]), int(self.spoken[node])
        return self.release.event(node, size, spoken, lambda: self.schedule.turns(node))

    def statement(self, simulated: bool, secure: bool) -> PrivacyStatement:
        """What the run guarantees; `secure` says whether its releases are hardened ones."""
        unit, delta = PERSON if self.problem.people else RECORD, self.spec.privacy.delta
        made = make_statement(
            self.release, self.problem.sizes, self.spoken, delta, self.claims, simulated, unit, self.schedule.turns,
            secure=secure,
        )  # fmt: skip
        return with_features(made, self.spec.problem.features.words)


class _Network(NamedTuple):
    """The graph, ι, the factors that correct uneven activation, and the mixing."""

    graph: Graph
    activation: Activation
    iota: float
    correction: Array
    beta: float
    beta_error: float


def plan_public(request: Request, schedule: Schedule | None = None, reusable: Plan | None = None) -> Plan:
    """The public plan of a run.

    Parameters
    ----------
    request : a spec, and public sizes
    schedule : who is active when, if that is drawn already
    reusable : a plan whose method is shared, where nothing but noise and seeds is different

    Examples
    --------
    >>> from sottovoce.run.spec import AlgorithmSpec
    >>> spec = Spec(AlgorithmSpec(100), seed=1).replace(privacy__noise="private(1)")
    >>> plan = plan_public(Request(spec, np.array([500, 300]), 4))
    >>> plan.public["participations"], round(plan.statement(simulated=True, secure=False).epsilon, 3)
    ([100, 100], 1.0)
    """
    spec, problem = request.spec, request.problem
    _check_units(spec, problem)
    _check_features(spec, problem)
    network = _network(spec, problem.n)
    before = _before(spec, problem, network.graph)
    _check_losses(spec, problem.n)
    kept = Public()
    seed = request.schedule_seed
    if seed is None and schedule is None:
        seed = secrets.randbits(63) if spec.seed is None else spec.seed  # public, and never the seed of a secret
    if seed is not None and spec.seed is None:
        kept["schedule_seed"] = seed
    schedule = _schedule(spec, network, seed) if schedule is None else schedule
    scale = problem.n * problem.node_weights * network.correction
    method = reusable.method if reusable is not None else _method(spec, problem, network.iota, scale)
    _check_method(spec, method)
    unit = _unit_release(spec, problem, network, schedule, method, scale, before)
    known = Circumstances(
        unit, problem.sizes, _spoken(spec, schedule), spec.privacy.delta, network.iota,
        spec.algorithm.rounds, schedule.turns, network.activation.tempered,
    )  # fmt: skip
    sigma, claims = spec.privacy.noise.scales(known)
    if isinstance(method, Statistics):  # which solves with what it knows of the noise
        method = replace(method, noise=left_in_mean(sigma, method.scale / problem.n))
        kept["noise"] = method.noise
    public = Public(
        n=problem.n,
        m=problem.m,
        records=problem.sizes.tolist(),
        iota=network.iota,
        beta=network.beta,
        beta_error=network.beta_error,
        lipschitz=_lipschitz(spec, unit.sampling),
        participations=schedule.participations().tolist(),
        depth=schedule.depth() * method.exchanges,
        theorem1=[claim.report(scale) for claim, scale in zip(claims, sigma, strict=False)],
        **kept,
    )
    if spec.network.dropouts != NO_DROPOUTS:
        last = np.array([schedule.turns(i).max(initial=0) for i in range(problem.n)])
        public["lost"] = [[i, int(last[i]) + 1] for i in np.flatnonzero(last < schedule.T).tolist()]
    if network.graph.links <= MAX_EDGES:
        public["edges"] = network.graph.edges.tolist()
    return Plan(request, problem, method, schedule, replace(unit, sigma=sigma), tuple(claims), public)


def with_noise(plan: Plan, spec: Spec) -> Plan | None:
    """The plan with another noise: schedule and method, which are most of the work, are shared.

    None where more than the noise is different, or the noise is in more than the release.
    """
    alone = plan.release.before is None and not isinstance(plan.method, Statistics)
    if not alone or not plan.spec.same_but_noise(spec) or plan.spec.seed != spec.seed:
        return None
    schedule, unit = plan.schedule, replace(plan.release, sigma=plan.release.law.units(plan.problem.n))
    known = Circumstances(
        unit, plan.problem.sizes, plan.spoken, spec.privacy.delta, plan.public["iota"], spec.algorithm.rounds,
        schedule.turns, spec.network.activation.tempered,
    )  # fmt: skip
    sigma, claims = spec.privacy.noise.scales(known)
    public = plan.public.copy()
    public["theorem1"] = [claim.report(scale) for claim, scale in zip(claims, sigma, strict=False)]
    request, release = replace(plan.request, spec=spec), replace(unit, sigma=sigma)
    return replace(plan, request=request, release=release, claims=tuple(claims), public=public)


def _check_features(spec: Spec, problem: PublicProblem) -> None:
    """Refuse rows that did not go through the spec's map, and a release of columns that it does not have."""
    features, choice = spec.problem.features, spec.privacy.distribution
    if isinstance(features, Additive):
        if problem.features != features.width:
            raise SpecError(
                f"rows of '{features}' have {features.width} features, not {problem.features}; map the records first"
            )
        others = len(features.others) if choice.mean else 0
        if choice and (choice.columns, choice.others) != (features.d, others):
            raise SpecError(f"'{choice}' does not match the {features.d} numeric columns of '{features}'")
    elif choice:
        raise SpecError(f"'{choice}' is for the numeric columns of an additive model; leave it out of a linear one")


def _check_units(spec: Spec, problem: PublicProblem) -> None:
    """Refuse a sampling that the smallest node cannot fill or that is not for people, and outputs that no loss has."""
    sampling = spec.privacy.sampling
    problem.joint  # noqa: B018 - refuses them
    sampling.batch(int(problem.sizes.min()))
    if problem.people and isinstance(sampling, Cyclic):
        raise PrivacyError(
            f"'{sampling}' takes people in the order of their rows, in which one person moves all others; draw "
            "people at random, as with 'poisson(64)', or take records as units"
        )


def _network(spec: Spec, n: int) -> _Network:
    graph, activation, network = spec.network.graph(n), scheme_of(spec, n), spec.network
    iota, correction = activation_rate(graph, activation, network.correct)
    mixing = beta(graph, activation, network.weights, averaging=network.averaging)
    return _Network(graph, activation, iota, correction, mixing.beta, mixing.error)


def _before(spec: Spec, problem: PublicProblem, graph: Graph) -> Release | None:
    """What is released once, of the targets and losses that it is for."""
    if not spec.privacy.one_shot:
        return None
    from sottovoce.run.one_shot import one_shot_release  # only for those who need it

    if spec.privacy.inference:
        from sottovoce.run.inference import check_inference

        check_inference(spec)
    before, kind = one_shot_release(spec, problem.sizes, problem.features, graph), problem.loss.targets
    for choice in spec.privacy.one_shot:
        if choice.targets == "real" and kind != "real":
            raise SpecError(f"'{choice}' is for a regression's targets, but loss '{problem.loss}' has classes")
        if choice.targets == "binary" and (kind != "binary" or problem.outputs > 1 or not problem.intercept):
            raise SpecError(
                f"'{choice}' moves the constant term between two classes, and this run has no such term; leave it out, "
                "or give two classes and an intercept"
            )
    return before


def _schedule(spec: Spec, network: _Network, seed: int | None) -> Schedule:
    rng, of = Streams(seed).schedule(), spec.network
    drawn = draw_schedule(network.graph, network.activation, of.weights, spec.algorithm.rounds, rng, of.averaging)
    if of.dropouts != NO_DROPOUTS:
        drawn = going_on(drawn, of.dropouts.draw(drawn.n, drawn.T, rng), of.weights, of.averaging, rng)
    return drawn.spaced(of.every)


def _method(spec: Spec, problem: PublicProblem, iota: float, scale: Array) -> Method:
    algorithm, T = spec.algorithm, spec.algorithm.rounds
    return make_method(
        algorithm.method,
        MethodContext(
            problem,
            algorithm.a(T),
            algorithm.gamma(T),
            algorithm.eta(T),
            iota,
            scale,
            algorithm.distance,
            algorithm.primal,
            algorithm.curvature,
            spec.network.every,
            spec.problem.row_bound,
            algorithm.counted,
        ),
    )


def _check_method(spec: Spec, method: Method) -> None:
    """Refuse settings that the method has no use for."""
    name, averaging, released = spec.algorithm.method, spec.network.averaging, method.released
    if not averaging.linear and not isinstance(method, DualAveraging | Descent):
        raise SpecError(
            f"'{averaging}' averaging is for dual averaging and descent, whose nodes send one vector a round; "
            f"average by gossip in '{name}'"
        )
    if not released.iterates and spec.privacy.clip is not None:
        raise PrivacyError(
            f"'{name}' minimizes and clips no gradients, so a clip would bound nothing; leave out the clip"
        )
    first = spec.privacy.pre_release
    within_bounds = first is not None and (first.targets == "real" or isinstance(first, Distribution))
    if spec.privacy.may_lose and not isinstance(method, DualAveraging | Descent):
        raise SpecError(f"nodes may be lost in dual averaging and descent, not in '{name}'; use may_lose=0")
    if first is not None and not released.iterates and (not within_bounds or released.weight is None):
        raise SpecError(f"'{name}' is no descent that a map of its records would help; leave '{first}' out")


def _unit_release(
    spec: Spec,
    problem: PublicProblem,
    network: _Network,
    schedule: Schedule,
    method: Method,
    scale: Array,
    before: Release | None,
) -> Release:
    """What a round releases, with noise of deviation 1."""
    privacy, released = spec.privacy, method.released
    adversary = privacy.adversary.among(problem.n)
    sampling: Sampling = privacy.sampling
    if released.weight is not None:
        sampling = _products(spec, released, released.weight, network.beta)
    lipschitz = _lipschitz(spec, sampling)
    numbers = problem.m if released.numbers is None else released.numbers
    law: NoiseMechanism
    if released.curvature is not None:
        law = Objective(extra_epsilon(*released.curvature))
    else:
        law = privacy.law.on(
            MechanismContext(
                network.graph,
                sampling,
                problem.sizes,
                numbers,
                released.shape,
                privacy.adversary,
                scale,
                None if spec.privacy.may_lose else attendance(schedule),
                spec.privacy.may_lose,
                None if spec.network.dropouts == NO_DROPOUTS else epochs_of(schedule),
            )
        )
    if law.secrets and isinstance(spec.network.averaging, Trimmed):
        raise SpecError(
            f"noise that pairs of nodes share is gone from the mean of all only, and '{spec.network.averaging}' takes "
            "another; average by gossip, exact or clipped(radius), or use independent noise"
        )
    check_runnable(adversary, law.secrets, problem.n)
    return Release(sampling, released.reach(lipschitz), law.units(problem.n), adversary, law, before)


def _lipschitz(spec: Spec, sampling: Sampling | Products) -> float:
    """L, of a record's subgradient or of its products."""
    return sampling.bound if isinstance(sampling, Products) else make_lipschitz(spec)


def _products(spec: Spec, released: Released, weight: float, beta: float) -> Products:
    """What a run of statistics releases, once it is sure that everybody will have the mean of all."""
    if not isinstance(spec.privacy.sampling, Full):
        raise SpecError(f"statistics are of all records, not of a sample by '{spec.privacy.sampling}'; take 'full'")
    if beta > EXACT_MEAN:
        raise SpecError(
            "statistics are averaged in one exchange, after which every node must have the mean of all; take graph "
            "'complete' and activation 'everyone'"
        )
    return Products(weight, spec.problem.row_norm, spec.problem.intercept, released.columns)


def _check_losses(spec: Spec, n: int) -> None:
    """Refuse runs in which nodes may be lost, and the others could not go on."""
    may_lose, dropouts = spec.privacy.may_lose, spec.network.dropouts
    most = 0 if dropouts == NO_DROPOUTS else dropouts.most
    if most > may_lose:
        raise SpecError(
            f"{most} nodes are lost, and the run is prepared for {may_lose}; give privacy.may_lose = {most}, so that "
            "what is released because of it is accounted"
        )
    if not may_lose:
        return
    if may_lose > n - 2:
        raise SpecError(f"of {n} nodes at most {max(n - 2, 0)} may be lost, for two to go on; lower may_lose")
    if (
        not isinstance(scheme_of(spec, n), Everyone)
        or not isinstance(spec.network.averaging, Exact)
        or spec.network.every > 1
    ):
        raise SpecError(
            "a run goes on without a lost node only where everybody speaks in every round and the mean of all is "
            "made exactly; use activation 'everyone' and averaging 'exact', or may_lose=0"
        )
    if spec.privacy.post_release is not None:
        raise SpecError(
            f"'{spec.privacy.post_release}' is released by all nodes after the last round, and some may be lost "
            "by then; leave it out, or may_lose"
        )
    if isinstance(spec.privacy.sampling, Cyclic):
        raise SpecError(
            f"a round that is made anew draws its batch anew, and '{spec.privacy.sampling}' has an order; "
            "use 'poisson(64)' or 'full', or may_lose=0"
        )


def _spoken(spec: Spec, schedule: Schedule) -> IntArray:
    """How often each node speaks, at most: for every lost node a round may be made anew."""
    if not spec.privacy.may_lose:
        return schedule.participations()
    return np.full(schedule.n, schedule.T + spec.privacy.may_lose)


def epochs_of(schedule: Schedule) -> Epochs | None:
    """The epochs of a run in which all who are left speak in every round; None where nobody is lost."""
    first = 1 + np.flatnonzero(np.diff(np.diff(schedule.starts), prepend=0))
    members = np.zeros((len(first), schedule.n), dtype=np.bool_)
    for row, t in enumerate(first.tolist()):
        members[row, schedule.nodes(t)] = True
    if members.all():
        return None
    if not members[0].all():  # who is lost in round 1 had begun it
        first, members = np.r_[1, first], np.r_[np.ones((1, schedule.n), dtype=np.bool_), members]
    return Epochs(first, members, np.ones(len(first)), schedule.T)


def attendance(schedule: Schedule) -> Attendance | None:
    """Who speaks in each round; None where everybody does in all of them."""
    if schedule.starts[-1] == schedule.T * schedule.n and not schedule.speakers:
        return None
    if not schedule.speakers:
        return Attendance(schedule.starts, schedule.active.astype(np.int64))
    loud = schedule.speaks(1, schedule.T)
    starts = np.concatenate([[0], np.cumsum(loud)])[schedule.starts]
    return Attendance(starts, schedule.active[loud].astype(np.int64))


def make_lipschitz(spec: Spec) -> float:
    """Return L: the spec's clip, else the bound of all outputs' slopes together times √(R² + B²)."""
    problem, clip = spec.problem, spec.privacy.clip
    bound = Joint(problem.loss, problem.outputs).slope_bound * problem.row_bound
    if clip is not None:
        return min(bound, clip)
    if math.isinf(bound):
        raise PrivacyError(
            f"the slope of loss '{problem.loss}' has no bound; give a clip for each record's subgradient"
        )
    return bound


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
    return limits.check_count("the number of rounds, which follows from that of epochs,", whole, limits.ROUNDS)
