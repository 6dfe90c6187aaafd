"""Asking memory for rows before they are needed."""

from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic

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
