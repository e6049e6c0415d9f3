"""from_files: which files, which format, and what is said when that can't be told."""

import gzip
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from tests.conformance import assert_same, run
from tests.sources.tar.tars import write_plain_tar
from tests.web_server import serving

import penstock as ps
from penstock.errors import DataError, FieldError, MissingFileError, PenstockWarning
from penstock.sources.files import FORMATS


def test_every_format_has_a_module_with_one_opener() -> None:
    import importlib

    for one in FORMATS.values():
        assert callable(importlib.import_module(f"penstock.sources.{one.module}").open_format)


def test_every_format_is_in_the_tables_of_bad_files_and_of_urls() -> None:
    from tests.sources import bad_files, test_files_behind_a_password

    for table in (bad_files.KINDS, test_files_behind_a_password.KINDS):
        words = {word for name in table for word in name.split()}
        # Images and lines of text have tests of their own beside the tables.
        assert {name for name in FORMATS if name not in ("images", "text")} <= words


def test_no_two_formats_share_an_ending() -> None:
    suffixes = [suffix for one in FORMATS.values() for suffix in one.suffixes]
    assert len(suffixes) == len(set(suffixes))


def test_a_format_that_is_unknown_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"one of npy, npz, raw, .*images.*, got 'xyz'"):
        ps.from_files(tmp_path, format="xyz")
    (tmp_path / "a.weights").write_bytes(b"")
    with pytest.raises(DataError, match=r"a\.weights.*can't be told from '\.weights'.*format="):
        ps.from_files(tmp_path / "a.weights")


def test_files_of_two_formats_are_refused_and_a_format_chooses(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    (tmp_path / "notes.txt").write_text("hello\n")
    with pytest.raises(ValueError, match=r"one format, got npy .*a\.npy.* and text .*format='npy'"):
        ps.from_files(tmp_path)
    assert_same(run(ps.from_files(tmp_path, format="npy")), list(np.arange(3)))


def test_a_folder_is_read_as_the_format_that_most_files_have_and_the_others_are_named(
    tmp_path: Path,
) -> None:
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", np.arange(3 * number, 3 * number + 3))
    (tmp_path / "notes.txt").write_text("hello\n")
    (tmp_path / "labels.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    match = (
        r"3 npy files of .* are read, and not labels\.csv\.gz, notes\.txt beside.*format='csv' or"
    )
    with pytest.warns(PenstockWarning, match=match) as caught:
        ds = ps.from_files(tmp_path)
    assert caught[0].filename == __file__
    assert_same(run(ds), list(np.arange(9)))
    assert run(ps.from_files(tmp_path, format="text")) == ["hello"]
    for several in ([tmp_path / "0.npy", tmp_path / "notes.txt"], f"{tmp_path}/*"):
        with pytest.raises(ValueError, match="the files of a dataset must have one format"):
            ps.from_files(several)
    # Zarr stores are folders, and count as files.
    zarr.open_group(tmp_path / "a.zarr", mode="w").create_array("x", data=np.arange(2))
    with pytest.warns(PenstockWarning, match=r"and not a\.zarr, labels\.csv\.gz, notes\.txt"):
        assert len(ps.from_files(tmp_path)) == 9


def test_files_with_the_ending_of_no_format_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "0.npy", np.arange(3))
    for name in ("a.pkl", "b.pkl", "c.mat", "d.npy.part"):
        (tmp_path / name).write_bytes(b"1")
    match = r"1 npy file of .* and not a\.pkl, b\.pkl, c\.mat and 1 more, .*give format='npy'\.$"
    for folder in (tmp_path, str(tmp_path), f"{tmp_path}/"):
        with pytest.warns(PenstockWarning, match=match) as caught:
            ds = ps.from_files(folder)
        assert [one.filename for one in caught] == [__file__]
    assert_same(run(ds), list(np.arange(3)))
    # Whoever says what is meant is not warned.
    for paths in (tmp_path / "0.npy", f"{tmp_path}/*.npy", [tmp_path / "0.npy"]):
        assert len(ps.from_files(paths)) == 3
    assert len(ps.from_files(tmp_path, format="npy")) == 3


def test_folders_with_data_that_are_not_looked_into_are_named_with_the_glob(tmp_path: Path) -> None:
    for name in ("a", "2024/05/b", "2025/c"):
        path = tmp_path / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n1\n2\n")
    match = (
        r"1 csv file of .* will be read, and not those in its folders 2024, 2025\. .*\*\*/\*\.csv'"
    )
    with pytest.warns(PenstockWarning, match=match) as caught:
        assert len(ps.from_files(tmp_path)) == 2
    assert [one.filename for one in caught] == [__file__]
    assert len(ps.from_files(f"{tmp_path}/**/*.csv")) == 6
    assert len(ps.from_files(tmp_path, format="csv")) == 2


def test_folders_that_are_no_part_of_the_data_are_not_named(tmp_path: Path) -> None:
    np.save(tmp_path / "0.npy", np.arange(3))
    for name in (".hidden", "_temporary", "empty", "deep/.git", "notes"):
        (tmp_path / name).mkdir(parents=True)
    for name in (".hidden/a.npy", "_temporary/a.npy", "deep/.git/a.npy", "notes/_a.npy"):
        np.save(tmp_path / name, np.arange(3))
    (tmp_path / "notes" / "a.txt").write_text("hello\n")
    ps.from_arrays({"x": np.arange(10)}).write(tmp_path / "written")
    zarr.create_array(tmp_path / "store", data=np.arange(9), chunks=(3,))
    assert len(ps.from_files(tmp_path, format="npy")) == 3
    shutil.rmtree(tmp_path / "store")
    assert len(ps.from_files(tmp_path)) == 3


def test_what_lies_beside_data_is_not_warned_of(tmp_path: Path) -> None:
    np.save(tmp_path / "0.npy", np.arange(3))
    papers = ("README", "README.md", "Readme.rst", "LICENSE", "meta.json", "make.py", "run.log")
    hidden = (".a.pkl", "_SUCCESS", "_a.pkl", "Thumbs.db", "desktop.ini")
    for name in (*papers, *hidden, "0.npy.crc32c", "a.sha256", "without_an_ending"):
        (tmp_path / name).write_bytes(b"1")
    (tmp_path / "folder.pkl").mkdir()
    assert len(ps.from_files(tmp_path)) == 3


@pytest.mark.parametrize("format", ["npy", "tfrecord", "zarr"])
def test_a_folder_that_penstock_wrote_is_not_warned_of(tmp_path: Path, format: str) -> None:
    path = tmp_path / ("out.zarr" if format == "zarr" else "out")
    ps.from_arrays({"x": np.arange(10)}).write(path, format=format)
    found = ps.from_tfrecord(path) if format == "tfrecord" else ps.from_files(path)
    assert len(found) == 10
    if format == "npy":
        (path / "manifest.json").unlink()
        assert len(ps.from_files(path)) == 10


@pytest.mark.parametrize("version", [2, 3])
def test_a_zarr_store_is_no_folder_of_others(tmp_path: Path, version: Literal[2, 3]) -> None:
    zarr.create_array(tmp_path / "store", data=np.arange(9), chunks=(3,), zarr_format=version)
    assert len(ps.from_files(tmp_path / "store")) == 9


def test_tfrecords_in_a_folder_are_read_elsewhere(tmp_path: Path) -> None:
    np.save(tmp_path / "mean.npy", np.arange(3))
    (tmp_path / "a.tfrecord-00000-of-00002").write_bytes(b"")
    with pytest.warns(PenstockWarning, match=r"and not a\.tfrecord-.* read by ps.from_tfrecord"):
        assert len(ps.from_files(tmp_path)) == 3
    (tmp_path / "a.tfrecord-00001-of-00002").write_bytes(b"")
    (tmp_path / "a.tfrecord.idx").write_bytes(b"")
    cure = r"most .* are TFRecords: a\.tfrecord-0\S+ \S+2\. Read .*from_tfrecord\(.*; format='npy' reads the others"
    with pytest.raises(DataError, match=cure):
        ps.from_files(tmp_path)
    assert len(ps.from_files(tmp_path, format="npy")) == 3
    (tmp_path / "mean.npy").unlink()
    with pytest.raises(DataError, match=r"most .* are TFRecords: .*from_tfrecord\('\S+'\)\.$"):
        ps.from_files(tmp_path)


def test_a_folder_behind_a_url_is_read_as_the_format_that_most_files_have(tmp_path: Path) -> None:
    import fsspec

    fs = fsspec.filesystem("memory")
    np.save(tmp_path / "a.npy", np.arange(2))
    for name in ("a.npy", "b.npy"):
        fs.pipe(f"/penstock-most/{name}", (tmp_path / "a.npy").read_bytes())
    fs.pipe("/penstock-most/c.txt", b"hello")
    try:
        with pytest.warns(PenstockWarning, match=r"2 npy files of memory://.*not c\.txt beside"):
            assert len(ps.from_files("memory://penstock-most")) == 4
    finally:
        fs.rm("/penstock-most", recursive=True)


def test_a_format_reads_files_with_odd_names(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    (tmp_path / "a.npy").rename(tmp_path / "a.weights")
    assert_same(run(ps.from_files(tmp_path, format="npy")), list(np.arange(3)))


def test_arguments_that_do_not_belong_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    with pytest.raises(ValueError, match="size is for images"):
        ps.from_files(tmp_path / "a.npy", size=(3, 3))
    with pytest.raises(TypeError, match="fields must be names of arrays, got 3"):
        ps.from_files(tmp_path / "a.npy", (3,))


@pytest.mark.parametrize(
    ("package", "name", "extra"),
    [
        ("h5py", "a.h5", "hdf5"),
        ("zarr", "a.zarr", "zarr"),
        ("pyarrow", "a.parquet", "parquet"),
        ("pyarrow", "a.arrow", "parquet"),
        ("PIL", "a.png", "images"),
        ("PIL", "a.jpg", "images"),
        ("simplejpeg", "a.jpg", "images"),
    ],
)
def test_a_package_that_is_missing_is_named_with_the_command(
    tmp_path: Path, package: str, name: str, extra: str
) -> None:
    path = tmp_path / name
    if name == "a.arrow":
        import pyarrow as pa

        with pa.ipc.new_file(path, pa.schema([("x", pa.int64())])) as file:
            file.write_table(pa.table({"x": [1]}))
    elif name.endswith(".zarr"):
        path.mkdir()
    else:
        path.write_bytes(b"x" * 100)
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        f"import penstock as ps\ntry: ps.from_files({str(path)!r})\n"
        "except ImportError as error: print(error)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    suffix = path.suffix
    assert found.stdout == f"reading {suffix} needs {package}: pip install 'penstock[{extra}]'\n"


def test_remote_files_are_read_by_url(tmp_path: Path) -> None:
    import fsspec

    fs = fsspec.filesystem("memory")
    for number in range(2):
        np.save(tmp_path / "a.npy", np.arange(number * 3, number * 3 + 3))
        fs.pipe(f"/penstock-files/{number}.npy", (tmp_path / "a.npy").read_bytes())
    try:
        ds = ps.from_files("memory://penstock-files/*.npy").shuffle(seed=1)
        assert_same(run(ds), run(ps.from_arrays(np.arange(6)).shuffle(seed=1)))
    finally:
        fs.rm("/penstock-files", recursive=True)


def write_every_format(folder: Path, numbers: np.ndarray) -> None:
    import h5py
    import pyarrow as pa
    import pyarrow.feather as feather
    import pyarrow.parquet as pq
    from PIL import Image

    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("y", data=numbers, chunks=(7,), compression="gzip")
    np.save(folder / "a.npy", numbers)
    np.savez(folder / "a.npz", y=numbers)
    np.savez_compressed(folder / "b.npz", y=numbers)
    pq.write_table(pa.table({"y": numbers}), folder / "a.parquet", row_group_size=8)
    feather.write_feather(pa.table({"y": numbers}), folder / "a.feather", chunksize=8)
    (folder / "a.csv").write_text("y\n" + "\n".join(map(str, numbers)))
    lines = "".join(f'{{"y": {number}}}\n' for number in numbers)
    (folder / "a.jsonl").write_text(lines)
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    ps.from_arrays({"y": numbers}).write(folder / "records", format="tfrecord", shards=1)
    Image.fromarray(np.full((4, 5, 3), 9, "u1")).save(folder / "a.png")
    (folder / "a.txt").write_text("one\ntwo\n")
    write_plain_tar(folder / "a.tar", ((f"{one:03d}.cls", str(one).encode()) for one in numbers))


def check_every_format(url: str, numbers: np.ndarray) -> None:
    names = ("a.h5", "a.npz", "b.npz", "a.parquet", "a.feather", "a.csv", "a.jsonl", "b.jsonl.gz")
    for name in names:
        assert [int(row) for row in ps.from_files(f"{url}/{name}", "y")] == numbers.tolist()
    assert [int(row) for row in ps.from_files(f"{url}/a.npy")] == numbers.tolist()
    assert run(ps.from_files(f"{url}/a.txt")) == ["one", "two"]
    assert [int(row) for row in ps.from_files(f"{url}/a.tar", "cls")] == numbers.tolist()
    assert run(ps.from_files(f"{url}/a.png", "image"))[0].tolist() == [[[9] * 3] * 5] * 4


def test_every_format_is_read_behind_a_url(tmp_path: Path) -> None:
    import fsspec

    numbers = np.arange(50)
    write_every_format(tmp_path, numbers)
    fs = fsspec.filesystem("memory")
    fs.put(str(tmp_path), "/penstock-formats", recursive=True)
    try:
        check_every_format("memory://penstock-formats", numbers)
    finally:
        fs.rm("/penstock-formats", recursive=True)


@pytest.mark.parametrize("fault", ["", "503", "reset", "truncate"])
def test_every_format_is_read_from_a_web_server_that_has_its_bad_moments(
    tmp_path: Path, fault: str
) -> None:
    numbers = np.arange(50)
    write_every_format(tmp_path, numbers)
    with serving() as server:
        for path in tmp_path.rglob("*"):
            if path.is_file():
                server.files[f"/{path.relative_to(tmp_path)}"] = path.read_bytes()
        for number in range(0, 40 if fault else 0, 5):  # Each fifth request goes wrong.
            server.faults["GET"].extend([""] * 4 + [fault] if number else [fault])
        check_every_format(server.url(""), numbers)
        (record,) = [name for name in server.files if name.endswith(".tfrecord")]
        found = ps.from_tfrecord(server.url(record), {"y": ps.FixedFeature((), "int64")})
        assert [int(row["y"]) for row in found] == numbers.tolist()
        assert not fault or fault not in server.faults["GET"]
        with pytest.raises(MissingFileError, match=r"nothing\.npy"):
            ps.from_files(server.url("/nothing.npy"))


def write_some_fields(folder: Path, kind: str, *, good: bool = True) -> Path:
    """Write a file with a field `odd` that can't be read as rows, and perhaps a good one, `x`."""
    path = folder / f"a.{kind.partition(' ')[2] or kind}"
    x = {"x": np.arange(4)} if good else {}
    if kind.endswith("npz"):
        save = np.savez_compressed if kind.startswith("packed") else np.savez
        save(path, **x, odd=np.array([{}, 1, 2, 3], object))
    elif kind == "h5":
        with h5py.File(path, "w") as file:
            file.create_dataset("odd", (4,), h5py.ref_dtype)
            file.update(x)
    elif kind == "zarr":
        group = zarr.open_group(path, mode="w")
        for name, values in (x | {"odd": np.array("no rows")}).items():
            group.create_array(name, data=values)
    else:
        table = pa.table(x | {"odd": [{"a": 1}] * 4})
        if kind == "parquet":
            pq.write_table(table, path)
        else:
            with pa.ipc.new_file(path, table.schema) as file:
                file.write_table(table)
    return path


SEVERAL_FIELDS = ["npz", "packed npz", "h5", "zarr", "parquet", "arrow"]


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize("kind", SEVERAL_FIELDS)
def test_a_field_that_can_not_be_read_is_left_out_with_a_warning_unless_it_is_named(
    tmp_path: Path, kind: str
) -> None:
    path = write_some_fields(tmp_path, kind)
    with pytest.warns(PenstockWarning) as caught:
        ds = ps.from_files(path)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    for word in (str(path), "'odd'", "fields=(...)"):
        assert word in str(caught[0].message)
    assert_same(run(ds), [{"x": row} for row in np.arange(4)])
    assert_same(run(ps.from_files(path, "x")), list(np.arange(4)))  # Without a warning.
    with pytest.raises(FieldError, match=r"'odd'") as raised:
        ps.from_files(path, ("x", "odd"))
    assert raised.value.file == str(path)


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize("kind", SEVERAL_FIELDS)
def test_a_file_of_which_no_field_can_be_read_is_an_error(tmp_path: Path, kind: str) -> None:
    path = write_some_fields(tmp_path, kind, good=False)
    with pytest.raises(FieldError, match=r"'odd'") as raised:
        ps.from_files(path)
    assert raised.value.file == str(path)


def test_what_is_left_out_of_many_files_is_one_warning(tmp_path: Path) -> None:
    for number in range(3):
        np.savez(tmp_path / f"{number}.npz", x=np.arange(4), version=3)
    with pytest.warns(
        PenstockWarning, match=r"0\.npz: field 'version'.*\(and in 2 more files\)"
    ) as caught:
        assert len(ps.from_files(tmp_path)) == 12
    assert len(caught) == 1


def test_a_field_that_only_one_file_can_not_give_is_that_files_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(4), y=np.arange(4))
    np.savez(tmp_path / "b.npz", x=np.arange(4), y=3)
    with pytest.raises(FieldError, match=r"b\.npz: field 'y' is a single value"):
        ps.from_files(tmp_path)
    with pytest.warns(PenstockWarning, match=r"b\.npz: field 'y'"):
        ds = ps.from_files(tmp_path, on_error="skip")
    assert len(run(ds)) == 4


def test_fields_of_files_side_by_side_that_are_a_tuple_are_told_of_zip(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3))
    path = str(tmp_path / "x.npy")
    with pytest.raises(ValueError, match=r"fields must be a dict .* for tuples write ps\.zip\(ps"):
        ps.from_files({"x": path, "y": path}, fields=("x", "y"))
    assert run(ps.zip(ps.from_files(path), ps.from_files(path)))[2] == (2, 2)


def test_fields_that_only_later_files_have_are_told(tmp_path: Path) -> None:
    def npz(path: Path, columns: dict[str, np.ndarray]) -> None:
        np.savez(path.with_suffix(".npz"), **columns)

    def deflated(path: Path, columns: dict[str, np.ndarray]) -> None:
        np.savez_compressed(path.with_suffix(".npz"), **columns)

    def hdf5(path: Path, columns: dict[str, np.ndarray]) -> None:
        with h5py.File(path.with_suffix(".h5"), "w") as file:
            for name, column in columns.items():
                file[name] = column

    def parquet(path: Path, columns: dict[str, np.ndarray]) -> None:
        pq.write_table(pa.table(columns), path.with_suffix(".parquet"))

    one = np.arange(3)
    for write in (npz, deflated, hdf5, parquet):
        folder = tmp_path / write.__name__
        folder.mkdir()
        write(folder / "a", {"x": one})
        write(folder / "b", {"x": one, "y": one, "z": one})
        write(folder / "c", {"x": one, "y": one})
        with pytest.warns(
            PenstockWarning, match=r"b\.\w+ \(and 1 more files\) has 'y', 'z', which .*a\."
        ) as caught:
            ds = ps.from_files(folder)
        assert [str(one.filename) for one in caught] == [__file__]
        assert [int(row["x"]) for row in ds] == [0, 1, 2] * 3
        assert (
            len(list(ps.from_files(folder, fields=("x",)))) == 9
        )  # As it was asked for: no warning.
