"""Numbers of 64 bits: JAX makes 32 bits of them unless it is told otherwise. Never silently, and never wrapped."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from penstock.core.arrays import Array
from penstock.core.spec import ArraySpec
from penstock.errors import RangeError, warn_user
from penstock.feeds.alignment import aligned_cast
from penstock.feeds.leafwise import Convert

_NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
_CURE = (
    "call jax.config.update('jax_enable_x64', True) before the first array is made, "
    "or cast it with .map(...)"
)


def has_dtype(dtype: np.dtype[Any]) -> bool:
    """Whether JAX has a dtype, be it narrowed."""
    try:
        jax.device_put(np.zeros(0, dtype))
    except TypeError:
        return False
    return True


def warn_of_narrowing(named_specs: Sequence[tuple[str, ArraySpec]]) -> None:
    """Warn once of all fields that JAX makes narrower."""
    if jax.config.jax_enable_x64:
        return
    found = [
        f"field {name!r} from {spec.numpy_dtype.name} to {_NARROW[spec.numpy_dtype.name]}"
        for name, spec in named_specs
        if spec.numpy_dtype.name in _NARROW
    ]
    if found:
        warn_user(f"JAX narrows {', '.join(found)}; to keep all of it, {_CURE}.")


def narrowing(name: str, spec: ArraySpec) -> Convert | None:
    """Return what narrows whole numbers as JAX would, and raises if one does not fit; None for other dtypes."""
    wide = spec.numpy_dtype
    if wide.kind not in "iu" or wide.name not in _NARROW:
        return None
    narrow = _NARROW[wide.name]
    limits = np.iinfo(narrow)

    def narrowed(leaf: Any) -> Any:
        if jax.config.jax_enable_x64:
            return leaf
        values: Array = np.asarray(leaf)
        if values.size and (values.max() > limits.max or values.min() < limits.min):
            row, value = _first(values, limits)
            raise RangeError(
                f"field {name!r} has {value} in row {row}, which {narrow} can't hold, and JAX has no "
                f"{wide.name} by default; {_CURE}."
            )
        return aligned_cast(values, narrow)

    return narrowed


def _first(values: Array, limits: "np.iinfo[Any]") -> tuple[int, int]:
    """Return the first row with a number that does not fit, and that number."""
    flat = np.atleast_1d(values)
    place = np.argwhere((flat > limits.max) | (flat < limits.min))[0]
    return int(place[0]), int(flat[tuple(place)])
