"""How new records of a saved run are read: as those that it was trained on, by its schema or by what it remembers."""

import math
from dataclasses import replace
from pathlib import Path

from sottovoce.cli.flags import ReadFlags
from sottovoce.data.layout import FILE as LAYOUT_FILE
from sottovoce.data.layout import Layout, names_in
from sottovoce.data.policy import ReadPolicy
from sottovoce.data.schema import FILE as SCHEMA_FILE
from sottovoce.data.schema import Column, Label, Schema, plain_columns, read_schema
from sottovoce.errors import DataError
from sottovoce.run.result import Result, belonging


def schema_of_run(
    folder: Path,
    result: Result,
    file: Path,
    data: ReadFlags,
    policy: ReadPolicy,
    unit: str | None = None,
    labels: bool = True,
) -> Schema:
    """The schema for records of a file that a saved run is applied to.

    Parameters
    ----------
    folder, result : of the run
    file : of the records; of a run without a schema its header is read, and nothing else
    data : the options, which go before what the run remembers
    policy : what may be guessed
    unit : the person's column, if it was given
    labels : whether the records need labels
    """
    kept = Layout.read(belonging(folder, LAYOUT_FILE))
    if belonging(folder, SCHEMA_FILE) is not None:
        schema = read_schema(folder / SCHEMA_FILE)
        dialect = data.layout.over(kept).dialect.over(schema.dialect)
        first = data.layout.over(kept).first_index
        if schema.numbered and first is not None:
            schema = replace(schema, first_index=first)
        return replace(schema, dialect=dialect)
    layout = replace(data.layout, unit=unit).over(kept)
    names = names_in(file, data.format, layout.dialect, policy)
    label, width = _label(result), result.columns
    if names is None:
        return Schema(label, numbered=width, plain=True, first_index=layout.first_index)
    optional = {role: getattr(layout, role) for role in ("group", "unit")}
    given = {"group": data.group, "unit": unit}
    absent = {role: None for role, name in optional.items() if name not in names and given[role] is None}
    layout = replace(layout, **absent)  # what only the run remembers need not be in every file
    if not labels:
        return _without_label(result, label, names, layout, file)
    schema = plain_columns(names, label, layout, str(file), result.features)
    if len(schema.columns) != width:
        raise DataError(
            f"{file}: there are {len(schema.columns)} columns besides label, owner and person, and the model has "
            f"{width} features; give the same columns as in training"
        )
    return schema


def _label(result: Result) -> Label:
    if result.classes is None:
        return Label("", None, -math.inf, math.inf)
    return Label("", tuple(result.classes))


def _without_label(result: Result, label: Label, names: list[str], layout: Layout, file: Path) -> Schema:
    """Features alone: by name where the run knows names, else all columns but those that have another use."""
    from sottovoce.data.columns import LABELS, check_names, listed  # here: Arrow's parts are slow to load

    check_names(names, str(file))
    if result.features is not None:
        lost = [name for name in result.features if name not in names]
        if lost:
            raise DataError(f"{file}: the columns {listed(lost)} are missing; give all that the model was trained on")
        chosen = list(result.features)
    else:
        used = {layout.label, layout.group, layout.unit} | ({*LABELS} if layout.label is None else set())
        chosen = [name for name in names if name not in used]
        width = result.columns
        if len(chosen) != width:
            raise DataError(
                f"{file}: there are {len(chosen)} columns where the model has {width} features; give the same features"
            )
    columns = tuple(Column(name, "number") for name in chosen)
    spare = next(name for name in ("label", "label_", "_label") if name not in chosen)
    return Schema(replace(label, column=spare), columns, plain=True, dialect=layout.dialect)
