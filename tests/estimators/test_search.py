"""PrivateSearchCV: one guarantee for the whole search, kept secrets, the better plan found, the cost reported."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from sottovoce import PrivateClassifier, PrivateRegressor, PrivateSearchCV
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.estimators.composition import KNOWN, Fit, Records
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.composite_events import JointEvent, SearchEvent
from sottovoce.privacy.events import FullEvent
from sottovoce.privacy.statement import statement_of, with_held_out

pytestmark = pytest.mark.filterwarnings("ignore:A run of the search:UserWarning")
rng = np.random.default_rng(0)
X = rng.uniform(-0.6, 0.6, (6000, 3))
y = (X[:, 0] > 0.2 * X[:, 1]).astype(int)
MODEL = PrivateClassifier(classes=(0, 1), row_norm=1.1, rounds=30)
NEVER = {0: 1.0, 1: 1e-3}
GRID = {"class_weight": [None, NEVER]}
"""A plan as it is, and one that hardly ever answers with 1."""


def search(grid=GRID, model=MODEL, **more):
    return PrivateSearchCV(clone(model), grid, **({"random_state": 0, "runs": 6} | more))


def test_the_better_plan_is_found_at_one_cost():
    found = search().fit(X, y)
    assert found.best_params_ == {"class_weight": None} and found.score(X, y) > 0.9
    assert 0.9 < found.best_score_.value < 1.05
    said = found.privacy_
    assert 0.999 < said.epsilon <= 1.0 and said is found.best_estimator_.privacy_
    assert isinstance(said.groups[0].event, SearchEvent) and isinstance(said.held_out[0].event, SearchEvent)
    assert said.groups[0].event.records + said.held_out[0].event.records == 6000
    said.verify()
    assert found.run_epsilon_ == pytest.approx(found.best_estimator_.epsilon) and found.run_epsilon_ < 0.75
    assert found.scores_ is None  # nor is anything else kept of the other runs
    assert "That is foreseen to cost" in found.summary_


def test_runs_that_nobody_sees_cost_nothing_more():
    found = search().fit(X, y)
    assert len(KNOWN) == 1 and found.spent_.fits == 1
    assert found.spent_.epsilon == pytest.approx(found.privacy_.epsilon)
    again = search(random_state=1).fit(X, y)
    assert again.spent_.fits == 2 and again.spent_.epsilon > 2.0  # searches only add up


def test_several_owners_see_all_runs_and_pay_for_all():
    nodes = np.arange(6000) % 3
    found = search().fit(X, y, nodes=nodes)
    event = found.privacy_.groups[0].event
    assert isinstance(event, JointEvent) and len(event.releases) == 2 and len(found.scores_) == 2
    assert 0.999 < found.privacy_.epsilon <= 1.0
    found.privacy_.verify()
    assert found.best_params_ == {"class_weight": None}


def test_without_a_seed_everything_is_secret_and_people_are_whole():
    ids = np.arange(6000) // 3
    found = search(random_state=None, runs=2).fit(X, y, user_ids=ids)
    assert found.privacy_.secure and found.privacy_.unit == "one person"
    assert found.privacy_.groups[0].event.records + found.privacy_.held_out[0].event.records == 2000


def test_a_regression_is_searched_by_r2():
    target = 2 * X[:, 0] - X[:, 1]
    grid = {"rounds": [3, 100]}
    found = search(grid, PrivateRegressor(row_norm=1.1, target_bounds=(-2, 2)), epsilon=4.0).fit(X, target)
    assert found.privacy_.epsilon <= 4.0 and np.isfinite(found.best_score_.value)
    found.privacy_.verify()


@pytest.mark.parametrize(
    ("what", "error", "words"),
    [
        ({"grid": {"epsilon": [1, 2]}}, SpecError, "'epsilon' is not for plans to choose"),
        ({"held_out": 1.5}, SpecError, "held_out is a share"),
        ({"epsilon": None}, PrivacyError, "a search needs an epsilon"),
        ({"stopping": "never"}, SpecError, "no stopping 'never'"),
        ({"scoring": "beauty"}, SpecError, "no scoring 'beauty'"),
        ({"runs": 0.5}, PrivacyError, "more than 1 run on average"),
    ],
)
def test_wrong_searches_are_one_sentence(what, error, words):
    with pytest.raises(error, match=words):
        search(**what).fit(X, y)


def test_where_not_everybody_speaks_the_statement_is_of_the_runs_that_were_made(monkeypatch):
    made, fit = [], PrivateClassifier.fit

    def watched(self, *data):
        fit(self, *data)
        made.append(self.privacy_)
        return self

    monkeypatch.setattr(PrivateClassifier, "fit", watched)
    model = clone(MODEL).set_params(activation="edges(1)", sampling="poisson", batch=50, private_scaling=False)
    said = search({"rounds": [3, 30]}, model, random_state=None).fit(X, y, nodes=np.arange(6000) % 5).privacy_
    for node in range(5):
        mine = [next(g.event for g in one.groups if node in g.nodes) for one in made]
        stated = next(g for g in said.groups if node in g.nodes)
        assert stated.epsilon >= compute_epsilon(mine, said.delta).epsilon * (1 - 1e-9)
        assert getattr(stated.event, "releases", (stated.event,))[-1] == mine[-1]
    said.verify()


def test_a_record_that_was_held_out_has_spent_what_its_test_cost():
    records = Records(np.zeros(4, dtype=np.int64))
    trained, tested = FullEvent(2, 2, 1.0, 50.0, 1), FullEvent(2, 2, 1.0, 5.0, 1)
    said = with_held_out(statement_of([trained], 1e-5, "transcript", False), {0: tested})
    records.add(Fit(said), np.zeros(4, dtype=np.int64), np.array([1, 2]))
    assert records.spent().epsilon == compute_epsilon([tested], 1e-5).epsilon == said.epsilon


@pytest.mark.filterwarnings("default")
def test_warnings_do_not_show_how_many_runs_there_were(monkeypatch):
    details = []
    for runs in (1, 4):
        monkeypatch.setattr("sottovoce.privacy.search.draw", lambda *law, runs=runs: runs)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            search(model=PrivateClassifier(classes=(0, 1), rounds=5)).fit(X, y)
        details.append([str(one.message) for one in seen])
    assert details[0] == details[1] and any("row_norm was not given" in words for words in details[0])


def test_records_of_a_search_that_are_evaluated_again_add_up():
    found = search().fit(X, y)
    said = found.best_estimator_.evaluate(X, y).statement
    assert said.epsilon > 2.0 and said.later and said.held_out
    said.verify()
