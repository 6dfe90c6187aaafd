"""Secret batches whose law is exactly the one that is accounted.

`poisson`: every record on its own with probability b/q, exactly: gaps between chosen records are ⌊ln u / ln(1 − b/q)⌋
with u a stream of bits that has no end, computed in double arithmetic where that is certain, and by `balls` elsewhere.
`fixed`: b distinct records, every set of b equally likely (Floyd's algorithm on exactly uniform whole numbers).

Records are numbered within their node. All draws of a (node, round) come from its words at the generator of records:
number i from word i mod 2 of block ⌊i/2⌋.
"""

import math
from fractions import Fraction

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.errors import PrivacyError
from sottovoce.secure import balls
from sottovoce.secure.generator import Generator, Words
from sottovoce.secure.noise import LAST, minus_log

ERROR = 2.0**-40
"""A gap of size k, where they are 1/−ln(1 − b/q) = c long at the mean, is known to c + k times this."""
SMALL = np.uint64(1 << 44)
"""Words below this, u < 2⁻²⁰, are left to `balls`."""


def poisson(
    generator: Generator,
    nodes: IntArray,
    rounds: IntArray,
    sizes: IntArray,
    batches: IntArray,
    compiled: bool = False,
) -> list[IntArray]:
    """The records of each pair (node, round), in order: each of the q with probability b/q.

    Parameters
    ----------
    generator : of the draws of records
    nodes, rounds : the pairs
    sizes, batches : q and b of each pair, public
    compiled : whether native loops find the gaps: the same records, sooner

    Examples
    --------
    >>> here = np.array([0])
    >>> poisson(Generator(bytes(32)), here, here, np.array([50]), np.array([5]))
    [array([...])]
    """
    nodes, rounds, sizes, batches = (np.asarray(a, dtype=np.int64) for a in (nodes, rounds, sizes, batches))
    _check(sizes, batches)
    found: list[list[IntArray]] = [[] for _ in sizes]
    last = np.where(batches == sizes, sizes, -1)  # chosen so far; a full batch needs no draw
    scales = _mean_gaps(sizes, batches)
    first, stretch = 0, _enough(int(np.max(batches, initial=1)))
    while (left := np.flatnonzero(last < sizes)).size:
        words = generator.words(nodes[left], rounds[left], first // 2, stretch // 2).reshape(len(left), stretch)
        gaps, doubts = (_gaps_compiled if compiled else _gaps)(words, scales[left, None], sizes[left, None])
        for place, i in np.argwhere(gaps < 0).tolist() if doubts else ():
            pair = int(left[place])
            address = int(nodes[pair]), int(rounds[pair]), (first + i) // 2
            rate = Fraction(int(batches[pair]), int(sizes[pair]))
            gaps[place, i] = min(_exact_gap(generator, address, i % 2, rate), int(sizes[pair]))
        last[left], counts = _add_up(gaps, last[left], sizes[left])
        for pair, row, count in zip(left.tolist(), gaps, counts.tolist(), strict=True):
            found[pair].append(row[:count])
        first += stretch
    return [_joined(parts) if parts else np.arange(q) for parts, q in zip(found, sizes.tolist(), strict=True)]


def fixed(generator: Generator, nodes: IntArray, rounds: IntArray, sizes: IntArray, batch: int) -> list[IntArray]:
    """b distinct records of each pair (node, round), every set of b equally likely.

    Parameters
    ----------
    generator : of the draws of records
    nodes, rounds : the pairs
    sizes : q of each pair
    batch : b

    Examples
    --------
    >>> here = np.array([0])
    >>> sorted(fixed(Generator(bytes(32)), here, here, np.array([4]), 4)[0].tolist())
    [0, 1, 2, 3]
    """
    sizes = np.asarray(sizes, dtype=np.int64)
    _check(sizes, np.full_like(sizes, batch))
    picks = below(generator, nodes, rounds, (sizes - batch + 1)[:, None] + np.arange(batch))
    if batch == 1:
        return list(picks)
    return [_floyd(row, q) for row, q in zip(picks.tolist(), sizes.tolist(), strict=True)]


def below(generator: Generator, nodes: IntArray, rounds: IntArray, limits: IntArray) -> IntArray:
    """Whole numbers, each exactly uniform on 0 … limit − 1: a row for each pair (node, round).

    A word modulo the limit, and the next level's word in the place of one from the last, incomplete stretch.
    """
    nodes, rounds, limits = (np.asarray(a, dtype=np.int64) for a in (nodes, rounds, limits))
    count = limits.shape[1]
    words = generator.words(nodes, rounds, 0, (count + 1) // 2).reshape(len(nodes), -1)[:, :count]
    limit = limits.astype(np.uint64)
    incomplete = (np.uint64(0) - limit) % limit  # 2⁶⁴ mod limit
    found = (words % limit).astype(np.int64)
    for pair, i in np.argwhere(words > LAST - incomplete).tolist():
        most = 2**64 - int(incomplete[pair, i])
        more = generator.continuation(int(nodes[pair]), int(rounds[pair]), i // 2)
        word = next(two[i % 2] for two in more if two[i % 2] < most)
        found[pair, i] = word % int(limits[pair, i])
    return found


def _check(sizes: IntArray, batches: IntArray) -> None:
    if np.any((batches < 1) | (batches > sizes)):
        raise PrivacyError("a batch is of at least one and at most all of a node's records; choose it so")


def _mean_gaps(sizes: IntArray, batches: IntArray) -> Array:
    """c = −1/ln(1 − b/q); from whichever of b/q and 1 − b/q is the smaller."""
    q = sizes.astype(np.float64)
    with np.errstate(divide="ignore"):
        logs = np.where(2 * batches <= sizes, np.log1p(-batches / q), np.log((sizes - batches) / q))
    return -1.0 / logs


def _gaps(words: Words, scales: Array, sizes: IntArray) -> tuple[IntArray, int]:
    """⌊−c ln u⌋, at most q; −1 where that is not certain, and how often it is not."""
    exact = minus_log(words, np.uint64(0), 0) * scales
    error = ERROR * (scales + exact)
    down = np.floor(exact)
    rest = exact - down
    certain = (rest > error) & (rest < 1.0 - error) & (words >= SMALL)
    found = np.where(certain, np.minimum(np.where(certain, down, 0.0), sizes), -1.0).astype(np.int64)
    return found, found.size - int(np.count_nonzero(certain))


def _gaps_compiled(words: Words, scales: Array, sizes: IntArray) -> tuple[IntArray, int]:
    """The same."""
    from sottovoce._native import poisson_gaps

    found = np.empty(words.shape, dtype=np.int64)
    scales, sizes = np.ascontiguousarray(scales[:, 0]), np.ascontiguousarray(sizes[:, 0])
    return found, poisson_gaps(words, scales, sizes, ERROR, int(SMALL), found)


def _add_up(gaps: IntArray, last: IntArray, sizes: IntArray) -> tuple[IntArray, IntArray]:
    """Gaps to places, where they stand; gives the last place of each pair, and how many are records of it."""
    np.cumsum(gaps + 1, axis=1, out=gaps)
    gaps += last[:, None]
    return gaps[:, -1], np.count_nonzero(gaps < sizes[:, None], axis=1)


def _joined(parts: list[IntArray]) -> IntArray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _exact_gap(generator: Generator, address: tuple[int, int, int], word: int, rate: Fraction) -> int:
    streams = balls.Draw(generator, *address, split=0).uniforms()
    return balls.whole(lambda: balls.geometric(next(streams)[word], rate))


def _enough(b: int) -> int:
    """Draws that a batch nearly always gets by with: one a record, and one to pass the end; an even number."""
    return 2 * math.ceil((b + 4 * math.sqrt(b) + 4) / 2)


def _floyd(picks: list[int], q: int) -> IntArray:
    """Bentley and Floyd (1987): a pick that was chosen before stands for the newest record instead."""
    chosen: dict[int, None] = {}
    for newest, pick in zip(range(q - len(picks), q), picks, strict=True):
        chosen[newest if pick in chosen else pick] = None
    return np.fromiter(chosen, np.int64, len(picks))
