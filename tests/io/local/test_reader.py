"""Local files: every byte right or a clear error, direct or not, from many threads."""

import ctypes
import errno
import mmap
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import _native
from penstock.core.system import is_portable
from penstock.errors import AccessError, DataError, FileChangedError, MissingFileError
from penstock.io.local import reader as local
from penstock.io.local.bounce import BOUNCE, PAGE_NBYTES, aligned_empty
from penstock.io.local.reader import LocalReader
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.reader import Range

SIZE = 3 * 1024 * 1024 + 777  # the last page is not whole
needs_direct_reads = pytest.mark.skipif(
    is_portable, reason="a portable build reads through the page cache, and leaves it to the system"
)


@pytest.fixture(scope="module")
def big(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("local") / "big.bin"
    path.write_bytes(np.random.default_rng(0).bytes(SIZE))
    return path


@pytest.fixture(scope="module")
def content(big) -> np.ndarray:
    return np.fromfile(big, np.uint8)


@pytest.fixture(params=[True, False], ids=["direct", "buffered"])
def reader(request, big, locate):
    with LocalReader(locate(big), direct=request.param) as reader:
        yield reader


def num_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("offset", [0, 1, 4095, 4096, 4097, 100_000, SIZE - 70_000, SIZE - 1])
@pytest.mark.parametrize("nbytes", [0, 1, 4096, 40_000, 65_536, 1 << 20, 2_000_000, SIZE])
@pytest.mark.parametrize("shift", [0, 1, 64, 4095])
def test_every_byte_is_right(reader, content, offset, nbytes, shift):
    nbytes = min(nbytes, SIZE - offset)
    memory = aligned_empty(nbytes + 2 * PAGE_NBYTES)
    memory[:] = 0xEE
    # Aligned like the file, or off by a few bytes.
    begin = offset % PAGE_NBYTES if shift == 64 else shift
    reader.read_into(memory[begin : begin + nbytes], offset)
    np.testing.assert_array_equal(memory[begin : begin + nbytes], content[offset : offset + nbytes])
    assert (memory[:begin] == 0xEE).all()
    assert (memory[begin + nbytes :] == 0xEE).all()


@pytest.mark.parametrize("nbytes", [0, 1, 512, SIZE, SIZE + 1])
def test_the_start_of_a_file_is_read_as_far_as_it_goes(big, content, locate, nbytes):
    before = num_open_files()
    assert local.read_start(locate(big), nbytes) == content[:nbytes].tobytes()
    assert num_open_files() == before


def test_the_start_of_a_file_that_changed_is_refused(tmp_path, locate):
    path = tmp_path / "x.bin"
    path.write_bytes(b"0123456789")
    location = locate(path)
    path.write_bytes(b"01234")
    with pytest.raises(FileChangedError, match="it had 10 bytes and has 5 now"):
        local.read_start(location, 4)
    path.unlink()
    with pytest.raises(MissingFileError, match="vanished since it was listed"):
        local.read_start(location, 4)


@given(data=st.data())
def test_direct_reads_equal_buffered_reads(data, big, content, locate):
    nbytes = data.draw(st.integers(0, SIZE))
    offset = data.draw(st.integers(0, SIZE - nbytes))
    shift = data.draw(st.integers(0, PAGE_NBYTES))
    target = aligned_empty(nbytes + PAGE_NBYTES)[shift : shift + nbytes]
    with LocalReader(locate(big), direct=True) as reader:
        reader.read_into(target, offset)
    np.testing.assert_array_equal(target, content[offset : offset + nbytes])


@given(
    spans=st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(0, 200_000)), max_size=12),
    is_direct=st.booleans(),
)
def test_ranges_are_right_in_any_order_overlapping_or_not(spans, is_direct, big, content, locate):
    spans = [(offset, min(nbytes, SIZE - offset)) for offset, nbytes in spans]
    ranges = [Range(offset, bytearray(nbytes)) for offset, nbytes in spans]
    with LocalReader(locate(big), direct=is_direct) as reader:
        reader.read_ranges(ranges)
    for one, (offset, nbytes) in zip(ranges, spans, strict=True):
        assert bytes(one.buffer) == content[offset : offset + nbytes].tobytes()


@pytest.mark.parametrize("dtype", ["float32", "S3", "datetime64[s]", [("a", "<i4"), ("b", "<f8")]])
def test_a_buffer_may_have_any_dtype_and_shape(reader, content, dtype):
    target = np.empty((100, 7), dtype)
    reader.read_into(target, 10)
    assert target.tobytes() == content[10 : 10 + target.nbytes].tobytes()


@pytest.mark.parametrize(
    "buffer",
    [
        np.empty((10, 10), np.uint8)[:, ::2],
        np.empty(10, object),
        np.frombuffer(b"0123456789", np.uint8),
        memoryview(b"0123456789"),
    ],
    ids=["strided", "object", "read-only", "read-only memoryview"],
)
def test_a_buffer_that_cannot_be_filled_is_refused(reader, buffer):
    with pytest.raises(ValueError, match="must be writable, C-contiguous and without Python obj"):
        reader.read_into(buffer, 0)


def test_many_threads_share_a_reader(reader, content):
    def check(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(30):
            nbytes = int(rng.integers(1, 300_000))
            offset = int(rng.integers(0, SIZE - nbytes))
            target = np.empty(nbytes, np.uint8)
            reader.read_into(target, offset)
            np.testing.assert_array_equal(target, content[offset : offset + nbytes])

    with ThreadPoolExecutor(16) as pool:  # twice as many as there are bounce buffers
        list(pool.map(check, range(16)))


def test_past_the_end_is_an_error_with_offset_and_sizes(reader, big):
    with pytest.raises(DataError, match=rf"big.bin, byte {SIZE - 5}: wanted 6 bytes, .* {SIZE} "):
        reader.read_into(bytearray(6), SIZE - 5)
    with pytest.raises(DataError, match="byte -1"):
        reader.read_into(bytearray(6), -1)
    with pytest.raises(DataError, match="wanted 6 bytes"):
        reader.read_ranges([Range(0, bytearray(6)), Range(SIZE - 5, bytearray(6))])


@pytest.mark.parametrize("is_direct", [True, False])
@pytest.mark.parametrize("mtime_ns", ["kept", None])
def test_a_file_that_shrinks_while_being_read_is_an_error(tmp_path, locate, is_direct, mtime_ns):
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(1 << 20))
    listed = locate(path)
    listed = Location(listed.url, listed.size, listed.mtime_ns if mtime_ns else None)
    with LocalReader(listed, direct=is_direct) as reader:
        reader.read_into(bytearray(100), 0)
        os.truncate(path, 500_000)
        with pytest.raises(
            FileChangedError,
            match=r"byte \d+: the file shrank while being read: wanted \d+ bytes, got \d+\. Wait",
        ):
            reader.read_into(bytearray(200_000), 400_000)
        with pytest.raises(FileChangedError, match="it had 1048576 bytes and has 500000 now"):
            reader.read_into(bytearray(100), 0)
        with pytest.raises(FileChangedError):
            reader.check_unchanged()


@pytest.mark.parametrize("is_direct", [True, False])
def test_a_file_that_is_written_to_is_an_error(tmp_path, locate, is_direct):
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(100_000))
    with LocalReader(locate(path), direct=is_direct) as reader:
        reader.read_into(bytearray(100), 0)
        with path.open("r+b") as file:
            file.write(b"x")
        os.utime(path, ns=(0, reader.location.mtime_ns + 1))
        with pytest.raises(FileChangedError, match="changed after it was listed: it was written"):
            reader.read_into(bytearray(50_000), 0)


def test_a_file_that_may_be_written_to_may_grow(tmp_path, locate):
    path = tmp_path / "x.bin"
    path.write_bytes(b"a" * 100)
    with LocalReader(Location(str(path), 100)) as reader:
        with path.open("ab") as file:
            file.write(b"b" * 100)
        target = bytearray(100)
        reader.read_into(target, 0)
    assert target == b"a" * 100


def test_a_file_that_was_replaced_is_noticed(tmp_path, locate):
    path = tmp_path / "x.bin"
    path.write_bytes(b"a" * 100)
    with LocalReader(locate(path)) as reader:
        reader.read_into(bytearray(100), 0)
        (tmp_path / "new").write_bytes(b"b" * 100)
        os.utime(tmp_path / "new", ns=(0, reader.location.mtime_ns + 1))
        (tmp_path / "new").rename(path)
        with pytest.raises(FileChangedError, match="written to"):
            reader.check_unchanged()


def test_a_file_that_vanished_is_named(tmp_path, locate):
    path = tmp_path / "x.bin"
    path.write_bytes(b"a" * 100)
    listed = locate(path)
    path.unlink()
    with (
        LocalReader(listed) as reader,
        pytest.raises(MissingFileError, match=r"x.bin: the file has vanished since it was listed"),
    ):
        reader.read_into(bytearray(1), 0)


def test_no_permission_is_named(without_privileges, locate, tmp_path_factory):
    path = tmp_path_factory.mktemp("private") / "x.bin"
    path.write_bytes(b"a" * 100)
    listed = locate(path)
    path.chmod(0)
    with (
        LocalReader(listed) as reader,
        without_privileges(),
        pytest.raises(AccessError, match=r"no permission to read it. Let this user"),
    ):
        reader.read_into(bytearray(1), 0)


def test_a_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with (
        LocalReader(Location(str(tmp_path / "pipe"), 100)) as reader,
        pytest.raises(IsADirectoryError, match="this is a pipe, socket or device"),
    ):
        reader.read_into(bytearray(1), 0)


def test_a_directory_is_an_error(tmp_path):
    with (
        LocalReader(Location(str(tmp_path), 100)) as reader,
        pytest.raises(IsADirectoryError, match="this is a directory"),
    ):
        reader.read_into(bytearray(1), 0)


@needs_direct_reads
def test_without_direct_reads_on_open_they_are_buffered(big, content, locate, monkeypatch):
    real_open = os.open

    def refuse(path, flags, *args, **kwargs):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real_open(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    target = np.empty(200_000, np.uint8)
    with LocalReader(locate(big), direct=True) as reader:
        reader.read_into(target, 100)
        assert not reader.is_direct
    np.testing.assert_array_equal(target, content[100:200_100])


def test_a_file_system_in_memory_works(content, locate):
    folder = Path("/dev/shm")
    if not os.access(folder, os.W_OK):
        pytest.skip("no /dev/shm here; the tests above refuse direct reads by hand instead")
    path = folder / f"penstock-test-{os.getpid()}"
    try:
        path.write_bytes(content.tobytes())
        target = np.empty(1_000_000, np.uint8)
        with LocalReader(locate(path), direct=True) as reader:
            reader.read_into(target, 5)
        np.testing.assert_array_equal(target, content[5:1_000_005])
    finally:
        path.unlink(missing_ok=True)


def num_cached_pages(path: Path) -> int:
    """Return how many pages of a file are in the page cache, by mincore, without touching them."""
    size = path.stat().st_size
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    with path.open("rb") as file:
        start = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    pages = (ctypes.c_ubyte * (-(-size // mmap.PAGESIZE)))()
    assert libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(size), pages) == 0
    libc.munmap(start, size)
    return sum(page & 1 for page in pages)


@needs_direct_reads
@pytest.mark.parametrize("can_direct", [True, False], ids=["direct", "dropped afterwards"])
def test_the_page_cache_is_not_flooded(tmp_path, locate, monkeypatch, can_direct):
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(8 << 20))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if num_cached_pages(path):
        pytest.skip("this file system lives in the page cache; /tmp on a disk has it tested")
    if not can_direct:
        monkeypatch.setattr(local, "_open_direct", lambda *args: -1)
    with LocalReader(locate(path), direct=True) as reader:
        for offset in range(0, 8 << 20, 1 << 20):
            reader.read_into(np.empty(1 << 20, np.uint8), offset)
    # What the kernel had begun to read ahead may still arrive.
    assert num_cached_pages(path) <= (0 if can_direct else 2048 // 2)


def test_a_reader_pickles_by_location_and_opens_again(reader, content):
    reader.read_into(bytearray(10), 0)
    with pickle.loads(pickle.dumps(reader)) as again:
        target = bytearray(10)
        again.read_into(target, 50)
        assert bytes(target) == content[50:60].tobytes()
        assert again.location == reader.location
        assert again._avoids_cache == reader._avoids_cache


def test_handles_are_opened_at_the_first_read_and_closed_once(big, locate):
    before = num_open_files()
    reader = LocalReader(locate(big), direct=True)
    assert num_open_files() == before
    reader.read_into(bytearray(10), 0)
    assert num_open_files() == before + (1 if is_portable else 2)
    reader.close()
    reader.close()
    assert num_open_files() == before
    with pytest.raises(ValueError, match=r"the reader of .*big.bin is closed"):
        reader.read_into(bytearray(10), 0)


def test_a_forgotten_reader_closes_itself(big, locate):
    before = num_open_files()
    reader = LocalReader(locate(big), direct=True)
    reader.read_into(bytearray(10), 0)
    del reader
    assert num_open_files() == before


def test_closing_waits_for_the_reads_under_way(big, content, locate, monkeypatch):
    reading, may_go_on = threading.Event(), threading.Event()
    read_ranges = _native.read_ranges

    def slow(*args, **options):
        reading.set()
        assert may_go_on.wait(30)
        return read_ranges(*args, **options)

    monkeypatch.setattr(_native, "read_ranges", slow)
    before = num_open_files()
    reader = LocalReader(locate(big), direct=False)
    target = bytearray(1000)
    thread = threading.Thread(target=reader.read_into, args=(target, 7))
    thread.start()
    assert reading.wait(30)
    reader.close()
    # The number of its descriptor must not go to another file while the read uses it.
    assert num_open_files() == before + 1
    may_go_on.set()
    thread.join()
    assert bytes(target) == content[7:1007].tobytes()
    assert num_open_files() == before


def test_a_sparse_file_of_a_terabyte_is_read_anywhere(tmp_path, locate):
    path = tmp_path / "sparse.bin"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with open_reader(locate(path)) as reader:
        assert reader.size == 1 << 40
        target = np.ones(100_000, np.uint8)
        reader.read_into(target, (1 << 40) - 100_000)
        assert not target.any()


@needs_direct_reads
def test_what_is_larger_than_a_quarter_of_memory_is_read_directly(tmp_path, locate, monkeypatch):
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(100_000))
    for room, expected in ((99_999, True), (100_000, False)):
        monkeypatch.setattr(local, "page_cache_room", lambda room=room: room)
        with open_reader(locate(path)) as reader:
            reader.read_into(np.empty(100_000, np.uint8), 0)
            assert reader.is_direct == expected


@pytest.mark.parametrize("access", ["normal", "sequential", "random"])
def test_advice_changes_nothing_but_speed(big, content, locate, access):
    with open_reader(locate(big), access=access) as reader:
        target = bytearray(1000)
        reader.read_into(target, 3)
        assert bytes(target) == content[3:1003].tobytes()


def test_unknown_advice_is_refused(big, locate):
    with pytest.raises(ValueError, match="one of normal, sequential, random, got 'often'"):
        open_reader(locate(big), access="often")


def test_bounce_buffers_are_bounded():
    assert BOUNCE.nbytes == 8 << 20
    free = [BOUNCE._free.get() for _ in range(BOUNCE._free.qsize())]
    for buffer in free:
        BOUNCE.release(buffer)
    assert len(free) == 4
    assert all(buffer is None or buffer.ctypes.data % PAGE_NBYTES == 0 for buffer in free)


def test_a_reader_that_was_collected_can_be_closed_once_more(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"1234")
    reader = LocalReader(Location(str(path), 4))
    reader.read_into(bytearray(4), 0)
    reader.__del__()  # The garbage collector may do so before the close of what holds it, in a cycle.
    with path.open("rb") as other:  # It is likely to get the same number.
        reader.close()
        assert other.read() == b"1234"
