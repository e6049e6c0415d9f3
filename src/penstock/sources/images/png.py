"""A plain PNG, unpacked by native code; Pillow gives the same pixels, in twice the time."""

import struct
import zlib
from dataclasses import dataclass

import numpy as np

from penstock import _native
from penstock.core.arrays import Array
from penstock.errors import DataError
from penstock.io.reader import Reader
from penstock.sources.images.by_pillow import put_in_pieces, taken_nbytes
from penstock.sources.images.picture import wrong_sum
from penstock.sources.images.whole_file import WholeFilePicture

_START = b"\x89PNG\r\n\x1a\n"
_HEAD = struct.Struct(">I4s")  # Of a chunk: the bytes that it has, and what it is.
_TAIL = struct.Struct(">I")  # Its checksum.
_IMAGE = struct.Struct(">IIBBBBB")
_PALETTE_COLORS = 3
# Bytes of a pixel, by its colours: grey, RGB, a place in the palette, grey and RGB with transparency.
_PIXEL_NBYTES = {0: 1, 2: 3, _PALETTE_COLORS: 1, 4: 2, 6: 4}
_MOST_CHUNKS = 1 << 14  # Of pixels. Encoders make them of 8 KB and more.
_IGNORED = 1 << 5  # The bit of a chunk's first letter that says that a reader need not know it.


@dataclass(frozen=True, slots=True)
class PngHeader:
    """What stands before the pixels of a plain PNG, which has 8 bits a colour, all rows one after the other."""

    width: int
    height: int
    pixel_nbytes: int
    palette: bytes
    """Three bytes a colour, if pixels are places in it; else none."""
    start: int
    """Where the first chunk of pixels begins."""


class PngPicture(WholeFilePicture):
    """A PNG of 8 bits a colour, neither animated nor interlaced."""

    kind = "PNG"

    def __init__(
        self,
        reader: Reader,
        first: bytearray,
        header: PngHeader,
        size: tuple[int, int] | None,
        *,
        verify: bool,
    ) -> None:
        super().__init__(reader, first, (header.height, header.width), size, verify=verify)
        self._header = header
        # The file, and its chunks as one; and no more than Pillow takes, if it has to decode it.
        depth = 1 if header.pixel_nbytes == 1 else 4
        taken = taken_nbytes(self.width, self.height, depth, self.shape[0])
        self.nbytes = 2 * reader.size + taken + self.result_nbytes()

    @staticmethod
    def header_of(reader: Reader, first: bytearray) -> PngHeader | None:  # noqa: ARG004  # Long ones are Pillow's.
        """Return what the header says; None if it is no plain PNG."""
        return png_header(bytes(first))

    def decode(self, out: Array) -> None:
        """Fill `out` with the pixels."""
        try:
            pixels = self._pixels()
            put_in_pieces(
                lambda first, stop: self._rgb(pixels[first:stop]),
                (self.height, self.width),
                (float(self.height), float(self.width)),
                out,
            )
        except (ValueError, BufferError, IndexError) as error:
            if isinstance(error, DataError):
                raise
            self.decode_by_pillow(out)  # Or it says what is wrong.

    def _pixels(self) -> Array:
        """Return the pixels as they are stored."""
        nbytes = self._header.pixel_nbytes
        rows = np.empty((self.height, 1 + self.width * nbytes), np.uint8)
        if _native.unpack_zlib(self._packed(), rows.reshape(-1)) != rows.size:
            raise ValueError("there are too few pixels")
        _native.undo_png_filters(rows, nbytes)
        return rows[:, 1:].reshape(self.height, self.width, nbytes)

    def _packed(self) -> Array:
        """Return what the chunks of pixels hold, after comparing their checksums."""
        data, at = self.data(), self._header.start
        view = data.data
        parts: list[Array] = []
        while len(parts) < _MOST_CHUNKS:
            if at + _HEAD.size > len(data):
                raise ValueError("cut off")
            nbytes, kind = _HEAD.unpack_from(view, at)
            if kind != b"IDAT":
                return np.concatenate(parts) if len(parts) > 1 else parts[0]
            start, stop = at + _HEAD.size, at + _HEAD.size + nbytes
            if stop + _TAIL.size > len(data):
                raise ValueError("cut off")
            (wanted,) = _TAIL.unpack_from(view, stop)
            if self.verify and zlib.crc32(view[at + 4 : stop]) != wanted:
                raise wrong_sum(self.location)
            parts.append(data[start:stop])
            at = stop + _TAIL.size
        raise ValueError("cut into too many chunks")

    def _rgb(self, pixels: Array) -> Array:
        """Return pixels as RGB; transparency is left out."""
        nbytes = self._header.pixel_nbytes
        if self._header.palette:
            palette = np.frombuffer(self._header.palette, np.uint8).reshape(-1, 3)
            found: Array = palette.take(pixels[:, :, 0], axis=0)
            return found
        if nbytes < 3:
            return np.repeat(pixels[:, :, :1], 3, axis=2)
        return pixels if nbytes == 3 else np.ascontiguousarray(pixels[:, :, :3])


def png_header(first: bytes) -> PngHeader | None:
    """Return what a file that starts so says of itself; None if it is no PNG, not a plain one, longer, or damaged."""
    if not first.startswith(_START):
        return None
    at = len(_START)
    image, palette = b"", b""
    while at + _HEAD.size <= len(first):
        nbytes, kind = _HEAD.unpack_from(first, at)
        if kind == b"IDAT":
            return _plain(image, palette, at)
        stop = at + _HEAD.size + nbytes
        if stop + _TAIL.size > len(first):
            return None
        if zlib.crc32(first[at + 4 : stop]) != _TAIL.unpack_from(first, stop)[0]:
            return None
        body = first[at + _HEAD.size : stop]
        if kind == b"IHDR" and not image:
            image = body
        elif kind == b"PLTE" and not palette:
            palette = body
        elif kind == b"acTL" or not kind[0] & _IGNORED:
            return None  # It has several pictures, or what one must know to read it.
        at = stop + _TAIL.size
    return None


def _plain(image: bytes, palette: bytes, start: int) -> PngHeader | None:
    if len(image) != _IMAGE.size or len(palette) % 3:
        return None
    width, height, bits, colors, *ways = _IMAGE.unpack(image)
    is_plain = bits == 8 and colors in _PIXEL_NBYTES and width and height and not any(ways)
    if not is_plain or (colors == _PALETTE_COLORS and not palette):
        return None
    used = palette if colors == _PALETTE_COLORS else b""
    return PngHeader(width, height, _PIXEL_NBYTES[colors], used, start)
