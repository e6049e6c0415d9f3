"""The rows that are read together: as few as a shuffle would like, as many as storage needs to be fast."""

from collections.abc import Sequence

from penstock.core.grains import Grain, widest
from penstock.core.rows import Node
from penstock.io.sizes import READ_NBYTES
from penstock.sources.reading.leaves import Leaf

KEPT_NBYTES = 8 << 20
"""The decoded chunks of all fields of a source that are retained whole: those of narrow fields fit in there."""
# Chunks of narrow fields that are not retained are decoded again for each block: at most this many times its bytes.
_MOST_AGAIN = 8


def grains_of(fields: Sequence[Sequence[Leaf]]) -> tuple[Grain, ...]:
    """Return the grains of fields, given their leaves: one of each file. Narrow fields are retained from now on."""
    grains = []
    for leaves in fields:
        nbytes = sum(leaf.num_rows for leaf in leaves) * leaves[0].field.nbytes
        if nbytes <= _kept_nbytes(len(fields)):
            num_chunks = sum(leaf.num_chunks for leaf in leaves)
            for leaf in leaves:
                leaf.num_retained = max(leaf.num_retained, num_chunks)
        chunks = [leaf.chunk_rows for leaf in leaves if leaf.chunk_rows is not None]
        if chunks:
            runs = {leaf.run_rows for leaf in leaves}
            run = runs.pop() if len(runs) == 1 else 1
            grains.append(Grain(max(1, *chunks), leaves[0].field.nbytes, run))
    return tuple(grains)


def grain_words(node: Node) -> list[list[int]]:
    """Return the grains as JSON, and the bytes of a row: a fingerprint needs what a shuffle's blocks depend on."""
    return [[grain.rows, grain.nbytes, grain.run] for grain in node.grains] + [[node.row_nbytes]]


def _kept_nbytes(num_fields: int) -> int:
    """Return up to how many bytes the chunks of a field are retained whole."""
    return KEPT_NBYTES // max(1, num_fields)


def block_rows(node: Node) -> int:
    """Return how many rows of a node on storage make a block: what is worth a random read.

    That is 64 KB of whole rows, all fields together, or the chunk of the field that has most of the bytes. A
    narrow field never sets the block: its rows are read in small pieces, and its chunks are retained, or decoded
    again where that costs little beside the block itself.
    """
    grains = node.grains
    chunk, run = widest(grains).rows, widest(grains).run
    row_nbytes = max(1, node.row_nbytes, sum(grain.nbytes for grain in grains))
    rows = chunk * max(1, READ_NBYTES // (chunk * row_nbytes))
    rows -= rows % run if rows > run else 0  # Whole runs, whose checksums are compared.
    again = _decoded_again(grains, rows, node.num_rows or 0)
    if again > _MOST_AGAIN * rows * row_nbytes:
        rows = -(-again // (_MOST_AGAIN * row_nbytes * chunk)) * chunk
    return rows


def _decoded_again(grains: Sequence[Grain], rows: int, num_rows: int) -> int:
    """Return the bytes of chunks, larger than a block of `rows` rows, that are decoded for one such block."""
    kept = _kept_nbytes(len(grains))
    return sum(
        grain.rows * grain.nbytes
        for grain in grains
        if grain.rows > rows and num_rows * grain.nbytes > kept
    )
