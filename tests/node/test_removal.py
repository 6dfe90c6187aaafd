"""Real nodes that go on without lost ones: one model, as a simulation of the same epochs, and what it costs."""

import shutil
import threading
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from net import Net, encoded, open_node, overheard, play, records, run_of

from sottovoce.engine.secure import SecureDraws
from sottovoce.errors import LeftOut, PeerTimeout, PrivacyError, SottovoceError, SpecError, StaleCopy, TooFew
from sottovoce.network.dropouts import NamedDropouts
from sottovoce.node import transport
from sottovoce.node.budget import overview, spendings
from sottovoce.node.keys import Ahead
from sottovoce.node.ledger import runs_of
from sottovoce.node.node import DurableNode
from sottovoce.node.removal import CONFERS, Decision, state_hash
from sottovoce.node.site import own_problem
from sottovoce.node.state import RunState
from sottovoce.node.store import Store
from sottovoce.run.plan import Request, plan_public

FIVE = dict.fromkeys(("a", "b", "c", "d", "e"), 12)


class Killed(Exception):
    """A process is gone."""


def losing(rounds=6, nodes=FIVE, may_lose=2, **changes):
    given = {
        "nodes": nodes,
        "timeout": 60.0,
        "lost_after": 0.5,
        "network__activation": "everyone",
        "network__averaging": "exact",
        "privacy__sampling": "full",
        "privacy__law": "pairs(10)",
        "privacy__noise": "private(1)",
        "privacy__adversary": "secret_pairs(1)",
        "privacy__may_lose": may_lose,
    }
    return run_of(rounds, **(given | changes))


RUN = losing()
TABLES = records(RUN)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(transport, "RESEND_MAX", 0.02)
    monkeypatch.setattr(transport, "CHECK_SECONDS", 0.02)


@pytest.fixture
def secrets(monkeypatch):
    """(node, epoch) -> all that the node draws from, as its releases have it."""
    found, release = {}, DurableNode._release

    def noted(self, t, message):
        found[self.number, self.run.digest] = self._keys
        return release(self, t, message)

    monkeypatch.setattr(DurableNode, "_release", noted)
    return found


class Tapped(Net):
    """Keeps what crosses it: every release, by sender, epoch and round."""

    def __init__(self):
        super().__init__()
        self.said, self.copies, self.fault = {}, [], self.listen

    def listen(self, sender, receiver, payload):
        self.copies.append((sender, receiver, payload))
        for message in overheard(self.links[receiver].envelope, sender, payload) if receiver in self.links else ():
            run = self.links[receiver].run
            t, part = run.at(message.header.round)
            if part == 0:
                self.said.setdefault((sender, run.digest, t), set()).add(message.digest.hex())
        return [payload]


def opened(run, root, names=None):
    return {name: open_node(run, name, TABLES, root / name) for name in names or run.nodes}


def killed(node, t, sends=0):
    """The process of a node ends in round t: before its release is on its way, or once some have it."""
    release = node.release_message

    def last(now, message):
        made = release(now, message) if sends or now < t else None
        if now == t:
            for peer in list(node.links.peers)[:sends]:
                node.transport.send(peer, made[0])
            raise Killed
        return made

    node.release_message = last


def rows(root, name):
    store = Store(root / name, reading=True)
    try:
        assert store.ledger_faults() == []
        return store.rows()
    finally:
        store.close()


def epochs(run, root, name):
    """The run, and every epoch after it, as a node's ledger has them."""
    found = [row.detail for row in rows(root, name) if row.kind == "epoch"]
    return [run, *(run.without(tuple((i, t) for i, t in one["removed"]), one["epoch"]) for one in found)]


def as_simulated(run, root, name, secrets):
    """The model of a simulation that loses the same nodes in the same rounds, from the draws of the nodes' epochs."""
    parts = epochs(run, root, name)
    lost = {node: t for node, t in parts[-1].removed if t <= run.T}
    places = tuple(number for pair in lost.items() for number in pair)
    spec = run.spec.replace(network__dropouts=str(NamedDropouts(places))) if places else run.spec
    problems = [own_problem(run, one, encoded(run, one, TABLES)) for one in run.nodes]
    job = plan_public(Request(spec, np.array(run.sizes), run.m, False))
    state, only, loud = job.method.start(run.n, run.m), np.array([0]), np.array([True])
    for t in range(1, run.T + 1):
        part = [one for one in parts if one.begins <= t][-1]
        nodes = job.schedule.nodes(t).astype(np.int64)

        def zeta(i, x, part=part, t=t):
            keys, pairs = secrets[i, part.digest]
            sums = run.draws(i, problems[i], keys).sums
            draws = Ahead(job.release, sums, keys, np.array(run.sizes), run.m, i, turns=np.array([t]), pairs=pairs)
            made = SecureDraws.drawn(draws, np.array([i]), np.array([t]), loud)
            return made.gradient(problems[i], job.release, only)(x)

        def released(x, nodes=nodes, zeta=zeta):
            return np.stack([zeta(i, row[None])[0] for i, row in zip(nodes.tolist(), x, strict=True)])

        before, mix = state.at(nodes), partial(job.schedule.mix, t, unit=job.method.stride(t))
        speaks = job.schedule.speaks(t, t)
        state.put(nodes, job.method.step(before, t, nodes, speaks, released, np.zeros_like(before.z), mix).state)
    return job.method.average(state, run.T)[run.number(name)]


def check_accounts(run, root, names, wire):
    """Ledgers are what crossed the network, and hold no more than the runs were opened with."""
    for name in names:
        ledger, me = rows(root, name), run.number(name)
        whole = runs_of(ledger)
        made = {(row.run, row.round): row.message for row in ledger if row.kind == "release"}
        for (sender, epoch, t), messages in wire.said.items():
            if sender == me:
                assert messages == {made[epoch, t]}
        (spent,) = spendings(ledger)
        assert spent.released == len(made) <= run.T + run.may_lose == spent.event.rounds
        assert all(whole.get(one, one) == run.digest for one, _ in made)
        store = Store(root / name, reading=True)
        assert overview(store)["datasets"][0]["epsilon"] == pytest.approx(run.statement.epsilon, rel=1e-6)
        store.close()


def test_without_pairs_a_round_is_made_anew_as_well(tmp_path, secrets):
    run = losing(privacy__law="gaussian", privacy__adversary="transcript", privacy__sampling="poisson(4)")
    nodes, wire = opened(run, tmp_path), Tapped()
    killed(nodes["b"], 3, 2)
    killed(nodes["e"], 5)
    ends = play(wire, nodes)
    assert all(np.array_equal(ends[name].model, ends["a"].model) for name in "cd")
    assert np.allclose(ends["a"].model, as_simulated(run, tmp_path, "a", secrets), rtol=0, atol=1e-12)
    check_accounts(run, tmp_path, "acd", wire)


@pytest.mark.parametrize(
    ("deaths", "sends"),
    [
        ({"b": 3}, 0),
        ({"b": 3}, 1),
        ({"b": 3}, 4),
        ({"b": 3, "e": 3}, 0),
        ({"b": 3, "e": 3}, 2),
        ({"a": 2, "d": 5}, 1),
        ({"c": 1}, 0),
        ({"c": 1, "d": 1}, 3),
        ({"c": 6}, 1),
        ({"e": 6, "a": 6}, 4),
    ],
)
def test_the_others_go_on_with_one_model_as_in_a_simulation(tmp_path, secrets, deaths, sends):
    nodes, wire = opened(RUN, tmp_path), Tapped()
    for name, t in deaths.items():
        killed(nodes[name], t, sends)
    ends = play(wire, nodes)
    left = [name for name in RUN.nodes if name not in deaths]
    models = [ends[name].model for name in left]
    assert all(np.array_equal(model, models[0]) for model in models)
    assert {node for node, _ in epochs(RUN, tmp_path, left[0])[-1].removed} == {RUN.number(name) for name in deaths}
    assert np.allclose(models[0], as_simulated(RUN, tmp_path, left[0], secrets), rtol=0, atol=1e-12)
    check_accounts(RUN, tmp_path, left, wire)


def restarted(net, nodes, name, folder, when=lambda: True):
    """A thread that starts a killed node again, over a folder, once something holds; and what becomes of it."""
    found = {}
    net.join(nodes[name])

    def back():
        while nodes[name].number in net.links or nodes[name].store._lock is not None or not when():
            threading.Event().wait(0.01)
        node = found["node"] = open_node(nodes[name].root, name, TABLES, folder)
        net.join(node)
        try:
            found["end"] = node.take_part()
        except Exception as error:
            found["end"] = error
            net.links.pop(node.number)
        node.store.close()

    found["thread"] = threading.Thread(target=back)
    found["thread"].start()
    return found


def test_a_node_that_was_killed_comes_back_in_the_middle_of_a_removal(tmp_path):
    """It is started again at once, and missed by nobody; the other one is lost."""
    run = losing(rounds=8, lost_after=5.0)
    net, nodes = Net(), opened(run, tmp_path)
    killed(nodes["d"], 4)
    killed(nodes["b"], 4, 1)
    again = restarted(net, nodes, "b", tmp_path / "b")
    ends = play(net, nodes)
    again["thread"].join()
    models = [ends[name].model for name in ("a", "c", "e")] + [again["end"].model]
    assert all(np.array_equal(model, models[0]) for model in models)
    assert [node for node, _ in epochs(run, tmp_path, "b")[-1].removed] == [run.number("d")]


def test_a_node_that_comes_back_too_late_is_left_out_for_good(tmp_path):
    net, nodes = Net(), opened(RUN, tmp_path)
    killed(nodes["d"], 3)
    late, release = {}, nodes["a"].release_message

    def waits(t, message):
        made = release(t, message)
        if t == 6:
            late["d"]["thread"].join()
        return made

    nodes["a"].release_message = waits
    late["d"] = restarted(net, nodes, "d", tmp_path / "d", lambda: nodes["a"].run.epoch)
    ends = play(net, nodes)
    assert all(np.array_equal(ends[name].model, ends["a"].model) for name in "bce")
    assert isinstance(late["d"]["end"], LeftOut) and "released 2 of 8 messages" in str(late["d"]["end"])
    assert late["d"]["node"].state is RunState.LEFT_OUT
    again = open_node(RUN, "d", TABLES, tmp_path / "d")
    Net().join(again)
    with pytest.raises(LeftOut, match="went on without node 'd'"):
        again.take_part()
    again.store.close()


def test_with_more_lost_nodes_than_agreed_the_run_ends(tmp_path):
    run = losing(may_lose=1)
    nodes = opened(run, tmp_path)
    for name in "ae":
        killed(nodes[name], 3)
    ends = play(Net(), nodes)
    assert all(isinstance(ends[name], TooFew) and "prepared for 1" in str(ends[name]) for name in "bcd")
    assert all(nodes[name].state is RunState.TOO_FEW for name in "bcd")
    again = open_node(run, "b", TABLES, tmp_path / "b")
    Net().join(again)
    with pytest.raises(TooFew):
        again.take_part()
    again.store.close()


def test_a_minority_removes_nobody_and_pauses(tmp_path):
    """Cut off from three of five, two nodes wait; the three go on without them."""
    run = losing(timeout=6.0)
    net, nodes = Net(), opened(run, tmp_path)
    cut, release = threading.Event(), nodes["a"].release_message

    def cuts(t, message):
        if t == 3:
            cut.set()
        return release(t, message)

    nodes["a"].release_message = cuts
    net.fault = lambda i, j, payload: [] if cut.is_set() and (i in (3, 4)) != (j in (3, 4)) else [payload]
    ends = play(net, nodes)
    assert all(np.array_equal(ends[name].model, ends["a"].model) for name in "bc")
    assert all(isinstance(ends[name], PeerTimeout) for name in "de")
    assert {node for node, _ in epochs(run, tmp_path, "a")[-1].removed} == {3, 4}
    assert epochs(run, tmp_path, "d") == [run]


def test_a_node_that_was_killed_while_it_froze_goes_on_from_there(tmp_path):
    """What it said before is on its disk, and it says no other."""
    run = losing(lost_after=3.0)
    net, nodes = Net(), opened(run, tmp_path)
    killed(nodes["b"], 3, 1)
    freeze = nodes["c"]._freeze

    def dies(removal):
        freeze(removal)
        raise Killed

    nodes["c"]._freeze = dies
    again = restarted(net, nodes, "c", tmp_path / "c")
    ends = play(net, nodes)
    again["thread"].join()
    assert all(np.array_equal(ends[name].model, again["end"].model) for name in "ade")
    assert [node for node, _ in epochs(run, tmp_path, "c")[-1].removed] == [run.number("b")]


def test_an_old_copy_of_a_folder_never_enters_an_epoch_again(tmp_path):
    """A copy from before the removal would release a round of the epoch a second time."""
    net, nodes = Net(), opened(RUN, tmp_path)
    killed(nodes["b"], 3)
    release = nodes["c"].release_message

    def copied(t, message):
        if t == 3 and not nodes["c"].run.epoch:
            with nodes["c"].store._guard:
                nodes["c"].store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                shutil.copytree(tmp_path / "c", tmp_path / "old")
        if t == 5:
            raise Killed
        return release(t, message)

    nodes["c"].release_message = copied
    again = restarted(net, nodes, "c", tmp_path / "old")
    ends = play(net, nodes)
    again["thread"].join()
    assert isinstance(again["end"], StaleCopy), again["end"]
    assert [row for row in rows(tmp_path, "old") if row.kind == "release" and row.run != RUN.digest] == []
    assert all(np.array_equal(ends[name].model, ends["a"].model) for name in "de")


def test_a_liar_that_freezes_with_two_states_is_removed_with_the_proof(tmp_path):
    """It says to some that it completed more: nobody is kept apart by that, and it is gone too."""
    run = losing(nodes=dict.fromkeys("abcdef", 12))
    tables = records(run)
    net, nodes = Net(), {name: open_node(run, name, tables, tmp_path / name) for name in run.nodes}
    killed(nodes["b"], 3)
    removal = nodes["f"].removal
    sealed = removal.sealed

    def lies(peer, reply=False):
        with removal._lock:
            own = removal.votes.frozen
            if own is None or peer % 2:
                return sealed(peer, reply)
            other = own._replace(done=own.done + 1, about="0" * 64)
            other = other._replace(signature=removal.envelope.sign(*other.content))
            removal.votes.freezes[own.removed][own.signer] = other
            try:
                return sealed(peer, reply)
            finally:
                removal.votes.freezes[own.removed][own.signer] = own

    removal.sealed = lies
    ends = play(net, nodes)
    assert all(np.array_equal(ends[name].model, ends["a"].model) for name in "cde")
    assert {node for node, _ in epochs(run, tmp_path, "a")[-1].removed} == {1, 5}
    assert isinstance(ends["f"], LeftOut | StaleCopy)
    for name in "acde":
        assert sum(row.kind == "release" for row in rows(tmp_path, name)) <= run.T + run.may_lose


def back_to_the_start(nodes, names):
    """Once a node is removed, these say that they completed nothing, and suspect who is silent before anyone else."""
    for node in (nodes[name] for name in names):
        freeze, suspect = node._freeze, node.removal._suspect

        def lies(removal, node=node, freeze=freeze):
            if node.run.epoch:
                node._round, node._state = 0, node.method.start(1, node.run.m)
            freeze(removal)

        node._freeze = lies
        node.removal._suspect = lambda peer, done, lends, suspect=suspect: suspect(peer, done, False)


def six_of_which_two_lie(tmp_path):
    """They may be two by the adversary, and are more than the votes bear."""
    run = losing(rounds=4, nodes=dict.fromkeys("abcdef", 12), privacy__adversary="secret_pairs(2)", timeout=8.0)
    tables = records(run)
    nodes = {name: open_node(run, name, tables, tmp_path / name) for name in run.nodes}
    back_to_the_start(nodes, "ef")
    killed(nodes["c"], 2)
    return run, nodes


def test_rounds_that_liars_undo_are_made_anew_with_the_noise_of_those_who_are_left(tmp_path):
    run, nodes = six_of_which_two_lie(tmp_path)
    killed(nodes["d"], 3)
    ends = play(Net(), nodes)
    first, second, last = epochs(run, tmp_path, "a")
    assert first.begins == 1 and second.removed == ((2, 2),) and last.removed == ((2, 1), (3, 1)) and last.begins == 1
    law = last.plan.release.law
    assert np.array_equal(law.share(np.arange(1, 5)), np.full(4, np.sqrt(law.raise2(2))))
    for name in "ab":
        made = [(row.run, row.round) for row in rows(tmp_path, name) if row.kind == "release"]
        assert (last.digest, 1) in made and len(made) == run.T + run.may_lose
        assert isinstance(ends[name], SottovoceError)


def test_no_liar_opens_a_run_again_that_is_closed(tmp_path):
    """A release after the run's end would make the ledger one that no run goes on with."""
    _, nodes = six_of_which_two_lie(tmp_path)
    finish = nodes["d"].finish

    def dies():
        finish()
        raise Killed

    nodes["d"].finish = dies
    ends = play(Net(), nodes)
    for name in "ab":
        assert "go back to round 0" in str(ends[name]), ends[name]
        assert [row.round for row in rows(tmp_path, name) if row.kind == "release"] == [1, 2, 2, 3, 4]


def test_a_state_that_came_for_an_earlier_decision_is_not_used(tmp_path):
    node = open_node(RUN, "a", TABLES, tmp_path / "a")
    state = b"".join(array.tobytes() for array in node.method.start(1, RUN.m))
    agreed = Decision((1,), 1, state_hash(1, state), (2,), "ab" * 32)
    node.removal.came = state
    assert node._agreed(node.removal, agreed) is not None
    assert node._agreed(node.removal, agreed._replace(state="0" * 64)) is None
    node.store.close()


def test_a_node_that_freezes_takes_no_lock_of_its_links_within_a_transaction(tmp_path, monkeypatch):
    """What comes in holds that lock and reads the folder: the two would wait for each other for ever."""
    node, inside = open_node(RUN, "a", TABLES, tmp_path / "a"), []
    seen = type(node.links).seen.fget
    monkeypatch.setattr(
        type(node.links), "seen", property(lambda links: inside.append(node.store._db.in_transaction) or seen(links))
    )
    node._freeze(node.removal)
    assert inside == [False]
    node.store.close()


def test_old_envelopes_about_lost_nodes_change_nothing(tmp_path):
    """A relay plays back what was said about lost nodes, to the same node, while the run goes on."""
    wire = Tapped()
    listen = wire.fault

    def repeats(sender, receiver, payload):
        listen(sender, receiver, payload)
        old = [kept for i, j, kept in wire.copies[-100:] if (i, j) == (sender, receiver) and kept.startswith(CONFERS)]
        for kept in old[:2] if receiver in wire.links else ():
            with suppress(SottovoceError):
                wire.links[receiver].answer(sender, kept)
        return [payload]

    wire.fault = repeats
    nodes = opened(RUN, tmp_path)
    killed(nodes["b"], 3, 1)
    ends = play(wire, nodes)
    assert all(np.array_equal(ends[name].model, ends["a"].model) for name in "cde")
    assert [node for node, _ in epochs(RUN, tmp_path, "a")[-1].removed] == [1]


@pytest.mark.parametrize(
    ("changes", "error", "why"),
    [
        ({"lost_after": 100.0}, SpecError, "shorter than the timeout of 60 s"),
        ({"liars": 2}, SpecError, "cannot agree on 2 lost ones with 2 liars"),
        ({"privacy__may_lose": 3}, PrivacyError, "two honest ones must stay"),
        ({"network__averaging": "gossip"}, SpecError, "averaging 'exact'"),
        ({"network__dropouts": "at(1, 2)"}, SpecError, "leave dropouts out"),
    ],
)
def test_what_real_nodes_cannot_go_on_with_is_refused(changes, error, why):
    with pytest.raises(error, match=why):
        _ = losing(**changes).plan
