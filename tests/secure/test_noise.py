"""Every released number is the correctly rounded one: against ball arithmetic with all bits from the start."""

import math
from fractions import Fraction

import numpy as np
import pytest
from exact_reference import releases
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st
from scripted import Scripted

from sottovoce.errors import PrivacyError
from sottovoce.secure import balls, noise
from sottovoce.secure.generator import Generator
from sottovoce.secure.noise import UNCERTAIN, Layer, Noise, NoiseKind, Same, release_grid, scale_of

SUM_GRID = 2.0**-41
BOTH = pytest.mark.parametrize("compiled", [False, True], ids=["NumPy", "native"])
LAWS = pytest.mark.parametrize("law", list(NoiseKind), ids=lambda law: law.name.lower())


def own(generator, rows, scale, first=0):
    """One source for each release."""
    index = np.arange(rows)
    return Layer(generator, index, index + first, index + 1, np.full(rows, scale))


def sums_of(rows, m, seed=0, bits=50):
    return np.random.default_rng(seed).integers(-(2**bits), 2**bits, (rows, m))


def counting(monkeypatch):
    """How many numbers went to ball arithmetic."""
    seen, real = [], balls.whole
    monkeypatch.setattr(balls, "whole", lambda value: seen.append(1) or real(value))
    return seen


@BOTH
@LAWS
def test_a_hundred_thousand_releases_are_correctly_rounded(generator, law, compiled):
    rows, m, scale = 80, 1251, 3.7
    made = Noise(m, np.full(rows, release_grid(scale, SUM_GRID)), [own(generator, rows, scale)], law, compiled)
    sums = sums_of(rows, m)
    assert np.array_equal(made.added_to(sums, SUM_GRID), releases(made, sums, SUM_GRID))


@BOTH
@LAWS
def test_also_where_one_in_ten_is_computed_again(generator, law, compiled, monkeypatch):
    rows, m, scale = 10, 1000, 0.3
    grid = release_grid(scale, SUM_GRID)
    plain = Noise(m, np.full(rows, grid), [own(generator, rows, scale)], law, compiled)
    sums = sums_of(rows, m, 1)
    monkeypatch.setattr(noise, "ERROR", 0.05 * grid / scale)
    doubtful = Noise(m, np.full(rows, grid), [own(generator, rows, scale)], law, compiled)
    again = counting(monkeypatch)
    found = doubtful.added_to(sums, SUM_GRID)
    assert 0.08 < len(again) / sums.size < 0.12
    assert np.array_equal(found, plain.added_to(sums, SUM_GRID))
    assert np.array_equal(found, releases(doubtful, sums, SUM_GRID))


@BOTH
@LAWS
@pytest.mark.parametrize("distance", [2.0**-10, 2.0**-18, 2.0**-21, 2.0**-30, 2.0**-45, 2.0**-58])
def test_sums_that_are_aimed_at_rounding_boundaries(generator, law, compiled, distance, monkeypatch):
    """S is chosen, by someone who knows the noise, to put S + noise that close to a boundary, on both sides."""
    rows, m, scale = 4, 60, 1.0
    sum_grid = 2.0**-80
    grids = np.full(rows, sum_grid * 2.0**60)
    made = Noise(m, grids, [own(generator, rows, scale)], law, compiled)
    sums = np.empty((rows, m), dtype=np.int64)
    side = np.where(np.arange(m) % 2, 1, -1)
    for row in range(rows):
        for j in range(m):
            here = made.exactly(row, j, 0, 60)  # the noise, rounded
            fine = _fine(made, row, j)  # and in units of the sums' grid
            boundary = (2 * here + 1) * 2**59
            sums[row, j] = boundary - fine + side[j] * math.ceil(distance * 2**60)
    again = counting(monkeypatch)
    found = made.added_to(sums, sum_grid)
    assert np.array_equal(found, releases(made, sums, sum_grid))
    assert len(again) == (sums.size if distance <= 2.0**-21 else 0)
    up = np.array([[made.exactly(row, j, 0, 60) + 1 for j in range(m)] for row in range(rows)])
    assert np.array_equal(found, up - (side < 0))


def _fine(made, row, j):
    """round(noise/sum grid) of one number, from a release on a grid that is 2⁶⁰ times finer."""
    layers = [layer._replace(scales=layer.scales * 2.0**60) for layer in made.layers]
    return Noise(made.m, made.grids, layers, made.law).exactly(row, j, 0, 0)


@BOTH
def test_the_approximation_is_far_better_than_its_bound(generator, compiled):
    """2⁻⁴⁰ is claimed and 2⁻⁴⁴ seen, of which the 48 bits of the angle are most: there is room for a worse libm."""
    rows, m = 2, 2000
    for law in NoiseKind:
        made = Noise(m, np.full(rows, 2.0**-30), [own(generator, rows, 1.0)], law, compiled)
        fine = Noise(m, np.full(rows, 2.0**-50), [own(generator, rows, 1.0)], law)
        exact = np.array([[fine.exactly(r, j, 0, 0) * 2.0**-20 for j in range(m)] for r in range(rows)])
        assert np.max(np.abs(made.approx - exact)) < 2.0**-44 * 2.0**30


def words_of(u: int, v: int, law=NoiseKind.GAUSSIAN):
    """(level, block, which) -> word, of one uniform with the bits u (a fraction of 2⁶⁴⁰) and another."""

    def word(level, block, which):
        split, bits = law.value, 704
        if level == 0 and which == 1:
            return (v << split) | (u >> (bits - 64 - split)) % 2**split
        if which == 1:
            return 0
        shift = bits - 64 if level == 0 else bits - 64 - split - 64 * level
        return (u >> shift) % 2**64 if shift >= 0 else 0

    return word


@BOTH
@LAWS
@pytest.mark.parametrize("zeros", [0, 1, 20, 39, 40, 41, 63, 64, 79, 80, 81, 130, 200, 500])
@pytest.mark.parametrize("ones", [False, True], ids=["small", "near one"])
def test_extreme_uniforms(law, compiled, zeros, ones):
    """A stream that begins with many zeros, or many ones: there is no largest noise, and no smallest."""
    body = 0xB504F333F9DE6484597D89B3754ABE9F1D6F60BA893BA84CED17AC85833399 << 456
    u = body >> max(0, body.bit_length() + zeros - 704)
    u = 2**704 - 1 - u if ones else u
    scripted = Scripted(words_of(u, 0x123456789ABC if law is NoiseKind.GAUSSIAN else 0, law))
    layer = own(scripted, 1, 1.0)
    grid = 2.0**-20
    made = Noise(5, np.array([grid]), [layer], law, compiled)
    sums = np.array([[0, 1, -1, 12345, -(2**50)]])
    found = made.added_to(sums, SUM_GRID)
    assert np.array_equal(found, releases(made, sums, SUM_GRID))
    if not ones and law is NoiseKind.LAPLACE:
        assert found[0, 0] * grid == pytest.approx((zeros + 0.5) * math.log(2), abs=1e-3)


def test_all_bits_zero_is_no_end(generator):
    """Four thousand bits of zeros: the radius goes on growing as the bits go on."""
    for levels in (1, 3, 60):
        scripted = Scripted(lambda level, block, which, levels=levels: 0 if level < levels or which else 2**63)
        made = Noise(1, np.array([2.0**-20]), [own(scripted, 1, 1.0)])
        value = made.added_to(np.array([[0]]), SUM_GRID)[0, 0] * 2.0**-20
        assert value == pytest.approx(math.sqrt(2 * math.log(2) * (80 + 64 * (levels - 1) + 1)), abs=1e-5)


@BOTH
def test_several_noises_are_added_before_the_one_rounding(generator, compiled):
    other = Generator(bytes(32))
    rows, m = 6, 333
    layers = [
        own(generator, rows, 2.0),
        Layer(other, np.array([0, 3]), np.array([9, 9]), np.array([4, 4]), np.array([1.3, -1.3])),
        Layer(other, np.array([3, 4, 5]), np.array([8, 8, 8]), np.array([1, 2, 3]), np.array([0.7, 0.0, 1e-6])),
    ]
    made = Noise(m, np.full(rows, release_grid(2.0, SUM_GRID)), layers, compiled=compiled)
    sums = sums_of(rows, m, 3)
    found = made.added_to(sums, SUM_GRID)
    assert np.array_equal(found, releases(made, sums, SUM_GRID))
    apart = Noise(m, made.grids, layers[:1], compiled=compiled).added_to(sums, SUM_GRID)
    changed = np.any(found != apart, axis=1)
    assert changed.tolist() == [True, False, False, True, False, True]


def test_what_two_share_cancels_up_to_the_rounding(generator):
    """The noise of a pair is the same real number at both ends."""
    rows, m, grid = 2, 5000, 2.0**-20
    both = Layer(generator, np.arange(2), np.array([7, 7]), np.array([1, 1]), np.array([5.0, -5.0]))
    found = Noise(m, np.full(rows, grid), [both]).added_to(np.zeros((2, m), dtype=int), SUM_GRID)
    assert np.max(np.abs(found.sum(axis=0))) <= 1 and np.std(found[0]) * grid == pytest.approx(5.0, rel=0.05)


@BOTH
@given(st.integers(0, 2**31), st.integers(1, 70), st.integers(0, 62), st.floats(1e-6, 1e6), st.integers(1, 9))
def test_releases_do_not_depend_on_who_is_drawn_with_whom(compiled, seed, m, shift, scale, rows):
    """Each row by itself, ahead of time or not, is the row of the whole; and its rounding is right."""
    generator = Generator(bytes([seed % 256]) * 32)
    grid = 2.0 ** (math.frexp(scale)[1] - 15)
    sum_grid = grid * 2.0**-shift
    made = Noise(m, np.full(rows, grid), [own(generator, rows, scale)], compiled=compiled)
    sums = sums_of(rows, m, seed, 61)
    found = made.added_to(sums, sum_grid)
    last = own(generator, rows, scale)._replace(rows=np.zeros(1, dtype=int))
    last = Layer(generator, np.array([0]), last.nodes[-1:], last.rounds[-1:], last.scales[-1:])
    alone = Noise(m, np.array([grid]), [last], compiled=not compiled).added_to(sums[-1:], sum_grid)
    assert np.array_equal(alone[0], found[-1])
    assert np.array_equal(made.added_to(sums[-1:], sum_grid, np.array([rows - 1]))[0], found[-1])
    j = seed % m
    assert found[-1, j] == made.exactly(rows - 1, j, int(sums[-1, j]), shift)


def test_long_rows_are_made_in_parts(generator):
    m, scale = 30_011, 1.0
    made = {c: Noise(m, np.array([2.0**-20]), [own(generator, 1, scale)], compiled=c) for c in (False, True)}
    sums = sums_of(1, m)
    assert np.array_equal(*(one.added_to(sums, SUM_GRID) for one in made.values()))
    nodes, rounds = made[False].layers[0].nodes, made[False].layers[0].rounds
    words = generator.words(nodes, rounds, 15_005, 1)[0, 0]
    with ctx.workprec(100):  # the last cosine of an odd number has no sine
        u, v = arb(int(words[0]) + 0.5) * 2.0**-64, arb(int(words[1])) * 2.0**-64
        expected = (-2 * u.log()).sqrt() * (2 * v).cos_pi()
    assert made[False].approx[0, 15_005] == pytest.approx(float(expected) * 2**20, abs=1e-3)


@BOTH
def test_rows_have_grids_and_scales_of_their_own(generator, compiled):
    scales = np.array([1e-3, 1.0, 50.0, 1.0])
    index = np.arange(4)
    layer = Layer(generator, index, index, index, scales)
    grids = np.array([release_grid(s, SUM_GRID) for s in scales])
    grids[3] = SUM_GRID
    made = Noise(100, grids, [layer], compiled=compiled)
    sums = sums_of(4, 100)
    assert np.array_equal(made.added_to(sums, SUM_GRID), releases(made, sums, SUM_GRID))


@BOTH
def test_without_noise_a_sum_is_rounded_to_even(compiled):
    made = Noise(6, np.array([1.0]), [], compiled=compiled)
    sums = np.array([[-6, -2, 2, 6, 7, 5]])  # quarters
    assert made.added_to(sums, 0.25).tolist() == [[-2, 0, 0, 2, 2, 1]]


@BOTH
def test_nan_is_never_taken_for_a_number(compiled):
    made = Noise(3, np.array([1.0]), [], compiled=compiled)
    made.approx[:] = [[math.nan, 2.25, math.nan]]
    values, _ = made._rounded(np.array([[1, 1, 1]]), np.array([0]), made.approx, made.error)
    assert values.tolist() == [[UNCERTAIN, 3, UNCERTAIN]]


def test_doubts_are_as_rare_as_they_should_be(generator, monkeypatch):
    again = counting(monkeypatch)
    made = Noise(1000, np.full(3000, 2.0**-20), [own(generator, 3000, 1.0)], compiled=True)
    made.added_to(np.zeros((3000, 1000), dtype=int), SUM_GRID)
    assert len(again) == pytest.approx(3e6 * 2**-19, abs=4 * math.sqrt(3e6 * 2**-19))


def test_grids_are_from_public_numbers():
    for scale in (1e-9, 0.75, 1.0, 1.5, 2.0, 3e7):
        grid = release_grid(scale, 2.0**-200)
        assert Fraction(scale) / 2 < Fraction(grid) * 2**20 <= Fraction(scale)
    assert release_grid(1.0, 2.0**-5) == 2.0**-5
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(PrivacyError, match="scale"):
            release_grid(bad, 1.0)


@given(st.lists(st.floats(1e-50, 1e50), min_size=1, max_size=4))
def test_scales_are_rounded_up(factors):
    exact = math.prod(map(Fraction, factors))
    assert exact <= Fraction(scale_of(*factors)) <= exact * Fraction(1 + 2.0**-52)


def test_what_cannot_be_rounded_is_refused(generator):
    layer = own(generator, 1, 1.0)
    for grid in (0.3, 0.0, -1.0, math.inf, math.nan):
        with pytest.raises(PrivacyError, match="power of two"):
            Noise(2, np.array([grid]), [layer])
    made = Noise(2, np.array([1.0]), [layer])
    for sum_grid in (0.3, 2.0, 2.0**-63, 0.0, math.inf, math.nan):
        with pytest.raises(PrivacyError, match="grid of sums"):
            made.added_to(np.zeros((1, 2), dtype=int), sum_grid)
    for sums in (np.zeros((1, 3), dtype=int), np.zeros((2, 2), dtype=int), np.zeros((1, 2))):
        with pytest.raises(PrivacyError, match="whole numbers"):
            made.added_to(sums, 1.0)
    for bad in (layer._replace(scales=np.array([math.inf])), layer._replace(rows=np.array([1]))):
        with pytest.raises(PrivacyError, match="layer"):
            Noise(2, np.array([1.0]), [bad])
    twice = Layer(generator, np.array([0, 0]), np.array([0, 1]), np.array([0, 0]), np.ones(2))
    with pytest.raises(PrivacyError, match="layer"):
        Noise(2, np.array([1.0]), [twice])
    for law, most in noise.SOURCES.items():
        with pytest.raises(PrivacyError, match=f"at most {most}"):
            Noise(2, np.array([1.0]), [layer] * (most + 1), law)
    many = np.arange(noise.SOURCES[NoiseKind.GAUSSIAN] + 1)
    many_nodes = Same(many, np.zeros_like(many), np.array([0, len(many)]), np.array([0]), np.ones(1))
    with pytest.raises(PrivacyError, match="at most"):
        Noise(2, np.array([1.0]), [layer._replace(same=many_nodes)])
    others = Same(np.array([3, 4]), np.zeros(2, dtype=int), np.array([0, 2]), np.array([0]), np.ones(1))
    with pytest.raises(PrivacyError, match="among those of its sum"):
        Noise(2, np.array([1.0]), [layer._replace(same=others)])


@pytest.mark.parametrize("compiled", [False, True])
def test_sums_that_several_releases_share_are_added_as_if_one_by_one(generator, compiled, monkeypatch):
    """Two rounds with three and two nodes: rounded as the noise terms alone say; also where all is computed again."""
    nodes, rounds = np.array([0, 2, 5, 1, 2]), np.array([1, 1, 1, 2, 2])
    off = np.array([0.75, 0.75, 0.75, -0.5, -0.5])
    same = Same(nodes, rounds, np.array([0, 3, 5]), np.array([0, 0, 0, 1, 1]), -off)
    rows, counts = np.arange(5), np.array([3, 3, 3, 2, 2])
    layer = Layer(generator, rows, nodes, rounds, counts * off, same)
    apart = [
        Layer(generator, rows, np.full(5, j), rounds, np.where(nodes == j, counts - 1, -1) * off * here)
        for j in range(6)
        for here in [np.array([j in (0, 2, 5)] * 3 + [j in (1, 2)] * 2)]
    ]
    m, grids = 301, np.full(5, 2.0**-20)
    sums = sums_of(5, m)
    expected = Noise(m, grids, apart).added_to(sums, 2.0**-24)
    made = Noise(m, grids, [layer], compiled=compiled)
    assert np.array_equal(made.added_to(sums, 2.0**-24), expected)
    exact = [[made.exactly(row, j, int(sums[row, j]), 4) for j in (0, 150, 151, 300)] for row in range(5)]
    assert np.array_equal(exact, expected[:, [0, 150, 151, 300]])
    total = made.approx[:3].sum(axis=0)
    assert np.all(np.abs(total) <= 1e-9 * np.abs(made.approx[:3]).sum(axis=0).max())  # what they share cancels


def test_a_generator_that_repeats_itself_is_noticed():
    """u = ½ forever, and an angle of a quarter: the noise is exactly zero, on a boundary for ever."""
    scripted = Scripted(lambda level, block, which: (2**63 if not which else 2**62) if level == 0 else 0)
    made = Noise(1, np.array([1.0]), [own(scripted, 1, 1.0)])
    with pytest.raises(PrivacyError, match="boundary"):
        made.added_to(np.array([[1]]), 0.5)
