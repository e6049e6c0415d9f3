"""One checksum for a whole array, as archives have it: compared once all of the array was read, in whatever order."""

import bisect
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock import _native
from penstock.core import forking
from penstock.errors import DataError
from penstock.io.reader import Range, Reader, read_bytes, writable_bytes
from penstock.io.sizes import PIECE_NBYTES

_IEEE = 0xEDB88320  # The polynomial of zip's CRC-32.
# Pieces that do not touch each other, some 200 bytes each. A shuffle of 16 GB in blocks of 64 KB has about as many.
_MOST_PIECES = 1 << 16


@dataclass(frozen=True, slots=True)
class Claim:
    """What an archive says of a member: where its bytes are, and their CRC-32."""

    file: str
    name: str
    offset: int
    nbytes: int
    crc32: int


class WholeCheck:
    """The CRC-32 of a member, from the pieces of it that are read, until it was read once.

    All streams of this process share it: who reads the last byte that is missing compares.
    """

    def __init__(self, claim: Claim, data_offset: int) -> None:
        self.claim = claim
        self.data_offset = data_offset
        """Where the data begins, behind its header."""
        self._lock = forking.lock()
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._sums: list[int] = []
        self.is_done = False
        """Whether it was compared."""
        self._is_bad = False

    def __reduce__(self) -> tuple[type["WholeCheck"], tuple[Claim, int]]:
        """Pickle what it is to be compared with: another process reads for itself."""
        return WholeCheck, (self.claim, self.data_offset)

    def saw(self, ranges: Sequence[Range], reader: Reader) -> None:
        """Take in pieces that were read; raise if they are the last, and the member is not what was written."""
        if self._is_bad:
            raise _wrong(self.claim)
        if self.is_done:
            return
        for one in ranges:
            data = writable_bytes(one.buffer)
            # Again, if another thread read some of it at the same time.
            while gaps := self._gaps(one.offset, one.offset + data.size):
                for start, stop in gaps:
                    piece = data[start - one.offset : stop - one.offset]
                    self._add(start, stop, zlib.crc32(piece.data))
        end = self.claim.offset + self.claim.nbytes
        with self._lock:
            is_whole = self._starts == [self.data_offset] and self._stops == [end]
            crc = self._sums[0] if is_whole else 0
        if is_whole:
            self._compare(crc, reader)

    def _gaps(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return which parts of `start` to `stop` are yet to be added."""
        gaps = []
        with self._lock:
            at = bisect.bisect_right(self._stops, start)
            while start < stop and not self.is_done:
                is_last = at == len(self._starts)
                begin = stop if is_last else self._starts[at]
                if start < begin:
                    gaps.append((start, min(begin, stop)))
                start = stop if is_last else self._stops[at]
                at += 1
        return gaps

    def _add(self, start: int, stop: int, crc: int) -> None:
        with self._lock:
            if len(self._starts) >= _MOST_PIECES:
                self._forget()  # To be checked by a pass that reads it more in order.
            at = bisect.bisect_left(self._starts, start)
            is_free = at == 0 or self._stops[at - 1] <= start
            if self.is_done or not is_free or (at < len(self._starts) and self._starts[at] < stop):
                return
            self._starts.insert(at, start)
            self._stops.insert(at, stop)
            self._sums.insert(at, crc)
            for first in (at, at - 1):
                is_pair = 0 <= first < len(self._starts) - 1
                if is_pair and self._stops[first] == self._starts[first + 1]:
                    self._join(first)

    def _forget(self) -> None:
        self._starts, self._stops, self._sums = [], [], []

    def _join(self, first: int) -> None:
        """Make one piece of two that follow each other."""
        nbytes = self._stops[first + 1] - self._starts[first + 1]
        self._sums[first] = _native.combined_crc(
            self._sums[first], self._sums.pop(first + 1), nbytes, polynomial=_IEEE
        )
        self._stops[first] = self._stops.pop(first + 1)
        del self._starts[first + 1]

    def _compare(self, crc: int, reader: Reader) -> None:
        header = read_bytes(reader, self.claim.offset, self.data_offset - self.claim.offset)
        nbytes = self.claim.nbytes - len(header)
        found = _native.combined_crc(zlib.crc32(header), crc, nbytes, polynomial=_IEEE)
        self._is_bad = found != self.claim.crc32
        self.is_done = True
        with self._lock:
            self._forget()
        if self._is_bad:
            raise _wrong(self.claim)


def check_now(claim: Claim, reader: Reader) -> None:
    """Raise if a member is not what was written; reads all of it, a piece at a time."""
    buffer = np.empty(min(PIECE_NBYTES, claim.nbytes), np.uint8)
    crc = done = 0
    while done < claim.nbytes:
        piece = buffer[: claim.nbytes - done]
        reader.read_into(piece, claim.offset + done)
        crc = zlib.crc32(piece.data, crc)
        done += piece.size
    if crc != claim.crc32:
        raise _wrong(claim)


def _wrong(claim: Claim) -> DataError:
    return DataError(
        f"array {claim.name!r} is not what was written: its checksum is another",
        file=claim.file,
        offset=claim.offset,
        cure="The archive is damaged: copy it again from its original; "
        "from_files(..., verify=False) reads it as it is.",
    )
