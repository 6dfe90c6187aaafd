"""Whom people trust, and what they are promised for it."""

import numpy as np
import pytest

from sottovoce import PrivateClassifier, PrivateRegressor
from sottovoce.errors import SpecError
from sottovoce.planner import Facts, choose
from sottovoce.planner.trust import read_trust

X = np.random.default_rng(0).uniform(-1, 1, (300, 3))
PUBLIC = {"row_norm": 1.8, "random_state": 0, "rounds": 20}
CLASSIFIER = PrivateClassifier(2.0, classes=[False, True], **PUBLIC)


@pytest.mark.parametrize("model", [CLASSIFIER, PrivateRegressor(2.0, target_bounds=(0, 1), **PUBLIC)])
@pytest.mark.parametrize("settings", [{"trust": "centre"}, {"adversary": "central"}])
def test_one_node_may_be_a_trusted_centre(model, settings):
    """One node sends nothing, whoever is watching: the same model, and a statement that says what is trusted."""
    y = X[:, 0] > 0
    alone, centre = model.fit(X, y).coef_, model.set_params(**settings).fit(X, y)
    assert np.array_equal(alone, centre.coef_) and centre.privacy_.epsilon <= 2.0
    assert centre.privacy_.adversary == "central" and "one trusted place" in "; ".join(centre.privacy_.assumptions)
    model.set_params(trust="nobody", adversary="auto")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"trust": "centre", "n_nodes": 2}, "one node that holds all records, but here are 2 nodes"),
        ({"trust": "everybody"}, "trust must be one of"),
        ({"trust": "centre", "adversary": "transcript"}, "give one of them"),
    ],
)
def test_what_cannot_be_trusted_is_one_sentence(settings, words):
    model = PrivateClassifier(2.0, classes=[False, True], **PUBLIC | settings)
    with pytest.raises(SpecError, match=words):
        model.fit(X, X[:, 0] > 0)


def test_a_plan_for_a_centre():
    centre = read_trust("centre")
    alone, trusted = (choose(Facts((900,), 5, 1.0, 1e-5, adversary=a)) for a in ("transcript", centre.adversary(1)))
    assert alone.predicted == trusted.predicted and str(trusted.spec.privacy.adversary) == "central"
