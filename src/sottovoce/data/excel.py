"""Workbooks (.xlsx): the first sheet, with the columns' names in its first row, each cell read by itself.

Numbers and truth values are what the sheet stores, whatever their display: a cell that shows 45% holds 0.45. Dates and
times become text as in 2019-07-31 or 2019-07-31T08:30:00. A formula counts as the value it last had. Reading needs
openpyxl, which the extra `excel` installs.
"""

import importlib
import zipfile
from collections.abc import Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa

from sottovoce.data.values import as_text
from sottovoce.errors import DataError, SottovoceError

OWN_NAME = "give every column a name of its own"


def sheet_names(path: Path) -> list[str]:
    """The names in the first row of the first sheet, which is public."""
    return _rows(path, only_names=True)[0]


def sheet_columns(path: Path, wanted: Sequence[str] | None = None) -> dict[str, list[Any]]:
    """Columns of values by name; None for an empty cell. A name that is missing is a `KeyError`."""
    names, rows = _rows(path)
    kept = names if wanted is None else list(dict.fromkeys(wanted))
    lost = [name for name in kept if name not in names]
    if lost:
        raise KeyError(lost[0])
    twice = [name for name in kept if names.count(name) > 1]
    if twice:
        raise DataError(f"{path}: {names.count(twice[0])} columns are called '{twice[0]}'; {OWN_NAME}")
    places = {name: names.index(name) for name in kept}
    return {name: [_value(row[at]) if at < len(row) else None for row in rows] for name, at in places.items()}


def sheet_table(
    path: Path, texts: Sequence[str] = (), wanted: Sequence[str] | None = None, missing: Sequence[str] = ()
) -> Any:
    """The same as an Arrow table; a column that mixes numbers and text is text.

    Parameters
    ----------
    path : the workbook
    texts : columns to read as text
    wanted : the columns to take; None for all
    missing : texts that count as no value
    """
    arrays = {}
    for name, values in sheet_columns(path, wanted).items():
        values = [None if isinstance(value, str) and value.strip() in missing else value for value in values]
        try:
            array = None if name in texts else pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            array = None
        spelled = [None if value is None else as_text(value) for value in values] if array is None else []
        arrays[name] = pa.array(spelled, pa.string()) if array is None else array
    return pa.table(arrays)


def _rows(path: Path, only_names: bool = False) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Names and rows of the first sheet."""
    try:
        openpyxl = importlib.import_module("openpyxl")
    except ImportError:
        raise DataError(
            f"{path}: workbooks are read with openpyxl, which is not installed; type pip install 'sottovoce[excel]', "
            "or save the sheet as CSV"
        ) from None
    try:
        with path.open("rb") as file:
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            sheet = book.worksheets[0]
            sheet.reset_dimensions()  # what the file says of its size may be wrong
            found = sheet.iter_rows(values_only=True)
            header = list(next(found, ()))
            rows = [] if only_names else list(found)
            book.close()
    except (OSError, SottovoceError):
        raise
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, AttributeError, IndexError, SyntaxError) as error:
        raise DataError(
            f"{path}: this is no workbook that can be read ({type(error).__name__}); save it as .xlsx again, or as CSV"
        ) from None
    while header and header[-1] is None:
        header.pop()
    return ["" if name is None else as_text(_value(name)) for name in header], rows


def _value(cell: Any) -> Any:
    """A cell as text, number or truth value."""
    if isinstance(cell, datetime):
        return cell.date().isoformat() if cell.time() == time(0) else cell.isoformat()
    if isinstance(cell, date | time):
        return cell.isoformat()
    return cell
