"""Laws of every method: its textbook twin without noise, alone it is centralised, its cost is met, it gets there.

The twins are written here a second time, with matrices over all nodes, from the papers' equations.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from sottovoce.algorithm.descent import mixing_weights
from sottovoce.algorithm.synchronous import acceleration
from sottovoce.engine import ENGINES, choose, nodes, reference
from sottovoce.engine import job as engine_job
from sottovoce.errors import SpecError
from sottovoce.network.graphs import GRAPHS
from sottovoce.network.mixing import metropolis
from sottovoce.problem.optimum import optimum
from sottovoce.problem.shards import Shards
from sottovoce.run.build import prepare
from sottovoce.run.spec import AlgorithmSpec, Spec

N, Q, M, T = 5, 8, 4, 24
METHODS = {
    "descent": {},
    "mixup(0.5)": {},
    "admm(0.3, 0.5)": {},
    "huang(0.95)": {"algorithm__eta": "geometric(0.8, 0.9)"},
    "muffliato(3, 1.2)": {},
    "tracking": {},
    "scaffold": {"network__every": 4},
    "scaffold(2)": {"network__every": 4},
}
EVERY = [pytest.param(name, changes, id=name) for name, changes in METHODS.items()]


def spec(method, changes=None, rounds=T, **more):
    base = Spec(AlgorithmSpec(rounds, method, a="linear(1)", eta="inverse_sqrt(0.7)"), seed=3)
    common = {
        "problem__loss": "logistic",
        "problem__h": "elastic_net(0.01, 0.3)",
        "network__activation": "everyone",
        "network__graph": "ring",
        "privacy__sampling": "full",
    }
    return base.replace(**common | (changes or {}) | more)


def gradients(job, X):
    """∇f_i at row i of X, straight from the definition."""
    one = job.problem
    rows = [one.shards.node(i) for i in range(one.shards.n)]
    return np.stack([type(one)(one.loss, one.h, s).gradient(x) for s, x in zip(rows, X, strict=True)])


def textbook(method, job, W, eta, every):
    """Models x_1 … x_T of every node, and what is put out."""
    name, h = method.split("(")[0], job.problem.h
    prox = lambda v, s: h.step(-v, s, 1.0)  # noqa: E731
    X = Y = G = A = np.zeros((len(W), M))
    lam = mixing_weights(0.5, T)
    warm = 8 if method == "scaffold(2)" else 0
    own, common, seen, path = np.zeros_like(X), np.zeros_like(X), [], []
    for t in range(1, T + 1):
        path.append(X)
        g, e = gradients(job, X), eta[t - 1]
        if name == "descent":
            X = prox(W @ (X - e * g), e)
        elif name == "mixup":
            X = prox(W @ X - e * lam[t - 1] * g, lam[t - 1] * e)
        elif name == "admm":  # the augmented Lagrangian's linearised minimizer, link by link
            c, new = 0.3, np.empty_like(X)
            for i in range(len(W)):
                links = sum(W[i, j] * (X[i] + X[j]) for j in range(len(W)))
                v = (X[i] / e + c * links - A[i] - g[i]) / (1 / e + 2 * c)
                new[i] = lam[t - 1] * prox(v, 1 / (1 / e + 2 * c)) + (1 - lam[t - 1]) * X[i]
            X = new
            A = A + 0.3 * np.stack([sum(W[i, j] * (X[i] - X[j]) for j in range(len(W))) for i in range(len(W))])
        elif name == "huang":
            X = W @ prox(X - e * g, e)
        elif name == "muffliato":
            steps = [X - e * g]
            steps.append(W @ steps[0])
            for _ in range(2):
                steps.append(1.2 * W @ steps[-1] - 0.2 * steps[-2])
            X = prox(steps[3], e)
        elif name == "tracking":
            Y, G = W @ Y + g - G, g
            X = prox(W @ X - e * Y, e)
        else:
            seen.append(g)
            if t > warm:
                X = prox(X - e * (g - own + common), e)
            if t % every == 0:
                own = np.mean(seen, axis=0)
                X, common = W @ X, W @ own
                seen = seen if t < warm else []
    weights = np.arange(1, T + 1)
    return X, X if name == "huang" else np.tensordot(weights, np.stack(path), 1) / weights.sum()


@pytest.mark.parametrize(("method", "changes"), EVERY)
def test_without_noise_it_is_the_textbook(method, changes, make_shards):
    job = prepare(spec(method, changes), make_shards(N, Q, M)).job
    W = metropolis(GRAPHS.make("ring")(N).adjacency())
    models, output = textbook(method, job, W, getattr(job.method, "eta", None), changes.get("network__every", 1))
    state = reference.run(job, job.start(), 1, T)
    assert np.allclose(state.z, models, atol=1e-12)
    assert np.allclose(job.method.average(state, T), output, atol=1e-12)


@pytest.mark.parametrize(("method", "changes"), EVERY)
def test_one_node_is_proximal_gradient_descent(method, changes, make_shards):
    """With nobody to talk to: x ← (1 − λ)x + λ prox_{sh}(x − s∇f), with λ < 1 for ADMM only."""
    shards = make_shards(1, 40, M)
    job = prepare(spec(method, changes), shards).job
    lam = mixing_weights(0.5, T)
    x = np.zeros(M)
    for t in range(1, T + 1):
        step, relax = job.method.eta[t - 1], 1.0
        if method.startswith("admm"):
            step, relax = 1 / (1 / step + 2 * 0.3), lam[t - 1]
        elif method.startswith("mixup"):
            step *= lam[t - 1]
        if method == "scaffold(2)" and t <= 8:
            continue
        moved = job.problem.h.step(-(x - step * job.problem.gradient(x)), step, 1.0)
        x = relax * moved + (1 - relax) * x
    assert np.allclose(reference.run(job, job.start(), 1, T).z[0], x, atol=1e-12)


def neighbor(shards):
    """The data with record 0 of node 0 turned round."""
    y = shards.y.copy()
    y[0] = -y[0]
    return Shards.of(shards.X, y, shards.offsets)


@pytest.mark.parametrize(("method", "changes"), EVERY)
def test_its_cost_is_met_and_not_passed(method, changes, make_shards):
    """The μ of the whole run, from brute force and measured noise, is the μ that the event accounts for.

    In every round: how far the release moves when a record is turned round (hinge at x = 0, a row of norm 1: as far as
    can be), over how much noise was really in it.
    """
    shards = make_shards(N, Q, M)
    shards.X[0] /= np.linalg.norm(shards.X[0])
    noisy = spec(method, changes, problem__loss="hinge", problem__h="none", privacy__noise="gaussian(0.01)")
    prepared, other = (prepare(noisy, s) for s in (shards, neighbor(shards)))
    job, twin, still = prepared.job, other.job, prepare(noisy.replace(privacy__noise="none"), shards).job
    sizes = np.arange(N)
    speaks = np.ones(N, dtype=bool)
    gain, spread = job.method.released.shape or (np.ones(T), np.ones(T))
    moved, spreads = [], []
    for t in range(1, T + 1):
        released = []
        for one, noise in ((still, 0.0), (twin, 0.0), (job, job.draws.noise(sizes, np.full(N, t)))):
            gradient = engine_job.gradients(one.problem, one.release, sizes, [None] * N)
            start = one.start()
            W = one.schedule.weights(t)
            done = one.method.step(start, t, sizes, speaks, gradient, np.zeros((N, M)) + noise, W.__matmul__)
            released.append(done.zeta)
        moved.append(np.linalg.norm(released[1] - released[0], axis=1))
        spreads.append((released[2] - released[0]) / spread[t - 1])
    moved = np.array(moved)
    assert np.allclose(moved[:, 0], gain * 2 / Q, rtol=1e-12) and not moved[:, 1:].any()
    measured = float(np.std(spreads))
    assert measured == pytest.approx(0.01, rel=5 / math.sqrt(2 * T * N * M))
    event = job.release.event(0, Q, T)
    mu = math.sqrt(np.sum((moved[:, 0] / (0.01 * spread)) ** 2))
    assert math.sqrt(event.rounds) / event.noise_multiplier == pytest.approx(mu, rel=1e-12)
    prepared.statement.verify()


@pytest.mark.parametrize(("method", "changes"), EVERY)
def test_no_neighbour_moves_it_further(method, changes, make_shards):
    """From any state of a run, whatever h is and whichever record is replaced."""
    shards = make_shards(N, Q, M)
    rng = np.random.default_rng(4)
    job = prepare(spec(method, changes, privacy__noise="gaussian(0.05)", problem__h="l1(0.05)"), shards).job
    gain = (job.method.released.shape or (np.ones(T), None))[0]
    still = np.zeros((N, M))
    for step in reference.rounds(job, job.start(), 1, T - 1):
        t, state = step.t + 1, step.state.copy()
        X, y = shards.X.copy(), shards.y.copy()
        X[3], y[3] = rng.normal(size=M), rng.choice([-1.0, 1.0])
        X[3] /= np.linalg.norm(X[3])
        other = prepare(spec(method, changes), Shards.of(X, y, shards.offsets)).job
        both = []
        for one in (job, other):
            gradient = engine_job.gradients(one.problem, one.release, step.nodes, [None] * N)
            W = one.schedule.weights(t)
            speaks = np.ones(N, dtype=bool)
            both.append(one.method.step(state, t, step.nodes, speaks, gradient, still, W.__matmul__).zeta)
        assert np.linalg.norm(both[0] - both[1]) <= gain[t - 1] * 2 / Q * (1 + 1e-12)


FINAL = {
    "mixup(0.5)": {"algorithm__eta": "inverse(6, 8)"},
    "admm(0.3, 0.5)": {"algorithm__eta": "constant(1)"},
    "huang(0.999)": {"algorithm__eta": "geometric(0.8, 0.994)"},
    "muffliato(3, 1.2)": {"algorithm__eta": "inverse(6, 8)"},
    "tracking": {"algorithm__eta": "constant(0.4)"},
    "scaffold": {"network__every": 4, "algorithm__eta": "constant(0.4)", "network__graph": "complete"},
    "scaffold(2)": {"network__every": 4, "algorithm__eta": "constant(0.4)", "network__graph": "complete"},
}


@pytest.mark.parametrize(("method", "changes"), FINAL.items(), ids=FINAL)
def test_it_reaches_the_optimum_without_noise(method, changes, make_shards):
    shards = make_shards(N, Q, M)
    run = spec(method, changes, rounds=800, problem__h="l2(0.3)")
    job = prepare(run, shards).job
    best = optimum(job.problem, gap=1e-10)
    assert job.problem.value(np.zeros(M)) - best.value > 1e-2  # there is something to do
    state = reference.run(job, job.start(), 1, 800)
    exact = method.startswith(("admm", "tracking", "scaffold"))  # those that forget how nodes differ at a constant step
    assert job.problem.value(state.z.mean(axis=0)) - best.value < (1e-9 if exact else 2e-4)
    assert job.problem.value(job.method.average(state, 800).mean(axis=0)) - best.value < 5e-4


@pytest.mark.parametrize(("method", "changes"), [*EVERY, pytest.param("stale(2)", {}, id="stale")])
def test_real_nodes_do_the_same(method, changes, make_shards):
    job = prepare(spec(method, changes, privacy__noise="gaussian(0.1)"), make_shards(N, Q, M)).job
    expected, found = (engine.run(job, job.start(), 1, T) for engine in (reference, nodes))
    assert all(np.allclose(a, b, rtol=1e-12, atol=1e-12) for a, b in zip(expected, found, strict=True))


def test_messages_are_counted_with_what_they_carry(make_shards):
    widths = {"descent": 1, "muffliato(3, 1.2)": 3, "tracking": 2, "scaffold": 2, "admm(0.3, 0.5)": 1}
    for method, width in widths.items():
        made = prepare(spec(method, METHODS[method]), make_shards(N, Q, M)).job.method
        assert made.width == width and made.exchanges == (3 if method.startswith("muffliato") else 1)


def test_gradient_tracking_tracks(make_shards):
    """The mean of the y_i is the mean of the newest ζ_i, noise and all."""
    job = prepare(spec("tracking", privacy__noise="gaussian(0.3)"), make_shards(N, Q, M)).job
    for step in reference.rounds(job, job.start(), 1, T):
        assert np.allclose(step.round.message[:, M:].mean(axis=0), step.round.zeta.mean(axis=0), atol=1e-12)


def test_controls_cancel_in_the_mean(make_shards):
    """With W = 11ᵀ/n the mean model of SCAFFOLD steps along the mean gradient, as that of FedAvg does."""
    changes = {"network__every": 4, "network__graph": "complete", "problem__h": "none"}
    job = prepare(spec("scaffold", changes, privacy__noise="gaussian(0.3)"), make_shards(N, Q, M)).job
    for step in reference.rounds(job, job.start(), 1, T):
        eta = job.method.eta[step.t - 1]
        after = step.round.x.mean(axis=0) - eta * step.round.zeta.mean(axis=0)
        assert np.allclose(step.state.z.mean(axis=0), after, atol=1e-12)


def test_a_stale_worker_reads_its_own_past(make_shards):
    job = prepare(
        spec("stale(2)", network__activation="ticks", network__graph="complete", rounds=200), make_shards(N, Q, M)
    ).job
    past = [[np.zeros(M)] * 2 for _ in range(N)]
    before = job.start()
    for step in reference.rounds(job, job.start(), 1, 200):
        worker, listener = step.nodes.tolist()
        assert np.array_equal(step.round.x[0], past[worker][-2])
        past[worker].append(before.z[worker])
        assert np.array_equal(step.state.memory[listener], before.memory[listener])
        before = step.state.copy()


def test_acceleration_beats_plain_gossip():
    W = metropolis(GRAPHS.make("ring")(20).adjacency())
    K, omega = acceleration(W)
    X = np.random.default_rng(0).normal(size=(20, 3))
    plain, before, now = np.linalg.matrix_power(W, K) @ X, X, W @ X
    for _ in range(1, K):
        before, now = now, omega * W @ now + (1 - omega) * before
    assert np.allclose(now.mean(axis=0), X.mean(axis=0), atol=1e-12)
    apart = [np.linalg.norm(Y - Y.mean(axis=0)) for Y in (now, plain, X)]
    assert apart[0] < 0.2 * apart[1] < apart[2] and apart[0] < apart[2] / 10
    assert acceleration(np.ones((1, 1))) == (1, 1.0)
    with pytest.raises(SpecError, match="connected"):
        acceleration(np.eye(4))


def test_what_makes_no_sense_is_refused(make_shards):
    shards = make_shards(N, Q, M)
    for method, changes, words in (
        ("tracking", {"network__activation": "nodes(2)"}, "every node takes part"),
        ("huang(1.2)", {}, "ratio ρ"),
        ("admm(-1)", {}, "penalty"),
        ("mixup(0)", {}, "lo over 0"),
        ("muffliato(0)", {}, "K ≥ 1"),
        ("muffliato(2, 2.5)", {}, "ω in"),
        ("scaffold(99)", {"network__every": 4}, "not all"),
        ("stale(0)", {}, "at least 1"),
        ("tracking(3)", {}, "malformed"),
    ):
        with pytest.raises(SpecError, match=words):
            prepare(spec(method, changes), shards)


def test_auto_never_chooses_an_engine_that_lacks_the_method(make_shards, monkeypatch):
    monkeypatch.setitem(ENGINES, "compiled", replace(ENGINES["compiled"], auto_threshold=0))
    for method, changes in METHODS.items():
        job = prepare(spec(method, changes), make_shards(N, Q, M)).job
        assert choose("auto", job).name == ("compiled" if method == "descent" else "reference")
