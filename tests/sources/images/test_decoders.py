"""Which library decodes an image follows from the file."""

from pathlib import Path

import pytest
from PIL import Image

from penstock.io.paths import expand
from penstock.sources.images.by_pillow import PillowPicture
from penstock.sources.images.decoders import open_picture, require_decoders
from penstock.sources.images.jpeg import JpegPicture
from penstock.sources.images.png import PngPicture


@pytest.mark.parametrize(
    ("name", "kind", "mode", "decoder"),
    [
        ("a.jpg", "JPEG", "RGB", JpegPicture),
        ("a.JPEG", "JPEG", "L", JpegPicture),
        ("a.data", "JPEG", "RGB", JpegPicture),
        ("a.png", "PNG", "RGB", PngPicture),
        ("a.PNG", "PNG", "L", PngPicture),
        ("a.data", "PNG", "RGBA", PngPicture),
        ("a.png", "PNG", "I;16", PillowPicture),
        ("a.jpg", "JPEG", "CMYK", PillowPicture),
        ("a.tif", "TIFF", "RGB", PillowPicture),
        ("a.webp", "WEBP", "RGB", PillowPicture),
        ("a.gif", "GIF", "P", PillowPicture),
        ("a.bmp", "BMP", "RGB", PillowPicture),
    ],
)
def test_the_decoder_follows_from_the_file(
    tmp_path: Path, name: str, kind: str, mode: str, decoder: type
) -> None:
    Image.new(mode, (5, 4)).save(tmp_path / name, kind)
    with open_picture(expand(tmp_path / name)[0], None) as picture:
        assert type(picture) is decoder
        assert picture.shape == (4, 5, 3)


def test_a_library_is_asked_for_only_where_a_file_may_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.png", "b.jpg"):
        Image.new("RGB", (5, 4)).save(tmp_path / name)
    monkeypatch.setitem(__import__("sys").modules, "simplejpeg", None)
    require_decoders(expand(tmp_path / "a.png"))
    with pytest.raises(ImportError, match=r"reading \.jpg needs simplejpeg: .*penstock\[images\]"):
        require_decoders(expand(tmp_path / "*"))
