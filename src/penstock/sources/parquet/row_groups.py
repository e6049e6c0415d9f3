"""A column of a Parquet file: row groups as chunks, decoded a few rows at a time."""

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from penstock.core.columns import Ragged, Text
from penstock.core.fields import Field
from penstock.core.optional import require
from penstock.core.rows import Context
from penstock.core.spec import ArraySpec
from penstock.errors import BudgetError, DataError
from penstock.io.formats.parquet_pages import Pages, first_page, read_pages
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.sizes import PIECE_NBYTES
from penstock.memory import format_nbytes
from penstock.sources.arrow.columns import (
    NullFoundError,
    as_numpy,
    fixed_values,
    is_null_list,
    joined,
    named_errors,
    null_error,
    varying_values,
)
from penstock.sources.arrow.leaf import ArrowColumn
from penstock.sources.parquet.handle import BUFFER_NBYTES, Handle, file_errors, where
from penstock.sources.reading.chunked import Chunked, Coded, Grid, Values
from penstock.sources.reading.open_files import reader_of
from penstock.sources.reading.parts import Request, array_key

BATCH_NBYTES = 1 << 21
"""What is decoded at once: a row group may be far larger than the budget."""
PAGE_COPIES = 3
"""A page as it is stored and unpacked, and its values as they grow."""
USUAL_NBYTES = 3 * BATCH_NBYTES
"""What decoding usually takes besides: room for pages of up to 1 MB, as most writers make."""
# Of the values of a list while pyarrow's buffers grow: the old one, one of twice its size, and those before, which its
# allocator gives back a little later (2.7 were measured).
_GROWTH = 3
_LOOK_ROWS = 1 << 16  # Decoded at once in search of a null.
_LEAST_ROWS = 256  # Decoded at once: texts that are too long for that keep their dictionary.


class ParquetLeaf(ArrowColumn):
    """One column, decoded by pyarrow a row group at a time."""

    column = 0
    """The number of its leaf column in a row group."""
    page_nbytes = 0
    """The bytes that decoding takes besides, where there are large pages."""
    packed_nbytes = 0
    """The bytes of the column in the file, in the row group that has most of it."""
    null_group: int | None = None
    """The first row group that has a null which can't be read, where the footer tells."""

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
        self.joins = field.spec.shape == () and field.spec.is_fixed
        self.how = "Parquet, decoded a row group at a time"
        self._pages: dict[int, Pages] = {}
        self._longest: dict[int, int] = {}
        """By row group, the bytes of the longest word of its dictionary."""

    def decode(self, start: int, stop: int, context: Context) -> Values:
        """Return rows of whole row groups, decoded a few at a time."""
        if not self.field.spec.is_fixed:
            return self._varying(self.looked_at(start, stop, context), start, stop, context)
        values = self.memory(stop - start, context)
        done = 0
        for found in self.decode_pieces(start, stop, context):
            assert isinstance(found, np.ndarray)
            values[done : done + len(found)] = found
            done += len(found)
        return values

    def decode_pieces(self, start: int, stop: int, context: Context) -> Iterator[Values]:
        """Yield rows of whole row groups; those of one size as pyarrow decodes them, without a copy of ours."""
        if not self.field.spec.is_fixed:
            yield self.decode(start, stop, context)
            return
        done = start
        numbers = self.looked_at(start, stop, context)
        for row, array in self._arrays(numbers, start, context, is_coded=False):
            done = row + len(array)
            if done > stop:
                break
            yield self.converted(array, self.field.spec, row, context)
        if done != stop:
            raise self._too_short(done - start, start, stop)

    def decode_together(
        self, leaves: Sequence[Chunked], start: int, stop: int, context: Context
    ) -> Iterator[Sequence[Values]]:
        """Yield rows of whole row groups of several columns, which are read from the file at once."""
        columns = [leaf for leaf in leaves if isinstance(leaf, ParquetLeaf)]
        names = [leaf.name for leaf in columns]
        with named_errors(self.file, ", ".join(names)):
            for leaf in columns:
                numbers = leaf.looked_at(start, stop, context)
            nbytes = sum(leaf.pages_nbytes(numbers, is_coded=False) for leaf in columns)
            reserved = context.allocate(nbytes) if nbytes > USUAL_NBYTES else None
            handle = self._handle(context, is_coded=False, is_buffered=False)
            handle.stream.fetch(
                [leaf.place(number) for number in numbers for leaf in columns], context
            )
            rows = max(1, BATCH_NBYTES // sum(leaf.field.nbytes for leaf in columns))
            row = start
            try:
                for batch in handle.file.iter_batches(
                    batch_size=rows, row_groups=numbers, columns=names, use_threads=False
                ):
                    if row + batch.num_rows > stop:
                        row = -1
                        break
                    yield [
                        leaf.converted(batch.column(leaf.name), leaf.field.spec, row, context)
                        for leaf in columns
                    ]
                    row += batch.num_rows
            finally:
                handle.stream.forget()
            if row != stop:
                raise self._too_short(row - start, start, stop)
            del reserved

    def together_nbytes(self, leaves: Sequence[Chunked], num_rows: int) -> int:
        """Return the bytes of the decoded rows, of what is read of the file for them, and of pages."""
        row = sum(leaf.field.nbytes for leaf in leaves)
        chunks = sum(leaf.chunk_nbytes for leaf in leaves)
        at_once = min(chunks + min(num_rows * row, PIECE_NBYTES), self.num_rows * row)
        packed = sum(leaf.packed_nbytes for leaf in leaves if isinstance(leaf, ParquetLeaf))
        return at_once + packed * -(-at_once // max(1, chunks)) + 3 * min(at_once, BATCH_NBYTES)

    def place(self, number: int) -> tuple[int, int]:
        """Return where the column lies in the file for a row group: the offset, and how many bytes."""
        column = self.metadata.row_group(number).column(self.column)
        return first_page(column), column.total_compressed_size

    def looked_at(self, start: int, stop: int, context: Context) -> list[int]:
        """Return the row groups of some rows, after a look at the headers of their pages."""
        groups = self.grid.chunk_of(np.array([start, stop - 1])).tolist()
        numbers = list(range(groups[0], groups[1] + 1))
        for number in numbers:
            if number not in self._pages:
                reader = reader_of(self.location, context, direct=self.direct)
                column = self.metadata.row_group(number).column(self.column)
                self._pages[number] = read_pages(reader, column, where(self.name, number))
        return numbers

    def _varying(self, numbers: Sequence[int], start: int, stop: int, context: Context) -> Values:
        """Return texts or lists: texts with their dictionary where that is much shorter."""
        columns: list[Text | Ragged | Coded] = []
        row = start
        try:
            for is_coded, some in groupby(numbers, lambda number: self._is_coded(number, context)):
                for at, array in self._arrays(list(some), row, context, is_coded=is_coded):
                    found = self.converted(array, self.field.spec, at, context)
                    assert not isinstance(found, np.ndarray)
                    columns.append(found)
                    row = at + len(array)
        except BudgetError as error:
            held = sum(column.nbytes for column in columns)
            whole = held * (stop - start) // max(1, row - start)
            if not whole or context.budget is None:
                raise
            raise BudgetError(
                f"row group {numbers[0]} decodes to about {format_nbytes(whole)}, more than it was planned "
                f"for. Write with_options(memory={context.budget + 3 * whole}), or more, or write the file "
                "again with smaller row groups.",
                is_final=True,
            ) from error
        if row != stop or not columns:
            raise self._too_short(row - start, start, stop)
        return joined(columns, context.allocate)

    def _is_coded(self, number: int, context: Context) -> bool:
        """Return whether texts of a row group keep their dictionary: expanded, they would be far larger."""
        pages = self._pages[number]
        if not self.field.spec.is_text or not pages.can_be_coded:
            return False
        column = self.metadata.row_group(number).column(self.column)
        decoded = pages.num_coded * (pages.dictionary // max(1, pages.num_words))
        if not pages.is_coded_first or decoded > 2 * column.total_uncompressed_size:
            return True
        if number not in self._longest:
            batch = next(self._batches([number], 1, context, is_coded=True))
            lengths = require("pyarrow.compute", "reading .parquet", "parquet").binary_length
            words = batch.column(self.name)
            words = getattr(words, "dictionary", words)
            found = lengths(words)
            sizes = as_numpy(found)[as_numpy(found.is_valid())]
            self._longest[number] = int(sizes.max(initial=0))
        return self._longest[number] > BATCH_NBYTES // _LEAST_ROWS

    def _too_short(self, count: int, start: int, stop: int) -> DataError:
        return DataError(
            f"column {self.name!r} has {count} values where its footer says {stop - start}",
            file=self.file,
            row=start,
            cure="It is damaged: write it again.",
        )

    def _handle(self, context: Context, *, is_coded: bool, is_buffered: bool = True) -> Handle:
        reader = reader_of(self.location, context, direct=self.direct)
        # A handle for each thread: pyarrow releases the interpreter lock, so that threads can decode in parallel.
        name = self.name if is_coded else None
        return context.resources.get(
            ("parquet", self.location.url, self.verify, threading.get_ident(), name, is_buffered),
            lambda: Handle(
                self.location,
                reader,
                self.metadata,
                verify=self.verify,
                dictionary=name,
                is_buffered=is_buffered,
            ),
        )

    def _batches(self, numbers: list[int], rows: int, context: Context, *, is_coded: bool) -> Any:
        return self._handle(context, is_coded=is_coded).file.iter_batches(
            batch_size=rows, row_groups=numbers, columns=[self.name], use_threads=False
        )

    def _arrays(
        self, numbers: list[int], row: int, context: Context, *, is_coded: bool
    ) -> Iterator[tuple[int, Any]]:
        """Yield (first row, Arrow array): the column's rows of row groups from `row` on, a batch at a time."""
        reserved = self._reserved(numbers, context, is_coded=is_coded)
        rows = self.grid.chunk_rows if is_coded else self._batch_rows(numbers)
        first = row
        try:
            for batch in self._batches(numbers, rows, context, is_coded=is_coded):
                # By name: with a column `a`, pyarrow also hands out one that is called `a.b`.
                yield row, batch.column(self.name)
                row += batch.num_rows
        except ValueError as error:
            if not is_null_list(error):
                raise
            raise self._null(first + self._rows_before_error(numbers, context)) from None
        del reserved

    def _rows_before_error(self, numbers: list[int], context: Context) -> int:
        """Return how many rows of row groups can be decoded: only for a message."""
        count = 0
        with contextlib.suppress(ValueError):
            for batch in self._batches(numbers, 1, context, is_coded=False):
                count += batch.num_rows
        return count

    def _batch_rows(self, numbers: Sequence[int]) -> int:
        """Return how many rows are decoded at once: so few that the longest would not take much."""
        if self.field.spec.is_text:
            pages = [self._pages[number] for number in numbers]
            return min(
                page.safe_rows(BATCH_NBYTES, self._longest.get(number))
                for number, page in zip(numbers, pages, strict=True)
            )
        return max(1, BATCH_NBYTES // max(1, self.field.nbytes))

    def _reserved(self, numbers: Sequence[int], context: Context, *, is_coded: bool) -> Any:
        """Return memory of the budget that stands for what pyarrow takes, where that is more than usual."""
        nbytes = self.pages_nbytes(numbers, is_coded=is_coded)
        usual = max(USUAL_NBYTES, self.page_nbytes)
        return context.allocate(nbytes) if nbytes > usual else None

    def pages_nbytes(self, numbers: Iterable[int], *, is_coded: bool) -> int:
        """Return the bytes that pyarrow takes for a page of these row groups, whose pages are known."""
        pages = [self._pages[number] for number in numbers]
        nbytes = PAGE_COPIES * max((one.largest for one in pages), default=0)
        if is_coded:  # As a page, as words, in a hash table, and as an array.
            nbytes += 4 * max((one.dictionary for one in pages), default=0)
        return nbytes

    def converted(self, array: Any, spec: ArraySpec, row: int, context: Context) -> Values:
        """Return the values of an Arrow array, whose first row is `row`."""
        try:
            if spec.is_fixed:
                return fixed_values(array, spec)
            return varying_values(array, spec, context.allocate)
        except NullFoundError as error:
            raise self._null(row + error.row) from None

    def _null(self, row: int) -> DataError:
        group = int(self.grid.chunk_of(np.array([row]))[0])
        return null_error(self.file, self.name, f"row group {group}", row, self.field.spec)

    @property
    def is_known_bad(self) -> bool:
        """Whether the footer tells of nulls that can't be read."""
        return self.null_group is not None

    def raise_known(self) -> None:
        """Raise the error that reading all rows would end with."""
        number = self.null_group
        if number is None:
            return
        row = int(self.grid.bounds(np.array([number]))[0][0])
        column = self.metadata.row_group(number).column(self.column)
        with file_errors(self.location), open_reader(self.location) as reader:
            pages = read_pages(reader, column, where(self.name, number))
            # Text keeps its dictionary, else a few rows could be gigabytes.
            words = self.name if pages.can_be_coded else None
            handle = Handle(self.location, reader, None, verify=False, dictionary=words)
            rows = min(_LOOK_ROWS, pages.safe_rows(BATCH_NBYTES, 1 if words else None))
            for batch in handle.file.iter_batches(rows, row_groups=[number], columns=[self.name]):
                values = batch.column(self.name)
                if values.null_count:
                    row += int(np.argmin(as_numpy(values.is_valid())))
                    break
                row += batch.num_rows
            handle.close()
        raise self._null(row)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of the decoded rows, and of the few that pyarrow is decoding."""
        chunk = self.chunk_nbytes
        at_once = chunk + min(num_rows * self.field.nbytes, PIECE_NBYTES)
        at_once = min(at_once, max(chunk, self.num_rows * self.field.nbytes))
        # Pages that were met so far may be larger than those of the row group that was looked at first.
        met = self.pages_nbytes(tuple(self._pages), is_coded=self.field.spec.is_text)
        page = max(self.page_nbytes, met if met > USUAL_NBYTES else 0)
        under_way = 3 * min(at_once, BATCH_NBYTES) + 4 * BUFFER_NBYTES + page
        if not self.field.spec.is_fixed and not self.field.spec.is_text:
            # One list may have all the values of its row group: each takes 4 bytes at least, and 4 for its levels.
            width = self.field.spec.numpy_dtype.itemsize
            under_way += _GROWTH * (max(4, width) + 4) * (chunk // width)
        if self.field.tops:
            # All were looked at, and some are larger than others: joined, and then in order.
            under_way += 2 * self.field.most_nbytes(num_rows)
        return (1 if self.field.spec.is_fixed else 2) * at_once + under_way
