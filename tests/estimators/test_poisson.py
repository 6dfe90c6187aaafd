"""PrivatePoissonRegressor: rate ratios with intervals, from sums that are released once each."""

import numpy as np
import pytest

from sottovoce import Budget, PrivatePoissonRegressor
from sottovoce.errors import DataError, PrivacyError, SpecError
from sottovoce.estimators.unusable import OwnerWarning

BOUNDS = [(20, 80), (0, 1)]
TRUTH = np.array([0.03, 0.4, -2.0])


def study(N=20_000, seed=0):
    rng = np.random.default_rng(seed)
    X = np.stack([rng.uniform(20, 80, N), rng.integers(0, 2, N)], axis=1)
    years = rng.uniform(0.5, 2.0, N)
    return X, rng.poisson(years * np.exp(X @ TRUTH[:2] + TRUTH[2])).astype(float), years


def model(**changes):
    plain = {"bounds": BOUNDS, "max_count": 8, "exposure_bounds": (0.5, 2.0), "random_state": 0}
    return PrivatePoissonRegressor(**{"epsilon": 1.0} | plain | changes)


@pytest.mark.parametrize(
    "changes",
    [{}, {"random_state": None}, {"n_nodes": 20, "trust": "majority", "random_state": None}, {"n_nodes": 4}],
    ids=str,
)
def test_rate_ratios_in_the_units_of_the_columns(changes):
    X, y, years = study()
    found = model(**changes).fit(X, y, years)
    found.privacy_.verify()
    assert found.privacy_.epsilon == pytest.approx(1.0, rel=1e-6)
    assert found.privacy_.secure == (changes.get("random_state", 0) is None)
    table = found.summary()
    assert np.all(np.abs(table.estimates - TRUTH) < 4.5 * table.errors) and "rate ratio" in str(table)
    assert np.allclose(np.append(found.coef_, found.intercept_), table.estimates)
    expected = years[:5] * np.exp(X[:5] @ table.estimates[:2] + table.estimates[2])
    assert np.allclose(found.predict(X[:5], years[:5]), expected)
    low, high = found.mean_interval(X[:5]).T
    assert np.all((low < found.predict(X[:5])) & (found.predict(X[:5]) < high))


def test_without_noise_it_is_maximum_likelihood():
    """Newton's method on all records, and the inverse information; errors over 8 are too few to matter."""
    X, y, years = study()
    table = model(epsilon=1e6).fit(X, y, years).summary()
    x = np.concatenate([X, np.ones((len(X), 1))], axis=1)
    theta = np.array([0.0, 0.0, np.log(y.sum() / years.sum())])
    for _ in range(20):
        mu = years * np.exp(x @ theta)
        theta = theta + np.linalg.solve((x.T * mu) @ x, x.T @ (y - mu))
    errors = np.sqrt(np.diag(np.linalg.inv((x.T * mu) @ x)))
    assert np.all(np.abs(table.estimates - theta) < 0.5 * errors)
    assert np.allclose(table.errors, errors, rtol=0.2)  # long rows count less


def test_intervals_cover():
    """Of 3 · 150 intervals 95 % are expected to; four deviations of so many are 4.1 points."""
    covered = []
    for seed in range(150):
        X, y, years = study(8000, seed)
        table = model(random_state=seed).fit(X, y, years).summary()
        low, high = table.intervals.T
        covered.append((low <= TRUTH) & (TRUTH <= high))
    assert 0.91 < np.mean(covered) < 0.985


def test_counts_that_scatter_more_have_longer_intervals():
    X, y, years = study()
    rng = np.random.default_rng(1)
    spread = rng.poisson(years * np.exp(X @ TRUTH[:2] + TRUTH[2]) * rng.gamma(1.0, 1.0, len(y))).astype(float)
    one, two = (model(epsilon=100.0, max_count=30).fit(X, counts, years).summary() for counts in (y, spread))
    assert np.all(two.sampling_errors > 1.15 * one.sampling_errors)


def test_a_budget_pays_first(tmp_path):
    X, y, years = study()
    budget = Budget(1.2, 1e-5, tmp_path)
    model(random_state=None, budget=budget).fit(X, y, years)
    assert budget.spent() == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(PrivacyError, match="Poisson regression would bring"):
        model(random_state=None, budget=budget).fit(X, y, years)


def test_the_same_seed_gives_the_same_release_and_both_are_counted():
    X, y, years = study()
    one, two = model().fit(X, y, years), model().fit(X, y, years)
    assert np.array_equal(one.coef_, two.coef_) and two.spent_.epsilon > 1.3


def test_a_record_that_cannot_be_used_is_refused_in_a_simulation_alone():
    X, y, years = study()
    y[3], years[5] = np.nan, -1.0
    with pytest.raises(DataError, match="2 records have no usable count or exposure"):
        model().fit(X, y, years)
    with pytest.warns(OwnerWarning, match="2 records"):
        assert model(random_state=None).fit(X, y, years).privacy_.epsilon == pytest.approx(1.0, rel=1e-6)


def test_a_missing_number_is_refused_in_a_simulation_alone():
    X, y, years = study()
    X[3, 0] = np.nan
    with pytest.raises(DataError, match="1 numbers are missing; fill them in"):
        model().fit(X, y, years)
    with pytest.warns(OwnerWarning, match="1 numbers are missing and count as the middle"):
        assert model(random_state=None).fit(X, y, years).privacy_.epsilon == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_count": None}, "max_count must be given"),
        ({"max_count": 0.1}, "between 1 and 1000"),
        ({"exposure_bounds": (2, 1)}, "exposure_bounds must be"),
        ({"bounds": [(20, 80), None]}, "bounds must be given for every column"),
        ({"epsilon": None}, "give epsilon"),
    ],
)
def test_what_is_not_public_is_requested(changes, message):
    X, y, years = study(500)
    with pytest.raises(SpecError, match=message):
        model().set_params(**changes).fit(X, y, years)


def test_too_few_records_are_refused_before_anything_is_spent():
    X, y, years = study(400)
    with pytest.raises(PrivacyError, match="intervals for 2 columns at ε = 1 need about"):
        model().fit(X, y, years)
