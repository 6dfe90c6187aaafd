"""Five fits on one data set cost what five fits cost, no matter who makes them."""

import threading

import numpy as np
import pytest
from scipy.sparse import csr_array

from sottovoce import PrivateClassifier, PrivateRegressor
from sottovoce.estimators.composition import KNOWN, Fit, Records, digest, unpublished
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.events import FullEvent
from sottovoce.privacy.filter import sequential_epsilon
from sottovoce.privacy.statement import statement_of


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
    fixed = compute_epsilon([model.privacy_.worst.event for model in fitted], 1e-5, lower=False).epsilon
    assert 2.3 < fixed < spent[4].epsilon < 1.03 * fixed
    assert "all 5 fits together would have (ε = 2.4" in spent[4].verdict()
    assert spent[4].verdict().startswith("SIMULATION")
    assert "no other fit recognized in this process" in spent[0].verdict()


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


def test_people_and_records_together_are_reported_for_records(table):
    X, y = table
    person = classifier().fit(X, y, user_ids=np.arange(400) // 2)
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
    monkeypatch.setattr("sottovoce.estimators.composition._KEY", bytes(32))
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


def test_fits_count_while_another_thread_searches(table):
    """Five fits are five fits, whatever another thread does not publish."""
    X, y = table
    started, done = threading.Event(), threading.Event()

    def searching():
        with unpublished():
            started.set()
            assert done.wait(60)
            classifier(random_state=99).fit(X, y)  # not counted

    other = threading.Thread(target=searching)
    other.start()
    assert started.wait(60)
    spent = [classifier(random_state=seed).fit(X, y).spent_ for seed in range(5)]
    done.set()
    other.join(60)
    assert [s.fits for s in spent] == [1, 2, 3, 4, 5] and spent[4].epsilon == pytest.approx(2.46, abs=0.02)
    assert classifier(random_state=5).fit(X, y).spent_.fits == 6


def test_fits_of_many_threads_are_all_counted():
    event, owner = FullEvent(50, 50, 1.0, 1.0, 1), np.zeros(50, dtype=np.int64)
    statement = statement_of([event], 1e-5, "transcript", False)
    from sottovoce.estimators.composition import remember

    threads = [threading.Thread(target=remember, args=(b"name", statement, owner)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(KNOWN[b"name", False].fits) == 16
    assert remember(b"name", statement, owner).epsilon == sequential_epsilon([event] * 17, 1e-5)


def test_a_sum_is_against_one_adversary_the_strongest():
    """Shared noise is worth little against an adversary who has the help of all other nodes."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-0.5, 0.5, (2000, 3))
    y, nodes = (X[:, 0] > 0).astype(int), np.arange(2000) % 20
    weak, strong = (classifier(trust=trust).fit(X, y, nodes=nodes) for trust in (1, "nobody"))
    assert weak.spent_.adversary == "secret_pairs(1)" and weak.spent_.epsilon == pytest.approx(1.0, rel=1e-3)
    found = strong.spent_
    assert found.adversary == "transcript" and found.epsilon == pytest.approx(5.41, abs=0.01)
    assert "ε = 5.41" in found.verdict() and "'secret_pairs(1)'" not in found.verdict()
    more = classifier(trust=3).fit(X, y, nodes=nodes).spent_  # in any order
    assert more.adversary == "transcript" and more.epsilon > found.epsilon


def test_where_a_stronger_account_is_not_known_there_is_no_sum():
    owner, event = np.zeros(4, dtype=np.int64), FullEvent(4, 4, 1.0, 1.0, 1)
    records = Records(owner)
    records.add(Fit(statement_of([event], 1e-5, "central", False)), owner)
    records.add(Fit(statement_of([event] * 2, 1e-5, "transcript", False)), owner)
    found = records.spent()
    assert found.epsilon == float("inf") and found.adversary == "central', 'transcript"
    assert found.verdict().startswith("NO SUM IS KNOWN of all 2 fits together")


def test_simulations_and_real_fits_have_separate_sums(table):
    X, y = table
    for seed in range(3):
        classifier(random_state=seed).fit(X, y)
    real = classifier(random_state=None).fit(X, y).spent_
    assert real.fits == 1 and real.kind == "" and real.epsilon == pytest.approx(1.0, rel=1e-3)
    assert real.verdict().startswith("This fit (no other fit recognized in this process): (ε = 1,")
    assert classifier(random_state=7).fit(X, y).spent_.fits == 4


def test_reversed_rows_are_not_said_to_be_the_only_fit(table):
    X, y = table
    classifier(random_state=None).fit(X, y)
    found = classifier(random_state=None).fit(X[::-1], y[::-1]).spent_
    assert "only" not in found.verdict() and "no other fit recognized in this process" in found.verdict()
