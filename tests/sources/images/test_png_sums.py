"""The checksums of a PNG's pixels: a byte that changed is an error, whatever it does to the picture."""

import shutil
import zlib
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
from penstock.sources.images.png_sums import PngSums


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return an image of which Pillow reads some damage as other pixels."""
    values = np.arange(40 * 30 * 3).reshape(40, 30, 3) * 7 % 256
    Image.fromarray(values.astype(np.uint8)).save(tmp_path / "a.png")
    return tmp_path / "a.png"


def places(path: Path) -> tuple[int, int]:
    """Return where the packed pixels begin and end; a checksum follows."""
    content = path.read_bytes()
    begin = content.index(b"IDAT") + 4
    return begin, begin + int.from_bytes(content[begin - 8 : begin - 4], "big")


def change(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


def test_any_changed_byte_of_pixels_or_of_their_checksum_is_an_error(path: Path) -> None:
    begin, end = places(path)
    for at in range(begin, end + 4):
        change(path, at)
        with (
            PillowPicture(expand(path)[0], None) as picture,
            pytest.raises(DataError, match=r"a\.png: (a checksum of its pixels|can't be decoded)"),
        ):
            picture.decode(np.empty(picture.shape, np.uint8))
        change(path, at)


@pytest.mark.parametrize("size", [None, (8, 8)])
def test_a_damaged_image_is_skipped_or_read_as_it_is_if_one_wants_it(path: Path, size: Any) -> None:
    shutil.copy(path, path.with_name("b.png"))
    change(path, places(path)[1])  # Of the checksum: the pixels are good.
    with pytest.raises(DataError, match=r"a\.png: a checksum of its pixels is wrong"):
        run(ps.from_files(path.parent, "image", size=size))
    ds = ps.from_files(path.parent, "image", size=size, verify=False)
    assert len(run(ds)) == 2
    ds = ps.from_files(path.parent, "image", size=size).with_options(on_error="skip")
    assert len(run(ds)) == 1


@pytest.mark.parametrize("step", [1, 3, 8, 1000])
def test_pieces_of_any_size_are_followed_and_those_seen_before_do_not_count(step: int) -> None:
    data = b"".join(
        len(pixels).to_bytes(4, "big")
        + kind
        + pixels
        + zlib.crc32(kind + pixels).to_bytes(4, "big")
        for kind, pixels in [(b"IDAT", b"abcdef"), (b"IDAT", b""), (b"IDAT", b"g"), (b"IEND", b"")]
    )
    for at in (None, 8, 13, 17, 26, 38, 42):
        changed = bytearray(b"before" + data)
        if at is not None:
            changed[6 + at] ^= 1
        sums = PngSums(6)
        for start in range(0, len(changed), step):
            for again in (start // 2, start):
                sums.saw(again, memoryview(changed)[again : start + step])
        assert (sums.is_done, sums.is_bad) == (True, at is not None)
