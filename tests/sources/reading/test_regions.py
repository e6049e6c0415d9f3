"""Rows of one size in files, with others between them: those of a part, whatever the layout."""

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.core.rows import Rows, plain_context

# From a byte a row to rows that no room holds; 20 KB are read straight to their places.
SHAPES: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "u1": ("u1", (), 30_000),
    "f4 x 3": ("f4", (3,), 20_000),
    "big-endian": (">i2", (5, 7), 9000),
    "a record": (np.dtype([("a", "i1"), ("b", "f8")]), (), 9000),
    "300 bytes": ("f4", (75,), 6000),
    "20 KB": ("f8", (2500,), 60),
    "300 KB": ("f4", (75_000,), 12),
}
LAYOUTS = ("one file", "many files", "memmap", "zip", "npz", "raw", "hdf5", "after skip", "fortran")
FRACTIONS = (0.9, 0.5, 0.1)


def values(kind: str) -> np.ndarray:
    dtype, shape, num_rows = SHAPES[kind]
    dtype = np.dtype(dtype)
    size = num_rows * int(np.prod(shape)) * dtype.itemsize
    # Small numbers: no nan, which is not itself.
    raw = np.random.default_rng(0).integers(0, 60, size, np.uint8)
    return raw.view(dtype).reshape(num_rows, *shape)


def stored(layout: str, rows: np.ndarray, folder: Path) -> Any:
    """Return a dataset of these rows, which has one field."""
    path = folder / "x.npy"
    if layout == "many files":
        for number, part in enumerate(np.array_split(rows, 5)):
            np.save(folder / f"p{number}.npy", part)
        return ps.from_files(str(folder / "p*.npy"))
    if layout == "npz":
        np.savez(folder / "x.npz", x=rows)
        return ps.from_files(folder / "x.npz", fields="x")
    if layout == "raw":
        rows.tofile(folder / "x.bin")
        spec = ps.ArraySpec(rows.shape[1:], rows.dtype)
        return ps.from_files(folder / "x.bin", spec=spec)
    if layout == "hdf5":
        with h5py.File(folder / "x.h5", "w") as file:
            file["x"] = rows
        return ps.from_files(folder / "x.h5", fields="x")
    if layout == "fortran":
        np.save(path, np.asfortranarray(rows))
        return ps.from_files(path)
    if layout == "after skip":
        np.save(path, np.concatenate([rows[:7], rows, rows[:9]]))
        return ps.from_files(path).skip(7).take(len(rows))
    np.save(path, rows)
    if layout == "memmap":
        return ps.from_arrays(np.load(path, mmap_mode="r"))
    if layout == "zip":
        return ps.zip(ps.from_files(path), ps.from_files(path)).map(lambda one, other: other)
    return ps.from_files(path)


def read(ds: Any) -> np.ndarray:
    return np.concatenate(list(ds.batch(1000)))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", SHAPES)
def test_parts_have_all_rows_each_once_in_order(kind: str, layout: str, tmp_path: Path):
    rows = values(kind)
    ds = stored(layout, rows, tmp_path)
    numbered = ps.from_arrays(np.arange(len(rows)))
    for fraction in FRACTIONS:
        owners = [read(part) for part in numbered.split(fraction, seed=3)]
        assert sorted(np.concatenate(owners)) == list(range(len(rows)))
        for part, mine in zip(ds.split(fraction, seed=3), owners, strict=True):
            np.testing.assert_array_equal(read(part), rows[mine])


@pytest.mark.parametrize("layout", ["one file", "many files", "memmap", "fortran"])
@pytest.mark.parametrize("kind", SHAPES)
def test_any_rows_in_any_order_are_read(kind: str, layout: str, tmp_path: Path):
    rows = values(kind)
    node = stored(layout, rows, tmp_path).node
    assert isinstance(node, Rows)
    generator = np.random.default_rng(1)
    for count in (0, 1, 5, 400):
        for index in (
            generator.integers(0, len(rows), count),
            np.sort(generator.integers(0, len(rows), count)),
        ):
            context = plain_context()
            block = context.block(node, count)
            node.read(index, block, context)
            np.testing.assert_array_equal(block.finish().columns[0].rows, rows[index])
            context.resources.close()


def test_a_part_of_a_file_that_was_cut_short_names_the_file(tmp_path: Path):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((40_000, 10), "f4"))
    train, _ = ps.from_files(path).split(0.9, seed=0)
    os.truncate(path, 100_000)
    with pytest.raises(ps.FileChangedError, match=r"x\.npy"):
        list(train.batch(100))


def test_a_part_of_a_file_that_was_written_to_meanwhile_names_it(tmp_path: Path):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((400_000, 10), "f4"))
    train, _ = ps.from_files(path).split(0.9, seed=0)
    with train.batch(100).with_options(memory="20MB").stream() as stream:
        next(stream)
        os.utime(path, (1, 1))
        with pytest.raises(ps.FileChangedError, match=r"x\.npy"):
            list(stream)
