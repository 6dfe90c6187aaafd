"""`sottovoce predict MODEL FILE`: labels for new records from a saved result."""

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from sottovoce._types import Matrix
from sottovoce.cli import screen
from sottovoce.cli.flags import Decimal, Encoding, Format, Group, Label, Separator
from sottovoce.data.dialect import Dialect
from sottovoce.data.load import format_of, load
from sottovoce.data.schema import FILE as SCHEMA_FILE
from sottovoce.data.schema import read_columns, read_schema
from sottovoce.errors import DataError, SpecError
from sottovoce.run.result import Result, write_atomically


def predict(
    model: Annotated[Path, typer.Argument(help="A folder written by `sottovoce train --out`.")],
    file: Annotated[Path, typer.Argument(help="Records: svmlight, CSV or Parquet; labels are not needed.")],
    label: Label = None,
    group: Group = None,
    id: Annotated[str | None, typer.Option("--id", help="A column to write beside every prediction.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Write the model's scores beside them, too.")] = False,
    format: Format = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    out: Annotated[Path | None, typer.Option(help="Write one prediction a line here instead of to the screen.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Predict the label (or the number) of every record in FILE with the mean model of a saved run."""
    screen.writable_file(out)
    result, dialect = Result.load(model), Dialect(separator, decimal, encoding)
    X = _rows(model, result, file, format, dialect, label, group)
    labels, decided = result.predict(X), result.decide(X)
    ids = None if id is None else _ids(file, format, dialect, id)
    if ids is not None and len(ids) != len(labels):
        raise DataError(f"{file}: there are {len(labels)} records and {len(ids)} values of '{id}'; mend the file")
    if json:
        beside = {} if ids is None else {str(id): ids}
        screen.say_json(beside | {"predictions": labels.tolist(), "decisions": decided.tolist()})
        return
    text = _table(result, labels, decided if scores else None, id, ids)
    if out is None:
        print(text, end="")
    else:
        write_atomically(out, text.encode())
        screen.out.print(f"{np.size(labels):,} predictions written to {out}")


def _rows(
    model: Path, result: Result, file: Path, format: str | None, dialect: Dialect, label: str | None, group: str | None
) -> Matrix:
    """The records as the model takes them."""
    if (model / SCHEMA_FILE).exists():  # raw columns, encoded as those that were trained on
        schema = read_schema(model / SCHEMA_FILE)
        return replace(schema, dialect=dialect.over(schema.dialect)).read_rows(file, format)
    if result.features is not None:  # by name: other columns, and their order, do not matter
        return load(file, format=format, columns=result.features, dialect=dialect).X
    width = result.coef.shape[-1]
    return load(file, format=format, label=label, group=group, n_features=width, require_label=False, dialect=dialect).X


def _ids(file: Path, format: str | None, dialect: Dialect, column: str) -> list[str]:
    kind = format_of(file, format)
    if kind not in ("csv", "tsv", "parquet"):
        raise SpecError(f"{file}: {kind} files have no named columns, so no --id can be named; use CSV or Parquet")
    found = read_columns(file, kind, [], [column], (), dialect).texts[column]
    return ["" if value is None else str(value) for value in found]


def _table(result: Result, labels: Any, scores: Any, id: str | None, ids: list[str] | None) -> str:
    """One prediction a line; a CSV with a header where something stands beside it."""
    words = [f"{value:g}" if isinstance(value, float) else str(value) for value in labels.tolist()]
    if ids is None and scores is None:
        return "".join(f"{word}\n" for word in words)
    columns: dict[str, list[str]] = {} if ids is None else {str(id): ids}
    columns["prediction"] = words
    if scores is not None:
        named = [f"score {name}" for name in result.classes or ()] if scores.ndim > 1 else ["score"]
        columns |= dict(zip(named, np.atleast_2d(scores.T).astype(str).tolist(), strict=True))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()
