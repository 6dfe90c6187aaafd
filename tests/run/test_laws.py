"""The identities and inequalities of the analysis, on real trajectories of the reference engine.

Pathwise laws hold to rounding in every run and catch real bugs; expectation bounds are loose and catch wrong scales.
"""

import itertools
import math

import numpy as np
import pytest

from sottovoce.algorithm import bounds
from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.algorithm.method import SEQUENCES, State, StepSizes
from sottovoce.engine import reference
from sottovoce.engine.job import Job, gradients
from sottovoce.errors import SpecError
from sottovoce.network.schedule import Schedule
from sottovoce.problem.objective import Problem
from sottovoce.problem.optimum import optimum
from sottovoce.problem.regularizers import REGULARIZERS
from sottovoce.problem.shards import Shards
from sottovoce.run.build import prepare
from sottovoce.run.spec import AlgorithmSpec, Spec

STRONG = ("linear(1)", "constant(0)")
CONVEX = ("constant(1)", "sqrt(0.5)")


def spec(rounds, steps=STRONG, h="l2(0.1)", **changes):
    a, gamma = steps
    base = Spec(AlgorithmSpec(rounds=rounds, a=a, gamma=gamma), seed=3)
    return base.replace(**{"problem__h": h, "network__activation": "edges(1)"} | changes)


def walk(job):
    """(t, z before the round, active nodes, what they released), round by round."""
    state = job.start()
    before = state.z.copy()
    for step in reference.rounds(job, state, 1, job.schedule.T):
        yield step.t, before, step.nodes, step.round
        before = state.z.copy()


VARIANTS = [
    pytest.param(STRONG, "l2(0.1)", id="l2"),
    pytest.param(CONVEX, "l1(0.02)", id="l1"),
    pytest.param(("linear(1)", "constant(2)"), "elastic_net(0.02, 0.1)", id="elastic-net"),
    pytest.param(CONVEX, "l2_ball(0.8)", id="l2-ball"),
    pytest.param(CONVEX, "simplex", id="simplex"),
]


@pytest.mark.parametrize(("steps", "h"), VARIANTS)
@pytest.mark.parametrize("activation", ["edges(2)", "matching(2)", "nodes(3)", "everyone"])
def test_law_1_the_mean_dual_moves_by_what_was_released(steps, h, activation, make_shards):
    """z̄^(t+1) = z̄^(t) + (a_t/n) Σ η_i ζ_i."""
    job = prepare(spec(60, steps, h, network__activation=activation, privacy__noise="gaussian(0.5)"), make_shards()).job
    records = list(walk(job))
    for (t, before, _, done), (_, after, _, _) in itertools.pairwise(records):
        expected = before.mean(axis=0) + job.method.steps.a[t - 1] / 5 * done.zeta.sum(axis=0)
        assert np.allclose(after.mean(axis=0), expected, rtol=1e-12, atol=1e-12 * (1 + np.abs(after).max()))


@pytest.mark.parametrize(("steps", "h"), VARIANTS)
def test_law_2_primal_disagreement_is_bounded_by_dual_disagreement(steps, h, make_shards):
    """eq. (30): Σ‖x_i − y‖² ≤ Σ‖z_i − z̄‖²/(μιA_t + γ_t)², pathwise, for recomputed x."""
    job = prepare(spec(80, steps, h, privacy__noise="gaussian(0.5)"), make_shards()).job
    for t, z, _, _ in walk(job):
        mean = z.mean(axis=0, keepdims=True)
        x, y = job.method.x(z, t), job.method.x(mean, t)
        left, right = np.sum((x - y) ** 2), np.sum((z - mean) ** 2) / job.method.modulus[t - 1] ** 2
        assert left <= right * (1 + 1e-9) + 1e-14


def test_law_2_fails_for_the_stale_x_of_line_8():
    """The audit's hand example: n = 4, all gradients g; at t = 3 all z agree, but the x as written do not."""
    g, gamma = np.array([1.0, -2.0]), 0.7
    steps = StepSizes(np.ones(3), gamma * np.sqrt([1.0, 2.0, 3.0]))
    half = np.full((2, 2), 0.5)
    x_at_3 = {}
    for primal in ("recompute", "as_written"):
        method = DualAveraging(REGULARIZERS.make("none"), steps, 0.5, np.ones(4), primal=primal)
        state = method.start(4, 2)
        for t, nodes in ((1, np.array([0, 1])), (2, np.array([2, 3]))):
            done = method.step(
                state.at(nodes),
                t,
                nodes,
                np.ones(2, bool),
                lambda x: np.tile(g, (2, 1)),
                np.zeros((2, 2)),
                half.__matmul__,
            )
            state.put(nodes, done.state)
        assert np.allclose(state.z, g)
        x_at_3[primal] = method.x(state.z, 3 if primal == "recompute" else state.since)
    assert np.allclose(x_at_3["recompute"], -g / (gamma * math.sqrt(3)))
    assert np.allclose(x_at_3["as_written"][0], -g / (gamma * math.sqrt(2)))
    assert np.allclose(x_at_3["as_written"][2], -g / (gamma * math.sqrt(3)))


@pytest.mark.parametrize(("steps", "h"), VARIANTS)
def test_law_3_lemma_5_holds_pathwise_for_any_comparator(steps, h, make_shards):
    """eq. (20), for every u in dom(h), with the sum from τ = 1."""
    job = prepare(spec(60, steps, h, privacy__noise="gaussian(0.4)"), make_shards()).job
    method, rng = job.method, np.random.default_rng(0)
    # every comparator is the image of some dual point, so that it is feasible
    comparators = method.x(np.vstack([rng.normal(size=(20, 4)) * s for s in (0.1, 1, 10, 100)]), 30)
    left, right = np.zeros(len(comparators)), 0.0
    for t, z, _, done in walk(job):
        a, y = method.steps.a[t - 1], method.x(z.mean(axis=0, keepdims=True), t)[0]
        theta = done.zeta.sum(axis=0) / 5
        values = np.array([method.h.value(u) for u in comparators])
        left += a * ((y - comparators) @ theta / method.iota + method.h.value(y) - values)
        right += a**2 * float(theta @ theta) / (2 * method.iota * method.modulus[t - 1])
        d = 0.5 * np.sum(comparators**2, axis=1)
        limit = right + method.steps.gamma[t - 1] / method.iota * d
        assert np.all(left <= limit + 1e-9 * (1 + np.abs(limit)))
    assert np.max(left / limit) > 0.05  # not vacuous: some comparator comes within a factor of it


def many(spec_, shards, seeds):
    for seed in range(seeds):
        yield prepare(spec_.replace(seed=seed), shards).job


@pytest.mark.parametrize("sigma", [0.0, 0.6])
def test_law_4_dual_disagreement_in_expectation(sigma, make_shards):
    """E‖z̃‖² ≤ a²nι(L² + mσ²)/(1 − β)², and the sharper form of Lemma 5; also eqs. (18) and (19)."""
    shards, T, n, m = make_shards(), 25, 5, 4
    s = spec(T, network__activation="matching(2)", privacy__noise=f"gaussian({sigma})" if sigma else "none")
    public = prepare(s, shards).public
    setting = bounds.BoundInputs(L=1.0, m=m, n=n, iota=public["iota"], beta=public["beta"], mu=0.1, sigma=sigma)
    spread, gaps = [], []
    for job in many(s, shards, 60):
        z = reference.run(job, job.start(), 1, T - 1).z
        mean = z.mean(axis=0, keepdims=True)
        spread.append(np.sum((z - mean) ** 2))
        gaps.append(np.linalg.norm(job.method.x(z, T) - job.method.x(mean, T), axis=1))
    a = T - 1
    E = math.sqrt(np.mean(spread))
    iota, beta = setting.iota, setting.beta
    assert np.mean(spread) <= a**2 * n * iota * (1 + m * sigma**2) / (1 - beta) ** 2
    assert E <= a * math.sqrt(n * iota) * (1 / (1 - beta) + math.sqrt(m) * sigma / math.sqrt(1 - beta**2))
    assert E >= 0.02 * a * math.sqrt(n * iota)  # a forgotten a_t or a double one would show
    steps = job.method.steps
    assert np.mean(gaps) <= bounds.lemma5(setting, steps, T, "sharper") <= bounds.lemma5(setting, steps, T)
    assert np.mean(np.square(gaps)) <= bounds.lemma5(setting, steps, T, squared=True)


def auxiliary_average(job):
    """ỹ^(T), from y^(t) = argmin ⟨z̄, x⟩ + …, eq. (8)."""
    total = 0.0
    for t, z, _, _ in walk(job):
        total = total + job.method.steps.a[t - 1] * job.method.x(z.mean(axis=0, keepdims=True), t)[0]
    return total / job.method.steps.A[-1]


@pytest.mark.parametrize(("steps", "h"), [(STRONG, "l2(0.1)"), (CONVEX, "l1(0.02)")])
@pytest.mark.parametrize("sigma", [0.0, 0.5])
def test_laws_5_to_9_the_bounds_hold_in_expectation(steps, h, sigma, make_shards):
    shards, T = make_shards(n=6, q=10), 60
    s = spec(T, steps, h, privacy__noise=f"gaussian({sigma})" if sigma else "none")
    prepared = prepare(s, shards)
    job, public = prepared.job, prepared.public
    best = optimum(job.problem, gap=1e-8)
    x_star = best.x
    setting = bounds.BoundInputs(
        L=1.0, m=4, n=6, iota=public["iota"], beta=public["beta"], mu=job.problem.h.modulus, sigma=sigma,
        d_star=0.5 * float(x_star @ x_star),
    )  # fmt: skip
    gaps, distances, consensus = [], [], []
    for run in many(s, shards, 30):
        y = auxiliary_average(run)
        gaps.append(run.problem.value(y) - best.value)
        models = run.method.average(reference.run(run, run.start(), 1, T), T)
        distances.append(np.mean(np.sum((models - x_star) ** 2, axis=1)))
        consensus.append(np.mean(np.linalg.norm(models - y, axis=1)))
    gap = np.mean(gaps)
    assert gap > -1e-7
    printed, sharper = (bounds.theorem2(setting, job.method.steps, T, form) for form in ("printed", "sharper"))
    assert gap <= sharper <= printed * (1 + 1e-12)
    if steps is STRONG:
        assert gap <= bounds.corollary3_objective(setting, T)
        assert np.mean(distances) <= bounds.corollary3(setting, T)
        if sigma == 0.0:
            L, mu, iota, beta = 1.0, setting.mu, setting.iota, setting.beta  # eq. (10), written out
            M = iota * L**2 / 2 + 2 * math.sqrt(iota) * L**2 / (1 - beta)
            printed = (
                16 / (T + 1) * (L**2 * (math.log(T) + 1) / (mu**2 * iota * (1 - beta) ** 2 * T) + M / (mu**2 * iota))
            )
            assert bounds.corollary1(setting, T) == pytest.approx(printed, rel=1e-12)
            assert np.mean(distances) <= printed
    else:
        assert gap <= bounds.corollary4(setting, 0.5, T)
        assert np.mean(consensus) <= bounds.corollary2_consensus(setting, 0.5, T)


def test_law_7_the_printed_corollary_2_is_wrong_for_large_gamma():
    """f = |x − 1|, h = 0, γ = 100, t = 100: the gap is 0.935; printed 0.0057, corrected 5.0."""
    shards = Shards.of(np.ones((1, 1)), np.ones(1), np.array([0, 1]))
    s = spec(100, ("constant(1)", "sqrt(100)"), "none", problem__loss="absolute", privacy__sampling="full")
    job = prepare(s, shards).job
    gap = job.problem.value(auxiliary_average(job))
    setting = bounds.BoundInputs(L=1.0, m=1, n=1, iota=1.0, beta=0.0, d_star=0.5)
    M = setting.iota / 2  # one node: there is no consensus term
    assert gap == pytest.approx(0.935, abs=2e-3)
    assert (0.5 + 2 * M) / (100 * 10) < 0.01 < gap < (100**2 * 0.5 + 2 * M) / (100 * 10)
    assert bounds.corollary2(setting, 100.0, 100, "printed") < gap < bounds.corollary2(setting, 100.0, 100)


def test_the_noise_of_theorem_1_fills_the_corollaries():
    """Corollaries 3 and 4 with σ filled in are Theorem 2's terms with Theorem 1's σ; the printed ones are larger."""
    q, epsilon, delta0, T = 200, 0.7, 0.01, 5000
    base = {"L": 1.0, "m": 10, "n": 20, "iota": 0.1, "beta": 0.9733, "mu": 0.05, "d_star": 1.0}
    sigma = math.sqrt(32 * T * math.log(2 / delta0)) * 0.1 / (q * epsilon)
    setting = bounds.BoundInputs(**base, sigma=sigma)
    direct, filled = bounds.corollary3_objective(setting, T), bounds.corollary3_utility(setting, T, q, epsilon, delta0)
    assert direct <= filled <= 1.001 * direct
    assert filled < bounds.corollary3_utility(setting, T, q, epsilon, delta0, "printed")
    convex = bounds.BoundInputs(**base | {"mu": 0.0}, sigma=sigma)
    direct, filled = (
        bounds.corollary4(convex, 0.3, T),
        bounds.corollary4_utility(convex, 0.3, T, q, epsilon, delta0),
    )
    assert direct == pytest.approx(filled, rel=1e-9)
    with pytest.raises(SpecError, match="exists as printed and corrected, not as 'sharper'"):
        bounds.corollary4(convex, 0.3, T, "sharper")


@pytest.mark.slow
def test_the_rate_of_corollary_1_is_seen(make_shards):
    """t · E‖x̃ − x*‖² stays bounded over t = 10² … 10⁴, without noise."""
    shards = make_shards(n=6, q=10)
    s = spec(10_000, STRONG, "l2(0.1)")
    x_star = optimum(prepare(s, shards).job.problem, gap=1e-10).x
    scaled = {100: [], 1000: [], 10_000: []}
    for job in many(s, shards, 4):
        state, done = job.start(), 0
        for t, seen in scaled.items():
            state = reference.run(job, state, done + 1, t)
            done = t
            seen.append(t * np.mean(np.sum((job.method.average(state, t) - x_star) ** 2, axis=1)))
    first, *later = (np.mean(seen) for seen in scaled.values())
    assert all(value <= 2.0 * first for value in later)  # an O(1/√t) method would grow tenfold
    assert later[-1] > 0.01 * first


def test_public_factors_act_after_the_noise(make_shards):
    """Uneven weights and a star: the released ζ is ĝ + ν with the accounted ν; the message carries a_t c_i ζ."""
    shards = make_shards(sizes=[4, 8, 12, 8, 8])
    base = spec(30, network__graph="star", network__correct=True, problem__weights="records")
    noisy, quiet = (prepare(base.replace(privacy__noise=n), shards).job for n in ("gaussian(0.5)", "none"))
    assert np.ptp(noisy.method.scale) > 0.5
    for t in range(1, 31):
        nodes = noisy.schedule.nodes(t).astype(np.int64)
        state, speaks = noisy.method.start(len(nodes), 4), np.ones(len(nodes), bool)
        drawn = noisy.draws.records(nodes, np.full(len(nodes), t))
        W = noisy.schedule.weights(t).__matmul__
        nu = noisy.draws.noise(nodes, np.full(len(nodes), t))
        with_noise, without = (
            job.method.step(state, t, nodes, speaks, gradients(job.problem, job.release, nodes, drawn), v, W)
            for job, v in ((noisy, nu), (quiet, 0.0 * nu))
        )
        assert np.allclose(with_noise.zeta - without.zeta, nu, atol=1e-12)
        factor = noisy.method.steps.a[t - 1] * noisy.method.scale[nodes][:, None]
        assert np.allclose(with_noise.message - without.message, factor * nu, atol=1e-10)
        assert np.allclose(with_noise.message, state.z + factor * with_noise.zeta, atol=1e-12)


# ---- symmetries -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "h"), VARIANTS)
def test_one_node_is_centralised_dual_averaging(steps, h, make_shards):
    """n = 1 against twenty lines of textbook dual averaging written here."""
    shards = make_shards(n=1, q=30)
    job = prepare(spec(50, steps, h, privacy__sampling="full", problem__loss="logistic"), shards).job
    z, total, A = np.zeros(4), np.zeros(4), 0.0
    for t in range(1, 51):
        a, gamma = SEQUENCES.read(steps[0])(50)[t - 1], SEQUENCES.read(steps[1])(50)[t - 1]
        A += a
        x = job.problem.h.step(z, A, gamma)
        total += a * x
        slopes = -shards.y / (1 + np.exp(shards.y * (shards.X @ x)))
        z = z + a * slopes @ shards.X / 30
    assert np.allclose(job.method.average(reference.run(job, job.start(), 1, 50), 50)[0], total / A, rtol=1e-10)


class Relabeled:
    """The draws of a job, for nodes that have been renamed by a permutation."""

    def __init__(self, draws, back):
        self.inner, self.back = draws, back

    def records(self, nodes, t):
        return self.inner.records(self.back[nodes], t)

    def noise(self, nodes, t):
        return self.inner.noise(self.back[nodes], t)


def test_relabelling_the_nodes_permutes_the_result(make_shards):
    shards = make_shards(n=5, sizes=[3, 8, 5, 9, 6])
    s = spec(60, privacy__noise="gaussian(0.3)", network__activation="edges(2)", privacy__sampling="poisson(2)")
    job = prepare(s, shards).job
    to = np.array([3, 0, 4, 1, 2])  # node i becomes to[i]
    back = np.argsort(to)
    rows = [np.arange(shards.offsets[i], shards.offsets[i + 1]) for i in back]
    offsets = np.concatenate([[0], np.cumsum([len(r) for r in rows])])
    renamed = Shards.of(shards.X, shards.y, offsets, np.concatenate(rows))
    old = job.schedule
    schedule = Schedule(5, old.starts, to[old.active].astype(np.int32), old.pattern, old.patterns)
    problem = Problem(job.problem.loss, job.problem.h, renamed)
    other = Job(problem, job.method, schedule, job.release, Relabeled(job.draws, back))
    mine, theirs = reference.run(job, job.start(), 1, 60), reference.run(other, other.start(), 1, 60)
    assert np.allclose(mine.z[back], theirs.z, rtol=1e-12) and np.array_equal(mine.since[back], theirs.since)
    assert np.allclose(mine.total[back], theirs.total, rtol=1e-12)


def test_one_record_a_node_is_the_deterministic_problem(make_shards):
    """q = 1: which record is drawn is no longer random, so only the schedule is."""
    shards = make_shards(n=6, q=1)
    runs = [prepare(spec(40, privacy__sampling=how), shards).job for how in ("one", "full", "fixed(1)", "poisson(1)")]
    states = [reference.run(job, job.start(), 1, 40) for job in runs]
    assert all(np.array_equal(states[0].z, state.z) for state in states[1:])


@pytest.mark.parametrize("h", ["box(-0.3, 0.3)", "non_negative", "l2_ball(0.5)", "l1_ball(0.5)", "simplex"])
def test_iota_does_not_matter_for_an_indicator(h, make_shards):
    job = prepare(spec(60, CONVEX, h), make_shards()).job
    m = job.method
    other = Job(job.problem, DualAveraging(m.h, m.steps, 0.987, m.scale), job.schedule, job.release, job.draws)
    a, b = reference.run(job, job.start(), 1, 60), reference.run(other, other.start(), 1, 60)
    assert np.allclose(a.z, b.z, rtol=1e-12) and np.allclose(m.average(a, 60), other.method.average(b, 60), rtol=1e-10)


def test_iota_matters_for_anything_else(make_shards):
    job = prepare(spec(60, CONVEX, "l1(0.05)"), make_shards()).job
    m = job.method
    other = Job(job.problem, DualAveraging(m.h, m.steps, 0.987, m.scale), job.schedule, job.release, job.draws)
    assert not np.allclose(
        m.average(reference.run(job, job.start(), 1, 60), 60),
        other.method.average(reference.run(other, other.start(), 1, 60), 60),
        rtol=1e-3,
    )


def test_gossip_alone_reaches_the_mean_and_keeps_it(make_shards):
    """With a_t ζ = 0 from some round on, every z_i tends to z̄, at the rate β² a round or better."""
    prepared = prepare(spec(100), make_shards(n=5))
    job, beta = prepared.job, prepared.public["beta"]
    z = np.random.default_rng(0).normal(size=(5, 4))
    mean, spread = z.mean(axis=0), np.sum((z - z.mean(axis=0)) ** 2)
    for t in range(1, 101):
        z = job.schedule.matrix(t) @ z
    assert np.allclose(z.mean(axis=0), mean, atol=1e-12)
    assert np.sum((z - mean) ** 2) < spread * beta ** (2 * 100) * 1e3


def test_the_state_is_plain_data(make_shards):
    job = prepare(spec(10), make_shards()).job
    state = reference.run(job, job.start(), 1, 10)
    assert isinstance(state, State) and state.since.max() == 11 and state.z.shape == state.total.shape == (5, 4)
