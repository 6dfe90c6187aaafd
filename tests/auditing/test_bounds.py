"""Lower bounds from counts: against slow references in exact or high-precision arithmetic, and what they promise."""

import math
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.auditing.bounds import (
    Curve,
    Family,
    Rates,
    curve,
    most_likely,
    one_run_doubt,
    one_run_epsilon,
    one_run_scale,
    plain_epsilon,
    rates,
    too_many_right,
)
from sottovoce.errors import SpecError
from sottovoce.privacy.accounting import risk
from sottovoce.privacy.events import CyclicEvent, FixedEvent, FullEvent, Hidden, LaplaceEvent, PoissonEvent
from sottovoce.privacy.profiles import gaussian_multiplier

DELTA = 1e-5


def full(epsilon: float) -> Family:
    """One Gaussian release that is (ε, 1e-5)-DP."""
    return Family(FullEvent(2, 2, 1.0, gaussian_multiplier(epsilon, DELTA), 1), DELTA)


def tail(n: int, k: int, p: Fraction) -> Fraction:
    """P(Bin(n, p) ≤ k), exactly."""
    return sum((math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1)), Fraction(0))


@pytest.mark.parametrize(("count", "total"), [(0, 30), (3, 30), (29, 30), (7, 200)])
def test_a_rate_is_the_one_at_which_the_count_is_just_too_unlikely(count, total):
    rate = Fraction(float(most_likely(count, total, 0.975)))
    assert float(tail(total, count, rate)) == pytest.approx(0.025, rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "runs", "bound"),
    [(1, 10_000, 0.80), (4, 10_000, 3.74), (1, 100_000, 0.94), (4, 100_000, 3.92), (1, 5_000, 0.72), (1, 50_000, 0.91)],
)
def test_what_is_attainable(epsilon, runs, bound):
    """The threshold known beforehand, and both errors as often as they are expected."""
    family = full(epsilon)
    error = float(mpmath.ncdf(-family.curve().apart / 2))
    found = rates(round(error * runs), round(error * runs), (runs, runs))
    assert family.epsilon(family.scale(found)) == pytest.approx(bound, abs=0.012)


@pytest.mark.parametrize(("runs", "bound"), [(10_000, 0.38), (100_000, 0.59)])
def test_what_is_attainable_without_knowing_the_mechanism(runs, bound):
    apart = full(1).curve().apart
    cuts = np.linspace(0, 4, 161)
    errors = [[float(mpmath.ncdf(sign * cut - apart / 2)) for sign in (-1, 1)] for cut in cuts]
    best = max(plain_epsilon(rates(round(a * runs), round(b * runs), (runs, runs)), DELTA) for a, b in errors)
    assert best == pytest.approx(bound, abs=0.012)


@pytest.mark.parametrize(
    "event",
    [
        PoissonEvent(100, 5, 1.0, 0.5, 50),
        FixedEvent(100, 5, 1.0, 0.8, 20),
        CyclicEvent(100, 10, 1.0, 0.5, 30, uses=3),
        LaplaceEvent(10, 10, 1.0, 0.5, 4),
        Hidden(FixedEvent(50, 1, 1.0, 1.0, 40), 0.2),
    ],
)
def test_the_curve_is_the_accountants_and_its_scale_is_found_again(event):
    family = Family(event, DELTA)
    at = np.array([0.01, 0.1, 0.4])
    slow = np.array([risk([event], float(a)) for a in at])
    assert np.all(curve(event)(at) >= slow - 1e-9)  # fewer points, so never below
    assert np.allclose(curve(event)(at), slow, rtol=2e-3)
    known = float(family.curve(0.7)(0.1))
    assert 0.6999 < family.scale(Rates(0.1, 1 - known)) < 0.7 * 1.011
    assert family.about(np.array([0.1]), np.array([1 - known])) == pytest.approx(0.7, rel=0.1)
    assert family.epsilon(0.7) > family.epsilon() > family.epsilon(1.5) > family.epsilon(math.inf) == 0


def test_what_is_no_better_than_guessing_refutes_nothing():
    assert full(1).scale(Rates(0.5, 0.5)) == math.inf and plain_epsilon(Rates(0.5, 0.5), DELTA) == 0
    assert full(1).scale(Rates(1e-300, 1e-300)) < 0.01
    with pytest.raises(SpecError, match="confidence"):
        rates(1, 1, (10, 10), 1.0)


# -- one run --


def slow_doubt(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """Steinke, Nasr and Jagielski 2023, Theorem 5.2, with 50 digits and sums as they are written there."""
    with mpmath.workdps(50):
        share = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        mass = [mpmath.binomial(r, k) * share**k * (1 - share) ** (r - k) for k in range(r + 1)]
        beta = mpmath.fsum(mass[v:])
        alpha = max((mpmath.fsum(mass[v - i : v]) / i for i in range(1, v + 1)), default=mpmath.mpf(0))
        return float(min(beta + 2 * m * mpmath.mpf(delta) * alpha, 1))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_one_run_doubt_is_the_theorems(data):
    m = data.draw(st.integers(1, 120))
    r = data.draw(st.integers(1, m))
    v = data.draw(st.integers(0, r))
    epsilon, delta = data.draw(st.floats(0, 5)), data.draw(st.sampled_from([0.0, 1e-5, 1e-3]))
    assert one_run_doubt(m, r, v, epsilon, delta) == pytest.approx(slow_doubt(m, r, v, epsilon, delta), abs=1e-9)


def test_one_run_epsilon_is_its_root():
    for m, r, v in [(1000, 100, 95), (1000, 1000, 700), (50, 50, 50)]:
        found = one_run_epsilon(m, r, v, DELTA)
        assert slow_doubt(m, r, v, found, DELTA) == pytest.approx(0.05, abs=1e-6)
    assert one_run_epsilon(100, 100, 52, DELTA) == 0


def slow_verdict(apart: float, m: int, guesses: int, right: int, doubt: float) -> mpmath.mpf:
    """Mahloujifar, Melis and Chaudhuri 2024, the recursion for μ-GDP with 40 digits: how much the sum is over."""
    with mpmath.workdps(40):

        def back(x):
            return mpmath.ncdf(mpmath.sqrt(2) * mpmath.erfinv(2 * x - 1) - apart)

        h, r = [mpmath.mpf(0)] * (right + 1), [mpmath.mpf(0)] * (right + 1)
        r[right] = mpmath.mpf(doubt) * right / m
        h[right] = mpmath.mpf(doubt) * (guesses - right) / m
        for i in range(right - 1, -1, -1):
            h[i] = max(h[i + 1], back(r[i + 1]))
            r[i] = r[i + 1] + mpmath.mpf(i) / (guesses - i) * (h[i] - h[i + 1])
            if r[i] >= 1:
                return mpmath.mpf(1)
        return r[0] + h[0] - mpmath.mpf(guesses) / m


@pytest.mark.parametrize(("m", "guesses", "right"), [(100, 100, 70), (200, 60, 55), (60, 60, 60)])
def test_one_run_scale_is_the_recursions_root(m, guesses, right):
    family = full(1)
    scale = one_run_scale(family, m, guesses, right)
    apart = family.curve().apart / scale
    assert slow_verdict(apart, m, guesses, right, 0.05) > 0 >= slow_verdict(apart * (1 + 2e-7), m, guesses, right, 0.05)


def test_one_run_bounds_know_their_size():
    """A thousand canaries: about 0.33 of a true 1 and 2.3 of a true 4, and less without knowing the mechanism."""
    rng = np.random.default_rng(3)
    for epsilon, guesses, least in ((1, 300, 0.2), (4, 100, 1.9)):
        family, found, plain = full(epsilon), [], []
        for _ in range(30):
            signs = rng.choice([-1.0, 1.0], 1000)
            scores = signs * family.curve().apart / 2 + rng.standard_normal(1000)
            best = np.argsort(-np.abs(scores))[:guesses]
            right = int(np.sum(np.sign(scores[best]) == signs[best]))
            found.append(family.epsilon(one_run_scale(family, 1000, guesses, right)))
            plain.append(one_run_epsilon(1000, guesses, right, DELTA))
        assert np.mean(plain) < np.mean(found) and least < np.mean(found) < epsilon
        assert np.sum(np.array(found) > epsilon) <= 4  # 5 % of 30, and three standard deviations


def test_other_curves_go_through_the_same_recursion():
    event = PoissonEvent(100, 5, 1.0, 0.5, 50)
    points = curve(event)
    assert points.apart is None and not too_many_right(points, 40, 40, 24, 0.05)
    assert too_many_right(points, 40, 40, 40, 0.05)
    assert not too_many_right(Curve(apart=6.0), 40, 40, 40, 0.05)
    with pytest.raises(SpecError, match="canaries"):
        one_run_doubt(10, 20, 5, 1.0, 0.0)


def test_the_curve_is_of_all_releases():
    first, rounds = FullEvent(10, 10, 1.0, 0.5, 1), FullEvent(10, 10, 1.0, 0.5, 3)
    assert curve(replace(rounds, before=first))([0.01]) == pytest.approx(curve(replace(rounds, rounds=4))([0.01]))
    assert curve(replace(rounds, rounds=0, before=first))([0.01]) == pytest.approx(curve(first)([0.01]))
