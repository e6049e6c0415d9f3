"""write(format="npy"): a folder of plain `.npy` shards and a manifest, which NumPy alone can read."""

import os
from functools import partial
from pathlib import Path
from typing import Any

from penstock.core.fingerprint import doubts, fingerprint, made_from
from penstock.core.nest import field_names
from penstock.core.rows import Node
from penstock.core.state import State
from penstock.engine.stream import Stream
from penstock.errors import TargetExistsError, WriteError, warn_user
from penstock.io.atomic import is_empty_folder, swap_folders, sync_folder
from penstock.io.failures import write_errors
from penstock.memory import allocate_plain
from penstock.shards.checks import run_rows_of
from penstock.shards.folder import Head, ShardFolder, changes_of_heads, head_of
from penstock.shards.layout import layouts_of
from penstock.shards.manifest import row_to_json
from penstock.shards.ownership import check_target, discard, discard_records
from penstock.shards.sequence import ShardSequence, default_shard_rows
from penstock.writers.job import Job
from penstock.writers.progress import Advance, progress_bar


def write(job: Job) -> None:
    """Write all rows; the folder appears under its name when it is whole.

    Until then, it is a hidden folder beside that name, and the next call goes on after the shards finished there, if
    they are proven to be made from the same; else it starts over, and says so.
    """
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
            _write_rows(job, folder)
            folder.seal()
        _put_in_place(hidden, job)
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


def _what_is_left(folder: ShardFolder) -> str:
    doubt = doubts(folder.head["made_from"])
    if doubt:
        return f"The same call starts over, since {doubt}."
    return (
        f"{len(folder.finished)} finished shards are kept in {folder.path}: the same call goes on "
        "from there. Remove that folder to start over."
    )


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


def _put_in_place(hidden: Path, job: Job) -> None:
    with write_errors(job.path):
        if job.overwrite and os.path.lexists(job.path) and not is_empty_folder(job.path):
            check_target(job.path, overwrite=True)
            swap_folders(hidden, job.path, discard)
        else:
            hidden.rename(job.path)
        sync_folder(job.path.parent)
