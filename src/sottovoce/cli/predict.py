"""`sottovoce predict MODEL FILE`: labels for new records from a saved result."""

import csv
import io
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from sottovoce.cli import screen
from sottovoce.cli.flags import ReadFlags, grouped
from sottovoce.cli.saved import schema_of_run
from sottovoce.data.dialect import Dialect
from sottovoce.data.load import NAMED, format_of
from sottovoce.data.policy import PREDICTION, SIMULATION, ReadPolicy
from sottovoce.data.values import read_columns
from sottovoce.errors import DataError, SpecError
from sottovoce.evaluation.curves import probabilities as chances
from sottovoce.run.result import Result, chosen_threshold, write_atomically


@grouped
def predict(
    model: Annotated[Path, typer.Argument(help="A folder written by `sottovoce train --out`.")],
    file: Annotated[Path, typer.Argument(help="Records: svmlight, CSV or Parquet; labels are not needed.")],
    data: ReadFlags,
    id: Annotated[str | None, typer.Option("--id", help="A column to write beside every prediction.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Write the model's scores beside them, too.")] = False,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="And the probability of every class, by a public formula.")
    ] = False,
    threshold: Annotated[
        str | None,
        typer.Option("--threshold", help="stored (found by `evaluate --recall`) or a number; the run's own."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write one prediction a line here instead of to the screen.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Predict the label (or the number) of every record in FILE with the mean model of a saved run."""
    screen.writable_file(out)
    result = chosen_threshold(model, Result.load(model), threshold)
    if probabilities and result.classes is None:
        raise SpecError("a regression has no classes and no probabilities; leave --probabilities out")
    policy = PREDICTION if result.spec.seed is None else SIMULATION
    schema = schema_of_run(model, result, file, data, policy, labels=False)
    X = schema.read_rows(file, data.format, policy)
    labels, decided = result.predict(X), result.decide(X)
    ids = None if id is None else _ids(file, data.format, schema.dialect, id, policy)
    if ids is not None and len(ids) != len(labels):
        raise DataError(f"{file}: the file has {len(labels)} records but {len(ids)} values of '{id}'; fix the file")
    likely = chances(decided, result.spec.problem.loss.name, result.scale.link) if probabilities else None
    if json:
        beside: dict[str, Any] = {} if ids is None else {str(id): ids}
        output = beside | {"predictions": labels.tolist(), "decisions": decided.tolist()}
        screen.say_json(output | ({} if likely is None else {"probabilities": likely.tolist()}))
        return
    text = _table(result, labels, decided if scores else None, likely, id, ids)
    if out is None:
        print(text, end="")
    else:
        write_atomically(out, text.encode())
        screen.out.print(f"{np.size(labels):,} predictions written to {out}")


def _ids(file: Path, format: str | None, dialect: Dialect, column: str, policy: ReadPolicy) -> list[str]:
    kind = format_of(file, format)
    if kind not in NAMED:
        raise SpecError(f"{file}: {kind} files have no named columns, so no --id can be named; use CSV or Parquet")
    found = read_columns(file, kind, [], [column], (), dialect, policy).texts[column]
    return ["" if value is None else str(value) for value in found]


def _no_formula(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula; numbers stay as they are.

    Examples
    --------
    >>> [_no_formula(cell) for cell in ("=1+1", "@x", "-0.5", "-x", "p17")]
    ["'=1+1", "'@x", '-0.5', "'-x", 'p17']
    """
    if not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def _table(result: Result, labels: Any, scores: Any, likely: Any, id: str | None, ids: list[str] | None) -> str:
    """One prediction a line; a CSV with a header where something stands beside it."""
    words = [f"{value:g}" if isinstance(value, float) else str(value) for value in labels.tolist()]
    if ids is None and scores is None and likely is None:
        return "".join(f"{word}\n" for word in words)
    columns: dict[str, list[str]] = {} if ids is None else {str(id): ids}
    columns["prediction"] = words
    if scores is not None:
        named = [f"score {name}" for name in result.classes or ()] if scores.ndim > 1 else ["score"]
        columns |= dict(zip(named, np.atleast_2d(scores.T).astype(str).tolist(), strict=True))
    if likely is not None:
        named = [f"probability {name}" for name in result.classes or range(likely.shape[1])]
        columns |= dict(zip(named, likely.T.astype(str).tolist(), strict=True))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_no_formula, columns))
    writer.writerows(map(_no_formula, row) for row in zip(*columns.values(), strict=True))
    return text.getvalue()
