"""Laws of the dual step, over one list of regularizers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from sottovoce import testing
from sottovoce.errors import SpecError
from sottovoce.problem.regularizers import REGULARIZERS, Entropy, Euclidean, Simplex, project_simplex

CASES = {
    "l2": REGULARIZERS.make("l2", mu=0.3),
    "l1": REGULARIZERS.make("l1", phi=0.7),
    "elastic_net": REGULARIZERS.make("elastic_net", phi=0.4, mu=0.2),
    "box": REGULARIZERS.make("box", lo=-0.5, hi=2.0, mu=0.1),
    "box_off_zero": REGULARIZERS.make("box", lo=0.25, hi=1.0),
    "non_negative": REGULARIZERS.make("non_negative"),
    "none": REGULARIZERS.make("none"),
    "l2_ball": REGULARIZERS.make("l2_ball", radius=1.5),
    "l1_ball": REGULARIZERS.make("l1_ball", radius=1.5),
    "simplex": REGULARIZERS.make("simplex"),
    "separable": REGULARIZERS.make("separable", phi=0.3, mu=0.1, lo=-1.0, hi=2.0),
}
ALL = pytest.mark.parametrize("name", CASES)
z_vector = arrays(np.float64, 4, elements=st.floats(-20, 20).map(lambda v: round(v, 6)))
weight = st.floats(0.01, 5)


objective = testing._total


def test_every_registered_regulariser_is_tested():
    assert {name for name in REGULARIZERS} <= set(CASES)


@ALL
@pytest.mark.parametrize("law", testing.REGULARIZER_LAWS)
@given(z=z_vector, w=z_vector, s=weight, gamma=weight)
def test_its_laws(name, law, z, w, s, gamma):
    """Those of the kit that others have for theirs."""
    testing.REGULARIZER_LAWS[law](CASES[name], z, w, s, gamma)


def test_the_laws_find_what_breaks_them():
    class Wrong(type(CASES["l2"])):
        def step(self, z, s, gamma):
            return 1.1 * super().step(z, s, gamma)

    with pytest.raises(testing.LawBroken, match="minimizes"):
        testing.check_regularizer(Wrong(mu=0.3), engines=[])


@pytest.mark.parametrize("name", ["l2", "l1", "elastic_net", "box", "non_negative"])
def test_the_step_agrees_with_a_general_minimiser(name):
    h, z, s, gamma = CASES[name], np.array([3.0, -0.2, 0.9, -6.0]), 1.3, 0.8
    bounds = [(getattr(h, "lo", -np.inf), getattr(h, "hi", np.inf))] * 4
    bounds = [(None if np.isinf(a) else a, None if np.isinf(b) else b) for a, b in bounds]
    found = minimize(lambda x: objective(h, z, s, gamma, x), np.full(4, 0.5), method="Nelder-Mead", bounds=bounds,
                     options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 40000, "maxfev": 40000})  # fmt: skip
    assert np.allclose(h.step(z, s, gamma), found.x, atol=1e-4)


@pytest.mark.parametrize("name", ["box_off_zero", "non_negative", "none", "l2_ball", "l1_ball", "simplex"])
@given(z=z_vector, s=weight, gamma=weight)
def test_the_weight_of_an_indicator_does_not_matter(name, z, s, gamma):
    h = CASES[name]
    assert np.array_equal(h.step(z, s, gamma), h.step(z, 17 * s, gamma))


@ALL
@given(v=z_vector, seed=st.integers(0, 10**6))
def test_the_conjugate_is_an_upper_bound_that_is_reached(name, v, seed):
    """h*(v) ≥ ⟨v, x⟩ − h(x) for every x within reach, with equality for some x (found by a long proximal walk)."""
    h, reach = CASES[name], 6.0
    if name == "none":
        assert h.conjugate(0 * v) == 0.0 and (h.conjugate(v) == math.inf or not v.any())
        return
    star = h.conjugate(v, reach)
    rng = np.random.default_rng(seed)
    for scale in (0.1, 1.0, 30.0):
        x = h.step(-scale * v + rng.normal(size=4), 1.0, 1.0)
        x = x * min(1.0, reach / max(np.sum(np.abs(x)), 1e-300)) if h.value(0 * x) == 0.0 else x
        if np.sum(np.abs(x)) <= reach:
            assert star >= float(v @ x) - h.value(x) - 1e-9 * (1 + abs(star))
    if h.modulus > 0 or name in ("l2_ball", "l1_ball", "simplex", "box_off_zero"):
        x = h.step(-v, 1e9 if h.modulus == 0 else 1.0, 1e-9)
        x = h.step(-1e9 * v, 1.0, 1.0) if h.modulus == 0 else x
        assert float(v @ x) - h.value(x) == pytest.approx(star, abs=1e-6 * (1 + abs(star)))


def test_l1_conjugate_within_reach():
    h = CASES["l1"]
    assert h.conjugate(np.array([0.5, -0.7])) == 0.0
    assert h.conjugate(np.array([0.5, -1.7])) == math.inf
    assert h.conjugate(np.array([0.5, -1.7]), reach=3.0) == pytest.approx(3.0)


@given(v=z_vector, radius=st.floats(0.1, 10))
def test_simplex_projection(v, radius):
    x = project_simplex(v, radius)
    assert np.all(x >= 0) and np.sum(x) == pytest.approx(radius)
    threshold = (v - x)[x > 0]  # KKT: v − x is one constant on the support and no larger off it
    assert np.ptp(threshold) <= 1e-9 * (1 + np.max(np.abs(v)))
    assert np.all(v[x == 0] <= threshold[0] + 1e-9 * (1 + np.max(np.abs(v))))


@given(z=z_vector, s=weight, gamma=weight)
def test_a_center_is_a_shift(z, s, gamma):
    h, x0 = CASES["elastic_net"], (0.3, -1.0, 2.0, 0.0)
    d = Euclidean(x0)
    x = d.step(h, z, s, gamma)

    def value(p):
        return float(z @ p) + s * h.value(p) + gamma * d.value(p)

    for other in (x + 0.01, x - 0.01, np.array(x0), 0 * x):
        assert value(other) >= value(x) - 1e-9 * (1 + abs(value(x)))
    assert d.value(np.array(x0)) == 0.0


@given(z=z_vector, gamma=weight)
def test_entropy_step(z, gamma):
    h, d = Simplex(1.0), Entropy()
    x = d.step(h, z, 1.0, gamma)
    assert np.sum(x) == pytest.approx(1) and d.value(np.full(4, 0.25)) == pytest.approx(0, abs=1e-12)
    support = x > 1e-200
    gradient = (z + gamma * (np.log(np.maximum(x, 1e-300)) + 1))[support]  # constant on the simplex's interior
    assert np.ptp(gradient) <= 1e-7 * (1 + np.max(np.abs(z)))


def test_entropy_needs_the_unit_simplex():
    with pytest.raises(SpecError, match="unit simplex only"):
        Entropy().check(CASES["l2"], 3)
    with pytest.raises(SpecError, match="3 coordinates, but the model has 4"):
        Euclidean((0.0, 0.0, 0.0)).check(CASES["l2"], 4)


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("l3", {}, "no regularizer 'l3'"),
        ("l2", {}, "'l2' is malformed; write l2.mu."),
        ("l2", {"mu": -1.0}, "not negative"),
        ("box", {"lo": 1.0, "hi": 0.0}, "lo < hi"),
        ("l2_ball", {"radius": 0.0}, "over 0"),
    ],
)
def test_bad_choices_are_one_sentence(name, parameters, words):
    with pytest.raises(SpecError, match=words):
        REGULARIZERS.make(name, **parameters)
