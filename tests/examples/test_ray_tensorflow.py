"""examples/ray_tensorflow.py: by its command, with workers that are killed."""

import numpy as np
import pytest
from tests.examples.ray_runs import batches, check_a_killed_worker, check_two_killed_workers

pytest.importorskip("tensorflow")
pytest.importorskip("ray.train")


def trained_alone(data):
    """Return weights and bias after a loop in NumPy, without workers."""
    weights, bias = np.zeros(8, np.float32), np.float32(0)
    for x, y in batches(data):
        error = x @ weights + bias - y
        weights = weights - 0.05 * 2 * (error @ x) / len(x)
        bias = bias - 0.05 * 2 * error.mean()
    return weights, bias


def check_weights(data, checkpoint):
    with np.load(checkpoint / "saved.npz") as saved:
        found = saved["weights"], saved["bias"]
    for one, wanted in zip(found, trained_alone(data), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_with_a_killed_worker_goes_on_and_trains_on_each_row_once(tmp_path):
    check_weights(*check_a_killed_worker("ray_tensorflow.py", tmp_path))


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_run_with_killed_workers_goes_on_with_fewer_and_trains_on_each_row_once(tmp_path):
    check_weights(*check_two_killed_workers("ray_tensorflow.py", tmp_path))
