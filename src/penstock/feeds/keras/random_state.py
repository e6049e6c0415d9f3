"""The random generators that a training run draws from: Keras', Python's, NumPy's and the backend's."""

import random
from typing import Any

import keras
import numpy as np


def random_state() -> dict[str, Any]:
    """Return the state of all these generators, as JSON."""
    version, numbers, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002  # users draw from it
    state: dict[str, Any] = {
        "python": [version, list(numbers), gauss],
        "numpy": [kind, np.asarray(keys).tolist(), int(position), int(has_gauss), float(cached)],
        "keras": keras.ops.convert_to_numpy(_global_generator().state.value).tolist(),
    }
    if keras.backend.backend() == "torch":
        import torch

        state["torch"] = torch.get_rng_state().tolist()
        if torch.cuda.is_available():
            state["cuda"] = [each.tolist() for each in torch.cuda.get_rng_state_all()]
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        state["tensorflow"] = tf.random.get_global_generator().state.numpy().tolist()
    return state


def set_random_state(state: dict[str, Any]) -> None:
    """Put back what `random_state` returned."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, np.array(keys, np.uint32), position, has_gauss, cached))  # noqa: NPY002  # likewise
    generator = _global_generator().state
    generator.assign(np.array(state["keras"], keras.backend.standardize_dtype(generator.dtype)))
    if "torch" in state:
        import torch

        torch.set_rng_state(torch.tensor(state["torch"], dtype=torch.uint8))
        if "cuda" in state:
            torch.cuda.set_rng_state_all(
                [torch.tensor(each, dtype=torch.uint8) for each in state["cuda"]]
            )
    if "tensorflow" in state:
        import tensorflow as tf

        tf.random.get_global_generator().reset(np.array(state["tensorflow"], np.int64))


def _global_generator() -> Any:
    from keras.src.random.seed_generator import global_seed_generator

    return global_seed_generator()
