"""`sottovoce ledger`: what a node has released, whether the chain holds, and what its owner allows."""

from json import dumps
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as Grid

from sottovoce.cli import screen
from sottovoce.errors import StoreError
from sottovoce.node.budget import Budget, contradictions, overview, read_export, sentence
from sottovoce.node.budget import export as exported
from sottovoce.node.node import DATASET
from sottovoce.node.store import Store
from sottovoce.run.result import write_atomically

app = typer.Typer(help="What a node has released, and what its owner allows.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="The node's folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Dataset = Annotated[str, typer.Option("--dataset", help="The owner's name for these records.")]


@app.command()
def show(folder: Folder, json: Json = False) -> None:
    """Show the runs of a folder, and what each data set has cost of its budget."""
    found = overview(Store(folder, reading=True))
    if json:
        screen.say_json(found)
        return
    table = Grid(title="runs", title_justify="left", box=None, padding=(0, 1, 0, 0))
    for column in ("run", "name", "node", "data set", "state", "sent", "σ"):
        word, right = column in ("name", "node", "data set"), column in ("sent", "σ")
        table.add_column(column, no_wrap=not word, overflow="fold", justify="right" if right else "left")
    for run in found["runs"]:
        counts = (f"{run['released']:,} of {run.get('planned', run['rounds']):,}", f"{run['sigma']:.4g}")
        names = (screen.plain(run[name]) for name in ("name", "node", "dataset"))
        table.add_row(run["run"][:8], *names, run["state"], *counts)
    screen.out.print(table)
    for each in found["datasets"]:
        screen.out.print(screen.plain(sentence(each)))
    screen.out.print(f"{found['rows']:,} rows, head {found['head'][:16]}")


@app.command()
def verify(
    folder: Folder,
    against: Annotated[
        list[Path],
        typer.Option("--against", help="An earlier export of this ledger, or a peer's export; several times."),
    ] = [],  # noqa: B006 - Typer wants a list
    json: Json = False,
) -> None:
    """Check the chain, the messages and the state; exit code 6 where something does not hold."""
    store = Store(folder, reading=True)
    faults = store.verify()
    for path in against:
        faults += contradictions(store.rows(), store.identity, read_export(path))
    if faults:
        raise StoreError(f"the ledger in '{folder}' does not hold: {'; '.join(faults)}")
    rows = store.rows()
    head = rows[-1].hash.hex() if rows else ""
    if json:
        screen.say_json({"holds": True, "rows": len(rows), "head": head})
    else:
        screen.out.print(f"[green]holds:[/] {len(rows):,} rows, head {head[:16]}")


@app.command()
def export(
    folder: Folder,
    out: Annotated[Path | None, typer.Option("--out", help="A file, in place of the screen.")] = None,
    json: Annotated[bool, typer.Option("--json", help="It is always JSON.")] = True,
) -> None:
    """Write the whole ledger and the peers' high-water marks as JSON, for another party to keep."""
    screen.writable_file(out)
    found = exported(Store(folder, reading=True))
    if out is None:
        screen.say_json(found)
    else:
        write_atomically(out, f"{dumps(found, ensure_ascii=False)}\n".encode())


@app.command()
def abandon(
    folder: Folder,
    run: Annotated[str, typer.Argument(help="The run's name.")],
    json: Json = False,
) -> None:
    """Give a run up for good: it never goes on here, and its keys are erased; what it has released stays released."""
    store = Store(folder)
    try:
        digest = store.run_of(run)
        store.abandon(digest)
    finally:
        store.close()
    if json:
        screen.say_json({"run": digest, "abandoned": True})
    else:
        screen.out.print(f"run '{screen.plain(run)}' ({digest[:12]}) is over here, and its keys are erased")


@app.command()
def budget(
    folder: Folder,
    epsilon: Annotated[float, typer.Option("--epsilon", help="ε of everything ever released of these records.")],
    delta: Annotated[float, typer.Option("--delta", help="δ of the same.")] = 1e-5,
    dataset: Dataset = DATASET,
    json: Json = False,
) -> None:
    """Set the owner's total budget; a later one takes the place of an earlier one, and both stay in the ledger."""
    limit = Budget(epsilon, delta)
    store = Store(folder)
    store.set_budget(limit.detail(dataset))
    store.close()
    if json:
        screen.say_json({"dataset": dataset, "epsilon": epsilon, "delta": delta})
    else:
        screen.out.print(f"data set '{screen.plain(dataset)}' may cost ε = {epsilon:g} at δ = {delta:g} in all")
