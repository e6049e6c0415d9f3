"""Memory of a file descriptor, mapped until the last view of it dies.

Python's own `mmap` keeps a descriptor open for each mapping (until 3.13, where that can be turned
off): a consumer that keeps a few thousand results would run out of them.
"""

import ctypes
import os
from typing import Any

import numpy as np
import numpy.typing as npt

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_ssize_t,  # off_t
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_PROT_READ_WRITE, _MAP_SHARED = 3, 1  # sys/mman.h
_MAP_FAILED = ctypes.c_void_p(-1).value


class _Mapping:
    """The owner behind the array: views refer to it, and its death unmaps the memory."""

    __slots__ = ("__array_interface__", "_address", "_munmap", "_nbytes")

    def __init__(self, fd: int, nbytes: int) -> None:
        self._nbytes = 0
        # Kept here: when Python ends, globals may be gone before __del__ runs.
        self._munmap = _libc.munmap
        address = _libc.mmap(None, nbytes, _PROT_READ_WRITE, _MAP_SHARED, fd, 0)
        if address == _MAP_FAILED:
            number = ctypes.get_errno()
            raise OSError(number, f"{os.strerror(number)}, while mapping {nbytes} bytes")
        self._address, self._nbytes = address, nbytes
        self.__array_interface__: dict[str, Any] = {
            "data": (address, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self) -> None:
        if self._nbytes:
            self._munmap(self._address, self._nbytes)


def map_memory(fd: int, nbytes: int) -> npt.NDArray[np.uint8]:
    """Return the first nbytes of fd's memory, shared with all who map it; fd may be closed afterwards."""
    return np.asarray(_Mapping(fd, nbytes))
