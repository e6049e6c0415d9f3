"""The index of an Arrow IPC file: how many rows each of its batches has, and how many bytes, without reading them.

pyarrow gives only the number of batches. The length of each is in the flatbuffer at its head, with its buffers, and
where the heads are is in the flatbuffer at the end of the file. A packed buffer begins with its size unpacked.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.errors import DataError
from penstock.io.reader import Range, Reader, read_bytes

MAGIC = b"ARROW1"
_CONTINUATION = 0xFFFFFFFF
_MOST_HEAD_NBYTES = 64 << 20  # A larger footer or head is taken for damage.
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3  # The format's numbers for these kinds of messages.
_MOST_RATIO = 1 << 20  # Of what is unpacked to what is packed: no codec reaches it.


@dataclass(frozen=True, slots=True)
class Batch:
    """What the head of a batch says of it."""

    num_rows: int
    offsets: tuple[int, ...]
    """Where its buffers are in the file."""
    lengths: tuple[int, ...]
    """Their bytes in the file."""
    is_packed: bool
    variadic: tuple[int, ...]
    """For each column of views, how many buffers its texts are in."""


@dataclass(frozen=True, slots=True)
class Index:
    """The batches of a file, and those of its dictionaries."""

    batches: tuple[Batch, ...]
    dictionaries: tuple[Batch, ...]


def read_index(reader: Reader) -> Index:
    """Return the batches of a file, from its footer and their heads."""
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
    kinds = (
        (_RECORD_BATCH, 3),
        (_DICTIONARY_BATCH, 2),
    )  # With the number of their field in the footer.
    return Index(*(_batches(reader, footer, *one) for one in kinds))


def _batches(reader: Reader, footer: "_Buffer", kind: int, field: int) -> tuple[Batch, ...]:
    found = []
    for place in footer.vector(footer.root(), field, item_nbytes=24):
        offset, head_nbytes, _, body_nbytes = footer.unpack("<qiiq", place)
        found.append(_batch(reader, kind, offset, head_nbytes, body_nbytes))
    return tuple(found)


def _batch(reader: Reader, wanted: int, offset: int, nbytes: int, body_nbytes: int) -> Batch:
    if offset < 0 or not 8 <= nbytes <= _MOST_HEAD_NBYTES or offset + nbytes > reader.size:
        raise _damaged(reader, max(0, offset), f"a batch claims a head of {nbytes} bytes")
    data = read_bytes(reader, offset, nbytes)
    skip = 8 if struct.unpack_from("<I", data)[0] == _CONTINUATION else 4
    message = _Buffer(reader, data[skip:], offset + skip)
    root = message.root()
    kind = message.scalar(root, 1, "<B")
    body = message.child(root, 2)
    if kind == _DICTIONARY_BATCH and body is not None:
        body = message.child(body, 1)
    if kind != wanted or body is None:
        raise _damaged(reader, offset, "there is no record batch where the footer says")
    length = message.scalar(body, 0, "<q")
    if length < 0:
        raise _damaged(reader, offset, f"a batch claims {length} rows")
    start = offset + nbytes
    buffers = [message.unpack("<qq", at) for at in message.vector(body, 2, item_nbytes=16)]
    for begin, size in buffers:
        if begin < 0 or size < 0 or begin + size > min(body_nbytes, reader.size - start):
            raise _damaged(reader, offset, f"a batch claims {size} bytes that are not there")
    variadic = (message.unpack("<q", at)[0] for at in message.vector(body, 4, item_nbytes=8))
    return Batch(
        length,
        tuple(start + begin for begin, _ in buffers),
        tuple(size for _, size in buffers),
        message.child(body, 3) is not None,
        tuple(max(0, min(count, len(buffers))) for count in variadic),
    )


def unpacked_nbytes(reader: Reader, batch: Batch, numbers: Sequence[int]) -> int:
    """Return the bytes of some buffers of a batch as they are unpacked; reads the beginning of packed ones."""
    if not batch.is_packed:
        return sum(batch.lengths[number] for number in numbers)
    packed = [number for number in numbers if batch.lengths[number] >= 8]
    heads = np.zeros(len(packed), "<i8")
    reader.read_ranges(
        [Range(batch.offsets[n], heads[i : i + 1].view(np.uint8)) for i, n in enumerate(packed)]
    )
    total = 0
    for number, nbytes in zip(packed, heads.tolist(), strict=True):
        if nbytes < -1 or nbytes > _MOST_RATIO * batch.lengths[number]:
            raise _damaged(
                reader,
                batch.offsets[number],
                f"{batch.lengths[number]} packed bytes claim to be {nbytes} unpacked",
            )
        total += batch.lengths[number] - 8 if nbytes == -1 else nbytes
    return total


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
            raise _damaged(self.reader, self.offset, f"its index claims {count} items")
        return range(start + 4, start + 4 + count * item_nbytes, item_nbytes)


def _damaged(
    reader: Reader,
    offset: int,
    problem: str,
    cure: str = "It may be damaged or cut off: compare it with its original.",
) -> DataError:
    return DataError(problem, file=str(reader.location), offset=offset, cure=cure)
