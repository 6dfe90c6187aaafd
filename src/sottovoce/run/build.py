"""From a spec and the data to a job: the one place where text becomes objects and everything is checked together."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from sottovoce._types import IntArray
from sottovoce.algorithm.methods import Ingredients, make_method
from sottovoce.algorithm.stepsizes import make_sequence
from sottovoce.engine.job import Job
from sottovoce.errors import DataError, PrivacyError, SpecError
from sottovoce.network.activation import Activation, make_activation
from sottovoce.network.graphs import Graph, make_graph
from sottovoce.network.mixing import activation_rate, beta
from sottovoce.network.schedule import Schedule, draw_schedule
from sottovoce.notation import parse
from sottovoce.privacy.accounting import check_delta
from sottovoce.privacy.adversaries import make_adversary, refuse_unless_runnable
from sottovoce.privacy.calibration import NOISES, Circumstances
from sottovoce.privacy.laws import LAWS
from sottovoce.privacy.release import Draws, Release
from sottovoce.privacy.sampling import make_sampling
from sottovoce.privacy.statement import PERSON, RECORD, PrivacyStatement, make_statement
from sottovoce.privacy.theorem1 import Theorem1
from sottovoce.problem.losses import Joint, Loss, make_loss
from sottovoce.problem.objective import Problem
from sottovoce.problem.regularisers import DISTANCES, Distance, Euclidean, Regulariser, make_regulariser
from sottovoce.problem.shards import Shards
from sottovoce.run.spec import NetworkSpec, ProblemSpec, Spec
from sottovoce.streams import Streams

ROW_SLACK = 1e-5  # rounding of files and of float32; harmless, since every subgradient is clipped to L in any case


@dataclass(frozen=True, eq=False)
class Prepared:
    """A job ready to run, with the public numbers that were derived on the way."""

    job: Job
    public: dict[str, Any]
    claims: tuple[Theorem1, ...]
    delta: float
    seeded: bool

    @cached_property
    def statement(self) -> PrivacyStatement:
        """What the run guarantees: accounted when first asked for, from the job's own release and schedule."""
        job = self.job
        spoken = job.schedule.participations()
        shards, unit = job.problem.shards, PERSON if job.problem.shards.people else RECORD
        turns = job.schedule.turns
        return make_statement(job.release, shards.sizes, spoken, self.delta, self.claims, self.seeded, unit, turns)


def prepare(spec: Spec, shards: Shards, schedule: Schedule | None = None) -> Prepared:
    """Check a spec against the data and draw the public schedule, unless this very spec's is at hand already.

    Nothing of the data but public sizes and the row bound is looked at here.
    """
    problem = make_problem(spec.problem, shards)
    lipschitz = make_lipschitz(problem.loss, spec)
    check_rows(spec.problem, problem.shards)
    streams = Streams(spec.seed)
    graph = make_network(spec.network, shards.n)
    make_sampling(spec.privacy.sampling).batch(int(shards.sizes.min()))  # refuses what the smallest node cannot fill
    activation = scheme_of(spec, shards.n)
    iota, correction = activation_rate(graph, activation, spec.network.correct)
    mixing = beta(graph, activation, spec.network.weights)
    rounds = spec.algorithm.rounds
    a, gamma, eta = (make_sequence(getattr(spec.algorithm, name), rounds) for name in ("a", "gamma", "eta"))
    if schedule is None:
        schedule = draw_schedule(graph, activation, spec.network.weights, rounds, streams.schedule())
        schedule = schedule.spaced(spec.network.every)

    scale = shards.n * problem.node_weights * correction
    method = make_method(
        spec.algorithm.method,
        Ingredients(
            problem.h,
            a,
            gamma,
            eta,
            iota,
            scale,
            make_distance(spec),
            spec.algorithm.primal,
            spec.algorithm.curvature,
            spec.network.every,
        ),
    )
    adversary = make_adversary(spec.privacy.adversary)
    sampling = make_sampling(spec.privacy.sampling)
    wanted, noise = spec.privacy.law, spec.privacy.noise
    choice = LAWS.read(wanted) if isinstance(wanted, str) else wanted
    law = choice.on(graph, method.shape, sampling, shards.sizes, problem.m)
    refuse_unless_runnable(adversary, law.secrets, shards.n)
    check_delta(spec.privacy.delta)
    unit, spoken = Release(sampling, lipschitz, (1.0,) * shards.n, adversary, law), schedule.participations()
    amount = NOISES.read(noise) if isinstance(noise, str) else noise
    known = Circumstances(unit, shards.sizes, spoken, spec.privacy.delta, iota, rounds, schedule.turns)
    scales, claims = amount.scales(known)
    release = replace(unit, sigma=scales)
    draws = Draws(release, streams, shards.sizes, problem.m)
    public = {
        "n": shards.n,
        "m": problem.m,
        "records": shards.sizes.tolist(),
        "edges": graph.edges.tolist(),
        "iota": iota,
        "beta": mixing.beta,
        "beta_error": mixing.error,
        "lipschitz": lipschitz,
        "participations": spoken.tolist(),
        "theorem1": [claim.report(scale) for claim, scale in zip(claims, scales, strict=False)],
    }
    job = Job(problem, method, schedule, release, draws)
    return Prepared(job, public, claims, spec.privacy.delta, streams.seeded)


def make_problem(spec: ProblemSpec, shards: Shards) -> Problem:
    """eq. (1) over these shards, with the intercept's column if the spec has one."""
    if spec.intercept < 0:
        raise SpecError(f"the intercept's column needs a value over 0 (or 0 for none), not {spec.intercept}")
    shards = shards.with_intercept(spec.intercept)
    return Problem(loss_from_text(spec.loss), h_from_text(spec.h), shards, spec.weights, spec.outputs)


def loss_from_text(text: str) -> Loss:
    """A loss such as 'hinge' or 'huber(1.35)'."""
    name, args, kwargs = parse(text)
    if len(args) > 1 or kwargs:
        raise SpecError(f"loss '{text}' is malformed; write a name and at most one number, such as 'huber(1.35)'")
    return make_loss(name, *args)


def h_from_text(text: str) -> Regulariser:
    """A regulariser such as 'l2(5e-4)' or 'box(-1, 1)'."""
    name, args, kwargs = parse(text)
    words = [f"{k}={v}" for k, v in kwargs.items() if isinstance(v, str)]
    if words:
        raise SpecError(f"{', '.join(words)} in regulariser '{text}' is not a number")
    return make_regulariser(name, *args, **{k: float(v) for k, v in kwargs.items()})


def make_distance(spec: Spec) -> Distance:
    """The distance-generating function."""
    name, centre = spec.algorithm.distance, spec.algorithm.centre
    if name not in DISTANCES:
        raise SpecError(f"there is no distance '{name}'; choose one of {', '.join(DISTANCES)}")
    if centre is not None and name != "euclidean":
        raise SpecError(f"a centre goes with the euclidean distance, not with '{name}'")
    return Euclidean(centre) if name == "euclidean" else DISTANCES[name]()


def make_network(spec: NetworkSpec, n: int) -> Graph:
    """The graph over the n nodes that there are."""
    kind, _, path = spec.graph.partition(":")
    if kind.strip() == "edge_list" and "=" not in path and path:  # a bare path
        return make_graph("edge_list", n, path=path.strip())
    name, args, kwargs = parse(spec.graph)
    if args:
        raise SpecError(f"name the numbers of graph '{spec.graph}', such as 'random_regular(degree=4)'")
    return make_graph(name, n, **kwargs)


def make_lipschitz(loss: Loss, spec: Spec) -> float:
    """L: the clip that was asked for, else the bound of all outputs' slopes together times √(R² + B²)."""
    if not 0 < spec.problem.row_norm < math.inf:
        raise SpecError(f"the public bound of a row must be finite and over 0, not {spec.problem.row_norm}")
    bound = Joint(loss, spec.problem.outputs).slope_bound * math.hypot(spec.problem.row_norm, spec.problem.intercept)
    if spec.privacy.clip is not None:
        if not 0 < spec.privacy.clip < math.inf:
            raise SpecError(f"the clip must be finite and over 0, not {spec.privacy.clip}")
        return min(bound, spec.privacy.clip)
    if math.isinf(bound):
        raise PrivacyError(f"the slope of loss '{loss.name}' has no bound; give a clip for each record's subgradient")
    return bound


def check_rows(spec: ProblemSpec, shards: Shards) -> None:
    """Refuse rows over the public bound, unless their subgradients are to be clipped."""
    if spec.on_violation not in ("raise", "clip"):
        raise SpecError(f"on_violation must be 'raise' or 'clip', not {spec.on_violation!r}")
    bound = math.hypot(spec.row_norm, spec.intercept)
    over = np.flatnonzero(shards.norms > bound * (1 + ROW_SLACK))
    if over.size and spec.on_violation == "raise":
        worst = math.sqrt(max(0.0, float(shards.norms[over[0]]) ** 2 - spec.intercept**2))
        raise DataError(
            f"{over.size} of {len(shards.y)} rows are over the public bound {spec.row_norm:g} (row {over[0]} has norm "
            f"{worst:.4g}); scale the rows (--unit-rows), give a larger bound (--row-norm), or have their subgradients "
            "clipped (--on-violation clip)"
        )


def scheme_of(spec: Spec, n: int) -> Activation:
    """Who wakes up; a single node has nobody to wait for."""
    return make_activation("everyone" if n == 1 else spec.network.activation)


def activation_of(spec: Spec, n: int) -> float:
    """ι of a spec's scheme on n nodes."""
    return activation_rate(make_network(spec.network, n), scheme_of(spec, n), spec.network.correct)[0]


def rounds_for_epochs(spec: Spec, sizes: IntArray, epochs: float) -> int:
    """T such that T·nι·b = epochs·N: as many rounds as make the given number of passes over the data."""
    sampling = make_sampling(spec.privacy.sampling)
    sampling.batch(int(np.min(sizes)))
    used = activation_of(spec, len(sizes)) * sum(sampling.batch(int(q)) for q in sizes)
    return max(1, math.ceil(epochs * float(np.sum(sizes)) / used * (1 - 1e-12)))  # ι is known up to rounding only
