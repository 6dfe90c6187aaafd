"""A reproduction as one page that can be handed on: the figures, interactive, and what they show."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sottovoce.experiments.paper.figures import figure
from sottovoce.experiments.paper.findings import TRUTH, Finding, truths
from sottovoce.experiments.paper.runs import DELTA, DELTA0, FIGURES, KEY
from sottovoce.experiments.table import Row
from sottovoce.report.document import Part, Section, download, page, table, tag
from sottovoce.report.figures import shown
from sottovoce.report.history import SIMULATION
from sottovoce.run.result import write_atomically


def write_page(
    path: Path,
    runs: dict[str, list[Row]],
    figures: Sequence[str],
    claims: dict[str, list[Finding]],
    tables: dict[str, list[dict[str, Any]]],
) -> Path:
    """Write the page: runs and findings by data set, and further tables by title."""
    sections = [_about()]
    for name, rows in runs.items():
        sections += [_truths(name, rows), _findings(name, claims[name])]
        for view in figures:
            title = f"Figure {view[3:]}, {FIGURES[view].title}: {name}"
            sections.append(Section(title, tuple(shown(figure(view, rows))), SIMULATION))
            if FIGURES[view].epsilon is None:  # the others have both axes
                drawn = figure(view, rows, iterations=True)
                sections.append(Section(f"{title}, at equal iterations", tuple(shown(drawn)), SIMULATION))
    sections += [_table(title, rows) for title, rows in tables.items() if rows]
    if runs:
        last = [row for rows in runs.values() for row in _last(rows)]
        parts: tuple[Part, ...] = (download("final values of all runs (CSV)", "runs.csv", last),)
        sections.append(Section("The numbers", parts, SIMULATION))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page("The paper, reproduced and judged", sections).encode())
    return path


def _about() -> Section:
    text = (
        "Liu, Johansson and Shi, Distributed Empirical Risk Minimization With Differential Privacy: its experiments, "
        f"with the noise of its Theorem 1 (δ₀ = {DELTA0:g}; it claims ε) and, beside it, with the noise that a true ε "
        f"at δ = {DELTA:g} needs against someone who sees every message (replace one record of one node). Both run "
        "from the same draws of records and from the same noise term."
    )
    return Section("What this is", (tag("p", text),))


def _truths(name: str, rows: Sequence[Row]) -> Section:
    """Public: nothing but sizes, counts and noise goes into it."""
    found = truths(rows)
    if not found:
        return Section(f"Claimed and true ε: {name}", (tag("p", "No run here has the paper's noise."),))
    heads = list(found[0])
    body = table(heads, [list(row.values()) for row in found], f"{TRUTH}.", words=["scheme"])
    return Section(f"Claimed and true ε: {name}", (body,))


def _findings(name: str, found: Sequence[Finding]) -> Section:
    heads = (
        "the paper's reading of its figures",
        "noise",
        "F − F*, means and paired difference with 95 % intervals",
        "here",
    )
    rows = [[f.claim, f.noise, f.numbers, f.verdict] for f in found]
    return Section(f"What the paper says, and what was found: {name}", (table(heads, rows, words=heads),), SIMULATION)


def _table(title: str, rows: list[dict[str, Any]]) -> Section:
    return Section(title, (table(list(rows[0]), [[_text(v) for v in row.values()] for row in rows]),), SIMULATION)


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def _last(rows: Sequence[Row]) -> list[Row]:
    """The final row of every run."""
    last: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row[name] for name in KEY)
        if key not in last or row["round"] > last[key]["round"]:
            last[key] = row
    return list(last.values())
