"""`sottovoce compare`: algorithms × data × ε × seeds at an equal, true (ε, δ), in one table that can be resumed."""

import itertools
import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from sottovoce import within
from sottovoce.cli import screen
from sottovoce.cli.flags import RecordFlags, grouped
from sottovoce.data.embedded import EMBEDDED
from sottovoce.data.tables import Table as Records
from sottovoce.engine import ENGINES
from sottovoce.errors import SpecError
from sottovoce.experiments.baselines import BASELINES
from sottovoce.experiments.compare.ranking import TUNED, Line, figure, shown, summarise
from sottovoce.experiments.compare.study import Study
from sottovoce.experiments.compare.study import compare as run_study
from sottovoce.experiments.data import MADE, REAL, Dataset, load, split
from sottovoce.experiments.table import Row
from sottovoce.figure import draw
from sottovoce.planner import Facts as Known
from sottovoce.planner import choose
from sottovoce.planner.terms import SMALL_INTERCEPT
from sottovoce.privacy.events import ADJACENCY
from sottovoce.privacy.release import ADVERSARIES
from sottovoce.privacy.statement import number
from sottovoce.problem.losses import LOSSES, Loss
from sottovoce.problem.regularisers import l2
from sottovoce.problem.shards import by_group, even
from sottovoce.run.result import NOT_PRIVATE

STOPPED = "stopped; started again with the same --out, a comparison goes on from here"


@grouped
def compare(
    flags: RecordFlags,
    data: Annotated[
        list[str] | None, typer.Option("--data", help="a9a, rcv1, synthetic, … or a file; several times.")
    ] = None,
    algorithms: Annotated[
        str, typer.Option("--algorithms", help=f"Names with commas between them: {', '.join(BASELINES)}.")
    ] = "all",
    epsilon: Annotated[list[float] | None, typer.Option("--epsilon", help="ε; several times (1).")] = None,
    delta: Annotated[float, typer.Option("--delta", help="δ.")] = 1e-5,
    seeds: Annotated[int, typer.Option("--seeds", help="Runs of each, with seeds 0, 1, …")] = 10,
    epochs: Annotated[float, typer.Option("--epochs", help="Passes over the data, the same for all.")] = 10.0,
    nodes: Annotated[int, typer.Option("--nodes", help="How many nodes the records are dealt out to.")] = 20,
    loss: Annotated[
        str | None, typer.Option("--loss", help="logistic, hinge, … (of a file train's; else logistic).")
    ] = None,
    h: Annotated[
        str | None, typer.Option("--h", help="Regulariser (of a file train's l2 part; else l2(0.001)).")
    ] = None,
    batch: Annotated[int, typer.Option("--batch", help="Expected records of a node's Poisson batch.")] = 64,
    graph: Annotated[str, typer.Option("--graph", help="Who is linked with whom.")] = "complete",
    radius: Annotated[float | None, typer.Option("--radius", help="Public bound of the optimum's norm.")] = None,
    intercept: Annotated[
        float | None, typer.Option("--intercept", help="The intercept's column; 0: none (of a file train's; else 0).")
    ] = None,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Also with step sizes tuned on the data (not private).")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", help="Runs at a time, each in its own process.")] = 1,
    engine: Annotated[str, typer.Option("--engine", help=f"auto, {', '.join(ENGINES)}.")] = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="A Parquet file: what it holds is not run again; a report and pictures go beside it."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run algorithms side by side at an equal, true (ε, δ), and rank them for each adversary."""
    within.check_count("--jobs", jobs, 1024)
    within.check_count("--seeds", seeds, 10**6)
    within.check_count("--nodes", nodes, within.NODES)
    screen.writable(None if out is None else out.parent)
    screen.writable_file(out)
    names = list(BASELINES) if algorithms == "all" else [name.strip() for name in algorithms.split(",")]
    settings: dict[str, Any] = {"delta": delta, "epochs": epochs, "batch": batch, "graph": graph, "radius": radius}
    fixed = {"loss": loss, "h": h, "intercept": intercept}
    budgets = tuple(epsilon or [1.0])
    if flags.unit is not None:
        raise SpecError("the runs of a comparison protect records, and have no people; leave --unit out")
    rows: list[Row] = []
    refused: dict[str, str] = {}
    for name in data or ["synthetic"]:
        read = LOSSES.read(loss or "logistic")
        dataset = _dataset(name, read, flags)
        planned = _is_file(name) and read.targets == "binary"
        problem = _as_trained(dataset, nodes, budgets[0], delta) if planned else {}
        problem |= {key: value for key, value in fixed.items() if value is not None}
        study = Study.of(dataset, names, settings | problem, nodes, epsilons=budgets, seeds=seeds, tuned=tuned)
        refused |= study.refused
        with screen.works(dataset.name, "algorithm", json, STOPPED) as done:
            rows += run_study(study, out, jobs, done, engine)
    lines = summarise(rows)
    pictures = []
    if out is not None:
        from sottovoce.experiments.compare.page import write_page  # Bokeh takes long to load

        for name, mine in itertools.groupby(lines, key=lambda line: line.data):
            pictures.append(str(draw(figure(list(mine)), out.with_name(f"{out.stem}-{Path(name).stem}.png"))))
        pictures.append(str(write_page(out.with_suffix(".html"), rows, lines, refused)))
    if json:
        screen.say_json(
            {
                "label": NOT_PRIVATE,
                "adjacency": ADJACENCY,
                "delta": delta,
                "ranking": [asdict(line) for line in lines],
                "not_run": refused,
                "pictures": pictures,
            }
        )
        return
    _show(lines, delta, refused)
    if out is not None:
        screen.out.print(f"{len(rows)} runs in {out}; to look at: {', '.join(pictures)}", soft_wrap=True)


def _is_file(name: str) -> bool:
    """Whether it is somebody's own file, and not the name of a set."""
    return name not in (*MADE, *REAL, *EMBEDDED) and Path(name).is_file()


def _as_trained(dataset: Dataset, nodes: int, epsilon: float, delta: float) -> dict[str, Any]:
    """The problem of `train`'s plan, for all algorithms alike: its loss, its intercept, the l2 part of its h.

    What it plans beyond that (batches, rounds, a threshold, the shape of the data) is its own way, and not the problem.
    """
    records = dataset.records
    sizes = np.diff(even(records.n_records, nodes)[0] if records.groups is None else by_group(records.groups)[0][0])
    facts = Known(
        tuple(sizes.tolist()), records.m + 1, epsilon, delta, intercept=SMALL_INTERCEPT,
        sparse=hasattr(records.X, "tocsr"), free=("loss", "penalty"),
    )  # fmt: skip
    problem = choose(facts).spec.problem
    shrunk = {"h": l2(problem.h.modulus)} if problem.h.modulus > 0 else {}
    return {"loss": problem.loss, "intercept": problem.intercept} | shrunk


def _dataset(name: str, loss: Loss, flags: RecordFlags) -> Dataset:
    """A set by its name, or a file as `train` would read it: by a schema, or clean numbers within their bound."""
    if not _is_file(name):
        return load(name, loss=loss)
    records = flags.records(Path(name), loss)
    records.refuse_long()
    if records.outputs > 1 or records.units is not None:
        what = "several classes" if records.outputs > 1 else "people"
        raise SpecError(f"{name}: a comparison is of models of two classes, or of numbers, for records, not of {what}")
    records.loss(loss, planned=False)
    X, y = records.posed()
    groups = None if records.groups is None else np.asarray(records.groups).astype(np.str_)
    return split(Records(X, y, groups, records.features, name), owned=True)


def _show(lines: list[Line], delta: float, refused: dict[str, str]) -> None:
    """A table for each (data, ε, adversary): no column mixes adversaries."""
    for group, mine in itertools.groupby(lines, key=lambda x: (x.data, x.epsilon, x.adversary, x.tuned)):
        data, epsilon, adversary, tuned = group
        title = f"\n{data}, ε = {epsilon:g}, δ = {delta:g}, '{adversary}' ({ADVERSARIES.read(adversary).sees})"
        table = Table(title=title + (f"\n{TUNED}" if tuned else ""), title_justify="left", box=None)
        for column in ("", "algorithm", "F − F*", "test accuracy", "AUC", "true ε", "sent", "s"):
            table.add_column(column, justify="left" if column == "algorithm" else "right")
        for x in mine:
            table.add_row(
                f"{'=' if x.tied else ''}{x.rank}",
                x.algorithm + (" (pure ε)" if x.pure else ""),
                shown(x.objective if math.isnan(x.suboptimality.mean) else x.suboptimality),
                shown(x.test_accuracy),
                shown(x.test_auc),
                "–" if tuned else number(x.true_epsilon),
                screen.bytes_text(x.bytes),
                f"{x.seconds:.1f}",
            )
        screen.out.print(table)
    notes = [f"'{name}' was not run: {reason}." for name, reason in refused.items()]
    notes.append(f"'=': not told apart from the one above it by 95 % intervals. Neighbouring data: {ADJACENCY}.")
    screen.out.print(f"[dim]{' '.join(notes)} F and accuracies are {NOT_PRIVATE}.[/]", soft_wrap=True)
