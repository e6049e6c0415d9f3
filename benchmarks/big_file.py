"""An 8 GB `.npy` sorted by label, for W5 and W6, and what is asked of a shuffle of it."""

from __future__ import annotations

import mmap
import os
import queue
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import npy_files
import numpy as np
from harness import Contender, Round
from measure import Sample, device_bytes, forget_pages, must_be_cold, peak_rss

NUM_ROWS = 20_000_000
NUM_FEATURES = 100
NUM_LABELS = 100
BATCH_SIZE = 32
ROW_NBYTES = NUM_FEATURES * 4
NAME = "sorted.npy"
# Rows written at a time: 80 MB.
STRIDE = 200_000
_PIECE_NBYTES = 1 << 16
_NUM_PIECES = 1 << 15  # 2 GB.
_DEPTH = 64


def prepare(directory: Path) -> None:
    """Write the file. Columns 0, 1 and 2 of a row hold its label and its number, in two parts."""
    npy_files.write(directory / NAME, (NUM_ROWS, NUM_FEATURES), _blocks())


def _blocks() -> Iterator[np.ndarray]:
    block = np.random.default_rng(0).random((STRIDE, NUM_FEATURES), np.float32)
    for first in range(0, NUM_ROWS, STRIDE):
        number = np.arange(first, first + STRIDE)
        block[:, 0] = label_of(number)
        # A float32 is exact only up to 2**24.
        block[:, 1], block[:, 2] = number >> 12, number & 4095
        yield block


def label_of(number: np.ndarray) -> np.ndarray:
    return number * NUM_LABELS // NUM_ROWS


def penstock(make: Callable[[Path], Iterable]) -> Callable[[Path], Round]:
    """Return a contender that times one epoch from a cold cache, in bytes a second.

    The first epoch, not timed, checks that every row comes once and measures how labels mix.
    """

    def start(directory: Path) -> Round:
        path = directory / NAME
        facts = _mixing_of(make(path))

        def one_round() -> Sample:
            ds = make(path)
            forget_pages(path)
            before = device_bytes()
            began = time.perf_counter()
            for _ in ds:
                pass
            took = time.perf_counter() - began
            must_be_cold(path, device_bytes() - before)
            return Sample(NUM_ROWS * ROW_NBYTES / took, {**facts, "peak_rss": float(peak_rss())})

        return one_round

    return start


def _mixing_of(batches: Iterable) -> dict[str, float]:
    seen = np.zeros(NUM_ROWS, bool)
    spreads = np.zeros(NUM_LABELS)
    num_batches, num_rows = 0, 0
    expected = BATCH_SIZE / NUM_LABELS
    for batch in batches:
        rows = batch[:, 1].astype(np.int64) << 12 | batch[:, 2].astype(np.int64)
        seen[rows] = True
        num_rows += len(rows)
        counts = np.bincount(batch[:, 0].astype(np.int64), minlength=NUM_LABELS)
        spreads += (counts - expected) ** 2
        num_batches += 1
    if num_rows != NUM_ROWS or not seen.all():
        raise AssertionError(f"{num_rows} rows came, {seen.sum()} of them different ones")
    # The variance of a label's count in a batch of uniformly drawn rows.
    uniform = BATCH_SIZE * (1 / NUM_LABELS) * (1 - 1 / NUM_LABELS)
    spread = float(np.sqrt(spreads.sum() / num_batches / NUM_LABELS / uniform))
    return {"label_spread": spread}


def dd(memory: int) -> tuple[Contender, Contender]:
    return npy_files.dd(NAME, memory)


def _random_reads(directory: Path) -> Round:
    """Return a round that reads pieces of 64 KB past the page cache, and does nothing with them."""
    path = directory / NAME
    num_pieces = path.stat().st_size // _PIECE_NBYTES
    order = np.random.default_rng(0).permutation(num_pieces)[:_NUM_PIECES]
    buffers = queue.SimpleQueue()
    # In huge pages, of which disks of virtual machines read more in one go.
    room = mmap.mmap(-1, _DEPTH * _PIECE_NBYTES)
    room.madvise(mmap.MADV_HUGEPAGE)
    for start in range(0, len(room), _PIECE_NBYTES):
        buffers.put(memoryview(room)[start : start + _PIECE_NBYTES])

    def one_round() -> Sample:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)

        def read(piece: int) -> None:
            buffer = buffers.get()
            os.preadv(file, [buffer], piece * _PIECE_NBYTES)
            buffers.put(buffer)

        try:
            with ThreadPoolExecutor(_DEPTH) as pool:
                began = time.perf_counter()
                for _ in pool.map(read, order.tolist()):
                    pass
                took = time.perf_counter() - began
        finally:
            os.close(file)
        return Sample(len(order) * _PIECE_NBYTES / took)

    return one_round


def random_reads(memory: int) -> Contender:
    return Contender(
        "random reads",
        "64 KB each past the page cache, by 64 threads of Python, nothing done with them",
        _random_reads,
        memory=memory,
    )


def _memmap(directory: Path) -> Round:
    path = directory / NAME
    rng = np.random.default_rng(0)

    def one_round() -> Sample:
        forget_pages(path)
        x = np.load(path, mmap_mode="r")
        num_rows, began = 0, time.perf_counter()
        # Uniform draws instead of a permutation, whose 160 MB would not fit the smaller cgroup.
        while (took := time.perf_counter() - began) < 3.0:
            x[np.sort(rng.integers(0, NUM_ROWS, BATCH_SIZE))]
            num_rows += BATCH_SIZE
        return Sample(num_rows * ROW_NBYTES / took)

    return one_round


def memmap(memory: int) -> Contender:
    return Contender(
        "np.memmap", "random fancy indexing, rows of a batch sorted", _memmap, memory=memory
    )
