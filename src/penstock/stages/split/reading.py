"""Rows that lie on storage with others between them: read together with those, and picked out."""

from collections.abc import Iterator

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import Block
from penstock.core.grains import widest
from penstock.core.rows import Context, Rows
from penstock.io.sizes import GAP_NBYTES, PIECE_NBYTES

_CHUNK_NBYTES = 1 << 24  # A chunk of up to so many bytes is read at once.
_SPARSE = 4  # Up to so many times the rows that are wanted are read at once.


def most_rows(node: Rows, num_rows: int) -> int:
    """Return how many rows of `node` are read at once to pick `num_rows` of them: whole chunks, if they are small."""
    width = max(1, node.row_nbytes)
    most = max(1, min(_SPARSE * num_rows, PIECE_NBYTES // width))
    chunk = widest(node.grains).rows if node.grains else 1
    if most < chunk <= min(_SPARSE * num_rows, _CHUNK_NBYTES // width):
        return chunk
    # What is cut within a chunk has it decoded twice.
    return most - most % chunk if most >= chunk else most


def read_picked(node: Rows, rows: Index, out: Block, context: Context) -> None:
    """Read rows of `node` that mostly ascend into `out`: by long reads, over the gaps between them."""
    most = most_rows(node, len(rows))
    steps = np.diff(rows)
    is_apart = (steps <= 0) | (steps > max(1, GAP_NBYTES // max(1, node.row_nbytes)))
    is_apart |= np.diff(rows // most) != 0
    edges = np.array([0, *(np.flatnonzero(is_apart) + 1).tolist(), len(rows)])
    firsts = rows[edges[:-1]]
    lengths = rows[edges[1:] - 1] + 1 - firsts
    for begin, end in _portions(lengths.tolist(), most):
        start, stop = int(edges[begin]), int(edges[end])
        place = out if stop - start == len(rows) else out.span(start, stop)
        runs = list(zip(firsts[begin:end].tolist(), lengths[begin:end].tolist(), strict=True))
        total = int(lengths[begin:end].sum())
        if total == stop - start:
            node.read_runs(runs, place, context)
            continue
        block = context.block(node, total)
        node.read_runs(runs, block, context)
        # Each run begins in the block where the one before it ends.
        shifts = np.cumsum(lengths[begin:end]) - lengths[begin:end] - firsts[begin:end]
        picked = rows[start:stop] + np.repeat(shifts, np.diff(edges[begin : end + 1]))
        place.copy_from(block.finish(), picked)


def _portions(lengths: list[int], most: int) -> Iterator[tuple[int, int]]:
    """Yield which runs are read at once: as many as have `most` rows together, one in any case."""
    begin = total = 0
    for number, length in enumerate(lengths):
        if total + length > most and number > begin:
            yield begin, number
            begin, total = number, 0
        total += length
    yield begin, len(lengths)
