"""Noiseless runs end where solvers that nobody here wrote end, at the rate that the paper states."""

import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from sottovoce import solve
from sottovoce.algorithm import bounds
from sottovoce.engine import reference
from sottovoce.problem.shards import Shards
from sottovoce.run.build import prepare
from sottovoce.run.spec import AlgorithmSpec, Execution, Spec

MU, PHI, T = 0.1, 0.02, 6000
FEW_OBSERVATIONS = Execution(observations=4)


def strongly_convex(loss):
    spec = Spec(AlgorithmSpec(rounds=T, a="linear(1)", gamma="constant(0)"), seed=2)
    return spec.replace(problem__loss=loss, problem__h=f"l2({MU})", network__activation="edges(1)")


def svc(X, y):
    return (
        LinearSVC(C=1 / (MU * len(y)), loss="hinge", fit_intercept=False, tol=1e-10, max_iter=10**6).fit(X, y).coef_[0]
    )


def logistic(X, y):
    return LogisticRegression(C=1 / (MU * len(y)), fit_intercept=False, tol=1e-12, max_iter=10**5).fit(X, y).coef_[0]


@pytest.mark.parametrize(("loss", "solver"), [("hinge", svc), ("logistic", logistic)])
@pytest.mark.parametrize("activation", ["edges(1)", "matching(2)", "everyone"])
def test_l2_reaches_scikit_learn(loss, solver, activation, make_shards):
    shards = make_shards(n=5, q=20, m=6)
    spec = strongly_convex(loss).replace(network__activation=activation)
    prepared = prepare(spec, shards)
    x_star = solver(shards.X, shards.y)
    F_star = prepared.job.problem.value(x_star)
    result = solve(spec, shards, f_star=F_star, execution=FEW_OBSERVATIONS)
    setting = bounds.BoundInputs(L=1.0, m=6, n=5, iota=prepared.public["iota"], beta=prepared.public["beta"], mu=MU)
    distance = np.mean(np.sum((result.models - x_star) ** 2, axis=1))
    assert distance <= bounds.corollary1(setting, T)
    assert -1e-7 < result.history.last["suboptimality"] < 2e-3
    first = result.history["suboptimality"][0]
    assert result.history.last["suboptimality"] < 0.02 * first


def l1_svm(X, y):
    """min mean(ξ) + φ Σ(p + r)  s.t.  ξ ≥ 1 − y⟨c, p − r⟩, as a linear program."""
    N, m = X.shape
    cost = np.concatenate([np.full(N, 1 / N), np.full(2 * m, PHI)])
    Yx = y[:, None] * X
    found = linprog(cost, A_ub=np.hstack([-np.eye(N), -Yx, Yx]), b_ub=-np.ones(N), bounds=(0, None), method="highs")
    return found.x[N : N + m] - found.x[N + m :], found.fun


def test_l1_reaches_the_linear_program(make_shards):
    shards = make_shards(n=5, q=20, m=6)
    x_star, F_star = l1_svm(shards.X, shards.y)
    spec = Spec(AlgorithmSpec(rounds=20_000, a="constant(1)", gamma="sqrt(0.05)"), seed=2).replace(
        problem__h=f"l1({PHI})"
    )
    prepared = prepare(spec, shards)
    assert prepared.job.problem.value(x_star) == pytest.approx(F_star, abs=1e-9)
    result = solve(spec, shards, f_star=F_star, execution=FEW_OBSERVATIONS)
    setting = bounds.BoundInputs(
        L=1.0, m=6, n=5, iota=prepared.public["iota"], beta=prepared.public["beta"], d_star=0.5 * float(x_star @ x_star)
    )
    gap = result.history.last["suboptimality"]
    assert -1e-9 < gap <= bounds.corollary2(setting, 0.05, 20_000) and gap < 0.02


def test_curvature_of_the_f_i_gives_the_fast_rate():
    """The remark after Corollary 1: f_i strongly convex, h not. Least squares, h = 0, orthogonal local designs."""
    rng = np.random.default_rng(0)
    n, m, mu_f = 4, 3, 1 / 3  # each node has the rows e_1 … e_m once: f_i has curvature 1/m in every direction
    X, y = np.tile(np.eye(m), (n, 1)), rng.normal(size=n * m)
    shards = Shards.of(X, y, np.arange(n + 1) * m)
    x_star = y.reshape(n, m).mean(axis=0)
    base = Spec(AlgorithmSpec(rounds=8000, a="linear(1)", gamma="constant(1)"), seed=4).replace(
        problem__loss="squared", problem__h="none", privacy__clip=100.0, network__activation="matching(2)"
    )

    def error(spec, T):
        job = prepare(spec.replace(algorithm__rounds=T), shards).job
        models = job.method.average(reference.run(job, job.start(), 1, T), T)
        return np.mean(np.sum((models - x_star) ** 2, axis=1))

    fast = base.replace(algorithm__curvature=mu_f)
    scaled = [T * np.mean([error(fast.replace(seed=s), T) for s in range(3)]) for T in (250, 8000)]
    assert scaled[1] < 2.0 * scaled[0]  # O(1/t)
    assert error(base, 8000) > 100 * error(fast, 8000)  # a_t = t without it does not converge


def test_stale_and_recomputed_x_end_in_the_same_place(make_shards):
    shards = make_shards(n=5, q=20, m=6)
    spec = strongly_convex("hinge").replace(algorithm__gamma="constant(5)")
    models = [
        solve(spec.replace(algorithm__primal=p), shards, execution=FEW_OBSERVATIONS).model
        for p in ("recompute", "as_written")
    ]
    assert not np.array_equal(*models) and np.linalg.norm(models[0] - models[1]) < 0.05 * np.linalg.norm(models[0])


def test_weighing_records_solves_the_pooled_problem(make_shards):
    """Uneven nodes: weights='records' goes to the pooled optimum, weights='nodes' to another one."""
    shards = make_shards(sizes=[2, 3, 60, 25, 10], m=6, seed=3)
    pooled = svc(shards.X, shards.y)
    models = {}
    for weights in ("records", "nodes"):
        spec = strongly_convex("hinge").replace(problem__weights=weights, algorithm__rounds=20_000)
        models[weights] = solve(spec, shards, execution=FEW_OBSERVATIONS).model
    assert np.linalg.norm(models["records"] - pooled) < 0.1 * np.linalg.norm(pooled)
    assert np.linalg.norm(models["nodes"] - pooled) > 2 * np.linalg.norm(models["records"] - pooled)


def test_correcting_uneven_activation_removes_its_bias(make_shards):
    """On a star the hub is always active; with the correction the run ends at the unweighted optimum."""
    shards = make_shards(n=5, q=20, m=4, seed=6)
    x_star = svc(shards.X, shards.y)
    spec = strongly_convex("hinge").replace(network__graph="star", network__correct=True, algorithm__rounds=20_000)
    model = solve(spec, shards, execution=FEW_OBSERVATIONS).model
    assert np.linalg.norm(model - x_star) < 0.1 * np.linalg.norm(x_star)
    job = prepare(spec, shards).job
    job.method.scale[:] = 1.0  # what would happen without it
    biased = job.method.average(reference.run(job, job.start(), 1, 20_000), 20_000).mean(axis=0)
    assert np.linalg.norm(biased - x_star) > 3 * np.linalg.norm(model - x_star)
