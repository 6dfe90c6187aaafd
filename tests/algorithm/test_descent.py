"""Decentralised SGD and its asynchronous form: textbook twins, means, listeners, and the optimum."""

import numpy as np
import pytest

from sottovoce.engine import ENGINES, reference
from sottovoce.errors import SpecError
from sottovoce.problem.optimum import optimum
from sottovoce.run.build import prepare
from sottovoce.run.spec import AlgorithmSpec, Spec


def spec(rounds, method="descent", **changes):
    base = Spec(AlgorithmSpec(rounds, method, a="constant(1)", eta="inverse(2, 2)"), seed=3)
    return base.replace(**{"problem__loss": "logistic", "problem__h": "l2(0.5)"} | changes)


@pytest.mark.parametrize("h", ["l2(0.3)", "l1(0.05)", "box(-0.2, 0.2)", "l2_ball(0.4)"])
def test_one_node_is_proximal_gradient_descent(h, make_shards):
    shards = make_shards(n=1, q=30, m=4)
    job = prepare(spec(25, privacy__sampling="full", problem__h=h), shards).job
    x, total = np.zeros(4), np.zeros(4)
    for t in range(1, 26):
        total += x
        eta = 2 / (t + 2)
        x = job.problem.h.step(-(x - eta * job.problem.gradient(x)), eta, 1.0)
    state = reference.run(job, job.start(), 1, 25)
    assert np.allclose(state.z[0], x, atol=1e-12)
    assert np.allclose(job.method.average(state, 25)[0], total / 25, atol=1e-12)


@pytest.mark.parametrize("method", ["descent", "combine_first"])
def test_with_full_averaging_all_nodes_descend_on_the_mean(method, make_shards):
    """W = 11ᵀ/n and no h: the mean of the models takes a step along the mean gradient."""
    shards = make_shards(n=5, q=8, m=4)
    changes = {"network__activation": "everyone", "privacy__sampling": "full", "problem__h": "none"}
    job = prepare(spec(12, method, **changes), shards).job
    for step in reference.rounds(job, job.start(), 1, 12):
        before, after = step.round.x.mean(axis=0), step.state.z.mean(axis=0)
        assert np.allclose(after, before - 2 / (step.t + 2) * step.round.zeta.mean(axis=0), atol=1e-12)


def test_a_listener_averages_and_nothing_else(make_shards):
    """A(DP)²SGD: worker and neighbor average, then the worker steps with the gradient it took before."""
    shards = make_shards(n=5, q=8, m=4)
    changes = {"network__activation": "ticks", "privacy__noise": "gaussian(0.4)", "problem__h": "l1(0.02)"}
    job = prepare(spec(200, "combine_first", **changes), shards).job
    old = job.start()
    for step in reference.rounds(job, job.start(), 1, 200):
        worker, other = step.nodes.tolist()
        mean, eta = (old.z[worker] + old.z[other]) / 2, 2 / (step.t + 2)
        assert np.array_equal(step.round.zeta[1], np.zeros(4)) and step.round.zeta[0].any()
        assert np.allclose(step.state.z[other], mean, atol=1e-13)
        moved = job.problem.h.step(-(mean - eta * step.round.zeta[0]), eta, 1.0)
        assert np.allclose(step.state.z[worker], moved, atol=1e-13)
        old = step.state.copy()
    counts = job.schedule.participations()
    assert counts.sum() == 200 and job.schedule.up_to()[-1] == 400
    assert np.array_equal(counts, np.bincount(job.schedule.active[::2], minlength=5))
    assert prepare(spec(200, "combine_first", **changes), shards).statement.worst.event.rounds == counts.max()


@pytest.mark.parametrize(
    ("method", "activation"), [("descent", "edges(1)"), ("descent", "everyone"), ("combine_first", "ticks")]
)
@pytest.mark.parametrize("h", ["l2(0.5)", "elastic_net(0.02, 0.5)"])
def test_it_reaches_the_optimum_without_noise(method, activation, h, make_shards):
    shards = make_shards(n=5, q=8, m=4)
    changes = {"network__activation": activation, "privacy__sampling": "full", "problem__h": h}
    eta = "inverse(20, 100)" if activation == "ticks" else "inverse(4, 20)"  # a node steps in one round of five only
    run = spec(30_000, method, **changes).replace(algorithm__eta=eta, algorithm__a="linear(1)")
    job = prepare(run, shards).job
    best = optimum(job.problem, gap=1e-9)
    (state,) = ENGINES["compiled"].run([job], [job.start()], 1, 30_000)
    assert job.problem.value(job.method.average(state, 30_000).mean(axis=0)) - best.value < 2e-5
    start = job.problem.value(np.zeros(4)) - best.value
    assert start > 1e-3  # there was something to do


def test_what_belongs_to_dual_averaging_is_refused(make_shards):
    for change in ({"algorithm__primal": "as_written"}, {"algorithm__curvature": 0.1}):
        with pytest.raises(SpecError, match="dual averaging's"):
            prepare(spec(5, **change), make_shards())
    with pytest.raises(SpecError, match="no method 'sorcery'"):
        prepare(spec(5, "sorcery"), make_shards())
    with pytest.raises(SpecError, match="malformed"):
        prepare(spec(5, "descent(1, 2, 3)"), make_shards())
