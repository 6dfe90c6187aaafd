"""The wire format: round trips, and every damaged, cut, foreign or made-up message refused with a reason."""

import json
import struct
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sottovoce.errors import NetworkError
from sottovoce.node.message import CHECK, Header, pack, pack_text, read, unpack, unpack_text

MARK = bytes(range(16))
headers = st.builds(Header, st.binary(min_size=16, max_size=16), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
arrays = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=1, max_dims=4, max_side=5),
    elements=st.floats(allow_nan=False, allow_infinity=False),
)
HEADER = Header(MARK, 7, 2)
PAYLOAD = pack(HEADER, np.arange(6.0).reshape(1, 6))


@given(headers, arrays)
def test_what_is_packed_comes_back_bit_for_bit(header, array):
    payload = pack(header, array)
    assert payload == pack(header, array.copy())
    again = unpack(payload, header, array.shape)
    assert again.tobytes() == array.tobytes() and read(payload).header == header


@given(st.integers(0, len(PAYLOAD) - 1), st.integers(1, 255))
def test_a_flipped_byte_is_refused(place, change):
    damaged = bytearray(PAYLOAD)
    damaged[place] ^= change
    with pytest.raises(NetworkError):
        unpack(bytes(damaged), HEADER, (1, 6))


@given(st.integers(0, len(PAYLOAD) - 1))
def test_a_message_that_was_cut_short_is_refused(length):
    with pytest.raises(NetworkError):
        unpack(PAYLOAD[:length], HEADER, (1, 6))


@given(st.binary(max_size=300))
def test_anything_else_is_refused(junk):
    with pytest.raises(NetworkError):
        read(junk)
    with pytest.raises(NetworkError):
        read(PAYLOAD + junk + b"\0")


def resealed(payload):
    """What someone who knows the format could write: the checksum is right again."""
    return payload[:-CHECK] + sha256(payload[:-CHECK]).digest()


@given(st.integers(0, len(PAYLOAD) - CHECK - 1), st.binary(min_size=1, max_size=8))
def test_a_forger_with_a_right_checksum_gets_an_error_or_a_whole_message(place, patch):
    forged = bytearray(PAYLOAD)
    forged[place : place + len(patch)] = patch[: len(PAYLOAD) - CHECK - place]
    try:
        array = unpack(resealed(bytes(forged)), HEADER, (1, 6))
    except NetworkError:
        return
    assert array.shape == (1, 6) and np.isfinite(array).all()


@pytest.mark.parametrize(
    ("header", "array", "reason"),
    [
        (Header(bytes(16), 7, 2), np.zeros((1, 6)), "belongs to run"),
        (Header(MARK, 8, 2), np.zeros((1, 6)), "sent round 8 where round 7"),
        (Header(MARK, 7, 3), np.zeros((1, 6)), "came over the link to node 2"),
        (HEADER, np.zeros((6, 1)), "shape"),
        (HEADER, np.zeros(6), "shape"),
        (HEADER, np.zeros((1, 6), dtype=np.uint8), "uint8"),
        (HEADER, np.array([[0.0, np.nan, 0, 0, 0, 0]]), "NaN"),
        (HEADER, np.array([[0.0, np.inf, 0, 0, 0, 0]]), "NaN or infinite"),
    ],
)
def test_what_belongs_elsewhere_is_refused_by_name(header, array, reason):
    with pytest.raises(NetworkError, match=reason):
        unpack(pack(header, array), HEADER, (1, 6))


def test_another_version_is_distinguished_from_damage():
    other = bytearray(PAYLOAD)
    struct.pack_into("<H", other, 4, 9)
    with pytest.raises(NetworkError, match="version 9"):
        read(resealed(bytes(other)))


def test_shapes_too_large_for_any_memory_are_refused_without_allocating_them():
    made_up = bytearray(PAYLOAD)
    struct.pack_into("<2Q", made_up, 40, 2**40, 2**40)
    with pytest.raises(NetworkError, match="does not fill"):
        read(resealed(bytes(made_up)))


@pytest.mark.parametrize(
    "array", [np.zeros((1, 3), dtype=np.float32), np.float64(3), np.zeros((1,) * 5), np.zeros(2, "O")]
)
def test_only_what_can_be_read_back_is_packed(array):
    with pytest.raises(NetworkError):
        pack(HEADER, np.asarray(array))


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none()), st.lists(st.binary(max_size=50), max_size=3))
def test_notices_come_back_with_what_is_attached(value, attached):
    message = read(pack_text(HEADER, value, tuple(attached)))
    assert unpack_text(message) == (value, tuple(attached))


@given(hnp.arrays(np.uint8, st.integers(1, 60)))
def test_a_notice_that_makes_no_sense_is_refused(body):
    with pytest.raises(NetworkError, match="cannot be read"):
        unpack_text(read(pack(HEADER, body)))


def text_of(value, sizes, body=b""):
    text = json.dumps([value, sizes]).encode()
    whole = struct.pack("<I", len(text)) + text + body
    return read(pack(HEADER, np.frombuffer(whole, dtype=np.uint8)))


def test_sizes_of_attachments_do_not_wrap_around():
    """Sums of 64 bits that come back to where they were would make hundreds of copies of one body."""
    size = 4096
    around = [size, 2**63 - 1, 2**63 - 1 - size, 2]
    for sizes in (around * 10 + [size], [10**400], [size, -size, size], [0] * 65 + [size], [True] * size, [0.5]):
        with pytest.raises(NetworkError, match="cannot be read"):
            unpack_text(text_of({}, sizes, bytes(size)))
    assert unpack_text(text_of({}, [0] * 63 + [size], bytes(size)))[1][-1] == bytes(size)


def test_a_notice_holds_no_nan():
    with pytest.raises(NetworkError, match="cannot be read"):
        unpack_text(text_of({"sigma": float("nan")}, []))
