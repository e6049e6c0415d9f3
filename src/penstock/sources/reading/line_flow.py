"""Files of lines, read forward a piece of whole lines at a time, and resumed at any row."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from penstock.core.arrays import Index
from penstock.core.blocks import Block
from penstock.core.parcels import Cursor, Parcel
from penstock.core.rows import Context, Node
from penstock.core.state import cursor_parts
from penstock.errors import BudgetError, DataError
from penstock.io.formats.lines import Dialect, Piece, UnclosedError, next_line, read_pieces
from penstock.io.location import Location
from penstock.io.reader import Reader
from penstock.io.unpacked import UNPACKING_NBYTES, UnpackedReader, is_packed, open_text
from penstock.memory import format_nbytes
from penstock.sources.reading.bad_rows import SkippableFlow, passed


class LineFlow(SkippableFlow):
    """Rows made of lines; the cursor is (file, offset of a piece, its first line, rows of it used).

    Under `skip` the number of used rows includes bad ones.
    """

    num_rows = None
    kind: str
    """What its files are called in messages: 'CSV'."""
    dialect: Dialect
    """Where lines end, and where they do not."""
    copies: int
    """The bytes that a byte of text takes at most while it is read."""
    most_skipped: int | None = None
    """Under `skip`, a longer line has no end; None: as without."""

    strict: Node | None = None
    """The rows with random access that this flow, under `skip`, stands for."""

    def __init__(self, locations: Sequence[Location], *, direct: bool) -> None:
        self.locations = locations
        self.direct = direct

    def with_errors(self, on_error: str) -> Node:
        """Return the flow that skips bad rows, or what raises: rows with random access, where there are any."""
        if on_error != "skip" and self.strict is not None:
            return self.strict
        return super().with_errors(on_error)

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield the rows of each piece of text."""
        number, offset, line, used = cursor_parts(
            self, cursor, (0, 0, 1, 0), most=(len(self.locations), None, None, None)
        )
        for at in range(number, len(self.locations)):
            location = self.locations[at]
            try:
                with open_text(location, direct=self.direct) as reader:
                    for piece in self.pieces(reader, offset, line, context):
                        yield from self._parcel(at, piece, used, context)
                        used = 0
            except DataError as error:
                self.skip_bad(error, context)
            offset, line, used = 0, 1, 0

    def _parcel(self, at: int, piece: Piece, used: int, context: Context) -> Iterator[Parcel]:
        made = [self.rows_of(piece, used, str(self.locations[at]), context)]
        if made[0][0].num_rows:
            block, places = made.pop()
            after = partial(_after, at, piece.offset, piece.line, used, places)
            parcel = [Parcel(block.finish(), block.num_rows, after)]
            del block
            yield parcel.pop()

    def pieces(
        self, reader: Reader | UnpackedReader, offset: int, line: int, context: Context
    ) -> Iterator[Piece]:
        """Yield the text of a file from `offset` on, where `line` begins; under `skip` only of lines that end."""

        def reserve(line: int, nbytes: int) -> Any:
            return self._reserved(reader, line, nbytes, context)

        most = self.most_skipped if self.skip else None
        while offset < reader.size:
            try:
                for piece in read_pieces(
                    reader, offset, line, dialect=self.dialect, most=most, reserve=reserve
                ):
                    offset, line = piece.end, piece.line + piece.data.count(b"\n")
                    held = [piece]
                    del piece
                    yield held.pop()
            except UnclosedError as error:
                self.skip_bad(error, context)
                offset, line = next_line(reader, offset), line + 1
            else:
                return

    def _reserved(
        self, reader: Reader | UnpackedReader, line: int, nbytes: int, context: Context
    ) -> Any:
        """Return memory of the budget that stands for what a long line takes besides its block."""
        taken = self.copies * nbytes
        try:
            return context.allocate(taken)
        except BudgetError as error:
            budget = (context.budget or 0) + taken + nbytes
            raise BudgetError(
                f"{reader.location}: line {line} has up to {format_nbytes(nbytes)}, and reading it takes "
                f"{format_nbytes(taken)}, more than the memory budget leaves it. "
                f"Write with_options(memory={budget}), or more"
                f"{', or look for a quote that is never closed' if self.dialect.has_quotes else ''}.",
                is_final=True,
            ) from error

    @abstractmethod
    def rows_of(
        self, piece: Piece, used: int, file: str, context: Context
    ) -> tuple[Block, Index | None]:
        """Return the good rows of a piece after its first `used`, and their places (None: all are good).

        The places are those of the good rows among all rows, followed by the number of all rows.
        """

    def file_at(self, cursor: Cursor) -> str:
        """Return the file that the row at `cursor` comes from."""
        return str(self.locations[cursor[0]])

    @property
    def is_packed(self) -> bool:
        """Whether one of the files is packed."""
        return any(map(is_packed, self.locations))

    @property
    def unpacking_nbytes(self) -> int:
        """The bytes that unpacking takes, if a file is packed."""
        return UNPACKING_NBYTES if self.is_packed else 0

    def notes(self) -> tuple[str, ...]:
        """Return the note that there is no random access."""
        note = f"{self.kind} can only be read forward. cache() keeps its rows, and makes shuffle exact."
        if self.is_packed:
            note += " A packed file is unpacked from its beginning to go on after a state."
        return (note,)

    def describe(self) -> str:
        """Return the call that made it."""
        count = len(self.locations)
        name = self.locations[0].name if count == 1 else f"{count} {self.kind} files"
        return f"from_files({name}{', skip' if self.skip else ''})"


def _after(
    number: int, offset: int, line: int, used: int, places: Index | None, count: int
) -> Cursor:
    return [number, offset, line, used + passed(places, count)]
