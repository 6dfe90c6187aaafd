"""Columns read as the types that a public schema names, never as types guessed from the values.

A reader that guesses (is this column of numbers, is '007' a 7?) looks at everybody's records to decide how each is
read. Here every value is read by itself: a number or nothing, a text or nothing.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from sottovoce._types import Array
from sottovoce.data.load import GARBLED, OPEN
from sottovoce.errors import DataError

MISSING = ("", "NA", "NaN", "nan", "null", "NULL", "None")
"""What counts as no value in a text file, unless the schema lists its own."""

DELIMITERS = {"csv": ",", "tsv": "\t"}


@dataclass(frozen=True, eq=False)
class Columns:
    """Some columns of a source: numbers as float64 with NaN for a missing one, texts with None for a missing one."""

    numbers: Mapping[str, Array]
    texts: Mapping[str, NDArray[np.object_]]
    records: int


def read_columns(
    path: Path, format: str, numbers: Sequence[str], texts: Sequence[str], missing: Sequence[str] = MISSING
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
    if not path.is_file():
        raise DataError(f"{path}: there is no such file; check the path")
    try:
        if format == "parquet":
            from sottovoce.data.columns import read_parquet  # here: Arrow's parts are slow to load

            raw = read_parquet(path)
        else:
            file: IO[bytes]
            opener = OPEN.get(path.suffix.lower())
            with opener(path) if opener else path.open("rb") as file:
                raw = _read_text(file, DELIMITERS[format], [*numbers, *texts], missing)
    except KeyError as error:
        raise DataError(f"{path}: the schema names a column that is not there ({error.args[0]}); add it") from None
    except GARBLED as error:
        raise DataError(f"{path}: the file cannot be read as {format} ({type(error).__name__}); mend it") from None
    return from_lists(
        {str(name): raw.column(i).to_pylist() for i, name in enumerate(raw.column_names) if name in {*numbers, *texts}},
        str(path),
        numbers,
        texts,
        missing,
    )


def _read_text(file: IO[bytes], delimiter: str, wanted: Sequence[str], missing: Sequence[str]) -> Any:
    return pa.csv.read_csv(
        file,
        read_options=pa.csv.ReadOptions(use_threads=False),
        parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            include_columns=list(wanted),
            column_types={name: pa.string() for name in wanted},
            null_values=list(missing),
            strings_can_be_null=True,
        ),
    )


def from_lists(
    values: Mapping[str, Sequence[Any]],
    name: str,
    numbers: Sequence[str],
    texts: Sequence[str],
    missing: Sequence[str] = MISSING,
) -> Columns:
    """Type columns of plain values, such as a database gives them.

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
        {column: _numbers(values[column], column, name, gone) for column in numbers},
        {column: _texts(values[column], gone) for column in texts},
        len(next(iter(values.values()), ())),
    )


def _numbers(values: Iterable[Any], column: str, name: str, missing: set[str]) -> Array:
    out = np.array([_number(value, missing) for value in values], dtype=object)
    wrong = [place for place, value in enumerate(out) if value is None]
    if wrong:
        raise DataError(
            f"{name}: column '{column}' is a number in the schema, but record {wrong[0] + 1} holds something else; "
            "mend the record, or correct the schema"
        )
    return out.astype(np.float64)


def _number(value: Any, missing: set[str]) -> float | None:
    """NaN where there is no value, None where there is one that is no finite number."""
    if value is None or (isinstance(value, str) and value.strip() in missing):
        return math.nan
    try:
        number = float(value)
    except (TypeError, ValueError):
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
