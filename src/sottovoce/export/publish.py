"""A saved run into a folder that may be given to anybody: verified, complete, and with nothing else in it."""

import json
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sottovoce.data.schema import FILE as SCHEMA_FILE
from sottovoce.data.schema import Schema, read_schema
from sottovoce.errors import DataError, PrivacyError, SpecError
from sottovoce.export.card import FILES, card
from sottovoce.export.model import model, row_bound
from sottovoce.run.result import ESTIMATOR, EVALUATION, Result, belonging, belonging_object, chosen_threshold


def publish(
    run: str | Path,
    out: str | Path,
    *,
    name: str | None = None,
    use: str | None = None,
    threshold: str | float | None = None,
    without_guarantee: bool = False,
    force: bool = False,
) -> list[Path]:
    """Write model, statement and card of a saved run into a folder of their own.

    Parameters
    ----------
    run : a folder written by `train --out`, `tune --out` or `model.save`
    out : the folder to publish; it must be new or empty, or hold an earlier export
    name, use : for the card: the model's name, and what it is for
    threshold : from which score on a classifier of two answers with its second class: 'stored', the one that `evaluate`
        found for a recall or a rate; a number; or None for the run's own
    without_guarantee : whether to take a simulation, or a run without noise, whose card then says so
    force : whether to take the place of an earlier export

    Returns
    -------
    the files, all that the folder holds
    """
    run, out = Path(run), Path(out)
    result = Result.load(run)
    result.verify()
    result = chosen_threshold(run, result, threshold)
    said = result.statement
    if (said.simulation or not said.private) and not without_guarantee:
        raise PrivacyError(
            f"the run in '{run}' has no guarantee to publish ({said.verdict()}); train without a seed and with noise, "
            "or say --without-guarantee (without_guarantee=True)"
        )
    _check_all_exported(run)
    check_free(out, force)
    evaluation, schema = _evaluation(run, result), _schema(run)
    files = _contents(result, schema, name or run.resolve().name, use, evaluation)
    part = out.with_name(out.name + ".part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for each, content in files.items():
            (part / each).write_bytes(content)
        if out.exists():
            shutil.rmtree(out)  # an earlier export, or nothing
        part.rename(out)
    except OSError as error:
        raise DataError(
            f"the export cannot be written to '{out}' ({error.strerror or error}); give a folder that may be written to"
        ) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return [out / each for each in files]


def _check_all_exported(run: Path) -> None:
    """A model that went on from others' is made of their releases, too, and its statement is of the last one alone."""
    estimator = belonging_object(run, ESTIMATOR)
    earlier = [] if estimator is None else estimator.get("earlier")
    if earlier:
        raise PrivacyError(
            f"the model in '{run}' went on from {len(earlier)} earlier fit{'s' * (len(earlier) > 1)} (warm_start), and "
            "its statement is of the last one alone, so that it may say too little of their records; fit one without "
            "warm_start to publish it"
        )


def check_free(out: Path, force: bool) -> None:
    """A folder to publish holds an export and nothing else."""
    if not out.exists():
        return
    if not out.is_dir():
        raise SpecError(f"'{out}' is a file; give a folder for the export")
    there = sorted(path.name for path in out.iterdir())
    others = [each for each in there if each not in FILES]
    if others:
        raise SpecError(
            f"'{out}' holds other files ({others[0]}), which would be published too; give a new or an empty folder"
        )
    if there and not force:
        raise SpecError(f"there is an export in '{out}' already; give another folder, or --force to replace it")


def _contents(
    result: Result, schema: Schema | None, name: str, use: str | None, evaluation: Mapping[str, Any] | None
) -> dict[str, bytes]:
    said, bound = result.statement, row_bound(result, schema)
    files = {
        "model.json": json.dumps(model(result, schema), ensure_ascii=False, indent=2, allow_nan=False).encode(),
        "statement.json": said.to_json().encode(),
        "statement.txt": f"{said.paragraph()}\n".encode(),
    }
    if find_spec("onnx") is not None:
        from sottovoce.export.graph import graph  # an extra

        metadata = {"privacy": said.verdict(), "adversary": said.adversary, "adjacency": said.adjacency}
        files["model.onnx"] = graph(result, bound, metadata)
    listed = [each for each in FILES if each in files or each == "MODEL_CARD.md"]
    return files | {"MODEL_CARD.md": card(result, name, use, evaluation, listed, bound).encode()}


def _schema(run: Path) -> Schema | None:
    return None if belonging(run, SCHEMA_FILE) is None else read_schema(run / SCHEMA_FILE)


def _evaluation(run: Path, result: Result) -> dict[str, Any] | None:
    """What a private evaluation found, if the statement covers one and it is the one that was kept."""
    found = belonging_object(run, EVALUATION)
    return found if result.statement.covers else None
