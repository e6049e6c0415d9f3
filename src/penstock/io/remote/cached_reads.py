"""Reads of one remote file through its cache: blocks that are kept come from there, or are fetched whole to be kept."""

from collections.abc import Callable, Sequence

import numpy as np

from penstock.io.reader import Bytes, Range
from penstock.io.remote.block_files import BLOCK_NBYTES
from penstock.io.remote.cache import CachedFile
from penstock.io.remote.traffic import Traffic

_AT_ONCE = 8  # Blocks of a read that are fetched together: what they take of memory is 8 MB.
_WAIT_SECONDS = 60.0  # For a block that another thread fetches; after that it is fetched twice.

Fetch = Callable[[Sequence[Range], Sequence[Traffic]], None]
Pieces = list[tuple[int, Bytes]]


class CachedReads:
    """One call of `read_ranges`."""

    def __init__(self, kept: CachedFile, fetch: Fetch, watchers: Sequence[Traffic]) -> None:
        self._kept = kept
        self._fetch = fetch
        self._watchers = watchers

    def read(self, pieces: Pieces) -> None:
        """Fill each piece with the bytes from its offset on."""
        blocks, rest = self._cut(pieces)
        missing: list[int] = []
        for number, parts in blocks.items():
            if self._kept.read(number, parts):
                self._count(parts)
            else:
                missing.append(number)
        if rest:
            self._fetch(rest, self._watchers)
        for first in range(0, len(missing), _AT_ONCE):
            self._fill({number: blocks[number] for number in missing[first : first + _AT_ONCE]})

    def _cut(self, pieces: Pieces) -> tuple[dict[int, Pieces], list[Range]]:
        """Return the parts that lie in blocks that are kept, by block, and the ranges that do not."""
        blocks: dict[int, Pieces] = {}
        rest: list[Range] = []
        for offset, piece in pieces:
            done = begin = 0
            while done < piece.size:
                number, inside = divmod(offset + done, BLOCK_NBYTES)
                stop = min(piece.size, done + BLOCK_NBYTES - inside)
                if self._kept.keeps(number):
                    if begin < done:
                        rest.append(Range(offset + begin, piece[begin:done]))
                    blocks.setdefault(number, []).append((inside, piece[done:stop]))
                    begin = stop
                done = stop
            if begin < piece.size:
                rest.append(Range(offset + begin, piece[begin:]))
        return blocks, rest

    def _fill(self, blocks: dict[int, Pieces]) -> None:
        """Fetch whole blocks, each by one thread of this process; the others wait for it, and read what it kept."""
        with self._kept.claimed(list(blocks)) as (mine, others):
            self._fetch_blocks({number: blocks[number] for number in mine})
        # Only now, with nothing claimed: two threads that wait for each other's blocks would wait for ever.
        left: dict[int, Pieces] = {}
        for number in others:
            is_there = self._kept.wait(number, _WAIT_SECONDS)
            if is_there and self._kept.read(number, blocks[number]):
                self._count(blocks[number])
            else:
                left[number] = blocks[number]
        self._fetch_blocks(left)

    def _fetch_blocks(self, blocks: dict[int, Pieces]) -> None:
        # Another thread may have been done with it since we looked.
        wanted = {}
        for number, parts in blocks.items():
            if self._kept.read(number, parts):
                self._count(parts)
            else:
                wanted[number] = parts
        whole = {number: self._room(number, parts) for number, parts in wanted.items()}
        ranges = [Range(number * BLOCK_NBYTES, room) for number, room in whole.items()]
        if ranges:
            self._fetch(ranges, self._watchers)
        for number, room in whole.items():
            for inside, part in wanted[number]:
                if part is not room:
                    part[:] = room[inside : inside + part.size]
            self._kept.write(number, room)

    def _room(self, number: int, parts: Pieces) -> Bytes:
        """Return memory for a whole block: the caller's own, if that is what was asked for."""
        nbytes = self._kept.nbytes(number)
        if len(parts) == 1 and parts[0][1].size == nbytes:
            return parts[0][1]
        return np.empty(nbytes, np.uint8)

    def _count(self, parts: Pieces) -> None:
        nbytes = sum(part.size for _, part in parts)
        for one in self._watchers:
            one.count(cache=nbytes)
