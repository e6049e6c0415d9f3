"""Tables of TensorFlow variables, which tf.data can gather from, too.

A variable exists before its rows are read, so that a dataset can be built over it without reading any.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from penstock.core.nest import flatten, unflatten
from penstock.feeds.on_device.device import Device


class TfDevice(Device):
    """A device by its name."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name or "/CPU:0"
        self.is_cpu = "CPU" in self.name.upper()

    def put(self, batch: Any) -> Any:
        """Return a batch of NumPy arrays as tensors on the device."""
        leaves, structure = flatten(batch)
        with tf.device(self.name):
            return unflatten(structure, [tf.identity(leaf) for leaf in leaves])

    def free_nbytes(self) -> int | None:
        """Return what a GPU has left, if it is known. Unverified on hardware."""
        if self.is_cpu:
            return None
        from tensorflow.python.client import device_lib  # the only place that has the limit

        number = self.name.rpartition(":")[2]
        for device in device_lib.list_local_devices():
            if device.device_type == "GPU" and device.name.rpartition(":")[2] == number:
                used = tf.config.experimental.get_memory_info(f"GPU:{number}")["current"]
                return int(device.memory_limit) - int(used)
        return None

    def allocate(self, num_rows: int, like: Any) -> Any:
        """Return a variable with room for the rows: `like` itself, if it is a variable."""
        shape = like.shape[1:]
        with tf.device(self.name):
            if not isinstance(like, tf.Variable):
                none = tf.zeros((0, *shape), like.dtype)
                like = tf.Variable(none, shape=(None, *shape), trainable=False)
            room = tf.raw_ops.Empty(shape=(num_rows, *shape), dtype=like.dtype, init=False)
            like.assign(room, read_value=False)
        return like

    def write(self, table: Any, start: int, leaf: Any) -> Any:
        """Return the variable itself, after copying rows into it."""
        # Not table[a:b].assign(leaf): that reads all of the table first, and copies it.
        tf.raw_ops.ResourceStridedSliceAssign(
            ref=table.handle, begin=[start], end=[start + len(leaf)], strides=[1], value=leaf
        )
        return table

    def gather(self, tables: Sequence[Any], rows: Any) -> list[Any]:
        """Return these rows of each table; works in a function of tf.data as well."""
        with tf.device(self.name):
            numbers = tf.convert_to_tensor(rows)
            return [
                tf.raw_ops.ResourceGather(resource=table.handle, indices=numbers, dtype=table.dtype)
                for table in tables
            ]

    def nbytes(self, leaf: Any) -> int:
        """Return its bytes."""
        return int(leaf.dtype.size) * int(leaf.shape.num_elements())
