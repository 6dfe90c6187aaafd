"""The stand-ins for epsilon and rcv1: seeds, blocks, the fitted laws, difficulty, memory."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn.svm import LinearSVC

from sottovoce.data import standins
from sottovoce.data.fetch import load_real, real_path
from sottovoce.data.standins import EPSILON_BLOCK, RANKS, RCV1_BLOCK, SHARE, epsilon_like, rcv1_like
from sottovoce.errors import SpecError
from sottovoce.matrices import row_norms

MAKERS = {"epsilon-like": epsilon_like, "rcv1-like": rcv1_like}


@pytest.fixture(scope="module")
def rcv1():
    return rcv1_like(20_000)


@pytest.fixture(scope="module")
def epsilon():
    return epsilon_like(8192)


def dense(X):
    return X.toarray() if sparse.issparse(X) else X


@pytest.mark.parametrize("name", MAKERS)
def test_seeds_reproduce_and_test_records_are_others(name):
    make = MAKERS[name]
    one, same, other, held = (
        make(50, 300, **k) for k in ({"seed": 5}, {"seed": 5}, {"seed": 6}, {"seed": 5, "test": True})
    )
    assert dense(one.X).tobytes() == dense(same.X).tobytes() and one.y.tobytes() == same.y.tobytes()
    for different in (other, held):
        assert not np.array_equal(dense(one.X), dense(different.X)) and not np.array_equal(one.y, different.y)
    assert one.name == name and one.features is None and set(one.y) == {-1.0, 1.0} and one.y.dtype == np.float64


@pytest.mark.parametrize(("name", "block"), [("epsilon-like", EPSILON_BLOCK), ("rcv1-like", RCV1_BLOCK)])
def test_a_record_does_not_depend_on_how_many_are_made(name, block):
    long = MAKERS[name](2 * block + 10, 40, seed=3)
    for n in (1, block - 1, block, block + 1):
        short = MAKERS[name](n, 40, seed=3)
        assert np.array_equal(dense(short.X), dense(long.X[:n])) and np.array_equal(short.y, long.y[:n])
    assert not np.array_equal(dense(long.X[:10]), dense(long.X[block : block + 10]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", MAKERS)
def test_rows_are_of_norm_one_and_never_above(name, dtype):
    X = MAKERS[name](500, 2000, dtype=dtype).X
    assert X.dtype == dtype and np.all(row_norms(X) <= 1) and np.all(row_norms(X) > 1 - 2e-6)
    np.testing.assert_allclose(dense(X), dense(MAKERS[name](500, 2000).X), atol=1e-6)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 2), (7, 30), (2, 50_000)])
def test_other_sizes(name, n, m):
    table = MAKERS[name](n, m)
    assert table.X.shape == (n, m) and len(table.y) == n and np.all(np.isfinite(dense(table.X)))
    np.testing.assert_allclose(row_norms(table.X), 1, atol=2e-6)


@pytest.mark.parametrize("name", MAKERS)
def test_progress_counts_every_record(name):
    details = []
    MAKERS[name](20_000, 5, progress=lambda done, total: details.append((done, total)))
    assert details[-1] == (20_000, 20_000) and len(details) > 2 and details == sorted(details)


@pytest.mark.parametrize("name", MAKERS)
def test_sizes_without_meaning(name):
    for n, m in ((0, 5), (5, 0)):
        with pytest.raises(SpecError, match=f"at least one record and one feature, not {n} × {m}"):
            MAKERS[name](n, m)
    with pytest.raises(SpecError, match="float32 or float64, not as int64; choose"):
        MAKERS[name](5, 5, dtype=np.int64)
    with pytest.raises(SpecError, match="seed must be 0 or more, not -1"):
        MAKERS[name](5, 5, seed=-1)


def test_defaults_are_the_papers_sizes():
    assert epsilon_like.__defaults__[:2] == (400_000, 2000) and rcv1_like.__defaults__[:2] == (677_399, 47_236)


# ---- epsilon


def test_epsilon_has_the_real_spectrum(epsilon):
    X = epsilon.X.astype(np.float64)
    assert 0.48 < np.mean(epsilon.y == 1) < 0.52
    variances = X.var(axis=0) * 2000
    assert np.percentile(variances, [5, 50, 95]) == pytest.approx([0.85, 0.88, 0.92], abs=0.05)
    assert np.max(np.abs(X.mean(axis=0))) * 2000**0.5 == pytest.approx(0.70, abs=0.07)
    values = np.linalg.eigvalsh(np.cov(X.T))[::-1]
    assert values[0] == pytest.approx(0.25, abs=0.02)  # a quarter of all lies in one direction, as in the real rows
    assert 0.005 < values[5] < values[1] < 0.015 and values[6] < 0.002


def test_epsilon_is_as_hard_as_said(epsilon):
    held = epsilon_like(8192, test=True)
    law = standins._epsilon(2000, 0)
    best = np.mean(np.sign(held.X @ (law.shift / law.spread**2)) == held.y)
    assert best == pytest.approx(0.90, abs=0.01)
    reached = LinearSVC(C=1.0, fit_intercept=False).fit(epsilon.X, epsilon.y).score(held.X, held.y)
    assert 0.84 < reached < best


def test_blocks_made_side_by_side_are_those_made_one_by_one(monkeypatch):
    makers = (lambda: epsilon_like(3 * EPSILON_BLOCK + 7, 60), lambda: rcv1_like(2 * RCV1_BLOCK + 7, 300))
    found = []
    for cores in ({0}, {0, 1, 2}):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: cores, raising=False)
        found.append([make() for make in makers])
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one.y, other.y)
        assert np.array_equal(getattr(one.X, "data", one.X), getattr(other.X, "data", other.X))


def test_epsilon_memory_is_the_result_and_a_few_blocks():
    epsilon_like(1)
    tracemalloc.start()
    X = epsilon_like(10 * EPSILON_BLOCK).X
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.nbytes + 4 * EPSILON_BLOCK * 2000 * 4


# ---- rcv1


def test_rcv1_is_sparse_and_zipf(rcv1):
    X = rcv1.X
    assert X.format == "csr" and X.indices.dtype == X.indptr.dtype == np.int32 and X.dtype == np.float32
    X.check_format(full_check=True)
    fresh = sparse.csr_array((X.data, X.indices, X.indptr), shape=X.shape)
    assert fresh.has_canonical_format and np.all(X.data > 0)
    entries = np.diff(X.indptr)
    assert entries.mean() == pytest.approx(75, abs=3) and entries.min() >= 1
    np.testing.assert_allclose(np.percentile(entries, [5, 25, 50, 75, 95]), [19, 36, 60, 100, 181], rtol=0.08)
    documents = np.sort(np.bincount(X.indices, minlength=X.shape[1]))[::-1] / X.shape[0]
    seen = [np.mean(documents[int(0.85 * r) : max(int(1.15 * r), int(0.85 * r) + 1)]) for r in RANKS[:12]]
    np.testing.assert_allclose(seen, SHARE[:12], rtol=0.15)
    assert np.mean(entries[rcv1.y < 0]) > 1.3 * np.mean(entries[rcv1.y > 0])


def test_rcv1_is_as_hard_as_said(rcv1):
    assert 0.47 < np.mean(rcv1.y == 1) < 0.53
    held = rcv1_like(RCV1_BLOCK, test=True)
    scores = [LinearSVC(C=1.0).fit(rcv1.X[:n], rcv1.y[:n]).score(held.X, held.y) for n in (500, 5000, 20_000)]
    np.testing.assert_allclose(scores, [0.92, 0.958, 0.965], atol=0.015)
    assert scores == sorted(scores)


def test_rcv1_weights_are_tf_idf(rcv1):
    documents = np.bincount(rcv1.X.indices, minlength=rcv1.m)
    means = np.bincount(rcv1.X.indices, weights=rcv1.X.data, minlength=rcv1.m) / np.maximum(documents, 1)
    known = documents > 20
    assert np.corrcoef(np.log(rcv1.n_records / documents[known]), means[known])[0, 1] > 0.7
    np.testing.assert_allclose(np.percentile(rcv1.X.data, [10, 50, 90]), [0.035, 0.073, 0.171], rtol=0.15)


def test_rcv1_is_never_made_dense(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0}, raising=False)  # a block of one processor
    rcv1_like(1)
    tracemalloc.start()
    X = rcv1_like(4 * RCV1_BLOCK).X
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    result = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    assert peak < result + 120e6 < 0.04 * X.shape[0] * X.shape[1] * 4


def test_rcv1_grows_when_documents_are_longer_than_expected(rcv1, monkeypatch):
    law = standins._rcv1(47_236, 0)
    monkeypatch.setattr(standins, "WORDS", tuple(3 * w for w in standins.WORDS))
    longer = rcv1_like(1000)
    assert longer.X.nnz > law.mean * 1000 and longer.X.indptr[-1] == len(longer.X.data) == len(longer.X.indices)
    np.testing.assert_allclose(row_norms(longer.X), 1, atol=2e-6)


@pytest.mark.data
def test_close_to_the_real_rcv1(rcv1):
    if real_path("rcv1") is None:
        pytest.skip("rcv1 is not here")
    X = load_real("rcv1").X
    for share in (10, 50, 90):
        assert np.percentile(np.diff(rcv1.X.indptr), share) == pytest.approx(
            np.percentile(np.diff(X.indptr), share), rel=0.06
        )
