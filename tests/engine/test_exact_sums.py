"""The compiled sums of secure rounds: the bits of matrix products, whatever records, models, blocks and places are."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from sottovoce import _native
from sottovoce.engine import exact
from sottovoce.engine.native import code_of
from sottovoce.engine.secure import ExactSums, slope_of
from sottovoce.errors import PrivacyError
from sottovoce.problem.losses import LOSSES, Joint
from sottovoce.problem.objective import Problem
from sottovoce.problem.regularizers import l2
from sottovoce.problem.shards import Shards

SCALAR = [loss for loss in LOSSES.values() if loss.targets != "classes"]
SINGLE = [loss.name for loss in SCALAR if slope_of(Joint(loss)) is not None]  # those with a secure release
SIZES = st.sampled_from([1.0, 1e-3, 1e-9, 1e-40, 5e-324, 1e3, 1e9, 1e150])


def csr(X, wide=False):
    """With either kind of index."""
    found = sparse.csr_array(X)
    if wide:
        found.indices, found.indptr = found.indices.astype(np.int64), found.indptr.astype(np.int64)
    return found


KINDS = {"dense": np.asarray, "float32": np.float32, "CSR": csr, "CSR, wide": lambda X: csr(X, True)}


def records(rng, n, m, scale):
    """Rows of all sizes, some of them zero, some over the bound, some that cancel others."""
    X = rng.normal(size=(n, m)) * (rng.random((n, m)) < 0.6)
    X *= (rng.choice([scale, 1.0, 0.1, 3.0], n) / np.maximum(np.linalg.norm(X, axis=1), 1e-9))[:, None]
    X[n // 2] = -X[0]
    X[n // 3] = 0.0
    return np.clip(X, -1e30, 1e30)


def sums_of(X, y, loss="hinge", clip=0.8, intercept=0.5, sizes=(40, 23), order=None, weights=None, outputs=1):
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    shards = Shards.of(X, y, offsets, order, intercept, weights=weights)
    return ExactSums(Problem(LOSSES.read(loss), l2(0.1), shards, outputs=outputs), clip, 1.0, intercept, max(sizes))


def both(plain, nodes, x, chosen):
    """The sums of matrix products and the compiled ones."""
    found = plain.totals(nodes, x, chosen)
    fast = replace(plain, compiled=True)
    assert found.dtype == np.int64
    assert np.array_equal(fast.totals(nodes, x, chosen), found)
    return fast, found


@pytest.mark.parametrize("kind", KINDS)
@given(
    seed=st.integers(0, 10**6),
    loss=st.sampled_from(SINGLE),
    scale=SIZES,
    size=SIZES,
    clip=st.sampled_from([0.8, 1e-6, 1e4]),
    intercept=st.sampled_from([0.0, 0.5]),
    rows=st.integers(1, 70),
    near=st.integers(1, 2000),
)
@settings(max_examples=30)
def test_compiled_sums_are_the_same_bits(kind, seed, loss, scale, size, clip, intercept, rows, near):
    """Of all units of a node, of some in any order, and of none; models of any size; whatever the blocks are."""
    rng = np.random.default_rng(seed)
    X = KINDS[kind](records(rng, 63, 9, scale))
    order, weights = (rng.permutation(63) if seed % 2 else None), (rng.random(63) if seed % 3 else None)
    plain = sums_of(X, np.where(rng.random(63) < 0.5, 1.0, -1.0), loss, clip, intercept, (40, 23), order, weights)
    x = rng.normal(size=(5, 9 + (intercept > 0))) * size
    x[1, 3:] *= 1e-12
    chosen = [None, rng.permutation(23)[:17], np.empty(0, dtype=np.int64), np.array([3]), rng.permutation(40)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "BLOCK_ROWS", rows)
        patch.setattr(exact, "NEAR_BYTES", near)
        fast, found = both(plain, np.array([0, 1, 1, 0, 0]), x, chosen)
        assert fast.shards.order is None  # put in order
        again = np.array(
            [fast.totals(np.array([node]), x[p : p + 1], chosen[p : p + 1])[0] for p, node in ((0, 0), (3, 0))]
        )
    assert np.array_equal(again, found[[0, 3]])
    everyone = plain.totals(np.array([0]), x[4:], [None])
    assert np.array_equal(everyone[0], found[4])  # all of them in another order


@pytest.mark.parametrize("kind", ["dense", "CSR"])
@given(
    seed=st.integers(0, 10**6),
    loss=st.sampled_from(["softmax", "logistic", "hinge", "squared_hinge"]),
    outputs=st.integers(2, 6),
    scale=SIZES,
    size=SIZES,
    clip=st.sampled_from([0.8, 1e-6, 1e4]),
    intercept=st.sampled_from([0.0, 0.5]),
    rows=st.integers(1, 70),
)
@settings(max_examples=30)
def test_sums_of_several_outputs_are_the_same_bits(kind, seed, loss, outputs, scale, size, clip, intercept, rows):
    rng = np.random.default_rng(seed)
    X, y = KINDS[kind](records(rng, 63, 9, scale)), rng.integers(0, outputs, 63).astype(float)
    order, weights = (rng.permutation(63) if seed % 2 else None), (rng.random(63) if seed % 3 else None)
    plain = sums_of(X, y, loss, clip, intercept, (40, 23), order, weights, outputs=outputs)
    x = rng.normal(size=(4, outputs * (9 + (intercept > 0)))) * size
    x[1, 3:] *= 1e-12
    chosen = [None, rng.permutation(23)[:17], np.empty(0, dtype=np.int64), rng.permutation(40)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "BLOCK_ROWS", rows)
        _, found = both(plain, np.array([0, 1, 1, 0]), x, chosen)
    assert np.array_equal(plain.totals(np.array([0]), x[3:], [None])[0], found[3])


@pytest.mark.parametrize("kind", KINDS)
@given(
    seed=st.integers(0, 10**6),
    loss=st.sampled_from(["softmax", "logistic", "hinge", "squared_hinge"]),
    outputs=st.integers(1, 4),
    scale=SIZES,
    size=SIZES,
    clip=st.sampled_from([0.8, 1e-6, 1e4]),
    intercept=st.sampled_from([0.0, 0.5]),
    rows=st.integers(1, 70),
)
@settings(max_examples=40)
def test_sums_of_people_are_the_same_bits(kind, seed, loss, outputs, scale, size, clip, intercept, rows):
    """People of one row and of many, whose rows are too long together and who cancel, dense and CSR."""
    rng = np.random.default_rng(seed)
    loss, binary = ("hinge" if outputs == 1 and loss == "softmax" else loss), outputs == 1
    X = KINDS[kind](records(rng, 63, 9, scale))
    y = np.where(rng.random(63) < 0.5, 1.0, -1.0) if binary else rng.integers(0, outputs, 63).astype(float)
    cuts = np.sort(rng.choice(np.arange(1, 63), 20, replace=False))
    people = np.searchsorted(cuts, np.arange(63), side="right")
    offsets = np.array([0, int(np.searchsorted(people, 12)), 63])
    weights = rng.random(63) if seed % 3 else None
    shards = Shards.of(X, y, offsets, None, intercept, weights=weights, user_ids=people)
    problem = Problem(LOSSES.read(loss), l2(0.1), shards, outputs=outputs)
    plain = ExactSums(problem, clip, 1.0, intercept, 21)
    x = rng.normal(size=(4, outputs * (9 + (intercept > 0)))) * size
    x[1, 3:] *= 1e-12
    chosen = [None, rng.permutation(9)[:5], np.empty(0, dtype=np.int64), rng.permutation(12)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "BLOCK_ROWS", rows)
        both(plain, np.array([0, 1, 1, 0]), x, chosen)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("nodes", [1, 2, 5])
@pytest.mark.parametrize("outputs", [1, 3])
def test_no_bit_depends_on_how_many_threads_there_are(threads, nodes, outputs, monkeypatch):
    """Which share nodes, or the rows of each; also where there are fewer rows than threads."""
    monkeypatch.setattr(exact, "available", lambda: threads)
    monkeypatch.setattr(exact, "NUMBERS_PER_THREAD", 1)
    rng, started = np.random.default_rng(nodes), []
    real = exact._side_by_side
    monkeypatch.setattr(exact, "_side_by_side", lambda works: started.append(len(works)) or real(works))
    for X in (np.asarray(records(rng, 63, 9, 1.0)), csr(records(rng, 63, 9, 1.0))):
        y = rng.integers(0, 3, 63).astype(float) if outputs > 1 else np.sign(rng.normal(size=63))
        plain = sums_of(X, y, "hinge", outputs=outputs, order=rng.permutation(63))
        x, who = rng.normal(size=(nodes, 10 * outputs)), rng.integers(0, 2, nodes)
        both(plain, who, x, [None] * nodes)
        both(plain, who, x, [rng.permutation(23)[: rng.integers(0, 20)] for _ in range(nodes)])
    assert max(started) == threads


@pytest.mark.parametrize("kind", [np.asarray, csr], ids=["dense", "CSR"])
def test_records_where_they_lie_give_the_same_bits(kind, monkeypatch):
    """Where they are too many to be put in order."""
    rng = np.random.default_rng(0)
    monkeypatch.setattr("sottovoce.engine.secure.COPIED", 100)
    y, order = np.sign(rng.normal(size=63)), rng.permutation(63)
    fast, _ = both(
        sums_of(kind(records(rng, 63, 9, 1.0)), y, order=order),
        np.array([1, 0]),
        rng.normal(size=(2, 10)),
        [None, None],
    )
    assert fast.shards.order is not None


@pytest.mark.parametrize("kind", [np.asarray, csr], ids=["dense", "CSR"])
def test_the_largest_sums_and_margins_are_exact(kind):
    """Rows of full length, all equally and all clipped: at 2⁵³ there is no room for one more."""
    X = np.tile([[1.0, 0.0], [0.6, 0.8]], (2**13, 1))
    y = np.full(2**14, -1e300)
    plain = sums_of(kind(X), y, "squared", 1.0, 0.0, (2**14,))
    assert plain.grids.rows == 4096
    for x in (np.zeros((1, 2)), np.array([[1e8, -1 / 3]])):
        _, found = both(plain, np.array([0]), x, [None])
        assert np.abs(found).max() > 2**53


def test_margins_of_very_different_sizes_are_exact():
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], size=(63, 4096)) / 64.0
    x = rng.normal(size=(1, 4096)) * 1e-3 + X[0] * 777.7
    both(sums_of(X, X @ x[0], "squared", 1e4, 0.0), np.array([1]), x, [None])


@pytest.mark.parametrize("name", SINGLE)
def test_slopes_have_the_bits_of_numpy(name):
    """At kinks, at extremes, and at what is no number."""
    loss, rng = LOSSES.read(name), np.random.default_rng(0)
    u = np.concatenate(
        [rng.normal(size=500) * 3, [0.0, -0.0, 1.0, -1.0, 1e308, -1e308, np.inf, -np.inf, np.nan, 5e-324]]
    )
    y = np.where(rng.random(len(u)) < 0.5, 1.0, -1.0)
    with np.errstate(all="ignore"):
        expected = slope_of(Joint(loss))(u, y)
    found = u.copy()
    _native.slopes(code_of(loss), loss.parameter, found, y)
    known = ~np.isnan(expected)
    assert np.array_equal(found[known].view(np.int64), np.asarray(expected, dtype=np.float64)[known].view(np.int64))
    assert np.all(np.isnan(found[~known]))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e300])
def test_models_with_which_nothing_is_exact_are_refused(wrong):
    rng = np.random.default_rng(0)
    plain = sums_of(records(rng, 63, 9, 1.0), np.ones(63))
    x = rng.normal(size=(2, 10))
    x[1, 4] = wrong
    for sums in (plain, replace(plain, compiled=True)):
        with pytest.raises(PrivacyError, match="the model"):
            sums.totals(np.array([0, 1]), x, [None, None])


def test_a_wrong_bit_would_show():
    """Floating point in another order is not the same bits: else nothing above would show anything."""
    rng = np.random.default_rng(0)
    X, x = rng.normal(size=(400, 9)), rng.normal(size=9)
    assert not np.array_equal((X @ x) @ X, (X[::-1] @ x) @ X[::-1])
