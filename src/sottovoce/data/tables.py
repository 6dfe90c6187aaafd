"""The table that every source of records gives: the one scaling of its rows that leaks nothing, and a file for it.

The file is an .npz of plain arrays, dense or CSR, read back bit for bit and without parsing.
"""

import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # not its parts: they load when first used
from numpy.typing import NDArray

from sottovoce._renamed import old_arguments, old_attributes
from sottovoce._types import Matrix
from sottovoce.errors import DataError
from sottovoce.limits import check_file
from sottovoce.matrices import is_sparse


@old_arguments
@old_attributes
@dataclass(frozen=True, eq=False)
class Table:
    """Records as they were read, before anything is learnt from them.

    Attributes
    ----------
    X : dense 2-d array (float64 or float32) or CSR matrix, one record a row
    y : float64 targets; text where the classes have names (see `as_signs`); None in a file without labels
    groups : the owner of every record, as text, or None
    features : the columns' names, or None where the format has none (svmlight)
    name : where the records come from, for messages and reports
    user_ids : the person id of every record as text, or None

    Examples
    --------
    >>> table = Table(np.eye(3), np.array([1.0, -1.0, 1.0]), None, ("a", "b", "c"), "eye")
    >>> table.n_records, table.m
    (3, 3)
    """

    X: Matrix
    y: NDArray[Any] | None
    groups: NDArray[np.str_] | None
    features: tuple[str, ...] | None
    name: str
    user_ids: NDArray[np.str_] | None = None

    @property
    def n_records(self) -> int:
        """Number of records."""
        return int(self.X.shape[0])

    @property
    def m(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])


LARGE = 1 << 25
"""Numbers of a table from which on it is kept in single precision: 128 MB, and half of what it would take else."""


class Growing:
    """Rows that come in blocks, as one array in the end: never twice in memory.

    The array grows where it lies; large ones are moved by the operating system, which copies nothing.

    Examples
    --------
    >>> rows = Growing()
    >>> for block in (np.eye(2), np.ones((1, 2))):
    ...     rows.add(block)
    >>> rows.whole()
    array([[1., 0.], [0., 1.], [1., 1.]])
    """

    def __init__(self, large: int = LARGE) -> None:
        self._rows: NDArray[Any] | None = None
        self._large = large

    def add(self, block: NDArray[Any]) -> None:
        """Some more rows; the first ones are kept as they are given."""
        if self._rows is None:
            self._rows = np.array(block, order="C", copy=None if block.base is None else True)
            return
        before, kind = len(self._rows), np.result_type(self._rows, block)
        if self._rows.size + block.size > self._large:
            kind = np.dtype(np.float32)
        if kind != self._rows.dtype:
            self._rows = _as_kind(self._rows, kind)
        block = _as_kind(block, kind)
        self._rows.resize((before + len(block), *block.shape[1:]), refcheck=False)
        self._rows[before:] = block

    def clear(self) -> None:
        """None of them, to begin again."""
        self._rows = None

    def whole(self) -> NDArray[Any]:
        """All of them; they are nobody else's."""
        assert self._rows is not None
        whole, self._rows = self._rows, None
        return whole


def _as_kind(values: NDArray[Any], kind: Any) -> NDArray[Any]:
    """The same in another precision; what is beyond its range ends at its largest number, since no number is refused.

    Examples
    --------
    >>> _as_kind(np.array([1e308, -1.0]), np.dtype(np.float32)).tolist()
    [3.4028234663852886e+38, -1.0]
    """
    if kind != np.float32 or values.dtype == kind:
        return values.astype(kind, copy=False)
    ends = np.finfo(np.float32)
    return np.clip(values, float(ends.min), float(ends.max)).astype(kind)


VERSION = 1
"""Of the layout: arrays 'X', or 'data', 'indices', 'indptr' and 'shape'; 'y', 'groups', 'features'; 'name'."""


def save_table(table: Table, path: str | os.PathLike[str]) -> Path:
    """Write a table to an .npz file, whole or not at all.

    Nothing is compressed: a dense table takes its size in memory, and is written about as fast as it is copied.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> table = Table(np.eye(2), np.array([1.0, -1.0]), None, ("a", "b"), "eye")
    >>> with TemporaryDirectory() as folder:
    ...     again = load_table(save_table(table, Path(folder, "eye.npz")))
    >>> again.X, again.y, again.features, again.name
    (array([[1., 0.], [0., 1.]]), array([ 1., -1.]), ('a', 'b'), 'eye')
    """
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise DataError(f"{path}: tables are written as .npz; give the file that ending")
    arrays: dict[str, Any] = {"version": VERSION, "name": np.str_(table.name)}
    if is_sparse(table.X):
        X = table.X
        arrays |= {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
    else:
        arrays["X"] = table.X
    optional = {"y": table.y, "groups": table.groups, "features": table.features}
    arrays |= {key: np.asarray(value) for key, value in optional.items() if value is not None}
    check_file(path)
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise DataError(
            f"{path}: the table cannot be written here ({error.strerror or error}); choose a folder that exists, that "
            "may be written to and that has room"
        ) from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return path


def load_table(path: str | os.PathLike[str]) -> Table:
    """Read a table that `save_table` wrote; refuse any other file with a one-line error, and run no code in it."""
    path = Path(path)
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            if "version" not in file or int(file["version"]) != VERSION:
                raise DataError(f"{path}: this is no table written by sottovoce of this version; make it again")
            if "X" in file:
                X = file["X"]
            else:
                parts = tuple(file[key] for key in ("data", "indices", "indptr"))
                X = scipy.sparse.csr_array(parts, shape=tuple(file["shape"].tolist()))
                X.check_format(full_check=True)  # an index beyond the last column would be read from strange memory
            y, groups, features = (file[key] if key in file else None for key in ("y", "groups", "features"))
            name = str(file["name"])
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; check the path") from None
    except IsADirectoryError:
        raise DataError(f"{path}: this is a folder, and a file is needed; name a file in it") from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: the file is damaged or no table ({error}); make it again") from None
    if X.ndim != 2 or X.dtype not in (np.float32, np.float64):
        raise DataError(f"{path}: records must be a float32 or float64 table, not {X.dtype} of {X.ndim} dimensions")
    if any(given is not None and given.shape != (X.shape[0],) for given in (y, groups)):
        raise DataError(f"{path}: there must be one label and one owner for each of {X.shape[0]} records")
    if features is not None and features.shape != (X.shape[1],):
        raise DataError(f"{path}: there are {X.shape[1]} features and {features.size} names of them; make it again")
    return Table(X, y, groups, None if features is None else tuple(features.tolist()), name)
