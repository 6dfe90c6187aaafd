"""Figures from counts are scikit-learn's, where counts are exact."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.metrics import average_precision_score, balanced_accuracy_score, roc_auc_score

from sottovoce.evaluation import curves

labeled = st.lists(st.tuples(st.integers(-6, 6), st.booleans()), min_size=2, max_size=60).filter(
    lambda some: 0 < sum(positive for _, positive in some) < len(some)
)


@given(labeled)
def test_areas_and_precisions_are_scikit_learns_with_ties_too(some):
    scores, positive = np.array([s for s, _ in some], dtype=float), np.array([p for _, p in some])
    values, h = curves.exact(scores, positive)
    assert h.sum() == len(some) and np.all(np.diff(values) > 0)
    assert curves.auc(h) == pytest.approx(roc_auc_score(positive, scores), abs=1e-12)
    assert curves.average_precision(h) == pytest.approx(average_precision_score(positive, scores), abs=1e-12)
    table = curves.confusion(h, int(np.searchsorted(values, 0.0)))
    assert curves.balanced_accuracy(table) == pytest.approx(balanced_accuracy_score(positive, scores >= 0), abs=1e-12)
    assert curves.accuracy(table) == pytest.approx(np.mean((scores >= 0) == positive), abs=1e-12)


@given(labeled, st.floats(0.05, 0.95))
def test_a_threshold_reaches_its_recall_or_is_nearest_to_its_rate_and_no_other_does_better(some, wanted):
    scores, positive = np.array([s for s, _ in some], dtype=float), np.array([p for _, p in some])
    values, h = curves.exact(scores, positive)
    ends = np.append(values, np.inf)
    first = curves.first_bin(h, recall=wanted)
    assert np.mean(scores[positive] >= ends[first]) >= wanted - 1e-9
    assert first == len(values) or np.mean(scores[positive] >= ends[first + 1]) < wanted
    first = curves.first_bin(h, rate=wanted)
    rates = [np.mean(scores >= end) for end in ends]
    assert rates == pytest.approx(curves.shares_above(h.sum(axis=0)))
    if len(values) > 1:
        assert 0 < first < len(values)
        assert all(abs(rates[first] - wanted) <= abs(other - wanted) + 1e-9 for other in rates[1:-1])


def test_calibration_finds_the_link_that_made_the_labels():
    rng = np.random.default_rng(0)
    centers = np.linspace(-2, 2, 40)
    true = expit(3.0 * centers - 1.0)
    h = np.stack([10_000 * (1 - true), 10_000 * true])
    a, b = curves.platt(centers, h, 1.0, (1.0, 0.0))
    assert a == pytest.approx(3.0, rel=0.02) and b == pytest.approx(-1.0, rel=0.02)
    assert curves.calibration_error(curves.sigmoid(centers, (a, b)), h) < 0.002
    assert curves.calibration_error(curves.sigmoid(centers, (1.0, 0.0)), h) > 0.1
    noisy = h + 1e4 * rng.normal(size=h.shape)  # nothing is left to be seen: what was public stays
    a, b = curves.platt(centers, 1e-3 * noisy, 1e6, (1.5, 0.0))
    assert a == pytest.approx(1.5, rel=0.02) and abs(b) < 0.02


def test_exact_calibration_errors_are_of_what_was_said():
    rng = np.random.default_rng(1)
    said = rng.uniform(size=20_000)
    honest = rng.uniform(size=20_000) < said
    assert curves.calibration_error_of(said, honest) < 0.02
    assert curves.calibration_error_of(said, 1 - honest) > 0.4
