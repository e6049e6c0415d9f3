"""write(format="npy"): a folder of plain `.npy` shards and a manifest, which NumPy alone can read."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import varying_nbytes
from penstock.core.fingerprint import doubts, fingerprint, made_from
from penstock.core.nest import field_names
from penstock.core.progress import Step
from penstock.core.rows import Node, Rows, rows_per_block
from penstock.core.state import State
from penstock.engine.stream import Stream
from penstock.errors import TargetExistsError, WriteError, warn_user
from penstock.io.atomic import is_empty_folder, swap_folders, sync_folder
from penstock.io.failures import write_errors
from penstock.memory import allocate_plain
from penstock.shards.checks import run_rows_of
from penstock.shards.folder import ShardFolder, changes_of_heads, head_of
from penstock.shards.journal import Head
from penstock.shards.layout import FieldLayout, layouts_of
from penstock.shards.manifest import row_to_json
from penstock.shards.ownership import check_target, discard, discard_records
from penstock.shards.remote_folder import RemoteFolder
from penstock.shards.sequence import (
    SHARD_NBYTES,
    ShardSequence,
    default_shard_rows,
    ends_by_nbytes,
    fixed_nbytes,
    is_cut_by_nbytes,
)
from penstock.shards.writing import ShardRecord, ShardWriter
from penstock.writers import on_ray, to_store
from penstock.writers.job import Job
from penstock.writers.shard_tasks import Sent

_ROW = "row"
"""Marks the cursor of a flow that was written by row numbers, from its cache: the flow can't go on from there."""


def write(job: Job) -> None:
    """Write all rows; the folder appears under its name when it is whole.

    Until then, it is a hidden folder beside that name, and the next call goes on after the shards finished there, if
    they are proven to be made from the same; else it starts over, and says so.
    """
    if job.url:
        _write_to_store(job)
        return
    check_target(job.path, overwrite=job.overwrite)
    hidden = job.path.with_name(f".{job.path.name}.penstock-part")
    with write_errors(job.path):
        is_link = hidden.is_symlink()
    if is_link:
        problem = "this is where unfinished shards go, and it is a link"
        raise TargetExistsError(problem, file=str(hidden), cure="Remove the link.")
    discard_records(hidden)
    folder = ShardFolder.open(
        hidden,
        _layouts(job.node),
        partial(_head, job),
        changes_of_heads,
        run_rows=run_rows_of(job.node.fields),
    )
    if folder is None:
        cure = "Wait for it, or choose another path."
        raise WriteError("another process is writing this", file=str(job.path), cure=cure)
    try:
        if folder.started_over:
            text = f"write starts over: {folder.started_over}."
            warn_user(text)
        if not folder.is_whole:
            if job.engine == "ray":
                _write_on_ray(job, folder)
            else:
                _write_rows(job, folder)
            folder.seal()
        _put_in_place(hidden, job)
    except BaseException as error:
        if folder.finished:
            error.add_note(_what_is_left(folder))
        raise
    finally:
        folder.close()


def _write_to_store(job: Job) -> None:
    """Write all rows behind a URL: shard after shard, the manifest last; the same call goes on after a kill."""
    with to_store.staged(job) as (store, staging):
        layouts, run_rows = _layouts(job.node), run_rows_of(job.node.fields)
        folder = RemoteFolder(store, staging, layouts, run_rows)
        try:
            folder.open(partial(_head, job), changes_of_heads)
            if folder.started_over:
                text = f"write starts over: {folder.started_over}."
                warn_user(text)
            _write_rows(job, folder)
            folder.seal()
        except BaseException as error:
            if folder.finished:
                error.add_note(_what_is_left(folder))
            raise
        finally:
            folder.close()


def _head(job: Job) -> Head:
    layouts = _layouts(job.node)
    made = {**made_from(job.node), "shard_rows": _shard_rows(job)}
    return head_of(made, row_to_json(job.node.structure, layouts), layouts)


def _what_is_left(folder: ShardFolder | RemoteFolder) -> str:
    doubt = doubts(folder.head["made_from"])
    if doubt:
        return f"The same call starts over, since {doubt}."
    where = folder.store if isinstance(folder, RemoteFolder) else folder.path
    return (
        f"{len(folder.finished)} finished shards are kept in {where}: the same call goes on "
        "from there. Remove that folder to start over."
    )


def _layouts(node: Node) -> Any:
    return layouts_of(field_names(node.structure), [field.spec for field in node.fields])


def _shard_rows(job: Job) -> Any:
    """Return what decides where shards end: the user's number of rows, or the default number in a list.

    A call goes on after an interrupted one only if both have the same.
    """
    return job.shard_rows or [default_shard_rows(job.node)]


def _write_rows(job: Job, folder: ShardFolder | RemoteFolder) -> None:
    if any(isinstance(cursor, dict) and _ROW in cursor for cursor in folder.cursors.values()):
        warn_user(
            'write starts over: without engine="ray", this flow can\'t go on after finished shards.'
        )
        folder.finished.clear()
        folder.cursors.clear()
    # Memory outside the ledger will do: only ragged rows with gaps, and arrays of text, are copied, a block at a time.
    shards = ShardSequence(folder, job.node, allocate_plain, job.shard_rows)
    if shards.has_ended:
        return
    done = shards.num_rows
    state = None
    if shards.number:
        state = State(fingerprint(job.node), 0, done, shards.cursor).to_dict()
    try:
        with (
            job.begin(job.node.num_rows, done) as step,
            job.open_stream(state) as stream,
        ):
            _drain(stream, shards, step)
        shards.finish()
    finally:
        shards.close()


def _drain(stream: Stream, shards: ShardSequence, step: Step) -> None:
    for parcel in stream.parcels():
        shards.add(parcel)
        step.advance(parcel.size, parcel.block.nbytes)
        del parcel  # Its buffers are free for the next parcel.


def _write_on_ray(job: Job, folder: ShardFolder) -> None:
    with on_ray.tasks(job, folder.path) as tasks:
        shards = [
            NpyShard(number, start, stop, folder.layouts, folder.run_rows)
            for number, (start, stop) in enumerate(_cuts(job, folder, tasks))
        ]
        done = sum(one.num_rows for one in folder.finished.values())
        num_rows = tasks.sent.node.num_rows
        with job.begin(num_rows, done) as step:
            missing = (one for one in shards if one.number not in folder.finished)
            for shard, found in tasks.run(missing):
                cursor = None  # As in `ShardSequence`: there is nothing after the last one.
                if shard.number < len(shards) - 1:
                    cursor = shard.stop if isinstance(job.node, Rows) else {_ROW: shard.stop}
                folder.adopt(shard.number, found.result, found.folder, cursor)
                record = folder.finished[shard.number]
                step.advance(record.num_rows, sum(one.nbytes for one in record.files.values()))


def _cuts(job: Job, folder: ShardFolder, tasks: on_ray.Tasks) -> list[tuple[int, int]]:
    """Return the first row of each shard, and the row after its last; forget finished shards that are none of them."""
    num_rows = tasks.sent.node.num_rows
    if is_cut_by_nbytes(job.node, job.shard_rows):
        known = _spans_of(folder, num_rows)
        cuts = list(_cuts_by_nbytes(job.node, known, tasks))
    else:
        step = job.shard_rows or default_shard_rows(job.node)
        cuts = [(start, min(num_rows, start + step)) for start in range(0, num_rows, step)]
    cuts = cuts or [(0, 0)]  # Without any row, there is one empty shard.
    for number in list(folder.finished):
        rows = folder.finished[number].num_rows
        if number >= len(cuts) or rows != cuts[number][1] - cuts[number][0]:
            del folder.finished[number], folder.cursors[number]
    return cuts


def _spans_of(folder: ShardFolder, num_rows: int) -> dict[int, tuple[int, int]]:
    """Return which rows each finished shard has, where that is known."""
    found: dict[int, tuple[int, int]] = {}
    for number in sorted(folder.finished):
        cursor, rows = folder.cursors[number], folder.finished[number].num_rows
        before = (0, 0) if number == 0 else found.get(number - 1)
        if before is not None:
            found[number] = (before[1], before[1] + rows)
        else:
            stop = cursor.get(_ROW) if isinstance(cursor, dict) else cursor
            stop = num_rows if cursor is None else stop
            if type(stop) is int:
                found[number] = (stop - rows, stop)
    return found


def _cuts_by_nbytes(
    node: Node, known: Mapping[int, tuple[int, int]], tasks: on_ray.Tasks
) -> Iterator[tuple[int, int]]:
    """Yield the shards of rows that differ in size: those that are finished, and others as the bytes of rows ask."""
    row = number = 0
    num_rows = tasks.sent.node.num_rows
    while row < num_rows:
        if number in known:
            yield known[number]
            row = known[number][1]
            number += 1
            continue
        # Up to the next finished shard, or the end.
        until = min((known[one][0] for one in known if one > number), default=num_rows)
        for end in ends_by_nbytes(row, _sizes(node, row, until, tasks)):
            yield row, end
            row, number = end, number + 1
        if row < until:
            yield row, until
            row, number = until, number + 1


def _sizes(node: Node, start: int, stop: int, tasks: on_ray.Tasks) -> Iterator[Index]:
    """Yield the bytes of each row, in order; as many tasks at a time as can run read the rows for that."""
    step = rows_per_block(node, SHARD_NBYTES)
    for first in range(start, stop, tasks.limit * step):
        last = min(stop, first + tasks.limit * step)
        works = [
            RowSizes(row, min(last, row + step), fixed_nbytes(node))
            for row in range(first, last, step)
        ]
        found = {work.start: done.result for work, done in tasks.run(works)}
        yield from (found[work.start] for work in works)


@dataclass(frozen=True, slots=True)
class NpyShard:
    """A task that writes the files of one shard, and returns what a manifest says of it."""

    number: int
    start: int
    stop: int
    layouts: tuple[FieldLayout, ...]
    run_rows: int

    def perform(self, sent: Sent, folder: Path) -> ShardRecord:
        """Write the files."""
        shard = ShardWriter(
            folder, self.number, self.layouts, start=self.start, run_rows=self.run_rows
        )
        try:
            for parcel in sent.parcels(self.start, self.stop):
                shard.append(parcel.block, 0, parcel.size, allocate_plain)
                del parcel
            return shard.finish()
        finally:
            shard.close()


@dataclass(frozen=True, slots=True)
class RowSizes:
    """A task that returns the bytes of each row, by which shards are cut where rows differ in size."""

    start: int
    stop: int
    fixed_nbytes: int
    """The bytes of the fields of one size."""

    def perform(self, sent: Sent, folder: Path) -> Index:
        """Return as small an array as can hold them."""
        sizes = [np.empty(0, np.int64)]
        for parcel in sent.parcels(self.start, self.stop):
            sizes.append(varying_nbytes(parcel.block, parcel.size) + self.fixed_nbytes)
            del parcel
        found = np.concatenate(sizes)
        return found.astype(np.min_scalar_type(int(found.max(initial=0))))


def _put_in_place(hidden: Path, job: Job) -> None:
    with write_errors(job.path):
        if job.overwrite and os.path.lexists(job.path) and not is_empty_folder(job.path):
            check_target(job.path, overwrite=True)
            swap_folders(hidden, job.path, discard)
        else:
            hidden.rename(job.path)
        sync_folder(job.path.parent)
