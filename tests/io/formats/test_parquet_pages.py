"""The pages of Parquet columns, as their headers tell them, and headers and footers that lie."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import DataError
from penstock.io.formats.parquet_pages import Pages, check_footer, read_pages
from penstock.io.open import open_reader
from penstock.io.paths import expand


def pages_of(path: Path) -> Pages:
    column = pq.read_metadata(path).row_group(0).column(0)
    with open_reader(expand(path)[0]) as reader:
        return read_pages(reader, column, "column 'x'")


def write(path: Path, **options: Any) -> None:
    words = ["a" * 100, "b" * 50] * 500
    pq.write_table(pa.table({"x": words}), path, compression="none", **options)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_words_of_a_dictionary_are_told_from_texts(tmp_path: Path, version: str) -> None:
    path = tmp_path / "a.parquet"
    write(path, data_page_version=version)
    pages = pages_of(path)
    assert (pages.num_words, pages.num_coded, pages.dictionary) == (2, 1000, 158)
    write(path, data_page_version=version, use_dictionary=False)
    pages = pages_of(path)
    assert (pages.num_words, pages.num_coded) == (0, 0)
    assert 79 <= pages.densest <= 81
    write(path, use_dictionary=False, column_encoding={"x": "DELTA_BYTE_ARRAY"})
    assert pages_of(path).has_prefixes


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (b"\x15\x04\x15", b"\x15\xfe\x15", "claims|no page|no end"),  # The kind of the first page.
        (b"\x4c\x15\x04", b"\x4c\x15\x7e", "a dictionary of 158 bytes claims 63 words"),
    ],
)
def test_headers_that_cannot_be_are_refused(
    tmp_path: Path, old: bytes, new: bytes, problem: str
) -> None:
    path = tmp_path / "a.parquet"
    write(path)
    data = path.read_bytes()
    assert old in data[:40]
    path.write_bytes(data.replace(old, new, 1))
    with pytest.raises(DataError, match=rf"a\.parquet, byte \d+: column 'x' .*({problem})"):
        pages_of(path)


def test_columns_of_another_type_than_the_schema_says_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [1, 2, 3]}), path, store_schema=False)
    data = bytearray(path.read_bytes())
    nbytes = int.from_bytes(data[-8:-4], "little")
    with open_reader(expand(path)[0]) as reader:
        check_footer(reader, nbytes)
    start = len(data) - 8 - nbytes
    # The metadata of the column begins with its type, an int64.
    place = data.rindex(b"\x1c\x15\x04", start)
    data[place + 2] = 0x0C
    path.write_bytes(data)
    with (
        open_reader(expand(path)[0]) as reader,
        pytest.raises(DataError, match=r"columns of row group 0 are not those of the schema"),
    ):
        check_footer(reader, nbytes)


@pytest.mark.skipif(
    int(pa.__version__.split(".")[0]) < 19,
    reason="this pyarrow writes no histograms of levels; reading such a file is tested with newer ones",
)
@pytest.mark.parametrize("repetition", [0, 4], ids=["required", "repeated"])
def test_levels_of_other_number_than_the_schema_says_are_refused(
    tmp_path: Path, repetition: int
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [[1, 2], [3]]}), path, store_schema=False)
    data = bytearray(path.read_bytes())
    nbytes = int.from_bytes(data[-8:-4], "little")
    with open_reader(expand(path)[0]) as reader:
        assert not check_footer(reader, nbytes)
    # Before its name, the schema says of an item whether it is optional.
    place = data.index(b"\x25\x02\x18\x07element", len(data) - 8 - nbytes)
    data[place + 1] = repetition
    path.write_bytes(data)
    with (
        open_reader(expand(path)[0]) as reader,
        pytest.raises(DataError, match=r"columns of row group 0 are not those of the schema"),
    ):
        check_footer(reader, nbytes)


def test_a_column_that_claims_to_be_encrypted_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [1, 2, 3]}), path, store_schema=False)
    data = bytearray(path.read_bytes())
    nbytes = int.from_bytes(data[-8:-4], "little")
    # What was its metadata becomes what says how it is encrypted.
    data[data.rindex(b"\x1c\x15\x04", len(data) - 8 - nbytes)] = 0x6C
    path.write_bytes(data)
    with open_reader(expand(path)[0]) as reader:
        assert check_footer(reader, nbytes)
