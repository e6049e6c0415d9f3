"""A column of Arrow arrays that the user has in memory: read where it lies, a block at a time."""

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Array, Index, raw_rows
from penstock.core.blocks import Pieces, Sink
from penstock.core.columns import Fixed, Ragged, Text
from penstock.core.fields import Field, tops_of
from penstock.core.lazy import lazy
from penstock.core.rows import Context, RowSet
from penstock.core.spec import ArraySpec
from penstock.memory import Allocate, allocate_plain
from penstock.sources.arrow.columns import (
    NullFoundError,
    arrow,
    as_numpy,
    fixed_values,
    may_be_missing,
    refuse_nulls,
    spec_of_type,
    varying_values,
)
from penstock.sources.reading.chunked import Coded
from penstock.sources.reading.leaves import InMemory, Leaf

if TYPE_CHECKING:
    from penstock.core import digests
else:
    digests = lazy("penstock.core.digests")  # Only write and cache(path) need it.

_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_VIEW_NBYTES = 16  # Of a text in an Arrow view: its length, and its bytes or where they are.
_INLINE_NBYTES = 12  # Texts of so many bytes are in their view.
_PROOF_ROWS = 1 << 16
_OFFSET_NBYTES = 8  # What a block takes for each row of text, besides its bytes,
_RAGGED_NBYTES = 16  # and for each list.


class Views:
    """Texts as Arrow's views: each says how long it is, and holds its bytes or says which buffer has them."""

    def __init__(self, array: Any, kind: Any) -> None:
        _, views, *self.buffers = array.buffers()
        start, stop = array.offset * _VIEW_NBYTES, (array.offset + len(array)) * _VIEW_NBYTES
        self.raw = np.frombuffer(views, np.uint8)[start:stop]
        self.views = self.raw.view(np.int32).reshape(-1, 4)
        self.kind = kind

    def __len__(self) -> int:
        return len(self.views)

    def sizes(self) -> Index:
        """Return the bytes of each text."""
        return self.views[:, 0].astype(np.int64)

    def take(self, rows: Index, allocate: Allocate, *, aligned: bool = False) -> Text:
        """Return a copy of the given rows."""
        views = self.views[rows]
        lengths = views[:, 0].astype(np.int64)
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        data = allocate(int(offsets[-1]))
        owners = np.where(lengths <= _INLINE_NBYTES, -1, views[:, 2])
        for owner in np.unique(owners).tolist():
            some = np.flatnonzero(owners == owner)
            if owner < 0:
                source, starts = self.raw, rows[some] * _VIEW_NBYTES + 4
            else:
                source = np.frombuffer(self.buffers[owner], np.uint8)
                starts = views[some, 3].astype(np.int64)
            _native.gather_spans(source, starts, lengths[some], data, offsets[some])
        return Text(data, offsets, self.kind)


Part = Any
"""Rows of one chunk: an ndarray or a column (`Text`, `Ragged`, `Coded`, `Views`) over Arrow's memory, or an Arrow array
that is converted a block at a time."""


class ArrowInMemory(Leaf):
    """One column, which may be in several chunks."""

    how = "Arrow in memory, copied a block at a time"

    def __init__(self, column: Any, spec: ArraySpec) -> None:
        self.column = column
        self.parts: list[Part] = []
        self.own_nbytes = 0
        """The bytes of what was made of the column to read it: where lists begin, words of dictionaries."""
        lengths = []
        sizes: list[Index] = []
        for chunk in column.chunks:
            if len(chunk):
                part = self._part(chunk, spec)
                lengths.append(len(chunk))
                self.parts.append(part)
                if not spec.is_fixed:
                    sizes.append(_sizes(part))
        self.raws: list[Array] = []
        """The bytes of each chunk, if all lie as in NumPy."""
        if (
            spec.is_fixed
            and Field(spec).nbytes
            and all(isinstance(one, np.ndarray) for one in self.parts)
        ):
            self.raws = [raw_rows(one, 1) for one in self.parts]
        self.is_text = all(isinstance(one, Text) for one in self.parts)
        self.edges = np.cumsum([0, *lengths])
        self.num_rows = int(self.edges[-1])
        self.field = Field(spec)
        if not spec.is_fixed:
            each = np.concatenate(sizes) if sizes else np.zeros(0, np.int64)
            mean = int(each.sum()) // max(1, self.num_rows)
            self.field = Field(spec, estimate=mean, tops=tops_of(each))

    def _part(self, chunk: Any, spec: ArraySpec) -> Part:
        if spec.is_fixed:
            return fixed_values(chunk, spec) if lies_as_numpy(chunk) else chunk
        chunk.validate(full=True)
        kind, types = chunk.type, arrow().types
        if types.is_dictionary(kind):
            found = varying_values(chunk, spec, allocate_plain)
            self.own_nbytes += found.words.nbytes if isinstance(found, Coded) else 0
            return found
        if types.is_string_view(kind) or types.is_binary_view(kind):
            return Views(chunk, spec.dtype)
        offsets = _offsets(chunk)
        if spec.is_text:
            self.own_nbytes += 0 if offsets.dtype == np.int64 else 8 * len(offsets)
            data = chunk.buffers()[2]
            memory = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
            return Text(memory, offsets.astype(np.int64, copy=False), spec.dtype)  # type: ignore[arg-type]
        inner = ArraySpec(spec.shape[1:], spec.dtype)
        width = int(np.prod(inner.fixed_shape, dtype=np.int64))
        values = fixed_values(chunk.flatten(), inner).reshape(-1)
        starts = (offsets[:-1].astype(np.int64) - int(offsets[0])) * width
        shapes = np.empty((len(chunk), len(spec.shape)), np.int64)
        shapes[:, 0] = np.diff(offsets)
        shapes[:, 1:] = inner.fixed_shape
        self.own_nbytes += starts.nbytes + shapes.nbytes
        return Ragged(values, starts, shapes)

    def read(self, rows: RowSet, sink: Sink, context: Context) -> None:
        """Copy rows, chunk by chunk."""
        if isinstance(rows, slice):
            first, last = np.searchsorted(self.edges, [rows.start, rows.stop - 1], "right") - 1
            for number in range(int(first), int(last) + 1):
                base = int(self.edges[number])
                start, stop = max(rows.start, base), min(rows.stop, int(self.edges[number + 1]))
                is_all = (start, stop) == (rows.start, rows.stop)
                part = sink if is_all else sink.span(start - rows.start, stop - rows.start)
                self._put(self.parts[number], slice(start - base, stop - base), part)
            return
        if len(self.parts) == 1:
            self._put(self.parts[0], rows, sink)
            return
        owners = np.searchsorted(self.edges[1:-1], rows, "right")
        order = np.argsort(owners, kind="stable")
        numbers, firsts = np.unique(owners[order], return_index=True)
        local = rows[order] - self.edges[owners[order]]
        cuts = [*firsts.tolist(), len(rows)]
        if self.raws and isinstance(sink, Fixed):
            # There may be thousands of chunks, of which a block has a few rows each: little is done for one.
            slots = order if sink.slots is None else sink.slots[order]
            out = raw_rows(sink.grouped, 2)
            for number, (first, last) in zip(numbers.tolist(), pairwise(cuts), strict=True):
                _native.gather(self.raws[number], local[first:last], out, slots[first:last])
            return
        if self.is_text and isinstance(sink, Pieces):
            parts = [self.parts[number] for number in numbers.tolist()]
            sink.add(_texts(parts, cuts, local, order, sink.allocate))
            return
        for number, (first, last) in zip(numbers.tolist(), pairwise(cuts), strict=True):
            self._put(self.parts[number], local[first:last], sink.at(order[first:last]))

    def _put(self, part: Part, rows: RowSet, sink: Sink) -> None:
        if isinstance(sink, Pieces):
            index = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            if isinstance(part, Coded):
                part.put(sink, index)
            else:
                sink.add(part.take(index, sink.allocate, aligned=sink.aligned))
        elif isinstance(part, np.ndarray):
            if isinstance(rows, slice):
                sink.put(part[rows])
            else:
                sink.gather(raw_rows(part, 1), rows)
        else:
            if isinstance(rows, slice):
                found = part.slice(rows.start, rows.stop - rows.start)
            else:
                pa = arrow()
                index = np.ascontiguousarray(rows, np.int64)
                buffers = [None, pa.py_buffer(index)]  # pa.array() loads pandas, if there is one.
                found = part.take(pa.Array.from_buffers(pa.int64(), len(index), buffers))
            sink.put(fixed_values(found, self.field.spec))

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of rows while they are converted."""
        if not self.field.spec.is_fixed:
            return 6 * 8 * num_rows  # Where rows are found, and where they go.
        is_converted = any(not isinstance(part, np.ndarray) for part in self.parts)
        return 3 * num_rows * (self.field.nbytes + 8) if is_converted else 0

    def retained_nbytes(self) -> int:
        """Return the bytes of what was made of the column to read it."""
        return self.own_nbytes

    def proof(self) -> Any:
        """Return a digest of all rows."""
        return digests.pieces_digest(self._bytes())

    def _bytes(self) -> Iterator[Array]:
        """Yield the bytes of all rows, and of the lengths that they have."""
        spec = self.field.spec
        for start in range(0, self.num_rows, _PROOF_ROWS):
            some = self.column.slice(start, _PROOF_ROWS).combine_chunks()
            if spec.is_fixed:
                yield raw_rows(np.ascontiguousarray(fixed_values(some, spec)), 0)
                continue
            found = varying_values(some, spec, allocate_plain)
            if isinstance(found, Coded):
                found = found.words.take(found.codes.astype(np.int64), allocate_plain)
            if isinstance(found, Text):
                yield from (found.data[: int(found.offsets[-1])], raw_rows(found.offsets, 0))
            else:
                assert isinstance(found.values_, np.ndarray)
                yield from (raw_rows(found.values_, 0), raw_rows(found.shapes, 0))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the column alone: all else is made of it."""
        return ArrowInMemory, (self.column, self.field.spec)


def _texts(
    parts: list[Text], cuts: list[int], rows: Index, slots: Index, allocate: Allocate
) -> Text:
    """Return a column whose row `slots[j]` is row `rows[j]` of part k, for j from `cuts[k]` to `cuts[k + 1]`."""
    starts, lengths = np.empty((2, len(rows)), np.int64)
    for part, (first, last) in zip(parts, pairwise(cuts), strict=True):
        some = rows[first:last]
        starts[first:last] = part.offsets[some]
        lengths[first:last] = part.offsets[some + 1]
    lengths -= starts
    offsets = np.zeros(len(rows) + 1, np.int64)
    offsets[1 + slots] = lengths
    np.cumsum(offsets, out=offsets)
    targets = offsets[slots]
    data = allocate(int(offsets[-1]))
    for part, (first, last) in zip(parts, pairwise(cuts), strict=True):
        _native.gather_spans(
            part.data, starts[first:last], lengths[first:last], data, targets[first:last]
        )
    return Text(data, offsets, parts[0].kind)


def column_leaf(column: Any, name: str, fill: str) -> Leaf:
    """Return the leaf of an Arrow array of one or many chunks; without a copy where the layout allows.

    `fill` is how the user fills what is missing: `fill_null({})`, with braces for the value.
    """
    pa = arrow()
    if isinstance(column, pa.Array):
        column = pa.chunked_array([column])
    spec = spec_of_type(column.type)
    if spec is None:
        raise TypeError(
            f"field {name!r} has Arrow type {column.type}, which is no number, truth, date, duration, text, or list of "
            f"numbers; {_cast_words(column.type)}"
        )
    if pa.types.is_dictionary(column.type) and column.num_chunks > 1:
        column = column.unify_dictionaries()
    _check_nulls(column, spec, name, fill)
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    if spec.is_fixed and len(chunks) == 1 and lies_as_numpy(chunks[0]):
        return InMemory(fixed_values(chunks[0], spec))
    try:
        return ArrowInMemory(column, spec)
    except pa.ArrowInvalid as error:
        cure = "read it as bytes: column.cast(pa.binary())" if spec.is_text else "make it anew"
        raise ValueError(
            f"field {name!r} of Arrow type {column.type} is not valid: {error}; {cure}, or leave it out."
        ) from error


def lies_as_numpy(chunk: Any) -> bool:
    """Return whether the rows of an Arrow array lie in memory as in NumPy: no bits, no codes, no nulls."""
    types, kind = arrow().types, chunk.type
    if chunk.null_count or types.is_dictionary(kind):
        return False
    if types.is_fixed_size_list(kind):
        return lies_as_numpy(chunk.flatten())
    return not types.is_boolean(kind) and not types.is_date32(kind)


def _cast_words(kind: Any) -> str:
    """Return what to do with a column of a type that can't be read."""
    types = arrow().types
    if types.is_struct(kind):
        return "take its fields as columns (unnest, json_normalize), or leave it out."
    if types.is_null(kind):
        return "all of it is missing: leave it out."
    if types.is_decimal(kind):
        return "cast it to float64, or leave it out."
    if types.is_time(kind):
        return (
            f"make it whole {_UNITS[kind.unit]} since midnight (pyarrow: cast(pa.int{kind.bit_width}()), polars: "
            "cast(pl.Int64)) or a duration (pandas: pd.to_timedelta(column.astype(str))), or leave it out."
        )
    if isinstance(kind, arrow().BaseExtensionType):
        return (
            f"cast it to what it is stored as, {kind.storage_type}, or to text (pandas: astype(str)), "
            "or leave it out."
        )
    return "cast it, or leave it out."


def _check_nulls(column: Any, spec: ArraySpec, name: str, fill: str) -> None:
    """Raise at the first null that no value stands for."""
    start = 0
    for chunk in column.chunks:
        try:
            _refuse(chunk, spec)
        except NullFoundError as error:
            row, kind = start + error.row, str(column.type)
            raise missing_value(name, row, kind, spec, fill, is_list=error.is_list) from None
        start += len(chunk)


def missing_value(
    name: str, row: int, kind: str, spec: ArraySpec, fill: str, *, is_list: bool = False
) -> ValueError:
    """Return the error for a value, or a whole list, that is missing, where nothing can stand for it."""
    cures = ["drop its row"]
    if not spec.shape:
        cures.insert(0, f"fill it ({fill.format(_filling(spec))})")
    if not spec.is_text and not is_list:
        cures.insert(0, "make them floats")
    what = "is missing" if is_list else "is missing, or has something missing"
    return ValueError(
        f"field {name!r}: row {row} {what}, and only floats (as nan) and times (as not-a-time) can; this is {kind}. "
        f"{'Either ' if cures[1:] else 'You can '}{', or '.join(cures)}."
    )


def _filling(spec: ArraySpec) -> str:
    """Return what may stand for a value that is missing."""
    if spec.is_text:
        return '""' if spec.dtype is str else 'b""'
    return "False" if spec.numpy_dtype.kind == "b" else "0"


def _refuse(array: Any, spec: ArraySpec) -> None:
    types, kind = arrow().types, array.type
    is_list = types.is_list(kind) or types.is_large_list(kind)
    if is_list or types.is_fixed_size_list(kind):
        _refuse_null_lists(array)
        flat = array.flatten()
        try:
            _refuse(flat, ArraySpec(spec.shape[1:], spec.dtype))
        except NullFoundError as error:
            ends = np.cumsum(as_numpy(array.value_lengths()).astype(np.int64)) if is_list else None
            row = (
                error.row // kind.list_size
                if ends is None
                else np.searchsorted(ends, error.row, "right")
            )
            raise NullFoundError(int(row), is_list=error.is_list) from None
    elif types.is_fixed_size_binary(kind):
        _refuse_null_lists(array)
    elif not may_be_missing(spec):
        refuse_nulls(array)
        if types.is_dictionary(kind) and array.dictionary.null_count:
            is_null = ~as_numpy(array.dictionary.is_valid())
            bad = np.flatnonzero(is_null[as_numpy(array.indices)])
            if len(bad):
                raise NullFoundError(int(bad[0]))


def _refuse_null_lists(array: Any) -> None:
    try:
        refuse_nulls(array)
    except NullFoundError as error:
        raise NullFoundError(error.row, is_list=True) from None


def _offsets(chunk: Any) -> Array:
    """Return where the texts or lists of a chunk begin, and where the last one ends."""
    types, kind = arrow().types, chunk.type
    is_large = (
        types.is_large_string(kind) or types.is_large_binary(kind) or types.is_large_list(kind)
    )
    buffer = chunk.buffers()[1]
    found = np.frombuffer(buffer, np.int64 if is_large else np.int32)
    return found[chunk.offset : chunk.offset + len(chunk) + 1]


def _sizes(part: Part) -> Index:
    """Return the bytes that each row takes in a block."""
    if isinstance(part, Coded):
        return _sizes(part.words)[part.codes]
    if isinstance(part, Ragged):
        assert isinstance(part.values_, np.ndarray)
        sizes: Index = part.shapes.prod(axis=1) * part.values_.itemsize + _RAGGED_NBYTES
        return sizes
    lengths: Index = part.sizes() if isinstance(part, Views) else np.diff(part.offsets)
    return lengths + _OFFSET_NBYTES
