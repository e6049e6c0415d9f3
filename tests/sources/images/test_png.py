"""Plain PNGs are unpacked natively: their pixels are Pillow's, and so is what is refused."""

import random
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from tests.conformance import run

import penstock as ps
from penstock.errors import DataError
from penstock.io.paths import expand
from penstock.sources.images.by_pillow import PillowPicture
from penstock.sources.images.decoders import open_picture
from penstock.sources.images.png import PngPicture

COLORS = {"L": (0, 1), "RGB": (2, 3), "P": (3, 1), "LA": (4, 2), "RGBA": (6, 4)}


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(
    rows: np.ndarray,
    mode: str,
    *,
    piece: int = 1 << 13,
    palette: bytes = bytes(range(256)) * 3,
    before: bytes = b"",
    **header: int,
) -> bytes:
    """Return a PNG of rows as they are stored: each begins with the number of its filter."""
    color, nbytes = COLORS[mode]
    values = {"bits": 8, "color": color, "compression": 0, "filter": 0, "interlace": 0, **header}
    width = (rows.shape[1] - 1) // nbytes
    packed = zlib.compress(rows.tobytes())
    parts = [packed[at : at + piece] for at in range(0, len(packed), piece)]
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, len(rows), *values.values())),
            before,
            chunk(b"PLTE", palette) if mode == "P" else b"",
            *(chunk(b"IDAT", part) for part in parts),
            chunk(b"IEND", b""),
        ]
    )


def stored(height: int, width: int, mode: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 256, (height, 1 + width * COLORS[mode][1]), np.uint8)
    rows[:, 0] = rng.integers(0, 5, height)
    return rows


def pixels(picture: Any) -> np.ndarray:
    out = np.full(picture.shape, 99, np.uint8)
    with picture:
        picture.decode(out)
    return out


def opened(path: Path, size: Any = None, *, verify: bool = True) -> PngPicture | None:
    return PngPicture.opened(expand(path)[0], size, verify=verify)


@pytest.mark.parametrize("mode", COLORS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (37, 61), (600, 500)], ids=str)
@pytest.mark.parametrize("piece", [7, 1 << 13, 1 << 20])
def test_the_pixels_are_those_of_pillow(tmp_path: Path, mode: str, shape: Any, piece: int) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png(stored(*shape, mode), mode, piece=max(piece, shape[0])))
    for size in (None, (20, 30), (7, 9), shape):
        picture = opened(path, size)
        assert picture is not None
        assert np.array_equal(pixels(picture), pixels(PillowPicture(expand(path)[0], size)))
    with Image.open(path) as image:
        assert np.array_equal(pixels(open_picture(expand(path)[0], None)), image.convert("RGB"))


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "LA", "P"])
@pytest.mark.parametrize(
    "options", [{}, {"optimize": True}, {"compress_level": 0}, {"transparency": 3}], ids=str
)
def test_what_pillow_writes_is_read_as_pillow_reads_it(
    tmp_path: Path, mode: str, options: dict[str, Any]
) -> None:
    path = tmp_path / "a.png"
    small = np.random.default_rng(0).integers(0, 256, (20, 30, 3), "u1")
    image = Image.fromarray(small).resize((150, 100), Image.Resampling.BICUBIC).convert(mode)
    if mode == "RGB" and options.get("transparency"):
        options = {"transparency": (3, 4, 5)}
    if mode in ("LA", "RGBA"):
        options = {name: value for name, value in options.items() if name != "transparency"}
    image.save(path, **options)
    (row,) = run(ps.from_files(path, "image"))
    assert opened(path) is not None
    image.info.pop("transparency", None)
    assert np.array_equal(row, np.asarray(image.convert("RGB")))


@pytest.mark.parametrize(
    ("mode", "options"),
    [("1", {}), ("I;16", {}), ("P", {"bits": 4}), ("RGB", {"save_all": True})],
)
def test_other_pngs_are_left_to_pillow(tmp_path: Path, mode: str, options: dict[str, Any]) -> None:
    path = tmp_path / "a.png"
    first = Image.new(mode, (12, 10), 1 if mode != "RGB" else (1, 2, 3))
    if options.get("save_all"):
        options = {**options, "append_images": [Image.new(mode, (12, 10), (9, 9, 9))]}
    first.save(path, **options)
    assert opened(path) is None
    (row,) = run(ps.from_files(path, "image"))
    assert np.array_equal(row, pixels(PillowPicture(expand(path)[0], None)))


def test_what_one_must_know_to_read_it_is_left_to_pillow(tmp_path: Path) -> None:
    rows = stored(8, 8, "RGB")
    whole = png(rows, "RGB")
    path = tmp_path / "a.png"
    for data in (
        png(rows, "RGB", interlace=1),
        png(rows, "RGB", compression=1),
        png(rows, "RGB", filter=64),
        png(rows, "RGB", bits=16),
        png(rows, "RGB", before=chunk(b"NEWx", b"")),
        png(rows, "RGB", before=chunk(b"IHDR", bytes(13))),
        png(rows, "RGB", before=chunk(b"tEXt", b"a\0b")[:-1] + b"?"),
        whole[:8] + whole[33:],  # Without a header.
        whole[:20],
        b"",
        b"GIF89a",
    ):
        path.write_bytes(data)
        assert opened(path) is None


def test_texts_and_profiles_are_stepped_over_and_long_ones_left_to_pillow(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 40, 3), "u1"))
    for size, is_plain in ((100, True), (50_000, True), (500_000, False)):
        notes = PngInfo()
        notes.add_text("note", "x" * size)
        image.save(path, pnginfo=notes, icc_profile=bytes(300))
        assert (opened(path) is not None) == is_plain
        (row,) = run(ps.from_files(path, "image"))
        assert np.array_equal(row, np.asarray(image))


def test_a_place_outside_the_palette_is_what_pillow_makes_of_it(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    rows = np.array([[0, 0, 1, 2], [0, 3, 1, 0]], np.uint8)
    path.write_bytes(png(rows, "P", palette=bytes(range(6))))
    picture = opened(path)
    assert picture is not None
    assert np.array_equal(pixels(picture), pixels(PillowPicture(expand(path)[0], None)))


def test_more_pixels_than_there_is_room_for_are_what_pillow_makes_of_them(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    rows = stored(9, 8, "RGB")
    data = png(rows, "RGB")
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 5, 8, 2, 0, 0, 0))
    path.write_bytes(data[:8] + head + data[33:])
    picture = opened(path)
    assert picture is not None
    assert np.array_equal(pixels(picture), pixels(PillowPicture(expand(path)[0], None)))


@pytest.mark.parametrize("verify", [True, False])
def test_a_png_that_is_cut_off_is_an_error_wherever_that_is(
    tmp_path: Path, *, verify: bool
) -> None:
    path = tmp_path / "a.png"
    data = png(stored(20, 20, "RGB"), "RGB", piece=200)
    last = len(data) - 12  # What follows is the mark of its end, which Pillow does not ask for.
    for cut in (*range(2, last - 8, 37), last - 9):
        path.write_bytes(data[:cut])
        with pytest.raises(DataError, match=r"a\.png"):
            run(ps.from_files(path, "image", verify=verify))


def test_a_wrong_checksum_is_an_error_unless_nothing_shall_be_checked(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    rows = stored(20, 20, "RGB")
    data = bytearray(png(rows, "RGB"))
    data[-16] ^= 1  # Of the checksum of its pixels.
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"a\.png: a checksum of its pixels is wrong.*verify=False"):
        run(ps.from_files(path, "image"))
    (row,) = run(ps.from_files(path, "image", verify=False))
    assert np.array_equal(row, pixels(PillowPicture(expand(path)[0], None, verify=False)))


@pytest.mark.parametrize("mode", COLORS)
def test_damage_anywhere_is_refused_where_pillow_refuses_it_and_else_gives_its_pixels(
    tmp_path: Path, mode: str
) -> None:
    def result(open_as: Any, *, verify: bool) -> Any:
        try:
            return pixels(open_as(expand(path)[0], None, verify=verify))
        except DataError:
            return None

    path = tmp_path / "a.png"
    whole = png(stored(13, 17, mode), mode, piece=100)
    rng = random.Random(0)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 1, 2, 5])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
        verify = rng.random() < 0.5
        ours = result(open_picture, verify=verify)
        pillow = result(PillowPicture, verify=verify)
        if ours is None or pillow is None:
            assert ours is None, "what Pillow refuses is refused"
            # We refuse a wrong checksum of a chunk that Pillow does not look at, with verify.
            assert pillow is None or verify
        else:
            assert np.array_equal(ours, pillow)


def test_what_decoding_takes_counts_the_file_and_its_pixels(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    taken = {}
    for mode in ("L", "RGB"):
        Image.new(mode, (2000, 2000)).save(path)
        picture = opened(path, (32, 32))
        assert picture is not None
        with picture:
            taken[mode] = picture.nbytes
    assert taken["RGB"] >= 3 * 2000 * 2000
    assert 2000 * 2000 <= taken["L"] < 3 * 2000 * 2000
