"""`sottovoce compare`: algorithms × data × ε × seeds at an equal, true (ε, δ), in one table that can be resumed."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from sottovoce import limits, plugins
from sottovoce.cli import screen
from sottovoce.cli.flags import RecordFlags, grouped
from sottovoce.data.embedded import EMBEDDED
from sottovoce.data.policy import SIMULATION
from sottovoce.data.tables import Table as Records
from sottovoce.engine import ENGINES
from sottovoce.errors import SpecError
from sottovoce.experiments.baselines import BASELINES, make_baseline
from sottovoce.experiments.compare.ranking import Line, figure, shown, summarize, tuned_words
from sottovoce.experiments.compare.study import Study
from sottovoce.experiments.compare.study import compare as run_study
from sottovoce.experiments.data import FEATURE_MAPS, MADE, PARTITIONS, REAL, Dataset, load, split
from sottovoce.experiments.table import Row
from sottovoce.figure import check_matplotlib, check_width, draw_as, read_formats
from sottovoce.planner import PublicInputs as Known
from sottovoce.planner import choose
from sottovoce.planner.shared_settings import SMALL_INTERCEPT
from sottovoce.privacy.events import ADJACENCY
from sottovoce.privacy.release import ADVERSARIES
from sottovoce.privacy.statement import number
from sottovoce.problem.losses import LOSSES, Loss
from sottovoce.problem.regularizers import l2
from sottovoce.problem.shards import by_group, even
from sottovoce.run.result import NOT_PRIVATE

WAYS = f"{PARTITIONS.usage}; several times (even)."
OUT = "A Parquet file: what it holds is not run again; a report and pictures go beside it."
MAPS = f"A public map of each row: {FEATURE_MAPS.usage}, or a plug-in's."
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
    nodes: Annotated[int, typer.Option("--nodes", help="How many nodes the records are partitioned over.")] = 20,
    partition: Annotated[list[str] | None, typer.Option("--partition", help=WAYS)] = None,
    feature_map: Annotated[
        str | None,
        typer.Option("--feature-map", help=f"A public map of each row: {FEATURE_MAPS.usage}, or a plug-in's."),
    ] = None,
    loss: Annotated[
        str | None, typer.Option("--loss", help="logistic, hinge, … (of a file train's; else logistic).")
    ] = None,
    h: Annotated[
        str | None, typer.Option("--regularizer", help="Regularizer (of a file train's l2 part; else l2(0.001)).")
    ] = None,
    batch: Annotated[int, typer.Option("--batch", help="Expected records of a node's Poisson batch.")] = 64,
    graph: Annotated[str, typer.Option("--graph", help="Who is linked with whom.")] = "complete",
    radius: Annotated[float | None, typer.Option("--radius", help="Public bound of the optimum's norm.")] = None,
    intercept: Annotated[
        float | None, typer.Option("--intercept", help="The intercept's column; 0: none (of a file train's; else 0).")
    ] = None,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Also every method tuned by one protocol on the data (not private).")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", help="Runs at a time, each in its own process.")] = 1,
    engine: Annotated[str, typer.Option("--engine", help=f"auto, {', '.join(ENGINES)}.")] = "auto",
    figures: Annotated[str, typer.Option("--figures", help="png, pdf, svg, with commas between them.")] = "png",
    figure_width: Annotated[float | None, typer.Option("--figure-width", help="Of a figure, in inches.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help=OUT)] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run algorithms side by side at an equal, true (ε, δ), and rank them for each adversary."""
    for option, count, most in (("--jobs", jobs, 1024), ("--seeds", seeds, 10**6), ("--nodes", nodes, limits.NODES)):
        limits.check_count(option, count, most)
    screen.writable(None if out is None else out.parent)
    screen.writable_file(out)
    kinds, names = read_formats(figures), _names(algorithms)
    check_width(figure_width)
    if out is not None:
        check_matplotlib()
    settings: dict[str, Any] = {"delta": delta, "epochs": epochs, "batch": batch, "graph": graph, "radius": radius}
    fixed, budgets = {"loss": loss, "h": h, "intercept": intercept}, tuple(epsilon or [1.0])
    if flags.unit is not None:
        raise SpecError("compare protects single records, not people; leave out --user-id")
    rows, refused = list[Row](), dict[str, str]()
    read = LOSSES.read(loss or "logistic")
    ways = [PARTITIONS.read(text) for text in partition or ["even"]]
    for name in data or ["synthetic"]:
        dataset = _dataset(name, read, flags, feature_map)
        if dataset.records.groups is not None and partition:
            raise SpecError("the group column says whose each record is; leave --partition out")
        planned = _is_file(name) and read.targets == "binary"
        problem = _as_trained(dataset, nodes, budgets[0], delta) if planned else {}
        problem |= {key: value for key, value in fixed.items() if value is not None}
        what: dict[str, Any] = {"epsilons": budgets, "seeds": seeds, "tuned": tuned}
        for way in ways:
            study = Study.of(dataset, names, settings | problem, nodes, partition=way, **what)
            refused |= study.refused
            with screen.works(f"{dataset.name}, {way}", "algorithm", json, STOPPED) as done:
                rows += run_study(study, out, jobs, done, engine)
    lines = summarize(rows)
    pictures = [] if out is None else _draw(out, rows, lines, refused, (kinds, figure_width))
    if json:
        cited = {name: make_baseline(name).citation for name in names}
        screen.say_json(_ranking(lines, delta) | {"not_run": refused, "pictures": pictures, "citations": cited})
        return
    _show(lines, delta, refused)
    if out is not None:
        screen.out.print(f"{len(rows)} runs in {out}; figures: {', '.join(pictures)}", soft_wrap=True)


def _ranking(lines: list[Line], delta: float) -> dict[str, Any]:
    """The comparison as plain values."""
    ranking = [asdict(line) for line in lines]
    return {"label": NOT_PRIVATE, "adjacency": ADJACENCY, "delta": delta, "ranking": ranking}


def _draw(
    out: Path, rows: list[Row], lines: list[Line], refused: dict[str, str], how: tuple[Sequence[str], float | None]
) -> list[str]:
    """A picture of each data set, and the page, beside the table."""
    from sottovoce.experiments.compare.page import write_page  # Bokeh takes long to load

    pictures: list[str] = []
    for (name, way), mine in itertools.groupby(lines, key=lambda line: (line.data, line.partition)):
        of = Path(name).stem if way in ("even", "owners") else f"{Path(name).stem}-{way.replace('(', '-').strip(')')}"
        pictures += map(str, draw_as(figure(list(mine)), out.with_name(f"{out.stem}-{of}.png"), *how))
    return [*pictures, str(write_page(out.with_suffix(".html"), rows, lines, refused))]


def _names(algorithms: str) -> list[str]:
    """The algorithms that are compared, those of installed plug-ins among them."""
    plugins.load()
    return list(BASELINES) if algorithms == "all" else [name.strip() for name in algorithms.split(",")]


def _is_file(name: str) -> bool:
    """Return whether this is a file, and not the name of a data set."""
    return name not in (*MADE, *REAL, *EMBEDDED) and not plugins.found("data set", name, REAL) and Path(name).is_file()


def _as_trained(dataset: Dataset, nodes: int, epsilon: float, delta: float) -> dict[str, Any]:
    """Return the problem of `train`'s plan, the same for all algorithms: its loss, its intercept, the l2 part of its h.

    The rest of the plan (batches, rounds, a threshold, private scaling) belongs to the algorithm, not to the problem.
    """
    records = dataset.records
    sizes = np.diff(even(records.n_records, nodes)[0] if records.groups is None else by_group(records.groups)[0][0])
    inputs = Known(
        tuple(sizes.tolist()), records.m + 1, epsilon, delta, intercept=SMALL_INTERCEPT,
        sparse=hasattr(records.X, "tocsr"), free=("loss", "penalty"),
    )  # fmt: skip
    problem = choose(inputs).spec.problem
    shrunk = {"h": l2(problem.h.modulus)} if problem.h.modulus > 0 else {}
    return {"loss": problem.loss, "intercept": problem.intercept} | shrunk


def _dataset(name: str, loss: Loss, flags: RecordFlags, feature_map: str | None) -> Dataset:
    """A set by its name, or a file as `train` would read it, after a public map of its rows."""
    features = None if feature_map is None else FEATURE_MAPS.read(feature_map)
    found = load(name, loss=loss) if not _is_file(name) else _of_file(name, loss, flags)
    return found if features is None else found.mapped(features)


def _of_file(name: str, loss: Loss, flags: RecordFlags) -> Dataset:
    """Read by a schema, or clean numbers within their bound."""
    records = flags.read_records(Path(name), loss, policy=SIMULATION)
    records.check_row_norms()
    if records.outputs > 1 or records.user_ids is not None:
        what = "several classes" if records.outputs > 1 else "people"
        raise SpecError(f"{name}: a comparison is of models of two classes, or of numbers, for records, not of {what}")
    records.choose_loss(loss, planned=False)
    X, y = records.in_public_units()
    groups = None if records.groups is None else np.asarray(records.groups).astype(np.str_)
    return split(Records(X, y, groups, records.features, name), owned=True)


def _show(lines: list[Line], delta: float, refused: dict[str, str]) -> None:
    """A table for each (data, ε, adversary): no column mixes adversaries."""
    for group, found in itertools.groupby(lines, key=lambda x: (x.what, x.epsilon, x.adversary, x.tuned)):
        (data, epsilon, adversary, tuned), mine = group, list(found)
        title = f"\n{data}, ε = {epsilon:g}, δ = {delta:g}, '{adversary}' ({ADVERSARIES.read(adversary).sees})"
        table = Table(title=title + (f"\n{tuned_words(mine[0])}" if tuned else ""), title_justify="left", box=None)
        own = mine[0].metrics
        for column in ("", "algorithm", "F − F*", "test accuracy", "AUC", *own, "true ε", "sent", "s"):
            table.add_column(column, justify="left" if column == "algorithm" else "right")
        for x in mine:
            table.add_row(
                f"{'=' if x.tied else ''}{x.rank}",
                x.algorithm + (" (pure ε)" if x.pure else ""),
                shown(x.objective if math.isnan(x.suboptimality.mean) else x.suboptimality),
                shown(x.test_accuracy),
                shown(x.test_auc),
                *map(shown, x.metrics.values()),
                "–" if tuned else number(x.true_epsilon),
                screen.bytes_text(x.bytes),
                f"{x.seconds:.1f}",
            )
        screen.out.print(table)
    notes = [f"'{name}' was not run: {reason}." for name, reason in refused.items()]
    notes.append("± is a 95 % interval over seeds; '=': not distinguished from the one above it by paired differences.")
    notes.append(f"Neighboring data: {ADJACENCY}.")
    screen.out.print(f"[dim]{' '.join(notes)} F and accuracies are {NOT_PRIVATE}.[/]", soft_wrap=True)
