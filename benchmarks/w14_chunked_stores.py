"""W14: chunked stores of 500,000 x 100 float32 and a sorted label, shuffled, batch 32: HDF5 with gzip, and Zarr 3."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from harness import Case, Contender, Round, fact_within, times_as_fast
from measure import Sample, throughput

NUM_ROWS = 500_000
NUM_FEATURES = 100
NUM_LABELS = 100
BATCH_SIZE = 32
ROW_NBYTES = 4 * NUM_FEATURES
# Of a shuffle that is not told otherwise, and of one that holds all rows.
WINDOW = 64 << 20
WHOLE = 256 << 20
CHUNK = (1000, NUM_FEATURES)
LABELLED = "the label mix of a batch spreads at most 1.1x as much as in uniform draws"


def make() -> tuple[np.ndarray, np.ndarray]:
    """Return rows whose first two columns hold their numbers, in two parts, and their labels, sorted."""
    x = np.random.default_rng(0).random((NUM_ROWS, NUM_FEATURES), np.float32)
    number = np.arange(NUM_ROWS)
    x[:, 0], x[:, 1] = number >> 12, number & 4095
    return x, (number * NUM_LABELS // NUM_ROWS).astype(np.int32)


def prepare_hdf5(directory: Path, *, chunks: tuple[int, int] | bool) -> None:
    import h5py

    x, y = make()
    with h5py.File(directory / "rows.h5", "w") as file:
        file.create_dataset("x", data=x, chunks=chunks, compression="gzip")
        file.create_dataset("y", data=y, compression="gzip")


def prepare_zarr(directory: Path, *, chunks: tuple[int, int] | str) -> None:
    import zarr

    x, y = make()
    group = zarr.open_group(directory / "rows.zarr", mode="w")
    group.create_array("x", data=x, chunks=chunks)
    group.create_array("y", data=y)


def _mixing_of(batches: Iterable) -> float:
    """Return how much the label mix of a batch spreads, over that of uniform draws; each row must come once."""
    seen = np.zeros(NUM_ROWS, bool)
    spreads = np.zeros(NUM_LABELS)
    num_batches = num_rows = 0
    for x, y in batches:
        rows = x[:, 0].astype(np.int64) << 12 | x[:, 1].astype(np.int64)
        if not np.array_equal(rows * NUM_LABELS // NUM_ROWS, y):
            raise AssertionError("x and y do not belong together")
        seen[rows] = True
        num_rows += len(rows)
        spreads += (np.bincount(y, minlength=NUM_LABELS) - BATCH_SIZE / NUM_LABELS) ** 2
        num_batches += 1
    if num_rows != NUM_ROWS or not seen.all():
        raise AssertionError(f"{num_rows} rows came, {seen.sum()} of them different ones")
    uniform = BATCH_SIZE * (1 / NUM_LABELS) * (1 - 1 / NUM_LABELS)
    return float(np.sqrt(spreads.sum() / num_batches / NUM_LABELS / uniform))


def _round(start: Callable[[], Iterable]) -> Round:
    spread = _mixing_of(start())
    measured = throughput(start, num_rows=NUM_ROWS, batch_size=BATCH_SIZE)

    def one_round() -> Sample:
        sample = measured()
        return Sample(sample.value, {**sample.facts, "label_spread": spread})

    return one_round


def penstock(directory: Path, *, name: str, window: int) -> Round:
    import penstock as ps

    ds = ps.from_files(directory / name, fields=("x", "y"))
    shuffled = ds.shuffle(seed=0) if window == WINDOW else ds.shuffle(seed=0, window=window)
    return _round(shuffled.batch(BATCH_SIZE).__iter__)


def _batches(windows: Iterable, rng: np.random.Generator) -> Iterator:
    for x, y in windows:
        order = rng.permutation(len(x))
        for first in range(0, len(x), BATCH_SIZE):
            rows = order[first : first + BATCH_SIZE]
            yield x[rows], y[rows]


def _windows(block_rows: int, window: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield the numbers of the blocks of each window: random ones, whole chunks."""
    blocks = rng.permutation(-(-NUM_ROWS // block_rows))
    step = max(1, window // (block_rows * ROW_NBYTES))
    for first in range(0, len(blocks), step):
        yield blocks[first : first + step]


def h5py_by_hand(directory: Path, *, window: int) -> Round:
    import h5py

    rng = np.random.default_rng(0)
    file = h5py.File(directory / "rows.h5")
    x, y = file["x"], file["y"][:]
    rows = x.chunks[0]

    def load(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        counts = [min(NUM_ROWS, (block + 1) * rows) - block * rows for block in blocks]
        out = np.empty((sum(counts), NUM_FEATURES), np.float32)
        done = 0
        for block, count in zip(blocks, counts, strict=True):
            x.read_direct(
                out, np.s_[block * rows : block * rows + count], np.s_[done : done + count]
            )
            done += count
        return out, np.concatenate([y[block * rows : (block + 1) * rows] for block in blocks])

    return _round(lambda: _batches(map(load, _windows(rows, window, rng)), rng))


def tensorstore_by_hand(directory: Path, *, window: int) -> Round:
    import tensorstore as ts

    def opened(name: str):
        place = {"driver": "file", "path": str(directory / "rows.zarr" / name)}
        return ts.open({"driver": "zarr3", "kvstore": place}, open=True).result()

    rng = np.random.default_rng(0)
    x, y = opened("x"), opened("y").read().result()
    rows = x.chunk_layout.read_chunk.shape[0]

    def begin(blocks: np.ndarray):
        return blocks, [x[b * rows : min(NUM_ROWS, (b + 1) * rows)].read() for b in blocks]

    def load() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        # The next window is on its way while this one is used.
        started = None
        for blocks in (*_windows(rows, window, rng), None):
            ready, started = started, None if blocks is None else begin(blocks)
            if ready is not None:
                taken, futures = ready
                labels = [y[block * rows : (block + 1) * rows] for block in taken]
                yield np.concatenate([one.result() for one in futures]), np.concatenate(labels)

    return _round(lambda: _batches(load(), rng))


def zarr_by_hand(directory: Path, *, window: int) -> Round:
    import zarr

    rng = np.random.default_rng(0)
    group = zarr.open_group(directory / "rows.zarr", mode="r")
    x, y = group["x"], group["y"][:]
    rows = x.chunks[0]

    def load(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        parts = [slice(block * rows, (block + 1) * rows) for block in blocks]
        return np.concatenate([x[one] for one in parts]), np.concatenate([y[one] for one in parts])

    return _round(lambda: _batches(map(load, _windows(rows, window, rng)), rng))


def _case(
    name: str, title: str, prepare: Callable, file: str, window: int, peers: tuple, times: float
) -> Case:
    told = "" if window == WINDOW else f", window='{window >> 20}MiB'"
    return Case(
        name=name,
        title=f"{title}, 500,000 x 100 float32 + sorted label, shuffle, batch 32",
        unit="rows/s",
        prepare=prepare,
        contenders=(
            Contender(
                "penstock",
                f"from_files(path, fields).shuffle(seed=0{told}).batch(32)",
                partial(penstock, name=file, window=window),
            ),
            *(Contender(peer, how, partial(start, window=window)) for peer, how, start in peers),
        ),
        bars=(
            times_as_fast(times, peers[0][0]),
            fact_within("label_spread", LABELLED, unit="x", at_most=1.1),
        ),
    )


_H5PY = (
    (
        "h5py",
        "random chunks by read_direct into a window, permuted, one index a batch",
        h5py_by_hand,
    ),
)
_ZARR = (
    (
        "TensorStore",
        "the chunks of a window by read(), all at once and a window ahead, permuted, one index a batch",
        tensorstore_by_hand,
    ),
    ("zarr-python", "random chunks into a window, permuted, one index a batch", zarr_by_hand),
)
CASES = (
    _case(
        "w14-hdf5",
        "HDF5, gzip, chunks of 1,000 rows",
        partial(prepare_hdf5, chunks=CHUNK),
        "rows.h5",
        WINDOW,
        _H5PY,
        1.6,
    ),
    _case(
        "w14-hdf5-auto",
        "HDF5, gzip, chunks as h5py cuts them",
        partial(prepare_hdf5, chunks=True),
        "rows.h5",
        WHOLE,
        _H5PY,
        1.6,
    ),
    _case(
        "w14-zarr",
        "Zarr 3, its default codecs, chunks of 1,000 rows",
        partial(prepare_zarr, chunks=CHUNK),
        "rows.zarr",
        WINDOW,
        _ZARR,
        1.0,
    ),
    _case(
        "w14-zarr-auto",
        "Zarr 3, its default codecs, chunks as zarr-python cuts them",
        partial(prepare_zarr, chunks="auto"),
        "rows.zarr",
        WHOLE,
        _ZARR,
        1.0,
    ),
)
