r"""One pass of proximal stochastic dual coordinate ascent (Shalev-Shwartz and Zhang, 2014), compiled.

The dual point is a slope s_r a row. Beside it are kept z = κx₀ − Σ w_r s_r c_r, the argument of ∇(h + κ‖· − x₀‖²/2)*,
and its value x, a soft threshold, a division and a clip of z. A row costs one product ⟨c, x⟩ and, where its slope
moves, one update of z and x at its filled coordinates: all of them in a dense row, the stored ones in a CSR row.

Data is read where it lies, in float32 or float64; all sums are float64. The intercept is the last coordinate of z and
x, and its constant column is never written down.
"""

import math

from numba import njit

from sottovoce._types import Array, IntArray

# Sums may be reordered, which is what lets them vectorise; the other liberties of `fastmath` (no infinities, no NaN)
# are not taken, because slopes and boxes may be unbounded.
compiled = njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})
NEWTON_STEPS = 60  # bisection alone would be down to rounding by then


@compiled
def _primal(z: float, phi: float, scale: float, lo: float, hi: float) -> float:
    """Soft threshold at φ, scale by 1/(μ + κ), clip."""
    x = (z - phi if z > phi else (z + phi if z < -phi else 0.0)) * scale
    x = lo if x < lo else x
    return hi if x > hi else x


@compiled
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
        if abs(new - t) <= 1e-14 * (1.0 + abs(t)):
            t = new
            break
        t = new
    return -y / (1.0 + math.exp(-t)) if t > -700.0 else 0.0


@compiled
def _new_slope(
    s: float, u: float, y: float, eta: float, low: float, high: float, curvature: float, entropy: bool
) -> float:
    """The slope that raises the dual's quadratic lower bound most along one coordinate."""
    if entropy:
        return _logistic_slope(s, u, y, eta)
    ascent, bend = u - y - curvature * s, eta + curvature
    if bend > 0.0:
        s += ascent / bend
    elif ascent != 0.0:  # an empty row and a piecewise linear loss: the best slope is an end of the interval
        s = high if ascent > 0.0 else low
    s = low if s < low else s
    return high if s > high else s


@compiled
def dense_pass(
    X: Array,
    intercept: float,
    rows: IntArray,
    y: Array,
    w: Array,
    steps: Array,
    low: Array,
    high: Array,
    curvature: float,
    entropy: bool,
    phi: float,
    scale: float,
    lo: float,
    hi: float,
    s: Array,
    z: Array,
    x: Array,
) -> None:
    """Visit the given rows of a dense array once, in their order; s, z and x are updated in place."""
    m = X.shape[1]
    for r in rows:
        u = intercept * x[m] if intercept != 0.0 else 0.0
        for j in range(m):
            u += X[r, j] * x[j]
        new = _new_slope(s[r], u, y[r], steps[r] * scale, low[r], high[r], curvature, entropy)
        if new == s[r]:
            continue
        push = w[r] * (s[r] - new)
        s[r] = new
        for j in range(m):
            z[j] += push * X[r, j]
            x[j] = _primal(z[j], phi, scale, lo, hi)
        if intercept != 0.0:
            z[m] += push * intercept
            x[m] = _primal(z[m], phi, scale, lo, hi)


@compiled
def sparse_pass(
    data: Array,
    indices: IntArray,
    indptr: IntArray,
    intercept: float,
    rows: IntArray,
    y: Array,
    w: Array,
    steps: Array,
    low: Array,
    high: Array,
    curvature: float,
    entropy: bool,
    phi: float,
    scale: float,
    lo: float,
    hi: float,
    s: Array,
    z: Array,
    x: Array,
) -> None:
    """Visit the given rows of a CSR matrix once, in their order; s, z and x are updated in place."""
    last = x.shape[0] - 1
    for r in rows:
        u = intercept * x[last] if intercept != 0.0 else 0.0
        for k in range(indptr[r], indptr[r + 1]):
            u += data[k] * x[indices[k]]
        new = _new_slope(s[r], u, y[r], steps[r] * scale, low[r], high[r], curvature, entropy)
        if new == s[r]:
            continue
        push = w[r] * (s[r] - new)
        s[r] = new
        for k in range(indptr[r], indptr[r + 1]):
            j = indices[k]
            z[j] += push * data[k]
            x[j] = _primal(z[j], phi, scale, lo, hi)
        if intercept != 0.0:
            z[last] += push * intercept
            x[last] = _primal(z[last], phi, scale, lo, hi)
