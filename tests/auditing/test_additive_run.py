"""The rounds of an additive run are attacked as those of any other, however many functions its columns have."""

import numpy as np
import pytest

from sottovoce import PrivateClassifier
from sottovoce.auditing import audit
from sottovoce.estimators.settings import PlanOptions


@pytest.fixture(scope="module")
def specs():
    """Of a fit at ε = 8 and of one at ε = 1; both count their columns first."""
    X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    y = np.abs(X[:, 0]) > 0.5
    found = []
    for epsilon in (8.0, 1.0):
        model = PrivateClassifier(
            epsilon,
            bounds=(-1, 1),
            classes=[False, True],
            random_state=0,
            features="additive",
            plan=PlanOptions(rounds=20),
        )
        found.append(model.fit(X, y).spec_)
    return found


def test_rounds_of_an_additive_run_are_attacked(specs):
    spec = specs[0]
    assert spec.problem.features.width > 30
    found = audit(spec, [200], features=spec.problem.features.width, runs=1000, seed=1)
    assert not found.broken and 1.0 < found.at_least < found.stated == pytest.approx(8.0, rel=0.01)


def test_too_little_noise_for_what_is_stated_is_found(specs):
    loud, quiet = specs
    width = loud.problem.features.width
    stated = audit(quiet, [200], features=width, runs=100, seed=1).event
    assert audit(loud, [200], features=width, runs=1000, seed=1, stated=stated).broken
