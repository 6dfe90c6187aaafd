"""Products and sums of rows, eight numbers at a time and what is left over under a mask.

LLVM makes vectors of a loop by itself, thirty-two numbers a turn; what is left over it does in fours, and the last ones
one by one. Of rows of 50 numbers, or of 25, that is most of the time. These are written in its language instead:
reading in float32 or float64, summing in float64, in an order that depends on the length alone. Those of a block of
edges (`near`) have COLUMNS numbers and no loop at all; they are averaged four at a time, which is no slower to compute
and quicker to store.

Sparse rows are gone through sixteen entries at a time, the last ones with some of the next row, which are left out: how
long a row is no processor can foresee, and a wrong guess takes as long as seven entries.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from sottovoce.engine.kernel.arguments import COLUMNS, DRAWN, EDGE, LINE, NUMBERS

WIDTH = 8
"""Numbers of a vector."""
PANEL = 4
"""Vectors that are summed side by side: one sum waits for itself."""
TOGETHER = 4
"""Rows that are multiplied with the same numbers."""
ABREAST = 2
"""Vectors of entries that are gone through together: rows of text and of categories have that many, and seldom more."""
AT_ONCE = ABREAST * WIDTH
"""So many entries those are."""

DOUBLES = ir.VectorType(ir.DoubleType(), WIDTH)
MASK = ir.VectorType(ir.IntType(1), WIDTH)
WORD, HALF_WORD = ir.IntType(64), ir.IntType(32)
NOTHING = ir.Constant(DOUBLES, [0.0] * WIDTH)
LIBERTIES = ("reassoc", "contract", "nsz")
FUSED = ("contract",)
"""In the order in which it is written."""
NEXT = 2
"""What LLVM calls the cache after the nearest one: what is asked for must not drive out what is worked on."""


class _Rows:
    """An array's memory, for reading and writing eight numbers of it."""

    def __init__(self, context: Any, builder: Any, kind: types.Array, value: Any, width: int = WIDTH) -> None:
        array = context.make_array(kind)(context, builder, value)
        self.builder, self.pointer = builder, array.data
        self.shape = cgutils.unpack_tuple(builder, array.shape)
        self.single = kind.dtype == types.float32
        self.width, self.doubles = width, ir.VectorType(ir.DoubleType(), width)

    def at(self, index: Any) -> Any:
        """One number."""
        return self.builder.load(self.builder.gep(self.pointer, [index]))

    def read(self, index: Any, mask: Any) -> Any:
        """As many as a vector has, in float64; where the mask is not set, zeros, and nothing is read."""
        kind = ir.VectorType(self.pointer.type.pointee, self.width)
        where, align = self._place(index, kind), 4 if self.single else 8
        if mask is None:
            found = self.builder.load(where, align=align)
        else:
            shape = ir.FunctionType(kind, [where.type, HALF_WORD, MASK, kind])
            name = f"llvm.masked.load.v{WIDTH}f{8 * align}.p0"
            reads = cgutils.get_or_insert_function(self.builder.module, shape, name)
            found = self.builder.call(reads, [where, HALF_WORD(align), mask, ir.Constant(kind, [0.0] * WIDTH)])
        return self.builder.fpext(found, self.doubles) if self.single else found

    def write(self, index: Any, mask: Any, values: Any) -> None:
        """As many as a vector has, or those of the mask, of an array in float64."""
        where = self._place(index, self.doubles)
        if mask is None:
            self.builder.store(values, where, align=8)
        else:
            shape = ir.FunctionType(ir.VoidType(), [DOUBLES, where.type, HALF_WORD, MASK])
            writes = cgutils.get_or_insert_function(self.builder.module, shape, f"llvm.masked.store.v{WIDTH}f64.p0")
            self.builder.call(writes, [values, where, HALF_WORD(8), mask])

    def _place(self, index: Any, kind: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(self.pointer, [index]), kind.as_pointer())


def _spread(builder: Any, number: Any, width: int = WIDTH) -> Any:
    """The same number eight times, or as often."""
    kind = ir.VectorType(number.type, width)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), number, HALF_WORD(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(HALF_WORD, width), [0] * width))


def _below(builder: Any, count: Any, first: int = 0) -> Any:
    """The mask of the first so many, of those from `first` on."""
    places = ir.Constant(ir.VectorType(WORD, WIDTH), list(range(first, first + WIDTH)))
    return builder.icmp_signed("<", places, _spread(builder, count))


def _plus_product(builder: Any, total: Any, one: Any, other: Any) -> Any:
    return builder.fadd(total, builder.fmul(one, other, flags=LIBERTIES), flags=LIBERTIES)


def _added_up(builder: Any, one: Any, other: Any) -> Any:
    """All numbers of two vectors."""
    shape = ir.FunctionType(ir.DoubleType(), [ir.DoubleType(), DOUBLES])
    adds = cgutils.get_or_insert_function(builder.module, shape, f"llvm.vector.reduce.fadd.v{WIDTH}f64")
    return builder.call(adds, [ir.Constant(ir.DoubleType(), 0.0), builder.fadd(one, other)], fastmath=LIBERTIES)


def _in_panels(builder: Any, length: Any, work: Any) -> None:
    """`work` on four vectors after the other, and on what is left over: their first places and masks."""

    def panel(first: Any, left: Any) -> None:
        places = [builder.add(first, WORD(WIDTH * k)) for k in range(PANEL)]
        masks = [left if left is None else _below(builder, builder.sub(left, WORD(WIDTH * k))) for k in range(PANEL)]
        work(list(zip(places, masks, strict=True)))

    whole = builder.and_(length, WORD(-WIDTH * PANEL))
    with cgutils.for_range_slice(builder, WORD(0), whole, WORD(WIDTH * PANEL), WORD) as (first, _):
        panel(first, None)
    with builder.if_then(builder.icmp_signed("<", whole, length)):
        panel(whole, builder.sub(length, whole))


def _in_vectors(builder: Any, length: Any, work: Any) -> None:
    """`work` on one vector after the other, four a turn: which of four it is, its first place, its mask."""
    panels, whole = builder.and_(length, WORD(-WIDTH * PANEL)), builder.and_(length, WORD(-WIDTH))
    with cgutils.for_range_slice(builder, WORD(0), panels, WORD(WIDTH * PANEL), WORD) as (first, _):
        for k in range(PANEL):
            work(k, builder.add(first, WORD(WIDTH * k)), None)
    with cgutils.for_range_slice(builder, panels, whole, WORD(WIDTH), WORD) as (first, _):
        work(0, first, None)
    with builder.if_then(builder.icmp_signed("<", whole, length)):
        work(1, whole, _below(builder, builder.sub(length, whole)))


def _known(*arrays: Any) -> bool:
    """Whether these are arrays that lie in memory without gaps."""
    return all(isinstance(array, types.Array) and array.layout == "C" for array in arrays)


@intrinsic
def dot(typing, c, x):
    """⟨c, x⟩, as long as c is."""

    def code(context, builder, signature, arguments):
        c, x = (_Rows(context, builder, *each) for each in zip(signature.args, arguments, strict=True))
        sums = [cgutils.alloca_once_value(builder, NOTHING) for _ in range(PANEL)]

        def work(k, at, mask):
            found = _plus_product(builder, builder.load(sums[k]), c.read(at, mask), x.read(at, mask))
            builder.store(found, sums[k])

        _in_vectors(builder, c.shape[0], work)
        first, second, third, fourth = map(builder.load, sums)
        return _added_up(builder, builder.fadd(first, second), builder.fadd(third, fourth))

    return (types.float64(c, x), code) if _known(c, x) else None


@intrinsic
def dots(typing, X, rows, first, x, found):
    """found[e] = ⟨X[rows[e]], x⟩ of TOGETHER rows from `first` on, as long as a row is: x is read once for them."""

    def code(context, builder, signature, arguments):
        given = [pair for pair in zip(signature.args, arguments, strict=True) if isinstance(pair[0], types.Array)]
        X, rows, x, found = (_Rows(context, builder, *each) for each in given)
        places = [builder.add(arguments[2], WORD(k)) for k in range(TOGETHER)]
        begins = [builder.mul(rows.at(place), X.shape[1]) for place in places]
        sums = [cgutils.alloca_once_value(builder, NOTHING) for _ in places]

        def work(at, mask):
            other = x.read(at, mask)
            for total, begin in zip(sums, begins, strict=True):
                c = X.read(builder.add(begin, at), mask)
                builder.store(_plus_product(builder, builder.load(total), c, other), total)

        whole = builder.and_(X.shape[1], WORD(-WIDTH))
        with cgutils.for_range_slice(builder, WORD(0), whole, WORD(WIDTH), WORD) as (at, _):
            work(at, None)
        with builder.if_then(builder.icmp_signed("<", whole, X.shape[1])):
            work(whole, _below(builder, builder.sub(X.shape[1], whole)))
        for total, place in zip(sums, places, strict=True):
            builder.store(_added_up(builder, builder.load(total), NOTHING), builder.gep(found.pointer, [place]))
        return context.get_dummy_value()

    kinds = types.void(X, rows, types.int64, x, found)
    return (kinds, code) if _known(X, rows, x, found) else None


@intrinsic
def sparse_dot(typing, values, columns, x, first, last):
    """Σ values[e]·x[columns[e]] over first ≤ e < last, AT_ONCE at a time.

    So there must be as many entries from the last turn's first on; what they say is read, and left out.
    """

    def code(context, builder, signature, arguments):
        given = zip(signature.args[:3], arguments[:3], strict=True)
        values, columns, x = (_Rows(context, builder, *each) for each in given)
        first, last = arguments[3:]
        sums = [cgutils.alloca_once_value(builder, NOTHING) for _ in range(ABREAST)]
        with cgutils.for_range_slice(builder, first, last, WORD(AT_ONCE), WORD) as (at, _):
            left = builder.sub(last, at)
            for k, total in enumerate(sums):
                place, found = builder.add(at, WORD(WIDTH * k)), ir.Constant(DOUBLES, ir.Undefined)
                for lane in range(WIDTH):
                    column = columns.at(builder.add(place, WORD(lane)))
                    column = column if column.type == WORD else builder.zext(column, WORD)
                    found = builder.insert_element(found, x.at(column), HALF_WORD(lane))
                old = builder.load(total)
                new = builder.fadd(old, builder.fmul(values.read(place, None), found, flags=FUSED), flags=FUSED)
                builder.store(builder.select(_below(builder, left, WIDTH * k), new, old), total)
        return _added_up(builder, *map(builder.load, sums))

    arrays = values, columns, x
    return (types.float64(*arrays, types.int64, types.int64), code) if _known(*arrays) else None


@intrinsic
def add_times(typing, g, weight, c):
    """g += weight·c, as long as c is."""

    def code(context, builder, signature, arguments):
        g, c = (_Rows(context, builder, signature.args[k], arguments[k]) for k in (0, 2))
        weight = _spread(builder, arguments[1])

        def work(k, at, mask):
            g.write(at, mask, _plus_product(builder, g.read(at, mask), weight, c.read(at, mask)))

        _in_vectors(builder, c.shape[0], work)
        return context.get_dummy_value()

    return (types.void(g, types.float64, c), code) if _known(g, c) else None


@intrinsic
def add_rows(typing, g, weights, rows, X):
    """g += Σ_e weights[e]·X[rows[e]], as long as a row is; nothing is written before a stretch of it is summed."""

    def code(context, builder, signature, arguments):
        g, weights, rows, X = (_Rows(context, builder, *each) for each in zip(signature.args, arguments, strict=True))

        def work(places):
            sums = [cgutils.alloca_once_value(builder, g.read(at, mask)) for at, mask in places]
            with cgutils.for_range(builder, weights.shape[0], intp=WORD) as loop:
                weight, begin = _spread(builder, weights.at(loop.index)), builder.mul(rows.at(loop.index), X.shape[1])
                for total, (at, mask) in zip(sums, places, strict=True):
                    c = X.read(builder.add(begin, at), mask)
                    builder.store(_plus_product(builder, builder.load(total), weight, c), total)
            for total, (at, mask) in zip(sums, places, strict=True):
                g.write(at, mask, builder.load(total))

        _in_panels(builder, X.shape[1], work)
        return context.get_dummy_value()

    return (types.void(g, weights, rows, X), code) if _known(g, weights, rows, X) else None


@intrinsic
def carry(typing, target, source):
    """target = source, COLUMNS numbers."""

    def code(context, builder, signature, arguments):
        target, source = (_Rows(context, builder, *each) for each in zip(signature.args, arguments, strict=True))
        for at in range(0, COLUMNS, WIDTH):
            target.write(WORD(at), None, source.read(WORD(at), None))
        return context.get_dummy_value()

    return (types.void(target, source), code) if _known(target, source) else None


@intrinsic
def ask(typing, row, first):
    """Ask memory for COLUMNS numbers of a row, wherever in a line they begin; beyond its end nothing happens."""

    def code(context, builder, signature, arguments):
        row = _Rows(context, builder, signature.args[0], arguments[0])
        byte, line = ir.IntType(8).as_pointer(), LINE // 8
        shape = ir.FunctionType(ir.VoidType(), [byte, HALF_WORD, HALF_WORD, HALF_WORD])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [byte], shape)
        for at in range(0, COLUMNS + line, line):
            place = builder.bitcast(builder.gep(row.pointer, [builder.add(arguments[1], WORD(at))]), byte)
            builder.call(hint, [place, HALF_WORD(0), HALF_WORD(NEXT), HALF_WORD(1)])
        return context.get_dummy_value()

    return (types.void(row, types.int64), code) if _known(row) else None


@intrinsic
def average(typing, z, total, normals, edges, numbers, e, drawn):
    """One edge of a block (`near`), COLUMNS numbers: both nodes' sums go on, and what they average is written once.

    said = w₀z₀ + w₁z₁ + n₀v₀ + n₁v₁, total₀ += s₀z₀ and total₁ += s₁z₁, where w, n and s are numbers[e], the rows those
    of edges[e], and v begins at `drawn` of the normals of either spot.
    """

    def code(context, builder, signature, arguments):
        given = zip(signature.args[:5], arguments[:5], strict=True)
        z, total, normals, edges, numbers = (_Rows(context, builder, *each, WIDTH // 2) for each in given)
        *_, e, drawn = arguments

        def begin(which: int) -> Any:
            """Of a row that the edge names."""
            place = edges.at(builder.add(builder.mul(e, WORD(EDGE)), WORD(which)))
            return builder.mul(place, WORD(COLUMNS))

        def number(which: int) -> Any:
            found = numbers.at(builder.add(builder.mul(e, WORD(NUMBERS)), WORD(which)))
            return _spread(builder, found, WIDTH // 2)

        first = builder.add(drawn, builder.mul(e, WORD(4 * DRAWN)))
        second = builder.add(first, WORD(2 * DRAWN))
        i0, i1, from0, from1, to = map(begin, range(5))
        w0, w1, n0, n1, s0, s1 = map(number, range(6))
        for place in range(0, COLUMNS, WIDTH // 2):
            x0, x1, t0, t1, said = (builder.add(row, WORD(place)) for row in (from0, from1, i0, i1, to))
            z0, z1 = z.read(x0, None), z.read(x1, None)
            total.write(t0, None, _plus_product(builder, total.read(t0, None), s0, z0))
            total.write(t1, None, _plus_product(builder, total.read(t1, None), s1, z1))
            v0, v1 = (normals.read(builder.add(row, WORD(place)), None) for row in (first, second))
            found = builder.fmul(w0, z0, flags=LIBERTIES)
            for weight, row in ((w1, z1), (n0, v0), (n1, v1)):
                found = _plus_product(builder, found, weight, row)
            z.write(said, None, found)
        return context.get_dummy_value()

    arrays = z, total, normals, edges, numbers
    return (types.void(*arrays, types.int64, types.int64), code) if _known(*arrays) else None
