"""write(format="npy"): a folder of plain `.npy` shards and a manifest, which NumPy alone can read."""

import os
from pathlib import Path
from typing import Any

from penstock.core.fingerprint import fingerprint, made_from
from penstock.core.nest import field_names
from penstock.core.rows import Node
from penstock.core.state import State
from penstock.engine.stream import Stream
from penstock.errors import TargetExistsError, WriteError
from penstock.io.atomic import is_empty_folder
from penstock.io.failures import write_failure
from penstock.io.leftovers import remove
from penstock.memory import allocate_plain
from penstock.shards.checks import run_rows_of
from penstock.shards.folder import ShardFolder, is_unfinished
from penstock.shards.layout import layouts_of
from penstock.shards.manifest import NAME, row_to_json
from penstock.shards.sequence import ShardSequence, default_shard_rows
from penstock.writers.job import Job
from penstock.writers.progress import Advance, progress_bar


def write(job: Job) -> None:
    """Write all rows; the folder appears under its name when it is whole.

    Until then, it is a hidden folder beside that name, and the next call goes on after the shards finished there.
    """
    _check_target(job)
    row = row_to_json(job.node.structure, _layouts(job.node))
    inputs = made_from(job.node)
    hidden = job.path.with_name(f".{job.path.name}.penstock-part")
    folder = ShardFolder.open(
        hidden,
        _layouts(job.node),
        {"made_from": inputs, "shard_rows": _shard_rows(job)},
        run_rows=run_rows_of(job.node.fields),
    )
    if folder is None:
        cure = "Wait for it, or choose another path."
        raise WriteError("another process is writing this", file=str(job.path), cure=cure)
    try:
        if not folder.is_whole:
            _write_rows(job, folder)
            folder.seal(row, inputs)
        _put_in_place(hidden, job)
    except BaseException as error:
        if folder.finished:
            error.add_note(
                f"{len(folder.finished)} finished shards are kept in {hidden}: the same call goes on "
                "from there. Remove that folder to start over."
            )
        raise
    finally:
        folder.close()


def _layouts(node: Node) -> Any:
    return layouts_of(field_names(node.structure), [field.spec for field in node.fields])


def _shard_rows(job: Job) -> Any:
    """Return what decides where shards end: the user's number of rows, or the default number in a list.

    A call goes on after an interrupted one only if both have the same.
    """
    return job.shard_rows or [default_shard_rows(job.node)]


def _write_rows(job: Job, folder: ShardFolder) -> None:
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
            progress_bar(
                job.path.name, num_rows=job.node.num_rows, done=done, wanted=job.progress
            ) as advance,
            job.open_stream(state) as stream,
        ):
            _drain(stream, shards, advance)
        shards.finish()
    finally:
        shards.close()


def _drain(stream: Stream, shards: ShardSequence, advance: Advance) -> None:
    for parcel in stream.parcels():
        shards.add(parcel)
        advance(parcel.size, parcel.block.nbytes)
        del parcel  # Its buffers are free for the next parcel.


def _check_target(job: Job) -> None:
    path = job.path
    if not os.path.lexists(path) or is_empty_folder(path):
        return
    if not job.overwrite:
        cure = "Remove it, choose another path, or write overwrite=True."
        raise TargetExistsError("this exists already", file=str(path), cure=cure)
    if not (path.is_dir() and ((path / NAME).exists() or is_unfinished(path))):
        cure = "Remove it yourself if it may go, or choose another path."
        raise TargetExistsError(
            "this was not written by penstock, and is not overwritten", file=str(path), cure=cure
        )


def _put_in_place(hidden: Path, job: Job) -> None:
    try:
        if job.overwrite and job.path.is_dir():
            remove(job.path)
        hidden.rename(job.path)
        fd = os.open(job.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise write_failure(error, file=str(job.path)) from error
