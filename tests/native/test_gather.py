import threading
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from native import twins
from penstock import _native

# Those with a copy of their own, their neighbours, and some around the cache lines and prefetches of the rest.
ROW_NBYTES = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 64, 65, 400, 1100, 5000])
BIGGEST = np.iinfo(np.int64).max


def random_bytes(shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


@st.composite
def sources(draw, row_nbytes):
    """Rows with every stride that NumPy can make: forward, with gaps, backward, and none at all."""
    num_rows = draw(st.integers(1, 50))
    array = random_bytes((num_rows * 2, row_nbytes + 3), seed=num_rows)
    array.flags.writeable = draw(st.booleans())
    kind = draw(st.sampled_from(["plain", "gaps", "backward", "same row"]))
    if kind == "plain":
        return np.ascontiguousarray(array[:num_rows, :row_nbytes])
    if kind == "gaps":
        return array[::2, 1 : 1 + row_nbytes]
    if kind == "backward":
        return array[num_rows - 1 :: -1, :row_nbytes]
    return np.broadcast_to(array[0, :row_nbytes], (num_rows, row_nbytes))


@st.composite
def outs(draw, row_nbytes):
    """Blocks as they come: groups with padding after them, rows with gaps, backward."""
    groups, group_rows = draw(st.integers(1, 12)), draw(st.integers(1, 80))
    group_gap, row_gap = draw(st.sampled_from([0, 1, 64])), draw(st.sampled_from([0, 5]))
    whole = np.full((groups, group_rows + group_gap, row_nbytes + row_gap), 0xEE, np.uint8)
    direction = draw(st.sampled_from([1, -1]))
    return whole, whole[::direction, :group_rows, :row_nbytes]


@st.composite
def jobs(draw):
    row_nbytes = draw(ROW_NBYTES)
    source = draw(sources(row_nbytes))
    whole, out = draw(outs(row_nbytes))
    num_slots = out.shape[0] * out.shape[1]
    count = draw(st.one_of(st.just(num_slots), st.integers(0, num_slots)))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = generator.integers(0, len(source), count)
    at = generator.permutation(num_slots)[:count] if draw(st.booleans()) else None
    return source, rows, whole, out, at


@given(jobs())
def test_gather_agrees_with_its_twin_and_writes_nothing_else(job):
    source, rows, whole, out, at = job
    start, step = (0, 1) if out.strides[0] > 0 or len(out) == 1 else (None, -1)
    expected_whole = whole.copy()
    expected = expected_whole[start::step, : out.shape[1], : out.shape[2]]
    twins.gather(source, rows, expected, at)
    _native.gather(source, rows, out, at)
    np.testing.assert_array_equal(whole, expected_whole)


@given(jobs(), st.integers(0, 100), st.booleans())
def test_gather_from_two_places_is_that_from_both_together(job, cut, is_apart):
    source, rows, whole, out, at = job
    cut = min(cut, len(source))
    first, rest = source[:cut], source[cut:]
    if is_apart and first.flags.c_contiguous and rest.flags.c_contiguous:
        first, rest = first.copy(), rest.copy()
    start, step = (0, 1) if out.strides[0] > 0 or len(out) == 1 else (None, -1)
    expected_whole = whole.copy()
    expected = expected_whole[start::step, : out.shape[1], : out.shape[2]]
    twins.gather(first, rows, expected, at, rest)
    _native.gather(first, rows, out, at, rest)
    np.testing.assert_array_equal(whole, expected_whole)


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (np.zeros((2, 3), np.uint8), "rest must have"),
        (np.zeros((4, 4), np.uint8)[::2], "rest must have rows as far apart as source"),
        (np.zeros((2, 4), np.int8), "rest must hold uint8"),
    ],
)
def test_gather_refuses_a_wrong_rest(rest, message):
    with pytest.raises(ValueError, match=message):
        _native.gather(SOURCE, ROWS, OUT, None, rest)


def test_gather_refuses_a_row_beyond_the_rest_and_an_out_within_it():
    rest = np.zeros((2, 4), np.uint8)
    rows = np.array([len(SOURCE) + 2])
    with pytest.raises(IndexError, match=rf"must be in \[0, {len(SOURCE) + 2}\)"):
        _native.gather(SOURCE, rows, OUT, None, rest)
    with pytest.raises(ValueError, match="out must share no memory with rest"):
        _native.gather(SOURCE, rows[:0], rest.reshape(1, 2, 4), None, rest)


@pytest.mark.parametrize("row_nbytes", [4, 400])
@pytest.mark.parametrize("at", [False, True])
def test_gather_of_many_rows_is_a_take(row_nbytes, at):
    # Several of the chunks in which indexes are checked, the last one broken off.
    source = random_bytes((3000, row_nbytes))
    rows = np.random.default_rng(1).integers(0, 3000, 1777)
    slots = np.random.default_rng(2).permutation(1777) if at else None
    out = np.zeros((1, 1777, row_nbytes), np.uint8)
    _native.gather(source, rows, out, slots)
    np.testing.assert_array_equal(out[0] if slots is None else out[0][slots], source[rows])


def test_gather_of_no_rows_writes_nothing():
    out = np.full((1, 2, 3), 7, np.uint8)
    nothing = np.zeros(0, np.int64)
    _native.gather(np.zeros((0, 3), np.uint8), nothing, out)
    _native.gather(np.zeros((0, 3), np.uint8), nothing, out, nothing)
    assert (out == 7).all()


@pytest.mark.parametrize("shape", [(0, 4, 3), (4, 0, 3)])
def test_gather_accepts_an_out_without_slots(shape):
    out = np.zeros(shape, np.uint8)
    nothing = np.zeros(0, np.int64)
    _native.gather(np.zeros((5, 3), np.uint8), nothing, out)
    _native.gather(np.zeros((5, 3), np.uint8), nothing, out, nothing)
    with pytest.raises(IndexError, match=r"at\[0\] must be in \[0, 0\), got 0"):
        _native.gather(
            np.zeros((5, 3), np.uint8), np.zeros(1, np.int64), out, np.zeros(1, np.int64)
        )


@pytest.mark.parametrize("bad", [-1, 5, BIGGEST, -BIGGEST - 1])
@pytest.mark.parametrize("index", [0, 3, 600])
@pytest.mark.parametrize("at", [False, True])
def test_gather_refuses_a_row_out_of_range(bad, index, at):
    rows = np.zeros(601, np.int64)
    rows[index] = bad
    slots = np.arange(601) if at else None
    with pytest.raises(IndexError, match=rf"rows\[{index}\] must be in \[0, 5\), got {bad}\."):
        _native.gather(np.zeros((5, 4), np.uint8), rows, np.zeros((1, 601, 4), np.uint8), slots)


@pytest.mark.parametrize("bad", [-1, 600, BIGGEST, -BIGGEST - 1])
def test_gather_refuses_a_slot_out_of_range(bad):
    rows, slots = np.zeros(600, np.int64), np.arange(600)
    slots[-1] = bad
    with pytest.raises(IndexError, match=rf"at\[599\] must be in \[0, 600\), got {bad}\."):
        _native.gather(np.zeros((5, 4), np.uint8), rows, np.zeros((20, 30, 4), np.uint8), slots)


def test_gather_refuses_rows_of_an_empty_source():
    with pytest.raises(IndexError, match=r"rows\[0\] must be in \[0, 0\), got 0"):
        _native.gather(
            np.zeros((0, 4), np.uint8), np.zeros(1, np.int64), np.zeros((1, 1, 4), np.uint8)
        )


def test_gather_checks_rows_of_zero_bytes_too():
    with pytest.raises(IndexError, match=r"rows\[0\] must be in \[0, 2\), got 2"):
        _native.gather(
            np.zeros((2, 0), np.uint8), np.full(1, 2, np.int64), np.zeros((1, 1, 0), np.uint8)
        )


SOURCE = np.zeros((5, 4), np.uint8)
ROWS = np.zeros(6, np.int64)
OUT = np.zeros((2, 3, 4), np.uint8)


@pytest.mark.parametrize(
    ("source", "rows", "out", "at", "message"),
    [
        (SOURCE.view(np.int8), ROWS, OUT, None, "source must hold uint8, got format 'b'"),
        (SOURCE.view(np.float32), ROWS, OUT, None, "source must hold uint8, got format 'f' of 4"),
        (SOURCE.ravel(), ROWS, OUT, None, "source must have 2 dimensions, got 1"),
        (SOURCE.T.copy().T, ROWS, OUT, None, "source must be contiguous along its last axis"),
        (SOURCE, ROWS.astype(np.int32), OUT, None, "rows must hold int64"),
        (SOURCE, ROWS.astype(np.uint64), OUT, None, "rows must hold int64"),
        (SOURCE, np.zeros(12, np.int64)[::2], OUT, None, "rows must be contiguous"),
        (SOURCE, ROWS, OUT[0], None, "out must have 3 dimensions, got 2"),
        (SOURCE, ROWS, OUT.view(np.int8), None, "out must hold uint8"),
        (SOURCE, ROWS, OUT[..., :3], None, "out must have rows of 4 bytes like source, got 3"),
        (SOURCE, ROWS, np.zeros((2, 3, 8), np.uint8)[..., ::2], None, "out must be contiguous"),
        (SOURCE, ROWS, OUT[:1], None, "a slot for each row: got 6 rows for 3 slots"),
        (SOURCE, ROWS, OUT, ROWS[:5], "at must have the length of rows, 6, got 5"),
        (SOURCE, ROWS, OUT, ROWS.astype(np.int32), "at must hold int64"),
        (
            SOURCE,
            ROWS,
            np.frombuffer(bytes(24), np.uint8).reshape(2, 3, 4),
            None,
            "out must be wri",
        ),
        (
            SOURCE,
            ROWS,
            np.lib.stride_tricks.as_strided(OUT, (2, 3, 4), (12, 2, 1)),
            None,
            "out must not overlap itself: axis 1 has a stride of 2 bytes for rows of 4",
        ),
        (
            SOURCE,
            ROWS,
            np.lib.stride_tricks.as_strided(OUT, (2, 3, 4), (0, 4, 1)),
            None,
            "out must not overlap itself: axis 0 has a stride of 0",
        ),
    ],
)
def test_gather_refuses_a_wrong_array(source, rows, out, at, message):
    with pytest.raises(ValueError, match=message):
        _native.gather(source, rows, out, at)


def test_gather_refuses_an_out_within_its_source():
    memory = np.zeros(48, np.uint8)
    with pytest.raises(ValueError, match="out must share no memory with source"):
        _native.gather(memory[:28].reshape(7, 4), ROWS, memory[24:].reshape(2, 3, 4))


def test_gather_accepts_an_out_beside_its_source():
    memory = np.arange(48, dtype=np.uint8)
    _native.gather(memory[:24].reshape(6, 4), np.arange(6), memory[24:].reshape(2, 3, 4))
    np.testing.assert_array_equal(memory[24:], np.arange(24))


def test_gather_refuses_what_has_no_buffer():
    with pytest.raises(TypeError, match="rows must be an array, got list"):
        _native.gather(SOURCE, [0], OUT)


def test_gather_gives_its_buffers_back_after_an_error():
    memory = bytearray(20)
    with pytest.raises(IndexError):
        _native.gather(np.frombuffer(memory, np.uint8).reshape(5, 4), np.full(1, 9, np.int64), OUT)
    memory.extend(b"x")  # a bytearray that is still exported can't grow


def test_gather_survives_rows_that_change_under_it():
    # The values copied are anyone's guess, the reads must stay inside: run under `make sanitize`.
    source = np.zeros((1000, 64), np.uint8)
    rows = np.zeros(200_000, np.int64)
    out = np.zeros((1, rows.size, 64), np.uint8)
    stop = threading.Event()

    def scribble():
        while not stop.is_set():
            rows[::777] = BIGGEST
            rows[::777] = 0

    scribbler = threading.Thread(target=scribble)
    scribbler.start()
    try:
        for _ in range(30):
            with suppress(IndexError):
                _native.gather(source, rows, out)
    finally:
        stop.set()
        scribbler.join()
    assert not out.any()


# Spans.


@st.composite
def spans(draw):
    lengths = draw(st.lists(st.integers(0, 200), max_size=30))
    source = random_bytes(draw(st.integers(max([0, *lengths]), 1000)))
    starts = [draw(st.integers(0, len(source) - length)) for length in lengths]
    gaps = [draw(st.integers(0, 3)) for _ in lengths]
    ends = np.cumsum(np.array(lengths, np.int64) + np.array(gaps, np.int64))
    out_starts = ends - np.array(lengths, np.int64)
    out = np.full(int(ends[-1]) if lengths else 0, 0xEE, np.uint8)
    order = draw(st.permutations(range(len(lengths))))
    arrays = (np.array(values, np.int64)[list(order)] for values in (starts, lengths, out_starts))
    return source.tobytes() if draw(st.booleans()) else source, *arrays, out


@given(spans())
def test_gather_spans_agrees_with_its_twin(job):
    source, starts, lengths, out_starts, out = job
    expected = out.copy()
    twins.gather_spans(source, starts, lengths, expected, out_starts)
    _native.gather_spans(source, starts, lengths, out, out_starts)
    np.testing.assert_array_equal(out, expected)


def one_span(start, length, out_start):
    arrays = [np.array([value], np.int64) for value in (start, length, out_start)]
    _native.gather_spans(bytes(10), arrays[0], arrays[1], np.zeros(8, np.uint8), arrays[2])


@pytest.mark.parametrize("span", [(0, 8, 0), (2, 8, 0), (10, 0, 8), (0, 0, 0), (9, 1, 7)])
def test_gather_spans_reaches_both_ends(span):
    one_span(*span)


@pytest.mark.parametrize("length", [-1, -BIGGEST - 1])
def test_gather_spans_refuses_a_negative_length(length):
    with pytest.raises(ValueError, match=rf"lengths\[0\] must be at least 0, got {length}\."):
        one_span(0, length, 0)


@pytest.mark.parametrize(
    ("start", "length"), [(-1, 1), (10, 1), (11, 0), (3, 8), (BIGGEST, 8), (BIGGEST, 0), (0, 11)]
)
def test_gather_spans_refuses_a_span_outside_its_source(start, length):
    message = rf"starts\[0\] must leave room for {length} bytes in the 10 of source, got {start}\."
    with pytest.raises(IndexError, match=message):
        one_span(start, length, 0)


def test_gather_spans_refuses_a_length_that_would_overflow():
    with pytest.raises(IndexError, match=rf"leave room for {BIGGEST} bytes"):
        one_span(1, BIGGEST, 0)


@pytest.mark.parametrize(("out_start", "length"), [(-1, 1), (8, 1), (9, 0), (1, 8), (BIGGEST, 8)])
def test_gather_spans_refuses_a_span_outside_its_out(out_start, length):
    message = (
        rf"out_starts\[0\] must leave room for {length} bytes in the 8 of out, got {out_start}"
    )
    with pytest.raises(IndexError, match=message):
        one_span(0, length, out_start)


@pytest.mark.parametrize("which", ["lengths", "out_starts"])
def test_gather_spans_refuses_arrays_of_unequal_length(which):
    arrays = {name: np.zeros(3, np.int64) for name in ("starts", "lengths", "out_starts")}
    arrays[which] = np.zeros(2, np.int64)
    with pytest.raises(ValueError, match=f"{which} must have the length of starts, 3, got 2"):
        _native.gather_spans(bytes(10), out=np.zeros(8, np.uint8), **arrays)


@pytest.mark.parametrize(
    ("source", "out", "message"),
    [
        (np.zeros(10, np.int8), np.zeros(8, np.uint8), "source must hold uint8"),
        (np.zeros(20, np.uint8)[::2], np.zeros(8, np.uint8), "source must be contiguous"),
        (np.zeros((10, 1), np.uint8), np.zeros(8, np.uint8), "source must have 1 dimensions"),
        (bytes(10), bytes(8), "out must be writable"),
        (bytes(10), np.zeros(16, np.uint8)[::2], "out must be contiguous"),
    ],
)
def test_gather_spans_refuses_a_wrong_array(source, out, message):
    nothing = np.zeros(0, np.int64)
    with pytest.raises(ValueError, match=message):
        _native.gather_spans(source, nothing, nothing, out, nothing)


def test_gather_spans_refuses_an_out_within_its_source():
    memory = np.zeros(10, np.uint8)
    nothing = np.zeros(0, np.int64)
    with pytest.raises(ValueError, match="out must share no memory with source"):
        _native.gather_spans(memory, nothing, nothing, memory[4:], nothing)
