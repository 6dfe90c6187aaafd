"""A comparison: equal budgets, rankings that never mix adversaries, and tables that go on where they were."""

import json
import math

import pyarrow.parquet as pq
import pytest

from sottovoce.errors import DataError, SpecError
from sottovoce.experiments.baselines import BASELINES, merged
from sottovoce.experiments.compare.ranking import figure, summarise
from sottovoce.experiments.compare.study import KEY, Study, alike, compare
from sottovoce.experiments.data import load
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
    again = solve(Spec.from_json(row["spec"]), merged(data.deal(5)), execution=Execution(observations=1))
    assert again.history.last["objective"] == row["objective"]  # a row can be run again from itself


def test_a_comparison_goes_on_where_it_was(table, data, monkeypatch):
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
        Spec.from_json(spoilt["spec"]).but(algorithm__eta="constant(9)").to_json(),
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
    assert alike(spec, spec.but(algorithm__eta="constant:0.12345678"))
    assert alike(spec, spec.but(privacy__delta=1e-5 * (1 + 1e-9)))
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
        assert not alike(spec, spec.but(**change)), change


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
    lines = summarise(rows)
    assert len(lines) == len(NAMES) * 2
    for epsilon in (1.0, 2.0):
        for adversary, names in (("transcript", {"dsgd", "tracking"}), ("secret_pairs", {"decor"})):
            mine = [x for x in lines if x.epsilon == epsilon and x.adversary == adversary]
            assert {x.algorithm for x in mine} == names and [x.rank for x in mine] == list(range(1, len(mine) + 1))
            assert sorted(x.objective.mean for x in mine) == [x.objective.mean for x in mine]
            assert all(x.objective.seeds == 2 and x.true_epsilon <= epsilon + 1e-6 for x in mine)


def test_the_figure_has_every_interval_once(table):
    _, rows = table
    lines = summarise(rows)
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


def test_tuned_steps_are_no_better_and_say_so(data, tmp_path):
    study = study_of(data, ["dsgd"], seeds=1, tuned=True)
    rows = compare(study, tmp_path / "t.parquet")
    plain, tuned = rows
    assert plain["true_epsilon"] <= 1 + 1e-6 and math.isnan(tuned["true_epsilon"])
    assert plain["factor"] == 1 and tuned["factor"] in (1 / 9, 1 / 3, 1, 3, 9)
    assert [x.tuned for x in summarise(rows)] == [False, True]
    again = compare(study_of(data, ["dsgd"], seeds=2, tuned=True), tmp_path / "t.parquet")
    assert {r["factor"] for r in again if r["tuned"]} == {tuned["factor"]}  # chosen once


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
    base += ["--seeds", "2", "--h", "l2:0.1", "--algorithms", "dsgd,decor,output", "--out", str(out)]

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
