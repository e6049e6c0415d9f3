"""on_error="skip" for files: what is bad is skipped, counted and named, and all the rest comes."""

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance import Case, Conformance, assert_same, run
from tests.sources.bad_files import (
    CHUNK,
    KINDS,
    LENGTH,
    MIDDLE,
    THREADS,
    Kind,
    check,
    damage,
    damage_hdf5,
    read,
    skipping,
    without,
    write_zarr,
)
from tests.sources.formats import as_nobody, rows_of, sample

import penstock as ps
from penstock.errors import BudgetError, DataError, ReadError
from penstock.sources.hdf5 import arrays as hdf5


@pytest.fixture(params=KINDS)
def kind(request) -> Kind:
    return KINDS[request.param]


@pytest.fixture(params=[name for name, one in KINDS.items() if one.damage is not None])
def chunked(request) -> Kind:
    return KINDS[request.param]


class TestFilesWithoutBadRows(Conformance):
    """What skips must be a dataset like any other where nothing is bad."""

    @pytest.fixture(params=["hdf5", "packed npz", "csv"])
    def case(self, request, tmp_path: Path) -> Case:
        kind = KINDS[request.param]
        paths = kind.files(tmp_path)
        expected = run(kind.open(paths))[::30]
        with_skip = skipping(kind.open(paths))
        return Case(lambda: with_skip.shard(30, 0), expected, has_length=False)


def test_the_order_is_that_of_the_files_where_nothing_is_bad(tmp_path: Path, kind: Kind) -> None:
    paths = kind.files(tmp_path)
    ds = kind.open(paths).batch(7)
    assert_same(run(skipping(ds)), run(ds))
    with pytest.raises(TypeError, match="length can't be known"):
        len(skipping(ds))
    assert "skip" in str(skipping(ds).explain())
    again = skipping(ds).with_options(on_error="raise")
    assert again.node.num_rows == ds.node.num_rows
    assert_same(run(again), run(ds))
    shuffled = skipping(kind.open(paths).shuffle(seed=3, window="2KB"))
    found = read(shuffled)[0]
    assert sorted(found) == list(range(3 * LENGTH))
    assert found != sorted(found)
    assert read(shuffled.with_options(threads=0))[0] == found


def test_a_file_that_vanishes_is_left_out(tmp_path: Path, kind: Kind) -> None:
    paths = kind.files(tmp_path)
    ds = kind.open(paths)
    shutil.rmtree(paths[1]) if paths[1].is_dir() else paths[1].unlink()
    check(
        skipping(ds),
        without(MIDDLE),
        LENGTH if kind.knows_length else 1,
        "part-1",
        "Check the path",
    )
    assert len(read(skipping(ds))[1].skipped) == 1
    with pytest.raises(DataError, match="part-1"):
        run(ds)


def test_a_file_that_shrinks_is_left_out(tmp_path: Path, kind: Kind) -> None:
    paths = kind.files(tmp_path)
    if paths[1].is_dir():
        return  # A store is cut short chunk by chunk: see the damaged ones.
    ds = kind.open(paths)
    os.truncate(paths[1], paths[1].stat().st_size // 2)
    check(skipping(ds), without(MIDDLE), LENGTH if kind.knows_length else 1, "part-1", "changed")
    with pytest.raises(DataError, match="part-1"):
        run(ds)


def test_a_file_that_may_no_longer_be_read_is_left_out(tmp_path: Path, kind: Kind) -> None:
    paths = kind.files(tmp_path)
    read(skipping(kind.open(paths)))  # So that all modules are there: nobody may not read them.
    with as_nobody(tmp_path):
        ds = kind.open(paths)
    mode = paths[1].stat().st_mode
    paths[1].chmod(0)
    try:
        with as_nobody(tmp_path):
            found, report = read(skipping(ds).with_options(threads=2))
    finally:
        paths[1].chmod(mode)
    assert found == without(MIDDLE)
    assert "part-1" in report.skipped[0]
    assert "no permission" in report.skipped[0]


def test_only_the_bad_chunk_is_left_out(tmp_path: Path, chunked: Kind) -> None:
    paths = chunked.files(tmp_path)
    assert chunked.damage is not None
    chunked.damage(paths[1])
    ds = chunked.open(paths)
    lost = range(LENGTH + 2 * CHUNK, LENGTH + 3 * CHUNK)
    rows = f"rows {2 * CHUNK} to {3 * CHUNK}"
    check(skipping(ds), without(lost), CHUNK, "part-1", f"Skipped: {rows} of {paths[1]}")
    assert len(read(skipping(ds))[1].skipped) == 1
    assert sorted(read(skipping(ds.shuffle(seed=1)))[0]) == without(lost)
    batches = run(skipping(ds).batch(32))
    assert np.concatenate([batch["y"] for batch in batches]).tolist() == without(lost)
    with pytest.raises(DataError, match="part-1"):
        run(ds)
    pickled = pickle.loads(pickle.dumps(skipping(ds)))
    assert read(pickled)[0] == without(lost)


def test_one_error_more_than_max_errors_is_raised(tmp_path: Path, chunked: Kind) -> None:
    paths = chunked.files(tmp_path)
    assert chunked.damage is not None
    for path in paths:
        chunked.damage(path)
    ds = chunked.open(paths)
    for threads in THREADS:
        found, report = read(skipping(ds, max_errors=3, threads=threads))
        assert len(found) == 3 * (LENGTH - CHUNK)
        assert report.num_skipped == 3 * CHUNK
        with pytest.raises(DataError, match="part-2") as caught:
            read(skipping(ds, max_errors=2, threads=threads))
        assert "max_errors=2" in caught.value.__notes__[-1]
        with pytest.raises(DataError, match="part-0"):
            read(skipping(ds, max_errors=0, threads=threads))


def test_a_damaged_packed_archive_is_left_out_whole_before_its_first_row(tmp_path: Path) -> None:
    kind = KINDS["packed npz"]
    paths = kind.files(tmp_path)
    ds = kind.open(paths)
    size = paths[1].stat().st_size
    damage(paths[1], size // 3, 3)
    check(skipping(ds), without(MIDDLE), LENGTH, "part-1", "damaged")
    assert "twice" in str(skipping(ds).explain())
    with pytest.raises(DataError, match="part-1"):
        run(ds)
    # A file whose checksum alone is wrong: all of its rows could be had, and are not to be trusted.
    kind.write(paths[1], LENGTH)
    data = bytearray(paths[1].read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + 16] ^= 1
    paths[1].write_bytes(data)
    check(skipping(kind.open(paths)), without(MIDDLE), LENGTH, "part-1", "checksum")


@settings(max_examples=25)
@given(x=st.sets(st.integers(0, 4)), y=st.sets(st.integers(0, 5)), memory=st.integers(0, 2))
def test_what_is_left_out_is_the_union_of_bad_chunks_of_all_fields(
    tmp_path_factory, x, y, memory
) -> None:
    path = tmp_path_factory.mktemp("stores") / "a.zarr"
    write_zarr(path, 0)
    ds = ps.from_files(path)
    for number in x:
        (path / "x" / "c" / f"{number}" / "0").write_bytes(b"no chunk")
    for number in y:
        (path / "y" / "c" / f"{number}").write_bytes(b"no chunk")
    good = [row for row in range(LENGTH) if row // CHUNK not in x and row // 50 not in y]
    found, report = read(skipping(ds, memory=["40MB", "64MB", None][memory]))
    assert found == good
    assert report.num_skipped == LENGTH - len(good)
    limit = len(x) + len(y)
    assert read(skipping(ds, max_errors=limit))[0] == good
    if limit:
        with pytest.raises(DataError, match=r"a\.zarr"):
            read(skipping(ds, max_errors=limit - 1))


def test_rows_of_differing_sizes_are_left_out_one_by_one(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(200)]
    ps.from_arrays({"s": texts, "y": np.arange(200)}).write(tmp_path / "out")
    path = next(one for one in (tmp_path / "out").iterdir() if "s.offsets" in one.name)
    offsets = np.load(path)
    offsets[50] = 1 << 40
    with path.open("r+b") as file:
        file.seek(-offsets.nbytes, os.SEEK_END)
        file.write(offsets.tobytes())
    ds = ps.from_files(tmp_path / "out", verify=False)
    check(
        skipping(ds), [n for n in range(200) if n not in (49, 50)], 2, "s.offsets", "rows 49 to 50"
    )


@pytest.mark.parametrize("file", ["s.values", "s.offsets", "y"])
def test_rows_with_another_checksum_are_left_out_with_their_run(tmp_path: Path, file: str) -> None:
    texts = [f"text {number}" for number in range(4000)]
    ps.from_arrays({"s": texts, "y": np.arange(4000)}).write(tmp_path / "out")
    shard = json.loads((tmp_path / "out" / "manifest.json").read_text())["shards"][0]
    path = tmp_path / "out" / f"{file}-00000.npy"
    content = bytearray(path.read_bytes())
    content[-20] ^= 4  # The last row but one: its run is the last.
    path.write_bytes(content)
    lost = (4000 - 1) // shard["run_rows"] * shard["run_rows"]
    ds = ps.from_files(tmp_path / "out")
    assert 3000 < lost < 3990
    check(skipping(ds), list(range(lost)), 4000 - lost, file, f"rows {lost} to 4000")


def test_what_is_no_bad_file_is_raised_all_the_same(tmp_path: Path, monkeypatch) -> None:
    paths = KINDS["hdf5"].files(tmp_path)
    ds = ps.from_files(paths)
    with pytest.raises(BudgetError):
        run(skipping(ds, memory="1KB"))

    def fails(*_: Any, **__: Any) -> None:
        raise ReadError("reading failed: Input/output error", file=str(paths[1]))

    monkeypatch.setattr(hdf5, "opened_of", fails)
    with pytest.raises(ReadError, match="Input/output error"):
        run(skipping(ds))


def test_functions_see_the_good_rows_and_their_own_errors_stay_apart(tmp_path: Path) -> None:
    paths = KINDS["hdf5"].files(tmp_path)
    damage_hdf5(paths[0])

    def picky(row: Any) -> Any:
        if row["y"] == 5:
            raise RuntimeError("not five")
        return row

    ds = skipping(ps.from_files(paths).map(picky))
    good = [n for n in without(range(2 * CHUNK, 3 * CHUNK)) if n != 5]
    for threads in THREADS:
        found, report = read(ds.with_options(threads=threads))
        assert found == good
        assert report.num_skipped == CHUNK + 1
    assert_same(
        run(skipping(ps.from_files(paths).cache())),
        [row for row in rows_of(sample(3 * LENGTH)) if row["y"] // CHUNK != 2 or row["y"] > LENGTH],
    )
