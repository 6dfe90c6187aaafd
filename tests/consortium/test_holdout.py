"""Which records are held out: a stable secret choice that ignores their order, random to outsiders."""

import hashlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from sottovoce.consortium.evaluation import HELD_OUT, check_not_moved, split_held_out
from sottovoce.data.schema import Encoded
from sottovoce.errors import DataError, PrivacyError
from sottovoce.evaluation import holdout as evaluation
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
    one = split_held_out(Encoded(kind(X), y, None), n, held_out, KEY, "people")
    two = split_held_out(Encoded(kind(X[order]), y[order], None), n, held_out, KEY, "people")
    for a, b in zip(one, two, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert (a.X != b.X).sum() == 0 and np.array_equal(a.y, b.y)


def test_the_shares_are_disjoint_and_complete_and_of_the_public_sizes():
    X, y = records(50)
    train, test = split_held_out(Encoded(X, y, None), 40, 10, KEY, "people")
    rows = [row.tobytes() for shard in (train, test) for row in shard.X]
    assert len(rows) == len(set(rows)) == 40 and test.sizes[0] == 10
    assert set(rows) <= {row.tobytes() for row in X}
    with pytest.raises(DataError, match="agreement names"):
        split_held_out(Encoded(X, y, None), 51, 10, KEY, "people")


def test_over_secrets_every_record_is_held_out_equally_often():
    X, y = records(10)
    counts = np.zeros(10)
    keys = 400
    for key in range(keys):
        test = split_held_out(Encoded(X, y, None), 10, 3, key.to_bytes(32, "little"), "people").test
        counts += [any(np.array_equal(row, mine) for mine in test.X) for row in X]
    assert counts.sum() == 3 * keys
    assert np.all(np.abs(counts - 0.3 * keys) < 5 * np.sqrt(keys * 0.3 * 0.7))


@pytest.mark.parametrize("key", range(8))
def test_people_are_partitioned_with_all_of_their_rows_whatever_the_others_do(key):
    """All rows of a training person count as one; a held-out person is tested on one row."""
    X, y = records(12)
    user_ids = np.array(["a", "a", "a", "b", "b", "c", "d", "e", "f", "g", "h", "h"], dtype=object)
    train, test = split_held_out(Encoded(X, y, user_ids), 8, 2, bytes([key]) * 32, "people")
    whose = {row.tobytes(): unit for row, unit in zip(X, user_ids, strict=True)}
    trained, tested = ([whose[row.tobytes()] for row in shard.X] for shard in (train, test))
    assert train.people and train.sizes.tolist() == [6] and test.sizes.tolist() == [2] and len(set(tested)) == 2
    assert sorted(trained) == [unit for unit in user_ids if unit not in tested] and set(trained) | set(tested) == set(
        user_ids
    )
    people = [train.rows(0, np.array([person])) for person in range(6)]
    assert all(len({trained[row] for row in rows}) == 1 for rows in people)
    # another person's records do not change what is used of mine, nor the share that it is in
    Z = X.copy()
    Z[:3] = 0.0
    again = split_held_out(Encoded(Z, y, user_ids), 8, 2, bytes([key]) * 32, "people")
    others = [{row.tobytes() for row in shard.X if whose.get(row.tobytes(), "a") != "a"} for shard in (train, test)]
    assert others == [{row.tobytes() for row in shard.X if np.any(row)} for shard in again]
    with pytest.raises(DataError, match="8 people"):
        split_held_out(Encoded(X, y, user_ids), 9, 2, bytes([key]) * 32, "people")


def counted(shards):
    return Counter((row.tobytes(), y) for row, y in zip(shards.X, shards.y, strict=True))


def both_changed(keys, one, other, held_out=60):
    """Under how many keys one record changes the training share and the held-out one."""
    found = 0
    for key in range(keys):
        secret = key.to_bytes(32, "little")
        before, after = (
            split_held_out(Encoded(X, np.ones(len(X)), None), 120, held_out, secret, "people") for X in (one, other)
        )
        found += counted(before.train) != counted(after.train) and counted(before.test) != counted(after.test)
    return found


def test_one_record_changes_one_share_though_others_are_equal(monkeypatch):
    """Three contents, forty times each, and one record of the first becomes one of the second.

    The one that goes is the 40th of the first, the one that comes the 41st of the second. To anybody without the key
    the scores of the two might as well be exchanged, and then one share changes, whatever the key. If equal records
    have one score, as in version 0.1, there is nothing to exchange: both shares change under many keys.
    """
    X = np.repeat(np.eye(3), 40, axis=0)
    other = X.copy()
    other[0] = X[40]
    score, one = evaluation._score, np.ones(1).tobytes()
    gone, come = ((np.eye(3)[k].tobytes() + one, count) for k, count in ((0, 39), (1, 40)))

    def exchanged(secret, dataset, content, before):
        return score(secret, dataset, *(gone if (content, before) == come else (content, before)))

    monkeypatch.setattr(evaluation, "_score", exchanged)
    assert both_changed(200, X, other) == 0
    monkeypatch.setattr(
        evaluation, "_score", lambda secret, dataset, content, before: score(secret, dataset, content, 0)
    )
    assert both_changed(200, X, other) > 50  # 33 % of all keys


@given(st.integers(0, 5), st.randoms())
def test_equal_records_are_distinguished_and_the_order_of_the_file_still_does_not_matter(key, random):
    X, secret = np.repeat(np.eye(3), 8, axis=0), bytes([key]) * 32
    order = list(range(len(X)))
    random.shuffle(order)
    one, two = (
        split_held_out(Encoded(X[rows], np.ones(24), None), 24, 7, secret, "people") for rows in (range(24), order)
    )
    assert np.array_equal(one.train.X, two.train.X) and np.array_equal(one.test.X, two.test.X)
    assert len({row.tobytes() for row in one.test.X}) > 1  # they do not move in blocks


def test_equal_rows_of_other_people_do_not_change_what_a_person_is_tested_on():
    """A person's rows are numbered among their own."""
    X = np.repeat(np.eye(4), [3, 3, 3, 3], axis=0)
    user_ids = np.array(["a", "b", "c"] * 4, dtype=object)
    before = split_held_out(Encoded(X, np.ones(12), user_ids), 3, 2, KEY, "people").test
    Z = X.copy()
    Z[user_ids == "a"] = X[user_ids == "b"][::-1]
    after = split_held_out(Encoded(Z, np.ones(12), user_ids), 3, 2, KEY, "people").test
    assert np.sum(np.any(before.X != after.X, axis=1)) <= 1


def test_records_that_are_all_different_stay_in_the_shares_of_version_0_1():
    """Its scores were those of contents alone."""
    X, y = records(20)
    secret = bytes(range(32))
    scores = [
        hashlib.blake2b(b"people\0" + X[r].tobytes() + y[r].tobytes(), key=secret, person=b"shares", digest_size=32)
        for r in range(20)
    ]
    order = sorted(range(20), key=lambda r: scores[r].digest())
    train, test = split_held_out(Encoded(X, y, None), 20, 6, secret, "people")
    assert np.array_equal(test.X, X[order[:6]]) and np.array_equal(train.X, X[order[6:]])


def spending(dataset, fingerprint, released=1):
    return Spending("run", "name", dataset, fingerprint, FullEvent(5, 5, 1.0, 1.0, 3), released, "closed")


def test_a_record_that_may_have_been_in_both_shares_is_not_used():
    before = [spending("people", "train"), spending("people" + HELD_OUT, "test")]
    check_not_moved(before, "people", "train", "test")
    check_not_moved(before, "others", "anything", "at all")
    check_not_moved([spending("people", "old")], "people", "new", None)  # nothing was ever held out
    for train, test in (("train", "new"), ("new", "test"), ("new", "new"), ("new", None)):
        with pytest.raises(PrivacyError):
            check_not_moved(before, "people", train, test)
    with pytest.raises(PrivacyError):
        check_not_moved([spending("people", "all")], "people", "train", "test")  # they were all trained on
