"""Parquet files: columns as fields, sized by what they decode to."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from penstock.core.fields import Field
from penstock.core.optional import require
from penstock.core.rows import Rows
from penstock.core.spec import ArraySpec
from penstock.io.formats.parquet_pages import check_footer, read_pages
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.reader import Reader, read_bytes
from penstock.shards.description import KEY, Description, parse_description
from penstock.sources.arrow.columns import (
    as_numpy,
    check_column,
    may_be_missing,
    restored,
)
from penstock.sources.parquet.handle import Handle, damaged, encrypted, file_errors, where
from penstock.sources.parquet.row_groups import (
    BATCH_NBYTES,
    PAGE_COPIES,
    USUAL_NBYTES,
    ParquetLeaf,
)
from penstock.sources.reading.chunked import Grid
from penstock.sources.reading.file_rows import rows_of
from penstock.sources.reading.leaves import Leaf
from penstock.sources.reading.parts import Part, Request, attempt_each, check_names, each_field

_SIGNATURE_NBYTES = 28  # Behind the footer of a file that has encrypted columns.
# Of what is decoded to what is encoded; claims of more are compared with the pages.
_LIKELY_RATIO = 64
_MOST_RATIO = 1 << 20  # Of what is unpacked to what is packed: no codec reaches it.
# Of one row group it is measured how long texts with a dictionary are, when a file is opened.
_SAMPLE_ROWS, _MOST_SAMPLES, _MOST_SAMPLE_NBYTES = 1 << 16, 64, 16 << 20


def open_format(locations: Sequence[Location], request: Request) -> Rows:
    """Return the columns of files; reads their footers, and of the first how long texts are."""
    known: dict[str, _Sizes] = {}
    texts: list[Description | None] = []

    def attempt(location: Location) -> Part:
        with file_errors(location), open_reader(location) as reader:
            part, text = _open(location, locations, reader, request, known)
        texts.append(text)
        return part

    good, parts = attempt_each(locations, attempt, request)
    if request.fields is None and texts[0] is not None and not request.left_out:
        # What `write` made has the nest that it was written with.
        request = replace(request, fields=texts[0].nest_of(parts[0].leaves))
    return rows_of(good, parts, request)


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
) -> tuple[Part, Description | None]:
    if location.size >= 12 and read_bytes(reader, location.size - 4, 4) == b"PAR1":
        nbytes = int.from_bytes(read_bytes(reader, location.size - 8, 4), "little")
        if check_footer(reader, nbytes):
            raise encrypted(location)
    handle = Handle(location, reader, None, verify=request.verify)
    schema, metadata = handle.file.schema_arrow, handle.file.metadata
    handle.close()
    footer_nbytes = int.from_bytes(read_bytes(reader, location.size - 8, 4), "little")
    if footer_nbytes - metadata.serialized_size == _SIGNATURE_NBYTES:
        # Not a column of it may be looked at: pyarrow ends the process if it is an encrypted one.
        raise encrypted(location)
    available = list(dict.fromkeys(schema.names))
    names = available if request.names is None else request.names
    check_names(str(location), names, available)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    lengths = np.array([group.num_rows for group in groups], np.int64)
    if (lengths < 0).any() or int(lengths.sum()) != metadata.num_rows:
        raise damaged(
            f"its footer says {metadata.num_rows} rows, and its row groups have {lengths.sum()}",
            location,
        )
    columns = _columns(metadata, available)
    text = parse_description((schema.metadata or {}).get(KEY.encode()))
    specs = {} if text is None else text.specs
    grid = Grid.of_lengths(lengths)

    def leaf(name: str) -> Leaf:
        spec = restored(check_column(schema, name, str(location)), specs.get(name))
        numbers = columns.get(name, [])
        stored = [
            _stored(reader, groups, numbers, number, spec, name) for number in range(len(groups))
        ]
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
        if spec.is_text or (spec.shape == () and not may_be_missing(spec)):
            found.null_group = _null_group(groups, numbers)
        found.packed_nbytes = max(
            (sum(group.column(c).total_compressed_size for c in numbers) for group in groups),
            default=0,
        )
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
    return Part(str(location), leaves, left_out), text


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
            raise damaged(
                f"row group {number}: column {name!r} claims {column.num_values} values for {num_rows} rows, "
                f"{column.total_compressed_size} bytes, and {encoded} unpacked",
                reader.location,
            )
        if max(nbytes, num_rows) > _LIKELY_RATIO * max(encoded, 1 << 12):
            read_pages(reader, column, where(name, number))
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
    if not is_text and column.total_uncompressed_size <= BATCH_NBYTES:
        return _Sizes()
    pages = read_pages(reader, column, where(name, number))
    large = PAGE_COPIES * pages.largest + 4 * pages.dictionary
    large = large if large > USUAL_NBYTES else 0
    if not spec.is_text or not (pages.num_coded or pages.has_prefixes):
        return _Sizes(page=large)
    mean = pages.dictionary // max(1, pages.num_words)
    if pages.largest <= _MOST_SAMPLE_NBYTES:
        words = name if pages.can_be_coded else None
        handle = Handle(location, reader, metadata, verify=False, dictionary=words)
        total = num_rows = 0
        at_once = _SAMPLE_ROWS if words else pages.safe_rows(BATCH_NBYTES)
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
        return int(as_numpy(lengths(array).drop_null()).sum())
    words = as_numpy(lengths(array.dictionary))
    codes = as_numpy(array.indices.drop_null())
    return int(words[codes].sum(dtype=np.int64))


def _columns(metadata: Any, names: Sequence[str]) -> dict[str, list[int]]:
    """Return the numbers of the leaf columns that each column of the table is made of."""
    found: dict[str, list[int]] = {}
    known = set(names)
    if metadata.num_row_groups:
        group = metadata.row_group(0)
        for number in range(metadata.num_columns):
            path = group.column(number).path_in_schema
            # The path of a list is `x.list.element`; but a name may have a dot in it.
            name = path
            while name not in known and "." in name:
                name = name.rpartition(".")[0]
            found.setdefault(name, []).append(number)
    return found


def _null_group(groups: Sequence[Any], columns: Sequence[int]) -> int | None:
    """Return the first row group that has nulls by the statistics of the footer; None if these tell of none.

    Not for lists: for these, the footer counts empty lists as nulls, too.
    """
    for number, group in enumerate(groups):
        for column in columns:
            statistics = group.column(column).statistics
            if statistics is not None and statistics.has_null_count and statistics.null_count:
                return number
    return None
