"""What the tests of the reading layer share: readers of bytes, a server that misbehaves on demand."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.web_server import Server, serving

from penstock.io.location import Location
from penstock.io.reader import check_range, writable_bytes


class BytesReader:
    """A Reader of bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.location = Location("memory.bin", len(data))
        self.size = len(data)
        self.num_bytes_read = 0

    def read_into(self, buffer, offset):
        target = writable_bytes(buffer)
        check_range(self.location, offset, target.size)
        self.num_bytes_read += target.size
        target[:] = memoryview(self.data)[offset : offset + target.size]

    def read_ranges(self, ranges, cells=None):
        for one in ranges:
            self.read_into(one.buffer, one.offset)
        return cells and cells.sums(
            [one.offset for one in ranges], [writable_bytes(one.buffer) for one in ranges]
        )

    def check_unchanged(self): ...

    def close(self): ...

    def __enter__(self):
        return self

    def __exit__(self, *error): ...


@pytest.fixture(scope="session")
def bytes_reader() -> type[BytesReader]:
    return BytesReader


@pytest.fixture(scope="session")
def locate() -> Callable[[Path], Location]:
    def locate(path: Path) -> Location:
        found = path.stat()
        return Location(str(path), found.st_size, mtime_ns=found.st_mtime_ns)

    return locate


@pytest.fixture
def without_privileges(tmp_path_factory) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Root may read everything: for as long as it lasts, be someone else."""

    @contextlib.contextmanager
    def without_privileges() -> Iterator[None]:
        if os.geteuid() != 0:
            yield
            return
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)

    return without_privileges


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server
