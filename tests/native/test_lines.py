"""Records of CSV, and lines of text, are found as plain Python finds them, whatever the quotes."""

import csv
import io
import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from native import twins
from penstock import _native

COMMA, TAB, QUOTE, TEXT = ord(","), ord("\t"), ord('"'), -1
PIECES = [
    b"a",
    b"\n",
    b"\r\n",
    b"\r",
    b'"',
    b'""',
    b",",
    b"\t",
    b"12",
    b" ",
    b"x" * 70,
    b',"b,\nc",',
    b"0x1",
    b"nan(",
]
DATA = st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join)
SEPARATORS = st.sampled_from([COMMA, TAB, TEXT])


def scan(data, separator, most, *, is_last=True, room=200):
    ends, rows = np.zeros(room, np.int64), np.zeros(room, np.int64)
    lengths = np.zeros(_native.NUM_LENGTHS, np.int64)
    count, flags, fault, unclosed = _native.scan_lines(
        data, separator, QUOTE, most, is_last, ends, rows, lengths
    )
    return ends[:count].tolist(), rows[:count].tolist(), lengths, flags, fault, unclosed


def longest(bucket):
    """The longest record that is counted in a bucket."""
    if bucket < 16:
        return bucket
    return ((bucket % 8 + 9) << (bucket // 8 - 1)) - 1


@given(DATA, SEPARATORS, st.integers(1, 200), st.booleans())
def test_runs_are_those_of_the_twin(data, separator, most, is_last):
    wanted, contents = twins.runs(data, separator, QUOTE, most, is_last)
    ends, rows, lengths, flags, fault, unclosed = scan(data, separator, most, is_last=is_last)
    assert ends == wanted
    assert rows == [len(run) for run in contents]
    sizes = sorted(len(record) for run in contents for record in run)
    bounds = [longest(bucket) for bucket in np.repeat(np.arange(len(lengths)), lengths).tolist()]
    assert len(bounds) == len(sizes)
    assert all(size <= bound <= size * 9 / 8 for size, bound in zip(sizes, bounds, strict=True))
    _, faults, open_quote = twins.records(data, separator, QUOTE, is_last)
    assert (fault, unclosed) == (faults[0] if faults else -1, open_quote)
    if separator != TEXT and open_quote < 0:
        assert bool(flags & _native.HAS_HEX) == (b"0x" in data)
        assert bool(flags & _native.HAS_NAN) == (b"n(" in data)
        is_quoted = re.search(rb"(?:^|[\r\n]|" + re.escape(bytes([separator])) + rb')"', data)
        assert bool(flags & _native.HAS_QUOTES) == bool(is_quoted)


@given(DATA, SEPARATORS)
def test_records_begin_and_end_where_the_twin_says(data, separator):
    found, _, _ = twins.records(data, separator, QUOTE)
    starts, stops = np.zeros(200, np.int64), np.zeros(200, np.int64)
    count = _native.split_lines(data, separator, QUOTE, starts, stops)
    assert starts[:count].tolist() == [start for _, start, _ in found]
    text = [data[start:end] for _, start, end in found]
    wanted = [one.removesuffix(b"\r") for one in text] if separator == TEXT else text
    assert [data[a:b] for a, b in zip(starts[:count], stops[:count], strict=True)] == wanted
    if count:
        few = np.zeros(count - 1, np.int64)
        assert _native.split_lines(data, separator, QUOTE, few, few.copy()) == count


@given(DATA, st.integers(0, 5), st.integers(0, 50))
def test_lines_are_copied_as_the_twin_finds_them(data, first, count):
    found, _, _ = twins.records(data, TEXT, QUOTE)
    lines = [data[start:end].removesuffix(b"\r") for _, start, end in found]
    wanted = lines[first : first + count]
    out, offsets = np.zeros(len(data), np.uint8), np.zeros(count + 1, np.int64)
    size = sum(map(len, wanted))
    assert _native.copy_lines(data, first, out, offsets) == (len(lines), size, True)
    edges = [0, *itertools.accumulate(map(len, wanted))]
    assert offsets[: len(edges)].tolist() == edges
    assert out[:size].tobytes() == b"".join(wanted)
    if size:
        assert _native.copy_lines(data, first, out[: size - 1], offsets)[0] == -1


ROOM = 1 << 18  # What a job reads at once.


def job_copies(path, offset, nbytes, num_lines, first, count, room=None):
    """Return the lines that a job copies, or None if it is not good."""
    out = np.zeros(nbytes if room is None else room, np.uint8)
    offsets = np.zeros(count + 1, np.int64)
    with path.open("rb") as file:
        job = _native.line_job(file.fileno(), offset, nbytes, num_lines, first, out, offsets)
    job.run()  # The file is closed by now: a job has a descriptor of its own.
    assert job.is_done
    if not job.is_good:
        return None
    return [out[a:b].tobytes() for a, b in itertools.pairwise(offsets.tolist())]


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("width", [1, 90, 1000, 65_536, ROOM - 3])
def test_a_job_copies_the_lines_of_a_file_in_pieces_as_one_call_does(tmp_path, width, end, is_open):
    random = np.random.default_rng(width)
    lengths = random.integers(width // 2, width + 1, max(3, 3 * ROOM // (width + 20)))
    lines = [*(b"x" * int(length) for length in lengths), b"last"]
    path = tmp_path / "lines"
    data = b"before\n" + end.join(lines) + (b"" if is_open else end)
    path.write_bytes(data)
    nbytes = len(data) - 7
    assert job_copies(path, 7, nbytes, len(lines), 0, len(lines)) == lines
    assert job_copies(path, 7, nbytes, len(lines), 1, len(lines) - 2) == lines[1:-1]


@given(st.binary(max_size=60), st.integers(0, 3), st.integers(0, 4))
def test_a_job_is_good_where_one_call_is(tmp_path_factory, data, first, count):
    path = tmp_path_factory.getbasetemp() / "data"
    path.write_bytes(data)
    out, offsets = np.zeros(60, np.uint8), np.zeros(count + 1, np.int64)
    num_lines, _, is_utf8 = _native.copy_lines(data, first, out, offsets)
    found = job_copies(path, 0, len(data), num_lines, first, count)
    if not is_utf8:
        assert found is None
    else:
        assert found == [out[a:b].tobytes() for a, b in itertools.pairwise(offsets.tolist())]
    assert job_copies(path, 0, len(data), num_lines + 1, first, count) is None
    assert job_copies(path, 0, len(data) + 1, num_lines, first, count) is None


def test_a_job_that_can_not_read_is_not_good(tmp_path):
    path = tmp_path / "long"
    path.write_bytes(b"x" * ROOM + b"\n" + b"y\n")
    assert job_copies(path, 0, ROOM + 3, 2, 0, 2) is None  # A line has no room.
    assert job_copies(path, ROOM + 1, 2, 1, 0, 1) == [b"y"]
    assert job_copies(path, ROOM + 1, 2, 1, 0, 1, room=0) is None  # Nor have the lines.
    out, offsets = np.zeros(9, np.uint8), np.zeros(2, np.int64)
    job = _native.line_job(-1, 0, 1, 1, 0, out, offsets)
    job.run()
    assert not job.is_good
    with pytest.raises(ValueError, match="offset and nbytes must be at least 0"):
        _native.line_job(0, -1, 1, 1, 0, out, offsets)
    with pytest.raises(ValueError, match="one more than the lines"):
        _native.line_job(0, 0, 1, 1, 0, out, offsets[:0])


def test_copied_lines_need_not_be_utf8_and_arguments_are_checked():
    out, offsets = np.zeros(9, np.uint8), np.zeros(2, np.int64)
    assert _native.copy_lines(b"a\n\xff\n", 0, out, offsets) == (2, 1, False)
    with pytest.raises(ValueError, match="one more than the lines"):
        _native.copy_lines(b"a", 0, out, offsets[:0])
    for first in (-1, 1 << 62):
        with pytest.raises(ValueError, match="first must be 0 or more"):
            _native.copy_lines(b"a", first, out, offsets)
    with pytest.raises(ValueError, match="apart from the text"):
        _native.copy_lines(out, 0, out[1:], offsets)


CELLS = st.text(st.sampled_from('ab,"\n\r '), max_size=5)


@given(
    st.lists(st.lists(CELLS, min_size=2, max_size=3), max_size=12),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_records_are_the_rows_of_python_s_csv(rows, end):
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=end).writerows(rows)
    data = text.getvalue().encode()
    reader = csv.reader(io.StringIO(text.getvalue(), newline=""), strict=True)
    found = [row for row in reader if row]
    _, counts, _, _, fault, unclosed = scan(data, COMMA, 1000)
    assert (sum(counts), fault, unclosed) == (len(found), -1, -1)


@given(DATA, SEPARATORS, st.integers(1, 60), st.integers(1, 100))
def test_a_file_in_pieces_has_the_runs_of_the_whole(data, separator, most, nbytes):
    whole = scan(data, separator, most)
    if whole[-1] >= 0:
        return
    at, found, counts, total = 0, [], [], np.zeros(_native.NUM_LENGTHS, np.int64)
    step = nbytes
    while at < len(data):
        is_last = at + step >= len(data)
        ends, rows, lengths, *_ = scan(data[at : at + step], separator, most, is_last=is_last)
        found += [at + end for end in ends]
        counts += rows
        total += lengths
        at, step = (at + ends[-1], nbytes) if ends else (at, 2 * step)
        if is_last:
            break
    assert counts == whole[1]
    assert (total == whole[2]).all()
    # Blank lines at the end may be of another run.
    assert found[:-1] == whole[0][:-1]


def test_long_text_without_any_mark_and_marks_at_all_places():
    for size in (0, 1, 63, 64, 65, 127, 128, 129, 1000):
        assert scan(b"y" * size, COMMA, 10)[:2] == (([size], [1]) if size else ([], []))
        for at in range(0, size, 7):
            data = bytearray(b"y" * size)
            data[at] = ord("\n")
            ends, rows = scan(bytes(data), TEXT, 10_000)[:2]
            assert (ends, rows) == ([size], [2 if at + 1 < size else 1])


def test_arguments_are_checked():
    few = np.zeros(1, np.int64)
    lengths = np.zeros(_native.NUM_LENGTHS, np.int64)
    with pytest.raises(ValueError, match="ends must have room for every run, got 1"):
        scan(b"a\nb\nc\n", TEXT, 1, room=1)
    with pytest.raises(ValueError, match="most must be at least 1, got 0"):
        scan(b"a", TEXT, 0)
    with pytest.raises(ValueError, match="rows must have the length of ends, 1, got 2"):
        _native.scan_lines(b"a", TEXT, QUOTE, 1, True, few, np.zeros(2, np.int64), lengths)
    with pytest.raises(ValueError, match="lengths must have the length of the buckets, 512, got 1"):
        _native.scan_lines(b"a", TEXT, QUOTE, 1, True, few, few.copy(), few.copy())
    with pytest.raises(ValueError, match="stops must have the length of starts"):
        _native.split_lines(b"a", TEXT, QUOTE, few, lengths)
    for separator, quote in ((300, QUOTE), (-2, QUOTE), (COMMA, -1)):
        with pytest.raises(ValueError, match="must be bytes"):
            _native.split_lines(b"a", separator, quote, few, few.copy())
    for separator, quote in ((ord("\n"), QUOTE), (COMMA, ord("\r")), (0, QUOTE)):
        with pytest.raises(ValueError, match="must not be 0 or end lines"):
            _native.split_lines(b"a", separator, quote, few, few.copy())
    with pytest.raises(ValueError, match="must differ"):
        _native.split_lines(b"a", QUOTE, QUOTE, few, few.copy())


@given(DATA, SEPARATORS, st.lists(st.integers(0, 200), max_size=4))
def test_line_feeds_outside_quotes_are_found_wherever_pieces_are_cut(data, separator, cuts):
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    found, state = [], 0
    for start, stop in itertools.pairwise(edges):
        first, last, state = _native.line_ends(data[start:stop], separator, QUOTE, state)
        found += [start + end for end in (first, last) if end]
    records, _, _ = twins.records(data, separator, QUOTE)
    inside = {at for _, start, end in records for at in range(start, end)}
    _, _, unclosed = twins.records(data, separator, QUOTE)
    stop = len(data) if unclosed < 0 else unclosed
    wanted = [at + 1 for at in range(stop) if data[at] == ord("\n") and at not in inside]
    assert set(found) <= set(wanted)
    assert not wanted or (found[0], found[-1]) == (wanted[0], wanted[-1])
    with pytest.raises(ValueError, match="state must be 0 to 3, got 4"):
        _native.line_ends(data, separator, QUOTE, 4)


CHARACTERS = st.text(st.characters(codec="utf-8"), max_size=30).map(str.encode)
BROKEN = [
    b"\xff",
    b"\xc0\x80",
    b"\xe0\x80\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xf0\x80\x80\x80",
    b"\xc3",
    b"\xe2\x82",
    b"\xf0\x9f\x98",
    b"\x80",
]


@given(
    st.lists(
        CHARACTERS
        | st.binary(max_size=4)
        | st.sampled_from([*BROKEN, b"plain text of ASCII only. " * 3])
    ).map(b"".join)
)
def test_utf8_is_what_python_decodes(data):
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        assert not _native.is_utf8(data)
    else:
        assert _native.is_utf8(data)
