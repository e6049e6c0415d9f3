"""Columns of one file that are cut into chunks alike: small chunks of many are decoded in one go."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import Sink
from penstock.core.rows import Context, Runs
from penstock.errors import PenstockError
from penstock.io.sizes import PIECE_NBYTES
from penstock.sources.reading.chunked import Chunked, Values, put_rows, put_slice
from penstock.sources.reading.leaves import Leaf

MOST_NBYTES = 1 << 21
"""The bytes of the chunks that are decoded together: of larger ones a library is busy long enough with one."""


class ColumnSet:
    """Several columns of one grid, decoded together."""

    def __init__(self, leaves: Sequence[Chunked]) -> None:
        self.leaves = leaves
        self.lead = leaves[0]
        self.nbytes = sum(leaf.field.nbytes for leaf in leaves)

    def read(self, rows: Index, sinks: Sequence[Sink], context: Context) -> None:
        """Read rows from here and there, as each leaf would by itself."""
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        for start, stop, first, last, is_whole in self.lead.spans(ascending):
            slots = order[start:stop]
            values = (
                self._decoded(first, last, context)
                if is_whole
                else self._recent(first, last, context)
            )
            wanted = None if is_whole else ascending[start:stop] - first
            for sink, column in zip(sinks, values, strict=True):
                put_rows(sink.at(slots), column, wanted)

    def read_runs(self, runs: Runs, sinks: Sequence[Sink], context: Context) -> None:
        """Read runs of rows, as each leaf would by itself."""
        step = max(1, PIECE_NBYTES // max(1, self.nbytes))
        for place, start, stop, first, last in self.lead.grid.cut(runs, step):
            if (start, stop) != (first, last):
                values = self._recent(first, last, context)
                for sink, column in zip(sinks, values, strict=True):
                    put_slice(sink, place, column, start - first, stop - first)
                continue
            for values in self._pieces(first, last, context):
                size = len(values[0])
                for sink, column in zip(sinks, values, strict=True):
                    put_slice(sink, place, column, 0, size)
                place += size

    def _recent(self, first: int, last: int, context: Context) -> Sequence[Values]:
        """Return the columns of a chunk, each from the retained ones of its leaf, which the leaf counts.

        So it makes no difference which columns are together: in each file others may be.
        """
        key = (self.lead.file, first)
        recent = [leaf.recent(context) for leaf in self.leaves]

        def decode() -> Values:
            lead, *others = self._decoded(first, last, context)
            for one, values in zip(recent[1:], others, strict=True):
                one.offer(key, values)
            return lead

        # Under the lock of the lead's entry: threads that want the same chunk decode it once.
        found = [recent[0].get(key, decode)]
        for leaf, one in zip(self.leaves[1:], recent[1:], strict=True):
            found.append(one.get(key, partial(leaf.decoded_rows, first, last, context)))
        return found

    def _decoded(self, first: int, last: int, context: Context) -> Sequence[Values]:
        columns = [leaf.memory(last - first, context) for leaf in self.leaves]
        place = 0
        for values in self._pieces(first, last, context):
            for column, found in zip(columns, values, strict=True):
                assert isinstance(found, np.ndarray)
                column[place : place + len(found)] = found
            place += len(values[0])
        return columns

    def _pieces(self, first: int, last: int, context: Context) -> Iterator[Sequence[Values]]:
        row = first
        try:
            for found in self.lead.decode_together(self.leaves, first, last, context):
                stop = min(last, row + len(found[0]))
                yield [
                    leaf.checked(values, row, stop)
                    for leaf, values in zip(self.leaves, found, strict=True)
                ]
                row = stop
        except (MemoryError, PenstockError):
            raise
        except Exception:
            for leaf in self.leaves:
                leaf.decoded_rows(
                    first, last, context
                )  # The one that is bad says which of its chunks.
            raise


def column_sets(leaves: Sequence[Leaf]) -> list[tuple[int, ...]]:
    """Return which leaves of a file are read together, by their numbers; most are read alone."""
    sets: list[list[int]] = []
    for number, leaf in enumerate(leaves):
        if sets and _fits(leaf, [leaves[one] for one in sets[-1]]):
            sets[-1].append(number)
        else:
            sets.append([number])
    return [tuple(one) for one in sets]


def _fits(leaf: Leaf, others: Iterable[Leaf]) -> bool:
    if not isinstance(leaf, Chunked) or not leaf.joins:
        return False
    nbytes = leaf.chunk_nbytes
    for other in others:
        if (
            not isinstance(other, Chunked)
            or not other.joins
            or other.grid is not leaf.grid
            or other.key == leaf.key
        ):
            return False
        nbytes += other.chunk_nbytes
    return nbytes <= MOST_NBYTES


def staging_nbytes(leaves: Sequence[Leaf], num_rows: int) -> int:
    """Return the bytes that reading takes besides: sets are read one after the other, and one needs most."""
    most = 0
    for one in column_sets(leaves):
        lead, found = leaves[one[0]], [leaves[number] for number in one]
        if isinstance(lead, Chunked) and len(one) > 1:
            together = [leaf for leaf in found if isinstance(leaf, Chunked)]
            most = max(most, lead.together_nbytes(together, num_rows))
        else:
            most = max(most, lead.staging_nbytes(num_rows))
    return most
