"""`sottovoce data`: real data sets fetched, stand-ins for them made."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Columns

from sottovoce import limits
from sottovoce.cli import screen
from sottovoce.data.fetch import SOURCES, cache_folder, fetch, found
from sottovoce.data.standins import epsilon_like, rcv1_like
from sottovoce.data.tables import Table, save_table
from sottovoce.errors import Interrupted
from sottovoce.matrices import is_sparse

app = typer.Typer(help="Fetch real data sets, or make stand-ins for them.", no_args_is_help=True)

Update = Callable[[int, int | None], None]


class StandIn(StrEnum):
    """What can be made."""

    EPSILON = "epsilon-like"
    RCV1 = "rcv1-like"


SIZES = {StandIn.EPSILON: (400_000, 2000), StandIn.RCV1: (677_399, 47_236)}

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Folder = Annotated[Path | None, typer.Option("--folder", help="Where downloads are kept.", show_default="the cache")]


@app.command("fetch")
def fetch_(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(SOURCES)}; with the test file, unless --one.")],
    folder: Folder = None,
    base: Annotated[str | None, typer.Option("--base", help="Address of a mirror of the LIBSVM data page.")] = None,
    one: Annotated[bool, typer.Option("--one", help="Only this file, not the test file beside it.")] = False,
    json: Json = False,
) -> None:
    """Download a real data set, once; an interrupted download is resumed."""
    names = [name] if one or f"{name}.t" not in SOURCES else [name, f"{name}.t"]
    files = []
    for each in names:
        present = found(each, folder) is not None
        with _bar(
            each, "checking", json, DownloadColumn(), "stopped; started again, the download goes on from here"
        ) as update:
            path = fetch(each, folder, base, update)
        source = SOURCES[each]
        files.append(
            {
                "name": each,
                "path": str(path),
                "bytes": path.stat().st_size,
                "records": source.records,
                "features": source.features,
                "fetched": not present,
            }
        )
        if not json:
            how = "was here already" if present else "fetched"
            screen.out.print(f"{each}: {how}, {source.records:,} × {source.features:,}, {path}", soft_wrap=True)
    if json:
        screen.say_json({"files": files})


@app.command("list")
def list_(folder: Folder = None, json: Json = False) -> None:
    """Show what can be fetched or made, and what is already here."""
    rows: list[dict[str, Any]] = []
    for name, source in SOURCES.items():
        path = found(name, folder)
        rows.append(
            {
                "name": name,
                "records": source.records,
                "features": source.features,
                "file": source.file,
                "what": source.what,
                "path": None if path is None else str(path),
                "bytes": None if path is None else path.stat().st_size,
            }
        )
    made: list[dict[str, Any]] = [
        {"name": str(name), "records": size[0], "features": size[1]} for name, size in SIZES.items()
    ]
    if json:
        screen.say_json({"folder": str(folder or cache_folder()), "files": rows, "stand_ins": made})
        return
    table = Columns(box=None, padding=(0, 2))
    for column in ("name", "records × features", "what", "here"):
        table.add_column(column, no_wrap=column != "what")
    for row in rows:
        here = "no" if row["bytes"] is None else screen.bytes_text(row["bytes"])
        table.add_row(row["name"], f"{row['records']:,} × {row['features']:,}", row["what"], here)
    for row in made:
        table.add_row(row["name"], f"{row['records']:,} × {row['features']:,}", "stand-in, made from a seed", "")
    screen.out.print(table)
    screen.out.print(f"downloads are kept in {folder or cache_folder()}", soft_wrap=True)


@app.command()
def make(
    name: Annotated[StandIn, typer.Argument(help="Which.")],
    records: Annotated[
        int | None, typer.Option("--records", help="How many records.", show_default="as many as the original")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The file, .npz.", show_default="NAME.npz")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Another seed is another data set of the same kind.")] = 0,
    test: Annotated[bool, typer.Option("--test", help="Other records of the same kind, to test on.")] = False,
    json: Json = False,
) -> None:
    """Make a stand-in for one of the paper's data sets, as an .npz file."""
    n_records = SIZES[name][0] if records is None else limits.check_count("--records", records, 10**8, 0)
    maker = epsilon_like if name is StandIn.EPSILON else rcv1_like
    path = out if out is not None else Path(f"{name}.t.npz" if test else f"{name}.npz")
    with _bar(name, "writing", json, MofNCompleteColumn(), "stopped; nothing was written") as update:
        table = maker(n_records, seed=seed, test=test, progress=update)
        save_table(table, path)
    summary = _summary(table) | {"seed": seed, "test": test, "path": str(path), "bytes": path.stat().st_size}
    if json:
        screen.say_json(summary)
    else:
        screen.out.print(
            f"{name}: {table.n_records:,} × {table.m:,}, {summary['entries']:,} entries, "
            f"{screen.bytes_text(summary['bytes'])} in {path}",
            soft_wrap=True,
        )


def _summary(table: Table) -> dict[str, Any]:
    entries = table.X.nnz if is_sparse(table.X) else table.X.size
    return {"name": table.name, "records": table.n_records, "features": table.m, "entries": int(entries)}


@contextmanager
def _bar(title: str, after: str, quiet: bool, amount: Any, stopped: str) -> Iterator[Update | None]:
    """Show a progress bar on a terminal; Ctrl-C ends with a one-line message."""
    try:
        if quiet or not screen.err.is_terminal:
            yield None
            return
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), amount, TimeRemainingColumn())
        with Progress(*columns, console=screen.err, transient=True) as progress:
            task = progress.add_task(title, total=None)

            def update(done: int, total: int | None) -> None:
                text = title if total is None or done < total else f"{title}: {after}"
                progress.update(task, completed=done, total=total, description=text)

            yield update
    except KeyboardInterrupt:
        raise Interrupted(stopped) from None
