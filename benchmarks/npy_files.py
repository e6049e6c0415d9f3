"""Large `.npy` files: written, or sparse; and the bare speed at which one is read."""

from __future__ import annotations

import resource
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from harness import Contender, Round
from measure import Sample, device_bytes, forget_pages, must_be_cold


def write(path: Path, shape: tuple[int, ...], blocks: Iterable[np.ndarray]) -> None:
    """Write float32 rows, a block at a time, and leave none of it in the page cache."""
    with path.open("wb") as file:
        _write_header(file, shape, np.dtype(np.float32))
        for block in blocks:
            file.write(block.data)
    forget_pages(path)


def write_sparse(path: Path, shape: tuple[int, ...], dtype: str) -> None:
    """Make a file of that size which holds only its header: zeros that take no room on disk."""
    with path.open("wb") as file:
        _write_header(file, shape, np.dtype(dtype))
        file.truncate(file.tell() + int(np.prod(shape)) * np.dtype(dtype).itemsize)


def _write_header(file, shape: tuple[int, ...], dtype: np.dtype) -> None:
    header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def dd(name: str, memory: int) -> tuple[Contender, Contender]:
    """Return the bare limits: a cold buffered sequential read in a cgroup, and without one.

    They differ by a factor of about two: in a cgroup the kernel reuses a few pages that are at hand,
    without one it fills new memory with the whole file.
    """

    def start(directory: Path) -> Round:
        path = directory / name

        def one_round() -> Sample:
            forget_pages(path)
            before = device_bytes(resource.RUSAGE_CHILDREN)
            began = time.perf_counter()
            command = ["dd", f"if={path}", "of=/dev/null", "bs=4M"]
            subprocess.run(command, check=True, capture_output=True)
            took = time.perf_counter() - began
            must_be_cold(path, device_bytes(resource.RUSAGE_CHILDREN) - before)
            return Sample(path.stat().st_size / took)

        return one_round

    how = "the bare limit: cold buffered sequential read, bs=4M"
    return (
        Contender("dd", f"{how}, same cgroup", start, memory=memory),
        Contender("dd, no limit", f"{how}, no cgroup", start),
    )


def must_explain(ds, word: str) -> None:
    """Raise unless `explain()` speaks of `word`.

    Without a plan for storage every row is a page fault, and a round would take days.
    """
    if word not in str(ds.explain()).lower():
        raise NotImplementedError(f"explain() of data on storage says nothing of {word!r}")
