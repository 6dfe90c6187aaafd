"""Training and evaluation records: what is printed never depends on whether a record is in both."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

from sottovoce import load
from sottovoce.errors import PrivacyError
from sottovoce.run import result
from sottovoce.run.result import Result

PROVISO = "provided that no record is in both"


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    paths = []
    for name, count in (("train.csv", 2000), ("other.csv", 2000)):
        X = rng.uniform(-0.5, 0.5, (count, 2))
        rows = [f"{a:.6f},{b:.6f},p{i // 10},{'yes' if a > 0.1 else 'no'}" for i, (a, b) in enumerate(X.tolist())]
        paths.append(tmp_path / name)
        paths[-1].write_text("\n".join(["age,dose,who,label", *rows]) + "\n")
    return paths


WHO = ("--label", "label", "--classes", "no,yes", "--columns", "age,dose", "--nodes", 4, "--rounds", 20)


def trained(sottovoce, file, out, *more):
    code, text, err = sottovoce("train", file, *WHO, "--out", out, "--json", *more)
    assert code == 0, err
    return json.loads(text)


def flat(text):
    return " ".join(text.split())


def published(sottovoce, run, out):
    assert sottovoce("account", "--verify", run)[0] == 0
    code, _, err = sottovoce("export", run, "--out", out)
    assert code == 0, err
    return flat((out / "MODEL_CARD.md").read_text()), flat((out / "statement.txt").read_text())


def test_the_training_file_costs_what_any_other_file_costs(sottovoce, files, tmp_path):
    """Nobody claims that no record is in both: two releases on the same records are ε = 1.475."""
    shown = []
    for place, file in enumerate(files):
        run = tmp_path / str(place)
        trained(sottovoce, files[0], run)
        code, text, err = sottovoce("evaluate", run, file, "--label", "label", "--metrics", "right")
        assert code == 0, err
        shown.append(flat(text)[flat(text).index("Every record has") :].replace(str(run), "RUN"))
        said = Result.load(run).statement
        assert said.epsilon == pytest.approx(1.475, abs=2e-3) and not said.held_out
        card, words = published(sottovoce, run, tmp_path / f"card{place}")
        for text in (shown[-1], card, words):
            assert "1.47" in text and "no record is in both" not in text and "held out" not in text
        assert "as if it was in both training and evaluation" in shown[-1] and "as if it was in both" in card
    assert shown[0] == shown[1]


def test_what_an_evaluation_will_cost_is_said_beside_the_way_to_pay_once(sottovoce, files, tmp_path):
    for more in ((), ("--disjoint",)):
        run = tmp_path / f"run{len(more)}"
        trained(sottovoce, files[0], run)
        code, _, err = sottovoce("evaluate", run, files[1], "--label", "label", "--metrics", "right", *more)
        assert code == 0, err
        said = "counts as trained on too: ε = 1.47 with the training. If none was, --disjoint declares it"
        assert (said in flat(err)) == (not more)


def test_where_noise_cancels_between_nodes_the_message_says_what_to_type_and_it_works(sottovoce, files, tmp_path):
    run = tmp_path / "run"
    trained(sottovoce, files[0], run, "--trust", "majority")
    code, _, err = sottovoce("evaluate", run, files[1], "--label", "label")
    assert code == 5 and f"evaluate in Python: sottovoce.load('{run}').evaluate(X, y)" in flat(err).replace("/ ", "/")
    rows = [line.split(",") for line in files[1].read_text().splitlines()[1:]]
    X, y = pd.DataFrame([row[:2] for row in rows], columns=["age", "dose"], dtype=float), [row[3] for row in rows]
    found = load(run).evaluate(X, y, disjoint=True)
    assert found.accuracy.value > 0.6 and found.statement.epsilon == pytest.approx(1.0, rel=1e-3)


def test_what_is_declared_is_said_wherever_the_guarantee_is(sottovoce, files, tmp_path):
    for place, file in enumerate(files):  # nor is it checked
        run = tmp_path / str(place)
        trained(sottovoce, files[0], run)
        code, text, err = sottovoce("evaluate", run, file, "--label", "label", "--metrics", "right", "--disjoint")
        assert code == 0, err
        said = Result.load(run).statement
        assert said.epsilon == pytest.approx(1.0, rel=1e-3) and said.declared
        card, words = published(sottovoce, run, tmp_path / f"card{place}")
        assert all(PROVISO in each for each in (flat(text), card, words, said.to_json()))


def test_a_share_is_held_out_and_one_epsilon_covers_both(sottovoce, files, tmp_path):
    run = tmp_path / "run"
    details = trained(sottovoce, files[0], run, "--holdout", 0.2)
    result, found = Result.load(run), details["evaluation"]
    said = result.statement
    assert said.epsilon == pytest.approx(1.0, rel=1e-3) and not said.declared and not said.later
    assert result.public["records"] == [400] * 4 and found["records"] == 400
    assert sum(group.event.records * len(group.nodes) for group in said.held_out) == 400
    assert found == json.loads((run / "evaluation.json").read_text()) and found["figures"]["accuracy"]["value"] > 0.5
    card, words = published(sottovoce, run, tmp_path / "card")
    assert PROVISO not in card + words and "covers training and evaluation" in card
    assert "Evaluation" in (run / "report.html").read_text()
    code, _, err = sottovoce("evaluate", run, files[1], "--label", "label")
    assert code == 5 and "already has an evaluation" in err
    code, text, _ = sottovoce("train", files[0], *WHO, "--holdout", 0.2)
    assert code == 0 and "on 400 records, with noise" in text and "1,600" in text


def test_a_held_out_share_of_people_is_of_whole_people(sottovoce, files, tmp_path):
    words = ("--user-id", "who", "--nodes", 1, "--holdout", 0.1)
    details = trained(sottovoce, files[0], tmp_path / "run", *words)
    assert Result.load(tmp_path / "run").public["records"] == [180] and details["evaluation"]["records"] == 20
    assert Result.load(tmp_path / "run").statement.unit == "one person"


def test_a_seeded_holdout_is_the_same_again(sottovoce, files, tmp_path):
    first, again, other = (
        trained(sottovoce, files[0], tmp_path / str(place), "--holdout", 0.2, "--seed", seed)
        for place, seed in enumerate((1, 1, 2))
    )
    assert first["evaluation"] == again["evaluation"] and first["last"] == again["last"]
    assert first["evaluation"]["sums"] != other["evaluation"]["sums"]


def test_a_regression_is_held_out_too(sottovoce, tmp_path):
    rng = np.random.default_rng(1)
    X = rng.uniform(-0.5, 0.5, (3000, 2))
    lines = [f"{a:.6f},{b:.6f},{10 + 8 * a:.6f}" for a, b in X.tolist()]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,y", *lines]) + "\n")
    words = ("--label", "y", "--nodes", 1, "--epsilon", 4, "--holdout", 0.3, "--json")
    code, text, err = sottovoce("train", tmp_path / "t.csv", *words, "--target-bounds", "0,20")
    assert code == 0, err
    found = json.loads(text)["evaluation"]
    assert found["records"] == 900 and found["figures"]["mean_squared_error"]["value"] < 0.1


def test_what_cannot_be_held_out_is_refused_before_training(sottovoce, files, tmp_path, monkeypatch):
    monkeypatch.setattr("sottovoce.run.solve.choose", lambda *_: pytest.fail("an engine was queried"))
    for words, code, reason in (
        (("--holdout", 1.5), 2, "over 0 and below 1"),
        (("--holdout", 0.2, "--noise", "none", "--preset", "paper-l2"), 5, "needs an ε that is finite"),
        (("--holdout", 0.2, "--trust", 1), 5, "sottovoce.load(OUT).evaluate(X, y, disjoint=True)"),
    ):
        found, _, err = sottovoce("train", files[0], *WHO, *words)
        assert found == code and reason in flat(err), err


def test_a_run_from_a_budget_is_evaluated_from_a_budget(sottovoce, files, tmp_path):
    ledger, run = tmp_path / "ledger", tmp_path / "run"
    assert sottovoce("ledger", "budget", ledger, "--epsilon", 1.6)[0] == 0
    trained(sottovoce, files[0], run, "--budget", ledger)
    code, _, err = sottovoce("evaluate", run, files[1], "--label", "label")
    assert code == 5 and "give the ledger with --budget PATH" in flat(err)
    model = load(run)  # nor does Python take it from nowhere
    with pytest.raises(PrivacyError, match="this model was paid from a budget"):
        model.evaluate(np.zeros((4, 2)), ["no"] * 4)
    code, text, err = sottovoce("evaluate", run, files[1], "--label", "label", "--budget", ledger, "--json")
    assert code == 0, err
    (details,) = json.loads(text)["budget"]
    assert details["epsilon"] == pytest.approx(1.475, abs=1e-3)
    assert str(ledger) not in (run / "result.json").read_text()


def test_a_holdout_is_paid_once_for_both(sottovoce, files, tmp_path):
    ledger = tmp_path / "ledger"
    assert sottovoce("ledger", "budget", ledger, "--epsilon", 1.2)[0] == 0
    details = trained(sottovoce, files[0], tmp_path / "run", "--budget", ledger, "--holdout", 0.2)
    (each,) = details["budget"]
    assert each["epsilon"] == pytest.approx(1.0, rel=1e-3)
    code, _, err = sottovoce("train", files[0], *WHO, "--budget", ledger, "--holdout", 0.2)
    assert code == 5 and "over the owner's budget" in flat(err)


def test_of_two_evaluations_at_the_same_time_one_is_shown(sottovoce, files, tmp_path, monkeypatch):
    """Both were shown once, and the statement, of the training and one of them, said 1.475 where all cost 1.84."""
    run, module, again = tmp_path / "run", sys.modules["sottovoce.cli.evaluate"], []
    trained(sottovoce, files[0], run)
    ask = module.evaluate_held_out

    def meanwhile(*given):
        if not again:  # another process begins and ends before this one writes what it found
            again.append(None)
            again.append(sottovoce("evaluate", run, files[1], "--metrics", "right"))
        return ask(*given)

    monkeypatch.setattr(module, "evaluate_held_out", meanwhile)
    code, text, err = sottovoce("evaluate", run, files[1], "--metrics", "right")
    assert code == 5 and "another process has changed the statement" in flat(err) and "accuracy" not in text
    assert again[1][0] == 0 and "accuracy" in again[1][1]
    assert len(Result.load(run).statement.later) == 1 and sottovoce("account", "--verify", run)[0] == 0


def test_an_evaluation_that_is_stopped_while_it_is_written_is_covered(sottovoce, files, tmp_path, monkeypatch):
    run, written = tmp_path / "run", result.write_atomically
    trained(sottovoce, files[0], run)

    def stopped(path, content):
        if path.name == "evaluation.json":
            raise KeyboardInterrupt
        written(path, content)

    monkeypatch.setattr(result, "write_atomically", stopped)
    assert sottovoce("evaluate", run, files[1], "--metrics", "right")[0] != 0
    assert Result.load(run).statement.later and sottovoce("account", "--verify", run)[0] == 0
