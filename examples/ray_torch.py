"""Train with PyTorch on Ray Train: a worker that dies costs the steps since the last checkpoint, and no row.

    python examples/ray_torch.py run/ --workers 2

Ray starts all workers anew when one of them dies. Start the command again after the whole run was killed, with 2
workers or with 1, 3, 4: it goes on after the last checkpoint with the same global batches.
"""

import argparse
import json
import os
import signal
import tempfile
from pathlib import Path

import numpy as np
import ray
import ray.train.torch
import torch
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig

import penstock as ps

EVERY = 5


def write_data(folder):
    """Write 1001 rows, as three files."""
    folder.mkdir(parents=True)
    x = np.random.default_rng(0).random((1001, 8), np.float32)
    row, y = np.arange(1001), x.sum(axis=1) + np.float32(0.1)
    for part, rows in enumerate(np.array_split(row, 3)):
        np.savez(folder / f"{part}.npz", row=row[rows], x=x[rows], y=y[rows])


def train(config):
    """Train as one worker; Ray runs it in each of them."""
    # The worker's rows of each global batch of 48. The last one, of 41, is filled up where it has to be.
    ds = ps.from_files(f"{config['data']}/*.npz", fields=("row", "x", "y")).shuffle(seed=0)
    feed = ds.batch(48).distribute(uneven="pad").to_torch()
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    trained = ray.train.torch.prepare_model(model)  # averages gradients over workers
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    step = 0
    # Of this run, before a worker died or before it was started again.
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder) / "saved.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        feed.resume(saved["state"])
        step = saved["step"]
    last = config["epochs"] * len(feed)
    while step < last:
        for (row, x, y), weight in feed:
            rehearse(config, step, row[weight > 0])
            loss = (weight * (trained(x)[:, 0] - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % EVERY == 0 or step == last:
                parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                report(loss.item(), {**parts, "state": feed.state(), "step": step})


def report(loss, saved):
    """Report a checkpoint: all workers do at the same step, and the first of them has the files."""
    metrics = {"loss": loss, "step": saved["step"]}
    if ray.train.get_context().get_world_rank():
        ray.train.report(metrics)
        return
    with tempfile.TemporaryDirectory() as folder:
        torch.save(saved, Path(folder) / "saved.pt")
        ray.train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def rehearse(config, step, rows):
    """Note the rows of a step, and kill the last worker at some steps, once each: to see that all goes well."""
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    if config["log"]:
        who = {"step": step, "rank": rank, "world": world, "process": os.getpid()}
        with Path(config["log"]).open("a") as log:
            log.write(json.dumps({**who, "rows": rows.tolist()}) + "\n")
    mark = Path(config["data"], f"killed at {step}")
    if step in config["kill_at"] and rank == world - 1 and not mark.exists():
        mark.touch()
        ray.train.get_all_reported_checkpoints()  # Returns when Ray has got the last of them.
        os.kill(os.getpid(), signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of the data and of all checkpoints")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--max-failures", type=int, default=3)
    parser.add_argument("--kill-at", type=int, nargs="*", default=[], help="steps, for a rehearsal")
    parser.add_argument("--log", type=Path, help="a file for the rows of each step")
    args = parser.parse_args()
    data = args.folder.resolve() / "data"  # Workers may have another working directory.
    if not data.exists():
        write_data(data)
    config = {"data": str(data), "epochs": args.epochs, "kill_at": args.kill_at}
    config["log"] = args.log and str(args.log.resolve())
    ray.init(include_dashboard=False)
    result = ray.train.torch.TorchTrainer(
        train,
        train_loop_config=config,
        # Half a CPU each, so that four workers can be tried on two cores.
        scaling_config=ScalingConfig(num_workers=args.workers, resources_per_worker={"CPU": 0.5}),
        # A run of this name that is there already is gone on with.
        run_config=RunConfig(
            name="torch",
            storage_path=str(args.folder.resolve()),
            failure_config=FailureConfig(max_failures=args.max_failures),
        ),
    ).fit()
    print(f"trained for {result.metrics['step']} steps: loss {result.metrics['loss']:.6f}")


if __name__ == "__main__":
    main()
