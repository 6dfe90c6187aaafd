"""Runs over CSR rows whose states do not fit the chip: spans of turns, each gone through twice (`spans.cu`).

What a span's records touch is listed once for a *crew*, the runs that share schedule, draws and steps. Then, span by
span: z where records meet it, slopes, and everything else with a part of the coordinates at a time on the chip. Several
runs of a crew stand in a block together and share its normals. A stretch is as many spans as there is room to list.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sottovoce._types import IntArray
from sottovoce.engine.gpu.machine import Machine
from sottovoce.engine.gpu.source import filled, struct

WORKERS = 320
"""Threads of a block, at the most: one for a run's counter."""
SEATS = 10
"""Places of a batch, unless a turn has more."""
PLACES = 256
"""Places of a span."""
FEW = 4
"""Nodes of a turn that is no plain mean."""
LISTED = 1 << 30
"""Bytes of lists."""
LISTING, SLOPES = 512, 128
"""Threads of a block that lists, and of one that finds a run's slopes."""


class Crew(NamedTuple):
    """Runs that share schedule, draws and steps."""

    runs: Any
    """Their structs."""
    turns: Any
    """Those that are to be gone through, on the machine."""
    places: Any

    @property
    def first(self) -> int:
        """The first turn, among all that were looked up."""
        return int(self.runs[0]["turns_first"])


class Shape(NamedTuple):
    """How runs are laid out in blocks."""

    together: int
    chunks: int
    counters: int
    seats: int
    turns: int
    """Of a batch."""
    room: int
    ahead: int
    """Bytes on the chip, for everything and for columns ahead of it."""


def shaped(machine: Machine, n: int, runs: int, widest: int, narrowest: int, linear: bool) -> Shape | None:
    """As many runs together as there is room for; None where not even one has it."""
    seats = max(SEATS, widest)
    turns = seats // max(1, narrowest)
    place, numbers, slept, turn = (struct(name).itemsize for name in ("Place", "Numbers", "Slept", "Turn"))
    one = seats * (16 + place + numbers) + turns * (16 + 16 * FEW + turn)
    for limit in (machine.room // 2 - 512, machine.room):
        for chunks in range(1, runs + 1):
            together = -(-runs // chunks)
            counters = WORKERS // together // machine.lanes * machine.lanes
            while counters:
                workers = together * counters
                room = one + n * 16 * workers + seats * (8 * counters + 12 * together) + 8 * workers
                room += 0 if linear else seats * (32 + slept)
                ahead = one + n * 4 * workers + 4 * (seats * (counters + together) + workers + counters)
                if room <= limit:
                    return Shape(together, -(-runs // together), counters, seats, turns, room, ahead)
                counters -= machine.lanes
    return None


def suits(options: Mapping[str, int], crews: Sequence[Crew]) -> bool:
    """Whether spans are known to these runs: CSR rows, x from z in closed form, few records a turn, few to mix."""
    if not options["SPARSE"] or options["ON_CHIP"] or options["DESCENT"] or options["AFTER"]:
        return False
    if options["FROZEN"] and not options["LINEAR"]:
        return False
    turns = [crew.turns for crew in crews]
    return all(bool(((t[:, 6] != 0) & ((t[:, 3] != 0) | (t[:, 1] <= FEW))).all()) for t in turns)


def crews_of(runs: Any, turns: Any, places: Any) -> list[Crew]:
    """Of runs that share schedule and draws: those with the same steps together."""
    some = turns[int(runs[0]["turns_first"]) : int(runs[0]["turns_last"])]
    kinds = np.unique(runs["numbers"])
    return [Crew(runs[runs["numbers"] == kind], some, places) for kind in kinds]


def run_spans(machine: Machine, crews: Sequence[Crew], indptr: Any, options: Mapping[str, int]) -> bool:
    """All turns of all crews; False, and nothing is done, where their states are too large for it."""
    xp, first = machine.xp, crews[0].runs[0]
    n, m, intercept = int(first["n"]), int(first["m"]), bool(first["intercept"])
    crews = [crew for crew in crews if len(crew.turns)]
    if not crews:
        return True
    sizes = [crew.turns[:, 1] for crew in crews]
    widest, narrowest = max(int(s.max()) for s in sizes), min(int(s.min()) for s in sizes)
    shape = shaped(machine, n, max(len(crew.runs) for crew in crews), widest, narrowest, bool(options["LINEAR"]))
    if shape is None:
        return False
    bounds = [_batches(machine, crew, shape.seats, widest, narrowest) for crew in crews]
    batched = max(len(b) - 1 for b in bounds)
    per = max(1, PLACES // shape.seats)
    firsts = np.arange(0, batched, per)
    most_entries = max(
        _most_entries(machine, crew, bound, per, indptr, intercept) for crew, bound in zip(crews, bounds, strict=True)
    )
    most_places = per * shape.seats
    bytes_of_span = 4 * (m + 2 + most_entries * 7 + most_places * (most_places + 1) + 2)
    listed = max(1, min(len(firsts), LISTED // (bytes_of_span * len(crews))))
    runs = np.concatenate([crew.runs for crew in crews])
    runs_there = machine.xp.empty(runs.nbytes, np.uint8)
    runs["self"] = machine.address(runs_there) + np.arange(len(runs), dtype=np.uint64) * np.uint64(runs.itemsize)
    runs_there[...] = machine.put(runs.view(np.uint8))
    there = filled("Crew", len(crews))
    room: dict[str, Any] = {
        "starts": xp.empty((len(crews), listed, m + 2), np.int32),
        "touched": xp.empty((len(crews), listed, most_entries), np.int32),
        "touches": xp.zeros((len(crews), listed), np.int32),
        "rows": xp.empty((len(crews), listed, most_places + 1), np.int32),
        "entries": xp.empty((len(crews), listed, most_entries, 2), np.int32),
        "spots": xp.empty((len(crews), listed, most_entries, 4), np.int32),
        "heard": xp.empty((len(crews), listed, most_places, most_places), np.float32),
    }
    held, at = [], 0
    for k, crew in enumerate(crews):
        bound = machine.put(bounds[k], np.int32)
        own = {name: values[k] for name, values in room.items()}
        own |= {"bounds": bound, "unpulled": xp.empty((len(crew.runs), most_entries), np.float32)}
        own |= {"pulls": xp.zeros((len(crew.runs), most_places), np.float32)}
        there[k]["runs"], there[k]["batched"] = len(crew.runs), len(bounds[k]) - 1
        there[k]["run"] = machine.address(runs_there) + at * runs.itemsize
        for name, values in own.items():
            there[k][name] = machine.address(values)
        held.append(own)
        at += len(crew.runs)
    all_there = machine.put(there.view(np.uint8))
    for begin in range(0, len(firsts), listed):
        some = firsts[begin : begin + listed]
        spans = filled("Span", len(some))
        spans["crews"], spans["first"], spans["batches"], spans["number"] = len(crews), some, per, np.arange(len(some))
        spans["together"], spans["chunks"], spans["counters"] = shape.together, shape.chunks, shape.counters
        spans["seats"], spans["turns"] = shape.seats, shape.turns
        spans["most_places"], spans["most_entries"] = most_places, most_entries
        spans["all"] = machine.address(all_there)
        given = machine.put(spans.view(np.uint8))
        blocks = len(crews) * len(some)
        machine.launch("span_lists", blocks, LISTING, 4 * (LISTING + 1 + most_places), given, options)
        machine.launch("span_weights", blocks, 256, 4 * 256 * n, given, options)
        touches = machine.get(room["touches"]).max(axis=0)
        spans["pieces"] = np.maximum(1, -(-touches[: len(some)] // shape.counters))
        given = machine.put(spans.view(np.uint8)).reshape(len(some), -1)
        parts, threads = -(-((m + 1) // 2) // shape.counters), shape.together * shape.counters
        most = max(len(crew.runs) for crew in crews)
        slopes = 4 * (5 * most_places + 1 + 2 * SLOPES)
        for k in range(len(some)):
            pieces = int(spans[k]["pieces"])
            machine.launch("span_ahead", len(crews) * shape.chunks * pieces, threads, shape.ahead, given[k], options)
            machine.launch("span_slopes", len(crews) * most, SLOPES, slopes, given[k], options)
            machine.launch("span_rounds", len(crews) * shape.chunks * parts, threads, shape.room, given[k], options)
        machine.wait()
    return True


def _batches(machine: Machine, crew: Crew, seats: int, widest: int, narrowest: int) -> IntArray:
    """(turn, place) at which batches begin, and the last one ends."""
    xp, turns = machine.xp, crew.turns
    width = seats // widest * widest if widest == narrowest else seats - widest + 1
    number = (turns[:, 0] - turns[0, 0]) // width
    fresh = xp.ones(len(turns), bool)
    fresh[1:] = number[1:] != number[:-1]
    begins = xp.flatnonzero(fresh)
    found = np.empty((len(begins) + 1, 2), np.int64)
    found[:-1, 0], found[:-1, 1] = crew.first + machine.get(begins), machine.get(turns[begins, 0])
    found[-1] = crew.first + len(turns), int(turns[-1, 0] + turns[-1, 1])
    return found


def _most_entries(machine: Machine, crew: Crew, bounds: IntArray, per: int, indptr: Any, intercept: bool) -> int:
    """How many entries the records of a span have, at the most."""
    xp, place = machine.xp, struct("Place")
    assert place.fields is not None
    low, high = int(bounds[0, 1]), int(bounds[-1, 1])
    whole = crew.places.view(np.int64).reshape(-1, place.itemsize // 8)[low:high]
    rows = whole[:, place.fields["row"][1] // 8]
    ends = xp.zeros(high - low + 1, np.int64)
    ends[1:] = xp.cumsum(xp.where(rows >= 0, indptr[rows + 1] - indptr[xp.maximum(rows, 0)] + int(intercept), 0))
    at = machine.put(np.append(bounds[:-1:per, 1], high) - low)
    return max(1, int(xp.diff(ends[at]).max()))
