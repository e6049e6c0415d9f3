"""WebDataset tars: samples of files that have one key, with random access by an index."""

import io
import subprocess
import tarfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.conformance import assert_same, run
from tests.sources.formats import Columns, FormatSuite
from tests.sources.tar.tars import image, npy, row, samples, write_plain_tar, write_tar

import penstock as ps


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


class TestTar(FormatSuite):
    suffix = ".tar"
    options: ClassVar[dict[str, Any]] = {"fields": {"x": "x.npy", "y": "cls"}}

    def write(self, path: Path, columns: Columns) -> None:
        head = npy(columns["x"][0])[: -columns["x"][0].nbytes]
        write_plain_tar(
            path,
            (
                member
                for x, y in zip(columns["x"], columns["y"], strict=True)
                for member in (
                    (f"{y:06d}.cls", str(y).encode()),
                    (f"{y:06d}.x.npy", head + x.tobytes()),
                )
            ),
        )


def test_each_extension_is_a_field_of_its_kind(tmp_path):
    write_tar(tmp_path / "a.tar", samples(30))
    write_tar(tmp_path / "b.tar", samples(12, 30))
    ds = ps.from_files(tmp_path)
    assert ds.spec == {
        "__key__": ps.ArraySpec((), str),
        "bin": ps.ArraySpec((), bytes),
        "cls": ps.ArraySpec((), "int64"),
        "json": ps.ArraySpec((), str),
        "npy": ps.ArraySpec((2, 3), "float32"),
        "txt": ps.ArraySpec((), str),
    }
    assert len(ds) == 42
    assert_same(run(ds), [row(number) for number in range(42)])
    assert_same(
        run(ds.shuffle(seed=1)), run(ps.from_arrays(np.arange(42)).shuffle(seed=1).map(whole))
    )
    assert "by an index" in str(ds.explain())
    chosen = ps.from_files(tmp_path / "*.tar", fields=("txt", {"id": "cls"}))
    assert_same(run(chosen)[7:9], [("é7", {"id": np.int64(7)}), ("é8", {"id": np.int64(8)})])
    with pytest.raises(ps.DataError, match=r"has no field 'jpg', only '__key__', 'bin'"):
        ps.from_files(tmp_path, fields="jpg")
    with pytest.raises(
        ps.DataError, match=r"A field has one name: write 'txt'; on_error='skip' leaves"
    ):
        ps.from_files(tmp_path, fields=("jpg;TXT", "cls"))
    with pytest.raises(ps.DataError, match=r"one name: write 'txt' or 'npy'; "):
        ps.from_files(tmp_path, fields="txt;npy")
    with pytest.raises(ps.DataError, match=r"has no field '.cls', .*Write 'cls'\."):
        ps.from_files(tmp_path, fields=".cls")


def whole(number):
    return row(int(number))


def pictures(count, sizes):
    for number in range(count):
        height, width = sizes[number % len(sizes)]
        pixels = np.full((height, width, 3), number, np.uint8)
        yield f"train/{number:04d}.jpg", image(pixels, "JPEG")
        yield f"train/{number:04d}.seg.png", image(pixels)
        yield f"train/{number:04d}.cls", str(number % 3).encode()


def test_images_are_decoded_as_those_of_folders(tmp_path):
    write_tar(tmp_path / "a.tar", pictures(20, [(16, 24)]))
    with tarfile.open(tmp_path / "a.tar") as tar:
        tar.extractall(tmp_path / "folder", filter="data")
    ds = ps.from_files(tmp_path / "a.tar", fields=("jpg", "seg.png", "cls"))
    assert ds.spec[0] == ds.spec[1] == ps.ArraySpec((16, 24, 3), "uint8")
    for size in (None, (8, 5)):
        mine = run(ps.from_files(tmp_path / "a.tar", ("jpg", "seg.png"), size=size))
        for place, pattern in enumerate(("*.jpg", "*.png")):
            files = f"{tmp_path}/folder/train/{pattern}"
            theirs = run(ps.from_files(files, "image", size=size))
            assert_same([one[place] for one in mine], theirs)
    assert [int(one[2]) for one in run(ds)] == [number % 3 for number in range(20)]
    assert ps.from_files(tmp_path / "a.tar").spec["__key__"] == ps.ArraySpec((), str)
    assert run(ps.from_files(tmp_path / "a.tar", "__key__"))[3] == "train/0003"


def test_images_of_several_sizes_are_ragged_or_resized(tmp_path):
    write_tar(tmp_path / "a.tar", pictures(12, [(16, 24), (7, 9)]))
    ds = ps.from_files(tmp_path / "a.tar", "seg.png")
    assert ds.spec == ps.ArraySpec((None, None, 3), "uint8")
    assert [one.shape for one in run(ds)][:2] == [(16, 24, 3), (7, 9, 3)]
    assert [int(one[0, 0, 0]) for one in run(ds.shuffle(seed=0))] != list(range(12))
    assert ps.from_files(tmp_path / "a.tar", "seg.png", size=(4, 4)).spec.shape == (4, 4, 3)
    with pytest.raises(ValueError, match="size must be"):
        ps.from_files(tmp_path / "a.tar", size=(0, 4))


def test_arrays_of_several_shapes_orders_and_kinds(tmp_path):
    arrays = [np.arange(number * 2, dtype=">i4").reshape(number, 2) for number in range(9)]
    arrays[4] = np.asfortranarray(arrays[4])
    write_tar(tmp_path / "a.tar", ((f"{n}.npy", npy(one)) for n, one in enumerate(arrays)))
    ds = ps.from_files(tmp_path / "a.tar", "npy")
    assert ds.spec == ps.ArraySpec((None, 2), ">i4")
    assert_same(run(ds), arrays)
    fixed = [np.asfortranarray(np.arange(6.0).reshape(2, 3) + n) for n in range(5)]
    write_tar(tmp_path / "f.tar", ((f"{n}.npy", npy(one)) for n, one in enumerate(fixed)))
    assert_same(
        run(ps.from_files(tmp_path / "f.tar", "npy")), list(map(np.ascontiguousarray, fixed))
    )
    scalars = [np.array(n) for n in range(5)]
    write_tar(tmp_path / "s.tar", ((f"{n}.npy", npy(one)) for n, one in enumerate(scalars)))
    assert [int(one) for one in run(ps.from_files(tmp_path / "s.tar", "npy"))] == list(range(5))
    mixed = [("a.npy", npy(np.zeros(3))), ("b.npy", npy(np.zeros(3, "f4")))]
    write_tar(tmp_path / "m.tar", mixed)
    with pytest.raises(ps.SpecMismatchError, match=r"m\.tar: b\.npy is .*float32.*looked at are"):
        run(ps.from_files(tmp_path / "m.tar", "npy"))


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_names_of_every_kind_of_tar(format, tmp_path):
    long = "/".join(["folder" * 4] * (2 if format == tarfile.USTAR_FORMAT else 30))
    names = [f"{long}/one.txt", "./two.txt", "./sub/./three.TXT"]
    if format == tarfile.PAX_FORMAT:
        names.append("ünï.txt")
    others = [".hidden.txt", "no-extension", "__meta__/a.txt", "sub/._mac.txt"]
    path = tmp_path / "a.tar"
    write_tar(path, [(name, name.encode()) for name in names + others], format)
    with tarfile.open(path, "a") as tar:
        folder = tarfile.TarInfo("folder.txt")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        link = tarfile.TarInfo("link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "two.txt"
        tar.addfile(link)
    found = run(ps.from_files(path, ("__key__", "txt")))
    keys = [f"{long}/one", "two", "sub/./three", "ünï"][: len(names)]
    assert found == list(zip(keys, names, strict=True))


def test_what_plain_tar_makes(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number:03d}.txt").write_text(f"text {number}")
        (folder / f"{number:03d}.cls").write_text(str(number))
    (folder / ("x" * 150 + ".cls")).write_text("99")
    (folder / ("x" * 150 + ".txt")).write_text("long")
    for kind in ("gnu", "pax", "ustar"):
        path = tmp_path / f"{kind}.tar"
        names = ["--exclude=xxx*"] if kind == "ustar" else []
        command = ["tar", "--sort=name", f"--format={kind}", *names, "-cf", path, "-C", folder, "."]
        subprocess.run(command, check=True)
        found = run(ps.from_files(path, ("cls", "txt")))
        expected = [(number, f"text {number}") for number in range(20)]
        expected += [] if kind == "ustar" else [(99, "long")]
        assert [(int(number), text) for number, text in found] == expected


def test_tars_put_one_behind_the_other_are_read_to_the_end(tmp_path):
    for number in range(2):
        write_tar(tmp_path / f"{number}.tar", samples(5, number * 5))
    whole = b"".join((tmp_path / f"{number}.tar").read_bytes() for number in range(2))
    (tmp_path / "both.tar").write_bytes(whole)
    assert_same(run(ps.from_files(tmp_path / "both.tar")), [row(number) for number in range(10)])


def lacking():
    for name, data in samples(20):
        if name not in ("000007.cls", "000013.txt"):
            yield name, data


def test_samples_that_lack_a_member_are_named_or_skipped(tmp_path):
    path = tmp_path / "a.tar"
    write_tar(path, lacking())
    with pytest.warns(
        ps.PenstockWarning, match=r"2 of 20 samples lack.*'000007' has no member 'cls'"
    ):
        ds = ps.from_files(path)
    with pytest.raises(
        ps.DataError, match=r"a\.tar.*sample '000007' has no member 'cls'.*--sort=name"
    ):
        run(ds)
    good = [row(number) for number in range(20) if number not in (7, 13)]
    skipping = ds.with_options(on_error="skip")
    for threads in (0, 3):
        with skipping.with_options(threads=threads).stream() as stream:
            assert_same(list(stream), good)
            told = stream.report().skipped
            assert len(told) == 2
            assert "'000013' has no member 'txt'" in told[1]
    with skipping.stream() as stream:
        first = [next(stream) for _ in range(9)]
        state = stream.state()
    assert_same(first + run(skipping, state=state), good)
    # Skipped when it is opened, the others have their numbers and a length.
    opened = ps.from_files(path, on_error="skip")
    assert len(opened) == 18
    assert_same(run(opened), good)
    with opened.stream() as stream:
        list(stream)
        assert "'000007' has no member 'cls'" in "".join(stream.report().skipped)
    # Those that are not asked for may be missing.
    assert len(run(ps.from_files(path, ("bin", "npy")))) == 20


def test_fields_that_few_samples_have_are_left_out_with_a_warning(tmp_path):
    write_tar(tmp_path / "a.tar", [*samples(5), ("000005.extra", b"x"), *samples(3, 6)])
    with pytest.warns(ps.PenstockWarning) as told:
        ds = ps.from_files(tmp_path / "a.tar", on_error="skip")
    assert "only 1 of 9 samples have a member 'extra'" in str(told[0].message)
    assert len(ds) == 8
    with pytest.warns(ps.PenstockWarning, match="8 of 9 samples lack"):
        assert ps.from_files(tmp_path / "a.tar", "extra").spec == ps.ArraySpec((), bytes)


def test_a_member_that_is_there_twice_is_an_error(tmp_path):
    write_tar(tmp_path / "a.tar", [("a.txt", b"1"), ("a.txt", b"2"), ("b.txt", b"3")])
    with pytest.warns(ps.PenstockWarning, match="'a' has two members 'txt'"):
        ds = ps.from_files(tmp_path / "a.tar", "txt")
    assert run(ds.with_options(on_error="skip")) == ["3"]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("3.cls", b"1_0", r"3\.cls: must hold a whole number of 64 bits, got b'1_0'"),
        ("3.cls", b"three", r"3\.cls: must hold a whole number of 64 bits, got b'three'"),
        ("3.cls", b"", r"3\.cls: must hold a whole number"),
        ("3.cls", b"9" * 30, "must hold a whole number of 64 bits"),
        ("3.cls", b"1" * 300, "must hold a whole number of 64 bits"),
        ("3.txt", b"\xff\xfe", r"3\.txt: is no UTF-8"),
        ("3.npy", b"no array", r"3\.npy.*not an \.npy file"),
        ("3.npy", npy(np.zeros(5))[:-1], r"3\.npy.*40 bytes"),
        ("3.npy", npy(np.array([{}], object)), r"3\.npy.*pickle"),
        ("3.npy", npy(np.zeros(4, "f4")), r"3\.npy is .*those that were looked at are"),
        ("3.png", b"no image", r"3\.png"),
        ("3.jpg", image(np.zeros((9, 9, 3), "u1"), "JPEG")[:-200], r"3\.jpg"),
    ],
)
def test_members_that_can_not_be_decoded_are_named_or_skipped(
    name, data, message, tmp_path, monkeypatch
):
    kind = name.partition(".")[2]
    noise = np.random.default_rng(0).integers(0, 255, (9, 9, 3)).astype("u1")
    good = {
        "cls": b"1",
        "txt": b"text",
        "npy": npy(np.zeros(5)),
        "png": image(noise),
        "jpg": image(noise, "JPEG"),
    }[kind]
    if kind == "jpg":
        data = good[:-100]
    members = [(f"{number}.{kind}", data if number == 3 else good) for number in range(6)]
    write_tar(tmp_path / "bad.tar", members)
    # Of large datasets only some members are looked at when it is opened.
    monkeypatch.setattr("penstock.sources.tar.rows.LOOKED_AT", 2)
    ds = ps.from_files(tmp_path / "bad.tar", kind)
    with pytest.raises(ps.PenstockError, match=rf"bad\.tar.*{message}"):
        run(ds.batch(2))
    with ds.with_options(on_error="skip").stream() as stream:
        assert len(list(stream)) == 5
        assert "sample '3' of" in stream.report().skipped[0]


def test_a_tar_that_is_cut_off_is_named_and_its_sound_samples_can_be_kept(tmp_path):
    write_tar(tmp_path / "a.tar", samples(20))
    data = (tmp_path / "a.tar").read_bytes()
    place = data.index(b"000012.npy")
    cut = tmp_path / "cut.tar"
    cut.write_bytes(data[: place + 600])
    with pytest.raises(
        ps.DataError, match=r"cut\.tar.*member '000012\.npy' has 152 bytes, of which 88"
    ):
        ps.from_files(cut)
    ds = ps.from_files(cut, on_error="skip")
    assert_same(run(ds), [row(number) for number in range(12)])
    # At the edge of a file nothing but the end mark is missing.
    cut.write_bytes(data[:place])
    with pytest.raises(ps.DataError, match="no end mark, so that files of it may be missing"):
        ps.from_files(cut)
    both = ps.from_files([tmp_path / "a.tar", cut], on_error="skip")
    assert len(both) == 32


def test_sizes_that_are_wrong_are_an_error(tmp_path):
    write_tar(tmp_path / "a.tar", samples(3))
    data = bytearray((tmp_path / "a.tar").read_bytes())
    for text in (b"77777777777\0", b"-0000000001\0", b"\x80" + b"\xff" * 11, b"\xff" * 12):
        damaged = data.copy()
        damaged[124:136] = text
        damaged[148:156] = b"        "
        damaged[148:156] = f"{sum(damaged[:512]):06o}\0 ".encode()
        (tmp_path / "b.tar").write_bytes(damaged)
        with pytest.raises(ps.DataError, match=r"b\.tar.*(has the size|bytes, of which)"):
            ps.from_files(tmp_path / "b.tar")


def test_packed_tars_are_refused_with_the_cure(tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("a.txt"), io.BytesIO())
    with pytest.raises(ps.DataError, match=r"packed tar can only be read from.*Unpack it once"):
        ps.from_files(tmp_path / "a.tar.gz")
    (tmp_path / "a.tar.gz").rename(tmp_path / "a.tar")
    with pytest.raises(ps.DataError, match=r"packed tar.*gunzip a\.tar"):
        ps.from_files(tmp_path / "a.tar")
    (tmp_path / "empty.tar").write_bytes(bytes(10240))
    with pytest.raises(ps.DataError, match="has no samples"):
        ps.from_files(tmp_path / "empty.tar")


def test_the_order_of_samples_is_the_same_with_any_budget(tmp_path):
    write_tar(tmp_path / "a.tar", samples(3000))
    ds = ps.from_files(tmp_path / "a.tar").shuffle(seed=4, window="20KB").batch(10)
    expected = run(ds)
    assert_same(run(ds.with_options(memory="24MB", threads=2)), expected)
    assert sorted(int(one) for batch in expected for one in batch["cls"]) == list(range(3000))
