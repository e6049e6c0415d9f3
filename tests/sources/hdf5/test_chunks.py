"""Chunks as they lie in a file: HDF5 is never in two threads at once, whichever files they read."""

import contextlib
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from h5py._objects import phil
from tests.conformance import assert_same, run
from tests.sources.in_a_cgroup import read_in_a_cgroup

import penstock as ps
from penstock.sources.hdf5.handle import BoundedFile

NUMBERS = np.arange(400.0).reshape(100, 4)


def is_free() -> bool:
    """Return whether another thread could call HDF5 now."""
    found = []

    def attempt() -> None:
        found.append(phil.acquire(blocking=False))
        if found[0]:
            phil.release()

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return bool(found[0])


@pytest.mark.parametrize(
    ("values", "options"),
    [
        (NUMBERS, {"chunks": (10, 4)}),
        (NUMBERS, {"chunks": (10, 4), "compression": "gzip"}),
        (NUMBERS, {"chunks": (10, 3), "compression": "gzip", "shuffle": True}),
        (NUMBERS, {"chunks": (10, 4), "compression": "szip"}),
        (NUMBERS.astype(">f8"), {"chunks": (10, 4), "compression": "gzip"}),
        ([f"row {number}" for number in range(100)], {"chunks": (10,)}),
    ],
    ids=["plain", "gzip", "columns", "szip", "converted", "text"],
)
def test_hdf5_reads_while_no_other_thread_can_call_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: Any, options: Any
) -> None:
    if options.get("compression") == "szip" and not h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP):
        pytest.skip("this HDF5 has no szip")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=values, **options)
    ds = ps.from_files(tmp_path / "a.h5", "x").with_options(threads=0)
    read = BoundedFile.readinto
    free = []

    def noting(self: BoundedFile, buffer: Any) -> int:
        free.append(is_free())
        return read(self, buffer)

    monkeypatch.setattr(BoundedFile, "readinto", noting)
    assert_same(run(ds), list(values))
    assert free
    assert not any(free)


@pytest.fixture(params=["files", "arrays"])
def read(request: pytest.FixtureRequest) -> Iterator[Callable[[Path], ps.Dataset]]:
    """Return what reads dataset x of a file: by its path, or as one that the user has open."""
    with contextlib.ExitStack() as stack:

        def opened(path: Path) -> ps.Dataset:
            if request.param == "files":
                return ps.from_files(path)
            return ps.from_arrays(stack.enter_context(h5py.File(path, "r"))["x"])

        yield opened


@pytest.mark.parametrize(
    "options",
    [{"compression": "gzip"}, {"compression": "lzf", "shuffle": True}, {"compression": "szip"}, {}],
)
def test_a_chunk_that_claims_more_bytes_than_it_may_have_is_not_read(
    tmp_path: Path, read: Any, options: dict[str, Any]
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", data=NUMBERS, chunks=(10, 4), **options)
        if options:
            dataset.id.write_direct_chunk((10, 0), bytes(1 << 20))
    if not options:  # Chunks that are not packed have the size that they must have.
        assert len(list(read(path))) == len(NUMBERS)
        return
    what = r"a\.h5, row 10: rows 10 to 20 can't be decoded: the chunk at \(10, 0\) of dataset 'x': it claims 1048576"
    with pytest.raises(ps.DataError, match=what):
        list(read(path))
    assert len(list(ps.from_files(path).with_options(on_error="skip"))) == len(NUMBERS) - 10


@pytest.mark.parametrize("shape", [(10, 1 << 24), (1 << 24, 4)])
def test_chunks_that_go_far_past_the_edge_are_part_of_the_plan(
    tmp_path: Path, read: Any, shape: tuple[int, int]
) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset(
            "x", NUMBERS.shape, "f8", maxshape=(None, None), chunks=shape, compression="gzip"
        )
    with pytest.raises(ps.BudgetError, match=r"needs at least \d+(\.\d+)? GB"):
        list(read(tmp_path / "a.h5").with_options(memory=100_000_000))


def test_chunks_of_text_that_go_far_past_the_edge_are_part_of_the_plan(
    tmp_path: Path, read: Any
) -> None:
    options = {"maxshape": (None,), "chunks": (1 << 26,), "compression": "gzip"}
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", (100,), h5py.string_dtype(), **options)
    with pytest.raises(ps.BudgetError, match=r"needs at least \d+(\.\d+)? GB"):
        list(read(tmp_path / "a.h5").with_options(memory=100_000_000))


@pytest.mark.slow
def test_bombs_in_open_datasets_are_refused_in_a_container(tmp_path: Path) -> None:
    """A deflated chunk of 400 MB, one that is packed to 300 MB, and one that may have 1 GB past the edge."""
    packer = zlib.compressobj()
    bomb = b"".join([*(packer.compress(bytes(1 << 24)) for _ in range(24)), packer.flush()])
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, chunk in {"deflated": bomb, "packed": bytes(300 << 20), "past": bomb}.items():
            columns = {"deflated": 1 << 16, "packed": 1 << 12, "past": 1 << 25}[name]
            maxshape = (None, None) if name == "past" else None
            options = {"maxshape": maxshape, "chunks": (4, columns), "compression": "gzip"}
            dataset = file.create_dataset(name, (100, min(columns, 1 << 16)), "f8", **options)
            dataset.id.write_direct_chunk((0, 0), chunk)
        text = {"chunks": (1000,), "compression": "gzip"}
        dataset = file.create_dataset("text", (2000,), h5py.string_dtype(), **text)
        dataset[:] = "words"
        dataset.id.write_direct_chunk((1000,), zlib.compress(bytes(1 << 24)))
    refusals = {
        "deflated": "the chunk at (0, 0) of dataset 'deflated': it unpacks to more than",
        "packed": "the chunk at (0, 0) of dataset 'packed': it claims 314572800 bytes",
        "past": "BudgetError",
        "text": "the chunk at (1000,) of dataset 'text': it unpacks to more than",
    }
    for name, refusal in refusals.items():
        dataset = f"h5py.File({str(tmp_path / 'a.h5')!r})[{name!r}]"
        assert refusal in read_in_a_cgroup(f"ps.from_arrays({dataset})", setup="import h5py")
