"""Train with PyTorch in several processes: global batches that are the same however many there are.

    torchrun --nproc-per-node 2 examples/torch_ddp.py run/

Kill it at any moment and start it again, with 2 processes or with 1, 3, 4: it goes on after the last checkpoint.
"""

import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import penstock as ps

EPOCHS, EVERY = 3, 5

# torchrun ends all processes when one of them dies. The time limit is for one that hangs; the default is 30 minutes.
distributed.init_process_group("gloo", timeout=timedelta(seconds=60))
checkpoint = Path(sys.argv[1]) / "checkpoint.pt"

# Each process reads its rows of each global batch of 48. The last one, of 41, is filled up where it has to be.
x = np.random.default_rng(0).random((1001, 8), np.float32)
ds = ps.from_arrays((x, x.sum(axis=1) + 0.1)).shuffle(seed=7)
feed = ds.batch(48).distribute(uneven="pad").to_torch()

torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
rows = torch.zeros((), dtype=torch.int64)  # how many this process has trained on
trained = DistributedDataParallel(model)  # averages gradients over processes


def save():
    """Save the model together with the place in the data. One process does it, in one step."""
    total = rows.clone()
    distributed.all_reduce(total)
    if distributed.get_rank() == 0:
        parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**parts, "state": feed.state(), "rows": total}, checkpoint.with_suffix(".new"))
        checkpoint.with_suffix(".new").replace(checkpoint)
        print(f"saved after {total} rows", flush=True)


if checkpoint.exists():
    saved = torch.load(checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    feed.resume(saved["state"])
    rows += saved["rows"] if distributed.get_rank() == 0 else 0
while feed.state()["epoch"] < EPOCHS:
    for number, ((x, y), weight) in enumerate(feed):
        loss = (weight * (trained(x)[:, 0] - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows += (weight > 0).sum()  # the repeats that fill up a batch weigh 0
        if number % EVERY == EVERY - 1:
            save()
    save()
distributed.barrier()  # All have saved: nobody leaves before.
distributed.destroy_process_group()
