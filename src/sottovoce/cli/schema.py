"""`sottovoce schema FILE`: a first draft of what the columns of a file are, to be completed by a person."""

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli import screen
from sottovoce.cli.flags import FileFlags, grouped
from sottovoce.errors import SpecError
from sottovoce.run.result import write_atomically


@grouped
def schema(
    file: Annotated[Path, typer.Argument(help="Records: CSV, Parquet or .xlsx; also .gz, .bz2, .xz, .zst.")],
    data: FileFlags,
    unit: Annotated[str | None, typer.Option("--user-id", help="Column of person ids.")] = None,
    codebook: Annotated[
        Path | None, typer.Option("--codebook", help="A public CSV with column,type,low,high,values (A|B|C).")
    ] = None,
    codebook_template: Annotated[
        bool, typer.Option("--codebook-template", help="Write a codebook with the columns' names, to fill in.")
    ] = False,
    missing: Annotated[
        list[str] | None,
        typer.Option("--missing-value", help="A text that stands for an empty cell (k.A.); repeat it."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write it here instead of to the screen.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Take the place of another file at --out.")] = False,
) -> None:
    """Draft a schema.toml from FILE; bounds are left to be filled in, and what was read off the data says so."""
    from sottovoce.data import draft  # here: Arrow's parts are slow to load
    from sottovoce.data.guess import READ_OFF

    screen.writable_file(out, force=force)
    if codebook_template:
        if codebook is not None:
            raise SpecError("--codebook is a filled-in codebook and --codebook-template an empty one; give one of them")
        text = draft.codebook_template(file, data.format, data.dialect)
        _write(text, out, "a codebook to fill in", "fill in what is publicly known, then give it with --codebook")
        return
    known = None if codebook is None else draft.read_codebook(codebook)
    text = draft.draft(file, data.format, data.dialect, data.label, unit, data.group, known, missing or ())
    _write(text, out, "a draft of the schema", _next(text.count('"?"'), text.count(READ_OFF)))


def _write(text: str, out: Path | None, what: str, todo: str) -> None:
    """Write to a file, and print what to do next; or to the screen."""
    if out is None:
        print(text, end="")
        return
    write_atomically(out, text.encode())
    screen.out.print(f"{what} is in {out}; {todo}", soft_wrap=True)


def _next(unmarked: int, read: int) -> str:
    """What a person still has to do about a draft with so many places to fill in, and so many lines from the data."""
    todo = []
    if unmarked:
        todo.append(f"fill in what is marked '?' ({unmarked})")
    if read:
        todo.append(f"compare what was read off the data with what is publicly known ({read} lines say so)")
    return " and ".join(todo) or "nothing in it was read off the data, and nothing is left to fill in"
