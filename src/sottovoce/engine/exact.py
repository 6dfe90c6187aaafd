"""The exact sums of a secure round, of all its nodes in one call: native loops that read every row once, dense or CSR.

Records, models and slopes are on the grids of `secure.grids`, where sums without an error are the same in any order; so
these are the bits of the matrix products of `secure.sums`. Threads share the nodes of a large round, or the units of a
single one: whole numbers add up to the same in any order.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from sottovoce import _native
from sottovoce._types import Array, IntArray
from sottovoce.engine.native import SumsOf, code_of
from sottovoce.extension import available, read_only, records
from sottovoce.problem.losses import Joint
from sottovoce.problem.shards import Shards
from sottovoce.secure.grids import MAX_MODEL_WEIGHT, GridRows

BLOCK_ROWS = 512
"""Rows of a block, at most."""
NEAR_BYTES = 1 << 17
"""Bytes of dense rows that are read twice."""
LEAST_ROWS = 8
"""Dense rows of a block, at least."""
NUMBERS_PER_THREAD = 1 << 21
"""Numbers of records in a round from which on another thread is worth it: a millisecond; to start one takes a tenth."""

_records: "WeakKeyDictionary[GridRows, tuple[Shards, _native.Records]]" = WeakKeyDictionary()


class Pairs(NamedTuple):
    """Whose units are summed: of each pair (node, round) the node's first one, how many, and where in the picks.

    Attributes
    ----------
    base : the node's first unit
    sizes : units
    starts : of its picks, which are counted from `base`; −1 where it has none, and all units from `base` on are summed
    """

    base: IntArray
    sizes: IntArray
    starts: IntArray

    def cut(self, parts: int) -> "Pairs":
        """Each in so many parts, sequentially."""
        if parts == 1:
            return self
        base, sizes, starts = (np.repeat(each, parts) for each in self)
        part = np.tile(np.arange(parts), len(self.base))
        first = sizes * part // parts
        picked = starts >= 0
        return Pairs(
            np.where(picked, base, base + first),
            sizes * (part + 1) // parts - first,
            np.where(picked, starts + first, -1),
        )

    def at(self, some: slice) -> "Pairs":
        """Some of them."""
        return Pairs(*(read_only(each[some], np.int64) for each in self))


def clipped_sums(
    data: GridRows, shards: Shards, joint: Joint, nodes: IntArray, models: Array, chosen: Sequence[IntArray | None]
) -> IntArray:
    """`secure.sums.clipped_sum` of each pair (node, round): (pairs, m), in whole units of the sums' grid.

    Parameters
    ----------
    data : the rows of `shards` on their grid
    shards : whose they are
    joint : the loss
    nodes : of each pair
    models : its x
    chosen : which of the node's units are summed; None for all
    """
    sizes, starts, picks = shards.sizes[nodes], np.full(len(nodes), -1), np.empty(0, np.int64)
    listed = [(pair, some) for pair, some in enumerate(chosen) if some is not None]
    for pair, some in listed:
        sizes[pair] = len(some)
    if listed:
        starts[[pair for pair, _ in listed]] = np.cumsum([0] + [len(some) for _, some in listed[:-1]])
        lists = [some for _, some in listed]
        picks = (lists[0] if len(lists) == 1 else np.concatenate(lists)).astype(np.int64, copy=False)
    pairs = Pairs(shards.offsets[nodes], sizes, starts)
    stored = data.X.size / max(1, len(shards.y)) if isinstance(data.X, np.ndarray) else data.X.nnz / len(shards.y)
    threads = int(min(available(), sizes.sum() * stored * joint.outputs // NUMBERS_PER_THREAD + 1))
    parts = -(-threads // max(1, len(nodes)))  # of one node's units, where there are fewer nodes
    which = np.repeat(np.arange(len(nodes)), parts)
    pieces, x = pairs.cut(parts), read_only(models if parts == 1 else models[which], np.float64)
    totals = np.zeros(x.shape, dtype=np.int64)
    ends = np.searchsorted(np.cumsum(pieces.sizes), pieces.sizes.sum() * np.arange(1, threads) / threads)
    work = _passes(data, shards, joint, picks)
    works = [
        partial(work, pieces.at(mine), x[mine], totals[mine])
        for mine in map(slice, [0, *ends.tolist()], [*ends.tolist(), len(which)])
    ]
    if max(_side_by_side(works)) > MAX_MODEL_WEIGHT:
        data.grids.model(models)  # which says what is wrong
    return totals if parts == 1 else totals.reshape(len(nodes), parts, -1).sum(axis=1)


def _passes(data: GridRows, shards: Shards, joint: Joint, picks: IntArray) -> Callable[[Pairs, Array, IntArray], float]:
    """(pairs, models, totals) -> the largest weight; the sums are added to the totals."""
    grids, X = data.grids, data.X
    step = min(BLOCK_ROWS, grids.rows)
    if isinstance(X, np.ndarray):
        step = max(1, min(step, max(LEAST_ROWS, NEAR_BYTES // max(1, 4 * X.shape[1]))))
    known = _records.get(data)
    if known is None or known[0] is not shards:
        given = records(X, grids.intercept, shards.y, data.reach, shards)
        known = _records[data] = shards, _native.Records(given)
    of = SumsOf(
        caps=read_only(data.caps, np.float64),
        reach=read_only(data.reach, np.float64),
        loss=code_of(joint.loss),
        parameter=float(joint.loss.parameter),
        outputs=joint.outputs,
        step=step,
        limit=grids.rows,
        inverse=1.0 / grids.slope,
        whole=1.0 / grids.feature,
        length=float(grids.length),
        base=picks,
        sizes=picks,
        starts=picks,
        picks=read_only(picks, np.int64),
    )

    def one(pairs: Pairs, x: Array, totals: IntArray) -> float:
        return _native.exact_sums(known[1], of._replace(**pairs._asdict()), x, totals)

    return one


def _side_by_side(works: Sequence[Callable[[], float]]) -> list[float]:
    """The first one here, the others in threads."""
    if len(works) == 1:
        return [works[0]()]
    with ThreadPoolExecutor(len(works) - 1) as pool:
        others = [pool.submit(work) for work in works[1:]]
        return [works[0](), *(other.result() for other in others)]
