"""From rows to rankings: means with 95 % intervals over seeds, one ranking for each adversary, never across them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sottovoce.experiments.compare.study import Row
from sottovoce.experiments.paper.intervals import Interval

ADVERSARIES = ("transcript", "secret_pairs", "central")
"""From the one who sees most to the one who sees least."""
COLUMNS = {"suboptimality": "F(model) − F*", "test_accuracy": "test accuracy"}
"""What is drawn of a line, and what it is called."""
TUNED = "step sizes chosen by looking at the private data: no (ε, δ) holds for them"


@dataclass(frozen=True)
class Line:
    """One algorithm at one budget, on one data set, over all seeds."""

    data: str
    epsilon: float
    delta: float
    adversary: str
    algorithm: str
    tuned: bool
    rank: int
    tied: bool
    """Whether its interval meets that of the one before it in the ranking."""
    objective: Interval
    suboptimality: Interval
    test_accuracy: Interval
    true_epsilon: float
    pure: bool
    bytes: float
    seconds: float


def summarise(rows: list[Row]) -> list[Line]:
    """Rank the algorithms of each (data, ε, adversary) by the mean of their objective; tuned ones apart."""
    groups: dict[tuple[str, float, str, bool], dict[str, list[Row]]] = {}
    for row in rows:
        group = row["data"], row["epsilon"], row["adversary"], row["tuned"]
        groups.setdefault(group, {}).setdefault(row["algorithm"], []).append(row)
    lines = []
    for group in sorted(groups, key=lambda g: (g[0], g[1], ADVERSARIES.index(g[2]), g[3])):
        before: Interval | None = None
        ranked = sorted(groups[group].items(), key=lambda item: float(np.mean([r["objective"] for r in item[1]])))
        for rank, (name, mine) in enumerate(ranked, 1):
            line = _line(group, name, mine, rank, before)
            before = line.objective
            lines.append(line)
    return lines


def order(lines: Sequence[Line]) -> list[str]:
    """Algorithms by their rank at the largest ε."""
    return list(dict.fromkeys(x.algorithm for x in sorted(lines, key=lambda x: (-x.epsilon, x.rank))))


def shown(found: Interval) -> str:
    """A mean with its interval; one run has none, and what was not measured is a dash."""
    if math.isnan(found.mean):
        return "–"
    return str(found) if found.seeds > 1 else f"{found.mean:.4g}"


def _line(group: tuple[str, float, str, bool], name: str, rows: list[Row], rank: int, before: Interval | None) -> Line:
    data, epsilon, adversary, tuned = group
    found = {column: Interval.of(_column(rows, column)) for column in ("objective", "suboptimality", "test_accuracy")}
    return Line(
        data=data,
        epsilon=epsilon,
        delta=max(row["delta"] for row in rows),
        adversary=adversary,
        algorithm=name,
        tuned=tuned,
        rank=rank,
        tied=before is not None and before.high >= found["objective"].low,
        true_epsilon=float(np.max(_column(rows, "true_epsilon"))),
        pure=all(row["pure"] for row in rows),
        bytes=float(np.mean(_column(rows, "bytes"))),
        seconds=float(np.mean(_column(rows, "seconds"))),
        **found,
    )


def _column(rows: list[Row], name: str) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.array([row[name] for row in rows], dtype=np.float64)
