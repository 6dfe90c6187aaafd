"""`sottovoce sweep FILE`: a grid of ε (or noises) × regularizers × seeds, on the cores or on a cluster."""

import itertools
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from sottovoce import limits
from sottovoce.cli import screen
from sottovoce.cli.flags import DataFlags, grouped
from sottovoce.cli.report import write_report
from sottovoce.cli.train import (
    MechanismFlags,
    ModelFlags,
    NetworkFlags,
    PrivacyFlags,
    ProblemFlags,
    StepFlags,
    spec_for,
)
from sottovoce.data.policy import SIMULATION
from sottovoce.engine import ENGINES
from sottovoce.errors import SpecError
from sottovoce.experiments.sweep import sweep as run_sweep
from sottovoce.experiments.table import save_rows
from sottovoce.figure import Interval
from sottovoce.privacy.events import ADJACENCY
from sottovoce.privacy.statement import number
from sottovoce.problem.optimum import optimum
from sottovoce.run.build import make_problem
from sottovoce.run.result import NOT_PRIVATE, Result
from sottovoce.run.spec import Execution, Spec


@grouped
def sweep(
    data: DataFlags,
    problem: ProblemFlags,
    network: NetworkFlags,
    steps: StepFlags,
    mechanism: MechanismFlags,
    epsilon: Annotated[list[float] | None, typer.Option("--epsilon", help="ε of a guarantee; several times.")] = None,
    noise: Annotated[list[str] | None, typer.Option("--noise", help="Other noises: theorem1:0.8, none, …")] = None,
    h: Annotated[list[str] | None, typer.Option("--regularizer", help="Regularizers; several times.")] = None,
    seeds: Annotated[int, typer.Option("--seeds", help="Runs of each, with seeds 0, 1, …")] = 5,
    certify: Annotated[bool, typer.Option("--certify", help="Compute F* first.")] = False,
    engine: Annotated[str, typer.Option("--engine", help=f"auto, {', '.join(ENGINES)}.")] = "auto",
    jobs: Annotated[int, typer.Option("--jobs", help="Groups of runs at a time.")] = 2,
    cluster: Annotated[str | None, typer.Option("--cluster", help="Address of a Dask scheduler.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Write the table, with specs and curves, into this Parquet file, and a report beside it."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Take the place of another file at --out.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run a grid of noises, regularizers and seeds as `train` does; runs of a seed share their random draws."""
    limits.check_count("--jobs", jobs, 1024)
    limits.check_count("--seeds", seeds, 10**6)
    screen.writable_file(out, force=force)
    ways = [{"epsilon": e} for e in epsilon or []] + [{"noise": text} for text in noise or []]
    if not ways or seeds < 1:
        raise SpecError("a sweep needs at least one --epsilon or --noise, and at least one seed")
    planned = problem.preset == "auto" and not noise  # one loss for all of them
    with screen.reading(data.file, json) as on_read:
        partitioned = data.read_and_partition(
            problem.given_loss,
            0,
            planned,
            SIMULATION,
            mechanism.on_violation == "clip",
            problem.class_weighting,
            on_read,
        )
    cells: list[Spec] = []
    penalties: list[str | None] = [*h] if h else [None]
    for way, penalty in itertools.product(ways, penalties):
        model, privacy = ModelFlags(**vars(problem), h=penalty), PrivacyFlags(**vars(mechanism), **way)
        cells.append(spec_for(partitioned, model, network, steps, privacy, 0, alone=False)[0])
    specs = [cell.replace(seed=seed) for cell in cells for seed in range(seeds)]
    best = {
        cell.problem.h: optimum(make_problem(cell.problem, partitioned.shards), gap=1e-6).value
        if certify
        else float("nan")
        for cell in cells
    }
    began = time.perf_counter()
    results = run_sweep(
        specs,
        partitioned.shards,
        test=partitioned.test,
        f_star=[best[s.problem.h] for s in specs],
        execution=Execution(engine, 20),
        jobs=jobs,
        cluster=cluster,
        **partitioned.names,
    )
    seconds = time.perf_counter() - began
    _report(results, seconds, out, f"{partitioned.name}: {partitioned.loss}", json)


def _report(results: list[Result], seconds: float, out: Path | None, title: str, json: bool) -> None:
    """Write the table and a report beside it, and print them."""
    rows, report = [_row(result) for result in results], None
    if out is not None:
        kept = zip(rows, results, strict=True)  # each can be run again, and drawn
        save_rows(
            [row | {"spec": r.spec.to_json(), "history": [dict(x) for x in r.history.rows]} for row, r in kept], out
        )
        report = str(write_report(results, out.with_name(f"{out.stem}-report.html"), title))
    if json:
        screen.say_json({"label": NOT_PRIVATE, "adjacency": ADJACENCY, "report": report, "runs": rows})
        return
    _show(rows, results[0].statement.delta, results[0].statement.adversary)
    device = results[0].environment.get("device")
    if device is not None:
        line = f"{len(rows)} runs on {device} in {seconds:.1f} s, {len(rows) / seconds:.3g} runs a second"
        screen.out.print(f"[dim]{line}[/]", soft_wrap=True)
    if out is not None:
        screen.out.print(f"all {len(rows)} runs written to {out}; open {report} in a browser", soft_wrap=True)


def _row(result: Result) -> dict[str, Any]:
    """One run, flat and tidy."""
    return {
        "noise": str(result.spec.privacy.noise),
        "h": str(result.spec.problem.h),
        "seed": result.spec.seed,
        "epsilon": result.statement.epsilon,
        "delta": result.statement.delta,
        "adversary": result.statement.adversary,
        "private": result.statement.private,
        "seconds": result.environment["seconds"],
    } | result.history.last


def _show(rows: list[dict[str, Any]], delta: float, adversary: str) -> None:
    columns = {"F": "objective", "F − F*": "suboptimality", "train": "train_accuracy", "test": "test_accuracy"}
    known = {title: name for title, name in columns.items() if not any(np.isnan(r[name]) for r in rows)}
    title = f"mean with a 95 % interval over seeds (δ = {delta:g}, '{adversary}')"
    table = Table(title=title, title_justify="left", box=None)
    for column in ("noise", "h", "true ε", *known):
        table.add_column(column, justify="left" if column in ("noise", "h") else "right", overflow="fold")
    for (noise, h), mine in itertools.groupby(rows, key=lambda r: (r["noise"], r["h"])):
        runs = list(mine)
        epsilon = max(r["epsilon"] for r in runs)
        shown = "∞" if epsilon == float("inf") else number(epsilon)
        cells = [_mean([r[name] for r in runs]) for name in known.values()]
        table.add_row(noise, h, f"[{'green' if runs[0]['private'] else 'red'}]{shown}[/]", *cells)
    screen.out.print(table)
    screen.out.print(f"[dim]F and accuracies are {NOT_PRIVATE}; neighboring data: {ADJACENCY}.[/]", soft_wrap=True)


def _mean(values: list[float]) -> str:
    found = Interval.of(values)
    return f"{found.mean:.4f} ± {found.half:.4f}" if found.seeds > 1 else f"{found.mean:.4f}"
