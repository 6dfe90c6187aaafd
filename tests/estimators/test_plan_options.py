"""Parts of a plan that are fixed by hand: in `plan=`, and in the way that they were given until 0.3."""

import numpy as np
import pytest
from sklearn.base import clone

from sottovoce import PlanOptions, PrivateClassifier, PrivateRegressor, PrivateSearchCV, load
from sottovoce.errors import SpecError
from sottovoce.estimators.settings import PLAN_OPTIONS

X = np.random.default_rng(0).uniform(-0.5, 0.5, (200, 3))
SIGN = X[:, 0] > 0
FIXED = {"row_norm": 1.0, "classes": [False, True], "random_state": 0}
MOVED = {"rounds": 7, "batch": 20, "sampling": "fixed", "graph": "ring", "activation": "everyone", "engine": "nodes"}


def moved(make):
    with pytest.warns(DeprecationWarning, match=r"write plan=PlanOptions\(") as seen:
        found = make()
    assert {warning.filename for warning in seen} == {__file__}
    return found


@pytest.mark.parametrize("kind", [PrivateClassifier, PrivateRegressor])
def test_both_spellings_are_one_estimator(kind):
    new = kind(2.0, plan=PlanOptions(**MOVED))
    old = moved(lambda: kind(2.0, **MOVED))
    later = moved(lambda: kind(2.0).set_params(**MOVED))
    mixed = moved(lambda: kind(2.0, plan=PlanOptions(rounds=7), **{k: v for k, v in MOVED.items() if k != "rounds"}))
    assert repr(new) == repr(old) == repr(later) == repr(mixed) == repr(clone(old))
    assert not PLAN_OPTIONS & new.get_params(deep=False).keys() and new.get_params()["plan__rounds"] == 7
    assert kind().set_params(plan__rounds=7).plan.rounds == 7 and kind().plan is None
    with pytest.raises(TypeError, match="unexpected keyword argument 'turns'"):
        kind(turns=7)


def test_what_is_fixed_is_run():
    model = PrivateClassifier(2.0, n_nodes=4, plan=PlanOptions(**MOVED, track=True), **FIXED).fit(X, SIGN)
    old = moved(lambda: PrivateClassifier(2.0, n_nodes=4, **MOVED, **FIXED)).fit(X, SIGN)
    spec = model.spec_
    assert (spec.algorithm.rounds, str(spec.privacy.sampling)) == (7, "fixed(20)")
    assert (spec.network.graph.name, str(spec.network.activation)) == ("ring", "everyone")
    assert len(model.history_) and not len(old.history_)
    assert np.array_equal(old.coef_, model.coef_)


def test_wrong_plans_are_refused():
    with pytest.raises(SpecError, match="plan must be None or PlanOptions"):
        PrivateClassifier(plan={"rounds": 7}, **FIXED).fit(X, SIGN)
    with pytest.raises(SpecError, match="track evaluates the data"):
        PrivateClassifier(plan=PlanOptions(track=True), row_norm=1.0, classes=[False, True]).fit(X, SIGN)


def test_they_are_saved_and_searched(tmp_path):
    model = PrivateClassifier(2.0, plan=PlanOptions(rounds=7), **FIXED).fit(X, SIGN)
    assert load(model.save(tmp_path / "one")).plan.rounds == 7
    assert load(PrivateClassifier(2.0, **FIXED).fit(X, SIGN).save(tmp_path / "two")).plan is None
    search = PrivateSearchCV(PrivateClassifier(**FIXED), {"rounds": [5, 6]}, epsilon=50.0, runs=2, random_state=1)
    assert search.fit(X, SIGN).best_estimator_.plan.rounds in (5, 6)
