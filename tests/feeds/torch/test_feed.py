"""to_torch: what a DataLoader would be asked for."""

import pytest
from tests.feeds.batches import dataset

torch = pytest.importorskip("torch")


def test_torch_stands_where_a_data_loader_would():
    feed = dataset().to_torch()
    assert (feed.batch_size, len(feed), feed.num_workers) == (32, 16, 0)
    batch = next(iter(feed))
    assert batch["x"].dtype == torch.float32
    assert batch["x"].shape == (32, 7)
