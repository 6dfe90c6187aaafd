"""`sottovoce reproduce fig1 … table2, all`: the paper's experiments, with its noise and with honest noise."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from sottovoce.cli import screen
from sottovoce.errors import Interrupted, SpecError
from sottovoce.experiments.paper.data import DATA, SIZES, load_sample
from sottovoce.experiments.paper.experiments import FIGURES, NOISES, groups
from sottovoce.run.result import NOT_PRIVATE, write_atomically

TITLES = {
    "table1": "Table 1: exponents of the utility lost, claimed and measured",
    "table2": "Table 2: the data",
    "high probability": "How far a run may be from the mean (F − F* over seeds)",
    "uneven nodes": "Nodes that differ (F − F*, honest noise)",
}
if TYPE_CHECKING:
    import pyarrow as pa

THINGS = (*FIGURES, "table1", "table2", "questions")


def reproduce(
    what: Annotated[list[str], typer.Argument(help=f"{', '.join(THINGS)}, or all.")],
    size: Annotated[str, typer.Option("--size", help=f"{', '.join(SIZES)}; full is the paper's own.")] = "small",
    data: Annotated[list[str] | None, typer.Option("--data", help=f"{', '.join(DATA)}; several times.")] = None,
    noise: Annotated[str, typer.Option("--noise", help="paper, honest or both.")] = "both",
    seeds: Annotated[int, typer.Option("--seeds", help="Runs of each, with seeds 0, 1, …")] = 10,
    jobs: Annotated[int | None, typer.Option("--jobs", help="Groups of runs at a time; one a core by default.")] = None,
    out: Annotated[Path, typer.Option("--out", help="Where runs are kept and figures drawn.")] = Path("reproduction"),
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run the paper's experiments, keep what was run, and draw from it; what is there already is not run again."""
    wanted = list(THINGS) if "all" in what else what
    wrong = [name for name in wanted if name not in THINGS]
    if wrong:
        raise SpecError(f"there is nothing called '{wrong[0]}' in the paper; choose from {', '.join(THINGS)} or all")
    if noise not in (*NOISES, "both"):
        raise SpecError(f"there is no noise '{noise}' here; choose paper, honest or both")
    if size not in SIZES:
        raise SpecError(f"there is no size '{size}'; choose one of {', '.join(SIZES)}")
    from sottovoce.experiments.paper.page import write_page

    noises = tuple(NOISES) if noise == "both" else (noise,)
    found: dict[str, Any] = {"label": NOT_PRIVATE, "files": []}
    runs: dict[str, Any] = {}
    for name in data or ["epsilon-like"]:
        table = _figures(name, size, wanted, noises, seeds, jobs, out, json, found)
        if table is not None:
            runs[f"{name} ({size})"] = table
    if "table1" in wanted:
        _table1(size, out, json, found)
    if "questions" in wanted:
        _questions(size, json, found)
    from sottovoce.experiments.paper.orderings import findings

    tables = {title: found[key] for key, title in TITLES.items() if key in found}
    figures = [name for name in wanted if name in FIGURES]
    read = {name: findings(table) for name, table in runs.items()}
    report = write_page(out / "report.html", runs, figures, read, tables)
    found["files"] += [str(report), str(_write_tables(out / "tables.md", found))]
    if json:
        screen.say_json(found)
    else:
        screen.out.print(f"figures and runs are in {out}, all of it on one page in {report}", soft_wrap=True)


def _figures(
    name: str,
    size: str,
    wanted: list[str],
    noises: tuple[str, ...],
    seeds: int,
    jobs: int | None,
    out: Path,
    quiet: bool,
    found: dict[str, Any],
) -> "pa.Table | None":
    from sottovoce.experiments.paper.collect import collect, folder_of
    from sottovoce.experiments.paper.figures import draw
    from sottovoce.experiments.paper.orderings import findings
    from sottovoce.experiments.paper.table2 import describe
    from sottovoce.experiments.paper.truth import TITLE, truths

    figures = [w for w in wanted if w in FIGURES]
    if not figures and "table2" not in wanted:
        return None
    sample = load_sample(name, size)
    if "table2" in wanted:
        row = describe(sample)
        found.setdefault("table2", []).append(row)
        _show(f"Table 2: {name}", [row], quiet)
    if not figures:
        return None
    with _bar(f"{name} ({size})", quiet) as done:
        table = collect(sample, groups(figures, seeds), noises, out, jobs, done)
    for figure in figures:
        found["files"].append(str(draw(figure, table, folder_of(out, sample) / f"{figure}.png")))
    true = truths(table)
    if true:
        found.setdefault("true epsilon", []).extend({"data": name} | row for row in true)
        _show(TITLE, true, quiet)
    claims = [asdict(finding) for finding in findings(table)]
    found.setdefault("findings", []).extend({"data": name} | claim for claim in claims)
    _show(f"What the paper says of its figures, on {name} ({size}), {seeds} seeds", claims, quiet)
    return table


def _table1(size: str, out: Path, quiet: bool, found: dict[str, Any]) -> None:
    from sottovoce.experiments.paper.table1 import as_rows, table1

    with _bar("table 1", quiet) as done:
        rows = as_rows(table1(size, out, done))
    found["table1"] = rows
    shown = [row | {name: f"{row[name]:+.2f}" for name in ("measured", "low", "high")} for row in rows]
    _show(TITLES["table1"], shown, quiet)


def _questions(size: str, quiet: bool, found: dict[str, Any]) -> None:
    from sottovoce.experiments.paper.questions import high_probability, uneven_nodes

    many, few = {"tiny": (10, 2), "small": (200, 10), "full": (200, 20)}[size]
    spreads = [
        {"noise": s.noise, "seeds": s.seeds, "mean": s.mean}
        | {f"{100 * p:g} %": v for p, v in s.quantiles.items()}
        | {"bound on the mean": s.bound}
        for s in high_probability(many)
    ]
    nodes = [
        {
            "case": u.case,
            "suboptimality": str(u.suboptimality),
            "σ": f"{u.sigma[0]:.3g} to {u.sigma[1]:.3g}",
            "ε": u.epsilon,
        }
        for u in uneven_nodes(few)
    ]
    found["high probability"], found["uneven nodes"] = spreads, nodes
    _show(TITLES["high probability"], [_rounded(row) for row in spreads], quiet)
    _show(TITLES["uneven nodes"], [_rounded(row) for row in nodes], quiet)


def _write_tables(path: Path, found: dict[str, Any]) -> Path:
    """Every table as Markdown, for whoever writes about it."""
    from sottovoce.experiments.paper.truth import TITLE

    titles = TITLES | {"findings": "What the paper says of its figures", "true epsilon": TITLE}
    parts = [f"*{NOT_PRIVATE}*"]
    for name in ("table2", "true epsilon", "findings", "table1", "high probability", "uneven nodes"):
        if name in found:
            rows = [_rounded(row) for row in found[name]]
            lines = [list(rows[0]), ["---"] * len(rows[0]), *(row.values() for row in rows)]
            body = ["| " + " | ".join("" if v is None else str(v) for v in line) + " |" for line in lines]
            parts.append("\n".join([f"**{titles[name]}**", "", *body]))
    write_atomically(path, ("\n\n".join(parts) + "\n").encode())
    return path


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: f"{value:.3g}" if isinstance(value, float) else value for name, value in row.items()}


def _show(title: str, rows: list[dict[str, Any]], quiet: bool) -> None:
    if quiet:
        return
    table = Table(title=title, title_justify="left")
    for name in rows[0]:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    screen.out.print(table)


@contextmanager
def _bar(title: str, quiet: bool) -> Iterator[Callable[[int, int, str], None] | None]:
    """Groups done, of how many."""
    try:
        if quiet or not screen.err.is_terminal:
            yield None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=screen.err) as progress:
            task = progress.add_task(title, total=None)
            yield lambda count, total, name: progress.update(
                task, total=total, completed=count, description=f"{title}: {name}"
            )
    except KeyboardInterrupt:
        raise Interrupted("stopped; started again, the work goes on with what is not done yet") from None
