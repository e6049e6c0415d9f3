"""Arrow and Feather files: columns as fields, record batches as chunks. Never by mmap."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from penstock.core.columns import Ragged, Text
from penstock.core.fields import Field
from penstock.core.optional import require
from penstock.core.rows import ENDLESS, Context, Rows
from penstock.errors import DataError, PenstockError
from penstock.io.formats.arrow_index import Index, read_index, unpacked_nbytes
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.reader import Reader
from penstock.io.seekable import SeekableFile
from penstock.memory import allocate_plain
from penstock.sources.arrow.columns import (
    NullFoundError,
    arrow,
    check_column,
    fixed_values,
    joined,
    null_error,
    varying_values,
)
from penstock.sources.arrow.layout import column_buffers
from penstock.sources.arrow.leaf import ArrowColumn
from penstock.sources.reading.chunked import Coded, Grid, Values
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

# Of one batch it is measured how long words are, when a file is opened.
_MOST_SAMPLE_NBYTES = 16 << 20
_MOST_KEPT_NBYTES = 1 << 20  # Of dictionaries that a handle keeps from one read to the next.


def open_format(locations: Sequence[Location], request: Request) -> Rows:
    """Return the columns of files; reads their footers, the heads of their batches, and how long words are."""
    opened = attempt_each(locations, lambda location: _open(location, locations, request), request)
    return rows_of(*opened, request)


def _open(location: Location, locations: Sequence[Location], request: Request) -> Part:
    with _file_errors(location), open_reader(location) as reader:
        index = read_index(reader)
        handle = Handle(location, reader, None)
        schema = handle.file.schema
        if handle.file.num_record_batches != len(index.batches):
            raise _damaged("its index and its batches differ in number", str(location))
        handle.close()
        return _part(location, locations, reader, request, index, schema)


def _part(
    location: Location,
    locations: Sequence[Location],
    reader: Reader,
    request: Request,
    index: Index,
    schema: Any,
) -> Part:
    available = {name: number for number, name in enumerate(schema.names)}
    names = list(available) if request.names is None else request.names
    check_names(str(location), names, available)
    lengths = np.array([batch.num_rows for batch in index.batches], np.int64)
    num_rows = sum(lengths.tolist())
    if num_rows >= ENDLESS:
        raise _damaged(f"its batches claim {num_rows} rows", str(location))
    mean = location.size // max(1, num_rows) // max(1, len(available))
    grid = Grid.of_lengths(lengths)
    places = [
        column_buffers(schema.types, batch.variadic, len(batch.lengths)) for batch in index.batches
    ]
    words_nbytes = sum(
        unpacked_nbytes(reader, batch, range(len(batch.lengths))) for batch in index.dictionaries
    )

    def leaf(name: str) -> Leaf:
        spec, column = check_column(schema, name, str(location)), available[name]
        has_words = arrow().types.is_dictionary(schema.field(column).type)
        sizes = [
            unpacked_nbytes(reader, batch, where[column])
            for batch, where in zip(index.batches, places, strict=True)
        ]
        least = Field(spec).nbytes if spec.is_fixed and not has_words else 1
        for number, (nbytes, rows) in enumerate(zip(sizes, lengths.tolist(), strict=True)):
            if rows * least > 8 * nbytes:  # A truth is a bit.
                raise _damaged(
                    f"record batch {number} claims {rows} rows, and column {name!r} has {nbytes} bytes",
                    str(location),
                )
        field = Field(spec, estimate=max(mean, sum(sizes) // max(1, num_rows)) + 8)
        found = ArrowLeaf(field, grid, name, column, location, locations, request)
        if not spec.is_fixed:
            own = words_nbytes if has_words else 0
            if own and num_rows:
                found.field = Field(spec, estimate=found.mean_nbytes(reader, sizes, own) + 8)
            rows = int(lengths.max(initial=0))
            found.hold(max(sizes, default=0) + own + (4 if own else 16) * rows)
        found.words_nbytes = words_nbytes
        return found

    leaves, left_out = each_field(names, leaf, request)
    return Part(str(location), leaves, left_out)


@contextmanager
def _file_errors(location: Location) -> Iterator[None]:
    """Make whatever pyarrow raises for a damaged file an error of ours."""
    try:
        yield
    except (PenstockError, ImportError):
        raise
    except Exception as error:
        problem = f"can't be read as an Arrow file: {type(error).__name__}: {error}"
        raise _damaged(problem, str(location)) from error


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
        with _file_errors(location):
            self.file = pa.ipc.open_file(pa.PythonFile(self.stream, "r"), options=options)

    def close(self) -> None:
        """Close the file; its reader stays open, since it is not ours."""
        self.stream.close()


class ArrowLeaf(ArrowColumn):
    """One column, read by pyarrow a record batch at a time."""

    overhead = 2  # A batch as it lies in the file, and as it is unpacked.
    words_nbytes = 0
    """The bytes of all dictionaries of the file, which pyarrow reads for each handle."""

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

    def mean_nbytes(self, reader: Reader, sizes: Sequence[int], words_nbytes: int) -> int:
        """Return the bytes of a row that is a word of a dictionary, by the look of one batch."""
        number = next(number for number, nbytes in enumerate(sizes) if nbytes)
        if sizes[number] + words_nbytes > _MOST_SAMPLE_NBYTES:
            return words_nbytes  # All of it may be one word.
        handle = Handle(self.location, reader, self.column)
        array = handle.file.get_batch(number).column(0)
        handle.close()
        values = varying_values(array.drop_null(), self.field.spec, allocate_plain)
        return values.mean_nbytes() if isinstance(values, Coded) else 0

    def decode(self, start: int, stop: int, context: Context) -> Values:
        """Return rows of whole record batches."""
        reader = reader_of(self.location, context, direct=self.direct)

        def make() -> Handle:
            return Handle(self.location, reader, self.column)

        if self.words_nbytes > _MOST_KEPT_NBYTES:
            handle = make()  # It goes with its dictionaries, which no other handle shares.
        else:
            key = ("arrow", self.location.url, self.column, threading.get_ident())
            handle = context.resources.get(key, make)
        first, last = self.grid.chunk_of(np.array([start, stop - 1])).tolist()
        spec = self.field.spec
        values = self.memory(stop - start, context) if spec.is_fixed else None
        columns: list[Text | Ragged | Coded] = []
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
                    self.file, self.name, f"record batch {number}", begin + error.row, spec
                ) from None
        return joined(columns, context.allocate) if values is None else values

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of the rows decoded at once, what decoding them takes, and of dictionaries."""
        return super().staging_nbytes(num_rows) + 2 * self.words_nbytes
