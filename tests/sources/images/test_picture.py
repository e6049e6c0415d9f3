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
from penstock.sources.images.decoders import open_picture
from penstock.sources.images.picture import HEAD_NBYTES

LARGE = (4000, 4000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode", "options"),
    [
        ("a.png", "P", {}),
        ("a.png", "1", {}),
        ("a.png", "I;16", {}),
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
    Image.new("RGB", (2000, 2000)).save(path)
    ds = ps.from_files(path, "image", size=(32, 32))
    with pytest.raises(ps.BudgetError, match=r"a\.png, 2000 x 2000 pixels") as refused:
        ds.with_options(memory="4MB").stream()
    need = int(re.search(r"memory=(\d+)\)", str(refused.value))[1])
    with ds.with_options(memory=need).stream() as stream:
        assert [row.shape for row in stream] == [(32, 32, 3)]
        assert 16_000_000 < stream.report().peak_nbytes <= need


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
        with open_picture(location, (50, 50)) as picture:
            assert (picture.width, picture.height) == (800, 800)
            nbytes[progressive] = picture.nbytes
            assert picture.shape == (50, 50, 3)
            picture.decode(np.empty((50, 50, 3), np.uint8))
    assert nbytes[True] - nbytes[False] > 2 * 3 * 800 * 800


FORMATS = ["png", "bmp", "tif", "webp", "gif", "jpg"]


def photograph(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Return an image without sharp edges, of which a JPEG keeps most."""
    made = np.random.default_rng(seed).integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), "u1")
    return np.asarray(Image.fromarray(made).resize((width, height), Image.Resampling.BICUBIC))


def stored(values: np.ndarray, kind: str, path: Path, **options: Any) -> Path:
    """Save values such that they can be read back to the bit, or nearly so if that can't be."""
    lossless: dict[str, Any] = {
        "webp": {"lossless": True},
        "jpg": {"quality": 100, "subsampling": 0},
    }
    Image.fromarray(values).save(path / f"a.{kind}", **lossless.get(kind, {}), **options)
    return path / f"a.{kind}"


@pytest.mark.parametrize("size", [(24, 31), (90, 100), (48, 200), (5, 6)])
def test_a_size_is_reached_in_the_same_way_from_every_format(tmp_path: Path, size: Any) -> None:
    values = photograph(48, 62)
    found = {}
    for kind in FORMATS:
        path = stored(values, kind, tmp_path)
        (whole,) = ps.from_files(path, "image")
        (found[kind],) = ps.from_files(path, "image", size=size)
        plain = Image.fromarray(np.array(whole)).resize((62, size[0]), Image.Resampling.BILINEAR)
        wanted = np.asarray(plain.resize(size[::-1], Image.Resampling.BILINEAR))
        if kind == "jpg" and size == (5, 6):  # It is decoded at a quarter of its size.
            assert np.abs(found[kind].astype(int) - wanted).max() <= 8
        else:
            assert np.array_equal(found[kind], wanted)
    assert np.array_equal(found["png"], found["bmp"])
    assert np.array_equal(found["png"], found["tif"])
    assert np.array_equal(found["png"], found["webp"])


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [None, (9, 12)])
def test_what_exif_says_of_turning_is_followed_in_no_format(
    tmp_path: Path, orientation: int, size: Any
) -> None:
    values = photograph(20, 33)
    for kind in ("jpg", "png", "tif", "webp"):
        exif = Image.Exif()
        exif[274] = orientation
        plain = stored(values, kind, tmp_path)
        ((row),) = ps.from_files(plain, "image", size=size)
        turned = stored(values, kind, tmp_path, exif=exif)
        with Image.open(turned) as image:
            assert image.getexif().get(274) == orientation
        ((found),) = ps.from_files(turned, "image", size=size)
        assert found.shape == (*(size or (20, 33)), 3)
        assert np.array_equal(found, row), kind


def test_a_large_jpeg_is_decoded_to_less_and_looks_the_same(tmp_path: Path) -> None:
    values = photograph(1600, 2400)
    (large,) = ps.from_files(stored(values, "jpg", tmp_path), "image", size=(96, 140))
    (exact,) = ps.from_files(stored(values, "png", tmp_path), "image", size=(96, 140))
    far = np.abs(large.astype(int) - exact)
    assert far.mean() < 1.5
    assert far.max() < 12
