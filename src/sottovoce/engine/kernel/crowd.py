"""Rounds in which very many nodes speak, the same ones every time: no matrix, and nothing of size n² or T·n.

*Alike* (`run_alike`). Where a round ends with the mean of all, every node holds the same, and goes on holding it: x is
made once, all records are gone through in the order of memory, and everybody's noise is summed as it is drawn. The
state is one row, and noise that pairs of nodes share is gone from the mean before anybody could have drawn it.

*Apart* (`run_apart`). Elsewhere every node has a row. A round is one pass over them: a row is made of its neighbours'
messages of the round before, and becomes this round's message at once, while it is in the nearest cache.

Normals come from the counters that all engines have (`draws`), those of several nodes side by side: a model of 50
numbers would leave most lanes of a vector empty.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.engine.kernel import L2_BALL, entries
from sottovoce.engine.kernel.arguments import BATCH, BLOCK, LANES, OUTSIDE, compiled, exact, fast, folded, inlined, njit
from sottovoce.engine.kernel.data import (
    add_row,
    clipped_slope,
    clipped_slopes,
    joint_sum,
    kept,
    margin,
    row_at,
    weight_of,
)
from sottovoce.engine.kernel.draws import ALL, _direction, _radius, draw_records, pair_key, put, threefry
from sottovoce.engine.kernel.rounds import _fingerprint
from sottovoce.engine.kernel.steps import add_scaled, ball_weight, primal, shifted, shrink, square_norm
from sottovoce.engine.kernel.vectors import add_rows, add_times, dot
from sottovoce.engine.kernel.wake import _round_by_round, catch_up
from sottovoce.streams import TAIL

u32, f32 = np.uint32, np.float32
LINE = 8
"""Numbers in a line of memory."""


@fast
def _many_words(k0, k1, counters, w0, w1):
    for j in range(len(counters)):
        w0[j], w1[j] = threefry(k0[j], k1[j], counters[j], u32(0))


@exact
def _refine_tails(k0, k1, counters, w0, w1, cosines, sines):
    """As `draws._refine_tail`, with a key for each."""
    for j in range(len(w0)):
        if w0[j] < u32(TAIL):
            finer, _ = threefry(k0[j], k1[j], counters[j], u32(1))
            u = (np.float64(w0[j]) + (np.float64(finer) + 0.5) * 2.0**-32) * 2.0**-32
            radius = f32(math.sqrt(-2.0 * math.log(u)))
            x, y = _direction(w1[j])
            cosines[j] = radius * x
            sines[j] = radius * y


@fast
def _many_normals(k0, k1, counters, w0, w1, cosines, sines):
    """As `draws.normals`, with a key for each counter."""
    _many_words(k0, k1, counters, w0, w1)
    least = u32(0xFFFFFFFF)
    for j in range(len(counters)):
        radius = _radius(w0[j])
        x, y = _direction(w1[j])
        cosines[j] = radius * x
        sines[j] = radius * y
        least = min(least, w0[j])
    if least < u32(TAIL):
        _refine_tails(k0, k1, counters, w0, w1, cosines, sines)


@fast
def _all_keys(key, places, first, t, k0, k1):
    """`draws.pair_key` of nodes side by side."""
    for p in range(len(places)):
        k0[p], k1[p] = threefry(key[0], key[1], u32(places[p] + u32(first)), u32(t))


@fast
def _at_counter(k0, k1, counter, w0, w1, cosines, sines):
    """The normals of nodes side by side at one counter; gives whether one is in the far tail."""
    for p in range(len(k0)):
        w0[p], w1[p] = threefry(k0[p], k1[p], counter, u32(0))
    least = u32(0xFFFFFFFF)
    for p in range(len(k0)):
        radius = _radius(w0[p])
        x, y = _direction(w1[p])
        cosines[p] = radius * x
        sines[p] = radius * y
        least = min(least, w0[p])
    return least < u32(TAIL)


@compiled
def _weighted(loud, normals):
    """Σ loud·ν."""
    total = 0.0
    for p in range(len(loud)):
        total += loud[p] * normals[p]
    return total


@compiled
def _sum_noise(noise, t, lanes, loud, g):
    """g += Σ_i c_i σ_i ν_i over all nodes, BLOCK of them side by side, for all runs."""
    keys, words, normals = lanes
    (R, m), n = g.shape, noise.scale.shape[1]
    half = (m + 1) // 2
    for first in range(0, n, BLOCK):
        size = min(BLOCK, n - first)
        count = (size + LANES - 1) // LANES * LANES
        for r in range(R):
            for p in range(count):
                loud[r, p] = noise.scale[r, first + p] * noise.sigma[r, first + p] if p < size else 0.0
        k0, k1, places = keys[0, :count], keys[1, :count], keys[3, :count]
        w0, w1, cosines, sines = words[0, :count], words[1, :count], normals[0, :count], normals[1, :count]
        _all_keys(noise.noise_key, places, first, t, k0, k1)
        for j in range(half):
            if _at_counter(k0, k1, u32(j), w0, w1, cosines, sines):
                keys[2, :count] = u32(j)
                _refine_tails(k0, k1, keys[2, :count], w0, w1, cosines, sines)
            for r in range(R):
                g[r, j] += _weighted(loud[r, :count], cosines)
                if half + j < m:
                    g[r, half + j] += _weighted(loud[r, :count], sines)


@compiled
def _draw(noise, t, first, last, low, chunk, lanes):
    """Normals of nodes first … last − 1 at counters low … low + chunk − 1, node after node, into the lanes."""
    keys, words, normals = lanes
    at = 0
    for i in range(first, last):
        k0, k1 = pair_key(noise.noise_key, i, t)
        for j in range(chunk):
            keys[0, at + j], keys[1, at + j], keys[2, at + j] = k0, k1, u32(low + j)
        at += chunk
    count = (at + LANES - 1) // LANES * LANES
    k0, k1, counters = keys[0, :count], keys[1, :count], keys[2, :count]
    _many_normals(k0, k1, counters, words[0, :count], words[1, :count], normals[0, :count], normals[1, :count])


@compiled
def _add_noise(row, loud, normals, at, low, chunk, half):
    """Add loud·ν at counters low … to a row, whose second half has the sines."""
    add_times(row[low:], loud, normals[0, at : at + chunk])
    add_times(row[half + low :], loud, normals[1, at : at + min(chunk, len(row) - half - low)])


@folded
def _simple(data, model):
    """Whether a record is a row with one slope."""
    return model.outputs == 1 and len(data.starts) == 0


@folded
def _dense_margin(data, row, x):
    """⟨c, x⟩."""
    u = dot(data.X[row], x)
    return u + data.intercept * x[len(x) - 1] if data.intercept != 0.0 else u


@compiled
def _pull(data, model, noise, t, i, r, factor, x, g, scratch):
    """g += factor · Σ clip(∂l(x, ·)) over the records that node i draws in round t."""
    q = data.offsets[i + 1] - data.offsets[i]
    count = draw_records(
        noise.sampler,
        noise.records_key,
        i,
        t,
        q,
        noise.batch[i],
        noise.gap_scale[i],
        scratch.records,
        scratch.taken,
        scratch.words,
    )
    if not _simple(data, model):
        put(scratch.x, x)
        joint_sum(data, i, count, model, model.clip[r], scratch)
        add_scaled(g, factor, scratch.g)
        return
    every = count == ALL
    for e in range(q if every else count):
        row = row_at(data, i, e if every else scratch.records[e])
        u = margin(data, row, x) if data.sparse else _dense_margin(data, row, x)
        found = clipped_slope(
            model.loss, model.parameter, u, data.y[row], data.norms[row], model.clip[r], weight_of(data, row)
        )
        if found != 0.0:
            if data.sparse:
                add_row(data, row, factor * found, g)
                continue
            add_times(g, factor * found, data.X[row])
            if data.intercept != 0.0:
                g[len(g) - 1] += factor * found * data.intercept


@compiled
def _go_through(data, model, r, count, picked, x, g):
    """g += Σ factor·clip(∂l(x, ·)) over some rows: all margins, all slopes, and then the rows that pull at all."""
    rows, factors, some, pulls, about = picked
    some, u, factor, bias = some[:count], pulls[:count], factors[r, :count], 0.0
    put(some, rows)
    if data.intercept != 0.0:
        bias = data.intercept * x[len(x) - 1]
    if data.sparse:
        entries.margins(data.values, data.indices, data.indptr, some, x, bias, u)
    else:
        for e in range(count):
            u[e] = bias + dot(data.X[some[e]], x)
    clipped_slopes(data, model.loss, model.parameter, model.clip[r], some, about, u)
    slopes = 0.0
    for e in range(count):
        u[e] *= factor[e]
        slopes += u[e]
    found = kept(u, some)
    if data.sparse:
        entries.pull(data.values, data.indices, data.indptr, some[:found], u[:found], g)
    else:
        add_rows(g, u[:found], some[:found], data.X)
    if data.intercept != 0.0:
        g[len(g) - 1] += slopes * data.intercept


@compiled
def _pull_together(data, model, noise, t, picked, x, g, scratch):
    """g += Σ_i c_i ĝ_i over all nodes at one x, for all runs: rows are gone through block by block."""
    rows, factors = picked[0], picked[1]
    R, count, n = len(x), 0, len(data.offsets) - 1
    for i in range(n):
        q = data.offsets[i + 1] - data.offsets[i]
        drawn = draw_records(
            noise.sampler,
            noise.records_key,
            i,
            t,
            q,
            noise.batch[i],
            noise.gap_scale[i],
            scratch.records,
            scratch.taken,
            scratch.words,
        )
        done, left = 0, q if drawn == ALL else drawn
        while left > 0:
            size = min(left, len(rows) - count)
            for e in range(size):
                rows[count + e] = row_at(data, i, done + e if drawn == ALL else scratch.records[done + e])
            for r in range(R):
                factors[r, count : count + size] = noise.scale[r, i] / noise.batch[i]
            count, done, left = count + size, done + size, left - size
            if count == len(rows):
                for r in range(R):
                    _go_through(data, model, r, count, picked, x[r], g[r])
                count = 0
    for r in range(R):
        _go_through(data, model, r, count, picked, x[r], g[r])


@compiled
def _stand(model, steps, t, before, r, z, total, x, scratch):
    """The primal point of a node, and its running sum up to round t."""
    q, at = steps.which[r], before if model.frozen else t - 1
    here = shifted(model, steps, r, at, z, scratch.y)
    primal(model, steps, True, r, at, here, x)
    if model.frozen:
        add_scaled(total, steps.A[q, t] - steps.A[q, before], x)
    elif model.closed:
        if model.kind == L2_BALL:
            weight = ball_weight(model, steps, r, before, t, math.sqrt(square_norm(here)))
        else:
            weight = steps.P[q, t] - steps.P[q, before]
        catch_up(model, steps, True, t, before, r, weight, here, total)
    else:
        _round_by_round(model, steps, True, t, before, r, z, total, scratch.g, scratch.y)


@inlined
def _chunk(half):
    """Counters of a node that are drawn together, and nodes side by side."""
    chunk = min(half, BLOCK)
    return chunk, max(1, BLOCK // chunk)


def _alike(sources: int):
    """See `rounds._entry`."""

    @njit(**OUTSIDE)
    def run_alike(data, model, steps, noise, scratch, lanes, loud, picked, x, g, z, total, before, start, stop):
        """Rounds start … stop of nodes that all hold z and total, (R, m); `before` rounds are summed up."""
        if sources < 0:
            return
        R, n = len(z), len(data.offsets) - 1
        for t in range(start, stop + 1):
            for r in range(R):
                _stand(model, steps, t, before, r, z[r], total[r], x[r], scratch)
                g[r, :] = 0.0
            before = t
            if _simple(data, model):
                _pull_together(data, model, noise, t, picked, x, g, scratch)
            else:
                for i in range(n):
                    for r in range(R):
                        _pull(data, model, noise, t, i, r, noise.scale[r, i] / noise.batch[i], x[r], g[r], scratch)
            _sum_noise(noise, t, lanes, loud, g)
            for r in range(R):
                push = steps.push[steps.which[r], t - 1] / n
                add_scaled(z[r], push, g[r])
                if model.curvature != 0.0:
                    weight = 0.0
                    for i in range(n):
                        weight += noise.scale[r, i]
                    add_scaled(z[r], -push * model.curvature * weight, x[r])
                if model.descent:
                    shrink(model, True, r, -steps.push[steps.which[r], t - 1], z[r])

    return run_alike


@compiled
def _gather(links, mixes, sums, s, i, row):
    """row = Σ_j w_ij s_j, or one's own where nobody mixes."""
    starts, places, values, level = links
    if not mixes:
        put(row, s[i])
        return
    if level != 0.0:
        for j in range(len(row)):
            row[j] = level * sums[j]
    else:
        row[:] = 0.0
    add_rows(row, values[starts[i] : starts[i + 1]], places[starts[i] : starts[i + 1]], s)


@compiled
def _sum_up(level, s, sums):
    """Of all rows, where everybody needs it."""
    sums[:] = 0.0
    for i in range(len(s) if level != 0.0 else 0):
        add_scaled(sums, 1.0, s[i])


@compiled
def _mix_all(links, mixes, times, sums, s, other):
    """s ← W s, `times` times; gives the two buffers, the one that holds it first."""
    for _ in range(times if mixes else 0):
        for r in range(len(s)):
            _sum_up(links[3], s[r], sums)
            for i in range(s.shape[1]):
                _gather(links, True, sums, s[r], i, other[r, i])
        s, other = other, s
    return s, other


def _apart(sources: int):
    """See `rounds._entry`."""

    @njit(**OUTSIDE)
    def run_apart(
        data, links, mixes, times, model, steps, noise, scratch, lanes, x, sums, s, other, total, before, start, stop
    ):
        """Rounds start … stop of nodes that hold rows s (R, n, width); gives whether they end in `s`, else in `other`.

        A row is as wide as lines of memory are, so that neighbours' rows are read in as few of them as can be: beyond
        its m numbers it holds zeros.

        Parameters
        ----------
        links : W, as `network.wide.Wide` has it: starts, places, values, level
        mixes : (T,) whether messages are sent in a round
        times : how often they are mixed
        x, sums : working memory, (m,) and (R, width)
        before : up to which round running sums are complete, in all rows
        """
        if sources < 0:
            return True
        R, n, m = total.shape
        half, here = (m + 1) // 2, True
        chunk, group = _chunk(half)
        for t in range(start, stop + 1):
            fused = t > start and not model.after
            if fused:  # messages of the round before are mixed where they are used, the last time that they are
                s, other = _mix_all(links, mixes[t - 2], times - 1, sums[0], s, other)
                here = here if not mixes[t - 2] or times % 2 == 1 else not here
            now = (fused and mixes[t - 2]) or (model.after and mixes[t - 1])
            for r in range(R if now else 0):
                _sum_up(links[3], s[r], sums[r])
            for first in range(0, n, group):
                last = min(first + group, n)
                for i in range(first, last):
                    for r in range(R):
                        row, push = other[r, i][:m], steps.push[steps.which[r], t - 1] * noise.scale[r, i]
                        _gather(links, now, sums[r], s[r], i, other[r, i])
                        if fused and model.descent:
                            shrink(model, True, r, -steps.push[steps.which[r], t - 2], row)
                        held = s[r, i][:m] if model.after else row
                        _stand(model, steps, t, before, r, held, total[r, i], x, scratch)
                        if model.curvature != 0.0:
                            add_scaled(row, -push * model.curvature, x)
                        _pull(data, model, noise, t, i, r, push / noise.batch[i], x, row, scratch)
                for low in range(0, half, chunk):
                    size = min(chunk, half - low)
                    _draw(noise, t, first, last, low, size, lanes)
                    for i in range(first, last):
                        for r in range(R):
                            loud = steps.push[steps.which[r], t - 1] * noise.scale[r, i] * noise.sigma[r, i]
                            if loud != 0.0:
                                _add_noise(other[r, i][:m], loud, lanes[2], (i - first) * size, low, size, half)
                for i in range(first, last if model.after else first):
                    for r in range(R):
                        shrink(model, True, r, -steps.push[steps.which[r], t - 1], other[r, i][:m])
            s, other, here, before = other, s, not here, t
        if not model.after:
            s, other = _mix_all(links, mixes[stop - 1], times, sums[0], s, other)
            here = here if not mixes[stop - 1] or times % 2 == 0 else not here
            for i in range(n if model.descent else 0):
                for r in range(R):
                    shrink(model, True, r, -steps.push[steps.which[r], stop - 1], s[r, i][:m])
        return here

    return run_apart


run_alike = _alike(_fingerprint())
run_apart = _apart(_fingerprint())


def make_lanes() -> tuple[NDArray[Any], ...]:
    """Keys, counters and places, words, and normals, BLOCK at a time."""
    keys = np.zeros((4, BLOCK), u32)
    keys[3] = np.arange(BLOCK)
    return keys, np.zeros((2, BLOCK), u32), np.zeros((2, BLOCK), f32)


def make_rows(shape: tuple[int, int, int]) -> NDArray[np.float64]:
    """Zeros for (R, n, m) numbers, in rows that begin where a line of memory does, and end there."""
    R, n, m = shape
    width = -(-m // LINE) * LINE
    whole = np.zeros(R * n * width + LINE)
    first = -whole.ctypes.data // whole.itemsize % LINE
    return whole[first : first + R * n * width].reshape(R, n, width)


def make_picked(runs: int) -> tuple[NDArray[Any], ...]:
    """Rows that are gone through together, and their factors; those that pull, how much, and working memory."""
    rows, some = np.zeros((2, BATCH), np.int64)
    return rows, np.zeros((runs, BATCH)), some, *np.zeros((2, BATCH))
