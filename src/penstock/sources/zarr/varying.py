"""Text, and arrays whose shapes differ, as `write` keeps them in a Zarr store: values and offsets, each an array."""

from collections.abc import Iterator, Mapping

import numpy as np

from penstock.core.arrays import Array
from penstock.core.columns import Fixed
from penstock.core.fields import Field
from penstock.core.rows import Context
from penstock.errors import DataError
from penstock.shards.layout import ArrayLayout, FieldLayout
from penstock.shards.varying import VaryingRows, average_nbytes, room_for
from penstock.sources.reading.chunked import Chunked
from penstock.sources.reading.run_checks import RunChecks

_CUT_ROWS = (
    64  # Of a damaged chunk so many rows are looked at together: it is decoded for each such run.
)


class StoredArray:
    """The entries of one array, decoded a chunk at a time."""

    checks: RunChecks | None = None

    def __init__(self, leaf: Chunked, name: str, layout: ArrayLayout) -> None:
        self.leaf = leaf
        self.name = f"{leaf.file}/{name}"
        self.layout = layout
        self.num_entries = leaf.num_rows
        spec = leaf.field.spec
        if spec.dtype != layout.dtype or spec.shape != layout.shape:
            problem = f"array {name!r} holds {spec}, and not {layout.dtype} of shape {layout.shape}"
            raise DataError(problem, file=leaf.file, cure="It was changed: write it again.")

    def read(self, start: int, stop: int, context: Context) -> Array:
        """Return entries `start` to `stop`."""
        _, array = room_for(self.layout, stop - start, context)
        if array.nbytes:
            self.leaf.read(slice(start, stop), Fixed(array[np.newaxis]), context)
        return array


class ZarrVarying(VaryingRows):
    """One field of a store, whose rows differ in size."""

    def __init__(
        self, layout: FieldLayout, arrays: Mapping[str, StoredArray], file: str, how: str
    ) -> None:
        num_rows = arrays["offsets"].num_entries - 1
        shapes = arrays.get("shapes")
        if num_rows < 0 or (shapes is not None and shapes.num_entries != num_rows):
            problem = f"field {layout.stem!r} has offsets and shapes that do not belong together"
            raise DataError(problem, file=file, cure="It was changed: write it again.")
        values = arrays["values"]
        nbytes = values.num_entries * values.layout.entry_nbytes
        estimate = average_nbytes(layout, nbytes, num_rows)
        super().__init__(layout, Field(layout.spec, estimate=estimate), num_rows, arrays, how)
        self.stored = arrays
        self.files = ()  # The store is listed as a whole.
        chunk_nbytes = values.leaf.chunk_nbytes
        self.chunk_rows = max(1, min(num_rows, chunk_nbytes // max(1, estimate)))
        self.index_nbytes = sum(one.leaf.index_nbytes for one in arrays.values())

    def cuts(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield a few rows at a time: which chunks of values rows lie in, only their offsets tell."""
        for first in range(start - start % _CUT_ROWS, stop, _CUT_ROWS):
            yield first, min(self.num_rows, first + _CUT_ROWS)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return what its rows take, and what is decoded for them at a time."""
        values = self.stored["values"]
        entries = num_rows * self.field.nbytes // max(1, values.layout.entry_nbytes) + 1
        decoded = values.leaf.staging_nbytes(entries)
        others = [one.leaf for role, one in self.stored.items() if role != "values"]
        return super().staging_nbytes(num_rows) + max(
            decoded, *(leaf.staging_nbytes(num_rows) for leaf in others)
        )

    def retained_nbytes(self) -> int:
        """Return the bytes of chunks that two reads share."""
        return sum(one.leaf.retained_nbytes() for one in self.stored.values())

    def limit_index(self, nbytes: int) -> None:
        """Retain fewer indices of shards."""
        for one in self.stored.values():
            one.leaf.limit_index(nbytes // len(self.stored))
        self.index_nbytes = sum(one.leaf.index_nbytes for one in self.stored.values())
