"""to_jax: training on our memory, and batches spread by a sharding."""

import numpy as np
import pytest
from tests.feeds.batches import dataset, expected

jax = pytest.importorskip("jax")


def test_jax_trains_the_same_on_the_smallest_budget_as_on_copies():
    ds = dataset(16)
    small = ds.with_options(memory=ds.explain().need_nbytes)

    @jax.jit
    def step(weights, batch):
        return weights + 0.1 * batch["x"].mean(axis=0) * (1 + weights)

    found = wanted = np.zeros(7, np.float32)
    feed = small.to_jax()
    for epoch in range(10):
        for batch in feed:
            found = step(found, batch)  # Runs later than this line.
        for numbers, values in expected(ds, epoch):
            wanted = step(wanted, {"x": values, "n": numbers})
    assert np.array_equal(np.asarray(found), np.asarray(wanted))


def test_jax_spreads_batches_by_a_sharding():
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    feed = dataset().to_jax(sharding=sharding)
    assert next(iter(feed))["x"].sharding == sharding
