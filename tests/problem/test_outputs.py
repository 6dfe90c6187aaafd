"""Laws of losses of several outputs, over every loss that can have them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from sottovoce.errors import DataError, SpecError
from sottovoce.problem.losses import LOSSES, SOFTMAX, Joint, lengths
from sottovoce.problem.objective import Problem, clipped_mean
from sottovoce.problem.regularizers import REGULARIZERS
from sottovoce.problem.shards import Shards
from sottovoce.run.plan import make_lipschitz
from sottovoce.run.spec import AlgorithmSpec, Spec

K = 4
BINARY = [loss for loss in LOSSES.values() if loss.targets == "binary"]
ALL = pytest.mark.parametrize("joint", [Joint(loss, K) for loss in [*BINARY, SOFTMAX]], ids=lambda j: j.loss.name)
margins = arrays(np.float64, (2, K), elements=st.floats(-40, 40))
pairs = arrays(np.float64, (2, 2), elements=st.floats(-40, 40))
classes = arrays(np.float64, 2, elements=st.sampled_from([0.0, 1.0, 2.0, 3.0]))


@ALL
@given(u=margins, v=margins, y=classes)
def test_the_slopes_are_a_subgradient(joint, u, v, y):
    below = joint.value(u, y) + np.sum(joint.slope(u, y) * (v - u), axis=1)
    assert np.all(joint.value(v, y) >= below - 1e-9 * (1 + np.abs(below)))


@ALL
@given(u=margins, y=classes)
def test_the_bound_of_the_slopes_holds(joint, u, y):
    assert np.all(lengths(joint.slope(1e3 * u, y)) <= joint.slope_bound * (1 + 1e-12))


@ALL
def test_the_bound_of_the_slopes_is_the_least(joint):
    """Every slope may be at its bound at once: √K one against the rest (logistic too), √2 for the softmax."""
    worst = np.full((1, K), 1e3)  # wrong about every class, but for y, which is put to the other side
    worst[0, 0] = -1e3
    steepest = lengths(joint.slope(worst, np.zeros(1)))[0]
    if math.isinf(joint.slope_bound):
        assert steepest > 1e3
    elif joint.loss is SOFTMAX:
        worst[0, 2:] = 0.0
        steepest = lengths(joint.slope(worst, np.zeros(1)))[0]
        assert steepest == pytest.approx(math.sqrt(2)) == joint.slope_bound
    else:
        assert steepest == pytest.approx(math.sqrt(K)) == joint.slope_bound


@ALL
@given(u=margins, v=margins, y=classes)
def test_fenchel_young(joint, u, v, y):
    s = joint.slope(v, y)
    total = joint.value(u, y) + joint.conjugate(s, y)
    assert np.all(total >= np.sum(s * u, axis=1) - 1e-8 * (1 + np.abs(total)))
    touch = joint.value(v, y) + joint.conjugate(s, y)
    assert np.allclose(touch, np.sum(s * v, axis=1), atol=1e-8 * (1 + float(np.max(np.abs(touch)))))


@ALL
@given(u=margins, y=classes, turn=st.permutations(range(K)))
def test_classes_have_no_order(joint, u, y, turn):
    turn = np.array(turn)
    moved, renamed = u[:, turn], np.argsort(turn)[y.astype(int)].astype(float)
    assert np.allclose(joint.value(moved, renamed), joint.value(u, y), rtol=1e-12)
    assert np.allclose(joint.slope(moved, renamed), joint.slope(u, y)[:, turn], rtol=1e-12, atol=1e-15)


@given(
    u=arrays(np.float64, (2, 2), elements=st.floats(-40, 40)),
    y=arrays(np.float64, 2, elements=st.sampled_from([0.0, 1.0])),
)
def test_softmax_of_two_classes_is_the_logistic_loss_of_their_difference(u, y):
    two, logistic = Joint(SOFTMAX, 2), LOSSES["logistic"]
    d, sign = u[:, 1] - u[:, 0], 2 * y - 1
    assert np.allclose(two.value(u, y), logistic.value(d, sign), rtol=1e-12, atol=1e-13)
    s = logistic.slope(d, sign)
    assert np.allclose(two.slope(u, y), np.stack([-s, s], axis=1), rtol=1e-9, atol=1e-15)


def test_softmax_far_out():
    u = np.array([[1e4, -1e4, 0.0], [1e300, 0.0, -1e300]])
    y = np.array([1.0, 0.0])
    assert np.allclose(SOFTMAX.value(u, y), [2e4, 0.0]) and np.all(np.isfinite(SOFTMAX.slope(u, y)))
    assert np.allclose(SOFTMAX.slope(u, y), [[1, -1, 0], [0, 0, 0]])


def test_one_output_is_the_loss_itself():
    u, y = np.random.default_rng(0).normal(size=(2, 9))
    for loss in [*BINARY, LOSSES.make("squared"), LOSSES.make("huber")]:
        y = np.sign(y) if loss.targets == "binary" else y
        joint = Joint(loss)
        assert np.array_equal(joint.value(u, y), loss.value(u, y)) and joint.slope_bound == loss.slope_bound
        assert np.array_equal(joint.slope(u, y), loss.slope(u, y))


@given(arrays(np.float64, (5, 3), elements=st.floats(-2, 2)), st.sampled_from([1e-200, 1e-160, 1.0, 1e160, 1e200]))
def test_lengths_at_the_ends_of_the_floats(s, scale):
    assert np.allclose(lengths(s * scale) / scale, np.linalg.norm(s, axis=1), rtol=1e-12)


@pytest.mark.parametrize("loss", [*BINARY, SOFTMAX], ids=lambda loss: loss.name)
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_the_objective_written_out(loss, kind, make_shards):
    """Class-major x, intercept last in each class, gradient by differences."""

    shards = make_shards(
        n=3, sizes=[3, 7, 20], outputs=3, intercept=0.5, kind=sparse.csr_array if kind == "csr" else np.asarray
    )
    problem = Problem(loss, REGULARIZERS.make("l2", mu=0.3), shards, outputs=3)
    assert problem.m == 15
    x = np.random.default_rng(1).normal(size=15)
    X = shards.X.toarray() if kind == "csr" else shards.X
    U = np.column_stack([X, np.full(30, 0.5)]) @ x.reshape(3, 5).T
    rows = np.split(np.arange(30), [3, 10])
    if loss is SOFTMAX:
        each = np.log(np.sum(np.exp(U), axis=1)) - U[np.arange(30), shards.y.astype(int)]
    else:
        each = sum(loss.value(U[:, k], np.where(shards.y == k, 1.0, -1.0)) for k in range(3))
    assert problem.value(x) == pytest.approx(np.mean([each[r].mean() for r in rows]) + 0.15 * x @ x, rel=1e-12)
    numeric = [(problem.risk(x + e) - problem.risk(x - e)) / 2e-6 for e in 1e-6 * np.eye(15)]
    assert np.allclose(problem.gradient(x), numeric, atol=1e-6)
    assert problem.accuracy(x) == np.mean(np.argmax(U, axis=1) == shards.y)
    nodes = [clipped_mean(problem, i, x, None, q, 1e9) for i, q in enumerate((3, 7, 20))]
    assert np.allclose(np.mean(nodes, axis=0), problem.gradient(x), atol=1e-12)


@given(st.floats(0.01, 3), st.integers(0, 50), st.sampled_from(["softmax", "hinge", "squared_hinge"]))
def test_no_record_moves_the_mean_by_more_than_the_clip(clip, seed, loss):
    """Brute force: replace each record in turn by a huge one of another class; the clip is on all K·m numbers."""
    rng = np.random.default_rng(seed)
    X, y, at = 10 * rng.normal(size=(6, 3)), rng.integers(0, 3, 6).astype(float), rng.normal(size=9)

    def released(X, y):
        shards = Shards.of(X, y, np.array([0, 6]))
        return clipped_mean(
            Problem(LOSSES.make(loss), REGULARIZERS.make("l2", mu=1.0), shards, outputs=3), 0, at, None, 6, clip
        )

    base = released(X, y)
    for r in range(6):
        moved, label = X.copy(), y.copy()
        moved[r], label[r] = -1e3 * X[r], (y[r] + 1) % 3
        assert np.linalg.norm(released(moved, label) - base) <= 2 * clip / 6 * (1 + 1e-9)


def test_the_lipschitz_constant_counts_the_outputs():
    def L(loss, outputs, **more):
        spec = Spec(AlgorithmSpec(rounds=1)).replace(problem__loss=loss, problem__outputs=outputs, **more)
        return make_lipschitz(spec)

    assert L("hinge", 1) == 1.0 and L("hinge", 9) == pytest.approx(3.0)
    assert L("softmax", 9) == L("softmax", 2) == pytest.approx(math.sqrt(2))
    assert L("softmax", 3, problem__intercept=2.0) == pytest.approx(math.sqrt(10))
    assert L("softmax", 3, privacy__clip=0.5) == 0.5 and L("softmax", 3, privacy__clip=7.0) == pytest.approx(
        math.sqrt(2)
    )


@pytest.mark.parametrize(
    ("loss", "outputs", "y", "error", "words"),
    [
        ("squared", 3, [0, 1, 2], SpecError, "'squared' is for regression and has one output, not 3"),
        ("quantile", 2, [0, 1, 1], SpecError, "for regression"),
        ("softmax", 1, [0, 1, 2], SpecError, "an output for each class, at least 2"),
        ("hinge", 0, [1, -1, 1], SpecError, "whole number, at least 1, not 0"),
        ("hinge", 2.0, [1, 0, 1], SpecError, "whole number"),
        ("hinge", 3, [0, 1, 3], DataError, "class numbers 0 to 2, but there is a label 3"),
        ("softmax", 3, [0, 1, 0.5], DataError, "class numbers 0 to 2, but there is a label 0.5"),
        ("softmax", 2, [-1, 1, 1], DataError, "class numbers 0 to 1, but there is a label -1"),
    ],
)
def test_what_has_no_meaning_is_one_sentence(loss, outputs, y, error, words):
    shards = Shards.of(np.eye(3), np.array(y, dtype=float), np.array([0, 3]))
    with pytest.raises(error, match=words):
        Problem(LOSSES.make(loss), REGULARIZERS.make("l2", mu=1.0), shards, outputs=outputs)
