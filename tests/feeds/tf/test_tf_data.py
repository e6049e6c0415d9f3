"""A tf.data.Dataset cut from long batches, handed over batch by batch, or gathered: the batches are the same."""

import numpy as np
import pytest

import penstock as ps
from penstock.core.fingerprint import fingerprint
from penstock.core.state import State
from penstock.feeds.on_device.choice import choose
from penstock.feeds.passes import Pass

tf = pytest.importorskip("tensorflow")

from penstock.feeds.tf.device import TfDevice  # noqa: E402  # once tensorflow is known to be there
from penstock.feeds.tf.tf_data import resident_dataset, streamed_dataset  # noqa: E402

NUM_ROWS = 100


def rows():
    x = np.random.default_rng(0).random((NUM_ROWS, 5), np.float32)
    return ps.from_arrays((x, np.arange(NUM_ROWS))).shuffle(seed=0)


class Opened:
    """Opens a pass of the next epoch each time, and counts them."""

    def __init__(self, ds, **options):
        self.ds = ds
        self.options = options
        self.count = 0

    def __call__(self):
        self.count += 1
        begin = State(fingerprint(self.ds.node), self.count - 1)
        return Pass(self.ds, None, begin, **self.options)


def same(dataset, ds, epoch):
    found = [tuple(leaf.numpy() for leaf in batch) for batch in dataset]
    with ds.stream(epoch=epoch) as stream:
        wanted = [tuple(map(np.array, batch)) for batch in stream]
    return len(found) == len(wanted) and all(
        all(map(np.array_equal, mine, theirs)) for mine, theirs in zip(found, wanted, strict=True)
    )


CHAINS = {
    "long batches": lambda: rows().batch(8),
    "whole long batches": lambda: rows().batch(8, drop_remainder=True),
    "batches": lambda: rows().batch(8).shuffle(seed=1),
    "read forward": lambda: rows().filter(lambda x, n: n % 3 == 0).batch(8),
}


@pytest.mark.parametrize("kind", CHAINS)
def test_each_iterator_opens_a_pass_when_it_is_read_and_gives_its_batches(kind):
    ds = CHAINS[kind]()
    opened = Opened(ds)
    dataset = streamed_dataset(ds.node, ds.node.spec, opened, tf)
    assert opened.count == 0
    for epoch in range(2):
        assert same(dataset, ds, epoch)
        assert opened.count == epoch + 1


def test_the_spec_is_that_of_the_batches_however_they_are_handed_over():
    for kind, make in CHAINS.items():
        ds = make()
        size = 8 if kind == "whole long batches" else None
        dataset = streamed_dataset(ds.node, ds.node.spec, Opened(ds), tf)
        expected = (tf.TensorSpec((size, 5), tf.float32), tf.TensorSpec((size,), tf.int64))
        assert dataset.element_spec == expected


def resident():
    ds = rows().batch(8)
    device = TfDevice()
    data = choose(ds, device, device.put, "1MB").data
    return ds, data, Opened(ds, data=data, by_number=True)


def test_resident_rows_are_gathered_to_the_same_batches():
    ds, data, opened = resident()
    dataset = resident_dataset(ds.node, data, opened, tf)
    for epoch in range(2):
        assert same(dataset, ds, epoch)
    assert data.traffic.to_device_nbytes == NUM_ROWS * (5 * 4 + 8)
    assert data.traffic.index_nbytes == 2 * NUM_ROWS * 4


def test_what_is_gathered_can_be_finished_by_a_function():
    ds, data, opened = resident()
    dataset = resident_dataset(ds.node, data, opened, tf, finish=lambda batch: (batch[1] * 2,))
    assert same(dataset, ds.map(lambda x, n: (n * 2,)), 0)


def test_strategies_are_told_to_leave_the_files_of_a_dataset_alone():
    ds = rows().batch(8)
    options = streamed_dataset(ds.node, ds.node.spec, Opened(ds), tf).options()
    policy = options.experimental_distribute.auto_shard_policy
    assert policy == tf.data.experimental.AutoShardPolicy.OFF
