"""Secrets shared by chance, for very many nodes (see `pairs`).

A node cannot share secrets with a hundred thousand others, and a minority of nodes can cut off some node of any fixed
graph with few links. So there is a second model (Bell et al. 2020): which nodes collude is settled first, and then
public random bits decide who shares with whom, every pair with the same chance q. The Laplacian of the h honest nodes
is a sum of independent matrices of norm 2, with mean qh on the vectors whose sum is 0. By Tropp's Chernoff bound (2012)
its second eigenvalue is below (1 − θ)qh with a chance of at most (h − 1)·exp(−qh(θ + (1 − θ)log(1 − θ))/2). That chance
is given beforehand and is part of δ; the θ it leaves gives the noise that hides a node (`least_noise_left`).
"""

import math

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.errors import PrivacyError

FAILS = 1e-9
"""The chance that random bits leave too few secrets, unless another is given."""


def least_noise_left(d: Array, rho2: float, chance: float, fails: float, k: int) -> float:
    """A bound below 1/[Σ_H⁻¹]_ii of every node, where every two share with a chance, up to a chance that it `fails`.

    The k that collude are settled before. Σ_H is at least min d + ρ²·Laplacian, whose second eigenvalue is `linked`.

    Examples
    --------
    >>> round(least_noise_left(np.ones(1000), 1e4, 0.2, 1e-9, 499) / 501, 3)
    0.997
    """
    least, h = float(d.min()), len(d) - k
    return 1.0 / (1.0 / (h * least) + (1.0 - 1.0 / h) / (least + rho2 * linked(h, chance, fails)))


def linked(honest: int, chance: float, fails: float) -> float:
    """What the second eigenvalue of the honest nodes' Laplacian is at least, but for a chance that it `fails`.

    Examples
    --------
    >>> 2 < linked(50_001, 180 / 99_999, 1e-9) < 90  # of some 90 honest peers each
    True
    """
    peers = honest * chance
    spent = 2.0 * math.log(max(honest - 1, 1) / fails) / peers
    if spent >= 1.0:
        raise PrivacyError(
            f"with {peers:.3g} honest peers a node, on average, the random bits may cut someone off with a chance over "
            f"{fails:g}; take over {math.ceil(2.0 * math.log(max(honest - 1, 1) / fails))} honest peers"
        )
    low, high = 0.0, 1.0  # θ + (1 − θ)log(1 − θ) grows from 0 to 1
    for _ in range(60):
        theta = 0.5 * (low + high)
        low, high = (theta, high) if theta + (1.0 - theta) * math.log1p(-theta) < spent else (low, theta)
    return (1.0 - high) * peers


def throw(n: int, chance: float, seed: int) -> IntArray:
    """(E, 2) the pairs of n nodes that share a secret, each with a chance, by public random bits.

    Examples
    --------
    >>> pairs = throw(100, 0.1, 7)
    >>> bool(np.all(pairs[:, 0] < pairs[:, 1])), 400 < len(pairs) < 600
    (True, True)
    """
    rng, last, all_pairs = np.random.default_rng([2020, seed]), -1, n * (n - 1) // 2
    found = []
    while last < all_pairs:  # gaps from one such pair to the next
        gaps = rng.geometric(chance, size=max(64, int(1.1 * chance * all_pairs)))
        found.append(last + np.cumsum(gaps))
        last = int(found[-1][-1])
    places = np.concatenate(found)
    places = places[places < all_pairs]
    before = np.arange(n, dtype=np.int64)
    before = before * (2 * n - before - 1) // 2  # how many pairs there are whose first node is an earlier one
    i = np.searchsorted(before[:-1], places, side="right") - 1
    return np.stack([i, places - before[i] + i + 1], axis=1)
