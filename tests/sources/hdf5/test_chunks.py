"""Chunks as they lie in a file: HDF5 is never in two threads at once, whichever files they read."""

import threading
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from h5py._objects import phil
from tests.conformance import assert_same, run

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
