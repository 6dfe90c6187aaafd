"""The exact sums of a secure round, of all its nodes in one call: every row is read once, dense or CSR.

Records, models and slopes are on the grids of `secure.grids`, where sums without an error are the same in any order; so
products may be vectorised, contracted and gone through by blocks, and are the bits of the matrix products of
`secure.sums`. Slopes, clips and truncations take no liberties: they are those of `engine.secure.slope_of` and of
`secure.sums.truncated`, rounded as in NumPy.

A block of rows at a time stays in cache: its margins, its slopes, and then the rows that pull at all, told apart
without a branch, because whether a record pulls is what no processor can foresee.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array, IntArray
from sottovoce.engine.kernel.arguments import INSIDE, OUTSIDE, exact, njit
from sottovoce.problem.losses import IEEE_SLOPES, LOGISTIC, LOSSES, Loss
from sottovoce.problem.shards import Shards
from sottovoce.secure.compiled import exp, put_on_grid, truncated
from sottovoce.secure.grids import LARGEST, GridRows

u64, i64, f64 = np.uint64, np.int64, np.float64
LIBERTIES = {"reassoc", "contract", "nsz"}
any_order = njit(**INSIDE, fastmath=LIBERTIES)
"""For sums without an error, of which any order is right."""
ROWS = 512
"""Rows of a block, at most."""
NEAR = 1 << 17
"""Bytes of dense rows that are gone through twice."""
LEAST = 8
"""Dense rows of a block, at least."""


# --- slopes


@exact
def _nothing(code, u, y, k):
    u[:] = math.nan


def _rung(mine, formula, others):
    """The slopes of a block by the loss of this code, or by the others."""
    formula = njit(**INSIDE, fastmath=False, forceinline=True)(formula)

    @exact
    def slopes(code, u, y, k):
        if code == mine:
            for e in range(len(u)):
                u[e] = formula(u[e], y[e], k)
        else:
            others(code, u, y, k)

    return slopes


def _logistic(u, y, k):
    """`secure.functions.logistic_slope`."""
    return -y / (1.0 + exp(y * u))


FORMULAS = {
    loss.slope_formula: _logistic if loss.name == LOGISTIC.name else loss.slope_formula
    for loss in LOSSES.values()
    if loss.slope_formula in IEEE_SLOPES or loss.name == LOGISTIC.name
}
"""What is compiled for the slope of every loss of one margin that a secure run may have."""


def _ladder():
    found = _nothing
    for code, formula in reversed(list(enumerate(FORMULAS.values()))):
        found = _rung(code, formula, found)
    return found


_slopes = _ladder()


def code_of(loss: Loss) -> int:
    """By what number a loss's slope is called; a loss of one margin that a secure run may have."""
    return list(FORMULAS).index(loss.slope_formula)


@exact
def _pulls(code, k, u, y, caps, weights, inverse, rows, targets):
    """Margins of a block of rows -> their slopes in whole units of g_s, as `secure.sums.truncated`."""
    for e in range(len(u)):
        targets[e] = y[rows[e]]
    _slopes(code, u, targets, k)
    if len(weights) > 0:
        for e in range(len(u)):
            u[e] *= weights[rows[e]]
    for e in range(len(u)):
        u[e] = truncated(u[e], caps[rows[e]], inverse)


# --- models and sums


@exact
def _flush(wide, inverse, total):
    """Move a float64 sum to the whole one."""
    for j in range(len(wide)):
        total[j] += i64(wide[j] * inverse)
        wide[j] = 0.0


@exact
def _name(base, picks, order, first, rows):
    """The rows of a block: from the places, or of the picks, of a node."""
    for e in range(len(rows)):
        place = base + (picks[first + e] if len(picks) > 0 else first + e)
        rows[e] = u64(order[place] if len(order) > 0 else place)


@exact
def _kept(u, rows):
    """Move the rows that pull to the front; gives how many they are, and the sum of all slopes."""
    found, total = 0, 0.0
    for e in range(len(u)):
        pull = u[e]
        total += pull
        u[found], rows[found] = pull, rows[e]
        found += pull != 0.0
    return found, total


@any_order
def _dense_margins(X, rows, x, bias, u):
    """Row after row, as memory has them ready."""
    for e in range(len(rows)):
        c, s = X[rows[e]], 0.0
        for j in range(len(c)):
            s += c[j] * x[j]
        u[e] = s + bias


@any_order
def _dense_pull(X, rows, u, g):
    """Four rows side by side, now that they are in cache: the sum is read and written once for all of them."""
    whole = len(rows) // 4 * 4
    for e in range(0, whole, 4):
        a, b, c, d = X[rows[e]], X[rows[e + 1]], X[rows[e + 2]], X[rows[e + 3]]
        s, t, v, w = u[e], u[e + 1], u[e + 2], u[e + 3]
        for j in range(len(a)):
            g[j] += (s * a[j] + t * b[j]) + (v * c[j] + w * d[j])
    for e in range(whole, len(rows)):
        c, s = X[rows[e]], u[e]
        for j in range(len(c)):
            g[j] += s * c[j]


@any_order
def _sparse_margins(values, indices, indptr, rows, x, bias, u):
    for e in range(len(rows)):
        s = bias
        for place in range(u64(indptr[rows[e]]), u64(indptr[rows[e] + u64(1)])):
            s += values[place] * x[u64(indices[place])]
        u[e] = s


@any_order
def _sparse_pull(values, indices, indptr, rows, u, g):
    for e in range(len(rows)):
        for place in range(u64(indptr[rows[e]]), u64(indptr[rows[e] + u64(1)])):
            g[u64(indices[place])] += u[e] * values[place]


@njit(**OUTSIDE, fastmath=LIBERTIES)
def _sums(X, values, indices, indptr, of_rows, pairs, models, loss, units, step, scratch, totals):
    """Add Σ of every pair (node, round) to its row of `totals`, which are zero before; X, or the CSR arrays, are None.

    Gives the largest weight of all models, ∞ where something is no number; where that is over LARGEST, nothing is done.
    """
    order, y, caps, weights = of_rows
    base, sizes, starts, picks = pairs
    inverse, whole, intercept, limit = units
    x, wide, u, targets, rows = scratch
    largest = 0.0
    features = len(x) - 1 if intercept != 0.0 else len(x)
    g = wide[:features]
    for p in range(len(base)):
        largest = max(largest, put_on_grid(models[p], x))
        if not largest <= LARGEST:
            return largest
        bias = intercept * x[features] if intercept != 0.0 else 0.0
        mine = picks[starts[p] : starts[p + 1]]
        slopes, waiting = 0.0, 0
        for first in range(0, sizes[p], step):
            size = min(step, sizes[p] - first)
            some, margins = rows[:size], u[:size]
            _name(base[p], mine, order, first, some)
            if X is not None:
                _dense_margins(X, some, x, bias, margins)
            if values is not None:
                _sparse_margins(values, indices, indptr, some, x, bias, margins)
            _pulls(loss[0], loss[1], margins, y, caps, weights, inverse, some, targets[:size])
            found, more = _kept(margins, some)
            slopes += more
            waiting += found
            if X is not None:
                _dense_pull(X, some[:found], margins[:found], g)
            if values is not None:
                _sparse_pull(values, indices, indptr, some[:found], margins[:found], g)
            if waiting + step > limit or first + size == sizes[p]:
                if intercept != 0.0:
                    wide[features] = intercept * slopes
                _flush(wide, whole, totals[p])
                slopes, waiting = 0.0, 0
    return largest


def clipped_sums(
    data: GridRows, shards: Shards, loss: Loss, nodes: IntArray, models: Array, records: Sequence[IntArray | None]
) -> IntArray:
    """`secure.sums.clipped_sum` of each pair (node, round): (pairs, m), in whole units of the sums' grid.

    Parameters
    ----------
    data : the rows of `shards` on their grid
    shards : whose they are; units are rows
    loss : of one margin
    nodes : of each pair
    models : its x
    records : which of the node's units are summed; None for all
    """
    grids, X, m = data.grids, data.X, models.shape[1]
    dense = isinstance(X, np.ndarray)
    sizes, starts, picks = shards.sizes[nodes], np.zeros(len(nodes) + 1, np.int64), np.empty(0, np.int64)
    listed = [(pair, some) for pair, some in enumerate(records) if some is not None]
    for pair, some in listed:
        sizes[pair] = starts[pair + 1] = len(some)
    if listed:
        np.cumsum(starts, out=starts)
        picks = np.concatenate([some for _, some in listed]).astype(np.int64, copy=False)
    step = min(ROWS, grids.rows)
    if dense:
        step = max(1, min(step, max(LEAST, NEAR // max(1, 4 * X.shape[1]))))
    totals = np.zeros(models.shape, dtype=np.int64)
    of_rows = shards.order, shards.y, data.caps, shards.weights
    largest = _sums(
        _flat(X) if dense else None,
        None if dense else _flat(X.data),
        None if dense else _flat(X.indices),
        None if dense else _flat(X.indptr),
        (_flat(of_rows[0], np.int64), *(_flat(each, np.float64) for each in of_rows[1:])),
        (_flat(shards.offsets[nodes], np.int64), _flat(sizes, np.int64), _flat(starts), _flat(picks)),
        _flat(models, np.float64),
        (code_of(loss), float(loss.parameter)),
        (1.0 / grids.slope, 1.0 / grids.feature, grids.intercept, grids.rows),
        step,
        (np.empty(m), np.zeros(m), np.empty(step), np.empty(step), np.empty(step, np.uint64)),
        totals,
    )
    if largest > LARGEST:
        grids.model(models)  # which says what is wrong
    return totals


def _flat(values: NDArray[Any] | None, dtype: Any = None) -> NDArray[Any]:
    """The same memory, not to be written, so that there is one kind of array; nothing is an empty one."""
    view = np.ascontiguousarray(np.empty(0) if values is None else values, dtype=dtype).view()
    view.flags.writeable = False
    return view
