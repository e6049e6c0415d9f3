"""The random generators that a training run draws from: Keras', Python's, NumPy's and the backend's."""

import random
from typing import Any

import keras
import numpy as np

_KERAS_STATE = 2
"""The numbers in the state of a generator of Keras."""


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


def check_random_state(state: dict[str, Any]) -> None:
    """Raise whatever `set_random_state` would, and change nothing: the state is tried on other generators."""
    _set_python(random.Random(), state)
    _set_numpy(np.random.RandomState(0), state)
    _check_numbers(state["keras"], np.uint32, _KERAS_STATE)
    if "torch" in state:
        import torch

        torch.Generator().set_state(_torch_state(state["torch"]))
        for each in state.get("cuda", ()):
            _torch_state(each)
    if "tensorflow" in state:
        import tensorflow as tf

        size = int(tf.random.get_global_generator().state.shape[0])
        _check_numbers(state["tensorflow"], np.int64, size)


def set_random_state(state: dict[str, Any]) -> None:
    """Put back what `random_state` returned.

    In several processes of JAX all of them must call it: Keras' generator is then a variable of all.
    """
    # First: if it is not there yet, it takes its seed from Python's.
    generator = _global_generator().state
    _set_python(random, state)
    _set_numpy(np.random, state)
    generator.assign(np.array(state["keras"], keras.backend.standardize_dtype(generator.dtype)))
    if "torch" in state:
        import torch

        torch.set_rng_state(_torch_state(state["torch"]))
        if "cuda" in state:
            torch.cuda.set_rng_state_all([_torch_state(each) for each in state["cuda"]])
    if "tensorflow" in state:
        import tensorflow as tf

        tf.random.get_global_generator().reset(np.array(state["tensorflow"], np.int64))


def _set_python(generator: Any, state: dict[str, Any]) -> None:
    version, numbers, gauss = state["python"]
    generator.setstate((version, tuple(numbers), gauss))


def _set_numpy(generator: Any, state: dict[str, Any]) -> None:
    kind, keys, position, has_gauss, cached = state["numpy"]
    generator.set_state((kind, np.array(keys, np.uint32), position, has_gauss, cached))


def _torch_state(numbers: list[int]) -> Any:
    import torch

    return torch.tensor(numbers, dtype=torch.uint8)


def _check_numbers(numbers: list[int], dtype: type, size: int) -> None:
    if np.array(numbers, dtype).shape != (size,):
        raise ValueError(f"the state of a generator is {size} numbers, got {numbers}.")


def _global_generator() -> Any:
    from keras.src.random.seed_generator import global_seed_generator

    return global_seed_generator()
