import itertools
import os
import tempfile
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from native.test_gather import outs, random_bytes
from penstock import _native

ROOM = 1 << 18  # What the kernel reads at once.
# Those with a copy of their own, some others, one that has few rows in the room, and one that fills it.
WIDTHS = st.sampled_from([1, 2, 3, 4, 8, 16, 100, 5000, 70_001, ROOM])


class Opened:
    """A file with rows after a few other bytes."""

    def __init__(self, rows, lead):
        handle, self.path = tempfile.mkstemp()
        os.close(handle)
        Path(self.path).write_bytes(b"\xaa" * lead + rows.tobytes())
        self.fd = os.open(self.path, os.O_RDONLY)

    def __enter__(self):
        return self.fd

    def __exit__(self, *_):
        os.close(self.fd)
        Path(self.path).unlink()


def numbers(draw, kind, num_rows, count):
    """Row numbers as readers ask for them: of a part of a split, of a window, the same ones again, in any order."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    if kind == "dense":
        return np.sort(generator.permutation(num_rows)[:count])
    rows = generator.integers(0, num_rows, count)
    return np.sort(rows) if kind == "ascending" else rows


@st.composite
def reads(draw):
    width = draw(WIDTHS)
    small = width < 1000
    num_rows = draw(st.integers(1, 20_000 if small else 12))
    if small:
        whole, out = draw(outs(width))
        if draw(st.booleans()):  # More rows than are found at once.
            whole = out = np.full((2, 5000, width), 0xEE, np.uint8)
    else:
        whole = out = np.full((2, 5, width), 0xEE, np.uint8)
    slots = out.shape[0] * out.shape[1]
    kind = draw(st.sampled_from(["dense", "ascending", "any"]))
    rows = numbers(draw, kind, num_rows, draw(st.integers(0, slots)))
    at = None
    if draw(st.booleans()):
        at = np.random.default_rng(len(rows)).permutation(slots)[: len(rows)]
    return random_bytes((num_rows, width), seed=num_rows), rows, whole, out, at


@given(reads(), st.sampled_from([0, 1, 128]))
def test_rows_are_read_as_numpy_picks_them_and_nothing_else_is_written(read, lead):
    source, rows, whole, out, at = read
    expected = whole.copy()
    slots = np.arange(len(rows)) if at is None else at
    # `out` may run backward through the memory of `whole`: a copy of that is filled by the same addresses.
    first = out.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    strides = np.array(out.strides)
    groups, in_group = np.divmod(slots, out.shape[1])
    begins = first + groups * strides[0] + in_group * strides[1]
    flat = expected.reshape(-1)
    flat[begins[:, None] + np.arange(out.shape[2])] = source[rows]
    with Opened(source, lead) as fd:
        assert _native.read_rows(fd, lead, rows, out, at)
    np.testing.assert_array_equal(whole, expected)


@given(reads(), st.sampled_from([0, 1, 128]), st.data())
def test_stretches_of_rows_have_the_checksums_of_their_pieces(read, lead, data):
    source, rows, whole, out, at = read
    width = out.shape[2]
    rows = np.sort(rows)
    gap = data.draw(st.sampled_from([1, 3, 50, 1 << 20]))
    cuts = np.flatnonzero(np.diff(rows) > gap) + 1
    parts = np.split(rows, cuts) if len(rows) else []
    stretches = [[int(part[0]), int(part[-1]) + 1 - int(part[0])] for part in parts]
    # Cells may begin before the rows do.
    cell = data.draw(st.sampled_from([1, 7, 4096, 100_000])) * width
    if cell // width == 1 and len(source) * width > 1 << 20:
        cell *= 100
    start = lead - data.draw(st.integers(0, 5)) * width
    text = b"\xaa" * lead + source.tobytes()
    expected = []
    for first, length in stretches:
        begin, stop = lead + first * width, lead + (first + length) * width
        edges = [begin, *range(begin + cell - (begin - start) % cell, stop, cell), stop]
        expected += [google_crc32c.value(text[a:b]) for a, b in itertools.pairwise(edges)]
    sums = np.zeros(len(expected), np.uint32)
    cells = {"cells_start": start, "cell_nbytes": cell, "sums": sums}
    plain = whole.copy() if whole is out else None
    with Opened(source, lead) as fd:
        pairs = np.array(stretches, np.int64).reshape(-1, 2)
        assert _native.read_rows(fd, lead, rows, out, at, stretches=pairs, **cells)
        assert sums.tolist() == expected
        if plain is not None:
            assert _native.read_rows(fd, lead, rows, plain, at)
            np.testing.assert_array_equal(out, plain)
        if len(expected):
            less = {**cells, "sums": sums[:-1]}
            assert not _native.read_rows(fd, lead, rows, out, at, stretches=pairs, **less)
            more = {**cells, "sums": np.zeros(len(sums) + 1, np.uint32)}
            assert not _native.read_rows(fd, lead, rows, out, at, stretches=pairs, **more)
            assert not _native.read_rows(fd, lead, rows, out, at, stretches=pairs[1:], **cells)


@pytest.mark.parametrize(
    ("stretches", "cells", "problem"),
    [
        (np.zeros((1, 3), np.int64), {}, "a first row and a length"),
        (np.array([[0, 2]]), {"cell_nbytes": 0}, "a byte or more"),
        (np.array([[0, 2]]), {"sums": None}, "sums"),
        (np.array([0, 2]), {}, "stretches"),
    ],
)
def test_wrong_stretches_are_refused(stretches, cells, problem):
    good = {"cell_nbytes": 8, "sums": np.zeros(2, np.uint32)}
    out = np.empty((1, 4, 8), np.uint8)
    with (
        Opened(random_bytes((10, 8)), 0) as fd,
        pytest.raises((TypeError, ValueError), match=problem),
    ):
        _native.read_rows(fd, 0, np.arange(2), out, stretches=stretches, **{**good, **cells})


@pytest.mark.parametrize("stretch", [[-1, 3], [0, 0], [0, 1], [1, 2], [9, 2], [2**62, 5]], ids=str)
def test_stretches_that_do_not_have_the_rows_are_told(stretch):
    cells = {"cell_nbytes": 64, "sums": np.zeros(1, np.uint32)}
    out = np.empty((1, 4, 8), np.uint8)
    with Opened(random_bytes((10, 8)), 0) as fd:
        pairs = np.array([stretch])
        assert not _native.read_rows(fd, 0, np.arange(2), out, stretches=pairs, **cells)


def test_rows_go_to_the_slots_from_the_first_on():
    source = random_bytes((5000, 3))
    rows = np.flatnonzero(np.arange(5000) % 10)
    out = np.zeros((50, 100, 3), np.uint8)
    with Opened(source, 0) as fd:
        for start in range(0, len(rows), 1234):
            assert _native.read_rows(fd, 0, rows[start : start + 1234], out, None, start)
    np.testing.assert_array_equal(out.reshape(-1, 3)[: len(rows)], source[rows])
    assert not out.reshape(-1, 3)[len(rows) :].any()


@pytest.mark.parametrize(
    "rows", [[3, 10], [-1], [0, 9, 2**62], [2**63 - 1], [5, -(2**63)]], ids=str
)
def test_rows_that_the_file_has_not_are_told(rows):
    source = random_bytes((10, 8))
    with Opened(source, 0) as fd:
        assert not _native.read_rows(fd, 0, np.array(rows), np.empty((1, 4, 8), np.uint8))


def test_a_file_that_is_not_open_is_told():
    assert not _native.read_rows(-1, 0, np.arange(2), np.empty((1, 4, 8), np.uint8))


def test_a_slot_that_is_none_is_told_and_nothing_is_written_there():
    out = np.zeros((1, 4, 8), np.uint8)
    with Opened(random_bytes((10, 8)), 0) as fd:
        assert not _native.read_rows(fd, 0, np.arange(2), out, np.array([0, 4]))
        assert not _native.read_rows(fd, 0, np.arange(2), out, np.array([-1, 0]))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((0, np.arange(5), np.empty((1, 4, 8), np.uint8)), "a slot for each row"),
        ((0, np.arange(2), np.empty((1, 4, 8), np.uint8), None, 3), "a slot for each row"),
        ((0, np.arange(0), np.empty((1, 4, 8), np.uint8), None, -1), "a slot for each row"),
        ((-1, np.arange(2), np.empty((1, 4, 8), np.uint8)), "offset"),
        ((0, np.arange(1), np.empty((1, 1, 0), np.uint8)), "1 to 262144 bytes"),
        ((0, np.arange(1), np.empty((1, 1, ROOM + 1), np.uint8)), "1 to 262144 bytes"),
        ((0, np.arange(2, dtype=np.int32), np.empty((1, 4, 8), np.uint8)), "rows"),
        ((0, np.arange(2), np.empty((4, 8), np.uint8)), "out"),
        ((0, np.arange(2), np.empty((1, 4, 8), np.uint8), np.arange(3)), "at"),
    ],
)
def test_wrong_arguments_are_refused(arguments, problem):
    with (
        Opened(random_bytes((10, 8)), 0) as fd,
        pytest.raises((TypeError, ValueError), match=problem),
    ):
        _native.read_rows(fd, *arguments)
