"""The index of an Arrow IPC file: how many rows each of its batches has, without reading them.

pyarrow gives only the number of batches. The length of each is in the flatbuffer at its head, and
where the heads are is in the flatbuffer at the end of the file.
"""

import struct

from penstock.errors import DataError
from penstock.io.reader import Reader, read_bytes

MAGIC = b"ARROW1"
_CONTINUATION = 0xFFFFFFFF
_MOST_HEAD_NBYTES = 64 << 20  # A larger footer or head is taken for damage.
_RECORD_BATCH = 3  # The format's number for this kind of message.


def read_batch_lengths(reader: Reader) -> list[int]:
    """Return the number of rows of every record batch of a file, from its footer and the batches' heads."""
    size = reader.size
    tail = read_bytes(reader, size - 10, 10) if size >= 20 else b""
    if tail[4:] != MAGIC or read_bytes(reader, 0, 6) != MAGIC:
        start = read_bytes(reader, 0, 6) if size >= 6 else b""
        if start[:4] == b"\xff\xff\xff\xff":
            raise _damaged(
                reader,
                0,
                "this is a stream of Arrow batches, not a file",
                "Write it with pyarrow.ipc.new_file.",
            )
        if start[:4] == b"FEA1":
            raise _damaged(
                reader, 0, "this is Feather version 1", "Write it again: version 2 is read."
            )
        raise _damaged(reader, size, "it does not end as an Arrow file does")
    (length,) = struct.unpack("<i", tail[:4])
    if not 0 < length <= min(size - 10, _MOST_HEAD_NBYTES):
        raise _damaged(reader, size - 10, f"its footer claims {length} bytes")
    footer = _Buffer(reader, read_bytes(reader, size - 10 - length, length), size - 10 - length)
    blocks = footer.vector(footer.root(), 3, item_nbytes=24)
    lengths = []
    for place in blocks:
        offset, head_nbytes = footer.unpack("<qi", place)
        lengths.append(_batch_length(reader, offset, head_nbytes))
    return lengths


def _batch_length(reader: Reader, offset: int, nbytes: int) -> int:
    if offset < 0 or not 8 <= nbytes <= _MOST_HEAD_NBYTES or offset + nbytes > reader.size:
        raise _damaged(reader, max(0, offset), f"a batch claims a head of {nbytes} bytes")
    data = read_bytes(reader, offset, nbytes)
    skip = 8 if struct.unpack_from("<I", data)[0] == _CONTINUATION else 4
    message = _Buffer(reader, data[skip:], offset + skip)
    root = message.root()
    kind = message.scalar(root, 1, "<B")
    body = message.child(root, 2)
    if kind != _RECORD_BATCH or body is None:
        raise _damaged(reader, offset, "there is no record batch where the footer says")
    length = message.scalar(body, 0, "<q")
    if length < 0:
        raise _damaged(reader, offset, f"a batch claims {length} rows")
    return length


class _Buffer:
    """A flatbuffer: tables that point to each other, with every offset checked."""

    def __init__(self, reader: Reader, data: bytes, offset: int) -> None:
        self.reader = reader
        self.data = data
        self.offset = offset

    def unpack(self, layout: str, place: int) -> tuple[int, ...]:
        if place < 0 or place + struct.calcsize(layout) > len(self.data):
            raise _damaged(self.reader, self.offset, "its index points outside itself")
        return struct.unpack_from(layout, self.data, place)

    def root(self) -> int:
        return self.unpack("<I", 0)[0]

    def _place(self, table: int, field: int) -> int | None:
        """Return where a field of a table is, or None if the table omits it."""
        index = table - self.unpack("<i", table)[0]
        if 4 + 2 * field >= self.unpack("<H", index)[0]:
            return None
        offset = self.unpack("<H", index + 4 + 2 * field)[0]
        return table + offset if offset else None

    def scalar(self, table: int, field: int, layout: str) -> int:
        place = self._place(table, field)
        return 0 if place is None else self.unpack(layout, place)[0]

    def child(self, table: int, field: int) -> int | None:
        place = self._place(table, field)
        return None if place is None else place + self.unpack("<I", place)[0]

    def vector(self, table: int, field: int, *, item_nbytes: int) -> range:
        """Return where the items of a vector are."""
        start = self.child(table, field)
        if start is None:
            return range(0)
        count = self.unpack("<I", start)[0]
        if start + 4 + count * item_nbytes > len(self.data):
            raise _damaged(self.reader, self.offset, f"its index claims {count} batches")
        return range(start + 4, start + 4 + count * item_nbytes, item_nbytes)


def _damaged(
    reader: Reader,
    offset: int,
    problem: str,
    cure: str = "It may be damaged or cut off: compare it with its original.",
) -> DataError:
    return DataError(problem, file=str(reader.location), offset=offset, cure=cure)
