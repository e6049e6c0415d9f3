"""Dtypes on their way to a framework: those that it lacks are refused, the rest come in this machine's byte order."""

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.core.arrays import Array
from penstock.core.rows import Node
from penstock.core.spec import ArraySpec
from penstock.feeds.alignment import aligned_cast
from penstock.feeds.facts import named_specs
from penstock.feeds.leafwise import Convert, leafwise

Has = Callable[[np.dtype[Any]], bool]
"""Whether a framework has a dtype."""


def native(spec: ArraySpec) -> ArraySpec:
    """Return the spec of a field in this machine's byte order."""
    if spec.is_text or spec.numpy_dtype.isnative:
        return spec
    return ArraySpec(spec.shape, spec.numpy_dtype.newbyteorder("="))


def byte_order(spec: ArraySpec) -> Convert | None:
    """Return what brings a leaf of a batch into this machine's byte order; None if it has that."""
    dtype = native(spec).numpy_dtype
    if dtype == spec.numpy_dtype:
        return None

    def swapped(leaf: Array) -> Array:
        return aligned_cast(np.asarray(leaf), dtype)

    return swapped


def byte_orders(node: Node) -> Convert | None:
    """Return what does so with all leaves of a batch; None if there is nothing to do."""
    return leafwise(node.structure, [byte_order(field.spec) for field in node.fields])


def check_dtypes(node: Node, framework: str, has: Has, *, has_text: bool = False) -> None:
    """Raise, with the cure, if a framework lacks the dtype of a field."""
    for name, spec in named_specs(node):
        dtype = native(spec).numpy_dtype
        is_text = spec.is_text or dtype.kind in "SU"
        if has_text if is_text else has(dtype):
            continue
        lacks = "numbers only" if is_text else "no such dtype"
        raise TypeError(f"field {name!r} is {spec}, and {framework} has {lacks}; {_cure(dtype)}.")


def _cure(dtype: np.dtype[Any]) -> str:
    if dtype.kind in "SUO":
        return "turn it into numbers with .map(...) before .batch(...)"
    if dtype.names is not None:
        return "make a field of each of its columns with .map(...) before .batch(...)"
    kind = "int64" if dtype.kind in "mMu" else "complex64" if dtype.kind == "c" else "float32"
    return f"cast it with .map(...) before .batch(...): value.astype({kind!r})"
