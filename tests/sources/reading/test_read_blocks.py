"""How many rows are read together: those of the whole row's 64 KB, or of the widest field's chunk."""

from pathlib import Path

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.core.grains import Grain
from penstock.core.rows import Node
from penstock.sources.reading.read_blocks import KEPT_NBYTES, block_rows


class Stored(Node):
    """A node that lies on storage in a given way."""

    def __init__(self, *grains: Grain, num_rows: int = 10**9, row_nbytes: int = 0) -> None:
        self.grains = grains
        self.num_rows = num_rows
        self.fields = ()
        self._row_nbytes = row_nbytes

    @property
    def row_nbytes(self) -> int:
        return self._row_nbytes

    def describe(self) -> str:
        return ""

    def fingerprint(self) -> None:
        return None


@pytest.mark.parametrize(
    ("grains", "rows"),
    [
        ([Grain(1, 400)], 163),
        ([Grain(1, 400), Grain(1, 4)], 162),  # All fields together, however narrow one of them is.
        ([Grain(1, 4)] * 50, 327),
        ([Grain(1, 4)], 16_384),
        ([Grain(1, 100_000)], 1),
        ([Grain(1000, 400), Grain(10_000, 4)], 1000),
        ([Grain(1000, 400), Grain(1, 4)], 1000),
        ([Grain(1, 400), Grain(10_000, 4)], 162),
        ([Grain(10, 400), Grain(15, 4)], 160),  # Whole chunks, as many as make 64 KB.
        ([Grain(100, 8), Grain(300, 8)], 3900),
    ],
)
def test_a_narrow_field_never_sets_the_block(grains: list[Grain], rows: int):
    assert block_rows(Stored(*grains)) == rows


def test_rows_that_a_stage_made_wider_make_smaller_blocks():
    assert block_rows(Stored(Grain(1, 4), row_nbytes=12_000)) == 5
    assert block_rows(Stored(Grain(1, 400), row_nbytes=4)) == 163


def test_large_chunks_of_a_narrow_field_are_retained_or_make_larger_blocks():
    """If a chunk of it were decoded for each block, that would take far longer than the block itself."""
    wide, narrow = Grain(100, 400), Grain(1_000_000, 8)
    assert block_rows(Stored(wide, narrow, num_rows=KEPT_NBYTES // 2 // 8)) == 100
    rows = block_rows(Stored(wide, narrow, num_rows=10**9))
    assert rows % wide.rows == 0
    assert narrow.rows * narrow.nbytes <= 8 * rows * (wide.nbytes + narrow.nbytes)


def test_chunks_of_fields_that_were_not_chosen_do_not_count(tmp_path: Path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.zeros((2000, 100), "f4"), chunks=(50, 100))
        file.create_dataset("other", data=np.zeros((2000, 500), "f4"), chunks=(2000, 500))
    node = ps.from_files(tmp_path / "a.h5", ("x",)).node
    assert node.grains == (Grain(50, 400),)


def test_all_chunks_of_a_narrow_field_are_retained_and_decoded_once(tmp_path: Path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.zeros((20_000, 1000), "f4"), chunks=(20, 1000))
        file.create_dataset("y", data=np.arange(20_000), chunks=(1000,))
    ds = ps.from_files(tmp_path / "a.h5", ("x", "y"))
    node = ds.node
    assert node.grains == (Grain(20, 4000), Grain(1000, 8))
    leaves = node.parts[0].leaves
    assert leaves["y"].num_retained == 20
    assert leaves["x"].num_retained == 8
    decoded = []
    before = type(leaves["y"]).decode
    leaf = leaves["y"]
    leaf.decode = lambda start, stop, context: (
        decoded.append(start) or before(leaf, start, stop, context)
    )
    labels = np.concatenate([y for _, y in ds.shuffle(window="8MB").batch(100)])
    assert sorted(labels.tolist()) == list(range(20_000))
    assert sorted(decoded) == list(range(0, 20_000, 1000))
