"""Records that cannot be used, in a run with a guarantee: they stay in the public count and contribute zero.

A refusal is an output: that a fit ends with an error because of one record reveals that record. So a number that is
not finite counts as 0 in its own cell, and a record without a usable target adds nothing to a sum. Simulations (a run
with a seed) and fits without privacy refuse such records, as scikit-learn does.
"""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array, Matrix
from sottovoce.errors import DataError, OwnerWarning
from sottovoce.matrices import canonical, is_sparse


def finite_cells(X: Matrix) -> Matrix:
    """The same records with 0 in place of what is not finite; a copy only where there is any.

    Examples
    --------
    >>> finite_cells(np.array([[1.0, 0.5]]))
    array([[1. , 0.5]])
    """
    X = canonical(X)
    values = X.data if is_sparse(X) else X
    sound = np.isfinite(values)
    if sound.all():
        return X
    warn_owner(int(np.count_nonzero(~sound)), "numbers are not finite and count as 0")
    values = np.where(sound, values, values.dtype.type(0))
    return type(X)((values, X.indices, X.indptr), shape=X.shape) if is_sparse(X) else values


def own_values(column: Any) -> NDArray[Any]:
    """The values of one column, each of its own type: NumPy would make texts of all numbers beside one text.

    Examples
    --------
    >>> own_values([0, 1, "0"]).tolist()
    [0, 1, '0']
    """
    if not isinstance(column, list | tuple) or all(isinstance(value, list | tuple | np.ndarray) for value in column):
        return np.asarray(column)
    found = np.empty(len(column), dtype=object)
    for place, value in enumerate(column):
        found[place] = value
    return found


def text_of(value: Any) -> str:
    """The text of a label; of one that has none, such as a number of too many digits, the name of its type."""
    try:
        return str(value)
    except ValueError:
        return type(value).__name__


def number_cells(X: Any, texts: bool = False) -> Any:
    """The same table with NaN for a cell that holds no number, where one may; frames become double precision.

    What a table holds may not decide its type: of a frame one cell could make single precision double. Nor may it
    decide a refusal: a reader makes a column of text where one cell of a file is a word. So the owner is warned of such
    columns by name, unless `texts` says that their cells may hold numbers.

    Examples
    --------
    >>> number_cells(np.array([[1, "soon"], [10**400, "2.5"]], dtype=object))
    array([[1. , nan],
           [nan, 2.5]])
    """
    if isinstance(X, list | tuple):
        cells = np.asarray(X, dtype=object)
        X = cells if cells.ndim == PLANE else X
    if hasattr(X, "dtypes") and hasattr(X, "isetitem"):
        return _frame_of_numbers(X, texts)
    kind = getattr(getattr(X, "dtype", None), "kind", "f")
    if kind in NUMERIC or not (is_sparse(X) or isinstance(X, np.ndarray)):
        return X
    if is_sparse(X):
        X = X.tocsr()
        return type(X)((_numbers(X.data), X.indices, X.indptr), shape=X.shape)
    return _numbers(X.ravel()).reshape(X.shape) if X.ndim == PLANE else X


def _frame_of_numbers(X: Any, texts: bool) -> Any:
    kinds = list(X.dtypes)
    named = [str(name) for name, kind in zip(X.columns, kinds, strict=True) if is_text(kind)]
    if named and not texts:
        warnings.warn(
            "For the owner of the records only, as this is not private: columns of text are no numbers: "
            f"{', '.join(named)}; words in them count as 0. Encode such columns by a schema, "
            "make_pipeline(PublicEncoder('schema.toml'), …), or leave them out",
            OwnerWarning,
            stacklevel=4,
        )
    if any(type(kind).__name__ == "SparseDtype" for kind in kinds) or all(kind == np.float64 for kind in kinds):
        return X
    numeric = [isinstance(kind, np.dtype) and kind.kind in NUMERIC for kind in kinds]
    X = X.copy(deep=False)
    for place in (place for place, fits in enumerate(numeric) if not fits):
        X.isetitem(place, _numbers(X.iloc[:, place]))
    return X.astype(np.float64)


NUMERIC = "biuf"
"""Kinds of arrays in which every cell holds a number."""
PLANE = 2
"""Dimensions of a table."""


def is_text(kind: Any) -> bool:
    """Whether a column of this type is of texts, by the type alone; one of objects may hold numbers.

    Examples
    --------
    >>> is_text(np.dtype("U3")), is_text(np.dtype(object)), is_text(np.dtype(float))
    (True, False, False)
    """
    categories = getattr(kind, "categories", None)
    if categories is not None:
        return is_text(categories.dtype)
    return getattr(kind, "kind", "") in ("U", "S", "T") or issubclass(getattr(kind, "type", object), str)


def check_label_type(classes: Any, y: Any) -> None:
    """Refuse numbers as labels of classes that are all texts: none can match. The type of y decides, no value does.

    Examples
    --------
    >>> check_label_type(["0", "1"], np.array(["0", "0"]))
    >>> check_label_type(["0", "1"], np.array([0, 1]))
    Traceback (most recent call last):
    sottovoce.errors.DataError: y holds numbers (int64), but the classes are texts, '0', '1', ...
    """
    kind = getattr(y, "dtype", None)
    names = np.asarray(classes).ravel().tolist()
    if (
        getattr(kind, "kind", "O") in NUMERIC
        and len(names) > 1
        and all(isinstance(name, str | bytes) for name in names)
    ):
        listed = ", ".join(map(repr, names[:SHOWN])) + (", …" if len(names) > SHOWN else "")
        raise DataError(
            f"y holds numbers ({kind}), but the classes are texts, {listed}, so that no label can match; give "
            "y.astype(str), or the classes as numbers"
        )


SHOWN = 4
"""Classes that an error names."""


def without_rows(X: Matrix, rows: NDArray[np.bool_]) -> Matrix:
    """The same records with nothing but 0 in some of them."""
    if not rows.any():
        return X
    if not is_sparse(X):
        return np.where(rows[:, None], X.dtype.type(0), X)
    values = np.where(np.repeat(rows, np.diff(X.indptr)), X.dtype.type(0), X.data)
    return type(X)((values, X.indices, X.indptr), shape=X.shape)


def unusable_rows(X: Matrix) -> NDArray[np.bool_]:
    """Which records hold NaN or infinity.

    Examples
    --------
    >>> unusable_rows(np.array([[0.0, np.nan], [1.0, 0.5]]))
    array([ True, False])
    """
    if not is_sparse(X):
        return ~np.isfinite(X).all(axis=1)
    found = np.zeros(X.shape[0], dtype=bool)
    found[np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))[~np.isfinite(X.data)]] = True
    return found


def class_codes(classes: Any, y: Any) -> Array:
    """The number of each label among the classes; −1 for a label that is none of them, or missing.

    Examples
    --------
    >>> class_codes(["no", "yes"], ["yes", None, "no", "maybe"])
    array([ 1., -1.,  0., -1.])
    """
    known = {value: number for number, value in enumerate(np.asarray(classes).tolist())}
    spelled = {str(value): number for value, number in known.items()}
    return np.array([_code(known, spelled, value) for value in own_values(y).tolist()], dtype=np.float64)


def _code(known: dict[Any, int], spelled: dict[str, int], value: Any) -> int:
    """The number of one label; in an array with one text all numbers are texts, so that a class is known by its own."""
    try:
        found = known.get(value)
        if found is None and isinstance(value, str | bytes):
            text = value.decode() if isinstance(value, bytes) else value
            found = spelled.get(text)
            found = known.get(float(text)) if found is None else found
    except (TypeError, ValueError, OverflowError):  # no label: it has no hash, or is no text
        return -1
    return -1 if found is None else found


def real_numbers(y: Any) -> Array:
    """Targets as floats; NaN for what is no finite number.

    Examples
    --------
    >>> real_numbers([1, "2.5", None, float("inf")])
    array([1. , 2.5, nan, nan])
    """
    values = own_values(y)
    values = values.astype(np.float64) if values.dtype.kind in NUMERIC else _numbers(values)
    return np.where(np.isfinite(values), values, np.nan)


def _numbers(values: Any) -> Array:
    return np.array([_number(value) for value in values.tolist()], dtype=np.float64)


def _number(value: Any) -> float:
    if isinstance(value, complex | np.complexfloating):  # one complex number makes a whole column complex
        return float(value.real) if value.imag == 0 else float("nan")
    if isinstance(value, np.ndarray):
        return float("nan")
    if isinstance(value, str | bytes) and value in TRUTHS:
        return TRUTHS[value]
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


TRUTHS: dict[str | bytes, float] = {"True": 1.0, "False": 0.0, b"True": 1.0, b"False": 0.0}
"""Truth values as one text in an array of them makes all others."""


def warn_owner(count: int, what: str) -> None:
    """Inform the owner of the records, and nobody else, how many of them contribute nothing."""
    if count:
        warnings.warn(
            f"For the owner of the records only, as this is not private: {count} {what}. The number of records, which "
            "is public, stays what it is; correct such records before they come here",
            OwnerWarning,
            stacklevel=4,
        )
