"""Averagings that take several exchanges a round, on real nodes: as simulated, wherever nodes crash, and bounded."""

import queue
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from net import Net, envelopes, keys, linked, open_node, overheard, play, records, run_of, secret_of, simulated

from sottovoce.errors import NetworkError, SpecError, StaleCopy
from sottovoce.network.averaging import Exact
from sottovoce.network.mixing import GOSSIP, Gossip, metropolis
from sottovoce.network.schedule import Schedule
from sottovoce.node import transport
from sottovoce.node.bounds import SUMMED, partial_shares
from sottovoce.node.dropped_edges import KEEP, PROMISED
from sottovoce.node.links import _ABOUT, MESSAGE, own_proof
from sottovoce.node.message import Code, Header, Refused, pack, pack_text
from sottovoce.node.node import DurableNode
from sottovoce.node.store import Saved, Store
from sottovoce.node.transport import NodeTransport
from sottovoce.secure.generator import Generator

NAMES = ("north", "east", "south", "west", "inner")


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(transport, "RESEND_MAX", 0.02)


def run_with(n=5, averaging="exact", rounds=4, **changes):
    given = {
        "nodes": {name: 8 + 2 * i for i, name in enumerate(NAMES[:n])},
        "network__activation": "everyone",
        "network__averaging": averaging,
    }
    return run_of(rounds, **(given | changes))


PAIRS = {
    "nodes": dict.fromkeys(NAMES[:3], 12),
    "privacy__sampling": "full",
    "privacy__law": "pairs(10)",
    "privacy__adversary": "secret_pairs(1)",
}


class Tapped(Net):
    """Notes what was said at which step, by whom."""

    def __init__(self):
        super().__init__()
        self.fault = self.listen

    def listen(self, sender, receiver, payload):
        known = self.links.get(receiver)
        for message in overheard(known and known.envelope, sender, payload):
            self.wire.setdefault((sender, message.header.round), set()).add(message.digest.hex())
        return [payload]


def shared(nodes):
    """What nodes share in pairs, once they know one another."""
    for one in nodes.values():
        for other in nodes.values():
            if one is not other:
                one.envelope.meet(other.number, other.envelope.introduction)
    return [
        {peer: Generator(node.envelope.pair_secret(peer)) for peer in node.run.shares_with(node.number)}
        for node in nodes.values()
    ]


def check(run, root, ends, tables, wire, pairs=()):
    """As simulated; one release a round in every ledger; on the wire what the plan says, and never two for a step."""
    for end in ends.values():
        if isinstance(end, Exception):
            raise end
    found = np.stack([ends[name].model for name in run.nodes])
    expected = simulated(run, tables, keys(run, root), pairs=pairs)
    assert np.allclose(found, expected, rtol=1e-9, atol=1e-9)
    said = {(i, step) for i in range(run.n) for steps, _ in run.neighbors(i).values() for step in steps}
    assert set(wire) == said and all(len(digests) == 1 for digests in wire.values())
    for i, name in enumerate(run.nodes):
        store = Store(root / name, reading=True)
        rows = {row.round: row.message for row in store.rows() if row.kind == "release"}
        assert list(rows) == run.rounds(i).tolist() and run.event(i).rounds == len(run.turns(i))
        assert all(wire.get((i, run.step(t)), {message}) == {message} for t, message in rows.items())
        assert store.verify() == []
        store.close()
    return found


@pytest.mark.parametrize(
    ("n", "averaging", "changes"),
    [
        (3, "exact", {}),
        (4, "exact", {}),
        (4, "exact", {"algorithm__method": "tracking"}),
        (5, "exact", {}),
        (5, "exact", {"network__activation": "nodes(3)", "rounds": 6}),
        (4, "gossip(3)", {"network__graph": "ring", "problem__h": "l1(0.01)"}),
        (5, "gossip(2)", {"network__activation": "edges(2)", "network__correct": True, "rounds": 8}),
        (3, "exact", PAIRS),
        (3, "gossip(2)", PAIRS),
    ],
    ids=str,
)
def test_a_run_equals_the_simulation(n, averaging, changes, tmp_path):
    run = run_with(n, averaging, **changes)
    tables, net = records(run), Tapped()
    nodes = {name: open_node(run, name, tables, tmp_path / name) for name in run.nodes}
    pairs = shared(nodes) if run.shares_with(0) else ()
    found = check(run, tmp_path, play(net, nodes), tables, net.wire, pairs)
    if averaging == "exact" and not {"network__activation", "algorithm__method"} & set(changes):
        assert np.ptp(found, axis=0).max() == 0.0


def test_the_check_distinguishes_three_exchanges_from_one(tmp_path):
    run = run_with(4, "gossip(3)", network__graph="ring")
    tables = records(run)
    ends = play(Net(), {name: open_node(run, name, tables, tmp_path / name) for name in run.nodes})
    drawn = run.plan.schedule
    once = Schedule(drawn.n, drawn.starts, drawn.active, drawn.pattern, drawn.patterns, averaging=GOSSIP)
    found = np.stack([ends[name].model for name in run.nodes])
    assert not np.allclose(found, simulated(run, tables, keys(run, tmp_path), once), rtol=1e-3)


# --- crashes


class Crash(Exception):
    pass


class Doomed(DurableNode):
    """Dies once at every point at which something is written or sent, before it and after; or at some of them."""

    def __init__(self, *rest, past, only=None):
        self.past, self.only = past, only
        super().__init__(*rest)

    def die(self, *point):
        mine = (self.number, *point)
        if mine not in self.past and (self.only is None or mine in self.only):
            self.past.add(mine)
            raise Crash

    def _release(self, t, message):
        self.die("release", t)
        payload = super()._release(t, message)
        self.die("released", t)
        return payload

    def forward(self, t, part, held):
        self.die("pass", t, part)
        payload = super().forward(t, part, held)
        self.die("passed", t, part)
        return payload

    def _exchange(self, t, part, exchange, payload):
        heard = super()._exchange(t, part, exchange, payload)
        self.die("heard", t, part)
        return heard

    def finish(self):
        self.die("finish")
        super().finish()


def lives(run, tables, root, net, **more):
    """Every node, started again whenever it dies."""
    ends = {}

    def live(name):
        while name not in ends:
            node = open_node(run, name, tables, root / name, **more)
            net.join(node)
            try:
                ends[name] = node.take_part()
            except Crash:
                net.links.pop(node.number)
                node.store.close()
            except Exception as error:
                ends[name] = error

    threads = [threading.Thread(target=live, args=(name,)) for name in run.nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends


@pytest.mark.parametrize(
    ("n", "averaging", "changes"),
    [(3, "exact", {}), (4, "exact", {}), (5, "exact", {}), (3, "gossip(2)", {}), (3, "exact", PAIRS)],
    ids=str,
)
def test_nodes_that_die_at_every_point_go_on_as_if_nothing_had_happened(n, averaging, changes, tmp_path, monkeypatch):
    run = run_with(n, averaging, rounds=2, **changes)
    tables, net, past, pairs = records(run), Tapped(), set(), ()
    if run.shares_with(0):
        nodes = {name: open_node(run, name, tables, tmp_path / name) for name in run.nodes}
        pairs = shared(nodes)
        for node in nodes.values():
            node.store.close()
    monkeypatch.setattr("net.DurableNode", Doomed)
    ends = lives(run, tables, tmp_path, net, past=past)
    check(run, tmp_path, ends, tables, net.wire, pairs)
    passed = {point for point in past if point[1] == "passed"}
    spoken = {(i, step) for i in range(n) for steps, _ in run.neighbors(i).values() for step in steps}
    assert len(passed) == sum(run.at(step)[1] > 0 for _, step in spoken) > 0


def test_a_restarted_node_signs_for_what_it_has_long_dropped(tmp_path, monkeypatch):
    """A voucher is for 128 messages of a link, and a folder keeps the last few, and the hashes of all."""
    monkeypatch.setattr("net.DurableNode", Doomed)
    run = run_with(2, "gossip(6)", rounds=25)
    tables, net, past, only = records(run), Tapped(), set(), {(0, "passed", 20, 2), (1, "heard", 20, 1)}
    ends = lives(run, tables, tmp_path, net, past=past, only=only)
    check(run, tmp_path, ends, tables, net.wire)
    store = Store(tmp_path / "north", reading=True)
    assert past == only and len(store.vouchers(run.digest)) == 2  # of 150 messages
    kept = store.load(run.digest)
    assert len(kept.outbox) + len(kept.parts) <= 2 * 4 + 2 and store.said(run.digest, 1, 2) is not None
    store.close()


def test_an_edge_is_kept_once_it_was_mixed_in_an_earlier_exchange(tmp_path, monkeypatch):
    """Also by a node that was started again in the middle of the round: else one end alone would leave it out."""
    monkeypatch.setattr("net.DurableNode", Doomed)
    run = run_with(2, "gossip(2)", skip_after=0.01, timeout=4.0)
    tables, net = records(run), Tapped()
    nodes = {
        name: open_node(run, name, tables, tmp_path / name, past=set(), only={(0, "passed", 2, 1)})
        for name in run.nodes
    }
    assert isinstance(play(net, nodes)["north"], Crash)
    again = open_node(run, "north", tables, tmp_path / "north", past=set(), only=())
    words = [again.skips.word(t, 1)["word"] for t in (1, 2, 3)]
    again.store.close()
    assert words == [KEEP, KEEP, PROMISED]


def test_lost_messages_are_requested_again(tmp_path):
    """Also where only one of two nodes speaks: the other says hello, and gets what it lacks."""
    run = run_with(5, rounds=3)
    tables, net, rng, lock = records(run), Tapped(), np.random.default_rng(1), threading.Lock()

    def lossy(sender, receiver, payload):
        net.listen(sender, receiver, payload)
        with lock:
            return [] if rng.random() < 0.3 else [payload]

    net.fault = lossy
    ends = play(net, {name: open_node(run, name, tables, tmp_path / name) for name in run.nodes})
    check(run, tmp_path, ends, tables, net.wire)


# --- what is taken in


class Certain(NodeTransport):
    """Like MPI: nothing is lost, and nothing sent a second time."""

    lossy = False

    def __init__(self, node, queues):
        super().__init__(node.links, node.skips)
        self.me, self.queues = node.number, queues

    def send(self, peer, payload):
        self.queues[peer].put((self.me, self.links.sealed(peer, payload)))

    def wait(self, seconds):
        try:
            peer, data = self.queues[self.me].get(timeout=seconds)
        except queue.Empty:
            return
        if self.links.deliver(peer, data) == 0 and self.links.owes_hello(peer):
            self.send(peer, self.links.hello(peer))


@pytest.mark.parametrize(
    ("averaging", "activation"), [("exact", "nodes(3)"), ("exact", "nodes(4)"), ("gossip(3)", "edges(2)")]
)
def test_no_honest_message_is_ever_refused(averaging, activation, tmp_path):
    """Anyone who hands over in one round averages, or is handed over to, in the next: all orders come about."""
    run = run_with(5, averaging, network__activation=activation, rounds=15)
    tables, queues, ends = records(run), [queue.Queue() for _ in range(5)], {}
    nodes = {name: open_node(run, name, tables, tmp_path / name) for name in run.nodes}
    shared(nodes)

    def live(name, node):
        node.transport = Certain(node, queues)
        try:
            ends[name] = node.take_part()
        except Exception as error:
            ends[name] = error

    threads = [threading.Thread(target=live, args=item) for item in nodes.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for node in nodes.values():
        node.store.close()
    found = np.stack([ends[name].model for name in run.nodes])
    assert np.allclose(found, simulated(run, tables, keys(run, tmp_path)), rtol=1e-9, atol=1e-9)
    assert all(node.links.refused == [] for node in nodes.values())


RUN = run_with(3)  # the third hands over to the first, which averages with the second, and hands the mean back
ENVELOPES = envelopes(RUN)
EMPTY = Saved(0, None, {}, {}, {})


def letter(t, part, sender, receiver, value=0.1, envelope=None):
    payload = pack(Header(RUN.mark, RUN.step(t, part), sender), np.full(RUN.shape, value))
    return (envelope or ENVELOPES[sender]).seal(receiver, MESSAGE, _ABOUT.pack(bytes(16), 0), payload)


@contextmanager
def refused(code):
    with pytest.raises(Refused) as caught:
        yield
    assert caught.value.code is code, caught.value


def said(box, me, t, part):
    box.post(RUN.step(t, part), pack(Header(RUN.mark, RUN.step(t, part), me), np.zeros(RUN.shape)))


def test_nothing_is_taken_in_but_what_is_due_at_its_exchange():
    box = linked(RUN, 0, ENVELOPES[0], EMPTY)
    for part in (1, 2):
        with refused(Code.ROUND):  # the third speaks to the first in the first exchange only
            box.deliver(2, letter(1, part, 2, 0))
    with refused(Code.ROUND):  # the second speaks to it in the second one only
        box.deliver(1, letter(1, 0, 1, 0))
    handed = letter(1, 0, 2, 0)
    box.deliver(2, handed)
    with refused(Code.REPLAY):
        box.deliver(2, handed)
    with refused(Code.SECOND):
        box.deliver(2, letter(1, 0, 2, 0, 0.2))
    box.deliver(2, letter(1, 0, 2, 0))  # the same once more is no news
    with refused(Code.ROUND):  # before it was handed the mean
        box.deliver(2, letter(2, 0, 2, 0))
    box.deliver(1, letter(1, 1, 1, 0))  # may come before the first one's own
    with refused(Code.ROUND):
        box.deliver(1, letter(2, 1, 1, 0))
    said(box, 0, 1, 1)
    box.deliver(1, letter(2, 1, 1, 0))
    with refused(Code.ROUND):
        box.deliver(2, letter(2, 0, 2, 0))
    said(box, 0, 1, 2)
    box.deliver(2, letter(2, 0, 2, 0))
    assert all(sum(step > 0 for step in waits) == 2 for waits in box._inbox.values())


def test_a_release_goes_to_nobody_that_the_plan_does_not_give_it_to():
    box = linked(RUN, 0, ENVELOPES[0], EMPTY)
    said(box, 0, 1, 0)
    assert box.answer(2, letter(1, 0, 2, 0)) == b"" == box.answer(1, letter(1, 1, 1, 0))
    assert not box.owes(2, RUN.step(1)) and box.owes(2, RUN.step(1, 2)) and box.owes(2, 0)
    said(box, 0, 1, 1)
    assert box.reply(1, RUN.step(1, 1)) and not box.reply(2, RUN.step(1, 1))


def test_partial_averages_have_bounds_of_their_own():
    one, root = RUN.bounds[0], np.sqrt(RUN.shape[1])
    assert [RUN.bound(i, RUN.step(1)) for i in range(3)] == [one] * 3
    for factor, sender, receiver in ((4 / 3, 0, 1), (2 / 3, 1, 0)):
        box = linked(RUN, receiver, ENVELOPES[receiver], EMPTY)
        with refused(Code.NORM):
            box.deliver(sender, letter(1, 1, sender, receiver, 1.001 * factor * one / root))
        box.deliver(sender, letter(1, 1, sender, receiver, 0.999 * factor * one / root))


@settings(max_examples=60, deadline=None)
@given(n=st.integers(2, 9), k=st.integers(0, 3), seed=st.integers(0, 2**32 - 1))
def test_bounds_of_partial_averages_are_closed_under_what_liars_send(n, k, seed):
    """Everybody sends whatever its own bound lets in; what an honest node holds next is within its next."""
    rng = np.random.default_rng(seed)
    averaging, W = (Gossip(k), metropolis(1.0 - np.eye(n))) if k else (Exact(), np.full((n, n), 1 / n))
    shares, plans = partial_shares(averaging, W), [averaging.exchanges(W, i) for i in range(n)]
    for part in range(averaging.depth(W)):
        values = shares[part][:, None] * np.where(rng.random((n, 1)) < 0.5, 1.0, rng.random((n, 1)))
        for i, plan in enumerate(plans):
            heard = {j: values[j][None] for j in plan[part].heard}
            held = float(averaging.combine(i, plan[part], values[i][None], heard)[0, 0])
            later = shares[part + 1][i] if part + 1 < len(shares) else 1.0 + len(shares) * SUMMED
            assert held <= later
    assert np.all(shares[0] == 1.0)


def test_a_proof_of_what_was_passed_on_shows_an_old_copy_its_future():
    """The first node's releases are seen by nobody; what it passes on is."""
    step, digest = RUN.step(2, 1), "ab" * 32
    proof = own_proof(secret_of(0), RUN.digest, step, digest).hex()

    def hello(box, claim):
        value = {"to": "north", "version": "1", "sigma": RUN.event(1).sigma, "seen": claim, "asks": "ab"}
        payload = pack_text(Header(RUN.mark, 0, 1), value)
        box.deliver(1, ENVELOPES[1].seal(0, MESSAGE, _ABOUT.pack(bytes(16), 0), payload))

    hello(linked(RUN, 0, ENVELOPES[0], EMPTY, {step: digest}.get), [step, digest, proof])
    hello(linked(RUN, 0, ENVELOPES[0], EMPTY), [step, digest, "cd" * 16])  # a claim without a proof stops nobody
    with pytest.raises(StaleCopy, match="exchange 2 of round 2"):
        hello(linked(RUN, 0, ENVELOPES[0], EMPTY), [step, digest, proof])


def test_an_exact_mean_needs_all_of_its_edges():
    with pytest.raises(SpecError, match="needs every edge"):
        _ = run_with(3, skip_after=5.0).plan
    assert run_with(3, "gossip(2)", skip_after=5.0).parts == 2


def test_what_is_not_finite_is_not_passed_on(tmp_path):
    run = run_with(3)
    node = open_node(run, "north", records(run), tmp_path / "north")
    with pytest.raises(NetworkError, match="not finite"):
        node.forward(1, 1, np.full(run.shape, np.inf))
    assert node.links._outbox == {} and node.store.load(run.digest).parts == {}
    node.store.close()
