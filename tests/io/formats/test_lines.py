"""Text in pieces of whole lines."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.native import twins

from penstock.errors import DataError
from penstock.io.formats import lines
from penstock.io.formats.lines import TEXT, Dialect, read_pieces
from penstock.io.open import open_reader
from penstock.io.paths import expand


def pieces_of(data: bytes, **options: object) -> list[lines.Piece]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.txt"
        path.write_bytes(data)
        with open_reader(expand(path)[0]) as reader:
            return list(read_pieces(reader, **options))


PIECES = [b"a", b"\n", b'"', b"bcd", b",", b',"', b'",', b"\r\n"]


@given(st.lists(st.sampled_from(PIECES)).map(b"".join), st.integers(1, 9))
def test_pieces_are_whole_lines_and_together_everything(data: bytes, nbytes: int) -> None:
    before = lines.TEXT_NBYTES
    lines.TEXT_NBYTES = nbytes
    try:
        for dialect in (TEXT, Dialect(ord(","))):
            found = pieces_of(data, dialect=dialect)
            records, _, _ = twins.records(data, dialect.separator, dialect.quote)
            inside = {at for _, start, end in records for at in range(start, end)}
            assert b"".join(piece.data for piece in found) == data
            line = 1
            for piece in found:
                assert piece.line == line
                line += piece.data.count(b"\n")
            for piece in found[:-1]:
                assert piece.data.endswith(b"\n")
                assert piece.end - 1 not in inside
            for piece in found:
                rest = pieces_of(data, offset=piece.offset, line=piece.line, dialect=dialect)
                assert b"".join(one.data for one in rest) == data[piece.offset :]
    finally:
        lines.TEXT_NBYTES = before


def test_a_line_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "TEXT_NBYTES", 16)
    monkeypatch.setattr(lines, "MOST_NBYTES", 64)
    with pytest.raises(DataError, match=r"line 2 has no end within 64 bytes.*quote"):
        pieces_of(b'a\n"' + b"x" * 1000, dialect=Dialect(ord(",")))
