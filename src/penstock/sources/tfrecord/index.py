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
from penstock.errors import BudgetError, FileError, StreamClosedError
from penstock.io.atomic import atomic_file
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.sizes import PIECE_NBYTES
from penstock.memory import allocate_plain, format_nbytes, free_nbytes
from penstock.sources.tfrecord.records import FRAME_NBYTES, HEADER_NBYTES, frame_error

_VERSION = 2
_HEADER_NBYTES = 128  # Of an .npy file with one axis.
_MAKING_NBYTES = 24  # Of a record, while a dataset is made: where it begins, its length, and lengths in their order.
_CHECKED = 1 << 20  # Records, at once.


class _Room:
    """How many records there is memory for, while they are found: whoever finds some takes them from it."""

    def __init__(self) -> None:
        self._free = free_nbytes()
        self._num_records = 0
        self._lock = threading.Lock()

    def take(self, num_records: int, location: Location) -> None:
        """Raise if there is no memory for so many records more."""
        with self._lock:
            self._num_records += num_records
            total = self._num_records
        if total * _MAKING_NBYTES > self._free:
            raise BudgetError(
                f"{location}: the index of {total} records or more takes {format_nbytes(total * _MAKING_NBYTES)} to "
                f"be made, and {format_nbytes(self._free)} are free. Write from_tfrecord(..., index=False) to read "
                "them forward, without an index.",
                is_final=True,
            )

    def give_back(self, num_records: int) -> None:
        with self._lock:
            self._num_records -= num_records


def record_offsets(
    locations: Sequence[Location], *, verify: bool, direct: bool | None
) -> list[Index]:
    """Return where the records of each file begin, and where the last one ends.

    Files are scanned in parallel, 4 MB at a time; the result takes 8 bytes a record.

    Raises:
        BudgetError: There is no memory for so many records.
        DataError: The framing of a file is damaged; the error is that of the first such file.
    """
    room = _Room()
    found = [_load(location, verify=verify, room=room) for location in locations]
    missing = [number for number, offsets in enumerate(found) if offsets is None]
    stop = threading.Event()

    def scan(number: int) -> Index:
        offsets = _scan(locations[number], verify=verify, direct=direct, stop=stop, room=room)
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


def _scan(
    location: Location, *, verify: bool, direct: bool | None, stop: threading.Event, room: _Room
) -> Index:
    offsets = np.zeros(1, np.int64)
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
            room.take(len(starts), location)
            if record + len(starts) >= len(offsets):
                # In place: a list of pieces would be there twice while it is put together.
                grown = max(record + len(starts) + 1, len(offsets) + len(offsets) // 8)
                offsets.resize(grown, refcheck=False)
            offsets[record : record + len(starts)] = starts
            record += len(starts)
            offset += consumed
        reader.check_unchanged()
    offsets.resize(record + 1, refcheck=False)
    offsets[record] = offset
    return offsets


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


def _load(location: Location, *, verify: bool, room: _Room) -> Index | None:
    try:
        path = _path(location, verify=verify)
        if path is None:
            return None
        # Entries; a file that claims more is not believed. Pipes and devices have none.
        most = location.size // FRAME_NBYTES + 1
        num_saved = (path.stat().st_size - _HEADER_NBYTES) // 8
        if not 2 <= num_saved <= most + 1:
            return None
        room.take(num_saved, location)
        saved = np.fromfile(path, "<i8", offset=_HEADER_NBYTES)
    except (OSError, ValueError, EOFError, RuntimeError):  # RuntimeError: no home directory.
        return None
    offsets, checksum = saved[:-1], int(saved[-1]) if len(saved) else -1
    is_sound = (
        len(offsets) > 0
        and checksum == zlib.crc32(offsets.data)
        and offsets[0] == 0
        and offsets[-1] == location.size
        and all(
            bool((np.diff(offsets[start : start + _CHECKED + 1]) >= FRAME_NBYTES).all())
            for start in range(0, len(offsets), _CHECKED)
        )
    )
    if not is_sound:
        room.give_back(num_saved)
    return offsets if is_sound else None


def _save(location: Location, offsets: Index, *, verify: bool) -> None:
    """Save the index for the next time, in place of that of an earlier version of the file."""
    try:
        path = _path(location, verify=verify)
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with atomic_file(path, replace=True) as file:
            shape = {"descr": "<i8", "fortran_order": False, "shape": (len(offsets) + 1,)}
            np.lib.format.write_array_header_1_0(file, shape)
            file.write(offsets.astype("<i8", copy=False).data)
            file.write(zlib.crc32(offsets.data).to_bytes(8, "little"))
        for other in path.parent.glob(f"{_hash(location.url)}-*.npy"):
            if other != path:
                other.unlink(missing_ok=True)
    except (OSError, FileError, RuntimeError):
        return  # The index stays in memory; the next process scans the file again.
