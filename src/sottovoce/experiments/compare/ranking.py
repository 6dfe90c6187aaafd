"""From rows to rankings: means with 95 % intervals over seeds, one ranking for each adversary, never across them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sottovoce._types import Array
from sottovoce.experiments.compare.metrics import METRICS
from sottovoce.experiments.table import Row
from sottovoce.figure import Figure, Interval, Ranking, draw
from sottovoce.privacy.release import ADVERSARIES

COLOURS = {"transcript": "#0072b2", "secret_pairs": "#009e73", "central": "#d55e00"}
"""From the one who sees most to the one who sees least, each with a color; by name, whatever its numbers are."""
COLUMNS = {
    "suboptimality": "F(model) − F*",
    "test_accuracy": "test accuracy",
    "test_auc": "test AUC",
    "test_balanced_accuracy": "balanced accuracy",
}
"""What is printed of a line, and what it is called."""
DRAWN = ("suboptimality", "test_accuracy")
"""What is drawn of it."""
TUNED = "settings chosen by looking at the private data: no (ε, δ) holds for them, not private"


@dataclass(frozen=True)
class Line:
    """One algorithm at one budget, on one data set, over all seeds."""

    data: str
    partition: str
    epsilon: float
    delta: float
    adversary: str
    algorithm: str
    tuned: bool
    rank: int
    tied: bool
    """Whether the paired differences to the one before it in the ranking do not distinguish them."""
    behind: Interval
    """What is ranked, less that of the one before it, seed by seed; not a number for the first."""
    objective: Interval
    suboptimality: Interval
    test_accuracy: Interval
    test_auc: Interval
    """Of two classes; not a number for others."""
    test_balanced_accuracy: Interval
    test_average_precision: Interval
    metrics: dict[str, Interval]
    """Those of plug-ins."""
    true_epsilon: float
    pure: bool
    bytes: float
    seconds: float
    protocol: str
    """How it was tuned; empty where it was not."""
    search_epsilon: float
    """Of a tuned one: ε that a private search over the same settings would cost, its scores not counted."""

    @property
    def what(self) -> str:
        """The data, and how it is partitioned unless that is evenly."""
        return self.data if self.partition == "even" else f"{self.data}, {self.partition}"


def adversaries(lines: Sequence[Line]) -> list[str]:
    """Those of the lines, from the one who sees most to the one who sees least."""
    return sorted({line.adversary for line in lines}, key=_less)


def _less(adversary: str) -> tuple[int, int]:
    """The later, the less it sees: of secret pairs, the fewer of their nodes collude."""
    k = getattr(ADVERSARIES.read(adversary), "k", None)
    return list(COLOURS).index(ADVERSARIES.read(adversary).name), -k if isinstance(k, int) else 0


Group = tuple[str, str, float, str, bool]
"""(data, partition, ε, adversary, tuned)."""


def summarize(rows: list[Row]) -> list[Line]:
    """Rank the algorithms of each (data, partition, ε, adversary) by the mean of their objective.

    Tuned ones are ranked apart, by what they are tuned for: accuracy on test records, where they have one. Neighbors
    are tied unless the 95 % interval of their paired differences, seed by seed, leaves 0 out.
    """
    groups: dict[Group, dict[str, list[Row]]] = {}
    for row in rows:
        group = row["data"], row.get("partition", "even"), row["epsilon"], row["adversary"], row["tuned"]
        groups.setdefault(group, {}).setdefault(row["algorithm"], []).append(row)
    lines = []
    for group in sorted(groups, key=lambda g: (*g[:3], _less(g[3]), g[4])):
        before: list[Row] = []
        ranked = sorted(groups[group].items(), key=lambda item: float(np.mean(_losses(item[1]))))
        for rank, (name, mine) in enumerate(ranked, 1):
            behind = _behind(before, mine)
            lines.append(_line(group, name, mine, rank, rank > 1 and not behind.low > 0, behind))
            before = mine
    return lines


def _losses(rows: Sequence[Row]) -> Array:
    """What is ranked, the least first: the objective, or the share of wrong test records."""
    wrong = 1.0 - _column(rows, "test_accuracy")
    return wrong if rows and rows[0]["tuned"] and not np.any(np.isnan(wrong)) else _column(rows, "objective")


def _behind(one: Sequence[Row], other: Sequence[Row]) -> Interval:
    """By how much the runs of the same seeds put the second behind the first; not a number where none are paired."""
    first, second = ({r["seed"]: loss for r, loss in zip(rows, _losses(rows), strict=True)} for rows in (one, other))
    seeds = sorted(set(first) & set(second))
    return Interval.of([second[seed] - first[seed] for seed in seeds]) if seeds else Interval(math.nan, math.nan, 0)


def order(lines: Sequence[Line]) -> list[str]:
    """Algorithms by their rank at the largest ε."""
    return list(dict.fromkeys(x.algorithm for x in sorted(lines, key=lambda x: (-x.epsilon, x.rank))))


def shown(found: Interval) -> str:
    """A mean with its interval; one run has none, and what was not measured is a dash."""
    if math.isnan(found.mean):
        return "–"
    return str(found) if found.seeds > 1 else f"{found.mean:.4g}"


def tuned_words(line: Line) -> str:
    """How a line was tuned, and what that would cost."""
    search = f"; a private search over them would cost ε ≥ {line.search_epsilon:.3g}"
    return f"{line.protocol}; {TUNED}{'' if math.isnan(line.search_epsilon) else search}"


def draw_ranking(lines: Sequence[Line], path: Path | str, width: float | None = None) -> Path:
    """Draw one data set's lines into a PNG, PDF or SVG file, by the ending of its path.

    Parameters
    ----------
    lines : of one data set and partition, from `summarize`; tuned ones are left out
    path : where
    width : of the figure in inches
    """
    return draw(figure(lines), path, width)


def figure(lines: Sequence[Line]) -> Figure:
    """One data set's lines but the tuned: a row for each adversary, the best on top, and a column for each number."""
    fair = [line for line in lines if not line.tuned]
    known = [name for name in DRAWN if any(math.isfinite(getattr(line, name).mean) for line in fair)]
    rows = []
    for adversary in adversaries(fair):
        mine = [line for line in fair if line.adversary == adversary]
        rows.append(tuple(_ranking(mine, column, fair) for column in known))
    budget = ", ".join(f"{epsilon:g}" for epsilon in _budgets(fair))
    seeds = max(line.objective.seeds for line in fair)
    data, delta = fair[0].what, fair[0].delta
    return Figure(data, f"{data}: ε = {budget}, δ = {delta:g}, {seeds} seeds, 95 % intervals", tuple(rows))


def _ranking(lines: Sequence[Line], column: str, all_lines: Sequence[Line]) -> Ranking:
    """One adversary's panel; those below each other share their axis, so that all lines decide about it."""
    adversary = lines[0].adversary
    return Ranking(
        name=f"{lines[0].what}-{adversary}-{column}",
        title=f"'{adversary}' sees {ADVERSARIES.read(adversary).sees}",
        label=COLUMNS[column],
        order=tuple(order(lines)),
        groups={
            f"ε = {epsilon:g}": {
                line.algorithm: _ends(getattr(line, column), column) for line in lines if line.epsilon == epsilon
            }
            for epsilon in _budgets(all_lines)
        },
        color=COLOURS[ADVERSARIES.read(adversary).name],
        log=column == "suboptimality" and all(line.suboptimality.mean > 0 for line in all_lines),
    )


def _budgets(lines: Sequence[Line]) -> list[float]:
    return sorted({line.epsilon for line in lines})


def _ends(found: Interval, column: str) -> tuple[float, float, float]:
    """(mean, low, high); a share of records that are right is not below 0 nor above 1."""
    if column.startswith("test_") and 0 <= found.mean <= 1:
        return found.mean, max(found.low, 0.0), min(found.high, 1.0)
    return found.mean, found.low, found.high


def _line(group: Group, name: str, rows: list[Row], rank: int, tied: bool, behind: Interval) -> Line:
    data, partition, epsilon, adversary, tuned = group
    figures = [name for name in Line.__dataclass_fields__ if name.startswith("test_")]
    found = {column: Interval.of(_column(rows, column)) for column in ("objective", "suboptimality", *figures)}
    return Line(
        data=data,
        partition=partition,
        epsilon=epsilon,
        delta=max(row["delta"] for row in rows),
        adversary=adversary,
        algorithm=name,
        tuned=tuned,
        rank=rank,
        tied=tied,
        behind=behind,
        true_epsilon=float(np.max(_column(rows, "true_epsilon"))),
        pure=all(row["pure"] for row in rows),
        bytes=float(np.mean(_column(rows, "bytes"))),
        seconds=float(np.mean(_column(rows, "seconds"))),
        protocol=rows[0].get("protocol") or "",
        metrics={name: Interval.of(_column(rows, f"test_{name}")) for name in METRICS},
        search_epsilon=float(np.max(_column(rows, "search_epsilon"))),
        **found,
    )


def _column(rows: Sequence[Row], name: str) -> Array:
    values = [row.get(name) for row in rows]
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)
