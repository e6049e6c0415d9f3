"""write(format="tfrecord"): a folder of TFRecord files with a tf.train.Example for each row."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np

from penstock import _native
from penstock.core.arrays import raw_rows
from penstock.core.blocks import Block
from penstock.core.columns import Column, Fixed, Text
from penstock.core.fields import Field
from penstock.core.nest import field_names
from penstock.core.rows import ENDLESS, Node
from penstock.core.spec import ArraySpec
from penstock.io.atomic import atomic_directory
from penstock.io.failures import write_errors
from penstock.memory import allocate_plain
from penstock.shards.ownership import check_target, discard, mark_files
from penstock.shards.sequence import default_shard_rows
from penstock.sources.tfrecord.codec import ExampleCodec
from penstock.sources.tfrecord.features import Feature, FixedFeature, TensorFeature, VarFeature
from penstock.writers import on_ray
from penstock.writers.job import Job
from penstock.writers.progress import Advance, progress_bar
from penstock.writers.shard_tasks import Sent

_LISTED = {"float32", "int64"}  # Dtypes that a list of a tf.train.Example holds unchanged.


def write(job: Job) -> None:
    """Write all rows; the folder appears under its name when it is whole.

    Takes the memory of a stream, and of one block of encoded records.
    """
    encoder = Encoder(job.node)
    check_target(job.path, overwrite=job.overwrite)
    with (
        atomic_directory(job.path, replace=job.overwrite, discard=discard) as folder,
        progress_bar(job.name, num_rows=job.node.num_rows, done=0, wanted=job.progress) as advance,
    ):
        if job.engine == "ray":
            _write_on_ray(job, folder, advance)
        else:
            _write_rows(job, encoder, folder, advance)
        mark_files(folder)


def _write_rows(job: Job, encoder: "Encoder", folder: Path, advance: Advance) -> None:
    with (
        job.open_stream(None) as stream,
        _Shards(folder, _ends(job), job.shards, finished=job.finished) as shards,
    ):
        for parcel in stream.parcels():
            data, offsets = encoder.encode(parcel.block, parcel.size)
            shards.add(data, offsets)
            advance(parcel.size, data.nbytes)
            del parcel  # Its buffers are free for the next parcel.


def _write_on_ray(job: Job, folder: Path, advance: Advance) -> None:
    with on_ray.tasks(job, folder) as tasks:
        for shard, done in tasks.run(_shards(job, tasks.sent.node.num_rows)):
            with write_errors(folder / shard.name):
                (done.folder / shard.name).rename(folder / shard.name)
            advance(shard.stop - shard.start, done.result)


def _shards(job: Job, num_rows: int) -> Iterator["RecordShard"]:
    """Yield the files that `_Shards` would make: all that are asked for, else those with rows, but at least one."""
    start = number = 0
    for end in _ends(job):
        stop = min(num_rows, end)
        yield RecordShard(_name(number, job.shards), start, stop)
        start, number = stop, number + 1
        if job.shards is None and stop == num_rows:
            return


@dataclass(frozen=True, slots=True)
class RecordShard:
    """A task that writes one file, and returns its bytes."""

    name: str
    start: int
    stop: int

    def perform(self, sent: Sent, folder: Path) -> int:
        """Write the file, and bring it to the disk."""
        encoder = Encoder(sent.node)
        nbytes = 0
        with _Shards(folder, iter([ENDLESS]), None, name=self.name) as shards:
            for parcel in sent.parcels(self.start, self.stop):
                data, offsets = encoder.encode(parcel.block, parcel.size)
                shards.add(data, offsets)
                nbytes += data.nbytes
                del parcel
            with write_errors(shards.path):
                shards.file.flush()
                os.fsync(shards.file.fileno())
        return nbytes


class Encoder:
    """Makes records of rows: float32 and int64 as lists, text as bytes, all else as tensors."""

    def __init__(self, node: Node) -> None:
        if node.is_batched:
            raise ValueError(
                f"a TFRecord holds rows, and {node.describe()} makes batches of them; "
                "write before batching, or after .unbatch()."
            )
        self.fields = node.fields
        names = field_names(node.structure)
        features = [feature_of(field.spec) for field in node.fields]
        self.codec = ExampleCodec(names, features)

    def encode(self, block: Block, size: int) -> tuple[Any, Any]:
        """Return the first `size` rows as framed records, and where each begins and ends."""
        columns = [
            _native_column(column, field, feature, size)
            for column, field, feature in zip(
                block.columns, self.fields, self.codec.features, strict=True
            )
        ]
        return _native.example_encode(self.codec.plan, columns, size)


def feature_of(spec: ArraySpec) -> Feature:
    """Return the feature that a field is written as, and read back with."""
    rank = len(spec.shape)
    is_plain = spec.is_text or spec.numpy_dtype.name in _LISTED
    is_number = (
        not spec.is_text and spec.numpy_dtype.name != "uint64" and spec.numpy_dtype.kind in "biu"
    )
    if spec.shape == (None,) and is_plain:
        return VarFeature(spec.dtype)
    if None not in spec.shape and ((is_plain and rank < 2) or (is_number and rank == 0)):
        return FixedFeature([size for size in spec.shape if size is not None], spec.dtype)
    return TensorFeature(spec.shape, spec.dtype)


def _native_column(column: Column, field: Field, feature: Feature, size: int) -> Any:
    """Return a column in the form that the native encoder reads."""
    if isinstance(column, Fixed):
        rows = column.rows[:size]
        if not rows.dtype.isnative:
            rows = rows.astype(field.spec.numpy_dtype.newbyteorder("="))
        return raw_rows(rows[np.newaxis], 2)
    packed = column.take(np.arange(size), allocate_plain)  # One after the other, without gaps.
    if isinstance(packed, Text):
        return packed.data[: packed.offsets[-1]], packed.offsets, np.ones(size, np.int64)
    sizes = packed.shapes.prod(axis=1, dtype=np.int64)
    parts: tuple[Any, ...]
    if isinstance(packed.values_, Text):
        text = packed.values_
        parts = (text.data[: text.offsets[-1]], text.offsets, sizes)
    else:
        values = packed.values_
        if not values.dtype.isnative:
            values = values.astype(values.dtype.newbyteorder("="))
        parts = (raw_rows(values, 0), sizes)
    if isinstance(feature, TensorFeature) and None in feature.shape:
        parts = (*parts, np.ascontiguousarray(packed.shapes))
    return parts


def _ends(job: Job) -> Iterator[int]:
    """Yield the row at which each shard ends."""
    if job.shards is not None:
        assert job.node.num_rows is not None
        for number in range(1, job.shards + 1):
            yield job.node.num_rows * number // job.shards
        return
    step = job.shard_rows or default_shard_rows(job.node)
    end = 0
    while True:
        end += step
        yield end


def _name(number: int, count: int | None) -> str:
    of = "" if count is None else f"-of-{count:05d}"
    return f"part-{number:05d}{of}.tfrecord"


class _Shards:
    """Files that rows are written to, one after the other."""

    def __init__(
        self,
        folder: Path,
        ends: Iterator[int],
        count: int | None,
        *,
        name: str = "",
        finished: Callable[[Path], None] | None = None,
    ) -> None:
        self.folder = folder
        self.finished = finished
        """Called with each file that is finished."""
        self.name = name
        """The name of the only file; if there may be others, they are numbered."""
        self.ends = ends
        self.count = count
        self.number = 0
        self.row = 0
        self.end = next(ends)
        self.file: BinaryIO = self._open()

    def add(self, data: Any, offsets: Any) -> None:
        """Write framed records."""
        done, size = 0, len(offsets) - 1
        while done < size:
            while self.row == self.end:
                self._next()
            stop = min(size, done + self.end - self.row)
            with write_errors(self.path):
                self.file.write(data[offsets[done] : offsets[stop]])
            self.row += stop - done
            done = stop

    def _close(self) -> None:
        with write_errors(self.path):
            self.file.close()

    def _next(self) -> None:
        self._close()
        if self.finished is not None:
            self.finished(self.path)
        self.number += 1
        self.end = next(self.ends)
        self.file = self._open()

    def _open(self) -> BinaryIO:
        self.path = self.folder / (self.name or _name(self.number, self.count))
        with write_errors(self.path):
            return self.path.open("wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Shards without rows are written, too: the names of the others say how many files there are.
        try:
            while kind is None and self.count is not None and self.number + 1 < self.count:
                self._next()
        finally:
            self._close()
