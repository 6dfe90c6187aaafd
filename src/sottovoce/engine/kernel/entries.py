"""Products and sums of CSR rows, some of them at a time: those that are short, as rows of text and of categories are.

A processor guesses how long a row is, and what it does until it knows better is lost. So products take many entries at
a time (`vectors.sparse_dot`), and there is nothing to guess, unless rows are so short that most of that would be lost,
too. Then two sums side by side are faster than one, which waits for itself. Sums are written entry by entry: written
down under a mask, what is left out takes as long as a wrong guess.
"""

import numpy as np

from sottovoce.engine.kernel.arguments import INSIDE, NONE, njit
from sottovoce.engine.kernel.vectors import AT_ONCE, sparse_dot

u64 = np.uint64  # an index that Numba can see to be non-negative: else every entry of a row is looked at for its sign
ONE, TWO = u64(1), u64(2)
SHORT = 8
"""Entries of a row, on average, below which they are taken one by one."""
in_order = njit(**INSIDE, fastmath={"contract"})
"""Sums as they are written; LLVM would make vectors of them, which must be gathered number by number."""


@in_order
def _one_by_one(values, indices, indptr, rows, x, bias, least, u):
    """u_e = ⟨c, x⟩ + bias of those of the given rows c that do not end before `least`."""
    for e in range(len(rows)):
        at, end = u64(indptr[u64(rows[e])]), u64(indptr[u64(rows[e]) + ONE])
        if end < u64(least):
            continue
        s, t = bias, 0.0
        while at + ONE < end:
            s += values[at] * x[u64(indices[at])]
            t += values[at + ONE] * x[u64(indices[at + ONE])]
            at += TWO
        if at < end:
            s += values[at] * x[u64(indices[at])]
        u[e] = s + t


@in_order
def margins(values, indices, indptr, rows, x, bias, u):
    """u_e = ⟨c, x⟩ + bias of the given rows c."""
    if len(values) < SHORT * (len(indptr) - 1):
        return _one_by_one(values, indices, indptr, rows, x, bias, NONE, u)
    whole, at_the_end = max(len(values) - AT_ONCE, -1), False
    for e in range(len(rows)):
        row = u64(rows[u64(e)])
        first, last = np.int64(indptr[row]), np.int64(indptr[row + ONE])
        beyond = last > whole
        at_the_end |= beyond
        u[u64(e)] = bias + sparse_dot(values, indices, x, first, first if beyond else last)
    if at_the_end:  # of all entries, where there are no next ones to be read
        _one_by_one(values, indices, indptr, rows, x, bias, whole + 1, u)


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
