"""Laws of the planner: public numbers in, a spec that runs out; what is fixed stays; more of anything never hurts."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce import Shards, solve
from sottovoce.data.synthetic import two_gaussians
from sottovoce.errors import SottovoceError, SpecError
from sottovoce.planner import PublicInputs, choose
from sottovoce.planner.predict import best_reach, calm, excess, loss, single, typical_size
from sottovoce.privacy.calibration import noise_multiplier
from sottovoce.privacy.composition import Part
from sottovoce.privacy.profiles import FixedPair, PoissonPair
from sottovoce.problem.objective import WEIGHTS, ByRecords
from sottovoce.problem.regularizers import elastic_net, l1, l2
from sottovoce.problem.shards import even
from sottovoce.run.build import prepare
from sottovoce.run.presets import paper_l2
from sottovoce.run.spec import Execution

FACTS = PublicInputs(sizes=(400,) * 6, features=12, loss="hinge", epsilon=1.0, delta=1e-5)


def a9a(**changes):
    """Inputs of the size of a9a."""
    return replace(PublicInputs(sizes=(1628,) * 20, features=123, loss="hinge", epsilon=1.0, delta=1e-5), **changes)


@pytest.mark.parametrize(
    ("key", "value", "where"),
    [
        ("sampling", "poisson(32)", lambda s: s.privacy.sampling),
        ("sampling", "one", lambda s: s.privacy.sampling),
        ("rounds", 37, lambda s: s.algorithm.rounds),
        ("activation", "edges(1)", lambda s: s.network.activation),
        ("gamma", "sqrt(0.5)", lambda s: s.algorithm.gamma),
        ("a", "linear(1)", lambda s: s.algorithm.a),
        ("clip", 0.25, lambda s: s.privacy.clip),
        ("weights", "nodes", lambda s: s.problem.weights),
        ("h", "box(-1, 1)", lambda s: s.problem.h),
        ("mixing", "lazy", lambda s: s.network.weights),
        ("on_violation", "clip", lambda s: s.problem.on_violation),
        ("primal", "as_written", lambda s: s.algorithm.primal),
    ],
)
def test_what_is_fixed_stays(key, value, where):
    shards = shards_of(12, FACTS.sizes)
    spec = choose(FACTS, **{key: value}).spec
    assert str(where(spec)) == ("fixed(1)" if value == "one" else str(value))
    statement = prepare(spec.replace(seed=1), shards).statement
    assert statement.private and statement.epsilon <= FACTS.epsilon * (1 + 1e-9)


def shards_of(m, sizes, seed=0):
    table = two_gaussians(sum(sizes), m, seed=seed)
    return Shards.of(table.X, table.y, np.concatenate([[0], np.cumsum(sizes)]))


@pytest.mark.parametrize("penalty", ["l2", "l1", "elastic_net", "none"])
@pytest.mark.parametrize(("name", "outputs"), [("logistic", 1), ("softmax", 3), ("hinge", 3), ("huber(0.25)", 1)])
def test_every_plan_is_complete_and_runs(penalty, name, outputs):
    shards = shards_of(5, (300, 200, 90))
    if outputs > 1:
        shards = replace(shards, y=np.arange(len(shards.y)) % 3.0)
    inputs = PublicInputs(
        (300, 200, 90), 6, 2.0, 1e-5, name, outputs=outputs, intercept=0.5, penalty=penalty, max_rounds=30
    )
    choice = choose(inputs)
    result = solve(choice.spec.replace(seed=0), shards, execution=Execution("reference", 1))
    assert result.statement.epsilon <= 2.0 and np.all(np.isfinite(result.models))
    assert choice.predicted == choice.alternatives[0]["loss"] and choice.spec.seed is None
    assert all(sentence.endswith(".") for sentence in choice.reasons)


def test_alpha_is_the_weight_of_the_penalty():
    assert choose(FACTS, alpha=0.01).spec.problem.h == l2(0.01)
    assert choose(replace(FACTS, penalty="l1"), alpha=0.01).spec.problem.h == l1(0.01)
    elastic = replace(FACTS, penalty="elastic_net")
    assert choose(elastic, alpha=0.01, l1_ratio=0.25).spec.problem.h == elastic_net(0.0025, 0.0075)


def test_predicted_noise_is_the_noise_of_the_run():
    """c² = Σ w_i² σ_i²/T, with the σ_i that the accountant gives the run."""
    sizes = (300, 200, 90)
    for fixed in ({}, {"sampling": "poisson(40)", "rounds": 50}, {"weights": "nodes"}):
        choice = choose(PublicInputs(sizes, 5, 1.0, 1e-5), **fixed)
        job = prepare(choice.spec.replace(seed=0), shards_of(5, sizes)).job
        drawn = 1 / (5 * 50 * 120) if fixed.get("rounds") else 0.0  # the batches' own scatter
        c = np.linalg.norm(job.problem.node_weights * job.release.sigma) / math.sqrt(choice.spec.algorithm.rounds)
        assert choice.alternatives[0]["noise"] == pytest.approx(math.hypot(c, math.sqrt(drawn)), rel=0.05)


def test_more_is_never_worse():
    base = choose(a9a()).predicted
    slack = 1e-3  # plans that are nearly as good are distinguished by their cost
    for better in (
        a9a(epsilon=2.0), a9a(delta=1e-3), a9a(sizes=(3256,) * 20), a9a(sizes=(1628,) * 40), a9a(max_rounds=5000),
    ):  # fmt: skip
        assert choose(better).predicted <= base + slack
    for worse in (a9a(epsilon=0.5), a9a(max_rounds=10), a9a(max_bytes=2e5), a9a(features=10_000), a9a(graph="ring")):
        assert choose(worse).predicted >= base - slack
    assert choose(a9a(epsilon=0.2)).predicted > choose(a9a(epsilon=4.0)).predicted + 0.01


def test_budgets_are_kept():
    for most in (1e5, 1e6, 1e7):
        choice = choose(a9a(max_bytes=most))
        assert choice.alternatives[0]["bytes"] <= most
        job = prepare(choice.spec.replace(seed=0, privacy__noise="none"), shards_of(123, (20,) * 20)).job
        assert job.schedule.up_to()[-1] * 123 * 8 == choice.alternatives[0]["bytes"]
    assert choose(a9a(max_rounds=7)).spec.algorithm.rounds == 7
    with pytest.raises(SpecError, match="no plan fits into 10 bytes"):
        choose(a9a(max_bytes=10))


def test_room_for_bytes_is_no_room_for_rounds():
    both = choose(a9a(epsilon=4.0, max_rounds=300, max_bytes=1e15))
    assert both.spec.algorithm.rounds <= 300
    assert all(plan["rounds"] <= 300 for plan in both.alternatives)


def test_units_of_measure_do_not_matter():
    """Rows R times as long need a model 1/R times as long: γ and μ grow by R², and nothing else changes."""
    one, two = choose(a9a()).spec, choose(a9a(row_norm=4.0)).spec
    number = [s.algorithm.gamma(1)[0] for s in (one, two)]
    weight = [s.problem.h.modulus for s in (one, two)]
    assert number[1] == pytest.approx(16 * number[0], rel=1e-3) and weight[1] == pytest.approx(16 * weight[0], rel=1e-3)
    assert replace(two.problem, h=one.problem.h, row_norm=1.0) == one.problem and two.privacy == one.privacy


def test_sampling_never_needs_less_noise():
    """The closed form against the accountant: never far below it, close where it is meant to be used."""
    for epsilon in (0.2, 4.0):
        z1 = single(epsilon, 1e-5)
        for kind, rate, rounds in (("poisson", 0.05, 300), ("poisson", 0.01, 30), ("fixed", 0.05, 300)):
            pair = (PoissonPair if kind == "poisson" else FixedPair)(1.0, rate)
            true = noise_multiplier(Part(pair, rounds), epsilon, 1e-5)
            limit = (2 if kind == "poisson" else 1) * rate * math.sqrt(rounds) * z1
            assert excess(kind, rate, rounds, z1) == pytest.approx(true / limit, rel=0.15)
            assert excess(kind, rate, rounds, z1) >= 1.0


def test_weights_that_quieten_small_nodes():
    sizes = np.array([10, 100, 1000])
    assert np.allclose(WEIGHTS.read("records(0)")(sizes), WEIGHTS.read("records")(sizes))
    assert np.allclose(WEIGHTS.read("records(1e12)")(sizes), sizes**2 / np.sum(sizes**2))
    noise = [np.linalg.norm(WEIGHTS.read(f"records({k})")(sizes) / sizes) for k in (0, 10, 100, 1000, 1e6)]
    assert noise == sorted(noise, reverse=True)
    z1 = single(1.0, 1e-5)
    kappa = typical_size(z1)
    assert 2 * z1 / kappa == pytest.approx(1 / math.sqrt(kappa))  # there, noise and scatter are the same
    even_nodes, uneven = choose(a9a()), choose(a9a(sizes=(100, *(1700,) * 19)))
    assert even_nodes.spec.problem.weights == ByRecords() and uneven.spec.problem.weights.kappa > 0
    for wrong in ("records(-1)", "nodes(3)", "people"):
        with pytest.raises(SpecError, match="weights"):
            WEIGHTS.read(wrong)


def test_the_formula_has_its_three_terms():
    taus = 10 ** np.linspace(0, 5, 60)
    assert np.all(np.diff(loss(taus, 0.0, 100, 1e9)) < 0)  # nothing disturbs: further is better
    assert np.all(np.diff(loss(taus, 0.03, 100, 1e9)) > -0.01) and loss(1e4, 0.03, 100, 1e9) > loss(10, 0.03, 100, 1e9)
    assert loss(1e4, 1e-4, 100, 30) > loss(1e4, 1e-4, 100, 3000)


@pytest.mark.parametrize(
    ("inputs", "fixed", "words"),
    [
        ({}, {"speed": 3}, "no setting 'speed'"),
        ({}, {"sampling": "poisson(500)"}, "a batch of 500"),
        ({}, {"rounds": 0}, "number of rounds must be a whole number"),
        ({"penalty": "l3"}, {}, "no penalty 'l3'"),
        ({"sizes": ()}, {}, "needs nodes"),
        ({"epsilon": math.inf}, {}, "finite"),
        ({"features": 0}, {}, "features must be over 0"),
        ({"loss": "squared"}, {}, "has no bound"),
        ({"adversary": "central"}, {}, "in clear"),
    ],
)
def test_errors_are_one_sentence(inputs, fixed, words):
    with pytest.raises(SottovoceError, match=words):
        choose(replace(FACTS, **inputs), **fixed)


def test_a_plan_beats_the_paper_and_a_node_alone():
    """Honest noise for all three, the same budget; two_gaussians can be distinguished with 84 % at best."""
    train, test = two_gaussians(6000, 20, seed=1), two_gaussians(6000, 20, seed=1)
    shards = Shards.of(train.X[:4000], train.y[:4000], even(4000, 10)[0])
    held_out = Shards.of(test.X[4000:], test.y[4000:], np.array([0, 2000]))
    paper = paper_l2(4000).replace(privacy__noise="private(1.0)")  # one edge, one record at a time: two epochs
    alone = Shards.of(train.X[:400], train.y[:400], np.array([0, 400]))
    score = {}
    for name, data, spec in (
        ("planned", shards, choose(PublicInputs((400,) * 10, 20, 1.0, 1e-5)).spec),
        ("paper", shards, paper),
        ("alone", alone, choose(PublicInputs((400,), 20, 1.0, 1e-5)).spec),
    ):
        runs = [solve(spec.replace(seed=s), data, test=held_out, execution=Execution("reference", 1)) for s in range(3)]
        score[name] = np.mean([run.history.last["test_accuracy"] for run in runs])
    assert score["planned"] > 0.79 and score["planned"] > max(score["paper"], score["alone"]) + 0.02


# -- what the planner may choose in place of what it is informed


def two_classes(records: int, free=("loss", "penalty"), **more):
    return PublicInputs((records,), 55, 1.0, 1e-5, adversary="central", intercept=0.25, **({"free": free} | more))


def test_beside_little_noise_the_loss_is_logistic_and_beside_much_a_hinge_with_a_threshold():
    calm, noisy = (choose(two_classes(records)).spec for records in (500_000, 5_000))
    assert (calm.problem.loss.name, calm.problem.h.phi) == ("logistic", 0.0)
    assert noisy.problem.loss.name == "hinge" and noisy.problem.h.modulus > 0
    assert any("logistic" in why for why in choose(two_classes(500_000)).reasons)
    assert any("half a deviation" in why for why in choose(two_classes(5_000)).reasons)
    noise = choose(two_classes(5_000)).alternatives[0]["noise"]
    assert noisy.problem.h.phi == pytest.approx(0.5 * noise, rel=1e-3)


def test_a_smooth_loss_may_take_steps_twice_as_long():
    hinge, logistic = (choose(two_classes(500_000, free=free)).spec for free in ((), ("loss",)))
    steps = [spec.algorithm.rounds / float(spec.algorithm.gamma(1)[0]) for spec in (hinge, logistic)]
    clip = logistic.privacy.clip / math.hypot(1.0, 0.25)  # half of the hinge's slope: the same step goes half as far
    assert clip == pytest.approx(0.5) and steps[1] * clip == pytest.approx(2 * steps[0], rel=0.01)


@pytest.mark.parametrize("records", [500_000, 5_000])
def test_what_was_requested_is_left_alone(records):
    plain = choose(two_classes(records, free=())).spec.problem
    assert (plain.loss.name, plain.h.phi) == ("hinge", 0.0)
    clipped = choose(two_classes(records), clip=0.5).spec.problem
    assert clipped.loss.name == "hinge"
    assert choose(two_classes(records), alpha=0.01).spec.problem.h == l2(0.01)
    assert choose(two_classes(records, penalty="l1")).spec.problem.h.modulus == 0
    several = choose(two_classes(records, loss="softmax", outputs=3)).spec.problem
    assert (several.loss.name, several.h.phi) == ("softmax", 0.0)


@given(
    st.floats(-6, 0).map(lambda power: 10.0**power),
    st.floats(0.01, 1.0),
    st.integers(1, 10**6),
    st.integers(1, 10**4),
)
def test_less_noise_is_never_less_calm(noise, share, m, rounds):
    assert calm(share * noise, m, rounds) or not calm(noise, m, rounds)


@given(
    st.floats(-6, 1).map(lambda power: 10.0**power),
    st.floats(0.01, 1.0),
    st.integers(1, 10**6),
    st.integers(1, 10**4),
)
def test_with_more_noise_nobody_goes_further(noise, share, m, rounds):
    """Nor where it has drowned everything, and the formula's noise does not grow any more."""
    assert best_reach(share * noise, m, rounds)[0] >= best_reach(noise, m, rounds)[0]


@pytest.mark.parametrize("epsilon", [0.02, 0.05, 0.1, 0.2, 1.0])
def test_beside_much_noise_a_hinge_is_reached_all_the_same(epsilon):
    """Noise makes margins of 1, at which a hinge begins to see them; not in wide data, nor where h is given."""
    inputs = PublicInputs((1600,) * 20, 124, epsilon, 1e-5, intercept=0.25, free=("loss", "penalty"))

    def noise_in_a_margin(inputs, **fixed):
        found = choose(inputs, **fixed)
        spec = found.spec
        shrinkage = spec.problem.h.modulus + float(spec.algorithm.gamma(1)[0]) / spec.algorithm.rounds
        return found.alternatives[0]["noise"] * math.hypot(1.0, 0.25) / shrinkage

    assert noise_in_a_margin(inputs) > 0.999
    if epsilon <= 0.1:
        assert noise_in_a_margin(replace(inputs, free=())) < 0.95
        assert noise_in_a_margin(replace(inputs, features=10_000)) < 0.5
        assert noise_in_a_margin(inputs, h="l2(1)") < 0.1


@pytest.mark.parametrize(("features", "epsilon"), [(4, 1.0), (55, 1.0), (500, 1.0), (55, 0.2), (55, 8.0)])
def test_with_more_records_the_loss_becomes_logistic_once_and_stays_so(features, epsilon):
    sizes = [60, 100, 150, 216, 240, 400, 1000, 10_000, 30_000, 33_000, 36_000, 100_000, 3_000_000]
    inputs = PublicInputs((1,), features, epsilon, 1e-5, intercept=0.25, private_scaling=True, free=("loss", "penalty"))
    smooth = [choose(replace(inputs, sizes=(N,))).spec.problem.loss.name == "logistic" for N in sizes]
    assert smooth == sorted(smooth) and smooth[-1] and not smooth[0]


def test_of_a_class_that_is_rare_by_a_public_prior_the_loss_is_logistic_beside_any_noise():
    rare = choose(two_classes(5_000, rarest=0.07))
    assert rare.spec.problem.loss.name == "logistic" and any("One class is rare" in why for why in rare.reasons)
    assert choose(two_classes(5_000, rarest=0.25)).spec.problem.loss.name == "hinge"
    assert choose(two_classes(5_000, rarest=0.07, free=())).spec.problem.loss.name == "hinge"
