"""Stand-ins for the paper's two data sets, of their sizes and similar to them for a linear learner.

*epsilon* (400,000 × 2,000, dense) and *rcv1* (677,399 × 47,236, sparse) are too large to ship. The generators here
make records of the same shape, spectrum, sparsity and difficulty from a seed. `benchmarks/fit_standins.py` fitted the
distributions to parts of the real files, and prints how far stand-in and original differ; the constants below are its
results.

Records come in blocks, and block k is made from (seed, k) alone. So the first records do not depend on the total
number, several processors can make them, and each needs memory for one block only. The same seed gives the same
records: bit for bit on one machine, up to rounding of the linear algebra on another.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from statistics import NormalDist
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy  # not its parts: they load when first used
from numpy.typing import DTypeLike, NDArray

from sottovoce._types import Array
from sottovoce.data.tables import Table
from sottovoce.errors import SpecError

Made = Callable[[int, int], None]
"""Called with the number of records made so far, and with their total."""

MODEL, TRAIN, TEST = 0, 1, 2  # the streams under a seed: the law, its records, its held-out records

# ---- epsilon. One strong direction, five weak ones and noise of its own for every feature; then rows to norm 1.

EPSILON_BLOCK = 2048
EPSILON_PIECE = 256  # rows of it that are held a second time

# Fitted to 200 whole rows and to 5000 rows of 100 columns. A row's part along the strong direction over its part
# across it, t / √(1 − t²) for t = ⟨row, direction⟩, at these quantiles:
ODDS_AT = (0.0, 0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 1.0)
ODDS = (-0.72, -0.65, -0.55, -0.43, -0.117, 0.52, 1.35, 2.23, 2.8, 3.9, 5.0)
# Quantiles of the features' weights in that direction, in units of 1/√m, at 0, 5 %, … 100 %:
LOADINGS = (
    *(-1.94, -1.754, -1.452, -1.147, -0.884, -0.685, -0.449, -0.297, -0.188, -0.089, -0.005),
    *(0.069, 0.172, 0.295, 0.468, 0.66, 0.868, 1.112, 1.463, 1.793, 1.94),
)
LOADING_LIMIT = 1.943  # a feature's own noise has variance 1 − (loading / limit)²: features are standardised at first
# Shares of the weak directions in what the strong one leaves: estimates less a sixth, for the spectrum of 200 rows
WEAK = (0.0155, 0.0142, 0.0108, 0.0096, 0.0080)
CARRIERS = 0.18  # share of the features in which the classes differ (kurtosis 16 of the whitened differences)
EPSILON_ACCURACY = 0.90  # of the best linear classifier: given, not fitted, the pieces are too small to show


class _Epsilon(NamedTuple):
    """The law of the records, in the units in which what is across the strong direction has norm 1."""

    directions: NDArray[np.float32]  # (6, m): the strong one and the weak ones
    spread: NDArray[np.float32]  # (m,) standard deviation of each feature's own noise
    shift: NDArray[np.float32]  # (m,) half the difference of the classes' centers


def epsilon_like(
    n_records: int = 400_000,
    m: int = 2000,
    seed: int = 0,
    dtype: DTypeLike = np.float32,
    test: bool = False,
    progress: Made | None = None,
) -> Table:
    """Dense unit rows like those of *epsilon*: labels ±1 in equal parts, best linear accuracy 0.90 without intercept.

    Parameters
    ----------
    n_records, m : 400,000 × 2,000 in the paper; any other size follows the same law
    seed : of the law and of the records
    dtype : float32 (3.2 GB at full size) or float64; the same numbers up to rounding
    test : other records of the same law, for testing (the real test file has 100,000)
    progress : called after every block

    Examples
    --------
    >>> table = epsilon_like(1000, seed=1)
    >>> table.X.shape, table.X.dtype, bool(np.linalg.norm(table.X, axis=1).max() <= 1)
    ((1000, 2000), dtype('float32'), True)
    """
    kind = _checked(n_records, m, dtype)
    law = _epsilon(m, seed)
    X, y = np.empty((n_records, m), dtype=kind), np.empty(n_records)

    def block(k: int, start: int, stop: int) -> None:
        whole = kind == np.float32 and stop - start == EPSILON_BLOCK  # then they are made where they are to lie
        rows = X[start:stop] if whole else np.empty((EPSILON_BLOCK, m), dtype=np.float32)
        y[start:stop] = _epsilon_block(law, _generator(seed, TEST if test else TRAIN, k), rows)[: stop - start]
        _to_unit(rows[: stop - start], X[start:stop])

    for _, stop, _ in _side_by_side(block, n_records, EPSILON_BLOCK):
        if progress is not None:
            progress(stop, n_records)
    return Table(X, y, None, None, "epsilon-like")


@lru_cache(maxsize=1)
def _epsilon(m: int, seed: int) -> _Epsilon:
    rng = _generator(seed, MODEL, 0)
    middles = (rng.permutation(m) + 0.5) / m  # of equal parts of [0, 1]: quantiles without the noise of a draw
    strong = np.interp(middles, np.linspace(0.0, 1.0, len(LOADINGS)), LOADINGS)
    own = 1.0 - (strong / LOADING_LIMIT) ** 2
    weak = rng.standard_normal((len(WEAK), m)) * np.sqrt(own)
    weak *= np.sqrt(np.array(WEAK)[:, None] / np.sum(weak**2, axis=1, keepdims=True))
    own *= (1.0 - sum(WEAK)) / np.sum(own)
    strong /= np.linalg.norm(strong)

    # the classes differ in some of the features with much noise of their own, and not at all along the directions
    # (seen through the noise): then the best weights are shift / own, and need no intercept after rows are scaled
    carries = (rng.random(m) < CARRIERS) & (own > 0.5 * np.max(own))
    shift = np.where(carries, rng.standard_normal(m), 0.0)
    if not carries.any():
        shift[int(np.argmax(own))] = 1.0
    seen = np.linalg.qr((np.vstack([strong, weak]) / np.sqrt(own)).T)[0]
    if m > 4 * len(seen.T):  # with few features nothing would be left of the difference
        shift -= seen @ (seen.T @ shift)
    shift *= NormalDist().inv_cdf(EPSILON_ACCURACY) / np.linalg.norm(shift) * np.sqrt(own)
    return _Epsilon(
        np.vstack([strong, weak]).astype(np.float32), np.sqrt(own).astype(np.float32), shift.astype(np.float32)
    )


def _epsilon_block(law: _Epsilon, rng: np.random.Generator, rows: NDArray[np.float32]) -> Array:
    """A whole block, whether all of its rows are wanted or not, before the rows are scaled; gives the labels."""
    y = np.where(rng.random(EPSILON_BLOCK) < 0.5, -1.0, 1.0)
    scores = rng.standard_normal((EPSILON_BLOCK, len(law.directions) + 1), dtype=np.float32)
    scores[:, 0] = np.interp(rng.random(EPSILON_BLOCK), ODDS_AT, ODDS)
    scores[:, -1] = y
    rng.standard_normal(dtype=np.float32, out=rows)
    rows *= law.spread
    parts = np.vstack([law.directions, law.shift])
    for some in range(0, EPSILON_BLOCK, EPSILON_PIECE):
        piece = slice(some, some + EPSILON_PIECE)
        rows[piece] += scores[piece] @ parts
    return y


# ---- rcv1. Words drawn from topics, one topic mostly; a word's weight is (1 + ln count) · rarity; rows to norm 1.

RCV1_BLOCK = 8192

# Fitted to 23,727 real rows. How often the word of a rank is expected in a document, at these ranks:
RANKS = (1, 3, 8, 20, 50, 120, 300, 800, 2000, 5000, 12_000, 20_000, 28_000, 47_236)
EXPECTED = (1.19, 0.85, 0.82, 0.393, 0.251, 0.158, 0.0707, 0.0241, 0.0066, 0.00131, 2.75e-4, 1.07e-4, 2.12e-5, 2.49e-6)
# and the share of the documents that hold it at all (repeats, and topics full of it, make this the smaller one):
SHARE = (0.427, 0.344, 0.286, 0.208, 0.150, 0.0977, 0.0509, 0.0205, 0.00622, 0.00134, 2.9e-4, 9e-5, 2.2e-5, 2.6e-6)
# Quantiles of the number of words drawn, repeats among them, over its mean, at these shares of the documents:
WORDS_AT = (0.0, 0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 0.999, 1.0)
WORDS = (0.103, 0.15, 0.222, 0.24, 0.4, 0.672, 1.23, 2.08, 2.6, 3.36, 6.81, 14.1)
LONGER = 0.2  # documents of class −1 are e^0.2 times as long as the middle, those of class +1 e^−0.2 times
# Shares of the words that count 0, 1, 2, … times more than they were drawn (words come in bursts):
COUNTS = (0.902, 0.0604, 0.0137, 0.0101, 0.0059, 0.0021, 0.0025, 0.0010, 0.0008, 0.0005, 0.0002, 0.0008)
RAREST = np.log(23_149)  # the rarest word stands in one of the documents by which rarity was counted
# Found by search, for the real file's learning curve, spectrum and difference of the classes' words:
TOPICS = 96  # in pairs of one of either class and of one size
RANK_OFFSET = 2.0  # pair i has a chance ∝ 1 / (RANK_OFFSET + i)
TILT_AT, TILT = (1, 50, 1000), (1.4, 1.6, 2.1)  # deviation of ln(chance) between topics, at these ranks
SHARP = (1.6, 0.6)  # the same times this, from the most frequent topic to the rarest
SIDES = (0.1, 0.1, 0.1)  # and between the classes
PURITY = (0.5, 1.0)  # share of the words that come from the document's own topic; the rest is from another,
CROSSED = 0.12  # in this share of the documents from one of either class, else of the same
WRONG = 0.01  # share of labels that nothing explains


class _Rcv1(NamedTuple):
    cumulated: Array  # topic k's cumulated chances of the words plus k, end to end
    rarity: Array  # by rank
    columns: NDArray[np.int32]  # the column of every rank: ranks lie scattered, as words do in the alphabet
    topics: Array  # cumulated chances of the topics; even ones are of class +1
    mean: float  # words drawn for a document


def rcv1_like(
    n_records: int = 677_399,
    m: int = 47_236,
    seed: int = 0,
    test: bool = False,
    dtype: DTypeLike = np.float32,
    progress: Made | None = None,
) -> Table:
    """Sparse unit rows (CSR) like those of *rcv1*: Zipf words, about 73 a row, tf-idf weights, accuracy about 0.96.

    Parameters
    ----------
    n_records, m : 677,399 × 47,236 in the paper; with fewer features the rarest words are left out
    seed : of the law and of the records
    test : other records of the same law, for testing (the real file of that name has 20,242)
    dtype : float32 (0.4 GB at full size) or float64; the same numbers up to rounding
    progress : called after every block

    Examples
    --------
    >>> table = rcv1_like(1000, m=5000, seed=1)
    >>> table.X.format, table.X.shape, table.X.indices.dtype
    ('csr', (1000, 5000), dtype('int32'))
    """
    kind = _checked(n_records, m, dtype)
    law = _rcv1(m, seed)
    y, indptr = np.empty(n_records), np.zeros(n_records + 1, dtype=np.int64)
    # room for the entries expected and some more: memory that is never touched costs nothing
    data: NDArray[Any] = np.empty(int(law.mean * (n_records + 4 * np.sqrt(n_records))), dtype=kind)
    indices = np.empty(len(data), dtype=np.int32)

    def block(k: int, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int32], Array, Array]:
        return _rcv1_block(law, _generator(seed, TEST if test else TRAIN, k), stop - start)

    for start, stop, (sizes, words, weights, labels) in _side_by_side(block, n_records, RCV1_BLOCK):
        y[start:stop] = labels
        np.cumsum(sizes, out=indptr[start + 1 : stop + 1])
        indptr[start + 1 : stop + 1] += indptr[start]
        first, last = int(indptr[start]), int(indptr[stop])
        if last > len(data):
            _resize(max(last, len(data) * 5 // 4), data, indices)
        data[first:last], indices[first:last] = weights, words
        if progress is not None:
            progress(stop, n_records)
    _resize(int(indptr[-1]), data, indices)
    small = np.int32 if len(data) < np.iinfo(np.int32).max else np.int64
    X = scipy.sparse.csr_array((data, indices.astype(small, copy=False), indptr.astype(small)), shape=(n_records, m))
    X.has_canonical_format = True  # columns rise within every row
    return Table(X, y, None, None, "rcv1-like")


@lru_cache(maxsize=1)
def _rcv1(m: int, seed: int) -> _Rcv1:
    rng = _generator(seed, MODEL, 0)
    ranks = np.arange(1, m + 1)
    expected, share = (np.exp(np.interp(np.log(ranks), np.log(RANKS), np.log(at))) for at in (EXPECTED, SHARE))
    topics = 1.0 / (RANK_OFFSET + np.arange(TOPICS) // 2)
    topics /= np.sum(topics)
    tilt, side = (np.interp(np.log(ranks), np.log(TILT_AT), at) for at in (TILT, SIDES))
    joint = rng.standard_normal((m, TOPICS))
    joint *= np.outer(tilt, np.geomspace(*SHARP, TOPICS))
    joint += np.outer(side * rng.standard_normal(m), np.where(np.arange(TOPICS) % 2 == 0, 1.0, -1.0))
    np.exp(joint, out=joint)
    for _ in range(8):  # chances of words by topic that, over all topics, give back every word's own
        joint *= (expected / np.sum(expected) / (joint @ topics))[:, None]
        joint /= np.sum(joint, axis=0)
    cumulated = np.cumsum(joint.T, axis=1)
    cumulated[:, -1] = 1.0
    cumulated += np.arange(TOPICS)[:, None]
    rarity = np.minimum(-np.log(share), RAREST)
    columns = rng.permutation(m).astype(np.int32)
    return _Rcv1(cumulated.ravel(), rarity, columns, np.cumsum(topics), float(np.sum(expected)))


def _rcv1_block(
    law: _Rcv1, rng: np.random.Generator, wanted: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], Array, Array]:
    """The first rows of a block, drawn as a whole: entries a row, columns, weights, labels."""
    m, top = len(law.rarity), TOPICS - 1
    own = np.minimum(np.searchsorted(law.topics, rng.random(RCV1_BLOCK)), top)
    other = np.minimum(np.searchsorted(law.topics, rng.random(RCV1_BLOCK)), top)
    other += np.where(rng.random(RCV1_BLOCK) < CROSSED, 0, own % 2 - other % 2)  # topics come in pairs of the classes
    purity = rng.uniform(*PURITY, RCV1_BLOCK)
    right = np.where(own % 2 == 0, 1.0, -1.0)
    y = np.where(rng.random(RCV1_BLOCK) < WRONG, -right, right)
    length = law.mean * np.interp(rng.random(RCV1_BLOCK), WORDS_AT, WORDS) * np.exp(-LONGER * right)
    drawn = np.maximum(1, np.rint(length)).astype(np.int64)

    row = np.repeat(np.arange(RCV1_BLOCK), drawn)
    topic = np.where(rng.random(len(row)) < purity[row], own[row], other[row])
    word = np.searchsorted(law.cumulated, topic + rng.random(len(row)), side="right") - topic * m
    np.minimum(word, m - 1, out=word)
    key, repeats = np.unique(row * m + law.columns[word], return_counts=True)  # columns rise within a row
    more = np.searchsorted(np.cumsum(COUNTS[:-1]), rng.random(len(key)), side="right")
    key = key[: np.searchsorted(key, wanted * m)]
    count = 1.0 + np.log((repeats + more)[: len(key)])
    row, column = key // m, (key % m).astype(np.int32)
    rank = np.empty(m, dtype=np.int32)
    rank[law.columns] = np.arange(m, dtype=np.int32)
    weight = count * law.rarity[rank[column]]
    norms = np.sqrt(np.bincount(row, weights=weight**2, minlength=wanted))
    weight /= norms[row] * (1 + 4 * np.finfo(np.float32).eps)
    return np.bincount(row, minlength=wanted), column, weight, y[:wanted]


# ---- both


Block = TypeVar("Block")


def _side_by_side(
    make: Callable[[int, int, int], Block], n_records: int, size: int
) -> Iterator[tuple[int, int, Block]]:
    """Yield (start, stop, block) in order, made by all processors: NumPy lets threads draw and sort in parallel."""
    spans = [(k, start, min(start + size, n_records)) for k, start in enumerate(range(0, n_records, size))]
    cores = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, len(spans))
    if cores == 1:
        yield from ((start, stop, make(k, start, stop)) for k, start, stop in spans)
        return
    from threadpoolctl import threadpool_limits  # slow to load

    # matrix products that each take all cores would wait for each other
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(cores) as pool:
        waiting: deque[tuple[int, int, Future[Block]]] = deque()
        for k, start, stop in spans:
            waiting.append((start, stop, pool.submit(make, k, start, stop)))
            if len(waiting) > 2 * cores:
                start, stop, first = waiting.popleft()
                yield start, stop, first.result()
        for start, stop, one in waiting:
            yield start, stop, one.result()


def _checked(n_records: int, m: int, dtype: DTypeLike) -> np.dtype[Any]:
    if n_records < 1 or m < 1:
        raise SpecError(f"a stand-in needs at least one record and one feature, not {n_records} × {m}")
    kind = np.dtype(dtype)
    if kind not in (np.float32, np.float64):
        raise SpecError(f"records are made as float32 or float64, not as {kind}; choose one of the two")
    return kind


def _generator(seed: int, stream: int, block: int) -> np.random.Generator:
    if seed < 0:
        raise SpecError(f"the seed must be 0 or more, not {seed}")
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(stream, block))))


def _to_unit(rows: NDArray[np.float32], out: NDArray[Any]) -> None:
    """Rows scaled to norm 1 less a rounding error, so that no order of summation finds a norm above 1."""
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    np.divide(rows, (norms * (1 + 4 * np.finfo(np.float32).eps))[:, None], out=out, casting="same_kind")


def _resize(size: int, *arrays: NDArray[Any]) -> None:
    """Grow or shrink in place: the memory is moved by the system, if at all, never held twice."""
    for array in arrays:
        array.resize(size, refcheck=False)
