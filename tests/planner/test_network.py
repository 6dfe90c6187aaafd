"""Plans know the network: seconds by hand and by simulated latencies, and a limit that they keep."""

import numpy as np
import pytest

from sottovoce import PlanOptions, PrivateClassifier
from sottovoce.errors import SpecError
from sottovoce.network.averaging import Exact
from sottovoce.planner import PublicInputs, choose
from sottovoce.planner.fit import FitRequest, plan_fit
from sottovoce.planner.network import NetworkModel, ways
from sottovoce.problem.losses import LOSSES

FIFTY = {"sizes": (600,) * 50, "features": 30, "epsilon": 1.0, "delta": 1e-5}
RELAYED = NetworkModel(0.05, 1e7, relay=830)


def rows_of(choice, **wanted):
    return [row for row in choice.alternatives if all(row[name] == value for name, value in wanted.items())]


def test_fifty_sites_over_a_relay_get_a_plan_of_minutes():
    direct, relayed = (choose(PublicInputs(**FIFTY, network=network)) for network in (NetworkModel(), RELAYED))
    assert relayed.alternatives[0]["seconds"] < 300 and relayed.predicted < direct.predicted + 0.01
    everyone = choose(PublicInputs(**FIFTY, network=RELAYED), activation="everyone", averaging="gossip", rounds=1000)
    assert everyone.alternatives[0]["seconds"] == pytest.approx(1000 * 2450 / 830, rel=0.5)
    assert everyone.alternatives[0]["seconds"] > 20 * 60 > 4 * relayed.alternatives[0]["seconds"]


def test_all_ways_are_in_the_table():
    found = choose(PublicInputs(**FIFTY, network=RELAYED), rounds=200)
    ways = {(row["activation"], row["averaging"]) for row in found.alternatives}
    assert ways == {("everyone", "gossip"), ("matching(25)", "gossip"), ("everyone", "exact")}
    seconds = {(row["activation"], row["averaging"]): row["seconds"] for row in found.alternatives}
    assert seconds["matching(25)", "gossip"] < seconds["everyone", "exact"] < seconds["everyone", "gossip"]


@pytest.mark.parametrize("limit", [5.0, 20.0, 60.0])
def test_a_limit_is_kept(limit):
    inputs = PublicInputs(**FIFTY, network=NetworkModel(0.02), max_seconds=limit)
    found = choose(inputs)
    assert found.alternatives[0]["seconds"] <= limit
    free = choose(PublicInputs(**FIFTY, network=NetworkModel(0.02)))
    assert found.predicted >= free.predicted - 1e-12
    inside = [row for row in found.alternatives if row["seconds"] <= limit]
    assert found.alternatives[0]["loss"] <= min(row["loss"] for row in inside) + 0.01


def test_what_no_plan_keeps_is_said():
    found = choose(PublicInputs(**FIFTY, max_seconds=0.01))
    assert any("no plan takes less" in reason for reason in found.reasons)


def test_a_regression_knows_its_network():
    loss, slow = LOSSES.make("squared"), NetworkModel(30.0)
    request = FitRequest((4000,) * 6, tuple("abcdef"), 8, loss, 2.0, intercept=0.5, fixed={"method": "auto"})
    fast = plan_fit(request)
    assert fast.alternatives[0]["seconds"] <= 3600
    late = plan_fit(FitRequest(**{**vars(request), "network": slow, "max_seconds": 600.0}))
    assert late.alternatives[0]["method"] in ("statistics", "mean") and late.alternatives[0]["seconds"] <= 600


@pytest.mark.parametrize("averaging", ["gossip", "exact"])
@pytest.mark.parametrize("n", [2, 5, 16])
def test_waits_are_the_longest_chain_of_messages(n, averaging):
    """Against a simulation of who waits for whom, with the same latency on every link: seconds within 1.5."""
    from sottovoce.run.plan import Request, plan_public

    inputs = PublicInputs((300,) * n, 4, 1.0, 1e-5)
    found = choose(inputs, activation="everyone", averaging=averaging, rounds=20)
    plan = plan_public(Request(found.spec.replace(seed=1), np.array(inputs.sizes), 4))
    latency, at = 0.05, np.zeros(n)
    for t in range(1, 21):
        each = [plan.schedule.exchanges(t, i) for i in range(n)]
        for part in range(max(map(len, each))):
            before = at.copy()
            for i in range(n):
                if part < len(each[i]):
                    heard = [before[j] + latency for j in each[i][part].heard]
                    at[i] = max([at[i], *heard])
    foreseen = found.alternatives[0]["seconds"]
    assert at.max() / 1.5 <= foreseen <= 1.5 * at.max()


def test_exact_averaging_has_as_many_waits_as_doublings():
    found = choose(PublicInputs((300,) * 16, 4, 1.0, 1e-5), activation="everyone", averaging="exact", rounds=10)
    assert found.alternatives[0]["waits"] == Exact().depth(np.full((16, 16), 1 / 16)) == 4


@pytest.mark.parametrize("graph", ["complete", "ring"])
def test_every_way_to_speak_has_its_seconds(graph):
    inputs = PublicInputs(**FIFTY, graph=graph, network=RELAYED)
    spec = choose(inputs, rounds=100).spec
    rows = ways(spec, 50, inputs.m, RELAYED)
    found = {(row["activation"], row["averaging"]): row["seconds"] for row in rows}
    own = str(spec.network.activation), str(spec.network.averaging)
    assert len(found) == len(rows) and own == next(iter(found))
    once, often = found["everyone", "gossip"], found["everyone", "gossip(4)"]
    size = 8 * inputs.m + 0.0
    messages = 50 * (49 if graph == "complete" else 2)
    work = messages / 2 / 830 + messages * size / 1e7
    for k, seconds in ((1, once), (4, often)):  # by hand
        assert seconds == pytest.approx(100 * max(k * (0.05 + work), 2 * k * work), rel=0.05)
    assert (("everyone", "exact") in found) == (("matching(25)", "gossip") in found) == (graph == "complete")


@pytest.mark.parametrize("given", [NetworkModel(0.5, 1e6, 50.0), {"rtt": 0.5, "bandwidth": 1e6, "relay": 50.0}])
def test_estimators_plan_for_a_network(given):
    X, y = np.zeros((400, 2)), np.tile([0, 1], 200)
    nodes = np.repeat(np.arange(8), 50)

    def rounds(**options):
        model = PrivateClassifier(row_norm=1.0, classes=[0, 1], random_state=0, plan=PlanOptions(**options))
        return model.fit(X, y, nodes=nodes).spec_.algorithm.rounds

    assert rounds(network=given, max_seconds=60.0) < rounds()
    with pytest.raises(SpecError, match="network must be 'auto', a NetworkModel, or its fields"):
        rounds(network={"latency": 1.0})


@pytest.mark.parametrize("wrong", [{"rtt": 0.0}, {"bandwidth": -1.0}, {"relay": float("inf")}])
def test_networks_that_cannot_be_are_refused(wrong):
    with pytest.raises(SpecError, match="of a network is finite and over 0"):
        NetworkModel(**wrong)


def test_the_usual_network_is_in_every_plan():
    request = FitRequest((900,) * 5, tuple("abcde"), 6, LOSSES.make("hinge"), 1.0)
    assert plan_fit(request).spec == plan_fit(FitRequest(**{**vars(request), "network": NetworkModel()})).spec
