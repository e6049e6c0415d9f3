"""Objects on lines to columns, natively or by pyarrow: without the interpreter lock, and only as Python reads them."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import narrowed
from penstock.core.blocks import Pieces, Sink
from penstock.core.columns import Ragged
from penstock.core.fields import Field
from penstock.core.optional import require
from penstock.core.spec import ArraySpec
from penstock.io.formats.lines import Dialect
from penstock.io.reader import Bytes
from penstock.sources.arrow.columns import (
    NullFoundError,
    as_numpy,
    fixed_values,
    text_column,
    varying_values,
)
from penstock.sources.jsonl.plain import PlainRows
from penstock.sources.jsonl.values import EXACT, Path, field_values
from penstock.sources.reading.chunked import Coded
from penstock.sources.reading.parsed_flow import UnreadableError

JSON_LINES = Dialect(0x1F, 0x01)
"""Lines of JSON: neither byte can stand in it, so that nothing is quoted, and blank lines are no rows."""


@cache
def arrow() -> Any:
    """Return pyarrow with its JSON reader, or None if it is not installed."""
    try:
        require("pyarrow.json", "reading .jsonl fast", "jsonl")
        require("pyarrow.compute", "reading .jsonl fast", "jsonl")
        return require("pyarrow", "reading .jsonl fast", "jsonl")
    except ImportError:
        return None


class Parser:
    """Parses rows to the fields at `paths`, as their specs say."""

    def __init__(
        self, paths: Sequence[Path], fields: Sequence[Field], exact: Sequence[bool]
    ) -> None:
        self.paths = paths
        self.fields = fields
        self.exact = exact
        self.plain = PlainRows(paths, fields, exact)

    def put(self, text: Bytes, num_rows: int, sinks: Sequence[Sink]) -> None:
        """Put rows of text into columns.

        Raises:
            UnreadableError: A value, or a row, is not what was declared, or pyarrow does not understand it.
        """
        if not _native.is_utf8(text):
            raise UnreadableError
        if not self.plain.put(text, num_rows, sinks):
            self._put_by_arrow(text, num_rows, sinks)

    def _put_by_arrow(self, text: Bytes, num_rows: int, sinks: Sequence[Sink]) -> None:
        pa = arrow()
        if pa is None or not _has_objects(text, num_rows):
            raise UnreadableError
        try:
            table = pa.json.read_json(
                pa.BufferReader(pa.py_buffer(text)),
                pa.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
                pa.json.ParseOptions(
                    explicit_schema=self._schema(),
                    newlines_in_values=False,
                    unexpected_field_behavior="ignore",
                ),
            )
        # A key may be half of a letter ("\\ud800"), which only Python has.
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeEncodeError) as error:
            raise UnreadableError from error
        if table.num_rows != num_rows:
            raise UnreadableError
        for path, is_exact in zip(self.paths, self.exact, strict=True):
            # Python's way tells whole numbers from others.
            if is_exact and _has_large(_at(table, path)):
                raise UnreadableError
        # All of them before any is put: a view of a block can't be emptied again.
        columns = [
            self._values(_at(table, path), path, field.spec, sink)
            for path, field, sink in zip(self.paths, self.fields, sinks, strict=True)
        ]
        for values, sink in zip(columns, sinks, strict=True):
            if isinstance(sink, Pieces) and not isinstance(values, list):
                sink.add(values)
            else:
                sink.put(values)

    def _schema(self) -> Any:
        """Return what pyarrow shall read: an object in an object is a struct."""
        tree: dict[str, Any] = {}
        for path, field in zip(self.paths, self.fields, strict=True):
            *parents, key = path
            at = tree
            for one in parents:
                at = at.setdefault(one, {})
            at[key] = _kind(field.spec)
        return arrow().schema(_members(tree))

    def _values(self, found: Any, path: Path, spec: ArraySpec, sink: Sink) -> Any:
        try:
            if spec.shape:
                return _lists(found, spec, sink)
            if spec.is_text:
                assert isinstance(sink, Pieces)
                filled = found.fill_null("") if found.null_count else found
                return text_column(filled, spec.dtype, sink.allocate)
            if arrow().types.is_string(found.type):
                rows = [{"": value} for value in found.to_pylist()]
                return field_values(rows, ("",), spec, lambda _: 0, "")
            return narrowed(fixed_values(found, _read_spec(spec)), spec.numpy_dtype)
        except (NullFoundError, ValueError, OverflowError) as error:
            raise UnreadableError from error


def _has_large(found: Any) -> bool:
    """Return whether some number, or one in a list, is so large that float64 may have rounded it."""
    pa = arrow()
    flat = found.flatten() if pa.types.is_list(found.type) else found
    ends = pa.compute.min_max(flat).as_py()
    return ends["max"] is not None and (ends["max"] >= EXACT or ends["min"] <= -EXACT)


def _has_objects(text: Bytes, num_rows: int) -> bool:
    """Return whether each line begins and ends as an object does.

    Pyarrow takes objects that span lines, and several on one, and ends the process at a line that is `null`.
    """
    starts, stops = np.empty((2, num_rows), np.int64)
    dialect = JSON_LINES
    if _native.split_lines(text, dialect.separator, dialect.quote, starts, stops) != num_rows:
        return False
    return bool((text[starts] == ord("{")).all() and (text[stops - 1] == ord("}")).all())


def _members(tree: dict[str, Any]) -> list[tuple[str, Any]]:
    return [
        (key, arrow().struct(_members(kind)) if isinstance(kind, dict) else kind)
        for key, kind in tree.items()
    ]


def _read_spec(spec: ArraySpec) -> ArraySpec:
    """Return the spec that numbers are read as: narrow floats by way of float64, as NumPy reads them."""
    is_float = spec.numpy_dtype.kind == "f"
    return ArraySpec(spec.shape, np.float64) if is_float else spec


def _kind(spec: ArraySpec) -> Any:
    pa = arrow()
    dtype = spec.numpy_dtype
    kind = pa.string()
    if not spec.is_text and dtype.kind in "biu":
        kind = pa.bool_() if dtype.kind == "b" else pa.from_numpy_dtype(dtype.newbyteorder("="))
    elif not spec.is_text and dtype.kind == "f":
        kind = pa.float64()
    for _ in spec.shape:
        kind = pa.list_(kind)
    return kind


def _at(table: Any, path: Path) -> Any:
    """Return the values at a path as one array; those in objects that are missing are missing."""
    column = table.column(path[0])
    found = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return arrow().compute.struct_field(found, list(path[1:])) if len(path) > 1 else found


def _lists(found: Any, spec: ArraySpec, sink: Sink) -> Any:
    if spec.is_text:
        if found.null_count or spec.shape != (None,):
            raise UnreadableError
        assert isinstance(sink, Pieces)
        flat = found.flatten()
        texts = text_column(
            flat.fill_null("") if flat.null_count else flat, spec.dtype, sink.allocate
        )
        lengths = np.asarray(found.value_lengths(), np.int64)
        return Ragged(texts, np.cumsum(lengths) - lengths, lengths[:, None])
    shaped = _shaped(found, spec.shape)
    if spec.is_fixed:
        return narrowed(fixed_values(shaped, _read_spec(spec)), spec.numpy_dtype)
    assert isinstance(sink, Pieces)
    values = varying_values(shaped, spec, sink.allocate)
    assert not isinstance(values, Coded)
    if sink.aligned:
        return values.take(np.arange(len(values)), sink.allocate, aligned=True)
    return values


def _shaped(array: Any, shape: Sequence[int | None]) -> Any:
    """Return lists as lists of one size, after checking that they are, but for those that may differ."""
    pa = arrow()
    if array.null_count:
        raise UnreadableError
    size, *rest = shape
    flat = _shaped(array.flatten(), rest) if rest else array.flatten()
    lengths = as_numpy(array.value_lengths()).astype(np.int32)
    if size is None:
        edges = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        # Not by pa.array(): it loads pandas, if there is one.
        starts = pa.Array.from_buffers(pa.int32(), len(edges), [None, pa.py_buffer(edges)])
        return pa.ListArray.from_arrays(starts, flat)
    if not size or bool((lengths != size).any()):
        raise UnreadableError
    return pa.FixedSizeListArray.from_arrays(flat, size)
