"""A comparison as one page that can be handed on: rankings for each adversary, interactive, and every number."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sottovoce.experiments.baselines import BASELINES
from sottovoce.experiments.compare.ranking import COLUMNS, Line, adversaries, figure, shown, tuned_words
from sottovoce.experiments.compare.study import STUDY
from sottovoce.experiments.table import Row
from sottovoce.privacy.events import ADJACENCY
from sottovoce.privacy.release import ADVERSARIES
from sottovoce.privacy.statement import number
from sottovoce.report.document import Part, Section, download, page, pairs, table, tag
from sottovoce.report.figures import shown as plots
from sottovoce.report.history import SIMULATION
from sottovoce.run.result import write_atomically


def write_page(path: Path, rows: Sequence[Row], lines: Sequence[Line], refused: dict[str, str]) -> Path:
    """Write the page: the runs, their rankings, and what was not run, with the reason."""
    sections = [_about(rows, refused)]
    for data in dict.fromkeys(line.what for line in lines):
        of_data = [line for line in lines if line.what == data]
        for adversary in adversaries(of_data):
            sections.append(_ranking(data, adversary, [line for line in of_data if line.adversary == adversary]))
    named = list(dict.fromkeys(line.algorithm for line in lines))
    cited = [[name, BASELINES[name].citation] for name in named if name in BASELINES]
    sections.append(Section("To cite", (table(["algorithm", "source"], cited, words=["algorithm", "source"]),)))
    numbers: tuple[Part, ...] = (download("all runs (CSV)", "runs-not-private.csv", list(rows)),)
    sections.append(Section("The numbers", numbers, SIMULATION))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page("Algorithms at one honest budget", sections).encode())
    return path


def _about(rows: Sequence[Row], refused: dict[str, str]) -> Section:
    text = (
        "Every run is calibrated by the same accountant to the same true (ε, δ), and its statement says what it has. "
        f"Neighboring data: {ADJACENCY}. Guarantees against different adversaries are different things: there is one "
        "ranking for each of them, by the mean of F over seeds, and none across."
    )
    said = {
        name: ", ".join(dict.fromkeys(_text(row[name]) for row in rows))
        for name in STUDY
        if name not in ("data", "partition")
    }
    parts = [tag("p", text), pairs(said | {"seeds": str(len({row["seed"] for row in rows}))})]
    if refused:
        parts.append(table(["not run", "why"], [list(item) for item in refused.items()], words=["not run", "why"]))
    return Section("What was compared", tuple(parts))


def _ranking(data: str, adversary: str, lines: Sequence[Line]) -> Section:
    """Figures of one adversary's lines, where they are fair, and a table of all of them."""
    fair = any(not line.tuned for line in lines)
    sees = tag("p", f"'{adversary}' sees {ADVERSARIES.read(adversary).sees}.")
    heads = [
        "ε requested",
        "rank",
        "algorithm",
        *COLUMNS.values(),
        *lines[0].metrics,
        "true ε",
        "bytes sent",
        "seconds",
    ]
    body = [
        [
            f"{x.epsilon:g}",
            f"{'= ' if x.tied else ''}{x.rank}",
            x.algorithm + (" (pure ε)" if x.pure else "") + (" (tuned)" if x.tuned else ""),
            *(shown(getattr(x, column)) for column in COLUMNS),
            *map(shown, x.metrics.values()),
            "none" if x.tuned else number(x.true_epsilon),
            f"{x.bytes:,.0f}",
            f"{x.seconds:.2f}",
        ]
        for x in lines
    ]
    note = "Means with 95 % intervals over seeds; '=': not distinguished from the one above it by paired differences."
    note += "".join(f" Tuned: {words}." for words in dict.fromkeys(tuned_words(x) for x in lines if x.tuned))
    drawn = plots(figure(lines)) if fair else []
    return Section(f"{data}, '{adversary}'", (sees, *drawn, table(heads, body, note, words=["algorithm"])), SIMULATION)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
