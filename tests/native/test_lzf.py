"""LZF is unpacked as plain Python does it, and never past the end of either buffer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import _native


def unpacked(packed):
    """The twin: None if it is damaged."""
    out = bytearray()
    at = 0
    while at < len(packed):
        control = packed[at]
        at += 1
        if control < 32:
            if at + control + 1 > len(packed):
                return None
            out += packed[at : at + control + 1]
            at += control + 1
            continue
        length = control >> 5
        if length == 7:
            if at >= len(packed):
                return None
            length += packed[at]
            at += 1
        if at >= len(packed):
            return None
        start = len(out) - ((control & 31) << 8) - packed[at] - 1
        at += 1
        if start < 0:
            return None
        for place in range(start, start + length + 2):
            out.append(out[place])
    return bytes(out)


literal = st.binary(min_size=1, max_size=32).map(lambda data: bytes([len(data) - 1]) + data)
short = st.tuples(st.integers(1, 6), st.integers(0, 40)).map(lambda p: bytes([p[0] << 5, p[1]]))
long = st.tuples(st.integers(0, 255), st.integers(0, 40)).map(lambda p: bytes([7 << 5, *p]))


@given(st.lists(literal | short | long, max_size=30).map(b"".join) | st.binary(max_size=60))
def test_it_unpacks_as_plain_python_does(packed):
    wanted = unpacked(packed)
    out = np.zeros(10_000, np.uint8)
    if wanted is None:
        with pytest.raises(ValueError, match="no LZF, or cut off"):
            _native.unpack_lzf(packed, out)
        return
    assert out[: _native.unpack_lzf(packed, out)].tobytes() == wanted
    assert not out[len(wanted) :].any()
    if wanted:
        with pytest.raises(BufferError, match=f"more than the {len(wanted) - 1} bytes of out"):
            _native.unpack_lzf(packed, out[: len(wanted) - 1])


def test_both_buffers_must_be_apart():
    memory = np.zeros(10, np.uint8)
    with pytest.raises(ValueError, match="must not share memory"):
        _native.unpack_lzf(memory[:5], memory[4:])
