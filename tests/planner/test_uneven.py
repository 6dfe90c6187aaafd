"""A small owner helps or is named; it never adds more noise than it takes away, unless weights are fixed by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce import PrivateClassifier
from sottovoce.planner import predict
from sottovoce.planner.fit import FitRequest, plan_fit
from sottovoce.planner.uneven import hindrances
from sottovoce.privacy.release import SecretPairs
from sottovoce.problem.losses import LOSSES
from sottovoce.problem.objective import ByRecords
from sottovoce.run.plan import Request, plan_public


def request(sizes, epsilon=1.0, **more):
    names = tuple(f"s{i}" for i in range(len(sizes)))
    return FitRequest(tuple(sizes), names, 8, LOSSES.make("hinge"), epsilon, intercept=0.25, **more)


def public(spec, sizes):
    return plan_public(Request(spec.replace(seed=1), np.array(sizes), 8))


def variance(sizes, z1):
    """Of the mean gradient: its records are a sample, and have noise; in units of L², by precision weights."""
    q = np.array(sizes, dtype=float)
    w = ByRecords(predict.typical_size(z1))(q)
    return float(np.sum(w**2 * (1 / q + (2 * z1 / q) ** 2)))


@given(
    st.lists(st.integers(2, 20_000), min_size=1, max_size=8), st.integers(1, 20_000), st.sampled_from([0.1, 1.0, 5.0])
)
def test_one_more_owner_never_makes_the_mean_worse(sizes, one, epsilon):
    """By the weights of plans, w ∝ q²/(q + κ): precision weights, for which each further owner lowers the variance."""
    z1 = predict.single(epsilon, 1e-5)
    assert variance([*sizes, one], z1) <= variance(sizes, z1) * (1 + 1e-9)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from([8, 60, 300, 1500, 20_000]), min_size=2, max_size=5))
def test_no_planned_run_has_a_node_that_hinders(sizes):
    choice = plan_fit(request(sizes))
    assert all(one.ratio < 1.6 for one in hindrances(public(choice.spec, sizes)))


def test_a_plan_by_hand_whose_small_node_ruins_it_is_warned_of():
    sizes = (1500, 60)
    planned = plan_fit(request(sizes))
    by_hand = planned.spec.replace(problem__weights="nodes", privacy__moments="none")
    (worst,) = hindrances(public(by_hand, sizes))
    assert worst.node == 1 and worst.ratio > 5
    assert "'west' has 60 of 1,560 records" in worst.words(("north", "west"), sizes)
    assert hindrances(public(planned.spec, sizes)) == []
    assert hindrances(public(planned.spec, (1500,) * 2)) == []


def test_who_cannot_help_is_named_and_takes_part():
    sizes = (1500, 5, 300, 2)
    choice = plan_fit(request(sizes))
    said = " ".join(choice.reasons)
    assert "'s1' (5 records), 's3' (2 records)" in said and "receive the model" in said
    plan, alone = public(choice.spec, sizes), public(plan_fit(request((1500, 300))).spec, (1500, 300))
    noise = [float(np.linalg.norm(p.problem.node_weights * np.array(p.release.sigma))) for p in (plan, alone)]
    assert noise[0] < 1.05 * noise[1] and plan.spoken.tolist() == [plan.schedule.T] * 4
    shared = plan_fit(request(sizes, adversary=SecretPairs(1)))
    assert "cannot help" in " ".join(shared.reasons) and hindrances(public(shared.spec, sizes)) == []


@pytest.mark.parametrize("sizes", [(1500, 60), (1500, 300, 60), (1500, 5)])
def test_a_model_with_a_small_owner_is_as_good_as_without(sizes):
    """Ten seeds; the fall of 1,500 + 60 with equal weights was over twenty points."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500 + 5000 + sum(sizes), 4)) / 4
    y = (X @ [2.0, -1.0, 0.5, 0.0] + rng.normal(size=len(X)) / 4 > 0).astype(int)
    test, found = slice(0, 5000), {}
    for given_sizes in (sizes, (1500,)):
        N = sum(given_sizes)
        rows, nodes = slice(5000, 5000 + N), np.repeat(np.arange(len(given_sizes)), given_sizes)
        scores = []
        for seed in range(10):
            model = PrivateClassifier(1.0, row_norm=1.0, classes=[0, 1], random_state=seed)
            scores.append(model.fit(X[rows], y[rows], nodes=nodes).score(X[test], y[test]))
        found[given_sizes] = np.mean(scores)
    assert found[sizes] > found[1500,] - 0.02
