"""Pieces that cells of a file cut reads into, against plain slices."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock import _native
from penstock.io.cells import Cells


@given(
    start=st.integers(-20, 5),
    nbytes=st.integers(1, 30),
    reads=st.lists(st.tuples(st.integers(5, 60), st.integers(0, 40)), max_size=5),
)
def test_each_piece_of_a_read_has_a_checksum(start, nbytes, reads):
    content = np.random.default_rng(0).integers(0, 256, 100, np.uint8)
    cells = Cells(start, nbytes)
    wanted = []
    for offset, size in reads:
        pieces: dict[int, bytes] = {}
        for at in range(offset, offset + size):
            cell = (at - start) // nbytes
            pieces[cell] = pieces.get(cell, b"") + bytes(content[at : at + 1])
        wanted += [_native.crc32c(piece) for piece in pieces.values()]
    offsets = [offset for offset, _ in reads]
    found = cells.sums(offsets, [content[offset : offset + size] for offset, size in reads])
    assert found.tolist() == wanted
    assert len(cells.empty_sums(offsets, [size for _, size in reads])) == len(wanted)
