"""The laws that choices obey, as a kit: what our own tests hold our rows to, a plug-in can hold its own to.

`sottovoce.register` runs the check of its kind (`CHECKS`), unless `check=False`.

``check_loss``, ``check_regularizer``, ``check_graph``, ``check_method``, ``check_engine``, ``check_weight_rule``,
``check_averaging``, ``check_activation``, ``check_sampling``, ``check_baseline`` and ``check_feature_map`` take what is
to be registered and raise `LawBroken` with the law and a counterexample, or return nothing. They draw points from a
seed; the laws one by one (`LOSS_LAWS`, `REGULARIZER_LAWS`) take points of anybody's choice, as from Hypothesis.

Passing them proves nothing; a row that breaks one is wrong.
"""

import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from sottovoce._renamed import module_attribute
from sottovoce._types import Array
from sottovoce.algorithm.method import State
from sottovoce.algorithm.methods import METHODS, MethodChoice
from sottovoce.engine import ENGINES, Engine, Job, reference
from sottovoce.engine.job import stretches
from sottovoce.errors import SottovoceError, SpecError
from sottovoce.network.activation import ACTIVATIONS, Activation, Everyone, Periodic
from sottovoce.network.averaging import AVERAGINGS
from sottovoce.network.graphs import GRAPHS, Family
from sottovoce.network.mixing import METROPOLIS, WEIGHTS, Averaging, Rule, beta, check_doubly_stochastic
from sottovoce.network.schedule import draw_schedule
from sottovoce.privacy.sampling import SAMPLINGS, Sampling
from sottovoce.problem.losses import LOSSES, Joint, Loss
from sottovoce.problem.optimum import optimum
from sottovoce.problem.regularizers import REGULARIZERS, Regularizer
from sottovoce.problem.shards import Shards
from sottovoce.registry import Chosen
from sottovoce.run.build import prepare
from sottovoce.run.spec import AlgorithmSpec, Spec

__all__ = [
    "check_activation",
    "check_averaging",
    "check_baseline",
    "check_engine",
    "check_feature_map",
    "check_graph",
    "check_loss",
    "check_method",
    "check_regularizer",
    "check_sampling",
    "check_weight_rule",
]

ROUNDING = 1e-12
NOISE_ROUNDINGS = 33  # times the rounding of an engine's own noise: what its trajectories may be off


class LawBroken(AssertionError):
    """A law, and where it does not hold."""


def holds(law: str, true: Any, **where: Any) -> None:
    """Raise an error with the law and the place unless it is true there."""
    if not bool(np.all(true)):
        at = ", ".join(f"{name} = {value!r}" for name, value in where.items())
        raise LawBroken(f"{law}: not so" + (f" at {at}" if at else ""))


# --- losses


def subgradient(loss: Loss, u: Any, v: Any, y: Any) -> None:
    """φ(v) ≥ φ(u) + slope(u)·(v − u)."""
    below = loss.value(u, y) + loss.slope(u, y) * (v - u)
    holds("the slope is a subgradient", loss.value(v, y) >= below - 1e-9 * (1 + np.abs(below)), u=u, v=v, y=y)


def derivative(loss: Loss, u: Any, v: Any, y: Any) -> None:
    """The slope is the derivative, where the loss has one."""
    e = 1e-5
    smooth = np.abs(loss.slope(u - 2 * e, y) - loss.slope(u + 2 * e, y)) <= 1e-3
    difference = (loss.value(u + e, y) - loss.value(u - e, y)) / (2 * e)
    near = np.abs(loss.slope(u, y) - difference) <= 2e-4 * (1 + np.abs(difference))
    holds("the slope is the derivative away from kinks", near | ~smooth, u=u, y=y)


def bounded(loss: Loss, u: Any, v: Any, y: Any) -> None:
    """|slope| ≤ the bound, also far away."""
    slope = loss.slope(2e4 * np.asarray(u), y)
    holds("the slope bound holds", np.isfinite(slope) & (np.abs(slope) <= loss.slope_bound * (1 + 1e-12)), u=u, y=y)


def fenchel_young(loss: Loss, u: Any, v: Any, y: Any) -> None:
    """φ(u) + φ*(s) ≥ s·u, with equality for s in ∂φ(u); s lies in the domain of φ*, where the loss has one."""
    if loss.conjugate_formula is None:
        return
    u, v, y = np.atleast_1d(u), np.atleast_1d(v), np.atleast_1d(y)
    s = np.asarray(loss.slope(v, y), dtype=np.float64)
    lo, hi = loss.interval(y)
    holds("slopes lie in the domain of the conjugate", (lo - 1e-12 <= s) & (s <= hi + 1e-12), v=v, y=y)
    total, touch = loss.value(u, y) + loss.conjugate(s, y), loss.value(v, y) + loss.conjugate(s, y)
    holds("the conjugate is an upper bound", total >= s * u - 1e-8 * (1 + np.abs(total)), u=u, v=v, y=y)
    holds("the conjugate is reached", np.abs(touch - s * v) <= 1e-8 * (1 + np.abs(touch)), v=v, y=y)


LOSS_LAWS: dict[str, Callable[[Loss, Any, Any, Any], None]] = {
    "subgradient": subgradient,
    "derivative": derivative,
    "bounded": bounded,
    "fenchel_young": fenchel_young,
}
"""Laws of a loss with one margin, at margins u, v in [−50, 50] and a target."""


def least_bound(loss: Loss) -> None:
    """The bound of the slope is no larger than it must be: noise is made for it."""
    u = np.linspace(-1e3, 1e3, 4001)
    steepest = max(float(np.max(np.abs(loss.slope(u, y)))) for y in (-1.0, 1.0))
    good = steepest > 100 if math.isinf(loss.slope_bound) else abs(steepest / loss.slope_bound - 1) < 1e-6
    holds("the slope bound is the least", good, steepest=steepest, bound=loss.slope_bound)


def vectorizes(loss: Loss) -> None:
    """Values are not negative, and elements are independent of one another."""
    u, y = np.random.default_rng(0).normal(size=(2, 7, 3)) * 3
    y = np.sign(y) if loss.targets == "binary" else y
    values, slopes = loss.value(u, y), loss.slope(u, y)
    holds("values and slopes have the shape of the margins", values.shape == slopes.shape == u.shape)
    holds("values are not negative", values >= 0)
    holds("elements are independent", values[2, 1] == loss.value(u[2, 1], y[2, 1]))


def check_loss(loss: Loss | str, engines: Sequence[str] | None = None, points: int = 300, seed: int = 0) -> None:
    """Hold a registered loss to all its laws, and engines to running it as the reference does or refusing it.

    Parameters
    ----------
    loss : the choice
    engines : which; all of them by default, though compiling takes a minute on a new machine
    points, seed : how many points are drawn, and from what

    Examples
    --------
    >>> check_loss("huber(0.5)", engines=["nodes"])
    >>> from dataclasses import replace
    >>> check_loss(replace(LOSSES.read("hinge"), bound_formula=lambda k: 0.5))
    Traceback (most recent call last):
    sottovoce.testing.LawBroken: the slope bound holds: not so at ...
    """
    value = LOSSES.read(loss) if isinstance(loss, str) else loss
    if value.targets == "classes":
        raise SpecError(f"loss '{value}' is of several margins at once, for which there is no kit; test it by hand")
    rng = np.random.default_rng(seed)
    for u, v, raw in zip(*rng.uniform(-50, 50, (2, points)), rng.uniform(-5, 5, points), strict=True):
        y = math.copysign(1.0, raw) if value.targets == "binary" else raw
        for law in LOSS_LAWS.values():
            law(value, u, v, y)
    least_bound(value)
    vectorizes(value)
    _check_text("loss", LOSSES, value)
    for name in ENGINES if engines is None else engines:
        clip = 1.0 if math.isinf(Joint(value).slope_bound) else None
        held_to_reference(ENGINES[name], small_job(problem__loss=value, privacy__clip=clip), ROUNDS)


# --- regularizers


def _total(h: Regularizer, z: Array, s: float, gamma: float, x: Array) -> float:
    return float(z @ x) + s * h.value(x) + gamma * float(x @ x) / 2


def minimizes(h: Regularizer, z: Array, w: Array, s: float, gamma: float) -> None:
    """No feasible point does better than the step, by the margin that strong convexity promises."""
    x = h.step(z, s, gamma)
    best = _total(h, z, s, gamma, x)
    holds("the step is feasible", math.isfinite(best), z=z, s=s, gamma=gamma)
    for share in (1e-4, 0.02, 0.5):
        other = h.step(z + share * (w - z), s, gamma)
        gap = _total(h, z, s, gamma, other) - best
        least = 0.5 * (s * h.modulus + gamma) * float(np.sum((other - x) ** 2))
        holds("the step minimizes", gap >= least - 1e-9 * (1 + abs(best)), z=z, s=s, gamma=gamma)


def lipschitz(h: Regularizer, z: Array, w: Array, s: float, gamma: float) -> None:
    """∇Ψ* is (sμ + γ)⁻¹-Lipschitz: the first half of Lemma 5."""
    moved = np.linalg.norm(h.step(z, s, gamma) - h.step(w, s, gamma))
    most = np.linalg.norm(z - w) / (s * h.modulus + gamma) * (1 + 1e-9) + 1e-12
    holds("the step is Lipschitz", moved <= most, z=z, w=w, s=s, gamma=gamma)


def rows_apart(h: Regularizer, z: Array, w: Array, s: float, gamma: float) -> None:
    """Rows are independent of one another."""
    stacked = h.step(np.stack([z, w, 0 * z])[:, None, :], s, gamma)
    same = np.allclose(stacked[0, 0], h.step(z, s, gamma)) and np.allclose(stacked[1, 0], h.step(w, s, gamma))
    holds("rows are independent", same, z=z, w=w, s=s, gamma=gamma)


def upper_bound(h: Regularizer, z: Array, w: Array, s: float, gamma: float, reach: float = 6.0) -> None:
    """h*(v) ≥ ⟨v, x⟩ − h(x) for every x within reach."""
    star = h.conjugate(z, reach)
    for scale in (0.1, 1.0, 30.0):
        x = h.step(-scale * z + 0.1 * w, 1.0, 1.0)
        x = x * min(1.0, reach / max(float(np.sum(np.abs(x))), 1e-300)) if h.value(0 * x) == 0.0 else x
        if np.sum(np.abs(x)) <= reach:
            holds("the conjugate is an upper bound", star >= float(z @ x) - h.value(x) - 1e-9 * (1 + abs(star)), v=z)


REGULARIZER_LAWS: dict[str, Callable[[Regularizer, Array, Array, float, float], None]] = {
    "minimizes": minimizes,
    "lipschitz": lipschitz,
    "rows_apart": rows_apart,
    "upper_bound": upper_bound,
}
"""Laws of h, at vectors z, w and weights s, γ > 0."""


def check_regularizer(
    h: Regularizer | str, engines: Sequence[str] | None = None, points: int = 100, seed: int = 0
) -> None:
    """Hold a registered regularizer to all its laws, and engines to running it as the reference does; see `check_loss`.

    Examples
    --------
    >>> check_regularizer("elastic_net(0.4, 0.2)", engines=["nodes"])
    """
    value = REGULARIZERS.read(h) if isinstance(h, str) else h
    rng = np.random.default_rng(seed)
    for _ in range(points):
        z, w = rng.uniform(-20, 20, (2, 4)).round(6)
        s, gamma = rng.uniform(0.01, 5, 2).tolist()
        for law in REGULARIZER_LAWS.values():
            law(value, z, w, s, gamma)
    _check_text("regulariser", REGULARIZERS, value)
    for name in ENGINES if engines is None else engines:
        held_to_reference(ENGINES[name], small_job(problem__h=value), ROUNDS)


# --- graphs, methods


def check_graph(family: Family | str, sizes: Sequence[int] = (4, 6, 12)) -> None:
    """A registered graph is the same whenever it is requested, is connected, and lets nodes agree.

    Examples
    --------
    >>> check_graph("ring")
    """
    kind = GRAPHS.read(family) if isinstance(family, str) else family
    _check_text("graph", GRAPHS, kind)
    for n in sizes:
        one, other = kind(n), kind(n)  # whatever falls into pieces is refused here
        holds("a graph has the requested number of nodes", one.n == n, n=n)
        holds("a graph is the same every time", np.array_equal(one.edges, other.edges), n=n)
        mixing = beta(one, Everyone(), METROPOLIS)
        holds("nodes come to agree", mixing.beta < 1, n=n, beta=mixing.beta)
    held_to_reference(ENGINES["nodes"], small_job(network__graph=kind, network__activation="everyone"), ROUNDS)


def check_method(method: MethodChoice | str, rounds: int = 300, **changes: Any) -> None:
    """A registered method is a pure step, is accounted, runs on one row as on all, and gets near the optimum.

    Parameters
    ----------
    method : the choice
    rounds : after how many without noise it has gone nine tenths of the way from nothing to the optimum
    changes : of the small spec that it is tried on, as in `Spec.replace`, such as its step sizes

    Examples
    --------
    >>> check_method("descent")
    """
    chosen = METHODS.read(method) if isinstance(method, str) else method
    _check_text("method", METHODS, chosen)
    changed = {"network__activation": "everyone", "algorithm__method": chosen} | changes
    job = small_job(**changed)
    held_to_reference(ENGINES["nodes"], job, ROUNDS)
    pure(job)
    noised(job)
    statement = prepare(small_spec(**changed), small_shards("binary")).statement
    holds("its releases are accounted", 0 < statement.epsilon < math.inf, epsilon=statement.epsilon)
    quiet = small_job(rounds, **changed | {"privacy__noise": "none", "privacy__sampling": "full"})
    state = reference.run(quiet, quiet.start(), 1, rounds)
    model = quiet.method.average(state, rounds).mean(axis=0)
    best, found, nothing = (
        optimum(quiet.problem, gap=1e-6).value, quiet.problem.value(model), quiet.problem.value(0 * model)
    )  # fmt: skip
    holds("it gets near the optimum", found - best <= 0.1 * (nothing - best), found=found, best=best, at_zero=nothing)


def pure(job: Job) -> None:
    """The same state and draws give the same state, and what is handed over stays as it was."""
    start = job.start()
    kept = [array.copy() for array in start]
    one, other = (reference.run(job, start, 1, ROUNDS) for _ in range(2))
    holds("a step is pure", all(map(np.array_equal, one, other)))
    holds("states are left alone", all(map(np.array_equal, start, kept)))


def noised(job: Job) -> None:
    """Noise has the effect that it has as part of the gradient, which is where secure releases have it."""
    apart, within = job.start(), job.start()
    for stretch in stretches(job, 1, ROUNDS, 1):
        gradient = stretch.drawn.gradient(job.problem, job.release, stretch.nodes)
        noise, mix = (
            stretch.drawn.noise,
            partial(job.schedule.mix, stretch.first, unit=job.method.stride(stretch.first)),
        )
        one, other = (
            job.method.step(state.at(stretch.nodes), stretch.first, stretch.nodes, stretch.speaks, call, added, mix)
            for state, call, added in (
                (apart, gradient, noise),
                (within, lambda x, g=gradient, e=noise: g(x) + e, 0.0 * noise),
            )
        )
        apart.put(stretch.nodes, one.state)
        within.put(stretch.nodes, other.state)
        same = np.allclose(one.message, other.message, rtol=1e-9, atol=1e-9)
        holds("it adds the noise to what gradient gave, before anything else", same, round=stretch.first)


# --- engines

ROUNDS = 12


def small_shards(targets: str) -> Shards:
    """Four nodes with six records of three numbers each."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 3))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    y = X @ np.array([1.0, -0.5, 0.3]) + 0.1 * rng.normal(size=24)
    return Shards.of(X, y if targets == "real" else np.where(y > 0, 1.0, -1.0), np.arange(0, 25, 6))


def small_spec(rounds: int = ROUNDS, **changes: Any) -> Spec:
    """A run of every part's simplest choice, but for what is changed."""
    spec = Spec(AlgorithmSpec(rounds, a="constant(1)", gamma="constant(2)", eta="inverse_sqrt(0.7)"), seed=7)
    common = {"problem__h": "l2(0.1)", "privacy__noise": "gaussian(0.3)", "privacy__sampling": "fixed(2)"}
    return spec.replace(**common | {"network__graph": "ring", "network__activation": "matching(1)"} | changes)


def small_job(rounds: int = ROUNDS, **changes: Any) -> Job:
    """That run, prepared."""
    spec = small_spec(rounds, **changes)
    return prepare(spec, small_shards(spec.problem.loss.targets)).job


class Injected:
    """Another randomness with the same numbers: an engine may not depend on its class."""

    def __init__(self, draws: Any) -> None:
        self.records, self.noise = draws.records, draws.noise


def difference(found: State, expected: State) -> float:
    """The largest difference of z, total and memory, relative to their size."""
    holds("the same nodes spoke in the same rounds", np.array_equal(found.since, expected.since))
    holds("states keep their shape", all(a.shape == b.shape for a, b in zip(found, expected, strict=True)))
    return max(
        float(np.max(np.abs(a - b))) / max(float(np.max(np.abs(b))), 1e-300)
        for a, b in ((found.z, expected.z), (found.total, expected.total), (found.memory, expected.memory))
        if b.size
    )


def held_to_reference(engine: Engine, job: Job, rounds: int) -> bool:
    """From the same draws an engine gives the reference's trajectory, or refuses the job by name; whether it runs."""
    start = job.start()
    reason = engine.refusal(job)
    if reason is not None:
        try:
            engine.run([job], [start], 1, rounds)
        except SpecError as error:
            holds("an engine refuses in the words of its record", str(error) == reason, said=str(error), record=reason)
            return False
        raise LawBroken(f"an engine does not run what it refuses: {engine.name} ran a job of which it says: {reason}")
    expected = reference.run(job, start, 1, rounds)
    given, (own,) = replace(job, draws=Injected(job.draws)), engine.run([job], [start], 1, rounds)
    law = f"the engine '{engine.name}' gives the reference's trajectory"
    apart = difference(own, expected)
    holds(law, apart < max(engine.rounding, NOISE_ROUNDINGS * engine.noise_rtol), apart=apart)
    if engine.noise_rtol == 0:
        means = (job.method.average(state, rounds) for state in (own, expected))
        for mine, theirs in (*zip(own, expected, strict=True), means):
            holds(law, np.allclose(mine, theirs, rtol=ROUNDING, atol=ROUNDING))
    elif engine.refusal(given) is None:  # its noise is its own, and rounding shows from that of others only
        (own,) = engine.run([given], [start], 1, rounds)
        apart = difference(own, expected)
        holds(f"{law} from injected draws", apart < engine.rounding, apart=apart)
    holds("engines leave the state they are given alone", not start.z.any() and not start.total.any())
    return True


def check_engine(engine: Engine | str, losses: Sequence[str] | None = None) -> int:
    """Hold a registered engine to the reference over losses, regularizers, methods and noises; how many jobs it runs.

    Examples
    --------
    >>> check_engine("nodes") > 10
    True
    """
    one = ENGINES[engine] if isinstance(engine, str) else engine
    ran = 0
    for loss in losses if losses is not None else [name for name in LOSSES if LOSSES.make(name).targets != "classes"]:
        clip = 0.8 if math.isinf(LOSSES.read(loss).slope_bound) else None
        ran += held_to_reference(one, small_job(problem__loss=loss, privacy__clip=clip), ROUNDS)
    for changes in (
        {"problem__h": "l1(0.05)"}, {"problem__h": "box(-0.5, 0.5)"}, {"problem__h": "l2_ball(0.7)"},
        {"algorithm__method": "descent"}, {"network__activation": "everyone"}, {"network__activation": "edges(1)"},
        {"privacy__noise": "none"}, {"privacy__sampling": "poisson(3)"}, {"privacy__sampling": "full"},
        {"network__graph": "star", "network__activation": "nodes(2)"}, {"problem__intercept": 0.75},
    ):  # fmt: skip
        ran += held_to_reference(one, small_job(**changes), ROUNDS)
    holds(f"the engine '{one.name}' runs anything at all", ran > 0)
    job = small_job()
    if one.refusal(job) is None:
        start = job.start()
        (whole,), (half,) = one.run([job], [start], 1, ROUNDS), one.run([job], [start], 1, ROUNDS // 2)
        (rest,) = one.run([job], [half], ROUNDS // 2 + 1, ROUNDS)
        holds("a run that is cut in two ends as the whole does", difference(rest, whole) < max(one.rounding, 1e-12))
    return ran


# --- averagings, weight rules, samplers


def check_weight_rule(rule: Rule | str) -> None:
    """Hold a registered weight rule to doubly stochastic weights on links alone, of one round and of stacks of them.

    Examples
    --------
    >>> check_weight_rule("lazy")
    """
    one = WEIGHTS.read(rule) if isinstance(rule, str) else rule
    for family in ("ring", "star", "complete", "path"):
        links = GRAPHS.make(family)(5).adjacency()
        W = np.asarray(one(links))
        holds("a weight rule gives a matrix of the nodes", W.shape == links.shape, shape=W.shape)
        check_doubly_stochastic(W)
        holds("weights are on links alone", np.all((np.abs(W) < ROUNDING) | links | np.eye(5, dtype=bool)))
        stacked = np.asarray(one(np.stack([links, links])))
        holds("a rule takes several rounds at once", stacked.shape == (2, 5, 5) and np.allclose(stacked, W))


def check_averaging(averaging: Averaging | str) -> None:
    """Hold a registered averaging to its own words: its matrix, and what real nodes compute one by one.

    Examples
    --------
    >>> check_averaging("gossip(3)")
    """
    one = AVERAGINGS.read(averaging) if isinstance(averaging, str) else averaging
    if isinstance(averaging, str):
        _check_spelling("averaging", AVERAGINGS, one)
    W = WEIGHTS.read("lazy")(GRAPHS.make("complete")(7).adjacency())  # which no power of itself equals
    messages = np.random.default_rng(0).normal(size=(7, 3))
    mixed = one.mix(W, messages.copy())
    holds("an averaging gives a row a node", mixed.shape == messages.shape, shape=mixed.shape)
    if one.linear:
        V = np.asarray(one.weights(W))
        check_doubly_stochastic(V)
        holds("a linear averaging is its matrix", np.allclose(mixed, V @ messages, rtol=1e-9, atol=1e-12))
    plans = [one.exchanges(W, place) for place in range(7)]
    held: list[Array] = list(messages[:, None])
    holds("all nodes have as many exchanges", len({len(plan) for plan in plans}) == 1)
    for step in range(len(plans[0])):
        before = list(held)
        for me, plan in enumerate(plans):
            holds("who sends is heard", all(me in plans[peer][step].heard for peer in plan[step].to), node=me)
            held[me] = one.combine(me, plan[step], before[me], {peer: before[peer] for peer in plan[step].heard})
    holds("nodes compute what `mix` does", np.allclose(np.concatenate(held), mixed, rtol=1e-9, atol=1e-12))


def check_activation(activation: Activation | str) -> None:
    """Hold a registered activation to its text and to the ι that privacy is planned with (8 nodes, 5,000 rounds).

    Independent rounds are held to six deviations of their ι, a sequence of graphs to one period.

    Examples
    --------
    >>> check_activation("hypercube")
    """
    one = ACTIVATIONS.read(activation) if isinstance(activation, str) else activation
    if isinstance(activation, str):
        _check_spelling("activation", ACTIVATIONS, one)
    graph, T = GRAPHS.make("complete")(8), 5000
    iota = np.asarray(one.iota(graph))
    holds("ι is a probability of each node", iota.shape == (8,) and np.all((iota >= 0) & (iota <= 1)), iota=iota)
    first, again = (draw_schedule(graph, one, METROPOLIS, T, np.random.default_rng(0)) for _ in range(2))
    same = all(np.array_equal(getattr(first, part), getattr(again, part)) for part in ("active", "starts", "pattern"))
    holds("the same generator draws the same rounds", same)
    off = one.count(graph) if isinstance(one, Periodic) else 6 * np.sqrt(T * iota * (1 - iota)) + 1
    found = first.participations()
    holds("nodes are active as often as ι says", np.all(np.abs(found - T * iota) <= off), active=found, iota=iota)
    rate = beta(graph, one, METROPOLIS).beta
    holds("β is a rate", 0 <= rate <= 1 + ROUNDING, beta=rate)


def _stretch(stream: Array, first: int, count: int) -> Array:
    return stream[first : first + count]


def check_sampling(sampling: Sampling | str) -> None:
    """Hold a registered sampler to the rate that it is accounted at, at one node (1,000 draws, 6 deviations).

    Examples
    --------
    >>> check_sampling("poisson(3)")
    """
    one = SAMPLINGS.read(sampling) if isinstance(sampling, str) else sampling
    q, draws, event = 12, 1000, one.event(12, 1.0, 1.0, 10)
    holds("the event has the batch that is drawn", event.batch == one.batch(q), event=event)
    rng, counts = np.random.default_rng(0), np.zeros(q)
    for t in range(1, draws + 1):
        stream = rng.random(10_000)
        rows = one.draw(partial(_stretch, stream), q, t)
        picked = np.arange(q) if rows is None else np.asarray(rows)
        holds("records are drawn once, of those there are", len(set(picked.tolist()) & set(range(q))) == len(picked))
        counts[picked] += 1
    rate = one.batch(q) / q
    off = 6 * math.sqrt(draws * rate * (1 - rate)) + 1
    holds("each record is drawn at the accounted rate", np.all(np.abs(counts - draws * rate) <= off), counts=counts)


def check_baseline(name: str) -> None:
    """Hold a registered baseline to its budget, on even and uneven nodes, and to numbers that are finite.

    Examples
    --------
    >>> check_baseline("dsgd")
    """
    from sottovoce.experiments.baselines import make_baseline  # which a run does not need
    from sottovoce.experiments.inputs import BaselineInputs

    one, rng = make_baseline(name), np.random.default_rng(0)
    for sizes in ((40, 40, 40, 40), (10, 30, 50, 70)):
        inputs = BaselineInputs(sizes, 3, epsilon=1.0, batch=8, epochs=2.0, h="l2(0.05)")
        if one.refusal(inputs):
            continue
        X = rng.normal(size=(160, 3)) / 4
        y = np.where(X[:, 0] > 0, 1.0, -1.0)
        shards = one.place(Shards.of(X / np.maximum(1, np.linalg.norm(X, axis=1))[:, None], y, np.cumsum((0, *sizes))))
        spec = one.spec(inputs).replace(seed=1)
        holds("a baseline is its spec's text", Spec.from_json(spec.to_json()) == spec)
        prepared = prepare(spec, shards)
        holds(
            "a baseline keeps to the budget", prepared.statement.epsilon <= 1 + 1e-6, epsilon=prepared.statement.epsilon
        )
        state = reference.run(prepared.job, prepared.job.start(), 1, spec.algorithm.rounds)
        holds("a baseline's models are finite", np.all(np.isfinite(state.z)))


def check_feature_map(features: Chosen[Any, Any] | str) -> None:
    """Hold a registered feature map to being public: a function of each row by itself, the same every time.

    Examples
    --------
    >>> check_feature_map("fourier(5)")
    >>> from sottovoce.registry import Chosen
    >>> check_feature_map(Chosen("centered", (), lambda X: X - X.mean(axis=0), "feature map"))
    Traceback (most recent call last):
    sottovoce.testing.LawBroken: a feature map sees each row by itself: not so
    """
    from sottovoce.experiments.data import FEATURE_MAPS  # which a run does not need

    one = FEATURE_MAPS.read(features) if isinstance(features, str) else features
    X = np.random.default_rng(0).normal(size=(9, 4)) / 4
    mapped = np.asarray(one(X.copy()))
    holds("a feature map gives a row for each row", mapped.ndim == 2 and len(mapped) == len(X), shape=mapped.shape)
    holds("mapped rows are finite", np.all(np.isfinite(mapped)))
    holds("a feature map is the same every time", np.array_equal(mapped, np.asarray(one(X.copy()))))
    apart = np.concatenate([np.asarray(one(row[None].copy())) for row in X])
    holds("a feature map sees each row by itself", np.allclose(mapped, apart, rtol=1e-9, atol=1e-12))


CHECKS: dict[str, Callable[[str], object]] = {
    "loss": lambda name: None if LOSSES.make(name).targets == "classes" else check_loss(name, engines=["nodes"]),
    "regulariser": lambda name: check_regularizer(name, engines=["nodes"]),
    "graph": check_graph,
    "method": check_method,
    "engine": check_engine,
    "weight rule": check_weight_rule,
    "averaging": check_averaging,
    "sampling": check_sampling,
    "baseline": check_baseline,
    "activation": check_activation,
    "feature map": check_feature_map,
}
"""What `register` runs, by the kind of a choice: its check with its default numbers, on the engine that runs anything.
There is none for a loss of several margins, nor for the other kinds."""


def _check_text(kind: str, table: Any, value: Any) -> None:
    """A registered choice is its text, and survives a trip to another process."""
    if value.name not in table if hasattr(value, "name") else False:
        return  # not registered (yet): it has no text
    read, sent = _check_spelling(kind, table, value), pickle.loads(pickle.dumps(value))
    holds(f"a {kind} is its text", str(read) == str(value) == str(sent), text=str(value), read=str(read))


def _check_spelling(kind: str, table: Any, value: Any) -> Any:
    """What the text of a registered choice is read as."""
    try:
        read = table.read(str(value))
    except SottovoceError as error:
        raise LawBroken(
            f"the text of this {kind}, {str(value)!r}, is not read back ({error}); let __str__ give the name "
            "that it is registered by, with its numbers"
        ) from None
    holds(f"a {kind} is its text", read == value, text=str(value), read=str(read))
    return read


def __getattr__(name: str) -> Any:
    """Return what a name of version 0.2 stands for now."""
    return module_attribute(__name__, name)
