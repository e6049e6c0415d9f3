"""Text of packed files: any place of it, forward and back, and what comes before the damage."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import DataError
from penstock.io import unpacked
from penstock.io.formats.lines import Piece, read_pieces
from penstock.io.paths import expand
from penstock.io.unpacked import UNKNOWN, UnpackedReader, open_text, read_some


def packed(path: Path, data: bytes, parts: int = 1) -> UnpackedReader:
    step = -(-len(data) // parts) or 1
    some = [data[start : start + step] for start in range(0, len(data), step)] or [b""]
    path.write_bytes(b"".join(map(gzip.compress, some)))
    (location,) = expand(path)
    reader = open_text(location)
    assert isinstance(reader, UnpackedReader)
    return reader


def pieces(reader: UnpackedReader) -> list[Piece]:
    with reader:
        return list(read_pieces(reader))


@pytest.mark.parametrize("parts", [1, 3])
def test_any_place_is_read_whatever_was_read_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    monkeypatch.setattr(unpacked, "_MARK_NBYTES", 300_000)
    monkeypatch.setattr(unpacked, "_NUM_MARKS", 3)
    rng = np.random.default_rng(0)
    data = rng.integers(97, 105, 3_000_000, np.uint8).tobytes()
    with packed(tmp_path / "a.gz", data, parts) as reader:
        assert reader.size == UNKNOWN
        for start in [0, 10, 2_900_000, 2_500_000, 0, 1_400_000, 1_399_999, 5, 2_999_999]:
            assert read_some(reader, start, 70_000) == data[start : start + 70_000]
        assert reader.size == len(data)
        assert read_some(reader, len(data), 10) == b""


def test_pieces_are_those_of_the_plain_text(tmp_path: Path) -> None:
    lines = [b"x" * (n % 700) for n in range(3000)]
    lines[1500] = (
        b"y" * 3_000_000
    )  # Longer than a piece: found, then read again from its beginning.
    for data in (b"\n".join(lines), b"\n".join(lines) + b"\n", b"", b"\n", b"\xef\xbb\xbfa"):
        found = pieces(packed(tmp_path / "a.gz", data))
        assert b"".join(one.data for one in found) == data.removeprefix(b"\xef\xbb\xbf")
        for one in found:
            assert one.line == data[: one.offset].count(b"\n") + 1


def test_what_comes_before_the_damage_is_read(tmp_path: Path) -> None:
    data = b"".join(b"%d\n" % n for n in range(200_000))
    path = tmp_path / "a.gz"
    packed(path, data).close()
    path.write_bytes(path.read_bytes()[:-30_000])
    (location,) = expand(path)
    found = b""
    with open_text(location) as reader, pytest.raises(DataError, match="GZIP data is cut off"):
        for one in read_pieces(reader):
            found += one.data
    assert len(found) > 100_000
    assert data.startswith(found)
    assert found.endswith(b"\n")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"a,b\n1,2\n", r"is not packed by gzip.*give it the name 'a\.csv', or pack it"),
        (b"BZh91AY", r"is not packed by gzip"),
        (b"\x1f\x8b\x08\x00", "its GZIP data is"),
        (b"a", "its GZIP data is"),
    ],
)
def test_a_file_that_is_not_packed_is_named_so(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(data)
    (location,) = expand(path)
    with open_text(location) as reader, pytest.raises(DataError, match=words):
        read_some(reader, 0, 10)
