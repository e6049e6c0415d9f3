"""penstock convert IN OUT."""

import subprocess
import sys

import numpy as np
import pytest

import penstock as ps
from penstock.cli import main


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
        (["in.npz", "out", "--shard-rows", "0"], "at least 1, got 0"),
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
    assert [path.name for path in archive.parent.iterdir()] == ["in.npz"]


def test_help_says_what_it_does(capsys):
    with pytest.raises(SystemExit):
        main(["convert", "--help"])
    assert "goes on from what is finished" in " ".join(capsys.readouterr().out.split())


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
