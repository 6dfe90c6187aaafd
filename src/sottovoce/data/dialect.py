"""Text with columns: in which dialect a file is written, and the file as an Arrow table.

What separates columns, what marks decimals, how letters are encoded: where nobody says, `found` guesses it from the
first lines, for simulations and drafts of a schema only. With a guarantee `settled` takes fixed defaults instead:
comma, point, utf-8.

A text is read in blocks of whole lines, each decoded and handed to Arrow as bytes in memory. So a file of any length
takes the memory of a block, and a line may be of any width. No thread of Arrow's reads a file: such a thread, waiting
for Python, could hang or abort at exit.
"""

import codecs
import csv
import io
import lzma
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from sottovoce.data.policy import ReadPolicy
from sottovoce.errors import DataError, SpecError

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""Possible separators between columns, in the order in which they are tried."""

NAMES = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "bar": "|", "pipe": "|"}
"""Separators and marks by names, for shells in which they are awkward to write."""

ENCODINGS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
"""By the mark at the beginning of a file."""

WESTERN = "cp1252"
"""What text that is not UTF-8 is taken for; latin-1 with more letters, and what most of Europe's spreadsheets write."""

NATIVE = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""Compressions that Arrow knows, by the ending of the file's name; .xz is Python's."""

HEAD = 1 << 18  # bytes that are read to find the dialect
LINES = 100  # of which so many lines
LONGEST = 2**31 - 1  # bytes that Arrow takes at a time
BLOCK = 1 << 24  # bytes of whole lines that are read at a time; more where a line is longer

_WITH_COMMA, _WITH_POINT = re.compile(r"\s*[-+]?\d+,\d+\s*"), re.compile(r"\s*[-+]?\d*\.\d+\s*")


@dataclass(frozen=True)
class Dialect:
    """How a text is written; None where that is to be found out.

    Attributes
    ----------
    separator : one letter between columns, or its name: comma, semicolon, tab, bar
    decimal : the mark before decimals, point or comma
    encoding : a codec of Python's, such as utf-8, cp1252, latin-1
    quote : what text with separators in it stands between
    thousands : the mark between groups of three digits: comma, point, space or '; None for none
    """

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    quote: str = '"'
    thousands: str | None = None

    def __post_init__(self) -> None:
        """Names become letters; what cannot be read is refused here."""
        for field in ("separator", "decimal", "quote", "thousands"):
            value = getattr(self, field)
            value = {"point": ".", "dot": ".", "space": " "}.get(value, NAMES.get(value, value))
            if value is not None and (not isinstance(value, str) or len(value) != 1 or not value.isascii()):
                raise SpecError(f"the {field} of a text is one plain letter, such as ',' or ';', not {value!r}")
            object.__setattr__(self, field, value)
        if self.decimal is not None and self.decimal not in ".,":
            raise SpecError(f"the decimal mark is a point or a comma, not {self.decimal!r}")
        if self.thousands is not None and (self.thousands not in ",. '" or self.thousands == (self.decimal or ".")):
            raise SpecError(
                "thousands is a comma, a point, a space or ', and differs from the decimal mark, not "
                f"{self.thousands!r}; with decimal = ',' write thousands = '.'"
            )
        if self.thousands is not None and self.decimal is None:
            object.__setattr__(self, "decimal", ".")
        if self.separator is not None and self.separator in (self.decimal, self.quote):
            raise SpecError(f"{self.separator!r} cannot both separate columns and be a part of them; change one")
        try:
            "".encode(self.encoding or "utf-8")
        except (LookupError, ValueError):
            raise SpecError(f"there is no encoding '{self.encoding}'; say utf-8, cp1252, latin-1 or utf-16") from None

    def over(self, other: "Dialect") -> "Dialect":
        """What is said here, and of the rest what another says.

        Examples
        --------
        >>> Dialect(decimal=",").over(Dialect(";", "."))
        Dialect(separator=';', decimal=',', encoding=None, quote='"', thousands=None)
        """
        return Dialect(
            self.separator or other.separator,
            self.decimal or other.decimal,
            self.encoding or other.encoding,
            other.quote,
            self.thousands or other.thousands,
        )

    @property
    def words(self) -> str:
        """What it is, for a note.

        Examples
        --------
        >>> Dialect(";", ",", "cp1252").words
        'semicolons between columns, decimal commas, cp1252'
        """
        mark = {None: "", ".": ", decimal points", ",": ", decimal commas"}[self.decimal]
        between = SEPARATORS.get(self.separator or ",", repr(self.separator))
        return f"{between} between columns{mark}, {self.encoding or 'utf-8'}"


DIALECT = Dialect()
"""All of it to be found."""

FIXED = {"csv": ",", "tsv": "\t"}
"""What separates columns by format, where nobody says; a wrong one fails at the header's names."""


def settled(path: Path, format: str, dialect: Dialect, policy: ReadPolicy) -> Dialect:
    r"""The whole dialect of a file: as given, the rest guessed where the policy allows it, else by fixed defaults.

    Examples
    --------
    >>> from sottovoce.data.policy import GUARANTEE
    >>> settled(Path("patients.tsv"), "tsv", Dialect(encoding="cp1252"), GUARANTEE)
    Dialect(separator='\t', decimal='.', encoding='cp1252', quote='"', thousands=None)
    """
    if format == "tsv" and dialect.separator is None:
        dialect = replace(dialect, separator=FIXED[format])
    return found(path, dialect) if policy.guess else dialect.over(Dialect(FIXED.get(format, ","), ".", "utf-8"))


def found(path: Path, dialect: Dialect) -> Dialect:
    r"""The whole dialect of a file: what is given of it, and the rest from its first lines.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "patients.csv")
    ...     _ = path.write_bytes("größe;ort\n1,75;Köln, Süd\n1,8;Bonn\n".encode("latin-1"))
    ...     found(path, Dialect())
    Dialect(separator=';', decimal=',', encoding='cp1252', quote='"', thousands=None)
    """
    if dialect.separator and dialect.decimal and dialect.encoding:
        return dialect
    head = _head(path)
    encoding = dialect.encoding or _encoding(head)
    lines = head.decode(encoding, errors="replace").removeprefix("\ufeff").splitlines()
    lines = lines[: min(LINES, len(lines) - 1 if len(head) == HEAD and len(lines) > 1 else LINES)]  # the last is cut
    separator = dialect.separator or _separator(lines, dialect)
    mark = dialect.decimal or _decimal(_fields(lines[1:], separator, dialect.quote), separator)
    return replace(dialect, separator=separator, decimal=mark, encoding=encoding)


def _head(path: Path) -> bytes:
    with opened(path) as file:
        head: bytes = file.read(HEAD)
    return head


def _encoding(head: bytes) -> str:
    for mark, encoding in ENCODINGS.items():
        if head.startswith(mark):
            return encoding
    try:
        io.TextIOWrapper(io.BytesIO(head[: head.rfind(b"\n") + 1] or head), encoding="utf-8").read()
    except UnicodeDecodeError:
        return WESTERN
    return "utf-8"


def _fields(lines: Sequence[str], separator: str, quote: str) -> list[list[str]]:
    try:
        return list(csv.reader(lines, delimiter=separator, quotechar=quote))
    except csv.Error:  # a field longer than csv's limit
        return []


def _separator(lines: Sequence[str], dialect: Dialect) -> str:
    """What cuts the header, and then as many lines as possible, into the same number of columns; the most of them."""
    best, most = ",", (0.0, 1)
    for separator in SEPARATORS:
        if separator in (dialect.decimal, dialect.quote):
            continue
        widths = [len(row) for row in _fields(lines, separator, dialect.quote) if row]
        if widths and widths[0] > 1:
            share_of_equal = sum(width == widths[0] for width in widths) / len(widths)
            if (share_of_equal, widths[0]) > most:
                best, most = separator, (share_of_equal, widths[0])
    return best


def _decimal(rows: list[list[str]], separator: str) -> str:
    """A comma, where numbers have one and none has a point."""
    if separator == ",":
        return "."
    values = [value for row in rows for value in row]
    commas = any(_WITH_COMMA.fullmatch(value) for value in values)
    return "," if commas and not any(_WITH_POINT.fullmatch(value) for value in values) else "."


def opened(path: Path) -> Any:
    """The file's bytes, decompressed."""
    ending = path.suffix.lower()
    if ending == ".xz":
        return lzma.open(path)
    return pa.input_stream(pa.OSFile(os.fsencode(path)), compression=NATIVE.get(ending))  # whatever its name is


def read_text(path: Path, dialect: Dialect, column_types: Mapping[str, Any] | None = None, **convert: Any) -> Any:
    """Return the file as one Arrow table; the type of a column follows from all of its values."""
    (table,) = text_blocks(path, dialect, column_types, None, **convert)
    return table


def text_blocks(
    path: Path,
    dialect: Dialect,
    column_types: Mapping[str, Any] | None = None,
    size: int | None = BLOCK,
    **convert: Any,
) -> Iterator[Any]:
    r"""The file as Arrow tables, some lines at a time.

    What a column holds is determined by its type or, where none is given, by the first block: a number there is a
    number in all blocks, and where it is none later Arrow says so.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "pupils.csv")
    ...     _ = path.write_text('age,school\n9,"north\nend"\n7,south\n8,south\n')
    ...     [block.to_pydict() for block in text_blocks(path, Dialect(), size=28)]
    [{'age': [9], 'school': ['north\nend']}, {'age': [7.0, 8.0], 'school': ['south', 'south']}]
    """
    dialect = found(path, dialect)
    parsing = pa.csv.ParseOptions(delimiter=dialect.separator, quote_char=dialect.quote, newlines_in_values=True)
    types, known = dict(column_types or {}), False
    for block in _lines(path, dialect, size):
        reading = pa.csv.ReadOptions(use_threads=False, block_size=min(len(block) + 1, LONGEST))
        converting = pa.csv.ConvertOptions(decimal_point=dialect.decimal, column_types=types, **convert)
        try:
            table = pa.csv.read_csv(pa.BufferReader(block), reading, parsing, converting)
        except pa.ArrowInvalid as error:
            if "UTF8" not in str(error):
                raise
            raise DataError(_encoding_error(path, dialect)) from None
        if any(pa.types.is_binary(kind) for kind in table.schema.types):  # what Arrow makes of letters that are none
            raise DataError(_encoding_error(path, dialect))
        if not known:
            types, known = {f.name: _kept(f.type) for f in table.schema} | types, True
        yield table


def _kept(kind: Any) -> Any:
    """The type that a column has in later blocks: whole numbers, and nothing at all, may become others."""
    numeric = pa.types.is_integer(kind) or pa.types.is_null(kind)
    return pa.float64() if numeric else kind


def _lines(path: Path, dialect: Dialect, size: int | None) -> Iterator[bytes]:
    """Whole lines in UTF-8, about so many bytes at a time (None: all), each time with the header before them."""
    decoder = None if dialect.encoding == "utf-8" else codecs.getincrementaldecoder(dialect.encoding or "utf-8")()
    header, rest, first, ended = b"", b"", True, False
    with opened(path) as file:
        while not ended:
            block: bytes = file.read() if size is None else file.read(size)
            ended = not block or size is None
            try:
                rest += block if decoder is None else decoder.decode(block, ended).encode()
            except UnicodeDecodeError:
                raise DataError(_encoding_error(path, dialect)) from None
            rest = rest.removeprefix(codecs.BOM_UTF8) if first else rest
            cut = len(rest) if ended else _last_end(rest, dialect)
            if first and not ended and _first_end(rest, dialect) in (0, cut):
                cut = 0  # a header alone says nothing about types
            if not cut and size is not None:
                size *= 2  # a line is longer than all of this
            if cut or (first and ended):
                header = rest[: _first_end(rest, dialect)] if first else header
                yield rest[:cut] if first else header + rest[:cut]
                rest, first = rest[cut:], False


def _quoted(text: bytes, dialect: Dialect) -> list[tuple[int, int]]:
    """From where to where text stands between quotes, line ends in it; the last may still be open."""
    quote = re.escape(dialect.quote.encode())
    if dialect.quote.encode() not in text:
        return []
    between = re.escape((dialect.separator or ",").encode())
    pattern = re.compile(
        rb"(?:\A|(?<=[\n\r"
        + between
        + rb"]))"
        + quote
        + rb"[^"
        + quote
        + rb"]*(?:"
        + quote * 2
        + rb"[^"
        + quote
        + rb"]*)*(?:"
        + quote
        + rb"|\Z)"
    )
    return [found.span() for found in pattern.finditer(text) if b"\n" in found[0] or found.end() == len(text)]


def _last_end(text: bytes, dialect: Dialect) -> int:
    """After the last line end that is not between quotes; 0 where there is none."""
    at = text.rfind(b"\n")
    for start, stop in reversed(_quoted(text, dialect)):
        if start <= at < stop:
            at = text.rfind(b"\n", 0, start)
    return at + 1


def _first_end(text: bytes, dialect: Dialect) -> int:
    """After the first such; 0 where there is none."""
    at = text.find(b"\n")
    for start, stop in _quoted(text[: 1 << 20], dialect) if dialect.quote.encode() in text[: at + 1] else []:
        if start <= at < stop:
            at = text.find(b"\n", stop)
    return at + 1


def _encoding_error(path: Path, dialect: Dialect) -> str:
    return f"{path}: some of its letters are not {dialect.encoding}; name its encoding, as in --encoding {WESTERN}"
