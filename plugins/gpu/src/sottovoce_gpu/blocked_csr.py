"""Runs over CSR rows whose states do not fit the chip: spans of turns, each processed twice (`blocked_csr.cu`).

What a span's records touch is listed once for a *team*, the runs that share schedule, draws and steps. Then, span by
span: z where records meet it, slopes, and everything else with a part of the coordinates at a time on the chip. Several
runs of a team stand in a block together and share its normals. A stretch is as many spans as there is room to list.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sottovoce._types import IntArray
from sottovoce_gpu.machine import Machine
from sottovoce_gpu.source import filled, struct

WORKERS = 320
"""Threads of a block, at the most: one for a run's counter."""
SEATS = 10
"""Places of a batch, unless a turn has more."""
PART = 128
"""Bytes about a block's part, at the most."""
CACHED = 128
"""Entries of a part that wait on the chip."""
PLACES = 256
"""Places of a span."""
MIN_SPANS = 4
"""Nodes of a turn that is no plain mean."""
LISTED = 1 << 30
"""Bytes of lists."""
LISTING, SCRIPTS, SLOPES = 512, 256, 256
"""Threads of a block that lists, of one that writes scripts, and of one that finds a run's slopes."""


class Team(NamedTuple):
    """Runs that share schedule, draws and steps."""

    runs: Any
    """Their structs."""
    turns: Any
    """Those that are to be processed, on the machine."""
    places: Any

    @property
    def first(self) -> int:
        """The first turn, among all that were fetched."""
        return int(self.runs[0]["turns_first"])


class Shape(NamedTuple):
    """How runs are laid out in blocks."""

    together: int
    chunks: int
    counters: int
    seats: int
    turns: int
    """Of a batch."""
    batches: int
    """Of a span."""
    room: int
    ahead: int
    """Bytes on the chip, for everything and for columns ahead of it."""


def shaped(machine: Machine, n: int, runs: int, widest: int, narrowest: int, linear: bool) -> Shape | None:
    """As many runs together as there is room for, two blocks a chip if possible; None where not even one run has it."""
    seats = max(SEATS, widest)
    turns, batches = seats // max(1, narrowest), max(1, PLACES // seats)
    beside = PART + 3 * 32 * seats + 2 * turns * (16 + 4 * MIN_SPANS * MIN_SPANS) + 8 * (batches + 1)
    for limit in (machine.room // 2 - 512, machine.room):
        for chunks in range(1, runs + 1):
            together = -(-runs // chunks)
            for counters in range(WORKERS // together // machine.lanes * machine.lanes, 0, -machine.lanes):
                workers, metadata_bytes = together * counters, 16 * together * seats
                room = beside + metadata_bytes + workers * (16 * n + 8) + 16 * seats * counters + 8 * CACHED
                room += 0 if linear else 64 * seats
                ahead = beside + metadata_bytes + workers * (4 * n + 4) + 8 * seats * counters + 4 * counters
                if room <= limit:
                    return Shape(together, -(-runs // together), counters, seats, turns, batches, room, ahead)
    return None


def suits(options: Mapping[str, int], teams: Sequence[Team]) -> bool:
    """Whether spans are known to these runs: CSR rows, x from z in closed form, few records a turn, few to mix."""
    if not options["SPARSE"] or options["DESCENT"] or options["AFTER"]:
        return False
    if options["FROZEN"] and not options["LINEAR"]:
        return False
    turns = [team.turns for team in teams]
    return all(bool(((t[:, 6] != 0) & ((t[:, 3] != 0) | (t[:, 1] <= MIN_SPANS))).all()) for t in turns)


def teams_of(runs: Any, turns: Any, places: Any) -> list[Team]:
    """Of runs that share schedule and draws: those with the same steps together."""
    whole = turns.view(np.int32).reshape(-1, struct("Turn").itemsize // 4)
    some = whole[int(runs[0]["turns_first"]) : int(runs[0]["turns_last"])]
    kinds = np.unique(runs["numbers"])
    return [Team(runs[runs["numbers"] == kind], some, places) for kind in kinds]


def run_spans(
    machine: Machine, teams: Sequence[Team], z: Any, total: Any, indptr: Any, options: Mapping[str, int]
) -> bool:
    """All turns of all teams, whose states these are; False, and nothing is done, where they are too large for it."""
    teams = [team for team in teams if len(team.turns)]
    if not teams:
        return True
    sizes, first = [team.turns[:, 1] for team in teams], teams[0].runs[0]
    widest, narrowest = max(int(s.max()) for s in sizes), min(int(s.min()) for s in sizes)
    runs, n = max(len(team.runs) for team in teams), int(first["n"])
    identical = 2 < n == widest == narrowest and all(_are_identical(team, n) for team in teams)
    identical = identical and all(bool((values == values[:, :1]).all()) for values in (z, total))
    shape = shaped(machine, 1 if identical else n, runs, widest, narrowest, bool(options["LINEAR"]))
    if shape is None:
        return False
    bounds = [_batches(machine, team, shape.seats, widest, narrowest) for team in teams]
    both, extra = list(zip(teams, bounds, strict=True)), int(bool(first["intercept"]))
    per, last = shape.batches, max(len(bound) - 1 for bound in bounds)
    room = _room(machine, both, shape, max(_most_entries(machine, *b, per, indptr, extra) for b in both))
    for begin in range(0, last, per * room.spans):
        batches = np.arange(begin, min(last, begin + per * room.spans), per)
        _go_through(machine, room, shape, batches, runs, identical, {**options, "SHORT": 1, "SPANS": 1})
    if identical:
        z[:, 1:], total[:, 1:] = z[:, :1], total[:, :1]
    return True


def _are_identical(team: Team, n: int) -> bool:
    """Whether all nodes of a turn have slept since the same round, from the first turn on, and average."""
    begin, place = int(team.turns[0, 0]), struct("Place")
    assert place.fields is not None
    whole = team.places.view(np.int32).reshape(-1, place.itemsize // 4)
    before = whole[begin : begin + n, place.fields["before"][1] // 4]
    return bool((before == before[0]).all()) and bool((team.turns[:, 3] != 0).all())


class Room(NamedTuple):
    """Where a stretch of spans is listed, on the machine."""

    teams: int
    n: int
    m: int
    spans: int
    most_places: int
    most_turns: int
    most_entries: int
    touches: Any
    there: Any
    """The teams' structs."""
    kept: list[Any]
    """What they point to."""


def _room(machine: Machine, both: Sequence[tuple[Team, IntArray]], shape: Shape, most_entries: int) -> Room:
    """For as many spans as it may hold."""
    xp, count = machine.xp, len(both)
    most_places, most_turns = shape.batches * shape.seats, shape.batches * shape.turns
    runs = np.concatenate([team.runs for team, _ in both])
    n, m = (int(both[0][0].runs[0][name]) for name in ("n", "m"))
    shapes: dict[str, tuple[int, ...]] = {
        "starts": (m + 2,),
        "touched": (most_entries,),
        "touches": (),
        "rows": (most_places + 1,),
        "entries": (most_entries, 2),
        "spots": (most_entries, 4),
        "heard": (most_places, most_places),
        "seats": (most_places, 8),
        "heads": (most_turns, 4 + MIN_SPANS * MIN_SPANS),
        "drowsy": (most_places, 8),
        "meta": (max(len(team.runs) for team, _ in both), most_places, 2),
    }
    one = 4 * count * sum(int(np.prod(of)) for of in shapes.values())
    spans = max(1, min(LISTED // one, -(-max(int(bound[-1, 1] - bound[0, 1]) for _, bound in both) // most_places) + 1))
    lists = {name: xp.zeros((count, spans, *of), np.int32) for name, of in shapes.items()}
    there, kept = xp.empty(runs.nbytes, np.uint8), [lists]
    runs["self"] = machine.address(there) + np.arange(len(runs), dtype=np.uint64) * np.uint64(runs.itemsize)
    there[...] = machine.put(runs.view(np.uint8))
    teams, at = filled("Team", count), machine.address(there)
    for k, (team, bound) in enumerate(both):
        own = {name: values[k] for name, values in lists.items()}
        own["bounds"] = machine.put(bound, np.int32)
        own["unpulled"] = xp.zeros((len(team.runs), most_entries), np.float32)
        teams[k]["runs"], teams[k]["batched"], teams[k]["run"] = len(team.runs), len(bound) - 1, at
        for name, values in own.items():
            teams[k][name] = machine.address(values)
        kept.append(own)
        at += len(team.runs) * runs.itemsize
    all_there = machine.put(teams.view(np.uint8))
    kept.append({"runs": there})
    return Room(count, n, m, spans, most_places, most_turns, most_entries, lists["touches"], all_there, kept)


def _go_through(
    machine: Machine,
    room: Room,
    shape: Shape,
    batches: IntArray,
    runs: int,
    identical: bool,
    options: Mapping[str, int],
) -> None:
    """The spans that begin with these batches: what they touch first, and then sequentially."""
    spans = filled("Span", len(batches))
    spans["teams"], spans["first"], spans["batches"] = room.teams, batches, shape.batches
    spans["number"] = np.arange(len(batches))
    spans["together"], spans["chunks"], spans["counters"] = shape.together, shape.chunks, shape.counters
    spans["seats"], spans["turns"] = shape.seats, shape.turns
    spans["most_places"], spans["most_turns"], spans["most_entries"] = room[4:7]
    spans["identical"] = identical
    spans["all"] = machine.address(room.there)
    given = machine.put(spans.view(np.uint8))
    blocks = room.teams * len(batches)
    machine.launch("span_lists", blocks, LISTING, 4 * (LISTING + 1 + room.most_places), given, options)
    machine.launch("span_scripts", blocks, SCRIPTS, 4 * SCRIPTS * room.n, given, options)
    touches = machine.get(room.touches)[:, : len(batches)].max(axis=0)
    spans["pieces"] = np.maximum(1, -(-touches // shape.counters))
    given = machine.put(spans.view(np.uint8)).reshape(len(spans), -1)
    threads, chunks = shape.together * shape.counters, room.teams * shape.chunks
    parts, slopes = -(-((room.m + 1) // 2) // shape.counters), 4 * (5 * room.most_places + 1 + 2 * SLOPES)
    for one, pieces in zip(given, spans["pieces"].tolist(), strict=True):
        machine.launch("span_ahead", chunks * pieces, threads, shape.ahead, one, options)
        machine.launch("span_slopes", room.teams * runs, SLOPES, slopes, one, options)
        machine.launch("span_rounds", chunks * parts, threads, shape.room, one, options, long=True)


def _batches(machine: Machine, team: Team, seats: int, widest: int, narrowest: int) -> IntArray:
    """(turn, place) at which batches begin, and the last one ends."""
    xp, turns = machine.xp, team.turns
    width = seats // widest * widest if widest == narrowest else seats - widest + 1
    number = (turns[:, 0] - turns[0, 0]) // width
    fresh = xp.ones(len(turns), bool)
    fresh[1:] = number[1:] != number[:-1]
    begins = xp.flatnonzero(fresh)
    found = np.empty((len(begins) + 1, 2), np.int64)
    found[:-1, 0], found[:-1, 1] = team.first + machine.get(begins), machine.get(turns[begins, 0])
    found[-1] = team.first + len(turns), int(turns[-1, 0] + turns[-1, 1])
    return found


def _most_entries(machine: Machine, team: Team, bounds: IntArray, per: int, indptr: Any, extra: int) -> int:
    """How many entries the records of a span have, at the most."""
    xp, place = machine.xp, struct("Place")
    assert place.fields is not None
    low, high = int(bounds[0, 1]), int(bounds[-1, 1])
    whole = team.places.view(np.int64).reshape(-1, place.itemsize // 8)[low:high]
    rows = whole[:, place.fields["row"][1] // 8]
    ends = xp.zeros(high - low + 1, np.int64)
    ends[1:] = xp.cumsum(xp.where(rows >= 0, indptr[rows + 1] - indptr[xp.maximum(rows, 0)] + extra, 0))
    at = machine.put(np.append(bounds[:-1:per, 1], high) - low)
    return max(1, int(xp.diff(ends[at]).max()))
