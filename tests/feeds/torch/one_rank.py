"""One process of a training with DistributedDataParallel, which tells what it found. Run by test_feed.py."""

import os
from datetime import timedelta

import numpy as np
import torch
from tests.processes import tell
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import penstock as ps

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
NUM_ROWS = 101  # Ends with a short batch, whatever the world.


def dataset(kind):
    rng = np.random.default_rng(0)
    x = rng.random((NUM_ROWS, 6), np.float32)
    ds = ps.from_arrays({"x": x, "y": x.sum(1) + 0.1, "n": np.arange(NUM_ROWS)})
    if kind == "filter":
        ds = ds.filter(lambda row: row["n"] % 7 != 0)
    return ds.shuffle(seed=2).batch(24)


def trained(feed, wrap, *, is_weighted):
    """The weights after three epochs, and which rows were trained on in each."""
    torch.manual_seed(0)
    model = wrap(torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    epochs = []
    for _ in range(3):
        rows = []
        for element in feed:
            batch, weight = element if is_weighted else (element, torch.ones(len(element["n"])))
            loss = (weight * (model(batch["x"])[:, 0] - batch["y"]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rows.append(batch["n"][weight > 0].tolist())
        epochs.append(rows)
    return {"w": [w.tolist() for w in model.parameters()], "epochs": epochs}


def main():
    distributed.init_process_group("gloo", timeout=timedelta(seconds=60))
    told = {}
    for kind in ("rows", "filter"):
        told[kind] = {"alone": trained(dataset(kind).to_torch(), lambda m: m, is_weighted=False)}
        for static in (False, True):
            part = dataset(kind).distribute(rank=RANK, world=WORLD, uneven="pad", static=static)
            feed = part.to_torch()
            told[kind][str(static)] = trained(feed, DistributedDataParallel, is_weighted=True)
    tell(told)
    # DistributedDataParallel of torch 2.13 leaves threads of gloo behind, which now and then abort the exit.
    os._exit(0)


if __name__ == "__main__":
    main()
