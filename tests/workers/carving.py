"""Arrays cut from one piece of memory, each on 64 bytes, as blocks are."""

import math

import numpy as np

from penstock.workers.wire import align


def carve(memory, arrays):
    """Return arrays of these dtypes and shapes, one after another."""
    carved, position = [], 0
    for dtype, shape in arrays:
        carved.append(np.ndarray(tuple(shape), np.dtype(dtype), memory, position))
        position = align(position + carved[-1].nbytes)
    return carved


def carved_nbytes(arrays):
    """Return how many bytes `carve` needs for these arrays."""
    return sum(align(np.dtype(dtype).itemsize * math.prod(shape)) for dtype, shape in arrays)
