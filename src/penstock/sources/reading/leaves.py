"""Leaves: one array of a nest, of any kind, as something that reads rows into a column."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Array, Index, raw_rows, rows_are_contiguous, starts_of, typed
from penstock.core.blocks import Pieces, Sink
from penstock.core.columns import Ragged
from penstock.core.evidence import Unproven
from penstock.core.fields import Field, tops_of
from penstock.core.lazy import lazy
from penstock.core.rows import Context, FileVersion, RowSet, Runs, as_index, run_rows
from penstock.core.spec import ArraySpec, dtype_name
from penstock.errors import RangeError, SpecMismatchError
from penstock.io.sizes import PIECE_NBYTES
from penstock.sources.reading.near_rows import near_rows

if TYPE_CHECKING:
    from penstock.core import digests
    from penstock.sources.reading import no_arrays
else:
    digests = lazy("penstock.core.digests")  # Only write and cache(path) need it,
    no_arrays = lazy("penstock.sources.reading.no_arrays")  # and only errors this.


class Leaf(ABC):
    """One array of a nest: its field, its length, and how its rows are read."""

    field: Field
    num_rows: int
    how: str
    chunk_rows: int | None = None
    """How many rows lie together on storage; None in memory."""

    picks: bool = False
    """Whether rows in order with others between them are read about as fast as a run."""
    run_rows: int = 1
    """How many rows have a checksum together."""
    num_chunks: int = 0
    """How many chunks it is stored in, where chunks are decoded whole."""
    num_retained: int = 0
    """How many decoded chunks are retained from one read to the next."""
    files: Sequence[FileVersion] = ()
    """The files that it lies in, if a part has more than one."""
    index_nbytes: int = 0
    """What a stream keeps, for as long as it is open, to know where the chunks of this very leaf lie."""

    @abstractmethod
    def read(self, rows: RowSet, sink: Sink, context: Context) -> None:
        """Read the given rows into a column; there is at least one."""

    def read_runs(self, runs: Runs, sink: Sink, context: Context) -> None:
        """Read runs of rows into a column, one after the other."""
        is_one = len(runs) == 1
        rows = slice(runs[0][0], sum(runs[0])) if is_one else run_rows(runs)
        self.read(rows, sink, context)

    def cuts(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the first row, and the row after the last, of each run that rows `start` to `stop` lie in.

        If a run can't be read, all of its rows are bad.
        """
        yield 0, self.num_rows

    def reading(self) -> str:
        """Return how its rows are read, for `explain()`."""
        return self.how

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes that a read takes besides the column."""
        return 0

    def retained_nbytes(self) -> int:
        """Return the bytes that are retained from one read to the next."""
        return 0

    def limit_index(self, nbytes: int) -> None:  # noqa: B027  # Most leaves have none.
        """Keep no index that takes more, if it can do without."""

    @property
    def is_known_bad(self) -> bool:
        """Whether the head of its file already tells of rows that can't be read: `raise_known` says which."""
        return False

    def raise_known(self) -> None:  # noqa: B027  # Most leaves know of nothing.
        """Raise the error of the first row that is known to be bad."""

    def check_files(self) -> Sequence[FileVersion]:
        """Return the files with checksums that its rows are compared with."""
        return ()

    def checks_nbytes(self) -> int:
        """Return the bytes of checksums that a stream keeps to compare its rows with."""
        return 0

    def proof(self) -> Any:
        """Return what tells its rows from others, as JSON; raise Unproven if nothing does. May read all of them."""
        raise Unproven(self.describe())

    def describe(self) -> str:
        """Return shape and dtype."""
        shape = ", ".join(map(str, (self.num_rows, *self.field.spec.shape)))
        return f"({shape}) {dtype_name(self.field.spec.dtype)}"


class InMemory(Leaf):
    """An ndarray of any dtype and strides."""

    picks = True

    def __init__(self, array: Array) -> None:
        self.array = array
        self.num_rows = len(array)
        self.field = Field(ArraySpec(array.shape[1:], array.dtype))
        self.is_contiguous = rows_are_contiguous(array)
        self.raw = raw_rows(array, 1) if self.is_contiguous else None
        self.how = "in memory, one gather a block" if self.is_contiguous else "in memory, strided"

    def read(self, rows: RowSet, sink: Sink, context: Context) -> None:
        """Copy rows: a slice as one copy, scattered ones by the native gather."""
        assert not isinstance(sink, Pieces)
        if isinstance(rows, slice):
            sink.put(self.array[rows])
        elif self.raw is not None:
            sink.gather(self.raw, rows)
        else:
            # Not np.take: it first makes a contiguous copy of the whole array.
            sink.put(self.array[rows])

    def proof(self) -> Any:
        """Return a digest of the array."""
        return digests.array_digest(self.array)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the array alone: `raw` is the same memory once more."""
        return _restored, (self.array, self.array.dtype)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of the copy that NumPy's indexing makes."""
        return 0 if self.is_contiguous else num_rows * self.field.nbytes


def _restored(array: Array, dtype: np.dtype[Any]) -> InMemory:
    """Return an array that was pickled, in its own byte order: NumPy brings it back in that of the machine."""
    return InMemory(array.astype(dtype, copy=False))


class Lazy(Leaf):
    """Anything with shape, dtype and slicing; only slices of it are ever asked for."""

    def __init__(self, array: Any, name: str) -> None:
        self.array = array
        self.num_rows = int(array.shape[0])
        self.field = Field(ArraySpec(array.shape[1:], np.dtype(array.dtype)))
        self.how = f"{type(array).__module__.split('.')[0]} array read in slices"
        probe = np.asarray(array[0:0])
        if probe.dtype != self.field.spec.dtype or probe.shape != (0, *self.field.spec.shape):
            raise TypeError(
                f"field {name!r}: a slice of {type(array).__name__} must be an array of "
                f"{self.field.spec}, got {probe.dtype} of shape {probe.shape}; "
                "convert it first (a sparse matrix: x.toarray())."
            )

    def read(self, rows: RowSet, sink: Sink, context: Context) -> None:
        """Read a slice as it is; of scattered rows, those that lie close together with one slice."""
        assert not isinstance(sink, Pieces)
        if isinstance(rows, slice):
            sink.put(self._slice(rows.start, rows.stop))
            return
        for first, stop, slots, picked in near_rows(rows, self.field.nbytes):
            sink.at(slots).put(self._slice(first, stop)[picked])

    def proof(self) -> Any:
        """Raise: what is behind the array is not known."""
        kind = type(self.array)
        raise Unproven(f"it is a {kind.__qualname__} of {kind.__module__}")

    def _slice(self, start: int, stop: int) -> Array:
        values = np.asarray(self.array[start:stop])
        spec = self.field.spec
        if values.shape != (stop - start, *spec.shape) or values.dtype != spec.dtype:
            # Else memory that was never written would pass for rows, such as those of a file cut short.
            raise SpecMismatchError(
                f"rows {start} to {stop} of {type(self.array).__name__} must be {spec}, "
                f"got {values.dtype} of shape {values.shape}; did it change since from_arrays?"
            )
        return values

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of a slice and of the rows picked from it."""
        width = self.field.nbytes
        return 2 * min(self.num_rows * width, max(PIECE_NBYTES, num_rows * width))


class TextList(Leaf):
    """A list of bytes or of str, one a row."""

    how = "Python list, joined a block at a time"

    def __init__(self, values: list[Any], kind: type) -> None:
        self.values = values
        self.num_rows = len(values)
        sizes = [_text_nbytes(value) + 8 for value in values]
        mean = sum(sizes) // max(1, len(values))
        self.field = Field(ArraySpec((), kind), estimate=mean, tops=tops_of(sizes))

    def read(self, rows: RowSet, sink: Sink, context: Context) -> None:
        """Join the given values."""
        assert isinstance(sink, Pieces)
        sink.put(_picked(self.values, rows))

    def proof(self) -> Any:
        """Return a digest of all values."""
        return digests.list_digest(self.values)


class ArrayList(Leaf):
    """A list of arrays of one dtype, whose shapes may differ."""

    how = "Python list of arrays, joined a block at a time"

    def __init__(self, values: list[Any], name: str) -> None:
        self.values: Sequence[Any] = values
        self.num_rows = len(values)
        first = values[0]
        shape: list[int | None] = list(first.shape)
        for row, value in enumerate(values):
            if value.dtype != first.dtype or value.ndim != first.ndim:
                raise ValueError(
                    f"field {name!r}: the arrays of a list must agree in dtype and number of "
                    f"dimensions, got {first.dtype} {first.shape} in row 0 and {value.dtype} "
                    f"{value.shape} in row {row}. A list is one field, of which each item is a row; several fields "
                    "are a tuple: from_arrays((x, y))."
                )
            for axis, size in enumerate(value.shape):
                if shape[axis] != size:
                    shape[axis] = None
        sizes = [value.nbytes + 16 for value in values]
        mean = sum(sizes) // len(values)
        self.field = Field(ArraySpec(shape, first.dtype), estimate=mean, tops=tops_of(sizes))
        self._note_places()

    def _note_places(self) -> None:
        """Note where the arrays are, if the bytes of each are those of a row in a block."""
        self.table: _native.ArrayTable | None = None
        self.shapes = np.empty((0, len(self.field.spec.shape)), np.int64)
        dtype = self.field.spec.dtype
        if all(one.dtype == dtype and one.flags.c_contiguous for one in self.values):
            self.table = _native.ArrayTable(list(self.values))
            self.values = self.table.arrays
            shapes = np.array([value.shape for value in self.values], np.int64)
            self.shapes = shapes.reshape(self.num_rows, -1)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: where the arrays are is found anew."""
        return self.__dict__ | {"values": list(self.values), "table": None, "shapes": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over what was pickled."""
        self.__dict__.update(state)
        self._note_places()

    def read(self, rows: RowSet, sink: Sink, context: Context) -> None:
        """Copy the given arrays."""
        if self.table is not None:
            self._gather(self.table, as_index(rows), sink, context)
            return
        values = _picked(self.values, rows)
        if isinstance(sink, Pieces):
            sink.put(values)
        else:
            sink.put(np.stack(values))

    def _gather(self, table: _native.ArrayTable, rows: Index, sink: Sink, context: Context) -> None:
        """Copy the given arrays without a look at each in Python."""
        dtype = self.field.spec.numpy_dtype
        width = dtype.itemsize
        shapes = self.shapes[rows]
        sizes = shapes.prod(axis=1)
        starts = starts_of(sizes, width, aligned=isinstance(sink, Pieces) and sink.aligned)
        total = int(starts[-1] + sizes[-1]) if len(rows) else 0
        memory = (sink if isinstance(sink, Pieces) else context).allocate(total * width)
        rows = np.ascontiguousarray(rows)
        table.gather(rows, sizes * width, memory, starts * width)
        if isinstance(sink, Pieces):
            sink.add(Ragged(typed(memory, 0, (total,), dtype), starts, shapes))
        else:
            sink.put(typed(memory, 0, (len(rows), *self.field.spec.fixed_shape), dtype))

    def proof(self) -> Any:
        """Return a digest of all arrays."""
        return digests.list_digest(self.values)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of the stack of arrays of one shape."""
        return num_rows * self.field.nbytes if self.field.spec.is_fixed else 0

    def retained_nbytes(self) -> int:
        """Return the bytes of the table of the arrays, and of their shapes."""
        return 0 if self.table is None else self.table.nbytes + self.shapes.nbytes


def _text_nbytes(value: Any) -> int:
    """Return the bytes that text takes in UTF-8, which is what blocks hold."""
    if isinstance(value, bytes) or value.isascii():
        return len(value)
    return len(value.encode("utf-8", "surrogatepass"))


def _picked(values: Sequence[Any], rows: RowSet) -> list[Any]:
    if isinstance(rows, slice):
        return list(values[rows])
    return [values[row] for row in rows.tolist()]


def leaf_of(value: Any, name: str) -> Leaf:
    """Return the leaf for whatever the user gave as one array."""
    if isinstance(value, list):
        return _leaf_of_list(value, name)
    get = "numpy()." if hasattr(value, "numpy") else ""
    if not isinstance(value, np.ndarray):
        value = _host_array(value, name)
    if isinstance(value, np.ndarray):
        _check_array(value, name, get)
        value = value.view(np.ndarray)  # Else views would be memmaps or matrices, too.
    _check_dimensions(value, name)
    return InMemory(value) if isinstance(value, np.ndarray) else Lazy(value, name)


def _numbers(values: Sequence[Any], name: str) -> Array:
    """Return numbers as an array: whole ones stay whole, where NumPy makes floats of large ones, and rounds them."""
    found: Array = np.asarray(values)
    if found.dtype.kind not in "fO" or not all(isinstance(one, int | np.integer) for one in values):
        return found
    least, most = int(min(values)), int(max(values))
    if least < 0 or most > np.iinfo(np.uint64).max:
        raise RangeError(
            f"field {name!r} has whole numbers from {least} to {most}, which neither int64 nor uint64 holds; "
            "round them: np.asarray(values, 'float64')."
        )
    return np.array([int(one) for one in values], np.uint64)


def _leaf_of_list(values: list[Any], name: str) -> Leaf:
    if not values:
        raise ValueError(
            f"field {name!r} is an empty list, which has no dtype; give np.empty((0, ...), dtype)."
        )
    kinds = {type(value) for value in values}
    if kinds <= {bytes, np.bytes_} or kinds <= {str, np.str_}:
        return TextList(values, bytes if issubclass(kinds.pop(), bytes) else str)
    if all(isinstance(value, np.ndarray) for value in values):
        for value in values:
            _check_array(value, name)
        return ArrayList(values, name)
    if all(issubclass(kind, int | float | complex | np.number | np.bool_) for kind in kinds):
        return InMemory(_numbers(values, name))
    raise no_arrays.no_list(values, name)


def _host_array(value: Any, name: str) -> Any:
    """Return an ndarray over the memory of a tensor on the CPU, else `value`."""
    if hasattr(value, "detach") and hasattr(value, "numpy"):  # torch, perhaps with a gradient
        value = value.detach()
        if value.device.type == "cpu":
            return value.numpy()
        return value
    if hasattr(value, "__array__") and (hasattr(value, "__dlpack__") or hasattr(value, "numpy")):
        return np.asarray(value)  # jax and TensorFlow
    is_array = hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "__getitem__")
    if not is_array or type(value).__name__ == "RaggedTensor":
        raise no_arrays.no_array(value, name)
    return value


def _check_dimensions(value: Any, name: str) -> None:
    if len(value.shape) == 0:
        raise ValueError(
            f"field {name!r} has no rows: it is a 0-d array; every array needs a first axis "
            "(a constant for all rows: np.broadcast_to(value, (num_rows,)))."
        )


def _check_array(value: Array, name: str, get: str = "") -> None:
    """Raise if an array can't be kept in blocks; `get` is how the user gets one of what they gave."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"field {name!r}: a masked array would lose its mask; fill it: x.filled(0)."
        )
    if value.dtype.hasobject:
        raise TypeError(
            f"field {name!r} has dtype {value.dtype}, which can't be kept in blocks.\n"
            f"  text: give a list of str (array.{get}tolist()), or a fixed width (array.{get}astype('U20'))\n"
            "  arrays of different lengths: give a list of arrays (list(array))\n"
            "  numbers: array.astype('float32')"
        )
