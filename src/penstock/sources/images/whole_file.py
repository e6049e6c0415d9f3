"""Images that are decoded from the bytes of their file, without Pillow, which decodes what can't be decoded so."""

from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np

from penstock.core.arrays import Array
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.reader import Reader
from penstock.sources.images.by_pillow import PillowPicture, most_pixels_a_byte
from penstock.sources.images.picture import Picture, too_few_bytes

_FIRST_NBYTES = 1 << 16  # Most headers are shorter, and many files.


class WholeFilePicture(Picture):
    """A plain image of one format: its file is read whole."""

    kind: ClassVar[str]
    """The format, in Pillow's words."""

    def __init__(
        self,
        reader: Reader,
        first: bytearray,
        sides: tuple[int, int],
        size: tuple[int, int] | None,
        *,
        verify: bool,
    ) -> None:
        """Take an open file, its first bytes, and its height and width."""
        super().__init__(reader.location, size, verify=verify)
        self.height, self.width = sides
        self._reader = reader
        self._first = first
        self.check_pixels(self.width, self.height)
        if self.width * self.height > reader.size * most_pixels_a_byte(self.kind):
            raise too_few_bytes(self.location, self.width, self.height)

    @classmethod
    def opened(
        cls, location: Location, size: tuple[int, int] | None, *, verify: bool
    ) -> Self | None:
        """Return the image, or None if it is no plain one of this format."""
        reader = open_reader(location, direct=False)
        try:
            first = bytearray(min(reader.size, _FIRST_NBYTES))
            reader.read_into(first, 0)
            header = cls.header_of(reader, first)
            if header is not None:
                return cls(reader, first, header, size, verify=verify)
        except BaseException:
            reader.close()
            raise
        reader.close()
        return None

    @staticmethod
    @abstractmethod
    def header_of(reader: Reader, first: bytearray) -> Any:
        """Return what the header says; None if it is no plain image of this format."""

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def data(self) -> Array:
        """Return the file."""
        first = np.frombuffer(self._first, np.uint8)
        if len(first) == self._reader.size:
            return first
        data = np.empty(self._reader.size, np.uint8)
        data[: len(first)] = first
        self._reader.read_into(data[len(first) :], len(first))
        return data

    def decode_by_pillow(self, out: Array) -> None:
        """Have Pillow decode it, or say why it can't."""
        with PillowPicture(self.location, self.size, verify=self.verify) as other:
            other.decode(out)
