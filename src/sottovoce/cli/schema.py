"""`sottovoce schema FILE`: a first draft of what the columns of a file are, to be completed by a person."""

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli import screen
from sottovoce.cli.flags import FileFlags, grouped
from sottovoce.run.result import write_atomically


@grouped
def schema(
    file: Annotated[Path, typer.Argument(help="Records: CSV or Parquet; also .gz, .bz2, .xz, .zst.")],
    data: FileFlags,
    unit: Annotated[str | None, typer.Option("--user-id", help="Column of person ids.")] = None,
    codebook: Annotated[
        Path | None, typer.Option("--codebook", help="A public CSV with column,type,low,high,values (A|B|C).")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write it here instead of to the screen.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Take the place of another file at --out.")] = False,
) -> None:
    """Draft a schema.toml from FILE; bounds are left to be filled in, and what was read off the data says so."""
    from sottovoce.data.draft import READ_OFF, draft, read_codebook  # here: Arrow's parts are slow to load

    screen.writable_file(out, force=force)
    known = None if codebook is None else read_codebook(codebook)
    text = draft(file, data.format, data.dialect, data.label, unit, data.group, known)
    if out is None:
        print(text, end="")
        return
    write_atomically(out, text.encode())
    todo = _next(text.count('= "?"'), text.count(READ_OFF))
    screen.out.print(f"a draft of the schema is in {out}; {todo}", soft_wrap=True)


def _next(unmarked: int, read: int) -> str:
    """What a person still has to do about a draft with so many places to fill in, and so many lines from the data."""
    todo = []
    if unmarked:
        todo.append(f"fill in what is marked '?' ({unmarked})")
    if read:
        todo.append(f"compare what was read off the data with what is publicly known ({read} lines say so)")
    return " and ".join(todo) or "nothing in it was read off the data, and nothing is left to fill in"
