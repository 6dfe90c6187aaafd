"""The first parts of a round: an active node looks at what it has drawn, and wakes. And looking rounds ahead.

1. *Looking* (`look`): which records it draws.
2. *Waking* (`wake`): the slopes of those records at x_i(z_i). In the usual case, a record or two and an h with a closed
   form, that is all, O(nnz) for CSR rows (`_glance`). Otherwise the whole row is worked through: x, the sum over the
   rounds slept, the gradient, all of it added to z_i at once (`_wake_whole`).

What an active node leaves for the parts after it stands in the scratch, at its spot.

*Looking ahead* (`look_ahead`): which records the next rounds draw, and which coordinates those touch. Several runs over
text are more state than any cache holds, and a round touches two of its rows for an instant. But coordinates meet
nowhere except in the margins of records, and few of them are touched by any record of the next hundred rounds. So a
block of rounds is gone through twice: first with copies of the touched coordinates alone, which gives the slopes; then,
the slopes being known, with everything, a part of the coordinates at a time through all the rounds, while it stays in a
cache. No number that comes out is changed by this. Of the copies the ones that are needed longest stand first: a round
works on as many as are still needed.
"""

import math

import numpy as np

from sottovoce.engine.kernel import INJECTED, L2_BALL, SEPARABLE
from sottovoce.engine.kernel.arguments import FEW, NONE, PHASE, compiled, exact
from sottovoce.engine.kernel.crew import meet
from sottovoce.engine.kernel.data import (
    clipped_slope,
    clipped_sum,
    joint_part,
    margin_of_dual,
    row_at,
    stored,
    units_of,
    weight_of,
)
from sottovoce.engine.kernel.draws import ALL, QUARTER, draw_records, pair_key, put
from sottovoce.engine.kernel.steps import (
    add_points,
    add_scaled,
    add_separable,
    ball_weight,
    primal,
    shifted,
    square_norm,
    step_numbers,
)

u64 = np.uint64  # an index that Numba can see to be non-negative


@compiled
def is_linear(model, r):
    """Whether x(z) is a multiple of z."""
    if model.descent:
        return True
    flat = model.phi[r] == 0.0 and model.lo[r] == -math.inf and model.hi[r] == math.inf
    return model.kind == L2_BALL or (model.kind == SEPARABLE and flat)


@compiled
def _glance(data, model, steps, bent, t, before, r, z, where, rows, count, pull, factor):
    """Slopes of a few rows at x(z), without making x; returns the factor on −z of the rounds slept."""
    q, at = steps.which[r], before if model.frozen else t - 1
    _, threshold, scale, lo, hi = step_numbers(model, steps, bent, r, at, z)
    linear = is_linear(model, r)
    for e in range(count):
        row = rows[e]
        u = margin_of_dual(data, bent, row, z, where, linear, threshold, scale, lo, hi)
        weight = weight_of(data, row)
        found = clipped_slope(model.loss, model.parameter, u, data.y[row], data.norms[row], model.clip[r], weight)
        pull[e] = factor * found
    if not linear:
        return 0.0
    if model.frozen:
        return scale * (steps.A[q, t] - steps.A[q, before])
    if bent is not None:
        if model.kind == L2_BALL:
            return ball_weight(model, steps, r, before, t, math.sqrt(square_norm(z)))
    return steps.P[q, t] - steps.P[q, before]


@compiled
def catch_up(model, steps, bent, t, before, r, weight, z, total):
    """Total += Σ a_τ x(z, τ) over the rounds slept, where there is a closed form; any stretch of coordinates."""
    if bent is None:
        add_scaled(total, -weight, z)
    elif is_linear(model, r):
        add_scaled(total, -weight, z)
    elif model.frozen:
        q = steps.which[r]
        _, threshold, scale, lo, hi = step_numbers(model, steps, bent, r, before, z)
        add_points(total, steps.A[q, t] - steps.A[q, before], z, threshold, scale, lo, hi)
    else:
        add_separable(model, steps, r, before, t, z, total)


@compiled
def _round_by_round(model, steps, bent, t, before, r, z, total, x, scratch):
    """As `catch_up`, where there is none; rounds with the same γ (and no soft threshold) share their x."""
    q, weight = steps.which[r], 0.0
    for at in range(before, t):
        weight += steps.a[q, at]
        still = at + 1 < t and steps.gamma[q, at] == steps.gamma[q, at + 1]
        if still and model.kind != SEPARABLE and model.curvature == 0.0:
            continue
        primal(model, steps, bent, r, at, shifted(model, steps, r, at, z, scratch), x)
        add_scaled(total, weight, x)
        weight = 0.0


@compiled
def _sum_up(data, model, joint, r, node, count, begin, end, g, scratch):
    """g = Σ clip(∂l(scratch.x, ·)) over the units of a node that were drawn, from `begin` to before `end`."""
    single = True
    if joint is not None:
        single = model.outputs == 1 and len(data.starts) == 0
        if not single:
            joint_part(data, node, count, begin, end, model, model.clip[r], g, scratch)
    if single:
        clipped_sum(
            data,
            node,
            count,
            scratch.records,
            begin,
            end,
            scratch.x,
            model.loss,
            model.parameter,
            model.clip[r],
            g,
            scratch.block,
            scratch.pulls,
            scratch.about,
        )


@compiled
def _sum_in_parts(data, model, joint, crew, r, node, count, scratch):
    """scratch.g = the sum over all units that were drawn; where it has parts, each thread sums some, the first adds."""
    total, parts = units_of(data, node, count), crew.parts
    first, step = (crew.me, crew.size) if parts > 1 else (0, 1)
    for v in range(first, parts, step):
        g = crew.sums[v][: len(scratch.g)] if parts > 1 else scratch.g
        _sum_up(data, model, joint, r, node, count, total * v // parts, total * (v + 1) // parts, g, scratch)
    if parts > 1 and meet(crew) and crew.me == 0:
        put(scratch.g, crew.sums[0])
        for v in range(1, parts):
            add_scaled(scratch.g, 1.0, crew.sums[v])


@compiled
def _wake_whole(data, model, steps, joint, bent, crew, t, before, r, node, count, z, total, factor, scratch):
    """The whole row at once: x, rounds slept, gradient; leaves what ĝ_i adds to the message in the scratch."""
    q, at = steps.which[r], before if model.frozen else t - 1
    here = shifted(model, steps, r, at, z, scratch.y)
    primal(model, steps, bent, r, at, here, scratch.x)
    _sum_in_parts(data, model, joint, crew, r, node, count, scratch)
    if crew.parts > 1 and crew.me > 0:
        return
    for j in range(len(z)):
        scratch.g[j] = factor[0] * scratch.g[j] - factor[1] * scratch.x[j]
    if model.frozen:
        add_scaled(total, steps.A[q, t] - steps.A[q, before], scratch.x)
    elif bent is None:
        add_scaled(total, steps.P[q, before] - steps.P[q, t], z)
    elif model.closed:
        if model.kind == L2_BALL:
            weight = ball_weight(model, steps, r, before, t, math.sqrt(square_norm(here)))
        else:
            weight = steps.P[q, t] - steps.P[q, before]
        catch_up(model, steps, bent, t, before, r, weight, here, total)
    else:
        _round_by_round(model, steps, bent, t, before, r, z, total, scratch.x, scratch.y)


@exact
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
            scratch.words,
        )
    if noise.every[place]:
        return ALL
    first = noise.starts[place]
    count = noise.starts[place + 1] - first
    for e in range(count):
        scratch.records[e] = noise.records[first + e]
    return count


@exact
def look(data, model, noise, few, pairs, t, node, k, speaks, place, m, spot, since, scratch):
    """Draw the records of one of k active nodes, and note what concerns it alone; gives their number."""
    scratch.before[spot] = since[node] - 1
    since[node] = t + 1
    count = _pick(data, noise, node, t, place, scratch) if speaks else 0
    if few is not None:
        glance = scratch.glances and 0 <= count <= (FEW if data.sparse else 1)
        glance = glance and (not data.sparse or stored(data, node, count, scratch.records) * k <= m)
        scratch.pending[spot] = glance
        scratch.count[spot] = count if glance else 0
        for e in range(scratch.count[spot]):
            scratch.rows[spot, e] = row_at(data, node, scratch.records[e])
    if speaks and noise.noisy[node]:
        scratch.keys[spot, 0], scratch.keys[spot, 1] = pair_key(noise.noise_key, node, t)
    if pairs is not None:
        if speaks and noise.pairs:
            address = noise.scale.shape[1] + node
            scratch.pair_keys[spot, 0], scratch.pair_keys[spot, 1] = pair_key(noise.noise_key, address, t)
    return count


@exact
def wake(data, model, steps, noise, few, joint, bent, crew, t, node, speaks, count, where, spot, z, total, scratch):
    """The slopes of an active node's records, for all runs."""
    before = scratch.before[spot]
    for r in range(len(z)):
        push = steps.push[steps.which[r], t - 1] * noise.scale[r, node] if speaks else 0.0
        scratch.loud[r, spot] = push * noise.sigma[r, node]
        glance = False
        if few is not None:
            glance = scratch.pending[spot]
            scratch.weight[r, spot] = 0.0
            if glance:
                rows, pull, factor = scratch.rows[spot], scratch.pull[r, spot], push / noise.batch[node]
                found = _glance(data, model, steps, bent, t, before, r, z[r, node], where, rows, count, pull, factor)
                scratch.weight[r, spot] = found
        if not glance:
            factors = (push / noise.batch[node], push * model.curvature)
            mine, its = z[r, node], total[r, node]
            _wake_whole(data, model, steps, joint, bent, crew, t, before, r, node, count, mine, its, factors, scratch)
            if crew.parts == 1 or crew.me == 0:
                if model.after:
                    put(scratch.held[r, spot], scratch.g)
                else:
                    add_scaled(z[r, node], 1.0, scratch.g)
            if crew.parts > 1 and not meet(crew):  # now the others may read z
                return


@compiled
def _mark(indices, marked, mark):
    """Mark the coordinates of a CSR row, over older marks; gives how many had none."""
    new = 0
    for e in range(len(indices)):
        new += marked[indices[e]] == 0
        marked[indices[e]] = mark
    return new


@compiled
def _list_touched(tiles, rounds, m):
    """The touched coordinates in order, their places among the copies, and how many each of the rounds needs; no marks.

    Those touched last come first, PHASE rounds alike, and those in order: they are copied to few lines at a time.
    """
    half, found = (m + 1) // 2, 0
    tiles.places[:] = 0
    for j in range(m):
        tiles.touched[found] = j
        found += tiles.marked[j] != 0
    for at in range(found):
        tiles.places[tiles.marked[tiles.touched[at]]] += 1
    before = 0
    for mark in range(len(tiles.places) - 1, -1, -1):
        count = tiles.places[mark]
        tiles.places[mark] = before
        before += count
        if mark > 0:
            tiles.needed[(mark - 1) * PHASE : min(mark * PHASE, rounds)] = before
    for at in range(found):
        j = tiles.touched[at]
        mark = tiles.marked[j]
        place = tiles.places[mark]
        tiles.places[mark] = place + 1
        tiles.marked[j] = 0
        tiles.where[j], tiles.seats[at] = place, place
        tiles.counters[place] = j if j < half else j - half
        tiles.turns[place] = 0 if j < half else QUARTER


@compiled
def _first_beyond(indices, half):
    """Where the coordinates from half on begin."""
    low, high = 0, len(indices)
    while low < high:
        middle = (low + high) // 2
        if indices[middle] < half:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def look_ahead(data, plan, model, noise, few, tiles, t, stop, m, since, scratch):
    """Look at rounds t … last, all of few records, and count the coordinates that they touch: (last, count).

    The count is 0 where going through these rounds one by one is no worse; `last` is t − 1 where round t itself must
    be looked at when its turn comes.
    """
    half, spot, last, touched = (m + 1) // 2, NONE, t - 1, 0
    if tiles is not None:
        if data.intercept != 0.0:
            tiles.marked[m - 1] = len(tiles.places) - 1
            touched = 1
    for s in range(t, stop + 1):
        first, k = plan.starts[s - 1], plan.starts[s] - plan.starts[s - 1]
        nodes = plan.active[first : first + k]
        if spot + k > len(scratch.count):
            break
        short, entries = True, 0
        for p in range(k):
            at = spot + p
            look(data, model, noise, few, None, s, nodes[p], k, p < plan.speakers, NONE, m, at, since, scratch)
            short = short and scratch.pending[spot + p]
            if tiles is not None:
                for e in range(scratch.count[spot + p]):
                    row = scratch.rows[spot + p, e]
                    entries += data.indptr[row + 1] - data.indptr[row]
        full = False
        if tiles is not None:
            full = touched + entries >= len(tiles.touched)
        if not short or full:
            for p in range(k):
                since[nodes[p]] = scratch.before[spot + p] + 1  # as if nobody had looked
            break
        if tiles is not None:
            for p in range(spot, spot + k):
                for e in range(scratch.count[p]):
                    begin, end = data.indptr[scratch.rows[p, e]], data.indptr[scratch.rows[p, e] + 1]
                    touched += _mark(data.indices[begin:end], tiles.marked, (s - t) // PHASE + 1)
                    tiles.next[p, e, 0] = begin
                    tiles.next[p, e, 1] = begin + _first_beyond(data.indices[begin:end], half)
        spot += k
        last = s
    if tiles is not None:
        _list_touched(tiles, last + 1 - t, m)
        touched = touched if spot >= tiles.least else 0
    return last, touched


@compiled
def take(z, tiles, touched, copies):
    """Copy the touched coordinates together; in the order of z, because that is where memory is far."""
    for r in range(z.shape[0]):
        for i in range(z.shape[1]):
            row, mine = z[r, i], copies[r, i]
            for at in range(touched):
                mine[u64(tiles.seats[u64(at)])] = row[u64(tiles.touched[u64(at)])]
