"""The exact sums of a secure round, of all its nodes in one call: every row is read once, dense or CSR.

Records, models and slopes are on the grids of `secure.grids`, where sums without an error are the same in any order; so
products may be vectorised, contracted and gone through by blocks, and are the bits of the matrix products of
`secure.sums`. Slopes, clips and truncations take no liberties: they are those of `engine.secure.slope_of` and of
`secure.sums.truncated`, rounded as in NumPy.

Threads share the nodes of a large round, or the rows of a single one: whole numbers add up to the same in any order.

A block of rows at a time stays in cache: its margins, its slopes, and then the rows that pull at all, told apart
without a branch, because whether a record pulls is what no processor can foresee.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array, IntArray
from sottovoce.engine.cores import available
from sottovoce.engine.kernel import entries
from sottovoce.engine.kernel.arguments import INSIDE, OUTSIDE, exact, njit
from sottovoce.engine.kernel.slopes import formula_of, ladder
from sottovoce.problem.losses import IEEE_SLOPES, LOGISTIC, LOSSES, SOFTMAX, Joint, Loss
from sottovoce.problem.shards import Shards
from sottovoce.secure.compiled import exp, put_on_grid, truncated
from sottovoce.secure.grids import LARGEST, GridRows
from sottovoce.secure.sums import HUGE, SHORTER

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
SHARE = 1 << 21
"""Numbers of records in a round from which on another thread is worth it: a millisecond; to start one takes a tenth."""


# --- slopes


FORMULAS = {
    loss.slope_formula: formula_of(loss)
    for loss in LOSSES.values()
    if loss.slope_formula in IEEE_SLOPES or loss.name == LOGISTIC.name
}
"""What is compiled for the slope of every loss of one margin that a secure run may have."""
_slopes = ladder(FORMULAS.values())


SOFTMAX_CODE = len(FORMULAS)
"""The code of the loss of K margins, which is written out below."""


def code_of(loss: Loss) -> int:
    """By what number a loss's slope is called; a loss that a secure run may have."""
    return [*FORMULAS, SOFTMAX.slope_formula].index(loss.slope_formula)


@exact
def _halved_sum(values, count):
    """As `secure.functions.halved_sum`; the values are used up."""
    while count > 1:
        half = (count + 1) // 2
        for j in range(count - half):
            values[j] += values[half + j]
        count = half
    return values[0]


@exact
def _softmax(u, targets, K, spare):
    """`secure.functions.softmax_slope` of a block, row after row."""
    for first in range(0, len(u), K):
        top = u[first]
        for j in range(1, K):
            top = max(top, u[first + j])
        for j in range(K):
            u[first + j] -= top
    for i in range(len(u)):
        u[i] = exp(u[i])
    for first in range(0, len(u), K):
        for j in range(K):
            spare[j] = u[first + j]
        total = _halved_sum(spare, K)
        for j in range(K):
            u[first + j] = u[first + j] / total - (1.0 if targets[first + j] > 0.0 else 0.0)


@exact
def _shortened(slopes, cap, inverse, spare, sizes):
    """The slopes of a row in whole units of g_s, the vector at most its cap, as `secure.sums.truncated`."""
    K, largest = len(slopes), 0.0
    for j in range(K):
        sizes[j] = min(abs(slopes[j]) * inverse, HUGE) if math.isfinite(slopes[j]) else 0.0
        largest = max(largest, sizes[j])
    scale = largest if largest > 0.0 else 1.0
    for j in range(K):
        spare[j] = (sizes[j] / scale) * (sizes[j] / scale)
    length = scale * math.sqrt(_halved_sum(spare, K))
    factor = cap / max(length, 1.0) * SHORTER if length > cap else 1.0
    for j in range(K):
        slopes[j] = math.copysign(math.floor(sizes[j] * factor), slopes[j])


@exact
def _joint_pulls(code, k, u, y, caps, weights, inverse, rows, targets, K, spare, sizes, slopes):
    """As `_pulls`, of K margins a row; `slopes` grows by the sums of them."""
    for e in range(len(rows)):
        for j in range(K):
            targets[e * K + j] = 1.0 if y[rows[e]] == j else -1.0
    if code == SOFTMAX_CODE:
        _softmax(u, targets, K, spare)
    else:
        _slopes(code, u, targets, k)
    for e in range(len(rows)):
        mine = u[e * K : (e + 1) * K]
        if len(weights) > 0:
            for j in range(K):
                mine[j] *= weights[rows[e]]
        _shortened(mine, caps[rows[e]], inverse, spare, sizes)
        for j in range(K):
            slopes[j] += mine[j]


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
def _joint_margins(X, rows, x, bias, near, u):
    """Of K outputs: four rows are widened, and each output's model is read once for all of them."""
    K, features, four = len(bias), X.shape[1], len(near)
    m = len(x) // K
    for e in range(0, len(rows), four):
        count = min(four, len(rows) - e)
        for i in range(count):
            wide, narrow = near[i], X[rows[e + i]]
            for j in range(features):
                wide[j] = narrow[j]
        a, b, c, d = near[0], near[1], near[2], near[3]
        for output in range(K):
            model = x[output * m : output * m + features]
            s, t, v, w = bias[output], bias[output], bias[output], bias[output]
            for j in range(features):
                s += a[j] * model[j]
                t += b[j] * model[j]
                v += c[j] * model[j]
                w += d[j] * model[j]
            for i in range(count):
                u[(e + i) * K + output] = s if i == 0 else t if i == 1 else v if i == 2 else w


@any_order
def _joint_pull(X, rows, u, K, g):
    features, m = X.shape[1], len(g) // K
    whole = len(rows) // 4 * 4
    for e in range(0, whole, 4):
        a, b, c, d = X[rows[e]], X[rows[e + 1]], X[rows[e + 2]], X[rows[e + 3]]
        for output in range(K):
            s, t = u[e * K + output], u[(e + 1) * K + output]
            v, w = u[(e + 2) * K + output], u[(e + 3) * K + output]
            mine = g[output * m : output * m + features]
            for j in range(features):
                mine[j] += (s * a[j] + t * b[j]) + (v * c[j] + w * d[j])
    for e in range(whole, len(rows)):
        c = X[rows[e]]
        for output in range(K):
            mine, s = g[output * m : output * m + features], u[e * K + output]
            for j in range(features):
                mine[j] += s * c[j]


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
        largest = max(largest, put_on_grid(models[p], len(x), x))
        if not largest <= LARGEST:
            return largest
        bias = intercept * x[features] if intercept != 0.0 else 0.0
        mine = picks[starts[p] : starts[p] + sizes[p]] if starts[p] >= 0 else picks[:0]
        slopes, waiting = 0.0, 0
        for first in range(0, sizes[p], step):
            size = min(step, sizes[p] - first)
            some, margins = rows[:size], u[:size]
            _name(base[p], mine, order, first, some)
            if X is not None:
                _dense_margins(X, some, x, bias, margins)
            if values is not None:
                entries.margins(values, indices, indptr, some, x, bias, margins)
            _pulls(loss[0], loss[1], margins, y, caps, weights, inverse, some, targets[:size])
            found, more = _kept(margins, some)
            slopes += more
            waiting += found
            if X is not None:
                _dense_pull(X, some[:found], margins[:found], g)
            if values is not None:
                entries.pull(values, indices, indptr, some[:found], margins[:found], g)
            if waiting + step > limit or first + size == sizes[p]:
                if intercept != 0.0:
                    wide[features] = intercept * slopes
                _flush(wide, whole, totals[p])
                slopes, waiting = 0.0, 0
    return largest


@njit(**OUTSIDE, fastmath=LIBERTIES)
def _joint_sums(X, of_rows, pairs, models, loss, units, step, scratch, joint, totals):
    """As `_sums`, of K outputs and dense rows."""
    order, y, caps, weights = of_rows
    base, sizes, starts, picks = pairs
    inverse, whole, intercept, limit = units
    x, wide, u, targets, rows = scratch
    near, bias, slopes, spare, sizes_of = joint
    K, largest = len(bias), 0.0
    m = len(x) // K
    for p in range(len(base)):
        largest = max(largest, put_on_grid(models[p], m, x))
        if not largest <= LARGEST:
            return largest
        for output in range(K):
            bias[output] = intercept * x[(output + 1) * m - 1] if intercept != 0.0 else 0.0
            slopes[output] = 0.0
        mine = picks[starts[p] : starts[p] + sizes[p]] if starts[p] >= 0 else picks[:0]
        waiting = 0
        for first in range(0, sizes[p], step):
            size = min(step, sizes[p] - first)
            some, margins = rows[:size], u[: size * K]
            _name(base[p], mine, order, first, some)
            _joint_margins(X, some, x, bias, near, margins)
            _joint_pulls(
                loss[0], loss[1], margins, y, caps, weights, inverse, some, targets, K, spare, sizes_of, slopes
            )
            _joint_pull(X, some, margins, K, wide)
            waiting += size
            if waiting + step > limit or first + size == sizes[p]:
                for output in range(K):
                    if intercept != 0.0:
                        wide[(output + 1) * m - 1] = intercept * slopes[output]
                    slopes[output] = 0.0
                _flush(wide, whole, totals[p])
                waiting = 0
    return largest


def clipped_sums(
    data: GridRows, shards: Shards, joint: Joint, nodes: IntArray, models: Array, records: Sequence[IntArray | None]
) -> IntArray:
    """`secure.sums.clipped_sum` of each pair (node, round): (pairs, m), in whole units of the sums' grid.

    Parameters
    ----------
    data : the rows of `shards` on their grid
    shards : whose they are; units are rows
    joint : the loss, of one output, or of several where rows are dense
    nodes : of each pair
    models : its x
    records : which of the node's units are summed; None for all
    """
    sizes, starts, picks = shards.sizes[nodes], np.full(len(nodes), -1), np.empty(0, np.int64)
    listed = [(pair, some) for pair, some in enumerate(records) if some is not None]
    for pair, some in listed:
        sizes[pair] = len(some)
    if listed:
        starts[[pair for pair, _ in listed]] = np.cumsum([0] + [len(some) for _, some in listed[:-1]])
        lists = [some for _, some in listed]
        picks = (lists[0] if len(lists) == 1 else np.concatenate(lists)).astype(np.int64, copy=False)
    pairs = Pairs(shards.offsets[nodes], sizes, starts)
    stored = data.X.shape[1] if isinstance(data.X, np.ndarray) else data.X.nnz / max(1, data.X.shape[0])
    threads = int(min(available(), sizes.sum() * stored * joint.outputs // SHARE + 1))
    parts = -(-threads // max(1, len(nodes)))  # of one node's rows, where there are fewer nodes
    which = np.repeat(np.arange(len(nodes)), parts)
    pieces, x = pairs.cut(parts), _flat(models if parts == 1 else models[which], np.float64)
    totals = np.zeros(x.shape, dtype=np.int64)
    ends = np.searchsorted(np.cumsum(pieces.sizes), pieces.sizes.sum() * np.arange(1, threads) / threads)
    work = _passes(data, shards, joint, picks)
    works = [
        partial(work, pieces.at(mine), x[mine], totals[mine])
        for mine in map(slice, [0, *ends.tolist()], [*ends.tolist(), len(which)])
    ]
    largest = _side_by_side(works)
    if max(largest) > LARGEST:
        data.grids.model(models)  # which says what is wrong
    return totals if parts == 1 else totals.reshape(len(nodes), parts, -1).sum(axis=1)


class Pairs(NamedTuple):
    """Whose rows are summed: of each pair (node, round) the place of its first one, how many, and where in the picks.

    Attributes
    ----------
    base : the node's first place
    sizes : rows
    starts : of its picks, which are counted from `base`; −1 where it has none, and all places from `base` on are summed
    """

    base: IntArray
    sizes: IntArray
    starts: IntArray

    def cut(self, parts: int) -> "Pairs":
        """Each in so many parts, one after the other."""
        if parts == 1:
            return self
        base, sizes, starts = (np.repeat(each, parts) for each in self)
        part = np.tile(np.arange(parts), len(self.base))
        first = sizes * part // parts
        picked = starts >= 0
        return Pairs(
            np.where(picked, base, base + first),
            sizes * (part + 1) // parts - first,
            np.where(picked, starts + first, -1),
        )

    def at(self, some: slice) -> "Pairs":
        """Some of them."""
        return Pairs(*(each[some] for each in self))


def _passes(data: GridRows, shards: Shards, joint: Joint, picks: IntArray) -> Callable[[Pairs, Array, IntArray], float]:
    """(pairs, models, totals) -> the largest weight: a compiled pass with working memory of its own."""
    grids, X, K = data.grids, data.X, joint.outputs
    dense, step = isinstance(X, np.ndarray), min(ROWS, grids.rows)
    if dense:
        step = max(1, min(step, max(LEAST, NEAR // max(1, 4 * X.shape[1]))))
    of_rows = _flat(shards.order, np.int64), *(_flat(own, np.float64) for own in (shards.y, data.caps, shards.weights))
    loss = code_of(joint.loss), float(joint.loss.parameter)
    units = 1.0 / grids.slope, 1.0 / grids.feature, grids.intercept, grids.rows

    def one(pairs: Pairs, x: Array, totals: IntArray) -> float:
        m, each = x.shape[1], step * K
        scratch = np.empty(m), np.zeros(m), np.empty(each), np.empty(each), np.empty(step, np.uint64)
        given = of_rows, (*(_flat(own, np.int64) for own in pairs), _flat(picks)), x, loss, units, step, scratch
        if K > 1:
            more = np.zeros((4, X.shape[1])), *(np.empty(K) for _ in range(4))
            return float(_joint_sums(_flat(X), *given, more, totals))
        if dense:
            return float(_sums(_flat(X), None, None, None, *given, totals))
        return float(_sums(None, _flat(X.data), _flat(X.indices), _flat(X.indptr), *given, totals))

    return one


def _side_by_side(works: Sequence[Callable[[], float]]) -> list[float]:
    """The first one here, the others in threads."""
    if len(works) == 1:
        return [works[0]()]
    with ThreadPoolExecutor(len(works) - 1) as pool:
        others = [pool.submit(work) for work in works[1:]]
        return [works[0](), *(other.result() for other in others)]


def _flat(values: NDArray[Any] | None, dtype: Any = None) -> NDArray[Any]:
    """The same memory, not to be written, so that there is one kind of array; nothing is an empty one."""
    view = np.ascontiguousarray(np.empty(0) if values is None else values, dtype=dtype).view()
    view.flags.writeable = False
    return view
