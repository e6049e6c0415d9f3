"""Where chunks lie is what HDF5 says, and chunks are read from there, past HDF5."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance import assert_same, run

import penstock as ps
from penstock.sources.hdf5 import chunk_index, chunks
from penstock.sources.hdf5.chunk_index import index_nbytes, index_of

NUMBERS = np.arange(600, dtype="f4").reshape(50, 4, 3)
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "gzip": {"compression": "gzip"},
    "gzip, shuffle, fletcher32": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"compression": "lzf"},
    "fletcher32": {"fletcher32": True},
    "shuffle": {"shuffle": True},
}


def write(path: Path, values: Any = NUMBERS, **options: Any) -> None:
    with h5py.File(path, "w", libver=options.pop("libver", None)) as file:
        file.create_dataset("x", data=values, **options)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("maxshape", [None, (None, 4, 3), (None, None, 3)])
@pytest.mark.parametrize("steps", [(7, 4, 3), (7, 3, 2), (1, 4, 3), (60, 4, 3)])
def test_every_chunk_lies_where_hdf5_says(
    tmp_path: Path, libver: Any, maxshape: Any, steps: Any
) -> None:
    if maxshape is None and steps[0] > 50:
        pytest.skip("HDF5 has no chunks that are larger than a dataset that can't grow")
    options = {"chunks": steps, "maxshape": maxshape, "compression": "gzip"}
    write(tmp_path / "a.h5", libver=libver, **options)
    with h5py.File(tmp_path / "a.h5") as file:
        dataset = file["x"]
        index = index_of(dataset)
        assert index is not None
        corners = list(chunks.corners(dataset, 0, 50))
        for corner, found in zip(corners, index.find(corners), strict=True):
            assert found is not None
            wanted = dataset.id.get_chunk_info_by_coord(corner)
            assert (found.offset, found.nbytes, found.mask) == (
                wanted.byte_offset,
                wanted.size,
                wanted.filter_mask,
            )
        assert index_nbytes(dataset.shape, steps) >= sum(
            one.nbytes for one in (index.numbers, index.offsets, index.sizes, index.masks)
        )


@given(st.data())
def test_chunks_that_were_never_written_are_not_found(tmp_path_factory: Any, data: Any) -> None:
    path = tmp_path_factory.mktemp("sparse") / "a.h5"
    written = data.draw(st.sets(st.integers(0, 9)))
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (95, 3), "i4", chunks=(10, 3), fillvalue=7)
        for number in written:
            dataset[10 * number] = number
    wanted = np.full((95, 3), 7, "i4")
    wanted[[10 * number for number in written]] = np.array([*written]).reshape(-1, 1)
    with h5py.File(path) as file:
        index = index_of(file["x"])
        assert index is not None
        found = index.find([(10 * number, 0) for number in range(10)])
        assert {number for number in range(10) if found[number] is not None} == written
    np.testing.assert_array_equal(np.stack(run(ps.from_files(path, "x"))), wanted)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """HDF5 reads no chunks."""

    def fails(*_: Any) -> None:
        raise AssertionError("HDF5 was asked")

    monkeypatch.setattr(chunks, "packed_chunk", fails)
    monkeypatch.setattr(chunks, "read_slab", fails)
    monkeypatch.setattr("penstock.sources.hdf5.content.read_slab", fails)


@pytest.mark.parametrize("steps", [(7, 4, 3), (7, 3, 2), (1, 4, 3), (50, 1, 1)])
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.usefixtures("alone")
def test_chunks_are_read_past_hdf5_whoever_opened_the_file(
    tmp_path: Path, name: str, steps: Any
) -> None:
    for dtype in ("f4", ">i8", "u1", "f2", "i2,f4"):
        values = NUMBERS.astype(dtype)
        write(tmp_path / "a.h5", values, chunks=steps, **LAYOUTS[name])
        ds = ps.from_files(tmp_path / "a.h5", "x")
        assert_same(run(ds), list(values))
        assert_same(run(ds.skip(3)), list(values[3:]))
        shuffled = ds.enumerate().shuffle(seed=1, window="1KB").batch(7)
        for numbers, found in shuffled:
            np.testing.assert_array_equal(found, values[numbers])
        with h5py.File(tmp_path / "a.h5") as file:
            assert_same(run(ps.from_arrays(file["x"])), list(values))


@pytest.mark.parametrize("name", ["gzip", "plain"])
def test_where_the_place_of_chunks_is_not_sure_hdf5_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    options = {"data": NUMBERS, "chunks": (7, 4, 3), **LAYOUTS[name]}
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=512) as file:
        file.create_dataset("x", **options)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        dataset = file.create_dataset("x", **options)
        assert index_of(dataset) is None  # It is open for writing.
        assert_same(run(ps.from_arrays(dataset)), list(NUMBERS))
    assert_same(run(ps.from_files(tmp_path / "a.h5", "x")), list(NUMBERS))
    monkeypatch.setattr(chunk_index, "MOST_CHUNKS", 3)
    with h5py.File(tmp_path / "a.h5") as file:
        assert index_of(file["x"]) is None  # Before it lies a block of the user's.
    with h5py.File(tmp_path / "b.h5") as file:
        assert index_of(file["x"]) is None
        assert index_nbytes(file["x"].shape, file["x"].chunks) == 0
    assert_same(run(ps.from_files(tmp_path / "b.h5", "x")), list(NUMBERS))


@given(data=st.data())
def test_stretches_are_the_rows_of_the_chunks_one_after_the_other(data: st.DataObject) -> None:
    chunk_rows = data.draw(st.integers(1, 5))
    num_chunks = data.draw(st.integers(1, 9))
    row_nbytes = data.draw(st.integers(1, 4))
    nbytes = chunk_rows * row_nbytes
    num_rows = data.draw(st.integers((num_chunks - 1) * chunk_rows + 1, num_chunks * chunk_rows))
    # Places in the file, some of which are side by side, and chunks that were never written or are packed.
    places = data.draw(st.permutations(range(num_chunks)))
    numbers = [n for n in range(num_chunks) if data.draw(st.integers(0, 9))]
    sizes = [nbytes if data.draw(st.integers(0, 9)) else nbytes - 1 for _ in numbers]
    index = chunk_index.ChunkIndex(
        (chunk_rows,),
        (num_chunks,),
        np.array(numbers, np.int64),
        np.array([100 + places[n] * nbytes for n in numbers], np.int64),
        np.array(sizes, np.int64),
        np.zeros(len(numbers), np.int64),
    )
    start = data.draw(st.integers(0, num_rows - 1))
    stop = data.draw(st.integers(start + 1, num_rows))
    found = index.stretches(start, stop, nbytes)
    wanted = range(start // chunk_rows, (stop - 1) // chunk_rows + 1)
    whole = {n for n, size in zip(numbers, sizes, strict=True) if size == nbytes}
    if not whole.issuperset(wanted):
        assert found is None
        return
    assert found is not None
    told = [
        byte
        for offset, size in zip(*(one.tolist() for one in found), strict=True)
        for byte in range(offset, offset + size)
    ]
    assert told == [
        100 + places[row // chunk_rows] * nbytes + row % chunk_rows * row_nbytes + byte
        for row in range(start, stop)
        for byte in range(row_nbytes)
    ]
    assert all(
        one + size != other
        for one, size, other in zip(found[0], found[1], found[0][1:], strict=False)
    )


@pytest.mark.parametrize("dtype", ["f4", "u1", "?", "i8", "f2"])
@pytest.mark.parametrize(
    "steps", [(1, 4, 3), (7, 4, 3), (50, 4, 3), (60, 4, 3), (7, 3, 2)], ids=str
)
@pytest.mark.parametrize("holes", [False, True])
def test_chunks_without_filters_are_read_from_where_they_lie(
    tmp_path: Path, dtype: str, steps: Any, *, holes: bool
) -> None:
    values = (np.arange(600) % 251).reshape(50, 4, 3).astype(dtype)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset = file.create_dataset(
            "x",
            (50, 4, 3),
            dtype,
            chunks=steps,
            maxshape=(None, 4, 3),
            fillvalue=values.dtype.type(1),
        )
        # Not in their order: so chunks that follow each other do not lie so in the file.
        for start in (30, 0, 40, 10, 20):
            if not holes or start != 20:
                dataset[start : start + 10] = values[start : start + 10]
    if holes:
        with h5py.File(tmp_path / "a.h5") as file:
            values = file["x"][:]
    ds = ps.from_files(tmp_path / "a.h5", "x")
    assert_same(run(ds), list(values))
    plain = ps.from_arrays(values)
    for chain in (
        lambda one: one.skip(13).take(20),
        lambda one: one.batch(16),
        lambda one: one.shard(3, 1),
        lambda one: one.shuffle(seed=3),
    ):
        assert_same(run(chain(ds)), run(chain(plain)))
