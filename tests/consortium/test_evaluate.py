"""The noisy count is accounted as what it is, in the run's own statement."""

import math
from dataclasses import replace

import numpy as np
import pytest

from sottovoce.consortium import evaluation as evaluate
from sottovoce.consortium.evaluation import Evaluation, noise_of, noisy_count, right_answers
from sottovoce.errors import PrivacyError
from sottovoce.node.keys import own_keys
from sottovoce.privacy import profiles
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.problem.losses import LOSSES
from sottovoce.problem.objective import Problem
from sottovoce.problem.regularizers import REGULARIZERS
from sottovoce.problem.shards import Shards


@pytest.mark.parametrize("held_out", [1, 40, 1000])
def test_a_count_is_a_gaussian_mechanism_of_sensitivity_one(held_out):
    event = evaluate.count_event(held_out, 1.5, 1e-6)
    assert math.isclose(noise_of(event), event.noise_multiplier, rel_tol=1e-12)
    assert math.isclose(compute_epsilon([event], 1e-6).epsilon, 1.5, rel_tol=2e-3)
    assert profiles.gaussian_epsilon(1e-6, noise_of(event)) <= 1.5


def test_the_noise_is_whole_numbers_of_the_right_spread():
    event = evaluate.count_event(100, 1.0, 1e-5)
    each = (own_keys(bytes(32), f"{run:064x}", bytes(32)) for run in range(2000))
    draws = np.array([noisy_count(60, event, keys) - 60 for keys in each])
    assert draws.dtype.kind == "i" and abs(draws.mean()) < 4 * noise_of(event) / math.sqrt(2000)
    assert abs(draws.std() / noise_of(event) - 1) < 0.07


def test_right_answers_of_all_kinds():
    X, whole, one = np.array([[1.0], [-1.0], [2.0]]), np.array([0, 3]), np.array([1.0])

    def problem(loss, y, outputs=1):
        return Problem(
            LOSSES.make(loss), REGULARIZERS.make("l2", 0.1), Shards.of(X, np.array(y), whole), "nodes", outputs
        )

    assert right_answers(problem("hinge", [1.0, 1.0, -1.0]), one, math.nan) == 1
    assert right_answers(problem("absolute", [1.0, 1.0, -1.0]), one, 0.5) == 1
    assert right_answers(problem("absolute", [1.0, 1.0, -1.0]), one, 2.0) == 2
    assert right_answers(problem("softmax", [2.0, 0.0, 1.0], 3), np.array([-1.0, 0.0, 1.0]), math.nan) == 2


def test_the_statement_covers_both_shares_and_verifies_itself(small):
    made = small(held_out=0.25)
    alone, whole = made.agreement.run.statement, evaluate.statement(made.agreement)
    assert whole.epsilon == max(alone.epsilon, whole.held_out[0].epsilon)
    assert whole.held_out[0].nodes == (0, 1, 2) and whole.groups == alone.groups
    whole.verify()
    assert PrivacyStatement.from_json(whole.to_json()) == whole
    assert "held out" in whole.paragraph() and "held out" not in alone.paragraph()
    old = {key: value for key, value in alone.to_dict().items() if key != "held_out"}
    assert PrivacyStatement.from_dict(old) == alone
    quieter = replace(whole.held_out[0].event, sigma=whole.held_out[0].event.sigma / 2)
    forged = replace(whole, held_out=(replace(whole.held_out[0], event=quieter),))
    twice = replace(whole, held_out=whole.held_out * 2)
    stranger = replace(whole, held_out=(replace(whole.held_out[0], nodes=(7,)),))
    for wrong in (forged, twice, stranger):
        with pytest.raises(PrivacyError):
            wrong.verify()


def test_a_louder_test_raises_the_statement(small):
    made = small(held_out=0.25)
    path = made.root / "consortium.toml"
    path.write_text(path.read_text().replace("held_out = 0.25", "held_out = 0.25\ntest_epsilon = 3.0"))
    from sottovoce.consortium.agreement import read_agreement

    louder = read_agreement(path)
    assert math.isclose(evaluate.statement(louder).epsilon, 3.0, rel_tol=2e-3)
    assert louder.run.digest != made.agreement.run.digest


def test_nothing_held_out_is_nothing_counted(small):
    made = small(held_out=0.0)
    assert evaluate.count_events(made.agreement) == {}
    assert evaluate.statement(made.agreement) == made.agreement.run.statement


def test_the_standard_error_holds_noise_and_sampling():
    found = Evaluation({"a": 90, "b": 85}, {"a": 100, "b": 100}, {"a": 3.0, "b": 4.0})
    assert found.accuracy == 0.875
    assert math.isclose(found.error, math.sqrt(25 / 200**2 + 0.875 * 0.125 / 200))
    assert Evaluation({"a": -3}, {"a": 5}, {"a": 4.0}).accuracy == 0.0
