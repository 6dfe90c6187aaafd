"""Figures of an evaluation: in the units of the target, for a named class, within their range, beside a baseline."""

import json
import math

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import (
    average_precision_score,
    mean_squared_error,
    precision_score,
    r2_score,
    recall_score,
    root_mean_squared_error,
)

from sottovoce.errors import SpecError
from sottovoce.evaluation import Estimate, Held, Model, Tally, evaluate, seeded
from sottovoce.evaluation.figures import NOT_DETERMINED, interval_of, name_of, number_text, rows_of

EXACT = 1e6
"""An ε at which the noise is far below what a test can see."""
RANGE = (100.0, 900.0)


def regression(records, rng, spread=0.3, error=0.1, epsilon=EXACT, seed=0):
    """Targets and predictions in units, and their evaluation."""
    t = np.clip(rng.normal(0.1, spread, records), -1, 1)
    p = np.clip(t + rng.normal(0, error, records), -1, 1)
    tally = Tally.of(np.array([records]), epsilon, 1e-5)
    found = evaluate(tally, Held(np.zeros(records, int), p, t), Model(0, targets=RANGE), seeded(seed))
    return 500 + 400 * t, 500 + 400 * p, found


def classes(records, rng, epsilon=EXACT, positive=1, threshold=0.0, prior=0.3, seed=0):
    y = (rng.random(records) < prior).astype(float)
    s = np.clip(rng.normal(y - 0.5, 0.7), -4, 4)
    model = Model(2, -4.0, 4.0, (1.0, 0.0), threshold, ("no", "yes"), positive)
    tally = Tally.of(np.array([records]), epsilon, 1e-5)
    return y, s, evaluate(tally, Held(np.zeros(records, int), s, y), model, seeded(seed))


def test_regression_figures_are_in_the_units_of_the_target():
    y, p, found = regression(20_000, np.random.default_rng(0))
    assert found.mean_squared_error.value == pytest.approx(mean_squared_error(y, p), rel=1e-3)
    assert found.root_mean_squared_error.value == pytest.approx(root_mean_squared_error(y, p), rel=1e-3)
    assert found.r2.value == pytest.approx(r2_score(y, p), abs=1e-3)
    dummy = DummyRegressor().fit(y[:, None], y).predict(y[:, None])
    assert found.baseline_mean_squared_error.value == pytest.approx(mean_squared_error(y, dummy), rel=1e-3)
    assert found.baseline_root_mean_squared_error.value == pytest.approx(root_mean_squared_error(y, dummy), rel=1e-3)
    assert found.to_dict()["target_range"] == list(RANGE)


def test_an_r2_is_at_most_1_and_is_left_out_where_the_noise_hides_it():
    rng = np.random.default_rng(1)
    determined = []
    for seed, (records, epsilon) in enumerate([(30, 0.1), (100, 0.5), (300, 1.0), (3000, 1.0), (20_000, 4.0)] * 4):
        _, _, found = regression(records, rng, error=0.02, epsilon=epsilon, seed=seed)
        low, high = found.r2.interval
        determined.append(found.r2.determined)
        assert not found.r2.determined or (high <= 1.0 and high - low <= 1.0)
        said = json.loads(json.dumps(found.to_dict(), allow_nan=False))["figures"]["r2"]
        assert (said["value"] is None) is not found.r2.determined
        if said["value"] is None:
            assert said["interval"] is None and str(found.r2) == NOT_DETERMINED
            assert next(row for row in rows_of(found.to_dict()) if row.name.startswith("R²")).value == NOT_DETERMINED
    assert not determined[0] and determined[4] and 0 < sum(determined) < len(determined)


def test_targets_that_do_not_differ_have_no_r2():
    records = 4000
    tally = Tally.of(np.array([records]), 1.0, 1e-5)
    held = Held(np.zeros(records, int), np.full(records, 0.3), np.full(records, 0.3))
    assert not evaluate(tally, held, Model(0, targets=RANGE), seeded(3)).r2.determined


@pytest.mark.parametrize("ask", ["right", "confusion", "scores"])
def test_rates_and_their_intervals_are_within_0_and_1(ask):
    rng = np.random.default_rng(2)
    for seed in range(12):
        y = (rng.random(25) < 0.2).astype(float)
        s = np.where(y > 0, 1.0, -1.0)
        tally = Tally.of(np.array([25]), 0.3, 1e-5)
        held = Held(np.zeros(25, int), s, y)
        found = evaluate(tally, held, Model(2, -1.5, 1.5, (1.0, 0.0)), seeded(seed), ask)
        for figure in found.figures.values():
            low, high = figure.interval
            assert 0.0 <= low <= figure.value <= high <= 1.0


@pytest.mark.parametrize("positive", [0, 1])
def test_every_figure_of_a_class_is_that_of_the_positive_class(positive):
    y, s, found = classes(20_000, np.random.default_rng(3), positive=positive, threshold=0.4)
    predicted = (s >= 0.4).astype(float)
    assert found.recall.value == pytest.approx(recall_score(y, predicted, pos_label=positive), abs=1e-3)
    assert found.precision.value == pytest.approx(precision_score(y, predicted, pos_label=positive), abs=1e-3)
    sign = 1 if positive else -1
    assert found.average_precision.value == pytest.approx(average_precision_score(y == positive, sign * s), abs=0.02)
    assert found.to_dict()["positive"] == ("no", "yes")[positive]
    names = [row.name for row in rows_of(found.to_dict())]
    assert f"recall of '{('no', 'yes')[positive]}'" in names and f"positive class '{('no', 'yes')[positive]}'" in str(
        found
    )


@pytest.mark.parametrize("positive", ["no", "yes"])
def test_a_threshold_gives_the_recall_or_the_rate_of_the_class_that_was_meant(positive):
    y, s, found = classes(40_000, np.random.default_rng(4))
    mine = y == ("no", "yes").index(positive)
    for wanted in (0.5, 0.9):
        at = found.threshold(recall=wanted, positive=positive)
        answered = (s >= at) == (positive == "yes")
        assert wanted - 0.01 < np.mean(answered[mine]) < wanted + 0.08
        at = found.threshold(rate=wanted, positive=positive)
        answered = np.mean((s >= at) == (positive == "yes"))
        assert abs(answered - wanted) < 0.04
        assert found.rate_at(at, positive) == pytest.approx(answered, abs=0.005)
    chosen = found.at_threshold(found.threshold(recall=0.9, positive=positive))
    chosen_for = evaluate_again(chosen, positive)
    assert 0.89 < chosen_for.recall.value < 0.98
    with pytest.raises(SpecError, match="which is not a class of the model; give 'no' or 'yes'"):
        found.threshold(recall=0.9, positive="maybe")
    with pytest.raises(SpecError, match="thresholds that `threshold` returned"):
        found.at_threshold(0.123456)


@pytest.mark.parametrize("positive", ["no", "yes"])
@pytest.mark.parametrize("rate", [0.01, 0.99])
def test_a_rate_beyond_the_outermost_bin_gets_the_nearest_edge_and_no_end_of_the_range(positive, rate):
    """Bins are wide at this ε: the outermost holds more than 1 % of the records."""
    for seed in range(8):
        _, s, found = classes(4000, np.random.default_rng(seed), epsilon=1.0, seed=seed)
        at = found.threshold(rate=rate, positive=positive)
        assert at in found.edges and found.model.low < at < found.model.high
        assert 0.0 < np.mean(s >= at) < 1.0
        assert (found.rate_at(at, positive) < 0.5) == (rate < 0.5)


def evaluate_again(found, positive):
    from dataclasses import replace

    return replace(found, model=found.model.with_positive(positive))


@pytest.mark.parametrize("ask", ["confusion", "scores"])
def test_a_majority_baseline_stands_beside_every_accuracy(ask):
    rng = np.random.default_rng(5)
    y = (rng.random(20_000) < 0.12).astype(float)
    held = Held(np.zeros(20_000, int), np.full(20_000, -1.0), y)  # a model that always answers the majority
    found = evaluate(Tally.of(np.array([20_000]), 1.0, 1e-5), held, Model(2, -4.0, 4.0), seeded(0), ask)
    dummy = DummyClassifier().fit(y[:, None], y).score(y[:, None], y)
    low, high = found.baseline_accuracy.interval
    assert low < dummy < high and high - low < 0.05
    assert abs(found.accuracy.value - found.baseline_accuracy.value) < 0.01
    several = Held(held.owner, rng.normal(size=(20_000, 3)), rng.choice([0.0, 1.0, 2.0], 20_000, p=[0.2, 0.5, 0.3]))
    found = evaluate(Tally.of(np.array([20_000]), 1.0, 1e-5), several, Model(3), seeded(0))
    assert found.baseline_accuracy.value == pytest.approx(0.5, abs=0.03) and "recall" not in found.figures


def test_figures_of_version_0_2_are_shown_within_their_range():
    old = {"figures": {"auc": {"value": 0.95, "standard_error": 0.05}}, "asked": "scores"}
    assert rows_of(old)[0].interval == "0.8520 to 1.0000"
    assert interval_of("r2", {"value": 0.0, "standard_error": 3000.0})[1] == 1.0
    assert "within [−1, 1]" in name_of("mean_squared_error", {})


def test_numbers_are_shown_with_about_five_digits():
    shown = [number_text(value) for value in (0.0, 1.0, 12.3456, 2109676.04, 3e-7, -17.0, math.nan)]
    assert shown == ["0.0000", "1.0000", "12.346", "2,109,676", "3e-07", "-17.000", NOT_DETERMINED]
    assert str(Estimate(0.98, 0.05, 0.0, 1.0)) == "0.9800 (0.8820 to 1.0000)"
