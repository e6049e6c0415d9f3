"""Plain JPEGs have a decoder of their own: its pixels are Pillow's, and what is cut off is never taken for whole."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.conformance import run

import penstock as ps
from penstock.errors import DataError
from penstock.io.paths import expand
from penstock.sources.images.by_pillow import PillowPicture
from penstock.sources.images.jpeg import JpegPicture
from penstock.sources.images.picture import HEAD_NBYTES


def photograph(height: int, width: int, seed: int = 0) -> Image.Image:
    small = np.random.default_rng(seed).integers(0, 256, (height // 4 + 2, width // 4 + 2, 3), "u1")
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def opened(path: Path, size: Any = None, *, verify: bool = True) -> JpegPicture:
    found = JpegPicture.opened(expand(path)[0], size, verify=verify)
    assert found is not None
    return found


def pixels(picture: Any) -> np.ndarray:
    out = np.full(picture.shape, 99, np.uint8)
    with picture:
        picture.decode(out)
    return out


OPTIONS: list[dict[str, Any]] = [
    {"quality": 90},
    {"quality": 30, "progressive": True},
    {"quality": 100, "subsampling": 0},
    {"quality": 75, "subsampling": 1, "optimize": True},
    {"restart_marker_blocks": 2},
    {"keep_rgb": True},
    {"icc_profile": bytes(200_000)},
]


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (37, 61), (300, 250)], ids=str)
def test_the_pixels_are_those_of_pillow(
    tmp_path: Path, mode: str, options: dict[str, Any], shape: Any
) -> None:
    path = tmp_path / "a.jpg"
    if mode == "L":
        options = {name: value for name, value in options.items() if name != "keep_rgb"}
    photograph(*shape).convert(mode).save(path, **options)
    for size in (None, (20, 30), (7, 9), shape):
        found = pixels(opened(path, size))
        assert np.array_equal(found, pixels(PillowPicture(expand(path)[0], size)))
    with Image.open(path) as image:
        assert np.array_equal(pixels(opened(path)), np.asarray(image.convert("RGB")))


def test_cmyk_and_other_formats_are_no_plain_jpegs(tmp_path: Path) -> None:
    photograph(30, 30).convert("CMYK").save(tmp_path / "a.jpg")
    photograph(30, 30).save(tmp_path / "b.jpg", "PNG")
    for name in ("a.jpg", "b.jpg"):
        assert JpegPicture.opened(expand(tmp_path / name)[0], None, verify=True) is None
    (row,) = run(ps.from_files(tmp_path / "a.jpg", "image"))
    with Image.open(tmp_path / "a.jpg") as image:
        assert np.array_equal(row, np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("size", [None, (8, 8)])
def test_a_jpeg_that_is_cut_off_is_an_error_wherever_that_is(
    tmp_path: Path, size: Any, *, progressive: bool, verify: bool
) -> None:
    path = tmp_path / "a.jpg"
    photograph(60, 60).save(path, progressive=progressive)
    data = path.read_bytes()
    for cut in (*range(2, len(data), 41), len(data) - 2, len(data) - 1):
        path.write_bytes(data[:cut])
        with pytest.raises(DataError, match=r"a\.jpg"):
            run(ps.from_files(path, "image", size=size, verify=verify))


def test_pixels_that_are_lost_are_an_error_unless_nothing_shall_be_checked(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    photograph(60, 60).save(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + data[-2:])
    with pytest.raises(DataError, match=r"a\.jpg: can't be decoded: .*premature.*verify=False"):
        run(ps.from_files(path, "image"))
    (row,) = run(ps.from_files(path, "image", verify=False))
    with Image.open(io.BytesIO(path.read_bytes())) as image:
        assert np.array_equal(row, np.asarray(image))


@pytest.mark.parametrize("verify", [True, False])
def test_bytes_too_many_do_no_harm(tmp_path: Path, *, verify: bool) -> None:
    path = tmp_path / "a.jpg"
    photograph(60, 60).save(path)
    data = path.read_bytes()
    (wanted,) = run(ps.from_files(path, "image"))
    tables = data.index(b"\xff\xc4")
    for changed in (
        data + b"more" * 99,  # Behind it, as of a film.
        data[:-2] + bytes(3) + data[-2:],  # Before its end.
        data[:tables] + bytes(2) + data[tables:],
    ):
        path.write_bytes(changed)
        (row,) = run(ps.from_files(path, "image", verify=verify))
        assert np.array_equal(row, wanted)


def test_the_header_may_be_longer_than_what_is_read_first(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    photograph(40, 50).save(path)
    data = path.read_bytes()
    (wanted,) = run(ps.from_files(path, "image"))
    note = b"\xff\xe5\xff\xff" + bytes(65_533)
    path.write_bytes(data[:2] + note * 3 + data[2:])
    with opened(path) as picture:
        assert picture.shape == (40, 50, 3)
    (row,) = run(ps.from_files(path, "image"))
    assert np.array_equal(row, wanted)
    path.write_bytes(data[:2] + note * (HEAD_NBYTES // len(note) + 1) + data[2:])
    with pytest.raises(DataError, match=r"a\.jpg: more than 64 MB stand before its pixels"):
        ps.from_files(path)


def test_rows_are_decoded_into_batches_of_every_kind(tmp_path: Path) -> None:
    for number in range(10):
        photograph(24, 32, number).save(tmp_path / f"{number}.jpg")
    wanted = [np.asarray(Image.open(tmp_path / f"{number}.jpg")) for number in range(10)]
    ds = ps.from_files(tmp_path, "image")
    for batches in (
        ds.batch(4),
        ds.batch(5, drop_remainder=True).batch(2).unbatch(),
        ds.shuffle(seed=1).batch(4),
    ):
        found = [image for batch in batches for image in batch]
        for image in found:
            assert sum(np.array_equal(image, other) for other in wanted) == 1
    small = [
        image for batch in ps.from_files(tmp_path, "image", size=12).batch(4) for image in batch
    ]
    assert len(small) == 10
    assert all(
        np.array_equal(one, pixels(opened(tmp_path / f"{number}.jpg", (12, 12))))
        for number, one in enumerate(small)
    )


def test_what_decoding_takes_counts_the_file_and_all_scans(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    nbytes = {}
    for name, options in {
        "plain": {},
        "scans": {"progressive": True},
        "long": {"icc_profile": bytes(8_000_000)},
    }.items():
        photograph(1000, 1000).save(path, **options)
        with opened(path) as picture:
            nbytes[name] = picture.nbytes
    assert nbytes["scans"] - nbytes["plain"] >= 2 * 3 * 1000 * 1000
    assert nbytes["long"] - nbytes["plain"] > 1_000_000
    assert nbytes["plain"] >= 2 * 3 * 1000 * 1000


def test_a_state_of_other_pixels_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    import penstock.sources.images.rows as rows

    photograph(20, 20).save(tmp_path / "a.jpg")
    with ps.from_files(tmp_path, "image").stream() as stream:
        next(stream)
        state = stream.state()
    monkeypatch.setattr(rows, "RULES", "turned round")
    with pytest.raises(ps.StateError, match="belongs to another pipeline"):
        ps.from_files(tmp_path, "image").stream(state=state)
