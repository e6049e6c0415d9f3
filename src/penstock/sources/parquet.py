"""Parquet files: columns as fields, row groups as chunks, decoded a few rows at a time."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

import numpy as np

from penstock.core.columns import Ragged, Text
from penstock.core.fields import Field
from penstock.core.optional import require
from penstock.core.rows import Context, Rows
from penstock.core.spec import ArraySpec
from penstock.errors import BudgetError, DataError, PenstockError
from penstock.io.formats.parquet_pages import Pages, check_footer, read_pages
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.reader import Reader, read_bytes
from penstock.io.seekable import SeekableFile
from penstock.io.sizes import PIECE_NBYTES
from penstock.memory import format_nbytes
from penstock.sources.arrow.columns import (
    NullFoundError,
    check_column,
    fixed_values,
    is_null_list,
    joined,
    null_error,
    varying_values,
)
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

_BATCH_NBYTES = 1 << 21  # What is decoded at once: a row group may be far larger than the budget.
_SIGNATURE_NBYTES = 28  # Behind the footer of a file that has encrypted columns.
_BUFFER_NBYTES = 1 << 18  # Read from the file at once for each column.
_PAGE_COPIES = 3  # A page as it is stored and unpacked, and its values as they grow.
_USUAL_NBYTES = 3 * _BATCH_NBYTES  # Which has room for pages of up to 1 MB, as most writers make.
_LEAST_ROWS = 256  # Decoded at once: texts that are too long for that keep their dictionary.
_LEAST_ITEMS = 1000  # Any footer may have lists of so many items.
_LIKELY_RATIO = (
    64  # Of what is decoded to what is encoded; claims of more are compared with the pages.
)
_MOST_RATIO = 1 << 20  # Of what is unpacked to what is packed: no codec reaches it.
# Of one row group it is measured how long texts with a dictionary are, when a file is opened.
_SAMPLE_ROWS, _MOST_SAMPLES, _MOST_SAMPLE_NBYTES = 1 << 16, 64, 16 << 20


def open_format(locations: Sequence[Location], request: Request) -> Rows:
    """Return the columns of files; reads their footers, and of the first how long texts are."""
    known: dict[str, _Sizes] = {}

    def attempt(location: Location) -> Part:
        with _file_errors(location), open_reader(location) as reader:
            return _open(location, locations, reader, request, known)

    opened = attempt_each(locations, attempt, request)
    return rows_of(*opened, request)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What the pages of a column tell that a footer does not, by the look of one row group."""

    mean: int = 0
    """The bytes of a row as it is decoded."""
    page: int = 0
    """The bytes that decoding takes besides, where there are large pages."""
    has_prefixes: bool = False
    """Whether texts are stored without what they have in common with the one before."""


def _open(
    location: Location,
    locations: Sequence[Location],
    reader: Reader,
    request: Request,
    known: dict[str, _Sizes],
) -> Part:
    if location.size >= 12 and read_bytes(reader, location.size - 4, 4) == b"PAR1":
        check_footer(reader, int.from_bytes(read_bytes(reader, location.size - 8, 4), "little"))
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
        raise _damaged(
            f"its footer says {metadata.num_rows} rows, and its row groups have {lengths.sum()}",
            location,
        )
    columns = _columns(metadata, available)
    grid = Grid.of_lengths(lengths)

    def leaf(name: str) -> Leaf:
        spec = check_column(schema, name, str(location))
        numbers = columns.get(name, [])
        stored = [
            _stored(reader, groups, numbers, number, spec, name) for number in range(len(groups))
        ]
        if spec.is_text or spec.shape == ():
            _check_nulls(groups, numbers, name, location)
        if name not in known and metadata.num_rows:
            known[name] = _sampled(
                location, reader, metadata, int(np.argmax(lengths > 0)), numbers, spec
            )
        sizes = known.get(name, _Sizes())
        total = sum(group.column(c).total_uncompressed_size for group in groups for c in numbers)
        mean = max(total, sum(stored)) // max(1, metadata.num_rows)
        field = Field(spec, estimate=max(mean, sizes.mean) + 8)
        found = ParquetLeaf(field, grid, name, location, locations, request, metadata)
        found.column = numbers[0] if numbers else 0
        found.page_nbytes = sizes.page
        if not spec.is_fixed:
            least = sizes.mean if sizes.has_prefixes else 0
            found.hold(
                max(
                    (
                        max(nbytes, least * rows) + 8 * rows
                        for nbytes, rows in zip(stored, lengths.tolist(), strict=True)
                    ),
                    default=0,
                )
            )
        return found

    leaves, left_out = each_field(names, leaf, request)
    return Part(str(location), leaves, left_out)


def _stored(
    reader: Reader,
    groups: Sequence[Any],
    columns: Sequence[int],
    number: int,
    spec: ArraySpec,
    name: str,
) -> int:
    """Return the bytes of a column of a row group: of lists and numbers decoded, of text as it is stored.

    What a footer claims is compared with the pages where that could not be believed without.
    """
    num_rows, total = groups[number].num_rows, 0
    for column in (groups[number].column(one) for one in columns):
        encoded, nbytes = column.total_uncompressed_size, column.total_uncompressed_size
        if not spec.is_text:
            nbytes = column.num_values * spec.numpy_dtype.itemsize
        claims = (column.num_values, column.total_compressed_size, encoded, column.data_page_offset)
        is_flat = spec.shape == ()
        if (
            min(claims) < 0
            or column.total_compressed_size > reader.size
            or encoded > _MOST_RATIO * max(1, column.total_compressed_size)
            or (column.num_values != num_rows if is_flat else column.num_values < num_rows)
        ):
            raise _damaged(
                f"row group {number}: column {name!r} claims {column.num_values} values for {num_rows} rows, "
                f"{column.total_compressed_size} bytes, and {encoded} unpacked",
                reader.location,
            )
        if max(nbytes, num_rows) > _LIKELY_RATIO * max(encoded, 1 << 12):
            read_pages(reader, column, _where(name, number))
        total += nbytes
    return total


def _sampled(
    location: Location,
    reader: Reader,
    metadata: Any,
    number: int,
    columns: Sequence[int],
    spec: ArraySpec,
) -> _Sizes:
    """Return the sizes of a column in one row group, by its pages."""
    group = metadata.row_group(number)
    if not columns or not group.num_rows:
        return _Sizes()
    column = group.column(columns[0])
    name = column.path_in_schema
    is_text = spec.is_text and {"PLAIN", "RLE"} != set(column.encodings)
    if not is_text and column.total_uncompressed_size <= _BATCH_NBYTES:
        return _Sizes()
    pages = read_pages(reader, column, _where(name, number))
    large = _PAGE_COPIES * pages.largest + 4 * pages.dictionary
    large = large if large > _USUAL_NBYTES else 0
    if not spec.is_text or not (pages.num_coded or pages.has_prefixes):
        return _Sizes(page=large)
    mean = pages.dictionary // max(1, pages.num_words)
    if pages.largest <= _MOST_SAMPLE_NBYTES:
        words = name if pages.can_be_coded else None
        handle = Handle(location, reader, metadata, verify=False, dictionary=words)
        total = num_rows = 0
        at_once = _SAMPLE_ROWS if words else pages.safe_rows(_BATCH_NBYTES)
        batches = handle.file.iter_batches(
            at_once, row_groups=[number], columns=[name], use_threads=False
        )
        for batch in islice(batches, _MOST_SAMPLES):
            total += _text_nbytes(batch.column(name))
            num_rows += batch.num_rows
        handle.close()
        mean = total // max(1, num_rows)
    return _Sizes(mean, large, pages.has_prefixes)


def _text_nbytes(array: Any) -> int:
    """Return the bytes of all rows of an array that may have a dictionary."""
    lengths = require("pyarrow.compute", "reading .parquet", "parquet").binary_length
    if not hasattr(array, "dictionary"):
        return int(np.nansum(lengths(array).to_numpy(zero_copy_only=False)))
    words = lengths(array.dictionary).to_numpy(zero_copy_only=False)
    codes = array.indices.drop_null().to_numpy(zero_copy_only=False)
    return int(words[codes].sum(dtype=np.int64))


def _where(name: str, number: int) -> str:
    return f"column {name!r} of row group {number}"


def _damaged(problem: str, location: Location) -> DataError:
    return DataError(
        problem,
        file=str(location),
        cure="It may be damaged or cut off: compare it with its original.",
    )


@contextlib.contextmanager
def _file_errors(location: Location) -> Iterator[None]:
    """Make whatever pyarrow raises for a damaged file an error of ours."""
    try:
        yield
    except (PenstockError, ImportError):
        raise
    except Exception as error:
        if "encrypted" in str(error):
            raise _encrypted(location) from error
        raise _damaged(
            f"can't be read as Parquet: {type(error).__name__}: {error}", location
        ) from error


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
                row = start + _first_null(location, name, number, group.column(column))
                raise null_error(str(location), name, f"row group {number}", row)
        start += group.num_rows


def _first_null(location: Location, name: str, number: int, column: Any) -> int:
    """Return the first row of a row group that is a null: only for a message."""
    with open_reader(location) as reader:
        pages = read_pages(reader, column, _where(name, number))
        # Text keeps its dictionary, else a few rows could be gigabytes.
        words = name if pages.can_be_coded else None
        handle = Handle(location, reader, None, verify=False, dictionary=words)
        passed = 0
        rows = min(_SAMPLE_ROWS, pages.safe_rows(_BATCH_NBYTES, 1 if words else None))
        for batch in handle.file.iter_batches(rows, row_groups=[number], columns=[name]):
            column = batch.column(name)
            if column.null_count:
                valid = column.is_valid().to_numpy(zero_copy_only=False)
                passed += int(np.argmin(valid))
                break
            passed += batch.num_rows
        handle.close()
    return passed


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
    ) -> None:
        require("pyarrow", f"reading {location.suffix or '.parquet'}", "parquet")
        parquet = require("pyarrow.parquet", "reading .parquet", "parquet")
        self.stream = SeekableFile(reader)
        with _file_errors(location):
            self.file = parquet.ParquetFile(
                self.stream,
                metadata=metadata,
                buffer_size=_BUFFER_NBYTES,
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


class ParquetLeaf(ArrowColumn):
    """One column, decoded by pyarrow a row group at a time."""

    column = 0
    """The number of its leaf column in a row group."""
    page_nbytes = 0
    """The bytes that decoding takes besides, where there are large pages."""

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
        self._pages: dict[int, Pages] = {}
        self._longest: dict[int, int] = {}
        """By row group, the bytes of the longest word of its dictionary."""

    def decode(self, start: int, stop: int, context: Context) -> Values:
        """Return rows of whole row groups, decoded a few at a time."""
        reader = reader_of(self.location, context, direct=self.direct)
        groups = self.grid.chunk_of(np.array([start, stop - 1])).tolist()
        numbers = list(range(groups[0], groups[1] + 1))
        for number in numbers:
            if number not in self._pages:
                column = self.metadata.row_group(number).column(self.column)
                self._pages[number] = read_pages(reader, column, _where(self.name, number))
        spec = self.field.spec
        if not spec.is_fixed:
            return self._varying(numbers, start, stop, context)
        values = self.memory(stop - start, context)
        done = start
        for row, array in self._arrays(numbers, start, context, is_coded=False):
            found = self._converted(array, spec, row, context)
            if row + len(array) > stop or not isinstance(found, np.ndarray):
                done = row + len(array)
                break
            values[row - start : row - start + len(array)] = found
            done = row + len(array)
        if done != stop:
            raise self._too_short(done - start, start, stop)
        return values

    def _varying(self, numbers: Sequence[int], start: int, stop: int, context: Context) -> Values:
        """Return texts or lists: texts with their dictionary where that is much shorter."""
        columns: list[Text | Ragged | Coded] = []
        row = start
        try:
            for is_coded, some in groupby(numbers, lambda number: self._is_coded(number, context)):
                for at, array in self._arrays(list(some), row, context, is_coded=is_coded):
                    found = self._converted(array, self.field.spec, at, context)
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
            self._longest[number] = int(np.max(lengths(words).fill_null(0), initial=0))
        return self._longest[number] > _BATCH_NBYTES // _LEAST_ROWS

    def _too_short(self, count: int, start: int, stop: int) -> DataError:
        return DataError(
            f"column {self.name!r} has {count} values where its footer says {stop - start}",
            file=self.file,
            row=start,
            cure="It is damaged: write it again.",
        )

    def _handle(self, context: Context, *, is_coded: bool) -> Handle:
        reader = reader_of(self.location, context, direct=self.direct)
        # A handle for each thread: pyarrow releases the interpreter lock, so that threads can decode in parallel.
        name = self.name if is_coded else None
        return context.resources.get(
            ("parquet", self.location.url, self.verify, threading.get_ident(), name),
            lambda: Handle(
                self.location, reader, self.metadata, verify=self.verify, dictionary=name
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
                page.safe_rows(_BATCH_NBYTES, self._longest.get(number))
                for number, page in zip(numbers, pages, strict=True)
            )
        return max(1, _BATCH_NBYTES // max(1, self.field.nbytes))

    def _reserved(self, numbers: Sequence[int], context: Context, *, is_coded: bool) -> Any:
        """Return memory of the budget that stands for what pyarrow takes, where that is more than usual."""
        pages = [self._pages[number] for number in numbers]
        nbytes = _PAGE_COPIES * max(one.largest for one in pages)
        if is_coded:  # As a page, as words, in a hash table, and as an array.
            nbytes += 4 * max(one.dictionary for one in pages)
        usual = max(_USUAL_NBYTES, self.page_nbytes)
        return context.allocate(nbytes) if nbytes > usual else None

    def _converted(self, array: Any, spec: ArraySpec, row: int, context: Context) -> Values:
        try:
            if spec.is_fixed:
                return fixed_values(array, spec)
            return varying_values(array, spec, context.allocate)
        except NullFoundError as error:
            raise self._null(row + error.row) from None

    def _null(self, row: int) -> DataError:
        group = int(self.grid.chunk_of(np.array([row]))[0])
        return null_error(self.file, self.name, f"row group {group}", row)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of the decoded rows, and of the few that pyarrow is decoding."""
        chunk = self.chunk_nbytes
        at_once = chunk + min(num_rows * self.field.nbytes, PIECE_NBYTES)
        at_once = min(at_once, max(chunk, self.num_rows * self.field.nbytes))
        under_way = 3 * min(at_once, _BATCH_NBYTES) + 4 * _BUFFER_NBYTES + self.page_nbytes
        if not self.field.spec.is_fixed and not self.field.spec.is_text:
            # One list may have all the values of its row group: each takes 4 bytes at least, and 4 for its
            # levels, twice while these grow.
            width = self.field.spec.numpy_dtype.itemsize
            under_way += 2 * (max(4, width) + 4) * (chunk // width)
        return (1 if self.field.spec.is_fixed else 2) * at_once + under_way
