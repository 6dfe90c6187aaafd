"""Values read one by one: named columns of a source, as the public schema says that they are, and nothing guessed.

A reader that guesses (is this column of numbers, is '007' a 7?) looks at everybody's records to decide how each is
read. Here every value is read by itself: a number or nothing, a text or nothing.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sottovoce.data.dialect import DIALECT, Dialect
from sottovoce.data.load import Told, arrow_blocks, one_sentence
from sottovoce.errors import DataError

Made = TypeVar("Made")
MISSING = ("", "NA", "NaN", "nan", "null", "NULL", "None")
"""What counts as no value in a text file, unless the schema lists its own."""


@dataclass(frozen=True, eq=False)
class Columns:
    """Some columns of a source: numbers with NaN for a missing one, texts with None for a missing one."""

    numbers: Mapping[str, NDArray[Any]]
    texts: Mapping[str, NDArray[np.object_]]
    records: int
    before: int = 0
    """How many records of the source came before these."""


def read_columns(
    path: Path,
    format: str,
    numbers: Sequence[str],
    texts: Sequence[str],
    missing: Sequence[str] = MISSING,
    dialect: Dialect = DIALECT,
) -> Columns:
    r"""Read the named columns of a CSV, TSV or Parquet file; all others are left alone.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "pupils.csv")
    ...     _ = path.write_text("age,school\n9,007\n,north\n")
    ...     columns = read_columns(path, "csv", ["age"], ["school"])
    >>> columns.numbers["age"], columns.texts["school"].tolist()
    (array([ 9., nan]), ['007', 'north'])
    """
    parts = list(column_blocks(path, format, numbers, texts, missing, dialect, lambda columns: columns))
    if len(parts) == 1:
        return parts[0]
    return Columns(
        {column: np.concatenate([part.numbers[column] for part in parts]) for column in numbers},
        {column: np.concatenate([part.texts[column] for part in parts]) for column in texts},
        sum(part.records for part in parts),
    )


def column_blocks(
    path: Path,
    format: str,
    numbers: Sequence[str],
    texts: Sequence[str],
    missing: Sequence[str],
    dialect: Dialect,
    made: Callable[[Columns], Made],
    told: Told | None = None,
) -> list[Made]:
    """What is made of the columns of a file, some records at a time.

    Where a number is none to Arrow, numbers are read as texts, to be looked at one by one.
    """

    def read(kind: Any) -> list[Made]:
        found: list[Made] = []
        before = 0
        for block in arrow_blocks(
            path,
            format,
            dialect,
            {**dict.fromkeys(numbers, kind), **dict.fromkeys(texts, pa.string())},
            include_columns=[*numbers, *texts],
            null_values=list(missing),
            strings_can_be_null=True,
        ):
            columns = {str(name): block.column(i) for i, name in enumerate(block.column_names)}
            part = from_lists(columns, str(path), numbers, texts, missing, before)
            found.append(made(replace(part, records=block.num_rows)))
            before += block.num_rows
            if told is not None:
                told(before)
        return found

    with one_sentence(path, format):
        try:
            return read(pa.float64())
        except KeyError as error:
            raise DataError(f"{path}: the schema names a column that is not there ({error.args[0]}); add it") from None
        except pa.ArrowInvalid:
            return read(pa.string())


def from_lists(
    values: Mapping[str, Any],
    name: str,
    numbers: Sequence[str],
    texts: Sequence[str],
    missing: Sequence[str] = MISSING,
    before: int = 0,
) -> Columns:
    """Type columns of plain values, such as a database gives them, or of Arrow's.

    Examples
    --------
    >>> from_lists({"age": [9, None], "well": [True, 0]}, "query", ["age"], ["well"]).texts["well"].tolist()
    ['true', '0']
    """
    lost = [column for column in [*numbers, *texts] if column not in values]
    if lost:
        there = ", ".join(map(repr, list(values)[:12]))
        raise DataError(f"{name}: the schema names column '{lost[0]}', which is not there; there are {there}")
    gone = set(missing)
    return Columns(
        {column: _numbers(values[column], column, name, gone, before) for column in numbers},
        {column: _texts(_listed(values[column]), gone) for column in texts},
        len(next(iter(values.values()), ())),
        before,
    )


def _listed(values: Any) -> Sequence[Any]:
    listed: Sequence[Any] = values.to_pylist() if isinstance(values, pa.ChunkedArray) else values
    return listed


def _numbers(values: Any, column: str, name: str, missing: set[str], before: int = 0) -> NDArray[Any]:
    found = _stored(values) if isinstance(values, pa.ChunkedArray) else None
    if found is not None and not np.any(np.isinf(found)):
        return found
    out = np.array([as_number(value, missing) for value in _listed(values)], dtype=object)
    wrong = [place for place, value in enumerate(out) if value is None]
    if wrong:
        raise DataError(
            f"{name}: column '{column}' is a number in the schema, but record {before + wrong[0] + 1} holds "
            "something else; mend the record, or correct the schema (missing_values are what stands for an empty cell)"
        )
    return out.astype(np.float64)


def _stored(values: Any) -> NDArray[Any] | None:
    """Numbers that a file stores as such, NaN for a missing one; None for any other type."""
    kind = values.type
    if pa.types.is_floating(kind):
        return np.asarray(values.to_numpy(), dtype=np.float32 if pa.types.is_float32(kind) else np.float64)
    if pa.types.is_integer(kind):
        return np.asarray(values.cast(pa.float64(), safe=False).to_numpy())
    return None


def as_number(value: Any, missing: set[str]) -> float | None:
    """NaN where there is no value, None where there is one that is no finite number."""
    if value is None or (isinstance(value, str) and value.strip() in missing):
        return math.nan
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) or math.isnan(number) else None


def _texts(values: Iterable[Any], missing: set[str]) -> NDArray[np.object_]:
    out = np.array([None if value is None else as_text(value) for value in values] + [None], dtype=object)[:-1]
    out[[value in missing for value in out]] = None
    return out


def as_text(value: Any) -> str:
    """One spelling for one value, whatever type a source stores it in: 1, 1.0 and '1' are the same category.

    Examples
    --------
    >>> [as_text(value) for value in (1, 1.0, "1", True, " ward A ", 2.5, Decimal("1.00"))]
    ['1', '1', '1', 'true', 'ward A', '2.5', '1']
    """
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        return str(int(value))  # all of its digits: it may be somebody's number
    if isinstance(value, float | np.floating | Decimal):
        value = float(value)
        return "" if math.isnan(value) else str(int(value)) if value.is_integer() else repr(value)
    return str(value).strip()
