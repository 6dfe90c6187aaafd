"""Rounds looked at ahead of time, compiled: which records they draw, and which coordinates those touch.

Several runs over text are more state than any cache holds, and a round touches two of its rows for an instant. But
coordinates meet nowhere except in the margins of records, and few of them are touched by any record of the next
hundred rounds. So a block of rounds is gone through twice: first with copies of the touched coordinates alone, which
gives the slopes; then, the slopes being known, with everything, a part of the coordinates at a time through all the
rounds, while it stays in a cache. No number that comes out is changed by this.

Of the copies the ones that are needed longest stand first: a round works on as many as are still needed.
"""

from sottovoce.engine.kernel.noise import QUARTER
from sottovoce.engine.kernel.steps import compiled
from sottovoce.engine.kernel.wake import look


@compiled
def _mark(indices, marked):
    """Mark the coordinates of a CSR row; gives how many are new."""
    new = 0
    for e in range(len(indices)):
        new += not marked[indices[e]]
        marked[indices[e]] = True
    return new


@compiled
def _list(j, half, found, tiles):
    """The next coordinate, if it is marked, and no mark any more."""
    if not tiles.marked[j]:
        return found
    tiles.marked[j] = False
    tiles.where[j] = found
    tiles.counters[found] = j if j < half else j - half
    tiles.turns[found] = 0 if j < half else QUARTER
    return found + 1


@compiled
def _list_touched(data, plan, t, last, m, spot, scratch):
    """The touched coordinates, in order and those used last first; how many are used in each round or after it."""
    tiles, half, found = scratch.tiles, (m + 1) // 2, 0
    for j in range(m):
        tiles.touched[found] = j
        found += tiles.marked[j]
    found = _list(m - 1, half, 0, tiles) if data.intercept != 0.0 else 0
    for s in range(last, t - 1, -1):
        k = plan.starts[s] - plan.starts[s - 1]
        spot -= k
        for p in range(spot, spot + k):
            for e in range(scratch.count[p]):
                row = scratch.rows[p, e]
                for place in range(data.indptr[row], data.indptr[row + 1]):
                    found = _list(data.indices[place], half, found, tiles)
        tiles.needed[s - t] = found


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
def look_ahead(data, plan, model, noise, t, stop, m, since, scratch):
    """Look at rounds t … last, all of few records, and count the coordinates that they touch: (last, count).

    The count is 0 where going through these rounds one by one is no worse; `last` is t − 1 where round t itself must
    be looked at when its turn comes.
    """
    tiles, half, spot, last, touched = scratch.tiles, (m + 1) // 2, 0, t - 1, 0
    tiled = tiles.stretch > 0
    if tiled and data.intercept != 0.0:
        tiles.marked[m - 1] = True
        touched = 1
    for s in range(t, stop + 1):
        first, k = plan.starts[s - 1], plan.starts[s] - plan.starts[s - 1]
        nodes = plan.active[first : first + k]
        if spot + k > len(scratch.count):
            break
        few, entries = True, 0
        for p in range(k):
            look(data, model, noise, s, nodes[p], k, p < plan.speakers, 0, m, spot + p, since, scratch)
            few = few and scratch.pending[spot + p]
            for e in range(scratch.count[spot + p] if tiled else 0):
                row = scratch.rows[spot + p, e]
                entries += data.indptr[row + 1] - data.indptr[row]
        if not few or (tiled and touched + entries >= len(tiles.touched)):
            for p in range(k):
                since[nodes[p]] = scratch.before[spot + p] + 1  # as if nobody had looked
            break
        for p in range(spot, spot + k):
            for e in range(scratch.count[p] if tiled else 0):
                begin, end = data.indptr[scratch.rows[p, e]], data.indptr[scratch.rows[p, e] + 1]
                touched += _mark(data.indices[begin:end], tiles.marked)
                tiles.next[p, e, 0] = begin
                tiles.next[p, e, 1] = begin + _first_beyond(data.indices[begin:end], half)
        spot += k
        last = s
    if not tiled:
        return last, 0
    _list_touched(data, plan, t, last, m, spot, scratch)
    return last, touched if spot >= tiles.least else 0


@compiled
def take(z, tiles, touched, copies):
    """Copy the touched coordinates together; in the order of z, because that is where memory is far."""
    for r in range(z.shape[0]):
        for i in range(z.shape[1]):
            row, mine = z[r, i], copies[r, i]
            for at in range(touched):
                j = tiles.touched[at]
                mine[tiles.where[j]] = row[j]
