"""`sottovoce export RUN --out FOLDER`: what may be published of a saved run, and nothing else."""

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli import screen


def export(
    run: Annotated[Path, typer.Argument(help="A folder written by `train --out`, `tune --out` or `model.save`.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to publish: a new or an empty one.")],
    name: Annotated[str | None, typer.Option("--name", help="The model's name, for its card.")] = None,
    use: Annotated[str | None, typer.Option("--use", help="What it is for, for its card.")] = None,
    threshold: Annotated[
        str | None,
        typer.Option("--threshold", help="stored (found by `evaluate --recall`) or a number; the run's own."),
    ] = None,
    without_guarantee: Annotated[
        bool, typer.Option("--without-guarantee", help="Also a simulation or a run without noise; its card says so.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Take the place of an earlier export.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write the model (JSON, and ONNX where it is installed), its statement and a model card, all verified first."""
    from sottovoce.export import publish  # schemas take a moment to load

    files = publish(run, out, name=name, use=use, threshold=threshold, without_guarantee=without_guarantee, force=force)
    if json:
        screen.say_json({"out": str(out), "files": [path.name for path in files], "verified": True})
    else:
        screen.out.print(
            f"[green]verified[/], and written to {out}: {', '.join(path.name for path in files)}", soft_wrap=True
        )
