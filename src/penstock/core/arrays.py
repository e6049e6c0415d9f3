"""Arrays as the kernels see them: row numbers, bytes, and where things start."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.memory import ALIGNMENT

Index = npt.NDArray[np.int64]
"""Numbers of rows, of slots, or of whatever else is counted."""
Array = npt.NDArray[Any]


def starts_of(sizes: Index, itemsize: int, *, aligned: bool) -> Index:
    """Return where rows of these sizes start: one after the other, or each on a multiple of 64 bytes."""
    step = ALIGNMENT // math.gcd(ALIGNMENT, itemsize) if aligned and itemsize else 1
    room = -(-sizes // step) * step
    starts = np.zeros(len(sizes), np.int64)
    np.cumsum(room[:-1], out=starts[1:])
    return starts


def spans(starts: Index, lengths: Index) -> Index:
    """Return start, start + 1, ... of each span, one span after the other.

    >>> spans(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    total = int(lengths.sum())
    ends = np.cumsum(lengths)
    numbers: Index = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return numbers


def typed(
    memory: npt.NDArray[np.uint8],
    offset: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    strides: tuple[int, ...] | None = None,
) -> Array:
    """Return an array of any dtype as a view of existing bytes (an empty array needs none)."""
    if math.prod(shape) * dtype.itemsize == 0:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, memory, offset, strides)


class _View:
    """An object through which NumPy sees the memory of one array as an array of bytes."""

    __slots__ = ("__array_interface__", "base")

    def __init__(self, interface: dict[str, Any], base: object) -> None:
        self.__array_interface__ = interface
        self.base = base


def raw_rows(array: Array, lead: int) -> npt.NDArray[np.uint8]:
    """Return the bytes of an array: its first `lead` axes, then one axis for the bytes of a row.

    The axes after the first `lead` must be contiguous. This works for every dtype, as `.view(uint8)`
    does not.
    """
    nbytes = math.prod(array.shape[lead:]) * array.dtype.itemsize
    interface = {
        "version": 3,
        "typestr": "|u1",
        "shape": (*array.shape[:lead], nbytes),
        "strides": (*array.strides[:lead], 1),
        "data": array.__array_interface__["data"],
    }
    return np.asarray(_View(interface, array))


def narrowed(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return numbers in another dtype; raise OverflowError where a finite one would become an infinity."""
    try:
        with np.errstate(over="raise"):
            return values.astype(dtype, copy=False)
    except FloatingPointError as error:
        raise OverflowError(f"too large for {dtype}") from error


def copy_box(source: Array, target: Array) -> None:
    """Copy an array to one of the same shape and dtype, in pieces as large as they lie together in both."""
    lead, nbytes = source.ndim, source.dtype.itemsize
    while lead and (
        source.shape[lead - 1] == 1
        or source.strides[lead - 1] == target.strides[lead - 1] == nbytes
    ):
        lead -= 1
        nbytes *= source.shape[lead]
    if lead == source.ndim - 1 and nbytes > source.dtype.itemsize:
        # The same as below, and quicker to say: pieces of columns are common, and often small.
        piece = np.dtype((np.void, nbytes))
        np.copyto(target.view(piece), source.view(piece))
    elif nbytes:
        np.copyto(_in_pieces(target, lead, nbytes), _in_pieces(source, lead, nbytes))


def _in_pieces(array: Array, lead: int, nbytes: int) -> Array:
    interface = {
        "version": 3,
        "typestr": f"|V{nbytes}",
        "shape": array.shape[:lead],
        "strides": array.strides[:lead],
        "data": array.__array_interface__["data"],
    }
    return np.asarray(_View(interface, array))


def rows_are_contiguous(array: Array) -> bool:
    """Whether the bytes of each row of `array` lie one after the other."""
    step = array.dtype.itemsize
    for size, stride in zip(reversed(array.shape[1:]), reversed(array.strides[1:]), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True
