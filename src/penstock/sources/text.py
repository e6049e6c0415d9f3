"""Text files: a row is a line, as str, without its end. Read forward, resumed at any line."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Index
from penstock.core.blocks import Block, Pieces
from penstock.core.columns import Text
from penstock.core.fields import Field
from penstock.core.nest import flatten
from penstock.core.rows import Context
from penstock.core.spec import ArraySpec
from penstock.errors import DataError
from penstock.io.formats.lines import TEXT_NBYTES, Piece
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.reader import read_bytes
from penstock.memory import Allocate
from penstock.sources.reading.line_flow import LineFlow
from penstock.sources.reading.parts import Request, attempt_each, check_names, skipped_words


def open_format(locations: Sequence[Location], request: Request) -> "TextFlow":
    """Return the lines of files; reads a little of the first, to know how long lines are."""
    check_names(str(locations[0]), request.names or (), {"": None})
    if request.skip:
        locations, _ = attempt_each(locations, _check_readable, request)
    return TextFlow(locations, direct=request.direct)


def _check_readable(location: Location) -> None:
    with open_reader(location) as reader:
        read_bytes(reader, 0, min(1, location.size))


class TextFlow(LineFlow):
    """Lines of text, without their ends."""

    kind = "text"
    copies = 10  # As bytes, their cut, the search for line ends, and up to 4 while it is checked to be UTF-8.

    def __init__(self, locations: Sequence[Location], *, direct: bool) -> None:
        super().__init__(locations, direct=direct)
        self.structure = flatten("")[1]
        with open_reader(locations[0]) as reader:
            first = read_bytes(reader, 0, min(TEXT_NBYTES, reader.size))
        length = len(first) // max(1, first.count(b"\n"))
        self.fields = (Field(ArraySpec((), str), estimate=length + 8),)

    def rows_of(
        self, piece: Piece, used: int, file: str, context: Context
    ) -> tuple[Block, Index | None]:
        """Return the good lines of a piece, and their places if some are bad."""
        column, places = self._good_lines(piece, used, file, context)
        block = context.block(self, len(column))
        sink = block.sinks[0]
        assert isinstance(sink, Pieces)
        sink.add(column)
        return block, places

    def _good_lines(
        self, piece: Piece, used: int, file: str, context: Context
    ) -> tuple[Text, Index | None]:
        """Return the lines of a piece after the first `used`, and their places if some are bad."""
        column = _lines(piece.data, used, context.allocate)
        try:
            piece.text(file)
        except DataError:
            if not self.skip:
                raise
        else:
            return column, None
        good = []
        edges = column.offsets.tolist()
        for row, (start, stop) in enumerate(itertools.pairwise(edges)):
            line = Piece(piece.offset, piece.line + used + row, column.data[start:stop].tobytes())
            try:
                line.text(file)
            except DataError as error:
                self.skip_bad(error, context)
            else:
                good.append(row)
        index = np.array(good, np.int64)
        return column.take(index, context.allocate), np.append(index, len(column))

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return the bytes of the pieces under way, as they are read and as lines."""
        return (ahead + 3) * 3 * (TEXT_NBYTES + (1 << 13))

    def choice(self) -> str:
        """Return how it is read."""
        return f"lines, as they come{skipped_words(self)}"

    def fingerprint(self) -> Any:
        """Return names and sizes of the files."""
        files = [[location.name, location.size] for location in self.locations]
        return ["text", files, self.skip]


def _lines(data: bytes, used: int, allocate: Allocate) -> Text:
    """Return the lines of a piece after the first `used`, without their ends."""
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw == ord("\n"))
    starts = np.concatenate([[0], ends + 1])
    ends = np.concatenate([ends, [len(raw)]])
    if starts[-1] == len(raw):
        starts, ends = starts[:-1], ends[:-1]
    starts, ends = starts[used:], ends[used:]
    has_return = (
        (ends > starts) & (raw[np.maximum(ends - 1, 0)] == ord("\r")) if len(raw) else ends > 0
    )
    lengths = ends - has_return - starts
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    memory = allocate(int(offsets[-1]))
    _native.gather_spans(raw, starts, lengths, memory, offsets[:-1].copy())
    return Text(memory, offsets, str)
