"""What decoding an image takes: counted before it is taken, by the format, the mode and the size."""

import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.sources.in_a_cgroup import BUDGET, read_in_a_cgroup

import penstock as ps
from penstock.errors import DataError
from penstock.io.paths import expand
from penstock.sources.images.decoding import HEAD_NBYTES, Picture

LARGE = (4000, 4000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode", "options"),
    [
        ("a.png", "P", {}),
        ("a.png", "1", {}),
        ("a.jpg", "L", {"progressive": True}),
        ("a.gif", "P", {}),
        ("a.tif", "L", {"compression": "tiff_deflate"}),
        ("a.bmp", "1", {}),
        ("a.webp", "RGB", {"method": 0}),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_an_image_larger_than_the_budget_is_refused_by_name_before_it_is_decoded(
    tmp_path: Path, name: str, mode: str, options: dict[str, Any]
) -> None:
    path = tmp_path / name
    Image.new(mode, LARGE).save(path, **options)
    found = read_in_a_cgroup(f"ps.from_files({str(path)!r}, size=(32, 32))", BUDGET // 5)
    assert re.match(rf"BudgetError: .*{name}, 4000 x 4000 pixels, .*memory=\d+", found), found


def test_the_budget_that_is_named_for_a_large_image_does(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.new("P", (2000, 2000)).save(path)
    ds = ps.from_files(path, "image", size=(32, 32))
    with pytest.raises(ps.BudgetError, match=r"a\.png, 2000 x 2000 pixels") as refused:
        ds.with_options(memory="4MB").stream()
    need = int(re.search(r"memory=(\d+)\)", str(refused.value))[1])
    with ds.with_options(memory=need).stream() as stream:
        assert [row.shape for row in stream] == [(32, 32, 3)]
        assert 20_000_000 < stream.report().peak_nbytes <= need


@pytest.mark.parametrize("size", [None, (16, 16)], ids=["varying", "of one size"])
@pytest.mark.parametrize("threads", [0, 2])
def test_an_image_that_was_not_looked_at_is_refused_by_name_or_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: Any, threads: int
) -> None:
    import penstock.sources.images.rows as rows

    monkeypatch.setattr(rows, "_MOST_LOOKED_AT", 3)
    for number in range(9):
        Image.new("RGB", (8 + number % 2, 8)).save(tmp_path / f"{number}.png")
    for number in (2, 4):  # Of nine, 0, 3 and 6 are looked at.
        Image.new("P", (1000, 1000)).save(tmp_path / f"{number}.png")
    ds = ps.from_files(tmp_path, "image", size=size).with_options(threads=threads)
    with pytest.raises(ps.BudgetError, match=r"2\.png: decoding its 1000 x 1000 pixels") as refused:
        list(ds.with_options(memory="6MB"))
    need = int(re.search(r"memory=(\d+)\)", str(refused.value))[1])
    with ds.with_options(memory=need).stream() as stream:
        assert sum(1 for _ in stream) == 9
        assert stream.report().peak_nbytes <= need


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


@pytest.mark.parametrize("kind", [b"tEXt", b"prIv", b"eXIf"])
def test_what_stands_before_the_pixels_is_not_read_without_end(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "a.png"
    Image.new("RGB", (8, 8)).save(path)
    data = path.read_bytes()
    path.write_bytes(data[:33] + chunk(kind, b"k\0" + bytes(HEAD_NBYTES)) + data[33:])
    with pytest.raises(DataError, match=r"a\.png: more than 64 MB stand before its pixels"):
        ps.from_files(path)


@pytest.mark.parametrize("kind", [b"zTXt", b"iCCP"])
def test_packed_texts_and_profiles_are_not_unpacked_without_end(
    tmp_path: Path, kind: bytes
) -> None:
    path = tmp_path / "a.png"
    Image.new("RGB", (8, 8)).save(path)
    data = path.read_bytes()
    bomb = chunk(kind, b"k\0\0" + zlib.compress(bytes(50_000_000)))
    path.write_bytes(data[:33] + bomb + data[33:])
    try:
        assert len(list(ps.from_files(path))) == 1
    except DataError as error:
        assert "a.png" in str(error)  # noqa: PT017  # Pillow may refuse it, too.


def test_a_jpeg_with_one_scan_is_decoded_small_and_one_with_many_is_not(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (800, 800, 3), np.uint8)
    nbytes = {}
    for progressive in (False, True):
        Image.fromarray(values).save(tmp_path / "a.jpg", progressive=progressive)
        (location,) = expand(tmp_path / "a.jpg")
        with Picture(location, (50, 50)) as picture:
            assert (picture.width, picture.height) == (800, 800)
            nbytes[progressive] = picture.nbytes
            assert picture.pixels().shape == (50, 50, 3)
    assert nbytes[True] - nbytes[False] > 2 * 3 * 800 * 800
