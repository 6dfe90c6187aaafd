"""What the columns of a file may be, guessed from their values: for drafts of a schema only, which a person reads.

Each line that follows from values says so. A run with a guarantee guesses nothing.
"""

import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sottovoce.data.values import NumberFormat, as_number, as_text

MAX_CATEGORIES = 24
"""Values that a category has at the most where they may be rare."""
MAX_COMMON_CATEGORIES = 255
"""Values that a category has at the most where each occurs often."""
OFTEN = 10
"""Records of a value, on average, from which on it is a category and not free text."""
MAX_CATEGORY_LETTERS = 60
"""Letters of a category at the most."""
MAX_CODES = 12
"""Different whole numbers up to which a column may hold codes."""
BUCKETS = 64
"""Features of a text, to begin with."""
FORMATS = ("", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%Y%m%d")
"""Formats of dates that are tried."""
CODE_NAME = re.compile(
    r"(?:^|.*[_\W])(?:id|ids|code|key|uuid|zip|zipcode|postcode|plz|icd|ssn)$|.*[a-z](?:Id|ID)$", re.I
)
"""Names of columns whose whole numbers are codes."""
CURRENCIES = {"USD", "EUR", "GBP", "CHF", "JPY", "CNY", "INR", "kr", "zł", "Kč", "R$", "US$", "A$", "C$"}
AFFIX = r"[^\d\s.,'+-][^\d.,'+-]{0,2}[^\d\s.,'+-]|[^\d\s.,'+-]"
AFFIXED = re.compile(rf"[-+]?\s*(?P<prefix>{AFFIX})?\s*[-+]?[\d.,'\s]*\d[.,]?\s*(?P<suffix>{AFFIX})?")
READ_OFF = "read off the data; compare it with what is publicly known"
FILL = "fill in a public bound: from the column's meaning, never from the records"


@dataclass(frozen=True)
class Guess:
    """Lines of a schema for one column; none, and the reason, where it is better left out."""

    lines: tuple[str, ...] = ()
    left_out: str = ""


CONSTANT = "holds one value"
MAYBE_ID = "may be ids of records or people"


def number_formats(texts: Mapping[str, Sequence[str]], decimals: Sequence[str]) -> dict[str, NumberFormat]:
    """How the columns that hold numbers are written, all with the same marks; the first decimal mark is the likely one.

    Examples
    --------
    >>> number_formats({"price": ["$1,250", "$900"], "ward": ["A", "B"]}, ".,")
    {'price': NumberFormat(decimal='.', thousands=',', prefix='$', suffix='')}
    """
    styles = [(mark, "") for mark in decimals[:1]]
    styles += [(mark, group) for mark in decimals for group in (",", ".", " ", "'") if group != mark]
    styles += [(mark, "") for mark in decimals[1:]]
    fits: dict[tuple[str, str], dict[str, NumberFormat]] = {style: {} for style in styles}
    for name, values in texts.items():
        affixes = _affixes(values)
        for style, found in fits.items():
            form = NumberFormat(*style, *affixes or ())
            if affixes is not None and all(as_number(value, set(), form) is not None for value in values):
                found[name] = form
    return max(fits.values(), key=len)


def _affixes(values: Sequence[str]) -> tuple[str, str] | None:
    """What stands before and after numbers; None where something else does."""
    found: dict[str, set[str]] = {"prefix": set(), "suffix": set()}
    for value in values:
        match = AFFIXED.fullmatch(value.strip())
        if match is None:
            return None
        for side, seen in found.items():
            seen |= {match[side]} - {None}
    if any(len(seen) > 1 or not all(map(_is_unit, seen)) for seen in found.values()) or not values:
        return None
    return "".join(found["prefix"]), "".join(found["suffix"])


def _is_unit(text: str) -> bool:
    return text in CURRENCIES or text in ("%", "‰") or all(unicodedata.category(letter) == "Sc" for letter in text)


def numbers_among(texts: Sequence[str]) -> list[str]:
    """The texts with a digit: all that can be a number or a date."""
    return [text for text in texts if any(letter.isdigit() for letter in text)]


def _why_text(raw: Sequence[str]) -> tuple[str, ...]:
    """What keeps a column from being numbers or dates, where it is few words beside them."""
    numeric = numbers_among(raw)
    words = sorted(set(raw) - set(numeric))
    if not 0 < 4 * len(words) <= len(numeric):
        return ()
    dates = _date_format(pa.array(numeric)) is not None
    if not (dates or number_formats({"": numeric}, ".,")):
        return ()
    shown = ", ".join(quoted(word[:MAX_CATEGORY_LETTERS]) for word in words[:3]) + (", …" if len(words) > 3 else "")
    return (
        f"# all but {shown} are {'dates' if dates else 'numbers'} ({READ_OFF}); for what stands for an empty cell, "
        f"draft again with --missing-value {shlex.quote(quoted(words[0])[1:-1])}",
    )


def guess_column(name: str, values: Any, raw: Sequence[str] | None, form: NumberFormat | None) -> Guess:
    """What one column may be.

    Parameters
    ----------
    name : of the column, which is public
    values : as Arrow types them
    raw : its different texts, where it is text or comes from a text file
    form : how its numbers are written, if it holds numbers
    """
    there = values.drop_null()
    distinct = pc.unique(there)
    gaps, different = len(there) < len(values), len(distinct)
    if different == 0 or (different == 1 and not gaps):
        return Guess(left_out=CONSTANT)
    whole = pa.types.is_integer(values.type)
    codes = whole and (CODE_NAME.match(name) is not None or any(re.fullmatch(r"0\d+", text) for text in raw or ()))
    if whole and (different == len(there) > MAX_CATEGORIES or (codes and different > MAX_COMMON_CATEGORIES)):
        return Guess(left_out=MAYBE_ID)
    if codes:
        return Guess(_category(sorted(raw or map(as_text, distinct.to_pylist())), gaps))
    common = len(there) >= OFTEN * different
    if form is not None or _is_number(values.type):
        return Guess(_number(distinct.to_pylist() if whole and common else [], gaps, form))
    format = _date_format(distinct) if _is_text(values.type) else None
    if pa.types.is_temporal(values.type) or format is not None:
        lines = [f'type = "date"  # {READ_OFF}', f'low = "?"  # {FILL}', f'high = "?"  # {FILL}']
        return Guess((*lines, *([f"format = {quoted(format)}  # {READ_OFF}"] if format else [])))
    words = sorted(map(as_text, distinct.to_pylist()))
    common = common and different <= MAX_COMMON_CATEGORIES and max(map(len, words)) <= MAX_CATEGORY_LETTERS
    if common or different <= MAX_CATEGORIES:
        return Guess(_category(words, gaps))
    if (
        different == len(there)
        and not _why_text(raw or words)
        and all(len(word.split()) == 1 for word in words[:MAX_CATEGORIES])
    ):
        return Guess(left_out=MAYBE_ID)
    return Guess((*_why_text(raw or words), f'type = "text"  # {READ_OFF}', f"buckets = {BUCKETS}"))


def _category(words: Sequence[str], gaps: bool) -> tuple[str, ...]:
    listed = f"categories = [{', '.join(map(quoted, words))}]  # {READ_OFF}"
    if len(words) == 2 and not gaps:
        return f'type = "flag"  # {READ_OFF}', listed
    none = [f'missing = "none"  # of no category, also what is not listed; {READ_OFF}'] if gaps else []
    return (f'type = "category"  # {READ_OFF}', listed, *none)


def _number(whole: Sequence[int], gaps: bool, form: NumberFormat | None) -> tuple[str, ...]:
    """Lines of a number; `whole` are its different values where all are whole numbers that occur often."""
    if set(whole) == {0, 1} and not gaps:
        return _category(("0", "1"), gaps)
    codes = ""
    if 0 < len(whole) <= MAX_CODES:
        listed = ", ".join(quoted(as_text(value)) for value in sorted(whole))
        codes = f'; if these are codes: type = "category", categories = [{listed}]'
    lines = [f'type = "number"  # {READ_OFF}{codes}', f'low = "?"  # {FILL}', f'high = "?"  # {FILL}']
    if gaps:
        lines.append(f'missing = "?"  # some records have none ({READ_OFF}): fill in what it counts as')
    return (*lines, *affix_lines(form))


def affix_lines(form: NumberFormat | None) -> list[str]:
    """What stands around a column's numbers."""
    around = {"prefix": form.prefix, "suffix": form.suffix} if form is not None else {}
    return [f"{side} = {quoted(text)}  # {READ_OFF}" for side, text in around.items() if text]


def _date_format(distinct: Any) -> str | None:
    """The one format that all texts are dates in."""
    from sottovoce.data.schema import day_of

    texts = [as_text(value) for value in distinct.to_pylist()[:1000]]
    if not texts or not all(re.match(r"\d", text) for text in texts):
        return None
    return next((form for form in FORMATS if all(day_of(text, form) < float("inf") for text in texts)), None)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def quoted(text: str) -> str:
    """A TOML string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
    return '"' + "".join(c if c.isprintable() or c == "\t" else f"\\u{ord(c):04x}" for c in escaped) + '"'
