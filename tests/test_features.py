"""Maps of columns: bounded by construction, written down and read back, each row from itself alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from sottovoce.errors import DataError, SpecError
from sottovoce.features import (
    ADDITIVE_OR_LINEAR,
    CELLS,
    CENTERS,
    EDGES,
    LINEAR,
    PAIR_ORDER,
    PAIR_WEIGHT,
    Additive,
    densified,
    every_pair,
    legendre,
)


@st.composite
def maps(draw):
    d, others = draw(st.integers(1, 4)), draw(st.integers(0, 3))
    places = draw(st.permutations(range(d + others)))[:d]
    ends = st.floats(-1e6, 1e6)
    numeric = []
    for place in places:
        low = draw(ends)
        numeric.append((place, low, low + draw(st.floats(1e-3, 1e6))))
    pairs = tuple(draw(st.lists(st.sampled_from(every_pair(d)), unique=True))) if d > 1 else ()
    return Additive(
        d + others,
        tuple(numeric),
        draw(st.floats(0.1, 10)) if others else 0.0,
        draw(st.sampled_from(["legendre", "cosine"])),
        draw(st.integers(1, 20)),
        draw(st.sampled_from([0.0, 0.5, 1.0, 2.0])),
        draw(st.booleans()),
        pairs,
    )


values = st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.floats(-1e6, 1e6))


@settings(deadline=None, max_examples=150)
@given(maps(), st.data())
def test_no_row_is_over_the_norm_whatever_it_holds(additive, data):
    row = np.array([[data.draw(values) for _ in range(additive.columns)]])
    others = row[:, additive.others]
    row[:, additive.others] = np.where(np.isfinite(others), np.clip(others, -1e100, 1e100), 0.0)  # as nodes read them
    F = [np.sort([data.draw(st.floats(0, 1)) for _ in range(CELLS)]).tolist() for _ in range(additive.d)]
    for known in (None, F):
        found = additive.rows(row, known)
        assert found.shape == (1, additive.width)
        assert np.linalg.norm(found) <= additive.norm * (1 + 1e-12)


@settings(deadline=None)
@given(maps())
def test_a_map_is_read_back_from_its_text(additive):
    assert ADDITIVE_OR_LINEAR.read(str(additive)) == additive
    assert ADDITIVE_OR_LINEAR.read("linear") == LINEAR


@settings(deadline=None)
@given(maps())
def test_every_feature_belongs_to_one_column_or_pair(additive):
    listed = [k for j in range(additive.d) for k in additive.features_of(j)]
    listed += [additive.feature_of(place) for place in additive.others]
    listed += [k for p in range(len(additive.pairs)) for k in additive.features_of_pair(p)]
    assert sorted(listed) == list(range(additive.width)) and len(additive.names()) == additive.width


def test_the_norm_is_attained_at_a_corner():
    additive = Additive(3, ((0, 0.0, 1.0), (2, -1.0, 1.0)), rest=2.0, degree=5, distribution=True, pairs=((0, 1),))
    assert np.linalg.norm(additive.rows(np.array([[1.0, 9.0, 1.0]]))) == pytest.approx(additive.norm, rel=1e-12)


def test_functions_are_those_of_the_formula():
    x = np.linspace(-1, 1, 41)
    expected = np.polynomial.legendre.legvander(x, 8)[:, 1:]
    assert np.allclose(legendre(x, range(1, 9)), expected, atol=1e-12)
    additive = Additive(1, ((0, 10.0, 30.0),), basis="cosine", degree=3, decay=1.0)
    u = np.array([0.0, 0.25, 1.0])
    found = additive.rows((10 + 20 * u)[:, None])
    assert np.allclose(found[:, 1:], np.cos(np.pi * u[:, None] * [1, 2, 3]) / [1, 2, 3])
    pair = Additive(2, ((0, -1.0, 1.0), (1, -1.0, 1.0)), degree=1, pairs=((0, 1),))
    found = pair.rows(np.array([[0.5, -0.25]]))[0, 2:].reshape(PAIR_ORDER, PAIR_ORDER)
    assert found[0, 0] == pytest.approx(PAIR_WEIGHT * 0.5 * -0.25)


def test_a_known_distribution_is_a_feature_or_moves_the_cosines():
    F = [(np.sqrt(CENTERS)).tolist()]
    u = np.array([[0.25], [0.81]])
    feature = Additive(1, ((0, 0.0, 1.0),), basis="cosine", degree=2, distribution=True).rows(u, F)
    assert np.allclose(feature[:, 1], 2 * np.interp(u[:, 0], CENTERS, F[0]) - 1)
    assert np.allclose(feature[:, 2], np.cos(np.pi * u[:, 0]))
    mixed = Additive(1, ((0, 0.0, 1.0),), basis="cosine", degree=2).rows(u, F)
    assert np.allclose(mixed[:, 1], np.cos(np.pi * (u[:, 0] + np.interp(u[:, 0], CENTERS, F[0])) / 2))


def test_storage_and_the_other_records_make_no_difference():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 4)) * (rng.random((50, 4)) < 0.5)
    additive = Additive(4, ((1, -2.0, 2.0), (3, 0.0, 1.0)), rest=1.0, distribution=True)
    whole = additive.rows(X)
    assert np.array_equal(additive.rows(sparse.csr_array(X)), whole)
    assert np.array_equal(np.concatenate([additive.rows(X[k : k + 1]) for k in range(50)]), whole)
    assert isinstance(densified(sparse.csr_array(X), 200), np.ndarray)
    assert not isinstance(densified(sparse.csr_array(X), 199), np.ndarray)


def test_cells_cover_the_bounds():
    assert len(EDGES) == CELLS + 1 and EDGES[0] == 0 and EDGES[-1] == 1 and np.all(np.diff(EDGES) > 0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"numeric": ()}, "numeric columns"),
        ({"numeric": ((2, 0.0, 1.0),)}, "one of the 2"),
        ({"numeric": ((0, 1.0, 1.0),)}, "low < high"),
        ({"rest": 0.0}, "bound on their norm"),
        ({"degree": 99}, "functions"),
        ({"basis": "sine"}, "legendre"),
        ({"pairs": ((0, 0),)}, "pairs"),
    ],
)
def test_what_bounds_nothing_is_refused(wrong, message):
    with pytest.raises(SpecError, match=message):
        Additive(**({"columns": 2, "numeric": ((0, 0.0, 1.0),), "rest": 1.0} | wrong))
    with pytest.raises(DataError, match="2 columns"):
        Additive(2, ((0, 0.0, 1.0),), 1.0).rows(np.zeros((3, 5)))
