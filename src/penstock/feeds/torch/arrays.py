"""NumPy memory as torch tensors: on the CPU, tensors share that memory."""

from collections.abc import Callable
from typing import Any

from penstock.core.spec import ArraySpec

# Dtypes that torch.from_numpy takes and Keras leaves as they are.
_SHARED = frozenset(
    {"float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"}
    | {"complex64", "complex128"}
)


def keras_converter(spec: ArraySpec) -> Callable[[Any], Any]:
    """Return the function that makes a tensor of a leaf of a batch, on the device of Keras."""
    import keras
    import torch
    from keras.src.backend.torch.core import get_device

    device = torch.device(get_device())
    if spec.numpy_dtype.name not in _SHARED:
        convert: Callable[[Any], Any] = keras.ops.convert_to_tensor
        return convert
    if device.type == "cpu":
        return torch.from_numpy  # type: ignore[no-any-return]  # torch is not followed
    return lambda leaf: torch.from_numpy(leaf).to(device, non_blocking=True)


def converter(spec: ArraySpec, torch: Any) -> Callable[[Any], Any]:
    """Return the function that makes a CPU tensor of a leaf of a batch."""
    if spec.numpy_dtype.name in _SHARED or spec.numpy_dtype.kind == "u":
        return torch.from_numpy  # type: ignore[no-any-return]  # torch is not followed
    if spec.numpy_dtype.name == "bfloat16":
        return lambda leaf: torch.from_numpy(leaf.view("int16")).view(torch.bfloat16)
    raise TypeError(f"torch has no dtype for {spec}; cast it with .map(...) before .batch(...).")
