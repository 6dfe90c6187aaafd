"""The exact sums of a secure round, of all its nodes in one call: native loops that read every row once, dense or CSR.

Records, models and slopes are on the grids of `secure.grids`, where sums without an error are the same in any order; so
these are the bits of the matrix products of `secure.sums`. Threads share the nodes of a large round, or the units of a
single one: whole numbers add up to the same in any order.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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

_known: "WeakKeyDictionary[GridRows, tuple[Shards, Joint, _native.Records, SumsOf]]" = WeakKeyDictionary()


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
    base, sizes, starts = shards.offsets[nodes], shards.sizes[nodes], np.full(len(nodes), -1)
    picks, lists = np.empty(0, np.int64), [some for some in chosen if some is not None]
    if lists:
        named = np.array([some is not None for some in chosen])
        sizes[named] = [len(some) for some in lists]
        starts[named] = np.cumsum(sizes[named]) - sizes[named]
        picks = np.concatenate(lists).astype(np.int64, copy=False)
    native, of = _laid_out(data, shards, joint)
    stored = (data.X.size if isinstance(data.X, np.ndarray) else data.X.nnz) / max(1, len(shards.y))
    threads = int(min(available(), sizes.sum() * stored * joint.outputs // NUMBERS_PER_THREAD + 1))
    parts = -(-threads // max(1, len(nodes)))  # of one node's units, where there are fewer nodes
    if parts > 1:
        part = np.tile(np.arange(parts), len(nodes))
        base, sizes, starts, models = (np.repeat(each, parts, axis=0) for each in (base, sizes, starts, models))
        first, picked = sizes * part // parts, starts >= 0
        sizes = sizes * (part + 1) // parts - first
        base, starts = np.where(picked, base, base + first), np.where(picked, starts + first, -1)
    places, x = np.array([base, sizes, starts], dtype=np.int64), np.ascontiguousarray(models, np.float64)
    totals = np.zeros(x.shape, dtype=np.int64)

    def work(mine: slice) -> float:
        base, sizes, starts = places[:, mine]
        pairs = of._replace(base=base, sizes=sizes, starts=starts, picks=picks)
        return _native.exact_sums(native, pairs, x[mine], totals[mine])

    ends = np.searchsorted(np.cumsum(sizes), sizes.sum() * np.arange(1, threads) / threads).tolist()
    works = [partial(work, mine) for mine in map(slice, [0, *ends], [*ends, len(x)])]
    if max(_side_by_side(works)) > MAX_MODEL_WEIGHT:
        data.grids.model(models)  # which says what is wrong
    return totals if parts == 1 else totals.reshape(len(nodes), parts, -1).sum(axis=1)


def _laid_out(data: GridRows, shards: Shards, joint: Joint) -> tuple[_native.Records, SumsOf]:
    """Records, and what sums of any of them have in common."""
    known, grids, none = _known.get(data), data.grids, np.empty(0, np.int64)
    if known is None or known[0] is not shards or known[1] is not joint:
        reach = read_only(data.reach, np.float64)
        of = SumsOf(
            caps=read_only(data.caps, np.float64),
            reach=reach,
            loss=code_of(joint.loss),
            parameter=float(joint.loss.parameter),
            outputs=joint.outputs,
            step=0,
            limit=grids.rows,
            inverse=1.0 / grids.slope,
            whole=1.0 / grids.feature,
            length=float(grids.length),
            base=none,
            sizes=none,
            starts=none,
            picks=none,
        )
        native = _native.Records(records(data.X, grids.intercept, shards.y, reach, shards))
        known = _known[data] = shards, joint, native, of
    step = min(BLOCK_ROWS, grids.rows)
    if isinstance(data.X, np.ndarray):
        step = max(1, min(step, max(LEAST_ROWS, NEAR_BYTES // max(1, 4 * data.X.shape[1]))))
    return known[2], known[3]._replace(step=step)


def _side_by_side(works: Sequence[Callable[[], float]]) -> list[float]:
    """The first one here, the others in threads."""
    if len(works) == 1:
        return [works[0]()]
    with ThreadPoolExecutor(len(works) - 1) as pool:
        others = [pool.submit(work) for work in works[1:]]
        return [works[0](), *(other.result() for other in others)]
