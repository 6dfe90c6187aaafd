"""Laws of the models: the right optimum without noise, scale-free, consistent between fit and predict."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, QuantileRegressor, Ridge
from sklearn.svm import LinearSVC

from sottovoce import PrivateClassifier, PrivateRegressor
from sottovoce.errors import DataError
from sottovoce.estimators.base import check_no_missing
from sottovoce.privacy.sampling import Fixed, Full, Poisson
from sottovoce.problem.regularizers import l2


@pytest.fixture
def data():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(400, 4))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    score = X @ np.array([2.0, -1.0, 0.5, 0.0]) + 0.2
    return X, score, rng


def classifier(**more):
    settings = {"row_norm": 1.0, "classes": (0, 1), "random_state": 0}
    return PrivateClassifier(**(settings | more))


def regressor(**more):
    settings = {"row_norm": 1.0, "target_bounds": (-1, 1), "random_state": 0}
    return PrivateRegressor(**(settings | more))


@pytest.mark.parametrize("nodes", [1, 4])
def test_without_noise_a_logistic_model_is_scikit_learns(data, nodes):
    X, score, rng = data
    y = (score + 0.3 * rng.normal(size=len(score)) > 0).astype(int)
    mine = classifier(epsilon=None, loss="logistic", alpha=0.01, fit_intercept=False, rounds=3000, n_nodes=nodes)
    theirs = LogisticRegression(C=1 / (0.01 * len(y)), fit_intercept=False, tol=1e-10).fit(X, y)
    mine.fit(X, y)
    assert np.allclose(mine.coef_, theirs.coef_, atol=5e-3 * np.abs(theirs.coef_).max())
    assert np.allclose(mine.predict_proba(X), theirs.predict_proba(X), atol=5e-3)
    assert not mine.privacy_.private and "NOT PRIVATE" in mine.privacy_.verdict()


def test_without_noise_a_hinge_model_is_as_good_as_a_support_vector_machine(data):
    X, score, rng = data
    y = (score + 0.3 * rng.normal(size=len(score)) > 0).astype(int)

    def objective(w):
        return np.mean(np.maximum(0, 1 - (2 * y - 1) * (X @ w))) + 0.005 * w @ w

    mine = classifier(epsilon=None, alpha=0.01, fit_intercept=False, rounds=3000).fit(X, y).coef_[0]
    svm = LinearSVC(loss="hinge", C=1 / (0.01 * len(y)), fit_intercept=False, tol=1e-8, max_iter=100000).fit(X, y)
    assert objective(mine) <= objective(svm.coef_[0]) * 1.002


def test_without_noise_regressions_are_scikit_learns(data):
    X, score, rng = data
    y = score / 4 + 0.1 * rng.normal(size=len(score))
    mine = regressor(epsilon=float("inf"), loss="squared", alpha=0.01, fit_intercept=False, rounds=3000).fit(X, y)
    theirs = Ridge(alpha=0.01 * len(y), fit_intercept=False).fit(X, y)
    assert np.allclose(mine.coef_, theirs.coef_, atol=2e-3)
    mine = regressor(epsilon=None, loss="quantile(0.8)", alpha=1e-3, rounds=5000).fit(X, y)
    theirs = QuantileRegressor(quantile=0.8, alpha=0).fit(X, y)
    assert np.mean(y <= mine.predict(X)) == pytest.approx(0.8, abs=0.05)
    assert mine.score(X, y) > theirs.score(X, y) - 0.05


@pytest.mark.parametrize("factor", [1e-3, 0.5, 64.0])
def test_units_of_measure_do_not_matter(data, factor):
    X, score, _ = data
    y = (score > 0).astype(int)
    one, other = classifier().fit(X, y), classifier(row_norm=factor).fit(factor * X, y)
    assert np.allclose(other.coef_ * factor, one.coef_, rtol=1e-9) and other.plan_ == one.plan_
    assert np.allclose(other.decision_function(factor * X), one.decision_function(X), rtol=1e-9)
    one = regressor().fit(X, score / 4)
    other = regressor(target_bounds=(100 - factor, 100 + factor)).fit(X, 100 + factor * score / 4)
    assert np.allclose(other.predict(X), 100 + factor * one.predict(X), rtol=1e-9)


def test_fit_and_predict_scale_long_rows_the_same_way(data):
    X, score, _ = data
    y = (score > 0).astype(int)
    model = classifier(row_norm=0.5).fit(X, y)
    longer = X * np.linspace(1.0, 50.0, len(X))[:, None]
    within = np.linalg.norm(X, axis=1) >= 0.5
    assert np.allclose(model.decision_function(longer)[within], model.decision_function(X)[within], rtol=1e-9)
    assert np.allclose(classifier(row_norm=0.5).fit(np.where(within[:, None], longer, X), y).coef_, model.coef_)
    short = X * 0.5
    assert np.allclose(model.decision_function(short), short @ model.coef_[0] + model.intercept_[0])


def test_targets_beyond_their_range_count_as_its_ends(data):
    X, score, _ = data
    y = score / 4
    clipped = regressor(target_bounds=(-0.2, 0.2)).fit(X, np.clip(y, -0.2, 0.2))
    assert np.array_equal(regressor(target_bounds=(-0.2, 0.2)).fit(X, y).coef_, clipped.coef_)


def test_a_constant_term_is_found(data):
    X, score, _ = data
    model = regressor(epsilon=None, alpha=1e-4, loss="squared", target_bounds=(15, 30), rounds=3000).fit(X, 25 + score)
    assert model.intercept_ == pytest.approx(25.2, abs=0.2) and np.allclose(model.coef_, [2, -1, 0.5, 0], atol=0.2)
    flat = regressor(fit_intercept=False).fit(X, score / 4)
    assert flat.intercept_ == 0.0 and flat.node_intercept_.tolist() == [0.0]


def test_every_node_has_a_model_and_their_mean_is_the_model(data):
    X, score, _ = data
    y = np.where(score > 0, "b", "a")
    nodes = np.arange(len(y)) % 3 + 10
    model = classifier(classes=["a", "b"], graph="ring", activation="matching(1)").fit(X, y, nodes=nodes)
    assert model.node_coef_.shape == (3, 1, 4) and model.node_intercept_.shape == (3, 1)
    assert np.allclose(model.node_coef_.mean(axis=0), model.coef_) and model.nodes_.tolist() == ["10", "11", "12"]
    assert np.ptp(model.node_coef_, axis=0).max() > 0
    partitioned = classifier(classes=["a", "b"], graph="ring", activation="matching(1)", n_nodes=3).fit(X, y)
    assert np.array_equal(partitioned.coef_, model.coef_)  # rows are assigned in turn


def test_where_an_owners_rows_stand_in_the_table_does_not_matter(data):
    X, score, rng = data
    y, nodes = (score > 0).astype(int), rng.choice(["u", "v"], len(score))
    together = np.argsort(nodes, kind="stable")
    scattered = classifier().fit(X, y, nodes=nodes)
    assert np.allclose(classifier().fit(X[together], y[together], nodes=nodes[together]).coef_, scattered.coef_)


def test_every_loss_has_probabilities_that_agree_with_its_answers(data):
    X, score, _ = data
    y = (score > 0).astype(int)
    model = classifier(loss="softmax").fit(X, y)  # of two classes: logistic
    likely = model.predict_proba(X)
    assert np.allclose(likely.sum(axis=1), 1) and np.allclose(likely[:, 1], expit(model.decision_function(X)))
    assert np.array_equal(likely.argmax(axis=1), model.predict(X)) and model.coef_.shape == (1, 4)
    assert np.array_equal(classifier(loss="logistic").fit(X, y).coef_, model.coef_)
    for loss in ("hinge", "smoothed_hinge(0.5)", "squared_hinge"):
        hinge = classifier(loss=loss).fit(X, y)
        likely = hinge.predict_proba(X)
        assert np.allclose(likely[:, 1], expit(1.5 * hinge.decision_function(X)))
        assert np.array_equal(likely.argmax(axis=1), hinge.predict(X))
        assert np.allclose(np.exp(hinge.predict_log_proba(X)), likely)
    three = classifier(classes=(0, 1, 2), loss="hinge").fit(X, y)
    likely = three.predict_proba(X)
    assert np.allclose(likely.sum(axis=1), 1) and np.array_equal(likely.argmax(axis=1), three.predict(X))


def test_penalties_do_what_they_say(data):
    X, score, _ = data
    y = (score > 0).astype(int)

    def coef(**more):
        return classifier(epsilon=None, rounds=1000, **more).fit(X, y).coef_[0]

    assert np.sum(coef(penalty="l1", alpha=0.05) == 0) >= 1
    assert np.all(coef(penalty="l1", alpha=2.0) == 0)
    assert np.linalg.norm(coef(alpha=1.0)) < np.linalg.norm(coef(alpha=0.1)) < np.linalg.norm(coef(penalty=None))
    mixed = classifier(penalty="elasticnet", alpha=0.1, l1_ratio=0.25).fit(X, y)
    h = mixed.spec_.problem.h
    assert (h.phi, h.mu) == pytest.approx((0.025, 0.075))
    assert classifier(penalty="elasticnet", l1_ratio=1.0).fit(X, y).spec_.problem.h.phi > 0


def test_what_is_fixed_is_what_is_run(data):
    X, score, _ = data
    y = (score > 0).astype(int)
    wanted = {"graph": "ring", "activation": "matching(2)", "rounds": 17, "sampling": "fixed", "batch": 8}
    spec = classifier(n_nodes=4, alpha=0.3, delta=1e-6, **wanted).fit(X, y).spec_
    assert (str(spec.network.graph), str(spec.network.activation), spec.algorithm.rounds) == ("ring", "matching(2)", 17)
    assert (spec.privacy.sampling, spec.privacy.delta, spec.problem.h) == (Fixed(8), 1e-6, l2(0.3))
    assert classifier(batch=9).fit(X, y).spec_.privacy.sampling == Poisson(9)
    assert classifier(sampling="poisson").fit(X, y).spec_.privacy.sampling == Poisson(64)
    assert classifier(sampling="full").fit(X, y).spec_.privacy.sampling == Full()


@pytest.mark.parametrize("engine", ["reference", "nodes", "compiled"])
def test_engines_agree(data, engine):
    X, score, _ = data
    y = (score > 0).astype(int)
    settings = {"n_nodes": 3, "rounds": 30, "sampling": "poisson", "batch": 16}
    reference = classifier(**settings).fit(X, y)
    assert np.allclose(classifier(engine=engine, **settings).fit(X, y).coef_, reference.coef_, rtol=1e-4, atol=1e-6)


def test_a_warm_start_continues_from_the_last_model_and_adds_up_its_cost(data):
    X, score, _ = data
    y = (score > 0).astype(int)
    model = classifier(warm_start=True, rounds=5, alpha=1e-3, n_nodes=2).fit(X, y)
    cold, first = model.coef_.copy(), model.privacy_
    assert model.spent_.epsilon == first.epsilon and model.spent_.fits == 1
    model.fit(X, y)
    assert model.spec_.seed not in (0, None) and model.privacy_.simulation  # new noise, not the same again
    assert model.spec_.algorithm.distance.center is not None and np.linalg.norm(model.coef_) > np.linalg.norm(cold)
    assert first.epsilon < model.spent_.epsilon < 2 * first.epsilon and model.spent_.fits == 2
    twice = classifier(epsilon=model.spent_.epsilon, rounds=10, alpha=1e-3, n_nodes=2).fit(X, y)  # Gaussian: one curve
    assert twice.privacy_.worst.event.sigma == pytest.approx(model.privacy_.worst.event.sigma, rel=1e-2)
    assert classifier(rounds=5, alpha=1e-3, n_nodes=2).fit(X, y).fit(X, y).spent_.fits == 5  # anyone who fits them
    model.set_params(epsilon=None).fit(X, y)
    assert model.spent_.epsilon == float("inf") and "without noise" in model.spent_.verdict()
    with pytest.raises(ValueError, match="goes on from a model of other nodes"):
        model.set_params(n_nodes=3).fit(X, y)


@pytest.mark.parametrize("loss", ["auto", "hinge", "logistic"])
def test_several_classes_are_distinguished(loss):
    rng = np.random.default_rng(2)
    y = rng.choice(["ash", "birch", "cedar"], 900)
    X = np.array([[np.cos(a), np.sin(a)] for a in 2.1 * np.searchsorted(["ash", "birch", "cedar"], y)])
    X = 0.6 * X + 0.1 * rng.normal(size=X.shape)
    model = classifier(classes=["cedar", "ash", "birch"], loss=loss, n_nodes=3).fit(X, y)
    assert model.classes_.tolist() == ["ash", "birch", "cedar"] and model.score(X, y) > 0.95
    assert model.coef_.shape == (3, 2) and model.intercept_.shape == (3,) and model.node_coef_.shape == (3, 3, 2)
    scores = model.decision_function(X)
    assert np.array_equal(model.classes_[scores.argmax(axis=1)], model.predict(X))
    assert model.loss_ == ("softmax" if loss == "auto" else loss)
    if loss != "hinge":
        likely = model.predict_proba(X)
        assert np.allclose(likely.sum(axis=1), 1) and np.array_equal(likely.argmax(axis=1), scores.argmax(axis=1))
    (clip,) = {group.event.clip for group in model.privacy_.groups}  # one release for all classes, accounted once
    assert clip <= (np.sqrt(2) if loss == "auto" else np.sqrt(3)) * np.hypot(1.0, 0.5) * (1 + 1e-12)


def test_without_noise_a_softmax_model_is_scikit_learns(data):
    X, score, rng = data
    y = np.digitize(score + 0.3 * rng.normal(size=len(score)), [-0.5, 0.5])
    mine = classifier(epsilon=None, classes=(0, 1, 2), alpha=0.01, fit_intercept=False, rounds=3000, n_nodes=2)
    theirs = LogisticRegression(C=1 / (0.01 * len(y)), fit_intercept=False, tol=1e-10).fit(X, y)
    assert np.allclose(mine.fit(X, y).predict_proba(X), theirs.predict_proba(X), atol=1e-2)


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0.0, np.nan]),
        np.array([0.0, complex(0.0, np.nan)]),
        np.array(["2026-11-16", "NaT"], dtype="datetime64[D]"),
        np.array(["a", None], dtype=object),
    ],
)
def test_a_record_without_a_label_is_named(labels):
    with pytest.raises(DataError, match="no label for record 1"):
        check_no_missing(labels, "y", "label")
    check_no_missing(labels[:1], "y", "label")
    check_no_missing(np.arange(2), "y", "label")
