"""The released noise has exactly its law; and every test here would notice a wrong one."""

import numpy as np
import opendp.prelude as dp
import pytest
from laws import cells_of, counted, expected, p_value
from scipy import stats

from sottovoce.secure.generator import Generator
from sottovoce.secure.noise import Layer, Noise, NoiseKind

FINE = 2.0**-41
TEN_MILLION = 10**7


def drawn(generator, count, scale, law=NoiseKind.GAUSSIAN, m=2000, first=0, compiled=True, sums=0):
    """Rounded noise on the whole numbers, (releases, m), in stretches that fit the cache."""
    left = count // m
    while left:
        rows = min(50, left)
        index = np.arange(rows)
        layer = Layer(generator, index, np.full(rows, 3), first + index, np.full(rows, float(scale)))
        whole = np.full((rows, m), sums)
        yield Noise(m, np.ones(rows), [layer], law, compiled).added_to(whole, FINE)
        first, left = first + rows, left - rows


def jointly_drawn(generator, count, scale, cells, law=NoiseKind.GAUSSIAN, **more):
    return sum(counted(values, cells) for values in drawn(generator, count, scale, law, **more))


@pytest.mark.parametrize("law", list(NoiseKind), ids=lambda law: law.name.lower())
def test_ten_million_draws_have_the_law_also_in_the_tail(generator, law):
    name, scale = law.name.lower(), 2.0**20 * 1.37
    cells = cells_of(scale, TEN_MILLION, name)
    counts = jointly_drawn(generator, TEN_MILLION, scale, cells, law)
    assert (expected(cells, scale, name)[[0, -1]] * TEN_MILLION < 10).all()  # the outermost cells are tails
    assert p_value(counts, cells, scale, name) > 1e-3
    for wrong in (scale * 1.005, scale / 1.005):
        assert p_value(counts, cells, wrong, name) < 1e-6


@pytest.mark.parametrize("scale", [0.4, 1.0, 2.5, 30.0])
@pytest.mark.parametrize("compiled", [False, True], ids=["NumPy", "native"])
def test_every_whole_number_has_its_own_probability(generator, scale, compiled):
    """Grids as coarse as the noise: counts with noise, rounded."""
    cells = np.arange(-int(6 * scale) - 1, int(6 * scale) + 2)
    counts = jointly_drawn(generator, 400_000, scale, cells, compiled=compiled)
    assert p_value(counts, cells, scale) > 1e-3
    assert p_value(counts, cells, scale * 1.02) < 1e-6
    assert p_value(counts, cells - 1, scale) < 1e-6


def test_a_sum_between_two_cells_shifts_the_law(generator):
    """S = 0.3 cells: what is released is round(0.3 + noise), not 0.3 rounded and noise rounded."""
    cells = np.arange(-6, 7)
    sums = int(0.3 / FINE)
    counts = sum(counted(v, cells) for v in drawn(generator, 400_000, 1.0, sums=sums))
    ends = np.append(cells + 0.5 - 0.3, np.inf)
    wanted = np.diff(stats.norm.cdf(ends), prepend=0.0) * counts.sum()
    assert stats.chisquare(counts[2:-2], wanted[2:-2] * counts[2:-2].sum() / wanted[2:-2].sum()).pvalue > 1e-3
    assert p_value(counts, cells, 1.0) < 1e-6


def test_a_lattice_of_the_old_generator_would_be_seen_as_a_law():
    """The test of the law itself can fail: noise from a coarse table has the wrong cells."""
    rng = np.random.default_rng(0)
    coarse = np.rint(np.round(rng.normal(size=10**6) * 8) / 8 * 2**20).astype(np.int64)
    cells = cells_of(2.0**20, 10**6)
    assert p_value(counted(coarse, cells), cells, 2.0**20) < 1e-6


def test_moments(generator):
    x = np.concatenate([v.ravel() for v in drawn(generator, 2 * 10**6, 2.0**20)]) * 2.0**-20
    n = len(x)
    for power, value, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        assert abs(np.mean(x**power) - value) < 4.5 * np.sqrt(variance / n), power


def test_pairs_and_neighbours_are_independent(generator):
    """Cosine and sine of a block, coordinates, rounds, nodes: uncorrelated, also their squares; and jointly uniform."""
    x = np.stack(list(drawn(generator, 200_000, 2.0**20, m=2000)))[:, :, :].reshape(-1, 2000) * 2.0**-20
    other = Layer(generator, np.arange(100), np.full(100, 4), np.arange(100), np.full(100, 2.0**20))
    y = Noise(2000, np.ones(100), [other]).added_to(np.zeros((100, 2000), dtype=int), FINE) * 2.0**-20
    couples = {
        "cosine and sine": (x[:, :1000], x[:, 1000:]),
        "coordinates": (x[:, 1:], x[:, :-1]),
        "rounds": (x[1:], x[:-1]),
        "nodes": (x, y),
    }
    for name, (a, b) in couples.items():
        a, b = a.ravel(), b.ravel()
        for f in (lambda v: v, np.square, np.abs, np.sign):
            assert abs(stats.pearsonr(f(a), f(b)).statistic) * np.sqrt(a.size) < 4.5, name
        table = np.histogram2d(stats.norm.cdf(a), stats.norm.cdf(b), bins=16, range=[[0, 1], [0, 1]])[0]
        assert stats.chisquare(table.ravel()).pvalue > 1e-3, name


def test_a_radius_that_two_coordinates_share_would_be_seen(generator):
    """Were cosine and sine not of independent angle, squares would be correlated: the test above can fail."""
    a, b = np.random.default_rng(0).normal(size=(2, 100_000))
    radius = np.random.default_rng(1).exponential(size=100_000)
    assert abs(stats.pearsonr((a * radius) ** 2, (b * radius) ** 2).statistic) * np.sqrt(100_000) > 4.5


def test_shared_noise_adds_and_cancels_as_it_should(generator):
    """Own noise and two shared ones: each release and each sum of two has the scale that is accounted."""
    rounds, m, own, ratio = 200, 1000, 2.0**12, 1.5
    index = np.arange(rounds)
    one = Layer(Generator(bytes(32)), index, np.full(rounds, 0), index, np.full(rounds, own))
    two = Layer(Generator(bytes([1] * 32)), index, np.full(rounds, 0), index, np.full(rounds, own))
    shared = Layer(generator, index, np.full(rounds, 9), index, np.full(rounds, ratio * own))
    zeros = np.zeros((rounds, m), dtype=int)
    a = Noise(m, np.ones(rounds), [one, shared]).added_to(zeros, FINE)
    b = Noise(m, np.ones(rounds), [two, shared._replace(scales=-shared.scales)]).added_to(zeros, FINE)
    size = rounds * m
    for values, scale in (
        (a, own * np.hypot(1, ratio)),
        (a + b, own * np.sqrt(2.0)),
        (a - b, own * np.sqrt(2 + 4 * ratio**2)),
    ):
        cells = cells_of(scale, size, most=100)
        assert p_value(counted(values, cells), cells, scale) > 1e-3
        assert p_value(counted(values, cells), cells, scale * 1.03) < 1e-6


def test_opendp_draws_the_same_law(generator):
    """OpenDP's exact Gaussian on the whole numbers, as a second oracle; at σ = 40 rounding adds 1/12 to 1600."""
    dp.enable_features("contrib")
    scale, count = 40.0, 40_000
    space = dp.vector_domain(dp.atom_domain(T=int), size=count), dp.l2_distance(T=float)
    theirs = np.array(dp.m.make_gaussian(*space, scale)([0] * count))
    ours = np.concatenate([v.ravel() for v in drawn(generator, count, scale, m=1000)])
    cells = cells_of(scale, count, most=40)
    table = np.array([counted(theirs, cells), counted(ours, cells)])
    assert stats.chi2_contingency(table[:, table.sum(axis=0) > 10]).pvalue > 1e-4
    wider = np.array([counted(theirs, cells), counted(np.rint(ours * 1.06).astype(int), cells)])
    assert stats.chi2_contingency(wider[:, wider.sum(axis=0) > 10]).pvalue < 1e-4
    assert p_value(counted(theirs, cells), cells, scale) > 1e-4
