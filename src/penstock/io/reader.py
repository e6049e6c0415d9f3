"""What every reader can do, and how reads that lie close together are joined."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.errors import DataError, FileChangedError
from penstock.io.cells import Cells, Sums
from penstock.io.location import Location

Bytes: TypeAlias = npt.NDArray[np.uint8]
# Writable and contiguous memory of any dtype; it is filled with the file's bytes as they are.
Buffer: TypeAlias = memoryview | bytearray | npt.NDArray[Any]


class Range(NamedTuple):
    """One read: fill `buffer` with the bytes from `offset` on."""

    offset: int
    buffer: Buffer


class Reader(Protocol):
    """Reads any part of one file into the caller's memory; safe to use from many threads.

    It is pickled as its location, and opens the file at the first read. A read gives all the bytes
    asked for or raises a DataError; it never gives fewer.
    """

    @property
    def location(self) -> Location:
        """What is being read."""
        ...

    @property
    def size(self) -> int:
        """How many bytes the file has."""
        ...

    def read_into(self, buffer: Buffer, offset: int) -> None:
        """Fill `buffer` with the bytes from `offset` on."""
        ...

    def read_ranges(self, ranges: Sequence[Range], cells: Cells | None = None) -> Sums | None:
        """Fill each range's buffer, reading near neighbours in one go.

        With `cells`, return the CRC32C of each piece that they cut the ranges into, in the order of the ranges.
        """
        ...

    def check_unchanged(self) -> None:
        """Raise FileChangedError if the file is not the one that was listed."""
        ...

    def close(self) -> None:
        """Close the handle; reads under way finish (local) or raise (remote), later ones raise."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


def writable_bytes(buffer: Buffer) -> Bytes:
    """Return `buffer` as a flat array of bytes that shares its memory."""
    array = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, np.uint8)
    if array.ndim == 1 and array.dtype == _BYTE and array.flags.carray:
        return array  # Most are such, and large reads have thousands.
    if not array.flags.writeable or not array.flags.c_contiguous or array.dtype.hasobject:
        raise ValueError(
            "a buffer to read into must be writable, C-contiguous and without Python objects, "
            f"got {array.dtype} with strides {array.strides}, writeable={array.flags.writeable}."
        )
    # A dtype of width 0 can't be viewed as bytes.
    return array.reshape(-1).view(np.uint8) if array.nbytes else _EMPTY


_BYTE = np.dtype(np.uint8)
_EMPTY: Bytes = np.empty(0, _BYTE)


def read_bytes(reader: Reader, offset: int, nbytes: int) -> bytes:
    """Return `nbytes` bytes from `offset` on: for headers, not for data."""
    buffer = bytearray(nbytes)
    reader.read_into(buffer, offset)
    return bytes(buffer)


def check_range(location: Location, offset: int, nbytes: int) -> None:
    """Raise if the range does not lie within the file as it was listed."""
    if offset < 0 or offset + nbytes > location.size:
        raise DataError(
            f"wanted {nbytes} bytes, but the file has {location.size} bytes in all",
            file=str(location),
            offset=offset,
            cure="It may be cut off: compare it with its original.",
        )


def short_read(location: Location, offset: int, wanted: int, got: int) -> FileChangedError:
    """Return the error for a file that ended early, although it was listed as large enough."""
    return FileChangedError(
        f"the file shrank while being read: wanted {wanted} bytes, got {got}",
        file=str(location),
        offset=offset,
        cure="Wait until whatever writes it has finished, then start again.",
    )


@dataclass(frozen=True, slots=True)
class Group:
    """Ranges that are filled from one read of [start, stop); `parts` are pairs of offset and buffer."""

    start: int
    stop: int
    parts: tuple[tuple[int, Bytes], ...]

    def scatter(self, data: Bytes) -> None:
        """Copy to each part its share of `data`, which holds the bytes from `start` on."""
        for offset, part in self.parts:
            begin = offset - self.start
            np.copyto(part, data[begin : begin + part.size])


def coalesce(ranges: Sequence[Range], *, gap: int, limit: int) -> list[Group]:
    """Return the reads that fill `ranges`: ranges at most `gap` apart are joined, to at most `limit` bytes.

    >>> part = [Range(offset, bytearray(10)) for offset in (100, 0, 12)]
    >>> [(group.start, group.stop) for group in coalesce(part, gap=8, limit=1000)]
    [(0, 22), (100, 110)]
    """
    pieces = [(one.offset, writable_bytes(one.buffer)) for one in ranges]
    pieces = sorted((piece for piece in pieces if piece[1].size), key=lambda piece: piece[0])
    groups: list[Group] = []
    parts: list[tuple[int, Bytes]] = []
    start = stop = 0
    for offset, part in pieces:
        end = max(stop, offset + part.size)
        if parts and (offset - stop > gap or end - start > limit):
            groups.append(Group(start, stop, tuple(parts)))
            parts = []
        if not parts:
            start, end = offset, offset + part.size
        parts.append((offset, part))
        stop = end
    if parts:
        groups.append(Group(start, stop, tuple(parts)))
    return groups
