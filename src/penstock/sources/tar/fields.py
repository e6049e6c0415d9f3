"""The fields of a sample: what the bytes of a member become, which its extension says."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Index
from penstock.core.blocks import Pieces, Sink
from penstock.core.columns import Fixed, Ragged, Text, column_of
from penstock.core.fields import Field, tops_of
from penstock.core.rows import Context
from penstock.core.spec import ArraySpec
from penstock.errors import DataError, SpecMismatchError
from penstock.io.formats.npy_header import NpyHeader, read_header
from penstock.io.inner import InnerFile, in_memory
from penstock.io.open import open_reader
from penstock.io.reader import Bytes
from penstock.sources.images.decoders import open_picture
from penstock.sources.images.in_blocks import decode_picture
from penstock.sources.reading.parts import BAD

KEY = "__key__"
IMAGES = {"jpg", "jpeg", "png", "bmp", "webp", "gif", "tif", "tiff"}
INTEGERS = {"cls", "cls2", "class", "count", "index", "inx", "id"}
TEXTS = {"txt", "text", "transcript", "json", "jsn"}
_MOST_DIGITS = 64
_ROW_NBYTES = 24  # What a row takes in a block besides its values, where rows differ in size.
LOOKED_AT = 64
"""Samples of which images and arrays are looked at, to learn their shapes."""

Inner = Callable[[int], InnerFile]
"""Returns the member of a field of a sample, by the number of the sample, as a file."""


class Found:
    """Members that were read: `sizes[j]` bytes from `starts[j]` on, of the samples `rows[j]`."""

    def __init__(self, data: Bytes, starts: Index, sizes: Index, rows: Index) -> None:
        self.data = data
        self.starts = starts
        self.sizes = sizes
        self.rows = rows

    def one(self, number: int) -> Bytes:
        """Return one member."""
        start = int(self.starts[number])
        return self.data[start : start + int(self.sizes[number])]

    def packed(self, context: Context) -> tuple[Bytes, Index]:
        """Return all members one after the other, and where each begins and ends."""
        offsets = np.zeros(len(self.sizes) + 1, np.int64)
        np.cumsum(self.sizes, out=offsets[1:])
        data = context.allocate(int(offsets[-1]))
        _native.gather_spans(self.data, self.starts, self.sizes, data, offsets[:-1].copy())
        return data, offsets


class TarField(ABC):
    """One field: how its members are decoded to a column."""

    field: Field
    staging_nbytes = 0
    """What decoding one member takes."""

    def __init__(self, extension: str, label: Callable[[int], tuple[str, str]]) -> None:
        self.extension = extension
        self.label = label
        """Returns the tar of a sample, and how its member is called in messages."""

    def wrong(self, row: int, problem: str, cure: str) -> DataError:
        """Return the error of a member that can't be decoded."""
        file, name = self.label(row)
        return DataError(f"{name}: {problem}", file=file, cure=cure)


class ReadField(TarField):
    """A field of small members: the bytes of many are read at once, then decoded."""

    @abstractmethod
    def put(self, found: Found, sink: Sink, context: Context) -> None:
        """Decode members to the rows of a column."""


class BytesField(ReadField):
    """Members as they are."""

    kind: type = bytes

    def __init__(self, extension: str, label: Any, sizes: Index) -> None:
        super().__init__(extension, label)
        mean = int(sizes.mean()) if len(sizes) else 0
        tops = tops_of(sizes + 8) if len(sizes) else ()
        self.field = Field(ArraySpec((), self.kind), estimate=mean + 8, tops=tops)

    def put(self, found: Found, sink: Sink, context: Context) -> None:
        """Copy the bytes."""
        assert isinstance(sink, Pieces)
        sink.add(Text(*found.packed(context), self.kind))


class TextField(BytesField):
    """Members that are UTF-8."""

    kind = str

    def put(self, found: Found, sink: Sink, context: Context) -> None:
        """Copy the bytes, after checking that each member is text."""
        assert isinstance(sink, Pieces)
        data, offsets = found.packed(context)
        starts = offsets[:-1][np.diff(offsets) > 0]
        try:
            str(data[: offsets[-1]].data, "utf-8")
            # No character may begin in one member and end in the next.
            is_text = not ((data[starts] & 0xC0) == 0x80).any()
        except UnicodeDecodeError:
            is_text = False
        if not is_text:
            for number, row in enumerate(found.rows.tolist()):
                try:
                    str(found.one(number).data, "utf-8")
                except UnicodeDecodeError as error:
                    cure = "It may be damaged; other encodings are read as bytes under another extension, such as .bin."
                    raise self.wrong(row, f"is no UTF-8 ({error.reason})", cure) from None
        sink.add(Text(data, offsets, str))


_UNDERSCORE = ord("_")


class IntegerField(ReadField):
    """Members that are a whole number, in decimal digits."""

    field = Field(ArraySpec((), np.int64))

    def put(self, found: Found, sink: Sink, context: Context) -> None:
        """Parse the numbers, all at once."""
        assert isinstance(sink, Fixed)
        width = int(found.sizes.max(initial=1))
        numbers = None
        if 0 < width <= _MOST_DIGITS:
            padded = np.zeros(len(found.sizes) * width, np.uint8)
            places = np.arange(len(found.sizes), dtype=np.int64) * width
            _native.gather_spans(found.data, found.starts, found.sizes, padded, places)
            if not (padded == _UNDERSCORE).any():  # Python takes 1_0 for 10.
                with suppress(ValueError, OverflowError):
                    numbers = padded.view(f"S{width}").astype(np.int64)
        if numbers is None:
            for number, row in enumerate(found.rows.tolist()):
                self._check(row, found.one(number)[: 2 * _MOST_DIGITS].tobytes())
            raise self.wrong(int(found.rows[0]), "holds no whole number", "Check what wrote it.")
        sink.put(numbers)

    def _check(self, row: int, text: bytes) -> None:
        try:
            np.array(int(text.replace(b"_", b"?")), np.int64)
        except (ValueError, OverflowError):
            problem = f"must hold a whole number of 64 bits, got {text[:20]!r}"
            raise self.wrong(row, problem, "Check what wrote it.") from None


class ArrayField(ReadField):
    """Members that are `.npy` files: the whole array is the field of a row."""

    def __init__(
        self, extension: str, label: Any, sizes: Index, looks: Sequence[InnerFile]
    ) -> None:
        super().__init__(extension, label)
        spec: ArraySpec | None = None
        for look in looks:
            # What can't be opened, or is unlike the others, is an error when it is read.
            with suppress(*BAD):
                mine = array_spec(look)
                spec = mine if spec is None else _joined(spec, mine) or spec
        if spec is None:
            spec = array_spec(looks[0])
        if spec.is_fixed:
            self.field = Field(spec)
        else:
            mean = int(sizes.mean()) + _ROW_NBYTES
            self.field = Field(spec, estimate=mean, tops=tops_of(sizes + _ROW_NBYTES))

    def put(self, found: Found, sink: Sink, context: Context) -> None:
        """Copy the values, those of one shape all at once."""
        headers = self._headers(found)
        if isinstance(sink, Fixed):
            spec = self.field.spec
            nbytes = spec.nbytes
            memory = context.allocate(len(headers) * nbytes)[: len(headers) * nbytes]
            starts = found.starts + np.array([one.data_offset for one in headers], np.int64)
            lengths = np.full(len(headers), nbytes, np.int64)
            places = np.arange(len(headers), dtype=np.int64) * nbytes
            if nbytes:
                _native.gather_spans(found.data, starts, lengths, memory, places)
            values = memory.view(spec.numpy_dtype).reshape(len(headers), *spec.fixed_shape)
            if any(header.fortran_order for header in headers):
                for number, header in enumerate(headers):
                    if header.fortran_order:
                        values[number] = values[number].reshape(header.shape[::-1]).T.copy()
            sink.put(values)
            return
        arrays = []
        for number, header in enumerate(headers):
            data = found.one(number)[header.data_offset : header.data_offset + header.nbytes]
            flat = np.frombuffer(data.tobytes(), header.dtype)
            order = "F" if header.fortran_order else "C"
            arrays.append(flat.reshape(header.shape, order=order))  # type: ignore[call-overload]
        column = column_of(arrays, self.field.spec, context.allocate, aligned=sink.aligned)
        assert isinstance(column, Ragged)
        sink.add(column)

    def _headers(self, found: Found) -> Sequence[NpyHeader]:
        """Return the header of each member; mostly they are the same, byte for byte, and one is parsed."""
        count = len(found.rows)
        first = self._header(found, 0)
        length = first.data_offset
        if bool((found.sizes == found.sizes[0]).all()):
            heads = np.empty(count * length, np.uint8)
            lengths = np.full(count, length, np.int64)
            places = np.arange(count, dtype=np.int64) * length
            _native.gather_spans(found.data, found.starts, lengths, heads, places)
            if bool((heads.reshape(count, length) == heads[:length]).all()):
                return [first] * count
        return [first, *(self._header(found, number) for number in range(1, count))]

    def _header(self, found: Found, number: int) -> NpyHeader:
        """Return the header of one member, after checking that it is like the others."""
        file, name = self.label(int(found.rows[number]))
        with open_reader(in_memory("x.npy", f"{file}: {name}", found.one(number))) as reader:
            header = read_header(reader)
        spec = self.field.spec
        if header.dtype != spec.dtype or not spec.admits(header.shape):
            raise SpecMismatchError(
                f"{file}: {name} is {ArraySpec(header.shape, header.dtype)}, and those that were looked at are {spec}; "
                "write them alike, or leave the field out with fields=(...)."
            )
        return header


def array_spec(file: InnerFile) -> ArraySpec:
    """Return dtype and shape of an `.npy` file."""
    with open_reader(file) as reader:
        header = read_header(reader)
    return ArraySpec(header.shape, header.dtype)


def _joined(one: ArraySpec, other: ArraySpec) -> ArraySpec | None:
    """Return the spec that both have, with None where their sizes differ; None if dtype or rank do."""
    if one.dtype != other.dtype or len(one.shape) != len(other.shape):
        return None
    sizes = zip(one.shape, other.shape, strict=True)
    return ArraySpec([a if a == b else None for a, b in sizes], one.dtype)


class ImageField(TarField):
    """Members that are images, each read when it is decoded, as those of a folder are."""

    def __init__(
        self,
        extension: str,
        label: Any,
        looks: Sequence[InnerFile],
        size: tuple[int, int] | None,
        *,
        verify: bool,
    ) -> None:
        super().__init__(extension, label)
        self.size = size
        self.verify = verify
        shapes = []
        for look in looks:
            # What can't be opened is an error when it is read.
            with suppress(*BAD), open_picture(look, size) as picture:
                shapes.append(picture.shape)
                self.staging_nbytes = max(self.staging_nbytes, picture.nbytes)
        if not shapes:
            with open_picture(looks[0], size):
                pass
        if size is not None or len(set(shapes)) == 1:
            self.field = Field(ArraySpec(shapes[0], np.uint8))
        else:
            nbytes = [int(np.prod(shape)) + _ROW_NBYTES for shape in shapes]
            self.field = Field(
                ArraySpec((None, None, 3), np.uint8), estimate=sum(nbytes) // len(nbytes)
            )

    def decode(self, rows: Index, sink: Sink, context: Context, inner: Inner) -> None:
        """Decode one image after the other; threads do so side by side."""
        for slot, row in enumerate(rows.tolist()):
            if context.executor.is_closing:
                return
            decode_picture(
                inner(row), self.size, self.field.spec, sink, slot, context, verify=self.verify
            )
