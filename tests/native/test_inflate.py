"""Deflate is unpacked as zlib does it, and never past the end of either buffer."""

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import _native

STRATEGIES = (
    zlib.Z_DEFAULT_STRATEGY,
    zlib.Z_FILTERED,
    zlib.Z_HUFFMAN_ONLY,
    zlib.Z_RLE,
    zlib.Z_FIXED,
)
MOST = 1 << 18


def packed_by_zlib(data: bytes, level: int, strategy: int, wbits: int = 15) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, wbits, 8, strategy)
    return packer.compress(data) + packer.flush()


def unpacked_by_zlib(packed: bytes) -> bytes | None:
    """The twin: None if it is damaged, or cut off."""
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(packed, MOST + 1)
    except zlib.error:
        return None
    return found if unpacker.eof else None


def unpacked(packed: bytes, room: int = MOST) -> bytes | None:
    out = np.zeros(room, np.uint8)
    try:
        count = _native.unpack_zlib(packed, out)
    except ValueError:
        return None
    assert not out[count + 512 :].any()  # Copies may go a little past the end, within the buffer.
    return out[:count].tobytes()


def floats(seed: int, count: int) -> bytes:
    return np.random.default_rng(seed).random(count, np.float32).tobytes()


def words(seed: int, count: int) -> bytes:
    rng = np.random.default_rng(seed)
    return b" ".join(rng.choice([b"a", b"the", b"gate", b"penstock"], count).astype(bytes).tolist())


data = (
    st.binary(max_size=300)
    | st.builds(floats, st.integers(0, 99), st.integers(0, 4000))
    | st.builds(words, st.integers(0, 99), st.integers(0, 9000))
    | st.builds(
        lambda piece, times: piece * times, st.binary(min_size=1, max_size=9), st.integers(0, 9000)
    )
)
streams = st.builds(packed_by_zlib, data, st.integers(0, 9), st.sampled_from(STRATEGIES))


@settings(deadline=None)
@given(data, st.integers(0, 9), st.sampled_from(STRATEGIES))
def test_what_zlib_packed_comes_back_however_tight_the_room(content, level, strategy):
    packed = packed_by_zlib(content, level, strategy)
    assert unpacked(packed) == content
    assert unpacked(packed, len(content)) == content
    assert unpacked(packed + b"more", len(content)) == content
    out = np.zeros(len(content), np.uint8)
    bare = packed_by_zlib(content, level, strategy, -15)
    assert _native.unpack_deflate(bare + b"more", out) == (len(bare), len(content))
    assert out.tobytes() == content
    if content:
        with pytest.raises(BufferError, match=f"more than the {len(content) - 1} bytes of out"):
            _native.unpack_zlib(packed, out[:-1])


@settings(deadline=None)
@given(
    streams,
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), max_size=4),
    st.data(),
)
def test_what_is_damaged_is_refused_just_where_zlib_refuses_it(packed, changes, data):
    changed = bytearray(packed)
    for place, bits in changes:
        changed[place % len(changed)] ^= bits
    if data.draw(st.booleans()):
        del changed[data.draw(st.integers(0, len(changed))) :]
    wanted = unpacked_by_zlib(bytes(changed))
    if wanted is not None and len(wanted) > MOST:
        return
    try:
        assert unpacked(bytes(changed)) == wanted
    except BufferError:
        assert wanted is None  # It was going to be too long before the damage came.


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_just_where_zlib_refuses_them(body):
    packed = b"\x78\x9c" + body
    try:
        assert unpacked(packed) == unpacked_by_zlib(packed)
    except BufferError:
        assert len(unpacked_by_zlib(packed) or bytes(MOST + 1)) > MOST


@pytest.mark.parametrize(
    ("packed", "problem"),
    [
        (b"", "cut off"),
        (b"\x78", "cut off"),
        (b"no zlib at all", "no header of zlib"),
        (b"\x78\xbb" + bytes(20), "no header of zlib"),  # With a dictionary.
        (zlib.compress(bytes(100))[:-1], "cut off"),
        (zlib.compress(bytes(100))[:-4] + bytes(4), "checksum"),
        (b"\x78\x9c\x07", "damaged"),
    ],
)
def test_what_is_wrong_is_told(packed, problem):
    with pytest.raises(ValueError, match=problem):
        _native.unpack_zlib(packed, np.zeros(1000, np.uint8))


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 5535, 5536, 5537, 100_003])
def test_checksums_of_every_length_are_those_of_zlib(size):
    for content in (b"\xff" * size, np.random.default_rng(size).bytes(size)):
        assert unpacked(zlib.compress(content, 0)) == content


@pytest.mark.parametrize("unpack", [_native.unpack_zlib, _native.unpack_deflate])
def test_both_buffers_must_be_apart(unpack):
    memory = np.zeros(10, np.uint8)
    with pytest.raises(ValueError, match="must not share memory"):
        unpack(memory[:5], memory[4:])


@pytest.mark.parametrize("strategy", [zlib.Z_FIXED, zlib.Z_DEFAULT_STRATEGY])
def test_blocks_of_all_kinds_follow_each_other(strategy):
    data = [words(1, 300), b"", floats(2, 300), b"", b"", words(3, 2_000), b"x"]
    fixed = zlib.compressobj(9, zlib.DEFLATED, -15, 8, zlib.Z_FIXED)
    other = zlib.compressobj(6, zlib.DEFLATED, -15, 8, strategy)
    stored = zlib.compressobj(0, zlib.DEFLATED, -15)
    packed, plain = b"", b""
    for number, piece in enumerate(data * 3):
        packer = (fixed, other, stored)[number % 3]
        # Full flushes, so that no block refers to bytes that another packer had.
        packed += packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
        plain += piece
    packed += stored.flush()
    out = np.zeros(len(plain) + 512, np.uint8)
    assert _native.unpack_deflate(packed, out) == (len(packed), len(plain))
    assert out[: len(plain)].tobytes() == plain
