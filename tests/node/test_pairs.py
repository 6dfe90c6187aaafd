"""Noise that pairs of real nodes cancel: from their keys, fresh in every round, never sent, and gone from the mean."""

import logging
import shutil
import threading

import numpy as np
import pytest
from net import Net, encoded, keys, models, open_node, overheard, play, records, run_of, simulated, whole_run

from sottovoce.engine.job import gradients
from sottovoce.errors import PeerTimeout, PrivacyError, SpecError, StoreError, UnknownPeer
from sottovoce.node import transport
from sottovoce.node.bounds import longest_releases, units
from sottovoce.node.identity import OwnKey
from sottovoce.node.keys import identity_seed, own_secret
from sottovoce.node.site import own_problem
from sottovoce.node.store import Store
from sottovoce.secure.generator import Generator

FOUR = {"north": 12, "east": 12, "south": 12, "west": 12}


def paired(rounds=8, **changes):
    given = {
        "nodes": FOUR,
        "network__activation": "everyone",
        "privacy__sampling": "full",
        "privacy__law": "pairs(10)",
        "privacy__adversary": "secret_pairs(1)",
    }
    return run_of(rounds, **(given | changes))


RUN = paired()
TABLES = records(RUN)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(transport, "RESEND_MAX", 0.02)


class Tapped(Net):
    """Keeps the bytes on the wire, and what is in them."""

    def __init__(self):
        super().__init__()
        self.bytes, self.said, self.fault = [], {}, self.listen

    def listen(self, sender, receiver, payload):
        self.bytes.append(payload)
        for message in overheard(self.links[receiver].envelope, sender, payload):
            self.said[sender, message.header.round] = message.array[0].copy()
        return [payload]


def shared(nodes):
    """What every node shares with every other one, while they have their keys."""
    return [
        {peer: Generator(node.envelope.pair_secret(peer)) for peer in node.run.shares_with(node.number)}
        for node in nodes.values()
    ]


def test_nobody_waits_for_a_slow_node_between_its_rounds(tmp_path):
    """It gives its release of round 4 once the others have made theirs: they have made rounds 1 to 3 by then."""
    run = paired(network__activation="cadence(2, 4)", network__averaging="exact", timeout=60.0)
    nodes, gone_on = {name: open_node(run, name, TABLES, tmp_path / name) for name in run.nodes}, threading.Event()
    slow, fast = nodes["south"], nodes["north"]
    releases = slow.release_message, fast.release_message

    def waits(t, message):
        assert gone_on.wait(60), "the others wait for the slow node"
        return releases[0](t, message)

    def goes_on(t, message):
        if t == 4:
            gone_on.set()
        return releases[1](t, message)

    slow.release_message, fast.release_message = waits, goes_on
    introduce(nodes)
    pairs = shared(nodes)
    ends = play(Net(), nodes)
    assert np.allclose(models(ends), simulated(run, TABLES, keys(run, tmp_path), pairs=pairs), rtol=1e-9, atol=1e-9)
    assert [run.event(i).rounds for i in range(4)] == [8, 8, 2, 8]
    store = Store(tmp_path / "south")
    assert sum(row.kind == "release" for row in store.rows()) == 2
    store.close()


def introduce(nodes):
    """To one another."""
    for one in nodes.values():
        for other in nodes.values():
            if one is not other:
                one.envelope.meet(other.number, other.envelope.introduction)
    return nodes


def opened(run, root):
    """All nodes, who know each other."""
    return introduce({name: open_node(run, name, TABLES, root / name) for name in run.nodes})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"network__activation": "edges(2)", "privacy__sampling": "poisson(4)"},
        {"privacy__law": "pairs(3, graph=ring)"},
        {"network__activation": "cadence(2, 4)", "network__averaging": "exact"},
        {"nodes": {"north": 12, "east": 9, "south": 15, "west": 10}, "problem__weights": "records"},
    ],
    ids=str,
)
def test_a_run_equals_the_simulation_from_the_same_keys(changes, tmp_path):
    run = paired(**changes)
    tables = records(run)
    nodes = {name: open_node(run, name, tables, tmp_path / name) for name in run.nodes}
    introduce(nodes)
    pairs = shared(nodes)
    ends = play(Net(), nodes)
    expected = simulated(run, tables, keys(run, tmp_path), pairs=pairs)
    assert np.allclose(models(ends), expected, rtol=1e-9, atol=1e-9)
    other = [{peer: Generator(bytes([peer] * 32)) for peer in mine} for mine in pairs]
    assert not np.allclose(models(ends), simulated(run, tables, keys(run, tmp_path), pairs=other), rtol=1e-2)


def test_pair_noise_is_large_in_every_message_and_gone_from_their_mean(tmp_path):
    """Of the first round, over several runs: the residuals of one node, and those of all together."""
    alone, together = [], []
    for trial in range(8):
        run = paired(rounds=1, run=f"trial-{trial}", features=list("abcdefgh"))
        tables, net = records(run), Tapped()
        nodes = {name: open_node(run, name, tables, tmp_path / str(trial) / name) for name in run.nodes}
        play(net, nodes)
        job = run.plan
        residuals = []
        for i, name in enumerate(run.nodes):
            problem = own_problem(run, name, encoded(run, name, tables))
            mean = gradients(problem, job.release, np.array([0]), [None])(np.zeros((1, run.m)))[0]
            residuals.append((net.said[i, 1] - mean) / job.release.sigma[i])
        alone += residuals
        together.append(np.sum(residuals, axis=0))
    assert abs(np.std(alone) / np.sqrt(1 + 3 * 100) - 1) < 4 / np.sqrt(2 * 8 * 8)
    assert abs(np.std(together) / np.sqrt(4) - 1) < 4 / np.sqrt(2 * 8 * 8)


def test_pair_noise_is_fresh_in_every_round_and_pair(tmp_path):
    nodes = opened(RUN, tmp_path)
    (first, second), here = shared(nodes)[:2], np.array([0])
    words = [g.words(here, np.array([t]), 0, 4).tobytes() for g in first.values() for t in range(1, 9)]
    assert len(set(words)) == len(words) == 24
    assert np.array_equal(first[1].words(here, here, 0, 4), second[0].words(here, here, 0, 4))
    for node in nodes.values():
        node.store.close()


class Crash(Exception):
    pass


@pytest.mark.parametrize("when", ["before writing", "after writing", "after mixing"])
def test_a_node_that_is_killed_ends_with_the_very_model_of_the_undisturbed_run(when, tmp_path):
    """Bit for bit: the folders of both runs are copies, with the same keys."""
    for node in opened(RUN, tmp_path / "calm").values():
        node.store.close()
    shutil.copytree(tmp_path / "calm", tmp_path / "rough")
    calm = models(whole_run(RUN, TABLES, tmp_path / "calm"))
    net, ends, left = Net(), {}, {3, 6}
    others = {name: open_node(RUN, name, TABLES, tmp_path / "rough" / name) for name in RUN.nodes if name != "east"}
    thread = threading.Thread(target=lambda: ends.update(play(net, others)))
    thread.start()
    while "east" not in ends:
        node = open_node(RUN, "east", TABLES, tmp_path / "rough" / "east")
        release, turn = node._release, node.turn

        def die(t, here, release=release, turn=turn):
            if here == when and t in left:
                left.discard(t)
                raise Crash

        def releasing(t, message, release=release, die=die):
            die(t, "before writing")
            payload = release(t, message)
            die(t, "after writing")
            return payload

        def turning(state, t, turn=turn, die=die):
            state = turn(state, t)
            die(t, "after mixing")
            return state

        node._release, node.turn = releasing, turning
        end = play(net, {"east": node})["east"]
        if not isinstance(end, Crash):
            ends["east"] = end
    thread.join()
    assert not left and np.array_equal(models(ends), calm)


def test_no_seed_key_or_pair_noise_is_ever_on_the_wire_or_in_a_log(tmp_path, caplog, capsys):
    """Read on the wire, and by the receivers, who can open what they get; nor is any of it left in a folder."""
    caplog.set_level(logging.DEBUG)
    net, nodes = Tapped(), opened(RUN, tmp_path)
    secret = {part for node in nodes.values() for part in node.store.run_keys(RUN.digest)[:2]}
    secret |= {node.envelope.pair_secret(peer) for node in nodes.values() for peer in RUN.shares_with(node.number)}
    assert len(secret) == 8 + 6
    noises, law = set(), RUN.plan.release.law
    for node in nodes.values():
        draws = node._secure
        for source in law.with_peers(node.number, np.arange(1, RUN.T + 1), RUN.plan.release.sigma)[1:]:
            words = draws.generator(source).words(source.owners, source.rounds, 0, 2)
            noises |= {row.tobytes()[:16] for row in words}
    assert len(noises) == 6 * RUN.T
    models(play(net, nodes))
    wire = b"".join(net.bytes)
    plain = b"".join(array.tobytes() for array in net.said.values())
    left = b"".join(file.read_bytes() for name in RUN.nodes for file in (tmp_path / name).iterdir())
    logged = caplog.text + "".join(capsys.readouterr())
    for part in secret | noises:
        assert part not in wire and part not in plain and part not in left
        assert part.hex() not in logged and part.hex().encode() not in wire + left
    assert len(net.said) == 4 * RUN.T and RUN.nodes[0] == "north"


def test_the_ledger_knows_the_pairs_and_a_run_continues_with_no_others(tmp_path):
    run = paired(timeout=0.4)
    assert isinstance(whole_run(run, TABLES, tmp_path, names=run.nodes[:3])["north"], PeerTimeout)
    nodes = opened(run, tmp_path)
    known = nodes["east"].envelope.fingerprints()
    nodes["north"]._release(1, np.zeros((1, run.m)))
    detail = nodes["north"].store.ledger.opened(run.digest)
    assert detail["pairs"] == {name: known[name] for name in ("east", "south", "west")}
    assert detail["adversary"] == "secret_pairs(1)" and nodes["north"].store.verify() == []
    nodes["north"].envelope._members[3] = nodes["north"].envelope._members[2]
    with pytest.raises(StoreError, match="other keys of other nodes"):
        nodes["north"]._check_same_pairs()
    for node in nodes.values():
        node.store.close()


def test_keys_for_pairs_are_for_the_records_that_they_were_made_with(tmp_path):
    open_node(RUN, "north", TABLES, tmp_path / "north").store.close()
    with pytest.raises(StoreError, match="made for other records"):
        open_node(RUN, "north", records(RUN, seed=1), tmp_path / "north")


def test_a_peer_with_other_keys_than_at_the_start_gets_nothing(tmp_path):
    """Its folder is lost, and with it its part of the pairs: the run ends here, in a sentence, and nothing is sent."""
    run = paired(timeout=2.0)
    nodes = opened(run, tmp_path)
    turn = nodes["south"].turn

    def crashing(state, t):
        if t == 4:
            raise Crash
        return turn(state, t)

    nodes["south"].turn = crashing
    ends = play(Net(), nodes)
    assert isinstance(ends["south"], Crash) and all(isinstance(ends[n], PeerTimeout) for n in ("north", "east", "west"))
    paused = [str(ends[name]) for name in ("north", "east", "west")]  # the first to give up informs the others
    assert any("gone for good, this run cannot be finished" in text for text in paused)
    assert all("'south'" in text for text in paused)
    before = {name: len(_released(tmp_path / name)) for name in run.nodes}
    shutil.rmtree(tmp_path / "south")
    ends = whole_run(run, TABLES, tmp_path)
    assert isinstance(ends["south"], UnknownPeer) and "other keys of this node" in str(ends["south"])
    assert _released(tmp_path / "south") == []
    assert {name: len(_released(tmp_path / name)) for name in ("north", "east", "west")} == {
        name: before[name] for name in ("north", "east", "west")
    }


def _released(folder):
    store = Store(folder, reading=True)
    try:
        return [row.round for row in store.rows() if row.kind == "release"]
    finally:
        store.close()


def test_a_key_that_does_not_verify_lets_nothing_out(tmp_path):
    for name in RUN.nodes:
        Store(tmp_path / name).close()
    listed = {name: OwnKey(identity_seed(own_secret(tmp_path / name))).public for name in RUN.nodes}
    run = paired(timeout=1.0, keys=listed | {"west": OwnKey(bytes(32)).public})
    ends = whole_run(run, TABLES, tmp_path)
    assert all(isinstance(end, PeerTimeout) for end in ends.values()) and "names another key" in str(ends["north"])
    assert all(_released(tmp_path / name) == [] for name in run.nodes)


@pytest.mark.parametrize(
    ("changes", "error", "why"),
    [
        ({"privacy__adversary": "secret_pairs(3)"}, PrivacyError, "hides nothing where 3 of 4"),
        (
            {"privacy__law": "pairs(10, graph=ring)", "privacy__adversary": "secret_pairs(2)"},
            PrivacyError,
            "cut others",
        ),
        ({"privacy__adversary": "secret_pairs"}, SpecError, "how many of them may collude"),
        ({"privacy__adversary": "transcript"}, PrivacyError, "secret_pairs"),
    ],
)
def test_a_plan_that_its_secrets_cannot_bear_is_refused(changes, error, why):
    with pytest.raises(error, match=why):
        _ = paired(**changes).digest


def test_the_bound_of_messages_knows_of_pairs():
    job = RUN.plan
    assert units(job.release, 4, RUN.T) == pytest.approx(np.sqrt(1 + 3 * 100), rel=1e-3)
    plain = run_of(8, nodes=FOUR, network__activation="everyone", privacy__sampling="full")
    less = longest_releases(plain.plan.method, plain.plan.release, np.array(plain.sizes), plain.m)
    assert np.all(longest_releases(job.method, job.release, np.array(RUN.sizes), RUN.m) > 10 * less)


def test_the_statement_is_of_the_worst_coalition():
    made = RUN.statement
    made.verify()
    assert "'secret_pairs(1)', whichever 1 node may help" in made.paragraph()
    assert any("whoever admits nodes decides how many" in details for details in made.assumptions)
