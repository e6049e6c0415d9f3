"""Images in records: features whose bytes are encoded images, decoded on the way to their columns."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from penstock.core.blocks import Sink
from penstock.core.fields import Field, allocate_block
from penstock.core.rows import Context
from penstock.core.spec import ArraySpec
from penstock.errors import DataError
from penstock.io.inner import in_memory
from penstock.io.reader import Bytes
from penstock.sources.images.decoders import open_picture, require_decoders
from penstock.sources.images.in_blocks import decode_picture
from penstock.sources.images.picture import UNVERIFIED
from penstock.sources.reading.parts import BAD
from penstock.sources.tfrecord.features import ImageFeature

Place = Callable[[int], tuple[str, int, int]]
"""The file of record j of a call, the record's number in it, and the byte where it starts."""


class RecordImages:
    """The features that hold images, by their numbers among all features."""

    def __init__(
        self, features: Mapping[int, ImageFeature], names: Mapping[int, str], *, verify: bool
    ) -> None:
        self.features = features
        self.names = names
        self.verify = verify
        self.picture_nbytes = 0
        """What decoding the largest of the images takes that were measured."""
        if features:
            require_decoders([in_memory("image", "", np.empty(0, np.uint8))])

    def __len__(self) -> int:
        return len(self.features)

    def __contains__(self, number: int) -> bool:
        return number in self.features

    def pixels_nbytes(self, number: int, data: Bytes) -> int:
        """Return the bytes of the pixels of an image, and note what decoding it takes."""
        feature = self.features[number]
        try:
            with open_picture(in_memory("image", "", data), feature.size) as picture:
                height, width, _ = picture.shape
                taken = picture.nbytes + 3 * height * width
                self.picture_nbytes = max(self.picture_nbytes, taken)
                return height * width * feature.channels
        except BAD:
            return 0  # It is raised, or counted, when rows are read that far.

    def decode(
        self,
        number: int,
        parts: Any,
        place: Place,
        spec: ArraySpec,
        sink: Sink,
        context: Context,
    ) -> None:
        """Decode the images of one feature to a column; raise for the first bad one."""
        for record, data in enumerate(_files(parts)):
            if context.executor.is_closing:
                return
            self._decode_one(number, data, place(record), spec, sink, record, context)

    def _decode_one(
        self,
        number: int,
        data: Bytes,
        place: tuple[str, int, int],
        spec: ArraySpec,
        sink: Sink,
        slot: int,
        context: Context,
    ) -> None:
        file, row, start = place
        name = f"feature '{self.names[number]}'"
        image = in_memory("image", f"{file}, row {row}: {name}", data)
        size = self.features[number].size
        try:
            decode_picture(image, size, spec, sink, slot, context, verify=self.verify)
        except BAD as error:
            text = f"{name} holds a bad image: {getattr(error, 'problem', error)}"
            raise DataError(text, file=file, offset=start, row=row, cure=_cure(error)) from error

    def bad(
        self,
        columns: Any,
        is_bad: Any,
        place: Place,
        field_of: Callable[[int], Field],
        context: Context,
    ) -> list[DataError]:
        """Return the errors of images of records that are good but for these, one for each record."""
        errors: dict[int, DataError] = {}
        for number in self.features:
            field = field_of(number)
            for record, data in enumerate(_files(columns[number])):
                if is_bad[record] or record in errors or context.executor.is_closing:
                    continue
                sink = allocate_block((field,), 1, context.allocate, aligned=False).sinks[0]
                try:
                    self._decode_one(number, data, place(record), field.spec, sink, 0, context)
                except DataError as error:
                    error.__cause__ = None  # Its frames would keep the block alive.
                    errors[record] = error.with_traceback(None)
        return [errors[record] for record in sorted(errors)]


def _cure(error: Exception) -> str:
    """Return the cure of an image file in the words of records."""
    cure = str(getattr(error, "cure", "")).replace(UNVERIFIED, "from_tfrecord(..., verify=False)")
    return f"{cure} on_error='skip' leaves such records out.".lstrip()


def _files(parts: Any) -> Iterator[Bytes]:
    """Yield the bytes of each row of a column that the native decoder made of single bytes; none of a bad record."""
    data, offsets, counts = parts
    item = 0
    for count in counts.tolist():
        yield data[offsets[item] : offsets[item + count]] if count else data[:0]
        item += count
