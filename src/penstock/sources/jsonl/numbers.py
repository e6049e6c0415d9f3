"""Objects of plain numbers to columns, natively: several times as fast as a reader of all of JSON."""

from collections.abc import Sequence

import numpy as np

from penstock import _native
from penstock.core.arrays import Array, narrowed
from penstock.core.blocks import Pieces, Sink
from penstock.core.fields import Field
from penstock.core.spec import ArraySpec
from penstock.io.reader import Bytes
from penstock.sources.jsonl.values import EXACT, Path

_DTYPES = {"f": np.float64, "i": np.int64, "b": np.uint8}


class Numbers:
    """Parses rows to the fields at `paths`, if all of them are numbers, truths, or lists of so many of them."""

    def __init__(
        self, paths: Sequence[Path], fields: Sequence[Field], exact: Sequence[bool]
    ) -> None:
        self.names = [path[0].encode("utf-8", "surrogatepass") for path in paths]
        self.specs = [field.spec for field in fields]
        self.exact = exact
        self.kinds = "".join(map(_kind, self.specs))
        self.are_all = len(self.kinds) == len(paths) and all(len(path) == 1 for path in paths)

    def put(self, text: Bytes, num_rows: int, sinks: Sequence[Sink]) -> bool:
        """Put rows of text into columns; return False, and put nothing, if anything in them is not plain."""
        if not self.are_all:
            return False
        found: list[Array] = [
            np.empty((num_rows, *spec.fixed_shape), _DTYPES[kind])
            for kind, spec in zip(self.kinds, self.specs, strict=True)
        ]
        if not _native.read_json_numbers(text, num_rows, self.names, self.kinds, found):
            return False
        if any(one and _has_large(values) for one, values in zip(self.exact, found, strict=True)):
            return False
        try:
            columns = [_narrowed(*one) for one in zip(found, self.specs, strict=True)]
        except OverflowError:
            return False
        for values, sink in zip(columns, sinks, strict=True):
            assert not isinstance(sink, Pieces), "a field of one size has memory of its own"
            sink.put(values)
        return True


def _kind(spec: ArraySpec) -> str:
    """Return how values of a field are read, "" for those that are left to others."""
    if spec.is_text or not spec.is_fixed or len(spec.shape) > 1:
        return ""
    kind = spec.numpy_dtype.kind
    if kind in "fb":
        return kind
    return "i" if kind in "iu" and spec.numpy_dtype != np.uint64 else ""


def _has_large(values: Array) -> bool:
    """Return whether some number is so large that float64 may have rounded it."""
    return bool((np.abs(values) >= EXACT).any())


def _narrowed(values: Array, spec: ArraySpec) -> Array:
    dtype = spec.numpy_dtype
    if dtype.kind in "iu" and values.size:
        limits = np.iinfo(dtype)
        if values.min() < limits.min or values.max() > limits.max:
            raise OverflowError
    return narrowed(values, dtype)
