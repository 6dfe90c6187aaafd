"""Gossip weights: from the links of one round to a doubly stochastic matrix W over the nodes they join.

Conventions: a rule takes the symmetric 0/1 adjacency (…, k, k) of the links *of this round* (any number of leading
axes: many rounds at once) and returns W of the same shape; z_i becomes Σ_j w_ij s_j. A node without a link in this
round has w_ii = 1. Doubly stochastic is what makes the average of all states exact and the objective unbiased.

Adding a rule is one row of `WEIGHTS`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from sottovoce._types import Array
from sottovoce.errors import NetworkError

ROUNDING = 1e-12  # rows and columns of k weights sum to 1 up to k roundings; k is at most some thousands

Rule = Callable[[Any], Array]  # adjacency -> W


def _rest_to_self(W: Array) -> Array:
    """Put what a row leaves over on its diagonal."""
    k = W.shape[-1]
    W[..., np.arange(k), np.arange(k)] = 1.0 - np.sum(W, axis=-1)
    return W


def _degrees(links: Any) -> tuple[Array, Array]:
    A = np.asarray(links, dtype=np.float64)
    return A, np.sum(A, axis=-1)


def metropolis(links: Any) -> Array:
    """w_ij = 1/(1 + max(d_i, d_j)): needs no more than the degrees of the two ends.

    Examples
    --------
    >>> metropolis([[0, 1, 0], [1, 0, 1], [0, 1, 0]]).round(3)
    array([[0.667, 0.333, 0.   ],
           [0.333, 0.333, 0.333],
           [0.   , 0.333, 0.667]])
    """
    A, d = _degrees(links)
    return _rest_to_self(A / (1.0 + np.maximum(d[..., :, None], d[..., None, :])))


def uniform(links: Any) -> Array:
    """w_ij = 1/(1 + d_i) for itself and every neighbour; only where linked nodes have equal degrees.

    Examples
    --------
    >>> uniform([[0, 1], [1, 0]])
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    A, d = _degrees(links)
    if np.any((A > 0) & (d[..., :, None] != d[..., None, :])):
        raise NetworkError(
            "uniform weights are doubly stochastic only where linked nodes have equally many links, and here some "
            "do not; use metropolis"
        )
    return _rest_to_self(A / (1.0 + d[..., :, None]))


def max_degree(links: Any) -> Array:
    """w_ij = 1/(1 + d_max), d_max the largest degree of the round.

    Examples
    --------
    >>> max_degree([[0, 1, 0], [1, 0, 1], [0, 1, 0]])[0].round(3)
    array([0.667, 0.333, 0.   ])
    """
    A, d = _degrees(links)
    return _rest_to_self(A / (1.0 + np.max(d, axis=-1, initial=0.0)[..., None, None]))


def lazy(links: Any) -> Array:
    """(I + Metropolis)/2: every eigenvalue is non-negative.

    Examples
    --------
    >>> lazy([[0, 1], [1, 0]])
    array([[0.75, 0.25],
           [0.25, 0.75]])
    """
    W = metropolis(links)
    return 0.5 * (np.eye(W.shape[-1]) + W)


def alone(links: Any) -> Array:
    """The identity: every node keeps to itself, a reference that all gossip must beat.

    Examples
    --------
    >>> alone([[0, 1], [1, 0]])
    array([[1., 0.],
           [0., 1.]])
    """
    shape = np.asarray(links).shape
    return np.broadcast_to(np.eye(shape[-1]), shape).copy()


WEIGHTS: dict[str, Rule] = {
    "metropolis": metropolis,
    "uniform": uniform,
    "max_degree": max_degree,
    "lazy": lazy,
    "alone": alone,
}


def make_weights(name: str) -> Rule:
    """Look a rule up by name.

    Examples
    --------
    >>> make_weights("metropolis")([[0, 1], [1, 0]])
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    if name not in WEIGHTS:
        raise NetworkError(f"there are no weights '{name}'; choose one of {', '.join(WEIGHTS)}")
    return WEIGHTS[name]


def check_doubly_stochastic(W: Array) -> None:
    """Refuse a W, or a stack of them, whose entries are negative or whose rows or columns do not sum to 1.

    Examples
    --------
    >>> check_doubly_stochastic(np.full((2, 2), 0.5))
    >>> check_doubly_stochastic(np.array([[1.0, 0.0], [0.5, 0.5]]))
    Traceback (most recent call last):
    ...
    sottovoce.errors.NetworkError: column 0 of the weights sums to 1.5, but every column must sum to 1; ...
    """
    W = np.asarray(W, dtype=np.float64)
    if W.ndim < 2 or W.shape[-1] != W.shape[-2]:
        raise NetworkError(f"weights must be a square matrix, not an array of shape {W.shape}; give one row a node")
    if not np.all(np.isfinite(W)):
        raise NetworkError("the weights hold NaN or infinite values, but must lie between 0 and 1; mend them")
    if np.any(W < 0):
        raise NetworkError(f"a weight is {np.min(W):g}, but weights must not be negative; mend the rule")
    for kind, axis in (("row", -1), ("column", -2)):
        sums = np.sum(W, axis=axis)
        off = np.argwhere(np.abs(sums - 1.0) > ROUNDING * max(1, W.shape[-1]))
        if len(off):
            at = tuple(off[0])
            raise NetworkError(
                f"{kind} {at[-1]} of the weights sums to {sums[at]:.12g}, but every {kind} must sum to 1; "
                "use a doubly stochastic rule such as metropolis"
            )
