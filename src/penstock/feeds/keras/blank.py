"""A batch of zeros for Keras to build its model with: for that it looks at shapes and dtypes, never at numbers."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.core.arrays import Array
from penstock.core.nest import flatten
from penstock.core.rows import Node
from penstock.feeds.facts import batch_size, num_batches
from penstock.feeds.leafwise import Convert
from penstock.memory import ALIGNMENT


def blank_batches(
    node: Node, prepare: Convert | None, convert: Convert | None = None
) -> Iterator[Any] | None:
    """Return as many batches of zeros as there are, to be read instead; None if their shapes are not known before."""
    if not _is_known(node):
        return None
    batch = blank_batch(node, prepare)
    # With `steps_per_execution` Keras asks for several.
    total = num_batches(node)
    count = () if total is None else (total,)
    return itertools.repeat(batch if convert is None else convert(batch), *count)


def blank_batch(node: Node, prepare: Convert | None) -> Any:
    """Return a batch of zeros with the shapes and dtypes of a whole one once it is prepared; sizes not known are 1.

    It takes no memory: pages that nobody writes to are none.
    """
    leaves = [
        np.zeros([1, *(size or 1 for size in field.spec.shape[1:])], field.spec.numpy_dtype)
        for field in node.fields
    ]
    if node.weighs_rows:
        leaves[-1][:] = 1  # A row without weight may be left out.
    row = node.structure.unflatten(leaves)
    found, structure = flatten(row if prepare is None else prepare(row))
    size = batch_size(node) or 1
    return structure.unflatten([_zeros((size, *leaf.shape[1:]), leaf.dtype) for leaf in found])


def _is_known(node: Node) -> bool:
    """Whether the shapes of the first batch are known before it is read."""
    if batch_size(node) is None:
        return False
    specs = [field.spec for field in node.fields]
    if any(spec.is_text or None in spec.shape[1:] for spec in specs):
        return False
    # One that is the only batch may be shorter.
    return num_batches(node) != 1 or all(spec.is_fixed for spec in specs)


def _zeros(shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Array:
    """Return zeros that start on 64 bytes, as arrays do that frameworks take without a copy."""
    if dtype.hasobject:
        return np.zeros(shape, dtype)
    nbytes = int(np.prod(shape)) * dtype.itemsize
    memory = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -memory.__array_interface__["data"][0] % ALIGNMENT
    return memory[start : start + nbytes].view(dtype).reshape(shape)
