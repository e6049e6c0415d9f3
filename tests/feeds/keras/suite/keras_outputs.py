"""Batches of `predict` are changed in place, whatever the nest of a model's outputs."""

import numpy as np
import pytest

from penstock.feeds.keras.outputs import change_batches


def batches():
    return [np.zeros(3), np.ones(2)]


@pytest.mark.parametrize(
    "outputs",
    [
        batches(),
        [batches(), batches()],
        (batches(), [batches()]),
        {"a": batches(), "b": {"c": batches()}},
    ],
)
def test_every_batch_of_every_output_is_changed(outputs):
    count = []
    change_batches(outputs, lambda batch: count.append(len(batch)) or batch[:1])

    def sizes(nest):
        if isinstance(nest, np.ndarray):
            return [len(nest)]
        parts = nest.values() if isinstance(nest, dict) else nest
        return [size for part in parts for size in sizes(part)]

    assert set(sizes(outputs)) == {1}
    assert count == [3, 2] * (len(count) // 2)


@pytest.mark.parametrize("outputs", [None, [], {}])
def test_nothing_is_left_alone(outputs):
    change_batches(outputs, pytest.fail)
