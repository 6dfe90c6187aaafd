"""The last parts of a round: the active nodes speak, z_i ← Σ_j w_ij (z_j + pull·c + loud·ν), and settle.

3. *Speaking* (`speak_part`), for part of the coordinates at a time, which stays in the first-level cache: noise is made
   from its counters, once for all R runs; the sum over the rounds slept is caught up; z becomes the message and the
   messages are mixed. Nothing of size n × m is touched. Two active nodes, one edge, have a loop of their own (`_edge`).
   Where all nodes share secrets with all, what they share is drawn, together, only where it is not gone from what they
   end with. Where liars are bounded, messages are averaged whole (`bound`), after this part, or before it in descent
   that combines first.
4. *Settling* (`settle`, `shrink_part`): what few records add to few coordinates; the proximal step of descent.
"""

import math

import numpy as np

from sottovoce.engine.kernel import CLIPPED
from sottovoce.engine.kernel.arguments import BLOCK, NONE, compiled, exact, folded, inlined
from sottovoce.engine.kernel.data import CHUNK, fetch
from sottovoce.engine.kernel.draws import normals, padded, put
from sottovoce.engine.kernel.steps import add_scaled, shrink
from sottovoce.engine.kernel.wake import catch_up, is_linear

u64 = np.uint64  # an index that Numba can see to be non-negative: else it guards, and does not vectorise
OTHER = u64(2 * BLOCK)  # from one node's normals to the other's


@compiled
def _mean(z, nodes, weight, lo, hi, mean):
    """z_i ← weight·Σ_j z_j for coordinates lo … hi − 1 of the given nodes, in place."""
    mean[: hi - lo] = 0.0
    for p in range(len(nodes)):
        add_scaled(mean[: hi - lo], weight, z[nodes[p], lo:hi])
    for p in range(len(nodes)):
        put(z[nodes[p], lo:hi], mean)


@compiled
def _mix(z, nodes, W, lo, hi, mixed):
    """z_i ← Σ_j w_ij z_j for coordinates lo … hi − 1 of the given nodes, in place."""
    for p in range(len(nodes)):
        out = mixed[p, : hi - lo]
        out[:] = 0.0
        for q in range(len(nodes)):
            if W[p, q] != 0.0:
                add_scaled(out, W[p, q], z[nodes[q], lo:hi])
    for p in range(len(nodes)):
        put(z[nodes[p], lo:hi], mixed[p, : hi - lo])


@compiled
def _square_distance(a, b):
    total = 0.0
    for j in range(len(a)):
        total += (a[j] - b[j]) * (a[j] - b[j])
    return total


@compiled
def _add_difference(out, weight, a, b):
    for j in range(len(out)):
        out[j] += weight * (a[j] - b[j])


@compiled
def _clip(z, nodes, W, radius, wide):
    """z_i ← z_i + Σ_j w_ij clip(z_j − z_i), in place; what is not finite counts as nothing."""
    for p in range(len(nodes)):
        own, out = z[nodes[p]], wide[p]
        put(out, own)
        for q in range(len(nodes)):
            if q != p and W[p, q] > 0.0:
                length = math.sqrt(_square_distance(z[nodes[q]], own))
                if 0.0 < length < math.inf:
                    _add_difference(out, W[p, q] * min(1.0, radius / length), z[nodes[q]], own)
    for p in range(len(nodes)):
        put(z[nodes[p]], wide[p])


@compiled
def _middle(heard, count, trimmed):
    """The mean of `count` values without the `trimmed` largest and smallest; sorts them in place."""
    for e in range(1, count):
        value, at = heard[e], e
        while at > 0 and not heard[at - 1] <= value and value == value:  # not a number: large
            heard[at] = heard[at - 1]
            at -= 1
        heard[at] = value
    total = 0.0
    for e in range(trimmed, count - trimmed):
        total += heard[e]
    return total / (count - 2 * trimmed)


@compiled
def _trim(z, nodes, W, trimmed, wide, heard):
    """z_i ← the trimmed mean of the z_j that it hears, its own among them, in place."""
    k = len(nodes)
    for p in range(k):
        same, count = p > 0, 0
        for q in range(k):
            hears = q == p or W[p, q] > 0.0
            count += hears
            same = same and hears == (q == p - 1 or W[p - 1, q] > 0.0)
        if same:
            put(wide[p], wide[p - 1])
            continue
        cut = trimmed if count > 2 * trimmed else 0
        for j in range(wide.shape[1]):
            count = 0
            for q in range(k):
                if q == p or W[p, q] > 0.0:
                    heard[count] = z[nodes[q], j]
                    count += 1
            wide[p, j] = _middle(heard, count, cut) if cut > 0 else z[nodes[p], j]
    for p in range(k):
        put(z[nodes[p]], wide[p])


@compiled
def bound(plan, steps, t, nodes, W, z, scratch):
    """Average whole messages so that liars are bounded, for all runs; a radius is in units of what one ζ weighs."""
    for r in range(len(z)):
        if plan.averaging == CLIPPED:
            unit = abs(steps.push[steps.which[r], t - 1])
            _clip(z[r], nodes, W, plan.bound * unit, scratch.wide)
        else:
            _trim(z[r], nodes, W, int(plan.bound), scratch.wide, scratch.heard)


@folded
def _edge(z0, z1, total0, total1, slept0, slept1, normals, c0, c1, F0, F1):
    """One stretch of two nodes: z_p = the combination F_p of both z, both normals and both rows.

    Totals, rows and F1 may be None: no sums, no rows, the same for both; nothing is left of them in the machine code.
    """
    w00, w01, n00, n01, p00, p01 = F0
    for j in range(len(z0)):
        s0, s1 = z0[j], z1[j]
        v0, v1 = normals[j], normals[u64(j) + OTHER]
        if total0 is not None:
            total0[j] -= slept0 * s0
            total1[j] -= slept1 * s1
        said = w00 * s0 + w01 * s1 + n00 * v0 + n01 * v1
        if c0 is not None:
            said += p00 * c0[j] + p01 * c1[j]
        z0[j] = said
        if F1 is not None:
            w10, w11, n10, n11, p10, p11 = F1
            said = w10 * s0 + w11 * s1 + n10 * v0 + n11 * v1
            if c0 is not None:
                said += p10 * c0[j] + p11 * c1[j]
        z1[j] = said


@compiled
def _any_edge(summed, z0, z1, total0, total1, slept0, slept1, normals, c0, c1, F0, F1, alike):
    """The shortest loop that does it; `summed` is None where there are always sums to be caught up with."""
    if summed is not None:
        if slept0 == 0.0 and slept1 == 0.0:
            if alike:
                _edge(z0, z1, None, None, slept0, slept1, normals, c0, c1, F0, None)
            else:
                _edge(z0, z1, None, None, slept0, slept1, normals, c0, c1, F0, F1)
            return
    if alike:
        _edge(z0, z1, total0, total1, slept0, slept1, normals, c0, c1, F0, None)
    else:
        _edge(z0, z1, total0, total1, slept0, slept1, normals, c0, c1, F0, F1)


@compiled
def _both(summed, X, sparse, z, total, nodes, W, part, spot, normals, said, slept, after):
    """Rounds slept, noise, gradient and mixture of two nodes in one pass, for part of the coordinates, for all runs.

    A node without a row to add pulls nothing on row 0; one that has caught up by other means has the weight 0.
    `slept` is False where all have. What is said is mixed as z is (G = W), or joins after mixing (G = I).
    """
    rows, count, pull, weight, loud = said
    R, _, m = z.shape
    i0, i1, other = nodes[0], nodes[1], spot + 1
    w00, w01, w10, w11 = W[0, 0], W[0, 1], W[1, 0], W[1, 1]
    g00, g01, g10, g11 = (1.0, 0.0, 0.0, 1.0) if after else (w00, w01, w10, w11)
    alike = w00 == w10 and w01 == w11 and not after
    features = X.shape[1] if count[spot] + count[other] > 0 and not sparse else 0
    row0, row1 = rows[spot, 0], rows[other, 0]
    for r in range(R):
        s0, s1 = (weight[r, spot], weight[r, other]) if slept else (0.0, 0.0)
        l0, l1 = loud[r, spot], loud[r, other]
        p0 = pull[r, spot, 0] if count[spot] > 0 else 0.0
        p1 = pull[r, other, 0] if count[other] > 0 else 0.0
        F0 = (w00, w01, g00 * l0, g01 * l1, g00 * p0, g01 * p1)
        F1 = (w10, w11, g10 * l0, g11 * l1, g10 * p0, g11 * p1)
        z0, z1, total0, total1 = z[r, i0], z[r, i1], total[r, i0], total[r, i1]
        for side in range(2):
            lo, at = part.first + side * part.half, side * BLOCK
            hi = max(lo, min(lo + part.size, m))
            filled = min(hi, features) if features > lo else lo
            if filled > lo:
                a0, a1, b0, b1 = z0[lo:filled], z1[lo:filled], total0[lo:filled], total1[lo:filled]
                c0, c1 = X[row0, lo:filled], X[row1, lo:filled]
                _any_edge(summed, a0, a1, b0, b1, s0, s1, normals[at:], c0, c1, F0, F1, alike)
            if hi > filled:
                a0, a1, b0, b1 = z0[filled:hi], z1[filled:hi], total0[filled:hi], total1[filled:hi]
                _any_edge(summed, a0, a1, b0, b1, s0, s1, normals[at + filled - lo :], None, None, F0, F1, alike)


@compiled
def add_entries(z, weight, indices, first, values):
    """Add entries of a CSR row to the coordinates from `first` on."""
    for e in range(len(indices)):
        z[u64(indices[e]) - u64(first)] += weight * values[e]


@exact
def add_intercept(z, at, share, pull, count, intercept):
    """One after another: a sum in another order would be another number."""
    for e in range(count):
        z[at] += share * pull[e] * intercept


@exact
def _scatter_part(data, z, nodes, W, p, rows, count, pull, after, part, nexts):
    """As `_scatter`, for part of the coordinates; parts come in order, as entries do: `nexts` is how far they are."""
    for e in range(count):
        last = data.indptr[rows[e] + 1]
        for side in range(2):
            first, bound = nexts[e, side], part.first + part.size + side * part.half
            end = first
            while end < last and data.indices[end] < bound:
                end += 1
            if end > first:
                nexts[e, side] = end
                indices, values = data.indices[first:end], data.values[first:end]
                for q in range(len(nodes)):
                    share = (1.0 if q == p else 0.0) if after else W[q, p]
                    for r in range(len(z) if share != 0.0 else 0):
                        add_entries(z[r, nodes[q]], share * pull[r, e], indices, NONE, values)
    at = len(z[0, 0]) - 1 - part.half - part.first
    if data.intercept != 0.0 and 0 <= at < part.size:
        for q in range(len(nodes)):
            share = (1.0 if q == p else 0.0) if after else W[q, p]
            for r in range(len(z) if share != 0.0 else 0):
                add_intercept(z[r, nodes[q]], len(z[0, 0]) - 1, share, pull[r], count, data.intercept)


@compiled
def _scatter(data, z, where, nodes, W, p, rows, count, pull, after):
    """Add what is not in dense rows, after mixing: CSR entries and the intercept of node p, with everybody's weight."""
    for q in range(len(nodes)):
        share = (1.0 if q == p else 0.0) if after else W[q, p]
        if share == 0.0:
            continue
        mine = z[nodes[q]]
        for e in range(count):
            weight = share * pull[e]
            if data.sparse:
                for place in range(data.indptr[rows[e]], data.indptr[rows[e] + 1]):
                    mine[u64(where[u64(data.indices[place])])] += weight * data.values[place]
        if data.intercept != 0.0:
            add_intercept(mine, where[len(where) - 1], share, pull, count, data.intercept)


@exact
def _say(data, model, steps, noise, few, t, r, spot, i, quick, place, lo, hi, side, z, scratch):
    """Add coordinates lo … hi − 1 of what node i says, but for what the loop of an edge does by itself."""
    if len(noise.injected) > 0:
        push = steps.push[steps.which[r], t - 1] * noise.scale[r, i]
        add_scaled(z, push, noise.injected[place, lo:hi])
    glance = False
    if few is not None:
        glance = scratch.pending[spot]
        filled = lo if data.sparse or scratch.count[spot] == 0 else min(hi, data.X.shape[1])
        if filled > lo and not quick:
            row, pull = scratch.rows[spot, 0], scratch.pull[r, spot, 0]
            add_scaled(z[: filled - lo], pull, data.X[row, lo:filled])
    if model.after and not glance:
        add_scaled(z, 1.0, scratch.held[r, spot, lo:hi])
    loud = scratch.loud[r, spot]
    if loud != 0.0 and not quick:
        add_scaled(z, loud, scratch.normals[side * BLOCK : side * BLOCK + len(z)])


@exact
def _draw_normals(tiles, part, counters, spot, at, ask, scratch):
    """Normals of a node for part of the coordinates, to `at` and after it.

    Meanwhile memory is asked for the numbers of `ask`, a few at a time: it forgets what is too much at once.
    """
    k0, k1, step = scratch.keys[spot, 0], scratch.keys[spot, 1], CHUNK if len(ask) > 0 else BLOCK
    for c in range(0, part.size, step):
        size = min(step, part.size - c)
        low, high = part.first + c, part.first + c + padded(size)
        cosines, sines = scratch.normals[at + c :], scratch.normals[at + c + BLOCK :]
        if tiles is not None:
            if part.copies:
                normals(k0, k1, counters[low:high], tiles.turns[low:high], scratch.words, cosines, sines)
        if not part.copies:
            normals(k0, k1, counters[low:high], None, scratch.words, cosines, sines)
        fetch(ask[c * len(ask) // part.size : (c + size) * len(ask) // part.size])


@compiled
def _add_up(sums, normals):
    for j in range(len(sums)):
        sums[j] += normals[j]


@exact
def _share(steps, noise, t, nodes, speakers, spot, part, counters, z, scratch):
    """Add ρ/c_i (√a η_i − Σ η/√a) to what each of a speakers says, for part of the coordinates; `sums` is Σ η."""
    R, _, m = z.shape
    root = math.sqrt(speakers)
    scratch.sums[:] = 0.0
    for again in range(2):
        for p in range(speakers):
            i = nodes[p]
            if again == 0:
                k0, k1 = scratch.pair_keys[spot + p, 0], scratch.pair_keys[spot + p, 1]
                mine = counters[part.first : part.first + padded(part.size)]
                normals(k0, k1, mine, None, scratch.words, scratch.normals, scratch.normals[BLOCK:])
                _add_up(scratch.sums, scratch.normals)
            for side in range(2):
                lo = part.first + side * part.half
                hi = max(lo, min(lo + part.size, m))
                for r in range(R):
                    factor = steps.push[steps.which[r], t - 1] * noise.scale[r, i] * noise.shared[r, i]
                    if again == 0:
                        add_scaled(z[r, i, lo:hi], factor * root, scratch.normals[side * BLOCK :])
                    else:
                        add_scaled(z[r, i, lo:hi], -factor / root, scratch.sums[side * BLOCK :])


@inlined
def _upcoming(data, spot, part, scratch):
    """The dense row that the node at a spot is going to need, if it is known and not asked for yet; else nothing."""
    soon = part.first == 0 and spot < part.known and scratch.count[spot] > 0 and not data.sparse
    row = scratch.rows[spot, 0] if soon else 0
    fetch(data.y[row : row + soon])
    fetch(data.norms[row : row + soon])
    return data.X[row, : data.X.shape[1] if soon else 0]


@exact
def speak_part(
    data,
    model,
    steps,
    noise,
    few,
    tiles,
    pairs,
    bent,
    t,
    nodes,
    speakers,
    W,
    how,
    place,
    spot,
    part,
    counters,
    z,
    total,
    scratch,
):
    """Noise, rounds slept, message, mixture, for part of the coordinates.

    `how` says whether two nodes are alone in it (`quick`), whether pairs' noise does not cancel of itself (`shared`),
    whether messages are averaged here at all (`mixes`), and whether by their mean (`flat`).
    """
    R, _, m = z.shape
    quick, shared, mixes, flat = how
    k, counted = len(nodes), len(noise.injected) == 0
    for p in range(k):
        i, mine = nodes[p], spot + p
        if p < speakers and noise.noisy[i] and (quick or not model.after):
            ask = data.X[0, :0]
            if few is not None:
                ask = _upcoming(data, mine + k, part, scratch)
            _draw_normals(tiles, part, counters, mine, 2 * BLOCK * p if quick else 0, ask, scratch)
        for side in range(2):
            lo = part.first + side * part.half
            hi = max(lo, min(lo + part.size, m))
            for r in range(R):
                here = z[r, i, lo:hi]
                if few is not None:
                    summed = part.copies or not scratch.pending[mine] or (quick and counted and is_linear(model, r))
                    if not summed:  # nor will `_both` do it
                        weight = scratch.weight[r, mine]
                        catch_up(model, steps, bent, t, scratch.before[mine], r, weight, here, total[r, i, lo:hi])
                if p < speakers and not model.after:
                    at = place + p
                    _say(data, model, steps, noise, few, t, r, mine, i, quick, at, lo, hi, side, here, scratch)
    if pairs is not None:
        if shared and not model.after:
            _share(steps, noise, t, nodes, speakers, spot, part, counters, z, scratch)
    if few is not None:
        if quick:
            slept, said, X = counted and not part.copies, _said(scratch), data.X
            noises, after = scratch.normals, model.after
            if tiles is None:  # no copies, which have no sums
                _both(bent, X, data.sparse, z, total, nodes, W, part, spot, noises, said, slept, after)
            else:
                _both(True, X, data.sparse, z, total, nodes, W, part, spot, noises, said, slept, after)
    if mixes and not quick:
        for side in range(2):
            lo = part.first + side * part.half
            hi = max(lo, min(lo + part.size, m))
            for r in range(R):
                if flat:
                    _mean(z[r], nodes, 1.0 / k, lo, hi, scratch.mixed[0])
                else:
                    _mix(z[r], nodes, W, lo, hi, scratch.mixed)
    for p in range(speakers if model.after else 0):
        i, mine, at = nodes[p], spot + p, place + p
        if not quick and noise.noisy[i]:
            _draw_normals(tiles, part, counters, mine, NONE, data.X[0, :0], scratch)
        for side in range(2):
            lo = part.first + side * part.half
            hi = max(lo, min(lo + part.size, m))
            for r in range(R):
                _say(data, model, steps, noise, few, t, r, mine, i, quick, at, lo, hi, side, z[r, i, lo:hi], scratch)
    if pairs is not None:
        if shared and model.after:
            _share(steps, noise, t, nodes, speakers, spot, part, counters, z, scratch)


@inlined
def _said(scratch):
    """What `_both` needs of the spots: every array that is handed to a function costs time."""
    return scratch.rows, scratch.count, scratch.pull, scratch.weight, scratch.loud


@exact
def settle(data, model, nodes, W, where, spot, z, scratch):
    """What is not in dense rows, added after mixing."""
    for p in range(len(nodes)):
        count = scratch.count[spot + p]
        if count > 0 and (data.sparse or data.intercept != 0.0):
            for r in range(len(z)):
                pull = scratch.pull[r, spot + p]
                _scatter(data, z[r], where, nodes, W, p, scratch.rows[spot + p], count, pull, model.after)


@exact
def settle_part(data, model, tiles, nodes, W, spot, part, z, scratch):
    """As `settle`, for part of the coordinates, in a round that was looked at ahead."""
    for p in range(len(nodes)):
        at = spot + p
        if scratch.count[at] > 0:
            rows, pull, nexts = scratch.rows[at], scratch.pull[:, at], tiles.next[at]
            _scatter_part(data, z, nodes, W, p, rows, scratch.count[at], pull, model.after, part, nexts)


@exact
def shrink_part(model, steps, bent, t, nodes, speakers, part, z):
    """The proximal step of descent, for part of the coordinates, or for all where h must see them together."""
    for p in range(speakers if model.descent else 0):
        for r in range(len(z)):
            eta, mine = -steps.push[steps.which[r], t - 1], z[r, nodes[p]]
            if not part.later:
                shrink(model, bent, r, eta, mine)
            else:
                first, second = part.first, part.first + part.half
                shrink(model, bent, r, eta, mine[first : first + part.size])
                shrink(model, bent, r, eta, mine[second : max(second, min(second + part.size, len(mine)))])
