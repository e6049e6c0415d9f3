"""Arrow's columns as penstock's: numbers, fixed-size lists, lists, strings and binary."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from penstock.core.arrays import Array, Index, narrowed
from penstock.core.columns import Ragged, Text, merge
from penstock.core.optional import require
from penstock.core.spec import ArraySpec
from penstock.errors import BudgetError, DataError, FieldError
from penstock.memory import Allocate
from penstock.sources.reading.chunked import Coded

_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}
"""NumPy's names for the number types that Arrow calls otherwise."""
_NULL_LIST = re.compile(r"Expected all lists to be of size=[1-9]\d* but index \d+ had size=0")


def arrow() -> Any:
    """Return pyarrow."""
    return require("pyarrow", "reading .parquet and .arrow", "parquet")


def spec_of_type(kind: Any) -> ArraySpec | None:
    """Return the spec of a value of an Arrow type, or None if the type can't be read."""
    pa = arrow()
    types = pa.types
    if types.is_dictionary(kind):
        return spec_of_type(kind.value_type)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return ArraySpec((), str)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return ArraySpec((), bytes)
    if types.is_fixed_size_binary(kind) and not types.is_decimal(kind):
        return ArraySpec((kind.byte_width,), np.uint8)
    if types.is_fixed_size_list(kind):
        inner = spec_of_type(kind.value_type)
        return _prefixed(inner, kind.list_size)
    if types.is_list(kind) or types.is_large_list(kind):
        inner = spec_of_type(kind.value_type)
        return _prefixed(inner, None)
    if types.is_date32(kind):
        return ArraySpec((), "datetime64[D]")
    if types.is_date64(kind):
        return ArraySpec((), "datetime64[ms]")
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        # Not by to_pandas_dtype(), which needs pandas before pyarrow 26.
        return ArraySpec((), _FLOATS.get(str(kind), str(kind)))
    if types.is_timestamp(kind):
        return ArraySpec((), f"datetime64[{kind.unit}]")
    if types.is_duration(kind):
        return ArraySpec((), f"timedelta64[{kind.unit}]")
    return None


def restored(spec: ArraySpec, wanted: ArraySpec | None) -> ArraySpec:
    """Return the spec that rows were written with, if a column that has `spec` can hold them; else `spec` itself.

    Arrow has one byte order, fewer units of time, and bytes of one width as numbers.
    """
    if wanted is None or wanted.is_text or spec.is_text:
        return spec
    mine, theirs = spec.numpy_dtype, wanted.numpy_dtype
    if theirs.kind in "SV" and theirs.itemsize and not theirs.hasobject:
        is_same = mine == np.uint8 and spec.shape == (*wanted.shape, theirs.itemsize)
        return wanted if is_same else spec
    if spec.shape != wanted.shape or mine.kind != theirs.kind:
        return spec
    is_same = mine.kind == "M" or mine == theirs.newbyteorder("=")
    return wanted if is_same else spec


def _prefixed(inner: ArraySpec | None, size: int | None) -> ArraySpec | None:
    # Only one length may vary, the first: a column can't hold lists of lists.
    if inner is None or not inner.is_fixed:
        return None
    return ArraySpec((size, *inner.shape), inner.dtype)


def check_column(schema: Any, name: str, file: str) -> ArraySpec:
    """Return the spec of a column, or raise if it can't be read."""
    numbers = schema.get_all_field_indices(name)
    if len(numbers) > 1:
        raise DataError(
            f"{len(numbers)} columns are called {name!r}, so that none can be chosen",
            file=file,
            cure="Choose others with fields=(...), or rename them before they are written.",
        )
    kind = schema.field(numbers[0]).type
    spec = spec_of_type(kind)
    if spec is None:
        raise FieldError(
            f"column {name!r} has type {kind}, which is no number, text, or list of numbers",
            file=file,
            cure="Choose others with fields=(...), or cast it before it is written.",
        )
    return spec


def null_error(file: str, name: str, group: str, row: int | None, spec: ArraySpec) -> DataError:
    """Return the error for a missing value of a column with rows of `spec`."""
    fill = ""
    if spec.is_text:
        fill = f', table[column].fill_null({"b" if spec.dtype is bytes else ""}"")'
    elif spec.shape == ():
        value = False if spec.numpy_dtype.kind == "b" else 0
        fill = f", table[column].fill_null({value}), cast the column to floats"
    return DataError(
        f"column {name!r} has a null in {group}",
        file=file,
        row=row,
        cure="Only floats (as nan) and times (as not-a-time) can be missing: fill it before it is "
        f"written{fill}, or leave it out with fields=(...).",
    )


class NullFoundError(ValueError):
    """A column has a null, in row `row` of the column; `is_list` if it is a whole list, and not a value in one."""

    def __init__(self, row: int, *, is_list: bool = False) -> None:
        super().__init__(f"a null in row {row}")
        self.row = row
        self.is_list = is_list


def is_null_list(error: ValueError) -> bool:
    """Return whether this is how older pyarrows read a null among the lists of one size of a Parquet file."""
    return _NULL_LIST.search(str(error)) is not None


def may_be_missing(spec: ArraySpec) -> bool:
    """Return whether a null can be read: as nan among floats, and as not-a-time."""
    return isinstance(spec.dtype, np.dtype) and spec.dtype.kind in "fmM"


def fixed_values(array: Any, spec: ArraySpec) -> Array:
    """Return an Arrow array as a NumPy array of rows of one size.

    A null is nan or not-a-time, or a NullFoundError where there is no such value; OverflowError is for a number that
    is too large.
    """
    pa = arrow()
    kind = array.type
    if pa.types.is_dictionary(kind):
        return fixed_values(array.dictionary_decode(), spec)
    if spec.shape != () or not may_be_missing(spec):
        refuse_nulls(array)
    if pa.types.is_fixed_size_list(kind):
        flat = array.flatten()
        inner = ArraySpec(spec.shape[1:], spec.dtype)
        try:
            values = fixed_values(flat, inner)
        except NullFoundError as error:
            raise NullFoundError(error.row // max(1, kind.list_size)) from None
        return values.reshape(len(array), *spec.fixed_shape)
    if pa.types.is_fixed_size_binary(kind):
        width = kind.byte_width
        data = np.frombuffer(array.buffers()[1], np.uint8)
        data = data[array.offset * width : (array.offset + len(array)) * width]
        if spec.numpy_dtype.kind in "SV":  # As `write` was told to keep them.
            return data.view(spec.numpy_dtype)
        return data.reshape(len(array), width)
    values = narrowed(as_numpy(array), spec.numpy_dtype)
    if array.null_count:
        values = values.copy()
        values[~as_numpy(array.is_valid())] = "NaT" if spec.numpy_dtype.kind in "mM" else np.nan
    return values


def as_numpy(array: Any) -> Array:
    """Return an Arrow array as a NumPy array, without a copy where the layout allows; nulls are any value.

    Not by `to_numpy()`: it loads pandas, if there is one, which takes 50 MB.
    """
    types = arrow().types
    kind = array.type
    if types.is_boolean(kind):
        return as_numpy(array.cast(arrow().uint8())).view(np.bool_)
    if types.is_date32(kind):
        return as_numpy(array.view(arrow().int32())).astype(np.int64).view("datetime64[D]")
    if types.is_temporal(kind):
        spec = spec_of_type(kind)
        assert spec is not None
        return as_numpy(array.view(arrow().int64())).view(spec.numpy_dtype)
    letter = "f" if types.is_floating(kind) else "i" if types.is_signed_integer(kind) else "u"
    dtype = np.dtype(f"{letter}{kind.bit_width // 8}")
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def varying_values(array: Any, spec: ArraySpec, allocate: Allocate) -> Text | Ragged | Coded:
    """Return an Arrow array of text or lists as a column; raise NullFoundError at a null.

    What has a dictionary keeps it: a few long texts may stand for millions of rows.
    """
    pa = arrow()
    refuse_nulls(array)
    if pa.types.is_dictionary(array.type):
        array.validate(full=True)
        return _coded(array, spec, allocate)
    array.validate(full=True)  # Checks offsets and UTF-8: the file is not trusted.
    if isinstance(spec.dtype, np.dtype):
        return _lists(array, spec, allocate)
    # Cast to large_binary, whose offsets have 64 bits: those of a string may have 32.
    binary = array.cast(pa.large_binary())
    offsets = np.frombuffer(binary.buffers()[1], np.int64)
    offsets = offsets[binary.offset : binary.offset + len(binary) + 1]
    first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    data = allocate(last - first)
    if last > first:
        data[: last - first] = np.frombuffer(binary.buffers()[2], np.uint8)[first:last]
    return Text(data, offsets - first if len(offsets) else np.zeros(1, np.int64), spec.dtype)


def text_column(values: Any, kind: Any, allocate: Allocate) -> Text:
    """Return text of 32-bit offsets that pyarrow itself made, and is trusted, in memory that the ledger counts."""
    _, edges, data = values.buffers()
    narrow = np.frombuffer(edges, np.int32)[values.offset : values.offset + len(values) + 1]
    offsets: Index = narrow.astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    memory = allocate(last - first)
    if last > first:
        memory[: last - first] = np.frombuffer(data, np.uint8)[first:last]
    return Text(memory, offsets - first, kind)


def _coded(array: Any, spec: ArraySpec, allocate: Allocate) -> Coded:
    codes = as_numpy(array.indices)
    words = array.dictionary
    if words.null_count:  # Only those that a row has are nulls of the column.
        is_null = ~as_numpy(words.is_valid())
        bad = np.flatnonzero(is_null[codes])
        if len(bad):
            raise NullFoundError(int(bad[0]))
        words = words.fill_null(b"" if spec.dtype is bytes else "") if spec.is_text else None
    if words is None or (len(codes) and not len(words)):
        raise ValueError("its dictionary has no values for its rows")
    column = varying_values(words, spec, allocate)
    if isinstance(column, Coded):
        raise ValueError("its dictionary has a dictionary")  # noqa: TRY004  # It is the file that is wrong.
    return Coded(column, codes)


def joined(columns: Sequence[Text | Ragged | Coded], allocate: Allocate) -> Text | Ragged | Coded:
    """Return one column with the rows of several, one after the other."""
    plain = [column.words if isinstance(column, Coded) else column for column in columns]
    if not any(isinstance(column, Coded) for column in columns) or len(columns) == 1:
        return columns[0] if len(columns) == 1 else merge(plain, allocate)
    starts = np.cumsum([0, *(len(words) for words in plain[:-1])])
    codes = [
        (column.codes if isinstance(column, Coded) else np.arange(len(column))) + np.int64(start)
        for column, start in zip(columns, starts.tolist(), strict=True)
    ]
    return Coded(merge(plain, allocate), np.concatenate(codes))


def _lists(array: Any, spec: ArraySpec, allocate: Allocate) -> Ragged:
    lengths = as_numpy(array.value_lengths()).astype(np.int64)
    inner = ArraySpec(spec.shape[1:], spec.dtype)
    try:
        items = fixed_values(array.flatten(), inner)
    except NullFoundError as error:
        row = int(np.searchsorted(np.cumsum(lengths), error.row, side="right"))
        raise NullFoundError(row) from None
    size = int(np.prod(inner.fixed_shape, dtype=np.int64))
    memory = allocate(items.nbytes)[: items.nbytes].view(spec.numpy_dtype)
    memory[:] = items.reshape(-1)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])[: len(lengths)] * size
    shapes = np.empty((len(lengths), len(spec.shape)), np.int64)
    shapes[:, 0] = lengths
    shapes[:, 1:] = inner.fixed_shape
    return Ragged(memory, starts.astype(np.int64), shapes)


def refuse_nulls(array: Any) -> None:
    """Raise NullFoundError at the first null."""
    if array.null_count:
        valid = as_numpy(array.is_valid())
        raise NullFoundError(int(np.flatnonzero(~valid)[0]))


@contextmanager
def named_errors(file: str, name: str) -> Iterator[None]:
    """Name the file and the column in errors about memory: pyarrow's are of what a file claims."""
    try:
        yield
    except BudgetError as error:
        raise BudgetError(f"{file}: column {name!r}: {error}") from error
    except MemoryError as error:
        raise DataError(
            f"column {name!r} can't be decoded, since there is no memory for what it claims: {error}",
            file=file,
            cure="It may be damaged or cut off: compare it with its original.",
        ) from error
