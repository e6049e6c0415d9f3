"""The folder of a cache on disk: which rows it must hold, whether it is whole, and who fills it."""

import contextlib
import json
import os
import threading
from pathlib import Path
from typing import Any

from penstock.core.blocks import Block
from penstock.core.fingerprint import changes, made_from
from penstock.core.nest import field_names, flatten
from penstock.core.rows import Context, Node, Rows, RowSet, Runs
from penstock.errors import StaleCacheError, TargetExistsError
from penstock.io.local.page_cache import page_cache_room
from penstock.shards.checks import run_rows_of
from penstock.shards.folder import ShardFolder, is_ours
from penstock.shards.layout import layouts_of
from penstock.shards.manifest import NAME, row_to_json
from penstock.shards.rows import field_of_shards, open_shard, read_manifest
from penstock.shards.writing import ShardRecord
from penstock.sources.reading.file_rows import FileRows
from penstock.sources.reading.parts import Part

_locks: dict[str, threading.RLock] = {}
_locks_lock = threading.Lock()


class CacheFolder:
    """A cache of `node` in the folder `path`: what it must be made from, and its shards once it is whole."""

    def __init__(self, path: str, node: Node) -> None:
        self.path = Path(path)
        self.made_from = json.loads(json.dumps(made_from(node)))
        self.names = field_names(node.structure)
        self.layouts = layouts_of(self.names, [field.spec for field in node.fields])
        self.row = row_to_json(node.structure, self.layouts)
        self.run_rows = run_rows_of(node.fields)
        self.check()

    def check(self) -> None:
        """Raise if something else is at the path: no cache, or a cache of other rows."""
        if not os.path.lexists(self.path):
            return
        if not self.path.is_dir():
            cure = "A cache is a folder: choose another path."
            raise TargetExistsError("this is a file", file=str(self.path), cure=cure)
        with contextlib.suppress(FileNotFoundError):  # Its writer may remove it meanwhile.
            self._refuse_others()
        self.shards()

    def _refuse_others(self) -> None:
        if not is_ours(self.path):
            cure = "Choose the path of a new folder."
            problem = "this folder holds something else"
            raise TargetExistsError(problem, file=str(self.path), cure=cure)

    def shards(self) -> tuple[ShardRecord, ...] | None:
        """Return the shards of the cache; None if it is not whole yet."""
        if not (self.path / NAME).exists():
            return None
        manifest = read_manifest(str(self.path))
        change = changes(manifest.made_from, self.made_from)
        if not change and (manifest.layouts != self.layouts or manifest.row != self.row):
            change = "its rows have other fields"
        if change:
            raise StaleCacheError(
                f"the cache in {self.path} was made from something else: {change}.\n"
                f"  to make it anew, remove it: rm -r {self.path}\n"
                "  to keep both, give this one a path of its own: .cache(another_path)"
            )
        return manifest.shards

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
        inputs = {"made_from": self.made_from, "shard_rows": shard_rows}
        return ShardFolder.open(self.path, self.layouts, inputs, run_rows=self.run_rows)

    @property
    def cure(self) -> str:
        """What to do if rows of the cache are not those that were written."""
        return f"The cache is damaged: remove it, and it is made again: rm -r {self.path}"

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
