"""Memory that frameworks can take over without a copy: contiguous, and starting on 64 bytes."""

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import Array
from penstock.memory import ALIGNMENT, allocate_plain


def is_aligned(array: Array) -> bool:
    """Whether JAX and TensorFlow can use this memory without a copy."""
    address: int = array.__array_interface__["data"][0]
    return address % ALIGNMENT == 0 and array.flags.c_contiguous


def aligned(array: Array) -> Array:
    """Return the array itself, or a copy of it that starts on 64 bytes."""
    return array if is_aligned(array) else aligned_cast(array, array.dtype)


def aligned_cast(array: Array, dtype: npt.DTypeLike) -> Array:
    """Return a new array of another dtype that starts on 64 bytes."""
    kind = np.dtype(dtype)
    memory = allocate_plain(max(1, array.size * kind.itemsize))
    result: Array = (
        np.ndarray(array.shape, kind, memory) if array.size else np.empty(array.shape, kind)
    )
    np.copyto(result, array, casting="unsafe")
    return result
