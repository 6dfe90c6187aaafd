"""`sottovoce report FOLDER...`: draw saved runs anew, without running anything."""

import json as json_
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from sottovoce.cli import screen
from sottovoce.data.schema import FILE as SCHEMA_FILE
from sottovoce.data.schema import read_schema
from sottovoce.errors import DataError, PrivacyError
from sottovoce.run.result import EVALUATION, Result, belonging

NAME = "report.html"
AUDITED = "audit.json"
"""What `sottovoce audit` writes beside a result."""


def report(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders written by `train --out`, or folders of such folders.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="The file to write (FOLDER/report.html, or report.html for several).")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="The report's heading.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write one HTML file about a saved run, or compare several: no network needed, neither now nor by its readers."""
    screen.writable_file(out)
    saved = [run for folder in folders for run in saved_runs(folder)]
    results = [Result.load(run) for run in saved]
    for run, result in zip(saved, results, strict=True):
        try:
            result.verify()  # a picture of an ε is believed: none is drawn of one that was changed
        except PrivacyError as error:
            raise PrivacyError(f"the run in '{run}' does not verify, and is not drawn: {error}") from None
    place = out if out is not None else (folders[0] / NAME if len(folders) == 1 else Path(NAME))
    heading = title if title is not None or len(saved) > 1 else str(saved[0])
    beside = (_evaluation(saved[0]), _audit(saved[0])) if len(saved) == 1 else (None, None)
    axes = axes_of(saved[0]) if len(saved) == 1 else None
    path = write_report(results, place, heading, None, *beside, verified=True, axes=axes)
    if open_:
        webbrowser.open(path.absolute().as_uri())
    if json:
        screen.say_json({"report": str(path), "runs": [str(run) for run in saved]})
    else:
        screen.out.print(f"{len(saved)} {'run' if len(saved) == 1 else 'runs'} drawn into {path}", soft_wrap=True)


def write_report(
    results: list[Result],
    path: Path,
    title: str | None = None,
    labels: list[str] | None = None,
    evaluation: dict[str, Any] | None = None,
    audit: dict[str, Any] | None = None,
    verified: bool = False,
    axes: dict[str, Any] | None = None,
) -> Path:
    """The report of some results, and of the private evaluation and the audit of a single one."""
    from sottovoce.report import write  # Bokeh takes long to load: only when used

    return write(results, path, title, labels, evaluation, audit, verified, axes)


def axes_of(folder: Path) -> dict[str, Any] | None:
    """The columns' own units, by the schema beside a run; None without one."""
    return None if belonging(folder, SCHEMA_FILE) is None else read_schema(folder / SCHEMA_FILE).axes


def _audit(folder: Path) -> dict[str, Any] | None:
    """What `sottovoce audit FOLDER` left beside a run, if it did."""
    kept, text = folder / AUDITED, belonging(folder, AUDITED)
    if text is None:
        return None
    try:
        found = json_.loads(text)
        if not isinstance(found, dict) or not {"audited", "adversary"} <= set(found):
            raise ValueError
        return found
    except (ValueError, RecursionError):
        raise DataError(
            f"'{kept}' cannot be read; make it anew with `sottovoce audit {folder}`, or remove it"
        ) from None


def _evaluation(folder: Path) -> dict[str, Any] | None:
    """What `sottovoce evaluate` left beside a result."""
    path, text = folder / EVALUATION, belonging(folder, EVALUATION)
    if text is None:
        return None
    try:
        found = json_.loads(text)
        if not {"figures", "records", "noise"} <= set(found):
            raise ValueError
        return dict(found)
    except (OSError, ValueError, TypeError):
        raise DataError(f"'{path}' is no readable evaluation; make it anew, or remove it") from None


def saved_runs(folder: Path) -> list[Path]:
    """The folder, if it holds a result, or all folders in it that do, in order."""
    if (folder / "result.json").exists():
        return [folder]
    found = sorted(path.parent for path in folder.glob("*/result.json"))
    if not found:
        raise DataError(f"there is no result in '{folder}'; give a folder written by `sottovoce train --out`")
    return found
