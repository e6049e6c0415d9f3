"""From what a user writes to the files that are meant, or an error that helps."""

import contextlib
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.errors import AccessError, DataError, MissingFileError, NotAFileError
from penstock.io.paths import expand


@pytest.fixture
def folder(tmp_path) -> Path:
    for name in (
        "b.npy",
        "a.npy",
        "c.npz",
        ".hidden.npy",
        "_SUCCESS",
        "deep/d.npy",
        "deep/er/e.npy",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def names(locations) -> list[str]:
    return [location.name for location in locations]


def test_a_path_comes_with_size_and_time(folder):
    (found,) = expand(folder / "a.npy")
    assert found.url == str(folder / "a.npy")
    assert found.size == 5
    assert found.mtime_ns == (folder / "a.npy").stat().st_mtime_ns
    assert not found.is_remote
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_glob_comes_sorted(folder):
    assert names(expand(f"{folder}/*.npy")) == ["a.npy", "b.npy"]
    assert names(expand(f"{folder}/**/*.npy")) == ["a.npy", "b.npy", "d.npy", "e.npy"]
    assert names(expand(folder / "[ab].np?")) == ["a.npy", "b.npy"]


def test_a_folder_gives_its_files_but_not_the_hidden_ones(folder):
    assert names(expand(folder)) == ["a.npy", "b.npy", "c.npz"]
    assert names(expand(str(folder) + "/", suffixes=(".NPY",))) == ["a.npy", "b.npy"]
    found = expand(folder, suffixes=(".npy",), recursive=True)
    assert names(found) == ["a.npy", "b.npy", "d.npy", "e.npy"]


@pytest.mark.parametrize("make", [ps.from_files, ps.from_tfrecord, expand])
def test_a_path_that_is_named_twice_is_read_once_with_a_warning(tmp_path, monkeypatch, make):
    if make is ps.from_tfrecord:
        ps.from_arrays({"x": np.arange(3)}).write(tmp_path / "w", format="tfrecord")
        (name,) = (str(one) for one in (tmp_path / "w").glob("*.tfrecord"))
    else:
        name = str(tmp_path / "x.npy")
        np.save(name, np.arange(3))
    monkeypatch.chdir(Path(name).parent)
    relative = Path(name).name
    with pytest.warns(
        ps.PenstockWarning, match=rf"{name} is named 2 times, and is read once.*ps\.concatenate"
    ):
        found = make([name, relative])
    assert len(found) == (1 if make is expand else 3)
    with pytest.warns(ps.PenstockWarning, match=r"is named 3 times \(and 1 other paths\)"):
        make([name, "*" + Path(name).suffix, relative, "*" + Path(name).suffix, name])
    make([name, "*" + Path(name).suffix])  # A pattern beside a path is a union.


def test_a_list_keeps_its_order_and_each_file_comes_once(folder):
    found = expand([folder / "c.npz", f"{folder}/*.npy", folder / "a.npy", str(folder / "b.npy")])
    assert names(found) == ["c.npz", "a.npy", "b.npy"]
    assert names(expand(path for path in [folder / "b.npy", folder / "a.npy"])) == [
        "b.npy",
        "a.npy",
    ]


def test_a_set_is_sorted(folder):
    assert names(expand({folder / "c.npz", folder / "b.npy", folder / "a.npy"})) == [
        "a.npy",
        "b.npy",
        "c.npz",
    ]


def test_folders_that_a_glob_matches_are_left_out_beside_files(folder):
    # The user's own glob says _SUCCESS too.
    assert names(expand(f"{folder}/*")) == ["_SUCCESS", "a.npy", "b.npy", "c.npz"]


def test_folders_are_expanded_if_a_glob_matches_nothing_else(folder):
    assert names(expand(f"{folder}/de*")) == ["d.npy"]


def test_a_name_with_brackets_is_a_name_if_it_exists(folder):
    (folder / "x[1].npy").write_bytes(b"1")
    assert names(expand(folder / "x[1].npy")) == ["x[1].npy"]


def test_a_name_with_colons_is_local_if_it_exists(folder, monkeypatch):
    monkeypatch.chdir(folder)
    Path("a::b.npy").write_bytes(b"1")
    (found,) = expand("a::b.npy")
    assert found.url == str(folder / "a::b.npy")
    assert not found.is_remote


def test_relative_paths_become_absolute_and_tilde_is_home(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    assert expand("a.npy") == expand("~/a.npy") == expand(folder / "a.npy")


@pytest.mark.parametrize("name", ["a.npy", "with space.npy", "per%20cent.npy"])
def test_file_urls_are_local(folder, name):
    (folder / name).write_bytes(b"1")
    assert expand((folder / name).as_uri()) == expand(folder / name)
    assert expand(f"file://{folder}/{name}") == expand(folder / name)


def test_a_zarr_store_is_one_thing(folder):
    for mark, store in (("zarr.json", "x.zarr"), (".zarray", "old"), (".zgroup", "g.zarr")):
        (folder / store).mkdir()
        (folder / store / mark).write_text("{}")
    (found,) = expand(folder / "old")
    assert found.is_directory
    assert names(expand(f"{folder}/*.zarr")) == ["g.zarr", "x.zarr"]
    assert names(expand(folder, suffixes=(".zarr",), recursive=True)) == ["g.zarr", "x.zarr"]


def test_a_link_that_leads_in_circles_ends(folder):
    (folder / "deep" / "up").symlink_to(folder)
    found = expand(folder, suffixes=(".npy",), recursive=True)
    assert names(found) == ["a.npy", "b.npy", "d.npy", "e.npy"]


def test_a_missing_file_shows_what_is_there(folder):
    with pytest.raises(MissingFileError, match=r"x.npy: there is no such file. .* holds .*a.npy"):
        expand(folder / "x.npy")
    with pytest.raises(FileNotFoundError, match=r"c.npy: .* holds (a|b|c).np[yz], .* and \d more"):
        expand(folder / "c.npy")
    with pytest.raises(MissingFileError, match=rf"only {folder} exists"):
        expand(folder / "no/such/x.npy")


@pytest.mark.parametrize("braces", ["{a..b}", "{a,b}", "{a,b}*"])
def test_braces_are_told_with_the_glob(folder, braces):
    with pytest.raises(
        MissingFileError, match=r"Braces are no pattern: write '.*/\*.npy', or a list"
    ):
        expand(f"{folder}/{braces}.npy")
    with pytest.raises(MissingFileError, match=r"write '.*/\*.np\*', or a list"):
        expand(f"{folder}/{braces}.np*")


def test_a_file_may_have_braces_in_its_name(folder):
    (folder / "{a,b}.npy").write_bytes(b"1234")
    assert names(expand(folder / "{a,b}.npy")) == ["{a,b}.npy"]


def test_a_glob_that_matches_nothing_shows_what_is_there(folder):
    with pytest.raises(MissingFileError, match=r"\*.parquet: nothing matches. .* holds "):
        expand(f"{folder}/*.parquet")


def test_a_folder_without_such_files_shows_what_is_there(folder, tmp_path_factory):
    with pytest.raises(MissingFileError, match=r"no files ending in .parquet: it holds .* and"):
        expand(folder, suffixes=(".parquet",))
    with pytest.raises(MissingFileError, match="the folder has no files: it is empty"):
        expand(tmp_path_factory.mktemp("empty"))


def test_a_broken_link_names_its_target(folder):
    (folder / "link.npy").symlink_to(folder / "gone.npy")
    with pytest.raises(MissingFileError, match=r"link.npy: a link to .*gone.npy, which is not"):
        expand(folder / "link.npy")


def test_no_permission_is_named(without_privileges, tmp_path_factory):
    folder = tmp_path_factory.mktemp("private")
    # The folders above belong to this user alone as well.
    (folder / "x.npy").write_bytes(b"1")
    (folder / "x.npy").chmod(0)
    with without_privileges(), pytest.raises(AccessError, match="no permission to read it"):
        expand(folder / "x.npy")


@pytest.mark.parametrize(
    "path", [".", "*.npy", "**/*.npy", "x.npy", "gone.npy", "deep/x.npy", "manifest.json"]
)
@pytest.mark.parametrize("read", [expand, ps.from_files, ps.from_tfrecord])
def test_a_folder_that_may_not_be_looked_into_is_named(
    without_privileges, tmp_path_factory, path, read
):
    folder = tmp_path_factory.mktemp("closed")
    (folder / "x.npy").write_bytes(b"1")
    with contextlib.suppress(DataError):
        read(folder / path)  # Modules that it needs may lie where only this user may look.
    folder.chmod(0)
    try:
        with without_privileges(), pytest.raises(AccessError, match=r": .*chmod \+"):
            read(folder / path)
    finally:
        folder.chmod(0o700)


@pytest.mark.parametrize("read", [expand, ps.from_files, ps.from_tfrecord])
@pytest.mark.parametrize(
    "path",
    [
        "{}/" + "x" * 300,
        "{}/" + "x" * 300 + "*",
        "{}" + "/long" * 2000,
        "~nobody-of-this-name/x.npy",
    ],
)
def test_a_path_that_no_file_can_have_is_an_error_of_ours(folder, path, read):
    with pytest.raises(DataError, match=r"too long|no such file|nothing matches"):
        read(path.format(folder))


def test_a_pipe_is_refused_at_once(folder):
    os.mkfifo(folder / "pipe")
    with pytest.raises(NotAFileError, match=r"this is a pipe, socket or device. Name a plain file"):
        expand(folder / "pipe")
    assert names(expand(folder)) == ["a.npy", "b.npy", "c.npz"]


@pytest.mark.parametrize("paths", [None, 5, b"x.npy", [None], [b"x.npy"], [["x.npy"]]])
def test_what_is_no_path_is_a_type_error(paths):
    with pytest.raises(TypeError, match="must be"):
        expand(paths)


@pytest.mark.parametrize("paths", ["", [""], "a\0b", []])
def test_what_names_nothing_is_a_value_error(paths):
    with pytest.raises(ValueError, match="must"):
        expand(paths)


def test_memory_urls_are_listed():
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe({"/penstock/b.npy": b"22", "/penstock/a.npy": b"1", "/penstock/c.txt": b"333"})
    try:
        assert [(one.url, one.size) for one in expand("memory://penstock/*.npy")] == [
            ("memory:///penstock/a.npy", 1),
            ("memory:///penstock/b.npy", 2),
        ]
        assert names(expand("memory://penstock", suffixes=(".npy",))) == ["a.npy", "b.npy"]
        assert expand("memory://penstock/c.txt")[0].size == 3
        with pytest.raises(MissingFileError, match=r"memory://penstock/x.npy: there is no such"):
            expand("memory://penstock/x.npy")
        with pytest.raises(MissingFileError, match=r"memory://penstock/\*.csv: nothing matches"):
            expand("memory://penstock/*.csv")
    finally:
        memory.rm("/penstock", recursive=True)


@pytest.mark.parametrize(
    ("url", "package", "message"),
    [
        ("http://host/x.npy", "fsspec", "reading http:// needs fsspec: pip install 'penstock[r"),
        (
            "https://host/x.npy",
            "aiohttp",
            "reading https:// needs aiohttp: pip install 'penstock[r",
        ),
        ("s3://bucket/x.npy", "s3fs", "reading s3:// needs s3fs: pip install 'penstock[s3]'"),
    ],
)
def test_a_missing_package_is_named_with_the_command(url, package, message, monkeypatch):
    if package != "fsspec":
        pytest.importorskip("fsspec")  # Else it is missing, too, and named first.
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError) as caught:
        expand(url)
    assert message in str(caught.value)


def test_an_unknown_protocol_is_named():
    pytest.importorskip("fsspec")
    with pytest.raises(ValueError, match="reading gopher:// is not possible"):
        expand("gopher://host/x.npy")


def test_local_files_need_no_fsspec(folder):
    code = (
        "import sys; sys.modules['fsspec'] = sys.modules['aiohttp'] = None\n"
        "from penstock.io.paths import expand; from penstock.io.open import open_reader\n"
        f"open_reader(expand({str(folder / 'a.npy')!r})[0]).read_into(bytearray(5), 0)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
