"""What a coalition leaves of the noise that pairs of nodes share (see `pairs`).

With d_i = c_i² σ_i² and weights ρ_ij², Σ_H = diag(d) + the Laplacian of the honest nodes' pairs. What hides node i is
1/[Σ_H⁻¹]_ii, the effective conductance from i to the ground.

Which k nodes leave least? Where all share secrets with all and ρ is one number, those with the largest c_j σ_j
(`complete`). On other graphs the coalitions are processed one by one (`conductances`); where there are too many,
Fiedler's bound on the connectivity that k nodes can take away bounds what they leave (`connected`). If not every
node is active in every round, one coalition holds for all rounds, and rounds with different σ̂ are composed exactly.
"""

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array, IntArray
from sottovoce.privacy.events import Levels

LEVELS = 16
"""Most different σ̂ that are kept apart (its square for Gaussian rounds); beyond that they are rounded down."""

Mask = NDArray[np.bool_]


def joint_noise(d: Array, rho2: float, honest: Mask) -> Array:
    """1/[Σ_H⁻¹]_ii where all in H share with all: Σ_H = D − ρ²11ᵀ, inverted by Sherman and Morrison.

    With D_j = d_j + ρ²h, [Σ_H⁻¹]_ii = 1/D_i + ρ²h/(D_i² S), S = Σ_H d_j/D_j: sums of positive numbers only.

    Parameters
    ----------
    d : c_j² σ_j² of all nodes
    rho2 : ρ²
    honest : (…, n) who is in H; the answer has its shape, and no meaning where it is False
    """
    h = honest.sum(axis=-1, keepdims=True)
    D = d + rho2 * h
    with np.errstate(divide="ignore", invalid="ignore"):
        S = np.sum(np.where(honest, d / D, 0.0), axis=-1, keepdims=True)
        left = 1.0 / (1.0 / D + rho2 * h / (D * D * S))
    return np.where((S > 0) & (D > 0), left, 0.0)


def complete(d: Array, rho2: float, k: int) -> Array:
    """1/[Σ_H⁻¹]_ii of every node, for the worst k others: those with the largest c_jσ_j, since S grows with each d_j.

    Where all are the same, (1 + r²h)/(1 + r²) of d_i for h honest nodes: at most h.

    Examples
    --------
    >>> complete(np.ones(20), 100.0, 1).round(2)[:2], round((1 + 19 * 100.0) / (1 + 100.0), 2)
    (array([18.82, 18.82]), 18.82)
    """
    n, order = len(d), np.argsort(-d, kind="stable")
    honest = np.ones(n, dtype=np.bool_)
    honest[order[:k]] = False
    left = joint_noise(d, rho2, honest)
    if k == 0:
        return left
    loud, next_one, h = order[:k], order[k], n - k  # for one of the loudest, the next one colludes in its place
    D = d + rho2 * h
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = d / D
        honest[next_one] = False
        S = np.sum(shares[honest]) + shares[loud]
        found = 1.0 / (1.0 / D[loud] + rho2 * h / (D[loud] * D[loud] * S))
    left[loud] = np.where((S > 0) & (D[loud] > 0), found, 0.0)
    return left


def conductances(d: Array, weights: Array) -> Array:
    """1/[M⁻¹]_ii of matrices M = diag(d) + Laplacian of the weights, a batch of them, by elimination.

    M = LDLᵀ, node after node, as one takes nodes out of an electrical network (star to mesh): weights and grounds only
    ever grow, and so does L⁻¹. There is no subtraction, so that every digit is right however large ρ is.

    Examples
    --------
    >>> d, weights = np.array([[1.0, 2.0, 4.0]]), np.array([[[0.0, 3.0, 0.0], [3.0, 0.0, 5.0], [0.0, 5.0, 0.0]]])
    >>> M = np.diag(d[0] + weights[0].sum(axis=0)) - weights[0]
    >>> conductances(d, weights), 1.0 / np.diag(np.linalg.inv(M))
    (array([[2.75384615, 4.97222222, 5.77419355]]), array([2.75384615, 4.97222222, 5.77419355]))
    """
    d, w = d.astype(np.float64), weights.astype(np.float64)
    n = d.shape[-1]
    inverse = np.broadcast_to(np.eye(n), w.shape).copy()
    diagonal = np.zeros_like(d)
    with np.errstate(divide="ignore", invalid="ignore"):
        for v in range(n):
            later = slice(v + 1, n)
            total = d[:, v] + w[:, v, later].sum(axis=-1)
            share = w[:, v, later] / np.where(total > 0, total, 1.0)[:, None]
            d[:, later] += share * d[:, v, None]
            w[:, later, later] += share[:, :, None] * w[:, v, None, later]
            w[:, range(v + 1, n), range(v + 1, n)] = 0.0
            inverse[:, later] += share[:, :, None] * inverse[:, v, None, :]
            diagonal += inverse[:, v] ** 2 / total[:, None]
        return np.where(np.isfinite(diagonal), 1.0 / diagonal, 0.0)


def connected(d: Array, weights: Array, k: int) -> float | None:
    """A bound below 1/[Σ_H⁻¹]_ii of every node, whichever k others collude; None where it says nothing.

    With equal weights ρ², removing a node lowers the second eigenvalue λ of the graph's Laplacian by at most 1 (Fiedler
    1973). Σ_H is at least min d + ρ²·Laplacian, so [Σ_H⁻¹]_ii ≤ 1/(h·min d) + (1 − 1/h)/(min d + ρ²(λ − k)).
    """
    rho2, least, h = float(weights.max()), float(d.min()), len(d) - k
    if np.any((weights != 0) & (weights != rho2)) or least <= 0:
        return None
    links = weights > 0
    second = float(np.linalg.eigvalsh(np.diag(links.sum(axis=0)) - links.astype(np.float64))[1]) * (1 - 1e-9) - 1e-9
    if second <= k:
        return None
    return 1.0 / (1.0 / (h * least) + (1.0 - 1.0 / h) / (least + rho2 * (second - k)))


def in_pieces(links: Mask, honest: Mask) -> bool:
    """Whether the honest nodes of a secret graph are cut off from one another."""
    reached = np.zeros_like(honest)
    reached[int(np.argmax(honest))] = True
    while True:
        further = reached | (links[reached].any(axis=0) & honest)
        if further.sum() == reached.sum():
            return bool(reached.sum() < honest.sum())
        reached = further


def levels_of(values: Array, counts: IntArray) -> tuple[Levels, Levels]:
    """Of what several coalitions leave, (sets, coalitions), in so many rounds each: no less than any, and the worst."""
    if not values.size:
        return (), ()
    with np.errstate(divide="ignore"):
        worst = values[:, [int(np.argmax(counts @ (1.0 / values**2)))]]
    return _counted(values, counts, LEVELS), _counted(worst, counts, LEVELS**2)


def _counted(values: Array, counts: IntArray, most: int) -> Levels:
    """Return values and numbers of rounds: up to each value, the largest count of any column.

    Values that differ only by rounding are merged; if too many remain, neighbors are merged at the smallest of them.
    """
    distinct = np.unique(values)
    begins = distinct[np.concatenate([[True], np.diff(distinct) > 1e-10 * distinct[:-1]])]
    begins = begins[:: -(-len(begins) // most)]
    level = np.searchsorted(begins, values, side="right") - 1
    upto = [int(np.max(counts @ (level <= at))) for at in range(len(begins))]
    steps = np.diff(upto, prepend=0)
    return tuple((float(s), int(c)) for s, c in zip(begins, steps, strict=True) if c)
