"""A run of nodes equals the simulation from the same draws, whatever the network does and wherever a node crashes."""

import shutil
import threading
import time
from collections import Counter
from itertools import cycle

import numpy as np
import pytest
from net import (
    Net,
    assert_as_simulated,
    envelopes,
    latest,
    models,
    open_node,
    overheard,
    play,
    records,
    run_of,
    whole_run,
)

from sottovoce.errors import (
    DataError,
    FolderInUse,
    NetworkError,
    PeerTimeout,
    SottovoceError,
    SpecError,
    StaleCopy,
    StoreError,
    UnknownPeer,
)
from sottovoce.network.mixing import Gossip
from sottovoce.node import transport
from sottovoce.node.links import MESSAGE
from sottovoce.node.message import Header, pack, pack_text
from sottovoce.node.node import DurableNode, Outcome
from sottovoce.node.store import Store
from sottovoce.node.transport import RequestTransport

RUN = run_of(rounds=12)
TABLES = records(RUN)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(transport, "RESEND_MAX", 0.02)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"network__activation": "everyone", "network__weights": "lazy"},
        {"network__activation": "nodes(2)", "network__graph": "ring", "privacy__sampling": "fixed(3)"},
        {"algorithm__primal": "as_written", "problem__h": "l1(0.01)", "problem__intercept": 1.0},
        {"classes": ["no", "perhaps", "yes"], "problem__outputs": 3, "problem__loss": "logistic"},
        {"unit": "person", "problem__intercept": 1.0},
        {"unit": "person", "classes": ["a", "b", "c"], "problem__outputs": 3, "privacy__sampling": "full"},
        {"problem__loss": "softmax", "problem__outputs": 2},
    ],
    ids=str,
)
def test_a_run_equals_the_simulation(changes, tmp_path):
    run = run_of(rounds=12, **changes)
    tables = records(run)
    ends = whole_run(run, tables, tmp_path)
    assert_as_simulated(run, tables, tmp_path, ends)
    assert models(ends).shape == (4, run.m)
    for i, name in enumerate(run.nodes):
        store = Store(tmp_path / name)
        releases = [row.round for row in store.rows() if row.kind == "release"]
        assert releases == run.rounds(i).tolist() and len(releases) == run.event(i).rounds
        assert store.verify() == [] and ends[name].unheard == ()
        store.close()


def test_nodes_never_share_randomness(tmp_path):
    """The schedule's public seed decides who speaks, and nothing else: two runs of it differ in every message."""
    first, second = (whole_run(RUN, TABLES, tmp_path / str(k)) for k in range(2))
    assert not np.any(models(first) == models(second))


class Chaos:
    """Loses, repeats, delays, reorders, cuts and forges messages; every release that is sent is recorded."""

    def __init__(self, seed, run):
        self.forgers = envelopes(run)  # with keys of their own
        self.rng, self.lock, self.run = np.random.default_rng(seed), threading.Lock(), run
        self.kept, self.wire, self.made = [], {}, Counter()
        self.links = {}

    def record(self, sender, receiver, payload):
        """Of what was sent: a forger's bytes never get here."""
        if receiver in self.links:
            for message in overheard(self.links[receiver].envelope, sender, payload):
                self.wire.setdefault((message.header.sender, message.header.round), set()).add(message.digest.hex())

    def __call__(self, sender, receiver, payload):
        with self.lock:
            self.record(sender, receiver, payload)
            self.kept = [*self.kept[-30:], (sender, receiver, payload)]
            kind = self.rng.choice(
                ["pass", "lose", "repeat", "old", "cut", "flip", "forge", "delay"], p=[0.3] + [0.1] * 7
            )
            self.made[str(kind)] += 1
            early = self.kept[self.rng.integers(len(self.kept))]
            place = int(self.rng.integers(len(payload)))
        match str(kind):
            case "lose":
                return []
            case "repeat":
                return [payload, payload]
            case "old":  # something sent before, perhaps between others: out of place, and after what followed it
                return [early[2], payload]
            case "cut":
                return [payload[:place], payload]
            case "flip":
                return [payload[:place] + bytes([payload[place] ^ 1]) + payload[place + 1 :]]
            case "forge":  # in clear, with a right checksum; in an envelope of the forger's own; and a reflection
                clear = pack(Header(self.run.mark, 1, sender), np.full((1, self.run.m), 9.0))
                sealed = self.forgers[sender].seal(receiver, MESSAGE, bytes(18), clear)
                back = [p for a, b, p in self.kept if (a, b) == (receiver, sender)]
                return [clear, sealed, *back[-1:], payload]
            case "delay":
                time.sleep(0.005)
        return [payload]


class FaultyNet(Net):
    """Every copy that a fault makes is delivered on its own; one that is refused does not keep the next one out."""

    def join(self, node):
        super().join(node)
        self.fault.links[node.number] = node.links

    def ask(self, sender, receiver, payload):
        reply = None
        for arrived in self.fault(sender, receiver, payload):
            try:
                reply = self.links[receiver].answer(sender, arrived) or reply
            except (SottovoceError, KeyError):
                continue
        arrived = self.fault(receiver, sender, reply) if reply else []
        for extra in arrived[:-1]:
            try:
                self.links[sender].deliver(receiver, extra, reply=True)
            except SottovoceError:
                continue
        return arrived[-1] if arrived else reply


@pytest.mark.parametrize("seed", range(3))
def test_a_bad_network_changes_nothing(seed, tmp_path):
    net = FaultyNet()
    net.fault = Chaos(seed, RUN)
    ends = whole_run(RUN, TABLES, tmp_path, net)
    assert_as_simulated(RUN, TABLES, tmp_path, ends)
    assert min(net.fault.made.values()) > 3 and len(net.fault.made) == 8
    for i, name in enumerate(RUN.nodes):  # what crossed the wire is what the ledgers say
        store = Store(tmp_path / name, reading=True)
        ledger = {row.round: {row.message} for row in store.rows() if row.kind == "release"}
        assert {t: seen for (sender, t), seen in net.fault.wire.items() if sender == i} == ledger
        store.close()


class Crash(Exception):
    pass


def crashing(monkeypatch, where, node, rounds):
    """Let one node die at a given point of given rounds, once each."""
    left = set(rounds)

    def die(t):
        if t in left:
            left.discard(t)
            raise Crash

    release, combine, turn, stop_at = DurableNode._release, Gossip.combine, DurableNode.turn, node

    def patched_release(self, t, message):
        if self.number == stop_at and where == "before writing":
            die(t)
        payload = release(self, t, message)
        if self.number == stop_at and where == "after writing":
            die(t)
        return payload

    def patched_combine(self, me, *rest):
        result = combine(self, me, *rest)
        if me == stop_at and where == "after mixing":
            die(current[0])
        return result

    current = [0]

    def patched_turn(self, state, t):
        if self.number == stop_at:
            current[0] = t
        return turn(self, state, t)

    monkeypatch.setattr(DurableNode, "_release", patched_release)
    monkeypatch.setattr(DurableNode, "turn", patched_turn)
    monkeypatch.setattr(Gossip, "combine", patched_combine)


@pytest.mark.parametrize("where", ["before writing", "after writing", "after mixing"])
def test_a_node_that_crashes_continues_as_if_nothing_had_happened(where, tmp_path, monkeypatch):
    """Every second round of a node ends in a crash; it starts again beside the others, who never stopped."""
    crashing(monkeypatch, where, 1, RUN.rounds(1)[::2].tolist())
    net, crashes = Net(), 0
    others = {name: open_node(RUN, name, TABLES, tmp_path / name) for name in RUN.nodes if name != "east"}
    ends = {}
    thread = threading.Thread(target=lambda: ends.update(play(net, others)))
    thread.start()
    while "east" not in ends:
        end = whole_run(RUN, TABLES, tmp_path, net, ["east"])["east"]
        if isinstance(end, Crash):
            crashes += 1
        else:
            ends["east"] = end
    thread.join()
    assert crashes == len(RUN.rounds(1)[::2])
    assert_as_simulated(RUN, TABLES, tmp_path, ends)


@pytest.mark.parametrize("where", ["after writing", "after mixing"])
def test_all_nodes_may_stop_and_start_again_together(where, tmp_path, monkeypatch):
    """As under MPI, where one dead rank ends the job: anyone who was ahead hands its last messages out again."""
    run = run_of(rounds=12, timeout=0.8)
    crashing(monkeypatch, where, 2, run.rounds(2)[1::2].tolist())
    for _ in range(20):
        ends = whole_run(run, TABLES, tmp_path)
        if not any(isinstance(end, Exception) for end in ends.values()):
            break
        assert {type(end) for end in ends.values()} <= {Crash, PeerTimeout, Outcome}
    assert_as_simulated(run, TABLES, tmp_path, ends)


def test_a_peer_that_is_gone_pauses_the_run(tmp_path):
    run = run_of(rounds=12, timeout=2.0)
    ends = whole_run(run, TABLES, tmp_path, names=run.nodes[:3])
    assert all(
        isinstance(end, PeerTimeout) and "'west'" in str(end) and "start the nodes again" in str(end)
        for end in ends.values()
    )
    assert_as_simulated(run, TABLES, tmp_path, whole_run(run, TABLES, tmp_path))


def test_a_restored_old_folder_stops_for_good(tmp_path):
    run = run_of(rounds=12, timeout=2.0)
    net = Net()
    nodes = {name: open_node(run, name, TABLES, tmp_path / name) for name in run.nodes}
    turn = nodes["south"].turn

    def copying(state, t):
        state = turn(state, t)
        if t == run.rounds(2)[2]:
            shutil.copytree(tmp_path / "south", tmp_path / "copy")
        if t == run.rounds(2)[4]:
            raise Crash
        return state

    nodes["south"].turn = copying
    ends = play(net, nodes)
    assert isinstance(ends["south"], Crash)
    shutil.rmtree(tmp_path / "south")
    shutil.move(tmp_path / "copy", tmp_path / "south")
    ends = whole_run(run, TABLES, tmp_path)
    assert isinstance(ends["south"], StaleCopy) and "stops for good" in str(ends["south"])
    with pytest.raises(StoreError, match="stopped for good"):
        open_node(run, "south", TABLES, tmp_path / "south")


def test_hellos_of_another_day_do_not_let_a_restored_folder_in(tmp_path, monkeypatch):
    """A relay plays back what peers said before the folder was copied: they must say it to this very process."""
    monkeypatch.setattr(transport, "RESEND_MAX", 0.001)
    monkeypatch.setattr(transport, "CHECK_SECONDS", 0.001)
    run, net, tape = run_of(rounds=12, timeout=2.0), Net(), {}

    def record(sender, receiver, payload):
        if receiver == 2:
            tape.setdefault(sender, []).append(payload)
        return [payload]

    net.fault = record
    nodes = {name: open_node(run, name, TABLES, tmp_path / name) for name in run.nodes}
    turn = nodes["south"].turn

    def copying(state, t):
        state = turn(state, t)
        if t == run.rounds(2)[2]:
            shutil.copytree(tmp_path / "south", tmp_path / "copy")
        return state

    nodes["south"].turn = copying
    models(play(net, nodes))
    old = open_node(run, "south", TABLES, tmp_path / "copy")
    played = {peer: cycle(said) for peer, said in tape.items()}
    old.transport = RequestTransport(old.links, old.skips, lambda peer, payload: next(played[peer]))
    with pytest.raises(PeerTimeout, match="to say hello"):
        old.take_part()
    assert latest(old.store, run) <= run.rounds(2)[2]  # nothing was released again
    old.store.close()


def test_an_empty_folder_in_the_middle_of_a_run_stops_for_good(tmp_path):
    """A lost folder means fresh noise for rounds that are out: nobody accepts its new keys, and nothing is released."""
    run = run_of(rounds=12, timeout=2.0)
    ends = whole_run(run, TABLES, tmp_path, names=run.nodes[:3])
    assert all(isinstance(end, PeerTimeout) for end in ends.values())
    shutil.rmtree(tmp_path / "east")
    end = whole_run(run, TABLES, tmp_path)["east"]
    assert isinstance(end, UnknownPeer) and "other keys of this node" in str(end)
    rows = Store(tmp_path / "east", reading=True).rows()
    assert not any(row.kind in ("release", "stop") for row in rows)


def test_a_folder_from_before_the_run_that_has_its_key_knows_its_own_future(tmp_path):
    """Its new keys are refused, with a proof of what it once sent under its own secret: it stops for good."""
    run = run_of(rounds=12, timeout=2.0)
    open_node(run_of(rounds=3, run="other"), "south", TABLES, tmp_path / "south").store.close()
    shutil.copytree(tmp_path / "south", tmp_path / "copy")
    nodes = {name: open_node(run, name, TABLES, tmp_path / name) for name in run.nodes}
    turn = nodes["south"].turn

    def crashing_turn(state, t):
        if t == run.rounds(2)[4]:
            raise Crash
        return turn(state, t)

    nodes["south"].turn = crashing_turn
    assert isinstance(play(Net(), nodes)["south"], Crash)
    shutil.rmtree(tmp_path / "south")
    shutil.move(tmp_path / "copy", tmp_path / "south")
    ends = whole_run(run, TABLES, tmp_path)
    assert isinstance(ends["south"], StaleCopy) and "stops for good" in str(ends["south"])


def test_other_records_cannot_go_on_with_a_run(tmp_path):
    whole_run(RUN, TABLES, tmp_path)
    with pytest.raises(StoreError, match="other records"):
        open_node(RUN, "north", records(RUN, seed=1), tmp_path / "north")


def test_a_finished_run_releases_nothing_when_started_again(tmp_path):
    first = whole_run(RUN, TABLES, tmp_path)
    rows = Store(tmp_path / "west", reading=True).rows()
    again = whole_run(RUN, TABLES, tmp_path)
    assert np.array_equal(models(first), models(again))
    assert Store(tmp_path / "west", reading=True).rows() == rows


def test_nodes_of_different_plans_do_not_exchange_a_single_message(tmp_path):
    other = run_of(rounds=12, timeout=0.4, privacy__noise="gaussian(0.1)")
    run = run_of(rounds=12, timeout=0.4)
    net = Net()
    nodes = {name: open_node(run, name, TABLES, tmp_path / name) for name in run.nodes[:3]}
    nodes["west"] = open_node(other, "west", TABLES, tmp_path / "west")
    ends = play(net, nodes)
    assert all(isinstance(end, PeerTimeout | UnknownPeer) for end in ends.values())
    assert isinstance(ends["west"], UnknownPeer) and "same run file" in str(ends["west"])
    assert sum(isinstance(end, UnknownPeer) for end in ends.values()) > 1
    assert all(not any(row.kind == "release" for row in Store(tmp_path / n, reading=True).rows()) for n in run.nodes)


def test_a_node_with_less_noise_than_planned_is_found_out(tmp_path):
    """The digest is the same, but the release was tampered with: the hello says so before anything is sent."""
    run = run_of(rounds=12, timeout=0.4)
    nodes = {name: open_node(run, name, TABLES, tmp_path / name) for name in run.nodes}
    value = {"to": "east", "version": "1", "sigma": 0.01, "seen": None}
    north, east = nodes["north"].envelope, nodes["east"].links
    north.meet(1, nodes["east"].envelope.introduction)
    east.deliver(0, north.introduction)
    with pytest.raises(NetworkError, match=r"would add noise of σ = 0.01"):
        east.deliver(0, north.seal(1, MESSAGE, bytes(18), pack_text(Header(run.mark, 0, 0), value)))
    for p in nodes.values():
        p.store.close()


def test_a_node_reads_only_what_the_run_file_says(tmp_path):
    wrong = dict(TABLES)
    wrong["north"] = records(run_of(nodes={"north": 11, "east": 9, "south": 15, "west": 10}))["north"]
    with pytest.raises(DataError, match="11 records"):
        open_node(RUN, "north", wrong, tmp_path / "a")
    with pytest.raises(DataError, match="neither class"):
        open_node(run_of(classes=["no", "maybe"]), "north", TABLES, tmp_path / "b")
    with pytest.raises(SpecError, match="name the 3 classes"):
        open_node(run_of(problem__outputs=3), "north", TABLES, tmp_path / "f")
    with pytest.raises(DataError, match="column 'x', which is not there"):
        open_node(run_of(features=["a", "b", "x"]), "north", TABLES, tmp_path / "c")
    with pytest.raises(DataError, match="column 'person', which is not there"):
        open_node(run_of(unit="person"), "north", TABLES, tmp_path / "d")
    many_nodes = run_of(unit="person", nodes={"north": 11, "east": 9, "south": 15, "west": 10})
    with pytest.raises(DataError, match="11 people"):
        open_node(run_of(unit="person"), "north", records(many_nodes), tmp_path / "e")


def test_a_folder_serves_one_process_and_one_node(tmp_path):
    node = open_node(RUN, "north", TABLES, tmp_path / "north")
    with pytest.raises(FolderInUse, match="another process"):
        Store(tmp_path / "north")
    node.store.close()
    same = dict(TABLES, east=TABLES["north"])
    run = run_of(rounds=12, nodes={"north": 12, "east": 12, "south": 15, "west": 10})
    open_node(run, "north", same, tmp_path / "north").store.close()
    with pytest.raises(StoreError, match="as node 'north'"):
        open_node(run, "east", same, tmp_path / "north")
