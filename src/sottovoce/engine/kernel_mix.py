"""Messages and their mixture, compiled: z_i ← Σ_j w_ij (z_j + pull·c + loud·ν) over a stretch of coordinates."""

import numpy as np

from sottovoce.engine.kernel_steps import add_scaled, compiled
from sottovoce.engine.noise import BLOCK, put

u64 = np.uint64  # an index that Numba can see to be non-negative: else it guards, and does not vectorise
OTHER = u64(2 * BLOCK)  # from one node's normals to the other's


@compiled
def speak(X, row, pull, lo, filled, z, loud, normals, side):
    """Turn z into the message, in place: coordinates lo … of one node; X's row reaches to `filled`."""
    if filled > lo:
        add_scaled(z[: filled - lo], pull, X[row, lo:filled])
    if loud != 0.0:
        add_scaled(z, loud, normals[side * BLOCK : side * BLOCK + len(z)])


@compiled
def mix(z, nodes, W, lo, hi, mixed):
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
def _edge_dense(z0, z1, total0, total1, slept0, slept1, normals, loud0, loud1, c0, c1, pull0, pull1, W, G):
    (w00, w01, w10, w11), (g00, g01, g10, g11) = W, G
    for j in range(len(z0)):
        s0, s1 = z0[j], z1[j]
        total0[j] -= slept0 * s0
        total1[j] -= slept1 * s1
        p0 = loud0 * normals[j] + pull0 * c0[j]
        p1 = loud1 * normals[u64(j) + OTHER] + pull1 * c1[j]
        z0[j] = w00 * s0 + w01 * s1 + g00 * p0 + g01 * p1
        z1[j] = w10 * s0 + w11 * s1 + g10 * p0 + g11 * p1


@compiled
def _edge(z0, z1, total0, total1, slept0, slept1, normals, loud0, loud1, W, G):
    (w00, w01, w10, w11), (g00, g01, g10, g11) = W, G
    for j in range(len(z0)):
        s0, s1 = z0[j], z1[j]
        total0[j] -= slept0 * s0
        total1[j] -= slept1 * s1
        p0 = loud0 * normals[j]
        p1 = loud1 * normals[u64(j) + OTHER]
        z0[j] = w00 * s0 + w01 * s1 + g00 * p0 + g01 * p1
        z1[j] = w10 * s0 + w11 * s1 + g10 * p0 + g11 * p1


@compiled
def edge(X, features, scratch, z, total, r, nodes, W, lo, hi, side, slept, after):
    """Rounds slept, noise, gradient and mixture of two nodes in one pass.

    A node without a row to add pulls nothing on row 0; one that has caught up by other means has the weight 0.
    `slept` is False where all have. What is said is mixed as z is (G = W), or joins after mixing (G = I).
    """
    mixes = (W[0, 0], W[0, 1], W[1, 0], W[1, 1])
    joins = (1.0, 0.0, 0.0, 1.0) if after else mixes
    slept0, slept1 = (scratch.weight[r, 0], scratch.weight[r, 1]) if slept else (0.0, 0.0)
    loud0, loud1 = scratch.loud[r, 0], scratch.loud[r, 1]
    at, filled, i0, i1 = side * BLOCK, lo, nodes[0], nodes[1]
    if scratch.count[0] + scratch.count[1] > 0 and features > lo:
        filled = min(hi, features)
        row0, row1 = scratch.rows[0, 0], scratch.rows[1, 0]
        _edge_dense(
            z[i0, lo:filled],
            z[i1, lo:filled],
            total[i0, lo:filled],
            total[i1, lo:filled],
            slept0,
            slept1,
            scratch.normals[at:],
            loud0,
            loud1,
            X[row0, lo:filled],
            X[row1, lo:filled],
            scratch.pull[r, 0, 0] if scratch.count[0] > 0 else 0.0,
            scratch.pull[r, 1, 0] if scratch.count[1] > 0 else 0.0,
            mixes,
            joins,
        )
    if hi > filled:
        _edge(
            z[i0, filled:hi],
            z[i1, filled:hi],
            total[i0, filled:hi],
            total[i1, filled:hi],
            slept0,
            slept1,
            scratch.normals[at + filled - lo :],
            loud0,
            loud1,
            mixes,
            joins,
        )


@compiled
def scatter(data, z, nodes, W, p, rows, count, pull, after):
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
                    mine[data.indices[place]] += weight * data.values[place]
            if data.intercept != 0.0:
                mine[len(mine) - 1] += weight * data.intercept
