import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sottovoce import streams
from sottovoce.errors import SpecError
from sottovoce.secure.generator import Purpose as Secret
from sottovoce.secure.generator import fresh
from sottovoce.streams import Purpose, Streams, threefry

# known answers published with the generator (Random123, kat_vectors): rounds, counter, key -> output
KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x9D1C5EC6, 0x8BD50731)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0xFD36D048, 0x2D17272C)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xBA3E4725, 0xF27D669E)),
]


@pytest.mark.parametrize(("counter", "key", "output"), KNOWN)
def test_threefry_gives_the_published_answers(counter, key, output):
    x0, x1 = threefry(key, counter)
    assert (int(x0[0]), int(x1[0])) == output


def test_draws_do_not_depend_on_how_they_are_blocked():
    s = Streams(3)
    together = s.normals(np.array([0, 5, 9]), 17, 101)
    apart = np.vstack([s.normals(np.array([i]), 17, 101) for i in (0, 5, 9)])
    assert np.array_equal(together, apart)
    rounds = s.normals(np.array([4, 4]), np.array([8, 9]), 33)
    assert np.array_equal(rounds[1], s.normals(np.array([4]), 9, 33)[0])
    assert np.array_equal(s.uniforms(np.array([2]), 5, 0, 20)[0, 7:], s.uniforms(np.array([2]), 5, 7, 13)[0])


@given(st.integers(0, 2**63), st.integers(1, 64))
def test_seeds_reproduce_and_differ(seed, m):
    node = np.array([1])
    assert np.array_equal(Streams(seed).normals(node, 1, m), Streams(seed).normals(node, 1, m))
    assert not np.array_equal(Streams(seed).normals(node, 1, m), Streams(seed + 1).normals(node, 1, m))


def test_unseeded_streams_differ_and_say_so():
    a, b = Streams(), Streams()
    assert not a.seeded and Streams(0).seeded
    assert not np.array_equal(a.normals(np.array([0]), 1, 8), b.normals(np.array([0]), 1, 8))


def test_bad_seed_is_one_sentence():
    with pytest.raises(SpecError, match="whole number"):
        Streams(-1)


def _sample():
    s = Streams(11)
    return np.stack([s.normals(np.arange(20), t, 400) for t in range(1, 51)])  # rounds, nodes, coordinates


def test_noise_is_standard_normal_and_a_wrong_scale_is_rejected():
    draws = _sample().ravel()
    assert stats.kstest(draws, "norm").pvalue > 1e-3
    assert stats.kstest(draws * 0.97, "norm").pvalue < 1e-6
    assert stats.kstest(draws * 1.03, "norm").pvalue < 1e-6
    expected = 2 * stats.norm.sf(4.0) * draws.size
    assert abs(np.sum(np.abs(draws) > 4.0) - expected) < 5 * np.sqrt(expected)


@pytest.mark.parametrize("axis", [0, 1, 2], ids=["rounds", "nodes", "coordinates"])
def test_neighbouring_draws_are_uncorrelated(axis):
    draws = np.moveaxis(_sample(), axis, 0)
    a, b = draws[:-1].ravel(), draws[1:].ravel()
    for x, y in ((a, b), (a**2, b**2)):
        assert abs(stats.pearsonr(x, y).statistic) * np.sqrt(a.size) < 4.5


def test_noise_and_record_draws_are_independent_streams():
    s = Streams(5)
    noise = np.concatenate([s.normals(np.array([i]), t, 64)[0] for i in range(20) for t in range(1, 40)])
    records = np.concatenate([s.uniforms(np.array([i]), t, 0, 64)[0] for i in range(20) for t in range(1, 40)])
    assert stats.kstest(records, "uniform").pvalue > 1e-3
    assert 0 < records.min() and records.max() < 1
    assert abs(stats.pearsonr(noise, records).statistic) * np.sqrt(noise.size) < 4.5


def test_the_tail_is_not_cut_off(monkeypatch):
    """The 32-bit radius is refined where it matters: force the rare branch for all draws, and compare."""
    s = Streams(2)
    plain = s.normals(np.arange(50), 1, 2000)
    monkeypatch.setattr(streams, "TAIL", 1 << 32)
    refined = s.normals(np.arange(50), 1, 2000)
    assert not np.array_equal(plain, refined) and np.allclose(plain, refined, atol=1e-3)  # the same up to the low bits
    assert stats.kstest(refined.ravel(), "norm").pvalue > 1e-3


def test_the_largest_normal(monkeypatch):
    """All words zero: the smallest uniform is 2⁻⁶⁵, not 2⁻³³."""

    def zeros(key, counter):
        shape = np.broadcast(key[0], counter[0]).shape
        return np.zeros(shape, np.uint32), np.zeros(shape, np.uint32)

    s = Streams(2)
    monkeypatch.setattr(streams, "threefry", zeros)
    assert s.normals(np.array([0]), 1, 1)[0, 0] == pytest.approx(np.sqrt(2 * 65 * np.log(2)))


def test_purposes_never_meet():
    s = Streams(6)
    noise, records = s.key(streams.Purpose.NOISE), s.key(streams.Purpose.RECORDS)
    assert not np.array_equal(np.ravel(noise), np.ravel(records))


def test_the_public_schedule_does_not_move_the_noise():
    a, b = Streams(9), Streams(9)
    first = a.schedule().random(4)
    assert np.array_equal(first, b.schedule().random(4))
    assert np.array_equal(a.normals(np.array([2]), 3, 9), b.normals(np.array([2]), 3, 9))


DRAWN = []


@pytest.mark.parametrize("time", ["once", "again"])
def test_what_is_drawn_without_a_seed_is_the_same_in_every_run_of_a_test(time):
    """So that no test depends on luck; another draw of the same test is another one."""
    keys = [Streams(None).key(Purpose.NOISE)[0].tolist() for _ in range(2)]
    DRAWN.append([*keys, fresh(b"run")[Secret.NOISE].words(np.array([1]), np.array([1]), 0, 4).tolist()])
    assert keys[0] != keys[1] and os.urandom(8) != os.urandom(8)
    assert DRAWN == [DRAWN[0]] * len(DRAWN)
