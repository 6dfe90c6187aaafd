"""`sottovoce predict MODEL FILE`: labels for new records from a saved result."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from sottovoce.cli import screen
from sottovoce.data.load import load
from sottovoce.result import Result


def predict(
    model: Annotated[Path, typer.Argument(help="A folder written by `sottovoce train --out`.")],
    file: Annotated[Path, typer.Argument(help="Records: svmlight, CSV or Parquet; labels are not needed.")],
    label: Annotated[str | None, typer.Option(help="The target's column, if the file has one.")] = None,
    group: Annotated[str | None, typer.Option(help="The owner's column, if the file has one.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write one prediction a line here instead of to the screen.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Predict the label (or the number) of every record in FILE with the mean model of a saved run."""
    result = Result.load(model)
    if result.features is not None:
        table = load(file, columns=result.features)  # by name: other columns, and their order, do not matter
    else:
        table = load(file, label=label, group=group, n_features=result.coef.shape[-1], require_label=False)
    labels = result.predict(table.X)
    if json:
        screen.say_json({"predictions": labels.tolist(), "decisions": result.decide(table.X).tolist()})
        return
    text = "\n".join(f"{value:g}" if isinstance(value, float) else str(value) for value in labels.tolist())
    if out is None:
        print(text)
    else:
        out.write_text(text + "\n")
        screen.out.print(f"{np.size(labels):,} predictions written to {out}")
