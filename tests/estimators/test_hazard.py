"""PrivateSurvival: hazard ratios and survival curves with intervals, from sums that are released once each."""

import numpy as np
import pytest

from sottovoce import Budget, PrivateSurvival
from sottovoce.errors import DataError, PrivacyError, SpecError
from sottovoce.estimators.unusable import OwnerWarning

BOUNDS, TIMES = [(20, 80), (0, 1)], [1, 2, 3, 4, 5]
TRUTH = np.array([0.03, 0.4])
RATE = -4.2


def study(N=20_000, seed=0):
    """Proportional hazards, constant in time."""
    rng = np.random.default_rng(seed)
    X = np.stack([rng.uniform(20, 80, N), rng.integers(0, 2, N)], axis=1)
    left, end = rng.exponential(np.exp(-X @ TRUTH - RATE)), rng.uniform(1, 8, N)
    return X, np.minimum(left, end), left <= end


def model(**changes):
    return PrivateSurvival(**{"epsilon": 1.0, "bounds": BOUNDS, "times": TIMES, "random_state": 0} | changes)


@pytest.mark.parametrize(
    "changes",
    [{}, {"random_state": None}, {"n_nodes": 20, "trust": "majority", "random_state": None}, {"n_nodes": 4}],
    ids=str,
)
def test_hazard_ratios_in_the_units_of_the_columns(changes):
    X, time, event = study()
    found = model(**changes).fit(X, time, event)
    found.privacy_.verify()
    assert found.privacy_.epsilon == pytest.approx(1.0, rel=1e-6)
    assert found.privacy_.secure == (changes.get("random_state", 0) is None)
    table = found.summary()
    truth = np.append(TRUTH, np.full(5, RATE))
    assert np.all(np.abs(table.estimates - truth) < 4.5 * table.errors) and "hazard ratio" in str(table)
    assert np.array_equal(np.append(found.coef_, found.intercept_), table.estimates)
    assert table.names[2:4] == ("(0, 1]", "(1, 2]") and "20,000 people" in str(table)
    bands = found.survival([[50, 0], [70, 1]])
    exact = np.exp(-np.outer(np.exp(np.array([[50, 0], [70, 1]]) @ TRUTH + RATE), TIMES))
    assert bands.survival.shape == (2, 5) and np.all(np.diff(bands.survival, axis=1) < 0)
    assert np.all((bands.low < bands.survival) & (bands.survival < bands.high))
    assert np.all(np.abs(bands.survival - exact) < 4.5 * (bands.high - bands.low) / 3.9)


@pytest.mark.parametrize("ratio", ["hazard", "odds"])
def test_intervals_cover(ratio):
    """Of 100 studies with 7 numbers 95 % are expected to; four deviations, as if a study were one number, are 9 points.

    Odds of leaving by an event within an interval, where few do, are as hazards are, to a tenth of a standard error.
    """
    covered, bands = [], []
    for seed in range(100):
        X, time, event = study(5000, seed)
        found = model(random_state=seed, epsilon=4.0, ratio=ratio).fit(X, time, event)
        low, high = found.summary().intervals[:2].T
        covered.append((low <= TRUTH) & (TRUTH <= high))
        curve = found.survival([[50, 1]])
        exact = np.exp(-np.exp(1.5 + 0.4 + RATE) * np.array(TIMES))
        bands.append((curve.low[0] <= exact) & (exact <= curve.high[0]))
    assert np.mean(covered) > 0.86 and np.mean(bands) > 0.86


def test_a_budget_pays_first(tmp_path):
    X, time, event = study()
    budget = Budget(1.2, 1e-5, tmp_path)
    model(random_state=None, budget=budget).fit(X, time, event)
    assert budget.spent() == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(PrivacyError, match="survival regression would bring"):
        model(random_state=None, budget=budget).fit(X, time, event)


def test_the_same_seed_gives_the_same_release_and_both_are_counted():
    X, time, event = study()
    one, two = model().fit(X, time, event), model().fit(X, time, event)
    assert np.array_equal(one.coef_, two.coef_) and two.spent_.epsilon > 1.3


def test_a_record_that_cannot_be_used_is_refused_in_a_simulation_alone():
    X, time, event = study()
    time[3], event = -1.0, event.astype(float)
    event[5] = 2.0
    with pytest.raises(DataError, match="2 records have no usable time or event"):
        model().fit(X, time, event)
    with pytest.warns(OwnerWarning, match="2 records"):
        assert model(random_state=None).fit(X, time, event).privacy_.epsilon == pytest.approx(1.0, rel=1e-6)


def test_a_missing_number_is_refused_in_a_simulation_alone():
    X, time, event = study()
    X[3, 0] = np.nan
    with pytest.raises(DataError, match="1 numbers are missing; fill them in"):
        model().fit(X, time, event)
    with pytest.warns(OwnerWarning, match="1 numbers are missing and count as the middle"):
        assert model(random_state=None).fit(X, time, event).privacy_.epsilon == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"times": None}, "times must be given"),
        ({"times": [2, 1]}, "over 0 and increasing"),
        ({"ratio": "risk"}, "ratio must be 'hazard' or 'odds'"),
        ({"max_hazard": 0.5}, "max_hazard must be between 1 and 100"),
        ({"bounds": [(20, 80), None]}, "bounds must be given for every column"),
        ({"epsilon": None}, "give epsilon"),
    ],
)
def test_what_is_not_public_is_requested(changes, message):
    X, time, event = study(500)
    with pytest.raises(SpecError, match=message):
        model().set_params(**changes).fit(X, time, event)


def test_columns_are_of_one_length():
    X, time, event = study(500)
    with pytest.raises(DataError, match="500 records but 499 times"):
        model().fit(X, time[:-1], event[:-1])


def test_too_few_people_are_refused_before_anything_is_spent():
    X, time, event = study(400)
    with pytest.raises(PrivacyError, match=r"intervals for 2 columns and 5 times at ε = 1 need about .* people"):
        model().fit(X, time, event)
