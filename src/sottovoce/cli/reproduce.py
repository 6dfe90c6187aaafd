"""`sottovoce reproduce fig1 … table2, all`: the paper's experiments, with its noise and with honest noise."""

import time
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.table import Table

from sottovoce import limits
from sottovoce.cli import screen
from sottovoce.engine import check_engine
from sottovoce.errors import SpecError
from sottovoce.experiments.data import SIZES, load
from sottovoce.experiments.paper.figures import figure
from sottovoce.experiments.paper.findings import TRUTH, findings, high_probability, truths, uneven_nodes
from sottovoce.experiments.paper.measure import SETUP, as_rows, conditions, describe, table1
from sottovoce.experiments.paper.runs import DATA, FIGURES, NOISES, collect, folder_of, groups
from sottovoce.experiments.table import Row
from sottovoce.figure import check_matplotlib, check_width, draw_as, read_formats
from sottovoce.run.result import NOT_PRIVATE, write_atomically

TITLES = {
    "table1": f"Table 1: exponents of the utility lost, claimed and measured. {SETUP}",
    "conditions": "T of the paper's experiments, T of its theorems; conditions of Corollary 3 (on β) and 4 (on ι)",
    "table2": "Table 2: the data",
    "high probability": "How far a run may be from the mean (F − F* over seeds)",
    "uneven nodes": "Nodes that differ (F − F*, honest noise)",
}
THINGS = (*FIGURES, "table1", "table2", "conditions", "questions")
STOPPED = "stopped; started again, the work goes on with what is not done yet"


def reproduce(
    what: Annotated[list[str], typer.Argument(help=f"{', '.join(THINGS)}, or all.")],
    size: Annotated[str, typer.Option("--size", help=f"{', '.join(SIZES)}; full is the paper's own.")] = "small",
    data: Annotated[list[str] | None, typer.Option("--data", help=f"{', '.join(DATA)}; several times.")] = None,
    noise: Annotated[str, typer.Option("--noise", help="paper, honest or both.")] = "both",
    seeds: Annotated[int, typer.Option("--seeds", help="Runs of each, with seeds 0, 1, …")] = 10,
    jobs: Annotated[int | None, typer.Option("--jobs", help="Groups of runs at a time; one a core by default.")] = None,
    engine: Annotated[str, typer.Option("--engine", help="gpu where there is a device, else compiled.")] = "auto",
    kinds: Annotated[str, typer.Option("--figures", help="png, pdf, svg, with commas between them.")] = "png",
    width: Annotated[float | None, typer.Option("--figure-width", help="Of a figure, in inches.")] = None,
    out: Annotated[Path, typer.Option("--out", help="Where runs are kept and figures drawn.")] = Path("reproduction"),
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run the paper's experiments, keep what was run, and draw from it; what is there already is not run again."""
    wanted = list(THINGS) if "all" in what else what
    _check("there is nothing called '{}' in the paper; choose from {} or all", wanted, THINGS)
    _check("there is no noise '{}' here; choose one of {}", [noise], (*NOISES, "both"))
    _check("there is no size '{}'; choose one of {}", [size], SIZES)
    check_engine(engine)
    _check("there is no data '{}' for the experiments; choose one of {}", data or [], DATA)
    limits.check_count("--seeds", seeds, 10**6)
    if jobs is not None:
        limits.check_count("--jobs", jobs, 1024)
    screen.writable(out)
    noises = tuple(NOISES) if noise == "both" else (noise,)
    found: dict[str, Any] = {"label": NOT_PRIVATE, "files": []}
    check_width(width)
    check_matplotlib()
    work = _Work(size, wanted, noises, seeds, jobs, engine, out, json, (read_formats(kinds), width))
    runs: dict[str, list[Row]] = {}
    for name in data or ["epsilon-like"]:
        rows = _figures(name, work, found)
        if rows:
            runs[f"{name} ({size})"] = rows
    if "table1" in wanted:
        _table1(size, out, json, found)
    if "conditions" in wanted:
        found["conditions"] = conditions()
        _show(TITLES["conditions"], [_rounded(row) for row in found["conditions"]], json)
    if "questions" in wanted:
        _questions(size, json, found)
    report = _write_report(out, runs, wanted, found)
    if json:
        screen.say_json(found)
    else:
        screen.out.print(f"figures and runs are in {out}, all of it on one page in {report}", soft_wrap=True)


def _write_report(out: Path, runs: dict[str, list[Row]], wanted: list[str], found: dict[str, Any]) -> Path:
    """One page with everything, and every table as Markdown."""
    from sottovoce.experiments.paper.page import write_page  # Bokeh takes long to load

    tables = {title: found[key] for key, title in TITLES.items() if key in found}
    figures = [name for name in wanted if name in FIGURES]
    read = {name: findings(rows) for name, rows in runs.items()}
    report = write_page(out / "report.html", runs, figures, read, tables)
    found["files"] += [str(report), str(_write_tables(out / "tables.md", found))]
    return report


def _check(wrong: str, names: Sequence[str], known: Collection[str]) -> None:
    """Refuse a name that is not known."""
    for name in names:
        if name not in known:
            raise SpecError(wrong.format(name, ", ".join(known)))


class _Work(NamedTuple):
    """What is wanted of each data set, and how it is run."""

    size: str
    wanted: list[str]
    noises: tuple[str, ...]
    seeds: int
    jobs: int | None
    engine: str
    out: Path
    quiet: bool
    drawn: tuple[tuple[str, ...], float | None]
    """Kinds of files, and the width of a figure."""


def _figures(name: str, work: _Work, found: dict[str, Any]) -> list[Row]:
    """The runs of one data set, with what is drawn and said of them."""
    size, seeds, out, quiet = work.size, work.seeds, work.out, work.quiet
    figures = [w for w in work.wanted if w in FIGURES]
    if not figures and "table2" not in work.wanted:
        return []
    dataset = load(name, size)
    if "table2" in work.wanted:
        row = describe(dataset)
        found.setdefault("table2", []).append(row)
        _show(f"Table 2: {name}", [row], quiet)
    if not figures:
        return []
    began = time.perf_counter()
    with screen.works(f"{name} ({size})", "scheme", quiet, STOPPED) as done:
        rows = collect(dataset, groups(figures, seeds), work.noises, out, work.jobs, done, work.engine)
    device = rows[0].get("device")
    if device is not None and not quiet:
        screen.out.print(
            f"[dim]{name}: on {device}, {time.perf_counter() - began:.1f} s with accounts[/]", soft_wrap=True
        )
    for view in figures:
        for drawn in (figure(view, rows), figure(view, rows, iterations=True)):
            ending = drawn.name.partition(f"{view}")[2]
            found["files"] += map(str, draw_as(drawn, folder_of(out, dataset) / f"{view}{ending}.png", *work.drawn))
    true = truths(rows)
    if true:
        found.setdefault("true epsilon", []).extend({"data": name} | row for row in true)
        _show(TRUTH, true, quiet)
    claims = [asdict(finding) for finding in findings(rows)]
    found.setdefault("findings", []).extend({"data": name} | claim for claim in claims)
    _show(f"What the paper says of its figures, on {name} ({size}), {seeds} seeds", claims, quiet)
    return rows


def _table1(size: str, out: Path, quiet: bool, found: dict[str, Any]) -> None:
    with screen.works("table 1", "h", quiet, STOPPED) as done:
        rows = as_rows(table1(size, out, done))
    found["table1"] = rows
    shown = [row | {name: f"{row[name]:+.2f}" for name in ("measured", "low", "high")} for row in rows]
    _show(TITLES["table1"], shown, quiet)


def _questions(size: str, quiet: bool, found: dict[str, Any]) -> None:
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
    """Return all tables as Markdown."""
    titles = TITLES | {"findings": "What the paper says of its figures", "true epsilon": TRUTH}
    parts = [f"*{NOT_PRIVATE}*"]
    for name in ("table2", "true epsilon", "findings", "table1", "conditions", "high probability", "uneven nodes"):
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
