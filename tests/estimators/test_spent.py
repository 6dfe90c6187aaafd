"""Five fits on one data set cost what five fits cost, whoever makes them."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from sottovoce import PrivateClassifier, PrivateRegressor
from sottovoce.estimators.spent import KNOWN, digest
from sottovoce.privacy.accounting import price


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    X = rng.uniform(-0.5, 0.5, (400, 3))
    return X, (X[:, 0] > 0).astype(int)


def classifier(**changes):
    return PrivateClassifier(**({"row_norm": 1.0, "classes": [0, 1], "random_state": 0, "rounds": 10} | changes))


def test_five_fits_of_five_estimators_add_up(table):
    """They used to end with 'All 1 fit together: ε = 1'."""
    X, y = table
    fitted = [classifier(random_state=seed).fit(X, y) for seed in range(5)]
    spent = [model.spent_ for model in fitted]
    assert [s.fits for s in spent] == [1, 2, 3, 4, 5] and np.all(np.diff([s.epsilon for s in spent]) > 0)
    assert spent[0].epsilon == fitted[0].privacy_.epsilon == pytest.approx(1.0, rel=1e-3)
    fixed = price([model.privacy_.worst.event for model in fitted], 1e-5, lower=False).epsilon
    assert 2.3 < fixed < spent[4].epsilon < 1.03 * fixed
    assert "all 5 fits together would have (ε = 2.4" in spent[4].verdict()
    assert spent[4].verdict().startswith("SIMULATION")
    assert "the only fit on these records" in spent[0].verdict()


def test_records_are_known_again_in_whatever_form(table):
    X, y = table
    forms = [(X, y), (csr_array(X), y), (X.copy(order="F"), list(y)), (X, y.astype(float)), (X, y.astype(bool))]
    for made, (rows, labels) in enumerate(forms, 1):
        found = classifier(classes=np.unique(labels)).fit(rows, labels).spent_
        assert found.fits == made
    assert PrivateRegressor(row_norm=1.0, target_bounds=(0, 1), random_state=0, rounds=5).fit(X, y).spent_.fits == 6
    other = X.copy()
    other[7, 1] += 1e-12
    assert classifier().fit(other, y).spent_.fits == 1 and classifier().fit(X, 1 - y).spent_.fits == 1
    assert len(KNOWN) == 3


def test_a_record_costs_what_its_own_nodes_cost(table):
    """Split otherwise in every fit, so that a record's histories are as many as there are pairs of nodes."""
    X, y = table
    small = np.arange(400) < 60
    first = classifier(delta=1e-5).fit(X, y, nodes=small)
    second = classifier(delta=1e-5).fit(X, y, nodes=~small)
    third = classifier(delta=1e-5, n_nodes=2).fit(X, y)
    (known,) = KNOWN.values()
    assert len(known.histories) == 2 and third.spent_.fits == 3
    alone = max(first.privacy_.epsilon, second.privacy_.epsilon, third.privacy_.epsilon)
    assert alone < third.spent_.epsilon < 3 * alone


def test_people_and_records_together_are_told_for_records(table):
    X, y = table
    person = classifier().fit(X, y, units=np.arange(400) // 2)
    assert person.spent_.adjacency.startswith("replace one person")
    assert classifier().fit(X, y).spent_.adjacency == "replace one record of one node"


def test_a_fit_without_noise_is_never_forgotten(table):
    X, y = table
    classifier(epsilon=None).fit(X, y)
    found = classifier().fit(X, y).spent_
    assert (
        found.epsilon == float("inf")
        and found.verdict() == "NOT PRIVATE: among all 2 fits together is one without noise."
    )


def test_the_digest_needs_its_key(table, monkeypatch):
    X, y = table
    mine = digest(X, y)
    monkeypatch.setattr("sottovoce.estimators.spent._KEY", bytes(32))
    assert digest(X, y) != mine and len(mine) == 32
    assert digest(X, y.astype(str)) != digest(X, y)


@pytest.mark.parametrize("share", [0.002, 0.3, 1.0])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_same_records_are_known_again_however_they_are_kept(share, kind):
    """Few numbers, many and all, in more than one block of rows; and any other number is another digest."""
    rng = np.random.default_rng(2)
    X = (rng.normal(size=(5000, 20)) * (rng.random((5000, 20)) < share)).astype(kind)
    y = np.zeros(5000)
    mine = digest(X, y)
    assert mine == digest(csr_array(X), y) == digest(X.astype(np.float64), y) == digest(np.asfortranarray(X), y)
    other, where = X.copy(), tuple(np.argwhere(X)[-1])
    other[where] = np.nextafter(X[where], kind(np.inf))
    moved = np.roll(X, 1, axis=1)
    found = {mine, digest(other, y), digest(moved, y), digest(X[:, :10].copy(), y), digest(-X, y)}
    assert len(found) == 5
