r"""Text files line by line: each physical line is one record, and what it becomes depends on no other line.

A CSV record whose quoted text goes over a line end is not one record but two broken lines. Otherwise one quote too many
in one record would swallow the records after it. A line with another number of fields than the header, or with a
quote that is not closed, gives no values; a cell with bytes that are not of the encoding is a missing value. So one
record changes one row, and how many rows there are follows from the number of lines alone.

Lines without quotes and with the right number of fields are cut by Arrow, many at a time; the others one by one. A line
gives the same cells either way.
"""

import codecs
import csv
import io
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import scipy  # not its parts: they load when first used
from numpy.typing import NDArray

from sottovoce._types import Array
from sottovoce.data.dialect import Dialect, opened
from sottovoce.errors import DataError, SpecError

BLOCK = 1 << 24
"""Bytes of whole lines that are read at a time."""
UTF8_MARK = b"\xef\xbb\xbf"
NEWLINE, RETURN, LARGEST_ASCII = 10, 13, 127
ESCAPED_NAME = b".xn--mnchen-3ya."
"""Letters that stand for others in the encoding of domain names."""
BROKEN_LINE = "has another number of fields than the header, or a quote that is not closed on its line"
CHUNK_LINES = 1 << 14
"""Lines of an svmlight file that are parsed at a time."""


class Block(NamedTuple):
    """Some records of a text: cells by column, None where there is no readable text, and which lines are broken."""

    cells: dict[str, Any]
    broken: NDArray[np.bool_]


def line_blocks(path: Path, size: int | None = None) -> Iterator[bytes]:
    """Whole lines of a file, decompressed, each with its line end; about so many bytes at a time."""
    size = BLOCK if size is None else size
    rest = b""
    with opened(path) as file:
        while block := file.read(size):
            rest += block
            cut = rest.rfind(b"\n") + 1
            if cut:
                yield rest[:cut]
                rest = rest[cut:]
    if rest:
        yield rest + b"\n"


def header_of(path: Path, dialect: Dialect) -> list[str]:
    """The names in the first line of a text, which is public."""
    check_encoding(dialect)
    with opened(path) as file:
        head = b""
        while b"\n" not in head and (more := file.read(1 << 16)):
            head += more
    line = _text(head.removeprefix(UTF8_MARK).split(b"\n")[0], dialect)
    try:
        text = line.decode("utf-8").removesuffix("\r")
    except UnicodeDecodeError:
        raise DataError(
            f"{path}: the names of its columns are not {dialect.encoding or 'utf-8'}; give the file's encoding "
            "(--encoding, or encoding in the schema)"
        ) from None
    cells = _cells(text, dialect)
    if cells is None or not text.strip():
        raise DataError(f"{path}: the first line must be the names of the columns, separated by {dialect.separator!r}")
    return cells


def check_encoding(dialect: Dialect) -> None:
    """Refuse an encoding in which the bytes of one line can change how the next one is read.

    All pairs of ASCII letters must stand for themselves: escapes, which change state or write line ends, do not.
    """
    encoding, letters = dialect.encoding or "utf-8", range(LARGEST_ASCII + 1)
    plain = b"".join(bytes((one, next_one)) for one in letters for next_one in letters) + ESCAPED_NAME
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # escapes that an encoding does not know
        try:
            if plain.decode(encoding) == plain.decode("ascii"):
                return
        except ValueError:
            pass
    raise SpecError(
        f"a text in {encoding} cannot be read line by line, as schemas and guarantees need it; save the file as utf-8"
    )


def cell_blocks(path: Path, wanted: Sequence[str], dialect: Dialect, size: int | None = None) -> Iterator[Block]:
    r"""The wanted columns of a text as blocks of cells; the dialect must be complete.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "pupils.csv")
    ...     _ = path.write_bytes(b'age,school\n9,"north, old"\n7,s\xff\n8,"south\n6,west\n')
    ...     (block,) = cell_blocks(path, ["school"], Dialect(",", ".", "utf-8"))
    >>> block.cells["school"].to_pylist(), block.broken.tolist()
    (['north, old', None, None, 'west'], [False, False, True, False])
    """
    names = header_of(path, dialect)
    places = [_place(names, name) for name in wanted]
    first = True
    for block in line_blocks(path, size):
        lines = block
        if first:
            lines, first = block[block.index(b"\n") + 1 :], False
        if lines:
            cells, broken = _cut(_text(lines, dialect), len(names), places, dialect)
            yield Block(dict(zip(wanted, cells, strict=True)), broken)


def _place(names: Sequence[str], name: str) -> int:
    if names.count(name) > 1:
        raise DataError(f"{names.count(name)} columns are called '{name}'; give every column a name of its own")
    if name not in names:
        raise KeyError(name)
    return names.index(name)


def _text(lines: bytes, dialect: Dialect) -> bytes:
    """Lines in UTF-8; bytes that are not of the encoding stay as they are, which is not UTF-8."""
    encoding = codecs.lookup(dialect.encoding or "utf-8").name
    if encoding in ("utf-8", "utf-8-sig"):  # a mark before the header is taken off there, and nowhere else
        return lines
    try:
        return lines.decode(encoding).encode()
    except UnicodeDecodeError:
        return b"\n".join(
            line.decode(encoding, "surrogateescape").encode("utf-8", "surrogateescape") for line in lines.split(b"\n")
        )


def _cut(lines: bytes, width: int, places: Sequence[int], dialect: Dialect) -> tuple[list[Any], NDArray[np.bool_]]:
    """The cells at these places of every line, as Arrow arrays, and which lines are broken."""
    letters = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(letters == NEWLINE)
    starts = np.concatenate([[0], ends[:-1] + 1])
    odd = _odd(lines, letters, starts, ends, width, dialect)
    if not np.any(odd):
        return _by_arrow(lines, width, places, dialect), odd
    kept = letters[np.repeat(~odd, ends + 1 - starts)].tobytes()
    plain = _by_arrow(kept, width, places, dialect)
    alone = [_alone(lines[starts[k] : ends[k]], width, dialect) for k in np.flatnonzero(odd).tolist()]
    broken = odd.copy()
    broken[odd] = [cells is None for cells in alone]
    order = pa.array(np.argsort(np.argsort(odd, kind="stable"), kind="stable"))  # the others first, then these
    columns = []
    for fast, place in zip(plain, places, strict=True):
        slow = pa.array([None if cells is None else cells[place] for cells in alone], pa.string())
        columns.append(pa.concat_arrays([fast, slow]).take(order))
    return columns, broken


def _odd(
    lines: bytes, letters: NDArray[np.uint8], starts: Any, ends: Any, width: int, dialect: Dialect
) -> NDArray[np.bool_]:
    """Return lines to parse one by one, each by its own content."""
    between = np.flatnonzero(letters == ord(dialect.separator or ","))
    odd: NDArray[np.bool_] = np.searchsorted(between, ends) - np.searchsorted(between, starts) != width - 1
    returns = np.flatnonzero(letters == RETURN)
    strange = [
        np.flatnonzero(letters == ord(dialect.quote)),
        np.flatnonzero(letters == 0),
        returns[letters[returns + 1] != NEWLINE],  # a line's last byte is its end
    ]
    odd[np.searchsorted(ends, np.concatenate(strange))] = True
    odd |= _marked(letters, starts)
    try:
        lines.decode("utf-8")
    except UnicodeDecodeError:
        for k in np.unique(np.searchsorted(ends, np.flatnonzero(letters > LARGEST_ASCII))).tolist():
            try:
                lines[starts[k] : ends[k]].decode("utf-8")
            except UnicodeDecodeError:
                odd[k] = True
    return odd


def _marked(letters: NDArray[np.uint8], starts: Any) -> NDArray[np.bool_]:
    """Lines that begin with the mark of UTF-8: Arrow would take it off the first line of a block, and of no other."""
    found: NDArray[np.bool_] = np.ones(len(starts), dtype=bool)
    for place, byte in enumerate(UTF8_MARK):
        found &= letters[np.minimum(starts + place, len(letters) - 1)] == byte
    return found


def _by_arrow(lines: bytes, width: int, places: Sequence[int], dialect: Dialect) -> list[Any]:
    """The cells of lines without quotes that have the right number of fields."""
    if not lines:
        return [pa.array([], pa.string()) for _ in places]
    names = [str(j) for j in range(width)]
    table = pa.csv.read_csv(
        pa.BufferReader(lines),
        pa.csv.ReadOptions(use_threads=False, block_size=len(lines) + 1, column_names=names),
        pa.csv.ParseOptions(
            delimiter=dialect.separator, quote_char=False, newlines_in_values=False, ignore_empty_lines=False
        ),
        pa.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=[str(place) for place in places],
            strings_can_be_null=False,
        ),
    )
    return [table.column(j).combine_chunks() for j in range(len(places))]


def _alone(line: bytes, width: int, dialect: Dialect) -> list[str | None] | None:
    """The cells of one line; None for a broken line, and for a cell that is not text."""
    cells = _cells(line.decode("utf-8", "surrogateescape").removesuffix("\r"), dialect)
    if cells is None or len(cells) != width:
        return None
    return [cell if _is_text(cell) else None for cell in cells]


def _cells(line: str, dialect: Dialect) -> list[str] | None:
    """One line cut at its separators; None where a quote is not closed."""
    if dialect.quote not in line:
        return line.split(dialect.separator or ",")
    try:
        return next(csv.reader([line], delimiter=dialect.separator or ",", quotechar=dialect.quote, strict=True))
    except (csv.Error, StopIteration):
        return None


def _is_text(cell: str) -> bool:
    try:
        cell.encode()
    except UnicodeEncodeError:  # bytes that no letter stands for
        return False
    return True


# -- svmlight --


class Sparse(NamedTuple):
    """Records of an svmlight file: CSR rows, labels, and which lines are no records of so many features."""

    X: Any
    y: Array
    broken: NDArray[np.bool_]


def read_svmlight(path: Path, first_index: int, features: int) -> Sparse:
    r"""Every line of an svmlight file as one row; a line that is none, or has an index out of range, is an empty row.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "rows.svm")
    ...     _ = path.write_text("1 1:0.5 2:2\n-1 0:1 2:1\n-1 2:1\n")
    ...     found = read_svmlight(path, 1, 2)
    >>> found.X.toarray().tolist(), found.y.tolist(), found.broken.tolist()
    ([[0.5, 2.0], [0.0, 0.0], [0.0, 1.0]], [1.0, nan, -1.0], [False, True, False])
    """
    if path.is_dir():
        raise IsADirectoryError
    parts: list[tuple[Any, ...]] = []
    for block in line_blocks(path):
        lines = block.split(b"\n")[:-1]
        for start in range(0, len(lines), CHUNK_LINES):
            parts += _parsed(lines[start : start + CHUNK_LINES])
    if not parts:
        raise DataError(f"{path}: the file is empty; it should hold lines of 'label index:value …'")
    y, values, indices, counts = (np.concatenate(each) for each in zip(*parts, strict=True))
    indices = indices - first_index
    indptr = np.concatenate([[0], np.cumsum(counts)])
    row = np.repeat(np.arange(len(y)), counts)
    broken = np.isnan(y)
    broken[row[(indices < 0) | (indices >= features)]] = True
    y[broken] = np.nan
    if np.any(broken):
        stays = ~broken[row]
        values, indices = values[stays], indices[stays]
        indptr = np.concatenate([[0], np.cumsum(np.where(broken, 0, counts))])
    small = np.int32 if max(len(values), features, len(y)) < np.iinfo(np.int32).max else np.int64
    shape = (len(y), features)
    return Sparse(scipy.sparse.csr_array((values, indices.astype(small), indptr.astype(small)), shape=shape), y, broken)


def _parsed(lines: list[bytes]) -> list[tuple[Any, ...]]:
    """(labels, values, indices, entries of each line): the same whether lines are parsed together or one by one."""
    from sklearn.datasets import load_svmlight_file  # here: seconds to import, and only this format needs it

    try:
        X, y = load_svmlight_file(io.BytesIO(b"\n".join(lines) + b"\n"), zero_based=True)
        if X.shape[0] == len(lines) and bool(np.all(np.isfinite(y))):
            return [(y, X.data, X.indices.astype(np.int64), np.diff(X.indptr))]
    except (ValueError, OverflowError, IndexError):
        pass
    if len(lines) == 1:  # it is no record
        return [(np.array([np.nan]), np.empty(0), np.empty(0, np.int64), np.zeros(1, np.int64))]
    half = len(lines) // 2
    return _parsed(lines[:half]) + _parsed(lines[half:])
