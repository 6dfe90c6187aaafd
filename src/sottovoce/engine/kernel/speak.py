"""The last parts of a round, compiled: the active nodes speak, and settle.

3. *Speaking* (`speak_part`), for part of the coordinates at a time, which stays in the first-level cache: noise is made
   from its counters, once for all R runs; the sum over the rounds slept is caught up; z becomes the message and the
   messages are mixed. Nothing of size n × m is touched. Two active nodes, one edge, have a loop of their own.
4. *Settling* (`settle`, `shrink_part`): what few records add to few coordinates; the proximal step of descent.
"""

from sottovoce.engine.kernel.data import CHUNK, fetch
from sottovoce.engine.kernel.mix import edge, mix, scatter, scatter_part, speak
from sottovoce.engine.kernel.noise import BLOCK, inlined, normals, padded
from sottovoce.engine.kernel.steps import add_scaled, shrink
from sottovoce.engine.kernel.wake import catch_up, is_linear


@inlined
def _say(data, model, steps, noise, t, r, spot, i, k, place, lo, hi, side, z, scratch):
    """Add coordinates lo … hi − 1 of what node i says, but for what the loop of an edge does by itself."""
    if len(noise.injected) > 0:
        push = steps.push[steps.which[r], t - 1] * noise.scale[r, i]
        add_scaled(z, push, noise.injected[place, lo:hi])
    if model.after and not scratch.pending[spot]:
        add_scaled(z, 1.0, scratch.held[r, spot, lo:hi])
    if k != 2:
        filled = lo if data.sparse or scratch.count[spot] == 0 else min(hi, data.X.shape[1])
        row, pull = scratch.rows[spot, 0], scratch.pull[r, spot, 0]
        speak(data.X, row, pull, lo, filled, z, scratch.loud[r, spot], scratch.normals, side)


@inlined
def _draw_normals(part, counters, spot, at, ask, scratch):
    """Normals of a node for part of the coordinates, to `at` and after it.

    Meanwhile memory is asked for the numbers of `ask`, a few at a time: it forgets what is too much at once.
    """
    k0, k1, step = scratch.keys[spot, 0], scratch.keys[spot, 1], CHUNK if len(ask) > 0 else BLOCK
    for c in range(0, part.size, step):
        size = min(step, part.size - c)
        low, high = part.first + c, part.first + c + padded(size)
        if part.copies:
            turns = scratch.tiles.turns[low:high]
            normals(k0, k1, counters[low:high], turns, scratch.words, scratch.normals, at + c)
        else:
            normals(k0, k1, counters[low:high], None, scratch.words, scratch.normals, at + c)
        fetch(ask[c * len(ask) // part.size : (c + size) * len(ask) // part.size])


@inlined
def _upcoming(data, spot, part, scratch):
    """The dense row that the node at a spot is going to need, if it is known and not asked for yet; else nothing."""
    soon = part.first == 0 and spot < part.known and scratch.count[spot] > 0 and not data.sparse
    row = scratch.rows[spot, 0] if soon else 0
    fetch(data.y[row : row + soon])
    fetch(data.norms[row : row + soon])
    return data.X[row, : data.X.shape[1] if soon else 0]


@inlined
def speak_part(data, model, steps, noise, t, nodes, speakers, W, place, spot, part, counters, z, total, scratch):
    """Noise, rounds slept, message, mixture, for part of the coordinates."""
    R, _, m = z.shape
    k, counted = len(nodes), len(noise.injected) == 0
    for p in range(k):
        i, mine = nodes[p], spot + p
        if p < speakers and noise.noisy[i] and (k == 2 or not model.after):
            ask = _upcoming(data, mine + k, part, scratch)
            _draw_normals(part, counters, mine, 2 * BLOCK * p if k == 2 else 0, ask, scratch)
        for side in range(2):
            lo = part.first + side * part.half
            hi = max(lo, min(lo + part.size, m))
            for r in range(R):
                here = z[r, i, lo:hi]
                summed = part.copies or not scratch.pending[mine] or (k == 2 and counted and is_linear(model, r))
                if not summed:  # nor will `edge` do it
                    weight = scratch.weight[r, mine]
                    catch_up(model, steps, t, scratch.before[mine], r, weight, here, total[r, i, lo:hi])
                if p < speakers and not model.after:
                    _say(data, model, steps, noise, t, r, mine, i, k, place + p, lo, hi, side, here, scratch)
    if k == 2:
        slept = counted and not part.copies
        edge(data.X, data.sparse, z, total, nodes, W, part, spot, scratch.normals, _said(scratch), slept, model.after)
    else:
        for side in range(2):
            lo = part.first + side * part.half
            for r in range(R):
                mix(z[r], nodes, W, lo, max(lo, min(lo + part.size, m)), scratch.mixed)
    for p in range(speakers if model.after else 0):
        i, mine = nodes[p], spot + p
        if k != 2 and noise.noisy[i]:
            _draw_normals(part, counters, mine, 0, data.X[0, :0], scratch)
        for side in range(2):
            lo = part.first + side * part.half
            hi = max(lo, min(lo + part.size, m))
            for r in range(R):
                _say(data, model, steps, noise, t, r, mine, i, k, place + p, lo, hi, side, z[r, i, lo:hi], scratch)


@inlined
def _said(scratch):
    """What `edge` needs of the spots: every array that is handed to a function costs time."""
    return scratch.rows, scratch.count, scratch.pull, scratch.weight, scratch.loud


@inlined
def settle(data, model, nodes, W, where, spot, z, scratch):
    """What is not in dense rows, added after mixing."""
    for p in range(len(nodes)):
        count = scratch.count[spot + p]
        if count > 0 and (data.sparse or data.intercept != 0.0):
            for r in range(len(z)):
                pull = scratch.pull[r, spot + p]
                scatter(data, z[r], where, nodes, W, p, scratch.rows[spot + p], count, pull, model.after)


@inlined
def settle_part(data, model, nodes, W, spot, part, z, scratch):
    """As `settle`, for part of the coordinates, in a round that was looked at ahead."""
    for p in range(len(nodes)):
        at = spot + p
        if scratch.count[at] > 0:
            rows, pull, nexts = scratch.rows[at], scratch.pull[:, at], scratch.tiles.next[at]
            scatter_part(data, z, nodes, W, p, rows, scratch.count[at], pull, model.after, part, nexts)


@inlined
def shrink_part(model, steps, t, nodes, speakers, part, whole, z):
    """The proximal step of descent, for part of the coordinates, or for all where h must see them together."""
    for p in range(speakers if model.descent else 0):
        for r in range(len(z)):
            eta, mine = -steps.push[steps.which[r], t - 1], z[r, nodes[p]]
            if whole:
                shrink(model, r, eta, mine)
            else:
                first, second = part.first, part.first + part.half
                shrink(model, r, eta, mine[first : first + part.size])
                shrink(model, r, eta, mine[second : max(second, min(second + part.size, len(mine)))])
