"""Skipping an edge: both ends or neither, written down before mixing, W doubly stochastic, nothing saved."""

import threading

import pytest
from net import Net, assert_as_simulated, open_node, play, records, run_of

from sottovoce.errors import NetworkError
from sottovoce.network.mixing import check_doubly_stochastic
from sottovoce.network.schedule import Schedule
from sottovoce.node.links import KEEP, PROMISED, SKIP, SkipOrders
from sottovoce.node.message import read
from sottovoce.node.store import Store

TABLES = records(run_of())


def skipping_schedule(run, t, i, j):
    """The schedule in which edge {i, j} gives its weight in round t to the diagonal."""
    whole = run.prepared.job.schedule
    nodes = whole.nodes(t).tolist()
    W, a, b = whole.weights(t).copy(), nodes.index(i), nodes.index(j)
    W[a, a] += W[a, b]
    W[b, b] += W[b, a]
    W[a, b] = W[b, a] = 0.0
    check_doubly_stochastic(W)
    pattern = whole.pattern.copy()
    pattern[t - 1] = len(whole.patterns)
    return Schedule(whole.n, whole.starts, whole.active, pattern, (*whole.patterns, W))


def test_an_edge_is_skipped_by_both_ends_or_by_neither(tmp_path):
    """A link is down for good; the controller orders both ends to skip it in every round that they need it."""
    run = run_of(rounds=12, timeout=20.0)
    i = 0
    j, t = next((peer, t) for t in run.rounds(i).tolist()[2:] for peer, _ in run.links(t, i))
    net = Net()
    nodes = {name: open_node(run, name, TABLES, tmp_path / name) for name in run.nodes}

    def cut(sender, receiver, payload):
        return [] if {sender, receiver} == {i, j} and read(payload).header.round == t else [payload]

    net.fault = cut
    asked = []

    def ask(node, payload):
        asked.append(node)
        return nodes[run.nodes[node]].skips.answer(payload)

    controller = SkipOrders(run, tmp_path / "decisions.json", ask)
    orders = []
    timer = threading.Timer(0.5, lambda: orders.append(controller.skip(t, i, j)))
    timer.start()
    ends = play(net, nodes)
    timer.join()
    assert orders == [True] and set(asked) == {i, j}
    assert_as_simulated(run, TABLES, tmp_path, ends, skipping_schedule(run, t, i, j))
    for node, peer in ((i, j), (j, i)):
        rows = Store(tmp_path / run.nodes[node], reading=True).rows()
        kinds = [(row.kind, row.round) for row in rows]
        assert ("skip", t) in kinds and ("release", t) in kinds  # sent counts as released, mixed or not
        assert rows[kinds.index(("skip", t))].detail == {"peer": run.nodes[peer]}
    with pytest.raises(AssertionError):
        assert_as_simulated(run, TABLES, tmp_path, ends)


def test_an_edge_that_one_end_has_mixed_is_not_skipped(tmp_path):
    run = run_of(rounds=12)
    nodes = {name: open_node(run, name, TABLES, tmp_path / name) for name in run.nodes}
    t = int(run.rounds(0)[3])
    j = run.links(t, 0)[0][0]
    first, second = nodes[run.nodes[0]].skips, nodes[run.nodes[j]].skips
    controller = SkipOrders(run, tmp_path / "decisions.json", lambda node, p: nodes[run.nodes[node]].skips.answer(p))
    assert second.settle(t)  # this end begins to mix
    assert not controller.skip(t, 0, j)
    assert not first.skipped(t, j) and first.settle(t) and first._phases == {(t, j): KEEP}
    with pytest.raises(NetworkError, match="not promised"):
        first.decide(t, j, SKIP)
    with pytest.raises(NetworkError, match="no link"):
        first.promise(int(run.rounds(0)[0]), 99)
    for p in nodes.values():
        p.store.close()


def test_a_promise_holds_through_restarts_until_the_controller_is_back(tmp_path):
    run = run_of(rounds=12)
    t = int(run.rounds(0)[0])
    j = run.links(t, 0)[0][0]
    reachable = {0}
    nodes = {}

    def opened():
        for p in nodes.values():
            p.store.close()
        nodes.update({i: open_node(run, run.nodes[i], TABLES, tmp_path / run.nodes[i]) for i in (0, j)})

    def ask(node, payload):
        return nodes[node].skips.answer(payload) if node in reachable else None

    opened()
    file = tmp_path / "decisions.json"
    assert not SkipOrders(run, file, ask).skip(t, 0, j)  # the other end could not be asked: keep
    assert nodes[0].skips.settle(t)
    opened()
    assert nodes[0].skips.promise(t, j)  # asked again, and then the controller vanishes
    opened()
    assert not nodes[0].skips.settle(t) and nodes[0].skips._phases == {(t, j): PROMISED}
    reachable.add(j)
    assert SkipOrders(run, file, ask).repeat()  # a controller that decided nothing keeps the edge
    assert nodes[0].skips.settle(t)
    for p in nodes.values():
        p.store.close()
