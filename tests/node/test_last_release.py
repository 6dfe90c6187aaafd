"""What is released once on real nodes beside the rounds of a descent: counts of scores after them, and statistics."""

import csv
import json
import threading
from dataclasses import replace

import numpy as np
import pytest
from net import Net, open_node, records, run_file, whole_run
from test_first_release import MOMENTS, Crash, Doomed, Everybodys, joined, keys, make_run, same, tables_of, tapped
from test_mpi import needs_mpi, start

from sottovoce.algorithm.statistics import Statistics
from sottovoce.engine import ENGINES
from sottovoce.node import transport
from sottovoce.node.bounds import longest_one_shot
from sottovoce.node.store import Store
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.run.build import make_job, pre_release
from sottovoce.run.inference import release_stages, start_of
from sottovoce.run.one_shot import OneShotRelease
from sottovoce.run.private_threshold import Scored
from sottovoce.run.result import Result
from sottovoce.run.verify import verify
from sottovoce.secure.generator import Purpose

BALANCED = MOMENTS | {"privacy__moments": "none", "privacy__balance": "balance(0.2, 0.3)", "problem__loss": "logistic"}
STATISTICS = {
    "label": "dose",
    "privacy__moments": "none",
    "privacy__sampling": "full",
    "problem__loss": "squared",
    "algorithm__method": "statistics",
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(transport, "RESEND_MAX", 0.02)


def balanced_run(rounds=5, **changes):
    return make_run(run_file(rounds, **(BALANCED | changes)))


def statistics_run(**changes):
    whole = run_file(1, **(MOMENTS | STATISTICS | changes))
    del whole["classes"]
    whole["spec"]["algorithm"].pop("gamma")
    return make_run(whole)


def posed(run, tables):
    """Everybody's records, with the weights of a run whose threshold balances two classes."""
    shards = joined(run, tables)
    half = np.where(shards.y > 0, *run.spec.privacy.balance.weights[::-1])
    return replace(shards, weights=shards.weights * half) if run.last_releases else shards


def simulated(run, tables, root):
    """The models of a secure simulation from the nodes' own keys, and the constant that moves its scores."""
    shards, own = posed(run, tables), keys(run, root)
    together = {purpose: Everybodys([mine[purpose] for mine in own]) for purpose in Purpose}
    found = pre_release(run.plan, shards, together)
    prepared = make_job(run.plan, shards, together, found)
    (state,) = ENGINES["reference"].run([prepared.job], [prepared.job.start()], 1, run.T)
    models = prepared.models(state, run.T)
    if not run.last_releases:
        return models, 0.0
    scored, release = Scored.of(run.spec, prepared.original.shards, models.mean(axis=0)), run.plan.release.before

    def followed(query, when):
        part = OneShotRelease(query, release, shards.sizes, when)
        return part.finish(part.released(shards, None, together))

    edges = followed(scored.where(), run.T + 1)
    moved = scored.moved(followed(scored.classes(edges), run.T + 2))
    models = np.array(models)
    models[:, -1] += moved / run.spec.problem.intercept
    return models, moved


def check(run, root, ends, tables, wire=None):
    """As simulated; every release is in the ledger, once, and on the wire as it is there."""
    assert not [end for end in ends.values() if isinstance(end, Exception)]
    expected, moved = simulated(run, tables, root)
    found = np.stack([ends[name].model for name in run.nodes])
    assert np.allclose(found, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())
    for i, name in enumerate(run.nodes):
        store = Store(root / name, reading=True)
        rows = {row.round: row.message for row in store.rows() if row.kind == "release"}
        outside = [run.T + 2, run.T + 3] if run.after else []
        assert list(rows) == [*([0] if run.before else []), *run.rounds(i).tolist(), *outside]
        assert wire is None or all(wire.get((i, run.step(t)), {message}) == {message} for t, message in rows.items())
        assert store.ledger.opened(run.digest)["messages"] == len(rows) and store.verify() == []
        store.close()
    return moved


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"nodes": {"north": 12, "east": 9, "south": 15}, "network__activation": "edges(1)", "rounds": 7},
        {"privacy__moments": "moments(0.05, 0.1, 0.1)", "unit": "person"},
        {"nodes": {"north": 12, "east": 9, "south": 15}, "network__averaging": "exact"},
    ],
    ids=str,
)
def test_a_threshold_on_nodes_equals_the_simulation(changes, tmp_path):
    run, wire = balanced_run(**changes), {}
    tables = tables_of(run)
    ends = whole_run(run, tables, tmp_path, tapped(Net(), wire))
    moved = check(run, tmp_path, ends, tables, wire)
    assert abs(moved) > 1e-3
    node = open_node(run, "north", tables, tmp_path / "north")
    assert node.public["moved"] == pytest.approx(moved, rel=1e-9)
    assert np.linalg.norm(ends["north"].model) <= node.model_bound
    verify(replace(run.spec, seed=None), node.public, run.statement, {})
    node.store.close()


def test_the_counts_are_paid_for():
    run = balanced_run()
    event = run.event(0)
    assert event.before is not None and run.before == 0 and run.outside == 2 and run.after == 3
    assert compute_epsilon([event], 1e-5).epsilon > compute_epsilon([replace(event, before=None)], 1e-5).epsilon


def test_steps_and_rounds_name_each_other():
    run = balanced_run()
    T = run.T
    assert [run.at(step) for step in range(T, run.last + 1)] == [(T, 0), (T + 1, 1), (T + 2, 0), (T + 3, 0)]
    assert all(run.step(*run.at(step)) == step for step in range(run.last + 1))
    shapes = [run.shape_at(step) for step in range(T, run.last + 1)]
    assert shapes[:2] == [run.shape, (1, run.m)] and [shape[1] for shape in shapes[2:]] == [1364, 20]
    assert run.bound(0, run.last) == longest_one_shot(run.last_releases[1])
    assert "models" in run.when(T + 1) and "after the last round" in run.when(T + 2)
    assert set(run.neighbors(0)) == {1}


class DoomedToTheEnd(Doomed):
    """Dies at every point of the releases after the last round, too."""

    def _show_model(self, t, model):
        payload = super()._show_model(t, model)
        self.die("model shown", t)
        return payload

    def _keep_mean(self, t, mean):
        if t == 0:
            return super()._keep_mean(t, mean)
        self.die("mean known", t)
        found = super()._keep_mean(t, mean)
        self.die("mean kept", t)
        return found


def live_through(run, tables, root, net, past, ends):
    """Run all nodes, each begun again whenever it dies."""

    def live(name):
        while name not in ends:
            node = open_node(run, name, tables, root / name, past=past)
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


@pytest.mark.parametrize("changes", [{}, {"privacy__moments": "moments(0.05, 0.1, 0.1)"}], ids=str)
def test_nodes_that_die_after_the_last_round_go_on(changes, tmp_path, monkeypatch):
    run, wire, past, ends = balanced_run(rounds=2, **changes), {}, set(), {}
    tables, net = tables_of(run), tapped(Net(), wire)
    monkeypatch.setattr("net.DurableNode", DoomedToTheEnd)
    monkeypatch.setattr(DoomedToTheEnd, "_round", -1, raising=False)

    live_through(run, tables, tmp_path, net, past, ends)
    check(run, tmp_path, ends, tables, wire)
    T = run.T
    expected = {("model shown", T + 1)} | {(f"mean {what}", T + k) for what in ("known", "kept") for k in (1, 2, 3)}
    expected |= {(f"before {what}", T + k) for what in ("writing", "sending") for k in (2, 3)}
    assert expected <= {point[1:] for point in past}


INTERVALS = BALANCED | {"privacy__balance": "none", "privacy__inference": "inference(0.9, 1.5, 1.8)"}


def published(run, tables, root):
    """What a secure simulation from the nodes' own keys publishes for its intervals."""
    shards, own = joined(run, tables), keys(run, root)
    together = {purpose: Everybodys([mine[purpose] for mine in own]) for purpose in Purpose}
    found = pre_release(run.plan, shards, together)
    prepared = make_job(run.plan, shards, together, found)
    (state,) = ENGINES["reference"].run([prepared.job], [prepared.job.start()], 1, run.T)
    start = start_of(run.spec, prepared.models(state, run.T).mean(axis=0))
    return release_stages(run.spec, prepared.original.shards, run.plan.release.before, start, together)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"nodes": {"north": 12, "east": 9, "south": 15}, "network__activation": "edges(1)", "rounds": 7},
        {"privacy__moments": "moments(0.02, 0.02)", "unit": "person"},
        {"label": "dose", "problem__loss": "squared", "privacy__clip": 1.0},
    ],
    ids=str,
)
def test_sums_for_intervals_of_nodes_equal_the_simulation(changes, tmp_path):
    """Every stage follows from the ones before it, and each is released and paid for once."""
    rounds = changes.get("rounds", 3)
    whole = run_file(rounds, **(INTERVALS | {key: value for key, value in changes.items() if key != "rounds"}))
    if whole["label"] == "dose":
        del whole["classes"]
    run, wire = make_run(whole), {}
    tables = tables_of(run)
    ends = whole_run(run, tables, tmp_path, tapped(Net(), wire))
    assert not [end for end in ends.values() if isinstance(end, Exception)]
    expected = published(run, tables, tmp_path)
    for i, name in enumerate(run.nodes):
        node = open_node(run, name, tables, tmp_path / name)
        found = node.public["inference"]
        assert np.allclose(found["start"], expected["start"], rtol=1e-9)
        assert [len(mean) for mean in found["means"]] == [len(mean) for mean in expected["means"]]
        for mine, its in zip(found["means"], expected["means"], strict=True):
            assert np.allclose(mine, its, rtol=1e-6, atol=1e-6)
        assert found["deviation"] == pytest.approx(expected["deviation"])
        rows = {row.round: row.message for row in node.store.rows() if row.kind == "release"}
        outside = list(range(run.T + 2, run.T + 2 + len(found["means"])))
        assert list(rows) == [*([0] if run.before else []), *run.rounds(i).tolist(), *outside]
        assert all(wire.get((i, run.step(t)), {message}) == {message} for t, message in rows.items())
        verify(replace(run.spec, seed=None), node.public, run.statement, {})
        node.store.close()


def test_nodes_that_die_between_sums_for_intervals_go_on(tmp_path, monkeypatch):
    run, wire, past, ends = make_run(run_file(2, **INTERVALS)), {}, set(), {}
    tables, net = tables_of(run), tapped(Net(), wire)
    monkeypatch.setattr("net.DurableNode", DoomedToTheEnd)
    monkeypatch.setattr(DoomedToTheEnd, "_round", -1, raising=False)
    live_through(run, tables, tmp_path, net, past, ends)
    expected, T = published(run, tables, tmp_path), run.T
    assert not [end for end in ends.values() if isinstance(end, Exception)]
    store = Store(tmp_path / "north", reading=True)
    kept = store.load(run.digest).means
    store.close()
    assert np.allclose(kept[T + 5], expected["means"][-1], rtol=1e-6, atol=1e-6)
    assert {(f"mean {what}", T + k) for what in ("known", "kept") for k in range(1, 6)} <= {one[1:] for one in past}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"nodes": {"north": 12, "east": 9, "south": 15}, "network__averaging": "exact"},
        {"privacy__quantiles": "quantiles(0.2)"},
        {"unit": "person"},
        {"algorithm__method": "mean"},
    ],
    ids=str,
)
def test_statistics_of_nodes_equal_the_simulation(changes, tmp_path):
    run, wire = statistics_run(**changes), {}
    tables = tables_of(run)
    if run.schema.unit is not None:
        for name, table in tables.items():
            table["person"] = [f"p{max(k - 3, 0)}" for k in range(len(table["dose"]) + 3)][: len(table["dose"])]
            run = replace_size(run, name, len(set(table["person"])))
    ends = whole_run(run, tables, tmp_path, tapped(Net(), wire))
    check(run, tmp_path, ends, tables, wire)
    node = open_node(run, "north", tables, tmp_path / "north")
    method = run.plan.method
    assert isinstance(method, Statistics) and node.statistics.shape == (method.numbers,) == (run.shape[1],)
    assert np.linalg.norm(ends["north"].model) <= node.model_bound < np.inf
    assert same(ends["north"].model, ends["south"].model)
    node.store.close()


def replace_size(run, name, size):
    whole = run_file(1, **(MOMENTS | STATISTICS | {"unit": "person"}))
    sizes = dict(zip(run.nodes, run.sizes, strict=True)) | {name: size}
    del whole["classes"]
    whole["spec"]["algorithm"].pop("gamma")
    return make_run(whole | {"nodes": sizes})


def test_a_message_of_statistics_within_its_bound_is_no_shorter_than_honest_ones():
    run = statistics_run()
    plan = run.plan
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2000, run.shape[1])) * max(plan.release.sigma)
    assert np.linalg.norm(noise, axis=1).max() + plan.release.clip < run.bound(0, 1) < 10 * plan.release.clip + 1e6


def test_records_of_people_are_no_examples_of_classes(tmp_path):
    """The scores that are counted are those of the records as they came, not of mapped ones."""
    run = balanced_run(privacy__moments="moments(0.05, 0.1, 0.1)")
    tables = records(run)
    ends = whole_run(run, tables, tmp_path)
    check(run, tmp_path, ends, tables)


def test_counts_whose_noise_pairs_share_have_none_of_it_in_their_mean(tmp_path):
    """A wrong sum has no chance: six deviations of what is left, where a node's own release has over a hundred."""
    four = {"nodes": {"north": 12, "east": 12, "south": 12, "west": 12}, "privacy__sampling": "full"}
    shared = {"privacy__law": "pairs(30)", "privacy__adversary": "secret_pairs(1)", "privacy__noise": "private(200)"}
    run = balanced_run(2, **four, **shared)
    tables = records(run)
    ends = whole_run(run, tables, tmp_path)
    assert not [end for end in ends.values() if isinstance(end, Exception)]
    shards, where = posed(run, tables), run.last_releases[0]
    nodes = [open_node(run, name, tables, tmp_path / name) for name in run.nodes]
    models = [node.model() for node in nodes]
    assert all(np.array_equal(model, models[0]) for model in models) and nodes[0].moved
    kept = [node.store.load(run.digest).means for node in nodes]
    assert all(np.array_equal(means[t], kept[0][t]) for means in kept for t in kept[0])
    mean = np.array(models[0])
    mean[-1] -= nodes[0].moved / run.spec.problem.intercept
    exact = where.weights @ Scored.of(run.spec, shards, mean).where().means(shards)
    left = where.noisy(kept[0][run.T + 2])
    assert np.abs(left.mean - exact).max() < 6.0 * left.deviation
    assert min(run.plan.release.before.sigma) > 1.9 * left.deviation  # each alone: the pairs' part is 30 times as much
    for node in nodes:
        node.store.close()


RUN_TOML = """
run = "first"
schedule_seed = 5
timeout = 60.0
features = ["a", "b", "c"]
label = "sick"
classes = ["no", "yes"]
[nodes]
north = 12
east = 9
south = 15
west = 10
[spec.algorithm]
rounds = 5
gamma = "constant(2)"
[spec.problem]
h = "l2(0.05)"
loss = "logistic"
intercept = 0.5
[spec.network]
activation = "everyone"
correct = true
[spec.privacy]
sampling = "poisson(4)"
noise = "private(2000)"
balance = "balance(0.2, 0.3)"
"""


@needs_mpi
@pytest.mark.slow
def test_a_threshold_over_mpi_equals_the_simulation(tmp_path):
    run = balanced_run(nodes={"north": 12, "east": 9, "south": 15, "west": 10}, timeout=60.0)
    (tmp_path / "run.toml").write_text(RUN_TOML)
    tables = records(run)
    for name, table in tables.items():
        with open(tmp_path / f"{name}.csv", "w", newline="") as file:
            csv.writer(file).writerows([list(table), *zip(*table.values(), strict=True)])
    job = start(tmp_path, "--budget", "1e6", flags=())
    out, err = job.communicate(timeout=300)
    assert job.returncode == 0, err
    said = {row["node"]: row for row in map(json.loads, out.splitlines())}
    assert {row["run"] for row in said.values()} == {run.digest}
    found = [Result.load(said[name]["saved"]) for name in run.nodes]
    expected, moved = simulated(run, tables, tmp_path / "nodes")
    assert np.allclose(np.stack([one.model for one in found]), expected, rtol=1e-12, atol=1e-12)
    assert all(one.public["moved"] == pytest.approx(moved, rel=1e-9) for one in found)
