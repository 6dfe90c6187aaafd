import pickle
import tracemalloc
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from sottovoce import matrices
from sottovoce.errors import DataError
from sottovoce.matrices import row_norms
from sottovoce.problem import shards as partition
from sottovoce.problem.losses import LOSSES
from sottovoce.problem.objective import WEIGHTS, Problem, clipped_mean
from sottovoce.problem.regularizers import REGULARIZERS
from sottovoce.problem.shards import Shards


def data(rows=30, m=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, m)), np.where(rng.random(rows) < 0.5, -1.0, 1.0)


def twice(X):
    """CSR in which every row has its first entry split in two: the row's norm cannot be read off the entries."""
    rows, m = X.shape
    data = np.column_stack([X[:, :1] / 2, X[:, :1] / 2, X[:, 1:]]).ravel()
    columns = np.tile(np.r_[0, 0, np.arange(1, m)], rows)
    return sparse.csr_array((data, columns, np.arange(rows + 1) * (m + 1)), shape=X.shape)


def kinds(X):
    return {"float64": X, "float32": X.astype(np.float32), "csr": sparse.csr_array(X), "csr32": sparse.csr_matrix(X)}


@pytest.mark.parametrize("kind", ["float64", "float32", "csr", "csr32"])
@pytest.mark.parametrize("intercept", [0.0, 1.5])
@pytest.mark.parametrize("shuffled", [False, True])
def test_margins_and_pull_match_plain_products(kind, intercept, shuffled, monkeypatch):
    monkeypatch.setattr("sottovoce.problem.shards.BLOCK", 20)  # several blocks even here
    X, y = data()
    offsets, order = partition.even(30, 4, np.random.default_rng(1) if shuffled else None)
    shards = Shards.of(kinds(X)[kind], y, offsets, order, intercept)
    full = np.column_stack([X, np.full(30, intercept)]) if intercept else X
    x, s = np.random.default_rng(2).normal(size=shards.m), np.random.default_rng(3).normal(size=30)
    tol = {"rtol": 1e-5, "atol": 1e-5} if kind == "float32" else {"rtol": 1e-12, "atol": 1e-12}
    assert np.allclose(shards.margins(x), full @ x, **tol)
    assert np.allclose(shards.pull(s), s @ full, **tol)
    assert np.allclose(shards.norms, np.linalg.norm(full, axis=1), **tol)
    seen = []
    for i in range(4):
        rows = np.arange(30)[shards.rows(i)]
        seen.extend(rows)
        assert np.allclose(shards.margins(x, shards.rows(i)), full[rows] @ x, **tol)
        picked = shards.rows(i, np.array([0, 2]))
        assert np.array_equal(picked, rows[[0, 2]])
        assert np.allclose(shards.pull(s[:2], picked), s[:2] @ full[picked], **tol)
        alone = shards.node(i)
        assert alone.n == 1 and np.allclose(alone.margins(x, alone.rows(0)), full[rows] @ x, **tol)
        assert np.array_equal(alone.y[alone.rows(0)], y[rows])
        assert np.array_equal(alone.norms[alone.rows(0)], shards.norms[rows])
        assert np.all(shards.spread(np.arange(4.0))[rows] == i)
        local = Problem(LOSSES["logistic"], REGULARIZERS.make("l2", mu=1.0), alone)
        expected = np.mean(np.logaddexp(0, -y[rows] * (full[rows] @ x)))
        assert local.risk(x) == pytest.approx(expected, rel=1e-6)
    assert sorted(seen) == list(range(30))


def test_float32_rows_in_csr_are_multiplied_a_stretch_at_a_time(monkeypatch):
    """The same numbers as at once, empty rows and rows longer than a stretch included, without a float64 copy."""
    rng = np.random.default_rng(0)
    X = sparse.csr_array(np.where(rng.random((300, 50)) < 0.3, rng.normal(size=(300, 50)), 0.0).astype(np.float32))
    X = sparse.vstack([X[:100], sparse.csr_array((7, 50), dtype=np.float32), X[100:]], format="csr")
    y, x, s = np.ones(307), rng.normal(size=(3, 50)), rng.normal(size=(307, 3))
    shards = Shards.of(X, y, np.array([0, 107, 307]))
    wide = X.astype(np.float64).toarray()
    for size in (1, 37, 10**9):
        monkeypatch.setattr("sottovoce.problem.shards.PIECE", size)
        monkeypatch.setattr("sottovoce.matrices.BLOCK", size)
        assert np.allclose(shards.margins(x), wide @ x.T, rtol=1e-12, atol=1e-12)
        assert np.allclose(shards.margins(x[0], slice(90, 120)), wide[90:120] @ x[0], rtol=1e-12, atol=1e-12)
        assert np.allclose(shards.pull(s), s.T @ wide, rtol=1e-12, atol=1e-12)
        assert np.allclose(row_norms(X), np.linalg.norm(wide, axis=1), rtol=1e-12, atol=0.0)
        assert len(shards.margins(x[0], np.empty(0, np.int64))) == 0 and not shards.pull(s[:0], slice(0, 0)).any()


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_no_pass_over_the_data_makes_anything_of_its_size(kind):
    rng, records, m = np.random.default_rng(0), 8000, 500
    X = values = rng.random((records, m), dtype=np.float32)
    if kind == "csr":
        columns, starts = np.tile(np.arange(m, dtype=np.int32), records), np.arange(0, X.size + 1, m, dtype=np.int32)
        X = sparse.csr_array((values.ravel(), columns, starts), shape=(records, m))
    shards = Shards.of(X, np.ones(records), np.array([0, records]))
    x, s = rng.normal(size=(5, m)), rng.normal(size=records)
    shards.margins(x[0])  # loads what it needs
    tracemalloc.start()
    try:
        for work in (lambda: shards.margins(x), lambda: shards.pull(s), lambda: shards.norms):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            work()
            assert (
                tracemalloc.get_traced_memory()[1] - before < 0.75 * values.nbytes
            )  # float64 copies have twice as much
    finally:
        tracemalloc.stop()


def test_nothing_is_copied():
    X, y = data()
    offsets, _ = partition.even(30, 3)
    assert Shards.of(X, y, offsets).X is X
    assert np.shares_memory(Shards.of(X, y, offsets).node(1).X, X)
    C = sparse.csr_array(X)
    assert np.shares_memory(Shards.of(C, y, offsets).node(1).X.data, C.data)


@given(st.integers(1, 30), st.integers(0, 100), st.sampled_from([0.0, 0.25, 1.5]))
def test_records_partitioned_again_are_shards_made_anew(n, seed, intercept):
    X, y = data()
    first = Shards.of(X, y, np.array([0, 30]))
    first.norms  # noqa: B018 - what is known is kept
    offsets, order = partition.even(30, n, np.random.default_rng(seed))
    found = first.partitioned(offsets, order).with_intercept(intercept)
    expected = Shards.of(X, y, offsets, order, intercept)
    assert found.X is X and np.array_equal(found.norms, expected.norms)
    assert all(np.array_equal(found.rows(i), expected.rows(i)) for i in range(n))


def test_records_are_partitioned_once_each_and_people_whole():
    X, y = data()
    first = Shards.of(X, y, np.array([0, 30]))
    with pytest.raises(DataError, match="names a row twice"):
        first.partitioned(np.array([0, 30]), np.zeros(30, dtype=np.int64))
    with pytest.raises(DataError, match="node 1 has no records"):
        first.partitioned(np.array([0, 30, 30]), None)
    people = Shards.of(X, y, np.array([0, 30]), user_ids=np.arange(30) % 7)
    with pytest.raises(DataError, match="people are partitioned with all of their rows"):
        people.partitioned(np.array([0, 30]), None)


@given(st.integers(1, 60), st.integers(1, 60))
def test_even_partition(records, n):
    if n > records:
        with pytest.raises(DataError, match=f"{n} nodes cannot share {records} records"):
            partition.even(records, n)
        return
    offsets, order = partition.even(records, n, np.random.default_rng(0))
    sizes = np.diff(offsets)
    assert offsets[-1] == records and np.ptp(sizes) <= 1 and sorted(order) == list(range(records))


@given(st.lists(st.sampled_from(["ash", "birch", "cedar"]), min_size=1, max_size=40))
def test_groups_become_nodes(groups):
    (offsets, order), names = partition.by_group(np.array(groups))
    order = np.arange(len(groups)) if order is None else order
    assert names == sorted(set(groups))
    for i, name in enumerate(names):
        assert {groups[r] for r in order[offsets[i] : offsets[i + 1]]} == {name}


@given(st.integers(2, 12), st.floats(0.01, 100), st.integers(0, 1000))
def test_dirichlet_partition_is_a_partition_without_empty_nodes(n, concentration, seed):
    y = np.where(np.arange(60) % 3 == 0, 1.0, -1.0)
    offsets, order = partition.dirichlet(y, n, concentration, np.random.default_rng(seed))
    assert np.all(np.diff(offsets) >= 1) and sorted(order) == list(range(60))


def test_dirichlet_concentration_skews_labels():
    y = np.where(np.arange(4000) % 2 == 0, 1.0, -1.0)

    def skew(concentration):
        offsets, order = partition.dirichlet(y, 10, concentration, np.random.default_rng(0))
        shares = [np.mean(y[order[a:b]] > 0) for a, b in pairwise(offsets)]
        return np.mean(np.abs(np.array(shares) - 0.5))

    assert skew(0.05) > 0.35 and skew(1000.0) < 0.05


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X, y, o: (X, y[:-1], o), "30 records but 29 targets"),
        (lambda X, y, o: (np.where(X == X[3, 2], np.nan, X), y, o), "NaN or infinite values; fill"),
        (lambda X, y, o: (X, np.where(y > 0, np.inf, y), o), "targets hold NaN"),
        (lambda X, y, o: (X, y, np.array([0, 10, 10, 30])), "node 1 has no records"),
        (lambda X, y, o: (sparse.csc_array(X), y, o), "CSR form, not CSC"),
        (lambda X, y, o: (X[0], y, o), "1 dimensions"),
        (lambda X, y, o: (twice(X), y, o), "stand twice"),
    ],
)
def test_bad_data_is_one_sentence(change, words):
    X, y = data()
    with pytest.raises(DataError, match=words):
        Shards.of(*change(X, y, np.array([0, 10, 20, 30])))


@pytest.mark.parametrize("weights", ["nodes", "records"])
def test_objective_is_the_weighted_mean_of_local_risks(weights):
    X, y = data()
    shards = Shards.of(X, y, np.array([0, 3, 10, 30]), np.random.default_rng(5).permutation(30))
    loss, h = LOSSES["logistic"], REGULARIZERS.make("elastic_net", phi=0.1, mu=0.2)
    problem = Problem(loss, h, shards, WEIGHTS.read(weights))
    x = np.random.default_rng(1).normal(size=5)
    local = []
    for i in range(3):
        rows = shards.rows(i)
        local.append(np.mean(loss.value(X[rows] @ x, y[rows])))
    w = [1 / 3] * 3 if weights == "nodes" else [0.1, 7 / 30, 20 / 30]
    expected = np.dot(w, local) + 0.1 * np.abs(x).sum() + 0.1 * x @ x
    assert problem.value(x) == pytest.approx(expected, rel=1e-12)
    e = 1e-6 * np.eye(5)
    numeric = [(problem.risk(x + d) - problem.risk(x - d)) / 2e-6 for d in e]
    assert np.allclose(problem.gradient(x), numeric, atol=1e-7)


def test_kkt_residual_is_zero_only_at_the_optimum(kkt_residual):
    """Ridge has a closed form: nobody's solver is needed."""
    X, y = data()
    problem = Problem(LOSSES["squared"], REGULARIZERS.make("l2", mu=0.5), Shards.of(X, y, np.array([0, 15, 30])))
    x = np.linalg.solve(X.T @ X / 30 + 0.5 * np.eye(5), X.T @ y / 30)
    assert kkt_residual(problem, x) < 1e-12
    assert kkt_residual(problem, x + 0.01) > 1e-3


def test_labels_are_checked():
    X, _ = data()
    with pytest.raises(DataError, match="labels −1 and \\+1, but there is a label 2"):
        Problem(LOSSES["hinge"], REGULARIZERS.make("l2", mu=1.0), Shards.of(X, np.full(30, 2.0), np.array([0, 30])))


@given(st.floats(0.01, 3), st.integers(0, 100))
def test_no_record_moves_the_mean_by_more_than_the_clip(clip, seed):
    """The sensitivity is met by brute force: replace each record in turn, also by a huge one."""
    X, y = data(6, 3, seed)
    X = X * 10
    h, at = REGULARIZERS.make("l2", mu=1.0), np.random.default_rng(seed).normal(size=3)

    def released(X, y):
        problem = Problem(LOSSES["squared_hinge"], h, Shards.of(X, y, np.array([0, 6])))
        return clipped_mean(problem, 0, at, None, 6, clip)

    base = released(X, y)
    for r in range(6):
        moved, label = X.copy(), y.copy()
        moved[r], label[r] = -1e3 * X[r], -y[r]
        assert np.linalg.norm(released(moved, label) - base) <= 2 * clip / 6 * (1 + 1e-9)


def test_the_divisor_is_the_public_batch_size():
    """A Poisson batch of k records is Σ clip/b, not Σ clip/k: the batch that was drawn stays a secret."""
    X, y = data()
    problem = Problem(LOSSES["logistic"], REGULARIZERS.make("l2", mu=1.0), Shards.of(X, y, np.array([0, 30])))
    at, picked = np.ones(5), np.array([2, 7, 11])
    each = [clipped_mean(problem, 0, at, picked[[k]], 1, 0.5) for k in range(3)]
    assert np.allclose(clipped_mean(problem, 0, at, picked, 8, 0.5), np.sum(each, axis=0) / 8, rtol=1e-12)


@pytest.mark.parametrize(
    ("row", "target"),
    [
        ([1e-170, 1e-170], 1e250),
        ([1e308, -1e308], 1.0),
        ([1e308, 0.0], 1e5),
        ([1e-200, 0.0], 1e300),
        ([5e-324, 0.0], 1e308),
    ],
)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_no_number_evades_the_clip(row, target, kind):
    """Squares that underflow or overflow, slopes that are infinite: the released norm stays within the clip."""
    shards = Shards.of(kind(np.array([row, [0.5, 0.5]])), np.array([target, 1.0]), np.array([0, 2]))
    problem = Problem(LOSSES["squared"], REGULARIZERS.make("l2", mu=1.0), shards)
    for at in (np.array([10.0, 10.0]), np.array([1e200, -1e200]), np.zeros(2)):
        released = clipped_mean(problem, 0, at, np.array([0]), 1, 1.0)
        assert np.all(np.isfinite(released)) and np.linalg.norm(released) <= 1 + 1e-9


@pytest.mark.parametrize(
    ("offsets", "order", "words"),
    [
        ([0, 2, 4], [0, 0, 1, 2], "names a row twice"),
        ([0, 2, 4], [0, 1, 2, 9], "not there"),
        ([0, 2, 6], None, "must run from 0 to the 4"),
        ([1, 2, 4], None, "must run from 0 to the 4"),
        ([0], None, "must run from 0 to the 4"),
        ([0, 2, 3], None, "must run from 0 to the 4"),
    ],
)
def test_no_record_belongs_to_two_nodes(offsets, order, words):
    with pytest.raises(DataError, match=words):
        Shards.of(np.eye(4), np.ones(4), np.array(offsets), None if order is None else np.array(order))


def test_an_empty_batch_is_zero():
    X, y = data()
    problem = Problem(LOSSES["hinge"], REGULARIZERS.make("l2", mu=1.0), Shards.of(X, y, np.array([0, 30])))
    assert not clipped_mean(problem, 0, np.ones(5), np.array([], dtype=np.int64), 4, 1.0).any()


@pytest.mark.parametrize("parts", [2, 7])
def test_lengths_found_in_parts_are_those_found_at_once(parts, monkeypatch):
    X = np.random.default_rng(1).normal(size=(41, 5)).astype(np.float32)
    expected = matrices.row_norms(X)
    monkeypatch.setattr(matrices, "MANY", X.size // parts)
    monkeypatch.setattr("os.cpu_count", lambda: parts)
    assert len(matrices.in_parts(X, len)) == parts
    assert np.array_equal(matrices.row_norms(X), expected)
    X[40, 4] = np.nan
    with pytest.raises(DataError, match="NaN or infinite"):
        Shards.of(X, np.ones(41), np.array([0, 41]))


def test_shards_made_from_one_another_share_a_reading_and_others_do_not():
    shards = Shards.of(np.eye(4), np.ones(4), np.array([0, 2, 4]))
    assert shards.with_intercept(0.5).reading is shards.reading
    assert replace(shards, X=np.eye(4)).reading is not shards.reading
    assert Shards.of(shards.X, shards.y, shards.offsets).reading is not shards.reading
    again = pickle.loads(pickle.dumps(shards))
    assert again.with_intercept(0.5).reading is not shards.reading and np.array_equal(again.X, shards.X)
