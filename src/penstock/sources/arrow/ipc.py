"""Arrow and Feather files: columns as fields, record batches as chunks. Never by mmap."""

import threading
from collections.abc import Sequence

import numpy as np

from penstock.core.columns import Ragged, Text, merge
from penstock.core.fields import Field
from penstock.core.optional import require
from penstock.core.rows import Context, Rows
from penstock.errors import DataError, FileError
from penstock.io.formats.arrow_index import read_batch_lengths
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.reader import Reader
from penstock.io.seekable import SeekableFile
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


def open_format(locations: Sequence[Location], request: Request) -> Rows:
    """Return the columns of files; reads their footers, and the heads of their batches."""
    opened = attempt_each(locations, lambda location: _open(location, locations, request), request)
    return rows_of(*opened, request)


def _open(location: Location, locations: Sequence[Location], request: Request) -> Part:
    with open_reader(location) as reader:
        lengths = np.array(read_batch_lengths(reader), np.int64)
        handle = Handle(location, reader, None)
        schema = handle.file.schema
        if handle.file.num_record_batches != len(lengths):
            raise _damaged("its index and its batches differ in number", str(location))
        handle.close()
    available = {name: number for number, name in enumerate(schema.names)}
    names = list(available) if request.names is None else request.names
    check_names(str(location), names, available)
    mean = location.size // max(1, int(lengths.sum())) // max(1, len(available))
    grid = Grid.of_lengths(lengths)

    def leaf(name: str) -> Leaf:
        field = Field(check_column(schema, name, str(location)), estimate=mean + 8)
        return ArrowLeaf(field, grid, name, available[name], location, locations, request)

    leaves, left_out = each_field(names, leaf, request)
    return Part(str(location), leaves, left_out)


def _damaged(problem: str, file: str) -> DataError:
    cure = "It may be damaged or cut off: compare it with its original."
    return DataError(problem, file=file, cure=cure)


class Handle:
    """An open file for the use of one thread, and for one column or (None) for all."""

    def __init__(self, location: Location, reader: Reader, column: int | None) -> None:
        pa = require("pyarrow", f"reading {location.suffix or '.arrow'}", "parquet")
        self.stream = SeekableFile(reader)
        options = pa.ipc.IpcReadOptions(
            use_threads=False, included_fields=None if column is None else [column]
        )
        try:
            self.file = pa.ipc.open_file(pa.PythonFile(self.stream, "r"), options=options)
        except FileError:
            raise
        except Exception as error:
            raise _damaged(f"can't be read as an Arrow file: {error}", str(location)) from error

    def close(self) -> None:
        """Close the file; its reader stays open, since it is not ours."""
        self.stream.close()


class ArrowLeaf(Chunked):
    """One column, read by pyarrow a record batch at a time."""

    overhead = 2  # A batch as it lies in the file, and as it is unpacked.

    def __init__(
        self,
        field: Field,
        grid: Grid,
        name: str,
        column: int,
        location: Location,
        locations: Sequence[Location],
        request: Request,
    ) -> None:
        super().__init__(field, grid, file=str(location), key=array_key(locations, name))
        self.name = name
        self.column = column
        self.location = location
        self.direct = request.direct
        self.how = "Arrow, read a record batch at a time"

    def decode(self, start: int, stop: int, context: Context) -> Values:
        """Return rows of whole record batches."""
        reader = reader_of(self.location, context, direct=self.direct)
        handle = context.resources.get(
            ("arrow", self.location.url, self.column, threading.get_ident()),
            lambda: Handle(self.location, reader, self.column),
        )
        first, last = self.grid.chunk_of(np.array([start, stop - 1])).tolist()
        spec = self.field.spec
        values = self.memory(stop - start, context) if spec.is_fixed else None
        columns: list[Text | Ragged] = []
        numbers = np.arange(first, last + 1)
        bounds = [edges.tolist() for edges in self.grid.bounds(numbers)]
        for number, begin, end in zip(numbers.tolist(), *bounds, strict=True):
            if begin == end:
                continue
            batch = handle.file.get_batch(number)
            batch.validate(full=True)  # Else offsets would be followed out of its memory.
            array = batch.column(0)
            if len(array) != end - begin:
                raise _damaged(
                    f"batch {number} has {len(array)} rows where its index says {end - begin}",
                    self.file,
                )
            try:
                if values is not None:
                    values[begin - start : end - start] = fixed_values(array, spec)
                else:
                    columns.append(varying_values(array, spec, context.allocate))
            except NullFoundError as error:
                raise null_error(
                    self.file, self.name, f"record batch {number}", begin + error.row
                ) from None
        return merge(columns, context.allocate) if values is None else values
