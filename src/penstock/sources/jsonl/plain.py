"""Plain objects to columns, natively: several times as fast as a reader of all of JSON."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Array, Index, narrowed, typed
from penstock.core.blocks import Pieces, Sink
from penstock.core.columns import Ragged, Text
from penstock.core.fields import Field
from penstock.core.spec import ArraySpec
from penstock.io.reader import Bytes
from penstock.sources.jsonl.values import EXACT, Path

_DTYPES: dict[str, Any] = {"f": np.float64, "i": np.int64, "b": np.uint8}
_NUMBERS_OF_TEXT = 3  # Where it begins, its bytes as they are written, and without escapes.


class NotPlainError(Exception):
    """A value, or a row, is left to others."""


class PlainRows:
    """Parses rows to the fields at `paths`, if all of them are numbers, truths, text, or lists of numbers."""

    def __init__(
        self, paths: Sequence[Path], fields: Sequence[Field], exact: Sequence[bool]
    ) -> None:
        self.paths = [tuple(key.encode("utf-8", "surrogatepass") for key in path) for path in paths]
        self.specs = [field.spec for field in fields]
        self.exact = exact
        self.kinds = "".join(map(_kind, self.specs))
        self.are_all = len(self.kinds) == len(paths)
        """Whether all fields are such; else no rows are."""

    def put(self, text: Bytes, num_rows: int, sinks: Sequence[Sink]) -> bool:
        """Put rows of text into columns; return False, and put nothing, if anything in them is not plain."""
        if not self.are_all:
            return False
        found = [
            _room(kind, spec, num_rows) for kind, spec in zip(self.kinds, self.specs, strict=True)
        ]
        if not _native.read_json_rows(text, num_rows, self.paths, self.kinds, found):
            return False
        try:
            # All of them before any is put: a view of a block can't be emptied again.
            puts = [
                self._values(text, number, values, sink)
                for number, (values, sink) in enumerate(zip(found, sinks, strict=True))
            ]
        except (NotPlainError, OverflowError):
            return False
        for put in puts:
            put()
        return True

    def _values(self, text: Bytes, number: int, found: Array, sink: Sink) -> Callable[[], None]:
        """Return what puts the values of a field into its column."""
        kind, spec = self.kinds[number], self.specs[number]
        if not isinstance(sink, Pieces):
            return partial(sink.put, self._narrowed(found, number))
        if kind == "t":
            return partial(sink.add, _texts(text, found, spec.dtype, sink))
        counts = found[1]
        edges = np.cumsum(counts)
        is_float = spec.numpy_dtype.kind == "f"
        values = np.empty(int(edges[-1]) if len(edges) else 0, np.float64 if is_float else np.int64)
        if not _native.read_json_lists(text, found, values, is_float):
            raise NotPlainError
        memory = typed(
            sink.allocate(len(values) * spec.numpy_dtype.itemsize),
            0,
            values.shape,
            spec.numpy_dtype,
        )
        memory[:] = self._narrowed(values, number)
        lists = Ragged(memory, edges - counts, counts[:, None])
        if sink.aligned:
            lists = lists.take(np.arange(len(lists)), sink.allocate, aligned=True)
        return partial(sink.add, lists)

    def _narrowed(self, values: Array, number: int) -> Array:
        """Return numbers in the dtype of their field, if it holds them."""
        dtype = self.specs[number].numpy_dtype
        if self.exact[number] and bool((np.abs(values) >= EXACT).any()):
            raise NotPlainError  # Float64 may have rounded it.
        if dtype.kind in "iu" and values.size:
            limits = np.iinfo(dtype)
            if values.min() < limits.min or values.max() > limits.max:
                raise NotPlainError
        return narrowed(values, dtype)


def _kind(spec: ArraySpec) -> str:
    """Return how values of a field are read, "" for those that are left to others."""
    if spec.is_text:
        return "t" if spec.shape == () else ""
    kind = spec.numpy_dtype.kind
    if kind not in "fbiu" or spec.numpy_dtype == np.uint64 or len(spec.shape) > 1:
        return ""
    if spec.shape == (None,):
        return "" if kind == "b" else "l"
    return "i" if kind == "u" else kind


def _room(kind: str, spec: ArraySpec, num_rows: int) -> Array:
    """Return memory for the values of rows, or for where they are."""
    if kind in _DTYPES:
        return np.empty((num_rows, *spec.fixed_shape), _DTYPES[kind])
    return np.empty((_NUMBERS_OF_TEXT if kind == "t" else 2, num_rows), np.int64)


def _texts(text: Bytes, found: Array, kind: Any, sink: Pieces) -> Text:
    offsets: Index = np.zeros(found.shape[1] + 1, np.int64)
    np.cumsum(found[2], out=offsets[1:])
    memory = sink.allocate(int(offsets[-1]))
    _native.copy_json_texts(text, found, memory[: int(offsets[-1])])
    return Text(memory, offsets, kind)
