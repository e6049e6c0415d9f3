"""Text of files that may be packed by gzip: read forward, and back by a line that turns out long."""

import numpy as np

from penstock.core.closing import Closing
from penstock.errors import DataError
from penstock.io.inflated import INFLATING_NBYTES, OUTPUT_NBYTES, STATE_NBYTES, InflatedBytes
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.reader import Reader, read_bytes

UNKNOWN = 1 << 62
"""The size of a packed file, for as long as its end was not seen."""
# A line of up to 64 MB is looked through before it is read: unpacking goes on from the last of these marks before it.
_MARK_NBYTES = 4 << 20
_NUM_MARKS = 18
UNPACKING_NBYTES = INFLATING_NBYTES + 3 * OUTPUT_NBYTES + _NUM_MARKS * STATE_NBYTES
"""The bytes that reading a packed file takes, besides what is asked for."""
_GZIP = b"\x1f\x8b"  # What packed files begin with.
_CURE = "Compare it with its original: gzip -t tests it."


def is_packed(location: Location) -> bool:
    """Return whether a file is packed, by its name."""
    return location.suffix == ".gz"


def open_text(location: Location, *, direct: bool | None = None) -> "Reader | UnpackedReader":
    """Return what reads a file from front to back, unpacked if its name ends in `.gz`."""
    reader = open_reader(location, direct=direct, access="sequential")
    return UnpackedReader(reader) if is_packed(location) else reader


def read_some(reader: "Reader | UnpackedReader", offset: int, nbytes: int) -> bytes:
    """Return `nbytes` bytes from `offset` on, or fewer where the text ends; `reader.size` is known then."""
    if isinstance(reader, UnpackedReader):
        return reader.read_some(offset, nbytes)
    return read_bytes(reader, offset, max(0, min(nbytes, reader.size - offset)))


class UnpackedReader(Closing):
    """The text of a packed file, for one thread. Offsets are those of the text.

    A damaged file gives what comes before the damage, then raises.
    """

    def __init__(self, reader: Reader) -> None:
        self.location = reader.location
        self.size = UNKNOWN
        self._source = InflatedBytes(reader, "GZIP", 0, cure=_CURE)
        self._data = b""
        self._start = 0
        """Where in the text the data begins that is held."""
        self._marks = [(0, self._source.copy())]
        self._error: DataError | None = None

    def read_some(self, offset: int, nbytes: int) -> bytes:
        """Return `nbytes` bytes from `offset` on, or fewer where the text ends."""
        if offset < self._start:
            self._go_back(offset)
        self._drop(offset)
        pieces = [self._data]
        held = self._start + len(self._data)
        self._data = b""
        # One byte more tells whether this is the end.
        while held <= offset + nbytes and self._error is None and held < self.size:
            piece = self._next(held)
            if held < offset:
                skipped = min(len(piece), offset - held)
                held += skipped
                self._start = held
                piece = piece[skipped:]
            pieces.append(piece)
            held += len(piece)
        self._data = b"".join(pieces)
        found = self._data[:nbytes]
        if not found and nbytes and self._error is not None:
            raise self._error
        return found

    def _next(self, held: int) -> bytes:
        """Return the next bytes, which begin at `held`; b'' at the end, or where the file is damaged."""
        if held >= self._marks[-1][0] + _MARK_NBYTES:
            self._marks = [*self._marks[1 - _NUM_MARKS :], (held, self._source.copy())]
        buffer = np.empty(OUTPUT_NBYTES, np.uint8)
        try:
            count = self._source.fill(buffer)
        except DataError as error:
            self._error = error if held else _of_plain(self._source.reader) or error
            return b""
        if not count:
            self.size = held
        return buffer[:count].tobytes()

    def _drop(self, offset: int) -> None:
        """Let go of the data before `offset`."""
        count = min(len(self._data), offset - self._start)
        self._data = self._data[count:]
        self._start += count

    def _go_back(self, offset: int) -> None:
        """Unpack again, from the last mark that is not after `offset`, or from the beginning."""
        while len(self._marks) > 1 and self._marks[-1][0] > offset:
            self._marks.pop()
        self._start, source = self._marks[-1]
        if self._start > offset:
            source = InflatedBytes(source.reader, "GZIP", 0, cure=_CURE)
            self._start, self._marks = 0, [(0, source)]
        self._source = source.copy()
        self._data, self._error = b"", None

    def close(self) -> None:
        """Close the file."""
        self._source.close()


def _of_plain(reader: Reader) -> DataError | None:
    """Return the error of a file that is not packed at all; None if it is, or is cut off before that can be told."""
    start = read_bytes(reader, 0, min(len(_GZIP), reader.size))
    if len(start) < len(_GZIP) or start == _GZIP:
        return None
    name = reader.location.name
    return DataError(
        "is not packed by gzip, which its name says",
        file=str(reader.location),
        cure=f"A browser may have unpacked it: give it the name {name.removesuffix('.gz')!r}, or pack it.",
    )
