"""Products and sums of CSR rows, some of them at a time: those that are short, as rows of text and of categories are.

Two sums side by side are faster than one, which waits for itself, and than eight, which a row of a dozen entries hardly
begins; a processor guesses how long a row is, and other rows are on their way while it does.
"""

import numpy as np

from sottovoce.engine.kernel.arguments import INSIDE, njit

u64 = np.uint64  # an index that Numba can see to be non-negative: else every entry of a row is looked at for its sign
ONE, TWO = u64(1), u64(2)
in_order = njit(**INSIDE, fastmath={"contract"})
"""Sums as they are written; LLVM would make vectors of them, which must be gathered number by number."""


@in_order
def margins(values, indices, indptr, rows, x, bias, u):
    """u_e = ⟨c, x⟩ + bias of the given rows c."""
    for e in range(len(rows)):
        at, end = u64(indptr[u64(rows[e])]), u64(indptr[u64(rows[e]) + ONE])
        s, t = bias, 0.0
        while at + ONE < end:
            s += values[at] * x[u64(indices[at])]
            t += values[at + ONE] * x[u64(indices[at + ONE])]
            at += TWO
        if at < end:
            s += values[at] * x[u64(indices[at])]
        u[e] = s + t


@in_order
def pull(values, indices, indptr, rows, u, g):
    """g += Σ_e u_e c over the given rows."""
    for e in range(len(rows)):
        at, end = u64(indptr[u64(rows[e])]), u64(indptr[u64(rows[e]) + ONE])
        weight = u[e]  # read once: for all that LLVM knows, a sum might be written where it lies
        while at + ONE < end:
            one, other = weight * values[at], weight * values[at + ONE]
            g[u64(indices[at])] += one
            g[u64(indices[at + ONE])] += other
            at += TWO
        if at < end:
            g[u64(indices[at])] += weight * values[at]
