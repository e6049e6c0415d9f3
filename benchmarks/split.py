"""What a part of `split` costs beside the whole file, layout by layout.

    python benchmarks/split.py

Files are in the page cache, batches of 256 rows, the best of 5 epochs each, in turns. A figure is how many times as
fast the epoch of a part is as that of all rows: a part reads over the rows of others.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import h5py
import numpy as np

import penstock as ps

ROUNDS = 5
NUM_ROWS = 400_000
SHAPES = {
    "4 bytes": ("f4", 1),
    "32 bytes": ("f4", 8),
    "256 bytes": ("f4", 64),
    "784 bytes": ("u1", 784),
}


def layouts(x: np.ndarray, folder: Path) -> Iterator[tuple[str, ps.Dataset]]:
    """Yield datasets of the same rows, stored in different ways."""
    path = folder / "x.npy"
    np.save(path, x)
    yield ".npy", ps.from_files(path)
    yield "memmap", ps.from_arrays(np.load(path, mmap_mode="r"))
    with h5py.File(folder / "x.h5", "w") as file:
        file["x"] = x
    yield "HDF5 without chunks", ps.from_files(folder / "x.h5", fields="x")
    np.savez(folder / "x.npz", x=x)
    yield ".npz", ps.from_files(folder / "x.npz", fields="x")
    ps.from_arrays(x).write(folder / "written")
    yield "written by penstock", ps.from_files(folder / "written")
    yield "in memory", ps.from_arrays(x)


def seconds(batches: Iterable) -> float:
    """Return how long an epoch takes."""
    start = time.perf_counter()
    for _ in batches:
        pass
    return time.perf_counter() - start


def compare(ds: ps.Dataset) -> list[float]:
    """Return the figures of the larger part, of the smaller one, and of the larger one shuffled."""
    train, valid = ds.split(0.9, seed=0)
    chains = [one.batch(256) for one in (ds, train, valid)]
    chains += [one.shuffle(seed=0).batch(256) for one in (ds, train)]
    rounds = [[seconds(chain) for chain in chains] for _ in range(ROUNDS)]
    whole, larger, smaller, shuffled, larger_shuffled = map(min, zip(*rounds, strict=True))
    return [whole / larger, whole / smaller, shuffled / larger_shuffled]


def main() -> None:
    """Print a table."""
    print("| rows | stored as | part of 0.9 | part of 0.1 | part of 0.9, shuffled |")
    print("|---|---|---|---|---|")
    for name, (dtype, width) in SHAPES.items():
        x = np.random.default_rng(0).integers(0, 100, (NUM_ROWS, width)).astype(dtype)
        with tempfile.TemporaryDirectory() as folder:
            for layout, ds in layouts(x, Path(folder)):
                cells = " | ".join(f"{figure:.2f}x" for figure in compare(ds))
                print(f"| {name} | {layout} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
