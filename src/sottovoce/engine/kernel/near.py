"""A block of rounds of edges, gone through with everything once its slopes are known: in the nearest cache.

Few coordinates at a time, COLUMNS of them, one run after the other: z and the running sums of all nodes are brought to
a desk that the nearest cache holds, go through all rounds of the block there, and are put back. While one run is at the
desk, memory is asked for what the next one will need, so that nobody waits for it. The normals of the whole block,
which all runs share, are drawn before; they lie in the next cache.

Two nodes that average end with the same z. So it is written once: a node's z has a place on the desk, which others may
share, and a new z goes where nobody's is. There is one place more than there are nodes, which is always enough. Who is
where is found out once a block, for all coordinates and all runs. No number that comes out is changed by any of this.
"""

import numpy as np

from sottovoce.engine.kernel.arguments import COLUMNS, DRAWN, exact
from sottovoce.engine.kernel.draws import normals, padded, put
from sottovoce.engine.kernel.speak import add_entries, add_intercept
from sottovoce.engine.kernel.vectors import ask, average, carry

u64 = np.uint64  # an index that Numba can see to be non-negative
END = 1 << 62


@exact
def _seat(data, plan, tiles, near, begun, last, scratch):
    """Who finds its z where, and leaves it where, edge by edge; gives how many edges, nodes and records there are."""
    n, edges, awake, free, pulled = len(near.place), 0, 0, 1, 0
    near.free[0] = n
    for i in range(n):
        near.place[i], near.shared[i] = -1, 1
    for t in range(begun, last + 1):
        begin, pattern = plan.starts[t - 1], plan.pattern[t - 1]
        for g in range(plan.groups[pattern]):
            edge, corner = near.edges[edges], plan.corners[pattern] + 4 * g
            for p in range(2):
                i, spot = plan.active[begin + 2 * g + p], 2 * edges + p
                if near.place[i] < 0:
                    near.place[i] = i
                    near.awake[awake] = i
                    awake += 1
                edge[p], edge[2 + p] = i, near.place[i]
                share = plan.weights[corner + p]
                near.heard[spot], near.pulled[spot] = False, pulled
                for r in range(len(scratch.loud)):
                    numbers, loud = near.numbers[r, edges], scratch.loud[r, spot]
                    numbers[p], numbers[2 + p], numbers[4 + p] = share, share * loud, -scratch.weight[r, spot]
                    near.heard[spot] = near.heard[spot] or loud != 0.0
                    for e in range(scratch.count[spot]):
                        near.pulls[r, pulled + e] = share * scratch.pull[r, spot, e]
                for e in range(scratch.count[spot]):
                    near.spots[pulled], near.ends[pulled] = spot, data.indptr[scratch.rows[spot, e] + 1]
                    for side in range(2):
                        near.next[side, pulled] = tiles.next[spot, e, side]
                        near.columns[side, pulled] = _column(data, near, side, pulled)
                    pulled += 1
            free -= 1
            edge[4] = near.free[free]
            for p in range(2):
                near.place[edge[p]] = edge[4]
                near.shared[edge[2 + p]] -= 1
            near.shared[edge[4]] = 2
            for p in range(2):
                if near.shared[edge[2 + p]] == 0:
                    near.free[free] = edge[2 + p]
                    near.shared[edge[2 + p]] = -1  # both may have had it
                    free += 1
            edges += 1
    return edges, awake, pulled


@exact
def _column(data, near, side, record):
    """Of the next entry of a record; a large number after the last."""
    place = near.next[side, record]
    return np.int64(data.indices[place]) if place < near.ends[record] else END


@exact
def _draw(near, edges, counters, scratch):
    """Normals of all spots at some counters."""
    for spot in range(2 * edges):
        if near.heard[spot]:
            k0, k1, its = scratch.keys[spot, 0], scratch.keys[spot, 1], near.normals[spot]
            normals(k0, k1, counters, None, scratch.words, its[0], its[1])


@exact
def _list_entries(data, near, records, side, bound):
    """The next entries of all records, below a bound: edge, record, first and last; gives how many there are."""
    found = 0
    for record in range(records):
        if near.columns[side, u64(record)] < bound:
            first = near.next[side, record]
            while near.columns[side, record] < bound:
                near.next[side, record] += 1
                near.columns[side, record] = _column(data, near, side, record)
            entries = near.entries[found]
            entries[0], entries[1], entries[2] = near.spots[record] // 2, record, first
            entries[3] = near.next[side, record]
            found += 1
    return found


@exact
def _bring(desk, row):
    """To the desk, or back from it."""
    if len(row) == COLUMNS and len(desk) == COLUMNS:
        carry(desk, row)
    else:
        put(desk[: len(row)], row)


@exact
def _run(data, near, edges, awake, entries, r, lo, hi, drawn, z, total, soon, scratch):
    """All rounds of one run, for coordinates lo … hi − 1; `drawn` is where their normals are, `soon` what is next."""
    last, at, due, asked = z.shape[2] - 1, 0, 0, 0
    ends = data.intercept != 0.0 and lo <= last < hi
    numbers, pulls = near.numbers[r], near.pulls[r]
    for k in range(awake):
        i = near.awake[k]
        _bring(near.z[i], z[r, i, lo:hi])
        _bring(near.total[i], total[r, i, lo:hi])
    for e in range(edges):
        due += awake
        while due >= edges:
            due -= edges
            i = near.awake[asked]
            ask(z[soon[0], i], soon[1])
            ask(total[soon[0], i], soon[1])
            asked += 1
        average(near.z, near.total, near.normals, near.edges, numbers, e, drawn)
        while at < len(entries) and entries[u64(at), 0] == e:
            pull, first, end = entries[u64(at), 1], u64(entries[u64(at), 2]), u64(entries[u64(at), 3])
            said = near.z[u64(near.edges[u64(e), 4])]
            add_entries(said, pulls[u64(pull)], data.indices[first:end], lo, data.values[first:end])
            at += 1
        if ends:
            for spot in range(2 * e, 2 * e + 2):
                pull = pulls[near.pulled[spot] : near.pulled[spot] + scratch.count[spot]]
                add_intercept(near.z[near.edges[e, 4]], last - lo, 1.0, pull, len(pull), data.intercept)
    for k in range(awake):
        i = near.awake[k]
        _bring(z[r, i, lo:hi], near.z[near.place[i]])
        _bring(total[r, i, lo:hi], near.total[i])


@exact
def go_through(data, plan, tiles, near, begun, last, z, total, scratch):
    """Rounds begun … last, of which slopes, scales of noise and weights of the rounds slept stand in the scratch."""
    R, _, m = z.shape
    half = (m + 1) // 2
    edges, awake, records = _seat(data, plan, tiles, near, begun, last, scratch)
    for drawn in range(0, half, DRAWN):
        size = min(DRAWN, half - drawn)
        _draw(near, edges, scratch.counters[drawn : drawn + padded(size)], scratch)
        for column in range(0, size, COLUMNS):
            for side in range(2):
                lo = drawn + column + side * half
                hi = min(lo + min(COLUMNS, size - column), m)
                found = _list_entries(data, near, records, side, hi)
                for r in range(R):
                    soon = (r + 1, lo) if r + 1 < R else (0, lo + half if side == 0 else lo - half + COLUMNS)
                    entries = near.entries[:found]
                    _run(data, near, edges, awake, entries, r, lo, hi, side * DRAWN + column, z, total, soon, scratch)
