"""`evaluate`: figures near the truth, one statement, nobody's records used twice."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from sottovoce import PrivateClassifier, PrivateRegressor
from sottovoce.errors import DataError, PrivacyError, SpecError
from sottovoce.evaluation import curves
from sottovoce.export import publish
from sottovoce.privacy.events import FullEvent
from sottovoce.privacy.filter import sequential_epsilon
from sottovoce.privacy.statement import PrivacyStatement, statement_of, with_evaluation, with_held_out


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9000, 3)) / 3
    y = (X[:, 0] + 0.3 * rng.normal(size=9000) > 0.3).astype(int)
    return X, y, rng.choice(["a", "b", "c"], 9000)


def fitted(table, **more):
    X, y, nodes = table
    some = {"classes": (0, 1), "row_norm": 1.5, "random_state": 0, "rounds": 50} | more
    return PrivateClassifier(**some).fit(X[:5000], y[:5000], nodes=nodes[:5000])


def test_figures_are_near_the_truth_in_one_statement_with_the_training(table):
    X, y, nodes = (part[5000:] for part in table)
    model = fitted(table)
    found = model.evaluate(X, y, nodes, disjoint=True)
    true = {"accuracy": model.score(X, y), "auc": roc_auc_score(y, model.decision_function(X))}
    for name, value in true.items():
        assert abs(found.figures[name].value - value) < 4 * found.figures[name].error < 0.2
    said = found.statement
    assert said.epsilon == pytest.approx(model.privacy_.epsilon) and said.groups == model.privacy_.groups
    assert sum(g.event.records * len(g.nodes) for g in said.held_out) == 4000
    said.verify()
    louder = model.evaluate(X, y, nodes, epsilon=3.0, disjoint=True)
    assert louder.statement.epsilon == pytest.approx(3.0, rel=1e-3)
    assert louder.spent > 3.0 > found.spent == pytest.approx(1.0, rel=1e-3)  # the second evaluation adds to the first


def test_thresholds_and_probabilities_are_made_of_the_one_evaluation(table):
    X, y, nodes = (part[5000:] for part in table)
    model = fitted(table, epsilon=4.0)
    model.link_ = (0.5 * model.link_[0], 0.5)  # probabilities that are off, as they may be
    found = model.evaluate(X, y, nodes)
    before = curves.calibration_error_of(model.predict_proba(X)[:, 1], y)
    model.use_calibration(found)
    assert curves.calibration_error_of(model.predict_proba(X)[:, 1], y) < min(before, 0.05)
    model.use_threshold(found, recall=0.9)
    assert 0.85 < np.mean(model.predict(X)[y == 1]) < 0.97
    again = model.evaluate(X[:2000], y[:2000], nodes[:2000])  # with the new threshold
    assert abs(again.accuracy.value - model.score(X[:2000], y[:2000])) < 4 * again.accuracy.error


def test_of_people_one_record_each_and_of_secret_runs_secret_noise(table):
    X, y, nodes = (part[5000:] for part in table)
    model = fitted(table, random_state=None, rounds=3)
    people = np.arange(4000) // 2
    found = model.evaluate(X, y, nodes, people, metrics="right", disjoint=True)
    requested = sum(group.event.records * len(group.nodes) for group in found.statement.held_out)
    assert requested == len({(n, p) for n, p in zip(nodes.tolist(), people.tolist(), strict=True)})
    assert found.statement.secure and not found.statement.simulation
    other = model.evaluate(X, y, nodes, people, metrics="right")
    assert (
        found.sums[0] != other.sums[0] or found.sums[0] != model.evaluate(X, y, nodes, people, metrics="right").sums[0]
    )


def test_training_records_and_others_cost_the_same(table):
    """Whether a record is in both is never informed: neither by ε, nor by a refusal, nor by the words."""
    X, y, nodes = table
    model = fitted(table)
    fresh, same, turned = (
        model.evaluate(X[rows], y[rows], nodes[rows], metrics="right")
        for rows in (np.arange(4000, 9000), np.arange(5000), np.arange(5000)[::-1])
    )
    events = [model.privacy_.worst.event, same.statement.later[0].event]
    assert same.statement.epsilon == sequential_epsilon(events, 1e-5) == pytest.approx(1.475, abs=2e-3)
    assert turned.statement == same.statement
    for found in (fresh, same):
        said = found.statement
        said.verify()
        assert said.epsilon == pytest.approx(1.475, abs=2e-3) and said.epsilon_rdp >= said.epsilon
        assert not said.held_out and "may have been trained on, too" in said.paragraph()
        assert PrivacyStatement.from_json(said.to_json()) == said
        with pytest.raises(PrivacyError, match="evaluate a model once"):
            with_evaluation(said, {0: events[0]})
        with pytest.raises(PrivacyError, match="evaluate a model once"):
            with_held_out(said, {0: events[0]}, declared=True)
    assert same.statement.risk(0.01) == pytest.approx(np.exp(same.statement.epsilon) * 0.01 + 1e-5)


def test_what_the_caller_declares_is_said_with_the_guarantee(table):
    X, y, nodes = (part[5000:] for part in table)
    model = fitted(table, random_state=None, rounds=3)
    proviso = "provided that no record is in both training and evaluation"
    assert proviso not in model.privacy_.paragraph()
    said = model.evaluate(X, y, nodes, disjoint=True).statement
    said.verify()
    assert said.epsilon == pytest.approx(1.0, rel=1e-3) and said.declared
    assert said.verdict().endswith(f", {proviso}.") and proviso in said.covers
    assert "no record is in both training and evaluation, as whoever evaluated" in said.assumptions[-1]
    assert PrivacyStatement.from_json(said.to_json()) == said
    with pytest.raises(PrivacyError, match="verdict is"):
        PrivacyStatement.from_dict({name: value for name, value in said.to_dict().items() if name != "declared"})
    people = np.arange(4000) // 2
    X0, y0, _ = table
    model = PrivateClassifier(classes=(0, 1), row_norm=1.5, rounds=5).fit(
        X0[:6000], y0[:6000], user_ids=np.arange(6000) // 30
    )
    said = model.evaluate(X, y, user_ids=people, metrics="right", disjoint=True).statement
    assert "provided that no person is in both" in said.verdict()


def test_what_cannot_be_evaluated_is_refused(table):
    X, y, nodes = table
    model = fitted(table)
    with pytest.raises(DataError, match="node 'd' was not in fit"):
        model.evaluate(X[:9], y[:9], ["d"] * 9)
    with pytest.raises(DataError, match="class 2 in record 0, which the model does not know"):
        model.evaluate(X[5000:5009], np.full(9, 2), nodes[5000:5009])
    with pytest.raises(PrivacyError, match="needs an epsilon of its own"):
        fitted(table, epsilon=None).evaluate(X[5000:], y[5000:], nodes[5000:])


def test_a_regression_is_evaluated_too(table):
    X, _, nodes = table
    target = 10 + 5 * X[:, 0] + np.random.default_rng(1).normal(size=9000)
    model = PrivateRegressor(row_norm=1.5, target_bounds=(0, 20), random_state=0)
    model.fit(X[:5000], target[:5000], nodes=nodes[:5000])
    found = model.evaluate(X[5000:], target[5000:], nodes[5000:], epsilon=4.0)
    assert abs(found.r2.value - model.score(X[5000:], target[5000:])) < 4 * found.r2.error < 0.8
    found.statement.verify()


def test_a_guarantee_for_people_is_evaluated_by_people_or_not_at_all(table):
    X, y, _ = table
    people = np.arange(9000) // 30
    model = PrivateClassifier(classes=(0, 1), row_norm=1.5, rounds=50).fit(X[:6000], y[:6000], user_ids=people[:6000])
    with pytest.raises(PrivacyError, match="for people, each with all of their rows"):
        model.evaluate(X[6000:], y[6000:])
    found = model.evaluate(X[6000:], y[6000:], user_ids=people[6000:], metrics="right")
    assert found.records == 100 and found.statement.unit == "one person"


def test_an_evaluation_does_not_forget_what_a_search_held_out(table):
    said = with_held_out(statement_of([FullEvent(9, 9, 1.0, 5.0, 1)] * 2, 1e-5, "transcript", False), {
        0: FullEvent(9, 9, 1.0, 0.5, 1), 1: FullEvent(9, 9, 1.0, 2.0, 1)
    })  # fmt: skip
    more = with_held_out(said, {1: FullEvent(9, 9, 1.0, 1.0, 1)})
    assert [(g.nodes, g.event.sigma) for g in more.held_out] == [((0,), 0.5), ((1,), 1.0)]
    assert more.epsilon == said.epsilon
    more.verify()


def test_a_threshold_from_an_evaluation_is_covered_wherever_the_model_goes(tmp_path):
    """A report, or a result that was saved by itself, once said ε = 1 of a model with a threshold that cost as much."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2)) / 3
    y = (X[:, 0] + rng.normal(size=3000) / 3 > 0.7).astype(int)
    model = PrivateClassifier(1.0, row_norm=1.0, classes=[0, 1], rounds=20).fit(X, y)
    assert model.to_result().statement.epsilon == pytest.approx(1.0, abs=1e-3)
    found = model.evaluate(X, y)
    model.use_threshold(found, recall=0.9)
    said = model.to_result()
    assert said.statement == found.statement and said.statement.epsilon == pytest.approx(1.475, abs=2e-3)
    publish(said.save(tmp_path / "run"), tmp_path / "public")
    assert "1.47" in (tmp_path / "public" / "statement.txt").read_text()
    page = model.report(tmp_path / "page.html").read_text()
    assert "true ε" in page and "1.47" in page[page.index("true ε") - 100 : page.index("true ε")]
    model.evaluate(X, y)
    for write in (model.to_result, lambda: model.report(tmp_path / "page.html")):
        with pytest.raises(SpecError, match="was evaluated 2 times"):
            write()
