"""What a function leaves of a parcel: the rows that are kept, where they end, and the bad ones told."""

from collections.abc import Iterator, Sequence

import numpy as np

from penstock.rows import Cursor, CursorAfter, Index, Parcel
from penstock.skipped import Skipped
from penstock.stages.functions import BadRow


def kept_rows(size: int, bad: Sequence[BadRow]) -> Index:
    """Return the places of the rows of a block that are not bad."""
    return np.delete(np.arange(size), [row.place for row in bad]) if bad else np.arange(size)


def sifted(found: Iterator[tuple[Parcel, list[BadRow]]], skipped: Skipped) -> Iterator[Parcel]:
    """Yield the parcels that have rows, and tell of bad rows in their order.

    Not where they are found, which is on any thread: which of them is one too many must not depend
    on which thread is faster.
    """
    ready: list[Parcel] = []
    for parcel, bad in found:
        for row in bad:
            skipped.add(row.error)
        if parcel.size:
            ready.append(parcel)
        del parcel  # Else it would pass for one that the consumer keeps.
        while ready:
            yield ready.pop()


def passed_after(
    first: int, kept: Index, size: int, cursor_after: CursorAfter, offset: int
) -> Cursor:
    """Return the number of the next input row after `offset` of the kept ones, and the input's cursor."""
    if offset == len(kept):
        return [first + size, cursor_after(size)]
    used = int(kept[offset - 1]) + 1 if offset else 0
    return [first + used, cursor_after(used)]
