"""Sufficient statistics: how far a record moves them, in real and whole numbers; their noise; what is made of them."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats

from sottovoce import AlgorithmSpec, Execution, NetworkSpec, PrivacySpec, ProblemSpec, Result, Shards, Spec, even, solve
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.privacy.events import ProductsEvent
from sottovoce.privacy.statistics import Products
from sottovoce.problem.least_squares import NoisyLeastSquares, minimize
from sottovoce.problem.moments import pack, packed_moments, packed_size, unpack
from sottovoce.problem.regularizers import REGULARIZERS
from sottovoce.run.build import prepare
from sottovoce.secure.products import ProductSums, product_grids

R, B, KAPPA = 1.0, 0.5, 0.7
HOW = Products(KAPPA, R, B)


def records(rng, n, m=4, over=1.5):
    """Rows and targets, some of them over their bounds."""
    x = rng.normal(size=(n, m))
    x *= (over * rng.uniform(0, 1, n) / np.linalg.norm(x, axis=1))[:, None]
    return x, rng.uniform(-over, over, n)


def spec(noise="private(2)", seed=1, **more):
    return Spec(
        AlgorithmSpec(1, method=f"statistics({KAPPA})"),
        ProblemSpec("squared", "none", "records", B, R, "clip"),
        NetworkSpec(activation="everyone"),
        PrivacySpec("full", noise),
        seed,
    ).replace(**more)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.booleans())
def test_one_record_or_person_moves_the_sum_by_no_more_than_is_accounted(seed, m, people):
    rng = np.random.default_rng(seed)
    X, y = records(rng, 6, m)
    user_ids = np.array([0, 0, 0, 1, 2, 2]) if people else None
    base = Shards.of(X, y, np.array([0, 6]), user_ids=user_ids).with_intercept(B)
    X, y = X.copy(), y.copy()
    X[:3], y[:3] = records(rng, 3, m, over=10.0) if people else (X[:3], y[:3])
    X[0], y[0] = -X[0] * rng.choice([0.0, 1.0, 100.0]), -3 * y[0]
    other = Shards.of(X, y, np.array([0, 6]), user_ids=user_ids).with_intercept(B)
    moved = np.linalg.norm(packed_moments(base, 0, KAPPA, R) - packed_moments(other, 0, KAPPA, R))
    q = int(base.sizes[0])
    assert moved <= ProductsEvent(q, q, HOW.bound, 1.0, 1).reach * q


def test_some_replacement_moves_it_as_far():
    c = KAPPA**2 - B**2  # what makes the two records' vectors meet at right angles
    X = np.array([[1.0, 0.0], [c, math.sqrt(1 - c**2)]])
    alone = [Shards.of(X[[k]], np.array([y]), np.array([0, 1])) for k, y in ((0, 1.0), (1, -1.0))]
    one, other = (shards.with_intercept(B) for shards in alone)
    moved = np.linalg.norm(packed_moments(one, 0, KAPPA, R) - packed_moments(other, 0, KAPPA, R))
    assert moved > (1 - 1e-4) * math.sqrt(2) * HOW.bound  # 181/128 is a hair less than √2
    assert moved > 1.4 * HOW.bound, "a bound of ρ² would be false"


@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
@settings(max_examples=40)
def test_whole_numbers_keep_the_bound_and_the_value(seed, people, thin):
    rng = np.random.default_rng(seed)
    X, y = records(rng, 9)
    counts = np.array([4, 1, 4]) if people else None
    grids = product_grids(9, R, B, KAPPA)
    kind = sparse.csr_array if thin else np.asarray
    found = ProductSums(kind(X), y, grids, KAPPA).total(np.arange(9), counts)
    user_ids = np.repeat([0, 1, 2], [4, 1, 4]) if people else None
    near = packed_moments(Shards.of(X, y, np.array([0, 9]), user_ids=user_ids).with_intercept(B), 0, KAPPA, R)
    assert np.max(np.abs(found * grids.sum - near)) < 9 * 2.0**-17
    first = 4 if people else 1
    X[:first], y[:first] = records(rng, first, over=rng.choice([1.0, 1e6]))
    other = ProductSums(kind(X), y, grids, KAPPA).total(np.arange(9), counts)
    square = sum(Fraction(int(d)) ** 2 for d in (found - other).tolist()) * Fraction(grids.sum) ** 2
    assert square <= 2 * Fraction(HOW.bound) ** 2


def test_exact_sums_do_not_depend_on_order_or_blocks():
    rng = np.random.default_rng(0)
    X, y = records(rng, 20_000, 2)
    sums = ProductSums(X, y, product_grids(20_000, R, B, KAPPA), KAPPA)
    whole = sums.total(np.arange(20_000))
    mixed = rng.permutation(20_000)
    parts = sum(sums.total(some) for some in np.array_split(mixed, 7))
    assert np.array_equal(whole, parts)


def test_packing_goes_there_and_back():
    S = np.arange(16.0).reshape(4, 4)
    S = S + S.T
    assert np.allclose(unpack(pack(S), 3), S) and len(pack(S)) == packed_size(3)


@pytest.mark.parametrize("seed", [3, None], ids=["simulation", "secure"])
@pytest.mark.parametrize("law", ["gaussian", "pairs(2)"])
def test_the_noise_left_in_the_mean_is_what_the_solver_gets(seed, law):
    rng = np.random.default_rng(1)
    X, y = records(rng, 400, 30, over=1.0)
    shards = Shards.of(X, y, even(400, 4)[0])
    watcher = "secret_pairs" if law != "gaussian" else "transcript"
    noisy = solve(spec(seed=seed, privacy__law=law, privacy__adversary=watcher), shards)
    quiet = solve(spec("none"), shards)
    drawn = (noisy.statistics - quiet.statistics) / noisy.public["noise"]
    low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], len(drawn))
    assert low < np.sum(drawn**2) < high
    assert not low < np.sum((drawn / 1.3) ** 2) < high, "and a wrong scale would be noticed"
    noisy.verify()
    assert noisy.statement.secure is (seed is None) and abs(noisy.statement.epsilon - 2) < 1e-6


@pytest.mark.parametrize("averaging", ["gossip", "exact"])
def test_nodes_that_exchange_messages_end_with_the_same_model(averaging):
    X, y = records(np.random.default_rng(2), 500)
    shards = Shards.of(X, y, np.array([0, 100, 180, 500]))
    run = spec(network__averaging=averaging)
    together, apart = (solve(run, shards, execution=Execution(engine, None)) for engine in ("reference", "nodes"))
    assert np.allclose(together.statistics, apart.statistics, rtol=1e-12, atol=1e-15)
    assert np.allclose(together.models, apart.models, atol=1e-9) and np.ptp(together.models, axis=0).max() < 1e-9


def test_uneven_nodes_count_by_their_records_and_so_does_their_noise():
    X, y = records(np.random.default_rng(2), 900, 30, over=1.0)
    shards = Shards.of(X, y, np.array([0, 100, 300, 900]))
    quiet = solve(spec("none"), shards).statistics
    pooled = packed_moments(Shards.of(X, y, np.array([0, 900])).with_intercept(B), 0, KAPPA, R) / 900
    assert np.allclose(quiet, pooled, atol=1e-12)
    noisy = solve(spec("private(0.5)"), shards)
    drawn = (noisy.statistics - quiet) / noisy.public["noise"]
    low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], len(drawn))
    assert low < np.sum(drawn**2) < high and not low < np.sum((drawn / 1.3) ** 2) < high


@pytest.mark.parametrize("seed", [1, None], ids=["simulation", "secure"])
def test_the_mean_alone_has_the_noise_that_it_would_have_alone(seed):
    rng = np.random.default_rng(3)
    X, y = records(rng, 400, over=1.0)
    run = spec("private(1)", seed, algorithm__method="mean")
    result = solve(run, Shards.of(X, y + 0.4, np.array([0, 400])), execution=Execution(observations=None))
    result.verify()
    event = result.statement.worst.event
    spread = result.public["noise"] / math.sqrt(2) / B**2  # of the entry B²ȳ, over B²
    assert spread == pytest.approx(event.noise_multiplier * 2 / 400, rel=1e-4)  # a mean of [−1, 1] moves by 2/q
    assert not np.any(result.model[:-1]) and len(result.statistics) == 3


def test_the_statement_is_verified_and_another_bound_is_found_out():
    rng = np.random.default_rng(1)
    X, y = records(rng, 300)
    result = solve(spec(), Shards.of(X, y, even(300, 3)[0]))
    result.verify()
    group = result.statement.groups[0]
    assert isinstance(group.event, ProductsEvent) and math.isclose(group.event.clip, R**2 + B**2 + KAPPA**2)
    smaller = replace(group, event=replace(group.event, clip=1.0))
    forged = replace(result, statement=replace(result.statement, groups=(smaller,)))
    with pytest.raises(PrivacyError):
        forged.verify()


def test_a_saved_run_keeps_its_statistics(tmp_path):
    rng = np.random.default_rng(1)
    X, y = records(rng, 300)
    result = solve(spec(), Shards.of(X, y, even(300, 3)[0]))
    again = Result.load(result.save(tmp_path))
    assert again == result and np.array_equal(again.statistics, result.statistics)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"problem__loss": "huber(1)"}, "squared"),
        ({"algorithm__rounds": 2}, "one round"),
        ({"privacy__sampling": "poisson(10)"}, "full"),
        ({"network__graph": "ring"}, "complete"),
        ({"privacy__clip": 1.0}, "clip"),
    ],
)
def test_what_it_is_not_for_is_refused_in_a_sentence(change, word):
    X, y = records(np.random.default_rng(0), 100)
    with pytest.raises((SpecError, PrivacyError), match=word):
        prepare(spec(**change), Shards.of(X, y, even(100, 5)[0]))


def estimate(known, ridge):
    """r̂ of a ridge, written out, and its model."""
    inverse = np.linalg.inv(known.gram + ridge * np.eye(known.m))
    x = inverse @ known.cross
    u = np.append(x, -1 / known.weight)
    more = x @ inverse @ x + np.trace(inverse) * (u @ u) - 2 * x[-1] ** 2 * inverse[-1, -1]
    return known.error(x) + known.noise**2 * more, x


def test_the_estimate_of_the_error_has_the_right_mean():
    """Over draws of the noise, at a fixed ridge; what takes no notice of the fit to the noise has not."""
    rng = np.random.default_rng(5)
    m, s, ridge = 5, 0.02, 0.15
    X, y = records(rng, 500, m, over=1.0)
    y = np.clip(X @ rng.normal(size=m) + 0.1 * y, -1, 1)
    c = np.concatenate([X, np.full((500, 1), B), KAPPA * y[:, None]], axis=1)
    S = c.T @ c / 500
    estimated, flattered, true = [], [], []
    for _ in range(1500):
        noise = np.triu(rng.normal(size=S.shape), 1) / math.sqrt(2)
        noise += noise.T + np.diag(rng.normal(size=m + 2))
        known = NoisyLeastSquares.of(pack(S + s * noise), m + 1, s, KAPPA, B)
        assert np.linalg.eigvalsh(known.gram)[0] + ridge > 0
        value, x = estimate(known, ridge)
        estimated.append(value)
        flattered.append(known.error(x))
        u = np.append(x, -1 / KAPPA)
        true.append(u @ S @ u)
    gap = np.array(estimated) - true
    assert abs(gap.mean()) < 4 * gap.std() / math.sqrt(len(gap))
    gap = np.array(flattered) - true
    assert gap.mean() < -4 * gap.std() / math.sqrt(len(gap))
    fit = known.solve()
    value, x = estimate(known, fit.ridge)
    assert np.allclose(fit.x, x) and fit.risk == pytest.approx(value) and value <= estimated[-1]


def test_without_noise_it_is_least_squares():
    rng = np.random.default_rng(2)
    X, y = records(rng, 200, over=1.0)
    result = solve(spec("none"), Shards.of(X, y, even(200, 4)[0]))
    rows = np.concatenate([X, np.full((200, 1), B)], axis=1)
    assert np.allclose(result.model, np.linalg.lstsq(rows, y, rcond=None)[0], atol=1e-8)


PENALTIES = ["l1(0.02)", "elastic_net(0.01, 0.1)", "box(-0.2, 0.3)", "l1_ball(0.4)", "l2_ball(0.3)"]


@pytest.mark.parametrize("text", PENALTIES)
def test_every_regulariser_is_solved_from_the_same_release(text):
    rng = np.random.default_rng(4)
    X, y = records(rng, 300, over=1.0)
    y = np.clip(X @ np.array([0.5, -0.4, 0.2, 0.0]), -1, 1)
    h = REGULARIZERS.read(text)
    result = solve(spec(problem__h=text, privacy__noise="private(50)"), Shards.of(X, y, np.array([0, 300])))
    known = NoisyLeastSquares.of(result.statistics, 5, result.public["noise"], KAPPA, B)
    fit = known.solve(h)
    assert np.allclose(fit.x, result.model)
    slope = (known.gram + (fit.ridge - h.modulus) * np.eye(5)) @ fit.x - known.cross
    assert np.linalg.norm(fit.x - h.step(slope - fit.x, 1.0, 1.0)) < 1e-8  # 0 ∈ slope + ∂h(x)
    assert math.isfinite(h.value(fit.x)) and len(known.path([h, REGULARIZERS.read("l2(1)")])) == 2


def test_where_nothing_can_be_learned_the_model_is_a_constant():
    rng = np.random.default_rng(3)
    X, y = records(rng, 60, 8, over=1.0)
    wild = 0
    for seed in range(20):
        model = solve(spec("private(0.05)", seed), Shards.of(X, y, np.array([0, 60]))).model
        wild += bool(np.mean((X @ model[:-1] + B * model[-1]) ** 2) > 0.3)
    assert wild <= 2


def test_minimise_agrees_with_a_closed_form():
    H, b = np.diag([2.0, 0.5]), np.array([1.0, -1.0])
    assert np.allclose(minimize(H, b, REGULARIZERS.read("l2(0.5)"), np.zeros(2)), b / (np.diag(H) + 0.5), atol=1e-9)
