"""Asking memory for rows before they are needed.

A node's look at its data, compiled: margins, slopes by code, clipping, pulls; dense rows and CSR rows.

Data is read where it lies, in float32 or float64; all sums are float64. The intercept is the last coordinate of x,
and its constant column is never written down.
"""

import math

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic

from sottovoce.engine.kernel.draws import ALL
from sottovoce.engine.kernel.noise import inlined
from sottovoce.engine.kernel.steps import compiled, point

LINE = 64  # bytes
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


@njit(nogil=True, _nrt=False)
def fetch(row):
    """Ask for all of a row."""
    step = LINE // row.itemsize
    for j in range(0, len(row), step):
        _fetch(row, j)


HINGE, SMOOTHED_HINGE, LOGISTIC, SQUARED_HINGE, SQUARED, HUBER, ABSOLUTE, QUANTILE, SOFTMAX = range(9)


@njit(nogil=True, _nrt=False)
def slope(code, u, y, k):
    """`Loss.slope` by `Loss.code`."""
    if code <= SQUARED_HINGE:
        short = 1.0 - y * u
        if code == LOGISTIC:
            return -y / (1.0 + math.exp(y * u))
        if short <= 0.0:
            return 0.0
        if code == HINGE:
            return -y if y * u < 1.0 else 0.0
        return -y * min(1.0, short / k) if code == SMOOTHED_HINGE else -y * short
    if code == SQUARED:
        return u - y
    if code == HUBER:
        return min(k, max(-k, u - y))
    up, down = (1.0, 1.0) if code == ABSOLUTE else (1.0 - k, k)
    return up if u > y else (-down if u < y else 0.0)


@compiled
def clipped_slope(code, k, u, y, norm, clip):
    """The slope after its subgradient, slope · c, was scaled down to norm at most `clip`."""
    found = slope(code, u, y, k)
    size = abs(found) * norm
    if size <= clip:
        return found
    return found * (clip / size) if size < math.inf else 0.0  # what is not a number counts as nothing


@compiled
def row_of_place(data, place):
    """The row at a place."""
    return data.order[place] if len(data.order) > 0 else place


@compiled
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
        u += values[e] * point(z[where[indices[e]]], threshold, scale, lo, hi)
    return u


@compiled
def margin(data, row, x):
    """⟨c, x⟩."""
    if data.sparse:
        u = 0.0
        for e in range(data.indptr[row], data.indptr[row + 1]):
            u += data.values[e] * x[data.indices[e]]
    else:
        u = _dense_dot(data.X[row], x)
    return u + data.intercept * x[len(x) - 1] if data.intercept != 0.0 else u


@inlined
def margin_of_dual(data, row, z, where, linear, threshold, scale, lo, hi):
    """⟨c, x(z)⟩ for a separable x(z), made only where c has entries; coordinate j of a CSR row is at z[where[j]]."""
    if data.sparse:
        first, last = data.indptr[row], data.indptr[row + 1]
        u = _sparse_dot_map(data.values[first:last], data.indices[first:last], where, z, threshold, scale, lo, hi)
    elif linear:
        u = -scale * _dense_dot(data.X[row], z)
    elif lo == -math.inf and hi == math.inf:
        u = -scale * _dense_dot_soft(data.X[row], z, threshold)
    else:
        u = _dense_dot_map(data.X[row], z, threshold, scale, lo, hi)
    if data.intercept != 0.0:
        u += data.intercept * point(z[where[len(where) - 1]], threshold, scale, lo, hi)
    return u


@compiled
def clipped_sum(data, node, count, records, x, code, k, clip, g):
    """g = Σ clip(∂l(x, ξ)) over the given records of a node; each row is read once."""
    g[:] = 0.0
    every = count == ALL
    for e in range(data.offsets[node + 1] - data.offsets[node] if every else count):
        row = row_at(data, node, e if every else records[e])
        pull = clipped_slope(code, k, margin(data, row, x), data.y[row], data.norms[row], clip)
        if pull != 0.0:
            add_row(data, row, pull, g)


@compiled
def add_row(data, row, pull, g):
    """Add pull · c to g."""
    if data.sparse:
        for place in range(data.indptr[row], data.indptr[row + 1]):
            g[data.indices[place]] += pull * data.values[place]
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
