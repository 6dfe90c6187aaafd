"""CSV and Parquet: named columns into a dense table of numbers, with the label and the owner taken out.

Which columns hold numbers is found out by looking at all of them, so this is how a file is read where one party has it
all. A node reads its records by a public schema instead (`schema.py`), which looks at nothing.
"""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from sottovoce.data.tables import Table
from sottovoce.errors import DataError

LABELS = ("label", "y", "target", "class")
"""The names under which a label column is found without being named."""

SHOWN = 12  # columns that a message lists at the most


def read_parquet(path: Path) -> Any:
    """The file as an Arrow table: of this file alone, no columns guessed from the folders above it."""
    with pa.parquet.ParquetFile(pa.OSFile(os.fsencode(path))) as file:
        return file.read()


def to_table(columns: Any, name: str, label: str | None, group: str | None, require_label: bool) -> Table:
    """Numbers, label and owner from an Arrow table; the first column that does not fit is named in a `DataError`."""
    names = [str(column) for column in columns.column_names]
    _check_names(names, name)
    if group is not None and group not in names:
        raise DataError(f"{name}: there is no column '{group}' to group by; name with --group one of {_listed(names)}")
    label = _label(names, name, label, group, require_label)
    if columns.num_rows == 0:
        raise DataError(f"{name}: the file holds no records, only the names of its columns; add at least one record")
    features = [column for column in names if column not in (label, group)]
    if not features:
        raise DataError(f"{name}: there are no columns besides the label and the owner; add at least one feature")
    at = {column: j for j, column in enumerate(names)}
    numbers = [_numbers(columns.column(at[column]), column, name) for column in features]
    single = all(column.dtype == np.float32 for column in numbers)
    X = np.empty((columns.num_rows, len(features)), dtype=np.float32 if single else np.float64)
    for j, column in enumerate(numbers):
        X[:, j] = column
    return Table(
        X=X,
        y=None if label is None else _labels(columns.column(at[label]), label, name),
        groups=None if group is None else _text(columns.column(at[group]), group, name),
        features=tuple(features),
        name=name,
    )


def chosen(columns: Any, features: Sequence[str], name: str) -> Any:
    """Some columns of an Arrow table, in the given order."""
    missing = [feature for feature in features if feature not in columns.column_names]
    if missing:
        raise DataError(f"{name}: the columns {_listed(missing)} are missing; give all that the model was trained on")
    return columns.select(list(features))


def _check_names(names: list[str], name: str) -> None:
    if not names:
        raise DataError(f"{name}: the file has no columns; it should have the label and at least one feature")
    for j, column in enumerate(names):
        if not column.strip() or column.startswith("__index_level_"):  # pandas writes row numbers under these
            raise DataError(
                f"{name}: column {j + 1} is an index without a name, which is no feature; "
                "write the file without it (index=False), or name it"
            )
        if not column.isprintable():
            raise DataError(
                f"{name}: the name of column {j + 1} holds a tab or a line break; check the quotes, and whether the "
                "columns are separated by tabs (--format tsv)"
            )
    column, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise DataError(f"{name}: {count} columns are called '{column}'; give every column a name of its own")
    # a line of numbers is a record, not the names; columns numbered 0, 1, 2 … or 1, 2, 3 … are names
    counted = [[str(j) for j in range(start, start + len(names))] for start in (0, 1)]
    if all(_is_number(column) for column in names) and names not in counted:
        raise DataError(f"{name}: the first line holds numbers where the columns' names should be; add a header line")


def _label(names: list[str], name: str, label: str | None, group: str | None, require_label: bool) -> str | None:
    """The label's column: the one named, else the one that goes by a usual name; never a guess between two."""
    if label is not None:
        if label in names:
            return label
        if not require_label:
            return None
        raise DataError(f"{name}: there is no label column '{label}'; name with --label one of {_listed(names)}")
    usual = [column for column in names if column in LABELS and column != group]
    if len(usual) > 1:
        raise DataError(f"{name}: {_listed(usual)} could each be the label; name the right one with --label")
    if not usual and require_label:
        raise DataError(
            f"{name}: no column is called {_listed(list(LABELS), 'or')}; name the label with --label, "
            f"one of {_listed(names)}"
        )
    return usual[0] if usual else None


def _numbers(column: Any, title: str, name: str) -> NDArray[Any]:
    """A column as float64, or float32 where it was stored so."""
    column = _decoded(column)
    _refuse_missing(column, title, name)
    kind = column.type
    if _is_text(kind):
        # a column of numbers with a slip of the pen in it reads as text: show the slip
        first = next((j for j, value in enumerate(column.to_pylist()) if not _is_number(value)), 0)
        raise DataError(
            f"{name}: column '{title}' holds text; encode it as numbers first, or name it with --group "
            f"(record {first + 1} has '{_short(column[first].as_py())}')"
        )
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        values = column.cast(pa.float64(), safe=False).to_numpy()
    elif pa.types.is_floating(kind):
        values = column.to_numpy()
    else:
        raise DataError(
            f"{name}: column '{title}' holds {_spoken(kind)}; encode it as numbers first, or name it with --group"
        )
    _refuse_not_finite(values, title, name)
    return values if values.dtype == np.float32 else values.astype(np.float64)


def _labels(column: Any, title: str, name: str) -> NDArray[Any]:
    """The label's column as float64, or as text where it holds names of classes; '+1' and '-1' are numbers."""
    column = _decoded(column)
    if not _is_text(column.type):
        return _numbers(column, title, name).astype(np.float64)
    text = _text(column, title, name)
    if not all(_is_number(value) for value in text):
        return text
    values = text.astype(np.float64)
    _refuse_not_finite(values, title, name)
    return values


def _text(column: Any, title: str, name: str) -> NDArray[np.str_]:
    column = _decoded(column)
    _refuse_missing(column, title, name)
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        raise DataError(f"{name}: column '{title}' holds {_spoken(column.type)}; write it as UTF-8 text or numbers")
    return np.array([str(value) for value in column.to_pylist()], dtype=np.str_)


def _decoded(column: Any) -> Any:
    """Without dictionary encoding, which is how pandas writes categories."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _refuse_missing(column: Any, title: str, name: str) -> None:
    missing = column.is_null(nan_is_null=True)
    if _is_text(column.type):
        missing = pc.or_kleene(missing, pc.equal(pc.utf8_trim_whitespace(column), ""))
    first = pc.index(missing, True).as_py()
    if first >= 0:
        raise DataError(
            f"{name}: column '{title}' has no value in record {first + 1}; fill it in, or drop that record or column"
        )


def _refuse_not_finite(values: NDArray[Any], title: str, name: str) -> None:
    if not np.all(np.isfinite(values)):
        first = int(np.flatnonzero(~np.isfinite(values))[0])
        raise DataError(
            f"{name}: column '{title}' has the value {values[first]} in record {first + 1}; every value must be a "
            "finite number: replace it, or drop that record"
        )


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _spoken(kind: Any) -> str:
    if pa.types.is_temporal(kind):
        return "dates or times"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "bytes that are not UTF-8 text"
    return f"values of type {kind}"


def _listed(names: list[str], last: str = "and") -> str:
    quoted = [f"'{_short(column)}'" for column in names[:SHOWN]]
    if len(names) > SHOWN:
        quoted.append(f"{len(names) - SHOWN} more")
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {last} {quoted[-1]}"


def _short(text: str) -> str:
    text = "".join(letter if letter.isprintable() else "�" for letter in text[:41])
    return text if len(text) <= 40 else text[:39] + "…"
