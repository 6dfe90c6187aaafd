"""schema.toml: the format of every node's records, agreed in public, so that nothing is found out from the data.

The schema says what a column is, and every value is read by itself (`values`). Then every record is encoded by itself
from public numbers: a number is clipped to its public bounds and brought to [−1, 1], and so is a date; a category
becomes an indicator for each of its public values, an ordered one a number, a flag −1 or +1, a text its words, each
hashed to one of so many features with a sign and the whole scaled to norm 1. So a row's norm is at most the square root
of the number of columns (one with special values counts twice), whatever the data holds. `row_norm`, if given, scales
longer rows down.

    row_norm = 1.0
    unit = "patient"                      # whose a row is: one person's rows count together
    group = "hospital"                    # who owns it: a node for each, where a file holds several owners' records
    ignored = ["visit_number"]            # columns that are there, and are left alone as all are that are not named
    pairs = [["age", "stage"]]            # numbers, dates or ordered categories that an additive model lets interact

    [label]
    column = "outcome"
    classes = ["well", "sick"]            # −1 and +1, or three and more; a regression has low and high instead

    [columns.age]
    type = "number"
    low = 0
    high = 120
    missing = 50                          # without it a missing value is refused; "indicator": it gets one of its own
    transform = "log"                     # or "sqrt", "signed_log": before it is brought to [−1, 1]
    special = [0]                         # values that are codes: each gets an indicator, and no place on the scale

    [columns.price]
    type = "number"
    low = 0
    high = 5000
    prefix = "$"                          # what may stand around the number in a text; 45% with suffix = "%" is 45

    [columns.ward]
    type = "category"
    categories = ["A", "B", "C"]
    missing = "none"                      # of none of them; or one of them; also for values not listed

    [columns.stage]
    type = "ordered"                      # evenly spaced on [−1, 1], in this order
    categories = ["I", "II", "III", "IV"]
    missing = "none"                      # counts as the middle

    [columns.smoker]
    type = "flag"
    categories = ["no", "yes"]

    [columns.admitted]
    type = "date"
    low = 2015-01-01
    high = 2025-12-31
    format = "%d.%m.%Y"                   # if not 2019-07-31

    [columns.note]
    type = "text"
    buckets = 64

    [dialect]                             # of text files; without it comma, point and utf-8
    separator = ";"
    decimal = ","
    thousands = "."                       # or ",", " ", "'"; between groups of three digits
    encoding = "cp1252"

A file without named columns (svmlight) has `features`, their common bounds and `first_index`, 0 or 1, in place of the
columns. A run file without a schema has a *plain* one (`plain_schema`): columns of numbers that are taken as they are.
"""

import hashlib
import json
import math
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from difflib import get_close_matches
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # not its parts: they load when first used
from numpy.typing import NDArray

from sottovoce._types import Array, Matrix
from sottovoce.bounded import read_toml
from sottovoce.data.dialect import DIALECT, Dialect
from sottovoce.data.layout import Layout
from sottovoce.data.lines import read_svmlight
from sottovoce.data.load import ReadProgress, format_of, load, read_error_text
from sottovoce.data.policy import GUARANTEE, PREDICTION, SIMULATION, ReadPolicy
from sottovoce.data.tables import Growing, load_table
from sottovoce.data.transforms import TRANSFORMS, raw_dates, raw_values, unit_interval
from sottovoce.data.values import (
    MISSING,
    Columns,
    NumberFormat,
    Wanted,
    as_number,
    as_text,
    column_blocks,
    from_lists,
)
from sottovoce.errors import DataError, SpecError
from sottovoce.matrices import canonical, is_sparse, unit_rows

FILE = "schema.toml"
NONE = "none"
REFUSE = "refuse"
INDICATOR = "indicator"
KINDS = ("number", "category", "flag", "date", "text", "ordered")
NUMERIC = ("number", "date", "ordered")
"""Kinds that become one number within [−1, 1], of which an additive model takes functions."""
MAX_BUCKETS = 1 << 20
"""Features of one text at the most."""
NUMBERED = ("svmlight", "npz")
"""Formats whose features have numbers and no names."""
NO_RECORD = "is no line of 'label index:value …' with rising indices in range"


# -- columns and label, encoded --


CURE = "correct the record, or say in the schema what a missing value counts as"


@dataclass(frozen=True)
class Column:
    """One public column: how its values are read, bounded and filled in."""

    name: str
    kind: str
    low: float = -1.0
    high: float = 1.0
    categories: tuple[str, ...] = ()
    missing: str | float = REFUSE
    format: str = ""
    buckets: int = 0
    transform: str = ""
    special: tuple[float, ...] = ()
    prefix: str = ""
    suffix: str = ""

    def __post_init__(self) -> None:
        """Refuse what does not bound a value."""
        if self.kind not in KINDS:
            raise SpecError(f"schema: column '{self.name}' is a {self.kind!r}; its type is one of {', '.join(KINDS)}")
        extra = {
            "categories": ("category", "flag", "ordered"), "format": ("date",), "buckets": ("text",),
            "transform": ("number",), "special": ("number",), "prefix": ("number",), "suffix": ("number",),
        }  # fmt: skip
        odd = [name for name, kinds in extra.items() if getattr(self, name) and self.kind not in kinds]
        if odd:
            raise SpecError(f"schema: column '{self.name}' is a {self.kind}, which has no {odd[0]}; leave it out")
        if self.kind in ("number", "date"):
            if not -math.inf < self.low < self.high < math.inf:
                raise SpecError(
                    f"schema: column '{self.name}' needs finite bounds low < high, not {self.low:g} and {self.high:g}"
                )
            self._check_number()
            return
        if self.kind == "text":
            if not 1 <= self.buckets <= MAX_BUCKETS:
                raise SpecError(f"schema: column '{self.name}' needs buckets, from 1 to {MAX_BUCKETS:,}: its features")
            if self.missing not in (NONE, REFUSE):
                raise SpecError(f"schema: '{self.name}' has missing = '{self.missing}'; give '{NONE}' or '{REFUSE}'")
            return
        least = 1 if self.kind == "category" else 2
        few = len(set(self.categories)) != len(self.categories) or len(self.categories) < least
        if few or (self.kind == "flag" and len(self.categories) > 2):
            raise SpecError(
                f"schema: column '{self.name}' needs its categories, each once; a flag has two of them, an ordered "
                "column two or more"
            )
        if self.missing not in (NONE, REFUSE, *self.categories):
            raise SpecError(f"schema: '{self.name}' has missing = '{self.missing}'; give '{NONE}' or a category")

    def _check_number(self) -> None:
        """Missing values, a transform and special values that fit a number or a date."""
        if isinstance(self.missing, str) and self.missing not in (REFUSE, INDICATOR):
            raise SpecError(
                f"schema: '{self.name}' has missing = '{self.missing}'; give a {self.kind}, '{INDICATOR}' or '{REFUSE}'"
            )
        if self.transform not in TRANSFORMS:
            known = ", ".join(name for name in TRANSFORMS if name)
            raise SpecError(f"schema: '{self.name}' has transform = '{self.transform}'; it is one of {known}")
        if not TRANSFORMS[self.transform].allows(self.low):
            raise SpecError(
                f"schema: '{self.name}' has transform = '{self.transform}', which is not defined at low = "
                f"{self.low:g}; give a larger low, or 'signed_log'"
            )
        if len(set(self.special)) < len(self.special) or not all(math.isfinite(value) for value in self.special):
            raise SpecError(f"schema: the special values of '{self.name}' are finite numbers, each named once")

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that the column becomes."""
        if self.kind == "text":
            return tuple(f"{self.name}#{k}" for k in range(self.buckets))
        if self.kind == "category":
            return tuple(f"{self.name}={value}" for value in self.categories)
        return (self.name, *self.indicators)

    @property
    def indicators(self) -> tuple[str, ...]:
        """Names of the indicators of a number's special values and of its missing ones."""
        missing = (f"{self.name} is missing",) if self.missing == INDICATOR and self.kind in ("number", "date") else ()
        return (*(f"{self.name} is {value:g}" for value in self.special), *missing)

    def encode(self, columns: Columns) -> Array:
        """(records, features) with rows of norm at most 1, each from its own value alone."""
        if self.kind == "text":
            return self._hashed(columns)
        if self.kind in ("number", "date"):
            return self._scaled(columns)
        texts = truth_values(columns.texts[self.name], self.categories)
        known: NDArray[np.bool_] = np.array([value in self.categories for value in texts], dtype=bool)
        if self.missing == REFUSE:
            columns.reject(~known, self.name, "has no value, or one that the schema does not list", CURE)
        else:
            unlisted: NDArray[np.bool_] = ~known & np.array([value is not None for value in texts], dtype=bool)
            columns.policy.notify_owner(
                f"column '{self.name}' holds a value that the schema does not list, which counts as missing,",
                int(np.count_nonzero(unlisted)),
            )
        filled = np.where(known, texts, self.missing)
        if self.kind == "ordered":
            places = dict(zip(self.categories, np.linspace(-1.0, 1.0, len(self.categories)).tolist(), strict=True))
            return np.array([places.get(value, 0.0) for value in filled])[:, None]
        hot = (filled[:, None] == np.array(self.categories, dtype=object)[None, :]).astype(np.float64)
        return hot if self.kind == "category" else hot[:, 1:] - hot[:, :1]

    def _scaled(self, columns: Columns) -> Array:
        """A number or date within [−1, 1], and its indicators; a value that has one counts as the middle."""
        values = self._days(columns) if self.kind == "date" else columns.numbers[self.name].astype(np.float64)
        gaps = np.isnan(values)
        if self.missing == REFUSE:
            columns.reject(gaps, self.name, "has no value", CURE)
        else:
            values = np.where(gaps, np.nan if self.missing == INDICATOR else float(self.missing), values)
        flags = [values == value for value in self.special]
        flags += [np.isnan(values)] if self.missing == INDICATOR else []
        apart = np.any(flags, axis=0) if flags else np.zeros(len(values), dtype=bool)
        t = unit_interval(np.where(np.isnan(values), self.low, values), self.low, self.high, self.transform)
        t = np.where(apart | np.isnan(values), 0.0, t)
        return np.column_stack([t, *(flag.astype(np.float64) for flag in flags)])

    def _days(self, columns: Columns) -> Array:
        """Days since the year 1, with fractions; NaN for a missing one."""
        texts = columns.texts[self.name]
        days = np.array([math.nan if text is None else self._day(text) for text in texts], dtype=np.float64)
        none = np.isinf(days)
        if np.any(none):
            written = f"as in {datetime(2019, 7, 31).strftime(self.format or '%Y-%m-%d')}"
            why = f"is a date in the schema ({written}), but holds something else"
            if columns.policy.refuse:
                columns.reject(none, self.name, why, "correct it")
            columns.policy.notify_owner(
                f"column '{self.name}' {why}, which counts as missing,", int(np.count_nonzero(none))
            )
        return np.where(none, math.nan, days)

    def _day(self, text: str) -> float:
        """A date in its format, or as workbooks and tables that store dates give it."""
        day = day_of(text, self.format)
        return day_of(text) if day == math.inf and self.format and _ISO_DATE.match(text) else day

    def _hashed(self, columns: Columns) -> Array:
        """Words counted in their buckets, with their signs, and brought to norm 1."""
        texts = columns.texts[self.name]
        out = np.zeros((len(texts), self.buckets))
        if self.missing == REFUSE:
            columns.reject(np.array([text is None for text in texts], dtype=bool), self.name, "has no value", CURE)
        for row, text in enumerate(texts):
            for word in _WORD.findall((text or "").casefold()):
                bucket, sign = _place(self.name, word, self.buckets)
                out[row, bucket] += sign
        norms = np.linalg.norm(out, axis=1, keepdims=True)
        return np.divide(out, norms * (1.0 + 2.0**-50), out=out, where=norms > 0)


def truth_values(texts: NDArray[np.object_], known: Sequence[str]) -> NDArray[np.object_]:
    """Texts as they are; for categories or classes true and false, True, TRUE and true are one.

    Examples
    --------
    >>> truth_values(np.array(["TRUE", "false", None], dtype=object), ("False", "True")).tolist()
    ['True', 'False', None]
    """
    spelled = {value.casefold(): value for value in known}
    if set(spelled) != {"false", "true"}:
        return texts
    return np.array([text if text is None else spelled.get(text.casefold(), text) for text in texts], dtype=object)


_WORD = re.compile(r"\w+")
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d")


@lru_cache(maxsize=1 << 16)
def _place(column: str, word: str, buckets: int) -> tuple[int, float]:
    """Where a word of a column is counted, and with which sign: the same for everybody, for good."""
    letters = word.encode(errors="surrogatepass")  # half of a pair, from a database or a frame, is a letter too
    drawn = int.from_bytes(hashlib.blake2b(letters, key=column.encode()[:64], digest_size=8).digest(), "little")
    return (drawn >> 1) % buckets, 1.0 if drawn & 1 else -1.0


def day_of(text: str, format: str = "") -> float:
    """A date or time as days since the year 1; infinite where the text is none.

    Examples
    --------
    >>> day_of("2019-07-31") == day_of("31.7.2019", "%d.%m.%Y"), day_of("2019-07-31 12:00") - day_of("2019-07-31")
    (True, 0.5)
    >>> day_of("soon")
    inf
    """
    try:
        when = datetime.strptime(text, format) if format else datetime.fromisoformat(text)
    except ValueError:
        return math.inf
    seconds = when.hour * 3600 + when.minute * 60 + when.second
    return when.toordinal() + seconds / 86400.0


@dataclass(frozen=True)
class Label:
    """What is predicted: one of two or more classes, or a number between public bounds.

    Classes that are all numbers are compared as numbers, so that '1.0' in a file is class 1; any others as texts.

    Attributes
    ----------
    column : its name
    classes : what it may hold, or None
    low, high : bounds of a number
    prefix, suffix : what may stand around a number in a text
    outputs : K, the number of outputs of a model; by default 1 for two classes or a number, else one for each class
    """

    column: str
    classes: tuple[Any, ...] | None = None
    low: float = math.nan
    high: float = math.nan
    outputs: int = 0
    prefix: str = ""
    suffix: str = ""

    def __post_init__(self) -> None:
        """Classes, or two bounds; and the default of K."""
        if not self.outputs:
            object.__setattr__(self, "outputs", 1 if len(self.classes or ()) <= 2 else len(self.classes or ()))
        if self.classes is None and not self.low < self.high:
            raise SpecError("schema: the label needs classes = [negative, positive], or finite bounds low < high")
        if self.classes is not None and not 2 <= len(self.classes) == len(set(self.spelled)):
            raise SpecError("schema: the label's classes are two, [negative, positive], or more; each is named once")

    @cached_property
    def spelled(self) -> tuple[float, ...] | tuple[str, ...]:
        """The classes as they are compared: all as numbers, or all as texts."""
        classes = self.classes or ()
        numbers = [number for one in classes if (number := as_number(str(one), set())) is not None and number == number]
        return tuple(numbers) if len(numbers) == len(classes) else tuple(map(as_text, classes))

    @property
    def is_number(self) -> bool:
        """Whether its column is read as numbers."""
        return self.classes is None or isinstance(self.spelled[0], float)

    def encode(self, columns: Columns) -> Array:
        """Numbers within the bounds; of classes −1 and +1, or 0, 1, 2, … where a model has several outputs."""
        values = (columns.numbers if self.is_number else columns.texts)[self.column]
        if self.classes is None:
            gaps = np.isnan(values)
            columns.reject(gaps, self.column, "has no value", "give it one, or drop the record")
            return np.where(gaps, self.neutral, np.clip(values, self.low, self.high))
        if not self.is_number:
            values = truth_values(values, tuple(map(str, self.spelled)))
        number = np.full(len(values), -1.0)
        for k, one in enumerate(self.spelled):
            number[values == one] = k
        none = "is of neither class" if len(self.classes) == 2 else "is of none of the classes"
        why = f"{none} ({', '.join(map(repr, self.classes))})"
        columns.reject(number < 0, self.column, why, "correct or drop the record")
        number = np.maximum(number, 0.0)
        return 2.0 * number - 1.0 if self.outputs == 1 else number

    @property
    def neutral(self) -> float:
        """The target of a row that contributes nothing: the middle of a range, or the first class."""
        if self.classes is not None:
            return -1.0 if self.outputs == 1 else 0.0
        middle = 0.5 * self.low + 0.5 * self.high
        return middle if math.isfinite(middle) else 0.0


# -- the whole --


@dataclass(frozen=True, eq=False)
class Encoded:
    """Records ready to train on: rows within the public bound, targets, whose each row is, and who has it.

    `usable` says which records count; the others are rows of zeros, which keep their places. None: all of them.
    """

    X: Matrix
    y: Array
    user_ids: NDArray[np.object_] | None
    groups: NDArray[np.object_] | None = None
    usable: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Schema:
    """The whole of a schema.toml.

    Attributes
    ----------
    label : what is predicted
    columns : the named columns, in order; empty where the records have numbered features
    unit : the column of person ids; None if every row belongs to a different person
    numbered : how many numbered features (svmlight) there are; 0 where columns have names
    low, high : the common bounds of numbered features
    row_norm : R, the public bound on a row; by default the one that the columns imply
    missing_values : texts that count as no value
    plain : whether numbers are taken as they are, in no bounds of their own; see `plain_schema`
    group : the column that says who owns a row, where several owners' records lie in one file
    ignored : columns that are known to be there, and are not used
    dialect : how text files are written, as far as that is agreed
    pairs : names of two columns each that an additive model lets interact
    first_index : of numbered features, the index of the first one in svmlight files, 0 or 1; None where nobody says
    """

    label: Label
    columns: tuple[Column, ...] = ()
    unit: str | None = None
    numbered: int = 0
    low: float = -1.0
    high: float = 1.0
    row_norm: float = 0.0
    missing_values: tuple[str, ...] = MISSING
    plain: bool = False
    group: str | None = None
    ignored: tuple[str, ...] = ()
    dialect: Dialect = DIALECT
    first_index: int | None = None
    pairs: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Names once, bounds that bound, and the default of the row's."""
        roles = [self.label.column, *{name: 0 for name in (self.unit, self.group) if name}]
        named = Counter([*roles, *self.ignored, *(column.name for column in self.columns)])
        name, uses = max(named.items(), key=lambda item: item[1])
        if uses > 1:
            raise SpecError(f"schema: column '{name}' is named twice; give each one use, or none")
        if bool(self.columns) == bool(self.numbered):
            raise SpecError("schema: give either columns, or features = … for numbered ones (svmlight)")
        if self.numbered and (self.unit or self.group):
            raise SpecError("schema: svmlight files have no columns, so no unit can be named; use CSV or Parquet")
        if self.first_index is not None and (self.first_index not in (0, 1) or not self.numbered):
            raise SpecError("schema: first_index is 0 or 1, and goes with numbered features (svmlight)")
        known = {column.name for column in self.columns if column.kind in NUMERIC}
        for pair in self.pairs:
            if len(set(pair)) != 2 or not set(pair) <= known or sum({*pair} == {*each} for each in self.pairs) > 1:
                raise SpecError(f"schema: pairs are of two numeric columns, each pair named once, not {[*pair]}")
        if not self.row_norm:
            object.__setattr__(self, "row_norm", self.widest)
        if self.plain:
            return
        ends = self.label.low, self.label.high
        if self.label.classes is None and not (-math.inf < ends[0] < ends[1] < math.inf > ends[1] - ends[0]):
            raise SpecError("schema: the label needs classes = [negative, positive], or finite bounds low < high")
        if self.numbered and not -math.inf < self.low <= 0.0 <= self.high < math.inf:
            raise SpecError("schema: numbered features need finite bounds low ≤ 0 ≤ high, since most of them are 0")
        if not 0 < self.row_norm < math.inf:
            raise SpecError(f"schema: row_norm is a finite number over 0, not {self.row_norm}")

    @property
    def widest(self) -> float:
        """The largest norm that an encoded row can have before it is scaled down to `row_norm`."""
        if self.plain:
            return math.inf
        if self.numbered:
            return max(-self.low, self.high) * math.sqrt(self.numbered)
        return math.sqrt(self.parts)

    @property
    def parts(self) -> int:
        """Of how many parts of norm 1 each a row of named columns is made: one a column, and its indicators."""
        return len(self.columns) + sum(bool(column.indicators) for column in self.columns)

    @property
    def features(self) -> tuple[str, ...] | None:
        """Names of the model's features, where they have names."""
        return None if self.numbered else tuple(name for column in self.columns for name in column.features)

    @property
    def numeric_features(self) -> tuple[int, ...]:
        """Places of the features that are numbers within [−1, 1]; none of numbered features."""
        first = np.cumsum([0, *(len(column.features) for column in self.columns)])[:-1].tolist()
        return tuple(place for place, column in zip(first, self.columns, strict=True) if column.kind in NUMERIC)

    @property
    def numeric_pairs(self) -> tuple[tuple[int, int], ...]:
        """`pairs`, by their places among the numeric features."""
        names = [column.name for column in self.columns if column.kind in NUMERIC]
        found = (sorted((names.index(a), names.index(b))) for a, b in self.pairs)
        return tuple(sorted((i, j) for i, j in found))

    @property
    def axes(self) -> dict[str, Any]:
        """What numeric features are in their columns' own units: see `run.terms.Axis`."""
        found: dict[str, Any] = {}
        for column in self.columns:
            if column.kind == "ordered":
                found[column.name] = column.categories
            elif column.transform:
                found[column.name] = partial(raw_values, low=column.low, high=column.high, transform=column.transform)
            elif column.kind == "date":
                found[column.name] = partial(raw_dates, low=column.low, high=column.high)
            elif column.kind in NUMERIC:
                found[column.name] = (column.low, column.high)
        return found

    @property
    def raw_bounds(self) -> tuple[tuple[float, float] | None, ...]:
        """What −1 and 1 of each feature stand for: a number's or date's bounds, 0 and 1 of a flag; None of the others.

        A date is in days.
        """
        found: list[tuple[float, float] | None] = []
        for column in self.columns:
            ends = (column.low, column.high) if column.kind in ("number", "date") else (0.0, 1.0)
            found += [None if column.kind in ("category", "text") else ends] * len(column.features)
        return tuple(found)

    @property
    def m(self) -> int:
        """How many features there are."""
        return self.numbered or len(self.features or ())

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns to read as numbers."""
        mine = (self.label.column,) if self.label.is_number else ()
        return (*mine, *(c.name for c in self.columns if c.kind == "number"))

    @property
    def formats(self) -> dict[str, NumberFormat]:
        """How numbers are written in the columns where they are not plainly."""
        said = self.dialect
        entries = [(c.name, c.prefix, c.suffix) for c in self.columns if c.kind == "number"]
        entries.append((self.label.column, self.label.prefix, self.label.suffix))
        return {
            name: NumberFormat(said.decimal or ".", said.thousands or "", prefix, suffix)
            for name, prefix, suffix in entries
            if said.decimal not in (None, ".") or said.thousands or prefix or suffix
        }

    @property
    def texts(self) -> tuple[str, ...]:
        """Columns to read as text."""
        mine = () if self.label.is_number else (self.label.column,)
        roles = dict.fromkeys(name for name in (self.unit, self.group) if name)
        return (*mine, *roles, *(c.name for c in self.columns if c.kind != "number"))

    @property
    def digest(self) -> str:
        """SHA-256 of everything that the schema says, however the file is laid out."""
        said = asdict(self)
        del said["plain"], said["label"]["outputs"]  # no entries of a file
        del said["dialect"], said["group"], said["ignored"]  # of one file: records are the same without them
        if self.first_index is None:
            del said["first_index"]
        for column in (*said["columns"], said["label"]):
            del column["prefix"], column["suffix"]
        for column in said["columns"]:
            for name in [name for name in ("format", "buckets", "transform", "special") if not column[name]]:
                del column[name]  # so that a schema without dates and words keeps its digest
        if not self.pairs:
            del said["pairs"]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def read(
        self, path: Path, format: str | None = None, on_read: ReadProgress | None = None, policy: ReadPolicy = GUARANTEE
    ) -> Encoded:
        """All records of a file, encoded, some of them at a time."""
        kind = self._format(path, format)
        if kind in NUMBERED:
            return self._read_numbered(path, kind, policy)
        # how many rows people have is private: it must not decide the precision of everybody's numbers
        rows = Growing() if self.unit is None else Growing(sys.maxsize)

        def made(columns: Columns) -> tuple[Any, ...]:
            encoded = self.encode(columns)
            rows.add(np.asarray(encoded.X))
            return encoded.y, encoded.user_ids, encoded.groups, encoded.usable

        wanted = Wanted(self.numbers, self.texts, self.missing_values, self.formats)
        parts = column_blocks(path, kind, wanted, self.dialect, made, on_read, policy)
        y, user_ids, groups, usable = (
            None if each[0] is None else np.concatenate(each) for each in zip(*parts, strict=True)
        )
        return Encoded(rows.whole(), np.asarray(y), user_ids, groups, usable)

    def read_rows(self, path: Path, format: str | None = None, policy: ReadPolicy = PREDICTION) -> Matrix:
        """The rows of a file of records to predict: no label or unit is needed."""
        kind = self._format(path, format)
        if kind in NUMBERED:
            X, _, broken = self._numbered_rows(path, kind, policy)
            if policy.refuse and np.any(broken):
                raise DataError(self._no_record(path, broken))
            return self._clipped(X)
        numbers = [c.name for c in self.columns if c.kind == "number"]
        texts = [c.name for c in self.columns if c.kind != "number"]
        wanted, rows = Wanted(numbers, texts, self.missing_values, self.formats), Growing()
        for part in column_blocks(path, kind, wanted, self.dialect, self.encode_features, policy=policy):
            rows.add(np.asarray(part))
        return rows.whole()

    def _read_numbered(self, path: Path, kind: str, policy: ReadPolicy) -> Encoded:
        X, y, broken = self._numbered_rows(path, kind, policy)
        if y is None:
            raise DataError(f"{path}: the file has no labels; give one that has")
        if np.any(broken):
            if policy.refuse:
                raise DataError(self._no_record(path, broken))
            policy.notify_owner(NO_RECORD, int(np.count_nonzero(broken)))
        return self.encode_numbered(X, y, policy, broken)

    def _numbered_rows(
        self, path: Path, kind: str, policy: ReadPolicy
    ) -> tuple[Matrix, NDArray[Any] | None, NDArray[np.bool_]]:
        """Rows and labels of a file without named columns, and which of its lines are no records."""
        if kind == "svmlight" and self.first_index is not None:
            with read_error_text(path, kind):
                return read_svmlight(path, self.first_index, self.numbered)
        if kind == "svmlight" and not policy.guess:
            raise SpecError(
                f"{path}: an svmlight file does not say whether its indices count from 0 or from 1, and records must "
                "not decide it; give --first-index 0 or 1 (first_index in the schema or run file)"
            )
        if kind == "svmlight":
            table = load(path, format=kind, n_features=self.numbered, require_label=False)
        else:
            table = load_table(path)
        if table.m > self.numbered:
            raise DataError(f"{path}: the records have {table.m} features, but the schema says {self.numbered}")
        return table.X, table.y, np.zeros(table.n_records, dtype=bool)

    def _no_record(self, path: Path, broken: NDArray[np.bool_]) -> str:
        return (
            f"{path}: record {int(np.flatnonzero(broken)[0]) + 1} {NO_RECORD} (it has {self.numbered} features, and "
            f"indices count from {self.first_index}); correct the record, --features or --first-index"
        )

    def _format(self, path: Path, format: str | None) -> str:
        kind = format_of(path, format)
        if kind in NUMBERED and not self.numbered:
            raise SpecError(f"{path}: {kind} files have numbered features, but the schema has named columns")
        if self.numbered and kind not in NUMBERED:
            raise SpecError(f"{path}: the schema has numbered features, so the records must be an svmlight file")
        return kind

    def encode(self, columns: Columns) -> Encoded:
        """Rows, targets and units of named columns."""
        columns, user_ids = self._people(columns)
        groups = None if self.group is None else self._owners(self.group, columns)
        y = self.label.encode(columns)
        return self._kept(Encoded(self.encode_features(columns), y, user_ids, groups, columns.unusable))

    def _kept(self, encoded: Encoded) -> Encoded:
        """Rows of zeros with a neutral target where a record is unusable, which `encoded` says in place of usable."""
        unusable = encoded.usable
        assert unusable is not None
        X, y = encoded.X, encoded.y
        if np.any(unusable):
            y = np.where(unusable, self.label.neutral, y)
            X = _without(X, unusable)
        return Encoded(X, y, encoded.user_ids, encoded.groups, ~unusable)

    def _people(self, columns: Columns) -> tuple[Columns, NDArray[np.object_] | None]:
        """Return records and the person id of each; leave out records without an id.

        Such a record does not count as a person: else one broken line would change the public number of people.
        """
        if self.unit is None:
            return columns, None
        found = columns.texts[self.unit]
        nobody: NDArray[np.bool_] = np.array([value is None for value in found], dtype=bool)
        if not np.any(nobody):
            return columns, found
        if columns.policy.refuse:
            columns.reject(nobody, self.unit, "has no value", "say whose the record is")
        columns.policy.notify_owner(f"column '{self.unit}' has no value: left out", int(np.count_nonzero(nobody)))
        return columns.only(~nobody), found[~nobody]

    @staticmethod
    def _owners(column: str, columns: Columns) -> NDArray[np.object_]:
        """The owner of each record, who is public: a record without one is refused with a guarantee too."""
        found = columns.texts[column]
        nobody = np.flatnonzero([value is None for value in found])
        if nobody.size:
            raise DataError(
                f"column '{column}' names the owner of every record, which is public, but some lines have none that "
                "can be read; give every record its owner"
            )
        return found

    def encode_features(self, columns: Columns) -> Matrix:
        """The rows of named columns, each from its own values and the schema alone."""
        if not self.plain:
            return self._bounded(np.hstack([column.encode(columns) for column in self.columns]), own=True)
        each = {column.name: columns.numbers[column.name] for column in self.columns}
        X = np.empty((columns.records, len(each)), dtype=np.result_type(*each.values()))
        for j, (name, values) in enumerate(each.items()):
            gaps = np.isnan(values)
            columns.reject(gaps, name, "has no value", "fill it in, or drop the record")
            X[:, j] = np.where(gaps, 0.0, values) if np.any(gaps) else values
        return self._bounded(X)

    def encode_numbered(
        self,
        X: Matrix,
        y: NDArray[Any],
        policy: ReadPolicy = SIMULATION,
        broken: NDArray[np.bool_] | None = None,
    ) -> Encoded:
        """The same for numbered features: clipped to the common bounds; zeros stay zeros."""
        named = replace(self.label, column=self.label.column or "label")
        kinds = ([named.column], []) if named.is_number else ([], [named.column])
        columns = from_lists({named.column: y.tolist()}, "the records", *kinds, policy=policy)
        assert columns.unusable is not None
        if broken is not None:
            columns.unusable[broken] = True
        targets = named.encode(columns)
        return self._kept(Encoded(self._clipped(X), targets, None, None, columns.unusable))

    def _clipped(self, X: Matrix) -> Matrix:
        if X.shape[1] > self.numbered:
            raise DataError(f"the records have {X.shape[1]} features, but the schema says {self.numbered}")
        X = canonical(X)
        if self.plain:
            if X.shape[1] < self.numbered and is_sparse(X):
                X = scipy.sparse.csr_array(X, shape=(X.shape[0], self.numbered))
            return self._bounded(_finite(X))
        clipped = scipy.sparse.csr_array(X, shape=(X.shape[0], self.numbered), copy=True)
        clipped.data = np.clip(np.nan_to_num(clipped.data, nan=0.0, posinf=np.inf, neginf=-np.inf), self.low, self.high)
        return self._bounded(clipped)

    def _bounded(self, X: Matrix, own: bool = False) -> Matrix:
        return unit_rows(X, self.row_norm, own) if self.row_norm < self.widest else X


def _without(X: Matrix, rows: NDArray[np.bool_]) -> Matrix:
    """The same with rows of zeros in these places."""
    if is_sparse(X):
        counts = np.diff(X.indptr)
        kept = np.repeat(~rows, counts)
        indptr = np.concatenate([[0], np.cumsum(np.where(rows, 0, counts))]).astype(X.indptr.dtype)
        return scipy.sparse.csr_array((X.data[kept], X.indices[kept], indptr), shape=X.shape)
    X[rows] = 0.0
    return X


def _finite(X: Matrix) -> Matrix:
    """The same with 0 for values that are no finite numbers, each by itself."""
    values = X.data if is_sparse(X) else X
    if not np.all(np.isfinite(values)):
        X = X.copy()
        values = X.data if is_sparse(X) else X
        values[~np.isfinite(values)] = 0.0
    return X


def plain_schema(
    features: Sequence[str] | int,
    label: str = "",
    classes: Sequence[Any] | None = None,
    unit: str | None = None,
    row_norm: float = math.inf,
    outputs: int = 0,
    **more: Any,
) -> Schema:
    """Columns of numbers that are taken as they are; rows over `row_norm`, if it is given, are scaled down to it.

    Examples
    --------
    >>> schema = plain_schema(["age", "bmi"], "sick", [0, 1])
    >>> found = schema.encode(from_lists({"age": [60], "bmi": ["31.5"], "sick": ["1.0"]}, "list", schema.numbers, []))
    >>> found.X, found.y
    (array([[60. , 31.5]]), array([1.]))
    """
    numbered = features if isinstance(features, int) else 0
    columns = () if isinstance(features, int) else tuple(Column(name, "number") for name in features)
    low, high = (math.nan, math.nan) if classes is not None else (-math.inf, math.inf)
    what = Label(label, None if classes is None else tuple(classes), low, high, outputs)
    return Schema(what, columns, unit, numbered, row_norm=row_norm, plain=True, **more)


def plain_columns(
    names: Sequence[str],
    label: Label,
    layout: Layout,
    source: str,
    only: Sequence[str] | None = None,
    drop: Sequence[str] = (),
) -> Schema:
    """Clean numbers by a file's header: the label, the owner and the person by the layout, features all the others.

    Parameters
    ----------
    names : of the file's columns, in order
    label : what is predicted; its column is the layout's or, without one, the one called label, y, target or class
    layout : which columns are what
    source : of the names, for messages
    only : the features to take, in this order; None for all
    drop : columns to leave alone

    Examples
    --------
    >>> schema = plain_columns(["age", "ward", "y"], Label("", ("0", "1")), Layout(group="ward"), "patients.csv")
    >>> schema.features, schema.label.column, schema.group
    (('age',), 'y', 'ward')
    """
    from sottovoce.data.columns import check_names, label_of, listed  # here: Arrow's parts are slow to load

    check_names([*names], source)
    roles = {"--group": layout.group, "--user-id": layout.unit}
    if layout.label is not None and layout.label in roles.values():
        raise SpecError(f"the label and the group cannot both be the column '{layout.label}'; name two columns")
    named = {option: [name] for option, name in roles.items() if name} | {
        "--drop": [*drop],
        "--columns": [*(only or ())],
    }
    for option, columns in named.items():
        lost = [name for name in columns if name not in names]
        if lost:
            raise DataError(f"{source}: there is no column '{lost[0]}'; name with {option} some of {listed([*names])}")
    target = label_of([*names], source, layout.label, layout.group, True)
    used = {target, layout.group, layout.unit, *drop}
    features = [name for name in (names if only is None else only) if name not in used]
    if not features:
        raise DataError(f"{source}: there are no columns besides the label and the owner; add at least one feature")
    return Schema(
        replace(label, column=str(target)),
        tuple(Column(name, "number") for name in features),
        layout.unit,
        plain=True,
        group=layout.group,
        dialect=layout.dialect,
    )


def read_schema(path: str | Path) -> Schema:
    """Read a schema.toml."""
    try:
        data = read_toml(path)
    except OSError:
        raise SpecError(f"{path}: there is no readable schema there; check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        if Path(path).suffix.lower() != ".toml":
            raise SpecError(
                f"{path}: this is no schema; a schema is a .toml file, and sottovoce schema FILE --out schema.toml "
                "drafts one from a data file"
            ) from None
        reason = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "it is not UTF-8 text"
        raise SpecError(f"{path}: the schema is not valid TOML: {reason}; correct that place") from None
    return schema_of(data)


def schema_of(data: dict[str, Any]) -> Schema:
    """A schema from the tables of its TOML file; what it does not know is an error.

    Examples
    --------
    >>> schema = schema_of({"label": {"column": "y", "classes": [0, 1]}, "columns": {"age": {"low": 0, "high": 120}}})
    >>> schema.features, schema.row_norm, schema.label.classes
    (('age',), 1.0, ('0', '1'))
    """
    _check_filled(data)
    _check_keys(data)
    try:
        rest = _floats(dict(data)) | ({"row_norm": float(data["row_norm"])} if "row_norm" in data else {})
        label = _floats(dict(rest.pop("label")))
        classes = label.pop("classes", None)
        first = rest.pop("first_index", None)
        if type(first) not in (int, type(None)):
            raise TypeError("first_index is 0 or 1")
        columns = tuple(_column(name, dict(table)) for name, table in rest.pop("columns", {}).items())
        dialect = Dialect(**rest.pop("dialect", {}))
        if "plain" in rest or "outputs" in label:
            raise TypeError("'plain' and 'outputs' are no entries")
        return Schema(
            Label(classes=None if classes is None else tuple(map(as_text, classes)), **label),
            columns,
            numbered=int(rest.pop("features", 0)),
            missing_values=tuple(rest.pop("missing_values", MISSING)),
            ignored=tuple(rest.pop("ignored", ())),
            dialect=dialect,
            first_index=first,
            pairs=tuple((str(a), str(b)) for a, b in rest.pop("pairs", ())),
            **rest,
        )
    except KeyError as error:
        raise SpecError(f"schema: {error} is missing; a schema has a [label] and [columns.…]") from None
    except (TypeError, ValueError, AttributeError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(f"schema: this is no schema of sottovoce ({error})") from None


def _check_filled(data: dict[str, Any]) -> None:
    """Refuse a draft in which something is still open; all of it is named."""
    columns = data.get("columns")
    tables = {"label": data.get("label"), **(columns if isinstance(columns, dict) else {})}
    blank = [
        f"{', '.join(keys)} of '{table.get('column') if name == 'label' else name}'"
        for name, table in tables.items()
        if isinstance(table, dict) and (keys := [key for key, value in table.items() if value in ("?", ["?"])])
    ]
    if blank:
        raise SpecError(f"schema: fill in, from public knowledge and never from the records: {'; '.join(blank)}")


KEYS = {
    "the schema": {"label", "columns", "dialect", "features", "first_index", "missing_values", "ignored", "pairs"}
    | {"row_norm", "unit", "group", "low", "high"},
    "[label]": {"column", "classes", "low", "high", "prefix", "suffix"},
    "[dialect]": {each.name for each in fields(Dialect)},
    "[columns.…]": {"type", *(each.name for each in fields(Column))} - {"name", "kind"},
}
"""What each table of a schema may have."""
VALUES: dict[str, tuple[set[str], Any]] = {
    'a list, as in ["A", "B"]': ({"categories", "classes", "special", "missing_values", "ignored", "pairs"}, list),
    "a text": ({"column", "unit", "group", "prefix", "suffix", "format", "transform", "type"}, str),
    "a number": ({"row_norm", "features"}, int | float),
}
"""What a value is, by its key."""


def _check_keys(data: dict[str, Any]) -> None:
    """Refuse a key that a schema does not have, and a value of another kind than the key's; say what to write."""
    columns = data.get("columns")
    tables: list[tuple[str, str, Any]] = [("the schema", "the schema", data)]
    tables += [(f"[{name}]", f"[{name}]", data.get(name)) for name in ("label", "dialect")]
    tables += [("[columns.…]", f"column '{name}'", table) for name, table in _items(columns)]
    for kind, where, table in tables:
        for key, value in _items(table):
            wrong = [what for what, (keys, kind_of) in VALUES.items() if key in keys and not isinstance(value, kind_of)]
            if wrong and key in KEYS[kind]:
                raise SpecError(f"schema: '{key}' of {where} is {wrong[0]}, not {value!r}")
            if key not in KEYS[kind]:
                near = get_close_matches(key, KEYS[kind], 1, 0.5)
                hint = f"did you mean '{near[0]}'?" if near else "leave it out."
                raise SpecError(
                    f"schema: {where} has an unknown key '{key}'; {hint} Keys: {', '.join(sorted(KEYS[kind]))}"
                )


def _items(table: Any) -> list[tuple[str, Any]]:
    return list(table.items()) if isinstance(table, dict) else []


def _floats(table: dict[str, Any]) -> dict[str, Any]:
    """Bounds as floats: 1 and 1.0 are one bound, also for the digest."""
    for name in ("low", "high"):
        value = table.get(name, 0.0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SpecError(f"schema: '{name}' is a public bound, a number such as 120, not {value!r}")
    table.update({name: float(table[name]) for name in ("low", "high") if name in table})
    return table


def _column(name: str, table: dict[str, Any]) -> Column:
    kind = table.pop("type", "number")
    missing = table.pop("missing", NONE if kind == "text" else REFUSE)
    if kind == "date":
        if not {"low", "high"} <= set(table):
            raise SpecError(f"schema: column '{name}' is a date, and needs the bounds low and high")
        ends = {"low": table["low"], "high": table["high"], "missing": missing}
        days = {end: value if value in (REFUSE, INDICATOR) else day_of(str(value)) for end, value in ends.items()}
        odd = [end for end, day in days.items() if day == math.inf]
        if odd:
            raise SpecError(f"schema: '{odd[0]}' of column '{name}' is a date such as 2019-07-31, not {ends[odd[0]]!r}")
        missing = days.pop("missing")
        table.update(days)
    _floats(table)
    of_number = kind in ("number", "date") and missing not in (REFUSE, INDICATOR)
    return Column(
        name,
        kind,
        special=tuple(map(float, table.pop("special", ()))),
        categories=tuple(map(as_text, table.pop("categories", ()))),
        missing=float(missing) if of_number else as_text(missing),
        **table,
    )
