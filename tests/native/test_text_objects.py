"""Rows of text become Python objects as slicing and decoding them does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import _native

PLAIN = st.text(st.characters(max_codepoint=127), max_size=70)
ROWS = st.lists(st.text(st.characters(), max_size=20) | PLAIN)


@given(ROWS, st.data())
def test_objects_are_the_rows(rows, data):
    encoded = [row.encode("utf-8", "surrogatepass") for row in rows]
    memory = np.frombuffer(b"".join(encoded), np.uint8)
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in encoded])]).astype(np.int64)
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(rows))] * 2)))
    for is_str, wanted in ((True, rows), (False, encoded)):
        found = _native.text_objects(memory, offsets, start, stop, is_str)
        assert (found.dtype, found.shape) == (np.dtype(object), (stop - start,))
        assert found.tolist() == wanted[start:stop]


def test_what_is_outside_is_refused():
    memory, offsets = np.zeros(4, np.uint8), np.array([0, 2, 9], np.int64)
    assert _native.text_objects(memory, offsets, 0, 1, False).tolist() == [b"\0\0"]
    with pytest.raises(IndexError, match="row 1 reaches outside data"):
        _native.text_objects(memory, offsets, 0, 2, False)
    with pytest.raises(IndexError, match="row 0 reaches outside data"):
        _native.text_objects(memory, offsets[::-1].copy(), 0, 1, True)
    for start, stop in ((-1, 1), (1, 0), (0, 3)):
        with pytest.raises(IndexError, match=f"rows {start} to {stop} are not among the 2"):
            _native.text_objects(memory, offsets, start, stop, True)
    with pytest.raises(IndexError, match="are not among the -1"):
        _native.text_objects(memory, offsets[:0], 0, 0, True)
    with pytest.raises(UnicodeDecodeError):
        _native.text_objects(np.full(2, 255, np.uint8), offsets[:2], 0, 1, True)


@given(ROWS, st.data())
def test_slices_are_the_same_rows_several_at_a_time(rows, data):
    encoded = [row.encode("utf-8", "surrogatepass") for row in rows]
    memory = np.frombuffer(b"".join(encoded), np.uint8)
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in encoded])]).astype(np.int64)
    pairs = data.draw(st.lists(st.tuples(*[st.integers(0, len(rows))] * 2).map(sorted), max_size=5))
    starts, stops = np.array(pairs, np.int64).reshape(-1, 2).T.copy()
    for is_str, wanted in ((True, rows), (False, encoded)):
        found = _native.TextSlices(memory, offsets, starts, stops, is_str)
        assert iter(found) is found
        assert [one.tolist() for one in found] == [wanted[a:b] for a, b in pairs]
        assert list(found) == []


def test_slices_that_are_not_there_are_refused_one_by_one():
    memory, offsets = np.zeros(4, np.uint8), np.array([0, 2, 4], np.int64)
    slices = _native.TextSlices(memory, offsets, np.array([0, 1]), np.array([1, 3]), False)
    assert next(slices).tolist() == [b"\0\0"]
    with pytest.raises(IndexError, match="rows 1 to 3 are not among the 2"):
        next(slices)
    with pytest.raises(ValueError, match="stops must have the length of starts, 2, got 1"):
        _native.TextSlices(memory, offsets, np.array([0, 1]), np.array([1]), False)


def test_slices_keep_their_memory():
    memory, offsets = bytearray(b"abcd"), np.array([0, 2, 4], np.int64)
    slices = _native.TextSlices(memory, offsets, np.array([0]), np.array([2]), True)
    with pytest.raises(BufferError):
        memory.clear()
    assert next(slices).tolist() == ["ab", "cd"]
    del slices
    memory.clear()


@pytest.mark.parametrize("size", [2, 7, 8, 9, 15, 16, 17, 31, 33, 100])
def test_one_byte_that_is_not_ascii_is_found_wherever_it_is(size):
    for place in range(size - 1):
        text = "a" * place + "\u00e9" + "b" * (size - place - 2)
        data = np.frombuffer(text.encode(), np.uint8)
        assert len(data) == size
        found = _native.text_objects(data, np.array([0, size]), 0, 1, True)
        assert found.tolist() == [text]
