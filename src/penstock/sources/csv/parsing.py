"""Text of CSV rows to columns, by pyarrow: without the interpreter lock, and only what it reads as Python would."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Index
from penstock.core.blocks import Pieces, Sink
from penstock.core.columns import Text
from penstock.core.fields import Field
from penstock.core.optional import require
from penstock.io.reader import Bytes
from penstock.memory import Allocate
from penstock.sources.csv.cells import column_values

_TRUE, _FALSE = ["1", "true", "True", "TRUE"], ["0", "false", "False", "FALSE"]
_CELL_NBYTES = 16  # Of each cell while it is parsed: where it begins, and its value.


class UnreadableError(ValueError):
    """Pyarrow can't read these rows: they are bad, or written in a way that only Python's own functions read."""


@cache
def arrow() -> Any:
    """Return pyarrow with its CSV reader, or None if it is not installed."""
    try:
        require("pyarrow.csv", "reading .csv fast", "csv")
        return require("pyarrow", "reading .csv fast", "csv")
    except ImportError:
        return None


def parsing_nbytes(num_rows: int, num_columns: int, text_nbytes: int) -> int:
    """Return the bytes that parsing takes: copies of the text, and of the cells."""
    return 3 * text_nbytes + _CELL_NBYTES * num_rows * (num_columns + 1)


class Parser:
    """Parses rows of tables with `num_columns` columns, of which `columns` are wanted, as the specs of `fields` say."""

    def __init__(
        self,
        delimiter: str,
        num_columns: int,
        columns: Sequence[int],
        fields: Sequence[Field],
        flags: int,
    ) -> None:
        self.delimiter = delimiter
        self.num_columns = num_columns
        self.columns = columns
        self.fields = fields
        self.flags = flags

    def put(self, text: Bytes, num_rows: int, sinks: Sequence[Sink]) -> None:
        """Put rows of text into columns; the text begins with a line end, and all of its quotes are closed.

        Raises:
            UnreadableError: A cell, or a row, is not what was declared, or pyarrow does not understand it.
        """
        pa = arrow()
        if pa is None or not _native.is_utf8(text):
            raise UnreadableError
        wanted = sorted(set(self.columns))
        kinds = {str(c): self._kind(f) for c, f in zip(self.columns, self.fields, strict=True)}
        names = [str(column) for column in range(self.num_columns)]
        try:
            table = pa.csv.read_csv(
                pa.BufferReader(pa.py_buffer(text)),
                # One block: pyarrow would cut rows that are longer than its own ones.
                pa.csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=names),
                pa.csv.ParseOptions(
                    delimiter=self.delimiter,
                    newlines_in_values=bool(self.flags & _native.HAS_QUOTES),
                ),
                pa.csv.ConvertOptions(
                    check_utf8=False,
                    column_types=kinds,
                    null_values=[],
                    strings_can_be_null=False,
                    true_values=_TRUE,
                    false_values=_FALSE,
                    include_columns=[str(column) for column in wanted],
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise UnreadableError from error
        if table.num_rows != num_rows:
            raise UnreadableError
        # All of them before any is put: a view of a block can't be emptied again.
        columns = [
            self._values(table.column(str(column)), field, sink)
            for column, field, sink in zip(self.columns, self.fields, sinks, strict=True)
        ]
        for values, sink in zip(columns, sinks, strict=True):
            if isinstance(sink, Pieces):
                sink.add(values)
            else:
                sink.put(values)

    def _kind(self, field: Field) -> Any:
        """Return the type that pyarrow shall read a column as: text where it reads more than Python does."""
        pa = arrow()
        dtype = field.spec.dtype
        if not isinstance(dtype, np.dtype):
            return pa.binary() if dtype is bytes else pa.string()
        if dtype.kind == "b":
            return pa.bool_()
        if dtype.kind in "iu" and not self.flags & _native.HAS_HEX:
            return pa.from_numpy_dtype(dtype.newbyteorder("="))
        if dtype.kind == "f" and dtype.itemsize <= 8 and not self.flags & _native.HAS_NAN:
            # As NumPy reads narrow ones: by way of float64.
            return pa.float64()
        return pa.string()

    def _values(self, found: Any, field: Field, sink: Sink) -> Any:
        values = found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()
        if isinstance(sink, Pieces):
            return _text(values, field.spec.dtype, sink.allocate)
        if arrow().types.is_string(values.type):
            return _converted(values.to_pylist(), field)
        return values.to_numpy(zero_copy_only=False)


def _converted(cells: list[str], field: Field) -> Any:
    try:
        return column_values(cells, field.spec, "", lambda _: 0, "")
    except ValueError as error:
        raise UnreadableError from error


def _text(values: Any, kind: Any, allocate: Allocate) -> Text:
    """Return a column of text that pyarrow made, in memory that the ledger counts."""
    _, edges, data = values.buffers()
    narrow = np.frombuffer(edges, np.int32)[values.offset : values.offset + len(values) + 1]
    offsets: Index = narrow.astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    memory = allocate(last - first)
    if last > first:
        memory[: last - first] = np.frombuffer(data, np.uint8)[first:last]
    return Text(memory, offsets - first, kind)
