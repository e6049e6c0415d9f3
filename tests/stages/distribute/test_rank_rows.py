"""A thousand ranks over 10^11 rows, without reading any: equal steps, and each row once."""

import numpy as np
import pytest
from tests.stages.distribute.counting import Counting

import penstock as ps
from penstock.core.arrays import Index
from penstock.core.rows import as_index
from penstock.dataset import Dataset
from penstock.engine.plan import Options
from penstock.stages.distribute.stage import DistributedRows
from penstock.stages.shuffle.on_storage import WindowedRows

NUM_ROWS = 10**11 + 12_345
WORLD = 1024
SIZE = WORLD * 4


@pytest.fixture(scope="module")
def batches() -> ps.Dataset:
    return Dataset(Counting(NUM_ROWS), Options()).shuffle(seed=1).batch(SIZE)


def numbers(part: ps.Dataset, batch: int) -> Index:
    """The rows of one rank's part of a global batch, as they are numbered in the file."""
    assert isinstance(part.node, DistributedRows)
    batched = part.node.input
    ranked = batched.input  # type: ignore[attr-defined]
    size = SIZE // WORLD
    mine = ranked.input_rows(slice(batch * size, (batch + 1) * size), 0)
    shuffle = ranked.input
    assert isinstance(shuffle, WindowedRows)
    return as_index(shuffle.input_rows(mine, 0))


def test_ranks_have_equal_steps_and_together_each_row_of_a_batch_once(batches: ps.Dataset) -> None:
    parts = [batches.distribute(rank=r, world=WORLD, uneven="drop") for r in range(WORLD)]
    assert {len(part) for part in parts} == {NUM_ROWS // SIZE}
    shuffle = batches.node.inputs[0]
    assert isinstance(shuffle, WindowedRows)
    for batch in (0, 1_234_567, NUM_ROWS // SIZE - 1):
        found = np.empty(SIZE, np.int64)
        for rank, part in enumerate(parts):
            found[rank::WORLD] = numbers(part, batch)
        whole = as_index(shuffle.input_rows(slice(batch * SIZE, (batch + 1) * SIZE), 0))
        assert found.tolist() == whole.tolist()
        assert len(np.unique(found)) == SIZE
        assert 0 <= found.min() <= found.max() < NUM_ROWS


def test_ranks_share_the_blocks_of_a_window_out_among_them(batches: ps.Dataset) -> None:
    # 192 lanes and 1,024 ranks have 64 in common: as many groups of ranks have blocks of their own.
    seen: list[int] = []
    number = 77
    for residue in range(64):
        part = batches.distribute(rank=residue, world=WORLD, uneven="drop").node
        (shuffle,) = (node for node in _chain(part) if isinstance(node, WindowedRows))
        assert (shuffle.wanted.of(0), shuffle.modulus) == (residue, 64)
        window = shuffle.layout(0).window(number)
        assert window.num_rows == len(window.table)  # None of them is another rank's.
        seen += window.blocks.tolist()
    assert len(set(seen)) == len(seen)
    together = shuffle.layout(0).together  # type: ignore[union-attr]
    windows = range(number * together, (number + 1) * together)
    whole = np.concatenate([shuffle.order(0).window(one).blocks for one in windows])
    assert sorted(seen) == sorted(whole.tolist())


def _chain(node):
    yield node
    for one in node.inputs:
        yield from _chain(one)
