"""CSV and Parquet: named columns into a dense table of numbers, with the label and the owner taken out.

Which columns hold numbers is found by reading all of them, so a file is read this way only where one party has all
of it. A node reads its records by a public schema instead (`schema.py`), which infers nothing from them.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from sottovoce.data.tables import Growing, Table
from sottovoce.errors import DataError

LABELS = ("label", "y", "target", "class")
"""The names under which a label column is found without being named."""

OWN_NAME = "give every column a name of its own"
SHOWN = 12  # columns that a message lists at the most


NUMBERS = 1 << 21
"""Numbers of a Parquet file that are read at a time."""


def parquet_blocks(path: Path, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """The file as Arrow tables, some records at a time; of this file alone, nothing guessed from the folders above."""
    with pa.parquet.ParquetFile(pa.OSFile(os.fsencode(path))) as file:
        names = list(file.schema_arrow.names)
        lost = [name for name in columns or () if name not in set(names)]
        if lost:
            raise KeyError(lost[0])
        twice = [name for name in columns or () if names.count(name) > 1]
        if twice:
            raise DataError(f"{names.count(twice[0])} columns are called '{twice[0]}'; {OWN_NAME}")
        kept = names if columns is None else list(columns)
        rows = max(1, NUMBERS // max(1, len(kept)))
        whole = file.metadata.num_rows <= rows
        if whole:  # in one go, which is quicker where there are very many columns
            yield file.read(kept, use_threads=False)
            return
        for batch in file.iter_batches(rows, columns=kept, use_threads=False):
            yield pa.Table.from_batches([batch])


@dataclass(frozen=True)
class Roles:
    """Which column is what, and the table that numbers, labels and owners become.

    Attributes
    ----------
    name : of the source, for messages
    label, group, unit : the columns of the target, of the owner and of the person, as far as they are named
    require_label : whether a source without a label is refused
    drop : columns to leave alone
    only : the columns to take, in this order; None for all
    """

    name: str
    label: str | None = None
    group: str | None = None
    require_label: bool = True
    unit: str | None = None
    drop: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None

    def to_table(self, blocks: Iterable[Any], on_read: Callable[[int], None] | None = None) -> Table:
        """Numbers, label and owners from Arrow tables; the first column that does not fit is named in a `DataError`."""
        rows, name, read = Growing(), self.name, 0
        texts: dict[str, list[NDArray[Any]]] = {}
        features: list[str] = []
        label: str | None = None
        for columns in blocks:
            columns = self._chosen(columns)
            if not texts:
                features, label = self._features([str(column) for column in columns.column_names])
            at = {str(column): columns.column(j) for j, column in enumerate(columns.column_names)}
            if columns.num_rows or not texts:
                rows.add(self._block(at, features, columns.num_rows, read))
            if label is not None and columns.num_rows:
                texts.setdefault("label", []).append(_labels(at[label], label, name, read))
            for role, column in (("group", self.group), ("unit", self.unit)):
                if column is not None and columns.num_rows:
                    texts.setdefault(role, []).append(_text(at[column], column, name, read))
            texts.setdefault("", [])
            read += columns.num_rows
            if on_read is not None:
                on_read(read)
        if read == 0:
            raise DataError(
                f"{name}: the file holds no records, only the names of its columns; add at least one record"
            )
        whole = {role: np.concatenate(parts) for role, parts in texts.items() if parts}
        y = whole.get("label")
        return Table(
            rows.whole(),
            None if y is None else _as_numbers(y, str(label), name),
            whole.get("group"),
            tuple(features),
            name,
            whole.get("unit"),
        )

    def _chosen(self, columns: Any) -> Any:
        """Without what is not wanted."""
        there = set(columns.column_names)
        lost = [column for column in self.drop if column not in there]
        if lost:
            raise DataError(
                f"{self.name}: there is no column '{lost[0]}' to leave out; name with --drop some of "
                f"{listed(columns.column_names)}"
            )
        columns = columns.drop_columns(list(self.drop)) if self.drop else columns
        return columns if self.only is None else chosen(columns, self.only, self.name)

    def _features(self, names: list[str]) -> tuple[list[str], str | None]:
        """The columns of numbers, and the label's."""
        check_names(names, self.name)
        for role, column in (("group by", self.group), ("distinguish people by", self.unit)):
            if column is not None and column not in names:
                option = "--group" if column == self.group else "--user-id"
                raise DataError(
                    f"{self.name}: there is no column '{column}' to {role}; name with {option} one of {listed(names)}"
                )
        label = label_of(names, self.name, self.label, self.group, self.require_label)
        features = [column for column in names if column not in (label, self.group, self.unit)]
        if not features:
            raise DataError(
                f"{self.name}: there are no columns besides the label and the owner; add at least one feature"
            )
        return features, label

    def _block(self, at: Mapping[str, Any], features: list[str], records: int, before: int) -> NDArray[Any]:
        """Return rows of numbers; a column that is not plainly numeric is checked value by value."""
        plain = {kind for kind in {at[column].type for column in features} if _is_number_type(kind)}
        single = bool(records) and all(at[column].type == pa.float32() for column in features)
        X = np.empty((records, len(features)), dtype=np.float32 if single else np.float64)
        for j, column in enumerate(features if records else ()):
            values = at[column]
            if values.type in plain and not values.null_count:
                X[:, j] = values.to_numpy()
            else:
                X[:, j] = _numbers(values, column, self.name, before)
        if not np.all(np.isfinite(X)):
            for column in features:
                _numbers(at[column], column, self.name, before)
        return X


def _is_number_type(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def to_table(columns: Any, name: str, label: str | None, group: str | None, require_label: bool) -> Table:
    """The same from one Arrow table."""
    return Roles(name, label, group, require_label).to_table([columns])


def chosen(columns: Any, features: Sequence[str], name: str) -> Any:
    """Some columns of an Arrow table, in the given order."""
    there = set(columns.column_names)
    missing = [feature for feature in features if feature not in there]
    if missing:
        raise DataError(f"{name}: the columns {listed(missing)} are missing; give all that the model was trained on")
    return columns.select(list(features))


def check_names(names: list[str], name: str) -> None:
    """Refuse a header that gives columns no names of their own."""
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
        raise DataError(f"{name}: {count} columns are called '{column}'; {OWN_NAME}")
    # a line of numbers is a record, not the names; columns numbered 0, 1, 2 … or 1, 2, 3 … are names
    counted = [[str(j) for j in range(start, start + len(names))] for start in (0, 1)]
    if all(_is_number(column) for column in names) and names not in counted:
        raise DataError(f"{name}: the first line holds numbers where the columns' names should be; add a header line")


def label_of(names: list[str], name: str, label: str | None, group: str | None, require_label: bool) -> str | None:
    """The label's column: the one named, else the one that goes by a usual name; never a guess between two."""
    if label is not None:
        if label in names:
            return label
        if not require_label:
            return None
        raise DataError(f"{name}: there is no label column '{label}'; name with --label one of {listed(names)}")
    usual = [column for column in names if column in LABELS and column != group]
    if len(usual) > 1:
        raise DataError(f"{name}: {listed(usual)} could each be the label; name the right one with --label")
    if not usual and require_label:
        raise DataError(
            f"{name}: no column is called {listed(list(LABELS), 'or')}; name the label with --label, "
            f"one of {listed(names)}"
        )
    return usual[0] if usual else None


def _numbers(column: Any, title: str, name: str, before: int = 0) -> NDArray[Any]:
    """A column as float64, or float32 where it was stored so; `before` is how many records came before these."""
    column = _decoded(column)
    _check_no_missing(column, title, name, before)
    kind = column.type
    if _is_text(kind):
        # a column of numbers with a slip of the pen in it reads as text: show the slip
        slips = [j for j, value in enumerate(column.to_pylist()) if not _is_number(value)] or [0]
        others = f"; {len(slips) - 1} others, too" if len(slips) > 1 else ""
        raise DataError(
            f"{name}: column '{title}' holds text; {ADVICE} (record {before + slips[0] + 1} has "
            f"'{_short(column[slips[0]].as_py())}'{others})"
        )
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        values = column.cast(pa.float64(), safe=False).to_numpy()
    elif pa.types.is_floating(kind):
        values = column.to_numpy()
    else:
        raise DataError(f"{name}: column '{title}' holds {_spoken(kind)}; {ADVICE}")
    _check_all_finite(values, title, name, before)
    return values if values.dtype == np.float32 else values.astype(np.float64)


ADVICE = "describe it in a schema (sottovoce schema FILE), leave it out (--drop), or name its use (--group, --user-id)"


def _labels(column: Any, title: str, name: str, before: int = 0) -> NDArray[Any]:
    """Some of the label's column: numbers, or text."""
    column = _decoded(column)
    if _is_text(column.type):
        return _text(column, title, name, before)
    return _numbers(column, title, name, before).astype(np.float64)


def _as_numbers(values: NDArray[Any], title: str, name: str) -> NDArray[Any]:
    """Labels as float64, or as text where they are names of classes; '+1' and '-1' are numbers."""
    if values.dtype.kind != "U" or not all(_is_number(value) for value in set(values.tolist())):
        return values
    numbers = values.astype(np.float64)
    _check_all_finite(numbers, title, name)
    return numbers


def _text(column: Any, title: str, name: str, before: int = 0) -> NDArray[np.str_]:
    column = _decoded(column)
    _check_no_missing(column, title, name, before)
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        raise DataError(f"{name}: column '{title}' holds {_spoken(column.type)}; write it as UTF-8 text or numbers")
    return np.array([str(value) for value in column.to_pylist()], dtype=np.str_)


def _decoded(column: Any) -> Any:
    """Without dictionary encoding, which is how pandas writes categories."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _check_no_missing(column: Any, title: str, name: str, before: int = 0) -> None:
    missing = column.is_null(nan_is_null=True)
    if _is_text(column.type):
        missing = pc.or_kleene(missing, pc.equal(pc.utf8_trim_whitespace(column), ""))
    first = pc.index(missing, True).as_py()
    if first >= 0:
        raise DataError(
            f"{name}: column '{title}' has no value in record {before + first + 1}; say in a schema what that "
            "counts as (sottovoce schema FILE), or drop that record or column"
        )


def _check_all_finite(values: NDArray[Any], title: str, name: str, before: int = 0) -> None:
    if not np.all(np.isfinite(values)):
        first = int(np.flatnonzero(~np.isfinite(values))[0])
        raise DataError(
            f"{name}: column '{title}' has the value {values[first]} in record {before + first + 1}; every value "
            "must be a finite number: replace it, or drop that record"
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


def listed(names: list[str], last: str = "and") -> str:
    """Names for a message, not too many of them."""
    quoted = [f"'{_short(column)}'" for column in names[:SHOWN]]
    if len(names) > SHOWN:
        quoted.append(f"{len(names) - SHOWN} more")
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {last} {quoted[-1]}"


def _short(text: str) -> str:
    text = "".join(letter if letter.isprintable() else "�" for letter in text[:41])
    return text if len(text) <= 40 else text[:39] + "…"
