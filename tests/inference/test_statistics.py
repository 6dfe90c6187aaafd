"""Sums for intervals: no two units' contributions are further apart than stated, and fast sums are those of units."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.errors import SpecError
from sottovoce.inference.models import Clipped, Logistic, Poisson
from sottovoce.inference.statistics import (
    Curvature,
    Gram,
    Inside,
    Scatter,
    Score,
    Square,
    Stage,
    packed,
    unpacked,
    weighted,
)

LONGEST = 1.3
THETA = np.array([4.0, -30.0, 0.5])
PARTS = [
    Gram(3, LONGEST),
    Gram(3, LONGEST, kappa=0.7),
    Score(Logistic(), THETA, LONGEST),
    Score(Clipped(0.4), THETA, LONGEST),
    Curvature(Logistic(), 0.1 * THETA, LONGEST, 0.2),
    Scatter(Logistic(), THETA, LONGEST),
    Scatter(Clipped(0.4), THETA, LONGEST),
    Inside(Clipped(0.4), 0.1 * THETA, LONGEST),
    Square(Clipped(0.4), 0.1 * THETA, LONGEST),
]
OF_COUNTS = [
    Score(Poisson(4.0), 0.1 * THETA, LONGEST),
    Curvature(Poisson(4.0), 0.1 * THETA, LONGEST, 1.5),
    Square(Poisson(4.0), 0.1 * THETA, LONGEST),
]
NUMBER = st.floats(-3, 3) | st.sampled_from([-1e200, 1e200, 0.0])
ROW = st.tuples(NUMBER, NUMBER, st.sampled_from([-1.0, 1.0, 0.2, 9.0]))


def rows_of(people):
    """Rows (x, x', y) of these people, with the constant."""
    values = np.array([row for person in people for row in person])
    x = np.concatenate([values[:, :2], np.ones((len(values), 1))], axis=1)
    return weighted(x, values[:, 2], LONGEST, np.array([len(person) for person in people]))


@pytest.mark.parametrize("part", [*PARTS, *OF_COUNTS], ids=lambda part: type(part).__name__)
@given(two=st.tuples(*[st.lists(ROW, min_size=1, max_size=4)] * 2))
def test_no_two_units_are_further_apart_than_the_sensitivity(part, two):
    one, other = part.units(rows_of(two))
    assert np.linalg.norm(one - other) <= part.sensitivity * (1 + 1e-12)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_sensitivities_are_no_more_than_twice_what_is_attained(part):
    """Of many records two are at least half as far apart: a sensitivity that were far too large would waste budget."""
    rng = np.random.default_rng(1)
    x = np.concatenate([3 * rng.normal(size=(4000, 2)) * [1.0, 0.1], np.ones((4000, 1))], axis=1)
    units = part.units(weighted(x, rng.choice([-1.0, 1.0], 4000), LONGEST))
    far = units[np.argmax(np.linalg.norm(units - units[0], axis=1))]
    apart = np.linalg.norm(units - far, axis=1).max()
    assert 0.5 * part.sensitivity < apart <= part.sensitivity


@pytest.mark.parametrize("people", [False, True])
@pytest.mark.parametrize("part", [*PARTS, *OF_COUNTS], ids=lambda part: type(part).__name__)
def test_fast_sums_are_those_of_the_units(part, people):
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.normal(size=(60, 2)), np.ones((60, 1))], axis=1)
    counts = np.array([1, 2, 3, 4, 5] * 4) if people else None
    rows = weighted(x, rng.choice([-1.0, 1.0], 60), LONGEST, counts)
    units = part.units(rows)
    assert units.shape == (20 if people else 60, part.width)
    assert np.allclose(part.total(rows), units.sum(axis=0), atol=1e-12)


@pytest.mark.parametrize("part", [*PARTS, *OF_COUNTS], ids=lambda part: type(part).__name__)
def test_a_units_numbers_do_not_depend_on_the_others(part):
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(size=(50, 2)), np.ones((50, 1))], axis=1)
    y = rng.choice([-1.0, 1.0], 50)
    together = part.units(weighted(x, y, LONGEST))
    for k in (0, 17, 49):
        assert np.array_equal(part.units(weighted(x[k : k + 1], y[k : k + 1], LONGEST))[0], together[k])


def test_packing_keeps_lengths():
    """Of symmetric matrices, and is undone."""
    rng = np.random.default_rng(4)
    matrix = rng.normal(size=(5, 5))
    matrix += matrix.T
    assert np.linalg.norm(packed(matrix)) == pytest.approx(np.linalg.norm(matrix))
    assert np.allclose(unpacked(packed(matrix)), matrix)


def test_noise_in_a_matrix_is_smaller_off_the_diagonal():
    """s and s/√2, as the covariance of an estimate takes it to be; 20,000 draws know a deviation to 0.5 %."""
    noise = np.random.default_rng(5).normal(size=(20_000, 3))
    made = np.array([unpacked(each) for each in noise])
    assert np.std(made[:, 0, 0]) == pytest.approx(1.0, rel=0.03)
    assert np.std(made[:, 0, 1]) == pytest.approx(math.sqrt(0.5), rel=0.03)


def test_a_stage_takes_its_share():
    stage = Stage([Gram(3, LONGEST), Score(Logistic(), THETA, LONGEST)], [0.3, 0.2])
    assert stage.diameter(0.8) == pytest.approx(math.sqrt(0.8 * 0.5))
    mean = np.arange(float(stage.width))
    noisy = stage.read(mean, 0.1, 0.8)
    assert noisy.deviations[1] == pytest.approx(0.1 * 2 * LONGEST / math.sqrt(0.8 * 0.2))
    assert np.allclose(noisy.values[1], mean[6:] * noisy.deviations[1] / 0.1)
    with pytest.raises(SpecError, match="share of the budget"):
        Stage([Gram(3, LONGEST)], [])
