"""Which files lie in a tar, and where: headers of ustar, pax and GNU tars, read without trust.

Python's `tarfile` takes a damaged header for the end of the archive, and so loses files in silence.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.errors import DataError
from penstock.io.reader import Reader, read_bytes

BLOCK_NBYTES = 512
_FILES = b"\0" + b"07"
_MOST_NAME_NBYTES = 1 << 20  # A pax header with more than this is no name.
_ZEROS = bytes(BLOCK_NBYTES)
_NEAR_NBYTES = 1 << 16  # What is read at once: headers of small files, or one of a large file.
_FAR_NBYTES = 1 << 22  # Of a file behind a URL, where each read is a request.


class Member(NamedTuple):
    """A file in a tar."""

    name: bytes
    offset: int
    """Where its bytes begin."""
    size: int


def read_members(reader: Reader, is_stopped: Callable[[], bool]) -> Iterator[Member]:
    """Yield the plain files of a tar, in their order; raise a plain DataError where it can't be followed.

    Links, folders and devices are passed over.
    """
    headers = _Headers(reader)
    offset, is_ended = 0, False
    long_name: bytes | None = None
    pax: dict[bytes, bytes] = {}
    while offset < reader.size:
        if is_stopped():
            return
        header = headers.at(offset)
        if header == _ZEROS:
            is_ended = True
            offset += BLOCK_NBYTES
            continue
        is_ended = False  # One tar put behind another.
        _check_sum(header, reader, offset)
        kind = header[156:157]
        name = pax.get(b"path") or long_name or _name_of(header)
        size = _size_of(header, pax, reader, offset)
        start = offset + BLOCK_NBYTES
        if size > reader.size - start:
            problem = f"member {_text(name)} has {size} bytes, of which {max(0, reader.size - start)} are there"
            raise _damage(reader, problem, offset)
        if kind in (b"x", b"g", b"L", b"K"):
            if size > _MOST_NAME_NBYTES:
                raise _damage(reader, f"a name claims {size} bytes", offset)
            data = headers.bytes(start, size)
            if kind == b"x":
                pax = _pax_of(data, reader, start)
            elif kind == b"L":
                long_name = data.rstrip(b"\0")
        else:
            if kind == b"S" or any(key.startswith(b"GNU.sparse") for key in pax):
                problem = f"member {_text(name)} is stored with holes (sparse), which is not read"
                raise _damage(reader, problem, offset, cure="Make the tar without --sparse.")
            if kind and kind in _FILES and not name.endswith(b"/"):
                yield Member(name, start, size)
            long_name, pax = None, {}
        offset = start + -(-size // BLOCK_NBYTES) * BLOCK_NBYTES
    if not is_ended:
        problem = "it has no end mark, so that files of it may be missing"
        cure = "Compare it with its original; from_files(..., on_error='skip') reads what is there."
        raise _damage(reader, problem, reader.size, cure)


class _Headers:
    """Reads of a tar that go forward, a piece at a time."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._step = _FAR_NBYTES if reader.location.is_remote else _NEAR_NBYTES
        self._start = 0
        self._piece = b""

    def at(self, offset: int) -> bytes:
        """Return the header at `offset`."""
        if offset + BLOCK_NBYTES > self._reader.size:
            raise _damage(self._reader, "it ends within a header", offset)
        return self.bytes(offset, BLOCK_NBYTES)

    def bytes(self, offset: int, nbytes: int) -> bytes:
        """Return so many bytes."""
        if offset + nbytes > self._start + len(self._piece):
            size = min(max(self._step, nbytes), self._reader.size - offset)
            self._start, self._piece = offset, read_bytes(self._reader, offset, size)
        place = offset - self._start
        return self._piece[place : place + nbytes]


def _check_sum(header: bytes, reader: Reader, offset: int) -> None:
    try:
        claimed = int(header[148:156].split(b"\0")[0].strip() or b"x", 8)
    except ValueError:
        claimed = -1
    # The field of the sum itself counts as spaces.
    total = sum(header) - sum(header[148:156]) + 8 * ord(" ")
    # Some old tars added up signed bytes.
    if claimed != total and claimed != total - 256 * sum(byte > 127 for byte in header):
        what = "not a tar: it starts" if offset == 0 else "no header of a tar is here: it goes on"
        raise _damage(reader, f"{what} with {header[:8]!r}", offset)


def _name_of(header: bytes) -> bytes:
    name = header[:100].split(b"\0")[0]
    prefix = header[345:500].split(b"\0")[0]
    # GNU tars have other things where ustar has the prefix.
    return prefix + b"/" + name if prefix and header[257:263] == b"ustar\0" else name


def _size_of(header: bytes, pax: dict[bytes, bytes], reader: Reader, offset: int) -> int:
    field = header[124:136]
    try:
        if b"size" in pax:
            size = int(pax[b"size"])
        elif field[0] & 0x80:
            size = int.from_bytes(field[1:], "big") if field[0] == 0x80 else -1
        else:
            size = int(field.split(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        size = -1
    if size < 0:
        raise _damage(reader, f"a header has the size {field!r}", offset)
    return size


def _pax_of(data: bytes, reader: Reader, offset: int) -> dict[bytes, bytes]:
    """Return the records of a pax header: `LENGTH KEY=VALUE` and a line end, each."""
    found: dict[bytes, bytes] = {}
    place = 0
    while place < len(data) and data[place : place + 1] != b"\0":
        digits, _, _ = data[place : place + 20].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        record = data[place : place + length]
        key, equals, value = record[len(digits) + 1 :].partition(b"=")
        if not length or len(record) < length or not equals or not value.endswith(b"\n"):
            raise _damage(reader, "a pax header can't be followed", offset + place)
        found[key] = value[:-1]
        place += length
    return found


def _text(name: bytes) -> str:
    return repr(name.decode("utf-8", "replace"))


def _damage(
    reader: Reader,
    problem: str,
    offset: int,
    cure: str = "It may be damaged or cut off: compare it with its original.",
) -> DataError:
    return DataError(problem, file=str(reader.location), offset=offset, cure=cure)
