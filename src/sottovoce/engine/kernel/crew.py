"""Threads that go through the same rounds together, each with working memory of its own.

Every thread runs the whole kernel, and takes of a round what nobody else has taken: nodes that wake, stretches of
coordinates in which they speak. Where few nodes have many records, the records of each are gone through in parts, in
turn, and the sums of the parts are added in their order: how many parts there are follows from the data, and so no
number that comes out depends on how many threads there are, or on which was first.

What a thread writes lies by itself in memory, also where it is the only one of its run, and another run goes on beside
it: a line that two of them want is sent to and fro between their caches.

Between two steps they meet: who comes first waits, turning on the spot, because a step takes less time than the system
needs to wake a thread; after a while it offers its processor to others.
"""

import sys
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from sottovoce.engine.kernel.arguments import LINE, Data, Noise, Plan, Scratch, exact, in_lines
from sottovoce.engine.kernel.bundles import bundle

HERE, TURN, GONE, NEXT = range(4)
"""Places of the gate: how many have come, how often all have met, whether one will not come, what is taken next."""
PATIENCE = 2000
"""Looks at the gate before a thread offers its processor to others."""
MOST = 8
"""Parts of a node's records, at the most; and nodes from which on there is enough to share out without parts."""
WORTH = 32
"""Numbers of records for every number of a sum that a part has, or two parts together: sums must be added."""
ALONE = 1 << 17
"""Numbers of records and noise in a round below which meeting takes longer than it saves."""
DISTANCE = 1 << 12
"""Bytes between what two threads write: a processor asks ahead for memory that follows what it reads, within a page."""
APART = "x y g records taken words normals mixed sums wide heard block pulls about slopes shares mean kept".split()
"""What of the working memory each thread has to itself; the rest has a place for every node."""


@bundle
class Crew(NamedTuple):
    """What one of some threads knows of all."""

    me: int
    size: int
    gate: Any
    parts: int
    sums: Any
    """(parts, m and some more) what the records of each part pull, apart from one another; empty where there is one."""


@intrinsic
def _add(typing, gate, place, much):
    """What was at a place before this much was added, in one step."""

    def code(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.gep(array.data, [arguments[1]])
        return builder.atomic_rmw("add", pointer, arguments[2], "seq_cst")

    return types.int64(gate, types.intp, types.int64), code


@intrinsic
def _offer(typing):
    """Let the system run somebody else."""

    def code(context, builder, signature, arguments):
        if sys.platform != "win32":  # there a run has one thread
            shape = ir.FunctionType(ir.IntType(32), [])
            builder.call(cgutils.get_or_insert_function(builder.module, shape, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), code


@exact
def meet(crew):
    """Wait until all threads are here; gives whether they are, and not that one will never come."""
    if crew.size == 1:
        return True
    turn, looks = _add(crew.gate, TURN, 0), 0
    if _add(crew.gate, HERE, 1) == crew.size - 1:
        _add(crew.gate, HERE, -crew.size)
        _add(crew.gate, NEXT, -_add(crew.gate, NEXT, 0))
        _add(crew.gate, TURN, 1)
        return True
    while _add(crew.gate, TURN, 0) == turn:
        if _add(crew.gate, GONE, 0) != 0:
            return False
        looks += 1
        if looks > PATIENCE:
            _offer()
    return True


@exact
def claim(crew, last):
    """The next piece of work that nobody has taken; of a thread that is alone, the one after its last."""
    return last + 1 if crew.size == 1 else _add(crew.gate, NEXT, 1)


def make_crew(data: Data, plan: Plan, noise: Noise, m: int, outputs: int, most: int, single: bool) -> list[Crew]:
    """As many threads as there is work for, `most` of them at the most; a `single` one where rounds are of few records.

    The number of parts follows from the data alone.
    """
    rows = max(1, len(data.y))
    entries = (data.values.size if data.sparse else data.X.size) / rows  # of a row
    records = noise.batch.astype(np.float64)
    parts = 1
    if plan.widest < MOST and not single:
        worth = records.min() * entries * outputs / (WORTH * m)
        parts = int(min(MOST, max(worth, 2.0 if worth >= 1.0 else 1.0)))
    mean = plan.starts[-1] / max(1, len(plan.starts) - 1) / len(records)  # of the nodes that are active
    numbers = mean * (records.sum() * entries * outputs + len(records) * m)
    size = min(most, max(parts, plan.widest)) if numbers >= ALONE and not single and sys.platform != "win32" else 1
    gate = in_lines((len((HERE, TURN, GONE, NEXT)),), np.int64)
    stretch = DISTANCE // np.dtype(np.float64).itemsize
    sums = in_lines((parts if parts > 1 else 0, -(-m // stretch) * stretch), np.float64)
    return [Crew(me, size, gate, parts, sums) for me in range(size)]


def apart(scratch: Scratch) -> Scratch:
    """The working memory of one thread: all of it in one stretch, with nobody else's beside it."""
    given = {name: getattr(scratch, name) for name in APART}
    ends = np.cumsum([-(-values.nbytes // LINE) * LINE for values in given.values()]).tolist()
    room = in_lines((DISTANCE + ends[-1] + DISTANCE,), np.uint8)
    return scratch._replace(
        **{
            name: _copy(values, room[DISTANCE + begin :])
            for (name, values), begin in zip(given.items(), [0, *ends[:-1]], strict=True)
        }
    )


def _copy(values: NDArray[Any], room: NDArray[np.uint8]) -> NDArray[Any]:
    made = room[: values.nbytes].view(values.dtype).reshape(values.shape)
    made[...] = values
    return made
