"""How one value becomes features, from the schema alone: the columns and the label of a schema.toml.

schema.toml: what every site's records look like, agreed in public, so that encoding never looks at the data.

Every record is encoded by itself from public numbers: a number is clipped to its public bounds and brought to
[−1, 1], a category becomes an indicator for each of its public values, a flag −1 or +1. So a row's norm is at most
the square root of the number of columns, whatever the data holds. `row_norm`, if given, scales longer rows down.

    row_norm = 1.0
    unit = "patient"                      # one person's rows; one of them is used

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

A file without named columns (svmlight) has `features` and their common bounds in place of the columns.
"""

import hashlib
import json
import math
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # not its parts: they load when first used
from numpy.typing import NDArray

from sottovoce._types import Array, Matrix
from sottovoce.data.columns import MISSING, Columns, as_text, read_columns
from sottovoce.data.load import format_of, load
from sottovoce.data.tables import unit_rows
from sottovoce.errors import DataError, SpecError

NONE = "none"
REFUSE = "refuse"
KINDS = ("number", "category", "flag")


@dataclass(frozen=True)
class Column:
    """One public column: how its values are read, bounded and filled in."""

    name: str
    kind: str
    low: float = -1.0
    high: float = 1.0
    categories: tuple[str, ...] = ()
    missing: str | float = REFUSE

    def __post_init__(self) -> None:
        """Refuse what does not bound a value."""
        if self.kind not in KINDS:
            raise SpecError(f"schema: column '{self.name}' is a {self.kind!r}; its type is one of {', '.join(KINDS)}")
        if self.kind == "number":
            if not -math.inf < self.low < self.high < math.inf:
                raise SpecError(f"schema: column '{self.name}' needs finite bounds low < high")
            if isinstance(self.missing, str) and self.missing != REFUSE:
                raise SpecError(f"schema: '{self.name}' has missing = '{self.missing}'; give a number or '{REFUSE}'")
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
        return tuple(f"{self.name}={value}" for value in self.categories) if self.kind == "category" else (self.name,)

    def encode(self, columns: Columns) -> Array:
        """(records, features) with rows of norm at most 1, each from its own value alone."""
        if self.kind == "number":
            values = columns.numbers[self.name]
            gaps = np.isnan(values)
            if self.missing == REFUSE:
                refuse(gaps, self.name, "has no value")
            filled = np.where(gaps, 0.0 if self.missing == REFUSE else float(self.missing), values)
            middle, half = 0.5 * self.low + 0.5 * self.high, 0.5 * self.high - 0.5 * self.low
            return np.clip((np.clip(filled, self.low, self.high) - middle) / half, -1.0, 1.0)[:, None]
        texts = columns.texts[self.name]
        known: NDArray[np.bool_] = np.array([value in self.categories for value in texts], dtype=bool)
        if self.missing == REFUSE:
            refuse(~known, self.name, "has no value, or one that the schema does not list")
        filled = np.where(known, texts, self.missing)
        hot = (filled[:, None] == np.array(self.categories, dtype=object)[None, :]).astype(np.float64)
        return hot if self.kind == "category" else hot[:, 1:] - hot[:, :1]


@dataclass(frozen=True)
class Label:
    """What is predicted: one of two or more classes, or a number between public bounds."""

    column: str
    classes: tuple[str, ...] | None = None
    low: float = math.nan
    high: float = math.nan

    def __post_init__(self) -> None:
        """Classes, or two bounds."""
        if self.classes is None and not -math.inf < self.low < self.high < math.inf:
            raise SpecError("schema: the label needs classes = [negative, positive], or finite bounds low < high")
        if self.classes is not None and not 2 <= len(self.classes) == len(set(self.classes)):
            raise SpecError("schema: the label's classes are two, [negative, positive], or more; each is named once")

    @property
    def outputs(self) -> int:
        """K, the number of outputs of a model: one for two classes or a number, else one for each class."""
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)

    def encode_numbers(self, values: Array) -> Array:
        """Numbers within the bounds, or those of the classes where these are numbers."""
        if self.classes is None:
            refuse(np.isnan(values), self.column, "has no value")
            return np.clip(values, self.low, self.high)
        return self.encode_texts(np.array([as_text(value) for value in values.tolist()], dtype=object))

    def encode_texts(self, values: NDArray[np.object_]) -> Array:
        """−1 and +1, or 0, 1, 2, … where there are more classes."""
        assert self.classes is not None
        none = "is of neither class" if self.outputs == 1 else "is of none of the classes"
        refuse(np.array([v not in self.classes for v in values], dtype=bool), self.column, none)
        number = np.array([self.classes.index(v) for v in values], dtype=np.float64)
        return 2.0 * number - 1.0 if self.outputs == 1 else number


@dataclass(frozen=True, eq=False)
class Encoded:
    """Records ready to train on: rows within the public bound, targets, and whose each row is."""

    X: Matrix
    y: Array
    units: NDArray[np.object_] | None


def refuse(wrong: NDArray[np.bool_], column: str, why: str) -> None:
    """Name the first record that the schema has no place for; only its own site ever reads this."""
    if np.any(wrong):
        raise DataError(
            f"column '{column}' {why} in record {int(np.flatnonzero(wrong)[0]) + 1}; mend the record, or say in the "
            "schema what a missing value counts as"
        )


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
    """

    label: Label
    columns: tuple[Column, ...] = ()
    unit: str | None = None
    numbered: int = 0
    low: float = -1.0
    high: float = 1.0
    row_norm: float = 0.0
    missing_values: tuple[str, ...] = MISSING

    def __post_init__(self) -> None:
        """Names once, bounds that bound, and the default of the row's."""
        names = [self.label.column, *([self.unit] if self.unit else []), *(c.name for c in self.columns)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise SpecError(f"schema: column '{twice[0]}' is named twice; a column is a feature, the label or the unit")
        if bool(self.columns) == bool(self.numbered):
            raise SpecError("schema: give either columns, or features = … for numbered ones (svmlight)")
        if self.numbered and not -math.inf < self.low <= 0.0 <= self.high < math.inf:
            raise SpecError("schema: numbered features need finite bounds low ≤ 0 ≤ high, since most of them are 0")
        if self.numbered and self.unit:
            raise SpecError("schema: svmlight files have no columns, so no unit can be named; use CSV or Parquet")
        if not self.row_norm:
            object.__setattr__(self, "row_norm", self.widest)
        if not 0 < self.row_norm < math.inf:
            raise SpecError(f"schema: row_norm is a finite number over 0, not {self.row_norm}")

    @property
    def widest(self) -> float:
        """The largest norm that an encoded row can have before it is scaled down to `row_norm`."""
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

    def read(self, path: Path, format: str | None = None) -> Matrix:
        """The rows of a file of records to predict: no label or unit is needed."""
        kind = format_of(path, format)
        if self.numbered:
            if kind != "svmlight":
                raise DataError(f"{path}: the model has numbered features; give an svmlight file")
            return self._clipped(load(path, format=kind, n_features=self.numbered).X)
        numbers = [c.name for c in self.columns if c.kind == "number"]
        texts = [c.name for c in self.columns if c.kind != "number"]
        return self.encode_features(read_columns(path, kind, numbers, texts, self.missing_values))

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns to read as numbers."""
        mine = (self.label.column,) if self.label.classes is None else ()
        return (*mine, *(c.name for c in self.columns if c.kind == "number"))

    @property
    def texts(self) -> tuple[str, ...]:
        """Columns to read as text."""
        mine = (self.label.column,) if self.label.classes is not None else ()
        return (*mine, *((self.unit,) if self.unit else ()), *(c.name for c in self.columns if c.kind != "number"))

    def encode_features(self, columns: Columns) -> Matrix:
        """The rows of named columns, each from its own values and the schema alone."""
        return self._bounded(np.hstack([column.encode(columns) for column in self.columns]))

    def encode(self, columns: Columns) -> Encoded:
        """Rows, targets and units of named columns."""
        name = self.label.column
        real = self.label.classes is None
        y = self.label.encode_numbers(columns.numbers[name]) if real else self.label.encode_texts(columns.texts[name])
        units = None if self.unit is None else columns.texts[self.unit]
        if units is not None:
            refuse(np.array([unit is None for unit in units], dtype=bool), str(self.unit), "has no value")
        return Encoded(self.encode_features(columns), y, units)

    def encode_numbered(self, X: Matrix, y: Array) -> Encoded:
        """The same for numbered features: clipped to the common bounds; zeros stay zeros."""
        return Encoded(self._clipped(X), self.label.encode_numbers(y), None)

    def _clipped(self, X: Matrix) -> Matrix:
        if X.shape[1] > self.numbered:
            raise DataError(f"the records have {X.shape[1]} features, but the schema says {self.numbered}")
        clipped = scipy.sparse.csr_array(X, shape=(X.shape[0], self.numbered), copy=True)
        clipped.data = np.clip(clipped.data, self.low, self.high)
        return self._bounded(clipped)

    def _bounded(self, X: Matrix) -> Matrix:
        return unit_rows(X, self.row_norm) if self.row_norm < self.widest else X

    @property
    def digest(self) -> str:
        """SHA-256 of everything that the schema says, however the file is laid out."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


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
        return Schema(
            Label(classes=None if classes is None else tuple(map(as_text, classes)), **label),
            columns,
            numbered=int(rest.pop("features", 0)),
            missing_values=tuple(rest.pop("missing_values", MISSING)),
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
    missing = table.pop("missing", REFUSE)
    kind = table.pop("type", "number")
    _floats(table)
    return Column(
        name,
        kind,
        categories=tuple(map(as_text, table.pop("categories", ()))),
        missing=float(missing) if kind == "number" and missing != REFUSE else as_text(missing),
        **table,
    )
