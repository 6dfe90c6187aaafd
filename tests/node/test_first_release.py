"""A one-shot release before the first round, on real nodes: as simulated, written before it is sent, and made once."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from net import Net, encoded, keys, make_run, open_node, overheard, records, run_file, run_of, whole_run

from sottovoce.engine import ENGINES
from sottovoce.errors import PeerTimeout, StoreError
from sottovoce.features import Additive
from sottovoce.node import ledger, transport
from sottovoce.node.bounds import longest_one_shot
from sottovoce.node.message import size_of
from sottovoce.node.node import DurableNode
from sottovoce.node.store import Store
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.distribution import Distribution
from sottovoce.problem.shards import Shards
from sottovoce.run.build import make_job, pre_release
from sottovoce.run.distribution import Expanded
from sottovoce.run.private_scaling import PrivateScaling
from sottovoce.run.result import History, Result
from sottovoce.run.target_range import TargetRange
from sottovoce.run.verify import verify
from sottovoce.secure.generator import Purpose

MOMENTS = {
    "nodes": {"north": 12, "south": 15},
    "privacy__noise": "private(2000)",
    "privacy__moments": "moments(0.05, 0.1, 0.2)",
    "problem__intercept": 0.5,
    "network__activation": "everyone",
}
QUANTILES = {
    "label": "dose",
    "privacy__moments": "none",
    "privacy__quantiles": "quantiles(0.2)",
    "problem__loss": "absolute",
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(transport, "RESEND_MAX", 0.02)


def run_with(rounds=6, **changes):
    return run_of(rounds, **(MOMENTS | changes))


def regression(rounds=6):
    whole = run_file(rounds, **(MOMENTS | QUANTILES))
    del whole["classes"]
    return make_run(whole)


def tables_of(run):
    """Records whose columns have means off the origin and other widths, so that the map is one."""
    if run.schema.label.classes is None:
        rng = np.random.default_rng(3)
        rows = {name: rng.uniform(-0.5, 0.5, (q, run.schema.m)) for name, q in zip(run.nodes, run.sizes, strict=True)}
        return {
            name: dict(zip(run.schema.features, X.T.tolist(), strict=True)) | {"dose": (X.sum(axis=1) / 9).tolist()}
            for name, X in rows.items()
        }
    found = records(run)
    for table in found.values():
        for k, column in enumerate(run.schema.features):
            table[column] = [0.3 + value / 3 ** (k + 1) for value in table[column]]
    return found


def joined(run, tables):
    """Everybody's records in one table."""
    each = [encoded(run, name, tables) for name in run.nodes]
    X, y, usable = (np.concatenate([getattr(one, part) for one in each]) for part in ("X", "y", "usable"))
    of = run.spec.problem.features
    X = of.rows(X) * (run.spec.problem.row_norm / of.norm) if of else X
    user_ids = None
    if run.schema.unit is not None:
        user_ids = np.concatenate([[f"{i} {person}" for person in one.user_ids] for i, one in enumerate(each)])
    weights = None if run.schema.label.classes is None else usable.astype(np.float64)
    return Shards.of(X, y, np.cumsum([0, *(len(one.y) for one in each)]), user_ids=user_ids, weights=weights)


class Everybodys:
    """One generator in place of every node's own."""

    def __init__(self, each):
        self.each = each

    def words(self, nodes, rounds, first, count, level=0):
        rows = [
            self.each[i].words(np.array([i]), np.array([t]), first, count, level)
            for i, t in zip(np.asarray(nodes).tolist(), np.asarray(rounds).tolist(), strict=True)
        ]
        return np.concatenate(rows)

    def continuation(self, node, round, block):
        return self.each[node].continuation(node, round, block)


def simulated(run, tables, root):
    """The map and the models of a secure simulation of all nodes' records, from the nodes' own keys."""
    shards = joined(run, tables)
    own = keys(run, root)
    together = {purpose: Everybodys([mine[purpose] for mine in own]) for purpose in Purpose}
    found = pre_release(run.plan, shards, together)
    prepared = make_job(run.plan, shards, together, found)
    assert prepared.job.secure
    (state,) = ENGINES["reference"].run([prepared.job], [prepared.job.start()], 1, run.T)
    return found, prepared.models(state, run.T)


def tapped(net, wire):
    """Note what is said at which step, by whom."""

    def listen(sender, receiver, payload):
        known = net.links.get(receiver)
        for message in overheard(known and known.envelope, sender, payload):
            wire.setdefault((sender, message.header.round), set()).add(message.digest.hex())
        return [payload]

    net.fault = listen
    return net


def same(one, other):
    """Whether two maps are equal to the last bit, with all that they hold."""
    if not isinstance(one, PrivateScaling | Expanded | TargetRange):
        return np.array_equal(one, other)
    return all(same(value, getattr(other, field)) for field, value in vars(one).items())


def check(run, root, ends, tables, wire):
    """As simulated; every release is in the ledger, once, and on the wire as it is there; and accounted."""
    for end in ends.values():
        if isinstance(end, Exception):
            raise end
    expected_map, expected = simulated(run, tables, root)
    assert np.allclose(np.stack([ends[name].model for name in run.nodes]), expected, rtol=1e-9, atol=1e-9)
    for i, name in enumerate(run.nodes):
        store = Store(root / name, reading=True)
        rows = {row.round: row.message for row in store.rows() if row.kind == "release"}
        assert list(rows) == [0, *run.rounds(i).tolist()]
        assert all(wire[i, run.step(t)] == {message} for t, message in rows.items())
        opened = store.ledger.opened(run.digest)
        assert opened["messages"] == len(rows) and opened["event"]["before"] is not None
        assert store.verify() == []
        kept = run.first.query.finish(run.first.noisy(store.load(run.digest).means[0]))
        assert same(kept, expected_map)  # to the last bit
        store.close()
    return expected_map


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"nodes": {"north": 12, "east": 9, "south": 15}, "network__activation": "edges(1)", "rounds": 9},
        {"unit": "person"},
        {"network__averaging": "gossip(2)", "algorithm__primal": "as_written"},
        {"classes": ["no", "perhaps", "yes"], "problem__outputs": 3, "problem__loss": "logistic"},
    ],
    ids=str,
)
def test_a_run_that_begins_with_moments_equals_the_simulation(changes, tmp_path):
    run, wire = run_with(**changes), {}
    tables = tables_of(run)
    ends = whole_run(run, tables, tmp_path, tapped(Net(), wire))
    found = check(run, tmp_path, ends, tables, wire)
    assert np.abs(found.scale - 1).max() > 0.1  # it is a map, and not the identity


@pytest.mark.parametrize("changes", [{}, {"unit": "person"}], ids=str)
def test_an_additive_run_equals_the_simulation(changes, tmp_path):
    m = run_with(**changes).schema.m
    numeric = tuple((place, -1.0, 1.0) for place in range(1, m))
    of = Additive(m, numeric, 1.0, "cosine", 3, 1.0, distribution=True, pairs=((0, 1),))
    counted = Distribution(0.1, m - 1, 0.05, 1)
    mapped = {"problem__features": str(of), "privacy__moments": "none", "privacy__distribution": str(counted)}
    run, wire = run_with(**changes, **mapped), {}
    tables = tables_of(run)
    ends = whole_run(run, tables, tmp_path, tapped(Net(), wire))
    found = check(run, tmp_path, ends, tables, wire)
    assert np.abs(found.shape.scale - 1).max() > 0.1 and run.statement.features
    node = open_node(run, "north", tables, tmp_path / "north")
    assert node.public["distribution"] == [list(F) for F in found.distributions]
    verify(replace(run.spec, seed=None), node.public, run.statement, {})
    models, schema = ends["north"].model[None, :], run.schema
    result = Result(replace(run.spec, seed=None), models, History(), run.statement, node.public, scale=run.scale)
    X = encoded(run, "north", tables).X
    rows = of.rows(X, node.public["distribution"]) * (run.spec.problem.row_norm / of.norm)
    w, constant = models[0, :-1], models[0, -1] * run.spec.problem.intercept
    assert np.allclose(result.decide(X), rows @ w + constant) and result.columns == schema.m
    node.store.close()


def test_the_comparison_shows_whether_records_were_mapped(tmp_path):
    run = run_with()
    tables = tables_of(run)
    ends = whole_run(run, tables, tmp_path)
    plain = make_job(run.plan, joined(run, tables), None, None)
    (state,) = ENGINES["reference"].run([plain.job], [plain.job.start()], 1, run.T)
    found = np.stack([ends[name].model for name in run.nodes])
    assert not np.allclose(found, plain.models(state, run.T), rtol=0.05)


def test_a_regression_finds_the_range_of_its_targets(tmp_path):
    run, wire = regression(), {}
    tables = tables_of(run)
    ends = whole_run(run, tables, tmp_path, tapped(Net(), wire))
    found = check(run, tmp_path, ends, tables, wire)
    node = open_node(run, "north", tables, tmp_path / "north")
    assert node.public["targets"] == [found.low, found.high]
    verify(replace(run.spec, seed=None), node.public, run.statement, {})
    node.store.close()


def test_the_statement_counts_both(tmp_path):
    run = run_with()
    event = run.event(0)
    assert event.before is not None and 1000 < run.statement.epsilon <= 2000
    assert compute_epsilon([event], 1e-5).epsilon > compute_epsilon([replace(event, before=None)], 1e-5).epsilon


# --- crashes


class Crash(Exception):
    pass


class Doomed(DurableNode):
    """Dies once at every point of the first two releases: before it is written, before it is sent, and afterwards."""

    def __init__(self, *rest, past):
        self.past = past
        super().__init__(*rest)

    def die(self, *point):
        if (self.number, *point) not in self.past:
            self.past.add((self.number, *point))
            raise Crash

    def _release(self, t, message):
        self.die("before writing", t)
        payload = super()._release(t, message)
        self.die("before sending", t)
        return payload

    def _use(self, mean):
        super()._use(mean)
        if self._round < 0:
            self.die("mean kept")

    def turn(self, state, t):
        found = super().turn(state, t)
        self.die("mixed", t)
        return found


def test_nodes_that_die_at_every_point_go_on_as_if_nothing_had_happened(tmp_path, monkeypatch):
    run, wire, past, ends = run_with(rounds=2), {}, set(), {}
    tables, net = tables_of(run), tapped(Net(), wire)
    monkeypatch.setattr("net.DurableNode", Doomed)
    monkeypatch.setattr(Doomed, "_round", -1, raising=False)  # until a folder says where it stands

    def live(name):
        while name not in ends:
            node = open_node(run, name, tables, tmp_path / name, past=past)
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
    check(run, tmp_path, ends, tables, wire)
    points = {("before writing", t) for t in range(3)} | {("before sending", t) for t in range(3)}
    assert {point[1:] for point in past} >= points | {("mean kept",), ("mixed", 1), ("mixed", 2)}


def test_other_records_never_go_on_once_their_release_is_written(tmp_path, monkeypatch):
    run = run_with(timeout=6.0)
    tables = tables_of(run)
    past = {(0, "before writing", 0), (1, "before writing", 0), (1, "before sending", 0)}  # only north dies
    monkeypatch.setattr("net.DurableNode", Doomed)
    monkeypatch.setattr(Doomed, "_round", -1, raising=False)
    end = whole_run(run, tables, tmp_path, names=["north"], past=past)
    assert isinstance(end["north"], PeerTimeout)  # it is alone, and greets nobody: nothing is written
    changed = tables | {"north": tables["north"] | {"a": [0.1, *tables["north"]["a"][1:]]}}
    open_node(run, "north", changed, tmp_path / "north", past=past).store.close()
    ends = whole_run(run, tables, tmp_path, past=past)
    assert isinstance(ends["north"], Crash) and isinstance(ends["south"], PeerTimeout)
    store = Store(tmp_path / "north", reading=True)
    assert [row.round for row in store.rows() if row.kind == "release"] == [0]
    store.close()
    with pytest.raises(StoreError, match="begun on other records"):
        open_node(run, "north", changed, tmp_path / "north", past=past)


def test_a_second_release_is_a_fault_of_the_ledger(tmp_path):
    run = run_with(rounds=2)
    whole_run(run, tables_of(run), tmp_path)
    store = Store(tmp_path / "north")
    with pytest.raises(StoreError, match="never released twice"), store.transaction():
        store.ledger.append("release", run.digest, 0, "ab" * 32)
    rows = store.rows()
    store.close()
    release = next(row for row in rows if row.kind == "release" and row.round == 0)
    opened = next(row for row in rows if row.kind == "open")
    plain = opened._replace(detail=opened.detail | {"event": replace(run.event(0), before=None).to_dict()})
    assert not ledger._impossible(rows)
    assert any("again" in fault for fault in ledger._impossible([*rows[:-1], release]))
    assert any("again" in fault for fault in ledger._impossible([row if row != opened else plain for row in rows]))


def test_what_is_longer_than_any_honest_release_is_refused():
    run = run_with()
    first = run.first
    bound, width = longest_one_shot(first), first.query.width
    assert run.bound(0, run.step(0)) == bound and run.shape_at(run.step(0)) == (1, width)
    assert size_of(run.shape_at(1)) != size_of(run.shape_at(2)) and run.at(1) == (0, 0) and run.at(2) == (1, 0)
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2000, width)) * max(first.release.sigma)
    assert np.linalg.norm(noise, axis=1).max() + 1.0 < bound  # φ of moments is no longer than 1
    assert run.when(1) == "the release before round 1" and run.when(2) == "round 1"
