"""What every image file is to its reader, whichever library decodes it, and what all of them have in common."""

from abc import abstractmethod

from penstock.core.arrays import Array
from penstock.core.closing import Closing
from penstock.errors import DataError
from penstock.io.location import Location

HEAD_NBYTES = 64 << 20
"""What may stand before the pixels: profiles, texts, tags. Of WebP, Pillow reads the whole file at once."""
RULES = "as stored, 8 bits, triangle"
"""What the pixels of a file are. It is in the fingerprint, and changes with them: older states are refused then.

The decoder follows from the format: `jpeg.py` says which JPEG native code decodes (to the pixels that libjpeg-turbo
has) and which libjpeg-turbo, `png.py` which PNG native code unpacks (to the pixels that Pillow has), and Pillow decodes
all else.
Pixels are as they are stored: what EXIF says of turning them is not followed, in any format. Of pixels of more than 8
bits the high 8 are taken. Grey, palettes and CMYK become RGB as Pillow has it, and transparency is left out. A size is
reached by weights that form a triangle as wide as what a new pixel stands for (`src/native/resize.cpp`), so that no old
one is skipped.
"""
UNVERIFIED = "from_files(..., verify=False)"
"""What reads an image whose checksum is wrong; for images in records, they name another call."""
_MOST_PIXELS = 1 << 28  # An image that claims more is an attack, or needs another tool.
_REDUCTIONS = (8, 4, 2)  # What a JPEG can be divided by while it is decoded.
_ROOM_TO_REDUCE = (
    2  # It stays so many times as large as it shall be: the difference is not to be seen.
)


class Picture(Closing):
    """An image file, of which the header is read: decoding it takes at most `nbytes` bytes, with its pixels."""

    width: int
    height: int
    nbytes: int

    def __init__(self, location: Location, size: tuple[int, int] | None, *, verify: bool) -> None:
        self.location = location
        self.size = size
        """The height and width that the image shall have."""
        self.verify = verify

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the pixels."""
        height, width = self.size or (self.height, self.width)
        return height, width, 3

    @abstractmethod
    def decode(self, out: Array) -> None:
        """Fill `out`, uint8 of `shape`, with the pixels."""

    def check_pixels(self, width: int, height: int) -> None:
        """Raise if so many pixels are more than an image can have."""
        if width * height > _MOST_PIXELS:
            raise DataError(
                f"claims {width} x {height} pixels",
                file=str(self.location),
                cure="Cut it into smaller images, or leave it out.",
            )

    def reduction(self) -> int:
        """Return what the sides of a JPEG are divided by while it is decoded: 1 if it is not much too large."""
        if self.size is None:
            return 1
        room = min(self.height // self.size[0], self.width // self.size[1]) // _ROOM_TO_REDUCE
        return next((one for one in _REDUCTIONS if one <= room), 1)

    def result_nbytes(self) -> int:
        """Return what the pixels take, and the weights that they are made by if they get another size."""
        height, width, depth = self.shape
        weights = 0 if self.size is None else 16 * (self.width + self.height + width + height)
        return depth * height * width + weights + depth * self.width


def too_few_bytes(location: Location, width: int, height: int) -> DataError:
    """Return the error of a file that is too short for the pixels that it claims."""
    return DataError(
        f"claims {width} x {height} pixels, for which its {location.size} bytes are too few",
        file=str(location),
        cure="It may be damaged or cut off: leave it out, or copy it again.",
    )


def too_much_before_pixels(location: Location) -> DataError:
    """Return the error of a file whose pixels don't begin."""
    return DataError(
        f"more than {HEAD_NBYTES >> 20} MB stand before its pixels",
        file=str(location),
        cure="Save it again without its texts and profiles, or leave it out.",
    )


def wrong_sum(location: Location) -> DataError:
    """Return the error of a PNG of whose pixels a checksum is wrong."""
    return DataError(
        "a checksum of its pixels is wrong: they are not what was written",
        file=str(location),
        cure=f"Copy it again from its original; {UNVERIFIED} reads it as it is.",
    )
