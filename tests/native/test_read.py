"""Ranges of a file, read natively: against plain reads, and with wrong arguments."""

import ctypes
import mmap
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import _native
from penstock.io.cells import Cells
from penstock.io.local.bounce import aligned_empty

SIZE = 1_500_001


@pytest.fixture(scope="module")
def content():
    return np.random.default_rng(3).integers(0, 256, SIZE, np.uint8)


@pytest.fixture(scope="module")
def files(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("read") / "x.bin"
    content.tofile(path)
    fd = os.open(path, os.O_RDONLY)
    try:
        direct_fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0))
    except OSError:
        pytest.skip("no direct reads on this file system")
    yield fd, direct_fd
    os.close(fd)
    os.close(direct_fd)


SPANS = st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, 300_000)), max_size=60)


@given(
    spans=SPANS,
    is_direct=st.booleans(),
    room=st.sampled_from([128 << 10, 200_000, 2 << 20]),
    drop=st.booleans(),
    cells=st.none() | st.tuples(st.integers(-100_000, 0), st.integers(700, 400_000)),
)
def test_ranges_are_what_lies_there(files, content, spans, is_direct, room, drop, cells):
    spans = [(offset, min(nbytes, SIZE - offset)) for offset, nbytes in spans]
    whole = [np.full(nbytes + 2, 0xEE, np.uint8) for _, nbytes in spans]
    buffers = [memory[1:-1] for memory in whole]
    wanted = [content[offset : offset + nbytes] for offset, nbytes in spans]
    offsets = [offset for offset, _ in spans]
    summing = {}
    if cells is not None:
        made = Cells(*cells)
        sums = made.empty_sums(offsets, [nbytes for _, nbytes in spans])
        summing = {"cells_start": made.start, "cell_nbytes": made.nbytes, "sums": sums}
    found = _native.read_ranges(
        files[0],
        files[1] if is_direct else -1,
        offsets,
        buffers,
        aligned_empty(room),
        drop,
        **summing,
    )
    assert found == (is_direct and not _native.is_portable, None)
    for values, memory in zip(wanted, whole, strict=True):
        np.testing.assert_array_equal(memory[1:-1], values)
        assert memory[0] == memory[-1] == 0xEE  # Not a byte beside it.
    if cells is not None:
        np.testing.assert_array_equal(sums, made.sums(offsets, wanted))


def test_checksums_are_made_anew_where_direct_reads_turn_out_to_be_impossible(files, content):
    cells = Cells(0, 70_000)
    buffer = np.empty(SIZE, np.uint8)
    sums = cells.empty_sums([0], [SIZE])
    room = mmap.mmap(-1, 1 << 20)
    bounce = np.frombuffer(room, np.uint8)
    half = len(bounce) // 2
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    upper = ctypes.c_void_p(bounce.ctypes.data + half), ctypes.c_size_t(half)
    # The first reads succeed, and those into the upper half are refused.
    assert protect(*upper, 0) == 0
    try:
        found = _native.read_ranges(
            *files,
            [0],
            [buffer],
            bounce,
            False,
            cells_start=0,
            cell_nbytes=cells.nbytes,
            sums=sums,
        )
    finally:
        protect(*upper, mmap.PROT_READ | mmap.PROT_WRITE)
    assert found == (False, None)
    np.testing.assert_array_equal(buffer, content)
    np.testing.assert_array_equal(sums, cells.sums([0], [content]))


def test_cells_that_do_not_fit_are_refused(files):
    buffer, bounce = np.empty(10, np.uint8), aligned_empty(1 << 20)
    for start, nbytes, sums in [
        (0, 0, np.empty(1, np.uint32)),
        (0, 4, np.empty(2, np.uint32)),
        (0, 4, np.empty(3, np.int32)),
        (6, 4, np.empty(3, np.uint32)),
    ]:
        with pytest.raises(ValueError, match="must"):
            _native.read_ranges(
                files[0],
                -1,
                [5],
                [buffer],
                bounce,
                False,
                cells_start=start,
                cell_nbytes=nbytes,
                sums=sums,
            )


@pytest.mark.parametrize("is_direct", [False, True])
@pytest.mark.parametrize("nbytes", [10, 100_000, 400_000])
def test_what_is_past_the_end_is_told_with_how_much_there_was(files, nbytes, is_direct):
    buffers = [np.empty(nbytes, np.uint8)]
    direct_fd = files[1] if is_direct else -1
    offset = SIZE - 5
    _, failure = _native.read_ranges(
        files[0], direct_fd, [offset], buffers, aligned_empty(1 << 20), False
    )
    assert failure is not None
    start, wanted, got, number = failure
    assert number == 0
    assert got == max(0, SIZE - start)  # Of several reads at once, any may be the first to tell.
    assert SIZE < start + wanted <= offset + nbytes


def test_an_error_of_the_system_is_told_with_its_number(files):
    _, failure = _native.read_ranges(
        10**6, -1, [7], [np.empty(3, np.uint8)], aligned_empty(1 << 20), False
    )
    assert failure == (7, 3, 0, 9)  # EBADF


def test_wrong_arguments_are_refused(files):
    bounce = aligned_empty(1 << 20)
    buffer = np.empty(10, np.uint8)
    read_only = np.frombuffer(b"0123456789", np.uint8)
    for offsets, buffers, memory in [
        ([0, 1], [buffer], bounce),
        ([-1], [buffer], bounce),
        ([0], [read_only], bounce),
        ([0], [buffer[::2]], bounce),
        ([0], [buffer.view(np.int16)], bounce),
        ([0], [bounce[5:10]], bounce),
        ([0], [buffer], bounce[:100_000]),
        ([0], [buffer], bounce[1:]),
    ]:
        with pytest.raises(ValueError, match="must"):
            _native.read_ranges(files[0], -1, offsets, buffers, memory, False)
    with pytest.raises(TypeError):
        _native.read_ranges(files[0], -1, [0], ["text"], bounce, False)
