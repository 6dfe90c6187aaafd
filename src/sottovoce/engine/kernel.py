"""Algorithm 1, compiled: rounds start … stop over flat arrays, for R runs that share schedule, records and unit noise.

The order of operations of `DualAveraging.step` is repeated here, and nowhere else; a contract test holds the two
together. State is z and total, (R, n, m), and since, (n,). A round goes in two parts.

1. *Waking*, node by node: who was drawn, and the slopes of those records at x_i(z_i). In the usual case, a record or
   two and an h with a closed form, that is all, O(nnz) for CSR rows (`_glance`). Otherwise the whole row is worked
   through: x, the sum over the rounds slept, the gradient, all of it added to z_i at once (`_wake`).
2. *Speaking*, in stretches of coordinates that stay in the first-level cache: noise is made from its counters, once
   for all R runs; the sum over the rounds slept is caught up; z becomes the message and the messages are mixed.
   Nothing of size n × m is touched. Two active nodes, one edge, have a loop of their own.

Dispatch is by integer codes, so that one compilation serves all losses and regularisers.
"""

import math
import zlib
from pathlib import Path

from numba import njit

from sottovoce.engine.kernel_arguments import FEW
from sottovoce.engine.kernel_data import clipped_slope, clipped_sum, margin_of_dual, row_at, stored
from sottovoce.engine.kernel_draws import ALL, INJECTED, draw_records
from sottovoce.engine.kernel_joint import joint_sum
from sottovoce.engine.kernel_mix import edge, mix, scatter, speak
from sottovoce.engine.kernel_steps import (
    L2_BALL,
    SEPARABLE,
    add_points,
    add_scaled,
    add_separable,
    ball_weight,
    compiled,
    primal,
    shifted,
    square_norm,
    step_numbers,
)
from sottovoce.engine.noise import BLOCK, inlined, normals, pair_key


@compiled
def _linear(model, r):
    """Whether x(z) is a multiple of z."""
    flat = model.phi[r] == 0.0 and model.lo[r] == -math.inf and model.hi[r] == math.inf
    return model.kind == L2_BALL or (model.kind == SEPARABLE and flat)


@inlined
def _glance(data, model, steps, t, before, r, z, rows, count, pull, factor):
    """Slopes of a few rows at x(z), without making x; returns the factor on −z of the rounds slept."""
    q, at = steps.which[r], before if model.frozen else t - 1
    _, threshold, scale, lo, hi = step_numbers(model, steps, r, at, z)
    linear = _linear(model, r)
    for e in range(count):
        row = rows[e]
        u = margin_of_dual(data, row, z, linear, threshold, scale, lo, hi)
        found = clipped_slope(model.loss, model.parameter, u, data.y[row], data.norms[row], model.clip[r])
        pull[e] = factor * found
    if not linear:
        return 0.0
    if model.frozen:
        return scale * (steps.A[q, t] - steps.A[q, before])
    if model.kind == L2_BALL:
        return ball_weight(model, steps, r, before, t, math.sqrt(square_norm(z)))
    return steps.P[q, t] - steps.P[q, before]


@compiled
def _catch_up(model, steps, t, before, r, weight, z, total):
    """Total += Σ a_τ x(z, τ) over the rounds slept, where there is a closed form; any stretch of coordinates."""
    if _linear(model, r):
        add_scaled(total, -weight, z)
    elif model.frozen:
        q = steps.which[r]
        _, threshold, scale, lo, hi = step_numbers(model, steps, r, before, z)
        add_points(total, steps.A[q, t] - steps.A[q, before], z, threshold, scale, lo, hi)
    else:
        add_separable(model, steps, r, before, t, z, total)


@compiled
def _round_by_round(model, steps, t, before, r, z, total, x, scratch):
    """As `_catch_up`, where there is none; rounds with the same γ (and no soft threshold) share their x."""
    q, weight = steps.which[r], 0.0
    for at in range(before, t):
        weight += steps.a[q, at]
        still = at + 1 < t and steps.gamma[q, at] == steps.gamma[q, at + 1]
        if still and model.kind != SEPARABLE and model.curvature == 0.0:
            continue
        primal(model, steps, r, at, shifted(model, steps, r, at, z, scratch), x)
        add_scaled(total, weight, x)
        weight = 0.0


@compiled
def _joint(data, model):
    """Whether records are more than a row and a slope."""
    return model.outputs > 1 or len(data.starts) > 0


@compiled
def _wake(data, model, steps, t, before, r, node, count, z, total, factor, scratch):
    """The whole row at once: x, rounds slept, gradient; leaves z_i plus its noiseless ζ_i in z."""
    q, at = steps.which[r], before if model.frozen else t - 1
    here = shifted(model, steps, r, at, z, scratch.y)
    primal(model, steps, r, at, here, scratch.x)
    if _joint(data, model):
        joint_sum(data, node, count, model, model.clip[r], scratch)
    else:
        clipped_sum(
            data, node, count, scratch.records, scratch.x, model.loss, model.parameter, model.clip[r], scratch.g
        )
    for j in range(len(z)):
        scratch.g[j] = factor[0] * scratch.g[j] - factor[1] * scratch.x[j]
    if model.frozen:
        add_scaled(total, steps.A[q, t] - steps.A[q, before], scratch.x)
    elif model.closed:
        if model.kind == L2_BALL:
            weight = ball_weight(model, steps, r, before, t, math.sqrt(square_norm(here)))
        else:
            weight = steps.P[q, t] - steps.P[q, before]
        _catch_up(model, steps, t, before, r, weight, here, total)
    else:
        _round_by_round(model, steps, t, before, r, z, total, scratch.x, scratch.y)
    add_scaled(z, 1.0, scratch.g)


@inlined
def _pick(data, noise, node, t, place, scratch):
    """The records of one active node, into the scratch."""
    if noise.sampler != INJECTED:
        q = data.offsets[node + 1] - data.offsets[node]
        return draw_records(
            noise.sampler,
            noise.records_key,
            node,
            t,
            q,
            noise.batch[node],
            noise.gap_scale[node],
            scratch.records,
            scratch.taken,
        )
    if noise.every[place]:
        return ALL
    first = noise.starts[place]
    count = noise.starts[place + 1] - first
    for e in range(count):
        scratch.records[e] = noise.records[first + e]
    return count


@inlined
def _waking(data, model, steps, noise, t, nodes, place, z, total, since, scratch):
    """Part 1 for all active nodes and all runs."""
    R, _, m = z.shape
    whole = len(model.centre) > 0 or model.curvature > 0.0 or model.kind > L2_BALL or _joint(data, model)
    for p in range(len(nodes)):
        i = nodes[p]
        before = since[i] - 1
        count = _pick(data, noise, i, t, place + p, scratch)
        if data.sparse and not whole:
            few = 0 <= count <= FEW and stored(data, i, count, scratch.records) * len(nodes) <= m
        else:
            few = 0 <= count <= 1
        scratch.pending[p] = few and not whole
        scratch.count[p] = count if few and not whole else 0
        for e in range(scratch.count[p]):
            scratch.rows[p, e] = row_at(data, i, scratch.records[e])
        for r in range(R):
            push = steps.a[steps.which[r], t - 1] * noise.scale[r, i]
            scratch.loud[r, p] = push * noise.sigma[r, i]
            scratch.weight[r, p] = 0.0
            if scratch.pending[p]:
                scratch.weight[r, p] = _glance(
                    data,
                    model,
                    steps,
                    t,
                    before,
                    r,
                    z[r, i],
                    scratch.rows[p],
                    count,
                    scratch.pull[r, p],
                    push / noise.batch[i],
                )
            else:
                factor = (push / noise.batch[i], push * model.curvature)
                _wake(data, model, steps, t, before, r, i, count, z[r, i], total[r, i], factor, scratch)


@inlined
def _speaking(data, model, steps, noise, t, nodes, W, place, z, total, since, scratch):
    """Part 2: noise, rounds slept, message, mixture; a stretch of coordinates at a time."""
    R, _, m = z.shape
    k, half = len(nodes), (m + 1) // 2
    features = 0 if data.sparse else data.X.shape[1]
    counted = len(noise.injected) == 0
    for first in range(0, half, BLOCK):
        blocks = min(BLOCK, half - first)
        for p in range(k):
            i = nodes[p]
            if noise.noisy[i]:
                k0, k1 = pair_key(noise.noise_key, i, t)
                normals(k0, k1, first, blocks, scratch.words, scratch.normals, 2 * BLOCK * p if k == 2 else 0)
            for side in range(2):
                lo = first + side * half
                hi = min(lo + blocks, m)
                for r in range(R):
                    here = z[r, i, lo:hi]
                    if scratch.pending[p] and not (k == 2 and counted and _linear(model, r)):  # `edge` does that
                        _catch_up(model, steps, t, since[i] - 1, r, scratch.weight[r, p], here, total[r, i, lo:hi])
                    if not counted:
                        push = steps.a[steps.which[r], t - 1] * noise.scale[r, i]
                        add_scaled(here, push, noise.injected[place + p, lo:hi])
                    if k != 2:
                        filled = min(hi, features) if scratch.count[p] > 0 else lo
                        row, pull = scratch.rows[p, 0], scratch.pull[r, p, 0]
                        speak(data.X, row, pull, lo, filled, here, scratch.loud[r, p], scratch.normals, side)
        for side in range(2):
            lo = first + side * half
            hi = min(lo + blocks, m)
            for r in range(R):
                if k == 2:
                    edge(data.X, features, scratch, z[r], total[r], r, nodes, W, lo, hi, side, counted)
                else:
                    mix(z[r], nodes, W, lo, hi, scratch.mixed)


def _fingerprint() -> int:
    """Of the sources that are compiled into the kernel."""
    here = Path(__file__).parent
    return zlib.crc32(b"".join(path.read_bytes() for path in sorted([*here.glob("kernel*.py"), here / "noise.py"])))


def _entry(sources: int):
    """The kernel; Numba's disk cache keys on what it closes over, so an edit of any of its files is noticed."""

    @njit(cache=True, nogil=True, _nrt=False)
    def run_rounds(data, plan, model, steps, noise, scratch, z, total, since, start, stop):
        """Run rounds start … stop; z, total and since are updated in place.

        Injected places count from the first one of round `start`.
        """
        if sources < 0:
            return
        for t in range(start, stop + 1):
            first, last = plan.starts[t - 1], plan.starts[t]
            nodes, place = plan.active[first:last], first - plan.starts[start - 1]
            corner, k = plan.corners[plan.pattern[t - 1]], last - first
            W = plan.weights[corner : corner + k * k].reshape(k, k)
            _waking(data, model, steps, noise, t, nodes, place, z, total, since, scratch)
            _speaking(data, model, steps, noise, t, nodes, W, place, z, total, since, scratch)
            for p in range(k):
                if scratch.count[p] > 0 and (data.sparse or data.intercept != 0.0):
                    for r in range(len(z)):
                        scatter(data, z[r], nodes, W, p, scratch.rows[p], scratch.count[p], scratch.pull[r, p])
            for p in range(k):
                since[nodes[p]] = t + 1

    return run_rounds


run_rounds = _entry(_fingerprint())
