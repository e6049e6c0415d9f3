"""The bytes of a TFRecord file from front to back, packed or not."""

import zlib
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from penstock import _native
from penstock.core.closing import Closing
from penstock.errors import DataError
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.reader import Bytes, Reader, read_bytes

# zlib's `wbits` for each format: which header it has, and a window of 32 KB.
_WINDOW_BITS = {"GZIP": 31, "ZLIB": 15}
_WINDOW_NBYTES = 64 << 10  # zlib may hold a window of output, besides what it has yet to read.
_MOST_RATIO = 1032  # Deflate makes a byte of no more than this many.
_INPUT_NBYTES = 128 << 10
_OUTPUT_NBYTES = 256 << 10
INFLATING_NBYTES = 3 * (_INPUT_NBYTES + _OUTPUT_NBYTES) + (64 << 10)
"""The bytes that unpacking a file takes: zlib copies the unused rest of its input, and its output."""


def compression_of(location: Location, asked: str | None) -> str:
    """Return how a file is packed: as the user says, else as its first bytes tell."""
    if asked is not None:
        return asked
    with open_reader(location, direct=False) as reader:
        first = read_bytes(reader, 0, min(12, location.size))
    if len(first) == 12 and _is_header(first):
        return "none"
    if first[:2] == b"\x1f\x8b":
        return "GZIP"
    is_zlib = len(first) > 1 and first[0] == 0x78 and (first[0] << 8 | first[1]) % 31 == 0
    return "ZLIB" if is_zlib else "none"


def _is_header(first: bytes) -> bool:
    """Return whether these bytes are a length with its checksum, as at the beginning of a plain file."""
    try:
        _native.tfrecord_scan(first, remaining=1 << 62)
    except _native.RecordError:
        return False
    return True


class ForwardBytes(Protocol):
    """Gives bytes in order; for one thread at a time."""

    is_exact: bool
    """Whether `left` is the number of bytes, and not only the most that there may be."""

    @property
    def left(self) -> int:
        """How many bytes are left."""
        ...

    def fill(self, buffer: Bytes) -> int:
        """Fill `buffer` as far as there are bytes, and return how many there were."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


def open_bytes(
    location: Location, compression: str, offset: int, *, direct: bool | None
) -> ForwardBytes:
    """Return the bytes of a file from an offset on, which counts unpacked bytes."""
    reader = open_reader(location, direct=direct, access="sequential")
    if compression == "none":
        return PlainBytes(reader, offset)
    return InflatedBytes(reader, compression, offset)


class _OfFile(Closing):
    reader: Reader

    def close(self) -> None:
        """Close the file."""
        self.reader.close()


class PlainBytes(_OfFile):
    """The bytes of a file as they lie there."""

    is_exact = True

    def __init__(self, reader: Reader, offset: int) -> None:
        self.reader = reader
        self.position = offset

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return max(0, self.reader.size - self.position)

    def fill(self, buffer: Bytes) -> int:
        """Fill `buffer` as far as there are bytes, and return how many there were."""
        size = min(buffer.size, self.left)
        if size:
            self.reader.read_into(buffer[:size], self.position)
        self.position += size
        return size


class InflatedBytes(_OfFile):
    """The unpacked bytes of a file. A damaged file gives what comes before the damage, then raises."""

    is_exact = False

    def __init__(self, reader: Reader, compression: str, offset: int) -> None:
        self.reader = reader
        self.compression = compression
        self.position = 0
        self.input = b""
        self.error: DataError | None = None
        self.inflater: Any = zlib.decompressobj(_WINDOW_BITS[compression])
        skipped = np.empty(min(offset, _OUTPUT_NBYTES), np.uint8)
        while offset > 0:
            got = self.fill(skipped[: min(offset, skipped.size)])
            if not got:
                break
            offset -= got

    @property
    def left(self) -> int:
        """How many bytes are left at most: the length of a record that claims more is a lie."""
        return _WINDOW_NBYTES + _MOST_RATIO * (self.reader.size - self.position + len(self.input))

    def fill(self, buffer: Bytes) -> int:
        """Fill `buffer` as far as there are bytes, and return how many there were."""
        done = 0
        while done < buffer.size and self.error is None:
            try:
                piece = self._next(min(buffer.size - done, _OUTPUT_NBYTES))
            except zlib.error as error:
                self.error = self._damage(f"is damaged ({error})")
                break
            if piece is None:
                break
            buffer[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
            done += len(piece)
        if not done and buffer.size and self.error is not None:
            raise self.error
        return done

    def _next(self, size: int) -> bytes | None:
        """Return the next bytes, which may be b''; None at the end."""
        if not self.input:
            self.input = self._read()
            if not self.input:
                if not self.inflater.eof and self.reader.size:
                    self.error = self._damage("is cut off")
                return None
        if self.inflater.eof:  # A file may be several packed files, one after the other.
            self.inflater = zlib.decompressobj(_WINDOW_BITS[self.compression])
        piece: bytes = self.inflater.decompress(self.input, size)
        self.input = (
            self.inflater.unused_data if self.inflater.eof else self.inflater.unconsumed_tail
        )
        if not piece and not self.input and not self.inflater.eof:
            # zlib may still hold output, although it took all of the input.
            piece = self.inflater.decompress(b"", size)
        return piece

    def _read(self) -> bytes:
        size = min(_INPUT_NBYTES, self.reader.size - self.position)
        found = read_bytes(self.reader, self.position, size) if size > 0 else b""
        self.position += len(found)
        return found

    def _damage(self, what: str) -> DataError:
        return DataError(
            f"its {self.compression} data {what}",
            file=str(self.reader.location),
            offset=self.position - len(self.input),
            cure="Compare it with its original; if it is not packed, write compression='none'.",
        )
