"""A node's own secret: 32 bytes from the operating system, in a file that only its owner may read.

Noise and records of a run are counter-based streams from a key that is derived from this secret and from the run's
digest: a draw is a function of (secret, run, round), so that a node that restarts makes the very same draw, and two
runs never share one. Nothing here comes from a seed that anybody else knows.
"""

import hashlib
import os
import stat
from pathlib import Path

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array, IntArray
from sottovoce.engine.job import Randomness
from sottovoce.errors import StoreError
from sottovoce.problem.shards import Shards
from sottovoce.streams import Streams

SIZE = 32
FILE = "secret.key"


def own_secret(folder: Path) -> bytes:
    """The folder's secret, drawn when it is first asked for."""
    path = folder / FILE
    try:
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read(path)
    except OSError as error:
        raise StoreError(f"no secret key can be written to '{folder}' ({error.strerror}); give another one") from None
    with os.fdopen(made, "wb") as file:
        file.write(os.urandom(SIZE).hex().encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    _sync(folder)
    return _read(path)


def _read(path: Path) -> bytes:
    try:
        mode, secret = stat.S_IMODE(path.stat().st_mode), bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError):
        mode, secret = 0, b""
    if mode & 0o077:
        raise StoreError(f"the secret key '{path}' can be read by others than its owner; run: chmod 600 '{path}'")
    if len(secret) != SIZE:
        raise StoreError(
            f"the secret key '{path}' is damaged; restore that one file, since with another key a published round "
            "would be drawn again"
        )
    return secret


def _sync(folder: Path) -> None:
    """Make a new file's name survive a power loss."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _derived(secret: bytes, purpose: str, *parts: bytes) -> bytes:
    whole = hashlib.blake2b(key=secret, digest_size=32, person=purpose.encode())
    for part in parts:
        whole.update(len(part).to_bytes(8, "little") + part)
    return whole.digest()


def key_mark(secret: bytes) -> str:
    """By which a folder knows its key again, and which tells nothing about it."""
    return _derived(secret, "mark").hex()[:32]


def own_streams(secret: bytes, digest: str) -> Streams:
    """All the randomness of one node in one run.

    Examples
    --------
    >>> one, again, other = (own_streams(bytes(32), d) for d in ("aa", "aa", "bb"))
    >>> here = np.array([0])
    >>> bool((one.normals(here, 5, 3) == again.normals(here, 5, 3)).all())
    True
    >>> bool((one.normals(here, 5, 3) == other.normals(here, 5, 3)).any())
    False
    """
    return Streams(int.from_bytes(_derived(secret, "streams", bytes.fromhex(digest)), "little"))


class Ahead:
    """The draws of one node, its noise made for several of its rounds at a time: the same numbers for less work.

    The rounds that are made together do not depend on where a run is taken up again, so that not even the rounding
    of a vectorised function can.

    Parameters
    ----------
    draws : what is asked for in the end
    rounds : all rounds of the node, in order
    m : numbers in a round's noise
    """

    AT_ONCE, NUMBERS = 8, 1 << 17

    def __init__(self, draws: Randomness, rounds: IntArray, m: int) -> None:
        self.records = draws.records
        self._draws, self._rounds = draws, rounds
        self._count = max(1, min(self.AT_ONCE, self.NUMBERS // m))
        self._kept: dict[int, Array] = {}

    def noise(self, nodes: IntArray, t: IntArray) -> Array:
        """Which noise, of one node in one of its rounds."""
        if int(t[0]) not in self._kept:
            start = int(np.searchsorted(self._rounds, t[0])) // self._count * self._count
            some = self._rounds[start : start + self._count]
            made = self._draws.noise(np.repeat(nodes, len(some)), some)
            self._kept = dict(zip(some.tolist(), made, strict=True))
        return self._kept[int(t[0])][None]


def fingerprint(secret: bytes, shards: Shards) -> str:
    """By which an owner's folder knows records again, in whatever order or format they come.

    It is salted, so that it is of no use to anybody without the folder's secret, and never leaves the node.

    Examples
    --------
    >>> X, y, all = np.eye(3), np.array([1.0, -1.0, 1.0]), np.array([0, 3])
    >>> turned = Shards.of(X[::-1], y[::-1], all)
    >>> fingerprint(bytes(32), Shards.of(X, y, all)) == fingerprint(bytes(32), turned)
    True
    """
    X, y = shards.X, shards.y
    each = []
    for row in range(X.shape[0]):
        if scipy.sparse.issparse(X):
            at = slice(int(X.indptr[row]), int(X.indptr[row + 1]))
            columns, values = X.indices[at], np.asarray(X.data[at], dtype="<f8")
            columns, values = columns[values != 0], values[values != 0]
        else:
            columns = np.flatnonzero(X[row])
            values = np.asarray(X[row, columns], dtype="<f8")
        parts = (columns.astype("<i8").tobytes(), values.tobytes(), np.asarray(y[row], dtype="<f8").tobytes())
        each.append(_derived(secret, "record", *parts))
    return _derived(secret, "records", *sorted(each)).hex()
