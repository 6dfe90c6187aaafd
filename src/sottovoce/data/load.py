"""Records from a file: svmlight, CSV, Parquet, tables of our own, and pictures in idx files, the format of MNIST.

Whatever is wrong with a file ends in one line, a `DataError`.
"""

import io
import lzma
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import scipy  # not its parts: they load when first used
from numpy.typing import ArrayLike, NDArray

from sottovoce import limits
from sottovoce._types import Array
from sottovoce.data.dialect import DIALECT, SEPARATORS, Dialect, opened, read_text, text_blocks
from sottovoce.data.tables import Table, load_table
from sottovoce.errors import DataError, SottovoceError, SpecError
from sottovoce.matrices import is_sparse

FORMATS = {
    "svmlight": ("", ".svm", ".libsvm", ".svmlight", ".binary", ".txt", ".t"),
    "csv": (".csv",),
    "tsv": (".tsv",),
    "parquet": (".parquet", ".pq"),
    "xlsx": (".xlsx", ".xlsm"),
    "npz": (".npz",),
}
"""Every format with the endings of its files' names."""

NAMED = ("csv", "tsv", "parquet", "xlsx")
"""Formats whose columns have names."""

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
"""The endings of compressed files."""

EXPECTED = {
    "svmlight": "lines of 'label index:value …' with a number for a label and rising indices",
    "csv": "text with a header line and the same number of columns in every line",
    "tsv": "text with a header line and the same number of tabs in every line",
    "parquet": "a Parquet file",
    "xlsx": "a workbook whose first sheet has the columns' names in its first row",
    "npz": "a table written by `sottovoce data make`",
}

ReadProgress = Callable[[int], None]
"""Called with the number of records read so far."""

if TYPE_CHECKING:
    from sottovoce.data.columns import Roles

# what the readers of the three formats and of the compressions throw at a garbled file
GARBLED = (ValueError, OverflowError, EOFError, OSError, lzma.LZMAError, zlib.error, pa.ArrowException)


def load(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    label: str | None = None,
    group: str | None = None,
    n_features: int | None = None,
    first_index: int | None = None,
    positive: str | float | None = None,
    require_label: bool = True,
    columns: Sequence[str] | None = None,
    dialect: Dialect = DIALECT,
    unit: str | None = None,
    drop: Sequence[str] = (),
    on_read: ReadProgress | None = None,
) -> Table:
    r"""Read the records of a file.

    Parameters
    ----------
    path : the file; svmlight, CSV and TSV may be compressed (.gz, .bz2, .xz, .zst)
    format : 'svmlight', 'csv', 'tsv', 'parquet', 'xlsx' or 'npz'; by default found from the file's name
    label : the label's column in a CSV or Parquet file; by default the one called label, y, target or class
    group : the column that names every record's owner; kept as text
    n_features : the number of features expected: svmlight is padded to it with empty columns, and a file with more
        of them, or a CSV or Parquet file with another number, is refused
    first_index : whether the indices of an svmlight file count from 0 or from 1; by default found from the file
    positive : the class that becomes +1, the other one −1; by default labels stay as they are (see `as_signs`)
    require_label : False for files to predict, where a missing label column gives y = None
    columns : the features to take from a CSV or Parquet file, by name and in this order; all others, but for a
        label and a group that are named, are left alone
    dialect : how CSV is written, as far as that is known; the rest is found from the first lines
    unit : the column of person ids; kept as text
    drop : columns to leave alone
    on_read : called with the number of records read so far, where there are many

    Notes
    -----
    CSV and Parquet are read some records at a time, straight into the table; one of more than 2²⁵ numbers is kept in
    single precision, so that ten million records of thirty columns take 1.2 GB.

    The indices of an svmlight file count from 1 unless index 0 occurs in it, or `first_index` says so. Labels in CSV
    and Parquet may be text.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "pupils.csv")
    ...     _ = path.write_text("age,height,school,label\n9,1.4,north,yes\n7,1.2,south,no\n")
    ...     table = load(path, group="school")
    >>> table.X, table.y.tolist(), table.groups.tolist(), table.features
    (array([[9. , 1.4], [7. , 1.2]]), ['yes', 'no'], ['north', 'south'], ('age', 'height'))
    """
    path, name = Path(path), str(path)
    format = format_of(path, format)
    named = {"label": label, "group": group, "unit": unit, "column to drop": drop[0] if drop else None}
    if format in ("svmlight", "npz") and any(named.values()):
        raise SpecError(f"{format} files have no named columns, so no label or group can be named; use CSV or Parquet")
    if format == "svmlight" and first_index not in (None, 0, 1):
        raise SpecError(f"the indices of an svmlight file count from 0 or from 1, not from {first_index}")
    if label is not None and label in (group, unit):
        raise SpecError(f"the label and the group cannot both be the column '{label}'; name two columns")
    with read_error_text(path, format):
        if format == "npz":
            table = load_table(path)
        elif format == "svmlight":
            table = _from_svmlight(*_read_svmlight(path, "auto" if first_index is None else first_index == 0), name)
        else:
            from sottovoce.data.columns import Roles  # here: Arrow's parts are slow to load

            others = [other for other in (label, group, unit) if other is not None]
            chosen = None if columns is None else (*columns, *others)
            needed = require_label if columns is None else label is not None
            roles = Roles(name, label, group, needed, unit, tuple(drop), chosen)
            table = _from_columns(path, format, dialect, roles, on_read)
    table = table if n_features is None else _widened(table, n_features)
    if positive is not None and table.y is not None:
        table = replace(table, y=as_signs(table.y, positive)[0], name=name)
    return table


def _from_columns(path: Path, format: str, dialect: Dialect, roles: "Roles", on_read: ReadProgress | None) -> Table:
    """The records of a file with named columns, by what these are for."""
    texts = {column: pa.string() for column in (roles.group, roles.unit) if column is not None}
    try:
        return roles.to_table(arrow_blocks(path, format, dialect, texts), on_read)
    except pa.ArrowInvalid:  # a column is not what its first block says: it is all of it
        return roles.to_table([read_arrow(path, format, dialect, texts)], on_read)


@contextmanager
def read_error_text(path: Path, format: str) -> Iterator[None]:
    """Whatever is wrong with a file while it is read, in one line that says what it should hold."""
    try:
        yield
    except SottovoceError:
        raise
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; check the path") from None
    except IsADirectoryError:
        raise DataError(f"{path}: this is a folder, and a file is needed; name a file in it") from None
    except PermissionError:
        raise DataError(f"{path}: the file may not be read; give yourself permission, or copy it") from None
    except GARBLED as error:
        if path.is_file() and path.stat().st_size == 0:
            raise DataError(f"{path}: the file is empty; it should hold {EXPECTED[format]}") from None
        raise DataError(
            f"{path}: the file cannot be read as {format} ({_reason(error)}); "
            f"it should hold {EXPECTED[format]}: {_cure(path, format)}"
        ) from None


def _cure(path: Path, format: str) -> str:
    """What to do about a file that is not what its name says."""
    if format == "svmlight":
        try:
            with opened(path) as file:
                head = file.read(1 << 12).split(b"\n")[0].decode("latin-1")
        except GARBLED:
            head = ""
        if ":" not in head and any(mark in head for mark in SEPARATORS):
            return "its first line is that of a CSV file; give --format csv"
    return "fix it, or name another format (--format)"


Classes = tuple[str | float, str | float]
"""The label of −1 and the label of +1."""


def as_signs(
    y: ArrayLike, positive: str | float | None = None, known: Sequence[str | float] | None = None
) -> tuple[Array, Classes]:
    """Labels of two classes as −1 and +1: the smaller (or first in the alphabet) is −1, unless `positive` is named.

    Parameters
    ----------
    y : numbers, truth values or text; text that reads as numbers ('+1', '-1') is taken as numbers
    positive : the class that becomes +1
    known : the two classes, −1 first, where they are public; else they are read off the labels

    Returns
    -------
    The signs, and the names of the classes (negative, positive)

    Examples
    --------
    >>> as_signs(np.array(["spam", "ham", "spam"]))
    (array([ 1., -1.,  1.]), ('ham', 'spam'))
    >>> as_signs([1, 2, 2], positive=1)
    (array([ 1., -1., -1.]), (2.0, 1.0))
    >>> as_signs(["yes", "yes"], known=("no", "yes"))
    (array([1., 1.]), ('no', 'yes'))
    """
    values = _plain(np.asarray(y))
    if known is not None:
        return _as_known(values, known, positive)
    classes, which = np.unique(values, return_inverse=True)
    names = [cast("str | float", value.item()) for value in classes]
    if len(names) < 2:
        only = f"all {len(values)} labels are {names[0]!r}" if names else "there are no labels"
        raise DataError(f"{only}, and classification needs two classes; add records of the other class")
    if len(names) > 2:
        few = ", ".join(repr(value) for value in names[:4]) + (", …" if len(names) > 4 else "")
        raise DataError(
            f"the labels have {len(names)} classes ({few}), and classification here is between two; "
            "keep or merge two of them, or choose a loss for regression"
        )
    if positive is None:
        at = 1
    else:
        found = [j for j, value in enumerate(names) if value == _like(positive, value)]
        if not found:
            raise DataError(f"no label is {positive!r}; the positive class must be {names[0]!r} or {names[1]!r}")
        at = found[0]
    return np.where(which.reshape(-1) == at, 1.0, -1.0), (names[1 - at], names[at])


def _as_known(values: Any, known: Sequence[str | float], positive: str | float | None) -> tuple[Array, Classes]:
    """Signs by the public list of classes: nothing is read off the labels, and a stranger among them is refused."""
    try:
        negative, other = (float(c) if values.dtype.kind != "U" else str(c) for c in known)
    except ValueError:
        raise DataError(f"the classes {', '.join(map(str, known))} are not two labels like those in the file") from None
    if negative == other:
        raise DataError(f"the two classes must differ, but both are {other!r}")
    if positive is not None and other != _like(positive, other):
        if negative != _like(positive, negative):
            raise DataError(f"no label is {positive!r}; the positive class must be {negative!r} or {other!r}")
        negative, other = other, negative
    strange = np.flatnonzero((values != negative) & (values != other))
    if strange.size:
        raise DataError(
            f"record {strange[0] + 1} has a label that is neither {negative!r} nor {other!r}; give both classes, or "
            "drop the record"
        )
    return np.where(values == other, 1.0, -1.0), (negative, other)


def as_reals(y: ArrayLike) -> Array:
    """Targets of a regression: real numbers, or a `DataError`.

    Examples
    --------
    >>> as_reals([1, 2.5])
    array([1. , 2.5])
    """
    values = _plain(np.asarray(y))
    if values.dtype.kind == "U":
        raise DataError(f"a regression's targets must be numbers, not text such as '{values[0]}'; encode them first")
    return values


def format_of(path: Path, format: str | None = None) -> str:
    """The format of a file: the one named, else the one that its ending says."""
    if path.is_dir():
        raise DataError(f"{path}: this is a folder, and a file is needed; name a file in it")
    ending = path.suffix.lower()
    compression = ending if ending in COMPRESSED else ""
    if compression:
        ending = Path(path.stem).suffix.lower()
    if format is None:
        format = next((known for known, endings in FORMATS.items() if ending in endings), None)
        if format is None and ending in (".xls", ".ods"):
            raise DataError(f"{path}: {ending} files are not read; save the sheet as .xlsx or CSV")
        if format is None:
            raise DataError(
                f"{path}: the ending '{ending}' is of no format known here; say --format {', '.join(FORMATS)}"
            )
    elif format not in FORMATS:
        raise SpecError(f"'{format}' is no format known here; choose one of {', '.join(FORMATS)}")
    if format in ("parquet", "xlsx", "npz") and compression:
        raise DataError(f"{path}: {format} files are not read from {compression}; decompress this one first")
    return format


def arrow_blocks(path: Path, format: str, dialect: Dialect, types: Mapping[str, Any], **convert: Any) -> Iterator[Any]:
    """A file with named columns as Arrow tables, some records at a time; columns of a type that is named are kept so.

    Of Parquet files `convert` says only which columns are read; of workbooks, which columns, and what is no value.
    """
    if path.is_dir():
        raise IsADirectoryError
    if format == "parquet":
        from sottovoce.data.columns import parquet_blocks

        yield from parquet_blocks(path, convert.get("include_columns"))
        return
    if format == "xlsx":
        from sottovoce.data.excel import sheet_table  # here: it needs `values`, which needs this module

        yield sheet_table(path, [*types], convert.get("include_columns"), convert.get("null_values", ()))
        return
    if format == "tsv" and dialect.separator is None:
        dialect = replace(dialect, separator="\t")
    yield from text_blocks(path, dialect, types, **convert)


def read_arrow(path: Path, format: str, dialect: Dialect, types: Mapping[str, Any], **convert: Any) -> Any:
    """Return the same as one table; the type of a column follows from all of its values: '007' may be a text."""
    if path.is_dir():
        raise IsADirectoryError
    if format in ("parquet", "xlsx"):
        return pa.concat_tables(list(arrow_blocks(path, format, dialect, types, **convert)))
    if format == "tsv" and dialect.separator is None:
        dialect = replace(dialect, separator="\t")
    return read_text(path, dialect, types, **convert)


def _read_svmlight(path: Path, zero_based: str | bool) -> tuple[Any, Array]:
    if path.is_dir():
        raise IsADirectoryError
    from sklearn.datasets import load_svmlight_file  # here: seconds to import, and only this format needs it

    with io.BufferedReader(opened(path), 1 << 20) as file:
        return load_svmlight_file(file, zero_based=zero_based)


def _from_svmlight(X: Any, y: Array, name: str) -> Table:
    if X.shape[0] == 0:
        raise DataError(f"{name}: the file is empty; it should hold {EXPECTED['svmlight']}")
    if not np.all(np.isfinite(y)):
        record = int(np.flatnonzero(~np.isfinite(y))[0])
        raise DataError(f"{name}: the label of record {record + 1} is {y[record]}; give it a finite number")
    if not np.all(np.isfinite(X.data)):
        place = int(np.flatnonzero(~np.isfinite(X.data))[0])
        record = int(np.searchsorted(X.indptr, place, side="right"))
        raise DataError(
            f"{name}: record {record} has the value {X.data[place]} in its entry {place - X.indptr[record - 1] + 1}; "
            "every value must be a finite number: replace it, or drop that record"
        )
    # 64-bit indices, as scikit-learn gives them, make the matrix a third larger
    small = np.int32 if max(X.nnz, *X.shape) < np.iinfo(np.int32).max else np.int64
    X = scipy.sparse.csr_array((X.data, X.indices.astype(small), X.indptr.astype(small)), shape=X.shape)
    return Table(X, y, None, None, name)


def _widened(table: Table, n_features: int) -> Table:
    if table.m == n_features:
        return table
    if table.features is not None or table.m > n_features or not is_sparse(table.X):
        raise DataError(
            f"{table.name}: the file has {table.m} features where {n_features} are expected; give it the same features"
        )
    limits.check_count("the number of features", n_features, limits.FEATURES)
    X = scipy.sparse.csr_array((table.X.data, table.X.indices, table.X.indptr), shape=(table.n_records, n_features))
    return Table(X, table.y, table.groups, None, table.name)


def _plain(y: NDArray[Any]) -> NDArray[Any]:
    """Labels as float64 or as text, nothing missing."""
    if y.ndim != 1:
        raise DataError(f"labels must be one a record, not an array of {y.ndim} dimensions")
    if y.dtype.kind in "biuf":
        return _finite(y.astype(np.float64))
    values = y.tolist()
    kinds = {isinstance(value, str) for value in values}
    if kinds == {True, False}:
        raise DataError("the labels mix text and numbers, or some are missing; write all of them in one way")
    try:
        numbers = np.array([float(value) for value in values])
    except (TypeError, ValueError):
        if kinds == {True}:
            return np.array(values, dtype=np.str_)
        raise DataError(
            "the labels must be numbers or text, and none may be missing; fix or drop those records"
        ) from None
    return _finite(numbers)


def _finite(numbers: Array) -> Array:
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        raise DataError(f"the label of record {bad[0] + 1} is {numbers[bad[0]]}; give it a value, or drop that record")
    return numbers


def _like(positive: str | float, value: str | float) -> str | float:
    """The positive class in the labels' own type: the command line gives '1' where the labels are 1.0."""
    if isinstance(value, str):
        return str(positive)
    try:
        return float(positive)
    except ValueError:
        return positive


def _reason(error: BaseException) -> str:
    lines = str(error).splitlines()
    text = lines[0].strip() if lines else type(error).__name__
    return text if len(text) <= 120 else text[:119] + "…"


UNSIGNED_BYTE = 8  # the type code of the header
BRIGHTEST = 255.0  # of a byte: a public bound, whatever the pictures hold


def read_idx(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """The array of an idx file of unsigned bytes, which may be compressed (.gz, .bz2, .xz, .zst).

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "two-by-three")
    ...     _ = path.write_bytes(bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6]))
    ...     read_idx(path)
    array([[1, 2, 3], [4, 5, 6]], dtype=uint8)
    """
    path = Path(path)
    try:
        with opened(path) as file:
            content: bytes = file.read()
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; check the path") from None
    except GARBLED as error:
        raise DataError(f"{path}: the file cannot be read ({type(error).__name__}); get it again") from None
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != UNSIGNED_BYTE or content[3] < 1:
        raise DataError(f"{path}: this is no idx file of unsigned bytes; give one such as MNIST's")
    dimensions = content[3]
    start = 4 * (1 + dimensions)
    shape = struct.unpack(f">{dimensions}I", content[4:start]) if len(content) >= start else ()
    if not shape or len(content) - start != int(np.prod(shape, dtype=np.int64)):
        raise DataError(f"{path}: the file is cut short or too long for the sizes in its header; get it again")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def load_pictures(images: str | os.PathLike[str], labels: str | os.PathLike[str], name: str) -> Table:
    """Pictures as rows of float32 in [0, 1] (a pixel is divided by 255, for all data the same), labels as numbers."""
    pixels, y = read_idx(images), read_idx(labels)
    if y.ndim != 1 or len(y) != len(pixels):
        raise DataError(f"{labels}: there are {len(pixels)} pictures and labels of shape {y.shape}; give one a picture")
    X: NDArray[Any] = pixels.reshape(len(pixels), -1).astype(np.float32)
    X /= np.float32(BRIGHTEST)
    return Table(X, y.astype(np.float64), None, None, name)
