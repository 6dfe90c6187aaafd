"""eq. (6) by its kind, and the lazy sums of `algorithm.dual_averaging.LazySum`.

Every Euclidean step is one map of a coordinate, x = clip(soft(−(z + offset), threshold)·scale, lo, hi), whose numbers
depend on the round and, for the balls and the simplex, on the whole of z; the entropy alone needs an exponential.
"""

import math

from sottovoce.engine.kernel import ENTROPY, L1_BALL, L2_BALL, SEPARABLE
from sottovoce.engine.kernel.arguments import compiled, inlined

STRIP = 64  # coordinates between two looks at whether one of them needs a search


@inlined
def point(z, threshold, scale, lo, hi):
    """`Separable.step`, without offset, in selections: minima and maxima that mind NaN would take twice the time."""
    below, above = threshold - z, -threshold - z
    x = ((below if below < 0.0 else 0.0) + (above if above > 0.0 else 0.0)) * scale
    x = lo if x < lo else x
    return hi if x > hi else x


@compiled
def denominator(model, steps, r, at):
    """den_τ = s_τ(μ + μ_f) + γ_τ, for τ = at + 1."""
    q = steps.which[r]
    return steps.s[q, at] * (model.mu[r] + model.curvature) + steps.gamma[q, at]


@compiled
def square_norm(z):
    """‖z‖²."""
    total = 0.0
    for j in range(len(z)):
        total += z[j] * z[j]
    return total


@compiled
def _simplex_threshold(z, weight, radius, absolute):
    """τ with Σ (v − τ)₊ = radius, v = −z·weight or |z|·weight (Michelot 1986: drop what is below, repeat)."""
    top = -math.inf
    for j in range(len(z)):
        v = abs(z[j]) if absolute else -z[j]
        top = v if v > top else top
    level, kept = -math.inf, len(z) + 1  # relative to the largest, which saves the digits of a large z
    while True:
        total, count = 0.0, 0
        for j in range(len(z)):
            v = ((abs(z[j]) if absolute else -z[j]) - top) * weight
            if v > level:
                total += v
                count += 1
        if count >= kept:
            return level + top * weight
        kept, level = count, (total - radius) / count


@compiled
def _map_numbers(model, r, s, den, z):
    """The map argmin ⟨z, x⟩ + s h without its quadratic + (den/2)‖x‖²."""
    if model.kind == SEPARABLE:
        return 0.0, s * model.phi[r], 1.0 / den, model.lo[r], model.hi[r]
    radius = model.radius[r]
    if model.kind == L2_BALL:
        return 0.0, 0.0, 1.0 / max(den, math.sqrt(square_norm(z)) / radius), -math.inf, math.inf
    if model.kind == L1_BALL:
        size = 0.0
        for j in range(len(z)):
            size += abs(z[j])
        threshold = _simplex_threshold(z, 1.0 / den, radius, True) * den if size > radius * den else 0.0
        return 0.0, threshold, 1.0 / den, -math.inf, math.inf
    return _simplex_threshold(z, 1.0 / den, radius, False) * den, 0.0, 1.0 / den, 0.0, math.inf


@compiled
def step_numbers(model, steps, bent, r, at, z):
    """(offset, threshold, scale, lo, hi) of the map of round at + 1; z already shifted by the centre."""
    if model.descent:
        return 0.0, 0.0, -1.0, -math.inf, math.inf  # x = z
    s, den = steps.s[steps.which[r], at], denominator(model, steps, r, at)
    if bent is None:
        return 0.0, 0.0, 1.0 / den, -math.inf, math.inf
    if model.kind == SEPARABLE:
        return 0.0, s * model.phi[r], 1.0 / den, model.lo[r], model.hi[r]
    return _map_numbers(model, r, s, den, z)


@compiled
def _softmax(z, scale, x):
    top, total = -math.inf, 0.0
    for j in range(len(z)):
        top = -z[j] if -z[j] > top else top
    for j in range(len(z)):
        x[j] = math.exp((-z[j] - top) * scale)
        total += x[j]
    for j in range(len(z)):
        x[j] /= total


@compiled
def primal(model, steps, bent, r, at, z, x):
    """x = argmin ⟨z, x⟩ + s h + γ d of round at + 1; z already shifted by the centre."""
    if bent is not None:
        if model.kind == ENTROPY:
            _softmax(z, 1.0 / steps.gamma[steps.which[r], at], x)
            return
    offset, threshold, scale, lo, hi = step_numbers(model, steps, bent, r, at, z)
    for j in range(len(z)):
        x[j] = point(z[j] + offset, threshold, scale, lo, hi)


@compiled
def shrink(model, bent, r, eta, z):
    """z ← prox_{ηh}(z), in place: the map above at −z, with s = η and γ = 1."""
    den = 1.0 + eta * model.mu[r]
    if bent is not None:
        if model.kind != SEPARABLE or model.phi[r] != 0.0 or model.lo[r] > -math.inf or model.hi[r] < math.inf:
            for j in range(len(z)):
                z[j] = -z[j]
            offset, threshold, scale, lo, hi = _map_numbers(model, r, eta, den, z)
            for j in range(len(z)):
                z[j] = point(z[j] + offset, threshold, scale, lo, hi)
            return
    if den != 1.0:
        for j in range(len(z)):
            z[j] /= den


@compiled
def shifted(model, steps, r, at, z, scratch):
    """z − γx₀, in the scratch where there is a centre."""
    if len(model.centre) == 0:
        return z
    gamma = steps.gamma[steps.which[r], at]
    for j in range(len(z)):
        scratch[j] = z[j] - gamma * model.centre[j]
    return scratch


@compiled
def add_scaled(total, weight, x):
    """Total += weight·x."""
    for j in range(len(total)):
        total[j] += weight * x[j]


@compiled
def add_points(total, weight, z, threshold, scale, lo, hi):
    """Total += weight·x(z)."""
    for j in range(len(total)):
        total[j] += weight * point(z[j], threshold, scale, lo, hi)


@compiled
def ball_weight(model, steps, r, before, t, norm):
    """The factor on −z in the lazy sum over the l2 ball: on the sphere while den < ‖z‖/R."""
    q, need, held = steps.which[r], norm / model.radius[r], t
    low = before
    while low < held:
        middle = (low + held) // 2
        if denominator(model, steps, r, middle) < need:
            low = middle + 1
        else:
            held = middle
    sphere = (steps.A[q, held] - steps.A[q, before]) / need if held > before else 0.0
    return sphere + steps.P[q, t] - steps.P[q, held]


@compiled
def _first_round(model, steps, r, size, bound, beyond, before, t):
    """The first place in before … t with sφ + bound·den ≥ size (> size where `beyond`)."""
    q, phi = steps.which[r], model.phi[r]
    low, high = before, t
    while low < high:
        middle = (low + high) // 2
        level = steps.s[q, middle] * phi + bound * denominator(model, steps, r, middle)
        if level < size or (beyond and level == size):
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _one_separable(model, steps, r, z, before, t):
    """Σ a x(z, τ) over rounds before + 1 … t for one coordinate, as `LazySum._separable` finds it."""
    q, phi, size = steps.which[r], model.phi[r], abs(z)
    sign, top, bottom = (-1.0, -model.lo[r], -model.hi[r]) if z > 0.0 else (1.0, model.hi[r], model.lo[r])
    held = t if top <= 0.0 else before
    if 0.0 < top < math.inf:
        held = _first_round(model, steps, r, size, top, True, before, t)
    freed = max(held, _first_round(model, steps, r, size, bottom, False, before, t) if bottom > 0.0 else t)
    alive = _first_round(model, steps, r, size, 0.0, False, before, t) if phi > 0.0 else t
    end = min(max(alive, held), freed)
    part = size * (steps.P[q, end] - steps.P[q, held]) - phi * (steps.Q[q, end] - steps.Q[q, held])
    if held > before:
        part += top * (steps.A[q, held] - steps.A[q, before])
    if bottom > 0.0:
        part += bottom * (steps.A[q, t] - steps.A[q, freed])
    return sign * part


@inlined
def _add_lasso(total, z, near, far, dP, fixed):
    """Add what is alive, or dead, from end to end; count the others, which lie between the two thresholds."""
    crossing = 0
    for j in range(len(total)):
        size = abs(z[j])
        part = size * dP - fixed if size > far else 0.0
        total[j] += -part if z[j] > 0.0 else part
        crossing += 1 if (size > near) & (size <= far) else 0
    return crossing


@compiled
def _box_kind(z, near, near_scale, far, far_scale, lo, hi):
    """0: dead throughout; 1: free throughout; 2: at lo; 3: at hi; 4: it changes on the way."""
    first = point(z, near, near_scale, -math.inf, math.inf)
    last = point(z, far, far_scale, -math.inf, math.inf)
    free = (first > lo) & (first < hi) & (last > lo) & (last < hi) & (last != 0.0)
    kind = 1 if free else 4
    kind = 0 if (first == 0.0) & (lo <= 0.0) & (hi >= 0.0) else kind
    kind = 2 if (first <= lo) & (last <= lo) else kind
    return 3 if (first >= hi) & (last >= hi) else kind


@compiled
def _add_box(total, z, near, near_scale, far, far_scale, lo, hi, dP, fixed, at_lo, at_hi):
    """As `_add_lasso`, with bounds."""
    crossing = 0
    for j in range(len(total)):
        kind = _box_kind(z[j], near, near_scale, far, far_scale, lo, hi)
        free = -z[j] * dP + (fixed if z[j] > 0.0 else -fixed)
        part = free if kind == 1 else 0.0
        part = at_lo if kind == 2 else part
        part = at_hi if kind == 3 else part
        total[j] += part
        crossing += 1 if kind == 4 else 0
    return crossing


@compiled
def add_separable(model, steps, r, before, t, z, total):
    """Total += Σ a x(z, τ) over rounds before + 1 … t, for a separable h that is not plain l2.

    Nearly every coordinate does the same in all of these rounds, and that vectorises; where a strip has some that reach
    zero or leave a bound on the way, they are found again and searched for the round in which they do.
    """
    q = steps.which[r]
    phi, lo, hi = model.phi[r], model.lo[r], model.hi[r]
    near, far = phi * steps.s[q, before], phi * steps.s[q, t - 1]
    near_scale, far_scale = 1.0 / denominator(model, steps, r, before), 1.0 / denominator(model, steps, r, t - 1)
    dP, fixed = steps.P[q, t] - steps.P[q, before], phi * (steps.Q[q, t] - steps.Q[q, before])
    boxed = lo > -math.inf or hi < math.inf
    dA = steps.A[q, t] - steps.A[q, before]
    for first in range(0, len(z), STRIP):
        here, its = z[first : first + STRIP], total[first : first + STRIP]
        if boxed:
            left = _add_box(its, here, near, near_scale, far, far_scale, lo, hi, dP, fixed, lo * dA, hi * dA)
        else:
            left = _add_lasso(its, here, near, far, dP, fixed)
        for j in range(len(here) if left > 0 else 0):
            if boxed:
                change = _box_kind(here[j], near, near_scale, far, far_scale, lo, hi) == 4
            else:
                change = (abs(here[j]) > near) & (abs(here[j]) <= far)
            if change:
                its[j] += _one_separable(model, steps, r, here[j], before, t)
