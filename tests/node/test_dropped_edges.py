"""Skipping an edge: both ends or neither, written down before mixing, W doubly stochastic, nothing saved."""

import threading

import pytest
from net import Net, assert_as_simulated, open_node, overheard, play, records, run_of

from sottovoce.network.mixing import check_doubly_stochastic
from sottovoce.network.schedule import Schedule
from sottovoce.node.dropped_edges import CONTROLLER, KEEP, LATE, PROMISED, SKIP, SkipOrders
from sottovoce.node.message import Header, Refused, pack_text
from sottovoce.node.store import Store

TABLES = records(run_of())


def skipping_schedule(run, t, i, j):
    """The schedule in which edge {i, j} gives its weight in round t to the diagonal."""
    whole = run.plan.schedule
    nodes = whole.nodes(t).tolist()
    W, a, b = whole.weights(t).copy(), nodes.index(i), nodes.index(j)
    W[a, a] += W[a, b]
    W[b, b] += W[b, a]
    W[a, b] = W[b, a] = 0.0
    check_doubly_stochastic(W)
    pattern = whole.pattern.copy()
    pattern[t - 1] = len(whole.patterns)
    return Schedule(whole.n, whole.starts, whole.active, pattern, (*whole.patterns, W))


def cut_in(round_, i, j):
    """A network whose link {i, j} is down in one round: those two lose everything that belongs to it."""

    def fault(sender, receiver, payload):
        nodes = fault.net.links
        if {sender, receiver} != {i, j} or receiver not in nodes:
            return [payload]
        heard = [m.header.round for m in overheard(nodes[receiver].envelope, sender, payload)]
        return [] if round_ in heard else [payload]

    net = fault.net = Net()
    net.fault = fault
    return net


def met(nodes):
    """All of them know each other."""
    for one in nodes.values():
        for other in nodes.values():
            if one is not other:
                one.envelope.meet(other.number, other.envelope.introduction)
    return nodes


def test_an_edge_is_skipped_by_both_ends_or_by_neither(tmp_path):
    """A link is down for good; the controller gets both ends to skip it in the round that they need it."""
    run = run_of(rounds=12, timeout=20.0, skip_after=0.2)
    i = 0
    j, t = next((peer, t) for t in run.rounds(i).tolist()[2:] for peer, _ in run.links(t, i))
    nodes = {name: open_node(run, name, TABLES, tmp_path / name) for name in run.nodes}
    requested = []

    def ask(node, payload):
        requested.append(node)
        return nodes[run.nodes[node]].skips.answer(payload)

    controller, orders, done = SkipOrders(run, tmp_path / "decisions.json", ask), [], threading.Event()

    def follow():
        while not done.wait(0.1) and not any(orders):
            if nodes[run.nodes[i]].skips.waited(t, j) > run.skip_after:
                orders.append(controller.skip(t, i, j))

    thread = threading.Thread(target=follow)
    thread.start()
    ends = play(cut_in(t, i, j), nodes)
    done.set()
    thread.join()
    assert orders[-1] is True and set(requested) == {i, j}
    assert_as_simulated(run, TABLES, tmp_path, ends, skipping_schedule(run, t, i, j))
    assert [ends[run.nodes[k]].skips for k in range(run.n)] == [int(k in (i, j)) for k in range(run.n)]
    for node, peer in ((i, j), (j, i)):
        rows = Store(tmp_path / run.nodes[node], reading=True).rows()
        kinds = [(row.kind, row.round) for row in rows]
        assert ("skip", t) in kinds and ("release", t) in kinds  # sent counts as released, mixed or not
        assert rows[kinds.index(("skip", t))].detail == {"peer": run.nodes[peer]}
    with pytest.raises(AssertionError):
        assert_as_simulated(run, TABLES, tmp_path, ends)


@pytest.fixture
def ends(tmp_path):
    """Two ends of an edge in a round, both of which have waited, and someone who has nothing to do with it."""
    run = run_of(rounds=12, skip_after=5.0)
    nodes = met({name: open_node(run, name, TABLES, tmp_path / name) for name in run.nodes})
    t = int(run.rounds(0)[3])
    j = run.links(t, 0)[0][0]
    other = next(k for k in range(1, run.n) if k != j)
    parts = [nodes[run.nodes[k]].skips for k in (0, j, other)]
    for part in parts:
        part.waited = lambda t, peer: 6.0
    yield run, t, j, *parts
    for p in nodes.values():
        p.store.close()


def test_an_edge_that_one_end_has_mixed_is_not_skipped(ends, tmp_path):
    run, t, j, first, second, _ = ends
    controller = SkipOrders(run, tmp_path / "decisions.json", lambda k, p: (first if k == 0 else second).answer(p))
    assert second.settle(t)  # this end begins to mix
    assert not controller.skip(t, 0, j)
    assert not first.skipped(t, j) and first.settle(t) and first._phases == {(t, j): KEEP}
    assert controller.repeat()
    with pytest.raises(Refused, match="no link"):
        first.word(int(run.rounds(0)[0]), 99)


def test_one_end_alone_skips_nothing_and_keeps_nothing(ends):
    """A controller that lies to both: it has no words but those that the ends have given."""
    _, t, j, first, second, third = ends
    forged = {"word": PROMISED, "late": True, "signature": "00" * 64}
    with pytest.raises(Refused, match="was not promised"):
        first.accept_word(t, j, second.word(t, 0))  # this end was never queried
    mine = first.word(t, j)
    theirs = second.word(t, 0)
    for wrong in (
        None,
        {},
        forged,
        mine,  # its own word, handed back as the other's
        theirs | {"word": KEEP},  # a promise, made a refusal
        theirs | {"late": False},
        theirs | {"signature": 7},
        {"word": SKIP, "late": True, "signature": theirs["signature"]},
    ):
        with pytest.raises(Refused):
            first.accept_word(t, j, wrong)
    with pytest.raises(Refused, match=r"no link|not signed"):
        first.accept_word(t, j, third.word(t, 0))
    assert first._phases == {(t, j): LATE} and not first.settle(t)  # it waits; nothing is mixed, nothing skipped
    assert first.accept_word(t, j, theirs) and second.accept_word(t, 0, mine)
    assert first.skipped(t, j) and second.skipped(t, 0) and first.count == second.count == 1
    assert first.accept_word(t, j, theirs)  # reported again, it is no news


def test_a_word_is_never_taken_back(ends):
    """Neither a promise nor a refusal, though a crash may have lost what was mixed."""
    _, t, j, first, second, _ = ends
    assert second.settle(t) and second.word(t, 0)["word"] == KEEP
    second._mixed = 0  # after a crash the round is mixed again
    assert second.word(t, 0)["word"] == KEEP
    assert first.word(t, j)["word"] == PROMISED and not first.settle(t)
    first._mixed = t
    assert first.word(t, j)["word"] == PROMISED


def test_nothing_is_skipped_that_was_not_agreed(ends, tmp_path):
    _, t, j, first, second, _ = ends
    for part in (first, second):
        part.waited = lambda t, peer: 1.0
    second.waited = lambda t, peer: 5.5  # one end has: then the other is the slow one
    assert not first.word(t, j)["late"] and second.word(t, 0)["late"]
    assert first.accept_word(t, j, second.word(t, 0)) and second.accept_word(t, 0, first.word(t, j))
    plain = run_of(rounds=12)
    node = open_node(plain, "north", TABLES, tmp_path / "plain")
    with pytest.raises(Refused, match="does not say 'skip_after'"):
        node.skips.word(t, j)
    assert node.skips.settle(t)
    node.store.close()


def test_an_order_that_comes_too_early_keeps_the_edge_and_never_stops_the_run(ends):
    """Neither has waited, or what was waited for came just before: a word stays what it was, so both mix the edge."""
    _, t, j, first, second, _ = ends
    for part in (first, second):
        part.waited = lambda t, peer: 0.0
    early, theirs = first.word(t, j), second.word(t, 0)
    first.waited = lambda t, peer: 6.0  # what happens after its word changes nothing: the other may have it already
    assert first.word(t, j) == early
    assert not second.accept_word(t, 0, early) and not first.accept_word(t, j, theirs)
    assert first.settle(t) and second.settle(t) and first.count == second.count == 0
    assert not first.accept_word(t, j, second.word(t, 0)) and not second.accept_word(
        t, 0, first.word(t, j)
    )  # nor does asking again


@pytest.mark.parametrize(
    "value", [3, None, {}, {"peer": "1", "phase": "ask"}, {"peer": True, "phase": "ask"}, {"peer": 1}]
)
def test_an_order_that_cannot_be_read_is_refused(ends, value):
    run, t, _, first, _, _ = ends
    with pytest.raises(Refused):
        first.answer(pack_text(Header(run.mark, t, CONTROLLER), value))
    with pytest.raises(Refused):
        first.answer(bytes(10_000))


def test_a_promise_holds_through_restarts_until_the_other_s_word_is_there(tmp_path):
    run = run_of(rounds=12, skip_after=5.0)
    t = int(run.rounds(0)[0])
    j = run.links(t, 0)[0][0]
    reachable = {0}
    nodes = {}

    def opened():
        for p in nodes.values():
            p.store.close()
        nodes.update({i: open_node(run, run.nodes[i], TABLES, tmp_path / run.nodes[i]) for i in (0, j)})
        for p in met(nodes).values():
            p.skips.waited = lambda t, peer: 6.0

    def ask(node, payload):
        return nodes[node].skips.answer(payload) if node in reachable else None

    opened()
    file = tmp_path / "decisions.json"
    assert not SkipOrders(run, file, ask).skip(t, 0, j)  # the other end could not be queried: nothing is decided
    opened()
    assert not nodes[0].skips.settle(t) and nodes[0].skips._phases == {(t, j): LATE}
    assert nodes[0].skips.undecided(t) == [j]
    assert not SkipOrders(run, file, ask).repeat()
    reachable.add(j)
    assert nodes[j].skips.settle(t)  # meanwhile the other end got the message after all, and mixes
    assert SkipOrders(run, file, ask).repeat()
    assert nodes[0].skips.settle(t) and not nodes[0].skips.skipped(t, j)
    for p in nodes.values():
        p.store.close()
