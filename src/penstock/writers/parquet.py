"""write(format="parquet"): a folder of Parquet files, which pyarrow, pandas and others read as one table."""

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import Block, varying_nbytes
from penstock.core.columns import Column, Fixed, Ragged, Text
from penstock.core.optional import require
from penstock.core.rows import Node, rows_per_block
from penstock.core.spec import ArraySpec, dtype_name
from penstock.core.system import drop_from_page_cache
from penstock.errors import RangeError, WriteError
from penstock.io.failures import write_errors
from penstock.memory import allocate_plain
from penstock.shards.description import KEY, column_names, described
from penstock.shards.sequence import fixed_nbytes
from penstock.writers.job import Job
from penstock.writers.parts import write_parts

GROUP_NBYTES = 1 << 19
"""The bytes of a row group: a shuffle reads whole ones, and mixes a hundred of them."""
_FLUSH_NBYTES = 32 << 20  # Written pages count against a container's memory until they are on disk.
_ANY = 'or write format="npy", which holds every dtype.'


def write(job: Job) -> None:
    """Write all rows; takes the memory of a stream, and that of a few row groups."""
    write_parts(job, ParquetFormat)


class ParquetFormat:
    """Rows as columns of Arrow: a leaf of the nest is a column, an axis of its shape is a list."""

    suffix = ".parquet"

    def __init__(self, node: Node) -> None:
        if node.is_batched:
            raise ValueError(
                f"a Parquet file holds rows, and {node.describe()} makes batches of them; "
                "write before batching, or after .unbatch()."
            )
        self.pa = require("pyarrow", 'write(format="parquet")', "parquet")
        self.parquet = require("pyarrow.parquet", 'write(format="parquet")', "parquet")
        self.names = column_names(node.structure)
        self.specs = [field.spec for field in node.fields]
        if not self.names:
            raise ValueError("a Parquet file needs a column, and these rows have no fields.")
        fields = [
            self.pa.field(
                _utf8(name), self._type(name, spec), nullable=_is_time(spec) and not spec.shape
            )
            for name, spec in zip(self.names, self.specs, strict=True)
        ]
        text = described(node.structure, self.names, self.specs)
        self.schema = self.pa.schema(fields, metadata={KEY: text})
        self.group_rows = rows_per_block(node, GROUP_NBYTES)
        self.fixed_nbytes = fixed_nbytes(node)

    def _type(self, name: str, spec: ArraySpec) -> Any:
        """Return the Arrow type of a field, or raise if there is none that comes back as it was."""
        kind = _plain_type(self.pa, spec)
        if kind is None:
            raise TypeError(
                f"field {name!r} is {dtype_name(spec.dtype)}, which no column of Parquet is; {_cure(spec)}"
            )
        if None in spec.shape[1:] or (spec.is_text and spec.shape):
            what = "text" if spec.is_text else "an array whose inner sizes differ from row to row"
            raise TypeError(
                f"field {name!r} is {spec}, and a column of Parquet that is read back holds lists of numbers of one "
                f'shape, not lists of {what}; write format="npy", which holds any row, or change it first with map.'
            )
        if 0 in spec.shape:
            raise TypeError(
                f"field {name!r} is {spec}, and Parquet has no lists of size 0; leave it out with map."
            )
        nullable = _is_time(spec)
        for size in reversed(spec.shape):
            item = self.pa.field("element", kind, nullable=nullable)
            nullable = False  # Times are missing, not lists of them.
            kind = self.pa.large_list(item) if size is None else self.pa.list_(item, size)
        return kind

    def encode(self, block: Block, size: int, first_row: int) -> tuple[Any, int]:
        """Return the block with the bytes of its rows, added up: where row groups end depends on them."""
        weights = np.cumsum(varying_nbytes(block, size) + self.fixed_nbytes)
        return (block, weights), int(weights[-1]) if size else 0

    def open(self, path: Path, first_row: int) -> "ParquetPart":
        """Return a new file."""
        return ParquetPart(self, path, first_row)

    def arrays(self, block: Block, start: int, stop: int, first_row: int) -> list[Any]:
        """Return rows of a block as Arrow arrays, in memory of their own; the first is row `first_row` of all."""
        found = []
        columns = zip(self.schema, block.columns, strict=True)
        for field, column in columns:
            try:
                found.append(_array(self.pa, field.type, column, start, stop))
            except _UnfitError as error:
                row = first_row + error.row
                message = f"field {field.name!r} has, in row {row}, {error}; {error.cure}"
                raise RangeError(message) from None
        return found


class ParquetPart:
    """A Parquet file: rows are gathered until they make a row group."""

    def __init__(self, kind: ParquetFormat, path: Path, first_row: int) -> None:
        self.kind = kind
        self.path = path
        self.row = first_row
        """The number of the first row that is gathered."""
        self._pieces: list[Any] = []
        self._num_rows = self._nbytes = self._unflushed = 0
        with write_errors(path):
            self.file = path.open("wb")
        try:
            text = [str(one.name) for one in kind.schema if kind.pa.types.is_large_string(one.type)]
            self.writer = kind.parquet.ParquetWriter(
                self.file, kind.schema, use_dictionary=text or False, write_page_checksum=True
            )
        except BaseException:
            self.file.close()
            raise

    def add(self, encoded: Any, start: int, stop: int) -> None:
        """Write rows; those that are no row group yet are kept."""
        block, weights = encoded
        while start < stop:
            before = int(weights[start - 1]) if start else 0
            room = GROUP_NBYTES - self._nbytes
            # After the row that brings the group to its bytes, as shards are cut: so it depends on the rows alone.
            end = min(stop, int(np.searchsorted(weights, before + room)) + 1)
            end = min(end, start + self.kind.group_rows - self._num_rows)
            arrays = self.kind.arrays(block, start, end, self.row + self._num_rows)
            self._pieces.append(
                self.kind.pa.RecordBatch.from_arrays(arrays, schema=self.kind.schema)
            )
            self._nbytes += int(weights[end - 1]) - before
            self._num_rows += end - start
            start = end
            if self._nbytes >= GROUP_NBYTES or self._num_rows >= self.kind.group_rows:
                self._write_group()

    def _write_group(self) -> None:
        table = self.kind.pa.Table.from_batches(self._pieces, self.kind.schema)
        self._pieces = []
        with self._errors():
            self.writer.write_table(table.combine_chunks(), row_group_size=max(1, self._num_rows))
        self.row += self._num_rows
        self._unflushed += self._nbytes
        self._num_rows = self._nbytes = 0
        if self._unflushed >= _FLUSH_NBYTES:
            self._unflushed = 0
            self._sync()

    def _sync(self) -> None:
        with write_errors(self.path):
            self.file.flush()
            os.fsync(self.file.fileno())
        drop_from_page_cache(self.file.fileno())

    @contextlib.contextmanager
    def _errors(self) -> Any:
        """Name the file in what pyarrow raises."""
        try:
            with write_errors(self.path):
                yield
        except (self.kind.pa.ArrowException, ValueError) as error:
            if isinstance(error, WriteError):
                raise
            problem = f"pyarrow can't write this: {error}"
            raise WriteError(problem, file=str(self.path)) from error

    def finish(self) -> None:
        """Write the last row group and the footer."""
        if self._num_rows:
            self._write_group()
        with self._errors():
            self.writer.close()
        self._sync()

    def close(self) -> None:
        """Close the file, finished or not."""
        # Else pyarrow writes the footer when the writer is collected.
        with contextlib.suppress(Exception):
            self.writer.close()
        with write_errors(self.path):
            self.file.close()


class _UnfitError(ValueError):
    """A value that Parquet does not have, in row `row` of those that are written."""

    def __init__(self, problem: str, row: int, cure: str) -> None:
        super().__init__(problem)
        self.row = row
        self.cure = cure


def _utf8(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"names of columns in Parquet are UTF-8, got {name!r}; rename it first with map."
        ) from None
    return name


def _plain_type(pa: Any, spec: ArraySpec) -> Any:
    """Return the Arrow type of a single value; None if there is none."""
    if not isinstance(spec.dtype, np.dtype):
        return pa.large_string() if spec.dtype is str else pa.large_binary()
    dtype = spec.dtype
    if dtype.kind in "biu" or dtype.name in ("float16", "float32", "float64"):
        return pa.from_numpy_dtype(dtype.newbyteorder("="))
    if dtype.kind in "SV" and dtype.names is None and dtype.itemsize and _is_numpys(dtype):
        return pa.binary(dtype.itemsize)
    if dtype.kind in "mM":
        unit, count = np.datetime_data(dtype)
        if count == 1 and unit in ("s", "ms", "us", "ns"):
            # Parquet has no timestamps in seconds.
            is_date = dtype.kind == "M"
            return pa.timestamp("ms" if unit == "s" else unit) if is_date else pa.duration(unit)
        if count == 1 and unit == "D" and dtype.kind == "M":
            return pa.date32()
    return None


def _is_time(spec: ArraySpec) -> bool:
    """Return whether values may be missing: not-a-time is a null, since Parquet has no such number."""
    return isinstance(spec.dtype, np.dtype) and spec.dtype.kind in "mM"


def _is_numpys(dtype: np.dtype[Any]) -> bool:
    return dtype.type.__module__.partition(".")[0] == "numpy"


def _cure(spec: ArraySpec) -> str:
    """Return what to do about a dtype that Parquet does not have."""
    dtype = spec.numpy_dtype
    if dtype.names is not None:
        return f"make a dict of its columns with map, {_ANY}"
    if dtype.kind == "c":
        return f"split it into .real and .imag with map, {_ANY}"
    if dtype.kind == "U":
        return f"make text of any length of it with map(str), {_ANY}"
    if dtype.kind in "mM":
        return f"map it to {dtype.kind}8[us], {_ANY}"
    if dtype.itemsize == 0:
        return f"leave it out with map, {_ANY}"
    return f"map it to float32 or float64, {_ANY}"


def _array(pa: Any, kind: Any, column: Column, start: int, stop: int) -> Any:
    """Return rows of a column as an Arrow array that shares no memory with it."""
    if isinstance(column, Text):
        return _text(pa, kind, column, start, stop)
    if isinstance(column, Fixed):
        rows = column.rows[start:stop]
        return _lists(pa, kind, _values(pa, rows.reshape(-1), rows.size // max(1, len(rows))))
    taken = column.take(np.arange(start, stop), allocate_plain)
    assert isinstance(taken, Ragged)
    assert isinstance(taken.values_, np.ndarray)
    lengths: Index = taken.shapes[:, 0]
    inner = max(1, int(np.prod(taken.shapes[0, 1:] if len(taken) else 1, dtype=np.int64)))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    try:
        flat = _values(pa, taken.values_[: int(offsets[-1]) * inner], inner)
    except _UnfitError as error:
        error.row = int(np.searchsorted(offsets, error.row, side="right")) - 1
        raise
    items = _lists(pa, kind.value_type, flat)
    buffers = [None, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, stop - start, buffers, children=[items])


def _lists(pa: Any, kind: Any, values: Any) -> Any:
    """Return values as lists of one size, however deep the type says."""
    if not pa.types.is_fixed_size_list(kind):
        return values
    inner = _lists(pa, kind.value_type, values)
    return pa.FixedSizeListArray.from_arrays(inner, type=kind)


def _text(pa: Any, kind: Any, column: Text, start: int, stop: int) -> Any:
    offsets = column.offsets[start : stop + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    buffers = [None, pa.py_buffer(offsets - first), pa.py_buffer(column.data[first:last].tobytes())]
    array = pa.Array.from_buffers(kind, stop - start, buffers)
    if column.kind is str:
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            row = next(n for n in range(start, stop) if not _is_utf8(column.value(n)))
            cure = "encode it with map, and write bytes."
            raise _UnfitError(
                "text that is no UTF-8 (a lone surrogate)", row - start, cure
            ) from None
    return array


def _is_utf8(value: bytes | str) -> bool:
    try:
        str(value).encode()
    except UnicodeEncodeError:
        return False
    return True


def _values(pa: Any, flat: Any, row_size: int) -> Any:
    """Return numbers, dates or bytes of one width as an Arrow array; a row has `row_size` of them."""
    dtype = flat.dtype
    if dtype.kind in "biuf":
        return pa.array(flat.astype(dtype.newbyteorder("=")))  # A copy.
    if dtype.kind in "SV":
        return _of_buffer(
            pa, pa.binary(dtype.itemsize), np.ascontiguousarray(flat).tobytes(), len(flat)
        )
    return _times(pa, flat, row_size)


def _times(pa: Any, flat: Any, row_size: int) -> Any:
    """Return dates or durations as an Arrow array; not-a-time is a null."""
    unit = np.datetime_data(flat.dtype)[0]
    is_missing = np.isnat(flat)
    numbers = flat.astype(flat.dtype.newbyteorder("=")).view(np.int64)
    numbers[is_missing] = 0
    if flat.dtype.kind == "m":
        return _of_buffer(pa, pa.duration(unit), numbers, len(numbers), is_missing)
    if unit == "D":
        _check_range(numbers, np.iinfo(np.int32).min, np.iinfo(np.int32).max, row_size, flat)
        return _of_buffer(pa, pa.date32(), numbers.astype(np.int32), len(numbers), is_missing)
    if unit == "s":
        most = np.iinfo(np.int64).max // 1000
        _check_range(numbers, -most, most, row_size, flat)
        numbers *= 1000
        unit = "ms"
    return _of_buffer(pa, pa.timestamp(unit), numbers, len(numbers), is_missing)


def _of_buffer(pa: Any, kind: Any, data: Any, count: int, is_missing: Any = None) -> Any:
    """Return an Arrow array of values as they lie in memory; those that are missing are nulls."""
    valid = None
    if is_missing is not None and is_missing.any():
        valid = pa.py_buffer(np.packbits(~is_missing, bitorder="little"))
    return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(data)])


def _check_range(numbers: Index, least: int, most: int, row_size: int, flat: Any) -> None:
    wrong = np.flatnonzero((numbers < least) | (numbers > most))
    if len(wrong):
        place = int(wrong[0])
        cure = "map it to M8[us] or M8[ms]."
        raise _UnfitError(
            f"the date {flat[place]}, which Parquet can't hold", place // row_size, cure
        )
