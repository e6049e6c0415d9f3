"""Text of CSV rows to columns, by pyarrow: without the interpreter lock, and only what it reads as Python would."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import narrowed
from penstock.core.blocks import Pieces, Sink
from penstock.core.fields import Field
from penstock.core.optional import require
from penstock.core.spec import ArraySpec
from penstock.io.reader import Bytes
from penstock.sources.arrow.columns import as_numpy, fixed_values, text_column
from penstock.sources.csv.cells import EXACT, MISSING, column_values
from penstock.sources.csv.table import Table
from penstock.sources.reading.parsed_flow import UnreadableError

_TRUE, _FALSE = ["1", "true", "True", "TRUE"], ["0", "false", "False", "FALSE"]


@cache
def arrow() -> Any:
    """Return pyarrow with its CSV reader, or None if it is not installed."""
    try:
        require("pyarrow.csv", "reading .csv fast", "csv")
        return require("pyarrow", "reading .csv fast", "csv")
    except ImportError:
        return None


class Parser:
    """Parses rows of a table, of which `columns` are wanted, as the specs of `fields` say."""

    def __init__(
        self,
        table: Table,
        columns: Sequence[int],
        fields: Sequence[Field],
        exact: Sequence[bool],
    ) -> None:
        self.table = table
        self.columns = columns
        self.fields = fields
        self.exact = exact
        self.names = [str(column) for column in range(len(table.columns))]
        self.wanted = [str(column) for column in sorted(set(columns))]
        self.has_gaps = False
        """Whether numbers may be missing: to look for these takes time."""

    def put(self, text: Bytes, num_rows: int, sinks: Sequence[Sink], flags: int) -> None:
        """Put rows of text into columns; the text begins with a line end, and all of its quotes are closed.

        Raises:
            UnreadableError: A cell, or a row, is not what was declared, or pyarrow does not understand it.
        """
        pa = arrow()
        if pa is None or not _native.is_utf8(text):
            raise UnreadableError
        kinds = {
            str(c): self._kind(f, flags) for c, f in zip(self.columns, self.fields, strict=True)
        }
        try:
            if self.has_gaps:
                table = self._parsed(text, kinds, flags)
            else:
                try:
                    table = self._parsed(text, kinds, flags)
                except pa.ArrowInvalid:
                    if pa.float64() not in kinds.values():
                        raise
                    self.has_gaps = True
                    table = self._parsed(text, kinds, flags)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise UnreadableError from error
        if table.num_rows != num_rows:
            raise UnreadableError
        # All of them before any is put: a view of a block can't be emptied again.
        columns = [
            self._values(table.column(str(column)), field, sink)
            for column, field, sink in zip(self.columns, self.fields, sinks, strict=True)
        ]
        for values, is_exact in zip(columns, self.exact, strict=True):
            # Python's way tells whole numbers from others.
            if is_exact and bool((np.abs(values) >= EXACT).any()):
                raise UnreadableError
        for values, sink in zip(columns, sinks, strict=True):
            if isinstance(sink, Pieces):
                sink.add(values)
            else:
                sink.put(values)

    def _parsed(self, text: Bytes, kinds: dict[str, Any], flags: int) -> Any:
        pa = arrow()
        return pa.csv.read_csv(
            pa.BufferReader(pa.py_buffer(text)),
            # One block: pyarrow would cut rows that are longer than its own ones.
            pa.csv.ReadOptions(
                use_threads=False, block_size=len(text) + 1, column_names=self.names
            ),
            pa.csv.ParseOptions(
                delimiter=self.table.delimiter,
                newlines_in_values=bool(flags & _native.HAS_QUOTES),
            ),
            pa.csv.ConvertOptions(
                check_utf8=False,
                column_types=kinds,
                null_values=MISSING if self.has_gaps else [],
                strings_can_be_null=False,
                true_values=_TRUE,
                false_values=_FALSE,
                include_columns=self.wanted,
                decimal_point=self.table.decimal,
            ),
        )

    def _kind(self, field: Field, flags: int) -> Any:
        """Return the type that pyarrow shall read a column as: text where it reads more than Python does."""
        pa = arrow()
        dtype = field.spec.dtype
        if not isinstance(dtype, np.dtype):
            return pa.binary() if dtype is bytes else pa.string()
        if dtype.kind == "b":
            return pa.bool_()
        if dtype.kind in "iu" and not flags & _native.HAS_HEX:
            return pa.from_numpy_dtype(dtype.newbyteorder("="))
        if dtype.kind == "f" and dtype.itemsize <= 8 and not flags & _native.HAS_NAN:
            # As NumPy reads narrow ones: by way of float64.
            return pa.float64()
        return pa.string()

    def _values(self, found: Any, field: Field, sink: Sink) -> Any:
        values = found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()
        if isinstance(sink, Pieces):
            return text_column(values, field.spec.dtype, sink.allocate)
        if arrow().types.is_string(values.type):
            return self._converted(values.to_pylist(), field)
        if not values.null_count:
            numbers = as_numpy(values)
        elif not arrow().types.is_floating(values.type):
            raise UnreadableError
        else:
            numbers = fixed_values(values, ArraySpec((), np.float64))
        try:
            return narrowed(numbers, field.spec.numpy_dtype)
        except OverflowError as error:
            raise UnreadableError from error

    def _converted(self, cells: list[str], field: Field) -> Any:
        try:
            return column_values(cells, field.spec, "", lambda _: 0, "", self.table.decimal)
        except ValueError as error:
            raise UnreadableError from error
