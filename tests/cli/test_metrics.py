"""`evaluate`, `predict`, `export`: the same figures everywhere, of a named class, at a threshold that can be used."""

import json
import re

import numpy as np
import pytest
from sklearn.metrics import get_scorer, mean_squared_error, roc_auc_score

from sottovoce import PrivateClassifier, PrivateRegressor, SpecError, load
from sottovoce.export import publish
from sottovoce.run.result import Result

rng = np.random.default_rng(0)
X = rng.normal(size=(12_000, 2)) / 4
X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
ILL = X[:, 0] + 0.15 * rng.normal(size=12_000) > 0.25
Y = np.where(ILL, "ill", "well")  # "well" comes last in the alphabet, "ill" is the rare class that users mean
TRAIN, HELD = slice(0, 8000), slice(8000, 12_000)


def written(path, some, target):
    lines = [f"{a:.9f},{b:.9f},{t}" for (a, b), t in zip(X[some].tolist(), target[some].tolist(), strict=True)]
    path.write_text("\n".join(["age,dose,label", *lines]) + "\n")
    return path


@pytest.fixture
def files(tmp_path):
    return written(tmp_path / "train.csv", TRAIN, Y), written(tmp_path / "held.csv", HELD, Y)


def trained(sottovoce, path, out, *words):
    line = ("--label", "label", "--rounds", 40, "--epsilon", 8, "--nodes", 1, "--seed", 1)
    code, _, err = sottovoce("train", path, *line, *words, "--out", out)
    assert code == 0, err
    return out


def test_the_positive_class_is_the_last_one_given_in_python_and_in_the_command(sottovoce, files, tmp_path):
    order = ["well", "ill"]
    model = PrivateClassifier(8.0, classes=order, row_norm=1.0, random_state=0, rounds=40).fit(X[TRAIN], Y[TRAIN])
    assert model.classes_.tolist() == sorted(order)
    found = model.evaluate(X[HELD], Y[HELD], epsilon=50.0)
    assert found.to_dict()["positive"] == "ill"
    predicted = model.use_threshold(found, recall=0.9).predict(X[HELD])
    assert 0.88 < np.mean(predicted[ILL[HELD]] == "ill") < 0.97
    other = model.use_threshold(found, recall=0.9, positive="well").predict(X[HELD])
    assert 0.88 < np.mean(other[~ILL[HELD]] == "well") < 0.97
    chosen = model.evaluate(X[8000:9000], Y[8000:9000], positive="well")
    assert chosen.to_dict()["positive"] == "well"
    with pytest.raises(SpecError, match="not a class of the model"):
        model.evaluate(X[9000:], Y[9000:], positive="dead")
    out = trained(sottovoce, files[0], tmp_path / "run", "--classes", ",".join(order))
    code, said, err = sottovoce(
        "evaluate", out, files[1], "--label", "label", "--epsilon", 50, "--recall", 0.9, "--json"
    )
    assert code == 0, err
    said = json.loads(said)
    assert said["positive"] == "ill" and said["labels"] == order and said["threshold_for"] == {"recall": 0.9}
    decided = Result.load(out).decide(X[HELD])
    assert 0.88 < np.mean(decided[ILL[HELD]] >= said["threshold"]) < 0.97


def test_positive_chooses_the_other_class_on_the_command_line(sottovoce, files, tmp_path):
    out = trained(sottovoce, files[0], tmp_path / "run", "--classes", "well,ill")
    words = ("--label", "label", "--epsilon", 50, "--positive", "well", "--recall", 0.9)
    code, said, err = sottovoce("evaluate", out, files[1], *words)
    assert code == 0, err
    said = " ".join(said.split())
    assert "The positive class is 'well'." in said and "recall of 'well'" in said
    assert "accuracy of the most frequent class" in said
    decided, kept = Result.load(out).decide(X[HELD]), json.loads((out / "evaluation.json").read_text())
    assert 0.88 < np.mean(decided[~ILL[HELD]] < kept["threshold"]) < 0.97


def test_a_threshold_that_evaluate_found_is_used_by_predict_and_export(sottovoce, files, tmp_path):
    out = trained(sottovoce, files[0], tmp_path / "run", "--classes", "well,ill")
    code, _, err = sottovoce("predict", out, files[1], "--threshold", "stored")
    assert code == 2 and "no threshold is stored" in err and "--recall 0.9" in " ".join(err.split())
    words = ("--label", "label", "--epsilon", 50, "--recall", 0.9)
    code, shown, err = sottovoce("evaluate", out, files[1], *words)
    assert code == 0 and "--threshold stored" in " ".join(shown.split()), err
    kept = json.loads((out / "evaluation.json").read_text())
    own, stored, number = (
        np.array(json.loads(sottovoce("predict", out, files[1], "--json", *more)[1])["predictions"])
        for more in ((), ("--threshold", "stored"), ("--threshold", kept["threshold"]))
    )
    assert np.array_equal(stored, number) and not np.array_equal(stored, own)
    recall = np.mean(stored[ILL[HELD]] == "ill")
    assert 0.88 < recall < 0.97 and recall > np.mean(own[ILL[HELD]] == "ill")
    assert kept["threshold_figures"]["recall"]["value"] == pytest.approx(recall, abs=0.02)
    code, _, err = sottovoce(
        "export", out, "--out", tmp_path / "public", "--threshold", "stored", "--without-guarantee"
    )
    assert code == 0, err
    assert json.loads((tmp_path / "public" / "model.json").read_text())["threshold"] == kept["threshold"]
    card = (tmp_path / "public" / "MODEL_CARD.md").read_text()
    assert f"| recall of 'ill' | {kept['threshold_figures']['recall']['value']:.4f} |" in card
    assert "These figures are of answers at the threshold" not in card
    publish(out, tmp_path / "other", threshold=0.125, without_guarantee=True)
    card = (tmp_path / "other" / "MODEL_CARD.md").read_text()
    assert "at the threshold 0; the model here answers from 0.125 on" in card
    assert sottovoce("report", out)[0] == 0
    assert "at the stored threshold" in (out / "report.html").read_text()
    for wrong in ("high", "nan", "inf"):
        code, _, err = sottovoce("predict", out, files[1], "--threshold", wrong)
        assert code == 2 and "threshold" in err


def test_a_saved_threshold_is_the_one_that_is_evaluated(sottovoce, files, tmp_path):
    """The command once evaluated every run at 0, whatever its predictions used."""
    model = PrivateClassifier(8.0, classes=["well", "ill"], row_norm=1.0, random_state=0, rounds=40).fit(
        X[TRAIN], Y[TRAIN]
    )
    model.threshold_ = float(np.quantile(model.decision_function(X[TRAIN]), 0.6))
    out = model.save(tmp_path / "run")
    code, said, err = sottovoce("evaluate", out, files[1], "--label", "label", "--epsilon", 50, "--json")
    assert code == 0, err
    assert json.loads(said)["figures"]["accuracy"]["value"] == pytest.approx(model.score(X[HELD], Y[HELD]), abs=0.01)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("order", [["ill", "well"], ["well", "ill"]])
def test_a_saved_model_lists_its_classes_as_given_and_a_loaded_one_sorts_them(sottovoce, files, tmp_path, order):
    model = PrivateClassifier(2.0, classes=order, row_norm=1.0, random_state=0, rounds=20).fit(X[TRAIN], Y[TRAIN])
    model.threshold_, model.link_ = 0.03, (1.3, 0.2)
    folder = model.save(tmp_path / "model")
    result, again = Result.load(folder), load(folder)
    assert list(result.classes) == order and again.classes_.tolist() == sorted(order)
    assert np.array_equal(result.predict(X), model.predict(X)) and again.threshold_ == model.threshold_
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    publish(folder, tmp_path / "public", without_guarantee=True)
    assert json.loads((tmp_path / "public" / "model.json").read_text())["positive"] == order[-1]
    out = trained(sottovoce, files[0], tmp_path / "run", "--classes", ",".join(order))
    run, read = load(out), Result.load(out)
    assert run.classes_.tolist() == sorted(order) and np.array_equal(run.predict(X), read.predict(X))
    expected = roc_auc_score(ILL[HELD], read.decide(X[HELD]) * (1 if order[-1] == "ill" else -1))
    assert get_scorer("roc_auc")(run, X[HELD], Y[HELD]) == pytest.approx(expected) and expected > 0.8
    assert run.evaluate(X[HELD], Y[HELD]).to_dict()["positive"] == order[-1]


def test_a_score_at_the_threshold_has_the_same_answer_in_either_order_of_classes(tmp_path):
    model = PrivateClassifier(2.0, classes=["b", "a"], row_norm=1.0, random_state=0, rounds=3)
    model.fit(X[:500], np.where(ILL[:500], "a", "b"))
    model._result.models[:] = 0.0  # as heavy noise and a threshold on weights leave it
    model._set_coefficients(model._result)
    folder = model.save(tmp_path / "run")
    assert (
        set(model.predict(X[:9]))
        == {"b"}
        == set(Result.load(folder).predict(X[:9]))
        == set(load(folder).predict(X[:9]))
    )


def test_several_classes_are_listed_as_given_too(tmp_path):
    y = np.array(["a", "b", "c"])[np.argmax(X[:900] @ rng.normal(size=(2, 3)), axis=1)]
    model = PrivateClassifier(4.0, classes=["c", "a", "b"], row_norm=1.0, random_state=0, rounds=20).fit(X[:900], y)
    folder = model.save(tmp_path / "run")
    result, again = Result.load(folder), load(folder)
    assert result.classes == ("c", "a", "b") and again.classes_.tolist() == ["a", "b", "c"]
    assert np.array_equal(result.predict(X[:900]), model.predict(X[:900]))
    assert np.array_equal(again.predict_proba(X[:900]), model.predict_proba(X[:900]))


def test_a_regression_has_the_same_figures_in_terminal_json_card_and_estimator(sottovoce, tmp_path):
    """Diamonds cost thousands: a mean squared error of 0.02 says nothing of them."""
    cost = 9000 + 6000 * X[:, 0] + 500 * rng.normal(size=12_000)
    train, held = written(tmp_path / "train.csv", TRAIN, cost), written(tmp_path / "held.csv", HELD, cost)
    more = ("--loss", "squared", "--target-bounds", "0,18000", "--clip", 1)
    out = trained(sottovoce, train, tmp_path / "run", *more)
    code, said, err = sottovoce("evaluate", out, held, "--label", "label", "--epsilon", 50)
    assert code == 0, err
    kept = json.loads((out / "evaluation.json").read_text())
    true = mean_squared_error(cost[HELD], Result.load(out).predict(X[HELD]))
    value = kept["figures"]["mean_squared_error"]["value"]
    assert value == pytest.approx(true, rel=0.1) and kept["target_range"] == [0.0, 18000.0]
    shown = f"{value:,.0f}"
    assert shown in said and "mean squared error (units²)" in " ".join(said.split())
    publish(out, tmp_path / "public", without_guarantee=True)
    assert f"| {shown} |" in (tmp_path / "public" / "MODEL_CARD.md").read_text()
    assert sottovoce("report", out)[0] == 0 and shown in (out / "report.html").read_text()
    model = PrivateRegressor(8.0, target_bounds=(0, 18_000), row_norm=1.0, random_state=0).fit(X[TRAIN], cost[TRAIN])
    found = model.evaluate(X[HELD], cost[HELD], epsilon=50.0)
    true = mean_squared_error(cost[HELD], model.predict(X[HELD]))
    assert found.mean_squared_error.value == pytest.approx(true, rel=0.1)
    assert found.baseline_mean_squared_error.value == pytest.approx(np.var(cost[HELD]), rel=0.1)


def test_an_r2_that_is_not_determined_is_null_and_says_so(sottovoce, tmp_path):
    cost = 9000 + 100 * X[:, 0]
    train, held = written(tmp_path / "train.csv", TRAIN, cost), written(tmp_path / "held.csv", slice(0, 60), cost)
    more = ("--loss", "squared", "--target-bounds", "0,18000", "--clip", 1)
    out = trained(sottovoce, train, tmp_path / "run", *more)
    code, said, err = sottovoce("evaluate", out, held, "--label", "label", "--epsilon", 0.5)
    assert code == 0 and "not determined at this ε" in " ".join(said.split()), err
    assert json.loads((out / "evaluation.json").read_text())["figures"]["r2"]["value"] is None
    publish(out, tmp_path / "public", without_guarantee=True)
    assert "not determined at this ε" in (tmp_path / "public" / "MODEL_CARD.md").read_text()
    assert sottovoce("report", out)[0] == 0
    assert not re.search(r"\bnan\b", (out / "report.html").read_text().split("<script")[0])


def test_a_rate_that_no_edge_has_gets_the_nearest_one_and_both_doors_say_so(sottovoce, files, tmp_path):
    out = trained(sottovoce, files[0], tmp_path / "run", "--classes", "well,ill")
    held = tmp_path / "few.csv"
    held.write_text("".join(files[1].read_text().splitlines(keepends=True)[:601]))
    code, text, err = sottovoce("evaluate", out, held, "--label", "label", "--epsilon", 1, "--rate", 0.02, "--disjoint")
    assert code == 0, err
    kept = json.loads((out / "evaluation.json").read_text())
    assert kept["threshold"] in kept["edges"] and 0.02 < kept["threshold_rate"] < 0.4
    assert f"The rate of 'ill' there is about {kept['threshold_rate']:.3g}" in " ".join(text.split())
    answers = json.loads(sottovoce("predict", out, files[1], "--threshold", "stored", "--json")[1])["predictions"]
    assert 0.0 < np.mean(np.array(answers) == "ill") < 0.5
    model = PrivateClassifier(8.0, classes=["well", "ill"], row_norm=1.0, random_state=0, rounds=40)
    found = model.fit(X[TRAIN], Y[TRAIN]).evaluate(X[8000:8600], Y[8000:8600], epsilon=1.0)
    with pytest.warns(UserWarning, match="nearest to a rate of 0.02 has a rate of 0"):
        model.use_threshold(found, rate=0.02)
    assert 0.0 < np.mean(model.predict(X[HELD]) == "ill") < 0.5
