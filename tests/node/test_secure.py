"""What crosses the wire of real nodes says no more than its (ε, δ): the attempts that were right every time before."""

import shutil
import sqlite3
import tempfile
from dataclasses import replace
from pathlib import Path

import attacks
import numpy as np
import pytest
from net import Net, assert_as_simulated, encoded, models, open_node, overheard, records, run_of, whole_run

from sottovoce.engine.job import gradients
from sottovoce.errors import NetworkError, PrivacyError, SpecError, StoreError
from sottovoce.node import keys, ledger
from sottovoce.node.message import read
from sottovoce.node.node import Outcome
from sottovoce.node.site import own_problem
from sottovoce.node.store import FILE, Store
from sottovoce.privacy.release import Draws
from sottovoce.problem.objective import clipped_mean
from sottovoce.streams import Streams

FOUR = {"north": 12, "east": 12, "south": 12, "west": 12}
ONE_ROUND = run_of(
    rounds=1,
    nodes=FOUR,
    features=list("abcdefgh"),
    network__activation="everyone",
    privacy__sampling="full",
    privacy__noise="private(0.1)",
)
TRIALS = 1000


@pytest.fixture
def quick(tmp_path):
    """A folder in memory, where there is one: a thousand ledgers are made."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else tmp_path))
    yield folder
    shutil.rmtree(folder)


def candidates(run):
    """Everybody's records with each of two last ones, and the mean subgradients that these give in the first round."""
    known, other = records(run), records(run, seed=1)
    both = [known, {name: _with_last(known[name], other[name]) for name in run.nodes}]
    problems = [{name: own_problem(run, name, encoded(run, name, some)) for name in run.nodes} for some in both]
    zero, clip = np.zeros(run.m), run.plan.release.clip
    means = {
        name: [clipped_mean(each[name], 0, zero, None, run.sizes[0], clip) for each in problems] for name in run.nodes
    }
    return both, problems, means


def _with_last(table, other):
    return {column: [*values[:-1], other[column][-1]] for column, values in table.items()}


class Tapped(Net):
    """Everybody's message of the first round, as it crosses the wire."""

    def __init__(self):
        super().__init__()
        self.first = {}
        self.fault = self.listen

    def listen(self, sender, receiver, payload):
        for message in overheard(self.links[receiver].envelope, sender, payload):
            if message.header.round == 1:
                self.first[sender] = message.array[0].copy()
        return [payload]


@pytest.mark.slow
def test_no_attack_on_the_first_message_is_right_more_often_than_epsilon_allows(quick):
    """At ε = 0.1; on a simulation's messages, with noise in floating point, the first of them is right every time."""
    run, rng = ONE_ROUND, np.random.default_rng(5)
    both, problems, means = candidates(run)
    release, right, before = run.plan.release, dict.fromkeys((attacks.lattice, attacks.low_bits), 0), 0
    for trial in range(TRIALS // run.n):
        truth = dict(zip(run.nodes, rng.integers(0, 2, run.n).tolist(), strict=True))
        net, root = Tapped(), quick / str(trial)
        ends = whole_run(run, {name: both[truth[name]][name] for name in run.nodes}, root, net)
        assert all(isinstance(end, Outcome) for end in ends.values())
        for i, name in enumerate(run.nodes):
            sigma = release.sigma[i]
            for attack in right:
                right[attack] += attack(net.first[i], means[name], sigma) == truth[name]
            here, first = np.array([i]), np.array([1])
            plain = Draws(release, Streams(trial), np.array(run.sizes), run.m).noise(here, first)
            mean = gradients(problems[truth[name]][name], release, np.array([0]), [None])(np.zeros((1, run.m)))
            before += attacks.lattice((mean + plain)[0], means[name], sigma) == truth[name]
        shutil.rmtree(root)
    assert before == TRIALS
    assert all(found <= attacks.allowed(TRIALS) * TRIALS for found in right.values()), right


def first_message(run, tables, root, name="north"):
    """Of a node that nobody answers."""
    node = open_node(run, name, tables, root)
    sent = []

    class Deaf:
        def exchange(self, t, payload, peers):
            sent.append(payload)
            raise ConnectionError

    node.transport = Deaf()
    try:
        with pytest.raises(ConnectionError):
            node.turn(node._state, int(node.rounds[0]))
    finally:
        node.store.close()
    return sent[0]


def test_the_message_is_the_gradient_with_noise_of_sigma(tmp_path):
    """On its grid: what an observer of the bits sees, and no more than rounding away from the plain mechanism."""
    run = ONE_ROUND
    _, _, means = candidates(run)
    sigma, noise = run.plan.release.sigma[0], []
    for trial in range(40):
        message = read(first_message(run, records(run), tmp_path / str(trial))).array[0]
        noise.append((message - means["north"][0]) / sigma)
        grid = 2.0 ** (np.frexp(12 * sigma)[1] - 1 - 20)
        whole = message * 12 / grid
        assert np.allclose(whole, np.rint(whole), rtol=0, atol=1e-6)
    spread = np.std(noise)
    assert abs(np.mean(noise)) < 4 / np.sqrt(320) and abs(spread - 1) < 4 / np.sqrt(640)


def test_a_key_without_its_ledger_is_refused(tmp_path):
    """Else its budget would be forgotten, and its noise met other records."""
    run, folder = run_of(rounds=8), tmp_path / "north"
    whole_run(run, records(run), tmp_path)
    for gone in ([FILE, ledger.HEAD_FILE], [FILE]):
        copy = shutil.copytree(folder, tmp_path / str(len(gone)))
        for name in gone:
            (copy / name).unlink()
        with pytest.raises(StoreError, match=r"the ledger in .* is gone, though its .* is there.* restore"):
            Store(copy)
        with pytest.raises(StoreError, match="is gone"):  # and again: nothing was made anew meanwhile
            Store(copy)


def test_an_old_key_that_is_forced_upon_a_new_ledger_draws_nothing_again(tmp_path):
    """By hand, mark and all: what it would release of other records is not what it released, moved by the records."""
    run, old, new = ONE_ROUND, tmp_path / "old", tmp_path / "new"
    both, _, means = candidates(run)
    first = read(first_message(run, both[0], old)).array[0]
    Store(new).close()
    shutil.copy2(old / keys.FILE, new / keys.FILE)
    db = sqlite3.connect(new / FILE)
    db.execute("UPDATE about SET value = ? WHERE name = 'key'", (keys.key_mark(keys.own_secret(new)),))
    db.commit()
    db.close()
    second = read(first_message(run, both[1], new)).array[0]
    moved, sigma = means["north"][1] - means["north"][0], run.plan.release.sigma[0]
    assert np.all(np.abs(second - first - moved) > 1e-4 * sigma)  # version 0.1: zero, to the last bits


def test_the_same_run_twice_lets_out_the_same_bits(tmp_path):
    """A copy of the folder, from before the run, gives its first message again, and no second noise."""
    run, tables = ONE_ROUND, records(ONE_ROUND)
    open_node(run, "north", tables, tmp_path / "one").store.close()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    assert first_message(run, tables, tmp_path / "one") == first_message(run, tables, tmp_path / "two")
    assert first_message(run, tables, tmp_path / "one") == first_message(run, tables, tmp_path / "two")  # resumed
    assert first_message(run, tables, tmp_path / "new") != first_message(run, tables, tmp_path / "two")


def test_a_repeated_round_must_be_the_same_to_the_last_bit(tmp_path, monkeypatch):
    run, tables = ONE_ROUND, records(ONE_ROUND)
    first_message(run, tables, tmp_path)
    step = type(run.plan.method).step

    def nearly(self, state, t, nodes, speaks, gradient, noise, mix):
        return step(self, state, t, nodes, speaks, lambda x: np.nextafter(gradient(x), np.inf), noise, mix)

    monkeypatch.setattr(type(run.plan.method), "step", nearly)
    node = open_node(run, "north", tables, tmp_path)
    with pytest.raises(StoreError, match="another message than the records and the key"):
        node.turn(node._state, 1)
    node.store.close()


@pytest.mark.parametrize("cut", ["before the tables", "before the head", "before the key counts"])
def test_a_birth_that_was_cut_short_is_thrown_away_or_finished(tmp_path, monkeypatch, cut):
    class Cut(Exception):
        pass

    def die(*_, **__):
        raise Cut

    place = {
        "before the tables": (ledger.Ledger, "append"),
        "before the head": (ledger.HeadFile, "write"),
        "before the key counts": (keys, "keep_secret"),
    }[cut]
    with monkeypatch.context() as patch:
        patch.setattr(*place, die)
        with pytest.raises(Cut):
            Store(tmp_path)
    assert not (tmp_path / keys.FILE).exists()
    for _ in range(2):
        store = Store(tmp_path)
        assert [row.kind for row in store.rows()] == ["nonce"] and store.verify() == []
        store.close()
    assert not (tmp_path / keys.UNBORN).exists()


def test_a_ledger_has_one_nonce_and_runs_that_draw_by_it_come_after(tmp_path):
    run = run_of(rounds=8)
    whole_run(run, records(run), tmp_path)
    store = Store(tmp_path / "north", reading=True)
    rows = store.rows()
    store.close()
    assert rows[0].kind == "nonce" and len(bytes.fromhex(rows[0].detail["nonce"])) == 32

    def rechained(some):
        result, before = [], ledger.GENESIS
        for seq, row in enumerate(some, start=1):
            before = ledger.chained(before, seq, *row[1:6])
            result.append(ledger.Row(seq, *row[1:6], before))
        return result

    assert ledger.faults(rechained(rows)) == []
    assert any("nonce that is not there" in fault for fault in ledger.faults(rechained(rows[1:])))
    assert any("second nonce" in fault for fault in ledger.faults(rechained([*rows, rows[0]])))


def test_two_runs_on_one_store_do_not_spend_more_than_the_budget(tmp_path):
    """Both are affordable when they are made; what the second would cost is examined again when it opens."""
    first, second = (run_of(rounds=8, run=name, privacy__noise="private(1.0)") for name in ("first", "second"))
    one = open_node(first, "north", records(first), tmp_path, budget=1.05)
    problem = own_problem(second, "north", encoded(second, "north", records(second)))
    two = type(one)(second, "north", problem, one.store)
    one._release(int(one.rounds[0]), np.zeros((1, first.m)))
    rows = one.store.rows()
    with pytest.raises(PrivacyError, match="over the owner's budget"):
        two._release(int(two.rounds[0]), np.zeros((1, second.m)))
    assert one.store.rows() == rows and two.links._outbox == {}
    one.store.close()


def reordered(table):
    return {column: values[::-1] for column, values in table.items()}


def test_a_run_continues_with_the_order_and_the_people_that_it_began_with(tmp_path):
    """A batch is drawn by places: in another order the same noise would meet other records."""
    run = run_of(rounds=8)
    tables = records(run)
    first_message(run, tables, tmp_path / "order")
    with pytest.raises(StoreError, match="another order"):
        open_node(run, "north", dict(tables, north=reordered(tables["north"])), tmp_path / "order")
    people = run_of(rounds=8, unit="person")
    tables = records(people)
    first_message(people, tables, tmp_path / "people")
    ids = tables["north"]["person"]
    swapped = dict(tables, north=dict(tables["north"], person=[*ids[:-1], ids[4]]))  # a row of another person
    with pytest.raises(StoreError, match="other people"):
        open_node(people, "north", swapped, tmp_path / "people")
    renamed = dict(tables, north=dict(tables["north"], person=[f"{unit}'" for unit in ids]))  # the same people
    open_node(people, "north", renamed, tmp_path / "people").store.close()


def test_records_in_another_order_are_still_the_same_to_a_budget(tmp_path):
    run = run_of(rounds=8, privacy__noise="private(1.0)")
    tables = records(run)
    whole_run(run, tables, tmp_path, budget=1.2)
    again = run_of(rounds=8, run="second", privacy__noise="private(1.0)")
    store = Store(tmp_path / "north")
    store.set_budget({"dataset": "other", "epsilon": "1.2", "delta": 1e-5})
    store.close()
    with pytest.raises(PrivacyError, match="over the owner's budget"):
        open_node(again, "north", dict(tables, north=reordered(tables["north"])), tmp_path / "north", dataset="other")


def test_a_run_continues_with_the_noise_that_it_was_opened_with(tmp_path):
    """The digest leaves σ out, since processors may differ in its last digits."""
    run, other = run_of(rounds=8), run_of(rounds=8)
    tables = records(run)
    first_message(run, tables, tmp_path)
    release = other.plan.release
    quieter = replace(release, sigma=tuple(s * (1 - 1e-6) for s in release.sigma))
    other.__dict__["plan"] = replace(other.plan, release=quieter)
    assert other.digest == run.digest
    with pytest.raises(StoreError, match=r"was opened with noise of σ = 0\.5, and its run file gives σ = 0\.4999995"):
        open_node(other, "north", tables, tmp_path)


@pytest.mark.parametrize("method", ["combine_first", "dual_averaging", "stale"])
def test_a_node_may_only_listen(tmp_path, method):
    """One speaks in a round, and one listens and passes on: its message costs nothing, and is counted."""
    run = run_of(rounds=24, network__activation="ticks", network__correct=False, algorithm__method=method)
    tables = records(run)
    ends = whole_run(run, tables, tmp_path)
    assert_as_simulated(run, tables, tmp_path, ends)
    listened = 0
    for i, name in enumerate(run.nodes):
        store = Store(tmp_path / name)
        assert store.verify() == []
        released = [row.round for row in store.rows() if row.kind == "release"]
        (opened,) = [row.detail for row in store.rows() if row.kind == "open"]
        assert released == run.rounds(i).tolist() and opened["messages"] == len(released)
        assert set(run.turns(i).tolist()) <= set(released) and len(run.turns(i)) == run.event(i).rounds
        listened += len(released) - len(run.turns(i))
        store.close()
    assert listened == 24 and np.all(np.isfinite(models(ends)))


@pytest.mark.parametrize(
    "changes, what",
    [
        ({"algorithm__method": "huang", "network__activation": "everyone", "privacy__sampling": "full"}, "proximal"),
        ({"algorithm__method": "admm", "network__activation": "everyone", "privacy__sampling": "full"}, "proximal"),
    ],
)
def test_what_has_no_secure_release_is_refused(changes, what):
    run = run_of(rounds=8, network__correct=False, **changes)
    with pytest.raises(SpecError, match=f"secure releases only.*{what}.*simulate it"):
        run.plan  # noqa: B018 - derived when requested


def test_a_folder_is_its_owner_s_alone_however_it_was_made(tmp_path):
    folder = tmp_path / "north"
    folder.mkdir(mode=0o755)
    for _ in range(2):
        store = Store(folder)
        store.set_budget({"dataset": "records", "epsilon": "1.0", "delta": 1e-5})
        modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
        assert set(modes.values()) == {0o600} and {FILE, f"{FILE}-wal", ledger.HEAD_FILE, keys.FILE} <= set(modes)
        assert folder.stat().st_mode & 0o777 == 0o700
        store.close()
        (folder / FILE).chmod(0o644)
        folder.chmod(0o755)


def test_a_model_that_is_not_finite_is_an_error(tmp_path):
    run = run_of(rounds=8)
    node = open_node(run, "north", records(run), tmp_path)
    node._state = node._state._replace(total=np.full_like(node._state.total, np.inf))
    with pytest.raises(NetworkError, match="is not finite"):
        node.model()
    node.store.close()
