"""to_torch: what a DataLoader would be asked for."""

import numpy as np
import pytest
from tests.feeds.batches import dataset
from tests.reused_results import NUMERIC, batches_of

from penstock.core.nest import flatten

torch = pytest.importorskip("torch")


def test_torch_stands_where_a_data_loader_would():
    feed = dataset().to_torch()
    assert (feed.batch_size, len(feed), feed.num_workers) == (32, 16, 0)
    batch = next(iter(feed))
    assert batch["x"].dtype == torch.float32
    assert batch["x"].shape == (32, 7)


@pytest.mark.parametrize("name", NUMERIC)
def test_a_batch_stays_what_the_function_returned_whatever_it_does_later(name):
    ds, wanted = batches_of(name)
    batches = list(ds.to_torch())
    assert [[leaf.tolist() for leaf in map(np.asarray, flatten(b)[0])] for b in batches] == wanted
