"""A folder of shards while it is being filled: a lock, a journal of what was begun and finished, a manifest last.

The process that fills the folder holds a lock on it, which the kernel releases when the process dies. The next process
goes on after the shards that the journal lists as finished, if they were made from the same. Of all else in the folder
only files that the journal lists are removed: others are not ours.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.core.descriptors import Descriptor
from penstock.core.fingerprint import changes
from penstock.core.system import sync_data
from penstock.errors import TargetExistsError, WriteError
from penstock.io.failures import write_errors
from penstock.shards import journal
from penstock.shards.journal import Head, Journal, Journalled, begin_line, read_journal
from penstock.shards.layout import FieldLayout
from penstock.shards.manifest import NAME, Manifest, fields_to_json
from penstock.shards.ownership import is_ours, own_manifest, remove_files
from penstock.shards.writing import ShardRecord, ShardWriter, hidden_name, write_all

Changed = Callable[[Head, Head], str]
"""Takes the head of what is there, and that of now; returns what is different, '' if nothing is. May raise instead."""


def head_of(made_from: dict[str, Any], row: Any, layouts: Sequence[FieldLayout]) -> Head:
    """Return what the rows of a folder are, and what they are made from, as JSON."""
    head = {"made_from": made_from, "row": row, "fields": fields_to_json(layouts)}
    return dict(json.loads(json.dumps(head)))


def changes_of_heads(before: Head, now: Head) -> str:
    """Return what is different between two heads, or can't be compared; '' if all is the same."""
    change = changes(before["made_from"], now["made_from"])
    if not change and any(before.get(one) != now[one] for one in ("row", "fields")):
        change = "its rows have other fields"
    wanted = now["made_from"].get("shard_rows")  # Of no matter to who only reads.
    if not change and wanted is not None and before["made_from"].get("shard_rows") != wanted:
        change = "its shards have another number of rows"
    return change


class ShardFolder(Journalled):
    """A folder that this process alone may fill, until it is closed."""

    def __init__(
        self, path: Path, fd: Descriptor, layouts: Sequence[FieldLayout], run_rows: int
    ) -> None:
        self.path = path
        self.layouts = tuple(layouts)
        self.run_rows = run_rows
        """How many rows each checksum of a new shard covers."""
        self.started_over = ""
        """Why finished shards that were there are not used, and how many there were; '' if there were none."""
        self._journal = Journal({})
        self._fd = fd
        self._file = Descriptor(-1)
        self._is_cut_off = False
        """Whether the last line of the journal may be."""

    @staticmethod
    def open(
        path: Path,
        layouts: Sequence[FieldLayout],
        find_head: Callable[[], Head],
        changed: Changed,
        *,
        run_rows: int,
    ) -> "ShardFolder | None":
        """Return the folder, with its finished shards; None if another process fills it.

        What the rows are made from is only found out if no other process does. What `changed` says is different is
        removed first, as far as it is ours.
        """
        with write_errors(path):
            fd = _lock(path)
        if fd is None:
            return None
        folder = ShardFolder(path, fd, layouts, run_rows)
        try:
            with write_errors(path):
                folder._journal.head = find_head()
                folder._start(changed)
        except BaseException:
            folder.close()
            raise
        return folder

    @property
    def is_whole(self) -> bool:
        """Whether all of it is finished: it has a manifest."""
        return os.path.exists(self.path / NAME)  # noqa: PTH110  # Path.exists raises if the disk fails.

    def _start(self, changed: Changed) -> None:
        if not is_ours(self.path):
            cure = "Remove it, or choose another path."
            raise TargetExistsError(
                "this folder holds something else", file=str(self.path), cure=cure
            )
        whole, before = own_manifest(self.path), read_journal(self.path)
        if whole is None and self.is_whole:
            raise _not_ours(self.path / NAME)
        if whole is not None:
            head = head_of(whole.made_from, whole.row, whole.layouts)
            change = changed(head, self.head)
            if not change and all(map(self._is_there, whole.shards)):
                remove_files(self.path, {journal.NAME})  # A kill came right after the manifest.
                return
            self._start_over(len(whole.shards), change or "files of it are missing")
            names = {name for shard in whole.shards for name in shard.files}
            for name in remove_files(self.path, names | {NAME}):
                problem = "this is left of something else that was written, and can't be removed"
                cure = "Remove it yourself, or choose another path."
                raise WriteError(problem, file=str(self.path / name), cure=cure)
        if before is not None:
            self._go_on(before, changed)
        # The journal is written anew: its last line may be cut off.
        self._journal.write(self.path)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        self._file = Descriptor(os.open(self.path / journal.NAME, flags), is_private=True)

    def _go_on(self, before: Journal, changed: Changed) -> None:
        """Take over finished shards if they were made from the same; remove all other files that were begun."""
        good = {n: one for n, one in before.finished.items() if self._is_there(one)}
        change = changed(before.head, self.head) if good else ""
        if change:
            self._start_over(len(good), change)
        else:
            self.finished.update(good)
            self.cursors.update((number, before.cursors[number]) for number in good)
        kept = {name for shard in self.finished.values() for name in shard.files}
        self._journal.names = set(before.names)
        self._remove_begun(kept)

    def _remove_begun(self, kept: set[str]) -> None:
        """Remove all files that were begun but `kept`; what can't be removed stays listed."""
        gone = self._journal.names - kept
        left = remove_files(self.path, gone | set(map(hidden_name, gone)))
        self._journal.names = kept | {name for name in gone if {name, hidden_name(name)} & left}

    def _start_over(self, count: int, change: str) -> None:
        what = f"the {count} finished shards" if count > 1 else "the finished shard"
        self.started_over = f"{what} in {self.path} could not be used: {change}"

    def _is_there(self, shard: ShardRecord) -> bool:
        return all(_has_size(self.path / name, one.nbytes) for name, one in shard.files.items())

    def shard(self, number: int, start: int) -> ShardWriter:
        """Return a new shard to write to, whose first row is row `start` of all.

        Raise if a file of someone else's has the name of one of its files.
        """
        self._begin(number)
        return ShardWriter(self.path, number, self.layouts, start=start, run_rows=self.run_rows)

    def _begin(self, number: int) -> None:
        """List the files of a shard in the journal, before they are there; raise if others have their names."""
        names = [name for layout in self.layouts for name in layout.file_names(number)]
        for name in names:
            for path in (self.path / name, self.path / hidden_name(name)):
                if name in self._journal.names and not path.is_dir():
                    with write_errors(path):
                        path.unlink(missing_ok=True)  # Of a shard that is written again.
                elif os.path.lexists(path):
                    raise _not_ours(path)
        self._append(begin_line(names))
        self._journal.names.update(names)

    def record(self, shard: ShardWriter, cursor: Any = None) -> None:
        """Finish a shard, and list it in the journal once its files are on disk."""
        self._list(shard.number, shard.finish(), cursor)

    def adopt(self, number: int, shard: ShardRecord, files: Path, cursor: Any) -> None:
        """Take over a shard that a task has finished in the folder `files`, and list it in the journal."""
        self._begin(number)
        for name in shard.files:
            with write_errors(self.path / name):
                (files / name).rename(self.path / name)
        self._list(number, shard, cursor)

    def _list(self, number: int, shard: ShardRecord, cursor: Any) -> None:
        self.finished[number] = shard
        self.cursors[number] = cursor
        self._append(self._journal.line(number))

    def _append(self, line: str) -> None:
        with write_errors(self.path / journal.NAME):
            # After an error, a part of the line before may be there: only that line is lost.
            text = f"\n{line}" if self._is_cut_off else line
            self._is_cut_off = True
            write_all(self._file.number, memoryview(text.encode()))
            sync_data(self._file.number)
            self._is_cut_off = False

    def seal(self) -> Manifest:
        """Write the manifest: the folder is whole from now on."""
        shards = tuple(self.finished[number] for number in sorted(self.finished))
        head = self.head
        manifest = Manifest(head["row"], self.layouts, shards, head["made_from"])
        manifest.write(self.path)
        with contextlib.suppress(OSError):
            (self.path / journal.NAME).unlink()
        return manifest

    def close(self) -> None:
        """Release the lock, so that others may fill the folder; if no shard is finished, remove the folder.

        Files that were begun are removed first. The journal stays as long as one of them does: else nobody would
        know that it is ours, and it would be in the way for ever.
        """
        if self._file.number >= 0:
            with contextlib.suppress(OSError):
                self._file.close()
            if not self.is_whole:
                kept = {name for shard in self.finished.values() for name in shard.files}
                self._remove_begun(kept)
                if not self._journal.names:
                    remove_files(self.path, {journal.NAME})
        if self._fd.number >= 0:
            with contextlib.suppress(OSError):  # Nearly always: it is not empty.
                self.path.rmdir()
            self._fd.close()


def _not_ours(path: Path) -> TargetExistsError:
    cure = "Move it elsewhere, or choose another path."
    problem = "this was not written by penstock, and is not overwritten"
    return TargetExistsError(problem, file=str(path), cure=cure)


def _lock(path: Path) -> Descriptor | None:
    while True:
        path.mkdir(parents=True, exist_ok=True)
        try:
            fd = Descriptor(
                os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), is_private=True
            )
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(fd.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd.number), path.stat()):
                return fd
        except BlockingIOError:
            fd.close()
            return None
        except FileNotFoundError:  # The process that had the lock removed or renamed it.
            pass
        except BaseException:
            fd.close()
            raise
        fd.close()


def _has_size(path: Path, nbytes: int) -> bool:
    try:
        return path.stat().st_size == nbytes
    except OSError:
        return False
