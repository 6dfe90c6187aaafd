"""Nodes that are lost in a simulated run, and how the others go on: in epochs, each with fewer members.

A node that is lost in round t takes part in rounds 1 … t − 1 for the last time. Round t was in flight and is made anew
by the others, in an epoch that begins with it. Who is lost, and when, never depends on records.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sottovoce.errors import NetworkError
from sottovoce.network.activation import Everyone
from sottovoce.network.graphs import GRAPHS
from sottovoce.network.mixing import Averaging, Rule, Weights
from sottovoce.network.schedule import Schedule, draw_schedule
from sottovoce.registry import Choices, write


class Dropouts(Protocol):
    """Which nodes are lost."""

    @property
    def most(self) -> int:
        """How many."""

    def draw(self, n: int, rounds: int, rng: np.random.Generator) -> dict[int, int]:
        """Node -> the round in which it is lost."""


@dataclass(frozen=True)
class NoDropouts:
    """Every node stays."""

    def __str__(self) -> str:
        """In a spec."""
        return "none"

    @property
    def most(self) -> int:
        """None."""
        return 0

    def draw(self, n: int, rounds: int, rng: np.random.Generator) -> dict[int, int]:
        """Nothing is drawn."""
        return {}


@dataclass(frozen=True)
class RandomDropouts:
    """So many nodes, each in a round of its own choice; drawn with the schedule.

    Attributes
    ----------
    count : how many
    """

    count: int

    def __post_init__(self) -> None:
        """Nodes are counted."""
        if not isinstance(self.count, int) or self.count < 1:
            raise NetworkError(f"the number of lost nodes is a whole number, at least 1, not {self.count!r}")

    def __str__(self) -> str:
        """In a spec."""
        return write("random", self.count)

    @property
    def most(self) -> int:
        """As many."""
        return self.count

    def draw(self, n: int, rounds: int, rng: np.random.Generator) -> dict[int, int]:
        """Any of the nodes, in any of the rounds."""
        if self.count >= n:
            raise NetworkError(f"{self.count} of {n} nodes cannot be lost: nobody would be left; lose fewer")
        nodes = rng.choice(n, self.count, replace=False)
        return dict(zip(nodes.tolist(), rng.integers(1, rounds + 1, self.count).tolist(), strict=True))


@dataclass(frozen=True)
class NamedDropouts:
    """These nodes, in these rounds.

    Attributes
    ----------
    places : node, round, node, round, …
    """

    places: tuple[int, ...]

    def __post_init__(self) -> None:
        """Each node once."""
        nodes, rounds = self.places[::2], self.places[1::2]
        whole = all(isinstance(value, int) and value >= 0 for value in self.places)
        if not self.places or not whole or len(nodes) != len(rounds) or len(set(nodes)) < len(nodes):
            raise NetworkError("lost nodes are written as 'at(node, round, node, round)', each node once")

    def __str__(self) -> str:
        """In a spec."""
        return write("at", *self.places)

    @property
    def most(self) -> int:
        """As many as are named."""
        return len(self.places) // 2

    def draw(self, n: int, rounds: int, rng: np.random.Generator) -> dict[int, int]:
        """As written."""
        found = dict(zip(self.places[::2], self.places[1::2], strict=True))
        if max(found) >= n or not all(1 <= t <= rounds for t in found.values()) or len(found) >= n:
            raise NetworkError(
                f"'{self}' does not fit {n} nodes and {rounds} rounds; nodes count from 0, rounds from 1"
            )
        return found


def _at(*places: int) -> NamedDropouts:
    return NamedDropouts(places)


DROPOUTS: Choices[Dropouts] = Choices(
    "choice of lost nodes", {"none": NoDropouts, "random": RandomDropouts, "at": _at}, NetworkError
)
"""Every choice by name.

Examples
--------
>>> str(DROPOUTS.read("at(3, 100, 7, 250)")), DROPOUTS.read("random(2)").most
('at(3, 100, 7, 250)', 2)
"""
NO_DROPOUTS = NoDropouts()


def going_on(
    schedule: Schedule, lost: Mapping[int, int], rule: Rule, averaging: Averaging, rng: np.random.Generator
) -> Schedule:
    """The schedule of a run in which everybody speaks in every round, without the lost nodes from their rounds on."""
    if not lost:
        return schedule
    first = sorted({1, *lost.values()})
    counts, active, pattern = list[int](), [], []
    patterns: list[Weights] = []
    for t, until in zip(first, [*first[1:], schedule.T + 1], strict=True):
        members = np.array([i for i in range(schedule.n) if lost.get(i, schedule.T + 1) > t], dtype=np.int32)
        graph = GRAPHS.read("complete")(len(members))
        part = draw_schedule(graph, Everyone(), rule, until - t, rng, averaging)
        active.append(members[part.listed(1, part.T)])
        pattern.append(part.pattern + len(patterns))
        patterns += part.patterns
        counts += [len(members)] * part.T
    starts = np.concatenate([[0], np.cumsum(counts)])
    together = np.concatenate(active), np.concatenate(pattern).astype(np.int32), tuple(patterns)
    return Schedule(schedule.n, starts, *together, averaging=averaging)
