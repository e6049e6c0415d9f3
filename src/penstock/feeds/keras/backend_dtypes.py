"""Which dtypes Keras has, on each of its backends, and what a backend would do to numbers silently."""

from typing import Any

import keras
import numpy as np

from penstock.core.rows import Node
from penstock.core.spec import ArraySpec
from penstock.feeds.dtypes import check_dtypes
from penstock.feeds.facts import named_specs
from penstock.feeds.leafwise import Convert


def check_backend_dtypes(node: Node) -> None:
    """Raise, with the cure, if Keras lacks the dtype of a field; all floats become Keras' own."""
    backend = keras.backend.backend()

    def has(dtype: np.dtype[Any]) -> bool:
        return "float" in dtype.name or _has_dtype(backend, dtype)

    check_dtypes(node, f"Keras on {backend}", has, has_text=backend == "tensorflow")
    if backend == "jax":
        from penstock.feeds.jax.narrowing import warn_of_narrowing

        # Floats become Keras' own, as they do in `fit(ndarray)`, and whole numbers are checked.
        warn_of_narrowing([one for one in named_specs(node) if one[1].numpy_dtype.kind == "c"])


def _has_dtype(backend: str, dtype: np.dtype[Any]) -> bool:
    if backend == "jax":
        from penstock.feeds.jax.narrowing import has_dtype

        return has_dtype(dtype)
    if backend == "torch":
        from penstock.feeds.keras.on_torch import torch_core

        try:
            torch_core().to_torch_dtype(dtype.name)
        except ValueError:
            return False
        return True
    import tensorflow as tf

    from penstock.feeds.tf.arrays import has_dtype as tensorflow_has

    return tensorflow_has(dtype, tf)


def narrowing_of_backend(name: str, spec: ArraySpec) -> Convert | None:
    """Return what narrows whole numbers as JAX would, and raises if one does not fit; None on other backends."""
    if keras.backend.backend() != "jax":
        return None
    from penstock.feeds.jax.narrowing import narrowing

    return narrowing(name, spec)
