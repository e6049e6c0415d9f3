"""The unpacked bytes of a file that is packed by GZIP or ZLIB, from front to back."""

import copy
import zlib
from typing import Any

import numpy as np

from penstock.core.closing import Closing
from penstock.errors import DataError
from penstock.io.reader import Bytes, Reader, read_bytes

# zlib's `wbits` for each format: which header it has, and a window of 32 KB.
_WINDOW_BITS = {"GZIP": 31, "ZLIB": 15}
_WINDOW_NBYTES = 64 << 10  # zlib may hold a window of output, besides what it has yet to read.
_MOST_RATIO = 1032  # Deflate makes a byte of no more than this many.
_INPUT_NBYTES = 128 << 10
OUTPUT_NBYTES = 256 << 10
"""What is unpacked at once."""
INFLATING_NBYTES = 3 * (_INPUT_NBYTES + OUTPUT_NBYTES) + (64 << 10)
"""The bytes that unpacking a file takes: zlib copies the unused rest of its input, and its output."""
STATE_NBYTES = _INPUT_NBYTES + _WINDOW_NBYTES
"""The bytes of a copy of where unpacking stands."""


class InflatedBytes(Closing):
    """The unpacked bytes of a file. A damaged file gives what comes before the damage, then raises."""

    is_exact = False

    def __init__(self, reader: Reader, compression: str, offset: int, *, cure: str) -> None:
        self.reader = reader
        self.compression = compression
        self.cure = cure
        self.position = 0
        self.input = b""
        self.error: DataError | None = None
        self.inflater: Any = zlib.decompressobj(_WINDOW_BITS[compression])
        skipped = np.empty(min(offset, OUTPUT_NBYTES), np.uint8)
        while offset > 0:
            got = self.fill(skipped[: min(offset, skipped.size)])
            if not got:
                break
            offset -= got

    def close(self) -> None:
        """Close the file."""
        self.reader.close()

    def copy(self) -> "InflatedBytes":
        """Return another one that goes on from here, over the same reader."""
        other = copy.copy(self)
        if not self.inflater.eof:  # Else the next bytes get another one.
            other.inflater = self.inflater.copy()
        return other

    @property
    def left(self) -> int:
        """How many bytes are left at most: the length of a record that claims more is a lie."""
        return _WINDOW_NBYTES + _MOST_RATIO * (self.reader.size - self.position + len(self.input))

    def fill(self, buffer: Bytes) -> int:
        """Fill `buffer` as far as there are bytes, and return how many there were."""
        done = 0
        while done < buffer.size and self.error is None:
            try:
                piece = self._next(min(buffer.size - done, OUTPUT_NBYTES))
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
            cure=self.cure,
        )
