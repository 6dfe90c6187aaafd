"""What a plan says of the loss of accuracy is right within its stated band, on tables real and made."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.linear_model import LogisticRegression

from sottovoce import PrivateClassifier
from sottovoce.planner.predict import SPREAD

EPSILONS, OWNERS = (0.5, 1.0, 4.0), ((1, "nobody"), (20, "majority"), (20, "nobody"))
NO_MORE = 0.1
"""Share of the cells that may lose more than the band says: the other tenth that it leaves out is of kinder tables."""


def made(seed):
    """A nearly linear truth with a random prior, columns off the middle of their bounds, and some noise."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(500, 4000)), int(rng.integers(3, 20))
    X = rng.beta(*rng.uniform(1, 5, 2), size=(n, d))
    score = (X - X.mean(axis=0)) @ rng.normal(size=d) * rng.uniform(3, 12)
    return X, (score + rng.logistic(size=n) > np.quantile(score, rng.uniform(0.3, 0.7))).astype(int)


def real():
    """Breast cancer, a cultivar of wine, and odd digits: 178 to 1,797 records."""
    X, y = load_breast_cancer(return_X_y=True)
    yield X / X.max(axis=0), y
    X, y = load_wine(return_X_y=True)
    yield X / X.max(axis=0), (y == 1).astype(int)
    X, y = load_digits(return_X_y=True)
    yield X[:, ::4] / 16, y % 2


@pytest.fixture(scope="module")
def cells():
    """(measured loss, its sampling error, forecast, whether the plan says that there is too little data)."""
    found = []
    for X, y in [*real(), *map(made, range(8))]:
        order = np.random.default_rng(0).permutation(len(y))
        train, test = order[: 3 * len(y) // 4], order[3 * len(y) // 4 :]
        best = LogisticRegression(max_iter=5000).fit(X[train], y[train]).score(X[test], y[test])
        for epsilon in EPSILONS:
            for nodes, trust in OWNERS:
                model = PrivateClassifier(
                    epsilon, 1e-5, classes=[0, 1], bounds=(0, 1), n_nodes=nodes, trust=trust, random_state=0
                )
                try:
                    model.fit(X[train], y[train])
                except ValueError:  # fewer records than any noise leaves anything of
                    continue
                lost = best - model.score(X[test], y[test])
                little = any("Too little data" in reason for reason in model.plan_.reasons)
                found.append((lost, np.sqrt(best * (1 - best) / len(test)), model.plan_.predicted, little))
    return np.array(found)


def test_few_cells_lose_more_than_the_band_says_unless_it_says_too_little_data(cells):
    lost, error, foreseen, little = cells.T
    worse = lost > SPREAD[1] * foreseen + 2 * error
    stated = little == 0
    assert stated.sum() > 50 and np.mean(worse[stated]) <= NO_MORE


def test_too_little_data_is_said_where_it_is_true(cells):
    """Such cells lose far more than others, and are no part of what the forecast is right about."""
    lost, _, _, little = cells.T
    assert 0.05 < little.mean() < 0.6
    assert np.mean(lost[little == 1]) > 0.1 > np.mean(lost[little == 0])
