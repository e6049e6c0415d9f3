"""What the Keras suite shares. It runs once a backend, in a process of its own: see ../test_feed.py."""

import os
import warnings

import numpy as np
import pytest

if os.environ.get("KERAS_BACKEND") == "tensorflow":
    import tensorflow as tf

    # Two devices, for strategies that spread a batch. They must be declared before any is used.
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )


@pytest.fixture(autouse=True)
def _keras_warns_of_nothing():
    """Whatever Keras warns of ('Your input ran out of data') is a mistake of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        # So that the suite can be run on a release of Keras that is newer than all that it was run on.
        warnings.filterwarnings("ignore", ".*this penstock was run with")
        yield


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.random((200, 8), np.float32), rng.integers(0, 4, 200).astype("int32")
