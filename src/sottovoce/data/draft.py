"""A first draft of a schema.toml, from a file's header and from the format of its columns.

A draft reads the records: it takes the type of a column, and the values of a category, from them. So it names the
source of every entry. It leaves the bounds of numbers and dates open, to be filled in from public knowledge. A person
reads every inferred line before it is used. A codebook, if there is one, is public: a column that it describes is taken
from it, and not from the records.

    column,type,low,high,values,missing,format,buckets
    age,number,0,120,,50,,
    ward,category,,,A|B|C,none,,
    seen,date,2015-01-01,2025-12-31,,,%d.%m.%Y,
    note,text,,,,,,64
    visit,ignored,,,,,,

Columns that nobody needs may be left out of it.
"""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sottovoce.data.dialect import Dialect, found
from sottovoce.data.load import arrow_blocks, format_of, read_error_text
from sottovoce.data.schema import REFUSE
from sottovoce.data.values import MISSING, as_text
from sottovoce.errors import DataError, SpecError

MAX_CATEGORIES = 24
"""Values that a category has at the most; a text with more is read as words, or is someone's id."""
BUCKETS = 64
"""Features of a text, to begin with."""
TWO = 2
FORMATS = ("", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%Y%m%d")
"""Formats of dates that are tried."""
IGNORED = "ignored"
"""The type of a column that is known, and not used."""
LABELS = ("label", "y", "target", "class", "outcome")

EMPTY = (*MISSING, "N/A", "n/a", "#N/A")
"""What a draft takes for an empty cell: what schemas do on their own, and what spreadsheets write."""
READ_OFF = "read off the data; compare it with what is publicly known"
FILL = "fill in a public bound: from the column's meaning, never from the records"


@dataclass(frozen=True)
class Known:
    """What a codebook says of a column."""

    kind: str
    low: str = ""
    high: str = ""
    values: tuple[str, ...] = ()
    missing: str = ""
    format: str = ""
    buckets: str = ""


def read_codebook(path: Path) -> dict[str, Known]:
    """Columns by name, from a CSV with the header column,type,low,high,values (values with bars between them)."""
    try:
        dialect = found(path, Dialect())
        with path.open(encoding=dialect.encoding, newline="") as file:
            rows = list(csv.DictReader(file, delimiter=dialect.separator or ","))
        return {row["column"].strip().lstrip("\ufeff"): _known(row) for row in rows}
    except (OSError, KeyError, AttributeError, UnicodeDecodeError, csv.Error):
        raise DataError(
            f"{path}: this is no codebook; it is a CSV with the columns column, type, low, high and values (A|B|C)"
        ) from None


def _known(row: Mapping[str, str | None]) -> Known:
    said = {name: (row.get(name) or "").strip() for name in ("low", "high", "missing", "format", "buckets")}
    values = tuple(value.strip() for value in (row.get("values") or "").split("|") if value.strip())
    return Known((row.get("type") or "number").strip(), values=values, **said)


def draft(
    path: Path,
    format: str | None = None,
    dialect: Dialect | None = None,
    label: str | None = None,
    unit: str | None = None,
    group: str | None = None,
    codebook: Mapping[str, Known] | None = None,
) -> str:
    r"""The text of a schema.toml to go on from.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "patients.csv")
    ...     _ = path.write_text("age;ward;sick\n51;A;no\n60;B;yes\n42;A;no\n")
    ...     print("\n".join(draft(path, label="sick").splitlines()[8:16]))
    [label]
    column = "sick"
    classes = ["no", "yes"]  # the last is the positive one; read off the data; compare it with what is publicly known
    <BLANKLINE>
    [columns.age]
    type = "number"  # read off the data; compare it with what is publicly known
    low = "?"  # fill in a public bound: from the column's meaning, never from the records
    high = "?"  # fill in a public bound: from the column's meaning, never from the records
    """
    kind = format_of(path, format)
    if kind not in ("csv", "tsv", "parquet"):
        raise SpecError(f"{path}: {kind} files have no named columns to draft a schema from; use CSV or Parquet")
    with read_error_text(path, kind):
        given = dialect or Dialect()
        dialect = found(path, given) if kind != "parquet" else Dialect()
        blocks = arrow_blocks(path, kind, dialect, {}, null_values=list(EMPTY), strings_can_be_null=True)
        table = next(blocks)  # some tens of thousands of records, which are enough for a draft
        blocks.close()  # type: ignore[attr-defined]
    columns = {str(name): table.column(j) for j, name in enumerate(table.column_names)}
    label = _label(columns, label, path)
    for role, name in (("unit", unit), ("group", group)):
        if name is not None and name not in columns:
            raise DataError(f"{path}: there is no column '{name}' for the {role}; there are {', '.join(columns)}")
    known = codebook or {}
    texts, ignored, public = [], [], []
    for name, values in columns.items():
        if name in (label, unit, group):
            continue
        entry = known.get(name)
        lines = _from_codebook(entry) if entry is not None else _guessed(values)
        if entry is not None and entry.kind == IGNORED:
            public.append(name)
        elif lines is None:
            ignored.append(name)
        else:
            texts.append("\n".join([f"[columns.{_key(name)}]", *lines]))
    return "\n".join(
        [
            *_head(path, _text_lines(kind, dialect, given), unit, group, ignored, public),
            "",
            *_labeled(label, columns, known),
        ]
    ) + ("\n\n" + "\n\n".join(texts) + "\n")


def _text_lines(kind: str, dialect: Dialect, given: Dialect) -> list[str]:
    """How the text is written; each line that was guessed says so."""
    if kind not in ("csv", "tsv"):
        return []
    lines = [f"missing_values = [{', '.join(map(_quoted, EMPTY))}]  # what stands for an empty cell", "", "[dialect]"]
    for name, default in (("separator", ","), ("decimal", "."), ("encoding", "utf-8")):
        mark = "" if getattr(given, name) else f"  # {READ_OFF}"
        lines.append(f"{name} = {_quoted(getattr(dialect, name) or default)}{mark}")
    return lines


def _head(
    path: Path,
    text: list[str],
    unit: str | None,
    group: str | None,
    ignored: list[str],
    public: list[str],
) -> list[str]:
    lines = [f"# A draft from {path.name}. Lines that say so were read off the data: nothing private may stay in them."]
    lines += [f"{role} = {_quoted(name)}" for role, name in (("unit", unit), ("group", group)) if name is not None]
    if ignored or public:
        listed = ", ".join(map(_quoted, [*public, *ignored]))
        why = f"may be ids of records or people; {READ_OFF}" if ignored else "from the codebook"
        lines.append(f"ignored = [{listed}]  # {why}")
    return lines + text


def _label(columns: Mapping[str, Any], label: str | None, path: Path) -> str:
    if label is None:
        usual = [name for name in columns if name.lower() in LABELS]
        if len(usual) != 1:
            raise DataError(f"{path}: name with --label what is to be predicted, one of {', '.join(columns)}")
        return usual[0]
    if label not in columns:
        raise DataError(f"{path}: there is no column '{label}'; name with --label one of {', '.join(columns)}")
    return label


def _labeled(label: str, columns: Mapping[str, Any], known: Mapping[str, Known]) -> list[str]:
    lines, entry = ["[label]", f"column = {_quoted(label)}"], known.get(label)
    if entry is not None:
        return lines + [line for line in _from_codebook(entry, "classes") if not line.startswith("type")]
    values = columns[label]
    distinct = pc.unique(values.drop_null())
    if len(distinct) <= MAX_CATEGORIES and (
        _is_text(values) or len(distinct) <= TWO or pa.types.is_boolean(values.type)
    ):
        classes = ", ".join(map(_quoted, sorted(map(as_text, distinct.to_pylist()))))
        return [*lines, f"classes = [{classes}]  # the last is the positive one; {READ_OFF}"]
    if _is_text(values):
        raise DataError(f"the label '{label}' holds {len(distinct)} different texts; name another one with --label")
    return [*lines, f'low = "?"  # {FILL}', f'high = "?"  # {FILL}']


def _from_codebook(known: Known, values: str = "categories") -> list[str]:
    lines = [f"type = {_quoted(known.kind)}  # from the codebook"]
    for name, end in (("low", known.low), ("high", known.high)):
        if end:
            lines.append(f"{name} = {_quoted(end) if known.kind == 'date' else end}  # from the codebook")
    if known.missing:
        plain = known.kind == "number" and known.missing != REFUSE
        lines.append(f"missing = {known.missing if plain else _quoted(known.missing)}  # from the codebook")
    if known.format:
        lines.append(f"format = {_quoted(known.format)}  # from the codebook")
    if known.buckets:
        lines.append(f"buckets = {known.buckets}  # from the codebook")
    if known.values:
        lines.append(f"{values} = [{', '.join(map(_quoted, known.values))}]  # from the codebook")
    return lines


def _guessed(values: Any) -> list[str] | None:
    """Return the lines of a column by its format; None if its values may be ids."""
    there = values.drop_null()
    gaps = len(there) < len(values)
    distinct = pc.unique(there)
    kind, numeric = values.type, pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    named = f"# {READ_OFF}"
    if pa.types.is_integer(kind) and len(distinct) == len(there) > MAX_CATEGORIES:
        return None
    if numeric or pa.types.is_decimal(kind):
        missing = (
            [f'missing = "?"  # some records have none ({READ_OFF}): fill in what it counts as, within the bounds']
            if gaps
            else []
        )
        return [f'type = "number"  {named}', f'low = "?"  # {FILL}', f'high = "?"  # {FILL}', *missing]
    if pa.types.is_temporal(kind) or _date_format(distinct) is not None:
        format = _date_format(distinct) if _is_text(values) else ""
        lines = [f'type = "date"  {named}', f'low = "?"  # {FILL}', f'high = "?"  # {FILL}']
        return lines + ([f"format = {_quoted(format)}  {named}"] if format else [])
    words = sorted(map(as_text, distinct.to_pylist()))
    none = [f'missing = "none"  # of no category, also what is not listed; {READ_OFF}'] if gaps else []
    if len(words) == TWO and not gaps:
        return [f'type = "flag"  {named}', f"categories = [{', '.join(map(_quoted, words))}]  {named}"]
    if 1 <= len(words) <= MAX_CATEGORIES:
        return [f'type = "category"  {named}', f"categories = [{', '.join(map(_quoted, words))}]  {named}", *none]
    if len(distinct) == len(there) and all(len(word.split()) == 1 for word in words[:MAX_CATEGORIES]):
        return None
    return [f'type = "text"  {named}', f"buckets = {BUCKETS}"]


def _date_format(distinct: Any) -> str | None:
    """The one format that all texts are dates in."""
    from sottovoce.data.schema import day_of

    texts = [as_text(value) for value in distinct.to_pylist()[:1000]]
    if not texts or not all(re.match(r"\d", text) for text in texts):
        return None
    return next((form for form in FORMATS if all(day_of(text, form) < float("inf") for text in texts)), None)


def _is_text(values: Any) -> bool:
    return bool(pa.types.is_string(values.type) or pa.types.is_large_string(values.type))


def _quoted(text: str) -> str:
    """A TOML string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
    return '"' + "".join(c if c.isprintable() or c == "\t" else f"\\u{ord(c):04x}" for c in escaped) + '"'


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)
