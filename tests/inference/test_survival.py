"""Survival curves and the log-rank test: without noise those of the textbook, with noise intervals that cover."""

import math

import numpy as np
import pytest

from sottovoce.errors import PrivacyError
from sottovoce.inference.survival import Counts, counts_of, log_rank, survival_curve

K = 12
TIMES = np.linspace(1, 12, K)


def study(seed, N, noise, groups=1, ratio=1.0, horizon=16.0):
    """Noisy counts of exponential times with hazard 0.08 (times the ratio in later groups), evenly censored."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, N)
    event = rng.exponential(1 / (0.08 * np.where(group == 0, 1.0, ratio)))
    end = rng.uniform(0, horizon, N)
    left, place = np.minimum(event, end), np.searchsorted(TIMES, np.minimum(event, end))
    cell = np.where(place == K, 2 * K, np.where(event <= end, place, K + place)) + group * (2 * K + 1)
    exact = np.bincount(cell, minlength=groups * (2 * K + 1) + 1).astype(float)
    return counts_of(exact + noise * rng.standard_normal(len(exact)), groups, N, noise), left, event <= end, group


def kaplan_meier(left, ended, times):
    """The product over single event times."""
    curve = []
    for time in times:
        at = np.unique(left[ended & (left <= time)])
        curve.append(np.prod([1 - np.sum(ended & (left == t)) / np.sum(left >= t) for t in at]))
    return np.array(curve)


def test_without_noise_it_is_nearly_the_curve_of_single_times():
    """Half of an interval's censored count as at risk; the difference is far below a standard error."""
    counts, left, ended, _ = study(1, 3000, 0.0)
    curve = survival_curve(counts, 0, TIMES)
    exact = kaplan_meier(left, ended, TIMES)
    assert np.all(np.abs(np.log(curve.survival) - np.log(exact)) < 0.1 * curve.error)
    assert np.array_equal(curve.error, curve.sampling_error)


def test_without_censoring_it_is_the_share_that_is_left():
    counts = Counts(np.array([[30.0, 21.0]]), np.zeros((1, 2)), np.array([49.0]), 0.0, 6)
    curve = survival_curve(counts, 0, np.array([1.0, 2.0]))
    assert curve.survival.tolist() == pytest.approx([0.7, 0.49])
    assert curve.error[1] * 0.49 == pytest.approx(math.sqrt(0.49 * 0.51 / 100))  # Greenwood is the binomial law
    assert curve.median == 2.0 and curve.at(0.5) == (1.0, 1.0, 1.0) and curve.at(1.5)[0] == pytest.approx(0.7)
    with pytest.raises(PrivacyError, match="known from 0 to 2"):
        curve.at(3.0)


def test_the_gradient_of_the_noise_is_that_of_finite_differences():
    """Var log S at s = 1, from a curve whose sampling part is taken off."""
    counts, *_ = study(2, 2000, 0.0, groups=2)
    noisy = counts._replace(deviation=1.0)
    curve = survival_curve(noisy, 1, TIMES)
    flat = np.concatenate([counts.events.ravel(), counts.censored.ravel(), counts.beyond])

    def log_survival(values):
        made = counts._replace(
            events=values[: 2 * K].reshape(2, K), censored=values[2 * K : 4 * K].reshape(2, K), beyond=values[4 * K :]
        )
        return np.log(survival_curve(made, 1, TIMES).survival)[: len(curve.times)]

    J = np.stack([(log_survival(flat + e) - log_survival(flat - e)) / 0.02 for e in 0.01 * np.eye(len(flat))], axis=1)
    private = np.sum(J**2, axis=1) - J.sum(axis=1) ** 2 / counts.cells
    assert np.allclose(curve.error**2 - curve.sampling_error**2, private, rtol=1e-4)


@pytest.mark.parametrize(("N", "noise"), [(500, 5.3), (2000, 5.3), (20_000, 24.0)])
def test_intervals_cover(N, noise):
    """Of 12 · 300 pointwise intervals, correlated within a curve: 95 %, within 3 points."""
    covered = []
    for seed in range(300):
        curve = survival_curve(study(seed, N, noise)[0], 0, TIMES)
        truth = np.exp(-0.08 * curve.times)
        covered += ((curve.low <= truth) & (truth <= curve.high)).tolist()
    assert 0.92 < np.mean(covered) < 0.98


def test_a_curve_ends_where_noise_hides_who_is_left():
    counts, *_ = study(3, 400, 0.0, horizon=8.0)
    assert len(survival_curve(counts._replace(deviation=20.0), 0, TIMES).times) < len(
        survival_curve(counts, 0, TIMES).times
    )
    with pytest.raises(PrivacyError, match="too few are left beside the noise"):
        survival_curve(counts._replace(deviation=100.0), 0, TIMES)


def test_the_log_rank_test_of_two_groups_is_the_textbooks():
    """Observed less expected, and the hypergeometric variance, interval by interval."""
    counts, *_ = study(4, 1500, 0.0, groups=2, ratio=1.3)
    found, difference, variance = log_rank(counts), 0.0, 0.0
    n, d = counts.at_risk[:, : found.intervals], counts.events[:, : found.intervals]
    for k in range(found.intervals):
        whole, dead = n[:, k].sum(), d[:, k].sum()
        difference += d[0, k] - dead * n[0, k] / whole
        variance += dead * n[0, k] / whole * n[1, k] / whole * (whole - dead) / (whole - 1)
    assert found.statistic == pytest.approx(difference**2 / variance) and found.freedom == 1
    assert found.observed_less_expected.tolist() == pytest.approx([difference, -difference])


@pytest.mark.parametrize("noise", [0.0, 5.3])
def test_equal_groups_seldom_differ_and_others_often(noise):
    """Of 400 tests at 5 % of equal hazards 8 % reject at most (three deviations); of a ratio of 1.5 nearly all do."""
    rejected = [log_rank(study(seed, 2000, noise, groups=3)[0]).p_value < 0.05 for seed in range(400)]
    assert 0.01 < np.mean(rejected) < 0.085
    found = [log_rank(study(seed, 2000, noise, groups=3, ratio=1.5)[0]).p_value < 0.05 for seed in range(60)]
    assert np.mean(found) > 0.9
    with pytest.raises(PrivacyError, match="two groups or more"):
        log_rank(study(0, 500, noise)[0])
