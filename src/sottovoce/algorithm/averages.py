"""Lazy running averages: Σ_{τ=t0}^{t1} a_τ x(z, τ) for a z that did not move, without visiting the rounds.

While a node sleeps its z_i stands still, but its x_i^(τ) = argmin ⟨z_i, x⟩ + s_τ h + γ_τ d drifts with s_τ = ιA_τ and
γ_τ. For the separable family and the l2 ball the sum over a stretch of rounds has a closed form in prefix sums of
a/den, a·s/den and a, with den_τ = s_τ μ + γ_τ: in each coordinate |x| shrinks monotonically, so the rounds at which it
leaves its bound, and at which it reaches zero, are found by bisection. Other sets are evaluated round by round.
"""

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.stepsizes import prefix_sums
from sottovoce.problem.regularisers import Distance, Euclidean, L2Ball, Regulariser, Separable

CHUNK = 256  # rounds evaluated at a time where there is no closed form


class LazySum:
    """The weighted sum of x(z, τ) over a stretch of rounds, for fixed (h, d, a, s, γ).

    Parameters
    ----------
    h, d : regulariser and distance
    a, s, gamma : a_t, ιA_t and γ_t of rounds 1 … T
    stiffness : extra modulus in each round (ιA_t μ_f where the f_i are strongly convex), zero otherwise
    """

    def __init__(self, h: Regulariser, d: Distance, a: Array, s: Array, gamma: Array, stiffness: Array) -> None:
        self.h, self.d, self.a, self.s, self.gamma, self.stiffness = h, d, a, s, gamma, stiffness
        self.den = s * h.modulus + gamma + stiffness
        self.A, self.P, self.Q = (prefix_sums(v) for v in (a, a / self.den, a * s / self.den))
        centre = d.centre if isinstance(d, Euclidean) else None
        still = bool(np.all(gamma == gamma[0]))  # then a centre only shifts z, once and for all
        self._shift = gamma[0] * np.asarray(centre) if centre is not None and still else 0.0
        closed = isinstance(d, Euclidean) and (centre is None or still)
        self._sum = self._by_rounds
        if closed and isinstance(h, Separable):
            self._sum = self._separable
        elif closed and isinstance(h, L2Ball):
            self._sum = self._ball

    def __call__(self, z: Array, t0: IntArray, t1: int) -> Array:
        """Σ_{τ=t0}^{t1} a_τ x(z, τ); one z and one t0 a row; zero where t0 > t1."""
        return self._sum(z, np.asarray(t0), t1)

    def _separable(self, z: Array, t0: IntArray, t1: int) -> Array:
        h, z = self.h, z - self._shift
        assert isinstance(h, Separable)
        before = np.minimum(t0 - 1, t1)[:, None]
        if h.phi == 0 and not h.bounded:  # l2: x is −z/den throughout
            return -z * (self.P[t1] - self.P[before])
        size = np.abs(z)
        # last round in which the threshold has not yet swallowed |z|
        alive = np.searchsorted(self.s, size / h.phi) if h.phi > 0 else np.full(z.shape, t1)
        alive = np.clip(alive, before, t1)
        down = np.where(z > 0, -1.0, 1.0)  # the direction of x
        if not h.bounded:
            return down * self._interior(size, before, alive)
        total = np.zeros_like(z)
        for sign, top, bottom in ((1.0, h.hi, h.lo), (-1.0, -h.lo, -h.hi)):
            held = self._rounds_held(size, top, before, t1)  # |x| still at its bound `top`
            freed = np.maximum(self._rounds_above(size, bottom, before, t1), held)  # |x| already at `bottom` > 0
            end = np.clip(alive, held, freed)
            part = self._interior(size, held, end)
            part += _times(top, self.A[held] - self.A[before])
            if bottom > 0:
                part += bottom * (self.A[t1] - self.A[freed])
            total = np.where(down == sign, sign * part, total)
        return total

    def _interior(self, size: Array, start: IntArray, end: IntArray) -> Array:
        """Σ a (|z| − sφ)/den over rounds start + 1 … end."""
        phi = self.h.phi if isinstance(self.h, Separable) else 0.0
        return size * (self.P[end] - self.P[start]) - phi * (self.Q[end] - self.Q[start])

    def _rounds_held(self, size: Array, top: float, before: IntArray, t1: int) -> IntArray:
        """Last round in which (|z| − sφ)₊/den ≥ top, within the stretch."""
        if top <= 0:
            return np.full(size.shape, t1)
        if np.isinf(top):
            return np.broadcast_to(before, size.shape)
        return np.clip(np.searchsorted(self._level(top), size, side="right"), before, t1)

    def _rounds_above(self, size: Array, bottom: float, before: IntArray, t1: int) -> IntArray:
        """Last round in which (|z| − sφ)₊/den > bottom, within the stretch; all of it where bottom ≤ 0."""
        if bottom <= 0:
            return np.full(size.shape, t1)
        return np.clip(np.searchsorted(self._level(bottom), size, side="left"), before, t1)

    def _level(self, bound: float) -> Array:
        """s_τ φ + bound·den_τ, the |z| at which x sits at the bound in round τ; non-decreasing in τ."""
        assert isinstance(self.h, Separable)
        return self.s * self.h.phi + bound * self.den

    def _ball(self, z: Array, t0: IntArray, t1: int) -> Array:
        assert isinstance(self.h, L2Ball)
        z = z - self._shift
        need = np.linalg.norm(z, axis=-1) / self.h.radius
        before = np.minimum(t0 - 1, t1)
        held = np.clip(np.searchsorted(self.den, need), before, t1)  # on the sphere while den < ‖z‖/R
        with np.errstate(divide="ignore", invalid="ignore"):
            sphere = np.where(held > before, (self.A[held] - self.A[before]) / need, 0.0)
        return -z * (sphere + self.P[t1] - self.P[held])[:, None]

    def _by_rounds(self, z: Array, t0: IntArray, t1: int) -> Array:
        total = np.zeros_like(z)
        for row, first in enumerate(t0):
            for start in range(int(first) - 1, t1, CHUNK):
                at = slice(start, min(start + CHUNK, t1))
                x = self.d.step(
                    self.h, z[row][None, :], self.s[at, None], self.gamma[at, None], self.stiffness[at, None]
                )
                total[row] += self.a[at] @ x
        return total


def _times(bound: float, weight: Array) -> Array:
    """bound · weight, with 0 for ∞·0 (a bound that is never reached)."""
    return np.where(weight > 0, bound, 0.0) * weight
