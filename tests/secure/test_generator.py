import hashlib
import hmac
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sottovoce.errors import PrivacyError
from sottovoce.secure.generator import BLOCKS, LEVELS, NUMBERS, Generator, Purpose, fresh, generators


def test_a_block_is_the_cipher_of_its_address():
    """The known answer of FIPS 197 for AES-256: the plaintext, read as an address."""
    generator = Generator(bytes(range(32)))
    words = generator.words(np.array([0x77665544]), np.array([0x33221100]), 0xDDCCBBAA9988, 1, level=0xFFEE)
    assert words.astype("<u8").tobytes().hex() == "8ea2b7ca516745bfeafc49904b496089"


@given(st.integers(0, NUMBERS - 50), st.integers(0, NUMBERS - 50), st.integers(0, BLOCKS - 300), st.integers(0, 9))
def test_draws_do_not_depend_on_how_they_are_blocked(node, round, first, level):
    generator = Generator(bytes(range(32)))
    nodes, rounds = node + np.arange(40), round + np.arange(40)[::-1]
    whole = generator.words(nodes, rounds, first, 300, level)
    assert whole.shape == (40, 300, 2)
    assert np.array_equal(whole[7:9, 100:], generator.words(nodes[7:9], rounds[7:9], first + 100, 200, level))


def test_more_blocks_than_are_encrypted_at_a_time(generator):
    here = np.array([3])
    whole = generator.words(here, here, 0, 10_000)
    assert np.array_equal(whole[:, 9_000:], generator.words(here, here, 9_000, 1_000))
    many = generator.words(np.arange(9_000), np.zeros(9_000, dtype=int), 5, 1)
    assert np.array_equal(many[8_765], generator.words(np.array([8_765]), np.array([0]), 5, 1)[0])
    assert generator.words(here[:0], here[:0], 0, 4).shape == (0, 4, 2)


def test_threads_agree(generator):
    def draw(k):
        return generator.words(np.arange(5), np.full(5, k), 0, 500)

    alone = [draw(k) for k in range(40)]
    with ThreadPoolExecutor(4) as pool:
        assert all(np.array_equal(a, b) for a, b in zip(alone, pool.map(draw, range(40)), strict=True))


def test_words_of_different_addresses_are_different(generator):
    here = np.array([1]), np.array([1])
    seen = [generator.words(*here, 0, 50, level) for level in range(5)]
    seen += [generator.words(np.array([n]), np.array([r]), 0, 50) for n, r in ((0, 1), (1, 0), (2, 1), (1, 2))]
    assert len(np.unique(np.concatenate([s.ravel() for s in seen]))) == 9 * 100
    levels = [next_two for next_two, _ in zip(generator.continuation(1, 1, 7), range(4), strict=False)]
    assert [list(two) for two in levels] == [s[0, 7].tolist() for s in seen[1:5]]


def test_the_keys_are_those_of_hkdf():
    """RFC 5869, written out."""
    secret, run, nonce = bytes(range(32)), b"digest", bytes(range(100, 132))
    info = b"".join(len(p).to_bytes(8, "little") + p for p in (b"sottovoce secure release 1", run, b"records"))
    prk = hmac.digest(nonce, secret, hashlib.sha256)
    key = hmac.digest(prk, info + b"\x01", hashlib.sha256)
    here = np.array([0])
    expected = Generator(key).words(here, here, 0, 3)
    assert np.array_equal(generators(secret, run, nonce)[Purpose.RECORDS].words(here, here, 0, 3), expected)


def test_every_part_of_a_key_matters():
    base = (bytes(32), b"run", bytes(32))
    others = [(bytes(31) + b"\x01", *base[1:]), (base[0], b"ru", base[2]), (*base[:2], b"\x01" + bytes(31))]
    here, seen = np.array([0]), []
    for parts in [base, *others]:
        seen += [g.words(here, here, 0, 4).ravel() for g in generators(*parts).values()]
    assert len(np.unique(np.concatenate(seen))) == 4 * len(Purpose) * 8


def test_unseeded_runs_share_nothing():
    here = np.array([0])
    a, b = (fresh()[Purpose.NOISE].words(here, here, 0, 100) for _ in range(2))
    assert not np.any(a == b)


def test_a_key_is_neither_printed_nor_written_down(generator):
    assert bytes(range(32)).hex() not in repr(generator) and str(generator) == "Generator(…)"
    with pytest.raises(PrivacyError, match="secret"):
        pickle.dumps(generator)


def test_what_has_no_address_is_refused(generator):
    here, far = np.array([0]), np.array([NUMBERS])
    for bad in (far, np.array([-1]), np.array([0.5])):
        with pytest.raises(PrivacyError, match="whole numbers"):
            generator.words(bad, here, 0, 1)
        with pytest.raises(PrivacyError, match="whole numbers"):
            generator.words(here, bad, 0, 1)
    for first, count, level in ((-1, 1, 0), (BLOCKS, 1, 0), (BLOCKS - 1, 2, 0), (0, 1, LEVELS), (0, 1, -1)):
        with pytest.raises(PrivacyError, match="blocks"):
            generator.words(here, here, first, count, level)
    with pytest.raises(PrivacyError, match="32 bytes"):
        Generator(bytes(16))
    with pytest.raises(PrivacyError, match="nonce"):
        generators(bytes(32), b"", bytes(8))


def test_words_are_uniform_and_neighbours_unrelated(generator):
    words = generator.words(np.arange(20), np.arange(20), 0, 5_000)
    bytes_ = np.bincount(words.view(np.uint8).ravel(), minlength=256)
    assert stats.chisquare(bytes_).pvalue > 1e-3
    values = words * 2.0**-64
    for a, b in ((values[:, :, 0], values[:, :, 1]), (values[1:], values[:-1]), (values[:, 1:], values[:, :-1])):
        assert abs(stats.pearsonr(a.ravel(), b.ravel()).statistic) * np.sqrt(a.size) < 4.5


def test_nothing_slow_is_loaded_before_it_is_used():
    parts = "balls, functions, generator, noise, sampling, sums"
    code = f"import sys\nfrom sottovoce.secure import {parts}\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "sottovoce.secure.sums" in loaded and not {"sottovoce._native", "flint", "cryptography"} & set(loaded)
