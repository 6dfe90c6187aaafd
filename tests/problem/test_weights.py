"""Weights of records: between 0 and 1, in every sum equally, and never in the bound."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.engine.secure import ExactSums
from sottovoce.errors import DataError
from sottovoce.problem.losses import LOSSES
from sottovoce.problem.objective import Problem, clipped_mean
from sottovoce.problem.regularizers import l2
from sottovoce.problem.shards import Shards
from sottovoce.run.solve import solve
from sottovoce.run.spec import AlgorithmSpec, Execution, Spec


def problem(seed, weights=None, outputs=1, user_ids=None, loss="logistic"):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 3))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    y = rng.choice([-1.0, 1.0], 30) if outputs == 1 else rng.integers(0, outputs, 30).astype(float)
    shards = Shards.of(X, y, np.array([0, 12, 30]), user_ids=user_ids, weights=weights)
    return Problem(LOSSES.make(loss), l2(0.1), shards, outputs=outputs)


@settings(max_examples=40)
@given(st.integers(0, 99), st.sampled_from([1, 3]), st.booleans())
def test_a_weight_multiplies_its_record_and_secure_sums_agree(seed, outputs, people):
    rng = np.random.default_rng(seed)
    user_ids = rng.integers(0, 8, 30) if people else None
    weights, x = rng.choice([0.0, 0.25, 1.0], 30), rng.normal(size=3 * outputs)
    mine = problem(seed, weights, outputs, user_ids)
    sums = ExactSums(mine, 1.0, 1.0, 0.0, 18)
    for node in range(2):
        plain = clipped_mean(mine, node, x, None, 1.0, 1.0)
        assert np.allclose(sums.total(node, x, None) * sums.grids.sum, plain, atol=1e-4)
        if not people:
            rows, alone = mine.shards.rows(node), problem(seed, None, outputs)
            ones = [np.array([r]) for r in range(mine.shards.sizes[node])]
            each = [clipped_mean(alone, node, x, one, 1.0, 9.0) for one in ones]
            assert np.allclose(clipped_mean(mine, node, x, None, 1.0, 9.0), weights[rows] @ np.array(each))


def test_no_weight_moves_a_sum_by_more_than_the_clip():
    rng = np.random.default_rng(0)
    for seed in range(20):
        one, other = rng.uniform(size=30), rng.uniform(size=30)
        other[1:] = one[1:]
        x = 50 * rng.normal(size=3)
        sums = [clipped_mean(problem(seed, some), 0, x, None, 1.0, 0.5) for some in (one, other)]
        assert np.linalg.norm(sums[0] - sums[1]) <= 0.5 * (1 + 1e-12)


def test_the_weighted_objective_is_minimised(kkt_residual):
    """By a run without noise, as by the gradient of the weighted objective: weight 0 is a record that says nothing."""
    weights = np.where(np.arange(30) % 2, 1.0, 0.0)
    shards = problem(3, weights, loss="logistic").shards
    spec = Spec(AlgorithmSpec(2000, a="linear(1)", gamma="constant(100)"), seed=0).replace(
        problem__loss="logistic", problem__h="l2(0.1)", network__activation="everyone", privacy__sampling="full"
    )
    found = solve(spec, shards, execution=Execution("reference", 1)).model
    mine = problem(3, weights)
    assert kkt_residual(mine, found) < 1e-3 < 1e-2 < kkt_residual(problem(3), found)


def test_wrong_weights_are_refused():
    for wrong in (np.full(30, 1.1), np.full(30, -0.1), np.ones(29), np.full(30, np.nan)):
        with pytest.raises(DataError, match="between 0 and 1"):
            problem(0, wrong)
    shards = problem(0, np.ones(30)).shards
    assert np.array_equal(shards.node(1).weights, np.ones(18))
