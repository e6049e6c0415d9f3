"""Parquet files: columns as fields, row groups as chunks, decoded a few rows at a time."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from penstock.core.columns import Ragged, Text, merge
from penstock.core.fields import Field
from penstock.core.optional import require
from penstock.core.rows import Context, Rows
from penstock.core.spec import ArraySpec
from penstock.errors import DataError, FileError
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.reader import Reader, read_bytes
from penstock.io.seekable import SeekableFile
from penstock.io.sizes import PIECE_NBYTES
from penstock.sources.arrow.columns import (
    NullFoundError,
    check_column,
    fixed_values,
    null_error,
    varying_values,
)
from penstock.sources.reading.chunked import Chunked, Grid, Values
from penstock.sources.reading.file_rows import rows_of
from penstock.sources.reading.leaves import Leaf
from penstock.sources.reading.open_files import reader_of
from penstock.sources.reading.parts import (
    Part,
    Request,
    array_key,
    attempt_each,
    check_names,
    each_field,
)

_BATCH_NBYTES = 1 << 21  # What is decoded at once: a row group may be far larger than the budget.
_SIGNATURE_NBYTES = 28  # Behind the footer of a file that has encrypted columns.
_BUFFER_NBYTES = 1 << 18  # Read from the file at once for each column.


def open_format(locations: Sequence[Location], request: Request) -> Rows:
    """Return the columns of files; reads their footers."""
    opened = attempt_each(locations, lambda location: _open(location, locations, request), request)
    return rows_of(*opened, request)


def _open(location: Location, locations: Sequence[Location], request: Request) -> Part:
    with open_reader(location) as reader:
        handle = Handle(location, reader, None, verify=request.verify)
        schema, metadata = handle.file.schema_arrow, handle.file.metadata
        handle.close()
        footer_nbytes = int.from_bytes(read_bytes(reader, location.size - 8, 4), "little")
        if footer_nbytes - metadata.serialized_size == _SIGNATURE_NBYTES:
            # Not a column of it may be looked at: pyarrow ends the process if it is an encrypted one.
            raise _encrypted(location)
    available = list(dict.fromkeys(schema.names))
    names = available if request.names is None else request.names
    check_names(str(location), names, available)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    lengths = np.array([group.num_rows for group in groups], np.int64)
    if (lengths < 0).any() or int(lengths.sum()) != metadata.num_rows:
        raise DataError(
            f"its footer says {metadata.num_rows} rows, and its row groups have {lengths.sum()}",
            file=str(location),
            cure="It is damaged: write it again.",
        )
    columns = _columns(metadata, available)
    grid = Grid.of_lengths(lengths)

    def leaf(name: str) -> Leaf:
        spec = check_column(schema, name, str(location))
        numbers = columns.get(name, [])
        if spec.is_text or spec.shape == ():
            _check_nulls(groups, numbers, name, location)
        total = sum(group.column(c).total_uncompressed_size for group in groups for c in numbers)
        estimate = int(total // max(1, metadata.num_rows)) + 8
        field = Field(spec, estimate=estimate)
        return ParquetLeaf(field, grid, name, location, locations, request, metadata)

    leaves, left_out = each_field(names, leaf, request)
    return Part(str(location), leaves, left_out)


def _encrypted(location: Location) -> DataError:
    return DataError(
        "is encrypted, or has columns that are",
        file=str(location),
        cure="Decrypt it with pyarrow first, and write it again.",
    )


def _columns(metadata: Any, names: Sequence[str]) -> dict[str, list[int]]:
    """Return the numbers of the leaf columns that each column of the table is made of."""
    found: dict[str, list[int]] = {}
    if metadata.num_row_groups:
        group = metadata.row_group(0)
        for number in range(metadata.num_columns):
            path = group.column(number).path_in_schema
            # The path of a list is `x.list.element`; but a name may have a dot in it.
            name = path if path in names else path.partition(".")[0]
            found.setdefault(name, []).append(number)
    return found


def _check_nulls(
    groups: Sequence[Any], columns: Sequence[int], name: str, location: Location
) -> None:
    """Raise if the footer already says that there are nulls: better now than in epoch 3.

    Not for lists: for these, the footer counts empty lists as nulls, too.
    """
    start = 0
    for number, group in enumerate(groups):
        for column in columns:
            statistics = group.column(column).statistics
            if statistics is not None and statistics.has_null_count and statistics.null_count:
                row = start + _first_null(location, name, number)
                raise null_error(str(location), name, f"row group {number}", row)
        start += group.num_rows


def _first_null(location: Location, name: str, number: int) -> int:
    with open_reader(location) as reader:
        handle = Handle(location, reader, None, verify=False)  # Only for a message.
        passed = 0
        for batch in handle.file.iter_batches(row_groups=[number], columns=[name]):
            column = batch.column(name)
            if column.null_count:
                valid = column.is_valid().to_numpy(zero_copy_only=False)
                passed += int(np.argmin(valid))
                break
            passed += batch.num_rows
        handle.close()
    return passed


class Handle:
    """An open file for the use of one thread."""

    def __init__(self, location: Location, reader: Reader, metadata: Any, *, verify: bool) -> None:
        require("pyarrow", f"reading {location.suffix or '.parquet'}", "parquet")
        parquet = require("pyarrow.parquet", "reading .parquet", "parquet")
        self.stream = SeekableFile(reader)
        try:
            self.file = parquet.ParquetFile(
                self.stream,
                metadata=metadata,
                buffer_size=_BUFFER_NBYTES,
                pre_buffer=False,
                page_checksum_verification=verify,  # Of the pages that have one.
            )
        except FileError:
            raise
        except Exception as error:
            if "encrypted" in str(error):
                raise _encrypted(location) from error
            raise DataError(
                f"can't be read as Parquet: {error}",
                file=str(location),
                cure="It may be damaged or cut off: compare it with its original.",
            ) from error

    def close(self) -> None:
        """Close the file; its reader stays open, since it is not ours."""
        self.file.close()
        self.stream.close()


class ParquetLeaf(Chunked):
    """One column, decoded by pyarrow a row group at a time."""

    def __init__(
        self,
        field: Field,
        grid: Grid,
        name: str,
        location: Location,
        locations: Sequence[Location],
        request: Request,
        metadata: Any,
    ) -> None:
        super().__init__(field, grid, file=str(location), key=array_key(locations, name))
        self.name = name
        self.location = location
        self.direct = request.direct
        self.verify = request.verify
        self.metadata = metadata
        self.how = "Parquet, decoded a row group at a time"

    def decode(self, start: int, stop: int, context: Context) -> Values:
        """Return rows of whole row groups, decoded a few at a time."""
        spec = self.field.spec
        pieces = self._arrays(start, stop, context)
        if not spec.is_fixed:
            columns = [self._converted(array, spec, row, context) for row, array in pieces]
            if not columns:
                raise self._too_short(0, start, stop)
            return merge([c for c in columns if isinstance(c, Text | Ragged)], context.allocate)
        values = self.memory(stop - start, context)
        done = start
        for row, array in pieces:
            found = self._converted(array, spec, row, context)
            if row + len(array) > stop or not isinstance(found, np.ndarray):
                done = row + len(array)
                break
            values[row - start : row - start + len(array)] = found
            done = row + len(array)
        if done != stop:
            raise self._too_short(done - start, start, stop)
        return values

    def _too_short(self, count: int, start: int, stop: int) -> DataError:
        return DataError(
            f"column {self.name!r} has {count} values where its footer says {stop - start}",
            file=self.file,
            row=start,
            cure="It is damaged: write it again.",
        )

    def _arrays(self, start: int, stop: int, context: Context) -> Iterator[tuple[int, Any]]:
        """Yield (first row, Arrow array): the column's rows from `start` to `stop`, a batch at a time."""
        reader = reader_of(self.location, context, direct=self.direct)
        # A handle for each thread: pyarrow releases the interpreter lock, so that threads can decode in parallel.
        handle = context.resources.get(
            ("parquet", self.location.url, self.verify, threading.get_ident()),
            lambda: Handle(self.location, reader, self.metadata, verify=self.verify),
        )
        groups = np.unique(self.grid.chunk_of(np.array([start, stop - 1])))
        numbers = list(range(int(groups[0]), int(groups[-1]) + 1))
        batch_rows = max(1, _BATCH_NBYTES // max(1, self.field.nbytes))
        row = start
        for batch in handle.file.iter_batches(
            batch_size=batch_rows, row_groups=numbers, columns=[self.name], use_threads=False
        ):
            # By name: with a column `a`, pyarrow also hands out one that is called `a.b`.
            yield row, batch.column(self.name)
            row += batch.num_rows

    def _converted(self, array: Any, spec: ArraySpec, row: int, context: Context) -> Values:
        try:
            if spec.is_fixed:
                return fixed_values(array, spec)
            return varying_values(array, spec, context.allocate)
        except NullFoundError as error:
            found = row + error.row
            group = int(self.grid.chunk_of(np.array([found]))[0])
            raise null_error(self.file, self.name, f"row group {group}", found) from None

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of the decoded rows, and of the few that pyarrow is decoding."""
        at_once = self.chunk_nbytes + min(num_rows * self.field.nbytes, PIECE_NBYTES)
        at_once = min(at_once, self.num_rows * self.field.nbytes)
        under_way = 3 * min(at_once, _BATCH_NBYTES) + 4 * _BUFFER_NBYTES
        return (1 if self.field.spec.is_fixed else 2) * at_once + under_way
