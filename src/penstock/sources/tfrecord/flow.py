"""Records that are read forward: packed files, files without an index, and files with bad records."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Index
from penstock.core.parcels import Cursor, Parcel
from penstock.core.rows import Context, Flow, Node, rows_per_block
from penstock.core.state import cursor_parts
from penstock.errors import BudgetError, DataError
from penstock.io.inflated import INFLATING_NBYTES
from penstock.io.location import Location
from penstock.sources.tfrecord.compression import ForwardBytes, open_bytes
from penstock.sources.tfrecord.records import (
    FRAME_NBYTES,
    HEADER_NBYTES,
    Bytes,
    Found,
    Records,
    frame_error,
    too_large,
)

_FIRST_NBYTES = 1 << 16  # The first piece is small: the consumer is waiting.
_PIECE_NBYTES = 1 << 21


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a dataset, how each is packed, and whether large reads go past the page cache."""

    locations: Sequence[Location]
    compressions: Sequence[str]
    direct: bool

    @property
    def is_packed(self) -> bool:
        """Whether one of them is packed."""
        return any(one != "none" for one in self.compressions)

    def describe(self) -> str:
        """Return what to call them."""
        first = self.locations[0].name
        return first if len(self.locations) == 1 else f"{len(self.locations)} files"


@dataclass(frozen=True, slots=True)
class Span:
    """Some records of one file, in memory; `offset` is where in the file the memory begins."""

    found: Found
    number: int
    offset: int
    record: int
    stop: int
    """Where in the memory the next span begins."""


class RecordFlow(Flow):
    """The records of files, read forward; the cursor is (file, byte, record).

    Under `skip`, bad records are skipped, and counted in `context.skipped`.
    """

    locations: Sequence[Location]

    def __init__(
        self,
        files: Files,
        records: Records,
        *,
        skip: bool = False,
        strict: Node | None = None,
        damage: DataError | None = None,
    ) -> None:
        self.files = files
        self.locations = files.locations
        self.records = records
        self.structure = records.structure
        self.fields = records.fields
        self.num_rows = None
        self.skip = skip
        self.strict = strict
        """The node that raises at a bad record: what `with_errors("raise")` gives back."""
        self.damage = damage
        """The error that ended the scan for an index."""

    def with_errors(self, on_error: str) -> Node:
        """Return the flow that skips bad records, or the node that raises."""
        if self.skip == (on_error == "skip"):
            return self
        if self.skip:
            return self.strict or RecordFlow(self.files, self.records)
        return RecordFlow(self.files, self.records, skip=True, strict=self)

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield the records in blocks: found one after the other, decoded ahead in parallel."""
        if self.damage is not None and not self.skip:
            raise self.damage
        found = context.executor.ordered(
            partial(self._decode, context), self.spans(cursor, context), self._span_nbytes, of=self
        )
        return (parcel for parcel in found if parcel.size)

    def _span_nbytes(self, span: Span) -> int:
        return self.block_nbytes(len(span.found.starts)) + span.stop

    def _decode(self, context: Context, span: Span) -> Parcel:
        mark = context.clock.enter()
        found = span.found
        good = np.arange(len(found.starts))
        block = context.block(self, len(good))
        if not self.skip:
            self.records.read(found, block, context)
        elif errors := self.records.attempt(found, block, context):
            for error in errors:
                context.skipped.add(error)
            bad = np.array([error.row for error in errors], np.int64) - span.record
            good = np.setdiff1d(good, bad)
            del block  # Frees its memory for the next.
            block = context.block(self, len(good))
            self.records.read(found.only(good), block, context)
        ends = found.starts[good] + found.lengths[good] + (FRAME_NBYTES + span.offset)
        start = [span.number, span.offset + int(found.starts[0]), span.record]
        stop = [span.number, span.offset + span.stop, span.record + len(found.starts)]
        context.clock.leave(mark, self, 0)  # The rows are counted where they are handed on.
        after = partial(_after, start, stop, ends, good + span.record + 1)
        return Parcel(block.finish(), len(good), after)

    def spans(self, cursor: Cursor, context: Context) -> Iterator[Span]:
        """Yield the records as they lie in the files, a piece of a file at a time."""
        first, offset, record = cursor_parts(
            self, cursor, (0, 0, 0), most=(len(self.locations), None, None)
        )
        for number in range(first, len(self.locations)):
            walk = _Walk(self, number, offset, record, context)
            packed = self.files.compressions[number]
            location = self.locations[number]
            with open_bytes(location, packed, offset, direct=self.files.direct) as source:
                yield from walk.spans(source)
            offset = record = 0

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return the bytes of the pieces and blocks under way, and of what unpacking takes."""
        block = self.block_nbytes(rows_per_block(self, block_nbytes))
        piece = max(_FIRST_NBYTES, min(_PIECE_NBYTES, block_nbytes))
        unpacking = INFLATING_NBYTES if self.files.is_packed else 0
        decoding = self.records.decoding_nbytes(rows_per_block(self, block_nbytes))
        return (ahead + 3) * (block + piece) + max(1, ahead) * decoding + unpacking

    def notes(self) -> tuple[str, ...]:
        """Return what reading forward costs."""
        notes = []
        if self.damage is not None and not self.skip:
            notes.append(f"damaged, and refused unless on_error='skip': {self.damage}")
        if self.files.is_packed:
            notes.append(
                "packed TFRecords can only be read forward: a resume unpacks what it skips. "
                "cache() keeps the rows, and makes shuffle exact."
            )
        elif self.skip:
            notes.append(
                "on_error='skip' reads TFRecords forward: which rows there are is known at the end. "
                "A resume goes straight to its byte."
            )
        else:
            notes.append(
                "TFRecords without an index are read forward, and shuffled in windows; a resume goes "
                "straight to its byte. index=True gives random access."
            )
        return tuple(notes)

    def describe(self) -> str:
        """Return the call that made it."""
        how = "" if self.files.is_packed else ", index=False"
        return f"from_tfrecord({self.files.describe()}{', skip' if self.skip else how})"

    def fingerprint(self) -> Any:
        """Return names and sizes of the files, and the fields."""
        names = [[location.name, location.size] for location in self.locations]
        specs = [field.spec.to_json() for field in self.fields]
        return ["tfrecord flow", names, self.records.fingerprint(), specs, self.skip]


class _Walk:
    """Finds the records of one file, a piece at a time."""

    def __init__(
        self, flow: RecordFlow, number: int, offset: int, record: int, context: Context
    ) -> None:
        self.flow = flow
        self.number = number
        self.offset = offset
        """Where in the file the next piece begins."""
        self.record = record
        self.context = context
        self.file = str(flow.locations[number])
        self.size = _FIRST_NBYTES
        self.wanted = 0
        """The bytes that the next record claims to have."""
        self.tail: Bytes = np.empty(0, np.uint8)
        self.is_lost = False
        """Whether, after damage, the next sound record is still being looked for."""

    def spans(self, source: ForwardBytes) -> Iterator[Span]:
        """Yield the records, in spans."""
        while True:
            try:
                buffer = self._piece(source)
            except DataError as error:
                # Packed data is damaged: the rest of the file is skipped. Other errors, as of storage, are raised.
                if not self.flow.skip or type(error) is not DataError:
                    raise
                self.context.skipped.add(error)
                return
            if not buffer.size:
                return
            # The end of a packed file is known once it does not fill a piece.
            left = source.left if buffer.size == self.size else 0
            yield from self._found(buffer, buffer.size + left, is_exact=source.is_exact or not left)

    def _piece(self, source: ForwardBytes) -> Bytes:
        """Return the next piece: what is left of the last one, and what follows in the file."""
        try:
            buffer = self.context.allocate(self.size)
        except BudgetError as error:
            nbytes = max(self.size, self.wanted)
            raise too_large(
                self.file, self.record, self.offset, nbytes, self.context, "reading it"
            ) from error
        size = self.tail.size
        buffer[:size] = self.tail
        filled = size + source.fill(buffer[size:])
        return buffer[:filled]

    def _found(self, buffer: Bytes, remaining: int, *, is_exact: bool) -> Iterator[Span]:
        most = max(_FIRST_NBYTES, min(_PIECE_NBYTES, self.context.block_nbytes))
        grown = min(most, 4 * self.size)
        if self.is_lost:
            self._look(buffer, 0)
            return
        try:
            starts, lengths, consumed = _native.tfrecord_scan(
                buffer, 0, self.flow.records.verify, remaining=remaining
            )
        except _native.RecordError as error:
            self._damaged(error, buffer)
            return
        self.tail = buffer[consumed:]
        wanted = self.wanted = self._wanted(buffer, consumed, remaining)
        # A length in a packed file can't be checked: it gets no more than twice the memory of this piece.
        most_wanted = wanted if is_exact else 2 * max(self.size, buffer.size)
        self.size = max(grown, min(wanted, most_wanted))
        step = rows_per_block(self.flow, self.context.block_nbytes)
        offset, record = self.offset, self.record
        self.offset += consumed
        self.record += len(starts)
        for first in range(0, len(starts), step):
            some = slice(first, first + step)
            last = min(first + step, len(starts))
            stop = consumed if last == len(starts) else int(starts[last])
            place = partial(_place, self.file, record + first, starts[some] + offset)
            found = Found(buffer, starts[some], lengths[some], place)
            yield Span(found, self.number, offset, record + first, stop)

    def _wanted(self, buffer: Bytes, consumed: int, remaining: int) -> int:
        """Return the bytes of the record that is cut off by the end of the piece; 0 if they are unknown."""
        header = buffer[consumed : consumed + HEADER_NBYTES]
        left = remaining - consumed
        try:
            _native.tfrecord_scan(header, 0, self.flow.records.verify, remaining=left)
        except _native.RecordError:
            return 0  # The next piece begins with this record: its scan raises the error.
        if header.size < HEADER_NBYTES:
            return 0
        return FRAME_NBYTES + int.from_bytes(header[:-4].tobytes(), "little")

    def _damaged(self, error: _native.RecordError, buffer: Bytes) -> None:
        failure = frame_error(error, file=self.file, row=self.record, offset=self.offset)
        if not self.flow.skip:
            raise failure
        self.context.skipped.add(failure)
        self.record += 1
        if error.kind == "truncated":
            self.tail = buffer[buffer.size :]  # All that is left belongs to the cut-off record.
            self.offset += buffer.size
            return
        self.is_lost = True
        self._look(buffer, 1)

    def _look(self, buffer: Bytes, start: int) -> None:
        """Go on at the next sound record, or look for it in the next piece."""
        at = _native.tfrecord_find(buffer, start)
        self.is_lost = at == buffer.size
        if self.is_lost:
            at = max(start, buffer.size - HEADER_NBYTES + 1)  # The piece may end within a header.
            at = buffer.size if buffer.size < self.size else at
        self.tail = buffer[at:]
        self.offset += at


def _place(file: str, record: int, starts: Index, row: int) -> tuple[str, int, int]:
    return file, record + row, int(starts[row])


def _after(start: Cursor, stop: Cursor, ends: Index, records: Index, offset: int) -> Cursor:
    if offset == len(ends):
        return stop
    return [start[0], int(ends[offset - 1]), int(records[offset - 1])] if offset else start
