"""Times taken in turn, and the lines of the table that they make."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

HEADS = ("what", "compared", "measured", "ratio", "target", "met")
WIDTHS = (42, 50, 22, 7, 11, 4)


class Work(NamedTuple):
    """Something to time, and how many rounds it does."""

    do: Callable[[], object]
    rounds: int


class Target(NamedTuple):
    """What a ratio, or a number of seconds, should lie between."""

    low: float = -math.inf
    high: float = math.inf
    unit: str = ""

    def __str__(self) -> str:
        if self.low == -math.inf:
            return f"≤ {self.high:g}{self.unit}"
        return f"≥ {self.low:g}{self.unit}" if self.high == math.inf else f"{self.low:g} … {self.high:g}{self.unit}"


@dataclass(frozen=True)
class Line:
    """One line of the table: two things, measured in the same run, and their ratio."""

    what: str
    compared: str
    above: float
    below: float
    unit: str
    target: Target | None = None
    judged: float | None = None
    """What the target is about, where it is not the ratio."""

    @property
    def ratio(self) -> float:
        """The first over the second."""
        return self.above / self.below

    @property
    def met(self) -> bool | None:
        """Whether the target is; None where there is none."""
        value = self.ratio if self.judged is None else self.judged
        return None if self.target is None else self.target.low <= value <= self.target.high

    def __str__(self) -> str:
        measured = f"{number(self.above)}, {number(self.below)} {self.unit}"
        verdict = {None: "", True: "yes", False: "NO"}[self.met]
        cells = (self.what, self.compared, measured, number(self.ratio), str(self.target or ""), verdict)
        return row(cells)


def row(cells: tuple[str, ...]) -> str:
    """Cells in columns."""
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def number(value: float) -> str:
    """Three digits."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


NOISE, TWICE = Target(high=40, unit=" ns"), Target(high=2)


def without_a_seed(what: str, secure: float, seeded: float, normals: int) -> Line:
    """Microseconds of a round without a seed beside one with: twice as many are allowed, or 40 ns for every normal.

    Where the latter is more, noise dominates, and what a normal takes is judged, all of the round counted.
    """
    compared, each = "a round without a seed / with one", 1e3 * secure / normals
    if NOISE.high * normals > 1e3 * TWICE.high * seeded:
        return Line(what, f"{compared}; ns a normal", secure, seeded, "µs", NOISE, each)
    return Line(what, compared, secure, seeded, "µs", TWICE)


def in_turn(works: Mapping[str, Work], repeats: int, clock: Callable[[], float] = time.thread_time) -> dict[str, float]:
    """The best time of each, in microseconds a round, all of them taken in turn.

    The clock is this thread's processor time, which does not run while others have the core; a wall clock is for
    work of several threads.
    """
    best = dict.fromkeys(works, math.inf)
    for _ in range(repeats):
        for name, work in works.items():
            began = clock()
            work.do()
            best[name] = min(best[name], (clock() - began) / work.rounds * 1e6)
    return best
