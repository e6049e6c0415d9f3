"""Folders of part files, one after the other: what the formats have in common that keep whole rows in a file.

A format says how a block is encoded, and how encoded rows are put into a file. The folder appears under its name when
it is whole; its files are marked as ours, since no list is beside them: other libraries take every file for data.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from penstock.core.blocks import Block
from penstock.core.progress import Step
from penstock.core.rows import ENDLESS, Node
from penstock.io.atomic import atomic_directory
from penstock.io.failures import write_errors
from penstock.shards.ownership import check_target, discard, mark_files
from penstock.shards.sequence import default_shard_rows
from penstock.writers import on_ray
from penstock.writers.job import Job
from penstock.writers.shard_tasks import Sent


class PartFile(Protocol):
    """A file that rows are added to."""

    def add(self, encoded: Any, start: int, stop: int) -> None:
        """Write rows `start` to `stop` of what `encode` returned."""
        ...

    def finish(self) -> None:
        """Write what is left, and bring it to the disk."""
        ...

    def close(self) -> None:
        """Close the file, finished or not."""
        ...


class PartFormat(Protocol):
    """How rows of one dataset are put into files."""

    suffix: str

    def encode(self, block: Block, size: int, first_row: int) -> tuple[Any, int]:
        """Return the first `size` rows as `PartFile.add` takes them, and about how many bytes they have.

        The first is row `first_row` of all, for messages.
        """
        ...

    def open(self, path: Path, first_row: int) -> PartFile:
        """Return a new file, whose first row is row `first_row` of all."""
        ...


MakeFormat = Callable[[Node], PartFormat]
"""Raises if the format can't hold the rows of a node. A class, or a function that can be pickled by its name."""


def write_parts(job: Job, make_format: MakeFormat) -> None:
    """Write all rows; the folder appears under its name when it is whole.

    Takes the memory of a stream, and of what the format makes of a block.
    """
    kind = make_format(job.node)
    check_target(job.path, overwrite=job.overwrite)
    with (
        atomic_directory(job.path, replace=job.overwrite, discard=discard) as folder,
        job.begin(job.node.num_rows) as step,
    ):
        if job.engine == "ray":
            _write_on_ray(job, kind, make_format, folder, step)
        else:
            _write_rows(job, kind, folder, step)
        mark_files(folder)


def _write_rows(job: Job, kind: PartFormat, folder: Path, step: Step) -> None:
    with (
        job.open_stream(None) as stream,
        _Parts(folder, kind, _ends(job), job.shards, finished=job.finished) as parts,
    ):
        for parcel in stream.parcels():
            step.advance(parcel.size, parts.add(parcel.block, parcel.size))
            del parcel  # Its buffers are free for the next parcel.


def _write_on_ray(
    job: Job, kind: PartFormat, make_format: MakeFormat, folder: Path, step: Step
) -> None:
    with on_ray.tasks(job, folder) as tasks:
        works = _works(job, kind, make_format, tasks.sent.node.num_rows)
        for work, done in tasks.run(works):
            with write_errors(folder / work.name):
                (done.folder / work.name).rename(folder / work.name)
            step.advance(work.stop - work.start, done.result)


def _works(
    job: Job, kind: PartFormat, make_format: MakeFormat, num_rows: int
) -> Iterator["PartWork"]:
    """Yield the files that `_Parts` would make: all that are asked for, else those with rows, but at least one."""
    start = number = 0
    for end in _ends(job):
        stop = min(num_rows, end)
        name = _name(number, job.shards, kind.suffix)
        yield PartWork(name, start, stop, make_format)
        start, number = stop, number + 1
        if job.shards is None and stop == num_rows:
            return


@dataclass(frozen=True, slots=True)
class PartWork:
    """A task that writes one file, and returns its bytes."""

    name: str
    start: int
    stop: int
    make_format: MakeFormat

    def perform(self, sent: Sent, folder: Path) -> int:
        """Write the file, and bring it to the disk."""
        kind = self.make_format(sent.node)
        nbytes = 0
        ends = iter([ENDLESS])
        with _Parts(folder, kind, ends, None, name=self.name, row=self.start) as parts:
            for parcel in sent.parcels(self.start, self.stop):
                nbytes += parts.add(parcel.block, parcel.size)
                del parcel
        return nbytes


def _ends(job: Job) -> Iterator[int]:
    """Yield the row at which each file ends."""
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


def _name(number: int, count: int | None, suffix: str) -> str:
    of = "" if count is None else f"-of-{count:05d}"
    return f"part-{number:05d}{of}{suffix}"


class _Parts:
    """Files that rows are written to, one after the other."""

    def __init__(
        self,
        folder: Path,
        kind: PartFormat,
        ends: Iterator[int],
        count: int | None,
        *,
        name: str = "",
        row: int = 0,
        finished: Callable[[Path], None] | None = None,
    ) -> None:
        self.folder = folder
        self.finished = finished
        """Called with each file that is finished, but for the last."""
        self.kind = kind
        self.name = name
        """The name of the only file; if there may be others, they are numbered."""
        self.ends = ends
        self.count = count
        self.number = 0
        self.row = row
        self.end = next(ends)
        self.file = self._open()

    def add(self, block: Block, size: int) -> int:
        """Write the first rows of a block; return about how many bytes they have."""
        encoded, nbytes = self.kind.encode(block, size, self.row)
        done = 0
        while done < size:
            while self.row == self.end:
                self._next()
            stop = min(size, done + self.end - self.row)
            self.file.add(encoded, done, stop)
            self.row += stop - done
            done = stop
        return nbytes

    def _next(self) -> None:
        self.file.finish()
        self.file.close()
        if self.finished is not None:
            self.finished(self.path)
        self.number += 1
        self.end = next(self.ends)
        self.file = self._open()

    def _open(self) -> PartFile:
        name = self.name or _name(self.number, self.count, self.kind.suffix)
        self.path = self.folder / name
        return self.kind.open(self.path, self.row)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with contextlib.closing(self):
            if kind is None:
                # Files without rows are written, too: the names of the others say how many there are.
                while self.count is not None and self.number + 1 < self.count:
                    self._next()
                self.file.finish()

    def close(self) -> None:
        """Close the file that is open."""
        self.file.close()
