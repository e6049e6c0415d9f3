"""How the rows of a node are laid out in a block: which columns, how many bytes, on which boundaries."""

import dataclasses
import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import Index, typed
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
    lease = _Recorded(allocate)
    fixed = [field for field in fields if field.storage_shape is not None]
    strides = [field.stride(aligned=aligned) for field in fixed]
    total = sum(round_up(stride * num_rows, ALIGNMENT) for stride in strides)
    memory = lease(total) if fixed else None
    sinks: list[Sink] = []
    offset = 0
    for field in fields:
        shape = field.storage_shape
        if shape is None or memory is None:
            sinks.append(Pieces(field.spec, lease, aligned=aligned))
            continue
        dtype = field.spec.numpy_dtype
        stride = field.stride(aligned=aligned)
        inner = []
        step = dtype.itemsize
        for size in reversed(shape):
            inner.append(step)
            step *= size
        steps = (stride * num_rows, stride, *reversed(inner))
        grouped = typed(memory, offset, (1, num_rows, *shape), dtype, steps)
        lengths = None if field.spec.is_fixed else np.full(num_rows, shape[0], np.int64)
        sinks.append(Fixed(grouped, None, lengths))
        offset += round_up(stride * num_rows, ALIGNMENT)
    return Block(sinks, num_rows, lease.owners)
