"""Ranges of a file, read natively: against plain reads, and with wrong arguments."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import _native
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
        direct_fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
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
)
def test_ranges_are_what_lies_there(files, content, spans, is_direct, room, drop):
    spans = [(offset, min(nbytes, SIZE - offset)) for offset, nbytes in spans]
    whole = [np.full(nbytes + 2, 0xEE, np.uint8) for _, nbytes in spans]
    buffers = [memory[1:-1] for memory in whole]
    found = _native.read_ranges(
        files[0],
        files[1] if is_direct else -1,
        [offset for offset, _ in spans],
        buffers,
        aligned_empty(room),
        drop,
    )
    assert found == (is_direct, None)
    for (offset, nbytes), memory in zip(spans, whole, strict=True):
        np.testing.assert_array_equal(memory[1:-1], content[offset : offset + nbytes])
        assert memory[0] == memory[-1] == 0xEE  # Not a byte beside it.


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
