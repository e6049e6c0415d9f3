"""NumPy memory as torch tensors: on the CPU, tensors share that memory."""

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.core.spec import ArraySpec
from penstock.feeds.dtypes import byte_order
from penstock.feeds.leafwise import chained

# Dtypes that torch.from_numpy takes and Keras leaves as they are.
_SHARED = frozenset(
    {"float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"}
    | {"complex64", "complex128"}
)
_UNSIGNED = frozenset({"uint16", "uint32", "uint64"})
# Dtypes that torch and ml_dtypes both have; their bits travel as integers of the same width.
_CARRIED = {
    "bfloat16": "int16",
    **dict.fromkeys(
        ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
        "uint8",
    ),
}


def keras_converter(spec: ArraySpec) -> Callable[[Any], Any]:
    """Return the function that makes a tensor of a leaf of a batch, on the device of Keras."""
    import keras
    import torch

    from penstock.feeds.keras.on_torch import torch_core

    device = torch.device(torch_core().get_device())
    if spec.numpy_dtype.name not in _SHARED:
        convert: Callable[[Any], Any] = keras.ops.convert_to_tensor
        return convert
    share = converter(spec, torch)
    if device.type == "cpu":
        return share
    return lambda leaf: share(leaf).to(device, non_blocking=True)


def has_dtype(dtype: np.dtype[Any], torch: Any) -> bool:
    """Whether torch has a dtype; those of 16, 32 and 64 bits without a sign only to hold and to cast."""
    if dtype.name in _CARRIED:
        return hasattr(torch, dtype.name)
    return dtype.name in _SHARED | _UNSIGNED


def converter(spec: ArraySpec, torch: Any) -> Callable[[Any], Any]:
    """Return the function that makes a CPU tensor of a leaf of a batch, whose dtype torch must have."""
    name, from_numpy = spec.numpy_dtype.name, torch.from_numpy
    if name in _CARRIED:
        carrier, kind = _CARRIED[name], getattr(torch, name)
        return lambda leaf: from_numpy(np.asarray(leaf).view(carrier)).view(kind)
    if not spec.shape:
        return lambda leaf: from_numpy(np.asarray(leaf))
    share = chained(byte_order(spec), from_numpy)
    assert share is not None
    return share
