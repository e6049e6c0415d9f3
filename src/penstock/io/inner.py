"""Files that lie in other files, or in memory, for whoever reads a file by its location."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.core.closing import Closing
from penstock.io.cells import Cells, Sums
from penstock.io.location import Location
from penstock.io.reader import Buffer, Bytes, Range, Reader, check_range, writable_bytes


@dataclass(frozen=True, slots=True)
class InnerFile(Location):
    """A file in a file, or in memory. Its `url` is a name that ends as it does; messages call it `label`."""

    label: str = ""
    open: "Callable[[InnerFile], Reader] | None" = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return self.label


def in_file(name: str, label: str, reader: Reader, offset: int, size: int) -> InnerFile:
    """Return the file that lies in another one from `offset` on; the reader stays open, and its owner's."""
    return InnerFile(
        f"/{name}", size, label=label, open=lambda inner: _Slice(inner, reader, offset)
    )


def in_memory(name: str, label: str, data: Bytes) -> InnerFile:
    """Return the file whose bytes these are."""
    return InnerFile(f"/{name}", data.size, label=label, open=lambda inner: _Held(inner, data))


class _Inner(Closing, ABC):
    """A reader of a file in something else."""

    def __init__(self, location: InnerFile) -> None:
        self.location: Location = location

    @property
    def size(self) -> int:
        """How many bytes the file has."""
        return self.location.size

    @abstractmethod
    def read_into(self, buffer: Buffer, offset: int) -> None:
        """Fill `buffer` with the bytes from `offset` on."""

    def read_ranges(self, ranges: Sequence[Range], cells: Cells | None = None) -> Sums | None:
        """Fill each range's buffer."""
        assert cells is None, "checksums are those of whole files"
        for one in ranges:
            self.read_into(one.buffer, one.offset)
        return None

    def check_unchanged(self) -> None:
        """Do nothing: whoever has what it lies in looks at that."""

    def close(self) -> None:
        """Do nothing: what it lies in stays open."""


class _Slice(_Inner):
    """A part of a file."""

    def __init__(self, location: InnerFile, reader: Reader, offset: int) -> None:
        super().__init__(location)
        self._reader = reader
        self._offset = offset

    def read_into(self, buffer: Buffer, offset: int) -> None:
        """Fill `buffer` with the bytes from `offset` on."""
        check_range(self.location, offset, writable_bytes(buffer).size)
        self._reader.read_into(buffer, self._offset + offset)


class _Held(_Inner):
    """Bytes in memory."""

    def __init__(self, location: InnerFile, data: Bytes) -> None:
        super().__init__(location)
        self._data = data

    def read_into(self, buffer: Buffer, offset: int) -> None:
        """Fill `buffer` with the bytes from `offset` on."""
        out = writable_bytes(buffer)
        check_range(self.location, offset, out.size)
        np.copyto(out, self._data[offset : offset + out.size])
