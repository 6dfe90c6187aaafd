"""Pictures and their labels in idx files, the format of MNIST: a short header of dimensions, then unsigned bytes."""

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.data.load import GARBLED, OPEN
from sottovoce.data.tables import Table
from sottovoce.errors import DataError

UNSIGNED_BYTE = 8  # the type code of the header
BRIGHTEST = 255.0  # of a byte: a public bound, whatever the pictures hold


def read_idx(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """The array of an idx file of unsigned bytes, which may be compressed (.gz, .bz2, .xz).

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "two-by-three")
    ...     _ = path.write_bytes(bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6]))
    ...     read_idx(path)
    array([[1, 2, 3], [4, 5, 6]], dtype=uint8)
    """
    path = Path(path)
    try:
        ending = path.suffix.lower()
        with OPEN[ending](path) if ending in OPEN else path.open("rb") as file:
            content: bytes = file.read()
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; check the path") from None
    except GARBLED as error:
        raise DataError(f"{path}: the file cannot be read ({type(error).__name__}); get it again") from None
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != UNSIGNED_BYTE or content[3] < 1:
        raise DataError(f"{path}: this is no idx file of unsigned bytes; give one such as MNIST's")
    dimensions = content[3]
    start = 4 * (1 + dimensions)
    shape = struct.unpack(f">{dimensions}I", content[4:start]) if len(content) >= start else ()
    if not shape or len(content) - start != int(np.prod(shape, dtype=np.int64)):
        raise DataError(f"{path}: the file is cut short or too long for the sizes in its header; get it again")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def load_pictures(images: str | os.PathLike[str], labels: str | os.PathLike[str], name: str) -> Table:
    """Pictures as rows of float32 in [0, 1] (a pixel is divided by 255, for all data the same), labels as numbers."""
    pixels, y = read_idx(images), read_idx(labels)
    if y.ndim != 1 or len(y) != len(pixels):
        raise DataError(f"{labels}: there are {len(pixels)} pictures and labels of shape {y.shape}; give one a picture")
    X: NDArray[Any] = pixels.reshape(len(pixels), -1).astype(np.float32)
    X /= np.float32(BRIGHTEST)
    return Table(X, y.astype(np.float64), None, None, name)
