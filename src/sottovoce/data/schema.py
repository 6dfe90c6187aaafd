"""schema.toml: what every node's records look like, agreed in public, so that nothing is found out from the data.

The schema says what a column is, and every value is read by itself (`values`). Then every record is encoded by itself
from public numbers: a number is clipped to its public bounds and brought to [−1, 1], and so is a date; a category
becomes an indicator for each of its public values, a flag −1 or +1, a text its words, each hashed to one of so many
features with a sign and the whole scaled to norm 1. So a row's norm is at most the square root of the number of
columns, whatever the data holds. `row_norm`, if given, scales longer rows down.

    row_norm = 1.0
    unit = "patient"                      # whose a row is: one person's rows count together
    group = "hospital"                    # who owns it: a node for each, where a file holds several owners' records
    ignored = ["visit_number"]            # columns that are there, and are left alone as all are that are not named

    [label]
    column = "outcome"
    classes = ["well", "sick"]            # −1 and +1, or three and more; a regression has low and high instead

    [columns.age]
    type = "number"
    low = 0
    high = 120
    missing = 50                          # without it a missing value is refused

    [columns.ward]
    type = "category"
    categories = ["A", "B", "C"]
    missing = "none"                      # of none of them; or one of them; also for values not listed

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

    [dialect]                             # of text files, if it is not to be found from the first lines
    separator = ";"
    decimal = ","
    encoding = "cp1252"

A file without named columns (svmlight) has `features` and their common bounds in place of the columns. A run file
without a schema has a *plain* one (`plain_schema`): columns of numbers that are taken as they are.
"""

import hashlib
import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # not its parts: they load when first used
from numpy.typing import NDArray

from sottovoce._types import Array, Matrix
from sottovoce.data.dialect import DIALECT, Dialect
from sottovoce.data.load import Told, format_of, load
from sottovoce.data.tables import Growing, unit_rows
from sottovoce.data.values import MISSING, Columns, as_number, as_text, column_blocks, from_lists
from sottovoce.errors import DataError, SpecError

FILE = "schema.toml"
NONE = "none"
REFUSE = "refuse"
KINDS = ("number", "category", "flag", "date", "text")
MOST = 1 << 20
"""Features of one text at the most."""
NUMBERED = ("svmlight", "npz")
"""Formats whose features have numbers and no names."""


# -- columns and label, encoded --


MEND = "mend the record, or say in the schema what a missing value counts as"


def refuse(wrong: NDArray[np.bool_], column: str, why: str, before: int = 0, cure: str = MEND) -> None:
    """Name the first record that the schema has no place for; only its own site ever reads this."""
    if np.any(wrong):
        raise DataError(f"column '{column}' {why} in record {before + int(np.flatnonzero(wrong)[0]) + 1}; {cure}")


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

    def __post_init__(self) -> None:
        """Refuse what does not bound a value."""
        if self.kind not in KINDS:
            raise SpecError(f"schema: column '{self.name}' is a {self.kind!r}; its type is one of {', '.join(KINDS)}")
        extra = {"categories": ("category", "flag"), "format": ("date",), "buckets": ("text",)}
        odd = [name for name, kinds in extra.items() if getattr(self, name) and self.kind not in kinds]
        if odd:
            raise SpecError(f"schema: column '{self.name}' is a {self.kind}, which has no {odd[0]}; leave it out")
        if self.kind in ("number", "date"):
            if not -math.inf < self.low < self.high < math.inf:
                raise SpecError(f"schema: column '{self.name}' needs finite bounds low < high")
            if isinstance(self.missing, str) and self.missing != REFUSE:
                raise SpecError(f"schema: '{self.name}' has missing = '{self.missing}'; give a {self.kind}, '{REFUSE}'")
            return
        if self.kind == "text":
            if not 1 <= self.buckets <= MOST:
                raise SpecError(f"schema: column '{self.name}' needs buckets, from 1 to {MOST:,}: its features")
            if self.missing not in (NONE, REFUSE):
                raise SpecError(f"schema: '{self.name}' has missing = '{self.missing}'; give '{NONE}' or '{REFUSE}'")
            return
        least = 2 if self.kind == "flag" else 1
        few = len(set(self.categories)) != len(self.categories) or len(self.categories) < least
        if few or (self.kind == "flag" and len(self.categories) > 2):
            raise SpecError(f"schema: column '{self.name}' needs its categories, each once; a flag has two of them")
        if self.missing not in (NONE, REFUSE, *self.categories):
            raise SpecError(f"schema: '{self.name}' has missing = '{self.missing}'; give '{NONE}' or a category")

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that the column becomes."""
        if self.kind == "text":
            return tuple(f"{self.name}#{k}" for k in range(self.buckets))
        return tuple(f"{self.name}={value}" for value in self.categories) if self.kind == "category" else (self.name,)

    def encode(self, columns: Columns) -> Array:
        """(records, features) with rows of norm at most 1, each from its own value alone."""
        if self.kind == "text":
            return self._hashed(columns.texts[self.name], columns.before)
        if self.kind in ("number", "date"):
            if self.kind == "date":
                values = self._days(columns.texts[self.name], columns.before)
            else:
                values = columns.numbers[self.name].astype(np.float64)
            gaps = np.isnan(values)
            if self.missing == REFUSE:
                refuse(gaps, self.name, "has no value", columns.before)
            filled = np.where(gaps, 0.0 if self.missing == REFUSE else float(self.missing), values)
            middle, half = 0.5 * self.low + 0.5 * self.high, 0.5 * self.high - 0.5 * self.low
            return np.clip((np.clip(filled, self.low, self.high) - middle) / half, -1.0, 1.0)[:, None]
        texts = columns.texts[self.name]
        known: NDArray[np.bool_] = np.array([value in self.categories for value in texts], dtype=bool)
        if self.missing == REFUSE:
            refuse(~known, self.name, "has no value, or one that the schema does not list", columns.before)
        filled = np.where(known, texts, self.missing)
        hot = (filled[:, None] == np.array(self.categories, dtype=object)[None, :]).astype(np.float64)
        return hot if self.kind == "category" else hot[:, 1:] - hot[:, :1]

    def _days(self, texts: NDArray[np.object_], before: int) -> Array:
        """Days since the year 1, with fractions; NaN for a missing one."""
        days = np.array([math.nan if text is None else day_of(text, self.format) for text in texts], dtype=np.float64)
        written = f"as in {datetime(2019, 7, 31).strftime(self.format or '%Y-%m-%d')}"
        why = f"is a date in the schema ({written}), but holds something else"
        refuse(np.isinf(days), self.name, why, before, "mend it")
        return days

    def _hashed(self, texts: NDArray[np.object_], before: int) -> Array:
        """Words counted in their buckets, with their signs, and brought to norm 1."""
        out = np.zeros((len(texts), self.buckets))
        if self.missing == REFUSE:
            refuse(np.array([text is None for text in texts], dtype=bool), self.name, "has no value", before)
        for row, text in enumerate(texts):
            for word in _WORD.findall((text or "").casefold()):
                bucket, sign = _place(self.name, word, self.buckets)
                out[row, bucket] += sign
        norms = np.linalg.norm(out, axis=1, keepdims=True)
        return np.divide(out, norms * (1.0 + 2.0**-50), out=out, where=norms > 0)


_WORD = re.compile(r"\w+")


@lru_cache(maxsize=1 << 16)
def _place(column: str, word: str, buckets: int) -> tuple[int, float]:
    """Where a word of a column is counted, and with which sign: the same for everybody, for good."""
    drawn = int.from_bytes(hashlib.blake2b(word.encode(), key=column.encode()[:64], digest_size=8).digest(), "little")
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
    outputs : K, the number of outputs of a model; by default 1 for two classes or a number, else one for each class
    """

    column: str
    classes: tuple[Any, ...] | None = None
    low: float = math.nan
    high: float = math.nan
    outputs: int = 0

    def __post_init__(self) -> None:
        """Classes, or two bounds; and the default of K."""
        if not self.outputs:
            object.__setattr__(self, "outputs", 1 if len(self.classes or ()) <= 2 else len(self.classes or ()))
        if self.classes is None and not self.low < self.high:
            raise SpecError("schema: the label needs classes = [negative, positive], or finite bounds low < high")
        if self.classes is not None and not 2 <= len(self.classes) == len(set(self._spelled)):
            raise SpecError("schema: the label's classes are two, [negative, positive], or more; each is named once")

    @cached_property
    def _spelled(self) -> tuple[float, ...] | tuple[str, ...]:
        """The classes as they are looked for."""
        classes = self.classes or ()
        numbers = [number for one in classes if (number := as_number(str(one), set())) is not None and number == number]
        return tuple(numbers) if len(numbers) == len(classes) else tuple(map(as_text, classes))

    @property
    def is_number(self) -> bool:
        """Whether its column is read as numbers."""
        return self.classes is None or isinstance(self._spelled[0], float)

    def encode(self, values: NDArray[Any], before: int = 0) -> Array:
        """Numbers within the bounds; of classes −1 and +1, or 0, 1, 2, … where a model has several outputs."""
        if self.classes is None:
            refuse(np.isnan(values), self.column, "has no value", before, "give it one, or drop the record")
            return np.clip(values, self.low, self.high)
        number = np.full(len(values), -1.0)
        for k, one in enumerate(self._spelled):
            number[values == one] = k
        none = "is of neither class" if len(self.classes) == 2 else "is of none of the classes"
        why = f"{none} ({', '.join(map(repr, self.classes))})"
        refuse(number < 0, self.column, why, before, "mend or drop the record")
        return 2.0 * number - 1.0 if self.outputs == 1 else number


# -- the whole --


@dataclass(frozen=True, eq=False)
class Encoded:
    """Records ready to train on: rows within the public bound, targets, whose each row is, and who has it."""

    X: Matrix
    y: Array
    units: NDArray[np.object_] | None
    groups: NDArray[np.object_] | None = None


@dataclass(frozen=True)
class Schema:
    """The whole of a schema.toml.

    Attributes
    ----------
    label : what is predicted
    columns : the named columns, in order; empty where the records have numbered features
    unit : the column that says whose a row is, or None where every row is somebody's own
    numbered : how many numbered features (svmlight) there are; 0 where columns have names
    low, high : the common bounds of numbered features
    row_norm : R, the public bound on a row; by default the one that the columns imply
    missing_values : texts that count as no value
    plain : whether numbers are taken as they are, in no bounds of their own; see `plain_schema`
    group : the column that says who owns a row, where several owners' records lie in one file
    ignored : columns that are known to be there, and are not used
    dialect : how text files are written, as far as that is agreed
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
        if not self.row_norm:
            object.__setattr__(self, "row_norm", self.widest)
        if self.plain:
            return
        if self.label.classes is None and not -math.inf < self.label.low < self.label.high < math.inf:
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
        return math.sqrt(len(self.columns))

    @property
    def features(self) -> tuple[str, ...] | None:
        """Names of the model's features, where they have names."""
        return None if self.numbered else tuple(name for column in self.columns for name in column.features)

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
        for column in said["columns"]:
            for name in [name for name in ("format", "buckets") if not column[name]]:
                del column[name]  # version 0.1 had no dates and no words
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def read(self, path: Path, format: str | None = None, told: Told | None = None) -> Encoded:
        """All records of a file, encoded, some of them at a time."""
        kind = self._format(path, format)
        if kind in NUMBERED:
            table = load(path, format=kind, n_features=self.numbered)
            if table.y is None:
                raise DataError(f"{path}: the file has no labels; give one that has")
            return self.encode_numbered(table.X, table.y)
        rows, how = Growing(), (self.missing_values, self.dialect)

        def made(columns: Columns) -> tuple[Any, ...]:
            encoded = self.encode(columns)
            if not columns.before:  # the first block, perhaps read again
                rows.clear()
            rows.add(np.asarray(encoded.X))
            return encoded.y, encoded.units, encoded.groups

        parts = column_blocks(path, kind, self.numbers, self.texts, *how, made, told)
        y, units, groups = (None if each[0] is None else np.concatenate(each) for each in zip(*parts, strict=True))
        return Encoded(rows.whole(), np.asarray(y), units, groups)

    def read_rows(self, path: Path, format: str | None = None) -> Matrix:
        """The rows of a file of records to predict: no label or unit is needed."""
        kind = self._format(path, format)
        if kind in NUMBERED:
            return self._clipped(load(path, format=kind, n_features=self.numbered, require_label=False).X)
        numbers = [c.name for c in self.columns if c.kind == "number"]
        texts = [c.name for c in self.columns if c.kind != "number"]
        how = (self.missing_values, self.dialect)
        rows = Growing()
        for part in column_blocks(path, kind, numbers, texts, *how, self.encode_features):
            rows.add(np.asarray(part))
        return rows.whole()

    def _format(self, path: Path, format: str | None) -> str:
        kind = format_of(path, format)
        if kind in NUMBERED and not self.numbered:
            raise SpecError(f"{path}: {kind} files have numbered features, but the schema has named columns")
        if self.numbered and kind not in NUMBERED:
            raise SpecError(f"{path}: the schema has numbered features, so the records must be an svmlight file")
        return kind

    def encode(self, columns: Columns) -> Encoded:
        """Rows, targets and units of named columns."""
        name = self.label.column
        y = self.label.encode((columns.numbers if self.label.is_number else columns.texts)[name], columns.before)
        units, groups = self._whose(self.unit, columns), self._whose(self.group, columns)
        return Encoded(self.encode_features(columns), y, units, groups)

    def _whose(self, column: str | None, columns: Columns) -> NDArray[np.object_] | None:
        if column is None:
            return None
        found = columns.texts[column]
        nobody: NDArray[np.bool_] = np.array([value is None for value in found], dtype=bool)
        refuse(nobody, column, "has no value", columns.before, "say whose the record is")
        return found

    def encode_features(self, columns: Columns) -> Matrix:
        """The rows of named columns, each from its own values and the schema alone."""
        if not self.plain:
            return self._bounded(np.hstack([column.encode(columns) for column in self.columns]), own=True)
        each = {column.name: columns.numbers[column.name] for column in self.columns}
        X = np.empty((columns.records, len(each)), dtype=np.result_type(*each.values()))
        for j, (name, values) in enumerate(each.items()):
            refuse(np.isnan(values), name, "has no value", columns.before, "fill it in, or drop the record")
            X[:, j] = values
        return self._bounded(X)

    def encode_numbered(self, X: Matrix, y: NDArray[Any]) -> Encoded:
        """The same for numbered features: clipped to the common bounds; zeros stay zeros."""
        name = self.label.column or "label"
        kinds = ([name], []) if self.label.is_number else ([], [name])
        columns = from_lists({name: y.tolist()}, "the records", *kinds)
        y = self.label.encode((columns.numbers if self.label.is_number else columns.texts)[name])
        return Encoded(self._clipped(X), y, None)

    def _clipped(self, X: Matrix) -> Matrix:
        if X.shape[1] > self.numbered:
            raise DataError(f"the records have {X.shape[1]} features, but the schema says {self.numbered}")
        if self.plain:
            return self._bounded(X)
        clipped = scipy.sparse.csr_array(X, shape=(X.shape[0], self.numbered), copy=True)
        clipped.data = np.clip(clipped.data, self.low, self.high)
        return self._bounded(clipped)

    def _bounded(self, X: Matrix, own: bool = False) -> Matrix:
        return unit_rows(X, self.row_norm, own) if self.row_norm < self.widest else X


def plain_schema(
    features: Sequence[str] | int,
    label: str = "",
    classes: Sequence[Any] | None = None,
    unit: str | None = None,
    row_norm: float = math.inf,
    outputs: int = 0,
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
    bounds = {} if classes is not None else {"low": -math.inf, "high": math.inf}
    what = Label(label, None if classes is None else tuple(classes), outputs=outputs, **bounds)
    return Schema(what, columns, unit, numbered, row_norm=row_norm, plain=True)


def read_schema(path: str | Path) -> Schema:
    """Read a schema.toml."""
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError:
        raise SpecError(f"{path}: there is no readable schema there; check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: this is no TOML ({error}); mend it") from None
    return schema_of(data)


def schema_of(data: dict[str, Any]) -> Schema:
    """A schema from the tables of its TOML file; what it does not know is an error.

    Examples
    --------
    >>> schema = schema_of({"label": {"column": "y", "classes": [0, 1]}, "columns": {"age": {"low": 0, "high": 120}}})
    >>> schema.features, schema.row_norm, schema.label.classes
    (('age',), 1.0, ('0', '1'))
    """
    try:
        rest = _floats(dict(data)) | ({"row_norm": float(data["row_norm"])} if "row_norm" in data else {})
        label = _floats(dict(rest.pop("label")))
        classes = label.pop("classes", None)
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
            **rest,
        )
    except KeyError as error:
        raise SpecError(f"schema: {error} is missing; a schema has a [label] and [columns.…]") from None
    except (TypeError, ValueError, AttributeError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(f"schema: this is no schema of sottovoce ({error})") from None


def _floats(table: dict[str, Any]) -> dict[str, Any]:
    """Bounds as floats: 1 and 1.0 are one bound, also for the digest."""
    table.update({name: float(table[name]) for name in ("low", "high") if name in table})
    return table


def _column(name: str, table: dict[str, Any]) -> Column:
    kind = table.pop("type", "number")
    missing = table.pop("missing", NONE if kind == "text" else REFUSE)
    blank = [end for end in ("low", "high", "missing") if (missing if end == "missing" else table.get(end)) == "?"]
    if blank:
        raise SpecError(f"schema: '{blank[0]}' of column '{name}' is still to be filled in, from public knowledge")
    if kind == "date":
        if not {"low", "high"} <= set(table):
            raise SpecError(f"schema: column '{name}' is a date, and needs the bounds low and high")
        ends = {"low": table["low"], "high": table["high"], "missing": missing}
        days = {end: value if value == REFUSE else day_of(str(value)) for end, value in ends.items()}
        odd = [end for end, day in days.items() if day == math.inf]
        if odd:
            raise SpecError(f"schema: '{odd[0]}' of column '{name}' is a date such as 2019-07-31, not {ends[odd[0]]!r}")
        missing = days.pop("missing")
        table.update(days)
    _floats(table)
    return Column(
        name,
        kind,
        categories=tuple(map(as_text, table.pop("categories", ()))),
        missing=float(missing) if kind in ("number", "date") and missing != REFUSE else as_text(missing),
        **table,
    )
