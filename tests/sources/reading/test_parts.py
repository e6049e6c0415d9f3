"""from_files(..., on_error="skip"): files that can't be opened are skipped at the call."""

import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.sources.bad_files import KINDS, LENGTH, MIDDLE, Kind, read, skipping, without
from tests.sources.formats import as_nobody

import penstock as ps
from penstock.errors import DataError, FieldError
from penstock.sources.reading.parts import Request, each_field, left_out_words


@pytest.fixture(params=KINDS)
def kind(request) -> Kind:
    return KINDS[request.param]


def spoil(path: Path, how: str) -> None:
    if how == "cut off":
        os.truncate(path, path.stat().st_size // 2 + 1)
    elif how == "empty":
        os.truncate(path, 0)
    else:
        path.write_bytes(b"\x00\xff" * 501)


@pytest.mark.parametrize("how", ["cut off", "empty", "garbage"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_files_that_can_not_be_opened_are_left_out_at_the_call(
    tmp_path: Path, kind: Kind, how: str, which: int
) -> None:
    if kind.suffix in (".txt", ".csv", ".jsonl", ".bin") and how != "empty":
        return  # They have no structure that could be seen to be wrong.
    if kind.suffix in (".txt", ".jsonl", ".bin"):
        return  # An empty one has no rows.
    if kind.suffix == ".tar" and how == "cut off":
        return  # The samples before the end are kept: tests/sources/tar has that.
    paths = kind.files(tmp_path)
    victim = paths[which] / "zarr.json" if paths[which].is_dir() else paths[which]
    spoil(victim, how)
    with pytest.raises(DataError, match=f"part-{which}") as caught:
        kind.open(paths)
    assert "on_error='skip'" in caught.value.__notes__[0]
    ds = kind.open(paths, on_error="skip")
    good = without(range(which * LENGTH, (which + 1) * LENGTH))
    if kind.knows_length:
        assert len(ds) == 2 * LENGTH
    assert f"1 file skipped: {paths[which]}" in str(ds.explain())
    for one in (ds, skipping(ds)):
        found, report = read(one)
        assert found == good
        assert report.num_skipped == 1
        assert f"part-{which}" in report.skipped[0]
    assert sorted(read(ds.shuffle(seed=2))[0]) == good
    assert read(pickle.loads(pickle.dumps(ds)))[1].num_skipped == 1
    with pytest.raises(DataError, match=f"part-{which}"):
        read(ds.with_options(max_errors=0))


def test_files_of_another_spec_are_left_out_at_the_call(tmp_path: Path, kind: Kind) -> None:
    if not kind.is_mismatch_seen:
        return
    paths = kind.files(tmp_path)
    shutil.rmtree(paths[1]) if paths[1].is_dir() else paths[1].unlink()
    kind.write(paths[1], LENGTH, "int16")
    with pytest.raises(ValueError, match=r"part-0.*part-1"):
        kind.open(paths)
    found, report = read(kind.open(paths, on_error="skip"))
    assert found == without(MIDDLE)
    assert "part-1" in report.skipped[0]


def test_files_that_are_not_there_or_may_not_be_read_are_left_out_at_the_call(
    tmp_path: Path, kind: Kind
) -> None:
    paths = kind.files(tmp_path)
    gone = tmp_path / f"gone{kind.suffix}"
    with pytest.raises(FileNotFoundError, match="gone"):
        kind.open([*paths, gone])
    found, report = read(kind.open([gone, *paths], on_error="skip"))
    assert found == without(range(0))
    assert report.num_skipped == 1
    assert f"gone{kind.suffix}" in report.skipped[0]
    mode = paths[1].stat().st_mode
    paths[1].chmod(0)
    try:
        with as_nobody(tmp_path):
            for given in (paths, tmp_path, f"{tmp_path}/*{kind.suffix}"):
                with pytest.raises(PermissionError, match="part-1"):
                    kind.open(given)
                found, report = read(kind.open(given, on_error="skip"))
                assert found == without(MIDDLE)
                assert "no permission" in report.skipped[0]
    finally:
        paths[1].chmod(mode)


def test_if_no_file_is_good_the_first_error_is_raised(tmp_path: Path, kind: Kind) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere-1"):
        kind.open([tmp_path / f"nowhere-{n}{kind.suffix}" for n in (1, 2)], on_error="skip")
    if kind.suffix in (".npy", ".npz", ".h5", ".parquet", ".arrow"):
        paths = kind.files(tmp_path)
        for path in paths:
            spoil(path, "garbage")
        with pytest.raises(DataError, match="part-0"):
            kind.open(paths, on_error="skip")


def test_shards_that_were_cut_off_are_left_out_at_the_call(tmp_path: Path) -> None:
    ps.from_arrays({"y": np.arange(90)}).write(tmp_path / "out", shard_rows=30)
    path = sorted((tmp_path / "out").glob("y-*.npy"))[1]
    os.truncate(path, path.stat().st_size - 8)
    with pytest.raises(DataError, match=path.name):
        ps.from_files(tmp_path / "out")
    found, report = read(ps.from_files(tmp_path / "out", on_error="skip"))
    assert found == [*range(30), *range(60, 90)]
    assert path.name in report.skipped[0]


def test_any_other_word_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='on_error must be "raise" or "skip", got'):
        ps.from_files(KINDS["npy"].files(tmp_path), on_error="ignore")


def test_fields_that_can_not_be_read_are_left_out_only_if_all_were_asked_for() -> None:
    def make(name: str) -> str:
        if name.startswith("odd"):
            raise FieldError(f"{name} is odd", file="a.h5", cure="Choose others.")
        return name.upper()

    request = Request()
    made, left_out = each_field(["x", "odd", "y"], make, request)
    assert made == {"x": "X", "y": "Y"}
    assert [str(error) for error in left_out.values()] == ["a.h5: odd is odd. Choose others."]
    assert list(request.left_out) == ["odd"]
    named = Request(fields=("x", "odd"))
    with pytest.raises(FieldError, match="odd is odd"):
        each_field(["x", "odd"], make, named)
    with pytest.raises(FieldError, match="odd 1 is odd"):
        each_field(["odd 1", "odd 2"], make, Request())


def test_the_warning_names_some_of_many_fields_and_counts_the_rest() -> None:
    error = FieldError("it is odd", file="a.h5")
    words = left_out_words({f"odd {number}": [error, error, error] for number in range(12)})
    assert words.startswith("12 fields are left out")
    assert words.count("a.h5: it is odd (and in 2 more files)") == 10
    assert "and 2 more. Name" in words
