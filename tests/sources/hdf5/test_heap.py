"""Values of any length are those that h5py reads, and heaps that lie are refused by name."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import DataError

TEXT = ["", "a", "ä" * 50, "x" * 5000, "y" * 100_000, "日本語", "ends"]
LISTS = [np.arange(size, dtype="f4") for size in (0, 1, 7, 3000, 40_000)]
LAYOUTS: dict[str, Any] = {
    "contiguous": {},
    "chunks": {"chunks": (3,)},
    "packed": {"chunks": (3,), "compression": "gzip", "shuffle": True},
}


def write(
    path: Path, dtype: Any, values: list[Any], *, num_rows: int | None = None, **options: Any
):
    where = {
        "libver": options.pop("libver", None),
        "userblock_size": options.pop("userblock", None),
    }
    with h5py.File(path, "w", **where) as file:
        x = file.create_dataset("x", (num_rows or len(values),), dtype, **options)
        for row, value in enumerate(values):
            x[row] = value


def rows(path: Path) -> list[Any]:
    return [row["x"] for row in ps.from_files(path)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("userblock", [None, 512])
def test_values_are_those_of_h5py(tmp_path: Path, layout: str, libver: str, userblock: Any) -> None:
    options = {**LAYOUTS[layout], "libver": libver, "userblock": userblock}
    path = tmp_path / "a.h5"
    write(path, h5py.string_dtype(), TEXT, num_rows=10, **options)
    assert rows(path) == TEXT + [""] * 3
    assert list(ps.from_arrays(h5py.File(path)["x"])) == TEXT + [""] * 3
    write(
        path, h5py.string_dtype("ascii"), [one.encode() for one in TEXT if one.isascii()], **options
    )
    assert rows(path) == [one.encode() for one in TEXT if one.isascii()]
    write(path, h5py.vlen_dtype("f4"), LISTS, num_rows=7, **options)
    for ds in (rows(path), list(ps.from_arrays(h5py.File(path)["x"]))):
        for found, wanted in zip(ds, [*LISTS, LISTS[0], LISTS[0]], strict=True):
            np.testing.assert_array_equal(found, wanted)


@settings(deadline=None, max_examples=15)
@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), min_size=1))
def test_any_text_comes_back(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("text") / "a.h5"
    write(path, h5py.string_dtype(), values)
    assert rows(path) == values


def test_text_ends_at_a_zero_and_must_be_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write(path, h5py.string_dtype(), ["abcdefgh", "ijkl"])
    path.write_bytes(path.read_bytes().replace(b"abcdefgh", b"abc\0efgh"))
    assert rows(path) == ["abc", "ijkl"]
    path.write_bytes(path.read_bytes().replace(b"ijkl", b"ij\xff\xff"))
    with pytest.raises(DataError, match=r"a\.h5, row 1: dataset 'x': no UTF-8"):
        rows(path)
    assert len(list(ps.from_files(path).with_options(on_error="skip"))) == 1


def changed(path: Path, at: int, number: int, nbytes: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(number.to_bytes(nbytes, "little"))


def test_what_a_heap_claims_is_compared(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    options: Any = {"chunks": (2,)}
    write(path, h5py.string_dtype(), ["one", "two", "three", "four"], **options)
    with h5py.File(path) as file:
        references = file["x"].id.get_chunk_info_by_coord((2,)).byte_offset
    good = path.read_bytes()
    heap = good.index(b"GCOL")
    value = good.index(b"three") - 16
    lies = {
        "the heap at byte .* claims": (heap + 8, 1 << 40, 8),
        "is damaged at byte": (value + 8, 1 << 40, 8),
        "must have 5 bytes, and it has 4": (value + 8, 4, 8),
        "a value claims": (references, 0xFFFFFFFF, 4),
        "must have 6 bytes, and it has 5": (references, 6, 4),
        "there is no heap at byte": (references + 4, 1 << 50, 8),
        "and there is no such value": (references + 12, 999, 4),
    }
    for problem, (at, number, nbytes) in lies.items():
        path.write_bytes(good)
        changed(path, at, number, nbytes)
        with pytest.raises(DataError, match=rf"a\.h5, row \d: dataset 'x': .*{problem}"):
            rows(path)
        left = list(ps.from_files(path).with_options(on_error="skip", memory="64MB"))
        assert len(left) < 4


def test_a_heap_as_large_as_its_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write(path, h5py.string_dtype(), ["one", "two"])
    heap = path.read_bytes().index(b"GCOL")
    with path.open("r+b") as file:
        file.truncate(1 << 34)
    changed(path, heap + 8, (1 << 34) - heap, 8)
    eof = 40  # Of the superblock, which has the size of the file.
    changed(path, eof, 1 << 34, 8)
    assert rows(path) == ["one", "two"]
