"""Images that Pillow decodes, as what their names say; how many bytes that takes is known before it begins."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Array
from penstock.core.optional import require
from penstock.errors import DataError, FileError
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.reader import Reader
from penstock.io.seekable import PAGES_NBYTES, SeekableFile
from penstock.io.sizes import READ_NBYTES
from penstock.sources.images.picture import (
    HEAD_NBYTES,
    Picture,
    too_few_bytes,
    too_much_before_pixels,
    wrong_sum,
)
from penstock.sources.images.png_sums import PngSums

# An image is opened as what its name says, and as nothing else: Pillow would run Ghostscript for an EPS of any name.
_PILLOW_FORMATS = {
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".png": "PNG",
    ".bmp": "BMP",
    ".webp": "WEBP",
    ".gif": "GIF",
    ".tif": "TIFF",
    ".tiff": "TIFF",
}
# Bytes that Pillow takes for a pixel; 4 for each mode that is not here, RGB too.
_DEPTHS = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}
# Deflate packs 1,032 bytes into one, of 8 pixels each; a GIF as many pixels as a code of 12 bits can stand for; a JPEG
# 64 pixels into a bit, and rows of them that are all the same into less.
_MOST_PIXELS_A_BYTE = {"PNG": 8 * 1032, "GIF": 4096, "JPEG": 1 << 14}
# Tags of TIFF.
_WIDTH, _LENGTH, _TILE_WIDTH, _TILE_LENGTH, _ROWS_PER_STRIP = 256, 257, 322, 323, 278
_SAMPLES, _BITS, _ORIENTATION = 277, 258, 274
_PHOTOMETRIC, _WHITE_IS_ZERO = 262, 0
# Modes of grey pixels of up to 16 bits, which Pillow would clip to 8, not scale.
_DEEP_GREY = ("I;16", "I;16L", "I;16B", "I;16N")
# Pillow turns a TIFF as its tag says. By this, in Pillow's words, it is turned back.
_TURNED_BACK = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_90",
    7: "TRANSVERSE",
    8: "ROTATE_270",
}
_PIECE_PIXELS = 1 << 18  # What is made RGB, and an array, at a time.
_PIECE_DEPTH = 4 + 4 + 4 + 3 + 3  # A piece, as grey, as RGB, as pieces of bytes, and as an array.


class PillowPicture(Picture):
    """An image file that Pillow decodes."""

    def __init__(
        self, location: Location, size: tuple[int, int] | None, *, verify: bool = True
    ) -> None:
        super().__init__(location, size, verify=verify)
        self._reader = open_reader(location, direct=False)
        self._file = _Counted(self._reader)
        try:
            self._image = self._opened()
        except BaseException:
            self._reader.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._image = None
        self._reader.close()

    def decode(self, out: Array) -> None:
        """Fill `out` with the pixels."""
        image, self._image = self._image, None
        self._file.left = 2 * self.location.size + HEAD_NBYTES
        if self.verify and image.format == "PNG" and image.tile:
            self._file.sums = PngSums(int(image.tile[0][2]) - 8)  # From the head of the chunk.
        try:
            way_back = _way_back(image)
            image.load()
            self._file.check_sums()
            if way_back is not None:
                image = image.transpose(getattr(_pillow(self.location).Transpose, way_back))
            assert image.size == self._decoded_size, f"{image.size} pixels"
            # What it says of transparency is of no use without an alpha channel, and Pillow would warn of it.
            image.info.pop("transparency", None)
            self._put(image, out)
        except Exception as error:
            raise self._failure(error) from error

    def _opened(self) -> Any:
        """Return Pillow's image, in the size that it is decoded to, and set the sizes."""
        try:
            image = self._identified()
            self._measure(image)
        except Exception as error:
            raise self._failure(error) from error
        return image

    def _measure(self, image: Any) -> None:
        self._check_depth(image)
        self.width, self.height = _stored_size(image)
        self.check_pixels(self.width, self.height)
        tile = self._tile_of(image)
        if image.format == "TIFF" and _TILE_WIDTH in image.tag_v2:
            self.check_pixels(*tile)
        scans = 0
        self._divisor = 1
        self._decoded_size = self.width, self.height
        if image.format in {"JPEG", "MPO"}:
            if self._has_many_scans(image):
                # The coefficients of all pixels, two bytes each, until the last scan is read.
                scans = 2 * image.layers * (image.width + 16) * (image.height + 16)
            self._divisor = self.reduction()
            if self._divisor > 1:
                image.draft(None, (self.width // self._divisor, self.height // self._divisor))
            self._decoded_size = image.size
        self.nbytes = scans + self._decoding_nbytes(image, tile)
        self._check_is_whole(image)

    def _check_depth(self, image: Any) -> None:
        """Raise if it can't be known which of its numbers are black and white."""
        what = _unscaled(image)
        if what:
            raise DataError(
                f"holds {what}, of which it is not known what is black and what is white",
                file=str(self.location),
                cure="Scale them to 0 to 255 and save 8 bits, or write the numbers to a .npy file, which is read "
                "as it is.",
            )

    def _check_is_whole(self, image: Any) -> None:
        """Raise if the file has too few bytes for the pixels that it claims: it is damaged, or cut off."""
        pixels = self.width * self.height
        least = pixels // _MOST_PIXELS_A_BYTE.get(image.format, pixels)
        if image.tile and image.tile[0][0] == "raw" and image.format == "TIFF":
            least = pixels // 8  # A bit each.
        if image.tile and image.tile[0][0] == "raw" and image.format == "BMP":
            _, _, start, (_, row_nbytes, _) = image.tile[0]
            least = start + row_nbytes * (self.height - 1)
        if least > self.location.size:
            raise too_few_bytes(self.location, self.width, self.height)

    def _identified(self) -> Any:
        """Return the image as Image.open does, but for its warning of many pixels: we refuse those ourselves."""
        module = _pillow(self.location)
        prefix = self._file.read(16)
        for kind in formats_of(self.location):
            if kind not in module.OPEN:
                module.init()
            factory, accept = module.OPEN[kind]
            if accept(prefix) is True:
                self._file.seek(0)
                return factory(self._file, "")
        raise SyntaxError("cannot identify")

    def _has_many_scans(self, image: Any) -> bool:
        """Whether a JPEG has its colours, or their details, one after the other; True if in doubt."""
        if image.info.get("progressive"):
            return True
        # Pillow has just read the header of the first scan, which says how many colours are in it.
        self._file.seek(-(6 + 2 * image.layers), 1)
        return self._file.read(3) != struct.pack(">HB", 6 + 2 * image.layers, image.layers)

    def _decoding_nbytes(self, image: Any, tile: tuple[int, int]) -> int:
        """Return the most bytes that are taken at any time from here to the pixels."""
        width, height = self._decoded_size
        pixels = width * height
        depth = _DEPTHS.get(image.mode, 4)
        kept = decoding = 0
        if image.format == "WEBP":
            # The file, two canvases of the decoder, and its result as bytes.
            kept = self.location.size + 12 * pixels
        elif image.format == "TIFF":
            decoding = self.location.size + _tile_nbytes(image, tile)
            if _way_back(image) is not None:
                decoding += depth * pixels  # It is turned round, and back.
        elif image.tile and image.tile[0][0] == "bmp_rle":
            decoding = 2 * pixels  # All runs are unpacked before they are put into the image.
        taken = taken_nbytes(width, height, depth, self.shape[0])
        return kept + decoding + taken + self.result_nbytes()

    def _put(self, image: Any, out: Array) -> None:
        """Put the pixels into `out`, as large as that is."""
        grey = _deep_grey(image)

        def rgb(first: int, stop: int) -> Array:
            is_all = (first, stop) == (0, image.height)
            piece = image if is_all else image.crop((0, first, image.width, stop))
            return _rgb(piece, grey)

        size = self.height / self._divisor, self.width / self._divisor
        put_in_pieces(rgb, (image.height, image.width), size, out)

    def _tile_of(self, image: Any) -> tuple[int, int]:
        """Return width and height of what is decoded at once: a tile of a TIFF may be larger than the image."""
        if image.format != "TIFF":
            return self.width, self.height
        tags = image.tag_v2
        if _TILE_WIDTH in tags:
            return int(tags[_TILE_WIDTH]), int(tags.get(_TILE_LENGTH, self.height))
        return self.width, min(self.height, int(tags.get(_ROWS_PER_STRIP, self.height)))

    def _failure(self, error: Exception) -> FileError:
        """Return the error of a file that Pillow failed at; what the storage said goes first."""
        if self._file.failure is not None:
            return self._file.failure
        if isinstance(error, FileError):
            return error
        # Pillow's message would name our file object, not the file.
        kinds = " or ".join(formats_of(self.location))
        cures = "leave it out, or copy it again."
        if self.location.suffix in _PILLOW_FORMATS:
            cures = "leave it out, copy it again, or give it the ending of what it is."
        why = str(error) or type(error).__name__
        if isinstance(error, SyntaxError) and "cannot identify" in why:
            why = f"it is not {kinds}"
        return DataError(
            f"can't be decoded: {why}",
            file=str(self.location),
            cure=f"It may be damaged or cut off, or another kind of file: {cures}",
        )


class _Counted(SeekableFile):
    """The file as Pillow reads it: not without end, and no error of the storage is lost in Pillow."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self.left = HEAD_NBYTES
        self.failure: FileError | None = None
        self.sums: PngSums | None = None
        self._location = reader.location

    def check_sums(self) -> None:
        """Raise if a checksum of pixels is wrong; reads what Pillow had no need of."""
        sums, self.sums = self.sums, None
        if sums is None:
            return
        piece = bytearray(READ_NBYTES)
        while not sums.is_done and sums.at < self._reader.size:
            self.seek(sums.at)
            sums.saw(sums.at, memoryview(piece)[: self.readinto(piece)])
        if sums.is_bad:
            raise wrong_sum(self._location)

    def readinto(self, buffer: Any) -> int:
        """Fill as much of `buffer` as the file has, and return how much that was."""
        start = self.tell()
        try:
            done = super().readinto(buffer)
        except FileError as error:
            self.failure = error
            raise
        if self.sums is not None:
            self.sums.saw(start, memoryview(buffer).cast("B")[:done])
        self.left -= done
        if self.left < 0:
            self.failure = too_much_before_pixels(self._location)
            raise self.failure
        return done

    def read(self, size: int | None = -1) -> bytes:
        """Return up to `size` bytes, or all that are left if it is None or negative."""
        if (size is None or size < 0 or size > self.left) and self._reader.size > self.left:
            size = self.left + 1  # One too many, and not all of a file of any size.
        return super().read(size)


def put_in_pieces(
    rgb: Callable[[int, int], Array],
    sides: tuple[int, int],
    size: tuple[float, float],
    out: Array,
) -> None:
    """Put pixels into `out`, as large as that is, in pieces: the way to RGB takes room.

    `rgb(first, stop)` returns rows as RGB; `sides` are how many rows and columns there are, `size` is the same but for
    last ones that are there only in part.
    """
    height, width = sides
    rows = _PIECE_PIXELS // width - _reach(height, len(out))
    count = max(1, rows * len(out) // height)
    for at in range(0, len(out), count):
        part = out[at : at + count]
        first, stop = _native.rows_to_resize(height, size[0], at, len(part), len(out))
        _native.resize(rgb(first, stop), first, height, size, part, at, len(out))


def _pillow(location: Location) -> Any:
    return require("PIL.Image", f"reading {location.suffix}", "images")


def formats_of(location: Location) -> list[str]:
    """Return what an image may be, in Pillow's words: what its name says; any of ours if it says nothing."""
    claimed = _PILLOW_FORMATS.get(location.suffix)
    return sorted({*_PILLOW_FORMATS.values()}) if claimed is None else [claimed]


def most_pixels_a_byte(kind: str) -> int:
    """Return how many pixels a byte of such a file can stand for."""
    return _MOST_PIXELS_A_BYTE[kind]


def _stored_size(image: Any) -> tuple[int, int]:
    """Return width and height as they are stored: Pillow may have read how a TIFF shall be turned."""
    if image.format == "TIFF":
        return int(image.tag_v2[_WIDTH]), int(image.tag_v2[_LENGTH])
    return int(image.width), int(image.height)


def _way_back(image: Any) -> str | None:
    """Return what undoes the turn that Pillow will give the image, None if it gives it none."""
    return (
        _TURNED_BACK.get(image.getexif().get(_ORIENTATION, 1)) if image.format == "TIFF" else None
    )


def _unscaled(image: Any) -> str:
    """Return what the numbers of an image are that have no known range; '' for pixels."""
    if image.mode == "F":
        return "floats"
    # Older Pillows open grey PNGs of 16 bits as "I".
    return (
        "signed integers, or ones of 32 bits" if image.mode == "I" and image.format != "PNG" else ""
    )


@dataclass(frozen=True, slots=True)
class _DeepGrey:
    """Grey pixels of more than 8 bits: the high 8 are taken, as tf.io.decode_image does."""

    shift: int
    is_inverted: bool


def _deep_grey(image: Any) -> _DeepGrey | None:
    """Return how a grey image of more than 8 bits becomes one of 8; None for all other images."""
    if image.mode not in (*_DEEP_GREY, "I"):
        return None
    if image.format != "TIFF":
        return _DeepGrey(8, is_inverted=False)
    bits = int(image.tag_v2.get(_BITS, (16,))[0])  # Or 12.
    return _DeepGrey(bits - 8, is_inverted=image.tag_v2.get(_PHOTOMETRIC) == _WHITE_IS_ZERO)


def _rgb(piece: Any, grey: _DeepGrey | None) -> Array:
    """Return a piece of an image as an array of three colours."""
    if grey is None:
        return np.asarray(piece if piece.mode == "RGB" else piece.convert("RGB"))
    pixels: Array = np.empty((piece.height, piece.width, 1), np.uint8)
    deep = np.asarray(piece)[:, :, np.newaxis]
    np.right_shift(deep, grey.shift, out=pixels, casting="unsafe")
    if grey.is_inverted:
        np.invert(pixels, out=pixels)
    return np.repeat(pixels, 3, axis=2)


def taken_nbytes(width: int, height: int, depth: int, out_height: int) -> int:
    """Return what an image of so many bytes a pixel takes in Pillow, with its decoder and the way out of it."""
    piece = min(width * height, max(_PIECE_PIXELS, width * (2 + _reach(height, out_height))))
    # Decoders hold two rows of up to 8 bytes a pixel. Each row has an address, in two images at a time; and there are
    # the pages of the file.
    rows = 16 * width + 32 * height
    return depth * width * height + _PIECE_DEPTH * piece + rows + PAGES_NBYTES


def _reach(height: int, out_height: int) -> int:
    """Return the most rows that one row of the result is made of."""
    return 2 * max(1, -(-height // out_height)) + 2


def _tile_nbytes(image: Any, tile: tuple[int, int]) -> int:
    bits = max(image.tag_v2.get(_BITS, (1,)))
    samples = int(image.tag_v2.get(_SAMPLES, 1))
    return tile[0] * tile[1] * max(4, -(-int(bits) * samples // 8))
