"""Arrays on storage that the user has open: memmaps, h5py datasets, Zarr arrays."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.core.arrays import Array, rows_are_contiguous
from penstock.core.lazy import lazy
from penstock.io.local.page_cache import page_cache_room
from penstock.io.location import Location
from penstock.sources.reading.leaves import Leaf, leaf_of
from penstock.sources.reading.regions import FortranRegion, Region

if TYPE_CHECKING:
    from penstock.sources.hdf5 import arrays as hdf5
    from penstock.sources.zarr import arrays as zarr
else:
    # Few arrays are of these kinds: `import penstock` does not wait for these modules.
    hdf5 = lazy("penstock.sources.hdf5.arrays")
    zarr = lazy("penstock.sources.zarr.arrays")

_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ ([0-9a-f]+):([0-9a-f]+) (\d+) *(.*)")


def leaf_of_any(value: Any, name: str) -> Leaf:
    """Return the leaf for whatever the user gave as one array; an array on storage is read from there."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    if package == "h5py" and kind.__name__ == "Dataset" and value.shape != ():
        return hdf5.OpenedDataset(value, name)
    if package == "zarr" and kind.__name__ == "Array" and value.shape:
        return zarr.OpenedArray(value, name)
    if isinstance(value, np.ndarray):
        return _mapped(value) or leaf_of(value, name)
    return leaf_of(value, name)


def _mapped(array: Array) -> Leaf | None:
    """Return a leaf of the file behind a memmap or a view of one; None if there is no such file.

    Reading the file instead of the mapping spares the page cache, and a file that is cut short
    while it is read gives an error instead of ending the process.
    """
    root = _root(array)
    if root is None or root.mode == "c" or not array.size or array.dtype.hasobject:
        return None  # What is written to a private mapping is in no file.
    offset = _address(array) - _address(root) + root.offset
    try:
        found = os.stat(root.filename)  # noqa: PTH116  what fstat gives, for the same comparison
    except OSError:
        return None  # Deleted: the mapping is all that is left of it.
    if (
        offset < 0
        or offset + array.nbytes > found.st_size
        or not _is_mapping_of(root, found, root.filename)
    ):
        return None
    # A file that is mapped for writing may change; one that is mapped for reading should not.
    mtime = found.st_mtime_ns if root.mode == "r" else None
    location = Location(str(root.filename), found.st_size, mtime_ns=mtime, inode=found.st_ino)
    direct = root.mode == "r" and found.st_size > page_cache_room()
    width = array.nbytes // len(array)
    if rows_are_contiguous(array) and (len(array) == 1 or array.strides[0] == width):
        return Region(location, offset, array.dtype, array.shape, direct=direct)
    if array.flags.f_contiguous:
        return FortranRegion(location, offset, array.dtype, array.shape, direct=direct)
    return None


def _root(array: Array) -> Any:
    """Return the memmap that an array is, or is a view of."""
    found: Any = array
    while isinstance(found, np.ndarray):
        if isinstance(found, np.memmap) and not isinstance(found.base, np.ndarray):
            has_file = found.filename is not None and found._mmap is not None  # type: ignore[attr-defined]  # noqa: SLF001  its only sign of being a mapping
            return found if has_file else None
        found = found.base
    return None


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _is_mapping_of(root: Array, found: os.stat_result, name: Any) -> bool:
    """Return whether the memory of `root` maps this very file: another file may have its name by now."""
    address = _address(root)
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return False
    for line in lines:
        match = _MAPPING.match(line)
        if match and int(match[1], 16) <= address < int(match[2], 16):
            device = os.makedev(int(match[3], 16), int(match[4], 16))
            # Some file systems (overlays) show other numbers here. Then the path decides: that of a
            # file that was replaced is marked as deleted.
            is_same = int(match[5]) == found.st_ino and device == found.st_dev
            return is_same or match[6] == str(Path(name).resolve())
    return False
