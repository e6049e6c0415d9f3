"""The bytes of a TFRecord file from front to back, packed or not."""

from types import TracebackType
from typing import Protocol, Self

from penstock import _native
from penstock.core.closing import Closing
from penstock.io.inflated import InflatedBytes
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.reader import Bytes, Reader, read_bytes

_CURE = "Compare it with its original; if it is not packed, write compression='none'."


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
    return InflatedBytes(reader, compression, offset, cure=_CURE)


class PlainBytes(Closing):
    """The bytes of a file as they lie there."""

    is_exact = True

    def __init__(self, reader: Reader, offset: int) -> None:
        self.reader = reader
        self.position = offset

    def close(self) -> None:
        """Close the file."""
        self.reader.close()

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
