"""A person with records at several sites: what shared and independent noise come to, against exact divergences."""

import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from sottovoce import Shards, Spec, solve
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.calibration import single
from sottovoce.privacy.events import FixedEvent, FullEvent, PoissonEvent, sheltered
from sottovoce.privacy.profiles import PoissonPair, gaussian_epsilon
from sottovoce.privacy.several_sites import SharedNoise, epsilon_at_sites
from sottovoce.run.spec import AlgorithmSpec

DELTA = 1e-5
ONE = FullEvent(1, 1, 0.5, single(1.0, DELTA), 1)
SHARED = replace(ONE, note=sheltered(0, exact=False))


def test_the_numbers_of_gaussian_noise():
    """With z of ε = 1: μ√k where noise is independent, and μk where it is one noise."""
    found = [epsilon_at_sites([(event, 3)], k, DELTA) for event in (SHARED, ONE) for k in (2, 3)]
    assert np.allclose(found, [2.16, 3.41, 1.47, 1.84], atol=0.01)
    exact = [gaussian_epsilon(DELTA, ONE.noise_multiplier / factor) for factor in (2, 3, math.sqrt(2), math.sqrt(3))]
    assert np.allclose(found, exact, rtol=2e-3)


@given(n=st.integers(2, 9), r=st.floats(0.0, 100.0), k=st.integers(1, 9), seed=st.integers(0, 2**32 - 1))
def test_no_moves_of_k_releases_show_more_than_k_times_one(n, r, k, seed):
    """Exact: any directions, within any unit balls, under the covariance of own noise and noise of all pairs."""
    k = min(k, n)
    rng = np.random.default_rng(seed)
    strong = r * rng.random((n, n))
    pairs = np.triu(strong, 1) + np.triu(strong, 1).T
    covariance = np.eye(n) + np.diag(pairs.sum(axis=1)) - pairs
    precision = np.linalg.inv(covariance)
    v = np.zeros((n, 3))
    moved = rng.normal(size=(k, 3))
    v[:k] = moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1.0)
    together = math.sqrt(np.einsum("id,ij,jd->", v, precision, v))
    alone = math.sqrt(precision.diagonal().max())
    assert together <= k * alone * (1 + 1e-9)


def test_strong_pairs_attain_it():
    n, r = 6, 1e4
    precision = np.linalg.inv(np.eye(n) + r**2 * (n * np.eye(n) - np.ones((n, n))))
    both = np.r_[1.0, 1.0, np.zeros(n - 2)]
    assert math.sqrt(both @ precision @ both / precision[0, 0]) == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("rate", [0.05, 0.3])
def test_a_sampled_round_is_dominated(k, rate):
    """One round with shared noise: the number of batches that a person is in is binomial, and so is the move."""
    z = 1.5
    x = np.linspace(-60, 60, 400_001)
    chances = scipy.stats.binom.pmf(np.arange(k + 1), k, rate)
    up, down = (sum(p * scipy.stats.norm.pdf(x, sign * b, z) for b, p in enumerate(chances)) for sign in (1.0, -1.0))
    t = np.array([0.01, 0.1, 0.3, 1.0])
    exact = [np.trapezoid(np.maximum(up - math.exp(e) * down, 0.0), x) for e in t]
    bound = PoissonPair(z / k, 1.0 - (1.0 - rate) ** k).delta(t)
    assert np.all(exact <= bound + 1e-7) and np.any(bound < 2.5 * np.array(exact) + 1e-3)


def test_samples_and_earlier_releases_count():
    poisson = PoissonEvent(1000, 50, 1.0, 0.3, 40, note=sheltered(1, exact=False))
    before = FullEvent(1000, 1000, 0.5, 0.01, 1, note=sheltered(1, exact=False))
    with_both = replace(poisson, before=before)
    shared = SharedNoise((with_both,), 2)
    assert [part.count for part in shared.parts] == [1, 40]
    assert shared.parts[1].pair == PoissonPair(poisson.noise_multiplier / 2, 1 - 0.95**2)
    values = [epsilon_at_sites([(event, 5)], 2, DELTA) for event in (poisson, with_both)]
    alone = compute_epsilon([with_both], DELTA).epsilon
    assert alone < values[1] and values[0] < values[1]
    own = [replace(each, note=ONE.note, before=None) for each in (poisson, before)]
    two = epsilon_at_sites([(own[0], 5)], 2, DELTA)
    assert two == compute_epsilon([own[0]] * 2, DELTA, lower=False).epsilon
    assert two < values[0]


def test_the_costliest_sites_are_counted():
    dear, cheap = replace(ONE, sigma=2.0), replace(ONE, sigma=9.0)
    assert epsilon_at_sites([(cheap, 4), (dear, 1)], 2, DELTA) == compute_epsilon([dear, cheap], DELTA).epsilon
    assert epsilon_at_sites([(cheap, 4), (dear, 2)], 2, DELTA) == compute_epsilon([dear, dear], DELTA).epsilon
    shared = [replace(event, note=SHARED.note) for event in (cheap, dear)]
    assert epsilon_at_sites([(event, 2) for event in shared], 2, DELTA) == epsilon_at_sites([(shared[1], 2)], 2, DELTA)


def test_what_is_not_known_is_not_said():
    assert epsilon_at_sites([(ONE, 1)], 2, DELTA) is None
    assert epsilon_at_sites([(replace(ONE, sigma=0.0), 2)], 2, DELTA) is None
    assert epsilon_at_sites([(SHARED, 1), (FixedEvent(9, 3, 1.0, 1.0, 2), 1)], 2, DELTA) is None


def fitted(**changes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3)) / 4
    shards = Shards.of(X, np.sign(X[:, 0]), np.arange(0, 401, 100))
    spec = Spec(AlgorithmSpec(20), seed=1).replace(
        privacy__noise="private(1)", privacy__sampling="full", network__activation="everyone", **changes
    )
    return solve(spec, shards).statement


def test_a_statement_says_it():
    own = fitted()
    shared = fitted(privacy__law="pairs(10)", privacy__adversary="secret_pairs(1)")
    assert own.epsilon_at(2) == pytest.approx(1.47, abs=0.01) and own.epsilon_at(3) == pytest.approx(1.84, abs=0.01)
    assert shared.epsilon_at(2) == pytest.approx(2.16, abs=0.01)
    assert shared.epsilon_at(3) == pytest.approx(3.41, abs=0.02)
    words = own.paragraph()
    said = re.search(r"ε = ([0-9.]+) with records at two nodes and ε = ([0-9.]+) with records at three", words)
    assert np.allclose([float(text) for text in said.groups()], [1.47, 1.84], atol=0.01)
    assert "one noise" in shared.paragraph()
    assert "noise of its own" in own.paragraph()
    assert own.epsilon_at(5) is None
    own.verify()


def test_the_worst_sites_need_not_be_those_of_the_largest_epsilon():
    """A sampled event of ε = 1.001 composes to 1.21, a full one of ε = 1 to 1.47: 1.21 was stated."""
    sampled = PoissonEvent(1000, 10, 0.5, 0.0, 1)
    low, high = 1e-4, 100.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        found = compute_epsilon([replace(sampled, sigma=middle)], DELTA, lower=False).epsilon
        low, high = (middle, high) if found > 1.001 else (low, middle)
    sampled = replace(sampled, sigma=low)
    alone = [compute_epsilon([event], DELTA, lower=False).epsilon for event in (ONE, sampled)]
    assert alone[0] < alone[1]
    for k in (2, 3):
        chosen = itertools.combinations_with_replacement((ONE, sampled), k)
        worst = max(compute_epsilon(list(each), DELTA, lower=False).epsilon for each in chosen)
        assert epsilon_at_sites([(ONE, 3), (sampled, 3)], k, DELTA) == pytest.approx(worst)


def test_nodes_that_others_dominate_need_not_be_tried():
    sizes = [replace(ONE, sigma=ONE.sigma * (1 + i / 10)) for i in range(30)]
    worst = compute_epsilon(sizes[:2], DELTA, lower=False).epsilon
    assert epsilon_at_sites([(event, 1) for event in reversed(sizes)], 2, DELTA) == pytest.approx(worst)
    assert epsilon_at_sites([(sizes[0], 1), (sizes[1], 5)], 2, DELTA) == pytest.approx(worst)
    twins = [(replace(ONE, records=q, batch=q, sigma=ONE.sigma / q), 1) for q in (1, 2, 4, 8)]
    assert epsilon_at_sites(twins, 2, DELTA) == pytest.approx(1.465, abs=2e-3)


def test_too_many_choices_are_bounded_together():
    """Of sites that draw at different rates none dominates another."""
    events = [PoissonEvent(1000, 10 * (i + 1), 0.5, 0.02 / (i + 1) * (1 + i) ** 1.5, 20) for i in range(12)]
    stated = epsilon_at_sites([(event, 2) for event in events], 3, DELTA)
    rng = np.random.default_rng(0)
    for _ in range(6):
        chosen = [events[i] for i in rng.integers(12, size=3)]
        assert compute_epsilon(chosen, DELTA, lower=False).epsilon <= stated
