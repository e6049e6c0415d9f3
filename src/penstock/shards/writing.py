"""One shard of rows while it is being written: a plain `.npy` file for each array of each field."""

import contextlib
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import Index, raw_rows
from penstock.core.blocks import Block
from penstock.core.columns import Column, Fixed, Ragged, Text
from penstock.core.descriptors import Descriptor
from penstock.core.system import drop_from_page_cache, sync_data
from penstock.io.failures import write_errors
from penstock.io.formats.npy_header import format_header
from penstock.memory import Allocate
from penstock.shards.checks import LAYOUT, RunSums
from penstock.shards.layout import CHECKS, ArrayLayout, FieldLayout

# Written pages count against a container's memory until they are on disk.
_FLUSH_NBYTES = 32 << 20
_NO_ENDS: Index = np.empty(0, np.int64)
_ONE: Index = np.ones(1, np.int64)


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What a manifest says of one file: its size, and the CRC-32 of the array in it."""

    nbytes: int
    crc32: int


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """What a manifest says of one shard."""

    num_rows: int
    files: dict[str, FileRecord]
    run_rows: int = 0
    """How many rows each checksum of an array's file covers; 0 if there are no such checksums."""
    first_run_rows: int = 0
    """How many rows the first checksum covers: runs go on from one shard to the next."""


def hidden_name(name: str) -> str:
    """Return what a file is called until it is finished."""
    return f".{name}.unfinished"


def write_all(fd: int, data: memoryview) -> None:
    """Write all bytes to a descriptor: the system may take fewer at a time."""
    done = 0
    while done < len(data):
        done += os.write(fd, data[done:])


class Growing(Protocol):
    """An array that entries are added to: a file, or an array of a store."""

    num_entries: int

    def append(self, entries: npt.NDArray[Any], ends: Index = _NO_ENDS) -> None:
        """Add entries, which lie one after the other in memory; runs of rows end after `ends` of them."""
        ...


class ArrayFile:
    """An `.npy` file that grows; it has a hidden name until it is finished."""

    def __init__(self, folder: Path, name: str, layout: ArrayLayout) -> None:
        self.path = folder / name
        self.hidden = folder / hidden_name(name)
        self.layout = layout
        self.num_entries = 0
        self.crc32 = 0
        self.sums = RunSums()
        self.header = format_header(layout.dtype, (0, *layout.shape))
        with write_errors(self.path):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._descriptor = Descriptor(os.open(self.hidden, flags, 0o666), is_private=True)
        try:
            self._write(memoryview(self.header))
        except BaseException:
            self.close(is_finished=False)  # Nobody has it yet who could.
            raise

    @property
    def fd(self) -> int:
        """The descriptor of the open file."""
        return self._descriptor.number

    @property
    def nbytes(self) -> int:
        """The bytes of the file so far."""
        return len(self.header) + self.num_entries * self.layout.entry_nbytes

    def append(self, entries: npt.NDArray[Any], ends: Index = _NO_ENDS) -> None:
        """Add entries, which lie one after the other in memory; runs of rows end after `ends` of them."""
        data = raw_rows(entries, 0)
        self._write(data.data)
        self.crc32 = zlib.crc32(data.data, self.crc32)
        self.sums.add(data, ends * self.layout.entry_nbytes)
        self.num_entries += len(entries)

    def _write(self, data: memoryview) -> None:
        with write_errors(self.path):
            write_all(self.fd, data)

    def flush(self) -> None:
        """Bring what was written to the disk, and drop it from the page cache."""
        with write_errors(self.path):
            sync_data(self.fd)
        drop_from_page_cache(self.fd)

    def finish(self) -> FileRecord:
        """Write the header with the final length, and give the file its name."""
        header = format_header(self.layout.dtype, (self.num_entries, *self.layout.shape))
        assert len(header) == len(self.header)
        with write_errors(self.path):
            os.lseek(self.fd, 0, os.SEEK_SET)
            write_all(self.fd, memoryview(header))
            self.flush()
            self.hidden.rename(self.path)
        return FileRecord(self.nbytes, self.crc32)

    def close(self, *, is_finished: bool) -> None:
        """Close the file, and remove it unless it is finished."""
        # Else it was closed before, or is the parent's, in a forked child.
        is_ours = self._descriptor.number >= 0
        # Some disks say only now what failed; what is finished was synced.
        with contextlib.suppress(OSError):
            self._descriptor.close()
        if is_ours and not is_finished:
            with contextlib.suppress(OSError):
                self.hidden.unlink()


class ShardWriter:
    """The files of one shard. Takes no memory, except to copy ragged rows with gaps, and arrays of text.

    `start` is how many rows the shards before it have: runs of `run_rows` rows are counted from the very first.
    """

    def __init__(
        self,
        folder: Path,
        number: int,
        layouts: Sequence[FieldLayout],
        *,
        start: int,
        run_rows: int,
    ) -> None:
        self.folder = folder
        self.number = number
        self.start = start
        self.run_rows = run_rows
        self.layouts = layouts
        self.num_rows = 0
        self._unflushed = 0
        self._is_finished = False
        self.files: list[dict[str, ArrayFile]] = []
        try:
            for layout in layouts:
                files: dict[str, ArrayFile] = {}
                self.files.append(files)
                for role, array in layout.arrays.items():
                    files[role] = ArrayFile(folder, layout.file_name(role, number), array)
                for role in files.keys() & {"offsets", "items"}:
                    files[role].append(np.zeros(1, np.int64))
        except BaseException:
            self.close()
            raise

    @property
    def nbytes(self) -> int:
        """The bytes of all files so far."""
        return sum(file.nbytes for files in self.files for file in files.values())

    def append(self, block: Block, start: int, stop: int, allocate: Allocate) -> None:
        """Add rows `start` to `stop` of a finished block."""
        if start == stop:
            return
        before = self.nbytes
        done = self.start + self.num_rows
        ends = np.arange(-done % self.run_rows or self.run_rows, stop - start + 1, self.run_rows)
        for layout, files, column in zip(self.layouts, self.files, block.columns, strict=True):
            append_column(layout, files, column, start, stop, ends, allocate)
        self.num_rows += stop - start
        self._unflushed += self.nbytes - before
        if self._unflushed >= _FLUSH_NBYTES:
            self._unflushed = 0
            for files in self.files:
                for file in files.values():
                    file.flush()

    def finish(self) -> ShardRecord:
        """Bring all files to the disk, and give them their names."""
        records = {file.path.name: file.finish() for files in self.files for file in files.values()}
        records |= {
            f"{file.path.name}{CHECKS}": self._write_checks(file)
            for files in self.files
            for file in files.values()
        }
        self._is_finished = True
        self.close()
        first = self.run_rows - self.start % self.run_rows
        return ShardRecord(self.num_rows, records, self.run_rows, first)

    def _write_checks(self, file: ArrayFile) -> FileRecord:
        """Write the checksums of one array to a file beside it."""
        is_open = self.num_rows > 0 and (self.start + self.num_rows) % self.run_rows > 0
        checks = ArrayFile(self.folder, f"{file.path.name}{CHECKS}", LAYOUT)
        is_finished = False
        try:
            checks.append(file.sums.all(with_open=is_open))
            record = checks.finish()
            is_finished = True
        finally:
            checks.close(is_finished=is_finished)
        return record

    def close(self) -> None:
        """Close the files; those of a shard that is not finished are removed."""
        for files in self.files:
            for file in files.values():
                file.close(is_finished=self._is_finished)
        self.files = []


def append_column(
    layout: FieldLayout,
    files: Mapping[str, Growing],
    column: Column,
    start: int,
    stop: int,
    ends: Index,
    allocate: Allocate,
) -> None:
    """Add rows of a column to the arrays that hold its field; runs of rows end after `ends` rows."""
    if layout.is_fixed:
        assert isinstance(column, Fixed)
        _each(column, start, stop, files["rows"], ends)
    else:
        _append_varying(layout, files, column, start, stop, ends, allocate)


def _append_varying(
    layout: FieldLayout,
    files: Mapping[str, Growing],
    column: Column,
    start: int,
    stop: int,
    ends: Index,
    allocate: Allocate,
) -> None:
    """Add rows of differing sizes; runs of rows end after `ends` rows."""
    if isinstance(column, Text):
        before = files["values"].num_entries
        _append_text(files["values"], files["offsets"], column, start, stop, before, ends)
        return
    shapes = _shapes(column, start, stop)
    sizes = shapes.prod(axis=1) if layout.inner_shape is None else shapes[:, 0]
    item_ends = np.cumsum(sizes)
    inner_ends = item_ends[ends - 1]
    if isinstance(column, Fixed):  # Batches, some of them cut short.
        before = files["values"].num_entries
        for row, is_last in zip(range(start, stop), _are_last(stop - start, ends), strict=True):
            value = column.value(row)
            files["values"].append(value, np.array([len(value)]) if is_last else _NO_ENDS)
    else:
        values = _packed(column, start, stop, allocate)
        if isinstance(values, Text):
            before = files["items"].num_entries - 1
            nbytes = files["values"].num_entries
            _append_text(
                files["values"], files["items"], values, 0, len(values), nbytes, inner_ends
            )
        else:
            before = files["values"].num_entries
            inner = layout.inner_shape or ()
            files["values"].append(values.reshape(int(sizes.sum()), *inner), inner_ends)
    files["offsets"].append(before + item_ends, ends)
    if "shapes" in files:
        files["shapes"].append(np.ascontiguousarray(shapes), ends)


def _packed(column: Ragged, start: int, stop: int, allocate: Allocate) -> "npt.NDArray[Any] | Text":
    """Return the values of rows without gaps: a view where there are none, else a copy."""
    starts, sizes = column.starts[start:stop], column.shapes[start:stop].prod(axis=1)
    if not isinstance(column.values_, Text) and (starts[1:] == (starts + sizes)[:-1]).all():
        return column.values_[starts[0] : starts[-1] + sizes[-1]]
    values = column.take(np.arange(start, stop), allocate).values_
    return values if isinstance(values, Text) else values[: int(sizes.sum())]


def _shapes(column: Fixed | Ragged, start: int, stop: int) -> Index:
    """Return the shape of each row."""
    if isinstance(column, Ragged):
        return column.shapes[start:stop]
    full = column.grouped.shape[2:]
    shapes = np.tile(np.array(full, np.int64), (stop - start, 1))
    if column.lengths is not None:
        shapes[:, 0] = column.lengths[start:stop]
    return shapes


def _append_text(
    data: Growing,
    offsets: Growing,
    text: Text,
    start: int,
    stop: int,
    before: int,
    ends: Index,
) -> None:
    """Add texts and where they end; runs of rows end after `ends` texts."""
    first, last = int(text.offsets[start]), int(text.offsets[stop])
    data.append(text.data[first:last], text.offsets[start + ends] - first)
    offsets.append(text.offsets[start + 1 : stop + 1] - first + before, ends)


def _each(column: Fixed, start: int, stop: int, file: Growing, ends: Index) -> None:
    rows = column.rows[start:stop]
    if rows.flags.c_contiguous:
        file.append(rows, ends)
        return
    # Batches, each aligned to 64 bytes: there are gaps between them.
    for row, is_last in zip(rows, _are_last(stop - start, ends), strict=True):
        file.append(row[None], _ONE if is_last else _NO_ENDS)


def _are_last(num_rows: int, ends: Index) -> list[bool]:
    """Return for each row whether a run of rows ends with it."""
    found = np.zeros(num_rows, np.bool_)
    found[ends - 1] = True
    return found.tolist()
