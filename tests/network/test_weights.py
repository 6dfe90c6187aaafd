"""Weights: the paper's matrices, double stochasticity on any graph, and what the check says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.errors import NetworkError
from sottovoce.network.graphs import GRAPHS
from sottovoce.network.mixing import WEIGHTS, check_doubly_stochastic

PATH = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])


@st.composite
def adjacency(draw):
    """Any links at all: also none, also several pieces."""
    k = draw(st.integers(1, 8))
    bits = draw(st.lists(st.booleans(), min_size=k * (k - 1) // 2, max_size=k * (k - 1) // 2))
    A = np.zeros((k, k), dtype=bool)
    A[np.triu_indices(k, 1)] = bits
    return A | A.T


def test_metropolis_on_the_shapes_of_the_audit():
    thirds = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3
    np.testing.assert_allclose(WEIGHTS.read("metropolis")(PATH), thirds, atol=1e-15)
    np.testing.assert_allclose(np.linalg.eigvalsh(WEIGHTS.read("metropolis")(PATH)), [0, 2 / 3, 1], atol=1e-15)
    np.testing.assert_allclose(WEIGHTS.read("metropolis")([[0, 1], [1, 0]]), np.full((2, 2), 0.5))
    complete = GRAPHS.make("complete")(20).adjacency()
    np.testing.assert_allclose(WEIGHTS.read("metropolis")(complete), np.full((20, 20), 0.05), atol=1e-15)


@given(adjacency())
def test_every_rule_by_its_definition(A):
    k, d = len(A), A.sum(axis=1)
    own = {
        "metropolis": lambda i, j: 1 / (1 + max(d[i], d[j])),
        "max_degree": lambda i, j: 1 / (1 + max(d)),
        "lazy": lambda i, j: 0.5 / (1 + max(d[i], d[j])),
        "uniform": lambda i, j: 1 / (1 + d[i]),
        "alone": lambda i, j: 0.0,
    }
    assert set(own) == set(WEIGHTS)
    for name, formula in own.items():
        expected = np.array([[formula(i, j) if A[i, j] else 0.0 for j in range(k)] for i in range(k)])
        np.fill_diagonal(expected, 1 - expected.sum(axis=1))
        if name == "uniform" and np.abs(expected.sum(axis=0) - 1).max() > 1e-12:
            with pytest.raises(NetworkError, match="uniform weights are doubly stochastic only where"):
                WEIGHTS.make(name)(A)
            continue
        W = WEIGHTS.make(name)(A)
        np.testing.assert_allclose(W, expected, atol=1e-15)
        check_doubly_stochastic(W)
        assert np.all(np.diag(W) > 0)


@given(st.lists(adjacency(), min_size=2, max_size=2))
def test_a_stack_of_rounds_is_each_round_on_its_own(pair):
    """Rounds of different sizes are filled up with absent nodes, which must keep w_ii = 1 and change nothing."""
    K = max(len(A) for A in pair)
    stack = np.zeros((2, K, K), dtype=bool)
    for at, A in enumerate(pair):
        stack[at, : len(A), : len(A)] = A
    for name in ("metropolis", "max_degree", "lazy"):
        W = WEIGHTS.make(name)(stack)
        for at, A in enumerate(pair):
            k = len(A)
            np.testing.assert_array_equal(W[at, :k, :k], WEIGHTS.make(name)(A))
            np.testing.assert_array_equal(W[at, k:, k:], np.eye(K - k))


def test_uniform_on_pieces_that_are_regular_each():
    A = np.zeros((5, 5), dtype=int)
    A[:2, :2], A[2:, 2:] = 1 - np.eye(2), 1 - np.eye(3)
    W = WEIGHTS.make("uniform")(A)
    np.testing.assert_allclose(W, np.where(A + np.eye(5) > 0, [[1 / 2]] * 2 + [[1 / 3]] * 3, 0.0), atol=1e-15)


def test_unknown_weights():
    with pytest.raises(NetworkError, match="no weight rule 'best'; write one of metropolis, uniform, max_degree, lazy"):
        WEIGHTS.read("best")


@pytest.mark.parametrize(
    ("W", "message"),
    [
        (np.ones((2, 3)), r"square matrix, not an array of shape \(2, 3\)"),
        (np.ones(3), "square matrix"),
        ([[np.nan, 1.0], [1.0, 0.0]], "NaN"),
        ([[1.5, -0.5], [-0.5, 1.5]], "a weight is -0.5"),
        ([[0.5, 0.4], [0.5, 0.6]], "row 0 of the weights sums to 0.9"),
        ([[0.5, 0.5], [0.6, 0.4]], "column 0 of the weights sums to 1.1"),
        ([np.eye(2), [[0.5, 0.5], [0.5, 0.6]]], "row 1 of the weights sums to 1.1"),
        (np.eye(2) * (1 + 1e-9), "row 0 of the weights sums to 1.000000001"),
    ],
)
def test_what_is_off(W, message):
    with pytest.raises(NetworkError, match=message):
        check_doubly_stochastic(np.array(W))
