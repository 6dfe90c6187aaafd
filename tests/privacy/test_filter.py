"""Runs that are chosen one after another cost what a filter proves, never less than runs that were settled before."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from sottovoce.errors import PrivacyError
from sottovoce.privacy import filter as filters
from sottovoce.privacy.accounting import compute_epsilon, delta
from sottovoce.privacy.calibration import sigma
from sottovoce.privacy.composite_events import JointEvent, ObjectiveEvent
from sottovoce.privacy.events import CyclicEvent, FixedEvent, FullEvent, LaplaceEvent, PoissonEvent, TreeEvent
from sottovoce.privacy.filter import sequential_epsilon
from sottovoce.privacy.profiles import gaussian_delta, gaussian_epsilon

DELTA = 1e-5
UNITS = {
    "full": FullEvent(1000, 1000, 1.0, 1.0, 50),
    "poisson": PoissonEvent(1000, 50, 1.0, 1.0, 100),
    "fixed": FixedEvent(6400, 64, 1.0, 1.0, 1000),
    "one": FixedEvent(1000, 1, 1.0, 1.0, 3000),
    "cyclic": CyclicEvent(1000, 100, 1.0, 1.0, 30, uses=3),
    "tree": TreeEvent(1000, 100, 1.0, 1.0, 30, uses=3),
    "laplace": LaplaceEvent(1000, 1000, 1.0, 1.0, 5),
}
ABOVE = {"full": 0.01, "poisson": 0.015, "fixed": 0.02, "one": 0.8, "cyclic": 0.01, "tree": 0.01, "laplace": 0.001}


def at(name, epsilon, at_delta=DELTA):
    return replace(UNITS[name], sigma=sigma(UNITS[name], epsilon, at_delta))


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("runs", [1, 2, 5, 20])
def test_it_is_never_below_the_fixed_composition_and_not_far_above(name, runs):
    event = at(name, 1.0)
    fixed, found = (
        compute_epsilon([event] * runs, DELTA, lower=False).epsilon,
        sequential_epsilon([event] * runs, DELTA),
    )
    assert found == fixed if runs == 1 else fixed * (1 - 1e-9) <= found <= (1 + ABOVE[name]) * fixed


@pytest.mark.parametrize("pair", list(itertools.permutations(["full", "poisson", "one", "laplace"], 2)), ids="-".join)
@pytest.mark.parametrize("at_delta", [1e-8, 1e-3])
def test_nor_where_runs_are_of_several_kinds(pair, at_delta):
    runs = [at(name, e, at_delta) for e in (0.3, 2.0) for name in pair]
    fixed = compute_epsilon(runs, at_delta, lower=False).epsilon
    pure = [1 / run.noise_multiplier for run in runs if isinstance(run, LaplaceEvent)]
    others = [run for run in runs if not isinstance(run, LaplaceEvent)]
    each = sum(pure) + sum(compute_epsilon([run], at_delta / 100, lower=False).epsilon for run in others)
    assert fixed * (1 - 1e-9) <= sequential_epsilon(runs, at_delta) <= each * (1 + 1e-9)


def test_every_further_run_costs():
    runs = [at(name, e) for e in (0.2, 1.0) for name in ("poisson", "full", "laplace", "one")]
    costs = [sequential_epsilon(runs[:k], DELTA) for k in range(1, len(runs) + 1)]
    assert np.all(np.diff(costs) > 0)


def test_silence_costs_nothing_and_no_noise_everything():
    run = at("poisson", 1.0)
    silent, loud = run.after(0), replace(run, sigma=0.0)
    assert sequential_epsilon([], DELTA) == sequential_epsilon([silent, silent], DELTA) == 0.0
    assert sequential_epsilon([silent, run, silent], DELTA) == compute_epsilon([run], DELTA, lower=False).epsilon
    assert sequential_epsilon([run, loud], DELTA) == sequential_epsilon([loud], DELTA) == math.inf
    whole = ObjectiveEvent(100, 100, 1.0, 1.0, 1, extra=0.1)  # composes with nothing: their ε are summed
    shares = [6 * DELTA / 100 / (math.pi * k) ** 2 for k in (1, 2)]
    each = [compute_epsilon([one], share, lower=False).epsilon for one, share in zip([run, whole], shares, strict=True)]
    assert sequential_epsilon([run, whole], DELTA) == pytest.approx(sum(each))
    with pytest.raises(PrivacyError, match="at least 1e-15"):
        sequential_epsilon([run, run], 1e-30)


def test_the_rule_depends_on_nothing_but_the_first_run():
    first = at("poisson", 1.0)
    rules = {filters._judges(first.part, DELTA) for _ in range(2)}
    assert len(rules) == 1
    rule = rules.pop()
    assert rule.gauss + sum(rule.shares) + (filters.SUM + filters.WHOLE) * DELTA == pytest.approx(DELTA, rel=1e-12)
    assert rule.gauss > 0.5 * DELTA > filters._judges(at("one", 1.0).part, DELTA).gauss


@pytest.mark.parametrize("name", ["poisson", "fixed", "one", "laplace"])
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_a_run_is_dominated_by_the_normal_laws_that_stand_for_it(name, epsilon):
    """The run's own profile, from another calculation, at points that the search did not examine."""
    part, cut = at(name, epsilon).part, 1e-3 * DELTA
    mu, c = filters._normal(part, cut)
    assert c == cut
    if math.isinf(mu):
        assert name == "laplace"
        return
    for e in np.linspace(0.0, 3.0 * epsilon, 23):
        assert delta([part], e) <= (c + (1 - c) * gaussian_delta(float(e), 1.0 / mu)) * (1 + 5e-3) + 1e-12


def test_moments_are_those_of_the_pair():
    part, order = at("poisson", 2.0).part, 3.0
    values, cut = filters._log_moments(part, (order,), 1e-9 * DELTA)
    z, rate = part.pair.multiplier, part.pair.rate

    def law(x, center):
        return (1 - rate) * norm.pdf(x, 0, z) + rate * norm.pdf(x, center, z)

    mean = quad(lambda x: law(x, 1) ** (order + 1) / law(x, -1) ** order, -10 * z, 10 * z, points=[-1, 0, 1])[0]
    assert cut <= 1e-9 * DELTA
    assert part.count * math.log(mean) <= values[0] <= 1.01 * part.count * math.log(mean)


@pytest.mark.parametrize("threshold", [-0.2, 0.1, 0.3, 0.9])
@pytest.mark.parametrize("first", [0.1, 0.25])
def test_who_continues_only_when_it_seems_promising_gains_nothing(first, threshold):
    """A Gaussian run; where its loss is over a threshold, a second that spends all the budget has left; exactly."""
    budget = 1.0
    known = [FullEvent(100, 100, 1.0, 0.02 / first, 1)]
    low, high = 1e-3, 10.0
    for _ in range(60):  # the most of a second run that the filter lets through
        middle = math.sqrt(low * high)
        runs = [*known, FullEvent(100, 100, 1.0, 0.02 / middle, 1)]
        low, high = (middle, high) if sequential_epsilon(runs, DELTA) <= budget else (low, middle)
    second = low

    def over(loss):  # E(1 − e^{ε − loss − L2})₊, L2 the loss of the second run
        mu = second
        a = (loss - budget + mu * mu / 2) / mu
        return norm.cdf(a) - math.exp(budget - loss) * norm.cdf(a - mu)

    def inside(x):
        return norm.pdf(x, first**2 / 2, first) * (over(x) if x > threshold else max(-math.expm1(budget - x), 0.0))

    spread = 12 * first
    found = sum(quad(inside, a, b, limit=400)[0] for a, b in [(-spread, threshold), (threshold, spread + 5)])
    assert 0 < found <= DELTA


def test_gaussian_runs_are_as_good_as_exact():
    runs = [FullEvent(100, 100, 1.0, s, 4) for s in (0.2, 0.3, 0.5)]
    distance = math.sqrt(sum(4 * (0.02 / run.sigma) ** 2 for run in runs))
    assert sequential_epsilon(runs, DELTA) == gaussian_epsilon(0.9 * DELTA, 1 / distance)


def test_the_sum_judge_counts_all_parts_of_a_joint_event():
    """Three pure releases of 0.2 are 0.6, and not 0.2."""
    one = replace(UNITS["laplace"], sigma=sigma(UNITS["laplace"], 0.2, DELTA))
    joint = JointEvent.of([one, one, one])
    each = filters._sum((one,), DELTA)
    assert each == pytest.approx(0.2, rel=1e-3)
    assert filters._sum((joint,), DELTA) == pytest.approx(3 * each)
    assert filters._sum((joint, one), DELTA) == pytest.approx(4 * each)
    gaussian = FullEvent(100, 100, 1.0, 0.2, 1)
    mixed = JointEvent.of([one, gaussian])
    assert filters._sum((mixed,), DELTA) >= compute_epsilon([mixed], DELTA, lower=False).epsilon
