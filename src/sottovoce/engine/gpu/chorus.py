"""Everybody with a record each, over dense rows, where all stand at the same place: runs in chorus (`chorus.cu`).

A run is one z then, in registers. Those that share schedule, draws and steps go several in a block, which draws their
normals and brings their rows once. How many sing together changes no bit.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from sottovoce.engine.gpu.clusters import cut, with_self
from sottovoce.engine.gpu.machine import Machine
from sottovoce.engine.gpu.source import filled, joined, struct
from sottovoce.engine.gpu.spans import Crew

SEATS, COUNTERS = 5, 10
"""Runs of a block, and counters of all of its runs that a thread has registers for, both at the most."""
CROWD = 32
"""Nodes of a turn that the kernels have on their stage."""


def room_of(n: int, wide: int, warps: int) -> int:
    """Bytes of a block on the chip, with rows that are so wide there: for all seats, as the host's kernel has them."""
    place, about, numbers, slept, run = (struct(s).itemsize for s in ("Place", "About", "Numbers", "Slept", "Run"))
    hall = 2 * (CROWD * (place + about) + numbers + slept) + SEATS * run + 4 * CROWD * (3 * SEATS + 1)
    return -(-hall // 16) * 16 + 4 * (SEATS * CROWD * warps + n * wide)


def run_chorus(machine: Machine, crews: Sequence[Crew], options: Mapping[str, int]) -> bool:
    """All turns of all crews, whose nodes stand alike; False, and nothing is done, where rows have no room."""
    crews = [crew for crew in crews if len(crew.turns)]
    if not crews:
        return True
    threads, n = options["MOST"], int(crews[0].runs[0]["n"])
    room = room_of(n, 2 * options["PER"] * threads, -(-threads // machine.lanes))
    if room > machine.room:
        return False
    seats = min(SEATS, max(1, COUNTERS // options["PER"]), max(len(crew.runs) for crew in crews))
    there, at = with_self(machine, joined([crew.runs for crew in crews]))
    parts = [part for crew in crews for part in cut(len(crew.runs), seats)]
    given = filled("Chorus", len(parts))
    given["runs"] = parts
    given["run"] = at[np.cumsum(given["runs"]) - given["runs"]]
    options = {**options, "SHORT": 1, "SEATS": seats}
    machine.launch("chorus", len(parts), threads, room, machine.put(given.view(np.uint8)), options, long=True)
    del there  # it had to be there until now
    return True
