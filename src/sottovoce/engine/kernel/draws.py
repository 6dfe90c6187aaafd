"""Which records a node uses in a round, compiled: the picks of `privacy.sampling` from the same counters.

No liberties with rounding here: a pick that differed in one place in 10¹⁵ would be another mechanism.
"""

import math

from sottovoce.engine.kernel.noise import exact, pair_key, uniform

FIXED, POISSON, FULL, INJECTED = 0, 1, 2, 3
ALL = -1  # instead of a count: every record of the node


@exact
def _fixed(k0, k1, q, b, records, taken):
    """Floyd's algorithm; `taken` marks the chosen ones, and is clean before and after."""
    for j in range(b):
        last = q - b + j
        pick = int(uniform(k0, k1, j) * (last + 1))
        if taken[pick]:
            pick = last
        taken[pick] = True
        records[j] = pick
    for j in range(b):
        taken[records[j]] = False
    return b


@exact
def _poisson(k0, k1, q, gap_scale, records):
    """Geometric gaps from one chosen record to the next."""
    at, count = -1.0, 0
    while True:
        at += math.floor(math.log(uniform(k0, k1, count)) * gap_scale) + 1.0
        if at >= q:
            return count
        records[count] = int(at)
        count += 1


@exact
def draw_records(kind, key, node, t, q, b, gap_scale, records, taken):
    """Write the picks of a (node, round) into `records` and return how many, or ALL.

    Parameters
    ----------
    kind : FIXED, POISSON or FULL
    key : the two words of the purpose
    q, b : records of the node and public batch size
    gap_scale : 1/log(1 − b/q), for POISSON
    records, taken : scratch of q places; `taken` all False
    """
    if kind == FULL or (kind == POISSON and b == q):
        return ALL
    k0, k1 = pair_key(key, node, t)
    if kind == FIXED:
        return _fixed(k0, k1, q, b, records, taken)
    return _poisson(k0, k1, q, gap_scale, records)
