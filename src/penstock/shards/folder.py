"""A folder of shards while it is being filled: a lock, a journal of finished shards, a manifest last.

The process that fills the folder holds a lock on it, which the kernel releases when the process dies. Finished
shards are listed in the journal, so that the next process goes on after them. Files of unfinished shards have
hidden names, and are removed.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.errors import TargetExistsError
from penstock.io.failures import write_failure
from penstock.shards.layout import FieldLayout
from penstock.shards.manifest import NAME, Manifest, shard_from_json, shard_to_json
from penstock.shards.writing import ShardRecord, ShardWriter

JOURNAL = ".unfinished.jsonl"
_FRESH = f"{JOURNAL}.new"


class ShardFolder:
    """A folder that this process alone may fill, until it is closed."""

    def __init__(self, path: Path, fd: int, layouts: Sequence[FieldLayout], run_rows: int) -> None:
        self.path = path
        self.layouts = tuple(layouts)
        self.run_rows = run_rows
        """How many rows each checksum of a new shard covers."""
        self.finished: dict[int, ShardRecord] = {}
        self.cursors: dict[int, Any] = {}
        """Where the input stood after each finished shard."""
        self._fd = fd
        self._journal = -1

    @staticmethod
    def open(
        path: Path, layouts: Sequence[FieldLayout], inputs: dict[str, Any], *, run_rows: int
    ) -> "ShardFolder | None":
        """Return the folder, with the shards finished from the same `inputs`; None if another process fills it.

        An unfinished folder that was made from other inputs is emptied first.
        """
        try:
            fd = _lock(path)
        except OSError as error:
            raise write_failure(error, file=str(path)) from error
        if fd is None:
            return None
        folder = ShardFolder(path, fd, layouts, run_rows)
        try:
            folder._start(json.loads(json.dumps(inputs)))
        except OSError as error:
            folder.close()
            raise write_failure(error, file=str(path)) from error
        except BaseException:
            folder.close()
            raise
        return folder

    @property
    def is_whole(self) -> bool:
        """Whether all of it is finished: it has a manifest."""
        return (self.path / NAME).exists()

    def _start(self, inputs: Any) -> None:
        journal = self.path / JOURNAL
        if self.is_whole:
            return
        lines = _lines(journal)
        if not is_ours(self.path):
            cure = "Remove it, or choose another path."
            raise TargetExistsError(
                "this folder holds something else", file=str(self.path), cure=cure
            )
        if lines and lines[0] == inputs:
            for line in lines[1:]:
                self.finished[line["shard"]] = shard_from_json(line)
                self.cursors[line["shard"]] = line["cursor"]
        self._remove_strays()
        # The journal is written anew: its last line may be cut off.
        text = [json.dumps(inputs)]
        text += [self._line(number) for number in self.finished]
        fresh = self.path / _FRESH
        fresh.write_text("\n".join(text) + "\n")
        fresh.replace(journal)
        self._journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def _remove_strays(self) -> None:
        """Remove all files but those of finished shards (nobody else may write here); forget shards that lack files."""
        listed = {name for shard in self.finished.values() for name in shard.files} | {JOURNAL}
        for entry in list(self.path.iterdir()):
            if entry.name not in listed:
                entry.unlink()
        for number, shard in list(self.finished.items()):
            if not all(_has_size(self.path / n, one.nbytes) for n, one in shard.files.items()):
                del self.finished[number], self.cursors[number]

    def _line(self, number: int) -> str:
        cursor = self.cursors[number]
        return json.dumps(
            {"shard": number, "cursor": cursor, **shard_to_json(self.finished[number])}
        )

    def shard(self, number: int, start: int) -> ShardWriter:
        """Return a new shard to write to, whose first row is row `start` of all."""
        return ShardWriter(self.path, number, self.layouts, start=start, run_rows=self.run_rows)

    def record(self, shard: ShardWriter, cursor: Any = None) -> None:
        """Finish a shard, and list it in the journal once its files are on disk."""
        self.finished[shard.number] = shard.finish()
        self.cursors[shard.number] = cursor
        try:
            os.write(self._journal, (self._line(shard.number) + "\n").encode())
            os.fdatasync(self._journal)
        except OSError as error:
            raise write_failure(error, file=str(self.path)) from error

    def seal(self, row: Any, made_from: dict[str, Any]) -> Manifest:
        """Write the manifest: the folder is whole from now on."""
        shards = tuple(self.finished[number] for number in sorted(self.finished))
        manifest = Manifest(row, self.layouts, shards, made_from)
        manifest.write(self.path)
        with contextlib.suppress(OSError):
            (self.path / JOURNAL).unlink()
        return manifest

    def close(self) -> None:
        """Release the lock, so that others may fill the folder; if no shard is finished, remove the folder."""
        if self._journal >= 0:
            os.close(self._journal)
            self._journal = -1
        if self._fd >= 0:
            if not self.finished and not self.is_whole:
                with contextlib.suppress(OSError):
                    (self.path / JOURNAL).unlink(missing_ok=True)
                    self.path.rmdir()
            os.close(self._fd)
            self._fd = -1


def is_unfinished(folder: Path) -> bool:
    """Return whether penstock began to fill a folder, and never finished."""
    return (folder / JOURNAL).exists() and not (folder / NAME).exists()


def is_ours(folder: Path) -> bool:
    """Return whether a folder is empty, or filled by penstock, or being filled."""
    is_empty = next(folder.iterdir(), None) is None
    # In the order in which another process makes these files: none is removed before the next is there.
    return is_empty or any((folder / name).exists() for name in (_FRESH, JOURNAL, NAME))


def _lock(path: Path) -> int | None:
    while True:
        path.mkdir(parents=True, exist_ok=True)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), path.stat()):
                return fd
        except BlockingIOError:
            os.close(fd)
            return None
        except FileNotFoundError:  # The process that had the lock removed or renamed it.
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _lines(journal: Path) -> list[Any] | None:
    """Return the lines of a journal, up to one that is cut off; None if there is no journal."""
    try:
        text = journal.read_text()
    except FileNotFoundError:
        return None
    lines = []
    for line in text.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines


def _has_size(path: Path, nbytes: int) -> bool:
    try:
        return path.stat().st_size == nbytes
    except OSError:
        return False
