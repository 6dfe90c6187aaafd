"""Runs over dense rows whose turns have few nodes: teams in clusters of thread blocks (`clusters.cu`).

A team is the runs that share schedule, draws and steps. It is laid out over as many blocks as its states need chips,
and over more where there are blocks to spare; a team that is too large for a cluster is cut. How it is laid out changes
no bit.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from sottovoce_gpu.blocked_csr import Team
from sottovoce_gpu.machine import Machine
from sottovoce_gpu.source import filled, joined, struct

DEPTH, MIXED, BYGONE = 8, 4, 128
"""Places that wait on the chip, nodes of a turn, both at the most, and rounds of the tables that wait there."""
WARPS, HELPERS = (12, 16), 2
"""Warps of a block, for which there are registers; and how many of them bring things, at the least."""


class Layout(NamedTuple):
    """How runs stand in a cluster."""

    blocks: int
    seats: int
    """Runs."""
    tiles: int
    """Warps of a run in each block."""
    helpers: int
    depth: int
    """Places that wait on the chip."""
    room: int

    @property
    def warps(self) -> int:
        """Of a block."""
        return self.seats * self.tiles + self.helpers


def layout(machine: Machine, n: int, m: int, sizes: Sequence[int], upto: int, linear: bool) -> Layout | None:
    """For teams of these sizes with turns of up to so many nodes; None where not even one run has room."""
    whole = -(-((m + 1) // 2) // (4 * machine.lanes))
    metadata_bytes = 4 * MIXED * (MIXED + 1)
    metadata_bytes += sum(struct(name).itemsize for name in ("Place", "Numbers", "Slept", "About", "Turn"))
    fitting = []
    for blocks in range(1, machine.cluster + 1):
        tiles = -(-whole // blocks)
        if -(-whole // tiles) < blocks:  # as many tiles a block in fewer blocks
            continue
        for seats, depth in product(range(max(sizes), 0, -1), range(DEPTH, upto, -1)):
            # a filter knows of two times that it opens, not of three
            helpers = min(depth * tiles, _helpers(seats, tiles))
            if not helpers:
                continue
            wide = 2 * tiles * 4 * machine.lanes
            words = seats * 8 * (blocks * tiles + 1) + -(-(2 * seats + 1) * n // 4) * 4 + (2 * depth + seats * n) * wide
            room = depth * (16 + metadata_bytes) + 16 * seats + 4 * words + (0 if linear else 24 * BYGONE)
            if room <= machine.room:
                fitting.append(Layout(blocks, seats, tiles, helpers, depth, room))
                break
    if not fitting:
        return None
    most = max(each.seats for each in fitting)
    wanted = [each for each in fitting if each.seats == most]
    spare = [each for each in wanted if each.blocks * sum(-(-size // most) for size in sizes) <= machine.blocks]
    return spare[-1] if spare else wanted[0]


def _helpers(seats: int, tiles: int) -> int:
    """How many warps draw a place's tiles and bring its row; 0 where there are too many others."""
    for warps in WARPS:
        free = warps - seats * tiles
        if free >= max(HELPERS, tiles) or (free >= HELPERS and warps == WARPS[-1]):
            return min(free, max(HELPERS, tiles))
    return 0


def run_clusters(machine: Machine, teams: Sequence[Team], options: Mapping[str, int]) -> bool:
    """All turns of all teams; False, and nothing is done, where they are too large for it."""
    teams = [team for team in teams if len(team.turns)]
    if not teams:
        return True
    n, m = (int(teams[0].runs[0][name]) for name in ("n", "m"))
    shape = layout(machine, n, m, [len(team.runs) for team in teams], options["UPTO"], bool(options["LINEAR"]))
    if shape is None:
        return False
    there, at = with_self(machine, joined([team.runs for team in teams]))
    parts = [part for team in teams for part in cut(len(team.runs), shape.seats)]
    given = filled("Cluster", len(parts))
    given["runs"] = parts
    given["run"] = at[np.cumsum(given["runs"]) - given["runs"]]
    for name in ("seats", "tiles", "helpers", "depth"):
        given[name] = getattr(shape, name)
    threads = shape.warps * machine.lanes
    most = min(warps for warps in WARPS if warps >= shape.warps) * machine.lanes
    options = {**options, "SHORT": 1, "PER": 1, "MAX_THREADS": most}
    options |= {"CLUSTER": shape.blocks, "TILES": shape.tiles, "DEPTH": shape.depth}
    on_machine = machine.put(given.view(np.uint8))
    machine.launch("clusters", shape.blocks * len(parts), threads, shape.room, on_machine, options, long=True)
    del there  # it had to be there until now
    return True


def with_self(machine: Machine, runs: Any) -> tuple[Any, Any]:
    """The structs of runs on the machine, and where each lies, which it knows."""
    there = machine.xp.empty(runs.nbytes, np.uint8)
    runs["self"] = machine.address(there) + np.arange(len(runs), dtype=np.uint64) * np.uint64(runs.itemsize)
    there[...] = machine.put(runs.view(np.uint8))
    return there, runs["self"]


def cut(runs: int, seats: int) -> list[int]:
    """Sizes of the parts of a team, as equally as possible."""
    count = -(-runs // seats)
    return [(runs + k) // count for k in range(count)]
