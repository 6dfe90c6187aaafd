"""`sottovoce sweep FILE`: a grid of ε (or noises) × regularisers × seeds, on the cores or on a cluster."""

import itertools
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from sottovoce import within
from sottovoce.cli import screen
from sottovoce.cli.flags import DataFlags, grouped
from sottovoce.cli.report import write_report
from sottovoce.engine import ENGINES
from sottovoce.errors import SpecError
from sottovoce.experiments.sweep import sweep as run_sweep
from sottovoce.experiments.table import save_rows
from sottovoce.privacy.calibration import NOISES, Private
from sottovoce.privacy.events import ADJACENCY
from sottovoce.privacy.statement import number
from sottovoce.problem.optimum import optimum
from sottovoce.problem.regularisers import REGULARISERS
from sottovoce.run.build import make_problem, rounds_for_epochs
from sottovoce.run.presets import PRESETS
from sottovoce.run.result import NOT_PRIVATE, Result
from sottovoce.run.spec import Execution


@grouped
def sweep(
    data: DataFlags,
    epsilon: Annotated[list[float] | None, typer.Option("--epsilon", help="ε of a guarantee; several times.")] = None,
    noise: Annotated[list[str] | None, typer.Option("--noise", help="Other noises: theorem1:0.8, none, …")] = None,
    h: Annotated[list[str] | None, typer.Option("--h", help="Regularisers; several times.")] = None,
    seeds: Annotated[int, typer.Option("--seeds", help="Runs of each, with seeds 0, 1, …")] = 5,
    preset: Annotated[str, typer.Option("--preset", help=f"Start from {', '.join(PRESETS)}.")] = "private",
    loss: Annotated[str | None, typer.Option("--loss", help="hinge, logistic, …")] = None,
    activation: Annotated[str | None, typer.Option("--activation", help="edges:1, matching:2, everyone, …")] = None,
    sampling: Annotated[str | None, typer.Option("--sampling", help="one, poisson:64, …")] = None,
    gamma: Annotated[str | None, typer.Option("--gamma", help="γ_t.")] = None,
    epochs: Annotated[float, typer.Option("--epochs", help="Passes over the data.")] = 10.0,
    delta: Annotated[float, typer.Option("--delta", help="δ.")] = 1e-5,
    certify: Annotated[bool, typer.Option("--certify", help="Compute F* first.")] = False,
    engine: Annotated[str, typer.Option("--engine", help=f"auto, {', '.join(ENGINES)}.")] = "auto",
    jobs: Annotated[int, typer.Option("--jobs", help="Groups of runs at a time.")] = 2,
    cluster: Annotated[str | None, typer.Option("--cluster", help="Address of a Dask scheduler.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the table into this Parquet file, and a report beside it.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run a grid of noises, regularisers and seeds that share their draws, and compare them."""
    within.check_count("--jobs", jobs, 1024)
    within.check_count("--seeds", seeds, 10**6)
    screen.writable_file(out)
    noises = [*map(Private, epsilon or []), *map(NOISES.read, noise or [])]
    if not noises or seeds < 1:
        raise SpecError("a sweep needs at least one --epsilon or --noise, and at least one seed")
    changes = {
        "problem__loss": loss,
        "network__activation": activation,
        "privacy__sampling": sampling,
        "algorithm__gamma": gamma,
        "privacy__delta": delta,
    }
    base = PRESETS.make(preset)(1).but(**{k: v for k, v in changes.items() if v is not None})
    dealt = data.read(base.problem.loss, base.problem.row_norm, seed=0)
    base = base.but(algorithm__rounds=rounds_for_epochs(base, dealt.shards.sizes, epochs))
    cells = list(itertools.product(noises, [*map(REGULARISERS.read, h)] if h else [base.problem.h]))
    specs = [base.but(privacy__noise=e, problem__h=r, seed=s) for e, r in cells for s in range(seeds)]
    best = {
        r: optimum(make_problem(base.but(problem__h=r).problem, dealt.shards), gap=1e-6).value
        if certify
        else float("nan")
        for r in {r for _, r in cells}
    }
    results = run_sweep(
        specs,
        dealt.shards,
        test=dealt.test,
        f_star=[best[s.problem.h] for s in specs],
        execution=Execution(engine, 20),
        jobs=jobs,
        cluster=cluster,
        **dealt.names,
    )
    rows = [_row(result) for result in results]
    report = None
    if out is not None:
        save_rows(rows, out)
        report = str(
            write_report(results, out.with_name(f"{out.stem}-report.html"), f"{dealt.name}: {base.problem.loss}")
        )
    if json:
        screen.say_json({"label": NOT_PRIVATE, "adjacency": ADJACENCY, "report": report, "runs": rows})
        return
    _show(rows, delta, results[0].statement.adversary)
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
    title = f"mean ± standard deviation over seeds (δ = {delta:g}, '{adversary}')"
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
    screen.out.print(f"[dim]F and accuracies are {NOT_PRIVATE}; neighbouring data: {ADJACENCY}.[/]", soft_wrap=True)


def _mean(values: list[float]) -> str:
    return f"{np.mean(values):.4f} ± {np.std(values):.4f}"
