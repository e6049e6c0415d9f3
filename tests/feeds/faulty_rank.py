"""A rank of a training in which rank 1 is slow at first, and then can't read its file. Run by the tests of feeds.

Usage: faulty_rank.py ENGINE FOLDER, where ENGINE is 'torch' or 'jax', and FOLDER has rows.npy.
"""

import os
import shutil
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np

import penstock as ps

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def slow(batch):
    if RANK == 1:
        time.sleep(0.02)  # The fault itself: nothing waits for it but the others.
    return batch


def torch_sums(ds):
    from torch import distributed

    if not distributed.is_initialized():
        distributed.init_process_group("gloo", timeout=timedelta(seconds=30))
    for batch in ds.to_torch():
        total = batch.sum()
        distributed.all_reduce(total)
        yield float(total)


def jax_sums(ds):
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    if jax._src.distributed.global_state.client is None:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        address = f"127.0.0.1:{os.environ['MASTER_PORT']}"
        limits = {"heartbeat_timeout_seconds": 10, "shutdown_timeout_seconds": 10}
        jax.distributed.initialize(address, WORLD, RANK, **limits)
    sharding = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
    total = jax.jit(lambda batch: batch.sum())
    for batch in ds.to_jax(sharding=sharding):
        yield float(total(batch))


def main(engine, folder):
    sums = {"torch": torch_sums, "jax": jax_sums}[engine]
    path = Path(folder) / f"disk-{RANK}" / "rows.npy"
    path.parent.mkdir()
    shutil.copyfile(Path(folder) / "rows.npy", path)
    rows = ps.from_files(str(path)).batch(24).distribute(rank=RANK, world=WORLD, uneven="drop")
    print("slow", sum(sums(rows.map(slow))), flush=True)
    if RANK == 1:
        path.unlink()
    print("unreadable", sum(sums(rows)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
