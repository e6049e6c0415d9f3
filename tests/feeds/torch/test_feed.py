"""to_torch: what a DataLoader would be asked for."""

import time
from pathlib import Path

import numpy as np
import pytest
from tests.feeds.batches import dataset
from tests.feeds.faults import check_faults
from tests.processes import run_ranks
from tests.reused_results import NUMERIC, batches_of

import penstock as ps
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


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
def test_ranks_train_as_one_process_does_with_a_short_batch_too(world):
    script = Path(__file__).with_name("one_rank.py")
    ranks = run_ranks(script, world, PYTHONPATH=script.parents[3])
    for kind in ("rows", "filter"):
        alone = ranks[0][kind]["alone"]
        for static in ("False", "True"):
            parts = [told[kind][static] for told in ranks]
            for part in parts:
                for found, wanted in zip(part["w"], alone["w"], strict=True):
                    np.testing.assert_allclose(found, wanted, atol=1e-4)
            for epoch, batches in enumerate(alone["epochs"]):
                # Rank r has rows r, r + world, ... of each batch, and all have as many steps.
                for step, batch in enumerate(batches):
                    found = [part["epochs"][epoch][step] for part in parts]
                    assert found == [batch[rank::world] for rank in range(world)]
                assert {len(part["epochs"][epoch]) for part in parts} == {len(batches)}


@pytest.mark.slow
def test_ranks_wait_for_a_slow_one_and_end_when_one_can_not_read(tmp_path):
    check_faults("torch", tmp_path)


def test_waiting_for_a_slow_generator_is_told():
    def slow():
        for number in range(20):
            time.sleep(0.01)
            yield number

    feed = ps.from_generator(slow, spec=ps.ArraySpec((), "int64")).batch(1).to_torch()
    for _ in feed:
        pass
    assert feed.report().waited_share > 0.5


def test_a_gpu_of_apples_that_is_not_there_is_refused_when_the_feed_is_made(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    ds = ps.from_arrays(np.arange(6)).batch(2)
    with pytest.raises(ValueError, match=r"device='mps'.* finds none\. Leave device out"):
        ds.to_torch(device="mps")
