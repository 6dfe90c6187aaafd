"""Costs of plans: public numbers in, and the noise that is predicted is the noise that is seen."""

import numpy as np
import pytest

from sottovoce.algorithm.method import SEQUENCES, StepSizes
from sottovoce.engine import reference
from sottovoce.planner import PublicInputs, choose
from sottovoce.planner.cost import noise_variance, plan_cost
from sottovoce.run.build import prepare
from sottovoce.run.plan import rounds_for_epochs
from sottovoce.run.presets import paper_l2


@pytest.mark.parametrize(
    ("a", "gamma", "h"), [("linear(1)", "constant(2)", "l2(0.1)"), ("constant(1)", "sqrt(1)", "none")]
)
@pytest.mark.parametrize("activation", ["everyone", "matching(2)"])
def test_predicted_noise_is_the_noise_in_the_model(a, gamma, h, activation, make_shards):
    """Absolute loss far from its kink has the same slope everywhere, so that all that varies is the noise."""
    shards = make_shards(n=5, q=4, m=3, real=True)
    shards.y[:] = 1e6
    spec = paper_l2(40).replace(
        problem__loss="absolute", problem__h=h, algorithm__a=a, algorithm__gamma=gamma, privacy__sampling="full",
        network__activation=activation, privacy__noise="gaussian(0.5)",
    )  # fmt: skip
    noise = []
    for seed in range(150):
        prepared = prepare(spec.replace(seed=seed), shards)
        job = prepared.job
        quiet = prepare(spec.replace(seed=seed, privacy__noise="none"), shards).job
        models = [j.method.average(reference.run(j, j.start(), 1, 40), 40).mean(axis=0) for j in (job, quiet)]
        noise.append(models[0] - models[1])
    steps = StepSizes(SEQUENCES.read(a)(40), SEQUENCES.read(gamma)(40))
    predicted = noise_variance(steps, prepared.public["iota"], 5, job.problem.h.modulus, 0.5)
    seen = float(np.mean(np.square(noise)))
    assert seen == pytest.approx(predicted, rel=0.25)  # 450 draws: one standard error is 7 %
    assert not seen == pytest.approx(2 * predicted, rel=0.25)


def three_epochs(sizes, sampling, activation):
    spec = paper_l2(1).replace(network__activation=activation, privacy__sampling=sampling)
    return spec.replace(algorithm__rounds=rounds_for_epochs(spec, sizes, 3.0))


def test_costs_of_the_audit():
    """AUDIT E: σ at ε = 1, δ = 1e-5, three epochs of q = 20000, for fixed and Poisson batches."""
    sizes = np.full(20, 20_000)
    wanted = {"one": 1.009, "poisson(1)": 0.504, "fixed(64)": 0.0259, "poisson(64)": 0.0136}
    specs = [three_epochs(sizes, sampling, "everyone") for sampling in wanted]
    costs = {p.sampling: p for p in (plan_cost(s, sizes, 2000, 1.0) for s in specs)}
    for name, sigma in wanted.items():
        key = "fixed(1)" if name == "one" else name
        assert costs[key].sigma == pytest.approx(sigma, rel=0.01)
        assert costs[key].epochs == pytest.approx(3.0, rel=0.01)
    one = costs["fixed(1)"]
    assert one.rounds == 60_000 and one.messages == 60_000 * 380 and one.bytes == one.messages * 2000 * 8


def test_node_sampling_buys_nothing_against_the_transcript():
    """At equal epochs σ does not depend on who is active: AUDIT A.4."""
    sizes = np.full(20, 2000)
    specs = [three_epochs(sizes, "one", activation) for activation in ("edges(1)", "matching(2)", "everyone")]
    sigmas = [plan_cost(s, sizes, 10, 1.0).sigma for s in specs]
    assert np.ptp(sigmas) < 0.01 * max(sigmas)


def test_small_nodes_set_the_cost():
    even = plan_cost(paper_l2(100), np.array([500, 500, 500]), 5, 1.0)
    uneven = plan_cost(paper_l2(100), np.array([50, 950, 500]), 5, 1.0)
    assert uneven.sigma > even.sigma


def test_weights_by_records_quieten_small_nodes():
    """A small node needs much noise, which its weight multiplies: counted by records it hurts less, and less again."""
    sizes = np.array([50, 950, 500])
    full = paper_l2(100).replace(network__activation="everyone", privacy__sampling="full")
    plans = [full.replace(problem__weights=w) for w in ("nodes", "records", "records(300)")]
    noises = [plan_cost(plan, sizes, 5, 1.0).noise_in_model for plan in plans]
    assert noises == sorted(noises, reverse=True) and noises[2] < 0.9 * noises[1]


@pytest.mark.parametrize("adversary", ["transcript", "secret_pairs(1)"])
def test_private_scaling_is_in_the_cost_as_it_is_in_a_fit(adversary, make_shards):
    """σ of the rounds and of the pre-release are those of the run itself, and the rounds alone would be cheaper."""
    sizes, features, epsilon = np.full(4, 500), 6, 1.0
    inputs = PublicInputs(
        tuple(sizes.tolist()), features, epsilon, 1e-5, adversary=adversary, intercept=0.25, private_scaling=True
    )
    spec = choose(inputs).spec
    assert spec.privacy.moments.total > 0.05
    found = plan_cost(spec, sizes, features, epsilon)
    job = prepare(spec.replace(seed=1), make_shards(n=4, q=500, m=features - 1)).job
    assert found.moments == str(spec.privacy.moments)
    assert job.release.before is not None and found.moments_sigma == pytest.approx(max(job.release.before.sigma))
    assert found.sigma == pytest.approx(max(job.release.sigma), rel=2e-3)
    alone = plan_cost(spec.replace(privacy__moments="none"), sizes, features, epsilon)
    assert alone.moments_sigma == 0 and alone.sigma < 0.98 * found.sigma


def test_a_hundred_thousand_nodes_are_planned_and_accounted():
    inputs = PublicInputs((20,) * 100_000, 50, 1.0, 1e-5)
    plan = choose(inputs)
    found = plan_cost(plan.spec, np.array(inputs.sizes), inputs.m, 1.0)
    assert str(plan.spec.network.averaging) == "exact" and found.beta == 0  # nobody sends to all others
    assert found.messages / plan.spec.algorithm.rounds / 100_000 < 20
