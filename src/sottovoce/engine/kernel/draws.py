"""Counter-based draws, made where they are used: the normals of `sottovoce.streams`, the records of `privacy.sampling`.

Threefry-2x32-13 is reproduced bit for bit. Normals are Box–Muller in float32 on the same words and with the same
layout as `Streams.normals`, and agree with its float64 to 3e-7 *relative*, over the whole range: where the radius goes
to zero because the logarithm works on 1 − u there, near the zeros of sine and cosine because the angle is reduced in
integers, and in the tail because small words convert to float32 without error; the last 2⁻²² of it are made again
with 32 bits more, as there.

Everything about normals is written so that LLVM vectorises it: no branches (only selections), 32-bit words throughout
(hence the many casts: Numba would widen), polynomials in place of calls, and two short loops with words between them
that stay in the first-level cache. With records no liberties are taken: a pick that differed in one place in 10¹⁵
would be another mechanism.
"""

import math

import numpy as np

from sottovoce._types import IntArray
from sottovoce.engine.kernel import CYCLIC, FIXED, FULL, POISSON
from sottovoce.engine.kernel.arguments import BLOCK, INSIDE, LANES, OUTSIDE, all_counters, exact, fast, inlined, njit
from sottovoce.streams import PARITY, ROTATIONS, ROUNDS, TAIL

u32, i32, f32 = np.uint32, np.int32, np.float32

QUARTER = 1 << 30
"""Of a turn."""
ALL = -1  # instead of a count of records: every one of the node

assert ROUNDS == 13  # three times four, and one: `threefry` is written out
T0, T1, T2, T3, T4, T5, T6, T7 = ROTATIONS

SQRT_HALF = f32(math.sqrt(0.5)).view(i32).item()  # its bits
NEAR_ONE = math.ceil(math.sqrt(0.5) * 2**32)  # from this word on u has no exponent, and 1 − u is taken
DOUBT = f32(2e-6)
"""Where a gap is so close to a whole number, relatively, it is made again by the library's logarithm."""
SMALL = 1 << 20
"""Below this word the bits after it matter, too."""
FAR = f32(2.0**24)
"""A gap that a float32 cannot tell from its neighbours."""
UNKNOWN = 0xFFFFFFFF
"""In place of a gap that is in doubt."""
WORD = f32(2.0**-32)
RADIAN = f32(2.0 * math.pi * 2.0**-32)
OCTAVE = f32(-2.0 * math.log(2.0))
# minimax in relative error: −2 ln(1 + f)/f on [√½ − 1, √2 − 1] to 1.7e-7; sin θ/θ and cos θ in θ² on |θ| ≤ π/4
L0, L1, L2, L3, L4, L5, L6, L7 = (
    f32(c)
    for c in (
        -1.99999988,
        1.00000727,
        -0.666701198,
        0.499398172,
        -0.39800331,
        0.345016658,
        -0.324451685,
        0.202137783,
    )
)
S0, S1, S2, S3 = (f32(c) for c in (1.0, -0.166666502, 0.00833201645, -0.000195018220))
C0, C1, C2, C3 = (f32(c) for c in (1.0, -0.499998424, 0.0416544196, -0.00135794041))


@inlined
def _turn(x, by):
    """A 32-bit rotation."""
    return u32((x << u32(by)) | (x >> u32(32 - by)))


@inlined
def _four(x0, x1, a, b, c, d):
    """Four of the rounds."""
    x0 = u32(x0 + x1)
    x1 = u32(_turn(x1, a) ^ x0)
    x0 = u32(x0 + x1)
    x1 = u32(_turn(x1, b) ^ x0)
    x0 = u32(x0 + x1)
    x1 = u32(_turn(x1, c) ^ x0)
    x0 = u32(x0 + x1)
    x1 = u32(_turn(x1, d) ^ x0)
    return x0, x1


@njit(**INSIDE, fastmath=False, forceinline=True)
def threefry(k0, k1, c0, c1):
    """Threefry-2x32-13 of one key and one counter, four 32-bit words."""
    k2 = u32(k0 ^ k1 ^ PARITY)
    x0, x1 = u32(c0 + k0), u32(c1 + k1)
    x0, x1 = _four(x0, x1, T0, T1, T2, T3)
    x0, x1 = u32(x0 + k1), u32(x1 + u32(k2 + u32(1)))
    x0, x1 = _four(x0, x1, T4, T5, T6, T7)
    x0, x1 = u32(x0 + k2), u32(x1 + u32(k0 + u32(2)))
    x0, x1 = _four(x0, x1, T0, T1, T2, T3)
    x0, x1 = u32(x0 + k0), u32(x1 + u32(k1 + u32(3)))
    x0 = u32(x0 + x1)
    return x0, u32(_turn(x1, T4) ^ x0)


@exact
def pair_key(key, node, t):
    """The key of a (node, round) pair within a purpose."""
    return threefry(key[0], key[1], u32(node), u32(t))


@exact
def uniform(k0, k1, position):
    """As `Streams.uniforms`, to the last bit."""
    w0, w1 = threefry(k0, k1, u32(position), u32(0))
    return (((np.uint64(w0) << np.uint64(20)) | np.uint64(w1 >> u32(12))) + 0.5) * 2.0**-52


@inlined
def _logarithm(w):
    """−2 ln u, u = (w + ½)/2³², to 6e-7 relative."""
    bits = f32(f32(w) + f32(0.5)).view(i32)
    exponent = i32(i32(bits - i32(SQRT_HALF)) >> i32(23))  # so that the mantissa lies in [√½, √2)
    mantissa = i32(bits - i32(exponent << i32(23))).view(f32)
    near = w >= u32(NEAR_ONE)
    f = -(f32(u32(~w)) + f32(0.5)) * WORD if near else mantissa - f32(1.0)
    octaves = f32(0.0) if near else f32(i32(exponent - i32(32)))
    p = ((((((L7 * f + L6) * f + L5) * f + L4) * f + L3) * f + L2) * f + L1) * f + L0
    return p * f + OCTAVE * octaves


@inlined
def _radius(w):
    """√(−2 ln u), u = (w + ½)/2³²."""
    return f32(math.sqrt(_logarithm(w)))


@inlined
def _direction(w):
    """Cosine and sine of 2πw/2³²: an eighth of a turn either side of the nearest axis."""
    quarter = u32(u32(w + u32(1 << 29)) >> u32(30))
    angle = f32(i32(u32(w - u32(quarter << u32(30))))) * RADIAN
    square = angle * angle
    s = (((S3 * square + S2) * square + S1) * square + S0) * angle
    c = ((C3 * square + C2) * square + C1) * square + C0
    odd = (quarter & u32(1)) != 0
    x, y = (s if odd else c), (c if odd else s)
    x = -x if (u32(quarter + u32(1)) & u32(2)) != 0 else x
    y = -y if (quarter & u32(2)) != 0 else y
    return x, y


@fast
def _words(k0, k1, counters, w0, w1):
    for j in range(len(counters)):
        w0[j], w1[j] = threefry(k0, k1, counters[j], u32(0))


@exact
def _refine_tail(k0, k1, counters, w0, w1, cosines, sines):
    """Radii of the far tail, from 64 bits: `Streams.normals` says why."""
    for j in range(len(w0)):
        if w0[j] < u32(TAIL):
            finer, _ = threefry(k0, k1, counters[j], u32(1))
            u = (np.float64(w0[j]) + (np.float64(finer) + 0.5) * 2.0**-32) * 2.0**-32
            radius = f32(math.sqrt(-2.0 * math.log(u)))
            x, y = _direction(w1[j])
            cosines[j] = radius * x
            sines[j] = radius * y


@fast
def normals(k0, k1, counters, turns, words, cosines, sines):
    """Normals of a pair at some counters: the first ones of `cosines` and of `sines`.

    There must be a multiple of LANES of them, BLOCK at most. `words` holds 2·BLOCK words of scratch. `turns`, unless
    it is None, is taken from the angles, in 2⁻³² of a turn: cosines a quarter back are sines.
    """
    count = len(counters)
    # slices, because an index that Numba cannot see to be non-negative costs the vectorisation
    w0, w1 = words[:count], words[BLOCK : BLOCK + count]
    cosines, sines = cosines[:count], sines[:count]
    _words(k0, k1, counters, w0, w1)
    if turns is not None:
        for j in range(count):
            w1[j] -= turns[j]
    least = u32(0xFFFFFFFF)
    for j in range(count):
        radius = _radius(w0[j])
        x, y = _direction(w1[j])
        cosines[j] = radius * x
        sines[j] = radius * y
        least = min(least, w0[j])
    if least < u32(TAIL):  # once in thousands of calls
        _refine_tail(k0, k1, counters, w0, w1, cosines, sines)


@inlined
def padded(count):
    """The next multiple of LANES."""
    return (count + LANES - 1) // LANES * LANES


@exact
def put(target, source):
    """Copy; the two do not overlap, which an assignment to a slice would make sure of."""
    for j in range(len(target)):
        target[j] = source[j]


@njit(**OUTSIDE)
def _rows(key, nodes, ts, m, counters, words, pair, out):
    half = (m + 1) // 2
    for row in range(len(nodes)):
        k0, k1 = pair_key(key, nodes[row], ts[row])
        for first in range(0, half, BLOCK):
            count = min(BLOCK, half - first)
            normals(k0, k1, counters[first : first + padded(count)], None, words, pair, pair[BLOCK:])
            put(out[row, first : first + count], pair)
            sines = min(count, m - half - first)
            put(out[row, half + first : half + first + sines], pair[BLOCK:])


def normal_rows(key, nodes: IntArray, ts: IntArray, m: int):
    """Standard normals in float32, a row of m for each (node, round), as the kernel makes them: for tests and tables.

    `key` is the two words of the purpose.
    """
    out = np.empty((len(nodes), m), np.float32)
    words, pair = np.empty(2 * BLOCK, np.uint32), np.empty(2 * BLOCK, np.float32)
    counters = all_counters(m)
    key, nodes, ts = np.asarray(key, np.uint32), np.asarray(nodes, np.int64), np.asarray(ts, np.int64)
    _rows(key, nodes, ts, m, counters, words, pair, out)
    return out


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


@njit(**INSIDE, fastmath={"contract"})
def _gaps(k0, k1, first, gap_scale, gaps):
    """The gaps at counters from `first` on, less 1, side by side; UNKNOWN where more bits than are looked at decide.

    Of a uniform the first 32 bits are looked at, and its logarithm is that of the normals: it stands for the library's
    wherever both have the same whole number below. Gives whether none is UNKNOWN, and the sum of all.
    """
    scale = f32(-0.5 * gap_scale)
    for j in range(LANES):
        gaps[j], _ = threefry(k0, k1, u32(first + j), u32(0))
    most, total = u32(0), u32(0)
    for j in range(LANES):
        gap = min(f32(_logarithm(gaps[j]) * scale), FAR)
        whole = i32(gap)
        above = f32(gap - f32(whole))
        unsure = f32(DOUBT * f32(gap + scale))
        sure = (gaps[j] >= u32(SMALL)) & (above > unsure) & (above < f32(f32(1.0) - unsure))
        found = u32(whole) if sure else u32(UNKNOWN)
        gaps[j] = found
        most, total = max(most, found), u32(total + found)
    return most != u32(UNKNOWN), total


@exact
def _poisson(k0, k1, q, b, gap_scale, records, words):
    """Geometric gaps from one chosen record to the next; of many, LANES are made side by side, in `words`."""
    at, count, gaps = -1.0, 0, words[:LANES]
    while True:
        many, sure, total = 2 * b >= LANES and count + LANES <= len(records), False, u32(0)
        if many:
            sure, total = _gaps(k0, k1, count, gap_scale, gaps)
        if sure and at + total + LANES < q:
            place, mine = np.int64(at), records[count : count + LANES]
            for j in range(LANES):
                place += np.int64(gaps[j]) + 1
                mine[j] = place
            at, count = np.float64(place), count + LANES
            continue
        for j in range(LANES if many else 1):
            if many and gaps[j] != u32(UNKNOWN):
                gap = np.float64(gaps[j])
            else:
                gap = math.floor(math.log(uniform(k0, k1, count)) * gap_scale)
            at += gap + 1.0
            if at >= q:
                return count
            records[count] = int(at)
            count += 1


@exact
def _cyclic(t, q, b, records):
    """The next batch of a fixed order; the last of a pass may be smaller."""
    batches = (q + b - 1) // b  # of a pass
    first = (t - 1) % batches * b
    count = min(b, q - first)
    for j in range(count):
        records[j] = first + j
    return count


@exact
def draw_records(kind, key, node, t, q, b, gap_scale, records, taken, words):
    """Write the picks of a (node, round) into `records` and return how many, or ALL.

    Parameters
    ----------
    kind : FIXED, POISSON, FULL or CYCLIC
    key : the two words of the purpose
    q, b : records of the node and public batch size
    gap_scale : 1/log(1 − b/q), for POISSON
    records, taken : scratch of q places; `taken` all False
    words : scratch of LANES words
    """
    if kind == FULL or (kind == POISSON and b == q):
        return ALL
    if kind == CYCLIC:
        return _cyclic(t, q, b, records)
    k0, k1 = pair_key(key, node, t)
    if kind == FIXED:
        return _fixed(k0, k1, q, b, records, taken)
    return _poisson(k0, k1, q, b, gap_scale, records, words)
