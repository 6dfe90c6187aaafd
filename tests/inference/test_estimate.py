"""Estimates and their covariance: without noise those of maximum likelihood, with noise intervals that cover."""

import math

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

from sottovoce.errors import PrivacyError, SpecError
from sottovoce.inference.estimate import LINEAR_SHARES, LOGISTIC_SHARES, STEPS, Settings, linear, logistic
from sottovoce.inference.requirements import check_enough, expected_strength, records_needed
from sottovoce.inference.statistics import weighted
from sottovoce.inference.table import CoefficientTable

LONGEST = math.sqrt(3.0)


def driven(steps, rows, deviation, rng, share=0.9):
    """Send a procedure noisy means of rows."""
    units = len(rows.y) if rows.counts is None else len(rows.counts)
    try:
        stage = next(steps)
        while True:
            mean = stage.total(rows, share) / units
            stage = steps.send(stage.read(mean + deviation * rng.normal(size=len(mean)), deviation, share))
    except StopIteration as done:
        return done.value


def study(seed, N, kind, people=1):
    """Rows with two correlated columns in [−1, 1] and a 0/1 column, and targets of a known model."""
    rng = np.random.default_rng(seed)
    a = rng.uniform(-1, 1, N)
    x = np.stack([a, 0.3 * a + 0.7 * rng.uniform(-1, 1, N), rng.random(N) < 0.3, np.ones(N)], axis=1)
    truth = np.array([1.0, -0.6, 0.8, -0.7]) if kind == "logistic" else np.array([0.2, -0.1, 0.15, 0.1])
    u = x @ truth
    y = np.where(rng.random(N) < 1 / (1 + np.exp(-u)), 1.0, -1.0) if kind == "logistic" else u + rng.normal(0, 0.1, N)
    return weighted(x, y, LONGEST), truth


def estimated(rows, kind, deviation, rng):
    settings = Settings(4, LONGEST, len(rows.y))
    return driven(logistic(settings, np.zeros(4)) if kind == "logistic" else linear(settings), rows, deviation, rng)


def test_shares_add_up_to_the_budget():
    shares = LOGISTIC_SHARES
    assert sum(shares.values()) + (len(STEPS) - 1) * shares["step"] == pytest.approx(1.0)
    assert sum(LINEAR_SHARES.values()) == pytest.approx(1.0)


def test_without_noise_it_is_maximum_likelihood():
    """Estimate and standard errors; rows within the public length have weight 1."""
    rows, _ = study(1, 20_000, "logistic")
    rows = weighted(rows.x, rows.y, 3.0)
    found = driven(logistic(Settings(4, 3.0, 20_000), np.zeros(4)), rows, 1e-12, np.random.default_rng(0))
    peer = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(rows.x[:, :3], rows.y)
    theta = np.append(peer.coef_[0], peer.intercept_[0])
    p = 1 / (1 + np.exp(-rows.x @ theta))
    errors = np.sqrt(np.diag(np.linalg.inv((rows.x.T * (p * (1 - p))) @ rows.x)))
    assert np.allclose(found.theta, theta, atol=0.02 * errors.min())
    assert np.allclose(np.sqrt(np.diag(found.covariance)), errors, rtol=0.02)


def test_without_noise_a_regression_is_nearly_least_squares():
    """Residuals are clipped, which costs little with normal errors."""
    rows, _ = study(2, 20_000, "linear")
    rows = weighted(rows.x, rows.y, 3.0)
    found = driven(linear(Settings(4, 3.0, 20_000)), rows, 1e-12, np.random.default_rng(0))
    peer = LinearRegression().fit(rows.x[:, :3], rows.y)
    theta = np.append(peer.coef_, peer.intercept_)
    square = np.mean((rows.y - rows.x @ theta) ** 2)
    errors = np.sqrt(np.diag(np.linalg.inv(rows.x.T @ rows.x)) * square)
    assert np.all(np.abs(found.theta - theta) < 0.5 * errors)
    assert np.allclose(np.sqrt(np.diag(found.covariance)), errors, rtol=0.05)


@pytest.mark.parametrize(("kind", "multiplier"), [("logistic", 2.2), ("linear", 1.1)])
def test_intervals_cover(kind, multiplier):
    """Of 4 · 250 intervals 95 % are expected to; four deviations of a share of so many are 2.8 points.

    Standard errors are a fifth longer than without noise, at least: intervals that forgot it would cover in 90 %.
    """
    covered, longer = [], []
    for seed in range(250):
        rows, truth = study(seed, 4000, kind)
        found = estimated(rows, kind, multiplier / 4000, np.random.default_rng([seed, 1]))
        assert not found.refusal
        errors = np.sqrt(np.diag(found.covariance))
        covered.append(np.abs(found.theta - truth) < 1.96 * errors)
        longer.append(errors / np.sqrt(np.diag(found.sampling)))
    assert 0.922 < np.mean(covered) < 0.978
    assert np.mean(longer) > 1.2


def test_rows_of_one_person_are_not_independent():
    """Ten equal rows of each person are one: standard errors are √10 times those of independent rows."""
    rows, _ = study(3, 2000, "logistic")
    ten = weighted(np.repeat(rows.x, 10, axis=0), np.repeat(rows.y, 10), LONGEST, np.full(2000, 10))
    settings, rng = Settings(4, LONGEST, 2000, people=True), np.random.default_rng(0)
    one = driven(logistic(Settings(4, LONGEST, 2000), np.zeros(4)), rows, 1e-9, rng)
    other = driven(logistic(settings, np.zeros(4)), ten, 1e-9, rng)
    assert np.allclose(one.covariance, other.covariance, rtol=1e-3)
    one = driven(linear(Settings(4, LONGEST, 2000)), study(4, 2000, "linear")[0], 1e-9, rng)
    rows, _ = study(4, 2000, "linear")
    ten = weighted(np.repeat(rows.x, 10, axis=0), np.repeat(rows.y, 10), LONGEST, np.full(2000, 10))
    other = driven(linear(settings), ten, 1e-9, rng)
    assert np.allclose(np.sqrt(np.diag(one.covariance)), np.sqrt(np.diag(other.covariance)), rtol=0.05)


def test_skewed_errors_do_not_move_the_constant():
    """Clipped residuals have another mean than residuals; the constant comes from the statistics."""
    rng, N = np.random.default_rng(6), 40_000
    x = np.stack([rng.uniform(-1, 1, N), np.ones(N)], axis=1)
    y = 0.2 * x[:, 0] - 0.3 + 0.1 * (rng.standard_exponential(N) - 1.0)
    found = driven(linear(Settings(2, 1.4, N)), weighted(x, y, 1.4), 1e-9, rng)
    errors = np.sqrt(np.diag(found.covariance))
    assert np.all(np.abs(found.theta - [0.2, -0.3]) < 4 * errors)
    assert found.covariance[0, 0] < 0.9 * 0.01 / np.sum(x[:, 0] ** 2)  # clipping pays with a long tail


def test_noise_that_hides_the_curvature_is_refused():
    rows, _ = study(7, 300, "logistic")
    found = estimated(rows, "logistic", 3.7 / 300, np.random.default_rng(0))
    assert "too weak beside its noise" in found.refusal and np.all(np.isfinite(found.covariance))
    rows, _ = study(7, 300, "linear")
    assert estimated(rows, "linear", 3.7 / 300, np.random.default_rng(0)).refusal


def test_public_numbers_are_checked_before_anything_is_spent():
    """Exactly where the expected strength is too small."""
    needed = records_needed("logistic", 20, 3.73)
    check_enough("logistic", needed, 20, 3.73, 1.0)
    with pytest.raises(PrivacyError, match=r"need about 20,000 people, .* there are 12,000: keep about"):
        check_enough("logistic", 12_000, 20, 3.73, 1.0, of="people")
    assert expected_strength("squared", 1e4, 5, 3.73) == pytest.approx(2 * expected_strength("squared", 1e4, 5, 7.46))


def table(**changes):
    plain = {
        "names": ("age", "(constant)"), "estimates": np.array([0.4, -1.0]), "covariance": np.diag([0.04, 0.01]),
        "sampling": np.diag([0.01, 0.01]), "units": 900, "unit": "person", "outcome": "target", "confidence": 0.9,
        "ratio": "", "statement": "Every person has privacy.",
    }  # fmt: skip
    return CoefficientTable(**plain | changes)


def test_a_table_has_the_usual_numbers():
    found = table()
    assert found.intervals[0].tolist() == pytest.approx([0.4 - 1.6449 * 0.2, 0.4 + 1.6449 * 0.2], rel=1e-3)
    assert found.p_values[0] == pytest.approx(0.0455, rel=1e-3) and found.z[1] == -10
    assert "900 people" in str(found) and "[0.05" in str(found) and str(found).endswith("Every person has privacy.")
    assert found.to_dict()["std. error without privacy"] == [0.1, 0.1]
    assert table(ratio="odds ratio").columns()["odds ratio high"][0] == pytest.approx(math.exp(found.intervals[0, 1]))
    with pytest.raises(SpecError, match="strictly between 0 and 1"):
        table(confidence=95)
