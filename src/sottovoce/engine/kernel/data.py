"""A node's look at its data: slopes by code, margins, clips, pulls; dense rows and CSR rows.

Data is read where it lies, in float32 or float64; all sums are float64. The intercept is the last coordinate of x,
and its constant column is never written down.

Slopes are those of `problem.losses`: its formulas are compiled as they stand there, and chained by code; those of a
batch are made a block at a time (`slopes`), by an exponential of our own. Where a model has K outputs or a unit several
rows, sums are those of `problem.objective.clipped_mean`: the K slopes of every row, one clip for all that a unit
brings, and for a unit with several rows the length of its mean, measured where the lengths of the rows do not settle
it.
"""

import math

import numpy as np
from llvmlite import ir
from numba import float64
from numba.core import types
from numba.core.errors import NumbaError
from numba.extending import intrinsic

from sottovoce.engine import kernel
from sottovoce.engine.kernel import entries
from sottovoce.engine.kernel.arguments import INSIDE, LINE, compiled, exact, folded, inlined, njit
from sottovoce.engine.kernel.draws import ALL
from sottovoce.engine.kernel.slopes import formula_of, ladder
from sottovoce.engine.kernel.steps import point
from sottovoce.engine.kernel.vectors import TOGETHER, add_rows, dot, dots
from sottovoce.problem import losses
from sottovoce.rows import TINY

u64 = np.uint64  # an index that Numba can see to be non-negative: else every entry of a row is looked at for its sign
SOON = 8
"""Records of a batch by which memory is asked for a dense row before it is read."""
NEAR = 1 << 16
"""Bytes of dense rows that are gone through twice."""
SMALLEST = TINY * TINY  # squares of a mean that has cancelled to nothing


def _compiles(loss) -> bool:
    """Whether Numba understands a slope; ours it does."""
    try:
        return loss.slope_formula.__module__ == losses.__name__ or bool(njit((float64,) * 3)(loss.slope_formula))
    except (NumbaError, TypeError):  # TypeError: it is not even a function
        return False


RUNGS = {name: loss for name, loss in losses.LOSSES.items() if loss.targets != "classes" and _compiles(loss)}
"""The losses that are compiled in; a loss's code is its place."""
SOFTMAX = len(RUNGS)
"""The code of the loss of K margins, which is written out below."""
kernel.LOSSES.maps[:] = [RUNGS, {losses.SOFTMAX.name: losses.SOFTMAX}]  # from now on it knows these, and no others


def code_of(loss) -> int:
    """By what number the kernel calls a loss that it knows."""
    return [*RUNGS, losses.SOFTMAX.name].index(loss.name)


@exact
def _no_slope(code, u, y, k):
    return math.nan


def _rung(mine, formula, others):
    """The slope of the loss with this code, or what the others say."""
    formula = njit(**INSIDE, fastmath=False, forceinline=True)(formula)  # rounded as in NumPy

    @inlined
    def slope(code, u, y, k):
        return formula(u, y, k) if code == mine else others(code, u, y, k)

    return slope


def _ladder(formulas):
    """One function of all formulas."""
    found = _no_slope
    for code, formula in reversed(list(enumerate(formulas))):
        found = _rung(code, formula, found)

    @folded
    def slope(code, u, y, k):
        """`Loss.slope` by `code_of`."""
        return found(code, u, y, k)

    return slope


slope = _ladder([loss.slope_formula for loss in RUNGS.values()])
slopes = ladder(map(formula_of, RUNGS.values()))


@folded
def weight_of(data, row):
    """What a row's loss is multiplied by."""
    return data.weights[row] if len(data.weights) > 0 else 1.0


@folded
def clipped_slope(code, k, u, y, norm, clip, weight):
    """The slope times the row's weight, after its subgradient, slope · c, was scaled down to norm at most `clip`."""
    found = weight * slope(code, u, y, k)
    size = abs(found) * norm
    if size <= clip:
        return found
    return found * (clip / size) if size < math.inf else 0.0  # what is not a number counts as nothing


@folded
def row_of_place(data, place):
    """The row at a place."""
    return data.order[place] if len(data.order) > 0 else place


@folded
def row_at(data, node, record):
    """The row of a node's record, where records are units."""
    return row_of_place(data, data.offsets[node] + record)


@compiled
def _dense_dot(c, x):
    u = 0.0
    for j in range(len(c)):
        u += c[j] * x[j]
    return u


@compiled
def _dense_dot_soft(c, z, threshold):
    """⟨c, soft(z)⟩."""
    u = 0.0
    for j in range(len(c)):
        u += c[j] * (z[j] - min(max(z[j], -threshold), threshold))
    return u


@compiled
def _dense_dot_map(c, z, threshold, scale, lo, hi):
    u = 0.0
    for j in range(len(c)):
        u += c[j] * point(z[j], threshold, scale, lo, hi)
    return u


@compiled
def _sparse_dot_map(values, indices, where, z, threshold, scale, lo, hi):
    u = 0.0
    for e in range(len(values)):
        u += values[e] * point(z[u64(where[u64(indices[e])])], threshold, scale, lo, hi)
    return u


@folded
def margin(data, row, x):
    """⟨c, x⟩."""
    if data.sparse:
        u = 0.0
        for e in range(u64(data.indptr[row]), u64(data.indptr[row + 1])):
            u += data.values[e] * x[u64(data.indices[e])]
    else:
        u = _dense_dot(data.X[row], x)
    return u + data.intercept * x[len(x) - 1] if data.intercept != 0.0 else u


@compiled
def margin_of_dual(data, bent, row, z, where, linear, threshold, scale, lo, hi):
    """⟨c, x(z)⟩ for a separable x(z), made only where c has entries; coordinate j of a CSR row is at z[where[j]]."""
    if data.sparse:
        first, last = data.indptr[row], data.indptr[row + 1]
        u = _sparse_dot_map(data.values[first:last], data.indices[first:last], where, z, threshold, scale, lo, hi)
    elif bent is None:
        u = -scale * _dense_dot(data.X[row], z)
    elif linear:
        u = -scale * _dense_dot(data.X[row], z)
    elif lo == -math.inf and hi == math.inf:
        u = -scale * _dense_dot_soft(data.X[row], z, threshold)
    else:
        u = _dense_dot_map(data.X[row], z, threshold, scale, lo, hi)
    if data.intercept != 0.0:
        u += data.intercept * point(z[where[len(where) - 1]], threshold, scale, lo, hi)
    return u


CHUNK = 128
"""Counters whose normals are made between two requests."""


@intrinsic
def _fetch(typing, row, index):
    """llvm.prefetch of row[index], for reading."""

    def code(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.bitcast(builder.gep(array.data, [arguments[1]]), ir.IntType(8).as_pointer())
        word = ir.IntType(32)
        shape = ir.FunctionType(ir.VoidType(), [pointer.type, word, word, word])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], shape)
        builder.call(hint, [pointer, word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(row, types.intp), code


@folded
def _ask_for(data, row):
    """Memory for what is read of a dense row."""
    c = data.X[row]
    for j in range(0, len(c), LINE // c.itemsize):
        _fetch(c, j)
    _fetch(data.y, row)
    _fetch(data.norms, row)


@inlined
def _block(data, most):
    """How many rows are gone through twice while the first of them is still in a near cache."""
    if data.sparse:
        return most
    return max(4, min(most, NEAR // max(1, data.X.shape[1] * data.X.itemsize)))


@exact
def _gather(values, rows, out):
    """Of the given rows, so that what is then done is done side by side."""
    for e in range(len(rows)):
        out[e] = values[u64(rows[e])]


@exact
def clipped_slopes(data, code, k, clip, rows, about, u):
    """`clipped_slope` of some rows, written over their margins; `about` is working memory."""
    known = about[: len(rows)]
    _gather(data.y, rows, known)
    slopes(code, u, known, k)
    if len(data.weights) > 0:
        _gather(data.weights, rows, known)
        for e in range(len(u)):
            u[e] *= known[e]
    _gather(data.norms, rows, known)
    for e in range(len(u)):
        size = abs(u[e]) * known[e]
        factor = min(clip / size, 1.0)  # not asked for where it is needed: whether a row is too long nobody foresees
        u[e] = u[e] * factor if size < math.inf else 0.0


@exact
def kept(u, rows):
    """Move the rows that pull to the front, without a branch; gives how many they are."""
    still = 0
    for e in range(len(u)):
        still += u[e] == 0.0
    if still == 0:
        return len(u)
    found = 0
    for e in range(len(u)):
        pull = u[e]
        u[found], rows[found] = pull, rows[e]
        found += pull != 0.0
    return found


@compiled
def _sum_of(u):
    total = 0.0
    for e in range(len(u)):
        total += u[e]
    return total


@compiled
def clipped_sum(data, node, count, records, begin, end, x, code, k, clip, g, rows, pulls, about):
    """g = Σ clip(∂l(x, ξ)) over the given records of a node, from `begin` to before `end`; memory is read once.

    A block of rows at a time: all margins, all slopes, and then those rows that pull at all, told apart without a
    branch, because whether a record pulls is what no processor can foresee.
    """
    g[:] = 0.0
    every, features, total = count == ALL, data.X.shape[1], end
    ask = not every and not data.sparse  # rows one after the other come without being asked for
    bias = data.intercept * x[len(x) - 1] if data.intercept != 0.0 else 0.0
    block, pulled = _block(data, len(rows)), 0.0
    for first in range(begin, total, block):
        size = min(block, total - first)
        some, u = rows[:size], pulls[:size]
        for e in range(size):
            some[e] = row_at(data, node, first + e if every else records[first + e])
        if data.sparse:
            entries.margins(data.values, data.indices, data.indptr, some, x, bias, u)
        else:
            for e in range(size):
                if ask and first + e + SOON < total:
                    _ask_for(data, row_at(data, node, records[first + e + SOON]))
                u[e] = bias + dot(data.X[some[e]], x)
        clipped_slopes(data, code, k, clip, some, about, u)
        pulled += _sum_of(u)
        found = kept(u, some)
        if data.sparse:
            entries.pull(data.values, data.indices, data.indptr, some[:found], u[:found], g)
        else:
            add_rows(g[:features], u[:found], some[:found], data.X)
    if data.intercept != 0.0:
        g[len(g) - 1] += pulled * data.intercept


@folded
def add_row(data, row, pull, g):
    """Add pull · c to g."""
    if data.sparse:
        for place in range(u64(data.indptr[row]), u64(data.indptr[row + 1])):
            g[u64(data.indices[place])] += pull * data.values[place]
    else:
        _axpy(g, pull, data.X[row])
    if data.intercept != 0.0:
        g[len(g) - 1] += pull * data.intercept


@compiled
def _axpy(g, weight, c):
    for j in range(len(c)):
        g[j] += weight * c[j]


@compiled
def stored(data, node, count, records):
    """How many stored entries the given records of a node have."""
    total = np.int64(0)
    for e in range(count):
        row = row_at(data, node, records[e])
        total += data.indptr[row + 1] - data.indptr[row]
    return total


@compiled
def _slopes_of_row(data, row, model, x, s):
    """s = the K slopes of one row at x, times its weight; gives ‖s‖₂·‖c‖."""
    m = len(x) // len(s)
    for k in range(len(s)):
        s[k] = margin(data, row, x[k * m : (k + 1) * m])
    return _slopes_of_margins(data, row, model, s)


@compiled
def _slopes_of_margins(data, row, model, s):
    """The same, written over the margins."""
    K, y, weight = len(s), data.y[row], weight_of(data, row)
    if model.loss == SOFTMAX:
        top = -math.inf
        for k in range(K):
            top = s[k] if s[k] > top else top
        total = 0.0
        for k in range(K):
            s[k] = math.exp(s[k] - top)
            total += s[k]
        for k in range(K):
            s[k] = weight * (s[k] / total - (1.0 if k == y else 0.0))
    elif K == 1:
        s[0] = weight * slope(model.loss, s[0], y, model.parameter)
        return abs(s[0]) * data.norms[row]
    else:
        for k in range(K):
            s[k] = weight * slope(model.loss, s[k], 1.0 if k == y else -1.0, model.parameter)
    return _length(s) * data.norms[row]


@compiled
def _length(s):
    """‖s‖₂, at a scale at which no square leaves the range of floats."""
    largest, total = 0.0, 0.0
    for k in range(len(s)):
        largest = abs(s[k]) if abs(s[k]) > largest else largest
        total += abs(s[k])
    if largest < TINY:  # its reciprocal may be infinite; no clip is as small, and the sum is at most √K too long
        return total  # not a number where a slope is not
    squares = 0.0
    for k in range(len(s)):
        squares += (s[k] / largest) ** 2
    return largest * math.sqrt(squares)


@compiled
def _add(data, row, s, factor, g):
    """Add factor · s ⊗ c to g."""
    m = len(g) // len(s)
    for k in range(len(s)):
        if s[k] != 0.0:
            add_row(data, row, factor * s[k], g[k * m : (k + 1) * m])


@compiled
def _move_row(data, row, K, mean, kept):
    """Move the coordinates that a CSR row touches from `mean` to `kept`; gives the sum of their squares."""
    m = len(mean) // K
    squares = 0.0
    for k in range(K):
        for place in range(data.indptr[row], data.indptr[row + 1]):
            j = k * m + data.indices[place]
            squares += mean[j] * mean[j]
            kept[j] += mean[j]
            mean[j] = 0.0
        if data.intercept != 0.0:
            j = (k + 1) * m - 1
            squares += mean[j] * mean[j]
            kept[j] += mean[j]
            mean[j] = 0.0
    return squares


@compiled
def _take(kept, j, factor, g):
    """Add one coordinate and leave zero; where the factor is 0 it may not even be a number."""
    if factor > 0.0:
        g[j] += factor * kept[j]
    kept[j] = 0.0


@compiled
def _add_kept(data, row, K, kept, factor, g):
    """Add what a CSR row touches of `kept` to g, once, and leave zeros."""
    m = len(kept) // K
    for k in range(K):
        for place in range(data.indptr[row], data.indptr[row + 1]):
            j = k * m + data.indices[place]
            _take(kept, j, factor, g)
        if data.intercept != 0.0:
            _take(kept, (k + 1) * m - 1, factor, g)


@compiled
def _add_measured(data, first, last, longest, clip, slopes, mean, kept, g):
    """Add a unit whose rows are too long on average: make its mean in units of `longest`, measure, scale, add.

    `mean` and `kept` are zero before and after. A coordinate that several CSR rows share is counted at the first of
    them, because it is moved away then; nothing of size m is passed over for CSR rows.
    """
    K = slopes.shape[1]
    share = 1.0 / (last - first)
    for place in range(first, last):
        for k in range(K):
            slopes[place - first, k] /= longest
        _add(data, row_of_place(data, place), slopes[place - first], share, mean)
    squares = 0.0
    if data.sparse:
        for place in range(first, last):
            squares += _move_row(data, row_of_place(data, place), K, mean, kept)
    else:
        for j in range(len(mean)):
            squares += mean[j] * mean[j]
    factor = min(longest, clip / math.sqrt(squares)) if SMALLEST < squares < math.inf else 0.0
    if data.sparse:
        for place in range(first, last):
            _add_kept(data, row_of_place(data, place), K, kept, factor, g)
    else:
        for j in range(len(mean)):
            _take(mean, j, factor, g)


@folded
def units_of(data, node, count):
    """How many units a count stands for."""
    return data.offsets[node + 1] - data.offsets[node] if count == ALL else count


@compiled
def _add_dense_rows(data, node, count, begin, end, model, clip, g, scratch):
    """Add clip(∂l(scratch.x, ·)) of dense rows, each a unit, to g: some rows at a time, and of these output by output.

    So x and g, which of all outputs are too much for a near cache, are read once for all these rows.
    """
    rows, pulls, s, x, every = scratch.block, scratch.shares, scratch.slopes[0], scratch.x, count == ALL
    K, features = len(s), data.X.shape[1]
    m, block = len(g) // K, _block(data, pulls.shape[1])
    for first in range(begin, end, block):
        size = min(block, end - first)
        for e in range(size):
            rows[e] = row_at(data, node, first + e if every else scratch.records[first + e])
        for k in range(K):
            mine, bias = x[k * m : (k + 1) * m], 0.0
            if data.intercept != 0.0:
                bias = data.intercept * mine[m - 1]
            u, whole = pulls[k, :size], size // TOGETHER * TOGETHER
            for e in range(0, whole, TOGETHER):
                dots(data.X, rows, e, mine, u)
            for e in range(whole, size):
                u[e] = dot(data.X[rows[e]], mine)
            for e in range(size):
                u[e] += bias
        found = 0
        for e in range(size):
            for k in range(K):
                s[k] = pulls[k, e]
            length = _slopes_of_margins(data, rows[e], model, s)
            factor = clip / length if length > clip else 1.0
            rows[found] = rows[e]
            for k in range(K):
                pulls[k, found] = factor * s[k]
            found += length < math.inf  # what is not a number counts as nothing
        for k in range(K):
            mine, u = g[k * m : (k + 1) * m], pulls[k, :found]
            add_rows(mine[:features], u, rows[:found], data.X)
            if data.intercept != 0.0:
                mine[m - 1] += data.intercept * _sum_of(u)


@compiled
def joint_sum(data, node, count, model, clip, scratch):
    """scratch.g = Σ clip(∂l(scratch.x, ·)) over the given units of a node."""
    joint_part(data, node, count, 0, units_of(data, node, count), model, clip, scratch.g, scratch)


@compiled
def joint_part(data, node, count, begin, end, model, clip, g, scratch):
    """g = the same over those from `begin` to before `end`."""
    slopes = scratch.slopes
    g[:] = 0.0
    if not data.sparse and len(data.starts) == 0:
        return _add_dense_rows(data, node, count, begin, end, model, clip, g, scratch)
    every = count == ALL
    for e in range(begin, end):
        unit = data.offsets[node] + (e if every else scratch.records[e])
        first, last = unit, unit + 1
        if len(data.starts) > 0:
            first, last = data.starts[unit], data.starts[unit + 1]
        longest = 0.0
        for place in range(first, last):
            longest += _slopes_of_row(data, row_of_place(data, place), model, scratch.x, slopes[place - first])
        longest /= last - first
        if not longest < math.inf:
            continue
        if longest > clip and last - first > 1:
            _add_measured(data, first, last, longest, clip, slopes, scratch.mean, scratch.kept, g)
            continue
        factor = (clip / longest if longest > clip else 1.0) / (last - first)
        for place in range(first, last):
            _add(data, row_of_place(data, place), slopes[place - first], factor, g)


@exact
def fetch(row):
    """Ask for all of a row."""
    step = LINE // row.itemsize
    for j in range(0, len(row), step):
        _fetch(row, j)
