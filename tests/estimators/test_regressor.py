"""PrivateRegressor gets better as ε grows, says what it foresees, and what its intervals and paths promise.

Why it once got worse: the plan's steps were up to 32, and a loss of curvature 1 on rows of length √1.25 is stable below
1.6 (`test_no_step_is_longer_than_public_bounds_allow` fails on that plan, and so does the one after it).
"""

import itertools
import math
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import ElasticNet, LinearRegression

from sottovoce import PrivateRegressor, PublicInputs, plan
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.planner.regression import EXPLAINED, OFF, RESIDUAL, _picture, longest_step
from sottovoce.problem.losses import LOSSES

GRID = (0.1, 1.0, 10.0, 100.0, 1000.0)


def uniform(records=3000, columns=8, scatter=0.02, seed=0):
    """Uniform features and a linear target of deviation 1/3, of which the last third is for testing."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (records * 3 // 2, columns)) / math.sqrt(columns)
    y = X @ rng.normal(size=columns)
    y = y / (3 * y.std()) + scatter * rng.normal(size=len(y))
    return X[:records], y[:records], X[records:], y[records:]


def regressor(epsilon=1.0, **more):
    settings = {"row_norm": 1.0, "target_bounds": (-1, 1), "random_state": 0}
    return PrivateRegressor(epsilon, **(settings | more))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 100.0, 1e4])
@pytest.mark.parametrize("loss", ["huber(0.25)", "huber(1)", "absolute", "quantile(0.8)", "squared"])
def test_no_step_is_longer_than_public_bounds_allow(loss, epsilon):
    inputs = PublicInputs((500,) * 4, 11, epsilon, 1e-5, loss, intercept=0.5)
    spec = plan(inputs, clip=0.2 if loss == "squared" else None).spec
    step, curvature = 1 / float(spec.algorithm.gamma(1)[0]), LOSSES.read(loss).smoothness * 1.25
    if math.isfinite(curvature):
        assert step < 2 / curvature
    assert step <= 1.001 * longest_step(LOSSES.read(loss), math.sqrt(1.25), LOSSES.read(loss).slope_bound)


def test_a_plan_for_targets_in_other_units_is_the_same():
    inputs = {"sizes": (800,), "features": 9, "epsilon": 1.0, "delta": 1e-5, "intercept": 0.5}
    one, other = (plan(PublicInputs(loss=f"huber({k})", **inputs)).spec for k in (0.25, 250.0))
    assert (
        one.algorithm == other.algorithm
        and one == plan(PublicInputs(loss="huber(0.25)", **inputs), method="descent").spec
    )


@pytest.mark.parametrize("nodes", [1, 5])
def test_more_privacy_budget_is_never_worse(nodes):
    X, y, held, truth = uniform()
    scores = [regressor(epsilon, n_nodes=nodes).fit(X, y).score(held, truth) for epsilon in GRID]
    assert all(after > before - 0.02 for before, after in itertools.pairwise(scores)), scores
    assert scores[0] > 0 and scores[-1] > LinearRegression().fit(X, y).score(held, truth) - 0.01


@pytest.mark.parametrize("loss", ["huber(0.25)", "absolute", "quantile(0.5)"])
def test_robust_losses_get_better_too(loss):
    X, y, held, truth = uniform(2000, 4, scatter=0.1)
    scores = [regressor(epsilon, loss=loss).fit(X, y).score(held, truth) for epsilon in (0.3, 3.0, 300.0)]
    assert scores[0] < scores[1] + 0.02 < scores[2] + 0.04 and scores[2] > 0.85, scores


def test_outliers_and_heavy_tails_stay_within_their_bounds():
    X, y, held, truth = uniform(3000, 5, scatter=0.05)
    rng = np.random.default_rng(1)
    wild = np.where(rng.random(len(y)) < 0.1, 100 * rng.standard_cauchy(len(y)), y)
    scores = [regressor(epsilon).fit(X, wild).score(held, truth) for epsilon in (1.0, 30.0, 1000.0)]
    assert min(scores) > 0.85, scores


def pictured(records=1500, columns=10, seed=0):
    """Records as the planner pictures them; rows are signs times deviations, so that all have the same length."""
    rng = np.random.default_rng(seed)
    picture = _picture(PublicInputs((records,), columns + 1, 1.0, 1e-5, intercept=0.5))
    counts = picture.counts[:-1].astype(int)  # without the intercept's direction
    values, powers = np.repeat(picture.values[:-1], counts), np.repeat(picture.powers[:-1], counts)
    X = rng.choice([-1.0, 1.0], (5 * records, len(values))) * np.sqrt(values)
    y = np.clip(OFF + X @ np.sqrt(powers / values) + rng.normal(0, RESIDUAL, len(X)), -1, 1)
    return X[:records], y[:records], X[records:], y[records:]


@pytest.mark.parametrize("data", [pictured, partial(uniform, scatter=0.15)], ids=["pictured", "uniform"])
def test_what_is_foreseen_is_a_loss_of_r2_and_about_right(data):
    """Where data are as pictured; where no direction is faint it is more than is lost, and never much too hopeful."""
    X, y, held, truth = data(1500, 10)
    best = LinearRegression().fit(X, y).score(held, truth)
    foreseen = []
    for epsilon in (0.1, 0.5, 2.0):
        fits = [regressor(epsilon, random_state=seed).fit(X, y) for seed in range(4)]
        lost = best - np.mean([fit.score(held, truth) for fit in fits])
        foreseen.append(fits[0].plan_.predicted)
        if data is pictured:
            assert 0.8 * lost < foreseen[-1] < 1.8 * lost, (epsilon, lost, foreseen)
        assert foreseen[-1] > 0.3 * lost - 0.02
        assert any("loss of R²" in reason for reason in fits[0].plan_.reasons)
    assert foreseen == sorted(foreseen, reverse=True)


def test_where_nothing_can_be_learned_it_says_so_and_stays_near_a_constant():
    X, y, held, _ = uniform(400, 40)
    with pytest.warns(UserWarning, match="not foreseen to teach more than the mean"):
        model = regressor(0.05).fit(X, y)
    assert model.plan_.predicted >= EXPLAINED
    assert any("Nothing can be learned" in reason or "teach more" in reason for reason in model.plan_.reasons)
    assert np.std(model.predict(held)) < 0.1
    constant = regressor(0.5, method="mean").fit(X, y + 0.4)
    assert constant.method_ == "mean" and not np.any(constant.coef_)
    assert constant.intercept_ == pytest.approx(0.4, abs=0.15)


def test_the_plan_takes_statistics_where_they_win_and_gradients_where_those_do():
    inputs = {"features": 11, "delta": 1e-5, "loss": "squared", "intercept": 0.5}
    few, many = PublicInputs((300,), epsilon=0.5, **inputs), PublicInputs((20_000,), epsilon=100.0, **inputs)
    assert plan(few, method="auto").spec.algorithm.method.name == "dual_averaging"
    chosen = plan(many, method="auto")
    assert chosen.spec.algorithm.method.name == "statistics" and chosen.alternatives[0]["method"] == "statistics"
    wide = PublicInputs((20_000,), epsilon=100.0, **(inputs | {"features": 5000}))
    assert plan(wide, method="auto").spec.algorithm.method.name == "dual_averaging"


@pytest.mark.parametrize("nodes", [1, 4])
def test_statistics_are_released_once_and_said_so(nodes):
    X, y, *_ = uniform(800, 3)
    secret = regressor(2.0, method="statistics", n_nodes=nodes, random_state=None).fit(X, y)
    event = secret.privacy_.worst.event
    assert secret.privacy_.secure and event.count == 1 and event.sampling == "products"
    secret.privacy_.verify()
    thin = regressor(2.0, method="statistics", n_nodes=nodes).fit(sparse.csr_array(X), y)
    assert np.allclose(thin.coef_, regressor(2.0, method="statistics", n_nodes=nodes).fit(X, y).coef_)


def test_people_are_protected_as_a_whole():
    X, y, held, truth = uniform(3000, 3)
    model = regressor(20.0, method="statistics").fit(X, y, user_ids=np.arange(3000) // 3)
    assert model.privacy_.unit == "one person" and model.score(held, truth) > 0.9


def test_a_whole_path_costs_one_release():
    X, y, *_ = uniform(2000, 5, scatter=0.1)
    model = regressor(1000.0, method="statistics", fit_intercept=False).fit(X, y)
    before, alphas = model.spent_, [1e-4, 1e-2, 0.05]
    coef, constant = model.path(alphas, "elasticnet", 0.5)
    theirs = [ElasticNet(alpha=a, l1_ratio=0.5, fit_intercept=False, tol=1e-9).fit(X, y).coef_ for a in alphas]
    assert np.allclose(coef, theirs, atol=0.01) and not np.any(constant)
    assert model.spent_ == before
    lengths = np.linalg.norm(model.path([0.0, 0.1, 1.0], "l2")[0], axis=1)
    assert lengths[0] > lengths[1] > lengths[2]


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 100.0])
def test_intervals_cover_as_often_as_they_say(epsilon):
    covered, narrow, widths = [], [], []
    for seed in range(6):
        X, y, held, truth = uniform(4000, 5, scatter=0.15, seed=seed)
        model = regressor(epsilon, method="statistics", random_state=seed).fit(X, y)
        low, high = model.predict_interval(held, 0.9).T
        covered.append(np.mean((low <= truth) & (truth <= high)))
        middle, half = (low + high) / 2, (high - low) / 2 / 1.3
        narrow.append(np.mean(np.abs(truth - middle) <= half))
        widths.append(np.mean(high - low))
    assert np.mean(covered) > 0.89, covered
    if epsilon >= 2:  # where noise is not all there is, they are no wider than they must be
        assert np.mean(covered) < 0.94 and np.mean(narrow) < 0.87
        assert np.mean(widths) == pytest.approx(2 * 1.645 * 0.15, rel=0.15)


def test_intervals_that_ignored_the_noise_would_not_cover():
    """At a small ε: the errors of the model itself, which only the noise explains, are most of the width."""
    covered = []
    for seed in range(6):
        X, y, held, truth = uniform(4000, 5, scatter=0.02, seed=seed)
        model = regressor(0.3, method="statistics", random_state=seed).fit(X, y)
        covered.append(np.mean(np.abs(truth - model.predict(held)) <= 1.645 * 0.02))
        low, high = model.predict_interval(held, 0.9).T
        assert np.mean((low <= truth) & (truth <= high)) > 0.85
    assert np.mean(covered) < 0.7


def test_r2_is_estimated_from_the_release_itself():
    X, y, *_ = uniform(4000, 5, scatter=0.15)
    model = regressor(5.0, method="statistics").fit(X, y)
    assert model.r2_ == pytest.approx(model.score(X, y), abs=0.05)
    assert regressor(5.0, method="descent").fit(X, y).r2_ is None


def test_without_noise_it_is_least_squares():
    X, y, *_ = uniform(500, 5, scatter=0.2)
    model = regressor(None, n_nodes=3).fit(X, y)
    theirs = LinearRegression().fit(X, y.clip(-1, 1))
    assert np.allclose(model.coef_, theirs.coef_, atol=1e-6) and model.intercept_ == pytest.approx(theirs.intercept_)


def test_a_further_fit_descends_from_the_last_model():
    X, y, *_ = uniform(2000, 3)
    model = regressor(1000.0, warm_start=True).fit(X, y)
    assert model.method_ == "statistics"
    assert model.fit(X, y).method_ == "descent" and model.score(X, y) > 0.95


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"method": "newton"}, "descent, statistics"),
        ({"method": "statistics", "loss": "huber(0.1)"}, "squared loss"),
        ({"method": "statistics", "rounds": 10}, "rounds"),
        ({"method": "statistics", "graph": "ring", "n_nodes": 5}, "ring"),
        ({"method": "mean", "fit_intercept": False}, "intercept"),
    ],
)
def test_what_does_not_go_together_is_said_in_a_sentence(more, word):
    X, y, *_ = uniform(200, 3)
    with pytest.raises(SpecError, match=word):
        regressor(**more).fit(X, y)


def test_gradients_leave_no_statistics_to_ask():
    X, y, *_ = uniform(200, 3)
    model = regressor(method="descent").fit(X, y)
    with pytest.raises(SpecError, match="method='statistics'"):
        model.predict_interval(X)
    with pytest.raises(SpecError, match="method='statistics'"):
        model.path([0.1])
    with pytest.raises(SpecError, match="coverage"):
        regressor(method="statistics").fit(X, y).predict_interval(X, 1.0)
    with pytest.raises(PrivacyError, match="clip"):
        plan(PublicInputs((100,), 3, 1.0, 1e-5, "squared"))
