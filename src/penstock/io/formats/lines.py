"""Text read in pieces of whole lines, starting at any line, with line numbers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock import _native
from penstock.errors import DataError
from penstock.io.reader import Reader
from penstock.io.unpacked import UnpackedReader, read_some

TEXT_NBYTES = 1 << 18
MOST_NBYTES = 64 << 20
"""A longer line is a quote that is never closed, or not text at all."""
_BOM = b"\xef\xbb\xbf"
_MARKS = {  # What text begins with, by its encoding: the longer first.
    b"\xff\xfe\0\0": "utf-32",
    b"\0\0\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
LOOKED_AT = 1024
"""Bytes that tell an encoding."""
_LEAST_NBYTES = 16  # Bytes of which half are NUL by chance in no text.
Reserve = Callable[[int, int], Any]
"""Called with the number of a line, and the bytes of the piece that begins with it."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How text is divided: in lines, or in records of CSV, whose fields may stand between quotes."""

    separator: int = -1
    """The byte between two fields; -1 for lines of text."""
    quote: int = ord('"')

    @property
    def is_csv(self) -> bool:
        """Whether there are fields, and quotes; blank lines are no rows then."""
        return self.separator >= 0

    @property
    def has_quotes(self) -> bool:
        """Whether a line may go on because a quote is not closed."""
        return self.is_csv and self.quote == ord('"')


TEXT = Dialect()


@dataclass(frozen=True, slots=True)
class Piece:
    """Some whole lines; the last line of the file may lack its line end."""

    offset: int
    line: int
    """The number of its first line; lines count from 1."""
    data: bytes

    @property
    def end(self) -> int:
        """The offset in the file after its last byte."""
        return self.offset + len(self.data)

    def text(self, file: str) -> str:
        """Return the lines as text, or raise a DataError that names the line that is not UTF-8."""
        try:
            text = self.data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = self.line + self.data.count(b"\n", 0, error.start)
            offset = self.offset + error.start
            raise not_utf8(line, file, offset, encoding_of(self.data, self.offset)) from error
        if self.offset == 0:
            refuse_utf16(self.data, file)
        return text


def not_utf8(line: int, file: str, offset: int | None, encoding: str) -> DataError:
    """Return the error for a line of another encoding."""
    cure = f"Convert it first: iconv -f {encoding} -t utf-8."
    return DataError(f"line {line} is not UTF-8 text", file=file, offset=offset, cure=cure)


def encoding_of(data: bytes, offset: int = 0) -> str:
    """Return the encoding that text which is not UTF-8 may have, as iconv calls it; `offset` is where it begins.

    >>> encoding_of("text".encode("utf-16-le"))
    'utf-16le'
    """
    for mark, encoding in _MARKS.items():
        if offset == 0 and data.startswith(mark):
            return encoding
    head = data[offset % 2 : LOOKED_AT]
    first, second = head[::2].count(0), head[1::2].count(0)
    if 4 * max(first, second) <= len(head) or 8 * min(first, second) >= max(first, second):
        return "latin1"
    return "utf-16le" if second > first else "utf-16be"


def refuse_utf16(head: bytes, file: str) -> None:
    """Raise if text that begins so is UTF-16 without a mark: of Latin letters, that is UTF-8 with many NULs."""
    if len(head) >= _LEAST_NBYTES and b"\0" in head[:2]:
        encoding = encoding_of(head)
        if encoding != "latin1":
            raise not_utf8(1, file, 0, encoding)


class UnclosedError(DataError):
    """A line has no end, or a quote in it is never closed."""


def read_pieces(
    reader: Reader | UnpackedReader,
    offset: int = 0,
    line: int = 1,
    *,
    dialect: Dialect = TEXT,
    most: int | None = None,
    reserve: Reserve | None = None,
) -> Iterator[Piece]:
    """Yield the text from `offset` on, where a line must begin; a line end within quotes ends no line.

    A line of more than `most` bytes (default: 64 MB) raises UnclosedError. Before a piece is read that is larger than
    usual, `reserve` is called with its first line and its bytes; what it returns is kept while the piece is in use.
    """
    limit = MOST_NBYTES if most is None else most
    offset = offset or mark_nbytes(reader)
    while offset < reader.size:
        data = read_some(reader, offset, TEXT_NBYTES)
        end = len(data) if offset + len(data) >= reader.size else _last_line_end(data, dialect)
        reserved = None
        if not end:
            if offset >= reader.size:
                return  # A packed file, whose end is found when it is reached.
            del data
            wanted = _long_nbytes(reader, offset, line, dialect, limit)
            reserved = None if reserve is None else reserve(line, wanted)
            data = read_some(reader, offset, wanted)
            end = len(data) if offset + len(data) >= reader.size else _last_line_end(data, dialect)
        piece = Piece(offset, line, data if end == len(data) else data[:end])
        del data
        offset = piece.end
        held = [piece]
        del piece
        line += held[0].data.count(b"\n")
        yield held.pop()
        del reserved


def mark_nbytes(reader: Reader | UnpackedReader) -> int:
    """Return the bytes of the mark that some programs put before UTF-8 text; 0 if there is none."""
    return len(_BOM) if read_some(reader, 0, len(_BOM)) == _BOM else 0


def _long_nbytes(
    reader: Reader | UnpackedReader, offset: int, line: int, dialect: Dialect, limit: int
) -> int:
    """Return the bytes of a piece whose first line is longer than usual, found without holding the line."""
    at, state = offset, 0
    wanted = TEXT_NBYTES
    while at < min(reader.size, offset + limit):
        data = read_some(reader, at, min(TEXT_NBYTES, offset + limit - at))
        end, _, state = _native.line_ends(data, dialect.separator, dialect.quote, state)
        if end or at + len(data) >= reader.size:
            length = at - offset + (end or len(data))
            while wanted < length:
                wanted *= 2
            if wanted <= limit:
                return min(wanted, reader.size - offset)
            break
        at += len(data)
    raise UnclosedError(
        f"line {line} has no end within {limit} bytes",
        file=str(reader.location),
        offset=offset,
        cure="Look for a quote that is never closed, or whether this is text at all.",
    )


def next_line(reader: Reader | UnpackedReader, offset: int) -> int:
    """Return where the line after the one at `offset` begins, or the end of the file."""
    while offset < reader.size:
        data = read_some(reader, offset, TEXT_NBYTES)
        end = data.find(b"\n") + 1
        if end:
            return offset + end
        offset += len(data)
    return reader.size


def _last_line_end(data: bytes, dialect: Dialect) -> int:
    """Return where the last whole line ends, outside quotes; 0 if there is none."""
    if not dialect.is_csv:
        return data.rfind(b"\n") + 1
    return _native.line_ends(data, dialect.separator, dialect.quote, 0)[1]
