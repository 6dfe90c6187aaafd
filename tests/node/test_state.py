"""The states of a run: early lies end it with a name, every other pause ends when the peer is back."""

import time
from contextlib import suppress

import numpy as np
import pytest
from net import Net, models, open_node, overheard, play, records, run_of, whole_run

from sottovoce.errors import ConflictingMessages, Disputed, PeerEnded, PeerTimeout, StoreError
from sottovoce.node import links, node, transport
from sottovoce.node.links import _ABOUT, MESSAGE
from sottovoce.node.message import Header, Refused, pack
from sottovoce.node.state import LATE, NEXT, TABLE, RunState, shown
from sottovoce.node.store import Store

RUN = run_of(rounds=20, timeout=2.0)
TABLES = records(RUN)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(links, "STRETCH", 4)
    monkeypatch.setattr(transport, "RESEND_MAX", 0.02)
    monkeypatch.setattr(node, "LONG_PARTING", 1.0)
    monkeypatch.setattr(node, "SHORT_PARTING", 0.3)


class Liar(Net):
    """A network in which one node's messages of a round are preceded by another version, under the node's own keys."""

    def __init__(self, liar, victim, t):
        super().__init__()
        self.liar, self.victim, self.t, self.lied = liar, victim, t, False
        self.fault = self.lie

    def lie(self, sender, receiver, payload):
        """Just before the honest message reaches the victim for the first time."""
        if not self.lied and (sender, receiver) == (self.liar, self.victim) and receiver in self.links:
            victim, liar = self.links[receiver], self.links[sender].envelope
            if any(message.header.round == self.t for message in overheard(victim.envelope, sender, payload)):
                made = pack(Header(RUN.mark, self.t, sender), np.full(RUN.shape, 0.25))
                with suppress(Refused):  # it is too early for the honest one too
                    victim.deliver(sender, liar.seal(receiver, MESSAGE, _ABOUT.pack(bytes(16), 0), made))
                    self.lied = True
        return [payload]


def test_a_lie_that_comes_early_ends_the_run_with_the_name_and_the_cost(tmp_path):
    liar, victim = RUN.number("east"), RUN.number("north")
    step = RUN.neighbors(victim)[liar][1][1]
    net = Liar(liar, victim, step)
    ends = whole_run(RUN, TABLES, tmp_path, net)
    assert net.lied
    assert type(ends["north"]) is ConflictingMessages
    said = str(ends["north"])
    assert f"node 'east' signed other messages than it sent (of round {step})" in said and "ε = " in said
    for name in ("east", "south", "west"):
        assert type(ends[name]) is PeerEnded, ends[name]
    ledgers = {}
    for name in RUN.nodes:
        folder = Store(tmp_path / name)
        ledgers[name] = [row for row in folder.rows() if row.kind in ("release", "stop")]
        assert ledgers[name][-1].kind == "stop" and folder.verify() == []
        folder.close()
    again = whole_run(RUN, TABLES, tmp_path)
    assert {name: type(end) for name, end in again.items()} == {name: type(end) for name, end in ends.items()}
    for name in RUN.nodes:
        folder = Store(tmp_path / name)
        assert [row for row in folder.rows() if row.kind in ("release", "stop")] == ledgers[name]
        folder.close()


def test_a_site_that_fails_notifies_the_others_at_once(tmp_path):
    """A full disk at one node: nobody waits for the time-out, which is an hour here, and all go on afterwards."""
    run = run_of(rounds=20, timeout=3600.0)
    nodes = {name: open_node(run, name, TABLES, tmp_path / name) for name in run.nodes}
    middle = run.rounds(nodes["north"].number).tolist()[4]
    kept = nodes["north"].store.keep_message

    def full(digest, t, payload, drop):
        if t == middle:
            raise StoreError("the disk is full")
        kept(digest, t, payload, drop)

    nodes["north"].store.keep_message = full
    ends = play(Net(), nodes)
    assert "the disk is full" in str(ends["north"]) and nodes["north"].state is RunState.PAUSED
    assert all(type(ends[name]) is PeerTimeout and "paused" in str(ends[name]) for name in ("east", "south", "west"))
    assert models(whole_run(run, TABLES, tmp_path)).shape == (4, run.m)


def test_an_old_folder_that_cannot_be_proven_ends_this_start_alone(tmp_path, monkeypatch):
    """A peer has mixed messages that nobody made: both say so, and nothing is released."""
    run = run_of(rounds=20, timeout=2.0, nodes={"north": 12, "east": 9}, network__activation="everyone")
    tables = records(run)
    nodes = {name: open_node(run, name, tables, tmp_path / name) for name in run.nodes}
    nodes["north"].links._mixed_of[1] = 1
    ends = play(Net(), nodes)
    assert type(ends["east"]) is Disputed and nodes["east"].state is RunState.DISPUTED
    assert type(ends["north"]) is PeerEnded and "node 'north' holds messages" in str(ends["north"])
    assert models(whole_run(run, tables, tmp_path)).shape == (2, run.m)


def test_every_state_is_in_the_table_and_can_be_reached():
    assert set(TABLE) == set(NEXT) == set(RunState)
    reached, new = set(), {RunState.MEETING}
    while new:
        reached |= new
        new = {after for state in new for after in NEXT[state]} - reached
    assert reached | {RunState.WAITING} == set(RunState)  # which is shown, and not entered
    assert {state for state in RunState if state.final} == {
        RunState.DONE,
        RunState.PAUSED,
        RunState.CONTRADICTED,
        RunState.DISPUTED,
        RunState.OLD_COPY,
        RunState.PEER_ENDED,
        RunState.LEFT_OUT,
        RunState.TOO_FEW,
    }
    assert shown(RunState.EXCHANGING, LATE) is RunState.WAITING and shown(RunState.PAUSED, 9.0) is RunState.PAUSED


@pytest.mark.parametrize("killed", ["east", "west"])
def test_a_node_that_is_killed_after_its_peers_are_done_ends_without_a_time_out(tmp_path, monkeypatch, killed):
    """The others have erased their keys: what they sealed for it before says that they are done."""
    run = run_of(rounds=20, timeout=30.0)
    tables = records(run)
    nodes = {name: open_node(run, name, tables, tmp_path / name) for name in run.nodes}
    drain = node.DurableNode.drain

    def cut_short(self):
        if self.name != killed:
            return drain(self)
        while not all(nodes[name].state is RunState.DONE for name in run.nodes if name != killed):
            time.sleep(0.01)
        raise ZeroDivisionError("killed")

    monkeypatch.setattr(node.DurableNode, "drain", cut_short)
    ends = play(Net(), nodes)
    assert isinstance(ends.pop(killed), ZeroDivisionError) and all(end.unheard == () for end in ends.values())
    monkeypatch.undo()
    again = {name: open_node(run, name, tables, tmp_path / name) for name in run.nodes}
    assert {name for name, each in again.items() if each.over} == set(ends)
    found = play(Net(), again)
    assert all(end.unheard == () for end in found.values())
    store = Store(tmp_path / killed, reading=True)
    assert store.run_keys(run.digest) is None and store.answers(run.digest)
    store.close()
    assert all(np.array_equal(found[name].model, end.model) for name, end in ends.items())


def test_a_farewell_that_was_sealed_before_opens_for_its_peer_alone(tmp_path):
    run = RUN
    tables = TABLES
    whole_run(run, tables, tmp_path)
    store = Store(tmp_path / "north", reading=True)
    kept = store.answers(run.digest)
    assert {topic for _, topic, _ in kept} == {MESSAGE} and store.run_keys(run.digest) is None
    assert len(set(kept.values())) == len(kept) == 2 * len(run.neighbors(0)) and all(
        len(v) < 300 for v in kept.values()
    )
    store.close()
    north = open_node(run, "north", tables, tmp_path / "north")
    peer = next(iter(north.links.peers))
    assert north.links.answer(peer, b"anything") == kept[peer, MESSAGE, True]
    assert north.links.answer(99, b"anything") == b"" and not north.links.refused
    north.store.close()


def test_peers_learn_of_a_contradiction_once_it_is_on_the_disk(tmp_path):
    """A peer that is informed leaves for good: after a crash before the ledger has the end this node would wait."""
    liar, victim = RUN.number("east"), RUN.number("north")
    net = Liar(liar, victim, RUN.neighbors(victim)[liar][1][1])
    nodes = {name: open_node(RUN, name, TABLES, tmp_path / name) for name in RUN.nodes}
    north = nodes["north"]
    kept, stop, said = [], north.store.stop, []

    def stopping(*arguments):
        assert north.links.end is not None and not north.links.end_kept
        said.extend(north.links.reply(peer, north.links.last + 1) for peer in north.links.peers)
        kept.append(stop(*arguments))

    north.store.stop = stopping
    ends = play(net, nodes)
    assert type(ends["north"]) is ConflictingMessages and len(kept) == 1
    assert said and not any(said) and north.links.end_kept
    assert all(type(ends[name]) is PeerEnded for name in ("east", "south", "west"))
