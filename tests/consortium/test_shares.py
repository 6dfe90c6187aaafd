"""Which records are held out: a stable secret choice that does not look at order, and looks random to outsiders."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from sottovoce.consortium.evaluation import HELD_OUT, deal, refuse_moved
from sottovoce.data.schema import Encoded
from sottovoce.errors import DataError, PrivacyError
from sottovoce.node.budget import Spending
from sottovoce.privacy.events import FullEvent

KEY = bytes(range(32))


def records(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)), rng.choice([-1.0, 1.0], n)


@given(st.integers(2, 30), st.floats(0, 0.9), st.randoms(), st.booleans())
def test_the_order_of_the_file_does_not_matter(n, share, random, is_sparse):
    X, y = records(n)
    held_out = int(share * n)
    order = list(range(n))
    random.shuffle(order)
    kind = sparse.csr_array if is_sparse else np.asarray
    one = deal(Encoded(kind(X), y, None), n, held_out, KEY, "people")
    two = deal(Encoded(kind(X[order]), y[order], None), n, held_out, KEY, "people")
    for a, b in zip(one, two, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert (a.X != b.X).sum() == 0 and np.array_equal(a.y, b.y)


def test_the_shares_are_disjoint_and_complete_and_of_the_public_sizes():
    X, y = records(50)
    train, test = deal(Encoded(X, y, None), 40, 10, KEY, "people")
    rows = [row.tobytes() for shard in (train, test) for row in shard.X]
    assert len(rows) == len(set(rows)) == 40 and test.sizes[0] == 10
    assert set(rows) <= {row.tobytes() for row in X}
    with pytest.raises(DataError, match="agreed"):
        deal(Encoded(X, y, None), 51, 10, KEY, "people")


def test_over_secrets_every_record_is_held_out_equally_often():
    X, y = records(10)
    counts = np.zeros(10)
    keys = 400
    for key in range(keys):
        test = deal(Encoded(X, y, None), 10, 3, key.to_bytes(32, "little"), "people").test
        counts += [any(np.array_equal(row, mine) for mine in test.X) for row in X]
    assert counts.sum() == 3 * keys
    assert np.all(np.abs(counts - 0.3 * keys) < 5 * np.sqrt(keys * 0.3 * 0.7))


@pytest.mark.parametrize("key", range(8))
def test_people_are_dealt_out_with_all_of_their_rows_whatever_the_others_do(key):
    """All rows of a training person count as one; a held-out person is tested on one row."""
    X, y = records(12)
    units = np.array(["a", "a", "a", "b", "b", "c", "d", "e", "f", "g", "h", "h"], dtype=object)
    train, test = deal(Encoded(X, y, units), 8, 2, bytes([key]) * 32, "people")
    whose = {row.tobytes(): unit for row, unit in zip(X, units, strict=True)}
    trained, tested = ([whose[row.tobytes()] for row in shard.X] for shard in (train, test))
    assert train.people and train.sizes.tolist() == [6] and test.sizes.tolist() == [2] and len(set(tested)) == 2
    assert sorted(trained) == [unit for unit in units if unit not in tested] and set(trained) | set(tested) == set(
        units
    )
    people = [train.rows(0, np.array([person])) for person in range(6)]
    assert all(len({trained[row] for row in rows}) == 1 for rows in people)
    # another person's records do not change what is used of mine, nor the share that it is in
    Z = X.copy()
    Z[:3] = 0.0
    again = deal(Encoded(Z, y, units), 8, 2, bytes([key]) * 32, "people")
    others = [{row.tobytes() for row in shard.X if whose.get(row.tobytes(), "a") != "a"} for shard in (train, test)]
    assert others == [{row.tobytes() for row in shard.X if np.any(row)} for shard in again]
    with pytest.raises(DataError, match="8 people"):
        deal(Encoded(X, y, units), 9, 2, bytes([key]) * 32, "people")


def spending(dataset, fingerprint, released=1):
    return Spending("run", "name", dataset, fingerprint, FullEvent(5, 5, 1.0, 1.0, 3), released, "closed")


def test_a_record_that_may_have_been_in_both_shares_is_not_used():
    before = [spending("people", "train"), spending("people" + HELD_OUT, "test")]
    refuse_moved(before, "people", "train", "test")
    refuse_moved(before, "others", "anything", "at all")
    refuse_moved([spending("people", "old")], "people", "new", None)  # nothing was ever held out
    for train, test in (("train", "new"), ("new", "test"), ("new", "new"), ("new", None)):
        with pytest.raises(PrivacyError):
            refuse_moved(before, "people", train, test)
    with pytest.raises(PrivacyError):
        refuse_moved([spending("people", "all")], "people", "train", "test")  # they were all trained on
