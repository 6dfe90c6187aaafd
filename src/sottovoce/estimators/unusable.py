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
from sottovoce.errors import OwnerWarning
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


def number_cells(X: Any) -> Any:
    """The same table with NaN for a cell that holds no number, where one may: a column of Python's objects.

    Examples
    --------
    >>> number_cells(np.array([[1, "soon"], [10**400, "2.5"]], dtype=object))
    array([[1. , nan],
           [nan, 2.5]])
    """
    if isinstance(X, list | tuple):
        cells = np.asarray(X, dtype=object)
        X = cells if cells.ndim == PLANE else X
    if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == PLANE:
        return np.array([[_number(cell) for cell in row] for row in X.tolist()], dtype=np.float64).reshape(X.shape)
    if not (hasattr(X, "dtypes") and hasattr(X, "assign") and hasattr(X, "iloc")):
        return X
    changed = {
        column: np.array([_number(cell) for cell in X.iloc[:, place].tolist()], dtype=np.float64)
        for place, column in enumerate(X.columns)
        if X.dtypes.iloc[place].kind == "O" and isinstance(column, str)
    }
    return X.assign(**changed) if changed else X


PLANE = 2
"""Dimensions of a table."""


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
    return np.array([_code(known, value) for value in np.asarray(y).tolist()], dtype=np.float64)


def _code(known: dict[Any, int], value: Any) -> int:
    try:
        return known.get(value, -1)
    except TypeError:  # no label, as it has no hash
        return -1


def real_numbers(y: Any) -> Array:
    """Targets as floats; NaN for what is no finite number.

    Examples
    --------
    >>> real_numbers([1, "2.5", None, float("inf")])
    array([1. , 2.5, nan, nan])
    """
    values = np.asarray(y)
    if values.dtype.kind not in "biuf":
        values = np.array([_number(value) for value in values.tolist()], dtype=np.float64)
    values = values.astype(np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def warn_owner(count: int, what: str) -> None:
    """Inform the owner of the records, and nobody else, how many of them contribute nothing."""
    if count:
        warnings.warn(
            f"For the owner of the records only, as this is not private: {count} {what}. The number of records, which "
            "is public, stays what it is; correct such records before they come here",
            OwnerWarning,
            stacklevel=4,
        )
