"""How one value becomes features, from the schema alone: the columns and the label of a schema.toml."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array, Matrix
from sottovoce.data.typed import Columns, as_text
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
