"""The fast parts again, compiled: noise and batches from words, and what the loops of an engine need.

Noise is approximated as in `noise`, with polynomials in place of library calls; both are within the error bound, so the
releases are the same, bit for bit; so are batches. Loops are written so that LLVM vectorises them: no branches, only
selections.

`round_row`, `truncated`, `exp` and `put_on_grid` are for the loops of an engine. They take no liberties with rounding,
and give the bits of their NumPy twins `noise.rounded`, `sums.truncated`, `functions.exp` and `Grids.model`. An engine
draws `Noise` ahead, rounds with `round_row`, and leaves its loop for `Noise.exactly` where that says that something is
UNCERTAIN: once in half a million numbers.
"""

import math

import numpy as np
from numba import njit

from sottovoce.secure.functions import EXP, EXP_LIMIT, LN2_HIGH, LN2_LOW, LOG2_E
from sottovoce.secure.grids import MODEL_BITS, TINIEST

exact = njit(nogil=True, _nrt=False, fastmath=False)
# within the error bound either way; a division that could raise an exception would not be vectorised
close = njit(nogil=True, _nrt=False, fastmath={"contract"}, error_model="numpy")
entry = njit(nogil=True, _nrt=False, fastmath={"contract"}, error_model="numpy", cache=True)
u64, i64, f64 = np.uint64, np.int64, np.float64

SQRT_HALF = f64(math.sqrt(0.5)).view(i64).item()  # its bits
NEAR_ONE = math.ceil(math.sqrt(0.5) * 2**64)  # from this word on 1 − u is taken
FEW, LAST, UNCERTAIN = 1 << 24, 2**64 - 1, -(2**63)
TURN = 2.0 * math.pi * 2.0**-48
SIZE, INFINITE = 2**63 - 1, 0x7FF << 52  # the bits of a size, and those of infinity: of no number there are more
OCTAVE = -2.0 * math.log(2.0)
L = tuple(-4.0 / (2 * k + 1) for k in range(8, -1, -1))
S = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(7, -1, -1))
C = tuple((-1.0) ** k / math.factorial(2 * k) for k in range(7, -1, -1))


@close
def _minus_two_log(first, finer, top, unit):
    """−2 ln u, NaN where the bits do not tell enough.

    ln(1 + f) = 2 artanh(f/(2 + f)) by nine terms of its series, |f/(2 + f)| ≤ 0.172: to 2⁻⁵⁰.
    """
    near = first >= u64(NEAR_ONE)
    low = ~first if near else first
    more = top - finer if near else finer
    u = (f64(low) + (f64(more) + 0.5) * unit) * 2.0**-64
    bits = f64(u).view(i64)
    exponent = i64(bits - i64(SQRT_HALF)) >> i64(52)  # so that the mantissa lies in [√½, √2)
    mantissa = i64(bits - i64(exponent << i64(52))).view(f64)
    f = -u if near else mantissa - 1.0
    octaves = 0.0 if near else f64(exponent)
    s = f / (2.0 + f)
    z = s * s
    p = (((((((L[0] * z + L[1]) * z + L[2]) * z + L[3]) * z + L[4]) * z + L[5]) * z + L[6]) * z + L[7]) * z + L[8]
    size = p * s + OCTAVE * octaves
    return math.nan if (first < u64(FEW)) | (first == u64(LAST)) else size


@close
def _direction(word):
    """Cosine and sine of the angle in the upper 48 bits: an eighth of a turn either side of the nearest axis."""
    place = i64(word >> u64(16))
    quarter = i64(place + i64(1 << 45)) >> i64(46)
    angle = (f64(i64(place - i64(quarter << i64(46)))) + 0.5) * TURN
    q = angle * angle
    s = (((((((S[0] * q + S[1]) * q + S[2]) * q + S[3]) * q + S[4]) * q + S[5]) * q + S[6]) * q + S[7]) * angle
    c = ((((((C[0] * q + C[1]) * q + C[2]) * q + C[3]) * q + C[4]) * q + C[5]) * q + C[6]) * q + C[7]
    odd = (quarter & i64(1)) != 0
    x, y = (s if odd else c), (c if odd else s)
    x = -x if (i64(quarter + i64(1)) & i64(2)) != 0 else x
    y = -y if (quarter & i64(2)) != 0 else y
    return x, y


@entry
def add_gaussian(words, scales, rows, first, out):
    """Add normals to rows of `out`: block j, words 2j and 2j + 1, to coordinates first + j and ⌈m/2⌉ + first + j."""
    m, count = out.shape[1], words.shape[1] // 2
    half = (m + 1) // 2
    sines_end = min(half + first + count, m)
    for i in range(len(rows)):
        row, w, scale = out[rows[i]], words[i], scales[i]
        # slices, because an index that Numba cannot see to be non-negative costs the vectorisation
        cosines, sines = row[first : first + count], row[half + first : sines_end]
        for j in range(len(sines)):
            radius = scale * math.sqrt(_minus_two_log(w[2 * j], w[2 * j + 1] & u64(0xFFFF), u64(0xFFFF), 2.0**-16))
            x, y = _direction(w[2 * j + 1])
            cosines[j] += radius * x
            sines[j] += radius * y
        for j in range(len(sines), count):  # an odd number of coordinates
            radius = scale * math.sqrt(_minus_two_log(w[2 * j], w[2 * j + 1] & u64(0xFFFF), u64(0xFFFF), 2.0**-16))
            cosines[j] += radius * _direction(w[2 * j + 1])[0]


@entry
def add_laplace(words, scales, rows, first, out):
    """Add Laplace noise to rows of `out`: block j to coordinate first + j."""
    low = u64(2**63 - 1)
    for i in range(len(rows)):
        w, scale = words[i], 0.5 * scales[i]
        row = out[rows[i], first : first + words.shape[1] // 2]
        for j in range(len(row)):
            size = scale * _minus_two_log(w[2 * j], w[2 * j + 1] & low, low, 2.0**-63)
            row[j] += -size if w[2 * j + 1] > low else size


@entry
def poisson_gaps(words, scales, sizes, error, small, gaps):
    """⌊−c ln u⌋ of every word, at most q, as `sampling._gaps`; −1 where that is not certain. Gives how many are not."""
    doubts = 0
    for i in range(len(words)):
        w, found, scale, most = words[i], gaps[i], scales[i], f64(sizes[i])
        for j in range(len(w)):
            size = 0.5 * scale * _minus_two_log(w[j], u64(0), u64(0), 1.0)
            down = math.floor(size)
            rest, doubt = size - down, error * (scale + size)
            certain = (rest > doubt) & (rest < 1.0 - doubt) & (w[j] >= u64(small))
            found[j] = i64(min(down if certain else -1.0, most))
            doubts += 0 if certain else 1
    return doubts


@njit(nogil=True, _nrt=False, cache=True)
def add_up(gaps, last, sizes, counts):
    """Gaps -> the places after them, in their place; `last` moves to the last one, and `counts` are those within q."""
    for i in range(len(gaps)):
        row, at, count = gaps[i], last[i], 0
        for j in range(len(row)):
            at += row[j] + 1
            row[j] = at
            count += at < sizes[i]
        last[i], counts[i] = at, count


@exact
def round_row(sums, shift, noise, error, out):
    """round(S·2⁻ˢʰⁱᶠᵗ + noise) of a row as `noise.rounded`; returns how many are uncertain."""
    unit, mask = math.ldexp(1.0, -shift), i64(i64(i64(1) << i64(shift)) - i64(1))
    most, doubts = 0.5 - error, 0
    for j in range(len(sums)):
        shifted = (f64(i64(sums[j] & mask)) * unit + 0.5) + noise[j]
        down = math.floor(shifted)
        certain = abs((shifted - down) - 0.5) < most
        out[j] = i64(i64(sums[j] >> i64(shift)) + i64(down if certain else 0.0)) if certain else i64(UNCERTAIN)
        doubts += 0 if certain else 1
    return doubts


@njit(nogil=True, _nrt=False, cache=True)
def round_rows(sums, shifts, noise, error, out):
    """`round_row` of every row."""
    doubts = 0
    for i in range(len(sums)):
        doubts += round_row(sums[i], shifts[i], noise[i], error[i], out[i])
    return doubts


@njit(nogil=True, _nrt=False, cache=True, error_model="numpy")
def released_rows(sums, shifts, noise, error, grids, rows, over, out):
    """round(…)·g/b as `Noise.released`, of release rows[i] in row i; NaN where it is uncertain, which it says."""
    doubts = 0
    for i in range(len(sums)):
        row, shift = rows[i], shifts[i]
        unit, mask = math.ldexp(1.0, -shift), i64(i64(i64(1) << i64(shift)) - i64(1))
        most, grid, b = 0.5 - error[row], grids[row], over[i]
        total, near, found = sums[i], noise[row], out[i]
        for j in range(len(total)):
            shifted = (f64(i64(total[j] & mask)) * unit + 0.5) + near[j]
            down = math.floor(shifted)
            certain = abs((shifted - down) - 0.5) < most
            whole = i64(i64(total[j] >> i64(shift)) + i64(down if certain else 0.0))
            found[j] = f64(whole) * grid / b if certain else math.nan
            doubts += 0 if certain else 1
    return doubts


@exact
def exp(v):
    """As `functions.exp`, to the last bit."""
    v = min(max(v, -EXP_LIMIT), EXP_LIMIT)
    octaves = math.floor(v * LOG2_E + 0.5)
    rest = (v - octaves * LN2_HIGH) - octaves * LN2_LOW
    power = EXP[0]
    for coefficient in EXP[1:]:
        power = power * rest + coefficient
    return power * i64(i64(i64(octaves) + i64(1023)) << i64(52)).view(f64)


@exact
def truncated(slope, cap, inverse):
    """A slope in whole units of g_s = 1/inverse, toward zero and at most its row's cap, as `sums.truncated`."""
    return math.copysign(math.floor(min(abs(slope) * inverse, cap)), slope) if math.isfinite(slope) else 0.0


@exact
def put_on_grid(x, columns, out):
    """A model, flat, of one output or several, on its own grid as `Grids.model`; gives its largest weight.

    That is ∞ where one is no number; then nothing is done.

    Sizes are compared by their bits, as whole numbers, of which a processor takes many at a time.
    """
    bits, half = i64(0), 0
    for j in range(len(x)):
        bits = max(bits, i64(f64(x[j]).view(i64) & i64(SIZE)))
    if bits >= i64(INFINITE):
        return math.inf
    while (1 << (2 * half)) < columns:
        half += 1
    largest = i64(bits).view(f64)
    octave = max(math.frexp(largest)[1] + half - MODEL_BITS, TINIEST)
    grid, inverse = math.ldexp(1.0, octave), math.ldexp(1.0, -octave)
    for j in range(len(x)):
        out[j] = np.trunc(x[j] * inverse) * grid
    return largest
