"""Counter-based randomness: every draw is a pure function of (run, purpose, node, round, position).

No generator has a state, so neither the size of an engine's blocks, nor the number of threads or processes can change
a trajectory, and a resumed run needs nothing but its round number. All engines evaluate the same counters: the
reference in float64, the compiled one in float32 (3e-7 relative).

The generator is Threefry-2x32 with 13 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
1, 2, 3", SC 2011: the fewest rounds of it that they report to pass BigCrush). Threefry is a bijection of 64-bit blocks
for every key, so distinct (node, round) pairs get distinct keys. Normals come from Box–Muller on the two 32-bit words
of a block. Radii of the last 2⁻²² of the tail take 32 bits more, from a second block: without them no normal would
pass 6.8 standard deviations, and an output beyond that would give its record away. As it is, the largest is
√(2 ln 2⁶⁵) = 9.5, and what lies beyond has a probability of 1e-21.

A seed makes a run a *simulation*: anyone who knows it can subtract the noise. Without one the key comes from the
operating system and is kept nowhere; the generator itself is still not a cryptographic one.
"""

import secrets
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array, IntArray
from sottovoce.errors import SpecError

Words = NDArray[np.uint32]
ROUNDS = 13
IN_CACHE = 1 << 15  # blocks that are worked on at a time
TAIL = 1 << 10  # radii from first words below this are refined by a second block
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = np.uint32(0x1BD11BDA)


class Purpose(IntEnum):
    """What a draw is for; the streams of two purposes never meet."""

    NOISE = 1
    RECORDS = 2


def threefry(key: tuple[Any, Any], counter: tuple[Any, Any]) -> tuple[Words, Words]:
    """Threefry-2x32-13 of every (key, counter), elementwise; the four arguments broadcast."""
    k0, k1, c0, c1 = np.broadcast_arrays(*(np.atleast_1d(np.asarray(w, dtype=np.uint32)) for w in (*key, *counter)))
    schedule = (k0, k1, k0 ^ k1 ^ PARITY)
    x0, x1 = c0 + k0, c1 + k1
    for r in range(ROUNDS):
        turn = ROTATIONS[r % 8]
        x0 += x1
        x1 = (x1 << np.uint32(turn)) | (x1 >> np.uint32(32 - turn))
        x1 ^= x0
        if r % 4 == 3:  # inject the key after every four rounds
            inject = r // 4 + 1
            x0 += schedule[inject % 3]
            x1 += schedule[(inject + 1) % 3]
            x1 += np.uint32(inject)
    return x0, x1


def _normals(k0: Words, k1: Words, blocks: Words) -> tuple[Array, Array]:
    """Box–Muller on these blocks of each key."""
    w0, w1 = threefry((k0[:, None], k1[:, None]), (blocks, 0))
    uniform = (w0 + 0.5) * 2.0**-32
    if np.min(w0) < TAIL:
        pair, block = np.nonzero(w0 < TAIL)
        finer, _ = threefry((k0[pair], k1[pair]), (blocks[block], 1))
        uniform[pair, block] = (w0[pair, block] + (finer + 0.5) * 2.0**-32) * 2.0**-32
    radius = np.sqrt(-2.0 * np.log(uniform))
    angle = w1 * (2.0 * np.pi * 2.0**-32)
    return radius * np.cos(angle), radius * np.sin(angle)


class Streams:
    """All the randomness of one run.

    Parameters
    ----------
    seed : an integer for a reproducible simulation, or None for a key from the operating system

    Examples
    --------
    >>> a, b = Streams(7), Streams(7)
    >>> bool(np.all(a.normals(np.array([3]), 10, 5) == b.normals(np.array([0, 3]), 10, 5)[1]))
    True
    """

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None and (not isinstance(seed, int | np.integer) or seed < 0):
            raise SpecError(f"a seed is a whole number that is not negative, not {seed!r}")
        self.seeded = seed is not None
        self._root = np.random.SeedSequence(secrets.randbits(128) if seed is None else int(seed))
        self._key = self._root.generate_state(2, np.uint32)
        self._keys = {p: threefry((self._key[0], self._key[1]), (p, 0)) for p in Purpose}

    def key(self, purpose: Purpose) -> tuple[Words, Words]:
        """The key of a purpose: what another implementation of these streams needs to know."""
        return self._keys[purpose]

    def _pairs(self, purpose: Purpose, nodes: Any, t: Any) -> tuple[Words, Words]:
        """The key of each pair (node, round)."""
        return threefry(self._keys[purpose], (nodes, t))

    def normals(self, nodes: IntArray, t: int | IntArray, m: int) -> Array:
        """Standard normals, a row of m for each pair (node, round).

        Block j gives coordinate j (cosine) and coordinate ⌈m/2⌉ + j (sine).
        """
        half = (m + 1) // 2
        k0, k1 = self._pairs(Purpose.NOISE, nodes, t)
        out = np.empty((len(k0), m))
        rows, width = max(1, IN_CACHE // half), min(half, IN_CACHE)
        for row in range(0, len(k0), rows):
            mine = slice(row, row + rows)
            for first in range(0, half, width):
                blocks = np.arange(first, min(first + width, half), dtype=np.uint32)
                cosines, sines = _normals(k0[mine], k1[mine], blocks)
                out[mine, first : first + len(blocks)] = cosines
                out[mine, half + first : half + first + len(blocks)] = sines[:, : m - half - first]
        return out

    def uniforms(self, nodes: IntArray, t: int | IntArray, first: int, count: int) -> Array:
        """Uniforms in (0, 1), ends excluded, for drawing records: positions first … first + count − 1 of each pair."""
        k0, k1 = self._pairs(Purpose.RECORDS, nodes, t)
        w0, w1 = threefry((k0[:, None], k1[:, None]), (np.arange(first, first + count, dtype=np.uint32), 0))
        high = (w0.astype(np.uint64) << np.uint64(20)) | (w1 >> np.uint32(12))
        return (high + 0.5) * 2.0**-52

    def schedule(self) -> np.random.Generator:
        """The generator of the public schedule: who is active when is drawn first, and is no secret."""
        root = np.random.SeedSequence(self._root.entropy, spawn_key=(1,))
        return np.random.Generator(np.random.Philox(root))
