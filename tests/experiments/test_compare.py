"""A comparison: equal budgets, rankings that never mix adversaries, and tables that go on where they were."""

import itertools
import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

from sottovoce.errors import DataError, SpecError
from sottovoce.experiments.baselines import BASELINES, merged
from sottovoce.experiments.compare.ranking import figure, summarize
from sottovoce.experiments.compare.study import KEY, Point, Study, compare, nearly_equal
from sottovoce.experiments.data import FEATURE_MAPS, PARTITIONS, load
from sottovoce.experiments.table import save_rows
from sottovoce.problem.losses import LOSSES
from sottovoce.run.solve import solve
from sottovoce.run.spec import AlgorithmSpec, Execution, Spec

SETTINGS = {"h": "l2(0.1)", "batch": 16, "epochs": 2.0}
NAMES = ["dsgd", "tracking", "decor", "dpsgd", "output"]


@pytest.fixture(scope="module")
def data():
    return load("breast_cancer", loss=LOSSES.make("logistic"))


def study_of(data, names=NAMES, settings=SETTINGS, **what):
    return Study.of(data, names, settings, nodes=5, **what)


@pytest.fixture(scope="module")
def table(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("compare") / "runs.parquet"
    return out, compare(study_of(data, epsilons=(1.0, 2.0), seeds=2), out)


def test_every_row_is_a_run_with_its_budget(table, data):
    _, rows = table
    assert len(rows) == len(NAMES) * 2 * 2 and len({tuple(r[k] for k in KEY) for r in rows}) == len(rows)
    for row in rows:
        assert 0.98 * row["epsilon"] < row["true_epsilon"] <= row["epsilon"] * (1 + 1e-6)
        assert row["adjacency"] == "replace one record of one node" and row["suboptimality"] > 0
        assert (row["adversary"] == "central") == BASELINES[row["algorithm"]].central
        assert (row["bytes"] == 0) == (row["adversary"] == "central")
        assert {"sottovoce", "python", "numpy", "machine", "cores", "engine", "seconds"} <= set(row)
    row = next(r for r in rows if r["algorithm"] == "dpsgd")
    again = solve(Spec.from_json(row["spec"]), merged(data.partition(5)), execution=Execution(observations=1))
    assert again.history.last["objective"] == row["objective"]  # a row can be run again from itself


def test_a_comparison_continues_where_it_was(table, data, monkeypatch):
    out, rows = table
    run = []
    monkeypatch.setattr(
        "sottovoce.experiments.compare.study.run_cells",
        lambda study, cells, f_star, engine: run.append(*cells) or [{"cell": cells[0]}],
    )
    study = study_of(data, epsilons=(1.0, 2.0), seeds=2)
    assert compare(study, out) == rows and not run
    assert pq.read_table(out).schema.metadata[b"privacy"].startswith(b"not private")
    with pytest.raises(KeyError):  # the stand-in's rows have no key
        compare(study_of(data, epsilons=(1.0, 2.0), seeds=3), out)
    assert len(run) == 1 and run[0].seed == 2
    with pytest.raises(KeyError):  # other settings are other runs
        compare(study_of(data, settings=SETTINGS | {"epochs": 3.0}), out)
    assert run[1].seed == 0


def test_a_row_of_another_version_is_run_again(table, data, tmp_path):
    _, rows = table
    old = [dict(row) for row in rows if row["epsilon"] == 1.0 and row["seed"] == 0]
    spoilt = next(row for row in old if row["algorithm"] == "dsgd")
    spoilt["spec"], spoilt["objective"] = (
        Spec.from_json(spoilt["spec"]).replace(algorithm__eta="constant(9)").to_json(),
        7.0,
    )
    save_rows(old, tmp_path / "old.parquet")
    again = compare(study_of(data, seeds=1), tmp_path / "old.parquet")
    fresh = [row for row in rows if row["epsilon"] == 1.0 and row["seed"] == 0]
    assert [r["objective"] for r in again] == [r["objective"] for r in fresh]


def test_a_run_in_another_spelling_is_the_same_run(table, data, monkeypatch):
    out, rows = table
    monkeypatch.setattr("sottovoce.experiments.compare.study.run_cells", None)  # nothing is left to run
    assert compare(study_of(data, settings=SETTINGS | {"h": "l2:0.10"}, epsilons=(1.0, 2.0), seeds=2), out) == rows


def test_specs_are_the_same_up_to_six_digits_of_their_numbers_alone():
    spec = Spec.from_json(Spec(AlgorithmSpec(rounds=50, eta="constant(0.123456789)"), seed=2**31 - 1).to_json())
    assert nearly_equal(spec, spec.replace(algorithm__eta="constant:0.12345678"))
    assert nearly_equal(spec, spec.replace(privacy__delta=1e-5 * (1 + 1e-9)))
    for change in (
        {"algorithm__eta": "constant(0.1234)"},
        {"algorithm__eta": "inverse_sqrt(0.123456789)"},
        {"algorithm__rounds": 51},
        {"seed": 2**31 - 2},
        {"network__activation": "edges(2)"},
        {"privacy__delta": 1.1e-5},
        {"privacy__clip": 1.0},
        {"algorithm__distance": "euclidean(0.0)"},
        {"network__correct": True},
    ):
        assert not nearly_equal(spec, spec.replace(**change)), change


def test_a_row_of_a_version_with_other_fields_is_run_again(table, data, tmp_path):
    _, rows = table
    old = dict(next(row for row in rows if row["algorithm"] == "dsgd"))
    parts = json.loads(old["spec"])
    del parts["network"]["every"]
    save_rows([old | {"spec": json.dumps(parts), "objective": 7.0}], tmp_path / "old.parquet")
    (again,) = compare(study_of(data, ["dsgd"], seeds=1), tmp_path / "old.parquet")
    assert again["objective"] == old["objective"]


def test_rankings_never_mix_adversaries(table):
    _, rows = table
    lines = summarize(rows)
    assert len(lines) == len(NAMES) * 2
    for epsilon in (1.0, 2.0):
        for adversary, names in (("transcript", {"dsgd", "tracking"}), ("secret_pairs", {"decor"})):
            mine = [x for x in lines if x.epsilon == epsilon and x.adversary == adversary]
            assert {x.algorithm for x in mine} == names and [x.rank for x in mine] == list(range(1, len(mine) + 1))
            assert sorted(x.objective.mean for x in mine) == [x.objective.mean for x in mine]
            assert all(x.objective.seeds == 2 and x.true_epsilon <= epsilon + 1e-6 for x in mine)


def test_the_figure_has_every_interval_once(table):
    _, rows = table
    lines = summarize(rows)
    drawn = figure(lines)
    assert [row[0].title.split("'")[1] for row in drawn.rows] == ["transcript", "secret_pairs", "central"]
    found = {
        (panel.name.rsplit("-")[-1], group, who): ends
        for panel in drawn.panels
        for group, things in panel.groups.items()
        for who, ends in things.items()
    }
    assert len(found) == 2 * len(lines)
    for line in lines:
        mean, low, high = found["suboptimality", f"ε = {line.epsilon:g}", line.algorithm]
        assert (mean, low, high) == (line.suboptimality.mean, line.suboptimality.low, line.suboptimality.high)
        mean, low, high = found["test_accuracy", f"ε = {line.epsilon:g}", line.algorithm]
        assert 0 <= low <= mean <= high <= 1
    assert all(panel.log == panel.name.endswith("suboptimality") for panel in drawn.panels)


def test_every_method_is_tuned_by_one_protocol(data, tmp_path):
    grid = (Point(), Point(3.0, 1.0), Point(3.0, 0.01))
    names = ["sottovoce", "dsgd", "dpsgd"]
    study = study_of(data, names, seeds=2, tuned=True, grid=grid)
    rows = compare(study, tmp_path / "t.parquet")
    plain, tuned = ([row for row in rows if row["tuned"] is which] for which in (False, True))
    assert all(row["true_epsilon"] <= 1 + 1e-6 and row["protocol"] == "" for row in plain)
    for row in tuned:
        assert math.isnan(row["true_epsilon"]) and (row["factor"], row["shrink"]) in grid
        assert "3 settings" in row["protocol"] and row["search_epsilon"] > 1.2
    assert [x.tuned for x in summarize(rows)] == [False, False, True, True, False, True]
    again = compare(study_of(data, names, seeds=3, tuned=True, grid=grid), tmp_path / "t.parquet")
    for name in names:  # chosen once
        assert len({(r["factor"], r["shrink"]) for r in again if r["tuned"] and r["algorithm"] == name}) == 1
    other = study_of(data, ["dsgd"], seeds=1, tuned=True, grid=grid[:1])  # another protocol is another run
    assert not other.holds(other.cells()[-1], next(r for r in tuned if r["algorithm"] == "dsgd"))


def test_settings_are_judged_on_records_that_are_neither_trained_nor_tested_on(data):
    study = study_of(data, ["dsgd"])
    trials = study.trials
    rows = {part: {row.tobytes() for row in np.asarray(table.X)} for part, table in (
        ("trained", trials.dataset.records), ("judged", trials.dataset.held_out), ("test", data.held_out),
    )}  # fmt: skip
    assert not rows["trained"] & rows["judged"] and not rows["test"] & (rows["trained"] | rows["judged"])
    assert len(rows["judged"]) == len(study.dataset.records.X) // 5
    assert sum(trials.inputs.sizes) == len(rows["trained"]) and trials.inputs.n == 5


def test_f_of_a_tuned_run_is_of_the_common_objective(data):
    study = study_of(data, ["dsgd"], seeds=1, tuned=True, grid=(Point(1.0, 0.01),))
    row = next(r for r in compare(study) if r["tuned"])
    result = solve(Spec.from_json(row["spec"]), study.shards, execution=Execution(observations=1))
    assert str(result.spec.problem.h) == "l2(0.001)" and row["objective"] == study.problem.value(result.model)


@pytest.mark.parametrize("way", ["dirichlet(0.3)", "by_label", "by_size(10)", "by_column(3)"])
def test_partitions_hold_every_record_once(data, way):
    parts = data.parts(5, partition=PARTITIONS.read(way))
    offsets, order = parts
    assert sorted(order.tolist()) == list(range(len(data.y))) and offsets[-1] == len(data.y)
    again = data.parts(5, partition=PARTITIONS.read(way))
    assert np.array_equal(order, again[1])  # always the same
    y, x = data.y[order], np.asarray(data.records.X)[order, 3]
    nodes = [slice(a, b) for a, b in itertools.pairwise(offsets)]
    if way == "by_label":
        assert sum(len(np.unique(y[node])) > 1 for node in nodes) <= 1
    if way == "by_column(3)":
        assert all(x[a].max() <= x[b].min() for a, b in itertools.pairwise(nodes))
    if way == "by_size(10)":
        assert 8 < np.diff(offsets).max() / np.diff(offsets).min() < 12
    if way.startswith("dirichlet"):
        assert np.ptp([np.mean(y[node] > 0) for node in nodes]) > 0.3


def test_a_comparison_knows_its_partition(data, tmp_path):
    """Baselines on uneven nodes: descent is no worse than a node's own share of the records would make it."""
    way = PARTITIONS.read("by_size(50)")
    out = tmp_path / "p.parquet"
    rows = compare(study_of(data, ["dsgd", "sottovoce"], seeds=2, partition=way), out)
    assert {row["partition"] for row in rows} == {"by_size(50)"} and all(
        row["true_epsilon"] <= 1 + 1e-6 for row in rows
    )
    assert compare(study_of(data, ["dsgd"], seeds=1), out)[0]["partition"] == "even"
    lines = summarize(rows)
    assert {line.what for line in lines} == {"breast_cancer, by_size(50)"}
    with pytest.raises(SpecError, match="no column 99"):
        study_of(data, ["dsgd"], partition=PARTITIONS.read("by_column(99)"))


def test_a_table_of_an_earlier_version_has_even_partitions(table, data, tmp_path, monkeypatch):
    _, rows = table
    old = [{k: v for k, v in row.items() if k not in ("partition", "shrink", "protocol")} for row in rows]
    save_rows(old, tmp_path / "old.parquet")
    monkeypatch.setattr("sottovoce.experiments.compare.study.run_cells", None)  # nothing is left to run
    again = compare(study_of(data, epsilons=(1.0, 2.0), seeds=2), tmp_path / "old.parquet")
    assert [row["objective"] for row in again] == [row["objective"] for row in rows]


def test_neighbors_are_distinguished_by_paired_differences():
    """Means 0.1 apart among seeds that are 1 apart: tied by intervals, not by pairs."""
    row = {"data": "d", "epsilon": 1.0, "adversary": "transcript", "tuned": False, "delta": 1e-5, "pure": False}
    rows = [
        row | {"algorithm": name, "seed": seed, "objective": seed + shift, "true_epsilon": 1.0, "seconds": 1.0}
        for name, shift in (("a", 0.0), ("b", 0.1))
        for seed in range(5)
    ]
    one, two = summarize(rows)
    assert not two.tied and one.objective.high > two.objective.low


def test_processes_change_no_number(data):
    study = study_of(data, ["dsgd", "output"], seeds=1)
    one, two = (compare(study, jobs=jobs) for jobs in (1, 2))
    assert [r["objective"] for r in one] == [r["objective"] for r in two]


def test_what_cannot_be_compared(data):
    study = study_of(data, ["dsgd", "objective"], SETTINGS | {"loss": "hinge"})
    assert list(study.refused) == ["objective"] and all(c.algorithm == "dsgd" for c in study.cells())
    with pytest.raises(SpecError, match="at least one seed"):
        study_of(data, ["dsgd"], seeds=0)
    with pytest.raises(DataError, match="no data 'nowhere'"):
        load("nowhere", loss=LOSSES.make("logistic"))


def test_the_command(tmp_path, monkeypatch, capsys):
    import sys

    from sottovoce.cli.main import main

    out = tmp_path / "runs" / "c.parquet"
    base = ["sottovoce", "compare", "--data", "breast_cancer", "--nodes", "5", "--epochs", "2", "--batch", "16"]
    base += ["--seeds", "2", "--regularizer", "l2:0.1", "--algorithms", "dsgd,decor,output", "--out", str(out)]

    def call(*more):
        monkeypatch.setattr(sys, "argv", [*base, *more])
        try:
            main()
        except SystemExit as stop:
            assert not stop.code
        return capsys.readouterr().out

    text = call()
    for words in ("'transcript'", "'secret_pairs'", "'central'", "test accuracy", "true ε", "6 runs in", "not private"):
        assert words in " ".join(text.split())
    found = json.loads(call("--json"))
    assert [x["adversary"] for x in found["ranking"]] == ["transcript", "secret_pairs", "central"]
    assert found["adjacency"] and found["delta"] == 1e-5 and "not private" in found["label"]
    assert (tmp_path / "runs" / "c-breast_cancer.png").stat().st_size > 10_000
    page = (tmp_path / "runs" / "c.html").read_text()
    assert len(page) < 3e6 and all(name in page for name in ("dsgd", "decor", "output"))


def test_how_far_a_method_is_behind_is_paired_by_seeds():
    """Student's interval of the differences of the same seeds; seeds that one of them lacks are left out."""
    common = {"data": "d", "epsilon": 1.0, "adversary": "transcript", "tuned": False, "delta": 1e-5}
    common |= {"true_epsilon": 1.0, "pure": False, "bytes": 0, "seconds": 0.0}
    levels = {"first": [0.0, 5.0, 9.0], "second": [0.1, 5.2, 9.3, 20.0]}
    rows = [common | {"algorithm": n, "seed": s, "objective": v} for n, vs in levels.items() for s, v in enumerate(vs)]
    lines = {line.algorithm: line for line in summarize(rows)}
    one, two = lines["first"], lines["second"]
    assert math.isnan(one.behind.mean) and one.rank == 1 and not one.tied
    found = stats.ttest_1samp([0.1, 0.2, 0.3], 0.0).confidence_interval(0.95)
    assert (two.behind.low, two.behind.high) == pytest.approx((found.low, found.high)) and two.tied


def test_a_feature_map_is_of_each_row_and_part_of_the_name(data):
    mapped = data.mapped(FEATURE_MAPS.read("fourier(7, 0.5)"))
    assert mapped.name == f"{data.name}, fourier(7, scale=0.5)" and mapped.records.X.shape == (len(data.y), 7)
    again = data.mapped(FEATURE_MAPS.read("fourier(7, 0.5)"))
    np.testing.assert_array_equal(mapped.records.X, again.records.X)  # a public seed
    assert np.linalg.norm(mapped.records.X, axis=1).max() <= 1
    # inner products are those of the Gaussian kernel, halved: 40,000 features, five deviations
    X = data.records.X[:5]
    many = FEATURE_MAPS.read("fourier(40000, 0.5)")(X)
    apart = np.sum((X[:, None] - X[None, :]) ** 2, axis=-1)
    np.testing.assert_allclose(many @ many.T, np.exp(-2 * apart) / 2, atol=5 * 0.5 / np.sqrt(40_000))
    with pytest.raises(SpecError, match="give a row for each"):
        data.mapped(lambda X: X[:-1])
