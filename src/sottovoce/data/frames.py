"""Tables in memory by a schema: data frames, dictionaries of columns and Arrow tables, as files are read by it."""

from collections import Counter
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from sottovoce._types import Matrix
from sottovoce.data.policy import Note, ReadPolicy
from sottovoce.data.schema import Column, Schema
from sottovoce.data.values import from_lists
from sottovoce.errors import DataError


def columns_of(frame: Any) -> dict[str, Any]:
    """The columns of a table by name, missing values as None.

    Examples
    --------
    >>> columns_of({"age": [9, None], "ward": ["A", float("nan")]})["ward"]
    ['A', None]
    """
    if isinstance(frame, pa.Table):
        return {str(name): frame.column(j) for j, name in enumerate(frame.column_names)}
    if isinstance(frame, Mapping):
        found = {str(name): values for name, values in frame.items()}
    elif hasattr(frame, "columns") and hasattr(frame, "__getitem__"):
        name, count = Counter(map(str, frame.columns)).most_common(1)[0] if len(frame.columns) else ("", 0)
        if count > 1:
            raise DataError(f"{count} columns are called '{name}'; give every column a name of its own")
        found = {str(name): frame[name] for name in frame.columns}
    else:
        raise DataError(
            "a schema speaks of columns by name; give a data frame, a dictionary of columns or an Arrow table, not "
            f"{type(frame).__name__}"
        )
    listed = {name: _plain(values) for name, values in found.items()}
    sizes = {len(values) for values in listed.values()}
    if len(sizes) > 1:
        raise DataError(f"the columns have {min(sizes)} to {max(sizes)} values; give all of them one for each record")
    return listed


def _plain(values: Any) -> Any:
    """A list with None for what is missing; a column of numbers, or of true and false, keeps its type."""
    kind = getattr(values, "dtype", None)
    if isinstance(kind, np.dtype) and kind.kind in "iu":  # as they are: beside one text they would be
        return pa.chunked_array([pa.array(np.asarray(values))])
    if isinstance(kind, np.dtype) and kind.kind == "f":
        return pa.chunked_array([pa.array(np.asarray(values, dtype=np.float64))])
    listed = [
        None if _missing(value) else value for value in (values.tolist() if hasattr(values, "tolist") else values)
    ]
    if str(kind) in ("bool", "boolean"):  # NumPy's and pandas'
        return pa.chunked_array([pa.array(listed, pa.bool_())])
    return listed


def _missing(value: Any) -> bool:
    """None, NaN, NaT and pandas' NA."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:  # NA refuses to be compared
        return True


def encode_frame(schema: Schema, frame: Any, note: Note | None = None) -> Matrix:
    """Encode the rows of a table, each from its own values and the schema alone; a row that cannot be used is NaN.

    No record is refused here, since the caller may train with a guarantee, and a refusal reveals the record. `note` is
    called with what the owner should know. No label, person or owner is needed.
    """
    if schema.numbered:
        raise DataError("this schema has numbered features (svmlight), and no columns that a table could name")
    columns = columns_of(frame)
    for column in schema.columns:
        if column.categories and column.name in columns:
            _check_truth(column, columns[column.name])
    numbers = [column.name for column in schema.columns if column.kind == "number"]
    texts = [column.name for column in schema.columns if column.kind != "number"]
    for column in schema.columns:
        if column.kind == "date" and column.name in columns:
            columns[column.name] = [_written(value, column.format) for value in _listed(columns[column.name])]
    policy = ReadPolicy(guess=False, refuse=False, note=note)
    found = from_lists(columns, "the table", numbers, texts, schema.missing_values, policy, schema.formats)
    X = schema.encode_features(found)
    assert found.unusable is not None
    X[found.unusable] = np.nan
    return X


def _check_truth(column: Column, values: Any) -> None:
    """Refuse a column of true and false, by its type, if its categories are others: none of them is named as true."""
    spelled = {value.casefold() for value in column.categories}
    if isinstance(values, pa.ChunkedArray) and pa.types.is_boolean(values.type) and not spelled & {"false", "true"}:
        first, last = column.categories[0], column.categories[-1]
        raise DataError(
            f"column '{column.name}' is of type bool, but the schema lists {', '.join(map(repr, column.categories))}; "
            f'write categories = ["false", "true"] in the schema, or map the column, as in '
            f"table[{column.name!r}].map({{False: {first!r}, True: {last!r}}})"
        )


def _listed(values: Any) -> Any:
    return values.to_pylist() if isinstance(values, pa.ChunkedArray) else values


def _written(value: Any, format: str) -> Any:
    """A date as the schema expects it to be written."""
    if isinstance(value, date | datetime):
        return value.strftime(format) if format else value.isoformat()
    return value
