"""A release by the command: nothing in its folder that is not private, nothing lost, nothing left behind."""

import json
import re

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


FIGURES = ("objective", "accuracy", "suboptimality", "F − F", "disagreement of nodes", "seconds")


def test_a_run_with_a_guarantee_shows_no_figure_that_is_not_private(table, train, sottovoce, tmp_path):
    """Neither on the terminal, nor in JSON, nor in the folder or its report; nor how long it took."""
    run = tmp_path / "run"
    code, text, err = train(run)
    assert code == 0, err
    said = json.loads(text)
    assert said["last"] is None and "seconds" not in said["environment"]
    assert {path.name for path in run.iterdir()} == {"result.json", "model.npz", "layout.json", "report.html"}
    page = (run / "report.html").read_text()
    assert "not private: a simulation" not in page and not len(Result.load(run).history)
    few = ("--label", "label", "--classes", "no,yes", "--nodes", 1, "--rounds", 10)
    code, text, err = sottovoce("train", table, *few)
    shown = text + err
    panel = shown.index("privacy")  # what is not covered is named below
    assert code == 0 and not any(word in shown[:panel] for word in FIGURES)
    assert not re.search(r"engine, time .*, [0-9.]+ s", shown)
    for verb in (("predict", run, table, "--json"), ("report", run), ("account", "--verify", run)):
        assert sottovoce(*verb)[0] == 0


def test_figures_that_are_not_private_are_shown_with_a_label_where_they_are_requested(
    table, train, sottovoce, tmp_path
):
    code, text, err = train(tmp_path / "requested", "--not-private-history")
    last = json.loads(text)["last"]
    assert code == 0 and last["objective"] > 0 and last["label"].startswith("not private: "), err
    assert "for simulation only" not in last["label"]  # it is no simulation
    names = {path.name for path in (tmp_path / "requested").iterdir()}
    assert names == {"result.json", "model.npz", "layout.json", "report.html", OPEN_HISTORY}
    assert len(Result.load(tmp_path / "requested").history)
    page = (tmp_path / "requested" / "report.html").read_text()
    assert "not private: a simulation" not in page and str(last["objective"])[:10] not in page
    few = ("--label", "label", "--classes", "no,yes", "--nodes", 1, "--rounds", 10, "--not-private-history")
    code, text, err = sottovoce("train", table, *few)
    assert code == 0 and "objective" in text and "not private" in text


def test_a_run_that_nobody_evaluates(train, tmp_path, sottovoce, table):
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
    for verb in (("train", "--loss", "hingee"), ("train", "--label", "nothing"), ("tune", "--param", "rounds")):
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
