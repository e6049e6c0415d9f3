"""from_arrays of arrays on storage: memmaps, open HDF5 datasets, open Zarr arrays."""

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance import Case, assert_same, run
from tests.sources.conformance import SourceConformance

import penstock as ps
from penstock.errors import DataError
from penstock.sources.reading.leaves import InMemory
from penstock.sources.reading.regions import FortranRegion, Region

VALUES = (np.arange(21)[:, None] * 10 + np.arange(3)).astype("f4")


class TestMemmap(SourceConformance):
    @pytest.fixture
    def case(self, tmp_path: Path) -> Case:
        np.save(tmp_path / "a.npy", VALUES)
        return Case(
            lambda: ps.from_arrays(np.load(tmp_path / "a.npy", mmap_mode="r")), list(VALUES)
        )


class TestOpenHdf5(SourceConformance):
    @pytest.fixture
    def case(self, tmp_path: Path):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("x", data=VALUES, chunks=(4, 2), compression="gzip")
        with h5py.File(tmp_path / "a.h5") as file:
            yield Case(lambda: ps.from_arrays(file["x"]), list(VALUES), is_pickled=False)


class TestOpenZarr(SourceConformance):
    @pytest.fixture
    def case(self, tmp_path: Path) -> Case:
        array = zarr.create_array(tmp_path / "a.zarr", data=VALUES, chunks=(4, 2))
        return Case(lambda: ps.from_arrays(array), list(VALUES))


def leaf(array: np.ndarray) -> object:
    return ps.from_arrays(array).node.leaves[0]


@given(st.data(), st.sampled_from(["r", "r+", "c"]), st.sampled_from("CF"), st.integers(0, 9000))
def test_any_view_of_a_memmap_gives_its_rows(
    data: st.DataObject, mode: str, order: str, offset: int
) -> None:
    import tempfile

    values = np.asarray(np.arange(120, dtype=">i4").reshape(20, 3, 2), order=order)
    slices = (
        data.draw(st.slices(20)),
        data.draw(st.one_of(st.just(slice(None)), st.slices(3), st.integers(0, 2))),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.bin"
        path.write_bytes(b"x" * offset + values.tobytes(order=order))
        mapped = np.memmap(path, ">i4", mode, offset, (20, 3, 2), order)
        view = mapped[slices]
        view = view if data.draw(st.booleans()) else np.asarray(view)
        if mode == "c" and view.size:
            view[...] = 7
        expected = np.array(view)
        assert_same(run(ps.from_arrays(view).batch(3)), run(ps.from_arrays(expected).batch(3)))
        if mode == "c":
            assert isinstance(leaf(view), InMemory)


def test_what_lies_in_a_file_is_read_through_it(tmp_path: Path) -> None:
    np.save(tmp_path / "c.npy", VALUES)
    np.save(tmp_path / "f.npy", np.asfortranarray(VALUES))
    mapped = np.load(tmp_path / "c.npy", mmap_mode="r")
    assert isinstance(leaf(mapped), Region)
    assert isinstance(leaf(mapped[3:9]), Region)
    assert isinstance(leaf(np.load(tmp_path / "f.npy", mmap_mode="r")), FortranRegion)
    assert isinstance(leaf(np.load(tmp_path / "c.npy", mmap_mode="c")), InMemory)
    assert isinstance(leaf(mapped[:, 1:]), InMemory)  # Rows with gaps between them.
    assert isinstance(leaf(np.array(mapped)), InMemory)


def test_a_file_that_was_replaced_or_deleted_is_read_through_its_mapping(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VALUES)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    np.save(tmp_path / "b.npy", VALUES * 0)
    (tmp_path / "b.npy").rename(tmp_path / "a.npy")
    assert isinstance(leaf(mapped), InMemory)
    assert_same(run(ps.from_arrays(mapped)), list(VALUES))
    (tmp_path / "a.npy").unlink()
    assert_same(run(ps.from_arrays(mapped)), list(VALUES))


def test_what_is_written_to_a_mapping_is_seen(tmp_path: Path) -> None:
    mapped = np.lib.format.open_memmap(tmp_path / "a.npy", "w+", "f4", (21, 3))
    ds = ps.from_arrays(mapped)
    mapped[:] = VALUES
    assert_same(run(ds), list(VALUES))
    mapped[5] = -1
    assert run(ds)[5].tolist() == [-1, -1, -1]


def test_a_mapped_file_that_shrinks_is_an_error_and_kills_nobody(tmp_path: Path) -> None:
    """In a process of its own: a SIGBUS would end this one."""
    np.save(tmp_path / "a.npy", np.zeros((200_000, 8)))
    code = f"""
import os, numpy as np, penstock as ps
mapped = np.load({str(tmp_path / "a.npy")!r}, mmap_mode="r")
stream = ps.from_arrays(mapped).batch(100).with_options(threads=0).stream()
next(stream)
os.truncate({str(tmp_path / "a.npy")!r}, 5000)
try:
    list(stream)
except ps.FileChangedError as error:
    print(error)
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert "a.npy" in found.stdout
    assert "shrank" in found.stdout or "changed" in found.stdout


@pytest.mark.parametrize("kind", ["memmap", "hdf5", "zarr"])
def test_large_arrays_on_storage_are_shuffled_in_windows(tmp_path: Path, kind: str) -> None:
    values = np.arange(60_000, dtype="f8").reshape(30_000, 2)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        if kind == "memmap":
            np.save(tmp_path / "a.npy", values)
            array = np.load(tmp_path / "a.npy", mmap_mode="r")
        elif kind == "hdf5":
            array = file.create_dataset("x", data=values, chunks=(1000, 2))
        else:
            array = zarr.create_array(tmp_path / "a.zarr", data=values, chunks=(1000, 2))
        ds = ps.from_arrays({"x": array, "y": np.arange(30_000)})
        ds = ds.shuffle(window="150KB").batch(1000)
        assert "windowed" in str(ds.explain())
        batches = run(ds)
    rows = np.concatenate([batch["y"] for batch in batches])
    assert sorted(rows.tolist()) == list(range(30_000))
    assert np.concatenate([batch["x"] for batch in batches]).tolist() == values[rows].tolist()


def test_small_arrays_on_storage_have_the_order_of_memory(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VALUES)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert_same(
        run(ps.from_arrays(mapped).shuffle(seed=4)), run(ps.from_arrays(VALUES).shuffle(seed=4))
    )


def test_a_file_closed_too_early_is_an_error(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        ds = ps.from_arrays(file.create_dataset("x", data=VALUES, chunks=(4, 3)))
    with pytest.raises(DataError, match=r"a\.h5.*closed.*from_files"):
        run(ds)


def test_no_handle_outlives_a_stream(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VALUES)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    before = len(list(Path("/proc/self/fd").iterdir()))
    stream = ps.from_arrays(mapped).batch(2).stream()
    next(stream)
    stream.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
