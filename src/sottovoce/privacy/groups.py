"""Nodes with the same guarantee: events that differ in little are accounted for together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sottovoce.privacy.event import Event

LEVELS = 4  # nodes that differ only in how often they spoke are accounted at this many counts, each rounded up

Grouped = Sequence[tuple[Event, tuple[int, ...]]]
"""Events, and the nodes that each belongs to."""


@dataclass(frozen=True)
class Group:
    """Nodes with the same guarantee: their event, with the largest count among them, and its ε."""

    nodes: tuple[int, ...]
    event: Event
    epsilon: float


def grouped_by_event(events: list[Event]) -> list[tuple[Event, tuple[int, ...]]]:
    """Nodes whose events differ in their count alone, at a few counts each rounded up: more is never less private."""
    kinds: dict[Event, list[int]] = {}
    for i, event in enumerate(events):
        kinds.setdefault(replace(event, rounds=0), []).append(i)
    result: list[tuple[Event, tuple[int, ...]]] = []
    for nodes in kinds.values():
        counts = sorted({events[i].rounds for i in nodes})
        levels = counts[len(counts) - 1 :: -max(1, math.ceil(len(counts) / LEVELS))][::-1]
        for low, high in zip([-1, *levels], levels, strict=False):
            mine = tuple(i for i in nodes if low < events[i].rounds <= high)
            result.append((replace(events[mine[0]], rounds=high), mine))
    return result
