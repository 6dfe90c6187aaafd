"""Whom people trust, and what they are promised for it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from sottovoce import PrivateClassifier, PrivateRegressor, Shards
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.planner import PublicInputs, choose
from sottovoce.planner.choose import losses_cost
from sottovoce.planner.cost import plan_cost
from sottovoce.planner.trust import offers, read_trust
from sottovoce.run.build import prepare
from sottovoce.run.plan import Request, plan_public

X = np.random.default_rng(0).uniform(-1, 1, (300, 3))
PUBLIC = {"row_norm": 1.8, "random_state": 0, "rounds": 20}
CLASSIFIER = PrivateClassifier(2.0, classes=[False, True], **PUBLIC)


@pytest.mark.parametrize("model", [CLASSIFIER, PrivateRegressor(2.0, target_bounds=(0, 1), **PUBLIC)])
@pytest.mark.parametrize("settings", [{"trust": "centre"}, {"adversary": "central"}])
def test_one_node_may_be_a_trusted_center(model, settings):
    """One node sends nothing, against any adversary: the same model, and a statement that says what is trusted."""
    y = X[:, 0] > 0
    alone, center = model.fit(X, y).coef_, model.set_params(**settings).fit(X, y)
    assert np.array_equal(alone, center.coef_) and center.privacy_.epsilon <= 2.0
    assert center.privacy_.adversary == "central" and "one trusted place" in "; ".join(center.privacy_.assumptions)
    model.set_params(trust="nobody", adversary="auto")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"trust": "centre", "n_nodes": 2}, "one node that holds all records, but here are 2 nodes"),
        ({"trust": "everybody"}, "trust must be nobody, majority, center or"),
        ({"trust": "centre", "adversary": "transcript"}, "give one of them"),
    ],
)
def test_what_cannot_be_trusted_is_one_sentence(settings, words):
    model = PrivateClassifier(2.0, classes=[False, True], **PUBLIC | settings)
    with pytest.raises(SpecError, match=words):
        model.fit(X, X[:, 0] > 0)


def test_a_plan_for_a_center():
    center = read_trust("centre")
    alone, trusted = (
        choose(PublicInputs((900,), 5, 1.0, 1e-5, adversary=a)) for a in ("transcript", center.adversary(1))
    )
    assert alone.predicted == trusted.predicted and str(trusted.spec.privacy.adversary) == "central"


SIZES = (300, 300, 200, 200, 100, 100)


@pytest.mark.parametrize(("trust", "honest"), [(1, 5), ("2", 4), ("majority", 4)])
@pytest.mark.parametrize("sizes", [(200,) * 6, SIZES])
def test_the_mean_has_the_noise_that_is_foreseen(trust, honest, sizes):
    """√(n/(n − k)) times a centre's, with the σ_i that the accountant gives the run; every record as well hidden."""
    inputs = PublicInputs(sizes, 4, 1.0, 1e-5, adversary=read_trust(trust).adversary(6))
    choice, center = choose(inputs), choose(PublicInputs((sum(sizes),), 4, 1.0, 1e-5))
    spec = choice.spec
    assert str(spec.privacy.law) == "pairs(10)" and str(spec.network.averaging) == "exact"
    assert str(spec.problem.weights) == "records"
    rows = np.zeros((sum(sizes), 3))
    prepared = prepare(
        spec.replace(seed=0), Shards.of(rows, np.ones(len(rows)), np.concatenate([[0], np.cumsum(sizes)]))
    )
    job = prepared.job
    c = np.linalg.norm(job.problem.node_weights * job.release.sigma) / np.sqrt(spec.algorithm.rounds)
    foreseen = choice.alternatives[0]["noise"]
    assert foreseen == pytest.approx(c, rel=0.01)
    assert c == pytest.approx(np.sqrt(6 / honest) * center.alternatives[0]["noise"], rel=0.01)
    assert prepared.statement.epsilon == pytest.approx(1.0, rel=1e-3)
    exact = plan_cost(spec, np.array(sizes), 4, 1.0)
    assert exact.sigma == pytest.approx(max(job.release.sigma), rel=1e-6)


def test_what_gets_lost_makes_pairs_share_less():
    inputs = PublicInputs((200,) * 20, 5, 1.0, 1e-5, adversary="secret_pairs(1)")
    ratios = [choose(replace(inputs, dropout_rate=lost)).alternatives[0]["ratio"] for lost in (0.0, 1e-4, 1e-2, 0.3)]
    assert ratios == sorted(ratios, reverse=True) and ratios[0] == 10 and ratios[-1] < 1
    losses = [choose(replace(inputs, dropout_rate=lost)).predicted for lost in (0.0, 1e-2, 0.3)]
    assert losses == sorted(losses)


@pytest.mark.parametrize("may_lose", [2, 6])
def test_a_plan_that_may_lose_nodes_is_one_that_can_go_on(may_lose):
    """σ for T + f releases, the exact mean, and both costs foreseen as the run's own account has them."""
    inputs = PublicInputs((200,) * 20, 5, 1.0, 1e-5, adversary="secret_pairs(9)", may_lose=may_lose, max_rounds=300)
    choice = choose(inputs)
    spec, T = choice.spec, choice.spec.algorithm.rounds
    assert str(spec.network.averaging) == "exact" and spec.privacy.may_lose == may_lose
    scaled = replace(inputs, private_scaling=True)
    assert choose(replace(scaled, may_lose=0)).spec.privacy.one_shot  # which no node could be removed from
    assert not choose(scaled).spec.privacy.one_shot
    sizes = np.array(inputs.sizes)
    plan, plain = (plan_public(Request(s.replace(seed=1), sizes, 5)) for s in (spec, spec.replace(privacy__may_lose=0)))
    assert plan.event(0).rounds == T + may_lose
    assert plan_cost(spec, sizes, 5, 1.0).sigma == pytest.approx(max(plan.release.sigma), rel=1e-6)
    prepared, worst = losses_cost(20, 11, plan.release.law.ratio, T, may_lose)
    assert plan.release.sigma[0] / plain.release.sigma[0] == pytest.approx(prepared, rel=1e-3)
    raised = plan.release.law.raise2(may_lose)
    assert worst == pytest.approx(prepared * math.sqrt(raised * 20 / (20 - may_lose)), rel=1e-9)
    assert any(f"{prepared:.4f} times the noise" in reason for reason in choice.reasons)
    lost = plan_public(Request(spec.replace(seed=1, network__dropouts=f"random({may_lose})"), sizes, 5))
    assert lost.statement(True, False).epsilon == plan.statement(True, False).epsilon <= 1.0
    assert len(offers(inputs)) == 4


def test_more_losses_than_leave_two_honest_nodes_are_refused():
    with pytest.raises(SpecError, match="0 to 9 may be lost"):
        PublicInputs((200,) * 20, 5, 1.0, 1e-5, adversary="secret_pairs(9)", may_lose=10)


def test_a_given_graph_takes_several_exchanges():
    choice = choose(PublicInputs((400,) * 10, 5, 1.0, 1e-5, adversary="secret_pairs(1)", graph="ring"))
    assert str(choice.spec.network.averaging).startswith("gossip(") and choice.alternatives[0]["ratio"] < 10
    assert choice.predicted > choose(PublicInputs((400,) * 10, 5, 1.0, 1e-5, adversary="secret_pairs(1)")).predicted


def test_each_choice_is_offered_with_what_it_would_give():
    found = offers(PublicInputs((500,) * 9, 20, 1.0, 1e-5))
    assert [offer.trust for offer in found] == ["nobody", "1", "majority", "centre"]
    nobody, one, majority, center = (offer.noise for offer in found)
    assert nobody == pytest.approx(3 * center, rel=0.01)
    assert one == pytest.approx(np.sqrt(9 / 8) * center, rel=0.01)
    assert majority == pytest.approx(np.sqrt(9 / 5) * center, rel=0.01)
    assert found[0].loss > found[2].loss > found[1].loss >= found[3].loss
    assert [offer.trust for offer in offers(PublicInputs((500,) * 2, 20, 1.0, 1e-5))] == ["nobody", "centre"]


def test_estimators_trust_a_majority():
    model = PrivateClassifier(2.0, classes=[False, True], n_nodes=5, trust="majority", **PUBLIC).fit(X, X[:, 0] > 0)
    assert model.privacy_.adversary == "secret_pairs(2)" and model.privacy_.epsilon <= 2.0
    assert np.ptp(model.node_coef_, axis=0).max() == 0.0  # everybody has the same model
    with pytest.raises(PrivacyError, match="two of the 3 nodes must stay honest"):
        model.set_params(n_nodes=3, trust=2).fit(X, X[:, 0] > 0)
