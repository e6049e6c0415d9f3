"""Indexes of files, which say where records begin: one for each version of a file, in the user's cache directory."""

import hashlib
import threading
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from penstock.core.arrays import Index
from penstock.core.progress import Step, begin
from penstock.core.system import usable_cores
from penstock.core.user_cache import user_cache
from penstock.errors import FileError, StreamClosedError
from penstock.io.atomic import atomic_file
from penstock.io.location import Location

_HEADER_NBYTES = 128  # Of an .npy file with one axis.
Out = TypeVar("Out")


def cache_folder(kind: str) -> Path:
    """Return where indexes of a kind ('tfrecord') are saved: in the user's cache directory, never beside the data."""
    return user_cache(f"{kind}-index")


def load(
    kind: str, location: Location, words: tuple[int, str], admits: Callable[[int], bool]
) -> Index | None:
    """Return the saved numbers of this version of a file, or None if there are none that are whole.

    `words` are the version of the index, and what else it depends on. `admits` is asked before so many are read.
    """
    try:
        path = _path(kind, location, words)
        if path is None:
            return None
        # Pipes and devices have no size.
        num_saved = (path.stat().st_size - _HEADER_NBYTES) // 8
        if num_saved < 1 or not admits(num_saved - 1):
            return None
        saved = np.fromfile(path, "<i8", offset=_HEADER_NBYTES)
    except (OSError, ValueError, EOFError, RuntimeError):  # RuntimeError: no home directory.
        return None
    if not len(saved) or int(saved[-1]) != zlib.crc32(saved[:-1].data):
        return None
    return saved[:-1]


def save(kind: str, location: Location, words: tuple[int, str], numbers: Index) -> None:
    """Save the index for the next time, in place of that of an earlier version of the file."""
    try:
        path = _path(kind, location, words)
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with atomic_file(path, replace=True) as file:
            shape = {"descr": "<i8", "fortran_order": False, "shape": (len(numbers) + 1,)}
            np.lib.format.write_array_header_1_0(file, shape)
            file.write(numbers.astype("<i8", copy=False).data)
            file.write(zlib.crc32(numbers.data).to_bytes(8, "little"))
        for other in path.parent.glob(f"{_hash(location.url)}-*.npy"):
            if other != path:
                other.unlink(missing_ok=True)
    except (OSError, FileError, RuntimeError):
        return  # The index stays in memory; the next process scans the file again.


@dataclass(frozen=True, slots=True)
class Scan:
    """The scan of some files, by several threads: each tells how far it is, and ends when another has failed."""

    step: Step
    stop: threading.Event

    def passed(self, nbytes: int) -> None:
        """Tell that so many bytes more were looked at; raise if the scan was stopped."""
        if self.stop.is_set():
            raise StreamClosedError("the scan was stopped.")
        self.step.advance(nbytes)


def each_in_parallel(
    locations: Sequence[Location], scan: Callable[[Location, Scan], Out]
) -> list[Out]:
    """Return what `scan` makes of each file, on threads; after an error or Ctrl-C the others end, too."""
    if not locations:
        return []
    stop = threading.Event()
    workers = min(len(locations), usable_cores())
    total = sum(one.size for one in locations)
    with (
        begin("indexing", total=total, unit="bytes") as step,
        ThreadPoolExecutor(workers, "penstock-index") as pool,
    ):
        all_files = Scan(step, stop)
        try:
            return list(pool.map(lambda one: scan(one, all_files), locations))
        finally:
            stop.set()


def _path(kind: str, location: Location, words: tuple[int, str]) -> Path | None:
    """Return where the index of this version of a file is saved; None if versions can't be told apart."""
    version = location.etag if location.mtime_ns is None else location.mtime_ns
    if version is None:
        return None
    text = f"{words[0]} {location.size} {version} {location.inode} {words[1]}"
    return cache_folder(kind) / f"{_hash(location.url)}-{_hash(text)}.npy"


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
