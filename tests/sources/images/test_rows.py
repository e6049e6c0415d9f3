"""Folders of images: decoded rows, labels from folders, one size or ragged."""

import io
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image
from tests.conformance import Case, assert_same, run
from tests.sources.bad_files import THREADS, skipping
from tests.sources.conformance import SourceConformance
from tests.sources.formats import as_nobody

import penstock as ps
from penstock.errors import DataError


def image(number: int, height: int = 6, width: int = 5) -> np.ndarray:
    values = np.arange(height * width * 3).reshape(height, width, 3) * 7 + number * 13
    return (values % 256).astype(np.uint8)


def write(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    Image.fromarray(values).save(path)


def folder_of(root: Path, *, varying: bool) -> list[dict[str, object]]:
    rows = []
    for label, name in enumerate(("cat", "dog", "eel")):
        for number in range(7):
            values = image(number + label, 6 + (number if varying else 0))
            write(root / name / f"{number}.png", values)
            rows.append({"image": values, "label": np.int64(label)})
    return rows


class TestOneSize(SourceConformance):
    @pytest.fixture
    def case(self, tmp_path: Path) -> Case:
        rows = folder_of(tmp_path, varying=False)
        return Case(lambda: ps.from_files(tmp_path), rows)


class TestVaryingSizes(SourceConformance):
    @pytest.fixture
    def case(self, tmp_path: Path) -> Case:
        rows = folder_of(tmp_path, varying=True)
        return Case(lambda: ps.from_files(tmp_path, format="images"), rows)


def test_labels_are_folders_in_the_order_of_their_names(tmp_path: Path) -> None:
    folder_of(tmp_path, varying=False)
    ds = ps.from_files(tmp_path, ("image", "label"))
    assert [int(label) for _, label in ds] == [0] * 7 + [1] * 7 + [2] * 7
    assert "0 = cat, 1 = dog, 2 = eel" in str(ds.explain())
    assert [int(row) for row in ps.from_files(tmp_path, "label")][::7] == [0, 1, 2]


def test_size_resizes_and_makes_batches_possible(tmp_path: Path) -> None:
    folder_of(tmp_path, varying=True)
    assert ps.from_files(tmp_path, "image").spec == ps.ArraySpec((None, None, 3), "uint8")
    with pytest.raises(ValueError, match="padded_batch"):
        ps.from_files(tmp_path, "image").batch(4)
    ds = ps.from_files(tmp_path, ("image", "label"), size=(8, 4)).shuffle(seed=1).batch(21)
    images, labels = next(iter(ds))
    assert images.shape == (21, 8, 4, 3)
    assert sorted(labels.tolist()) == [0] * 7 + [1] * 7 + [2] * 7
    same = ps.from_files(tmp_path / "cat" / "0.png", "image", size=(6, 5))
    assert_same(run(same), [image(0)])
    for size in ((0, 4), (3,), "ab"):
        with pytest.raises(ValueError, match=r"size must be \(height, width\)"):
            ps.from_files(tmp_path, size=size)


def test_grey_palette_and_alpha_become_three_channels(tmp_path: Path) -> None:
    grey = np.arange(30, dtype=np.uint8).reshape(6, 5)
    write(tmp_path / "a" / "grey.png", grey)
    Image.fromarray(grey).convert("P").save(tmp_path / "a" / "palette.png")
    Image.fromarray(grey).convert("RGBA").save(tmp_path / "a" / "alpha.png")
    for row in ps.from_files(tmp_path, "image"):
        assert_same([row], [np.repeat(grey[:, :, None], 3, axis=2)])


KINDS = {
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".png": "PNG",
    ".bmp": "BMP",
    ".webp": "WEBP",
    ".gif": "GIF",
    ".tif": "TIFF",
    ".TIFF": "TIFF",
}


@pytest.mark.parametrize("suffix", KINDS)
def test_an_image_is_opened_as_what_its_name_says_and_as_nothing_else(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *args, **options: ran.append(args))
    path = tmp_path / f"a{suffix}"
    picture = Image.fromarray(np.full((9, 9, 3), 128, np.uint8))
    for kind in [*sorted({*KINDS.values()}), "EPS", "PPM", "TGA", "ICO"]:
        picture.save(path, kind)
        for size in (None, (4, 4)):
            if kind == KINDS[suffix]:
                (row,) = run(ps.from_files(path, "image", size=size))
                assert abs(int(row[2, 2, 0]) - 128) < 6
                continue
            with pytest.raises(DataError, match=rf"a{suffix}.*it is not {KINDS[suffix]}"):
                run(ps.from_files(path, "image", size=size))
    assert not ran


def test_several_images_in_one_jpeg_are_read_as_the_first(tmp_path: Path) -> None:
    picture = Image.fromarray(np.full((9, 9, 3), 128, np.uint8))
    picture.save(tmp_path / "a.jpg", "MPO", save_all=True, append_images=[picture])
    (row,) = run(ps.from_files(tmp_path / "a.jpg", "image"))
    assert row.shape == (9, 9, 3)


def test_images_whose_names_say_nothing_are_any_of_ours_and_no_other(tmp_path: Path) -> None:
    picture = Image.fromarray(np.full((9, 9, 3), 128, np.uint8))
    for kind in sorted({*KINDS.values()}):
        picture.save(tmp_path / "a.bin", kind)
        assert len(run(ps.from_files(tmp_path / "a.bin", format="images"))) == 1
    picture.save(tmp_path / "a.bin", "EPS")
    with pytest.raises(DataError, match="it is not BMP or GIF or JPEG"):
        run(ps.from_files(tmp_path / "a.bin", format="images"))


def test_what_is_no_image_is_named(tmp_path: Path) -> None:
    rows = folder_of(tmp_path, varying=False)
    data = (tmp_path / "cat" / "3.png").read_bytes()
    ds = ps.from_files(tmp_path)
    for bad in (b"", b"hello", data[:20], data[: len(data) // 2]):
        (tmp_path / "cat" / "3.png").write_bytes(bad)
        with pytest.raises(DataError, match=r"cat/3\.png"):
            run(ps.from_files(tmp_path))
        with pytest.raises(DataError, match=r"cat/3\.png"):
            run(ds)  # It was written to after it was listed.
    (tmp_path / "cat" / "3.png").unlink()
    with pytest.raises(DataError, match=r"cat/3\.png.*vanished"):
        run(ds)
    assert len(run(ps.from_files(tmp_path))) == len(rows) - 1


def test_an_image_that_claims_too_many_pixels_is_refused_unread(tmp_path: Path) -> None:
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    data = (
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    )
    data += struct.pack(">I", 8) + b"IDAT" + b"x" * 12
    (tmp_path / "bomb.png").write_bytes(data)
    with pytest.raises(DataError, match=r"bomb\.png.*pixels"):
        ps.from_files(tmp_path / "bomb.png")
    with pytest.raises(DataError, match=r"bomb\.png.*pixels"):
        run(ps.from_files(tmp_path / "bomb.png", size=(8, 8)))


def test_an_image_of_another_size_than_those_looked_at_is_named(
    tmp_path: Path, monkeypatch
) -> None:
    import penstock.sources.images.rows as images

    monkeypatch.setattr(images, "_MOST_LOOKED_AT", 2)
    for number in range(6):
        write(tmp_path / "a" / f"{number}.png", image(number, 6 if number != 4 else 9))
    with pytest.raises(ValueError, match=r"a/4\.png: is 9 x 5.*are 6 x 5.*size=\(6, 5\)"):
        run(ps.from_files(tmp_path))


def test_no_permission_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a" / "1.png", image(0))
    (tmp_path / "a" / "1.png").chmod(0)
    with as_nobody(tmp_path / "a"), pytest.raises(PermissionError, match="chmod"):
        ps.from_files(tmp_path / "a" / "1.png")


def write_images(folder: Path, count: int = 40) -> list[Path]:
    paths = []
    for number in range(count):
        path = folder / ("cat", "dog")[number % 2] / f"{number:03}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((4, 5, 3), number, np.uint8)).save(path)
        paths.append(path)
    return sorted(paths)


def read_images(ds: ps.Dataset) -> tuple[list[int], Any]:
    with ds.stream() as stream:
        rows = [(int(row["image"][0, 0, 0]), int(row["label"])) for row in stream]
        assert all(number % 2 == label for number, label in rows)
        return [number for number, _ in rows], stream.report()


def test_images_that_can_not_be_decoded_are_left_out(tmp_path: Path) -> None:
    paths = write_images(tmp_path)
    ds = ps.from_files(tmp_path)
    cut, gone, other, wide = paths[3], paths[20], paths[21], paths[39]
    Image.fromarray(np.full((4, 9, 3), 1, np.uint8)).save(wide)
    sized = ps.from_files(tmp_path, size=(4, 5))
    data = cut.read_bytes()
    cut.write_bytes(data[:45])
    gone.unlink()
    other.write_bytes(b"GIF89a but not really")
    good = [int(path.stem) for path in paths if path not in (cut, gone, other, wide)]
    for threads in THREADS:
        found, report = read_images(skipping(ds, threads=threads))
        assert found == good
        assert report.num_skipped == 4
        assert all(
            path.name in told
            for path, told in zip((cut, gone, other, wide), report.skipped, strict=True)
        )
    assert read_images(skipping(sized))[1].num_skipped == 3
    with ds.with_options(on_error="skip").stream() as stream:
        states = [stream.state() for _ in stream]
    for done in range(1, len(good)):
        state = json.loads(json.dumps(states[done - 1]))
        with skipping(ds).stream(state=state) as stream:
            assert [int(row["image"][0, 0, 0]) for row in stream] == good[done:]
    with pytest.raises(DataError, match=cut.name):
        run(ds)
    with pytest.raises(DataError, match=gone.name):
        read_images(skipping(ds, max_errors=1))
    # At the call: those that are looked at, and no class changes its number.
    for path in paths[:20]:
        path.write_bytes(b"no cat")
    with pytest.raises(DataError, match=paths[0].name):
        ps.from_files(tmp_path)
    dogs = ps.from_files(tmp_path, on_error="skip")
    found, report = read_images(dogs)
    assert sorted(found) == [1, *range(5, 38, 2)]
    assert report.num_skipped == 21


CLASSES = ("cat/a.png", "cat/b.PNG", "dog/a.png")
FLAT = ("a.png", "b.PNG")
NOT_DATA = (".DS_Store", "cat/.DS_Store", "Thumbs.db", "README.md", "LICENSE", "cat/notes.txt")


def folder_with(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(exist_ok=True, parents=True)
        if path.suffix.lower() == ".png":
            Image.fromarray(image(1)).save(path, format="png")
        elif path.suffix == ".npy":
            np.save(path, np.zeros((3, 2)))
        else:
            path.write_text("a,b\n1,2\n")
    return root


@pytest.mark.parametrize("images", [CLASSES, FLAT, (*CLASSES, "a.png")], ids=len)
def test_files_that_are_no_data_are_no_matter_to_images(tmp_path: Path, images: Any) -> None:
    folder = folder_with(tmp_path, *NOT_DATA, *images)
    assert len(ps.from_files(folder)) == len(images)
    assert len(ps.from_files(folder, format="images")) == len(images)


@pytest.mark.parametrize("images", [CLASSES, FLAT], ids=["folders", "flat"])
@pytest.mark.parametrize("note", ["README.txt", "README.TXT", "labels.csv", "labels.tsv"])
def test_notes_and_tables_hide_no_images_and_are_named(
    tmp_path: Path, note: str, images: Any
) -> None:
    folder = folder_with(tmp_path, note, *images)
    kind = "text" if note.lower().endswith("txt") else "csv"
    message = rf"read as a folder of images, without {note} beside them; .*format='{kind}'"
    with pytest.warns(ps.PenstockWarning, match=message) as caught:
        ds = ps.from_files(folder)
    assert caught[0].filename == __file__
    assert len(list(ds)) == len(images)
    assert len(list(ps.from_files(folder, format="images"))) == len(images)  # Nothing to say.


def test_images_that_stay_unread_beside_other_data_are_named(tmp_path: Path) -> None:
    arrays = folder_with(tmp_path / "arrays", "mean.npy", *CLASSES)
    with pytest.warns(ps.PenstockWarning, match=r"only mean\.npy .*cat/a\.png; .*format='images'"):
        assert len(ps.from_files(arrays)) == 3
    tables = folder_with(tmp_path / "tables", "a.csv", "b.csv", "figures/loss.png")
    with pytest.warns(ps.PenstockWarning, match=r"only a\.csv, b\.csv .*loss\.png"):
        assert len(list(ps.from_files(tables))) == 2
    mixed = folder_with(tmp_path / "mixed", "a.csv", "b.csv", "c.png")
    with pytest.warns(ps.PenstockWarning, match=r"2 csv files .* not c\.png .*format='images'"):
        assert len(list(ps.from_files(mixed))) == 2
    equal = folder_with(tmp_path / "equal", "a.csv", "c.png")
    with pytest.raises(
        ValueError, match=r"csv .*a\.csv.* and images .*format='csv' or format='images'"
    ):
        ps.from_files(equal)


def damaged_image(kind: str) -> bytes:
    """Return an image of 40 x 40 pixels that claims to have 12000 x 12000."""
    side = 12000
    made = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8)
    options = {"progressive": True} if kind == "jpeg" else {}
    format_name = {"jpg": "JPEG", "tif": "TIFF"}.get(kind, kind.upper())
    Image.fromarray(pixels).save(made, format_name, **options)
    data = bytearray(made.getvalue())
    if kind == "bmp":
        data[18:26] = struct.pack("<ii", side, side)
    elif kind == "png":
        data[16:24] = struct.pack(">II", side, side)
        data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    elif kind == "gif":
        data[6:10] = struct.pack("<HH", side, side)
    elif kind == "webp":
        at = data.index(b"\x9d\x01\x2a") + 3
        data[at : at + 4] = struct.pack("<HH", side, side)
    elif kind == "tif":
        (at,) = struct.unpack_from("<I", data, 4)
        for entry in range(at + 2, at + 2 + 12 * data[at], 12):
            tag, width = struct.unpack_from("<HH", data, entry)
            if tag in {256, 257, 278}:
                struct.pack_into("<H" if width == 3 else "<I", data, entry + 8, side)
    else:
        at = data.index(b"\xff\xc2" if kind == "jpeg" else b"\xff\xc0") + 5
        data[at : at + 4] = struct.pack(">HH", side, side)
    return bytes(data)


def folder_of_images_and(tmp_path: Path, name: str, data: bytes, *, is_uniform: bool) -> Path:
    folder = tmp_path / "data" / "a"
    folder.mkdir(parents=True)
    for number in range(8):
        size = (20, 20 if is_uniform else 20 + number)
        Image.new("RGB", size, (number, 0, 0)).save(folder / f"{number}.png")
    (folder / name).write_bytes(data)
    return tmp_path / "data"


@pytest.mark.parametrize("is_uniform", [True, False])
@pytest.mark.parametrize("kind", ["bmp", "gif", "jpg", "jpeg", "png", "tif", "webp"])
def test_an_image_that_claims_to_be_huge_is_refused_by_name_or_skipped(
    tmp_path: Path, kind: str, *, is_uniform: bool
) -> None:
    folder = folder_of_images_and(tmp_path, f"9.{kind}", damaged_image(kind), is_uniform=is_uniform)
    with pytest.raises((DataError, ps.BudgetError), match=rf"9\.{kind}\b.*12000"):
        list(ps.from_files(folder).with_options(memory=60_000_000))
    with ps.from_files(folder, on_error="skip").with_options(memory=60_000_000).stream() as stream:
        assert [int(row["image"][0, 0, 0]) for row in stream] == list(range(8))
        assert f"9.{kind}" in str(stream.report().skipped)
    sized = ps.from_files(folder, size=(8, 8))
    with sized.with_options(memory=60_000_000, on_error="skip").stream() as stream:
        assert len(list(stream)) == 8
        assert f"9.{kind}" in str(stream.report().skipped)


@pytest.mark.parametrize("is_uniform", [True, False])
def test_an_image_far_larger_than_the_others_is_skipped_where_there_is_no_room_for_it(
    tmp_path: Path, *, is_uniform: bool
) -> None:
    made = io.BytesIO()
    Image.new("L", (5000, 5000)).save(made, "PNG")
    folder = folder_of_images_and(tmp_path, "9.png", made.getvalue(), is_uniform=is_uniform)
    ds = ps.from_files(folder)
    with pytest.raises(ps.BudgetError, match=r"decoding .*9\.png, 5000 x 5000 pixels"):
        list(ds.with_options(memory=60_000_000))
    with ds.with_options(memory=60_000_000, on_error="skip").stream() as stream:
        assert len(list(stream)) == 8
        assert "9.png" in str(stream.report().skipped)
    assert len(list(ds.with_options(memory="2GB", on_error="skip"))) == 9
    # Images that are all as large are no bad ones: the budget is too small for them.
    for number in range(8):
        (folder / "a" / f"{number}.png").write_bytes(made.getvalue())
    with pytest.raises(ps.BudgetError, match="5000 x 5000 pixels"):
        list(ps.from_files(folder).with_options(memory=60_000_000, on_error="skip"))
