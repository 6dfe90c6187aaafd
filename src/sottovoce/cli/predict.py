"""`sottovoce predict MODEL FILE`: labels for new records from a saved result."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from sottovoce.cli import screen
from sottovoce.cli.flags import Group, Label
from sottovoce.data.load import load
from sottovoce.data.schema import FILE as SCHEMA_FILE
from sottovoce.data.schema import read_schema
from sottovoce.run.result import Result


def predict(
    model: Annotated[Path, typer.Argument(help="A folder written by `sottovoce train --out`.")],
    file: Annotated[Path, typer.Argument(help="Records: svmlight, CSV or Parquet; labels are not needed.")],
    label: Label = None,
    group: Group = None,
    out: Annotated[Path | None, typer.Option(help="Write one prediction a line here instead of to the screen.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Predict the label (or the number) of every record in FILE with the mean model of a saved run."""
    result = Result.load(model)
    if (model / SCHEMA_FILE).exists():  # of real nodes: raw columns, encoded as these encoded theirs
        X = read_schema(model / SCHEMA_FILE).read_rows(file)
    elif result.features is not None:
        X = load(file, columns=result.features).X  # by name: other columns, and their order, do not matter
    else:
        width = result.coef.shape[-1]
        X = load(file, label=label, group=group, n_features=width, require_label=False).X
    labels = result.predict(X)
    if json:
        screen.say_json({"predictions": labels.tolist(), "decisions": result.decide(X).tolist()})
        return
    text = "\n".join(f"{value:g}" if isinstance(value, float) else str(value) for value in labels.tolist())
    if out is None:
        print(text)
    else:
        out.write_text(text + "\n")
        screen.out.print(f"{np.size(labels):,} predictions written to {out}")
