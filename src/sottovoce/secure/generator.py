"""The cryptographic generator: secret bits as a pure function of a key and an address.

An address is (node, round, level, block). Its 128 bits are the AES-256 encryption of the address itself, which is what
counter mode does, with counters that say what a block is for in place of a running number. So a draw depends on nothing
but the key and its own address: blocks, threads and resumed runs agree bit for bit. Block ciphers of distinct addresses
cannot be distinguished from uniform words by anybody without the key; that is the one computational assumption of a
release.

A uniform number takes its first bits from level 0, and its continuation from levels 1, 2, … of the same block: a stream
that ends nowhere, of which hardly ever more than the beginning is examined.

Keys have 256 bits, one for each run and purpose, by HKDF-SHA256 from a secret, the run's digest and a nonce. A node's
secret is its own; so its keys are too. The nonce is born with the node's ledger: an old secret beside a new ledger
gives keys that were never used.
"""

import os
from collections.abc import Iterator
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import IntArray
from sottovoce.errors import PrivacyError

Words = NDArray[np.uint64]

KEY_BYTES = 32
"""Of a secret, a nonce and a key: 256 bits."""
WORD = 64
"""Bits of a word; a block of the cipher has two."""
LEVELS = 1 << 16
"""Continuations that an address has room for: four million bits."""
BLOCKS = 1 << 48
"""Blocks of a (node, round) pair and level."""
NUMBERS = 1 << 32
"""Nodes, and rounds."""
AT_ONCE = 1 << 12
"""Blocks that are encrypted at a time."""
_CONTEXT = b"sottovoce secure release 1"


class Purpose(Enum):
    """What a draw is for: each has a key of its own."""

    NOISE = "noise"
    RECORDS = "records"
    PAIRS = "pairs"
    COUNTS = "counts"


class Generator:
    """Secret words at public addresses, under one key.

    Parameters
    ----------
    key : 32 secret bytes that are used for nothing else

    Examples
    --------
    >>> one, again = Generator(bytes(32)), Generator(bytes(32))
    >>> here, five = np.array([3]), np.array([5])
    >>> bool(np.all(one.words(here, five, 0, 8)[0, 4:] == again.words(here, five, 4, 4)))
    True
    """

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        if len(key) != KEY_BYTES:
            raise PrivacyError(f"a key has {KEY_BYTES} bytes, not {len(key)}; derive it with `generators`")
        # ECB of distinct addresses is counter mode; one call does the addresses of many nodes and rounds
        self._cipher = Cipher(algorithms.AES256(key), modes.ECB())

    def words(self, nodes: IntArray, rounds: IntArray, first: int, count: int, level: int = 0) -> Words:
        """Blocks first … first + count − 1 of each pair (node, round): (pairs, count, 2) words."""
        nodes, rounds = np.asarray(nodes), np.asarray(rounds)
        if not (_within(nodes, NUMBERS) and _within(rounds, NUMBERS)):
            raise PrivacyError("nodes and rounds are whole numbers from 0 to 2³² − 1; number them so")
        if not (0 <= first and first + count <= BLOCKS and 0 <= level < LEVELS):
            raise PrivacyError(f"there are no {count} blocks from {first} at level {level}; ask for fewer")
        pairs = (nodes.astype(np.uint64) << np.uint64(32)) | rounds.astype(np.uint64)
        blocks = np.arange(first, first + count, dtype=np.uint64) | np.uint64(level << 48)
        out = np.empty(16 * (pairs.size * count + 1), dtype=np.uint8)  # the cipher wants room for a block more
        encryptor, filled = self._cipher.encryptor(), 0
        width = max(1, min(count, AT_ONCE))
        height = max(1, AT_ONCE // width)
        scratch = np.empty((height * width, 2), dtype="<u8")  # a large one would be new memory every time
        for rows in range(0, pairs.size, height):
            some = pairs[rows : rows + height]
            for columns in range(0, count, width):
                these = blocks[columns : columns + width]
                addresses = scratch[: some.size * these.size]
                grid = addresses.reshape(some.size, these.size, 2)
                grid[:, :, 0], grid[:, :, 1] = some[:, None], these
                encryptor.update_into(addresses.reshape(-1).view(np.uint8).data, out[filled:].data)
                filled += addresses.nbytes
        return out[:filled].view("<u8").reshape(pairs.size, count, 2).astype(np.uint64, copy=False)

    def continuation(self, node: int, round: int, block: int) -> Iterator[tuple[int, int]]:
        """The two words of a block at levels 1, 2, …: as many as are requested."""
        for level in range(1, LEVELS):
            first, second = self.words(np.array([node]), np.array([round]), block, 1, level)[0, 0].tolist()
            yield first, second

    def __repr__(self) -> str:
        return "Generator(…)"  # a key is not for printing

    def __reduce__(self) -> Any:
        raise PrivacyError("a generator is not written down: its key is a secret; derive it again where it is needed")


def generators(secret: bytes, run: bytes, nonce: bytes) -> dict[Purpose, Generator]:
    """The generators of one run at one place, a key for every purpose.

    Parameters
    ----------
    secret : 32 bytes that only this place knows; what two nodes share, for the noise that they have in common
    run : the digest of the public plan
    nonce : 32 random bytes that are born with the ledger

    Examples
    --------
    >>> old, new = (generators(bytes(32), b"plan", bytes([n] * 32))[Purpose.NOISE] for n in (0, 1))
    >>> here = np.array([0])
    >>> bool(np.any(old.words(here, here, 0, 9) == new.words(here, here, 0, 9)))
    False
    """
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    for name, part in (("secret", secret), ("nonce", nonce)):
        if len(part) != KEY_BYTES:
            raise PrivacyError(f"a {name} has {KEY_BYTES} random bytes, not {len(part)}; take them from os.urandom")
    found = {}
    for purpose in Purpose:
        info = b"".join(len(part).to_bytes(8, "little") + part for part in (_CONTEXT, run, purpose.value.encode()))
        found[purpose] = Generator(HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=nonce, info=info).derive(secret))
    return found


def fresh(run: bytes = b"") -> dict[Purpose, Generator]:
    """The generators of a run that nobody can repeat: secret and nonce from the operating system, kept nowhere."""
    return generators(os.urandom(KEY_BYTES), run, os.urandom(KEY_BYTES))


def _within(numbers: Any, limit: int) -> bool:
    if numbers.dtype.kind not in "iu":
        return False
    return not numbers.size or (int(numbers.min()) >= 0 and int(numbers.max()) < limit)
