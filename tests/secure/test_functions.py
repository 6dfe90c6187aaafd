"""The same bits in every lane: wherever an element stands, however many stand beside it."""

import math

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from sottovoce import _native
from sottovoce.secure.functions import exp, halved_sum, lengths, logistic_slope, softmax_slope

RNG = np.random.default_rng(0)
MARGINS = np.concatenate([RNG.normal(size=600) * 10.0 ** RNG.integers(-12, 3, 600), [0.0, -0.0, 700.0, -700.0, 1e9]])
SIGNS = np.where(RNG.random(len(MARGINS)) < 0.5, 1.0, -1.0)


def bits(x):
    return np.ascontiguousarray(x).view(np.int64)


@pytest.mark.parametrize("f", [lambda u, y: exp(u), logistic_slope], ids=["exp", "logistic"])
def test_an_element_has_the_same_bits_everywhere(f):
    whole = f(MARGINS, SIGNS)
    alone = np.concatenate([f(MARGINS[i : i + 1], SIGNS[i : i + 1]) for i in range(len(MARGINS))])
    assert np.array_equal(bits(whole), bits(alone))
    for first in range(9):
        for count in (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 33, 100):
            some = slice(first, first + count)
            assert np.array_equal(bits(f(MARGINS[some], SIGNS[some])), bits(whole[some]))
    for step in (2, 3, -1):
        assert np.array_equal(bits(f(MARGINS[::step], SIGNS[::step])), bits(whole[::step]))
    order = RNG.permutation(len(MARGINS))
    assert np.array_equal(bits(f(MARGINS[order], SIGNS[order])), bits(whole[order]))


def test_softmax_s_rows_have_the_same_bits_everywhere():
    for classes in (2, 3, 5, 8, 17):
        u, y = RNG.normal(size=(300, classes)) * 5, RNG.integers(0, classes, 300)
        whole = softmax_slope(u, y)
        assert np.array_equal(bits(whole[7:8]), bits(softmax_slope(u[7:8], y[7:8])))
        assert np.array_equal(bits(whole[::3]), bits(softmax_slope(u[::3], y[::3])))
        assert np.array_equal(bits(whole), bits(softmax_slope(np.asfortranarray(u), y)))
        p = np.exp(u) / np.exp(u).sum(axis=1, keepdims=True)
        assert np.allclose(whole, p - (y[:, None] == np.arange(classes)), rtol=0, atol=1e-15)


@given(st.floats(-700, 700))
def test_exp_is_right_to_the_last_bits_and_native_to_the_same(v):
    found = float(exp(np.array([v]))[0])
    alone = np.array([v])
    _native.exp(alone)
    assert found == alone[0]
    with ctx.workprec(200):
        assert abs(float(arb(found) / arb(v).exp() - 1)) < 2.0**-51


@pytest.mark.parametrize("instructions", _native.instruction_sets())
def test_native_exp_has_the_same_bits(instructions):
    best = _native.instruction_set()
    _native.use(instructions)
    try:
        found = MARGINS.copy()
        _native.exp(found)
    finally:
        _native.use(best)
    assert np.array_equal(bits(exp(MARGINS)), bits(found))


def test_logistic_slopes():
    assert np.allclose(logistic_slope(MARGINS, SIGNS), -SIGNS / (1 + np.exp(np.clip(SIGNS * MARGINS, -700, 700))))
    assert np.all(np.abs(logistic_slope(MARGINS, SIGNS)) <= 1.0)


@given(st.lists(st.floats(-1e100, 1e100), max_size=40), st.integers(1, 4))
def test_sums_and_lengths_of_a_row_do_not_depend_on_the_others(row, others):
    row = np.array(row, dtype=np.float64)
    table = np.vstack([RNG.normal(size=(others, len(row))), row])
    for f in (halved_sum, lengths):
        assert np.array_equal(bits(f(table)[-1:]), bits(f(row[None])))
        assert np.array_equal(bits(f(np.asfortranarray(table))[-1:]), bits(f(row)[None]))
    assert float(lengths(row)) == pytest.approx(math.hypot(*row), rel=1e-14)
    assert float(halved_sum(row)) == pytest.approx(math.fsum(row), rel=1e-12, abs=1e-14 * float(np.sum(np.abs(row))))


def test_lengths_at_the_ends_of_the_range():
    found = lengths(np.array([[3e200, 4e200], [3e-200, 4e-200], [0.0, 0.0]])).tolist()
    assert found == pytest.approx([5e200, 5e-200, 0.0], rel=1e-15, abs=0.0)
