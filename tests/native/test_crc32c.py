"""Checksums of bytes, of spans, of runs of rows, and of two pieces together, against plain Python."""

import itertools
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import _native

from . import tfrecord_twins as twins

CASTAGNOLI, IEEE = 0x82F63B78, 0xEDB88320


@given(st.binary(max_size=300), st.binary(max_size=5000), st.booleans())
def test_a_checksum_goes_on_from_that_of_the_bytes_before(first, second, portable):
    before = _native.crc32c(first)
    whole = _native.crc32c(second, before=before, portable=portable)
    assert whole == twins.crc32c(first + second)


@pytest.mark.parametrize("nbytes", [16_319, 16_320, 16_321, 32_640, 50_000, 65_536, 100_001])
@pytest.mark.parametrize("skipped", [0, 1, 7])
def test_checksums_of_many_bytes_are_those_of_the_tables(nbytes, skipped):
    content = np.random.default_rng(nbytes).integers(0, 256, nbytes + skipped, np.uint8)[skipped:]
    found = _native.crc32c(content, before=5)
    assert found == _native.crc32c(content, before=5, portable=True)
    content[nbytes // 2] ^= 1
    assert found != _native.crc32c(content, before=5)


@given(st.binary(max_size=500), st.binary(max_size=500))
def test_checksums_of_two_pieces_are_combined(first, second):
    found = _native.combined_crc(
        zlib.crc32(first), zlib.crc32(second), len(second), polynomial=IEEE
    )
    assert found == zlib.crc32(first + second)
    sums = _native.crc32c(first), _native.crc32c(second)
    found = _native.combined_crc(*sums, len(second), polynomial=CASTAGNOLI)
    assert found == _native.crc32c(first + second)


def test_pieces_of_many_bytes_are_combined():
    first, second = bytes(range(256)) * 30, b"\x07" * (3 << 20)
    found = _native.combined_crc(
        zlib.crc32(first), zlib.crc32(second), len(second), polynomial=IEEE
    )
    assert found == zlib.crc32(first + second)


@given(st.binary(max_size=3000), st.data())
def test_each_span_has_its_checksum(content, data):
    edges = sorted(data.draw(st.lists(st.integers(0, len(content)), min_size=1, max_size=9)))
    out = np.zeros(len(edges) - 1, np.uint32)
    _native.crc32c_of_spans(content, np.array(edges, np.int64), out)
    wanted = [twins.crc32c(content[a:b]) for a, b in itertools.pairwise(edges)]
    assert out.tolist() == wanted


@pytest.mark.parametrize("edges", [[0, 11], [-1, 5], [5, 3]])
def test_edges_outside_the_data_are_refused(edges):
    with pytest.raises(ValueError, match="edges must rise"):
        _native.crc32c_of_spans(bytes(10), np.array(edges), np.zeros(1, np.uint32))


def bounds_of(run, run_rows, lead, num_rows):
    start = run * run_rows - lead
    return max(0, start), min(num_rows, start + run_rows)


@given(st.data())
def test_the_first_bad_run_is_the_one_that_plain_python_finds(data):
    num_rows = data.draw(st.integers(1, 40))
    run_rows = data.draw(st.integers(1, 12))
    lead = data.draw(st.integers(0, run_rows - 1))
    width = data.draw(st.integers(1, 9))
    content = np.random.default_rng(0).integers(0, 256, (num_rows, width), np.uint8)
    num_runs = -(-(num_rows + lead) // run_rows)
    runs = [range(*bounds_of(run, run_rows, lead, num_rows)) for run in range(num_runs)]
    expected = np.array(
        [twins.crc32c(content[r.start : r.stop].tobytes()) for r in runs], np.uint32
    )
    damaged = content.copy()
    for row in data.draw(st.sets(st.integers(0, num_rows - 1), max_size=3)):
        damaged[row, data.draw(st.integers(0, width - 1))] ^= 16
    stretches, memory = [], bytearray()
    for _ in range(data.draw(st.integers(1, 5))):
        goes_on = stretches and data.draw(st.booleans())
        row = sum(stretches[-1][::2]) if goes_on else data.draw(st.integers(0, num_rows - 1))
        if row == num_rows:
            break
        length = data.draw(st.integers(1, num_rows - row))
        memory += bytes(data.draw(st.integers(0, 3)))  # A gap.
        stretches.append((row, len(memory), length))
        memory += damaged[row : row + length].tobytes()
    found = _native.first_bad_run(
        bytes(memory),
        np.array(stretches, np.int64),
        width=width,
        run_rows=run_rows,
        lead=lead,
        num_rows=num_rows,
        expected=expected,
    )
    rows = [row + k for row, _, length in stretches for k in range(length)]
    wanted = -1
    for at in range(len(rows)):
        run = (rows[at] + lead) // run_rows
        whole = list(runs[run])
        is_whole = rows[max(0, at + 1 - len(whole)) : at + 1] == whole
        if is_whole and (damaged[whole] != content[whole]).any():
            wanted = run
            break
    assert found == wanted


GOOD = {
    "data": bytes(12),
    "stretches": np.array([[0, 0, 3]]),
    "width": 4,
    "run_rows": 2,
    "lead": 0,
    "num_rows": 3,
    "expected": np.zeros(2, np.uint32),
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"stretches": np.array([[0, 1, 3]])},
        {"stretches": np.array([[1, 0, 3]])},
        {"stretches": np.array([[0, -4, 1]])},
        {"stretches": np.array([[0, 0, 1 << 62]])},
        {"stretches": np.array([[0, 0, 0]])},
        {"stretches": np.array([[0, 0]])},
        {"expected": np.zeros(3, np.uint32)},
        {"expected": np.zeros(2, np.int64)},
        {"lead": 2},
        {"width": 0},
        {"run_rows": 0},
    ],
)
def test_what_does_not_fit_together_is_refused(wrong):
    arguments = GOOD | wrong
    with pytest.raises(ValueError, match=r"must"):
        _native.first_bad_run(arguments.pop("data"), arguments.pop("stretches"), **arguments)
