"""Keras on PyTorch: the parts of it that are not exported, wherever a release has them."""

import importlib
from typing import Any


def torch_core() -> Any:
    """Return the module of Keras that knows its device and its dtypes."""
    try:
        return importlib.import_module("keras.src.backend.torch.core")
    except ModuleNotFoundError:  # moved in 3.16
        return importlib.import_module("keras.src.backend.torch.ops.core")
