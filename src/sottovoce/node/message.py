"""A message on the wire: one array with its address, and a checksum over all of it.

    magic   version   dtype   dimensions   sender   round   run      shape         body    checksum
    svoc    u16       4s      u16          u32      u64     16 bytes u64 for each  …       32 bytes

Little endian throughout. Releases are float64; what nodes say about themselves (`text` below) is bytes of JSON in
the same frame. There is no receiver: a node's message of a round is the same for all of its peers. And there is no
clock: a message is addressed by its round, so that skewed clocks cannot matter.

The checksum (SHA-256) finds damage, not malice, and names the message in ledgers. That it comes from the node that it
names, and can be read by its receiver alone, is what the envelope around it is for (`envelope.py`).

What is refused is refused with a `Code` out of a fixed list, and a sentence for the node's own owner.
"""

import json
import math
import struct
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.errors import NetworkError

MAGIC = b"svoc"
VERSION = 1
CHECK = 32
RUN = 16  # bytes of the run's digest that go into every message
FLOATS, BYTES = np.dtype("<f8"), np.dtype("|u1")
DTYPES = ("<f8", "|u1")
DIMENSIONS = 4
ATTACHED = 64
"""Messages that may be attached to a notice."""
_HEAD = struct.Struct("<4sH4sHIQ16s")
_KIND = struct.Struct("<4sH")
_DTYPE, _ROUND = 6, 16  # where dtype and dimensions stand, and the round
_LENGTHS = [struct.Struct(f"<{ndim}Q") for ndim in range(DIMENSIONS + 1)]


class Code(Enum):
    """Why something that came in was refused: all that others may ever learn of it."""

    SIZE = "size"
    FORMAT = "format"
    VERSION = "version"
    CHECKSUM = "checksum"
    RUN = "run"
    SENDER = "sender"
    ROUND = "round"
    SHAPE = "shape"
    NUMBERS = "numbers"
    NORM = "norm"
    SECOND = "second"
    NOTICE = "notice"
    CLAIM = "claim"
    IDENTITY = "identity"
    KEYS = "keys"
    UNKNOWN = "unknown"
    SEAL = "seal"
    REPLAY = "replay"
    VOUCHER = "voucher"
    SKIP = "skip"


class Refused(NetworkError):
    """Something came in that does not fit; it was not used."""

    def __init__(self, code: Code, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class Header(NamedTuple):
    """Where a message belongs."""

    run: bytes
    """The first 16 bytes of the run's digest: nodes with another run file cannot be mixed up with ours."""
    round: int
    """Or, where a round has several exchanges, the step: all of them counted through the run (`Run.step`)."""
    sender: int


class Message(NamedTuple):
    """A message whose checksum is right and whose parts fit together."""

    header: Header
    array: NDArray[Any]
    digest: bytes
    """The checksum: what ledgers and high-water marks call this message."""


def pack(header: Header, array: NDArray[Any]) -> bytes:
    """The bytes of a message; the same array and header give the same bytes, always.

    Examples
    --------
    >>> payload = pack(Header(bytes(16), 7, 2), np.array([[1.0, 2.0]]))
    >>> len(payload), unpack(payload, Header(bytes(16), 7, 2), (1, 2))
    (104, array([[1., 2.]]))
    """
    before, after, dtype = _around(header.run, header.sender, array.dtype, array.shape)
    head = before + header.round.to_bytes(8, "little") + after
    body = np.ascontiguousarray(array if dtype is array.dtype else array.astype(dtype)).data
    digest = sha256(head)
    digest.update(body)
    return b"".join((head, body, digest.digest()))


@lru_cache(maxsize=1024)
def _around(
    run: bytes, sender: int, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> tuple[bytes, bytes, np.dtype[Any]]:
    """What stands before and behind the round in all that begins a message, and the type of its numbers there.

    An address and a shape have one beginning, and no second.
    """
    wired = dtype.newbyteorder("<")
    wired = dtype if wired == dtype else wired
    if wired.str not in DTYPES or not 1 <= len(shape) <= DIMENSIONS:
        raise NetworkError(
            f"a message is an array of float64 or bytes with 1 to {DIMENSIONS} axes, not {dtype} of {len(shape)}"
        )
    if len(run) != RUN:
        raise NetworkError(f"a run is named by {RUN} bytes, not {len(run)}")
    head = _HEAD.pack(MAGIC, VERSION, wired.str.encode(), len(shape), sender, 0, run)
    return head[:_ROUND], head[_ROUND + 8 :] + _LENGTHS[len(shape)].pack(*shape), wired


def read(payload: bytes) -> Message:
    """Return a message's parts, if it is complete and of this version; its content is not checked."""
    if len(payload) < _HEAD.size + CHECK:
        raise Refused(
            Code.SIZE, f"a message of {len(payload)} bytes was cut short: even its head is longer; send it again"
        )
    magic, version, kind, ndim, sender, t, run = _HEAD.unpack_from(payload)
    if magic != MAGIC:
        raise Refused(Code.FORMAT, "this is no message of sottovoce: it does not begin with its mark")
    if version != VERSION:
        raise Refused(
            Code.VERSION,
            f"a message has version {version} of the wire format, this node speaks version {VERSION}; "
            "install the same version of sottovoce at all nodes",
        )
    digest = _checksum(payload)
    dtype = kind.rstrip(b"\0").decode("ascii", "replace")
    if dtype not in DTYPES or not 1 <= ndim <= DIMENSIONS:
        raise Refused(Code.FORMAT, f"a message holds '{dtype}' with {ndim} axes, where float64 or bytes are expected")
    start = _HEAD.size + 8 * ndim
    if len(payload) < start + CHECK:
        raise Refused(Code.FORMAT, "a message does not hold its own shape; it was made by something else")
    shape = _LENGTHS[ndim].unpack_from(payload, _HEAD.size)
    size = np.dtype(dtype).itemsize
    for length in shape:
        size *= length
    if size == 0 or size != len(payload) - start - CHECK:
        raise Refused(Code.FORMAT, f"a message of shape {shape} does not fill its {len(payload)} bytes; it was made up")
    return Message(Header(run, t, sender), array_of(payload), digest)


def _checksum(payload: bytes) -> bytes:
    digest = sha256(memoryview(payload)[:-CHECK]).digest()
    if not payload.endswith(digest):
        raise Refused(
            Code.CHECKSUM, "a message was damaged or cut short on its way: its checksum is wrong; send it again"
        )
    return digest


def array_of(payload: bytes) -> NDArray[Any]:
    """The array of a message that is known to be whole; no copy."""
    kind, ndim = _KIND.unpack_from(payload, _DTYPE)
    shape = _LENGTHS[ndim].unpack_from(payload, _HEAD.size)
    return np.ndarray(shape, FLOATS if kind == b"<f8\0" else BYTES, payload, _HEAD.size + 8 * ndim)


def round_of(payload: bytes) -> int:
    """The round that a message says it is of."""
    if len(payload) < _HEAD.size:
        raise Refused(Code.FORMAT, f"a message of {len(payload)} bytes was cut short: even its head is longer")
    return int.from_bytes(payload[_ROUND : _ROUND + 8], "little")


@lru_cache(maxsize=16)
def size_of(shape: tuple[int, ...]) -> int:
    """Bytes of a message of numbers.

    Examples
    --------
    >>> size_of((1, 2)) == len(pack(Header(bytes(16), 7, 2), np.zeros((1, 2))))
    True
    """
    return _HEAD.size + 8 * len(shape) + 8 * math.prod(shape) + CHECK


def check(
    message: Message,
    expected: Header,
    shape: tuple[int, ...] | None,
    dtype: str = "<f8",
    bound: float = math.inf,
    when: Callable[[int], str] = "round {}".format,
) -> None:
    """Refuse a message that belongs elsewhere, is of another kind than was agreed on, or longer than honest ones."""
    header, array = message.header, message.array
    if header.run != expected.run:
        raise Refused(
            Code.RUN,
            f"a message belongs to run {header.run.hex()[:12]}, this is run {expected.run.hex()[:12]}; give all nodes "
            "the same run file",
        )
    if header.sender != expected.sender:
        raise Refused(
            Code.SENDER, f"a message of node {header.sender} came over the link to node {expected.sender}; refused"
        )
    if header.round != expected.round:
        raise Refused(
            Code.ROUND, f"node {header.sender} sent round {header.round} where round {expected.round} is expected"
        )
    if array.dtype.str != dtype or (shape is not None and array.shape != shape):
        raise Refused(
            Code.SHAPE,
            f"node {header.sender} sent {array.dtype} of shape {array.shape} in {when(header.round)}, but "
            f"{np.dtype(dtype)} of shape {shape} is expected; do all nodes have the same features?",
        )
    if dtype == "<f8":
        _check_bound(header, array, bound, when)


def _check_bound(header: Header, array: NDArray[Any], bound: float, when: Callable[[int], str]) -> None:
    square = float(np.vdot(array, array))  # squares of finite numbers may overflow: then check each
    if square <= bound * bound and square < math.inf:
        return
    flat, sender = array.ravel(), header.sender
    if not np.isfinite(flat).all():
        raise Refused(Code.NUMBERS, f"node {sender} sent NaN or infinite numbers in {when(header.round)}; refused")
    norm = float(np.abs(flat).max()) if math.isinf(square) else math.sqrt(square)
    if norm > bound:
        raise Refused(
            Code.NORM,
            f"node {sender} sent numbers of norm {norm:.3g} in {when(header.round)}, and no honest node's are "
            f"over {bound:.3g}; refused",
        )


def expect(
    payload: bytes,
    expected: Header,
    shape: tuple[int, ...],
    bound: float = math.inf,
    when: Callable[[int], str] = "round {}".format,
) -> bytes:
    """The checksum of a message of numbers that is exactly what is expected; anything else is refused with the reason.

    If the first bytes are as expected, nothing needs parsing: only checksum and numbers are checked.
    """
    before, after, size, count = _numbers(expected.run, expected.sender, shape)
    head = before + expected.round.to_bytes(8, "little") + after
    if len(payload) == size and payload.startswith(head):
        digest = _checksum(payload)
        _check_bound(expected, np.frombuffer(payload, FLOATS, count, len(head)), bound, when)
        return digest
    message = read(payload)
    check(message, expected, shape, bound=bound, when=when)
    return message.digest


@lru_cache(maxsize=1024)
def _numbers(run: bytes, sender: int, shape: tuple[int, ...]) -> tuple[bytes, bytes, int, int]:
    """What stands around the round in a message of numbers, how many bytes it has, and how many numbers."""
    before, after, _ = _around(run, sender, FLOATS, shape)
    return before, after, size_of(shape), math.prod(shape)


def unpack(payload: bytes, expected: Header, shape: tuple[int, ...]) -> NDArray[Any]:
    """The array of such a message.

    Examples
    --------
    >>> unpack(pack(Header(bytes(16), 6, 2), np.zeros(3)), Header(bytes(16), 7, 2), (3,))
    Traceback (most recent call last):
    ...
    sottovoce.node.message.Refused: node 2 sent round 6 where round 7 is expected
    """
    expect(payload, expected, shape)
    return array_of(payload)


def pack_text(header: Header, value: Any, attached: tuple[bytes, ...] = ()) -> bytes:
    """Plain values, and whole messages attached to them, as one message."""
    text = json.dumps([value, [len(part) for part in attached]], allow_nan=False).encode()
    body = b"".join((struct.pack("<I", len(text)), text, *attached))
    return pack(header, np.frombuffer(body, dtype=np.uint8))


def unpack_text(message: Message) -> tuple[Any, tuple[bytes, ...]]:
    """What `pack_text` packed, from a message that was read and checked."""
    body = message.array.tobytes()
    try:
        (length,) = struct.unpack_from("<I", body)
        value, sizes = json.loads(body[4 : 4 + length], parse_constant=_no_number)
        if len(sizes) > ATTACHED or any(type(size) is not int or not 0 <= size <= len(body) for size in sizes):
            raise ValueError
        ends = list(accumulate(sizes, initial=4 + length))
        if ends[-1] != len(body):
            raise ValueError
        return value, tuple(body[a:b] for a, b in pairwise(ends))
    except (struct.error, ValueError, TypeError, RecursionError):
        raise Refused(Code.NOTICE, f"node {message.header.sender} sent a notice that cannot be read; refused") from None


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")
