"""What real nodes release once, beside the rounds of a descent: what follows from it, its ledger, its bounds, its cost.

That it is what a simulation releases, also after kills, is in `test_contract.py`.
"""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from net import encoded, open_node, records, whole_run
from simulation import Crash, Doomed, joined, live, simulated, tables_of
from test_contract import ADDITIVE, BALANCE, COUNTED, FOUR, REGRESSION, STATISTICS, THREE, run_with
from test_mpi import needs_mpi, start

from sottovoce.algorithm.statistics import Statistics
from sottovoce.engine import ENGINES
from sottovoce.errors import PeerTimeout, StoreError
from sottovoce.node import ledger, transport
from sottovoce.node.bounds import longest_one_shot
from sottovoce.node.message import size_of
from sottovoce.node.store import Store
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.run.build import make_job
from sottovoce.run.private_threshold import Scored
from sottovoce.run.result import History, Result
from sottovoce.run.verify import verify

MOMENTS = {"privacy__moments": "moments(0.05, 0.1, 0.2)"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(transport, "RESEND_MAX", 0.02)


def public_of(run, tables, root):
    """The public numbers at a node that is done, which verify."""
    node = open_node(run, "north", tables, root / "north")
    found = node.public
    verify(replace(run.spec, seed=None), found, run.statement, {})
    node.store.close()
    return found


def test_the_comparison_shows_whether_records_were_mapped(tmp_path):
    run = run_with(6, **MOMENTS)
    tables = tables_of(run)
    ends, expected, _ = live(run, tables, tmp_path)
    assert np.abs(expected.map.scale - 1).max() > 0.1  # it is a map, and not the identity
    plain = make_job(run.plan, joined(run, tables), None, None)
    (state,) = ENGINES["reference"].run([plain.job], [plain.job.start()], 1, run.T)
    found = np.stack([ends[name].model for name in run.nodes])
    assert not np.allclose(found, plain.models(state, run.T), rtol=0.05)


@pytest.mark.parametrize("changes", [{}, {"unit": "person"}], ids=str)
def test_a_result_of_an_additive_run_scores_new_records(changes, tmp_path):
    run = run_with(6, **ADDITIVE, **changes)
    tables = tables_of(run)
    ends, expected, _ = live(run, tables, tmp_path)
    assert np.abs(expected.map.shape.scale - 1).max() > 0.1 and run.statement.features
    public = public_of(run, tables, tmp_path)
    assert public["distribution"] == [list(F) for F in expected.map.distributions]
    models = ends["north"].model[None, :]
    result = Result(replace(run.spec, seed=None), models, History(), run.statement, public, scale=run.scale)
    X = encoded(run, "north", tables).X
    rows = COUNTED.rows(X, public["distribution"]) * (run.spec.problem.row_norm / COUNTED.norm)
    w, constant = models[0, :-1], models[0, -1] * run.spec.problem.intercept
    assert np.allclose(result.decide(X), rows @ w + constant) and result.columns == run.schema.m


def test_a_regression_publishes_the_range_of_its_targets(tmp_path):
    run = run_with(6, **REGRESSION | {"privacy__quantiles": "quantiles(0.2)", "problem__loss": "absolute"})
    tables = tables_of(run)
    _, expected, _ = live(run, tables, tmp_path)
    assert public_of(run, tables, tmp_path)["targets"] == [expected.map.low, expected.map.high]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"nodes": THREE, "network__activation": "edges(1)", "rounds": 7},
        {"privacy__moments": "moments(0.05, 0.1, 0.1)", "unit": "person"},
    ],
    ids=str,
)
def test_a_threshold_is_public_and_within_the_bound_of_models(changes, tmp_path):
    run = run_with(**BALANCE | changes)
    tables = tables_of(run)
    ends, expected, _ = live(run, tables, tmp_path)
    assert abs(expected.moved) > 1e-3
    assert public_of(run, tables, tmp_path)["moved"] == pytest.approx(expected.moved, rel=1e-9)
    node = open_node(run, "north", tables, tmp_path / "north")
    assert np.linalg.norm(ends["north"].model) <= node.model_bound
    node.store.close()


@pytest.mark.parametrize("changes", [{}, {"algorithm__method": "mean"}, {"network__averaging": "exact"}], ids=str)
def test_all_nodes_have_the_same_statistics_and_model(changes, tmp_path):
    run = run_with(**STATISTICS | changes)
    tables = tables_of(run)
    ends = whole_run(run, tables, tmp_path)
    node = open_node(run, "north", tables, tmp_path / "north")
    method = run.plan.method
    assert isinstance(method, Statistics) and node.statistics.shape == (method.numbers,) == (run.shape[1],)
    assert np.linalg.norm(ends["north"].model) <= node.model_bound < np.inf
    assert np.allclose(ends["north"].model, ends["south"].model, rtol=1e-12, atol=1e-14)
    node.store.close()


@pytest.mark.parametrize("changes", [MOMENTS, BALANCE], ids=["moments", "threshold counts"])
def test_the_statement_counts_both(changes):
    run = run_with(**changes)
    event = run.event(0)
    assert event.before is not None and 1000 < run.statement.epsilon <= 2000
    assert compute_epsilon([event], 1e-5).epsilon > compute_epsilon([replace(event, before=None)], 1e-5).epsilon


def test_a_node_that_had_all_but_its_last_word_on_the_disk_needs_nobody(tmp_path, monkeypatch):
    """Its peers may have left: they had all that they needed of it."""
    run = run_with(2, **BALANCE, timeout=4.0)
    tables, last = tables_of(run), run.T + run.after
    monkeypatch.setattr("net.DurableNode", Doomed)
    spared = all_but(run, "south", "mean kept", last)
    ends = whole_run(run, tables, tmp_path, past=spared)
    assert isinstance(ends["south"], Crash) and ends["north"].unheard == ("south",)
    again = whole_run(run, tables, tmp_path, names=["south"], past=spared)["south"]
    assert np.allclose(again.model, ends["north"].model, rtol=1e-12, atol=1e-14)
    assert set(again.unheard) == {"north", "east"}


def all_but(run, name, *point):
    """All points that there may be, as ones that every node is past, but for one of one node."""
    whats = ("before writing", "before sending", "mean known", "mean kept", "mixed", "model shown")
    times = range(run.T + run.after + 1)
    return {(i, what, t) for i in range(run.n) for what in whats for t in times} - {(run.number(name), *point)}


def test_other_records_never_go_on_once_their_release_is_written(tmp_path, monkeypatch):
    run = run_with(6, **MOMENTS, timeout=6.0)
    tables, past = tables_of(run), all_but(run_with(6, **MOMENTS), "north", "before sending", 0)
    monkeypatch.setattr("net.DurableNode", Doomed)
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
    run = run_with(2, **MOMENTS)
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
    run = run_with(6, **MOMENTS)
    first = run.first
    bound, width = longest_one_shot(first), first.query.width
    assert run.bound(0, run.step(0)) == bound and run.shape_at(run.step(0)) == (1, width)
    assert size_of(run.shape_at(1)) != size_of(run.shape_at(2)) and run.at(1) == (0, 0) and run.at(2) == (1, 0)
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2000, width)) * max(first.release.sigma)
    assert np.linalg.norm(noise, axis=1).max() + 1.0 < bound  # φ of moments is no longer than 1
    assert run.when(1) == "the release before round 1" and run.when(2) == "round 1"


def test_a_message_of_statistics_within_its_bound_is_no_shorter_than_honest_ones():
    run = run_with(**STATISTICS)
    plan = run.plan
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2000, run.shape[1])) * max(plan.release.sigma)
    assert np.linalg.norm(noise, axis=1).max() + plan.release.clip < run.bound(0, 1) < 10 * plan.release.clip + 1e6


def test_steps_and_rounds_name_each_other():
    run = run_with(5, **BALANCE | {"nodes": {"north": 12, "east": 12}})
    T = run.T
    assert run.before == 0 and run.outside == 2 and run.after == 3
    assert [run.at(step) for step in range(T, run.last + 1)] == [(T, 0), (T + 1, 1), (T + 2, 0), (T + 3, 0)]
    assert all(run.step(*run.at(step)) == step for step in range(run.last + 1))
    shapes = [run.shape_at(step) for step in range(T, run.last + 1)]
    assert shapes[:2] == [run.shape, (1, run.m)] and [shape[1] for shape in shapes[2:]] == [1364, 20]
    assert run.bound(0, run.last) == longest_one_shot(run.last_releases[1])
    assert "models" in run.when(T + 1) and "after the last round" in run.when(T + 2)
    assert set(run.neighbors(0)) == {1}


def test_counts_whose_noise_pairs_share_have_none_of_it_in_their_mean(tmp_path):
    """A wrong sum has no chance: six deviations of what is left, where a node's own release has over a hundred."""
    four = {"nodes": {"north": 12, "east": 12, "south": 12, "west": 12}, "privacy__sampling": "full"}
    shared = {"privacy__law": "pairs(30)", "privacy__adversary": "secret_pairs(1)", "privacy__noise": "private(200)"}
    run = run_with(2, **BALANCE | four | shared)
    tables = records(run)
    ends = whole_run(run, tables, tmp_path)
    assert not [end for end in ends.values() if isinstance(end, Exception)]
    shards, where = joined(run, tables), run.last_releases[0]
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
    run = run_with(5, **BALANCE | {"nodes": FOUR}, timeout=60.0)
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
    expected = simulated(run, tables, tmp_path / "nodes")
    assert np.allclose(np.stack([one.model for one in found]), expected.models, rtol=1e-12, atol=1e-12)
    assert all(one.public["moved"] == pytest.approx(expected.moved, rel=1e-9) for one in found)
