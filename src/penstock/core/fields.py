"""How the rows of a node are laid out in a block: which columns, how many bytes, on which boundaries."""

import dataclasses
import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import Index
from penstock.core.blocks import Block, Pieces, Sink
from penstock.core.columns import Fixed
from penstock.core.spec import ArraySpec
from penstock.memory import ALIGNMENT, Allocate

_TEXT_GUESS = 64  # Bytes assumed for a value of unknown length until a source knows better.


@dataclass(frozen=True, slots=True)
class Field:
    """One leaf of a row, and what is known of its size."""

    spec: ArraySpec
    most: int | None = None
    """For a batch that may be cut short: the largest leading dimension."""
    estimate: int = _TEXT_GUESS
    """Average bytes of a row, where rows differ in size."""
    planned: int | None = None
    """Bytes to plan for a row that may never come, because the rows of a flow may be too few for one such batch."""
    tops: tuple[int, ...] = ()
    """Where all sizes are known and differ: bytes of the 1, 2, 4, ... largest rows together, and last of all rows."""
    storage_shape: tuple[int, ...] | None = dataclasses.field(init=False)
    """The shape of the memory that each row gets, or None where rows differ in size."""
    nbytes: int = dataclasses.field(init=False)
    """Bytes of a row: exact where rows are of one size, else estimated."""

    def __post_init__(self) -> None:
        """Work out sizes once: they are asked for with every block."""
        shape: tuple[int, ...] | None = None
        if self.spec.is_fixed:
            shape = self.spec.fixed_shape
        elif self.most is not None:
            shape = (self.most, *(size for size in self.spec.shape[1:] if size is not None))
        nbytes = self.estimate
        if shape is not None:
            nbytes = math.prod(shape) * self.spec.numpy_dtype.itemsize
        object.__setattr__(self, "storage_shape", shape)
        object.__setattr__(self, "nbytes", nbytes)

    def stride(self, *, aligned: bool) -> int:
        """Bytes from one row to the next."""
        return round_up(self.nbytes, ALIGNMENT) if aligned else self.nbytes

    def most_nbytes(self, num_rows: int, *, aligned: bool = False) -> int:
        """Return the most bytes that any `num_rows` rows take; an estimate where their sizes are not known."""
        if self.planned is not None:
            return self.planned * num_rows
        if self.storage_shape is not None or not self.tops:
            return self.stride(aligned=aligned) * num_rows
        padding = ALIGNMENT * num_rows if aligned else 0
        power = num_rows.bit_length() - 1
        if power < 1:
            return num_rows * self.tops[0] + padding
        if power >= len(self.tops):
            # More rows than there are: a repeat may bring the same rows again.
            return -(-num_rows >> max(0, len(self.tops) - 2)) * self.tops[-1] + padding
        # Each further row is no larger than the average of those that were counted last.
        added = -(-(self.tops[power] - self.tops[power - 1]) // (1 << (power - 1)))
        most = self.tops[power] + (num_rows - (1 << power)) * added
        return min(most, self.tops[min(power + 1, len(self.tops) - 1)]) + padding


def tops_of(sizes: Sequence[int] | Index) -> tuple[int, ...]:
    """Return the sums of the 1, 2, 4, ... largest of some sizes, and of all of them.

    >>> tops_of([1, 5, 2, 2, 3])
    (5, 8, 12, 13)
    """
    if not len(sizes):
        return ()
    sums = np.sort(np.asarray(sizes, np.int64))[::-1]
    np.cumsum(sums, out=sums)
    counts = [1 << power for power in range((len(sums) - 1).bit_length() + 1)]
    return tuple(int(sums[min(count, len(sums)) - 1]) for count in counts)


def round_up(nbytes: int, step: int) -> int:
    """Return the next multiple of `step`."""
    return -(-nbytes // step) * step


def row_nbytes(fields: Sequence[Field]) -> int:
    """Return the bytes of one row of these fields."""
    return sum(field.nbytes for field in fields)


def block_nbytes(fields: Sequence[Field], num_rows: int, *, aligned: bool) -> int:
    """Return the most bytes that a block takes (estimated where the sizes of rows are not known)."""
    return sum(
        round_up(field.most_nbytes(num_rows, aligned=aligned), ALIGNMENT) for field in fields
    )


class _Recorded:
    """Allocates memory, and remembers its owners by weak references, so as not to keep them alive."""

    __slots__ = ("allocate", "owners")

    def __init__(self, allocate: Allocate) -> None:
        self.allocate = allocate
        self.owners: list[weakref.ref[Any]] = []

    def __call__(self, nbytes: int) -> npt.NDArray[np.uint8]:
        memory = self.allocate(nbytes)
        self.owners.append(weakref.ref(memory.base))
        return memory


def repeated(tops: tuple[int, ...], times: int) -> tuple[int, ...]:
    """Return the bytes of the 1, 2, 4, ... largest rows, if every row is there up to `times` times."""
    while tops and times > 1:
        tops, times = (tops[0], *(2 * nbytes for nbytes in tops)), -(-times // 2)
    return tops


def allocate_block(
    fields: Sequence[Field], num_rows: int, allocate: Allocate, *, aligned: bool
) -> Block:
    """Return an empty block for `num_rows` rows; `aligned` starts each row on a multiple of 64 bytes.

    All columns of fixed size share one piece of memory; text and ragged rows get theirs when
    their sizes are known.
    """
    return BlockLayout(fields, num_rows, aligned=aligned).block(allocate)


class BlockLayout:
    """Where the columns of a block lie: worked out once for all blocks of a stream that have as many rows."""

    __slots__ = (
        "_views",
        "aligned",
        "columns",
        "fields",
        "has_fixed",
        "is_fixed",
        "nbytes",
        "num_rows",
    )

    def __init__(self, fields: Sequence[Field], num_rows: int, *, aligned: bool) -> None:
        self.fields = fields
        self.num_rows = num_rows
        self.aligned = aligned
        self._views: list[_View | None] = []
        places: list[tuple[int, int]] = []
        offset = 0
        for field in fields:
            shape = field.storage_shape
            if shape is None:
                self._views.append(None)
                continue
            dtype = field.spec.numpy_dtype
            stride = field.stride(aligned=aligned)
            inner = []
            step = dtype.itemsize
            for size in reversed(shape):
                inner.append(step)
                step *= size
            steps = (stride * num_rows, stride, *reversed(inner))
            longest = None if field.spec.is_fixed else shape[0]
            is_empty = math.prod((num_rows, *shape)) * dtype.itemsize == 0
            self._views.append(((1, num_rows, *shape), dtype, offset, steps, longest, is_empty))
            places.append((offset, stride))
            offset += round_up(stride * num_rows, ALIGNMENT)
        self.nbytes = offset
        """Bytes of all columns of fixed size, which share one piece of memory."""
        self.has_fixed = bool(places)
        self.is_fixed = len(places) == len(self._views)
        self.columns = np.array(places, np.int64).reshape(-1, 2)
        """Of each column of fixed size, where it begins, and the bytes from one row to the next."""

    def block(self, allocate: Allocate) -> Block:
        """Return an empty block."""
        lease = _Recorded(allocate)
        memory = lease(self.nbytes) if self.has_fixed else None
        sinks: list[Sink] = []
        for field, view in zip(self.fields, self._views, strict=True):
            if view is None or memory is None:
                sinks.append(Pieces(field.spec, lease, aligned=self.aligned))
                continue
            longest = view[4]
            lengths = None if longest is None else np.full(self.num_rows, longest, np.int64)
            sinks.append(Fixed(_seen(memory, view), None, lengths))
        return Block(sinks, self.num_rows, lease.owners)

    def finished(self, memory: npt.NDArray[np.uint8], lengths: Index | None = None) -> Block:
        """Return a block of whole rows over memory that has them already, or will; only if `is_fixed`.

        `lengths` is how much of each row is valid, where rows are batches and one is cut short.
        """
        columns = [Fixed(_seen(memory, view), None, lengths) for view in self._views if view]
        block = Block([], self.num_rows, [weakref.ref(memory.base)])
        block.columns = [*columns]
        return block


_View = tuple[tuple[int, ...], np.dtype[Any], int, tuple[int, ...], int | None, bool]
"""Shape, dtype, offset and strides of a column in its memory, its longest row, and whether it has no bytes."""


def _seen(memory: npt.NDArray[np.uint8], view: _View) -> npt.NDArray[Any]:
    shape, dtype, offset, strides, _, is_empty = view
    return np.empty(shape, dtype) if is_empty else np.ndarray(shape, dtype, memory, offset, strides)
