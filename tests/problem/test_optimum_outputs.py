"""The certified optimum of several outputs, against scikit-learn, against itself, and by its own certificate."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from sottovoce.errors import SpecError
from sottovoce.problem.losses import LOSSES, SOFTMAX
from sottovoce.problem.objective import Problem
from sottovoce.problem.optimum import GapError, dual_value, optimum
from sottovoce.problem.regularizers import L2Ball, Separable
from sottovoce.problem.shards import Shards

K, MU = 3, 0.02
CASES = {
    "l2": Separable(mu=MU),
    "l1": Separable(phi=0.01),
    "elastic_net": Separable(phi=0.01, mu=0.01),
    "box": Separable(lo=-0.5, hi=0.7),
    "l2, non-negative": Separable(mu=MU, lo=0.0),
}
BINARY = [name for name, loss in LOSSES.items() if loss.targets == "binary"]


def data(rows=80, features=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features))
    return X, np.argmax(X @ rng.normal(size=(features, K)) + 0.7 * rng.normal(size=(rows, K)), axis=1).astype(float)


def pooled(loss, h, X, y, **more):
    return Problem(LOSSES.make(loss), h, Shards.of(X, y, np.array([0, len(y)]), **more), outputs=K)


def test_softmax_agrees_with_scikit_learn():
    X, y = data()
    problem = pooled("softmax", Separable(mu=MU), X, y)
    best = optimum(problem, gap=1e-12)
    model = LogisticRegression(C=1 / (MU * len(y)), fit_intercept=False, tol=1e-10, max_iter=10_000).fit(X, y)
    assert best.lower <= problem.value(model.coef_.ravel()) <= best.value + 1e-9
    np.testing.assert_allclose(best.x.reshape(K, 5), model.coef_, atol=1e-5)


def test_one_against_the_rest_agrees_with_liblinear():
    X, y = data()
    problem = pooled("hinge", Separable(mu=MU), X, y)
    best = optimum(problem, gap=1e-10)
    svm = LinearSVC(loss="hinge", fit_intercept=False, C=1 / (MU * len(y)), tol=1e-9, max_iter=1_000_000).fit(X, y)
    assert best.lower <= problem.value(svm.coef_.ravel()) <= best.value + 1e-7
    np.testing.assert_allclose(best.x.reshape(K, 5), svm.coef_, atol=1e-3)


@settings(max_examples=25, deadline=None)
@given(
    loss=st.sampled_from([*BINARY, "softmax"]),
    h=st.sampled_from(sorted(CASES)),
    seed=st.integers(0, 10_000),
    form=st.sampled_from([np.asarray, np.float32, sparse.csr_array]),
    intercept=st.sampled_from([0.0, 0.5]),
)
def test_certificate_holds(loss, h, seed, form, intercept):
    """What is returned proves itself, with uneven nodes and people of several rows among them."""
    h = CASES[h]
    X, y = data(rows=24, seed=seed)
    rng = np.random.default_rng(seed)
    shards = Shards.of(form(X), y, np.array([0, 5, 24]), rng.permutation(24), intercept, rng.integers(0, 7, 24))
    problem = Problem(LOSSES.make(loss), h, shards, outputs=K)
    best = optimum(problem, gap=1e-5, seed=seed)
    assert best.slopes.shape == (24, K) and 0 <= best.gap == best.value - best.lower <= 1e-5
    assert best.value == problem.value(best.x)
    if h.phi == 0:  # else each class has a bound of its own on ‖x_k‖₁, tighter than the one on ‖x‖₁
        assert best.lower == pytest.approx(min(dual_value(problem, best.slopes), best.value), abs=1e-14)
    for spread in (0.01, 1.0):
        other = np.clip(best.x + spread * rng.standard_normal(best.x.size), h.lo, h.hi)
        assert problem.value(other) >= best.lower


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["l2", "elastic_net", "l1"]), st.integers(0, 10_000), st.sampled_from([0.01, 0.3, 3.0]))
def test_weak_duality_of_the_softmax(h, seed, spread):
    """Any p on the simplex bounds any point within reach; near the point's own p the bound is tight enough to err."""
    h, (X, y) = CASES[h], data(rows=12, seed=seed)
    problem = pooled("softmax", h, X, y)
    rng = np.random.default_rng(seed)
    x = spread * rng.standard_normal(problem.m)
    own = problem.slopes(x)
    own_class = y[:, None] == np.arange(K)
    for p in (own + own_class, rng.permutation(own + own_class), rng.dirichlet(np.ones(K), 12), own_class * 1.0):
        lower = dual_value(problem, p - own_class, reach=float(np.sum(np.abs(x))))
        assert lower <= problem.value(x) + 1e-12 * (1 + abs(lower))


@pytest.mark.parametrize("h", ["l2", "elastic_net", "l1", "box"])
def test_the_softmax_slopes_solve_the_optimality_conditions(h, kkt_residual):
    problem = pooled("softmax", CASES[h], *data())
    best = optimum(problem, gap=1e-11)
    assert kkt_residual(problem, best.x) < 1e-4 and kkt_residual(problem, best.x, best.slopes) < 1e-4


def test_two_classes_of_the_softmax_are_the_logistic_problem():
    """x₁ − x₀ = w, and ‖x₀‖² + ‖x₁‖² = ‖w‖²/2 at the best: half of the weight of h."""
    X, y = data()
    y = (y > 0).astype(float)
    two = Problem(SOFTMAX, Separable(mu=MU), Shards.of(X, y, np.array([0, len(y)])), outputs=2)
    one = Problem(LOSSES["logistic"], Separable(mu=MU / 2), Shards.of(X, 2 * y - 1, np.array([0, len(y)])))
    best, plain = optimum(two, gap=1e-12), optimum(one, gap=1e-12)
    assert best.value == pytest.approx(plain.value, abs=2e-12)
    x = best.x.reshape(2, -1)
    np.testing.assert_allclose(x[1] - x[0], plain.x, atol=1e-5)
    np.testing.assert_allclose(x[1], -x[0], atol=1e-6)


def test_what_cannot_be_certified_is_refused():
    X, y = data()
    for loss in ("softmax", "hinge"):
        with pytest.raises(SpecError, match="separable regularizers"):
            optimum(pooled(loss, L2Ball(1.0), X, y))
    with pytest.raises(GapError, match="after 7 passes, over the 1e-08 requested"):
        optimum(pooled("softmax", Separable(mu=1e-4), X, y), max_passes=7)
    seen = []
    optimum(pooled("softmax", Separable(mu=MU), X, y), progress=lambda made, gap: seen.append((made, gap)))
    assert seen and seen[-1][1] <= 1e-8 and all(np.diff([gap for _, gap in seen]) <= 0)
