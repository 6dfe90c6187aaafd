"""A release by the command: nothing in its folder that is not private, nothing lost, nothing left behind."""

import json

import numpy as np
import pytest

from sottovoce.run.result import OPEN_HISTORY, Result


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (200, 2))
    rows = [f"{a},{b},{'yes' if a > b else 'no'}" for a, b in X.tolist()]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,label", *rows]))
    return tmp_path / "t.csv"


@pytest.fixture
def train(table, sottovoce):
    def run(out, *more):
        few = ("--label", "label", "--classes", "no,yes", "--nodes", 1, "--rounds", 10)
        return sottovoce("train", table, *few, "--out", out, "--json", *more)

    return run


def test_a_guaranteed_folder_holds_no_number_that_is_not_private(table, train, sottovoce, tmp_path):
    run = tmp_path / "run"
    code, text, err = train(run)
    assert code == 0, err
    last = json.loads(text)["last"]
    assert {path.name for path in run.iterdir()} == {"result.json", "model.npz", "report.html"}
    page = (run / "report.html").read_text()
    assert last["objective"] > 0 and str(last["objective"])[:10] not in (run / "result.json").read_text() + page
    assert "not private: a simulation" not in page
    for verb in (("predict", run, table, "--json"), ("report", run), ("account", "--verify", run)):
        assert sottovoce(*verb)[0] == 0
    assert train(tmp_path / "asked", "--not-private-history")[0] == 0
    names = {path.name for path in (tmp_path / "asked").iterdir()}
    assert names == {"result.json", "model.npz", "report.html", OPEN_HISTORY}
    assert len(Result.load(tmp_path / "asked").history)
    assert "not private: a simulation" not in (tmp_path / "asked" / "report.html").read_text()


def test_a_run_that_nobody_looks_at(train, tmp_path, sottovoce, table):
    code, text, err = train(tmp_path / "run", "--observations", 0)
    assert code == 0 and json.loads(text)["last"] is None, err
    few = ("--label", "label", "--classes", "no,yes", "--nodes", 1, "--rounds", 10, "--observations", 0)
    code, text, err = sottovoce("train", table, *few)
    assert code == 0 and "rounds" in text and "objective" not in text, err


def test_a_second_run_takes_no_ones_place(train, tmp_path):
    run = tmp_path / "run"
    assert train(run)[0] == 0
    first = Result.load(run)
    code, _, err = train(run)
    assert code == 2 and "another one would take its place" in err and "--force" in err and len(err.splitlines()) < 9
    assert Result.load(run) == first
    code, _, err = train(run, "--force")
    assert code == 0 and "costs on the same records add up" in err
    assert not np.array_equal(Result.load(run).models, first.models)
    again = tmp_path / "seeded"
    assert [train(again, "--seed", seed)[0] for seed in (1, 1, 2)] == [0, 0, 2]  # the same simulation loses nothing


def test_what_fails_leaves_no_folder(table, sottovoce, tmp_path):
    for verb in (("train", "--loss", "hingee"), ("train", "--label", "nothing"), ("tune", "--try", "rounds")):
        code, _, err = sottovoce(verb[0], table, *verb[1:], "--out", tmp_path / "deep" / "run")
        assert code != 0 and err and not (tmp_path / "deep").exists()
    assert sottovoce("train", tmp_path / "none.csv", "--out", tmp_path / "deep" / "run")[0] != 0
    assert not (tmp_path / "deep").exists()


def test_an_evaluation_that_does_not_belong_to_a_run_is_not_in_its_report(train, sottovoce, tmp_path):
    out = tmp_path / "run"
    assert train(out)[0] == 0
    found = {"figures": {"accuracy": {"value": 0.9999}}, "records": 100, "noise": 1.0}
    (out / "evaluation.json").write_text(json.dumps(found))
    code, _, err = sottovoce("report", out)
    assert code == 0, err
    assert "held-out records" not in (out / "report.html").read_text()
