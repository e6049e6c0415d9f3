"""NumPy memory as TensorFlow tensors: without a copy where that is safe."""

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.core.arrays import Array
from penstock.core.spec import ArraySpec
from penstock.feeds.alignment import is_aligned

# Dtypes that DLPack and TensorFlow both know. The rest is copied by TensorFlow itself.
_SHARED = frozenset(
    {"float16", "float32", "float64"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)


def converter(spec: ArraySpec, tf: Any) -> Callable[[Any], Any] | None:
    """Return the function that makes a tensor of a leaf of a batch; None where TensorFlow should copy."""
    if not spec.shape or spec.is_text or spec.numpy_dtype.name not in _SHARED:
        return None
    from_dlpack = tf.experimental.dlpack.from_dlpack

    def convert(leaf: Array) -> Any:
        # TensorFlow takes memory at any offset, and aborts the process later if it is not on 64 bytes.
        if not leaf.size or not is_aligned(leaf) or not leaf.flags.writeable:
            return tf.convert_to_tensor(leaf)
        return from_dlpack(leaf.__dlpack__())

    return convert


def has_dtype(dtype: np.dtype[Any], tf: Any) -> bool:
    """Whether TensorFlow has a dtype."""
    try:
        tf.dtypes.as_dtype(dtype)
    except TypeError:
        return False
    return True


def tensor_spec(spec: ArraySpec, tf: Any) -> Any:
    """Return the tf.TensorSpec of a leaf."""
    dtype = tf.string if spec.is_text else tf.dtypes.as_dtype(spec.numpy_dtype)
    return tf.TensorSpec(spec.shape, dtype)
