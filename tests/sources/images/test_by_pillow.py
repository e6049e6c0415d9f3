"""Images of more than 8 bits: their high bits, and an error for numbers whose range nobody knows."""

import io
import struct
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.conformance import assert_same, run

import penstock as ps
from penstock.errors import DataError
from penstock.io.paths import expand
from penstock.sources.images import by_pillow
from penstock.sources.images.decoders import open_picture

DEEP = (np.arange(600 * 500) * 977 % 65536).astype(np.uint16).reshape(600, 500)
GREY = np.repeat((DEEP >> 8).astype(np.uint8)[:, :, None], 3, axis=2)


def png(values: np.ndarray, colour: int) -> bytes:
    """Return a PNG of 16 bits, of any number of channels, none of it made by Pillow."""
    height, width = values.shape[:2]
    rows = values.astype(">u2").reshape(height, -1).view(np.uint8)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1).tobytes()
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines)),
        (b"IEND", b""),
    ]
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def tiff(values: np.ndarray, bits: int = 16, photometric: int = 1, sample_format: int = 1) -> bytes:
    """Return a grey TIFF in the byte order of `values`, or of packed bytes `values`."""
    height, width = (4, 6) if values.dtype == np.uint8 else values.shape
    end = "<" if values.dtype == np.uint8 or values.dtype.str[0] == "<" else ">"
    data = values.tobytes()
    tags = {
        256: width,
        257: height,
        258: bits,
        259: 1,
        262: photometric,
        273: 8 + 2 + 9 * 12 + 4,
        277: 1,
        278: height,
        339: sample_format,
    }
    entries = [
        # A short stands at the left of its 4 bytes.
        struct.pack(f"{end}HHIHH", tag, 3, 1, value, 0)
        for tag, value in tags.items()
    ]
    head = (b"II" if end == "<" else b"MM") + struct.pack(f"{end}HIH", 42, 8, len(tags))
    return (
        head
        + b"".join(entries)
        + struct.pack(f"{end}I", 0)
        + data
        + struct.pack(f"{end}I", len(data))
    )


def twelve_bits(values: np.ndarray) -> np.ndarray:
    """Return numbers of 12 bits, two in three bytes."""
    first, second = values.reshape(-1, 2).astype(int).T
    packed = [first >> 4, (first & 15) << 4 | second >> 8, second & 255]
    return np.stack(packed, axis=1).astype(np.uint8).reshape(-1)


def read(folder: Path, name: str, data: bytes, **options: Any) -> np.ndarray:
    (folder / name).write_bytes(data)
    (found,) = run(ps.from_files(folder / name, "image", **options))
    return found


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.png", png(DEEP, 0)),
        ("little.tif", tiff(DEEP.astype("<u2"))),
        ("big.tif", tiff(DEEP.astype(">u2"))),
        ("white is zero.tif", tiff((65535 - DEEP).astype("<u2"), photometric=0)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_images_of_16_bits_are_scaled_to_8(tmp_path: Path, name: str, data: bytes) -> None:
    assert_same([read(tmp_path, name, data)], [GREY])


def test_images_of_12_bits_are_scaled_to_8(tmp_path: Path) -> None:
    values = (np.arange(24) * 170).reshape(4, 6)
    found = read(tmp_path, "a.tif", tiff(twelve_bits(values), bits=12))
    assert found[:, :, 1].tolist() == (values >> 4).tolist()


@pytest.mark.parametrize(("colour", "channels"), [(2, 3), (4, 2), (6, 4)])
def test_colours_of_16_bits_are_scaled_to_8(tmp_path: Path, colour: int, channels: int) -> None:
    values = np.stack([np.roll(DEEP, channel) for channel in range(channels)], axis=2)
    found = read(tmp_path, "a.png", png(values, colour))
    high = (values >> 8).astype(np.uint8)
    assert_same([found], [high[:, :, :3] if channels > 2 else high[:, :, [0, 0, 0]]])


def test_tensorflow_scales_them_the_same_way(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    data = png(DEEP, 0)
    assert_same([read(tmp_path, "a.png", data)], [tf.io.decode_image(data, channels=3).numpy()])


def test_what_older_pillows_open_as_32_bits_is_scaled_too(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.png").write_bytes(png(DEEP, 0))
    (location,) = expand(tmp_path / "a.png")
    picture = open_picture(location, None)
    older = Image.fromarray(DEEP.astype(np.int32))
    assert older.mode == "I"
    older.format = "PNG"
    assert by_pillow._unscaled(older) == ""
    pixels = np.empty((600, 500, 3), np.uint8)
    with picture:
        picture._put(older, pixels)
    assert_same([pixels], [GREY])


def test_they_are_scaled_in_tars_and_in_records_and_before_they_are_resized(tmp_path: Path) -> None:
    data = png(DEEP, 0)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        member = tarfile.TarInfo("a.png")
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    (row,) = run(ps.from_files(tmp_path / "a.tar", "png"))
    assert_same([row], [GREY])
    ps.from_arrays({"image": [data]}).write(tmp_path / "out", format="tfrecord")
    for channels in (1, 3):
        feature = {"image": ps.ImageFeature(channels=channels)}
        (found,) = run(ps.from_tfrecord(tmp_path / "out", feature))
        assert_same([found["image"]], [GREY[:, :, :channels]])
    Image.fromarray(GREY).save(tmp_path / "b.png")
    small = read(tmp_path, "a.png", data, size=(50, 60))
    assert_same([small], run(ps.from_files(tmp_path / "b.png", "image", size=(50, 60))))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (tiff(np.ones((4, 6), "<f4"), 32, sample_format=3), "floats"),
        (tiff(np.ones((4, 6), ">f4"), 32, sample_format=3), "floats"),
        (tiff(np.ones((4, 6), "<i4"), 32, sample_format=2), "signed integers, or ones of 32 bits"),
        (tiff(np.ones((4, 6), "<u4"), 32), "signed integers, or ones of 32 bits"),
        (tiff(np.ones((4, 6), "<i2"), 16, sample_format=2), "signed integers"),
    ],
    ids=["f4", "big f4", "i4", "u4", "i2"],
)
def test_numbers_of_no_known_range_are_refused_with_the_cure(
    tmp_path: Path, data: bytes, what: str
) -> None:
    (tmp_path / "a.tif").write_bytes(data)
    with pytest.raises(DataError, match=rf"a.tif.*: holds {what}.*Scale them to 0 to 255.*\.npy"):
        list(ps.from_files(tmp_path / "a.tif"))
    Image.fromarray(GREY[:4, :6]).save(tmp_path / "b.tif")
    assert len(list(ps.from_files(tmp_path, on_error="skip"))) == 1
