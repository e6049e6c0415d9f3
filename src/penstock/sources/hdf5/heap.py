"""Values of any length in HDF5: a dataset holds references, and its values lie in heaps of the file.

A reference says how long its value is. So what rows take is known before any of them is read; and heaps are read
here, not by HDF5, which takes their sizes on trust.
"""

import codecs
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Array, Index
from penstock.core.columns import Ragged, Text
from penstock.core.spec import ArraySpec
from penstock.errors import DataError
from penstock.io.reader import Reader
from penstock.io.seekable import SeekableFile
from penstock.memory import Allocate
from penstock.sources.hdf5.chunks import corners, packed_chunk, unpacked_chunk
from penstock.sources.hdf5.filter_pipeline import Filters

REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("index", "<u4")])
"""How long a value is, which heap it lies in, and its number there."""
_HEAD = struct.Struct("<4sB3xQ")
_OBJECT = struct.Struct("<HHIQ")
# Heaps up to this size are read whole; larger ones have few values, or one.
_WHOLE_NBYTES = 1 << 16
_CHECKED_NBYTES = 1 << 20
_CURE = "It is damaged: copy it again from its original."


def has_references(dataset: Any) -> bool:
    """Return whether the references of a dataset are of the usual size, and can be read."""
    return tuple(dataset.file.id.get_create_plist().get_sizes()) == (8, 8)


@dataclass(frozen=True, slots=True)
class References:
    """Where the references of a dataset are, to be read by rows."""

    dataset: Any
    filters: Filters | None
    reader: Reader | None
    """The file; None if it is not known, and only chunks can be read."""
    file: str

    def of_rows(self, start: int, stop: int) -> Array | None:
        """Return the references of some rows; None if they can't be had.

        Those of rows that were never written are all zeros. The caller holds the lock.
        """
        found = np.zeros(stop - start, REFERENCE)
        if self.dataset.id.get_storage_size() == 0:
            return found
        if self.dataset.chunks is None:
            return found if self._read_contiguous(start, found) else None
        rows = self.dataset.chunks[0]
        for corner in corners(self.dataset, start, stop):
            raw = packed_chunk(self.dataset, self.filters, corner, self.file)
            if raw is None:
                continue
            mask, packed = raw
            chunk = unpacked_chunk(self.dataset, self.filters, corner, packed, mask, self.file)
            if chunk is None:
                return None
            if chunk.size != rows * REFERENCE.itemsize:
                raise _wrong(self.dataset, self.file, corner[0], f"a chunk has {chunk.size} bytes")
            first, last = max(start, corner[0]), min(stop, corner[0] + rows)
            references = chunk.view(REFERENCE)
            found[first - start : last - start] = references[first - corner[0] : last - corner[0]]
        return found

    def _read_contiguous(self, start: int, found: Array) -> bool:
        offset = self.dataset.id.get_offset()
        if offset is None or self.reader is None:
            return False  # They lie among the metadata, or in a file that is not known.
        begin = int(offset) + start * REFERENCE.itemsize
        if begin + found.nbytes > self.reader.size:
            problem = "its references lie past the end of the file"
            raise _wrong(self.dataset, self.file, start, problem)
        self.reader.read_into(found.view(np.uint8), begin)
        return True


def lengths_of(references: Array) -> Index:
    """Return how many items each value has; a reference without a heap stands for none."""
    return np.where(references["address"] == 0, 0, references["length"]).astype(np.int64)


def values_of(
    references: Array, start: int, spec: ArraySpec, where: References, allocate: Allocate
) -> Text | Ragged:
    """Return the values that references of rows from `start` on stand for."""
    counts = lengths_of(references)
    width = 1 if spec.is_text else spec.numpy_dtype.itemsize
    nbytes = counts * width
    assert where.reader is not None
    too_long = np.flatnonzero(nbytes > where.reader.size)
    if len(too_long):
        problem = f"a value claims {nbytes[too_long[0]]} bytes, in a file of {where.reader.size}"
        raise _wrong(where.dataset, where.file, start + int(too_long[0]), problem)
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(nbytes, out=offsets[1:])
    # Before any value is read: it is refused if there is no room.
    data = allocate(int(offsets[-1]))
    heaps = _Heaps(where, start)
    heaps.fill(references, nbytes, data, offsets)
    if not spec.is_text:
        items = data[: offsets[-1]].view(spec.numpy_dtype)
        return Ragged(items, offsets[:-1] // width, counts[:, None])
    text = Text(data, offsets, bytes if spec.dtype is bytes else str)
    text = _ended(text, allocate)
    if spec.dtype is str:
        _check_utf8(text, start, where)
    return text


class _Heaps:
    """The heaps of a file while values are read from them."""

    def __init__(self, where: References, start: int) -> None:
        assert where.reader is not None
        self.where = where
        self.start = start
        self.reader = where.reader
        self.file = SeekableFile(where.reader)
        self.base = int(where.dataset.file.id.get_create_plist().get_userblock())

    def fill(self, references: Array, nbytes: Index, data: Any, offsets: Index) -> None:
        """Copy each value to its place in `data`, heap by heap."""
        rows = np.flatnonzero(nbytes)
        rows = rows[np.argsort(references["address"][rows], kind="stable")]
        addresses = references["address"][rows]
        for same in np.split(rows, np.flatnonzero(np.diff(addresses)) + 1):
            if len(same):
                self._fill_from(
                    references[same], same, nbytes[same], data, offsets[same], len(data)
                )

    def _fill_from(
        self, references: Array, rows: Index, nbytes: Index, data: Any, offsets: Index, room: int
    ) -> None:
        address = int(references["address"][0]) + self.base
        row = self.start + int(rows[0])
        head = self._bytes(address, _HEAD.size, row)
        signature, version, size = _HEAD.unpack(head)
        if signature != b"GCOL" or version != 1:
            raise self._wrong(row, f"there is no heap at byte {address}")
        if size > self.reader.size - address:
            raise self._wrong(row, f"the heap at byte {address} claims {size} bytes")
        whole = self._bytes(address, size, row) if size <= _WHOLE_NBYTES else None
        places = self._objects(address, size, whole, row)
        starts = np.empty(len(rows), np.int64)
        for number, (index, wanted) in enumerate(
            zip(references["index"].tolist(), nbytes.tolist(), strict=True)
        ):
            place, held = places.get(index, (0, -1))
            if held != wanted:
                what = f"it has {held}" if held >= 0 else "there is no such value"
                raise self._wrong(
                    self.start + int(rows[number]),
                    f"value {index} of the heap at byte {address} must have {wanted} bytes, and {what}",
                )
            starts[number] = place
        if whole is not None:
            source = np.frombuffer(whole, np.uint8)
            _native.gather_spans(source, starts, nbytes, data, np.ascontiguousarray(offsets))
            return
        for place, wanted, offset in zip(
            starts.tolist(), nbytes.tolist(), offsets.tolist(), strict=True
        ):
            self.reader.read_into(data[offset : offset + wanted], address + place)

    def _objects(
        self, address: int, size: int, whole: bytes | None, row: int
    ) -> dict[int, tuple[int, int]]:
        """Return where each value of a heap begins, and its bytes, by its number."""
        found: dict[int, tuple[int, int]] = {}
        place = _HEAD.size
        while place + _OBJECT.size <= size:
            if whole is not None:
                index, _, _, nbytes = _OBJECT.unpack_from(whole, place)
            else:
                head = self._bytes(address + place, _OBJECT.size, row)
                index, _, _, nbytes = _OBJECT.unpack(head)
            if index == 0:  # The rest is free.
                break
            place += _OBJECT.size
            if nbytes > size - place or index in found:
                raise self._wrong(row, f"the heap at byte {address} is damaged at byte {place}")
            found[index] = place, nbytes
            place += (nbytes + 7) & ~7
        return found

    def _bytes(self, start: int, nbytes: int, row: int) -> bytes:
        if start + nbytes > self.reader.size:
            raise self._wrong(row, f"there is no heap at byte {start}")
        self.file.seek(start)
        return self.file.read(nbytes)

    def _wrong(self, row: int, problem: str) -> DataError:
        return _wrong(self.where.dataset, self.where.file, row, problem)


def _wrong(dataset: Any, file: str, row: int, problem: str) -> DataError:
    name = str(dataset.name).removeprefix("/")
    return DataError(f"dataset {name!r}: {problem}", file=file, row=row, cure=_CURE)


def _ended(text: Text, allocate: Allocate) -> Text:
    """Return text that ends at its first zero, as HDF5 reads it."""
    data = text.data[: text.offsets[-1]]
    zeros = np.flatnonzero(data == 0)
    if not len(zeros):
        return text
    first = zeros[np.minimum(np.searchsorted(zeros, text.offsets[:-1]), len(zeros) - 1)]
    ends = np.where(
        first >= text.offsets[:-1], np.minimum(first, text.offsets[1:]), text.offsets[1:]
    )
    lengths = ends - text.offsets[:-1]
    offsets = np.zeros(len(text) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    out = allocate(int(offsets[-1]))
    _native.gather_spans(data, text.offsets[:-1].copy(), lengths, out, offsets[:-1].copy())
    return Text(out, offsets, text.kind)


def _check_utf8(text: Text, start: int, where: References) -> None:
    """Raise for the first row that is no UTF-8."""
    data = text.data[: text.offsets[-1]]
    begins = text.offsets[:-1][text.offsets[:-1] < text.offsets[1:]]
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for piece in range(0, len(data), _CHECKED_NBYTES):
            decoder.decode(data[piece : piece + _CHECKED_NBYTES].data)
        decoder.decode(b"", final=True)
        is_good = not ((data[begins] & 0xC0) == 0x80).any()  # None begins amid a character.
    except UnicodeDecodeError:
        is_good = False
    if is_good:
        return
    for row in range(len(text)):
        value = data[text.offsets[row] : text.offsets[row + 1]].tobytes()
        try:
            value.decode()
        except UnicodeDecodeError as error:
            raise _wrong(where.dataset, where.file, start + row, f"no UTF-8: {error}") from error
