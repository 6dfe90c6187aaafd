"""Output and objective perturbation: what they release, how far a record can move it, and what it costs."""

import math

import numpy as np
import pytest
from scipy import stats

from sottovoce.algorithm import oneshot
from sottovoce.algorithm.oneshot import GAP, STILL, ObjectivePerturbation
from sottovoce.engine.job import ENGINES
from sottovoce.errors import DataError, PrivacyError, SpecError
from sottovoce.experiments.baselines import objective_perturbation, output_perturbation
from sottovoce.experiments.inputs import BaselineInputs
from sottovoce.privacy import objective
from sottovoce.problem.losses import LOSSES
from sottovoce.problem.objective import Problem
from sottovoce.problem.optimum import optimum
from sottovoce.problem.regularizers import REGULARIZERS
from sottovoce.problem.shards import Shards
from sottovoce.run.build import make_problem, prepare
from sottovoce.run.solve import solve

N, M = 60, 5
BOTH = [output_perturbation, objective_perturbation]


def inputs(**changes):
    return BaselineInputs(**{"sizes": (N,), "m": M, "epsilon": 1.0, "h": "l2(0.1)"} | changes)


@pytest.mark.parametrize("make", BOTH)
def test_without_noise_it_is_the_minimiser(make, make_shards):
    shards = make_shards(1, N, M)
    spec = make(inputs()).replace(privacy__noise="none", seed=1)
    result = solve(spec, shards)
    best = optimum(make_problem(spec.problem, shards), gap=1e-13)
    assert np.allclose(result.model, best.x, atol=1e-5)
    assert result.statement.epsilon == math.inf and not result.statement.private


@pytest.mark.parametrize("make", BOTH)
def test_it_is_calibrated_and_can_be_verified(make, make_shards):
    result = solve(make(inputs(epsilon=0.7)).replace(seed=2), make_shards(1, N, M), f_star=0.1)
    assert 0.69 < result.statement.epsilon <= 0.7 + 1e-9 and result.statement.adversary == "central"
    result.statement.verify()
    assert 0.01 < result.statement.risk(0.01) < 0.05
    assert result.history.last["suboptimality"] == result.history.last["objective"] - 0.1


def test_the_minimiser_moves_by_its_sensitivity_and_no_further(make_shards):
    """Hinge with a large μ: every margin stays below 1, and a record turned round moves x* by exactly 2L/(μN)."""
    mu, shards = 4.0, make_shards(1, N, M)
    shards.X[:] /= np.linalg.norm(shards.X, axis=1, keepdims=True)
    spec = output_perturbation(inputs(loss="hinge", h=f"l2({mu})"))
    sensitivity = 2.0 / (mu * N)
    rng, moved = np.random.default_rng(0), []
    for k in range(6):
        X, y = shards.X.copy(), shards.y.copy()
        if k:
            X[k] = rng.normal(size=M)
            X[k] /= np.linalg.norm(X[k])
        else:
            y[0] = -y[0]
        pair = [make_problem(spec.problem, s) for s in (shards, Shards.of(X, y, shards.offsets))]
        one, other = (optimum(p, gap=1e-13).x for p in pair)
        moved.append(np.linalg.norm(one - other))
    assert moved[0] == pytest.approx(sensitivity, rel=1e-6) and max(moved) <= sensitivity * (1 + 1e-6)
    event = solve(spec.replace(seed=1), shards).statement.worst.event
    reach = 2 * event.clip / event.batch
    assert reach == pytest.approx(sensitivity + 2 * math.sqrt(2 * GAP / mu), rel=1e-12)


def test_the_noise_is_what_is_accounted(make_shards):
    """Measured from the model alone: x − x*, and the linear term that makes x a minimizer."""
    m = 4000
    shards = make_shards(1, 30, m)
    for make in BOTH:
        spec = make(inputs(sizes=(30,), m=m, h="l2(0.5)")).replace(seed=5)
        result = solve(spec, shards)
        problem = make_problem(spec.problem, shards)
        if make is output_perturbation:
            noise = result.model - optimum(problem, gap=1e-12).x
        else:
            noise = -(problem.gradient(result.model) + 0.5 * result.model)
        unit = noise / result.statement.worst.event.sigma
        assert stats.kstest(unit, "norm").pvalue > 1e-3 > stats.kstest(unit / 0.9, "norm").pvalue


def test_a_computed_minimiser_is_near_enough_for_its_noise(make_shards):
    """Runs that differ in where the solver stopped differ by under 2·STILL/μ, NOISE_SCALE times less than the noise."""
    shards = make_shards(1, N, M)
    spec = objective_perturbation(inputs()).replace(seed=3)
    problem = make_problem(spec.problem, shards)
    blurred = solve(spec, shards).model
    b = -(problem.gradient(blurred) + 0.1 * blurred)
    scale = objective.NOISE_SCALE * STILL / 0.1
    assert 0.1 * scale < scale * math.sqrt(M) < 1e-4  # real, and nothing beside the noise
    assert np.linalg.norm(b) > 1e4 * scale


@pytest.mark.parametrize("loss", ["logistic", "smoothed_hinge", "squared_hinge"])
def test_newton_ends_where_nesterov_does(loss, make_shards, monkeypatch):
    """Where slopes have kinks too; whatever found it, the gradient is as small as the cost assumes."""
    mu, shards = 0.001, make_shards(1, N, M)
    problem = Problem(LOSSES.read(loss), REGULARIZERS.read(f"l2({mu})"), shards)
    method = ObjectivePerturbation(problem.public, 1, shards.norms.max(), problem)
    draws = np.random.default_rng(4).normal(scale=0.05, size=(5, M))
    quick = [method._minimize(b) for b in draws]
    monkeypatch.setattr(oneshot, "NARROW", 0)
    slow = [method._minimize(b) for b in draws]
    for b, (x, passes), (same, more) in zip(draws, quick, slow, strict=True):
        assert np.linalg.norm(problem.gradient(x) + mu * x + b) <= STILL
        assert np.linalg.norm(x - same) <= 2 * STILL / mu and 3 * passes < more


@pytest.mark.parametrize("make", BOTH)
def test_runs_that_differ_in_noise_find_once_what_they_share(make, make_shards):
    """And end where they would alone."""
    shards, spec, kept = make_shards(1, N, M), make(inputs()), []
    first = prepare(spec.replace(seed=1), shards)
    for seed in (1, 2):
        prepared = prepare(spec.replace(seed=seed), shards, reusable=first)
        assert prepared.job.method is first.job.method
        state = ENGINES["reference"].run([prepared.job], [prepared.job.start()], 1, 1)[0]
        assert np.array_equal(prepared.models(state, 1)[0], solve(spec.replace(seed=seed), shards).model)
        kept.append(first.job.method.__dict__["best" if make is output_perturbation else "_silent"])
    assert kept[0] is kept[1]


def test_what_has_no_cost_is_refused(make_shards):
    shards, two = make_shards(1, N, M), make_shards(2, N, M)
    with pytest.raises(SpecError, match="one trusted place"):
        solve(output_perturbation(inputs()).replace(seed=1), two)
    with pytest.raises(PrivacyError, match="strongly convex"):
        solve(output_perturbation(inputs(h="l1(0.1)")).replace(seed=1), shards)
    with pytest.raises(PrivacyError, match="h = l2"):
        solve(objective_perturbation(inputs(h="elastic_net(0.1, 0.1)")).replace(seed=1), shards)
    with pytest.raises(PrivacyError, match="smooth loss"):
        solve(objective_perturbation(inputs(loss="hinge")).replace(seed=1), shards)
    with pytest.raises(PrivacyError, match="cannot be protected"):
        solve(output_perturbation(inputs()).replace(seed=1, privacy__adversary="hidden_participation"), shards)
    with pytest.raises(DataError, match="public bound"):
        solve(output_perturbation(inputs(row_norm=0.3)).replace(problem__on_violation="clip", seed=1), shards)
