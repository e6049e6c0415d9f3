"""Where the records of files begin: found by one fast scan, and saved in the user's cache directory."""

import threading
from collections.abc import Sequence

import numpy as np

from penstock import _native
from penstock.core.arrays import Index
from penstock.errors import BudgetError
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.sizes import PIECE_NBYTES
from penstock.memory import allocate_plain, format_nbytes, free_nbytes
from penstock.sources.reading.saved_indexes import Scan, each_in_parallel, load, save
from penstock.sources.tfrecord.records import FRAME_NBYTES, HEADER_NBYTES, frame_error

_VERSION = 2
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

    def scan(location: Location, all_files: Scan) -> Index:
        offsets = _scan(location, verify=verify, direct=direct, all_files=all_files, room=room)
        save("tfrecord", location, (_VERSION, str(verify)), offsets)
        return offsets

    missing = [number for number, offsets in enumerate(found) if offsets is None]
    scanned = each_in_parallel([locations[number] for number in missing], scan)
    for number, offsets in zip(missing, scanned, strict=True):
        found[number] = offsets
    return [offsets for offsets in found if offsets is not None]


def _scan(
    location: Location, *, verify: bool, direct: bool | None, all_files: Scan, room: _Room
) -> Index:
    offsets = np.zeros(1, np.int64)
    offset = record = 0
    buffer = allocate_plain(min(PIECE_NBYTES, location.size))
    with open_reader(location, direct=direct, access="sequential") as reader:
        while offset < location.size:
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
            all_files.passed(consumed)
        reader.check_unchanged()
    offsets.resize(record + 1, refcheck=False)
    offsets[record] = offset
    return offsets


def _load(location: Location, *, verify: bool, room: _Room) -> Index | None:
    """Return the saved index of a file, if there is one that is sound."""
    # Entries; a file that claims more is not believed.
    most = location.size // FRAME_NBYTES + 1
    taken: list[int] = []

    def admits(num_saved: int) -> bool:
        if not 1 <= num_saved <= most:
            return False
        room.take(num_saved, location)
        taken.append(num_saved)
        return True

    offsets = load("tfrecord", location, (_VERSION, str(verify)), admits)
    if offsets is not None and not _is_sound(offsets, location):
        offsets = None
    if offsets is None:
        room.give_back(sum(taken))
    return offsets


def _is_sound(offsets: Index, location: Location) -> bool:
    return (
        offsets[0] == 0
        and offsets[-1] == location.size
        and all(
            bool((np.diff(offsets[start : start + _CHECKED + 1]) >= FRAME_NBYTES).all())
            for start in range(0, len(offsets), _CHECKED)
        )
    )
