"""Rows from here and there, in as few reads as is sensible."""

import itertools
from collections.abc import Iterator

import numpy as np

from penstock.core.arrays import Index
from penstock.io.sizes import GAP_NBYTES, PIECE_NBYTES


def near_rows(rows: Index, row_nbytes: int) -> Iterator[tuple[int, int, Index, Index]]:
    """Yield runs that hold rows which lie near each other, with what each run is read for.

    For each run: its first row, the row after its last, the slots of the wanted rows (their places in `rows`),
    and which rows of the run they are.

    >>> [(first, stop) for first, stop, _, _ in near_rows(np.array([7, 5, 9_000]), 100)]
    [(5, 8), (9000, 9001)]
    """
    width = max(1, row_nbytes)
    order = np.argsort(rows, kind="stable")
    ascending = rows[order]
    is_far = np.diff(ascending) > max(1, GAP_NBYTES // width)
    # A fixed grid bounds the longest run, whatever lies between its rows.
    is_other_cell = np.diff(ascending // max(1, PIECE_NBYTES // width)) != 0
    edges = [0, *(np.flatnonzero(is_far | is_other_cell) + 1).tolist(), len(rows)]
    for start, stop in itertools.pairwise(edges):
        first, last = int(ascending[start]), int(ascending[stop - 1])
        yield first, last + 1, order[start:stop], ascending[start:stop] - first
