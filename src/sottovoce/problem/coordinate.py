r"""One pass of proximal stochastic dual coordinate ascent (Shalev-Shwartz and Zhang, 2014).

The dual point is a slope s_r a row. Beside it are kept z = κx₀ − Σ w_r s_r c_r, the argument of ∇(h + κ‖· − x₀‖²/2)*,
and its value x, a soft threshold, a division and a clip of z. A row costs one product ⟨c, x⟩ and, where its slope
moves, one update of z and x.

The native extension goes through the rows (`src/native/dual.hpp`); where an installation is without it, NumPy does,
row by row. Both visit the rows in the same order and agree to rounding.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array, IntArray
from sottovoce.extension import AVAILABLE, records
from sottovoce.matrices import is_sparse
from sottovoce.problem.shards import Shards

NEWTON_STEPS = 60  # bisection alone would be down to rounding by then


class Dual(NamedTuple):
    """What does not change in a pass: of every row its target, weight, step and interval; the loss; and h."""

    y: Array
    w: Array
    steps: Array
    low: Array
    high: Array
    curvature: float
    entropy: bool
    phi: float
    scale: float
    lo: float
    hi: float


class Passes:
    """Passes over the rows of some shards."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self._native: Any = None
        X = shards.X
        if AVAILABLE and (X.data if is_sparse(X) else X).dtype in (np.float32, np.float64):
            from sottovoce import _native  # an installation may be without it

            self._native = _native.Records(records(X, shards.intercept, shards.y, shards.y, shards))

    def sweep(self, dual: Dual, rows: IntArray, s: Array, z: Array, x: Array) -> None:
        """Visit the given rows once, in their order; s, z and x are updated in place."""
        if self._native is None:
            return self._in_numpy(dual, rows, s, z, x)
        from sottovoce._native import dual_pass

        y, w, steps, low, high = (np.ascontiguousarray(values, np.float64) for values in dual[:5])
        given = dual._replace(y=y, w=w, steps=steps, low=low, high=high)
        return dual_pass(self._native, given, np.ascontiguousarray(rows, np.int64), s, z, x)

    def _in_numpy(self, dual: Dual, rows: IntArray, s: Array, z: Array, x: Array) -> None:
        X, B = self.shards.X, self.shards.intercept
        features = X.shape[1]
        for r in rows.tolist():
            filled: Any = slice(0, features)
            if is_sparse(X):
                at = slice(int(X.indptr[r]), int(X.indptr[r + 1]))
                filled, c = X.indices[at], X.data[at].astype(np.float64)
            else:
                c = X[r].astype(np.float64)
            u = float(c @ x[filled]) + (B * float(x[-1]) if B else 0.0)
            new = _new_slope(dual, r, float(s[r]), u)
            if new == s[r]:
                continue
            push = float(dual.w[r]) * (float(s[r]) - new)
            s[r] = new
            z[filled] += push * c
            x[filled] = _primal(dual, z[filled])
            if B:
                z[-1] += push * B
                x[-1:] = _primal(dual, z[-1:])


def _primal(dual: Dual, z: NDArray[np.float64]) -> Array:
    """Soft threshold at φ, scale by 1/(μ + κ), clip."""
    return np.clip(np.sign(z) * np.maximum(np.abs(z) - dual.phi, 0.0) * dual.scale, dual.lo, dual.hi)


def _new_slope(dual: Dual, r: int, s: float, u: float) -> float:
    """The slope that raises the dual's quadratic lower bound most along one coordinate."""
    y, eta, low, high = (float(v) for v in (dual.y[r], dual.steps[r] * dual.scale, dual.low[r], dual.high[r]))
    if dual.entropy:
        return _logistic_slope(s, u, y, eta)
    ascent, bend = u - y - dual.curvature * s, eta + dual.curvature
    if bend > 0.0:
        s += ascent / bend
    elif ascent != 0.0:  # an empty row and a piecewise linear loss: the best slope is an end of the interval
        s = high if ascent > 0.0 else low
    return min(max(s, low), high)


def _logistic_slope(s: float, u: float, y: float, eta: float) -> float:
    """argmax of −φ*(s′) + (s′ − s)u − η(s′ − s)²/2 for the logistic entropy.

    With α = −s′y and t = log α/(1 − α) its condition is t + yu + η(σ(t) − σ₀) = 0: increasing in t, with a slope
    between 1 and 1 + η/4, and a root between the two ends where σ(t) is replaced by 1 and by 0.
    """
    margin, start = y * u, -s * y
    low, high = -margin - eta * (1.0 - start), -margin + eta * start
    t = min(max(math.log(start / (1.0 - start)), low), high) if 0.0 < start < 1.0 else 0.5 * (low + high)
    for _ in range(NEWTON_STEPS):
        share = 1.0 / (1.0 + math.exp(-t)) if t > -700.0 else 0.0
        excess = t + margin + eta * (share - start)
        if excess > 0.0:
            high = t
        else:
            low = t
        new = t - excess / (1.0 + eta * share * (1.0 - share))
        if not low < new < high:
            new = 0.5 * (low + high)
        t, moved = new, abs(new - t)
        if moved <= 1e-14 * (1.0 + abs(t)):
            break
    return -y / (1.0 + math.exp(-t)) if t > -700.0 else 0.0
