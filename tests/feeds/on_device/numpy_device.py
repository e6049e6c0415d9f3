"""A device of plain memory for the tests of what stays on a device, and how its batches are compared."""

import numpy as np

from penstock.core.nest import flatten
from penstock.feeds.on_device.choice import choose
from penstock.feeds.on_device.device import Device


class NumpyDevice(Device):
    """Memory that plays a device, with as much of it free as it is told."""

    def __init__(self, free=None):
        self.free = free

    def free_nbytes(self):
        return self.free

    def allocate(self, num_rows, like):
        return np.empty((num_rows, *like.shape[1:]), like.dtype)

    def write(self, table, start, leaf):
        table[start : start + len(leaf)] = leaf
        return table

    def gather(self, tables, rows):
        return [table[rows] for table in tables]

    def nbytes(self, leaf):
        return leaf.nbytes


def chosen(ds, device_memory="1GB", free=None):
    return choose(ds, NumpyDevice(free), lambda batch: batch, device_memory)


def leaves(batch):
    return [np.asarray(leaf).copy() for leaf in flatten(batch)[0]]


def same(found, wanted):
    found, wanted = [leaves(batch) for batch in found], [leaves(batch) for batch in wanted]
    return len(found) == len(wanted) and all(
        a.dtype == b.dtype and a.tobytes() == b.tobytes() and a.shape == b.shape
        for mine, theirs in zip(found, wanted, strict=True)
        for a, b in zip(mine, theirs, strict=True)
    )
