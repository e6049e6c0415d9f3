"""Where rows go behind a URL: any format writes its files on this machine, and each is sent when it is finished.

Objects can't be renamed, so there is no folder that appears in one step. An object that says so is there as long as the
folder is not whole, and `from_files` and `from_tfrecord` refuse a folder with it.
"""

import contextlib
import json
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.errors import FileError, TargetExistsError, WriteError
from penstock.io.atomic import remove_leftovers, temporary_folder
from penstock.io.location import Location
from penstock.io.remote.store import ObjectStore
from penstock.shards import journal
from penstock.shards.manifest import MAX_NBYTES
from penstock.writers.job import Job

_FILES, _OWNER = "files", "owner"


def check(job: Job) -> None:
    """Raise if what is asked for can't be done behind a URL."""
    signs = sorted(set(job.url) & set("*?["))
    if signs:
        raise ValueError(
            f"a URL to write to must not have {' or '.join(signs)} in it, got {job.url}: "
            "from_files takes that for a pattern."
        )
    if job.overwrite:
        raise ValueError(
            "overwrite=True is for folders on this machine: an object store can't exchange two folders in one step. "
            f"Remove {job.url} first, or choose another path."
        )
    if job.engine == "ray":
        raise ValueError(
            'engine="ray" writes to a folder that all nodes share, got a URL: write there first and copy it, '
            "or write without engine."
        )


def write(job: Job, writer: Callable[[Job], None]) -> None:
    """Write all rows with the writer of a format; the files that it finishes early are sent early."""
    with staged(job) as (store, folder):
        sent = SentFiles(store)
        sent.begin()
        try:
            writer(replace(job, path=folder / "out", finished=sent.send))
            sent.send_all(folder / "out")
            sent.seal()
        except BaseException:
            sent.abandon()
            raise


@contextlib.contextmanager
def staged(job: Job) -> Iterator[tuple[ObjectStore, Path]]:
    """Give where files go in the end, and a folder on this machine for those that are being written."""
    scratch = Path(job.options.scratch or tempfile.gettempdir())
    remove_leftovers(scratch)  # Of calls that were killed.
    with (
        ObjectStore(job.url, job.storage_options) as store,
        temporary_folder(scratch / "penstock-upload") as folder,
    ):
        yield store, folder


class SentFiles:
    """Files of any format on their way to a store; the names of all of them are listed there before they are."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._owner = secrets.token_hex(16)
        self._is_ours = False
        self._sent: dict[str, Location | None] = {}
        """Each file as it was when it had been sent; None for those that are not there yet."""

    def begin(self) -> None:
        """Say that the folder is not finished; remove what a killed write left, and nothing else."""
        found = self.store.names()
        left = _listed(self.store) if journal.NAME in found else None
        if found and left is None:
            cure = "Remove it, or choose another path."
            raise TargetExistsError("this exists already", file=str(self.store), cure=cure)
        for name in sorted(found.keys() - {journal.NAME} - (left or set())):
            raise TargetExistsError(
                f"{name!r} in this folder was not written by penstock",
                file=str(self.store),
                cure="Move it elsewhere, or choose another path.",
            )
        self.store.remove(found.keys() - {journal.NAME})
        self._list(())

    def send(self, path: Path, name: str = "") -> None:
        """Send a file that is finished, and remove it here."""
        name = name or path.name
        self._list([name])
        self._send(path, name)

    def send_all(self, folder: Path) -> None:
        """Send all files that are left in a folder, under the names that they have in it."""
        left = {
            path.relative_to(folder).as_posix(): path
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        if left:
            self._list(left)
        for name, path in left.items():
            self._send(path, name)

    def _send(self, path: Path, name: str) -> None:
        found = self.store.put_file(name, path)
        if found.size != path.stat().st_size:
            raise self._changed(name)
        self._sent[name] = found
        path.unlink()

    def _list(self, names: Iterable[str]) -> None:
        if self._is_ours:
            self._check_owner()
        for name in names:
            self._sent.setdefault(name, None)
        value = {_FILES: sorted(self._sent), _OWNER: self._owner}
        self.store.put(journal.NAME, json.dumps(value).encode())
        self._is_ours = True

    def _check_owner(self) -> None:
        """Raise if another process has taken the folder over: it was started later, and may write other rows."""
        if _parsed(self.store).get(_OWNER) != self._owner:
            self._is_ours = False
            cure = "Let one process write to a path: wait for it, or choose another path."
            problem = "another process has begun to write here"
            raise WriteError(problem, file=str(self.store), cure=cure)

    def _changed(self, name: str) -> WriteError:
        cure = "Let one process write to a path: wait for it, or choose another path."
        return WriteError(f"{name!r} is not what was written", file=str(self.store), cure=cure)

    def seal(self) -> None:
        """Say that the folder is whole, if all that was sent is there."""
        self._check_owner()
        found = self.store.names()
        for name, sent in self._sent.items():
            if sent is None or not self.store.is_same(sent, found.get(name)):
                raise self._changed(name)
        self.store.remove([journal.NAME])

    def abandon(self) -> None:
        """Remove what was sent; after a kill, or if that fails too, the next write does."""
        if not self._is_ours:
            return
        with contextlib.suppress(FileError):
            self._check_owner()
            self.store.remove(self._sent)
            self.store.remove([journal.NAME])


def _listed(store: ObjectStore) -> set[str] | None:
    """Return the names that an unfinished write of ours lists; None if there is none, or one of another format."""
    names = _parsed(store).get(_FILES)
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return set(names)
    return None


def _parsed(store: ObjectStore) -> dict[str, Any]:
    text = store.read(journal.NAME, most=MAX_NBYTES)
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(text or b"")
        if isinstance(value, dict):
            return value
    return {}
