"""Checksums of what is read, made while it is read: of each piece that cells of the file cut the reads into."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from penstock import _native

Sums: TypeAlias = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Cells:
    """Parts of a file that have a checksum each: `nbytes` bytes from `start` on, the next `nbytes`, and so on."""

    start: int
    nbytes: int

    def empty_sums(self, offsets: Sequence[int], sizes: Sequence[int]) -> Sums:
        """Return room for the checksums of reads of so many bytes from `offsets` on."""
        num_pieces = 0
        for offset, size in zip(offsets, sizes, strict=True):
            if size:
                begin = offset - self.start
                num_pieces += (begin + size - 1) // self.nbytes - begin // self.nbytes + 1
        return np.empty(num_pieces, np.uint32)

    def sums(self, offsets: Sequence[int], buffers: Sequence[npt.NDArray[np.uint8]]) -> Sums:
        """Return the CRC32C of each piece of bytes that have been read from `offsets` on."""
        found = [np.empty(0, np.uint32)]
        for offset, buffer in zip(offsets, buffers, strict=True):
            if not buffer.size:
                continue
            first = self.nbytes - (offset - self.start) % self.nbytes
            edges = np.concatenate(
                [[0], np.arange(first, buffer.size, self.nbytes), [buffer.size]], dtype=np.int64
            )
            found.append(np.empty(len(edges) - 1, np.uint32))
            _native.crc32c_of_spans(buffer, edges, found[-1])
        return np.concatenate(found)
