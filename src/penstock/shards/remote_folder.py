"""A folder of shards behind a URL while it is being filled: objects can't be renamed or locked, so it is done in place.

Each shard is written to a folder on this machine, sent, and removed there. A journal says meanwhile that the folder is
not finished, what it is made from, and which shards are there; it goes when the manifest, which comes last, is there.
There is no lock: whoever comes next takes the journal over, and the one that had it before sees that, and gives up.
"""

import contextlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.errors import FileError, TargetExistsError, WriteError
from penstock.io.location import Location
from penstock.io.remote.store import ObjectStore
from penstock.shards import journal, manifest
from penstock.shards.folder import Changed
from penstock.shards.journal import Head, Journal, Journalled, parse_journal
from penstock.shards.layout import FieldLayout, check_names
from penstock.shards.manifest import Manifest
from penstock.shards.writing import ShardRecord, ShardWriter

_OWNER = "owner"
_SELDOM = (
    16  # The journal is written when a 16th more shards are there: all of it is sent each time.
)


class RemoteFolder(Journalled):
    """A folder behind a URL that this process fills, until it is closed."""

    def __init__(
        self,
        store: ObjectStore,
        staging: Path,
        layouts: Sequence[FieldLayout],
        run_rows: int,
    ) -> None:
        self.store = store
        self.layouts = tuple(layouts)
        self.run_rows = run_rows
        self.started_over = ""
        """Why finished shards that were there are not used, and how many there were; '' if there were none."""
        self._staging = staging
        self._owner = secrets.token_hex(16)
        self._journal = Journal({})
        self._num_listed = 0
        """How many finished shards the journal there lists."""
        self._sent: dict[str, Location] = {}
        """The files that this process sent or found, as they were then."""
        self._is_open = False

    def open(self, find_head: Callable[[], Head], changed: Changed) -> None:
        """Take the folder over, with its finished shards; raise if it holds anything but an unfinished one of ours."""
        found = self.store.names()
        text = self.store.read(journal.NAME, most=manifest.MAX_NBYTES)
        before = None if text is None else parse_journal(text)
        self._check_target(found, before)
        self._journal.head = find_head()
        kept: set[str] = set()
        if before is not None:
            kept = self._go_on(before, found, changed)
        self._is_open = True
        self._write_journal()
        self.store.remove(found.keys() - kept - {journal.NAME})

    def _check_target(self, found: Mapping[str, Location], before: Journal | None) -> None:
        if not found:
            return
        if before is None or manifest.NAME in found:
            cure = "Remove it, or choose another path."
            raise TargetExistsError("this exists already", file=str(self.store), cure=cure)
        for name in sorted(found.keys() - {journal.NAME}):
            try:
                check_names([name], before.head["fields"])
            except (ValueError, KeyError, TypeError):
                raise TargetExistsError(
                    f"{name!r} in this folder was not written by penstock",
                    file=str(self.store),
                    cure="Move it elsewhere, or choose another path.",
                ) from None

    def _go_on(self, before: Journal, found: Mapping[str, Location], changed: Changed) -> set[str]:
        """Take over finished shards if they were made from the same; return the names of their files."""

        def is_there(shard: ShardRecord) -> bool:
            return all(
                name in found and found[name].size == one.nbytes
                for name, one in shard.files.items()
            )

        good = {number: one for number, one in before.finished.items() if is_there(one)}
        change = changed(_plain(before.head), self.head) if good else ""
        if change:
            what = f"the {len(good)} finished shards" if len(good) > 1 else "the finished shard"
            self.started_over = f"{what} in {self.store} could not be used: {change}"
            return set()
        self.finished.update(good)
        self.cursors.update((number, before.cursors[number]) for number in good)
        kept = {name for shard in good.values() for name in shard.files}
        self._sent = {name: found[name] for name in kept}
        return kept

    def shard(self, number: int, start: int) -> ShardWriter:
        """Return a new shard to write to, on this machine, whose first row is row `start` of all."""
        return ShardWriter(self._staging, number, self.layouts, start=start, run_rows=self.run_rows)

    def record(self, shard: ShardWriter, cursor: Any = None) -> None:
        """Finish a shard, send its files, and list it in the journal."""
        number, record = shard.number, shard.finish()
        try:
            self._check_owner()  # First: else shards of whoever came next would be written over.
            for name in record.files:
                self._sent[name] = self.store.put_file(name, self._staging / name)
        finally:
            for name in record.files:
                (self._staging / name).unlink(missing_ok=True)
        self.finished[number] = record
        self.cursors[number] = cursor
        if len(self.finished) - self._num_listed > self._num_listed // _SELDOM:
            self._write_journal()

    def seal(self) -> Manifest:
        """Write the manifest: the folder is whole from now on."""
        shards = tuple(self.finished[number] for number in sorted(self.finished))
        self._check_owner()
        found = self.store.names()
        for shard in shards:
            for name, one in shard.files.items():
                sent = self._sent[name]
                if sent.size != one.nbytes or not self.store.is_same(sent, found.get(name)):
                    raise self._taken(f"{name!r} is not what was written")
        whole = Manifest(self.head["row"], self.layouts, shards, self.head["made_from"])
        self.store.put(manifest.NAME, whole.to_json())
        self._is_open = False
        with contextlib.suppress(FileError):  # It is of no meaning beside a manifest.
            self.store.remove([journal.NAME])
        return whole

    def _write_journal(self) -> None:
        head = self.head | {_OWNER: self._owner}
        lines = [json.dumps(head) + "\n", *map(self._journal.line, self.finished)]
        self.store.put(journal.NAME, "".join(lines).encode())
        self._num_listed = len(self.finished)

    def _check_owner(self) -> None:
        """Raise if another process has taken the folder over: it was started later, and may write other rows."""
        text = self.store.read(journal.NAME, most=manifest.MAX_NBYTES)
        now = None if text is None else parse_journal(text)
        if now is None or now.head.get(_OWNER) != self._owner:
            self._is_open = False
            raise self._taken("another process has begun to write here")

    def _taken(self, problem: str) -> WriteError:
        cure = "Let one process write to a path: wait for it, or choose another path."
        return WriteError(problem, file=str(self.store), cure=cure)

    def close(self) -> None:
        """List what is finished for whoever goes on; if nothing is, leave nothing."""
        if not self._is_open:
            return
        self._is_open = False
        with contextlib.suppress(
            FileError
        ):  # What failed before is being raised; the next call cleans up.
            self._check_owner()
            if self.finished:
                self._write_journal()
            else:
                self.store.remove([*self.store.names().keys() - {journal.NAME}])
                self.store.remove([journal.NAME])


def _plain(head: Head) -> Head:
    return {name: one for name, one in head.items() if name != _OWNER}
