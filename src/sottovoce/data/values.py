"""Values read one by one: named columns of a source, as the public schema describes them, with nothing inferred.

A reader that infers types (is this column numeric, is '007' a 7?) reads everybody's records to decide how to read
each. Here every value is read by itself: a number or nothing, a text or nothing. What a record without a usable value
becomes, an error or a row that contributes nothing, is the policy's choice (`policy`).
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sottovoce._types import Array
from sottovoce.data.dialect import DIALECT, FIXED, SEPARATORS, WESTERN, Dialect, settled
from sottovoce.data.lines import BROKEN_LINE, cell_blocks, check_encoding, header_of
from sottovoce.data.load import ReadProgress, arrow_blocks, read_error_text
from sottovoce.data.policy import GUARANTEE, SIMULATION, ReadPolicy
from sottovoce.errors import DataError

Made = TypeVar("Made")
WORDS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
"""Separators by the words of `--separator`."""
MISSING = ("", "NA", "NaN", "nan", "null", "NULL", "None")
"""What counts as no value in a text file, unless the schema lists its own."""
NO_NUMBER = "is a number in the schema, but holds something else"
CORRECT = "correct the record or the schema (missing_values are what stands for an empty cell)"
PLAIN_NUMBER = r"^-?[0-9]{1,30}(MARK[0-9]{1,30})?([eE][-+]?[0-9]{1,2})?$"
"""What Arrow and Python read as the same float."""
SPACES = "\u00a0\u202f\u2009"
"""Narrow and unbreakable spaces, which stand for a space between thousands."""


class NumberFormat(NamedTuple):
    """How the numbers of a column are written where they are text.

    Attributes
    ----------
    decimal : the mark before decimals
    thousands : the mark between groups of three digits; empty for none
    prefix, suffix : what may stand around a number, such as $ or %; a value without it is read, too

    Examples
    --------
    >>> price = NumberFormat(",", ".", suffix="€")
    >>> [price.plain(text) for text in ("1.234,50 €", "-12", "1.23 €")]
    ['1234.50', '-12', None]
    """

    decimal: str = "."
    thousands: str = ""
    prefix: str = ""
    suffix: str = ""

    def plain(self, text: str) -> str | None:
        """The text of a number as Python writes it; None for a text that has marks in other places."""
        if self.prefix or self.suffix:
            sign, text = ("-", text[1:].lstrip()) if text.startswith("-") else ("", text)
            text = sign + text.removeprefix(self.prefix).strip().removesuffix(self.suffix).strip()
        if self.thousands == " ":
            text = "".join(" " if letter in SPACES else letter for letter in text)
        if self.thousands and self.thousands in text:
            mark, decimal = re.escape(self.thousands), re.escape(self.decimal)
            if not re.fullmatch(rf"[-+]?\d{{1,3}}(?:{mark}\d{{3}})+(?:{decimal}\d*)?", text):
                return None
            text = text.replace(self.thousands, "")
        if self.decimal != ".":
            return None if "." in text else text.replace(self.decimal, ".")
        return text


PLAIN = NumberFormat()
"""A point before decimals and nothing else."""


@dataclass(frozen=True, eq=False)
class Columns:
    """Some columns of a source: numbers with NaN for a missing one, texts with None for a missing one.

    Attributes
    ----------
    before : how many records of the source came before these
    policy : what a record becomes that cannot be used
    unusable : which records contribute nothing
    """

    numbers: Mapping[str, NDArray[Any]]
    texts: Mapping[str, NDArray[np.object_]]
    records: int
    before: int = 0
    policy: ReadPolicy = SIMULATION
    unusable: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        if self.unusable is None:
            object.__setattr__(self, "unusable", np.zeros(self.records, dtype=bool))

    def only(self, rows: NDArray[np.bool_]) -> "Columns":
        """Some of the records."""
        assert self.unusable is not None
        numbers, texts = ({name: v[rows] for name, v in each.items()} for each in (self.numbers, self.texts))
        return replace(
            self, numbers=numbers, texts=texts, records=int(np.count_nonzero(rows)), unusable=self.unusable[rows]
        )

    def reject(self, wrong: NDArray[np.bool_], column: str, why: str, cure: str) -> None:
        """Refuse records, naming the first; or keep them without any contribution."""
        assert self.unusable is not None
        new = wrong & ~self.unusable
        if not np.any(new):
            return
        if self.policy.refuse:
            raise DataError(
                f"column '{column}' {why} in record {self.before + int(np.flatnonzero(new)[0]) + 1}; {cure}"
            )
        self.unusable[new] = True
        self.policy.notify_owner(f"column '{column}' {why}", int(np.count_nonzero(new)))


def read_columns(
    path: Path,
    format: str,
    numbers: Sequence[str],
    texts: Sequence[str],
    missing: Sequence[str] = MISSING,
    dialect: Dialect = DIALECT,
    policy: ReadPolicy = GUARANTEE,
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
    wanted = Wanted(numbers, texts, missing)
    parts = list(column_blocks(path, format, wanted, dialect, lambda columns: columns, policy=policy))
    if len(parts) == 1:
        return parts[0]
    return Columns(
        {column: np.concatenate([part.numbers[column] for part in parts]) for column in numbers},
        {column: np.concatenate([part.texts[column] for part in parts]) for column in texts},
        sum(part.records for part in parts),
        policy=policy,
        unusable=np.concatenate([np.asarray(part.unusable) for part in parts]),
    )


class Wanted(NamedTuple):
    """The columns to read, texts that count as no value, and how numbers are written where it is not plainly."""

    numbers: Sequence[str]
    texts: Sequence[str]
    missing: Sequence[str] = MISSING
    formats: Mapping[str, NumberFormat] = MappingProxyType({})


def column_blocks(
    path: Path,
    format: str,
    wanted: Wanted,
    dialect: Dialect,
    made: Callable[[Columns], Made],
    on_read: ReadProgress | None = None,
    policy: ReadPolicy = GUARANTEE,
) -> list[Made]:
    """What is made of the columns of a file, some records at a time."""
    results: list[Made] = []
    before = 0
    with read_error_text(path, format):
        if path.is_dir():
            raise IsADirectoryError
        try:
            for columns, broken, mark in _file_blocks(path, format, [*wanted.numbers, *wanted.texts], dialect, policy):
                part = _typed(columns, str(path), wanted, policy, before, broken, mark)
                results.append(made(part))
                before += part.records
                if on_read is not None:
                    on_read(before)
        except KeyError as error:
            raise DataError(no_column(path, format, dialect, policy, str(error.args[0]))) from None
        if not before:
            raise DataError(
                f"{path}: the file holds no records, only the names of its columns; add at least one record"
            )
    return results


def no_column(path: Path, format: str, dialect: Dialect, policy: ReadPolicy, name: str) -> str:
    """What to do about a column that a file does not have, by its header, which is public."""
    lead = f"{path}: there is no column '{name}'"
    if format not in FIXED:
        return f"{lead}; correct the name"
    dialect = settled(path, format, dialect, policy)
    names = header_of(path, dialect)
    if not all(letter.isprintable() for name in names for letter in name):
        return f"{path}: this is no text with columns; save it as CSV, or name its format (--format)"
    if len(names) == 1 and (others := [word for word, mark in WORDS.items() if mark in names[0]]):
        return (
            f"{lead}: read with {SEPARATORS[dialect.separator or ',']} between columns, the first line is one name, "
            f"'{names[0][:60]}'; give --separator {others[0]}, or separator in [dialect] of the schema"
        )
    for encoding in ("utf-8", WESTERN):
        with suppress(DataError):
            if name in header_of(path, replace(dialect, encoding=encoding)):
                return (
                    f"{lead} in {dialect.encoding}, but there is in {encoding}; give --encoding {encoding}, or set it "
                    "in [dialect] of the schema"
                )
    shown = ", ".join(f"'{each[:40]}'" for each in names[:12]) + (", …" if len(names) > 12 else "")
    return f"{lead}; there are {shown}; correct the name"


def _file_blocks(
    path: Path, format: str, wanted: Sequence[str], dialect: Dialect, policy: ReadPolicy
) -> Iterator[tuple[dict[str, Any], NDArray[np.bool_] | None, str | None]]:
    """Columns of values or of cells, which records are broken, and the decimal mark of a text file."""
    if format == "parquet":
        for table in arrow_blocks(path, format, dialect, {}, include_columns=list(dict.fromkeys(wanted))):
            yield {str(name): table.column(i) for i, name in enumerate(table.column_names)}, None, None
        return
    if format == "xlsx":
        from sottovoce.data.excel import sheet_columns  # here: it needs this module

        yield sheet_columns(path, wanted), None, None
        return
    dialect = settled(path, format, dialect, policy)
    check_encoding(dialect)
    for block in cell_blocks(path, list(dict.fromkeys(wanted)), dialect):
        yield block.cells, block.broken, dialect.decimal or "."


def from_lists(
    values: Mapping[str, Any],
    name: str,
    numbers: Sequence[str],
    texts: Sequence[str],
    missing: Sequence[str] = MISSING,
    policy: ReadPolicy = SIMULATION,
    formats: Mapping[str, NumberFormat] = MappingProxyType({}),
) -> Columns:
    """Type columns of plain values, such as a database gives them, or of Arrow's.

    Parameters
    ----------
    values : columns by name
    name : of the source, for messages
    numbers, texts : which of them are read as what
    missing : texts that count as no value
    policy : what a record becomes that cannot be used
    formats : how the texts of some columns of numbers are written

    Examples
    --------
    >>> from_lists({"age": [9, None], "well": [True, 0]}, "query", ["age"], ["well"]).texts["well"].tolist()
    ['true', '0']
    """
    return _typed(values, name, Wanted(numbers, texts, missing, formats), policy)


def _typed(
    values: Mapping[str, Any],
    name: str,
    wanted: Wanted,
    policy: ReadPolicy,
    before: int = 0,
    broken: NDArray[np.bool_] | None = None,
    decimal: str | None = None,
) -> Columns:
    """The same after so many records; `broken` ones have no values at all, `decimal` is a file's own decimal mark."""
    numbers, texts = wanted.numbers, wanted.texts
    lost = [column for column in [*numbers, *texts] if column not in values]
    if lost:
        there = ", ".join(map(repr, list(values)[:12]))
        raise DataError(f"{name}: the schema names column '{lost[0]}', which is not there; there are {there}")
    gone = set(wanted.missing)
    found: dict[str, NDArray[Any]] = {}
    strange: dict[str, NDArray[np.bool_]] = {}
    for column in numbers:
        form = wanted.formats.get(column, PLAIN)
        form = form if decimal in (None, form.decimal) else form._replace(decimal=decimal)
        found[column], strange[column] = _numbers(values[column], gone, form)
    columns = Columns(
        found,
        {column: _texts(_listed(values[column]), gone) for column in texts},
        len(next(iter(values.values()), ())),
        before,
        policy,
    )
    if broken is not None and np.any(broken):
        if policy.refuse:
            raise DataError(
                f"{name}: record {before + int(np.flatnonzero(broken)[0]) + 1} {BROKEN_LINE}; write each record on "
                "one line with as many fields as the header"
            )
        columns.unusable[broken] = True  # type: ignore[index]
        policy.notify_owner(f"a line {BROKEN_LINE}", int(np.count_nonzero(broken)))
    for column, wrong in strange.items():
        if policy.refuse and np.any(wrong):
            first = before + int(np.flatnonzero(wrong)[0]) + 1
            many = int(np.count_nonzero(wrong))
            where = f"record {first}" if many == 1 else f"{many} records, record {first} the first"
            raise DataError(f"{name}: column '{column}' {NO_NUMBER} in {where}; {CORRECT}")
        policy.notify_owner(f"column '{column}' {NO_NUMBER}, which counts as missing,", int(np.count_nonzero(wrong)))
    return columns


def _listed(values: Any) -> Sequence[Any]:
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        listed: Sequence[Any] = values
        return listed
    try:
        listed = values.to_pylist()
    except (ValueError, OverflowError, pa.ArrowException):  # some value is none of Python's, as a date of the year 0
        listed = [_value(scalar) for scalar in values]
    return listed


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, pa.ArrowException):
        return None


def _numbers(values: Any, missing: set[str], form: NumberFormat) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Numbers, NaN where there is none; and which values are neither a finite number nor missing."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        found = _stored(values)
        if found is not None:
            infinite = np.isinf(found)
            return (np.where(infinite, np.nan, found).astype(found.dtype) if np.any(infinite) else found), infinite
        if pa.types.is_string(values.type):
            with suppress(pa.ArrowInvalid):  # a Parquet file may hold bytes that are no letters
                return _written(values, missing, form)
    return _one_by_one(_listed(values), missing, form)


def _one_by_one(values: Iterable[Any], missing: set[str], form: NumberFormat) -> tuple[Array, NDArray[np.bool_]]:
    each = [as_number(value, missing, form) for value in values]
    wrong: NDArray[np.bool_] = np.array([number is None for number in each], dtype=bool)
    return np.array([math.nan if number is None else number for number in each], dtype=np.float64), wrong


def _written(cells: Any, missing: set[str], form: NumberFormat) -> tuple[Array, NDArray[np.bool_]]:
    """The same of texts: plain numbers by Arrow, all at once; the others one by one, to the same result."""
    import pyarrow.compute as pc  # here: slow to load

    plain = pc.match_substring_regex(cells, PLAIN_NUMBER.replace("MARK", rf"\{form.decimal}"))
    plain = pc.and_(plain, pc.invert(pc.is_in(cells, value_set=pa.array(sorted(missing), pa.string()))))
    simple: NDArray[np.bool_] = np.asarray(pc.fill_null(plain, False).to_numpy(zero_copy_only=False), dtype=bool)
    numbers, wrong = np.full(len(cells), np.nan), np.zeros(len(cells), dtype=bool)
    texts = cells.filter(pa.array(simple))
    texts = pc.replace_substring(texts, ",", ".") if form.decimal == "," else texts
    numbers[simple] = texts.cast(pa.float64()).to_numpy(zero_copy_only=False)
    rest = np.flatnonzero(~simple)
    if rest.size:
        numbers[rest], wrong[rest] = _one_by_one(cells.take(pa.array(rest)).to_pylist(), missing, form)
    return numbers, wrong


def _stored(values: Any) -> NDArray[Any] | None:
    """Numbers that a file stores as such, NaN for a missing one; None for any other type."""
    kind = values.type
    if pa.types.is_floating(kind):
        single = np.float32 if pa.types.is_float32(kind) else np.float64
        return np.asarray(values.to_numpy(zero_copy_only=False), dtype=single)
    if pa.types.is_integer(kind):
        return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    return None


def as_number(value: Any, missing: set[str], form: NumberFormat = PLAIN) -> float | None:
    """NaN where there is no value, None where there is one that is no finite number."""
    if value is None:
        return math.nan
    if isinstance(value, str):
        value = value.strip()
        if value in missing:
            return math.nan
        if form is not PLAIN:
            value = form.plain(value)
            if value is None:
                return None
    if isinstance(value, complex) and value.imag == 0:
        value = value.real  # one complex number makes a whole column complex
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) or math.isnan(number) else None


def _texts(values: Iterable[Any], missing: set[str]) -> NDArray[np.object_]:
    out = np.array([None if value is None else _text(value) for value in values] + [None], dtype=object)[:-1]
    out[[value in missing for value in out]] = None
    return out


def _text(value: Any) -> str | None:
    """The text of a value; None where it has none, such as a number of more digits than Python writes."""
    try:
        return as_text(value)
    except (ValueError, ArithmeticError):
        return None


def as_text(value: Any) -> str:
    """One spelling for one value, whatever type a source stores it in: 1, 1.0 and '1' are the same category.

    Examples
    --------
    >>> [as_text(value) for value in (1, 1.0, "1", True, " ward A ", b"ward A", 2.5, Decimal("1.00"))]
    ['1', '1', '1', 'true', 'ward A', 'ward A', '2.5', '1']
    """
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, bytes):  # one value of bytes makes a whole column of Arrow binary
        return value.decode().strip()
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        return str(int(value))  # all of its digits: it may be someone's number
    if isinstance(value, float | np.floating | Decimal):
        value = float(value)
        return "" if math.isnan(value) else str(int(value)) if value.is_integer() else repr(value)
    return str(value).strip()
