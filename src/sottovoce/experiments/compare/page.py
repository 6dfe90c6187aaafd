"""A comparison as one page that can be handed on: rankings for each adversary, interactive, and every number."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sottovoce.experiments.compare.study import Row
from sottovoce.experiments.compare.summary import ADVERSARIES, COLUMNS, TUNED, Line, order, shown
from sottovoce.privacy.adversaries import make_adversary
from sottovoce.privacy.events import ADJACENCY
from sottovoce.privacy.statement import number
from sottovoce.report.document import Part, Plot, Section, download, page, pairs, table, tag
from sottovoce.report.history import SIMULATION, ranked
from sottovoce.run.result import write_atomically

SETTINGS = ("nodes", "delta", "epochs", "batch", "loss", "h", "graph", "radius")


def write_page(path: Path, rows: Sequence[Row], lines: Sequence[Line], refused: dict[str, str]) -> Path:
    """Write the page: the runs, their rankings, and what was not run, with the reason."""
    sections = [_about(rows, refused)]
    for data in dict.fromkeys(line.data for line in lines):
        for adversary in ADVERSARIES:
            mine = [line for line in lines if (line.data, line.adversary) == (data, adversary)]
            if mine:
                sections.append(_ranking(data, adversary, mine))
    numbers: tuple[Part, ...] = (download("all runs (CSV)", "runs-not-private.csv", list(rows)),)
    sections.append(Section("The numbers", numbers, SIMULATION))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page("Algorithms at one honest budget", sections).encode())
    return path


def _about(rows: Sequence[Row], refused: dict[str, str]) -> Section:
    text = (
        "Every run is calibrated by the same accountant to the same true (ε, δ), and its statement says what it has. "
        f"Neighbouring data: {ADJACENCY}. Guarantees against different adversaries are different things: there is one "
        "ranking for each of them, by the mean of F over seeds, and none across."
    )
    said = {name: ", ".join(dict.fromkeys(_text(row[name]) for row in rows)) for name in SETTINGS}
    parts = [tag("p", text), pairs(said | {"seeds": str(len({row["seed"] for row in rows}))})]
    if refused:
        parts.append(table(["not run", "why"], [list(item) for item in refused.items()], words=["not run", "why"]))
    return Section("What was compared", tuple(parts))


def _ranking(data: str, adversary: str, lines: Sequence[Line]) -> Section:
    """Two figures and a table."""
    fair = [line for line in lines if not line.tuned]
    sees = tag("p", f"'{adversary}' sees {make_adversary(adversary).sees}.")
    plots = tuple(
        Plot(title, _figure(f"{data}-{adversary}-{column}", fair, column))
        for column, title in COLUMNS.items()
        if any(math.isfinite(getattr(line, column).mean) for line in fair)
    )
    heads = ["ε asked", "rank", "algorithm", *COLUMNS.values(), "true ε", "bytes sent", "seconds"]
    body = [
        [
            f"{x.epsilon:g}",
            f"{'= ' if x.tied else ''}{x.rank}",
            x.algorithm + (" (pure ε)" if x.pure else "") + (" (tuned)" if x.tuned else ""),
            *(shown(getattr(x, column)) for column in COLUMNS),
            "none" if x.tuned else number(x.true_epsilon),
            f"{x.bytes:,.0f}",
            f"{x.seconds:.2f}",
        ]
        for x in lines
    ]
    note = "Means with 95 % intervals over seeds; '=': not told apart from the one above it."
    note += f" Tuned: {TUNED}." if any(x.tuned for x in lines) else ""
    parts: list[Part] = [sees, *([plots] if fair and plots else []), table(heads, body, note, words=["algorithm"])]
    return Section(f"{data}, '{adversary}'", tuple(parts), SIMULATION)


def _figure(name: str, lines: Sequence[Line], column: str) -> Any:
    """The best is on top; a click on an ε hides it."""
    budgets = sorted({line.epsilon for line in lines})
    groups = {}
    for epsilon in budgets:
        mine = [line for line in lines if line.epsilon == epsilon]
        found = {line.algorithm: getattr(line, column) for line in mine}
        groups[f"ε = {epsilon:g}"] = {who: (i.mean, i.low, i.high) for who, i in found.items()}
    positive = all(getattr(line, column).mean > 0 for line in lines)
    return ranked(name, order(lines), groups, COLUMNS[column], log=column == "suboptimality" and positive)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
