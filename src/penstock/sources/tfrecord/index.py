"""Where the records of files begin: found by one fast scan, and saved in the user's cache directory."""

import hashlib
import os
import threading
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from penstock import _native
from penstock.core.arrays import Index
from penstock.errors import FileError, StreamClosedError
from penstock.io.atomic import atomic_file
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.sizes import PIECE_NBYTES
from penstock.memory import allocate_plain
from penstock.sources.tfrecord.records import FRAME_NBYTES, HEADER_NBYTES, frame_error

_VERSION = 2
_HEADER_NBYTES = 128  # Of an .npy file with one axis.


def record_offsets(
    locations: Sequence[Location], *, verify: bool, direct: bool | None
) -> list[Index]:
    """Return where the records of each file begin, and where the last one ends.

    Files are scanned in parallel, 4 MB at a time; the result takes 8 bytes a record.

    Raises:
        DataError: The framing of a file is damaged; the error is that of the first such file.
    """
    found = [_load(location, verify=verify) for location in locations]
    missing = [number for number, offsets in enumerate(found) if offsets is None]
    stop = threading.Event()

    def scan(number: int) -> Index:
        offsets = _scan(locations[number], verify=verify, direct=direct, stop=stop)
        _save(locations[number], offsets, verify=verify)
        return offsets

    if missing:
        workers = min(len(missing), len(os.sched_getaffinity(0)))
        with ThreadPoolExecutor(workers, "penstock-index") as pool:
            try:
                for number, offsets in zip(missing, pool.map(scan, missing), strict=True):
                    found[number] = offsets
            finally:
                stop.set()  # After an error or Ctrl-C the other scans end early.
    return [offsets for offsets in found if offsets is not None]


def _scan(location: Location, *, verify: bool, direct: bool | None, stop: threading.Event) -> Index:
    pieces: list[Index] = []
    offset = record = 0
    buffer = allocate_plain(min(PIECE_NBYTES, location.size))
    with open_reader(location, direct=direct, access="sequential") as reader:
        while offset < location.size:
            if stop.is_set():
                raise StreamClosedError("the scan was stopped.")
            piece = buffer[: location.size - offset]
            reader.read_into(piece, offset)
            try:
                starts, _, consumed = _native.tfrecord_scan(
                    piece, offset, verify, remaining=location.size - offset
                )
            except _native.RecordError as error:
                raise frame_error(error, file=str(location), row=record, offset=offset) from None
            if not len(starts):
                # The record is larger than a piece: its length is sound, and tells where the next record begins.
                starts = np.array([offset], np.int64)
                consumed = FRAME_NBYTES + int.from_bytes(
                    piece[: HEADER_NBYTES - 4].tobytes(), "little"
                )
            pieces.append(starts)
            record += len(starts)
            offset += consumed
        reader.check_unchanged()
    return np.concatenate([*pieces, np.array([offset], np.int64)])


# -- the cache ----------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Return where indexes are saved: in the user's cache directory, never beside the data."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(root) if Path(root).is_absolute() else Path("~/.cache").expanduser()
    return base / "penstock" / "tfrecord-index"


def _path(location: Location, *, verify: bool) -> Path | None:
    """Return where the index of this version of a file is saved; None if versions can't be told apart."""
    version = location.etag if location.mtime_ns is None else location.mtime_ns
    if version is None:
        return None
    words = f"{_VERSION} {location.size} {version} {location.inode} {verify}"
    return cache_folder() / f"{_hash(location.url)}-{_hash(words)}.npy"


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _load(location: Location, *, verify: bool) -> Index | None:
    try:
        path = _path(location, verify=verify)
        if path is None:
            return None
        # Entries; a file that claims more is not believed.
        most = location.size // FRAME_NBYTES + 1
        if path.stat().st_size > _HEADER_NBYTES + 8 * (most + 1):
            return None
        saved = np.frombuffer(path.read_bytes()[_HEADER_NBYTES:], "<i8").astype(np.int64)
        offsets, checksum = saved[:-1], int(saved[-1]) if len(saved) else -1
    except (OSError, ValueError, EOFError, RuntimeError):  # RuntimeError: no home directory.
        return None
    is_sound = (
        len(offsets) > 0
        and checksum == zlib.crc32(offsets.data)
        and offsets[0] == 0
        and offsets[-1] == location.size
        and bool((np.diff(offsets) >= FRAME_NBYTES).all())
    )
    return offsets if is_sound else None


def _save(location: Location, offsets: Index, *, verify: bool) -> None:
    """Save the index for the next time, in place of that of an earlier version of the file."""
    try:
        path = _path(location, verify=verify)
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with atomic_file(path, replace=True) as file:
            np.save(file, np.append(offsets, zlib.crc32(offsets.data)).astype("<i8"))
        for other in path.parent.glob(f"{_hash(location.url)}-*.npy"):
            if other != path:
                other.unlink(missing_ok=True)
    except (OSError, FileError, RuntimeError):
        return  # The index stays in memory; the next process scans the file again.
