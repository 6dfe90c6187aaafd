"""Everybody with a record each, over dense rows, where all stand at the same place: runs in one batch (`all_nodes.cu`).

A run is one z then, in registers. Those that share schedule, draws and steps go several in a block, which draws their
normals and brings their rows once. How many run together changes no bit.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from sottovoce_gpu.blocked_csr import Team
from sottovoce_gpu.clusters import cut, with_self
from sottovoce_gpu.machine import Machine
from sottovoce_gpu.source import filled, joined, struct

SEATS, COUNTERS = 5, 10
"""Runs of a block, and counters of all of its runs that a thread has registers for, both at the most."""
STAGE_NODES = 32
"""Nodes of a turn that the kernels have on their stage."""


def room_of(n: int, wide: int, warps: int) -> int:
    """Bytes of a block on the chip, with rows that are so wide there: for all seats, as the host's kernel has them."""
    place, about, numbers, slept, run = (struct(s).itemsize for s in ("Place", "About", "Numbers", "Slept", "Run"))
    hall = 2 * (STAGE_NODES * (place + about) + numbers + slept) + SEATS * run + 4 * STAGE_NODES * (3 * SEATS + 1)
    return -(-hall // 16) * 16 + 4 * (SEATS * STAGE_NODES * warps + n * wide)


def run_all_nodes(machine: Machine, teams: Sequence[Team], options: Mapping[str, int]) -> bool:
    """Run all turns of all teams whose nodes are at the same point; return False if rows have no room."""
    teams = [team for team in teams if len(team.turns)]
    if not teams:
        return True
    threads, n = options["MAX_THREADS"], int(teams[0].runs[0]["n"])
    room = room_of(n, 2 * options["PER"] * threads, -(-threads // machine.lanes))
    if room > machine.room:
        return False
    seats = min(SEATS, max(1, COUNTERS // options["PER"]), max(len(team.runs) for team in teams))
    there, at = with_self(machine, joined([team.runs for team in teams]))
    parts = [part for team in teams for part in cut(len(team.runs), seats)]
    given = filled("AllNodes", len(parts))
    given["runs"] = parts
    given["run"] = at[np.cumsum(given["runs"]) - given["runs"]]
    options = {**options, "SHORT": 1, "SEATS": seats}
    machine.launch("all_nodes", len(parts), threads, room, machine.put(given.view(np.uint8)), options, long=True)
    del there  # it had to be there until now
    return True
