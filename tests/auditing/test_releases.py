"""Whatever is released is in the one statement, which `account --verify` holds to the run; a louder claim is caught.

Every kind of release is made secretly, as for real, by the estimators, and kept; what attacks each is in `test_once`.
"""

import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sottovoce import PrivateClassifier, PrivateRegressor, PrivateSearchCV
from sottovoce.auditing.bounds import noisier
from sottovoce.cli.main import app
from sottovoce.errors import PrivacyError
from sottovoce.privacy.composite_events import SearchEvent
from sottovoce.privacy.statement import restated
from sottovoce.run.result import Result

ROOT = Path(__file__).parent.parent.parent
RNG = np.random.default_rng(5)
X = RNG.uniform([-0.1, -0.5, -0.5], [0.9, 0.5, 0.5], (3000, 3))
Y = (X @ [1.0, 1.0, -1.0] > 0.4).astype(int)
RARE = (X @ [1.0, 1.0, -1.0] > np.quantile(X @ [1.0, 1.0, -1.0], 0.95)).astype(int)
NODES = np.arange(3000) % 3


def classifier(**more):
    settings = {"epsilon": 4.0, "row_norm": 1.2, "classes": [0, 1], "rounds": 3, "private_scaling": False}
    return PrivateClassifier(**(settings | more))


def rare(**more):
    """Of 150 records among 3,000, with a guarantee that would drown their weights."""
    prior = {"class_weight": "balanced", "prior": (0.95, 0.05)}
    return classifier(**({"epsilon": 1.0, "private_scaling": True} | prior | more))


def regressor(method, **more):
    return PrivateRegressor(epsilon=4.0, row_norm=1.2, target_bounds=(-2, 2), method=method, **more)


def evaluated():
    model = classifier().fit(X[:2000], Y[:2000])
    model.evaluate(X[2000:], Y[2000:])
    return model


def searched():
    grid, one = {"loss": ["hinge", "logistic"]}, classifier(n_nodes=1)
    return PrivateSearchCV(one, grid, epsilon=4.0, runs=2).fit(X, Y)


RELEASES = {
    "rounds": lambda: classifier().fit(X, Y),
    "weights": lambda: classifier(class_weight={0: 1.0, 1: 3.0}, max_weight=2.0).fit(X, Y, sample_weight=1.0 + Y),
    "the scores after the rounds": lambda: rare().fit(X, RARE),
    "the scores after the rounds, with pairs": lambda: rare(trust=1).fit(X, RARE, nodes=NODES),
    "private scaling": lambda: classifier(private_scaling=True).fit(X, Y),
    "private scaling, with pairs": lambda: classifier(private_scaling=True, trust=1).fit(X, Y, nodes=NODES),
    "a descent": lambda: regressor("descent", rounds=3).fit(X, X[:, 0]),
    "statistics": lambda: regressor("statistics").fit(X, X[:, 0]),
    "statistics, with pairs": lambda: regressor("statistics", trust=1).fit(X, X[:, 0], nodes=NODES),
    "statistics in the range of targets": lambda: regressor("statistics", target_scale=0.1).fit(X, X[:, 0]),
    "a descent in the range of targets, with pairs": lambda: regressor(
        "descent", rounds=3, target_scale=0.1, trust=1
    ).fit(X, X[:, 0], nodes=NODES),
    "the mean": lambda: regressor("mean").fit(X, X[:, 0]),
    "an evaluation": evaluated,
    "a search": searched,
}


def account(folder):
    done = CliRunner().invoke(app, ["account", "--verify", str(folder), "--json"])
    return (5, str(done.exception)) if isinstance(done.exception, PrivacyError) else (done.exit_code, done.output)


def by_node(groups):
    events = {node: group.event for group in groups for node in group.nodes}
    return [events[node] for node in sorted(events)]


@pytest.mark.parametrize("kind", RELEASES)
def test_a_release_is_in_the_statement_and_twice_its_noise_is_not(kind, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = RELEASES[kind]()
    folder = model.save(tmp_path / "model")
    code, said = account(folder)
    assert code == 0, said
    result = Result.load(folder)
    statement = result.statement
    assert statement.secure and not statement.simulation
    event = statement.groups[0].event
    assert (getattr(event, "before", None) is not None) == any(name in kind for name in ("scaling", "range", "scores"))
    assert (result.spec.privacy.balance.total > 0) == ("scores" in kind)
    assert bool(statement.held_out) == (kind == "a search")
    assert bool(statement.later) == (kind == "an evaluation")  # a second release from the same records
    assert isinstance(event, SearchEvent) == (kind == "a search")
    assert (event.sampling == "products") == (kind[:5] in ("stati", "the m"))
    twice = ([noisier(each, 2.0) for each in by_node(groups)] for groups in (statement.groups, statement.held_out))
    louder = restated(statement, *twice)
    louder.verify()  # its own arithmetic is right
    assert louder.epsilon < statement.epsilon
    forged = replace(result, statement=louder).save(tmp_path / "forged")
    code, said = account(forged)
    assert code == 5, said


def test_the_page_of_audits_names_tests_that_are_there():
    page = (ROOT / "docs" / "audit.md").read_text()
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", page))
    assert len(named) > 8 and all((ROOT / path).is_file() for path in named)
