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

A column that is left out of it, or of which it says nothing, is described by the records. A column that the file does
not have, an unknown type and bounds that bound nothing are refused (`check_codebook`). `codebook_template` is a
codebook of a file's columns to fill in: it takes their names from the header and nothing from the records.
"""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sottovoce.data.columns import check_names
from sottovoce.data.dialect import Dialect, found
from sottovoce.data.guess import (
    CONSTANT,
    FILL,
    MAX_CATEGORIES,
    READ_OFF,
    Guess,
    affix_lines,
    guess_column,
    number_formats,
    numbers_among,
    quoted,
)
from sottovoce.data.layout import names_in
from sottovoce.data.load import NAMED, arrow_blocks, format_of, read_error_text
from sottovoce.data.policy import SIMULATION
from sottovoce.data.schema import INDICATOR, KINDS, REFUSE, day_of
from sottovoce.data.values import MISSING, NumberFormat, as_number, as_text
from sottovoce.errors import DataError, SpecError

IGNORED = "ignored"
"""The type of a column that is known, and not used."""
LABELS = ("label", "y", "target", "class", "outcome")
CODEBOOK = ("column", "type", "low", "high", "values", "missing", "format", "buckets")
"""The columns of a codebook."""
BUCKETS = 64
"""Features of a text of which a codebook says no number."""

EMPTY = (*MISSING, "N/A", "n/a", "#N/A")
"""What a draft takes for an empty cell: what schemas do on their own, and what spreadsheets write."""


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
        described = [row for row in rows if any(value for name, value in row.items() if name != "column")]
        return {row["column"].strip().lstrip("\ufeff"): _known(row) for row in described}
    except (OSError, KeyError, AttributeError, UnicodeDecodeError, csv.Error):
        raise DataError(
            f"{path}: this is no codebook; it is a CSV with the columns column, type, low, high and values (A|B|C); "
            "sottovoce schema FILE --codebook-template writes one to fill in"
        ) from None


def _known(row: Mapping[str, str | None]) -> Known:
    said = {name: (row.get(name) or "").strip() for name in ("low", "high", "missing", "format", "buckets")}
    values = tuple(value.strip() for value in (row.get("values") or "").split("|") if value.strip())
    return Known((row.get("type") or "number").strip(), values=values, **said)


def check_codebook(codebook: Mapping[str, Known], names: Sequence[str], label: str) -> None:
    """Refuse what a codebook says of no column of the file, and types and bounds that no schema has."""
    for name, entry in codebook.items():
        if name not in names:
            near = get_close_matches(name, names, 1, 0.5)
            hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(names)};"
            raise DataError(f"codebook: the file has no column '{name}'; {hint} correct the name or delete the line")
        kinds = (*KINDS, IGNORED, *(["label"] if name == label else []))
        if entry.kind not in kinds:
            raise DataError(f"codebook: '{name}' has the type '{entry.kind}'; write one of {', '.join(kinds)}")
        if entry.kind in ("number", "date"):
            ends = [_bound(name, key, getattr(entry, key), entry.kind) for key in ("low", "high")]
            if None not in ends and not ends[0] < ends[1]:  # type: ignore[operator]
                raise DataError(f"codebook: '{name}' needs low < high, not {entry.low} and {entry.high}; correct them")
            if entry.missing not in (REFUSE, INDICATOR):
                _bound(name, "missing", entry.missing, entry.kind)


def _bound(name: str, key: str, text: str, kind: str) -> float | None:
    """A number or date of a codebook, None where it is left open."""
    if not text:
        return None
    if kind == "date":
        if (day := day_of(text)) == math.inf:
            raise DataError(f"codebook: {key} of '{name}' is '{text}'; write a date such as 2019-07-31")
        return day
    if re.fullmatch(r"[-+]?[1-9]\d{0,2}(\.\d{3})+", text):
        raise DataError(
            f"codebook: {key} of '{name}' is '{text}', which may have a mark of thousands; write "
            f"{text.replace('.', '')} or {text}0"
        )
    number = as_number(text, set())
    if number is None or math.isnan(number):
        plain = text.replace(".", "").replace(",", ".")
        hint = plain if as_number(plain, set()) is not None else "1234.5"
        raise DataError(f"codebook: {key} of '{name}' is '{text}'; write a number with a decimal point, as in {hint}")
    return number


def codebook_template(path: Path, format: str | None = None, dialect: Dialect | None = None) -> str:
    r"""A codebook of the columns in a file's header, with nothing but their names filled in.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "patients.csv")
    ...     _ = path.write_text("age;ward\n51;A\n")
    ...     print(codebook_template(path), end="")
    column,type,low,high,values,missing,format,buckets
    age,,,,,,,
    ward,,,,,,,
    """
    names = names_in(path, _named_format(path, format), dialect or Dialect(), SIMULATION) or []
    check_names(names, str(path))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CODEBOOK)
    writer.writerows([name, *[""] * (len(CODEBOOK) - 1)] for name in names)
    return text.getvalue()


def _named_format(path: Path, format: str | None) -> str:
    kind = format_of(path, format)
    if kind not in NAMED:
        raise SpecError(f"{path}: {kind} files have no named columns to draft a schema from; use CSV, Parquet or .xlsx")
    return kind


def draft(
    path: Path,
    format: str | None = None,
    dialect: Dialect | None = None,
    label: str | None = None,
    unit: str | None = None,
    group: str | None = None,
    codebook: Mapping[str, Known] | None = None,
    missing_values: Sequence[str] = (),
) -> str:
    r"""The text of a schema.toml to go on from; `missing_values` are further texts that count as no value.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "patients.csv")
    ...     _ = path.write_text("age;ward;sick\n51;A;no\n60;B;yes\n42;A;no\n")
    ...     print("\n".join(draft(path, label="sick").splitlines()[8:17]))
    [label]
    column = "sick"
    # 'yes' is the positive class, as it is the last one: sort them so that the last is what you look for
    classes = ["no", "yes"]  # read off the data; compare it with what is publicly known
    <BLANKLINE>
    [columns.age]
    type = "number"  # read off the data; compare it with what is publicly known
    low = "?"  # fill in a public bound: from the column's meaning, never from the records
    high = "?"  # fill in a public bound: from the column's meaning, never from the records
    """
    kind, given = _named_format(path, format), dialect or Dialect()
    with read_error_text(path, kind):
        written = found(path, given) if kind in ("csv", "tsv") else given
        check_names(names_in(path, kind, written, SIMULATION) or [], str(path))
        empty = list(dict.fromkeys([*EMPTY, *missing_values]))
        table, raw = _read(path, kind, written, empty)
    columns = {str(name): table.column(j) for j, name in enumerate(table.column_names)}
    label = _label(columns, label, path)
    for role, name in (("--user-id", unit), ("--group", group)):
        if name is not None and name not in columns:
            raise DataError(f"{path}: there is no column '{name}'; name with {role} one of {', '.join(columns)}")
    known = codebook or {}
    check_codebook(known, [*columns], label)
    raw |= {name: numbers_among(raw[name]) for name, entry in known.items() if entry.kind == "number" and name in raw}
    decimals = given.decimal or ("," if written.decimal == "," else ".")
    formats = number_formats(raw, decimals if given.decimal else decimals + {",": ".", ".": ","}[decimals])
    written = _with_marks(written, formats)
    texts, public = [], [name for name, entry in known.items() if entry.kind == IGNORED]
    left_out: dict[str, str] = {}
    for name, values in columns.items():
        if name in (label, unit, group, *public):
            continue
        entry, form = known.get(name), formats.get(name)
        guess = (
            Guess((*_from_codebook(entry), *affix_lines(form)))
            if entry is not None
            else guess_column(name, values, raw.get(name), form)
        )
        if guess.lines:
            texts.append("\n".join([f"[columns.{_key(name)}]", *guess.lines]))
        else:
            left_out[name] = guess.left_out
    lines = [*_head(path, unit, group, left_out, public), *_text_lines(kind, written, given, empty), ""]
    lines += _labeled(label, columns[label], known.get(label), formats.get(label))
    return "\n".join(lines) + ("\n\n" + "\n\n".join(texts) + "\n")


def _read(path: Path, kind: str, dialect: Dialect, missing: Sequence[str]) -> tuple[Any, dict[str, list[str]]]:
    """Some tens of thousands of records, as Arrow types them, and the different texts of columns that hold text."""
    empty = {"null_values": list(missing), "strings_can_be_null": True}
    table = _first(arrow_blocks(path, kind, dialect, {}, **empty))
    spelled = table
    if kind in ("csv", "tsv"):
        spelled = _first(arrow_blocks(path, kind, dialect, dict.fromkeys(table.column_names, pa.string()), **empty))
    texts = {
        str(name): [text.strip() for text in pc.unique(spelled.column(j).drop_null()).to_pylist()]
        for j, name in enumerate(spelled.column_names)
        if pa.types.is_string(spelled.column(j).type) or pa.types.is_large_string(spelled.column(j).type)
    }
    return table, texts


def _first(blocks: Any) -> Any:
    first = next(blocks)
    blocks.close()
    return first


def _with_marks(dialect: Dialect, formats: Mapping[str, NumberFormat]) -> Dialect:
    """The dialect with the marks of the columns' numbers."""
    if not formats:
        return dialect
    one = next(iter(formats.values()))
    return replace(dialect, decimal=one.decimal, thousands=one.thousands or None)


def _text_lines(kind: str, dialect: Dialect, given: Dialect, empty: Sequence[str]) -> list[str]:
    """How the text is written; each line that was guessed says so."""
    text = kind in ("csv", "tsv")
    marks = {"separator": ",", "decimal": ".", "encoding": "utf-8"} if text else {"decimal": "."}
    listed = f"missing_values = [{', '.join(map(quoted, empty))}]  # what stands for an empty cell"
    lines = [] if kind == "parquet" else [listed]
    if not text and not dialect.thousands and dialect.decimal in (None, "."):
        return lines
    lines += ["", "[dialect]"]
    for name, default in (marks | ({"thousands": ""} if dialect.thousands else {})).items():
        mark = "" if getattr(given, name) else f"  # {READ_OFF}"
        lines.append(f"{name} = {quoted(getattr(dialect, name) or default)}{mark}")
    return lines


def _head(
    path: Path, unit: str | None, group: str | None, left_out: Mapping[str, str], public: Sequence[str]
) -> list[str]:
    lines = [f"# A draft from {path.name}. Lines that say so were read off the data: nothing private may stay in them."]
    lines += [f"{role} = {quoted(name)}" for role, name in (("unit", unit), ("group", group)) if name is not None]
    constant = [name for name, why in left_out.items() if why == CONSTANT]
    if constant:
        lines.append(f"# of one value, which adds nothing ({READ_OFF}): {', '.join(map(quoted, constant))}")
    if left_out or public:
        ids = len(constant) < len(left_out)
        why = f"may be ids of records or people; {READ_OFF}" if ids else READ_OFF if constant else "from the codebook"
        lines.append(f"ignored = [{', '.join(map(quoted, [*public, *left_out]))}]  # {why}")
    return lines


def _label(columns: Mapping[str, Any], label: str | None, path: Path) -> str:
    if label is None:
        usual = [name for name in columns if name.lower() in LABELS]
        if len(usual) != 1:
            raise DataError(f"{path}: name with --label what is to be predicted, one of {', '.join(columns)}")
        return usual[0]
    if label not in columns:
        raise DataError(f"{path}: there is no column '{label}'; name with --label one of {', '.join(columns)}")
    return label


def _labeled(label: str, values: Any, entry: Known | None, form: NumberFormat | None) -> list[str]:
    """Lines of the label."""
    lines = ["[label]", f"column = {quoted(label)}"]
    if entry is not None:
        described = [line for line in _from_codebook(entry, "classes") if not line.startswith("type")]
        return (
            lines
            + _positive(entry.values)
            + described
            + (affix_lines(form) if entry.kind == "number" and not entry.values else [])
        )
    distinct = pc.unique(values.drop_null())
    text = form is None and (pa.types.is_string(values.type) or pa.types.is_large_string(values.type))
    if len(distinct) <= MAX_CATEGORIES and (text or len(distinct) <= 2 or pa.types.is_boolean(values.type)):
        names = sorted(map(as_text, distinct.to_pylist()))
        classes = ", ".join(map(quoted, names))
        return [*lines, *_positive(names), f"classes = [{classes}]  # {READ_OFF}"]
    if text:
        raise DataError(f"the label '{label}' holds {len(distinct)} different texts; name another one with --label")
    return [*lines, f'low = "?"  # {FILL}', f'high = "?"  # {FILL}', *affix_lines(form)]


def _positive(classes: Sequence[str]) -> list[str]:
    """A line that says which of two classes is the positive one."""
    if len(classes) != 2:
        return []
    last = quoted(classes[-1])[1:-1]
    return [f"# '{last}' is the positive class, as it is the last one: sort them so that the last is what you look for"]


def _from_codebook(known: Known, values: str = "categories") -> list[str]:
    """Lines of a column that a codebook describes; what it leaves open is to be filled in."""
    lines = [f"type = {quoted(known.kind)}  # from the codebook"]
    bounded = known.kind in ("number", "date") and not (values == "classes" and known.values)
    for name, end in (("low", known.low), ("high", known.high)):
        if end:
            lines.append(f"{name} = {quoted(end) if known.kind == 'date' else end}  # from the codebook")
        elif bounded:
            lines.append(f'{name} = "?"  # {FILL}')
    if known.missing:
        plain = known.kind == "number" and known.missing != REFUSE
        lines.append(f"missing = {known.missing if plain else quoted(known.missing)}  # from the codebook")
    if known.format:
        lines.append(f"format = {quoted(known.format)}  # from the codebook")
    if known.buckets or known.kind == "text":
        lines.append(f"buckets = {known.buckets or BUCKETS}  # from the codebook")
    if known.values:
        lines.append(f"{values} = [{', '.join(map(quoted, known.values))}]  # from the codebook")
    elif known.kind in ("category", "flag", "ordered"):
        lines.append(f'{values} = ["?"]  # list them from public knowledge, never from the records')
    return lines


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else quoted(name)
