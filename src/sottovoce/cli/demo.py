"""`sottovoce demo`: twenty nodes, no download, half a minute, and the whole story in four runs."""

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from sottovoce import limits
from sottovoce.algorithm.method import constant
from sottovoce.cli import screen
from sottovoce.cli.records import from_table, partition_records
from sottovoce.cli.report import NAME, write_report
from sottovoce.data.embedded import EMBEDDED, embedded
from sottovoce.network.activation import Everyone
from sottovoce.privacy.calibration import NOISES, Private
from sottovoce.privacy.sampling import Poisson
from sottovoce.privacy.statement import number
from sottovoce.problem.losses import LOSSES
from sottovoce.problem.optimum import optimum
from sottovoce.problem.regularizers import l2
from sottovoce.run.build import make_problem
from sottovoce.run.plan import rounds_for_epochs
from sottovoce.run.presets import paper_l2
from sottovoce.run.result import NOT_PRIVATE, Result
from sottovoce.run.solve import solve
from sottovoce.streams import Streams

EPOCHS, BATCH = 3.0, 64


def demo(
    data: Annotated[str, typer.Option(help=f"Which embedded data set: {', '.join(EMBEDDED)}.")] = "synthetic",
    nodes: Annotated[int, typer.Option(help="How many nodes share it.")] = 20,
    epsilon: Annotated[float, typer.Option(help="ε, claimed by the paper's noise and kept by ours.")] = 0.8,
    delta: Annotated[float, typer.Option(help="δ.")] = 1e-5,
    adversary: Annotated[str, typer.Option(help="The adversary; runs face 'transcript' only.")] = "transcript",
    seed: Annotated[int, typer.Option(help="Another seed, another run.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Save the results here.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Take the place of other results there.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Watch nodes train an SVM by gossip: without noise, with the paper's noise, with honest noise."""
    Streams(seed)  # refuses a seed that is none
    limits.check_count("the number of nodes", nodes, limits.NODES)
    screen.writable(out)
    table = embedded(data)
    loss = LOSSES.make("hinge" if data != "diabetes" else "absolute")
    partitioned = partition_records(from_table(table, 1.0, loss), loss, nodes=nodes, seed=seed)
    base = paper_l2(1).replace(problem__loss=loss, problem__h=l2(0.01), privacy__delta=delta, seed=seed)
    base = base.replace(privacy__adversary=adversary)
    batch = min(BATCH, int(partitioned.shards.sizes.min()))
    runs = {
        "no noise": base,
        "paper's noise": base.replace(privacy__noise=NOISES.make("theorem1", min(epsilon, 1.0))),  # stated up to 1
        "honest noise": base.replace(privacy__noise=Private(epsilon)),
        "honest noise, batches": base.replace(
            privacy__noise=Private(epsilon),
            privacy__sampling=Poisson(batch),
            network__activation=Everyone(),
            algorithm__gamma=constant(1),  # fewer rounds want a smaller γ
        ),
    }
    console = screen.err if json else screen.out
    console.print(
        f"[bold]{nodes} nodes[/] hold {table.n_records:,} records of '{table.name}' and show them to nobody. They "
        f"train a linear model by gossip, in {EPOCHS:g} passes over the data: one random pair with one record each at "
        f"a time or, in the last run, everybody with a random batch of about {batch}."
    )
    f_star = optimum(make_problem(base.problem, partitioned.shards), gap=1e-6).value
    results: dict[str, Result] = {}
    for name, spec in runs.items():
        spec = spec.replace(algorithm__rounds=rounds_for_epochs(spec, partitioned.shards.sizes, EPOCHS))
        with screen.bar(f"{name:<22}", quiet=json) as progress:
            results[name] = solve(spec, partitioned.shards, f_star=f_star, progress=progress, **partitioned.names)
    if out is not None:
        for name, result in results.items():
            result.save(out / name.replace("'s", "").replace(",", "").replace(" ", "-"), force=force)
        report = write_report(list(results.values()), out / NAME, f"{table.name}: four runs", list(results))
        console.print(f"saved in {out}; open {report} in a browser", soft_wrap=True)
    if json:
        screen.say_json({name: screen.summary(result, None) for name, result in results.items()})
        return
    _show(results, epsilon, delta)


def _show(results: dict[str, Result], epsilon: float, delta: float) -> None:
    table = Table(title=f"\nAfter training (δ = {delta:g})", title_justify="left")
    score = "accuracy" if next(iter(results.values())).classes is not None else "R²"
    for column in ("run", "σ", "ε claimed", "true ε", "F − F*", score, "sent"):
        table.add_column(column, justify="left" if column == "run" else "right")
    for name, result in results.items():
        s, last = result.statement, result.history.last
        promised = s.claimed if s.claimed is not None else (epsilon if s.private else None)
        table.add_row(
            name,
            f"{s.worst.event.sigma:.3g}",
            "–" if promised is None else f"{promised:g}",
            f"[{'green' if s.private else 'bold red'}]{'∞' if s.epsilon == float('inf') else number(s.epsilon)}[/]",
            f"{last['suboptimality']:.2e}",
            f"{last['train_accuracy']:.3f}",
            screen.bytes_text(last["bytes"]),
        )
    screen.out.print(table)
    screen.out.print(f"[dim]F and accuracy are {NOT_PRIVATE}.[/]\n", soft_wrap=True)
    screen.out.print(screen.privacy_panel(results["honest noise, batches"]))
    command = "sottovoce" if shutil.which("sottovoce") else sys.argv[0]
    advice = f"Train on your own file: [cyan]{command} train FILE --nodes 20 --epsilon 1 --out runs/first[/]"
    screen.out.print(advice, soft_wrap=True)
