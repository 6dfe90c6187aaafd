"""Tables in a file of our own: an .npz of plain arrays, dense or CSR, read back bit for bit and without parsing."""

import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce.data.tables import Table
from sottovoce.errors import DataError
from sottovoce.rows import is_sparse

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
    """Read a table that `save_table` wrote; anything else is refused in one sentence, and no code in it is run."""
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
