"""`tune` and `evaluate`: from a file to a model with one guarantee, verified from its folder."""

import json

import numpy as np
import pytest

from sottovoce.run.result import Result


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2)) / 4
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    y = np.where(X[:, 0] + 0.1 * rng.normal(size=3000) > 0.1, "yes", "no")
    site = rng.choice(["north", "south"], 3000)
    paths = []
    for name, some in (("train.csv", slice(0, 2000)), ("held.csv", slice(2000, 3000))):
        lines = [f"{a:.6f},{b:.6f},{s},{label}" for (a, b), s, label in zip(X[some], site[some], y[some], strict=True)]
        paths.append(tmp_path / name)
        paths[-1].write_text("\n".join(["age,dose,site,label", *lines]) + "\n")
    return paths


def test_a_run_is_evaluated_once_and_its_statement_says_so(sottovoce, files, tmp_path):
    train, held = files
    out = tmp_path / "run"
    who = ("--group", "site", "--label", "label")
    assert sottovoce("train", train, *who, "--classes", "no,yes", "--rounds", 20, "--seed", 1, "--out", out)[0] == 0
    code, said, _ = sottovoce("evaluate", out, held, *who, "--recall", 0.9, "--epsilon", 2, "--disjoint", "--json")
    found = json.loads(said)
    assert code == 0 and found["records"] == 1000 and found["figures"]["auc"]["value"] > 0.8
    assert {"accuracy", "balanced_accuracy", "average_precision", "calibration_error"} <= found["figures"].keys()
    result = Result.load(out)
    assert result.statement.held_out and result.statement.epsilon == pytest.approx(2.0, rel=1e-3)
    assert np.mean(result.decide(np.array([[0.9, 0.0]])) >= found["threshold"]) == 1
    code, _, err = sottovoce("account", "--verify", out)
    assert code == 0, err
    code, _, err = sottovoce("evaluate", out, held, *who)
    assert code != 0 and "already has an evaluation" in err
    assert sottovoce("report", out)[0] == 0
    page = (out / "report.html").read_text()
    assert "expected calibration error" in page and "a simulation of an evaluation" in page


def test_what_cannot_be_evaluated_is_said(sottovoce, files, tmp_path):
    train, held = files
    out = tmp_path / "run"
    who = ("--group", "site", "--label", "label", "--classes", "no,yes")
    assert sottovoce("train", train, *who, "--rounds", 5, "--seed", 1, "--out", out)[0] == 0
    held.write_text(held.read_text().replace("north", "east"))
    code, _, err = sottovoce("evaluate", out, held, "--group", "site", "--label", "label")
    assert code != 0 and "'east' is no node of the run" in err


def test_an_evaluation_of_a_secret_run_has_no_seed(sottovoce, files, tmp_path):
    train, held = files
    out = tmp_path / "run"
    who = ("--group", "site", "--label", "label")
    assert sottovoce("train", train, *who, "--classes", "no,yes", "--rounds", 5, "--out", out)[0] == 0
    code, _, err = sottovoce("evaluate", out, held, *who, "--seed", 1)
    assert code != 0 and "a seed would let anybody take the noise off" in " ".join(err.split())
    assert not Result.load(out).statement.covers


def test_plans_are_tuned_at_one_cost_and_the_folder_verifies(sottovoce, files, tmp_path):
    train, held = files
    out = tmp_path / "tuned"
    words = ("--label", "label", "--group", "site", "--classes", "no,yes", "--param", "rounds=5,20", "--seed", 3)
    code, said, err = sottovoce("tune", train, *words, "--out", out, "--json")
    found = json.loads(said)
    assert code == 0 and found["best"]["rounds"] in ("5", "20") and found["run_epsilon"] < 1
    assert found["privacy"]["epsilon"] <= 1.0 and "foreseen to cost" in found["worth"]
    code, _, err = sottovoce("account", "--verify", out)
    assert code == 0, err
    result = Result.load(out)
    assert result.classes == ("no", "yes") and result.features == ("age", "dose") and result.nodes == ("north", "south")
    assert result.predict(np.array([[0.9, 0.0], [-0.9, 0.0]])).tolist() == ["yes", "no"]
    assert sottovoce("predict", out, held)[0] == 0
    code, _, err = sottovoce("tune", train, *words[:-4], "--param", "rounds=", "--seed", 3)
    assert code != 0 and "names no values" in err


def test_people_count_one_record_each(sottovoce, files, tmp_path):
    schema, out = tmp_path / "schema.toml", tmp_path / "run"
    schema.write_text(
        'unit = "site"\n[label]\ncolumn = "label"\nclasses = ["no", "yes"]\n'
        "[columns.age]\nlow = -1\nhigh = 1\n[columns.dose]\nlow = -1\nhigh = 1\n"
    )
    train, held = files
    for path in files:  # ten rows a person
        lines = path.read_text().splitlines()
        named = [line.replace("north", "south").replace("south", f"p{k // 10}") for k, line in enumerate(lines[1:])]
        path.write_text("\n".join([lines[0], *named]) + "\n")
    words = ("--schema", schema, "--rounds", 5, "--nodes", 1, "--out", out)
    assert sottovoce("train", train, *words)[0] == 0
    code, said, _ = sottovoce("evaluate", out, held, "--metrics", "right", "--json")
    assert code == 0 and json.loads(said)["records"] == 100
    assert Result.load(out).statement.unit == "one person"
    code, _, err = sottovoce("account", "--verify", out)
    assert code == 0, err
