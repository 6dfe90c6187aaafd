"""Noise of a known law, added to exact sums and rounded once: correctly, on every draw.

A release is round((S + Σ_k a_k N_k)/g)·g as if it were computed with real numbers: S an exact sum, N_k independent unit
noises (a node's own, those it shares with others, those of a tree), g the public grid of releases. That is a function
of S + Σ a_k N_k, so whatever is proved of real-valued noise holds of what is sent.

Each N is known to 2⁻⁴⁰ from the first 128 bits of its stream, by double arithmetic (`Noise.approx`). Where an error of
that size could not change the rounding, the rounding is done; elsewhere, once in 2¹⁹ numbers, it is done by `balls`
with as many bits as it takes. What the bound must cover, and why it does, is in docs/secure.md; it leaves every
elementary function an error of 64 units in the last place.

    normals    block j of the (node, round) has the radius and the angle of coordinates j (cosine) and ⌈m/2⌉ + j (sine):
               80 bits for the radius, 48 for the angle
    Laplace    block j is coordinate j: 127 bits and a sign
"""

import math
from collections.abc import Sequence
from enum import Enum
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.errors import PrivacyError
from sottovoce.secure import balls
from sottovoce.secure.generator import Generator, Words

ERROR = 2.0**-40
"""A noise term is known this well at first, summed and rounded in double arithmetic."""
FINE = 20
"""A release's grid is this many octaves below its noise."""
SHIFT = 62
"""Octaves between the grids of sums and of releases, at most: sums have 63 bits."""
SMALL_WORD = np.uint64(1 << 24)
"""First words below this, u < 2⁻⁴⁰, and the very last one are left to `balls`: here 128 bits do not show enough."""
LAST = np.uint64(2**64 - 1)
HALF = np.uint64(1 << 63)
UNCERTAIN = -(2**63)
"""In place of a number that is not known well enough to be rounded."""
AT_ONCE = 1 << 13
"""Blocks, or numbers, that are worked on at a time: they stay in cache."""


class NoiseKind(Enum):
    """A noise term, and how many bits of a block's second word continue its first uniform."""

    GAUSSIAN = 16
    """Density e^{−x²/2}/√(2π)."""
    LAPLACE = 63
    """Density e^{−|x|}/2."""

    def blocks(self, m: int) -> int:
        """Blocks for m numbers."""
        return (m + 1) // 2 if self is NoiseKind.GAUSSIAN else m


SOURCES = {NoiseKind.GAUSSIAN: 512, NoiseKind.LAPLACE: 64}
"""Noises that may be added to one number: the error bound covers their summation."""


class Same(NamedTuple):
    """Sums of noise terms, of which several releases have the same one: each is made once.

    Attributes
    ----------
    nodes, rounds : the addresses of all noise terms, sum after sum
    starts : (sums + 1,) where each sum begins; none is empty
    which : which of the sums each release of the layer has
    scales : what it is multiplied by, for each
    """

    nodes: IntArray
    rounds: IntArray
    starts: IntArray
    which: IntArray
    scales: Array


class Layer(NamedTuple):
    """One source of noise for some of the releases.

    Attributes
    ----------
    generator : of secret words
    rows : which of the releases, none of them twice
    nodes, rounds : the address of each one's noise
    scales : what the noise term is multiplied by, for each; taken as exact, and of either sign
    same : sums of noise terms that are added besides; each release's own address is among those of its sum
    """

    generator: Generator
    rows: IntArray
    nodes: IntArray
    rounds: IntArray
    scales: Array
    same: Same | None = None


def release_grid(scale: float, sum_grid: float) -> float:
    """The grid of a release, from public numbers: 2⁻²⁰ of its noise or somewhat less, and a multiple of the sums' grid.

    Examples
    --------
    >>> release_grid(3.0, 2.0**-40) == 2.0**-19, release_grid(3.0, 1.0)
    (True, 1.0)
    """
    if not 0 < scale < math.inf:
        raise PrivacyError(f"the scale of a noise must be finite and over 0, not {scale}")
    return max(2.0 ** (math.frexp(scale)[1] - 1 - FINE), sum_grid)


def scale_of(*factors: float) -> float:
    """The product of positive numbers, rounded up: a scale that is never below the one that is accounted.

    Examples
    --------
    >>> scale_of(0.1, 3.0) > 0.3, scale_of(0.5, 3.0)
    (True, 1.5)
    """
    exact = math.prod(map(Fraction, factors))
    nearest = float(exact)
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


class Noise:
    """The noise of some releases: known to 2⁻⁴⁰ now, and to any precision on demand.

    Parameters
    ----------
    m : numbers in a release
    grids : g of each release, powers of two
    layers : sources of noise; a release may have several, or none
    law : of the noise terms
    compiled : whether native loops do the work, in a fraction of the time; the releases are the same

    Attributes
    ----------
    approx : (releases, m) the noise in units of g, nearly; NaN where it is not known well enough
    error : (releases,) by how much that may be wrong, sum and all

    Examples
    --------
    >>> from sottovoce.secure.generator import Generator
    >>> here = np.array([0])
    >>> layer = Layer(Generator(bytes(32)), here, np.array([7]), np.array([1]), np.array([3.0]))
    >>> Noise(5, np.array([0.5]), [layer]).added_to(np.array([[10, 20, 30, 40, 50]]), 0.25)
    array([[-3,  6, 29, 15, 29]])
    """

    def __init__(
        self, m: int, grids: Array, layers: Sequence[Layer], law: NoiseKind = NoiseKind.GAUSSIAN, compiled: bool = False
    ) -> None:
        self.m, self.law, self.layers, self.compiled = m, law, tuple(layers), compiled
        self._shifts: dict[float, IntArray] = {}
        self.grids = np.array(grids, dtype=np.float64)
        if not np.all(np.frexp(self.grids)[0] == 0.5):
            raise PrivacyError("a release's grid must be a power of two; take it from `release_grid`")
        sources, size = np.zeros(len(self.grids), dtype=np.int64), np.zeros(len(self.grids))
        for layer in self.layers:
            named = np.bincount(layer.rows, minlength=len(self.grids))
            if len(named) != len(self.grids) or np.any(named > 1) or not np.all(np.isfinite(layer.scales)):
                raise PrivacyError("a layer of noise has finite scales and names each release once; make two layers")
            sources += named
            size[layer.rows] += np.abs(layer.scales) / self.grids[layer.rows]
            if layer.same is not None:
                counts = np.diff(layer.same.starts)[layer.same.which]
                sources[layer.rows] += counts - 1
                size[layer.rows] += counts * np.abs(layer.same.scales) / self.grids[layer.rows]
        if np.any(sources > SOURCES[law]):
            raise PrivacyError(f"at most {SOURCES[law]} noises can be added to one release; sum fewer")
        self.error = ERROR * np.maximum(size, 1.0)
        self.approx = np.zeros((len(self.grids), m))
        for layer in self.layers:
            if layer.same is None:
                scales = np.ascontiguousarray(layer.scales / self.grids[layer.rows], dtype=np.float64)
                self._add(layer.generator, layer.nodes, layer.rounds, scales, np.asarray(layer.rows), self.approx)
            else:
                self._add_same(layer, layer.same)

    def _add_same(self, layer: Layer, same: Same) -> None:
        """Every noise term once, then what each release has of it and of the sum."""
        units, begins = np.zeros((len(same.nodes), self.m)), np.asarray(same.starts[:-1])
        self._add(layer.generator, same.nodes, same.rounds, np.ones(len(units)), np.arange(len(units)), units)
        sums, grids = np.add.reduceat(units, begins, axis=0), self.grids[layer.rows]
        self.approx[layer.rows] += units[_places(layer, same)] * (layer.scales / grids)[:, None]
        self.approx[layer.rows] += sums[same.which] * (same.scales / grids)[:, None]

    def _add(
        self, generator: Generator, nodes: IntArray, rounds: IntArray, scales: Array, rows: IntArray, out: Array
    ) -> None:
        """Add noise terms times their scales to rows, a stretch of blocks at a time."""
        if self.compiled:
            from sottovoce._native import add_gaussian, add_laplace
        else:
            add_gaussian, add_laplace = _add_gaussian, _add_laplace
        add = add_gaussian if self.law is NoiseKind.GAUSSIAN else add_laplace
        blocks, rows = self.law.blocks(self.m), np.asarray(rows, dtype=np.int64)
        height, width = max(1, AT_ONCE // max(1, blocks)), min(blocks, AT_ONCE)
        for start in range(0, len(rows), height):
            some = slice(start, start + height)
            for first in range(0, blocks, width):
                count = min(width, blocks - first)
                words = generator.words(nodes[some], rounds[some], first, count)
                add(words.reshape(len(words), -1), scales[some], rows[some], first, out)

    def added_to(self, sums: IntArray, sum_grid: float, rows: IntArray | None = None) -> IntArray:
        """round((S + noise)/g) of every number, exactly.

        Parameters
        ----------
        sums : S in units of `sum_grid`, a row for each release
        sum_grid : a power of two that divides every release's grid
        rows : which releases these are; all of them by default
        """
        mine = slice(None) if rows is None else rows
        shifts, noise = self.shifts(sum_grid)[mine], self.approx[mine]
        sums = np.asarray(sums)
        self._check(sums, noise.shape)
        values, doubts = self._rounded(sums, shifts, noise, self.error[mine])
        named = np.arange(len(self.grids))[mine]
        for place, j in np.argwhere(values == UNCERTAIN).tolist() if doubts else ():
            values[place, j] = self.exactly(int(named[place]), j, int(sums[place, j]), int(shifts[place]))
        return values

    def released(self, sums: IntArray, sum_grid: float, over: Array, rows: IntArray | None = None) -> Array:
        """round((S + noise)/g)·g/b of every number: what is released of a mean, in float64.

        Parameters
        ----------
        sums, sum_grid, rows : as for `added_to`
        over : b of every release, which its sum is divided by
        """
        mine = np.arange(len(self.grids)) if rows is None else np.asarray(rows)
        if not self.compiled:
            return np.asarray(self.added_to(sums, sum_grid, mine) * self.grids[mine][:, None] / over[:, None])
        from sottovoce._native import released_rows

        shifts, values = self.shifts(sum_grid)[mine], np.empty((len(mine), self.m))
        self._check(sums, values.shape)
        over = np.ascontiguousarray(over, dtype=np.float64)
        if released_rows(np.ascontiguousarray(sums), shifts, self.approx, self.error, self.grids, mine, over, values):
            for i, j in np.argwhere(np.isnan(values)).tolist():
                row = int(mine[i])
                whole = self.exactly(row, j, int(sums[i, j]), int(shifts[i]))
                values[i, j] = np.int64(whole) * self.grids[row] / over[i]
        return values

    def _check(self, sums: IntArray, shape: tuple[int, ...]) -> None:
        if sums.shape != shape or sums.dtype != np.int64:
            raise PrivacyError(f"these sums must be whole numbers (int64) of shape {shape}, not {sums.shape}")

    def _rounded(self, sums: IntArray, shifts: IntArray, noise: Array, error: Array) -> tuple[IntArray, bool]:
        """Also whether something is uncertain."""
        values = np.empty(noise.shape, dtype=np.int64)
        doubts, width = False, max(1, min(self.m, AT_ONCE))
        height = AT_ONCE // width
        for start in range(0, len(values), height):
            some = slice(start, start + height)
            for first in range(0, self.m, width):
                part = some, slice(first, first + width)
                values[part] = rounded(sums[part], shifts[some], noise[part], error[some])
                doubts = doubts or bool(np.min(values[part], initial=0) == UNCERTAIN)
        return values, doubts

    def shifts(self, sum_grid: float) -> IntArray:
        """log₂(g / sum_grid) of every release."""
        if sum_grid in self._shifts:
            return self._shifts[sum_grid]
        part, octave = math.frexp(sum_grid)
        found = np.frexp(self.grids)[1].astype(np.int64) - octave
        if part != 0.5 or np.any((found < 0) | (found > SHIFT)):
            raise PrivacyError(
                f"the grid of sums, {sum_grid:g}, must be a power of two that divides the releases' grids and is no "
                f"finer than 2⁻{SHIFT} of them; take both from public numbers with `choose_grids` and `release_grid`"
            )
        self._shifts[sum_grid] = found
        return found

    def exactly(self, row: int, coordinate: int, total: int, shift: int) -> int:
        """round((S + noise)/g) of one number by ball arithmetic; S is `total` units of g·2⁻ˢʰⁱᶠᵗ."""
        blocks = self.law.blocks(self.m)
        sine = self.law is NoiseKind.GAUSSIAN and coordinate >= blocks
        block = coordinate - blocks if sine else coordinate
        scales, streams = [], []
        for layer in self.layers:
            for place in np.flatnonzero(layer.rows == row).tolist():
                for node, when, scale in _addends(layer, place):
                    scales.append(scale / float(self.grids[row]))
                    draw = balls.Draw(layer.generator, node, when, block, self.law.value)
                    streams.append(draw.uniforms())
        if not streams:  # nothing random, hence there may be a tie: to the even one
            return round(Fraction(total, 1 << shift))

        def value() -> balls.Ball:
            from flint import arb

            ball = arb((2 * total + (1 << shift), -shift - 1))  # S/g + ½
            for scale, stream in zip(scales, streams, strict=True):
                u, v = next(stream)
                unit = balls.gaussian(u, v, sine) if self.law is NoiseKind.GAUSSIAN else balls.laplace(u, v)
                ball += arb(scale) * unit
            return ball

        return balls.whole(value)


def _places(layer: Layer, same: Same) -> IntArray:
    """Where each release's own address is among those of its sum."""
    keys = (np.repeat(np.arange(len(same.starts) - 1), np.diff(same.starts)) << 32) + same.nodes
    wanted, order = (np.asarray(same.which) << 32) + layer.nodes, np.argsort(keys, kind="stable")
    found = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    if len(np.unique(keys)) < len(keys) or np.any(keys[found] != wanted) or np.any(same.rounds[found] != layer.rounds):
        raise PrivacyError("the address of a release's own noise must be among those of its sum, once")
    return found


def _addends(layer: Layer, place: int) -> list[tuple[int, int, float]]:
    """Address and scale of every noise term that a layer adds to one of its releases, each address once."""
    own = int(layer.nodes[place]), int(layer.rounds[place])
    found: dict[tuple[int, int], float] = {own: float(layer.scales[place])}
    same = layer.same
    if same is not None:
        of = slice(int(same.starts[same.which[place]]), int(same.starts[same.which[place] + 1]))
        for address in zip(same.nodes[of].tolist(), same.rounds[of].tolist(), strict=True):
            found[address] = found.get(address, 0.0) + float(same.scales[place])
    return [(node, when, scale) for (node, when), scale in found.items() if scale != 0]


def rounded(sums: IntArray, shifts: IntArray, noise: Array, error: Array) -> IntArray:
    """round(S·2⁻ˢʰⁱᶠᵗ + noise), a row a release; UNCERTAIN where another noise within the error would change it."""
    shift = np.asarray(shifts)[:, None]
    part = sums & ((np.int64(1) << shift) - np.int64(1))
    shifted = (part * np.ldexp(1.0, -shift) + 0.5) + noise
    down = np.floor(shifted)
    rest = shifted - down
    certain = np.abs(rest - 0.5) < 0.5 - error[:, None]
    return np.where(certain, (sums >> shift) + np.where(certain, down, 0.0).astype(np.int64), UNCERTAIN)


def minus_log(first: Words, finer: Any, split: int) -> Array:
    """−ln u of a uniform with these first bits; NaN where they do not show enough."""
    unit, top = 2.0**-split, np.uint64((1 << split) - 1)
    near = first >= HALF  # there from the complement, whose bits are the others: −ln u ≈ 1 − u
    flip = -near.astype(np.uint64)
    u = ((first ^ flip) + ((finer ^ (flip & top)) + 0.5) * unit) * 2.0**-64
    size = -np.where(near, np.log1p(-u), np.log(u))
    size[(first < SMALL_WORD) | (first == LAST)] = np.nan
    return size


def _add_gaussian(words: Words, scales: Array, rows: IntArray, first: int, out: Array) -> None:
    half, count = (out.shape[1] + 1) // 2, words.shape[1] // 2
    second = words[:, 1::2]
    radius = np.sqrt(2.0 * minus_log(words[:, ::2], second & np.uint64(0xFFFF), 16)) * scales[:, None]
    angle = ((second >> np.uint64(16)).astype(np.float64) + 0.5) * (2.0 * math.pi * 2.0**-48)
    out[rows, first : first + count] += radius * np.cos(angle)
    sines = min(count, out.shape[1] - half - first)
    out[rows, half + first : half + first + sines] += (radius * np.sin(angle))[:, :sines]


def _add_laplace(words: Words, scales: Array, rows: IntArray, first: int, out: Array) -> None:
    second = words[:, 1::2]
    size = minus_log(words[:, ::2], second & np.uint64(2**63 - 1), 63) * scales[:, None]
    out[rows, first : first + words.shape[1] // 2] += np.where(second >= HALF, -size, size)
