"""Attempts to make PrivateRegressor say more than it knows: odd data, odd bounds, noise that hides everything.

Each of these was tried by hand first. R² over 1 of targets that are all the same, intervals of width 0 from more
columns than records, NaN from bounds whose width is no number, and a model of 10⁷ from `huber(1e9)` were found so.
"""

import itertools
import math
import warnings

import numpy as np
import pytest

from sottovoce import PrivateClassifier, PrivateRegressor, PrivateSearchCV, PublicInputs, load, plan
from sottovoce.errors import PrivacyError, PrivacyLeakWarning, SpecError
from sottovoce.export import publish
from sottovoce.planner.regression import EXPLAINED, SPREAD
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.problem.least_squares import USUAL_MEAN, NoisyLeastSquares

BOUNDS = {"row_norm": 1.0, "target_bounds": (-1, 1)}


def regressor(epsilon=1.0, **more):
    return PrivateRegressor(epsilon, **(BOUNDS | {"random_state": 0} | more))


def records(rows=400, columns=4, scatter=0.1, seed=0):
    """Rows within length 1, targets of which a linear model explains most."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (rows, columns)) / math.sqrt(columns)
    y = X @ rng.normal(size=columns)
    return X, y / (3 * y.std()) + scatter * rng.normal(size=rows)


X, Y = records()
ODD = {
    "targets that are all the same": (X, np.full(400, 0.3)),
    "targets in the middle of the range": (X, np.zeros(400)),
    "targets outside of their range": (X, 100 * Y),
    "five records a hundred times": (np.repeat(X[:5], 80, axis=0), np.repeat(Y[:5], 80)),
    "a column of zeros": (X * [0, 1, 1, 1], Y),
    "nothing but zeros": (0 * X, Y),
    "one column three times": (X[:, [0, 0, 0]], Y),
    "more columns than records": records(30, 80),
    "one record": (X[:1], Y[:1]),
}


@pytest.mark.filterwarnings("ignore:at epsilon")
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 1e3, None])
def test_odd_records_give_numbers_that_make_sense(odd, epsilon):
    rows, targets = ODD[odd]
    for method in ("auto", "statistics", "mean"):
        model = regressor(epsilon, method=method).fit(rows, targets)
        model.privacy_.verify()
        far = model.predict(1e9 * rows)  # rows over the bound are brought to it
        found = model.predict(rows)
        assert np.all(np.isfinite(far)) and np.max(np.abs(found)) < 4
        assert model.r2_ is None or model.r2_ <= 1
        if epsilon == 1e-6:
            assert not np.any(np.abs(found) > 1e-2)  # the middle of the range, or as good as that
        if model.statistics_ is not None:
            low, high = model.predict_interval(rows).T
            assert np.all(low <= found) and np.all(found <= high) and np.all(np.isfinite(high - low))
            if epsilon is not None and epsilon < 1:  # as wide as noise is large: nothing is known
                assert np.min(high - low) > 0.1


def test_r2_is_none_where_noise_hides_how_far_targets_differ():
    flat = regressor(1e3, method="statistics").fit(X, np.full(400, 0.3))
    assert flat.r2_ is None and flat.score(X, np.full(400, 0.3)) <= 1
    assert regressor(1e3, method="statistics").fit(X, Y).r2_ == pytest.approx(
        regressor(None).fit(X, Y).score(X, Y), abs=0.02
    )


@pytest.mark.parametrize("trust", ["nobody", "majority"])
def test_where_noise_hides_everything_it_warns_and_is_the_middle_of_the_range(trust):
    """Of bounds that are public; nodes of 20 records are no error, whose noise is a hundred times what they say."""
    with pytest.warns(UserWarning, match="400 records are not foreseen to teach more than the mean"):
        model = regressor(0.01, n_nodes=20, trust=trust, target_bounds=(10, 30)).fit(X, 20 + 5 * Y)
    assert np.array_equal(model.predict(X), np.full(400, 20.0)) and model.method_ == "mean"
    assert any("Nothing can be learned" in reason for reason in model.plan_.reasons)
    assert model.plan_.predicted >= EXPLAINED
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regressor(0.01, method="mean").fit(X, Y)  # who requests for a constant gets one
        regressor(4.0).fit(X, Y)


@pytest.mark.parametrize("loss", ["huber(0.1)", "huber(1e9)", "absolute", "quantile(0.9)"])
def test_losses_without_statistics_stay_near_the_middle_too(loss):
    with pytest.warns(UserWarning, match="not foreseen"):
        model = regressor(1e-3, loss=loss).fit(X[:50], Y[:50])
    assert np.max(np.abs(model.predict(X))) < 0.1
    assert any("teach more" in reason for reason in model.plan_.reasons)


def test_a_bend_beyond_the_range_is_no_bend():
    """huber(1e9) of targets within ±1 is the squared loss, and has no more noise than that."""
    inputs = {"sizes": (400,), "features": 5, "epsilon": 1.0, "delta": 1e-5, "intercept": 0.5}
    far, squared = (
        plan(PublicInputs(loss=loss, **inputs), method="descent").spec for loss in ("huber(1e9)", "squared")
    )
    assert far.privacy.clip == squared.privacy.clip and far.algorithm == squared.algorithm


@pytest.mark.parametrize("bounds", [(-1e308, 1e308), (-1e200, 0), (0, 1e-200), (1, 1), (math.nan, 1), "ab", (1,)])
def test_bounds_that_cannot_be_computed_with_are_refused(bounds):
    with pytest.raises(SpecError, match="target_bounds must be"):
        regressor(target_bounds=bounds).fit(X, Y)


@pytest.mark.parametrize("epsilon", [1e-7, 1e7])
def test_an_epsilon_that_is_none_is_refused(epsilon):
    with pytest.raises(PrivacyError, match=r"from 1e-06 to 1e\+06"):
        regressor(epsilon).fit(X, Y)


@pytest.mark.filterwarnings("ignore:at epsilon")
@pytest.mark.parametrize(("rows", "columns", "deviation"), [(300, 10, 0.1), (300, 10, 0.33), (1000, 20, 0.2)])
def test_noise_does_no_more_to_a_model_of_nothing_than_was_foreseen(rows, columns, deviation):
    """Targets that no column explains: all that is predicted is noise, or what the records themselves have by chance.

    In R² that is little where targets fill their range, and much where they fill a tenth of it: bounds are the unit.
    """
    for epsilon in (0.1, 0.3, 2.0):
        moved, foreseen = [], 0.0
        for seed in range(4):
            rng = np.random.default_rng(seed)
            Z = rng.normal(size=(rows, columns))
            Z /= np.linalg.norm(Z, axis=1, keepdims=True)
            model = regressor(epsilon, random_state=seed).fit(Z, deviation * rng.normal(size=rows))
            moved.append(np.mean(model.predict(Z) ** 2))
            foreseen = model.plan_.predicted * SPREAD
        assert np.mean(moved) < foreseen + 2 * columns / rows * deviation**2, (epsilon, moved, foreseen)


@pytest.mark.filterwarnings("ignore:at epsilon")
@pytest.mark.parametrize(("rows", "columns"), [(300, 3), (300, 100), (90, 45), (60, 150)])
@pytest.mark.parametrize("epsilon", [1.0, 1e3, None])
def test_intervals_cover_new_records_however_many_columns_there_are(rows, columns, epsilon):
    """With half as many columns as records, and more: what was fitted is not what new targets scatter by."""
    covered = []
    for seed in range(8):
        Z, t = records(rows + 1000, columns, 0.15, seed)
        settings = {"method": "statistics", "target_bounds": (-2, 2), "random_state": seed}
        model = regressor(epsilon, **settings).fit(Z[:rows], t[:rows])
        low, high = model.predict_interval(Z[rows:], 0.9).T
        covered.append(np.mean((low <= t[rows:]) & (t[rows:] <= high)))
    assert np.mean(covered) > 0.9 - 2.5 * np.std(covered, ddof=1) / math.sqrt(8) - 0.01, covered
    if columns < 10 and epsilon != 1.0:  # and no wider than they must be
        assert np.mean(covered) < 0.93


@pytest.mark.parametrize("deviation", [0.05, 0.2, 0.5, 2.0])
def test_a_noisy_mean_is_hardly_worse_than_the_middle_and_better_where_it_is_known(deviation):
    """Squared errors over 400 draws of the noise, which alone would cost deviation²: 4.0 in the last case."""
    rng, B = np.random.default_rng(1), 0.5
    s = deviation * math.sqrt(2.0) * B**2
    errors = {}
    for mean in (0.0, 0.2, 0.6):
        found = []
        for cross, square in zip(*rng.normal(0.0, s, (2, 400)).tolist(), strict=True):
            details = B * mean + cross / (math.sqrt(2.0) * B), mean**2 + 0.05 + square / B**2
            fit = NoisyLeastSquares(np.array([[B**2]]), np.array(details[:1]), details[1], s, B, B).solve()
            found.append((B * fit.x[0] - mean) ** 2)
        errors[mean] = np.mean(found)
    assert errors[0.0] < min(deviation**2, 0.25 * USUAL_MEAN**2)
    assert errors[0.2] < 1.05 * 0.2**2 and errors[0.6] < 1.05 * 0.6**2
    if deviation < 0.1:
        assert errors[0.6] < 2 * deviation**2


def test_more_noise_is_never_foreseen_to_be_better():
    for features, size in itertools.product((3, 50, 800), (1, 40, 3000)):
        losses = [
            plan(PublicInputs((size,), features, epsilon, 1e-5, "squared", intercept=0.5), method="auto").predicted
            for epsilon in (1e-6, 1e-3, 0.1, 1.0, 10.0, 1e3)
        ]
        assert all(after <= before + 0.02 for before, after in itertools.pairwise(losses)), (features, size, losses)
        assert losses[0] <= 1.0 + 1e-6


@pytest.mark.filterwarnings("ignore:A run of the search")
def test_classes_that_were_read_off_the_records_are_in_every_verdict(tmp_path):
    """One label of a third class makes a model of three, whatever ε; only a Python warning said so."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 2)) / 3, np.arange(400) % 2
    words = "but not of the list of classes, which was read off the records"
    with pytest.warns(PrivacyLeakWarning, match="classes was not given"):
        model = PrivateClassifier(1.0, row_norm=1.0, rounds=3).fit(X, y)
    y[7] = 2
    with pytest.warns(PrivacyLeakWarning, match="classes was not given"):
        assert len(PrivateClassifier(1.0, row_norm=1.0, rounds=3).fit(X, y).coef_) == 3
    said = [model.privacy_, load(model.save(tmp_path / "run")).privacy_]
    publish(tmp_path / "run", tmp_path / "public")
    found = model.evaluate(X, y % 2).statement, model.evaluate(X, y % 2, disjoint=True).statement
    for each in (*said, *found):
        each.verify()
        assert words in each.verdict() and each.not_covered[0] == each.excluded and "classes" in each.excluded
        assert PrivacyStatement.from_json(each.to_json()) == each
    card, text = ((tmp_path / "public" / name).read_text() for name in ("MODEL_CARD.md", "statement.txt"))
    assert words in " ".join(card.split()) and words in text
    given = PrivateClassifier(1.0, row_norm=1.0, rounds=3, classes=[0, 1]).fit(X, y % 2).privacy_
    assert not given.excluded and words not in given.verdict() and "excluded" not in given.to_dict()
    search = PrivateSearchCV(PrivateClassifier(row_norm=1.0), {"rounds": [2, 3]}, epsilon=5.0)
    with pytest.warns(PrivacyLeakWarning, match="classes was not given"):
        assert search.fit(X, y % 2).privacy_.excluded


def test_a_model_that_continues_another_says_that_its_verdict_is_of_the_last_fit(tmp_path):
    """Its report and its folder once said 1 where both fits on the same records cost 1.475."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 2)) / 3, np.arange(400) % 2
    model = PrivateClassifier(1.0, row_norm=1.0, rounds=3, classes=[0, 1], warm_start=True).fit(X, y)
    assert not model.privacy_.excluded
    words = "but not of the 1 earlier fit that this one goes on from"
    assert words in model.fit(X, y).privacy_.verdict() and model.spent_.epsilon == pytest.approx(1.475, abs=2e-3)
    assert words in load(model.save(tmp_path / "run")).privacy_.verdict()
    assert words in model.report(tmp_path / "page.html").read_text()
    assert "2 earlier fits" in model.fit(X, y).privacy_.verdict()
