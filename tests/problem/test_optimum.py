import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression
from sklearn.svm import LinearSVC

from sottovoce.errors import SottovoceError, SpecError
from sottovoce.problem.losses import LOSSES
from sottovoce.problem.objective import WEIGHTS, Problem
from sottovoce.problem.optimum import Ascent, GapError, dual_value, optimum
from sottovoce.problem.regularizers import L1Ball, L2Ball, Separable, Simplex
from sottovoce.problem.shards import Shards

SCALAR = sorted(name for name, loss in LOSSES.items() if loss.targets != "classes" and loss.conjugate_formula)
CASES = {
    "l2": Separable(mu=0.02),
    "weak l2": Separable(mu=2e-4),
    "l1": Separable(phi=0.01),
    "elastic_net": Separable(phi=0.01, mu=0.01),
    "box": Separable(lo=-0.5, hi=0.7),
    "box away from 0": Separable(lo=0.1, hi=0.7),
    "l1, non-negative": Separable(phi=0.01, lo=0.0),
    "l2, non-negative": Separable(mu=0.02, lo=0.0),
}


def data(loss, rows=60, features=8, seed=0, density=1.0):
    """Rows of unequal norms, a noisy linear model; float32 numbers, so that every form holds the same data."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, features)) * (rng.random((rows, features)) < density)
    X = (X * rng.uniform(0.3, 1.5, (rows, 1))).astype(np.float32).astype(np.float64)
    t = X @ rng.standard_normal(features) + 0.7 * rng.standard_normal(rows)
    return X, np.where(t >= 0, 1.0, -1.0) if loss.targets == "binary" else t


def pooled(loss, h, X, y, intercept=0.0):
    return Problem(loss, h, Shards.of(X, y, np.array([0, len(y)]), intercept=intercept))


def linear_programme(loss, h, X, y):
    """F* of a piecewise linear loss with l1 and box, exactly: variables x⁺, x⁻ and the two parts of each residual."""
    rows, features = X.shape
    if loss.name == "hinge":
        cost_above, below, left, right = 0.0, 1.0, y[:, None] * X, np.ones(rows)  # y·u − above + below = 1
    else:
        level = 0.5 if loss.name == "absolute" else loss.parameter
        factor = 2.0 if loss.name == "absolute" else 1.0
        cost_above, below, left, right = factor * (1 - level), factor * level, X, y
    cost = np.r_[np.full(2 * features, h.phi), np.full(rows, cost_above / rows), np.full(rows, below / rows)]
    equal = np.hstack([left, -left, -np.eye(rows), np.eye(rows)])
    ends = [(max(h.lo, 0), max(h.hi, 0))] * features + [(max(-h.hi, 0), max(-h.lo, 0))] * features
    found = optimize.linprog(cost, A_eq=equal, b_eq=right, bounds=ends + [(0, None)] * (2 * rows), method="highs")
    assert found.status == 0
    return found.fun


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("mu", [0.1, 0.003])
def test_svm_agrees_with_liblinear(mu, seed):
    loss = LOSSES.make("hinge")
    X, y = data(loss, seed=seed)
    problem = pooled(loss, Separable(mu=mu), X, y)
    best = optimum(problem, gap=1e-10)
    svm = LinearSVC(loss="hinge", fit_intercept=False, C=1 / (mu * len(y)), tol=1e-9, max_iter=1_000_000)
    theirs = svm.fit(X, y).coef_[0]
    assert best.lower <= problem.value(theirs) <= best.value + 1e-7
    np.testing.assert_allclose(best.x, theirs, atol=2e-4)


def test_logistic_agrees_with_scikit_learn():
    loss, mu = LOSSES.make("logistic"), 0.01
    X, y = data(loss)
    problem = pooled(loss, Separable(mu=mu), X, y)
    best = optimum(problem, gap=1e-12)
    model = LogisticRegression(C=1 / (mu * len(y)), fit_intercept=False, tol=1e-10, max_iter=10_000)
    theirs = model.fit(X, y).coef_[0]
    assert best.lower <= problem.value(theirs) <= best.value + 1e-9
    np.testing.assert_allclose(best.x, theirs, atol=1e-4)


@pytest.mark.parametrize("mu", [0.0, 0.05])
def test_least_squares_agree_with_scikit_learn(mu):
    loss, phi = LOSSES.make("squared"), 0.03
    X, y = data(loss)
    problem = pooled(loss, Separable(phi=phi, mu=mu), X, y)
    best = optimum(problem, gap=1e-12)
    kind = {"fit_intercept": False, "tol": 1e-12, "max_iter": 100_000}
    model = ElasticNet(alpha=phi + mu, l1_ratio=phi / (phi + mu), **kind) if mu else Lasso(alpha=phi, **kind)
    theirs = model.fit(X, y).coef_
    assert best.lower <= problem.value(theirs) <= best.value + 1e-10
    np.testing.assert_allclose(best.x, theirs, atol=1e-5)


@pytest.mark.parametrize("h", ["l1", "box", "box away from 0", "l1, non-negative"])
@pytest.mark.parametrize("loss", [LOSSES.make("hinge"), LOSSES.make("absolute"), LOSSES.make("quantile", 0.8)])
def test_linear_programmes_agree_with_highs(loss, h):
    X, y = data(loss)
    best = optimum(pooled(loss, CASES[h], X, y), gap=1e-8)
    true = linear_programme(loss, CASES[h], X, y)
    assert best.lower - 1e-11 <= true <= best.value + 1e-11


@settings(max_examples=150, deadline=None)
@given(
    loss=st.sampled_from(SCALAR),
    h=st.sampled_from(sorted(CASES)),
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([0.0, 0.01, 0.1, 1.0, 10.0]),
)
def test_weak_duality(loss, h, seed, spread):
    """Any slopes in the domain bound any point within reach, near the optimum and far from it."""
    loss, h = LOSSES.make(loss), CASES[h]
    X, y = data(loss, rows=12, features=4, seed=seed)
    problem = pooled(loss, h, X, y)
    rng = np.random.default_rng(seed)
    x = np.clip(spread * rng.standard_normal(4), h.lo, h.hi)
    low, high = loss.interval(y)
    near = loss.slope(X @ x, y)  # with these the bound is nearly tight, so that an error of either sign shows
    for slopes in (
        near,
        rng.permutation(near),
        near + spread * rng.standard_normal(len(y)),
        rng.uniform(-1, 1, len(y)),
    ):
        lower = dual_value(problem, np.clip(slopes, low, high), reach=float(np.sum(np.abs(x))))
        assert lower <= problem.value(x) + 1e-12 * (1 + abs(lower))


@settings(max_examples=60, deadline=None)
@given(
    loss=st.sampled_from(SCALAR),
    h=st.sampled_from(sorted(CASES)),
    seed=st.integers(0, 10_000),
    form=st.sampled_from(["float32", "float64", "csr32", "csr64"]),
    intercept=st.sampled_from([0.0, 0.5]),
)
def test_certificate_holds(loss, h, seed, form, intercept):
    """What is returned proves itself, for every loss and form of the data."""
    loss, h = LOSSES.make(loss), CASES[h]
    X, y = data(loss, rows=25, features=5, seed=seed, density=0.7)
    X[0] = 0.0  # an empty row has no curvature of its own
    kept = X.astype(f"float{form[-2:]}")
    problem = pooled(loss, h, sparse.csr_array(kept) if form.startswith("csr") else kept, y, intercept)
    best = optimum(problem, gap=1e-5, seed=seed)
    low, high = loss.interval(y)
    assert np.all((low <= best.slopes) & (best.slopes <= high))
    assert best.value == problem.value(best.x)
    reach = best.value / h.phi if h.phi > 0 else math.inf
    assert best.lower == min(dual_value(problem, best.slopes, reach), best.value)
    assert 0 <= best.gap == best.value - best.lower <= 1e-5
    rng = np.random.default_rng(seed)
    other = np.clip(best.x + 0.01 * rng.standard_normal(best.x.size), h.lo, h.hi)
    assert problem.value(other) >= best.lower


@pytest.mark.parametrize("name", ["l2", "l1", "elastic_net", "box"])
@pytest.mark.parametrize("loss", ["hinge", "smoothed_hinge", "logistic", "absolute"])
def test_slopes_solve_the_optimality_conditions(loss, name, kkt_residual):
    loss = LOSSES.make(loss)
    X, y = data(loss)
    problem = pooled(loss, CASES[name], X, y)
    best = optimum(problem, gap=1e-10)
    assert kkt_residual(problem, best.x, best.slopes) < 1e-4
    # Fenchel–Young: each slope is a subgradient of the loss at its record's margin
    u = problem.shards.margins(best.x)
    slack = loss.value(u, y) + loss.conjugate(best.slopes, y) - best.slopes * u
    assert np.all(slack > -1e-12)
    assert np.max(problem.record_weights * slack) < 2e-10


@settings(max_examples=60, deadline=None)
@given(
    loss=st.sampled_from(SCALAR),
    h=st.sampled_from(sorted(CASES)),
    form=st.sampled_from([np.asarray, sparse.csr_array]),
    intercept=st.sampled_from([0.0, 0.5]),
    kappa=st.sampled_from([1e-3, 0.1]),
    seed=st.integers(0, 10_000),
)
def test_a_pass_climbs_and_keeps_its_sums(loss, h, form, intercept, kappa, seed):
    loss, h = LOSSES.make(loss), CASES[h]
    X, y = data(loss, rows=15, features=5, seed=seed, density=0.7)
    problem = pooled(loss, h, form(X), y, intercept)
    ascent = Ascent(problem, h, seed)
    x0 = np.clip(np.random.default_rng(seed).standard_normal(problem.shards.m), h.lo, h.hi)
    ascent.center_at(x0, kappa)
    height = ascent.inner_dual(ascent.s, ascent.z, ascent.x)
    for _ in range(4):
        ascent.advance(1, extrapolate=False)
        v = -problem.shards.pull(problem.record_weights * ascent.s)
        np.testing.assert_allclose(ascent.v, v, atol=1e-12)
        np.testing.assert_allclose(ascent.x, h.step(-v - kappa * x0, 1.0, kappa), atol=1e-9)
        before, height = height, ascent.inner_dual(ascent.s, ascent.z, ascent.x)
        assert height >= before - 1e-12 * (1 + abs(before))


@pytest.mark.parametrize("h", ["l2", "l1"])
@pytest.mark.parametrize("loss", ["hinge", "logistic", "huber"])
def test_forms_of_the_data_agree(loss, h):
    loss = LOSSES.make(loss)
    X, y = data(loss, density=0.5)
    single = X.astype(np.float32)
    forms = [X, single, sparse.csr_array(X), sparse.csr_array(single), np.asfortranarray(X)]
    found = [optimum(pooled(loss, CASES[h], form, y, intercept=0.7), gap=1e-10) for form in forms]
    for other in found[1:]:
        assert other.value == pytest.approx(found[0].value, abs=2e-10)
        np.testing.assert_allclose(other.x, found[0].x, atol=2e-4)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_data_is_neither_copied_nor_changed(form):
    loss = LOSSES.make("hinge")
    X, y = data(loss)
    kept = form(X)
    values = kept.data if sparse.issparse(kept) else kept
    values.flags.writeable = False  # compiled code that wrote to it would not even compile
    problem = pooled(loss, CASES["l1"], kept, y)
    assert optimum(problem, gap=1e-6).gap <= 1e-6
    assert problem.shards.X is kept


@pytest.mark.parametrize("h", ["l2", "l1"])
@pytest.mark.parametrize("loss", ["hinge", "logistic", "squared"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_nodes_agree_with_repeated_records(loss, h, form):
    """Nodes of 5, 10 and 20 records that count the same: as if records were there 4, 2 and 1 times."""
    loss = LOSSES.make(loss)
    X, y = data(loss, rows=35)
    order = np.random.default_rng(3).permutation(35)
    nodes = Shards.of(form(X), y, np.array([0, 5, 15, 35]), order)
    best = optimum(Problem(loss, CASES[h], nodes, weights=WEIGHTS.read("nodes")), gap=1e-10)
    times = np.empty(35, dtype=int)
    times[order] = np.repeat([4, 2, 1], [5, 10, 20])
    again = np.repeat(np.arange(35), times)
    plain = optimum(pooled(loss, CASES[h], X[again], y[again]), gap=1e-10)
    assert best.value == pytest.approx(plain.value, abs=2e-10)
    np.testing.assert_allclose(best.x, plain.x, atol=2e-4)
    records = optimum(Problem(loss, CASES[h], nodes, weights=WEIGHTS.read("records")), gap=1e-10)
    assert records.value == pytest.approx(optimum(pooled(loss, CASES[h], X, y), gap=1e-10).value, abs=2e-10)
    assert abs(records.value - best.value) > 1e-4  # the weights matter here


@pytest.mark.parametrize("h", ["l2", "l1", "box"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_intercept_is_one_more_column(h, form):
    loss = LOSSES.make("hinge")
    X, y = data(loss)
    hidden = optimum(pooled(loss, CASES[h], form(X), y, intercept=1.5), gap=1e-10)
    written = np.column_stack([X, np.full(len(y), 1.5)])
    shown = optimum(pooled(loss, CASES[h], form(written), y), gap=1e-10)
    assert hidden.value == pytest.approx(shown.value, abs=2e-10)
    np.testing.assert_allclose(hidden.x, shown.x, atol=2e-4)
    assert abs(hidden.value - optimum(pooled(loss, CASES[h], X, y), gap=1e-10).value) > 1e-6


@pytest.mark.parametrize(
    "h", [L2Ball(1.0), L1Ball(1.0), Simplex(1.0), Separable(), Separable(lo=0.0), Separable(phi=0.1, lo=0.2)]
)
def test_unsupported_regularisers_are_refused(h):
    loss = LOSSES.make("hinge")
    with pytest.raises(SpecError, match="optimum is certified"):
        optimum(pooled(loss, h, *data(loss)))


@pytest.mark.parametrize("passes", [0, 1, 17])
def test_too_few_passes_are_reported(passes):
    loss = LOSSES.make("hinge")
    problem = pooled(loss, CASES["l1"], *data(loss))
    with pytest.raises(GapError, match=rf"after {passes} passes, over the 1e-08 requested; raise max_passes"):
        optimum(problem, max_passes=passes)
    assert issubclass(GapError, SottovoceError)


@pytest.mark.parametrize("gap", [0.0, -1.0, math.nan])
def test_gaps_that_cannot_be_reached_are_refused(gap):
    loss = LOSSES.make("hinge")
    with pytest.raises(SpecError, match="over 0"):
        optimum(pooled(loss, CASES["l2"], *data(loss)), gap=gap)


def test_progress_and_seed():
    loss = LOSSES.make("hinge")
    problem = pooled(loss, CASES["l1"], *data(loss))
    seen = []
    best = optimum(problem, seed=5, progress=lambda passes, gap: seen.append((passes, gap)))
    passes, gaps = zip(*seen, strict=True)
    assert passes[-1] == best.passes and gaps[-1] == pytest.approx(best.gap, abs=1e-9)
    assert all(np.diff(passes) > 0) and all(np.diff(gaps) <= 0)
    again = optimum(problem, seed=5)
    assert np.array_equal(again.x, best.x) and again.passes == best.passes


def test_zero_data():
    loss = LOSSES.make("absolute")
    best = optimum(pooled(loss, CASES["l1"], np.zeros((3, 2)), np.array([1.0, -2.0, 0.0])))
    assert best.value == best.lower == 1.0 and not best.x.any()
