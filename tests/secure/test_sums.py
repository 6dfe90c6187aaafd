"""Exact sums: equal to whole-number arithmetic bit for bit, whatever the order, the blocks and the places."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy
from exact_reference import length, parts, total
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.errors import PrivacyError
from sottovoce.problem.people import clipped_units
from sottovoce.secure import sums as module
from sottovoce.secure.functions import logistic_slope, softmax_slope
from sottovoce.secure.grids import choose_grids, on_grid
from sottovoce.secure.sums import clipped_sum, truncated

SLOPES = {
    "hinge": lambda u, y: -y * (y * u < 1.0),
    "logistic": logistic_slope,
    "squared": lambda u, y: u - y,
}
KINDS = pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array], ids=["dense", "CSR"])
LOSSES = pytest.mark.parametrize("loss", list(SLOPES))


def problem(n=60, m=17, seed=0, kind=np.asarray, clip=0.8, bound=1.0, intercept=0.5, classes=1, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m)) * (rng.random((n, m)) < 0.5)
    X *= (rng.uniform(0.01, 1.0, n) / np.maximum(np.linalg.norm(X, axis=1), 1e-9))[:, None]
    X[3] = 0.0
    grids = choose_grids(n, clip, bound, intercept)
    data = on_grid(kind(X.astype(dtype)), grids)
    width = m + (intercept > 0)
    if classes == 1:
        return data, rng.normal(size=width) * 3, np.where(rng.random(n) < 0.5, 1.0, -1.0)
    return data, rng.normal(size=(classes, width)) * 3, rng.integers(0, classes, n).astype(float)


def one_vs_rest(u, y):
    return SLOPES["squared"](u, np.where(y[..., None] == np.arange(u.shape[-1]), 1.0, -1.0))


@KINDS
@LOSSES
@pytest.mark.parametrize("intercept", [0.0, 0.5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_to_whole_numbers(kind, loss, intercept, dtype):
    data, x, y = problem(kind=kind, intercept=intercept, dtype=dtype)
    found = parts(data, x, y, SLOPES[loss], range(60))
    assert all(length(part) <= data.grids.length**2 for part in found)
    assert Fraction(data.grids.length) * Fraction(data.grids.sum) <= Fraction(data.grids.clip)
    assert clipped_sum(data, x, y, SLOPES[loss]).tolist() == total(found)[0].tolist()
    some = np.array([7, 3, 50, 7, 12])
    assert clipped_sum(data, x, y, SLOPES[loss], some).tolist() == total([found[r] for r in some])[0].tolist()
    assert clipped_sum(data, x, y, SLOPES[loss], slice(5, 31)).tolist() == total(found[5:31])[0].tolist()
    assert not np.any(clipped_sum(data, x, y, SLOPES[loss], np.array([], dtype=int)))


@KINDS
@pytest.mark.parametrize("slope", [softmax_slope, one_vs_rest], ids=["softmax", "one against the rest"])
def test_several_outputs_equal_whole_numbers(kind, slope):
    data, x, y = problem(kind=kind, classes=3, seed=4)
    found = parts(data, x, y, slope, range(60))
    assert all(length(part) <= data.grids.length**2 for part in found)
    assert clipped_sum(data, x, y, slope).tolist() == total(found).tolist()
    free = choose_grids(60, 1e3, 1.0, 0.5)
    loose = on_grid(data.X, free)
    longest = max(map(length, parts(loose, x, y, slope, range(60))))
    assert longest * (free.sum / data.grids.sum) ** 2 > 1.1 * data.grids.length**2  # something was clipped


@KINDS
@LOSSES
def test_nearly_the_sum_in_floating_point(kind, loss):
    """Grids are fine: the exact sum differs from the usual one by a millionth of the clip a record."""
    data, x, y = problem(n=500, kind=kind)
    X = data.X if isinstance(data.X, np.ndarray) else data.X.toarray()
    C = np.hstack([X, np.full((500, 1), data.grids.intercept)]).astype(np.float64)
    s = SLOPES[loss](C @ x, y)
    size = np.abs(s) * np.linalg.norm(C, axis=1)
    usual = (s * np.minimum(1.0, 0.8 / np.maximum(size, 1e-300))) @ C
    assert np.max(np.abs(clipped_sum(data, x, y, SLOPES[loss]) * data.grids.sum - usual)) < 500 * 0.8 * 2.0**-20


@KINDS
@given(
    seed=st.integers(0, 10**6), loss=st.sampled_from(list(SLOPES)), cut=st.integers(0, 60), block=st.integers(1, 400)
)
def test_order_splits_and_blocks_change_no_bit(kind, seed, loss, cut, block):
    data, x, y = problem(seed=seed, kind=kind)
    whole = clipped_sum(data, x, y, SLOPES[loss])
    order = np.random.default_rng(seed).permutation(60)
    assert np.array_equal(whole, clipped_sum(data, x, y, SLOPES[loss], order))
    split = clipped_sum(data, x, y, SLOPES[loss], order[:cut]) + clipped_sum(data, x, y, SLOPES[loss], order[cut:])
    assert np.array_equal(whole, split)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        assert np.array_equal(whole, clipped_sum(data, x, y, SLOPES[loss], order))
    shuffled = on_grid(data.X[order], data.grids)
    assert np.array_equal(whole, clipped_sum(shuffled, x, y[order], SLOPES[loss]))


@given(st.integers(0, 10**6), st.sampled_from(list(SLOPES)))
def test_replacing_a_record_moves_the_sum_by_2L_at_most(seed, loss):
    data, x, y = problem(seed=seed)
    other, _, z = problem(seed=seed + 1)
    X, y2 = data.X.copy(), y.copy()
    X[10], y2[10] = other.X[11], z[11]
    moved = clipped_sum(on_grid(X, data.grids), x, y2, SLOPES[loss]) - clipped_sum(data, x, y, SLOPES[loss])
    assert length(moved) <= (2 * data.grids.length) ** 2
    alone = clipped_sum(data, x, y, SLOPES[loss], np.array([10]))
    rest = clipped_sum(data, x, y, SLOPES[loss], np.delete(np.arange(60), 10))
    assert length(alone) <= data.grids.length**2
    assert np.array_equal(clipped_sum(data, x, y, SLOPES[loss]) - rest, alone)


def test_the_largest_sums_that_the_grids_allow_are_exact():
    """4096 rows of full length, all equally: at 2⁵³ there is no room for one more."""
    grids = choose_grids(2**14, clip=1.0, bound=1.0)
    X = np.tile([[1.0, 0.0], [0.6, 0.8]], (2**13, 1))
    data = on_grid(X, grids)
    y = np.ones(2**14)
    assert grids.rows == 4096
    found = clipped_sum(data, np.zeros(2), y, lambda u, y: -1e300 * y)
    each = parts(data, np.zeros(2), y, lambda u, y: -1e300 * y, range(2))
    assert found.tolist() == (total(each)[0] * 2**13).tolist()
    assert abs(found[0]) > 2**53 and math.isqrt(length(each[0])) > grids.length * (1 - 1e-5)


def test_the_largest_margins_that_the_grids_allow_are_exact():
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], size=(50, 4096)) / 64.0
    data = on_grid(X, choose_grids(50, 1.0, 1.0))
    x = rng.normal(size=4096) * 1e-3 + X[0] * 777.7
    seen = []
    clipped_sum(data, x, np.ones(50), lambda u, y: seen.append(u) or u * 0.0)
    model = data.grids.model(x)
    exact = [sum(Fraction(float(c)) * Fraction(float(w)) for c, w in zip(row, model, strict=True)) for row in data.X]
    assert [Fraction(float(u)) for u in np.concatenate(seen)] == exact and max(exact) > 700


def test_slopes_that_are_no_numbers_count_as_nothing():
    data, x, y = problem(intercept=0.0)

    def slope(u, y):
        bad = np.full(len(u), np.nan)
        bad[: len(u) // 2] = np.inf
        return bad

    assert not np.any(clipped_sum(data, x, y, slope))
    several, x, y = problem(intercept=0.0, classes=2)
    assert not np.any(clipped_sum(several, x, y, lambda u, y: u * np.nan))
    found = clipped_sum(several, x, y, lambda u, y: np.where(u > 0, 1e308, -1e308), np.array([5]))
    assert (several.grids.length * 0.9999) ** 2 < length(found) <= several.grids.length**2


@given(st.floats(allow_nan=True, allow_infinity=True), st.floats(0, 2**41))
def test_slopes_are_truncated_within_their_cap(slope, cap):
    grids, cap = choose_grids(100, 1.0, 1.0), float(math.floor(cap))
    found = truncated(np.array([slope]), np.array([cap]), grids)[0]
    assert abs(found) <= cap and found == math.trunc(found)


# people


def people(data, seed=0, most=6):
    rng = np.random.default_rng(seed)
    counts = []
    while sum(counts) < data.X.shape[0]:
        counts.append(min(int(rng.integers(1, most)), data.X.shape[0] - sum(counts)))
    return np.array(counts)


@KINDS
@LOSSES
@pytest.mark.parametrize("clip", [0.05, 0.8, 10.0])
def test_people_are_clipped_as_one(kind, loss, clip):
    """Each person by themself, within L in whole numbers; together their sum, in any order and in any blocks."""
    data, x, y = problem(kind=kind, clip=clip)
    counts = people(data)
    starts = np.cumsum(counts) - counts
    alone = []
    for start, count in zip(starts, counts, strict=True):
        mine = np.arange(start, start + count)
        alone.append(clipped_sum(data, x, y, SLOPES[loss], mine, np.array([count])))
        assert length(alone[-1]) <= data.grids.length**2
        turned = clipped_sum(data, x, y, SLOPES[loss], mine[::-1], np.array([count]))
        assert np.array_equal(turned, alone[-1])
    whole = clipped_sum(data, x, y, SLOPES[loss], None, counts)
    assert np.array_equal(whole, np.sum(alone, axis=0))
    order = np.random.default_rng(1).permutation(len(counts))
    rows = np.concatenate([np.arange(starts[p], starts[p] + counts[p]) for p in order])
    assert np.array_equal(whole, clipped_sum(data, x, y, SLOPES[loss], rows, counts[order]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", 40)
        assert np.array_equal(whole, clipped_sum(data, x, y, SLOPES[loss], rows, counts[order]))
    assert np.max(np.abs(whole * data.grids.sum - _usual(data, x, y, SLOPES[loss], counts))) < 60 * 2.0**-19 * max(
        clip, 1
    )


def _usual(data, x, y, slope, counts):
    """The same in floating point, as a simulation does it."""
    X = data.X if isinstance(data.X, np.ndarray) else data.X.toarray()
    C = np.hstack([X, np.full((len(X), 1), data.grids.intercept)]).astype(np.float64)
    s = slope(C @ x, y)
    size = np.abs(s) * np.linalg.norm(C, axis=1)
    return clipped_units(size, s, counts, data.grids.clip, lambda some, which: some @ C[which])


def test_people_of_several_outputs():
    data, x, y = problem(classes=3, clip=0.3)
    counts = people(data)
    starts = np.cumsum(counts) - counts
    alone = [
        clipped_sum(data, x, y, softmax_slope, np.arange(a, a + c), np.array([c]))
        for a, c in zip(starts, counts, strict=True)
    ]
    assert all(length(part) <= data.grids.length**2 for part in alone)
    assert max(length(part) for part in alone) > (data.grids.length * 0.999) ** 2
    assert np.array_equal(clipped_sum(data, x, y, softmax_slope, None, counts), np.sum(alone, axis=0))


def test_what_cancels_within_a_person_is_not_lengthened():
    """Two rows that cancel but for a little: truncated before they are clipped as one, they would be longer than L."""
    rng = np.random.default_rng(0)
    grids = choose_grids(10, clip=2.0**-18, bound=1.0)
    for seed in range(200):
        X = rng.normal(size=(2, 6))
        X /= np.linalg.norm(X, axis=1, keepdims=True) * 1.0001
        X[1] = X[0]
        data = on_grid(X, grids)
        y = np.array([1.0, -1.0]) * (1 + rng.random(2) * 1e-5)
        found = clipped_sum(data, np.zeros(6), y, lambda u, y: -y, None, np.array([2]))
        assert length(found) <= grids.length**2
        expected = -(y[0] + y[1]) / 2 * X[0]
        expected *= min(1.0, grids.clip / np.linalg.norm(expected))
        assert np.max(np.abs(found * grids.sum - expected)) < grids.clip * 1e-3, seed


def test_a_person_with_very_many_rows_and_one_with_huge_slopes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    data = on_grid(X, choose_grids(3, clip=0.5, bound=1.0), "clip")
    y = np.ones(20_000)
    y[-1] = 1e200
    y[-2] = 1e308
    counts = np.array([19_998, 1, 1])
    found = [
        clipped_sum(data, np.zeros(3), y, lambda u, y: -y, np.arange(a, a + c), np.array([c]))
        for a, c in ((0, 19_998), (19_998, 1), (19_999, 1))
    ]
    assert np.array_equal(clipped_sum(data, np.zeros(3), y, lambda u, y: -y, None, counts), np.sum(found, axis=0))
    assert np.allclose(found[0] * data.grids.sum, -X[:-2].mean(axis=0), atol=1e-4)
    for part in found[1:]:
        assert (data.grids.length * 0.9999) ** 2 < length(part) <= data.grids.length**2


def test_people_that_do_not_add_up_are_refused():
    data, x, y = problem()
    for counts in (np.array([59]), np.array([60, 0])):
        with pytest.raises(PrivacyError, match="add up"):
            clipped_sum(data, x, y, SLOPES["hinge"], None, counts)
    assert not np.any(clipped_sum(data, x, y, SLOPES["hinge"], np.array([], dtype=int), np.array([], dtype=int)))
