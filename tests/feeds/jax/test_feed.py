"""to_jax: training on our memory, and batches spread by a sharding."""

import numpy as np
import pytest
from tests.feeds.batches import dataset, expected
from tests.feeds.dtypes_of_numpy import DTYPES, assert_arrives_or_is_refused, is_plain_number
from tests.feeds.faults import check_faults
from tests.reused_results import NUMERIC, batches_of

from penstock.core.nest import flatten

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


@pytest.mark.parametrize("name", NUMERIC)
def test_a_batch_stays_what_the_function_returned_whatever_it_does_later(name):
    ds, wanted = batches_of(name)
    batches = list(ds.to_jax())
    assert [[leaf.tolist() for leaf in map(np.asarray, flatten(b)[0])] for b in batches] == wanted


HAS = {"bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn", "int4"}


@pytest.mark.parametrize("device_memory", [None, "1MB"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:JAX narrows")
def test_a_dtype_arrives_with_its_values_or_is_refused(dtype, device_memory):
    has = is_plain_number(dtype) or str(dtype) in HAS
    assert_arrives_or_is_refused(dtype, lambda ds: ds.to_jax(device_memory=device_memory), has=has)


@pytest.mark.slow
def test_ranks_wait_for_a_slow_one_and_end_when_one_can_not_read(tmp_path):
    check_faults("jax", tmp_path)
