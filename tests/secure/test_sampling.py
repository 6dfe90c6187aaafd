"""Batches have exactly the law that is accounted."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scripted import Scripted

from sottovoce.errors import PrivacyError
from sottovoce.secure import balls, sampling
from sottovoce.secure.generator import Generator
from sottovoce.secure.sampling import below, fixed, poisson

BOTH = pytest.mark.parametrize("compiled", [False, True], ids=["NumPy", "native"])


def pairs(count):
    return np.arange(count), np.arange(count)[::-1]


def test_every_record_is_drawn_on_its_own_with_probability_b_over_q(generator):
    rounds, q, b = 40_000, 12, 3
    drawn = poisson(generator, *pairs(rounds), np.full(rounds, q), np.full(rounds, b))
    there = np.zeros((rounds, q), dtype=bool)
    for row, records in zip(there, drawn, strict=True):
        assert np.all(np.diff(records) > 0)
        row[records] = True
    squares = np.square(there.sum(axis=0) - rounds * b / q) / (rounds * b / q * (1 - b / q))
    assert stats.chi2.sf(squares.sum(), q) > 1e-3
    sizes = np.bincount(there.sum(axis=1), minlength=q + 1)
    wanted = stats.binom.pmf(np.arange(q + 1), q, b / q) * rounds
    assert stats.chisquare(np.append(sizes[:9], sizes[9:].sum()), np.append(wanted[:9], wanted[9:].sum())).pvalue > 1e-3
    table = np.bincount(there[:, :6] @ (2 ** np.arange(6)), minlength=64)  # six records: all 64 sets
    ones = np.array([bin(k).count("1") for k in range(64)])
    assert stats.chisquare(table, 0.25**ones * 0.75 ** (6 - ones) * rounds).pvalue > 1e-3
    assert stats.chisquare(table, 0.26**ones * 0.74 ** (6 - ones) * rounds).pvalue < 1e-4


def reference_gaps(generator, node, round, count, rate):
    """With three words of every uniform at once, and intervals."""
    found = []
    levels = [
        generator.words(np.array([node]), np.array([round]), 0, count // 2, level).reshape(-1) for level in range(3)
    ]
    with ctx.workprec(400):
        for i in range(count):
            bits = sum(int(level[i]) << (64 * (2 - k)) for k, level in enumerate(levels))
            u = arb(bits) / arb(2) ** 192
            gap = (u.log() / (1 - arb(rate.numerator) / rate.denominator).log()).floor().unique_fmpz()
            assert gap is not None
            found.append(int(gap))
    return found


@pytest.mark.parametrize(("q", "b"), [(10, 1), (10, 9), (1000, 3), (1000, 999), (10**6, 1000), (10**9, 5)])
@pytest.mark.parametrize("error", [None, 0.05], ids=["usual", "one in ten computed again"])
@BOTH
def test_gaps_are_exact(generator, q, b, error, compiled, monkeypatch):
    seen, real = [], balls.whole
    monkeypatch.setattr(balls, "whole", lambda value: seen.append(1) or real(value))
    rate = Fraction(b, q)
    if error is not None:
        scale = sampling._mean_gaps(np.array([q]), np.array([b]))[0]
        monkeypatch.setattr(sampling, "ERROR", error / (2 * scale))
    count = 0
    for node in range(40):
        here = np.array([node]), np.array([7])
        drawn = poisson(generator, *here, np.array([q]), np.array([b]), compiled)[0]
        gaps = np.array(reference_gaps(generator, node, 7, len(drawn) // 2 * 2 + 2, rate)) + 1
        assert drawn.tolist() == (np.cumsum(gaps)[: len(drawn)] - 1).tolist()
        assert np.cumsum(gaps)[len(drawn)] - 1 >= q
        count += len(drawn) + 1
    assert (len(seen) > 0.02 * count) == (error is not None)


@BOTH
def test_uniforms_at_the_ends(compiled):
    """Words of zeros, of ones, and none certain: the next words decide."""
    for first in (0, 2**64 - 1, 2**43, 1):
        scripted = Scripted(lambda level, block, which, first=first: first if level == 0 else 2**63 + 12345 * block)
        found = poisson(scripted, np.array([0]), np.array([0]), np.array([5000]), np.array([50]), compiled)[0]
        with ctx.workprec(300):
            u = arb(first * 2**64 + 2**63) / arb(2) ** 128
            gap = int((u.log() / (1 - arb(1) / 100).log()).floor().unique_fmpz())
        assert found[:1].tolist() == [gap] * (gap < 5000)


@pytest.mark.parametrize(("q", "b"), [(10, 3), (1000, 1), (1000, 500), (7, 6), (10**6, 64)])
@pytest.mark.parametrize("k", [1, 2, 3, 7])
@pytest.mark.parametrize("side", [-1, 1], ids=["below", "above"])
def test_uniforms_that_are_aimed_at_a_boundary_between_two_gaps(q, b, k, side):
    """u agrees with (1 − b/q)ᵏ to 127 bits, and is smaller or larger by the last one: the gap is k, or k − 1."""
    first, second = divmod((q - b) ** k * 2**128 // q**k + side, 2**64)
    scripted = Scripted(lambda level, block, which: (first, second, 0)[min(level, 2)])
    scale = sampling._mean_gaps(np.array([q]), np.array([b]))
    word, sizes = np.array([[first]], dtype=np.uint64), np.array([[q]])
    for gaps, doubts in (find(word, scale[:, None], sizes) for find in (sampling._gaps, sampling._gaps_compiled)):
        assert gaps.tolist() == [[-1]] and doubts == 1
    assert sampling._exact_gap(scripted, (0, 0, 0), 0, Fraction(b, q)) == (k if side < 0 else k - 1)


@given(st.integers(0, 10**6), st.integers(1, 3000), st.integers(1, 60))
def test_pairs_do_not_depend_on_each_other(seed, q, count):
    generator = Generator(bytes([seed % 256]) * 32)
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, q + 1, count)
    batches = rng.integers(1, sizes + 1)
    nodes, rounds = rng.integers(0, 100, count), rng.integers(0, 10**6, count)
    together = poisson(generator, nodes, rounds, sizes, batches)
    k = seed % count
    one = slice(k, k + 1)
    assert np.array_equal(together[k], poisson(generator, nodes[one], rounds[one], sizes[one], batches[one])[0])
    fast = poisson(generator, nodes, rounds, sizes, batches, compiled=True)
    assert all(np.array_equal(*both) for both in zip(together, fast, strict=True))
    if batches[k] == sizes[k]:
        assert np.array_equal(together[k], np.arange(sizes[k]))
    same = fixed(generator, nodes, rounds, sizes, 1)
    assert np.array_equal(same[k], fixed(generator, nodes[one], rounds[one], sizes[one], 1)[0])
    assert 0 <= same[k][0] < sizes[k]


def test_every_set_of_three_is_equally_likely(generator):
    rounds = 30_000
    drawn = fixed(generator, *pairs(rounds), np.full(rounds, 7), 3)
    sets = {s: 0 for s in itertools.combinations(range(7), 3)}
    for records in drawn:
        sets[tuple(sorted(records.tolist()))] += 1
    assert stats.chisquare(list(sets.values())).pvalue > 1e-3


def test_whole_numbers_are_exactly_uniform(generator):
    limits = np.tile([3, 10, 1000], (20_000, 1))
    found = below(generator, *pairs(20_000), limits)
    assert stats.chisquare(np.bincount(found[:, 0], minlength=3)).pvalue > 1e-3
    assert stats.chisquare(np.bincount(found[:, 1], minlength=10)).pvalue > 1e-3
    assert stats.chisquare(np.bincount(found[:, 2], minlength=1000)).pvalue > 1e-3


@pytest.mark.parametrize("limit", [1, 3, 10, 2**20, 2**62 + 1, 2**63 - 1])
def test_the_incomplete_stretch_is_drawn_again(limit):
    """A word of the last 2⁶⁴ mod k gives way to the next level's; one just below does not."""
    whole = 2**64 // limit * limit
    for word in {0, limit - 1, limit % 2**64, whole - 1, min(whole, 2**64 - 1), 2**64 - 1}:
        scripted = Scripted(lambda level, block, which, word=word: word if level < 2 else 5)
        found = below(scripted, np.array([0]), np.array([0]), np.array([[limit]]))[0, 0]
        assert found == (word if word < whole else 5) % limit


def test_floyd_s_algorithm():
    """Checked by all choices: of b picks every set comes out equally often."""
    seen: dict[tuple[int, ...], int] = {}
    for picks in itertools.product(range(3), range(4), range(5)):
        drawn = tuple(sorted(sampling._floyd(list(picks), 5).tolist()))
        seen[drawn] = seen.get(drawn, 0) + 1
    assert len(seen) == 10 and set(seen.values()) == {6}


def test_batches_that_cannot_be_drawn_are_refused(generator):
    here = np.array([0])
    for q, b in ((5, 6), (5, 0)):
        with pytest.raises(PrivacyError, match="batch"):
            poisson(generator, here, here, np.array([q]), np.array([b]))
        with pytest.raises(PrivacyError, match="batch"):
            fixed(generator, here, here, np.array([q]), b)
