"""Units of several rows: whose rows are whose, what they weigh, and that they are drawn and clipped as one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from sottovoce.errors import DataError
from sottovoce.problem import shards as partition
from sottovoce.problem.losses import LOSSES
from sottovoce.problem.objective import WEIGHTS, Problem, clipped_mean
from sottovoce.problem.regularizers import REGULARIZERS
from sottovoce.problem.shards import Shards

H = REGULARIZERS.make("l2", mu=1.0)


def problem_of(X, y, ids, loss="squared_hinge", outputs=1, offsets=None, intercept=0.0):
    offsets = np.array([0, len(y)]) if offsets is None else offsets
    return Problem(LOSSES.make(loss), H, Shards.of(X, y, offsets, intercept=intercept, user_ids=ids), outputs=outputs)


@given(st.lists(st.integers(0, 6), min_size=4, max_size=40), st.integers(1, 4), st.integers(0, 100))
def test_units_are_the_rows_with_one_id_at_one_node(ids, n, seed):
    """In any order of rows, with rows that belong to nobody: every unit's rows carry its id, and none is left out."""
    rng = np.random.default_rng(seed)
    N = len(ids)
    order = rng.permutation(N)[: max(n, N - 2)]
    offsets, _ = partition.even(len(order), n)
    shards = Shards.of(np.arange(2.0 * N).reshape(N, 2), np.ones(N), offsets, order, user_ids=np.array(ids))
    assert shards.people
    for i in range(n):
        given_rows = order[offsets[i] : offsets[i + 1]]
        names = list(dict.fromkeys(ids[r] for r in given_rows))  # as they first appear
        assert shards.sizes[i] == len(names)
        for u, name in enumerate(names):
            mine = [r for r in given_rows if ids[r] == name]
            assert np.arange(N)[shards.rows(i, np.array([u]))].tolist() == mine
        some = rng.permutation(len(names))[:2]
        together = np.concatenate([shards.rows(i, some[[k]]) for k in range(len(some))])
        assert np.array_equal(shards.rows(i, some), together)
        counts = shards.counts(i)
        assert counts is None or counts.tolist() == [sum(ids[r] == name for r in given_rows) for name in names]
        alone = shards.node(i)
        assert alone.sizes.tolist() == [len(names)]
        assert np.array_equal(alone.X[alone.rows(0, np.array([0]))], shards.X[shards.rows(i, np.array([0]))])
    assert set(np.flatnonzero(shards.spread(np.ones(n)))) == set(order)


@pytest.mark.parametrize(
    "ids",
    [
        np.array([7, 3, 7, 7, 3, 9]),
        np.array([7.0, 3.0, 7.0, 7.0, 3.0, 9.0]),
        ["b", "a", "b", "b", "a", "c"],
        np.array(["b", "a", "b", "b", "a", "c"], dtype=object),
        np.array([("x", 1), ("y", 1), ("x", 1), ("x", 1), ("y", 1), ("y", 2)], dtype="U1,i4"),
        np.array([2**62, -(2**62), 2**62, 2**62, -(2**62), 0]),
        np.array(["2020-01-02", "2020-01-01"] + ["2020-01-02"] * 2 + ["2020-01-01", "2021-01-01"], dtype="M8[D]"),
    ],
    ids=str,
)
def test_ids_may_be_of_any_kind(ids):
    shards = Shards.of(np.eye(6), np.ones(6), np.array([0, 4, 6]), user_ids=ids)
    assert shards.sizes.tolist() == [2, 2] and shards.order.tolist() == [0, 2, 3, 1, 4, 5]
    assert shards.starts.tolist() == [0, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([1, 2, 3], "4 records but 3 person ids"),
        ([1.0, np.nan, 2.0, 3.0], "no usable unit id"),
        (np.array(["a", None, "b", "c"], dtype=object), "no usable unit id"),
        (np.array(["a", float("nan"), "b", "c"], dtype=object), "no usable unit id"),
        (np.array([["a"], ["b"], {}, ["c"]], dtype=object), "no usable unit id"),
        (np.ones((4, 2)), "not an array of 2 dimensions"),
    ],
)
def test_ids_that_say_nothing_are_refused(ids, words):
    with pytest.raises(DataError, match=words):
        Shards.of(np.eye(4), np.ones(4), np.array([0, 4]), user_ids=ids)


def test_nothing_is_copied_and_units_of_one_row_cost_nothing():
    X = np.random.default_rng(0).normal(size=(6, 2))
    for ids in (np.arange(6), list("fedcba")):
        shards = Shards.of(X, np.ones(6), np.array([0, 2, 6]), user_ids=ids)
        assert shards.X is X and shards.starts is None and shards.order is None and shards.people
        assert shards.sizes.tolist() == [2, 4]
    together = Shards.of(X, np.ones(6), np.array([0, 2, 6]), user_ids=[1, 1, 1, 2, 2, 3])
    assert together.order is None and np.shares_memory(together.node(1).X, X)  # rows lie together already


@pytest.mark.parametrize("weights", ["nodes", "records"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_the_objective_is_a_mean_over_people_of_means_over_rows(weights, outputs, make_shards):
    shards = make_shards(n=3, sizes=[2, 5, 9], outputs=outputs, people=True)
    problem = Problem(LOSSES["logistic"], H, shards, WEIGHTS.read(weights), outputs)
    x = np.random.default_rng(1).normal(size=problem.m)
    each = problem.joint.value(problem.margins(x), shards.y)
    local = [np.mean([np.mean(each[shards.rows(i, np.array([u]))]) for u in range(q)]) for i, q in enumerate((2, 5, 9))]
    w = np.full(3, 1 / 3) if weights == "nodes" else np.array([2, 5, 9]) / 16
    assert problem.risk(x) == pytest.approx(np.dot(w, local), rel=1e-12)
    assert np.sum(problem.record_weights) == pytest.approx(1.0)
    means = [clipped_mean(problem, i, x, None, q, 1e9) for i, q in enumerate((2, 5, 9))]
    assert np.allclose(w @ means, problem.gradient(x), atol=1e-12)


def random_unit(rng, m, outputs, size):
    """A person with any number of any rows, long and short, equally or scattered."""
    rows = int(rng.integers(1, 6))
    X = size * rng.normal(size=(rows, m)) * 10.0 ** rng.integers(-2, 3, (rows, 1))
    if rng.random() < 0.5:
        X = np.tile(X[:1], (rows, 1))
    y = rng.integers(0, outputs, rows) if outputs > 1 else rng.choice([-1.0, 1.0], rows)
    return X, y.astype(float)


@given(st.integers(0, 300), st.sampled_from([("squared_hinge", 1), ("hinge", 1), ("softmax", 3), ("hinge", 3)]))
def test_no_person_moves_the_mean_by_more_than_two_clips(seed, kind):
    """The sensitivity by brute force: a person replaced by another one, of other rows and another number of them."""
    rng = np.random.default_rng(seed)
    loss, outputs = kind
    clip, m, b = float(rng.uniform(0.05, 2)), 3, 4
    people = [random_unit(rng, m, outputs, 1.0) for _ in range(b)]
    at = rng.normal(size=outputs * m)

    def released(people):
        X, y = (np.concatenate(parts) for parts in zip(*people, strict=True))
        ids = np.repeat(np.arange(len(people)), [len(p[1]) for p in people])
        shuffle = rng.permutation(len(y))
        return clipped_mean(problem_of(X[shuffle], y[shuffle], ids[shuffle], loss, outputs), 0, at, None, b, clip)

    # units are numbered as they appear, but a sum does not see that
    base = released(people)
    for place in range(b):
        others = list(people)
        others[place] = random_unit(rng, m, outputs, 100.0)
        assert np.linalg.norm(released(others) - base) <= 2 * clip / b * (1 + 1e-9)


@pytest.mark.parametrize(
    ("loss", "outputs", "bound"), [("hinge", 1, 1.0), ("softmax", 3, np.sqrt(2)), ("hinge", 3, 3**0.5)]
)
def test_two_clips_are_nearly_reached(loss, outputs, bound):
    """Three rows of one direction, or five of nearly the opposite one, all of them wrong: no smaller bound would do."""
    s = 0.02
    at = np.zeros((outputs, 2))
    if loss == "softmax":
        at[1, 1] = 50 / s  # sure of class 1 wherever the second feature is s

    def released(side, count):
        X = np.concatenate([np.tile([[side * np.sqrt(1 - s * s), s]], (count, 1)), [[0.0, 1.0]]])
        ids, y = np.r_[np.zeros(count), 1], np.full(count + 1, 0.0 if outputs > 1 else 1.0)
        return clipped_mean(problem_of(X, y, ids, loss, outputs), 0, at.ravel(), None, 2, bound)

    moved = float(np.linalg.norm(released(1, 3) - released(-1, 5)))
    assert 0.999 * 2 * bound / 2 < moved <= 2 * bound / 2 * (1 + 1e-9)


def test_rows_within_the_bound_are_not_clipped():
    """Where every row is within L, the mean is released as it is: no bias."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 5))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y, ids = rng.choice([-1.0, 1.0], 40), rng.integers(0, 9, 40)
    problem = problem_of(X, y, ids, "hinge")
    x = rng.normal(size=5)
    q = int(problem.shards.sizes[0])
    assert np.allclose(clipped_mean(problem, 0, x, None, q, 1.0), problem.gradient(x), atol=1e-14)


def test_the_mean_is_clipped_and_not_its_rows():
    """Two long rows that cancel: their mean is short, and is left alone."""
    X, y, ids = np.array([[30.0, 0.0], [-30.0, 1.0], [0.0, 1.0]]), np.ones(3), np.array([0, 0, 1])
    found = clipped_mean(problem_of(X, y, ids, "hinge"), 0, np.zeros(2), np.array([0]), 1, 1.0)
    assert np.allclose(found, [0.0, -0.5])
    longer = clipped_mean(
        problem_of(X + np.array([[1], [1], [0]]) * [1, 0], y, ids, "hinge"), 0, np.zeros(2), None, 1, 1.0
    )
    assert np.allclose(longer, -np.array([1.0, 0.5]) / np.hypot(1.0, 0.5) - [0, 1])


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
@pytest.mark.parametrize(
    "rows",
    [
        [[1e-170, 1e-170], [1e-170, 1e-170]],
        [[1e308, -1e308], [1.0, 1.0]],
        [[1e200, 0.0], [-1e200, 1e-200]],
        [[1e-200, 0.0], [1e-200, 1e200]],
        [[1.0, 1.0], [-1.0, -1.0 - 2e-16]],
    ],
)
def test_no_number_evades_the_clip_of_a_person(rows, kind):
    for target in (1.0, 1e15, 1e250, 1e308):
        X, y = np.array([*rows, [0.5, 0.5]]), np.array([target, target, 1.0])
        problem = problem_of(kind(X), y, np.array([0, 0, 1]), "squared")
        for at in (np.array([10.0, 10.0]), np.array([1e200, -1e200]), np.zeros(2)):
            released = clipped_mean(problem, 0, at, np.array([0]), 1, 1.0)
            assert np.all(np.isfinite(released)) and np.linalg.norm(released) <= 1 + 1e-9
