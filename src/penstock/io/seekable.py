"""A reader as the file object that other libraries want: h5py, pyarrow, Pillow."""

import io
from collections import OrderedDict
from typing import Any

from penstock.io.reader import Reader

_PAGE_NBYTES = 1 << 16
_MOST_PAGES = 16  # 1 MB for the small reads of a library that looks through its headers.
PAGES_NBYTES = _MOST_PAGES * _PAGE_NBYTES
"""What a file holds in memory for small reads."""


class SeekableFile(io.RawIOBase):
    """A seekable file over a `Reader`; for one thread at a time.

    Small reads come from a few pages that stay in memory, since a library that follows its index
    asks for a handful of bytes at a time. Closing the file leaves the reader open.
    """

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self._reader = reader
        self._position = 0
        self._pages: OrderedDict[int, bytearray] = OrderedDict()

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position, and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._reader.size}
        self._position = max(0, base[whence] + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill as much of `buffer` as the file has, and return how much that was."""
        view = memoryview(buffer).cast("B")
        wanted = max(0, min(len(view), self._reader.size - self._position))
        view = view[:wanted]
        if wanted >= _PAGE_NBYTES:
            self._reader.read_into(view, self._position)
        else:
            done = 0
            while done < wanted:
                number, skip = divmod(self._position + done, _PAGE_NBYTES)
                piece = self._page(number)[skip : skip + wanted - done]
                view[done : done + len(piece)] = piece
                done += len(piece)
        self._position += wanted
        return wanted

    def read(self, size: int | None = -1) -> bytes:
        """Return up to `size` bytes, or all that are left if it is None or negative."""
        left = max(0, self._reader.size - self._position)
        data = bytearray(left if size is None or size < 0 else min(size, left))
        self.readinto(data)
        return bytes(data)

    def _page(self, number: int) -> bytearray:
        if number not in self._pages:
            start = number * _PAGE_NBYTES
            page = bytearray(min(_PAGE_NBYTES, self._reader.size - start))
            self._reader.read_into(page, start)
            self._pages[number] = page
            if len(self._pages) > _MOST_PAGES:
                self._pages.popitem(last=False)
        self._pages.move_to_end(number)
        return self._pages[number]
