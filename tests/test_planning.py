"""Prices of plans: public numbers in, and the noise that is predicted is the noise that is seen."""

import numpy as np
import pytest

from sottovoce.algorithm.stepsizes import StepSizes, make_sequence
from sottovoce.build import prepare
from sottovoce.engine import reference
from sottovoce.planning import grid, noise_variance, price
from sottovoce.presets import paper_l2


@pytest.mark.parametrize(
    ("a", "gamma", "h"), [("linear(1)", "constant(2)", "l2(0.1)"), ("constant(1)", "sqrt(1)", "none")]
)
@pytest.mark.parametrize("activation", ["everyone", "matching(2)"])
def test_predicted_noise_is_the_noise_in_the_model(a, gamma, h, activation, make_shards):
    """Absolute loss far from its kink has the same slope everywhere, so that all that varies is the noise."""
    shards = make_shards(n=5, q=4, m=3, real=True)
    shards.y[:] = 1e6
    spec = paper_l2(40).but(
        problem__loss="absolute", problem__h=h, algorithm__a=a, algorithm__gamma=gamma, privacy__sampling="full",
        network__activation=activation, privacy__noise="gaussian(0.5)",
    )  # fmt: skip
    noise = []
    for seed in range(150):
        prepared = prepare(spec.but(seed=seed), shards)
        job = prepared.job
        quiet = prepare(spec.but(seed=seed, privacy__noise="none"), shards).job
        models = [j.method.average(reference.run(j, j.start(), 1, 40), 40).mean(axis=0) for j in (job, quiet)]
        noise.append(models[0] - models[1])
    steps = StepSizes(make_sequence(a, 40), make_sequence(gamma, 40))
    predicted = noise_variance(steps, prepared.public["iota"], 5, job.problem.h.modulus, 0.5)
    seen = float(np.mean(np.square(noise)))
    assert seen == pytest.approx(predicted, rel=0.25)  # 450 draws: one standard error is 7 %
    assert not seen == pytest.approx(2 * predicted, rel=0.25)


def test_prices_of_the_audit():
    """AUDIT E: σ at ε = 1, δ = 1e-5, three epochs of q = 20000, for fixed and Poisson batches."""
    sizes = np.full(20, 20_000)
    wanted = {"one": 1.009, "poisson(1)": 0.504, "fixed(64)": 0.0259, "poisson(64)": 0.0136}
    specs = grid(paper_l2(1), sizes, wanted, ["everyone"], [3.0])
    prices = {p.sampling: p for p in (price(s, sizes, 2000, 1.0, 1.0, 1e-5) for s in specs)}
    for name, sigma in wanted.items():
        key = "fixed(1)" if name == "one" else name
        assert prices[key].sigma == pytest.approx(sigma, rel=0.01)
        assert prices[key].epochs == pytest.approx(3.0, rel=0.01)
    one = prices["fixed(1)"]
    assert one.rounds == 60_000 and one.messages == 60_000 * 380 and one.bytes == one.messages * 2000 * 8


def test_node_sampling_buys_nothing_against_the_transcript():
    """At equal epochs σ does not depend on who is active: AUDIT A.4."""
    sizes = np.full(20, 2000)
    specs = grid(paper_l2(1), sizes, ["one"], ["edges(1)", "matching(2)", "everyone"], [3.0])
    sigmas = [price(s, sizes, 10, 1.0, 1.0, 1e-5).sigma for s in specs]
    assert np.ptp(sigmas) < 0.01 * max(sigmas)


def test_batches_that_do_not_fit_are_left_out():
    specs = list(grid(paper_l2(1), np.array([10, 40]), ["poisson(8)", "poisson(16)", "full"], ["everyone"], [1.0, 2.0]))
    assert {s.privacy.sampling for s in specs} == {"poisson(8)", "full"} and len(specs) == 4


def test_small_nodes_set_the_price():
    even = price(paper_l2(100), np.array([500, 500, 500]), 5, 1.0, 1.0, 1e-5)
    uneven = price(paper_l2(100), np.array([50, 950, 500]), 5, 1.0, 1.0, 1e-5)
    assert uneven.sigma > even.sigma
