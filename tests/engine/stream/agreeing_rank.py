"""One of three ranks of torch.distributed that read datasets, some of which differ. Run by test_agreeing.py."""

import json
import os
import sys
import time
from collections.abc import Callable

import numpy as np
import torch.distributed

import penstock as ps

RANK = int(os.environ["RANK"])
X = np.arange(1200.0)


def until_told(make: Callable[[], ps.Dataset]) -> str:
    """Read a dataset, epoch after epoch, until it raises; or for two seconds."""
    ds = make()
    started = time.monotonic()
    while time.monotonic() - started < (60 if sys.argv[1] == "differ" else 2):
        try:
            for _ in ds:
                pass
        except ps.RankMismatchError as error:
            return str(error)
    return ""


def make(x: np.ndarray, seed: int = 0) -> ps.Dataset:
    return ps.from_arrays(x).shuffle(seed=seed).batch(12).distribute()


torch.distributed.init_process_group("gloo")
found = {}
if sys.argv[1] == "differ":
    # The classic mistake: each rank has loaded its own part of the data.
    found["rows"] = until_told(lambda: make(X + RANK))
    found["seed"] = until_told(lambda: make(X, seed=int(RANK == 2)))
    found["length"] = until_told(lambda: make(X[: 1200 - 12 * (RANK == 1)]))
else:
    found["same"] = until_told(lambda: make(X))
    if RANK == 0:
        found["alone"] = until_told(lambda: make(X[:600]))
    torch.distributed.barrier()
    found["after"] = until_told(lambda: make(X[:36]))
# Rank 0 has the store: it leaves last.
torch.distributed.barrier()
print(json.dumps(found))
