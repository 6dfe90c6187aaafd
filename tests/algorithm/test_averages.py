"""The closed form of what a sleeping node's x adds up to, against visiting every round."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.algorithm.method import COUNTED, SEQUENCES, StepSizes, prefix_sums
from sottovoce.errors import SpecError
from sottovoce.problem.regularizers import REGULARIZERS, Entropy, Euclidean

T, M = 60, 5
CASES = {
    "l2": REGULARIZERS.make("l2", mu=0.05),
    "l1": REGULARIZERS.make("l1", phi=0.1),
    "elastic_net": REGULARIZERS.make("elastic_net", phi=0.1, mu=0.02),
    "box": REGULARIZERS.make("box", lo=-0.3, hi=0.7),
    "box_l2": REGULARIZERS.make("box", lo=-0.3, hi=0.7, mu=0.04),
    "box_above_zero": REGULARIZERS.make("box", lo=0.2, hi=0.7),
    "box_below_zero": REGULARIZERS.make("box", lo=-0.9, hi=-0.2, mu=0.01),
    "non_negative": REGULARIZERS.make("non_negative"),
    "none": REGULARIZERS.make("none"),
    "l2_ball": REGULARIZERS.make("l2_ball", radius=0.8),
    "l1_ball": REGULARIZERS.make("l1_ball", radius=0.8),
    "simplex": REGULARIZERS.make("simplex"),
}
PAIRS = {"strongly convex": ("linear(1)", "constant(20)"), "convex": ("constant(1)", "sqrt(0.5)")}
STILL = StepSizes(np.ones(3), np.zeros(3))
CENTRE = tuple(np.linspace(-0.5, 0.5, M))


ORIGIN = Euclidean()


def method(h, sequences, d=ORIGIN, average="all", **more):
    a, gamma = (SEQUENCES.read(text)(T) for text in PAIRS[sequences])
    return DualAveraging(h, StepSizes(a, gamma, COUNTED.read(average)(a)), iota=0.3, scale=np.ones(4), d=d, **more)


@pytest.mark.parametrize("d", [Euclidean(), Euclidean(CENTRE), Entropy()], ids=["origin", "centre", "entropy"])
@pytest.mark.parametrize("sequences", PAIRS)
@pytest.mark.parametrize("name", CASES)
@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    size=st.sampled_from([0.0, 0.1, 1.0, 10.0, 300.0]),
    t0=st.integers(1, T + 1),
    average=st.sampled_from(["all", "tail(0.5)", "tail(0.01)"]),
)
def test_lazy_sum_equals_the_sum_over_rounds(name, sequences, d, seed, size, t0, average):
    h = CASES[name]
    if isinstance(d, Entropy) and name != "simplex":
        return
    da = method(h, sequences, d, average)
    z = size * np.random.default_rng(seed).normal(size=(3, M))
    since = np.array([t0, 1, min(t0 + 5, T + 1)])
    t1 = min(T, t0 + 20)
    expected = np.zeros_like(z)
    for row in range(3):
        for t in range(since[row], t1 + 1):
            expected[row] += da.steps.w[t - 1] * da.x(z[row : row + 1], t)[0]
    assert np.allclose(da._lazy(z, since, t1), expected, rtol=1e-11, atol=1e-10)


def test_the_closed_forms_are_really_used():
    for name in ("l2", "l1", "elastic_net", "box", "l2_ball", "none"):
        assert method(CASES[name], "convex")._lazy._sum.__name__ != "_by_rounds"
    assert method(CASES["simplex"], "convex")._lazy._sum.__name__ == "_by_rounds"
    assert method(CASES["l1"], "convex", Euclidean(CENTRE))._lazy._sum.__name__ == "_by_rounds"
    assert method(CASES["l1"], "strongly convex", Euclidean(CENTRE))._lazy._sum.__name__ == "_separable"


def test_curvature_of_f_is_one_more_modulus():
    """h = 0 with curvature μ_f has the x of h = (μ_f/2)‖x‖²."""
    z = np.random.default_rng(0).normal(size=(2, M))
    with_f = method(CASES["none"], "strongly convex", curvature=0.05)
    with_h = method(CASES["l2"], "strongly convex")
    assert np.allclose(with_f.x(z, 17), with_h.x(z, 17), rtol=1e-14)
    assert np.allclose(with_f._lazy(z, np.array([1, 4]), 40), with_h._lazy(z, np.array([1, 4]), 40), rtol=1e-12)


def test_as_written_freezes_x():
    da = method(CASES["elastic_net"], "convex", primal="as_written")
    state = da.start(2, M)._replace(z=np.random.default_rng(1).normal(size=(2, M)) * 9, since=np.array([3, 9]))
    frozen = da.x(state.z, state.since)
    weights = np.array([np.sum(da.steps.a[since - 1 : 12]) for since in (3, 9)])
    assert np.allclose(da.slept(state, 12), weights[:, None] * frozen, rtol=1e-13)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=50))
def test_prefix_sums(values):
    sums = prefix_sums(np.array(values))
    assert sums[0] == 0 and np.allclose(np.diff(sums), values, rtol=1e-9)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: SEQUENCES.read("cubic(1)")(5), "no sequence 'cubic"),
        (lambda: SEQUENCES.read("linear(1)")(0), "at least one round"),
        (lambda: StepSizes(np.array([2.0, 1.0]), np.zeros(2)), "must not decrease"),
        (lambda: StepSizes(np.ones(2), np.array([1.0, 0.5])), "must not decrease"),
        (lambda: StepSizes(np.ones(2), np.ones(3)), "one value a round"),
        (lambda: StepSizes(np.ones(2), np.ones(2), np.array([1.0, 0.0])), "weights of the average"),
        (lambda: COUNTED.read("tail(0)")(np.ones(2)), "a share of the rounds"),
        (lambda: DualAveraging(CASES["l1"], STILL, 1.0, np.ones(1)), "strongly convex h"),
        (lambda: method(CASES["l2"], "convex", primal="frozen"), "'recompute' or 'as_written'"),
        (lambda: method(CASES["l2"], "convex", primal="as_written", curvature=1.0), "primal='recompute'"),
    ],
)
def test_bad_choices_are_one_sentence(build, words):
    with pytest.raises(SpecError, match=words):
        build()
