"""A node's look at its data, compiled, where a model has K outputs or a unit has several rows.

The same sums as in `problem.objective.clipped_mean`: the K slopes of every row, one clip for all that a unit brings,
and for a unit with several rows the length of its mean, measured where the lengths of the rows do not settle it.
"""

import math

from sottovoce.engine.kernel.data import SOFTMAX, add_row, margin, row_of_place, slope
from sottovoce.engine.kernel.draws import ALL
from sottovoce.engine.kernel.steps import compiled
from sottovoce.rows import TINY

SMALLEST = TINY * TINY  # squares of a mean that has cancelled to nothing


@compiled
def _slopes_of_row(data, row, model, x, s):
    """s = the K slopes of one row at x; gives ‖s‖₂·‖c‖."""
    K = len(s)
    m, y = len(x) // K, data.y[row]
    top = -math.inf
    for k in range(K):
        s[k] = margin(data, row, x[k * m : (k + 1) * m])
        top = s[k] if s[k] > top else top
    if model.loss == SOFTMAX:
        total = 0.0
        for k in range(K):
            s[k] = math.exp(s[k] - top)
            total += s[k]
        for k in range(K):
            s[k] = s[k] / total - (1.0 if k == y else 0.0)
    elif K == 1:
        s[0] = slope(model.loss, s[0], y, model.parameter)
        return abs(s[0]) * data.norms[row]
    else:
        for k in range(K):
            s[k] = slope(model.loss, s[k], 1.0 if k == y else -1.0, model.parameter)
    return _length(s) * data.norms[row]


@compiled
def _length(s):
    """‖s‖₂, at a scale at which no square leaves the range of floats."""
    largest, total = 0.0, 0.0
    for k in range(len(s)):
        largest = abs(s[k]) if abs(s[k]) > largest else largest
        total += s[k]
    if largest == 0.0:
        return total  # 0, or not a number where a slope is not
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


@compiled
def joint_sum(data, node, count, model, clip, scratch):
    """scratch.g = Σ clip(∂l(scratch.x, ·)) over the given units of a node."""
    g, slopes = scratch.g, scratch.slopes
    g[:] = 0.0
    every = count == ALL
    for e in range(data.offsets[node + 1] - data.offsets[node] if every else count):
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
