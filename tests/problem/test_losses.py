"""Laws that every row of LOSSES must obey."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sottovoce.errors import SpecError
from sottovoce.problem.losses import LOSSES

SCALAR = [loss for loss in LOSSES.values() if loss.targets != "classes"]

ALL = pytest.mark.parametrize("loss", [*SCALAR, LOSSES.make("huber", 0.3), LOSSES.make("quantile", 0.9)], ids=str)
margin = st.floats(-50, 50)


def target(loss, raw):
    return math.copysign(1.0, raw) if loss.targets == "binary" else raw


@ALL
@given(u=margin, v=margin, raw=st.floats(-5, 5))
def test_the_slope_is_a_subgradient(loss, u, v, raw):
    y = target(loss, raw)
    below = loss.value(u, y) + loss.slope(u, y) * (v - u)
    assert loss.value(v, y) >= below - 1e-9 * (1 + abs(below))


@ALL
@given(u=margin, raw=st.floats(-5, 5))
def test_the_slope_is_the_derivative_away_from_kinks(loss, u, raw):
    y, e = target(loss, raw), 1e-5
    assume(loss.slope(u - 2 * e, y) == pytest.approx(loss.slope(u + 2 * e, y), abs=1e-3))
    difference = (loss.value(u + e, y) - loss.value(u - e, y)) / (2 * e)
    assert loss.slope(u, y) == pytest.approx(difference, abs=2e-4 * (1 + abs(difference)))


@ALL
@given(u=st.floats(-1e6, 1e6), raw=st.floats(-5, 5))
def test_the_slope_bound_holds(loss, u, raw):
    slope = loss.slope(u, target(loss, raw))
    assert np.isfinite(slope) and abs(slope) <= loss.slope_bound * (1 + 1e-12)


@ALL
def test_the_slope_bound_is_the_least(loss):
    u = np.linspace(-1e3, 1e3, 4001)
    steepest = max(np.max(np.abs(loss.slope(u, y))) for y in (-1.0, 1.0))
    assert steepest > 100 if math.isinf(loss.slope_bound) else steepest == pytest.approx(loss.slope_bound, rel=1e-6)


@ALL
@given(u=margin, v=margin, raw=st.floats(-5, 5))
def test_fenchel_young(loss, u, v, raw):
    """φ(u) + φ*(s) ≥ s·u always, with equality for s in ∂φ(u); s lies in the domain of φ*."""
    y = np.array([target(loss, raw)])
    s = np.array([loss.slope(v, y[0])])
    lo, hi = loss.interval(y)
    assert lo[0] - 1e-12 <= s[0] <= hi[0] + 1e-12
    total = float((loss.value(u, y) + loss.conjugate(s, y))[0])
    assert total >= s[0] * u - 1e-8 * (1 + abs(total))
    touch = float((loss.value(v, y) + loss.conjugate(s, y))[0])
    assert touch == pytest.approx(s[0] * v, abs=1e-8 * (1 + abs(touch)))


@ALL
def test_values_are_not_negative_and_vectorise(loss):
    u, y = np.random.default_rng(0).normal(size=(2, 7, 3)) * 3
    y = np.sign(y) if loss.targets == "binary" else y
    values, slopes = loss.value(u, y), loss.slope(u, y)
    assert values.shape == slopes.shape == u.shape and np.all(values >= 0)
    assert values[2, 1] == loss.value(u[2, 1], y[2, 1])


def test_smoothed_hinge_tends_to_the_hinge_and_stays_within_half_its_width():
    u = np.linspace(-4, 4, 801)
    for width in (1.0, 0.1, 1e-3):
        gap = LOSSES["hinge"].value(u, 1.0) - LOSSES.make("smoothed_hinge", width).value(u, 1.0)
        assert np.all(gap >= -1e-12) and np.max(gap) == pytest.approx(width / 2)


@pytest.mark.parametrize(
    ("name", "parameter", "words"),
    [
        ("hinges", None, "no loss 'hinges'"),
        ("hinge", 1.0, "malformed; write hinge"),
        ("quantile", 1.5, "between 0 and 1"),
    ],
)
def test_bad_choices_are_one_sentence(name, parameter, words):
    with pytest.raises(SpecError, match=words):
        LOSSES.make(name, parameter)
