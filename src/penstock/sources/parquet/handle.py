"""An open Parquet file, and the errors of one that can't be read."""

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from penstock.core.optional import require
from penstock.core.rows import Context
from penstock.errors import DataError, PenstockError
from penstock.io.location import Location
from penstock.io.reader import Range, Reader
from penstock.io.seekable import SeekableFile
from penstock.memory import ALIGNMENT

BUFFER_NBYTES = 1 << 18
"""Read from the file at once for each column."""
_LEAST_ITEMS = 1000  # Any footer may have lists of so many items.


def where(name: str, number: int) -> str:
    """Return the words for a column of a row group."""
    return f"column {name!r} of row group {number}"


def damaged(problem: str, location: Location) -> DataError:
    """Return the error for a file that is not as it was written."""
    return DataError(
        problem,
        file=str(location),
        cure="It may be damaged or cut off: compare it with its original.",
    )


@contextlib.contextmanager
def file_errors(location: Location) -> Iterator[None]:
    """Make whatever pyarrow raises for a damaged file an error of ours."""
    try:
        yield
    except (PenstockError, ImportError):
        raise
    except Exception as error:
        if "encrypted" in str(error):
            raise encrypted(location) from error
        raise damaged(
            f"can't be read as Parquet: {type(error).__name__}: {error}", location
        ) from error


def encrypted(location: Location) -> DataError:
    """Return the error for a file that can't be read without a key."""
    return DataError(
        "is encrypted, or has columns that are",
        file=str(location),
        cure="Decrypt it with pyarrow first, and write it again.",
    )


class ColumnStream(SeekableFile):
    """A file of which some column chunks are in memory already, so that pyarrow need not read them one by one."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._chunks: dict[int, memoryview] = {}

    def fetch(self, spans: Iterable[tuple[int, int]], context: Context) -> None:
        """Read the given (offset, bytes) at once, in memory of the context's; until `forget`."""
        wanted = list(spans)
        edges = [
            0,
            *itertools.accumulate(-(-nbytes // ALIGNMENT) * ALIGNMENT for _, nbytes in wanted),
        ]
        memory = context.allocate(edges[-1])
        pieces = [
            (offset, memory[edge : edge + nbytes])
            for (offset, nbytes), edge in zip(wanted, edges[:-1], strict=True)
        ]
        self._reader.read_ranges([Range(*piece) for piece in pieces])
        self._chunks = {offset: piece.data for offset, piece in pieces}

    def forget(self) -> None:
        """Let go of what was fetched."""
        self._chunks = {}

    def read(self, size: int | None = -1) -> Any:
        """Return up to `size` bytes: a whole chunk that was fetched as it is, all else without a copy."""
        found = self._chunks.get(self._position)
        if found is None or len(found) != size:
            left = self._reader.size - self._position
            room = np.empty(max(0, left if size is None or size < 0 else min(size, left)), np.uint8)
            self.readinto(room)
            return room.data
        self._position += len(found)
        return found


class Handle:
    """An open file for the use of one thread; the column `dictionary` comes with its dictionary, if it has one."""

    def __init__(
        self,
        location: Location,
        reader: Reader,
        metadata: Any,
        *,
        verify: bool,
        dictionary: str | None = None,
        is_buffered: bool = True,
    ) -> None:
        """Open it; unless `is_buffered`, a column chunk is read whole."""
        require("pyarrow", f"reading {location.suffix or '.parquet'}", "parquet")
        parquet = require("pyarrow.parquet", "reading .parquet", "parquet")
        self.stream = ColumnStream(reader)
        with file_errors(location):
            self.file = parquet.ParquetFile(
                self.stream,
                metadata=metadata,
                buffer_size=BUFFER_NBYTES if is_buffered else 0,
                pre_buffer=False,
                read_dictionary=None if dictionary is None else [dictionary],
                # An item has a few bytes at least: more items than that are a claim that would cost memory.
                thrift_container_size_limit=max(_LEAST_ITEMS, location.size // 4),
                page_checksum_verification=verify,  # Of the pages that have one.
            )

    def close(self) -> None:
        """Close the file; its reader stays open, since it is not ours."""
        self.file.close()
        self.stream.close()
