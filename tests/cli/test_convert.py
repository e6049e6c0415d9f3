"""penstock convert IN OUT."""

import gzip
import subprocess
import sys

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from PIL import Image
from tests.conformance import assert_same, run
from tests.sources.tar.tars import samples, write_tar

import penstock as ps
from penstock.cli import main
from penstock.core.nest import flatten

COUNT = 40
X = np.random.default_rng(0).random((COUNT, 3), dtype="float32")
Y = np.arange(COUNT)
TEXT = [f"line {n}" for n in range(COUNT)]
OUTPUTS = {"": "npy", ".parquet": "parquet", ".tfrecord": "tfrecord", ".zarr": "zarr"}


def hdf5(path):
    with h5py.File(path, "w") as file:
        file["x"], file["y"] = X, Y


def zarr_store(path):
    group = zarr.open_group(path, mode="w")
    group.create_array("x", data=X)
    group.create_array("y", data=Y)


def table():
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 3)
    return pa.table({"x": lists, "y": Y, "text": TEXT})


def arrow(path):
    with pa.ipc.new_file(str(path), table().schema) as writer:
        writer.write_table(table())


def images(path):
    for number in range(4):
        (path / f"class{number % 2}").mkdir(parents=True, exist_ok=True)
        pixels = np.full((5, 6, 3), number * 20, np.uint8)
        Image.fromarray(pixels).save(path / f"class{number % 2}" / f"{number}.png")


def written(format):
    nest = {"x": X, "y": Y, "more": {"text": TEXT, "ragged": [np.arange(n % 4) for n in Y]}}
    return lambda path: ps.from_arrays(nest).write(path, format=format)


INPUTS = {
    "a.npy": (lambda path: np.save(path, X), []),
    "a.npz": (lambda path: np.savez(path, x=X, y=Y), []),
    "packed.npz": (lambda path: np.savez_compressed(path, x=X, y=Y), []),
    "a.bin": (lambda path: X.tofile(path), ["--dtype", "float32", "--shape", "3"]),
    "a.h5": (hdf5, []),
    "a.zarr": (zarr_store, []),
    "a.parquet": (lambda path: pq.write_table(table(), path), []),
    "a.arrow": (arrow, []),
    "a.csv": (lambda path: path.write_text("x,y\n" + "".join(f"{n},{n}.5\n" for n in Y)), []),
    "a.csv.gz": (lambda path: path.write_bytes(gzip.compress(b"x\n1\n2.5\n")), []),
    "a.txt": (lambda path: path.write_text("\n".join(TEXT)), []),
    "images": (images, []),
    "a.tar": (lambda path: write_tar(path, samples(20)), []),
    "resized": (images, ["--size", "3,4"]),
    "shards": (written("npy"), []),
    "table": (written("parquet"), []),
    "store": (written("zarr"), []),
    "records.tfrecord": (written("tfrecord"), []),
    "records": (written("tfrecord"), []),
}


def opened(path, arguments):
    """Return IN as a user of the library would open it."""
    if path.name.startswith("records"):
        return ps.from_tfrecord(path)
    spec = ps.ArraySpec((3,), "float32") if path.suffix == ".bin" else None
    return ps.from_files(path, spec=spec, size=(3, 4) if "--size" in arguments else None)


@pytest.mark.parametrize("suffix", OUTPUTS)
@pytest.mark.parametrize("name", INPUTS)
def test_every_pair_gives_the_same_rows(name, suffix, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    make, arguments = INPUTS[name]
    make(tmp_path / name)
    out = tmp_path / f"out{suffix}"
    assert main(["convert", str(tmp_path / name), str(out), *arguments]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    ds = opened(tmp_path / name, arguments)
    if suffix != ".tfrecord":
        back = ps.from_files(out)
        assert back.spec == ds.spec
        assert_same(run(back), run(ds))
        assert f"{len(back)} rows" in told.out
        return
    back = run(ps.from_tfrecord(out))
    assert len(back) == len(run(ds))
    assert f"{len(back)} rows" in told.out
    # Records have lists of a few dtypes; what they tell of themselves is not all that the rows were.
    for mine, theirs in zip(back, run(ds), strict=True):
        for mine_leaf, leaf in zip(flat(mine), flat(theirs), strict=True):
            assert same_values(mine_leaf, leaf)


def flat(row):
    return flatten(row)[0]


def same_values(found, expected):
    if isinstance(expected, str):
        expected = expected.encode()
    return np.array_equal(np.asarray(found).reshape(-1), np.asarray(expected).reshape(-1))


def test_features_of_records_can_be_chosen(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    written("tfrecord")(tmp_path / "in")
    for number, (fields, spec) in enumerate(
        {
            "y": ps.ArraySpec((), "int64"),
            "y,x": (ps.ArraySpec((), "int64"), ps.ArraySpec((3,), "float32")),
        }.items()
    ):
        arguments = [str(tmp_path / "in"), str(tmp_path / f"{number}.parquet"), "--fields", fields]
        assert main(["convert", *arguments]) == 0
        assert ps.from_files(tmp_path / f"{number}.parquet").spec == spec
    arguments = [str(tmp_path / "in"), str(tmp_path / "no"), "--fields", "z"]
    assert main(["convert", *arguments]) == 1
    assert "has no field 'z', only 'more.ragged'" in capsys.readouterr().err
    # Of names that tell nothing, the format is given.
    (tmp_path / "in" / "part-00000.tfrecord").rename(tmp_path / "data-0")
    arguments = [str(tmp_path / "data-0"), str(tmp_path / "named")]
    assert main(["convert", *arguments]) == 1
    assert "--source-format" in capsys.readouterr().err
    assert main(["convert", *arguments, "--source-format", "tfrecord"]) == 0


def test_what_a_format_does_not_hold_is_one_line(tmp_path, capsys):
    np.save(tmp_path / "in.npy", np.zeros(5, "complex64"))
    assert main(["convert", str(tmp_path / "in.npy"), str(tmp_path / "out.parquet")]) == 1
    error = capsys.readouterr().err
    assert "which no column of Parquet is" in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["in.npy"]


@pytest.fixture
def archive(tmp_path):
    np.savez_compressed(tmp_path / "in.npz", x=np.arange(30.0).reshape(10, 3), y=np.arange(10))
    return tmp_path / "in.npz"


def test_it_writes_what_from_files_reads(archive, tmp_path, capsys):
    assert main(["convert", str(archive), str(tmp_path / "out"), "--shard-rows", "4"]) == 0
    assert "10 rows" in capsys.readouterr().out
    back = ps.from_files(tmp_path / "out")
    assert len(back) == 10
    assert set(back.spec) == {"x", "y"}
    assert np.load(tmp_path / "out" / "x-00001.npy").shape == (4, 3)


def test_fields_can_be_chosen(archive, tmp_path):
    assert main(["convert", str(archive), str(tmp_path / "out"), "--fields", "y,x"]) == 0
    x = next(iter(ps.from_files(tmp_path / "out").batch(10)))
    assert x[0].tolist() == list(range(10))
    assert (
        main(["convert", str(archive), str(tmp_path / "one"), "--fields", "y", "--memory", "64MB"])
        == 0
    )
    assert ps.from_files(tmp_path / "one").spec == ps.ArraySpec((), "int64")


def test_what_exists_is_refused_unless_told_otherwise(archive, tmp_path, capsys):
    assert main(["convert", str(archive), str(tmp_path / "out")]) == 0
    assert main(["convert", str(archive), str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert "exists already" in error
    assert "give --overwrite" in error
    assert "overwrite=True" not in error
    assert main(["convert", str(archive), str(tmp_path / "out"), "--overwrite"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.npz", "out"], "there is no such file"),
        (["in.npz", "out", "--fields", "z"], "has no"),
        (["in.npz", "out", "--memory", "1"], "too small"),
        (["in.npz", "out", "--memory", "1000"], "Give --memory "),
        (["in.npz", "in.npz/out"], "a part of this path is a file"),
        (["in.npz", "n" * 300], "this name is too long. Choose a shorter one."),
        (["in.npz", "/sys/out"], "no permission to write here"),
        (["in.npz", "a\0b"], "must not have a NUL character"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_1(arguments, message, archive, capsys, monkeypatch):
    monkeypatch.chdir(archive.parent)
    assert main(["convert", *arguments]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("penstock convert: ")
    assert error.count("\n") == 1
    assert "Traceback" not in error
    assert [path.name for path in archive.parent.iterdir()] == ["in.npz"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["in.npz", "out", "--dtype", "f4"], "--dtype is for raw files: npz files say themselves"),
        (["in.npz"], "Missing argument 'OUT'"),
        (["in.npz", "out", "--shard-rows", "0"], "'--shard-rows': 0 is not in the range x>=1"),
        (["in.npz", "out", "--memory", "much"], "'--memory': a size must look like '512MB'"),
        (["in.npz", "out", "--size", "3,4,5"], "'--size': '3,4,5' must be a height and a width"),
        (["in.npz", "out", "--shape", "3x4"], "'--shape': '3x4' must be whole numbers"),
        (["in.npz", "out", "--shape", "3"], "--shape is of a raw file, which needs a --dtype"),
        (["in.npz", "out.h5"], "OUT ends in '.h5', which can't be written: write a folder of .npy"),
        (["in.npz", "out.npy"], "(a name without an ending), .parquet, .tfrecord or .zarr."),
        (["in.npz", "out.v2"], ".parquet, .tfrecord or .zarr; or say which with --format"),
        (["in.npz", "out.h5", "--format", "npy"], "--format npy makes something else"),
        (["in.npz", "out.zarr", "--format", "parquet"], "--format parquet makes something else"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(arguments, message, archive, capsys, monkeypatch):
    monkeypatch.chdir(archive.parent)
    assert main(["convert", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("penstock convert: ")
    assert error.endswith("(penstock convert --help)\n")
    assert error.count("\n") == 1
    assert [path.name for path in archive.parent.iterdir()] == ["in.npz"]


def test_help_says_what_it_does(capsys):
    assert main(["convert", "--help"]) == 0
    assert "starts over" in " ".join(capsys.readouterr().out.split())


def test_it_runs_as_a_program(archive, tmp_path):
    command = [sys.executable, "-c", "import sys; from penstock.cli import main; sys.exit(main())"]
    done = subprocess.run(
        [*command, "convert", str(archive), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "10 rows" in done.stdout
    assert done.stderr == ""
