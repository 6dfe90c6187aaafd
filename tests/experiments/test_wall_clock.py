"""A clock of rounds: by hand, link by link; and its models of latency."""

import itertools

import numpy as np
import pytest

from sottovoce.errors import SpecError
from sottovoce.experiments.wall_clock import LATENCIES, wall_clock
from sottovoce.network.graphs import GRAPHS
from sottovoce.run.plan import Request, plan_public
from sottovoce.run.presets import paper_l2


@pytest.mark.parametrize("activation", ["edges(2)", "matching(2)", "everyone", "nodes(3)"])
def test_a_round_lasts_as_long_as_its_slowest_link(activation):
    spec = paper_l2(30).replace(seed=3, network__activation=activation, network__graph="ring", network__correct=True)
    plan, model = plan_public(Request(spec, np.full(6, 50), 4)), LATENCIES.read("uniform(0.01, 0.5, seed=2)")
    apart, total = model(GRAPHS.read("ring")(6)), 0.0
    for t, found in enumerate(wall_clock(plan, model, bandwidth=1000.0, computing=0.25), 1):
        who, W = plan.schedule.active[plan.schedule.starts[t - 1] : plan.schedule.starts[t]], plan.schedule.weights(t)
        links = [(a, b) for a, b in itertools.combinations(range(len(who)), 2) if W[a, b] > 0]
        total += 0.25
        if links:
            most = max(sum(p in link for link in links) for p in range(len(who)))
            total += max(apart[who[a], who[b]] for a, b in links) + most * 4 * 8 / 1000.0
        assert found == pytest.approx(total)


@pytest.mark.parametrize("text", ["constant(0.1)", "uniform", "distance(0.3)"])
def test_latencies_are_symmetric_and_not_negative(text):
    apart = LATENCIES.read(text)(GRAPHS.read("small_world")(12))
    assert np.array_equal(apart, apart.T) and np.all(apart >= 0) and str(text).split("(")[0] in LATENCIES


def test_exchanges_that_wait_are_counted():
    base = paper_l2(5).replace(seed=1, network__activation="everyone")
    one, three = (
        wall_clock(plan_public(Request(base.replace(network__averaging=a), np.full(4, 50), 3)), "constant:1", np.inf)
        for a in ("gossip", "gossip(3)")
    )
    assert one.tolist() == [1, 2, 3, 4, 5] and three.tolist() == [3, 6, 9, 12, 15]
    with pytest.raises(SpecError, match="bandwidth"):
        wall_clock(plan_public(Request(base, np.full(4, 50), 3)), "constant", 0.0)
