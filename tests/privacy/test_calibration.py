"""From a budget to the noise and to the rounds, always from the private side."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parts import fixed, full, laplace, poisson

from sottovoce.errors import PrivacyError
from sottovoce.privacy import calibration
from sottovoce.privacy.accounting import epsilon, epsilon_lower
from sottovoce.privacy.calibration import noise_multiplier, sigma
from sottovoce.privacy.composition import Part
from sottovoce.privacy.events import FixedEvent, FullEvent, PoissonEvent, RandomParticipation
from sottovoce.privacy.profiles import FixedPair, PoissonPair


@pytest.mark.parametrize(
    ("q", "target", "needed"),
    [
        *((20000, 0.2, 1.264), (20000, 0.4, 1.128), (20000, 0.6, 1.074), (20000, 0.8, 1.037), (20000, 1.0, 1.010)),
        *((33869, 0.2, 1.178), (33869, 0.4, 1.074), (33869, 0.6, 1.026), (33869, 0.8, 0.993), (33869, 1.0, 0.968)),
    ],
)
def test_sigma_for_three_epochs_when_participation_is_seen(q, target, needed):
    assert sigma(FixedEvent(q, 1, 1.0, 1.0, 3 * q), target, 1e-5) == pytest.approx(needed, rel=5e-3)


@pytest.mark.parametrize(("iota", "target", "needed"), [(0.1, 0.2, 0.992), (0.1, 1.0, 0.856), (0.2, 0.6, 0.943)])
def test_sigma_if_participation_were_hidden(iota, target, needed):
    z = noise_multiplier(fixed(iota / 20000, 1.0, round(60000 / iota)), target, 1e-5)
    assert 2 * z == pytest.approx(needed, rel=5e-3)


def test_sigma_at_the_delta_of_one_in_all_records_and_with_random_activity():
    assert sigma(FixedEvent(20000, 1, 1.0, 1.0, 60000), 1.0, 2.5e-6) == pytest.approx(1.054, rel=5e-3)
    assert sigma(RandomParticipation(FixedEvent(20000, 1, 1.0, 1.0, 300000), 0.2), 1.0, 1e-5) == pytest.approx(
        1.010, rel=5e-3
    )


@pytest.mark.parametrize(
    ("b", "count", "sized", "included"),
    [
        (1, 60000, 1.009, 0.504),
        (4, 15000, 0.285, 0.143),
        (16, 3750, 0.0833, 0.0418),
        (64, 937, 0.0259, 0.0136),
        (256, 234, 0.00918, 0.00584),
        (1024, 58, 0.00371, 0.00285),
    ],
)
def test_sigma_of_minibatches(b, count, sized, included):
    assert sigma(FixedEvent(20000, b, 1.0, 1.0, count), 1.0, 1e-5) == pytest.approx(sized, rel=5e-3)
    assert sigma(PoissonEvent(20000, b, 1.0, 1.0, count), 1.0, 1e-5) == pytest.approx(included, rel=5e-3)


def test_sigma_of_full_batches_and_its_units():
    assert sigma(FullEvent(20000, 20000, 1.0, 1.0, 3), 1.0, 1e-5) == pytest.approx(0.000646, rel=2e-3)
    one = sigma(FixedEvent(500, 5, 1.0, 1.0, 100), 1.0, 1e-5)
    assert sigma(FixedEvent(500, 5, 3.0, 1.0, 100), 1.0, 1e-5) == pytest.approx(3 * one, rel=1e-9)


@settings(max_examples=10, deadline=None)
@given(
    st.sampled_from([fixed, poisson, lambda _, *rest: full(*rest), lambda _, *rest: laplace(*rest)]),
    st.floats(-4, -0.3).map(lambda v: 10.0**v),
    st.floats(0, 4).map(lambda v: int(10.0**v)),
    st.floats(-1.5, 2).map(lambda v: 10.0**v),
    st.sampled_from([1.0, 0.3]),
)
def test_the_noise_is_enough_and_hardly_more(kind, rate, count, target, activity):
    z = noise_multiplier(kind(rate, 1.0, count, activity), target, 1e-5)
    assert epsilon([kind(rate, z, count, activity)], 1e-5) <= target
    if z > 1e-4:  # otherwise the record is used too seldom to need any
        assert epsilon([kind(rate, 0.997 * z, count, activity)], 1e-5) > target


def test_extreme_budgets():
    assert noise_multiplier(fixed(1 / 20000, 1.0, 60000), 10087.0, 1e-5) == pytest.approx(0.0504300737 / 2, rel=2e-3)
    z = noise_multiplier(fixed(0.5, 1.0, 3000000), 0.01, 1e-8)
    assert 0.995 * 0.01 <= epsilon([fixed(0.5, z, 3000000)], 1e-8) <= 0.01
    # a record that is used with a probability under δ needs no noise worth the name
    assert noise_multiplier(fixed(1e-6, 1.0, 1), 0.5, 1e-5) < 1e-4


@pytest.mark.parametrize("kind", [fixed, poisson])
@pytest.mark.parametrize(("rate", "activity"), [(0.02, 5e-324), (0.02, 1e-320), (0.02, 1e-160), (1e-300, 1.0)])
def test_a_record_that_is_hardly_ever_used_needs_hardly_any_noise(kind, rate, activity):
    """Numbers whose squares are none are no reason to stop."""
    assert 0.0 < noise_multiplier(kind(rate, 1.0, 10, activity), 1.0, 1e-5) < 1e-4


def test_half_the_noise_would_be_refused_by_the_realised_pair():
    z = noise_multiplier(fixed(1 / 20000, 1.0, 60000), 1.0, 1e-5)
    assert epsilon_lower([fixed(1 / 20000, z / 2, 60000)], 1e-5) > 10


def test_a_node_that_never_speaks_gets_the_noise_of_one_round():
    assert noise_multiplier(full(1.0, 0), 1.0, 1e-5) == noise_multiplier(full(1.0, 1), 1.0, 1e-5)


def test_a_budget_is_positive():
    for bad in (0.0, -1.0, math.inf):
        with pytest.raises(PrivacyError, match="budget"):
            noise_multiplier(fixed(0.1, 1.0, 10), bad, 1e-5)


@pytest.mark.parametrize("kind", [FixedPair, PoissonPair])
@pytest.mark.parametrize(("rate", "count"), [(1e-4, 3000), (0.02, 500), (0.5, 40)])
def test_chords_from_a_guess_end_where_a_bracket_does(monkeypatch, kind, rate, count):
    part = Part(kind(1.0, rate), count)
    tried, secant = [], calibration._secant
    monkeypatch.setattr(calibration, "_secant", lambda over, x: tried.append(secant(over, x)) or tried[-1])
    quick = noise_multiplier(part, 1.23, 1e-6)
    assert tried[0] is not None
    monkeypatch.setattr(calibration, "_secant", lambda over, x: None)
    slow = calibration._least._kept.__wrapped__((part,), 1.23, 1e-6, ())
    assert math.isclose(quick, slow, rel_tol=1e-3)
    assert max(epsilon([replace(part, pair=replace(part.pair, multiplier=z))], 1e-6) for z in (quick, slow)) <= 1.23
