"""The checksums of a shard while it is being written: a CRC32C for each run of rows of each array.

Entry i is the CRC32C of the bytes that the rows of run i added to the array: of the rows themselves, or of their
values, or of where each of them ends. The 0 that offsets begin with counts as part of the first run.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from penstock import _native
from penstock.core.arrays import Index
from penstock.core.fields import Field, row_nbytes
from penstock.io.sizes import READ_NBYTES
from penstock.shards.layout import ArrayLayout
from penstock.sources.reading.run_checks import CASTAGNOLI

LAYOUT = ArrayLayout("", np.dtype("<u4"), ())
_SHARE = 8  # Where the size of a row is only estimated, so many runs make a read.


def run_rows_of(fields: Sequence[Field]) -> int:
    """Return how many rows make a run: those of a read, of all fields together, so that a shuffle reads whole runs."""
    rows = max(1, READ_NBYTES // max(1, row_nbytes(fields)))
    if all(field.spec.is_fixed for field in fields):
        return rows
    # A divisor, if there is one near: reads of that many rows still begin where runs do.
    near = range(rows // (_SHARE // 2), rows // (2 * _SHARE), -1)
    return next((size for size in near if rows % size == 0), max(1, rows // _SHARE))


class RunSums:
    """The checksums of the runs of one array, as it grows."""

    def __init__(self) -> None:
        self._done: list[npt.NDArray[np.uint32]] = []
        self._open = 0
        """The checksum of the run that is not complete."""

    def add(self, data: npt.NDArray[np.uint8], ends: Index) -> None:
        """Take the next bytes; runs end at the bytes `ends` of them."""
        found = np.empty(len(ends) + 1, np.uint32)
        edges = np.concatenate([[0], ends, [len(data)]])
        _native.crc32c_of_spans(data, edges, found)
        found[0] = _native.combined_crc(
            self._open, int(found[0]), int(edges[1]), polynomial=CASTAGNOLI
        )
        self._open = int(found[-1])
        if len(ends):
            self._done.append(found[:-1])

    def all(self, *, with_open: bool) -> npt.NDArray[np.uint32]:
        """Return the checksums of all runs; with the last one, if it has rows but is not complete."""
        last = np.array([self._open] if with_open else [], "<u4")
        return np.concatenate([*self._done, last]).astype("<u4")
