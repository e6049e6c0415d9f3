"""What commands read: all formats, several files, files side by side, TFRecords with features by flags."""

import json
import zlib

import numpy as np
import pytest
from tests.web_server import serving

import penstock as ps
from penstock.cli import main

X = np.arange(12, dtype="float32").reshape(6, 2)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.save("y.npy", np.arange(6))
    np.savez("a.npz", x=X, y=np.arange(6))
    return tmp_path


def names_of(capsys, *arguments):
    assert main(["inspect", *arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    return [(one["name"], one["dtype"], one["shape"]) for one in found["fields"]], found


def test_several_paths_are_one_after_the_other(folder, capsys):
    np.save("z.npy", X)
    _, found = names_of(capsys, "x.npy", "z.npy")
    assert found["num_rows"] == 12
    assert found["num_files"] == 2


def test_files_side_by_side_have_names(folder, capsys):
    fields, found = names_of(capsys, "a=x.npy", "b=y.npy")
    assert fields == [("a", "float32", [2]), ("b", "int64", [])]
    assert found["stored_nbytes"] == sum((folder / n).stat().st_size for n in ("x.npy", "y.npy"))
    fields, _ = names_of(capsys, "a=x.npy", "b=y.npy", "--fields", "b")
    assert fields == [("value", "int64", [])]
    assert main(["inspect", "a=x.npy", "b=y.npy", "--fields", "c"]) == 2
    assert "there is no c=PATH, only a, b" in capsys.readouterr().err
    # A file of such a name is a file.
    np.save(folder / "c=x.npy", X[:1])
    assert names_of(capsys, "c=x.npy")[1]["num_rows"] == 1


def test_features_of_tfrecords_are_given_by_flags(folder, capsys):
    ps.from_arrays({"x": X, "y": np.arange(6)}).write("records", format="tfrecord")
    flags = ["--feature", "x=float32[2]", "--feature", "y=int64[?]"]
    fields, _ = names_of(capsys, "records", *flags)
    assert fields == [("x", "float32", [2]), ("y", "int64", [None])]
    fields, _ = names_of(capsys, "records", "--raw")
    assert [dtype for _, dtype, _ in fields] == ["bytes"]
    fields, found = names_of(capsys, "records", "--no-index", "--fields", "y,x")
    assert [dtype for _, dtype, _ in fields] == ["int64", "float32"]
    assert found["num_rows"] is None
    for wrong in ("x", "x=", "x=float32[a]", "x=float32[2,?]"):
        assert main(["inspect", "records", "--feature", wrong]) == 2
        assert "--feature must be NAME=KIND, where KIND is int64" in capsys.readouterr().err
    assert main(["inspect", "records", "--feature", "x=nonsense"]) == 2
    error = capsys.readouterr().err
    assert "--feature: the dtype must be such as float32, uint8 or int64, got 'nonsense'" in error


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("int64", ps.FixedFeature((), "int64")),
        ("bytes", ps.FixedFeature((), bytes)),
        ("image", ps.ImageFeature()),
        ("image:4,5:grey", ps.ImageFeature((4, 5), channels=1)),
        ("tensor:float32[?,3]", ps.TensorFeature((None, 3), "float32")),
        ("sequence:float32[3]", ps.SequenceFeature((3,), "float32")),
    ],
)
def test_kinds_of_features(kind, expected):
    from penstock.cli.features import parse

    assert parse([f"a={kind}"]) == {"a": expected}


def test_flags_of_formats_reach_them(folder, capsys):
    (folder / "a.csv").write_text("a|b\n1,5|2\n")
    fields, _ = names_of(capsys, "a.csv", "--separator", "|", "--decimal", ",")
    assert fields == [("a", "float64", []), ("b", "int64", [])]
    X.tofile("a.bin")
    assert main(["inspect", "a.bin"]) == 1
    assert "a raw file needs --dtype, and --shape" in capsys.readouterr().err
    (folder / "data").write_bytes((folder / "x.npy").read_bytes())
    assert names_of(capsys, "data", "--format", "npy")[1]["num_rows"] == 6
    assert main(["inspect", "data", "--format", "np"]) == 2
    error = capsys.readouterr().err
    assert "--format must be one of npy, npz" in error
    assert "tfrecord" in error


def test_bad_files_are_skipped_if_that_is_wanted(folder, capsys):
    (folder / "z.npy").write_bytes(b"no array")
    assert main(["inspect", "x.npy", "z.npy"]) == 1
    assert "--skip-bad skips files like this" in capsys.readouterr().err
    _, found = names_of(capsys, "x.npy", "z.npy", "--skip-bad")
    assert found["num_files"] == 1


def test_urls_are_read(folder, capsys):
    with serving() as server:
        server.files["/a.npz"] = (folder / "a.npz").read_bytes()
        url = server.url("/a.npz")
        assert names_of(capsys, url)[1]["num_rows"] == 6
        assert main(["bench", url, "--seconds", "0.1"]) == 0
        shown = capsys.readouterr().out
        assert "fetching alone" in shown
        assert "behind a URL" in shown
        assert main(["peek", server.url("/none.npz")]) == 1
        assert "none.npz" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("x=x.npy y=short.npy", 1, "must have the same number of rows, got 6 in x=x.npy, 4 in y=short.npy."),
        ("x=x.npy y.npy", 2, "files side by side are NAME=PATH, each of them, and x=x.npy, y.npy are not."),
        ("x=x.npy x=y.npy", 2, "files side by side have names of their own, got x, x."),
        ("a.npz --fields ,", 2, "--fields names no field"),
        ("raw.bin --dtype foo", 2, "--dtype must be such as float32, uint8 or int64, got 'foo'."),
        ("x.npy --separator ;", 2, "--separator is for CSV files, got ';' for npy files."),
        ("a.csv --separator ;;", 2, "--separator must be one ASCII character"),
        ("x.npy --size 3,3", 2, "--size is for images"),
        ("x.npy y.npy", 1, "float32 (2)"),
        ("ragged.csv", 1, "--separator sets another"),
        ("ragged.csv", 1, "--skip-bad skips this row."),
        ("data.unknown", 1, "tar, tfrecord"),
        ("records --raw --fields a", 2, "--raw has no fields"),
    ],
)  # fmt: skip
def test_mistakes_name_flags_and_files(arguments, code, message, folder, capsys):
    np.save("short.npy", X[:4])
    (folder / "a.csv").write_text("a,b\n1,2\n")
    (folder / "ragged.csv").write_text("a,b\n1,2\n1,2,3\n")
    (folder / "data.unknown").write_text("?")
    X.tofile("raw.bin")
    ps.from_arrays({"x": X}).write("records", format="tfrecord")
    for command in ("inspect", "peek"):
        assert main([command, *arguments.split()]) == code
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
        for word in ("ArraySpec", "from_files", "separator=", "on_error"):
            assert word not in error


def test_records_are_inferred_with_the_compression_that_was_given(folder, capsys):
    ps.from_arrays({"x": X}).write("records", format="tfrecord")
    (plain,) = folder.glob("records/*.tfrecord")
    packer = zlib.compressobj(
        wbits=9
    )  # Its first bytes are not those that packed files mostly have.
    packed = packer.compress(plain.read_bytes()) + packer.flush()
    (folder / "z.tfrecord").write_bytes(packed)
    fields, _ = names_of(capsys, "z.tfrecord", "--compression", "zlib", "--fields", "x")
    assert [dtype for _, dtype, _ in fields] == ["float32"]
