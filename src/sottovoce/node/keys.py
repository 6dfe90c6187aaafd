"""A node's own secret: 32 bytes from the operating system, in a file that only its owner may read.

Noise and records of a run come from keys that are derived from this secret, from the run's digest and from the nonce
that was born with the ledger: a draw is a function of (secret, nonce, run, round), so that a node that restarts makes
the very same draw, two runs never share one, and neither do two ledgers. Nothing here comes from a seed that anybody
else knows.
"""

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import IntArray
from sottovoce.algorithm.method import Speaks
from sottovoce.engine.secure import SecureDrawn, SecureDraws
from sottovoce.errors import StoreError
from sottovoce.privacy.pairs import Pairs
from sottovoce.privacy.release import NoiseTerm
from sottovoce.problem.shards import Shards
from sottovoce.secure.generator import Generator, Purpose, generators

SIZE = 32
FILE = "secret.key"
UNBORN = "secret.key.new"
"""A key whose ledger is not there yet."""


def own_secret(folder: Path) -> bytes:
    """The folder's secret."""
    return _read(folder / FILE)


def new_secret(folder: Path) -> bytes:
    """A secret for a folder that has none; it counts from `keep_secret` on, when its ledger is there."""
    path = folder / UNBORN
    try:
        path.unlink(missing_ok=True)
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise StoreError(f"no secret key can be written to '{folder}' ({error.strerror}); give another one") from None
    with os.fdopen(made, "wb") as file:
        file.write(os.urandom(SIZE).hex().encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    _sync(folder)
    return _read(path)


def keep_secret(folder: Path) -> None:
    """Let a new secret count."""
    (folder / UNBORN).rename(folder / FILE)
    _sync(folder)


def new_nonce() -> dict[str, str]:
    """Of the ledger's row."""
    return {"nonce": os.urandom(SIZE).hex()}


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
    """Return a mark by which a folder recognizes its key; it reveals nothing about the key."""
    return _derived(secret, "mark").hex()[:32]


def own_keys(secret: bytes, digest: str, nonce: bytes, records: str = "") -> dict[Purpose, Generator]:
    """All the randomness of one node in one run, while it has this ledger and these records (their fingerprint).

    Other records get other noise, also where a whole folder was restored: the difference of two releases of one noise
    would be that of the records.

    Examples
    --------
    >>> one, again, other = (own_keys(bytes(32), "aa", bytes([n]) * 32)[Purpose.NOISE] for n in (0, 0, 1))
    >>> here = np.array([0])
    >>> bool((one.words(here, here, 0, 4) == again.words(here, here, 0, 4)).all())
    True
    >>> bool((one.words(here, here, 0, 4) == other.words(here, here, 0, 4)).any())
    False
    """
    return generators(secret, bytes.fromhex(digest) + records.encode(), nonce)


def identity_seed(secret: bytes) -> bytes:
    """Of the key by which others know this folder's node, where no certificate does."""
    return _derived(secret, "identity")


def proving_key(secret: bytes) -> bytes:
    """Of what proves a message to be this node's own, to nobody but itself."""
    return _derived(secret, "own messages")


@dataclass(frozen=True, eq=False, kw_only=True)
class Ahead(SecureDraws):
    """The secure draws of one node, made for several of its turns at a time: the same bits for less work.

    Attributes
    ----------
    turns : all rounds in which the node takes a gradient, in order
    pairs : what it shares with each of its peers, where noise is the secret of two nodes
    """

    turns: IntArray
    pairs: Mapping[int, Generator] = field(default_factory=dict, repr=False)
    AT_ONCE: ClassVar[int] = 8
    NUMBERS: ClassVar[int] = 1 << 17
    _kept: dict[int, SecureDrawn] = field(default_factory=dict, repr=False)

    def noise_terms(self, nodes: IntArray, t: IntArray) -> list[NoiseTerm]:
        """A node's own noise, and what it really shares with each peer."""
        law = self.release.law
        if isinstance(law, Pairs):
            return law.with_peers(int(nodes[0]), t, self.release.sigma)
        return super().noise_terms(nodes, t)

    def generator(self, source: NoiseTerm) -> Generator:
        """The node's own, or that of the pair."""
        return super().generator(source) if source.peer is None else self.pairs[source.peer]

    def drawn(self, nodes: IntArray, t: IntArray, speaks: Speaks) -> SecureDrawn:
        """Of one node in one round."""
        if not speaks[0]:
            return super().drawn(nodes, t, speaks)
        count = max(1, min(self.AT_ONCE, self.NUMBERS // self.m))
        block, place = divmod(int(np.searchsorted(self.turns, t[0])), count)
        if block not in self._kept:
            some = self.turns[block * count : (block + 1) * count]
            self._kept.clear()
            self._kept[block] = super().drawn(np.repeat(nodes, len(some)), some, np.ones(len(some), dtype=np.bool_))
        return self._kept[block].at(slice(place, place + 1))


class Fingerprints(NamedTuple):
    """By which an owner's folder knows records again.

    They are salted, so that they are of no use to anybody without the folder's secret, and never leave the node.
    """

    records: str
    """A digest of records in any order or format; budgets use it to recognize them."""
    sequence: str
    """Also their order, and which of them are one person's: what a run goes by, since batches are drawn by places."""


def fingerprints(secret: bytes, shards: Shards) -> Fingerprints:
    """Of one node's records.

    Examples
    --------
    >>> X, y, all = np.eye(3), np.array([1.0, -1.0, 1.0]), np.array([0, 3])
    >>> one, turned = (fingerprints(bytes(32), Shards.of(X[::s], y[::s], all)) for s in (1, -1))
    >>> one.records == turned.records, one.sequence == turned.sequence
    (True, False)
    """
    each = _each(secret, shards)
    places = range(len(each)) if shards.order is None else shards.order.tolist()
    starts = np.arange(len(places) + 1) if shards.starts is None else shards.starts
    listed = (each[row] for row in places)
    return Fingerprints(
        _derived(secret, "records", *sorted(each)).hex(),
        _derived(secret, "sequence", np.asarray(starts, dtype="<i8").tobytes(), *listed).hex(),
    )


def _each(secret: bytes, shards: Shards) -> list[bytes]:
    """A keyed digest of every row."""
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
    return each
