"""The folder of a cache on disk: which rows it must hold, whether it is whole, and who fills it."""

import contextlib
import os
import secrets
import threading
from pathlib import Path
from typing import Any

from penstock.core import forking
from penstock.core.blocks import Block
from penstock.core.fingerprint import made_from
from penstock.core.nest import field_names, flatten
from penstock.core.rows import Context, Node, Rows, RowSet, Runs
from penstock.errors import StaleCacheError, TargetExistsError
from penstock.io.failures import write_errors
from penstock.io.local.page_cache import page_cache_room
from penstock.shards.checks import run_rows_of
from penstock.shards.folder import ShardFolder, changes_of_heads, head_of
from penstock.shards.journal import Head, read_journal
from penstock.shards.layout import layouts_of
from penstock.shards.manifest import NAME, row_to_json
from penstock.shards.ownership import is_ours
from penstock.shards.rows import field_of_shards, open_shard, read_manifest
from penstock.shards.writing import ShardRecord
from penstock.sources.reading.file_rows import FileRows
from penstock.sources.reading.parts import Part

_locks: dict[str, threading.RLock] = {}
_locks_lock = forking.lock()

os.register_at_fork(after_in_child=_locks.clear)


class Run:
    """Stands for one chain in one process: what it filled itself, it need not compare."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)

    def __reduce__(self) -> tuple[type["Run"], tuple[()]]:
        """Pickle no token: by the time it is loaded, functions may be others."""
        return Run, ()


class CacheFolder:
    """A cache of `node` in the folder `path`: what it must be made from, and its shards once it is whole."""

    def __init__(self, path: str, node: Node, key: str | None) -> None:
        self.path = Path(path)
        self.node = node
        self.key = key
        self.run = Run()
        self.names = field_names(node.structure)
        self.layouts = layouts_of(self.names, [field.spec for field in node.fields])
        self.row = row_to_json(node.structure, self.layouts)
        self.run_rows = run_rows_of(node.fields)
        self._head: Head | None = None
        self.check()

    def __getstate__(self) -> dict[str, Any]:
        """Pickle what is needed to find out anew what the cache is made from."""
        return {**vars(self), "_head": None}

    @property
    def head(self) -> Head:
        """What the cache is, and what it is made from; finding that out reads arrays in memory."""
        if self._head is None:
            made = made_from(self.node, key=self.key, run=self.run.token)
            self._head = head_of(made, self.row, self.layouts)
        return self._head

    def check(self) -> None:
        """Raise if something else is at the path: no cache, or a cache of other rows."""
        if not os.path.lexists(self.path):
            return
        with write_errors(self.path):
            self._check()

    def _check(self) -> None:
        if not self.path.is_dir():
            cure = "A cache is a folder: choose another path."
            raise TargetExistsError("this is a file", file=str(self.path), cure=cure)
        with contextlib.suppress(FileNotFoundError):  # Its writer may remove it meanwhile.
            self._refuse_others()
        if self.shards() is None:
            begun = read_journal(self.path)
            if begun is not None and begun.finished:
                self._compare(begun.head, self.head)

    def _refuse_others(self) -> None:
        if not is_ours(self.path):
            cure = "Choose the path of a new folder."
            problem = "this folder holds something else"
            raise TargetExistsError(problem, file=str(self.path), cure=cure)

    def shards(self) -> tuple[ShardRecord, ...] | None:
        """Return the shards of the cache; None if it is not whole yet."""
        if not os.path.exists(self.path / NAME):  # noqa: PTH110  # Path.exists raises where it may not look.
            return None
        manifest = read_manifest(str(self.path))
        self._compare(head_of(manifest.made_from, manifest.row, manifest.layouts), self.head)
        return manifest.shards

    def _compare(self, before: Head, now: Head) -> str:
        """Raise unless what is there is proven to be made from the same; return ''."""
        change = changes_of_heads(before, now)
        if not change:
            return ""
        raise StaleCacheError(
            f"the cache in {self.path} was made from something else, or may have been: {change}.\n"
            f"  to make it anew, remove it: rm -r {self.path}\n"
            "  to keep both, give this one a path of its own: .cache(another_path)\n"
            '  to vouch for functions and generators yourself, from its first run on: .cache(path, key="v1")'
        )

    def part(self, number: int, shard: ShardRecord, node: Node) -> Part:
        """Return one finished shard."""
        fields = {
            layout.stem: field for layout, field in zip(self.layouts, node.fields, strict=True)
        }
        part, _ = open_shard(
            str(self.path), number, shard, self.layouts, fields, direct=False, check=self.cure
        )
        return part

    def begin(self, shard_rows: int) -> ShardFolder | None:
        """Return the folder to be filled, with its finished shards; None if another stream or process fills it."""

        def find_head() -> Head:
            self._head = None  # Arrays in memory may have changed since the chain was built.
            return {**self.head, "made_from": {**self.head["made_from"], "shard_rows": shard_rows}}

        return ShardFolder.open(
            self.path, self.layouts, find_head, self._compare, run_rows=self.run_rows
        )

    @property
    def cure(self) -> str:
        """What to do if rows of the cache are not those that were written."""
        return f"The cache is damaged: remove it, and it is made again: rm -r {self.path}"

    def is_same(self, other: "CacheFolder") -> bool:
        """Return whether another cache at this path is proven to hold the same rows."""
        return other is self or not changes_of_heads(other.head, self.head)

    @property
    def lock(self) -> threading.RLock:
        """The lock that the threads of this process take to fill this folder."""
        with _locks_lock:
            return _locks.setdefault(str(self.path), threading.RLock())


class CacheTable(Rows):
    """The rows of a whole cache on disk, or of the finished shards of one that is not whole."""

    def __init__(self, folder: CacheFolder, shards: tuple[ShardRecord, ...], node: Node) -> None:
        self.like(node)
        self.inputs = ()
        layouts = folder.layouts
        self.fields = tuple(
            field_of_shards(layout, shards, field)
            for layout, field in zip(layouts, node.fields, strict=True)
        )
        fields = {layout.stem: f for layout, f in zip(layouts, self.fields, strict=True)}
        nbytes = sum(file.nbytes for shard in shards for file in shard.files.values())
        direct = nbytes > page_cache_room()
        opened = [
            open_shard(
                str(folder.path), number, shard, layouts, fields, direct=direct, check=folder.cure
            )
            for number, shard in enumerate(shards)
        ]
        names, structure = flatten(tuple(layout.stem for layout in layouts))
        parts, locations = [part for part, _ in opened], [location for _, location in opened]
        self.rows = FileRows(parts, locations, names, structure)
        self.num_rows = self.rows.num_rows
        self.grains = self.rows.grains
        self.path = folder.path

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read the rows of the files."""
        self.rows.fill(rows, out, context)

    def fill_runs(self, runs: Runs, out: Block, context: Context) -> None:
        """Read runs of rows of the files."""
        self.rows.fill_runs(runs, out, context)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes that reading takes."""
        return self.rows.staging_nbytes(num_rows)

    def locate(self, row: int, epoch: int) -> str:
        """Return the file, and the number of the row in it."""
        return self.rows.locate(row, epoch)

    def describe(self) -> str:
        """Return the call that made it."""
        return f"cache({str(self.path)!r})"

    def fingerprint(self) -> Any:
        """Return its name only: the chain has the cache that these rows belong to."""
        return ["cache"]
