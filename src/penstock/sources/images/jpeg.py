"""A plain JPEG, decoded from the file's bytes: by native code, or by libjpeg-turbo, to the same pixels.

Pillow has libjpeg-turbo, too, and takes twice the time.
"""

from functools import cache
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Array
from penstock.core.optional import require
from penstock.errors import DataError
from penstock.io.reader import Reader, read_bytes
from penstock.sources.images.by_pillow import taken_nbytes
from penstock.sources.images.jpeg_header import JpegHeader, jpeg_header
from penstock.sources.images.picture import (
    HEAD_NBYTES,
    UNVERIFIED,
    too_much_before_pixels,
)
from penstock.sources.images.whole_file import WholeFilePicture

# What libjpeg says when pixels are lost. Other warnings are of bytes too many, which many cameras write.
_LOST = ("premature end", "Premature end", "bad Huffman code", "instead of RST")


class JpegPicture(WholeFilePicture):
    """A JPEG of one or three colours, 8 bits each."""

    kind = "JPEG"

    def __init__(
        self,
        reader: Reader,
        first: bytearray,
        header: JpegHeader,
        size: tuple[int, int] | None,
        *,
        verify: bool,
    ) -> None:
        super().__init__(reader, first, (header.height, header.width), size, verify=verify)
        self._divisor = self.reduction()
        self.nbytes = self._decoding_nbytes(header)

    @staticmethod
    def header_of(reader: Reader, first: bytearray) -> JpegHeader | None:
        """Return what the header says; None if it is no plain JPEG."""
        return jpeg_header(_Start(reader, first).read)

    def decode(self, out: Array) -> None:
        """Fill `out` with the pixels."""
        try:
            self._decode(self.data(), out)
        except (ValueError, RuntimeError) as error:
            if isinstance(error, DataError):
                raise
            why = str(error)
            if self.verify and any(words in why for words in _LOST):
                raise DataError(
                    f"can't be decoded: {why}",
                    file=str(self.location),
                    cure="It may be damaged or cut off: leave it out, or copy it again; "
                    f"{UNVERIFIED} reads it as it is, if it is not cut off.",
                ) from error
            # It warned of what does no harm, or gave up, and Pillow then says why.
            self.decode_by_pillow(out)

    def _decode(self, data: Array, out: Array) -> None:
        height, width = (-(-side // self._divisor) for side in (self.height, self.width))
        is_put = out.shape == (height, width, 3) and out.flags.c_contiguous
        image: Array = out if is_put else np.empty((height, width, 3), np.uint8)
        is_native = _native.decodes_jpeg_fast and self._divisor == 1
        if not (is_native and _native.decode_jpeg(data, image)):
            # It shall be divided, is progressive or unusual; or something is wrong, and libjpeg-turbo says what.
            least = {"min_height": height, "min_width": width} if self._divisor > 1 else {}
            made = _library().decode_jpeg(data, "RGB", buffer=image, **least)
            if made.shape != image.shape:
                raise ValueError(f"{made.shape} instead of {image.shape}")
        if not is_put:
            size = self.height / self._divisor, self.width / self._divisor
            _native.resize(image, 0, height, size, out, 0, len(out))

    def _decoding_nbytes(self, header: JpegHeader) -> int:
        """Return the most bytes that are taken at any time, also if it is Pillow that decodes it."""
        width, height = -(-self.width // self._divisor), -(-self.height // self._divisor)
        scans = 0
        if header.has_many_scans:
            # The coefficients of all pixels, two bytes each, until the last scan is read.
            scans = 2 * header.num_colors * (self.width + 16) * (self.height + 16)
        ours = 2 * self._reader.size + 3 * width * height + 128 * width
        theirs = taken_nbytes(width, height, 4, self.shape[0])
        return scans + max(ours, theirs) + self.result_nbytes()


class _Start:
    """The start of a file, of which the first bytes are in memory."""

    def __init__(self, reader: Reader, first: bytearray) -> None:
        self._reader = reader
        self._first = first

    def read(self, offset: int, nbytes: int) -> bytes:
        """Return so many bytes, or fewer at the end of the file."""
        if offset + nbytes <= len(self._first):
            return bytes(self._first[offset : offset + nbytes])
        nbytes = max(0, min(nbytes, self._reader.size - offset))
        if offset + nbytes > HEAD_NBYTES:
            raise too_much_before_pixels(self._reader.location)
        return read_bytes(self._reader, offset, nbytes)


@cache
def _library() -> Any:
    return require("simplejpeg", "reading .jpg", "images")
