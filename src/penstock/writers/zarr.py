"""write(format="zarr"): one Zarr store, a group with an array for each field."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import Index
from penstock.core.blocks import Block
from penstock.core.nest import field_names
from penstock.core.optional import require
from penstock.core.spec import ArraySpec, dtype_name
from penstock.errors import PenstockError, WriteError
from penstock.io.atomic import atomic_directory
from penstock.io.failures import write_errors
from penstock.memory import allocate_plain, format_nbytes
from penstock.shards.description import KEY, described
from penstock.shards.layout import ArrayLayout, FieldLayout, layouts_of
from penstock.shards.ownership import check_target, discard, mark_files
from penstock.shards.sequence import fixed_nbytes
from penstock.shards.writing import append_column
from penstock.writers.job import Job

_CHUNK_NBYTES = 1 << 18
"""The bytes of a chunk: a shuffle reads whole ones, and mixes some hundred of them."""
_SHARD_NBYTES = 1 << 24
"""The bytes of a shard, all fields together. It is a file, and kept in memory: Zarr takes a whole one at a time."""
_MOST_SHARD_NBYTES = 1 << 26
_NO_ENDS: Index = np.empty(0, np.int64)
_RESERVED = "zarr.json"


def write(job: Job) -> None:
    """Write all rows; the store appears under its name when it is whole.

    Takes the memory of a stream, and that of one shard.
    """
    kind = ZarrFormat(job)
    check_target(job.path, overwrite=job.overwrite)
    with (
        atomic_directory(job.path, replace=job.overwrite, discard=discard) as folder,
        job.begin(job.node.num_rows) as step,
        job.open_stream(None) as stream,
    ):
        store = ZarrStore(kind, folder, job.path)
        for parcel in stream.parcels():
            store.add(parcel.block, parcel.size)
            step.advance(parcel.size, parcel.block.nbytes)
            del parcel  # Its buffers are free for the next parcel.
        store.finish()
        mark_files(folder)


class ZarrFormat:
    """What a store of some rows looks like: the arrays of each field, and how many rows are in a chunk and a shard."""

    def __init__(self, job: Job) -> None:
        node = job.node
        _refuse(job)
        self.zarr = require("zarr", 'write(format="zarr")', "zarr")
        self.num_rows = node.num_rows
        names = [name.replace(_RESERVED, "zarr_json") for name in field_names(node.structure)]
        specs = [field.spec for field in node.fields]
        for name, spec in zip(names, specs, strict=True):
            _check(name, spec)
        self.layouts: Sequence[FieldLayout] = layouts_of(names, specs)
        self.text = described(node.structure, [one.stem for one in self.layouts], specs)
        row_nbytes = max(1, fixed_nbytes(node))
        self.chunk_rows = max(1, _CHUNK_NBYTES // row_nbytes)
        self.shard_rows = job.shard_rows or self.chunk_rows * max(
            1, _SHARD_NBYTES // (self.chunk_rows * row_nbytes)
        )
        if self.num_rows is not None:
            self.shard_rows = max(1, min(self.shard_rows, self.num_rows))
        if job.shard_rows and self.shard_rows * row_nbytes > max(_MOST_SHARD_NBYTES, row_nbytes):
            most = max(1, _MOST_SHARD_NBYTES // row_nbytes)
            raise ValueError(
                f"a shard of Zarr is kept in memory while it is written, and {job.shard_rows} rows are "
                f"{format_nbytes(self.shard_rows * row_nbytes)}; shard_rows may be {most} at most, or left out."
            )
        # A shard is made of whole chunks: a few rows more than asked for, if need be.
        chunks = -(-self.shard_rows // self.chunk_rows)
        self.chunk_rows = -(-self.shard_rows // chunks)
        self.shard_rows = self.chunk_rows * chunks

    def sizes(self, role: str, array: ArrayLayout) -> tuple[int, int]:
        """Return how many entries of an array make a chunk, and how many a shard."""
        if role in ("rows", "offsets", "shapes"):
            return self.chunk_rows, self.shard_rows
        entries = max(1, _CHUNK_NBYTES // max(1, array.entry_nbytes))
        return entries, entries * (_SHARD_NBYTES // _CHUNK_NBYTES // 4)


def _refuse(job: Job) -> None:
    """Raise for what a store can't be made from, or in which way."""
    if job.node.is_batched:
        raise ValueError(
            f"the arrays of a Zarr store hold rows, and {job.node.describe()} makes batches of them; "
            "write before batching, or after .unbatch()."
        )
    if job.engine != "local":
        raise ValueError(
            f"engine={job.engine!r} has tasks write files of their own (of npy, parquet and tfrecord), and "
            "a Zarr store is one thing: write it without engine."
        )
    if job.shards is not None:
        raise ValueError(
            'a Zarr store is one thing, not a number of files: write format="zarr" without shards; shard_rows sets how '
            "many rows each of its inner files has."
        )
    if not job.node.fields:
        raise ValueError("a Zarr store needs an array, and these rows have no fields.")


def _check(name: str, spec: ArraySpec) -> None:
    """Raise for a dtype that Zarr 3 does not have."""
    dtype = spec.dtype
    if not isinstance(dtype, np.dtype):
        return
    is_numpys = dtype.type.__module__.partition(".")[0] == "numpy"
    is_timeless = dtype.kind in "mM" and np.datetime_data(dtype)[0] == "generic"
    # Of what Zarr 3 writes else (text and bytes of one width, columns), its authors say that it may change.
    if is_numpys and dtype.kind in "biufcmM" and dtype.char not in "gG" and not is_timeless:
        return
    cures = {
        "S": "map it to bytes",
        "U": "map it to str",
        "V": "make a dict of its columns with map",
    }
    cure = cures.get(dtype.kind if is_numpys else "", "map it to float32 or float64")
    if is_timeless:
        cure = f"map it to {dtype.kind}8[us]"
    raise TypeError(
        f"field {name!r} is {dtype_name(dtype)}, for which Zarr 3 has no settled type; {cure}, "
        'or write format="npy", which holds every dtype.'
    )


class ZarrStore:
    """A store that rows are added to."""

    def __init__(self, kind: ZarrFormat, folder: Path, path: Path) -> None:
        self.kind = kind
        with _errors(path):
            group = kind.zarr.open_group(str(folder), mode="w", zarr_format=3)
            self.fields = [
                {
                    role: ZarrArray(
                        group, layout.stem + array.role, array, *kind.sizes(role, array), path
                    )
                    for role, array in layout.arrays.items()
                }
                for layout in kind.layouts
            ]
            group.attrs[KEY] = kind.text
        for arrays in self.fields:
            for role in arrays.keys() & {"offsets", "items"}:
                arrays[role].append(np.zeros(1, np.int64))

    def add(self, block: Block, size: int) -> None:
        """Write the first rows of a block."""
        if not size:
            return
        fields = zip(self.kind.layouts, self.fields, block.columns, strict=True)
        for layout, arrays, column in fields:
            append_column(layout, arrays, column, 0, size, _NO_ENDS, allocate_plain)

    def finish(self) -> None:
        """Write what is left of each array."""
        for arrays in self.fields:
            for array in arrays.values():
                array.finish()


class ZarrArray:
    """An array that grows by whole shards; entries of the next one are kept until it is full."""

    def __init__(
        self,
        group: Any,
        name: str,
        layout: ArrayLayout,
        chunk_entries: int,
        shard_entries: int,
        path: Path,
    ) -> None:
        inner = tuple(max(1, size) for size in layout.shape)
        self.path = path
        self.num_entries = 0
        self._written = 0
        self._inner = layout.shape
        self._array = group.create_array(
            name,
            shape=(0, *layout.shape),
            dtype=layout.dtype.newbyteorder("="),
            chunks=(chunk_entries, *inner),
            shards=(shard_entries, *inner),
            # Else Zarr leaves out chunks of zeros, negative ones among them.
            config={"write_empty_chunks": True},
        )
        self._shard_entries = shard_entries
        self._dtype = layout.dtype.newbyteorder("=")
        self._kept = np.empty((0, *layout.shape), self._dtype)
        self._num_kept = 0

    def append(self, entries: npt.NDArray[Any], ends: Index = _NO_ENDS) -> None:
        """Add entries."""
        self.num_entries += len(entries)
        start = 0
        while start < len(entries):
            stop = min(len(entries), start + self._shard_entries - self._num_kept)
            self._keep(entries[start:stop])
            start = stop
            if self._num_kept == self._shard_entries:
                self._write()

    def _keep(self, entries: npt.NDArray[Any]) -> None:
        needed = self._num_kept + len(entries)
        if needed > len(self._kept):
            # Not a whole shard at once: there may be few rows.
            size = min(self._shard_entries, max(needed, 2 * len(self._kept)))
            grown = np.empty((size, *self._inner), self._dtype)
            grown[: self._num_kept] = self._kept[: self._num_kept]
            self._kept = grown
        self._kept[self._num_kept : needed] = entries
        self._num_kept = needed

    def _write(self) -> None:
        stop = self._written + self._num_kept
        with _errors(self.path):
            self._array.resize((stop, *self._inner))
            if math.prod(self._inner):
                self._array[self._written : stop] = self._kept[: self._num_kept]
        self._written, self._num_kept = stop, 0

    def finish(self) -> None:
        """Write the last entries."""
        if self._num_kept:
            self._write()
        self._kept = self._kept[:0]


@contextlib.contextmanager
def _errors(path: Path) -> Iterator[None]:
    """Name the store in what Zarr raises."""
    try:
        with write_errors(path):
            yield
    except PenstockError:
        raise
    except (ValueError, TypeError, RuntimeError, KeyError) as error:
        problem = f"Zarr can't write this: {type(error).__name__}: {error}"
        raise WriteError(problem, file=str(path)) from error
