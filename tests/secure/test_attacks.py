"""Attempts that succeed on plain floating-point noise, and must fail on a secure release."""

import attacks
import numpy as np
import pytest
from scripted import Scripted

from sottovoce.privacy.calibration import single
from sottovoce.secure.functions import logistic_slope
from sottovoce.secure.generator import Purpose, fresh, generators
from sottovoce.secure.grids import choose_grids, on_grid
from sottovoce.secure.noise import Layer, Noise, NoiseKind, release_grid
from sottovoce.secure.sums import clipped_sum
from sottovoce.streams import Streams

TRIALS, EPSILON, DELTA = 1000, 0.1, 1e-6
CLIP, RECORDS, M = 1.0, 50, 31


@pytest.fixture(scope="module")
def scale():
    """σ of a sum over all records: replacing one moves it by 2L at most."""
    return 2 * CLIP * single(EPSILON, DELTA)


@pytest.fixture(scope="module")
def truths():
    return np.random.default_rng(1).integers(0, 2, TRIALS)


@pytest.fixture(scope="module")
def data():
    """Two data sets that differ in one record, on their grid; and a model."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(RECORDS, M))
    X *= 0.999 / np.linalg.norm(X, axis=1, keepdims=True)
    other = X.copy()
    other[17] = -X[17]
    grids = choose_grids(RECORDS, CLIP, 1.0)
    y = np.where(rng.random(RECORDS) < 0.5, 1.0, -1.0)
    return [on_grid(rows, grids) for rows in (X, other)], y, rng.normal(size=M)


def sums_of(data):
    both, y, x = data
    return np.array([clipped_sum(rows, x, y, logistic_slope) for rows in both]), both[0].grids.sum


def released(data, truths, scale, compiled=True):
    """A secure release for every trial, and what the two candidates' sums are."""
    sums, sum_grid = sums_of(data)
    index = np.arange(TRIALS)
    layer = Layer(fresh()[Purpose.NOISE], index, index, index, np.full(TRIALS, scale))
    grid = release_grid(scale, sum_grid)
    whole = Noise(M, np.full(TRIALS, grid), [layer], compiled=compiled).added_to(sums[truths], sum_grid)
    return whole * grid, sums * sum_grid


def test_the_lattice_gives_every_record_away_with_plain_noise(data, truths, scale):
    """What was wrong: noise from 32-bit words, added in floating point, on message after message."""
    sums, sum_grid = sums_of(data)
    candidates = sums * sum_grid
    messages = candidates[truths] + scale * Streams().normals(np.arange(TRIALS), 1, M)
    assert attacks.share_right(attacks.lattice, messages, truths, candidates, scale) == 1.0


def test_low_bits_give_it_away_where_only_the_noise_is_rounded(data, truths, scale):
    """A half measure: exact noise on a grid, added to a sum that is not. The two candidates differ below the grid."""
    sums, sum_grid = sums_of(data)
    index = np.arange(TRIALS)
    layer = Layer(fresh()[Purpose.NOISE], index, index, index, np.full(TRIALS, scale))
    grid = release_grid(scale, sum_grid)
    noise = Noise(M, np.full(TRIALS, grid), [layer], compiled=True).added_to(np.zeros((TRIALS, M), dtype=int), sum_grid)
    candidates = sums * sum_grid
    messages = candidates[truths] + noise * grid
    assert attacks.share_right(attacks.low_bits, messages, truths, candidates, scale) == 1.0


@pytest.mark.parametrize(
    "guess",
    [
        attacks.lattice,
        lambda *seen: attacks.lattice(*seen, bits=48),
        lambda *seen: attacks.lattice(*seen, bits=24),
        attacks.low_bits,
        attacks.likelihood,
    ],
    ids=["the old lattice", "48 bits", "24 bits", "low bits", "likelihood"],
)
def test_no_guess_is_better_than_the_guarantee_allows(data, truths, scale, guess):
    messages, candidates = released(data, truths, scale)
    assert attacks.share_right(guess, messages, truths, candidates, scale) <= attacks.allowed(TRIALS)


def test_the_guesses_would_succeed_without_noise(data, truths, scale):
    """The same attempts on a release with hardly any noise: they are real ones."""
    messages, candidates = released(data, truths, 1e-3)
    assert attacks.share_right(attacks.likelihood, messages, truths, candidates, 1e-3) > 0.99


def test_the_mean_of_a_secure_release_is_also_safe(data, truths, scale):
    """Everything after the grid may be floating point: dividing by a public number gives nothing away."""
    messages, candidates = released(data, truths, scale)
    b = 37.0
    right = attacks.share_right(attacks.lattice, messages / b, truths, candidates / b, scale / b)
    assert right <= attacks.allowed(TRIALS)


@pytest.mark.parametrize(("dtype", "n"), [(np.float32, 200_000), (np.float64, 200_000)])
def test_floats_can_be_made_to_move_by_more_than_2L(dtype, n):
    assert attacks.moved_by_summation(n, dtype) > 2
    if dtype is np.float32:
        assert attacks.moved_by_summation(n, dtype) > 2.04


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tiny", [1.0, 2.0**25, 2.0**40], ids=["as built", "larger", "on the grid"])
def test_an_exact_sum_cannot(dtype, tiny):
    """The same batch, and the same with its small records as large as the grids can see."""
    n = 20_000
    grids = choose_grids(n + 4, 1.0, 1.0)
    found = []
    for batch in attacks.summation_batch(n, dtype):
        batch[4:] *= tiny if dtype is np.float64 else min(tiny, 2.0**10)
        rows = on_grid(batch, grids)
        y = np.ones(n + 4)
        found.append([int(clipped_sum(rows, np.zeros(1), y, lambda u, y: y, o)[0]) for o in (None, slice(None, None))])
        order = np.random.default_rng(0).permutation(n + 4)
        assert int(clipped_sum(rows, np.zeros(1), y, lambda u, y: y, order)[0]) == found[-1][0]
    moved = found[0][0] - found[1][0]
    assert 0.999 * 2 * grids.length < moved <= 2 * grids.length


def test_rows_in_other_places_have_other_margins_in_floats_and_the_same_on_the_grid():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 123)) / 12
    x = rng.normal(size=123)
    assert attacks.moved_margins(X, x) > 0
    grids = choose_grids(2000, 1.0, 2.0)
    rows = on_grid(X, grids, "clip")
    assert attacks.moved_margins(rows.X.astype(np.float64), grids.model(x)) == 0


def test_at_the_kink_of_a_hinge_a_record_contributes_the_same_wherever_it_stands():
    """Margins exactly at the kink, in whole numbers: the slope is all or nothing, and depends on no neighbor."""
    rng = np.random.default_rng(0)
    n, m = 400, 64
    X = rng.normal(size=(n, m)) / 10
    grids = choose_grids(n, 1.0, 1.0)
    rows = on_grid(X, grids, "clip")
    x = grids.model(rng.normal(size=m))
    kinks = rows.X.astype(np.float64) @ x  # y is each record's own margin

    def hinge(u, y):
        return np.where(u < y, -1.0, 1.0)

    whole = clipped_sum(rows, x, kinks, hinge)
    alone = np.sum([clipped_sum(rows, x, kinks, hinge, np.array([r])) for r in range(n)], axis=0)
    assert np.array_equal(whole, alone) and np.array_equal(whole, clipped_sum(rows, x, kinks, lambda u, y: u * 0 + 1))


def test_the_tail_excludes_nobody():
    """A message that plain noise could not have made of one candidate; secure noise could, of either."""
    sigma, candidates = 1.0, np.array([[0.0], [0.5]])
    message = candidates[1] + (attacks.OLD_BOUND - 0.2) * sigma
    assert attacks.tail(message, candidates, sigma) == 1
    largest = 0.0
    for words in (1, 2, 4, 8):  # ever more zeros in front: ever larger
        scripted = Scripted(lambda level, block, which, words=words: 0 if level < words or which else 2**63)
        layer = Layer(scripted, np.array([0]), np.array([0]), np.array([0]), np.array([1.0]))
        found = Noise(1, np.array([2.0**-20]), [layer]).added_to(np.array([[0]]), 2.0**-41)[0, 0] * 2.0**-20
        assert found > max(largest, attacks.OLD_BOUND)
        largest = found
    assert attacks.tail(message, candidates, sigma, largest) is None


@pytest.mark.parametrize("law", list(NoiseKind), ids=lambda law: law.name.lower())
def test_an_old_secret_beside_a_new_ledger_replays_nothing(law):
    """Were the noise of two releases the same, their difference would be that of the sums."""
    secret, run = bytes(range(32)), b"the same plan"
    here = np.array([0])

    def release(sums, nonce):
        generator = generators(secret, run, nonce)[Purpose.NOISE]
        layer = Layer(generator, here, here, np.array([1]), np.array([100.0]))
        return Noise(M, np.array([2.0**-14]), [layer], law).added_to(sums, 2.0**-20) * 2.0**-14

    one, other = np.zeros((1, M), dtype=int), np.full((1, M), 2**20)
    again = release(other, bytes(32)) - release(one, bytes(32))
    assert np.allclose(again, 1.0, atol=2.0**-13)  # the very same run, resumed: the same noise
    fresh_ledger = release(other, bytes([1] * 32)) - release(one, bytes(32))
    assert np.min(np.abs(fresh_ledger - 1.0)) > 1e-3 and np.std(fresh_ledger) > 50
    words = [generators(secret, plan, bytes(32))[Purpose.NOISE].words(here, here, 0, 9) for plan in (run, b"other")]
    assert not np.any(words[0] == words[1])
